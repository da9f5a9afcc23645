"""Which keys are in force in a ledger, for which entries, and what a revocation makes suspect.

A state machine over the ledger's own entries: an accepted entry changes the state, a rejected one
does not.

Source: docs/reference/ledger-format.md, "Keys", "Rotation" and "Suspect entries".
Trust: entries are hostile; the first vkey is trusted, everything else follows from it.
I/O: none.  Units: indexes and sizes in entries; `since` in ns, cosignatures in s.
Memory: a record for each key that was ever in force.
Not covered: tree heads and cosignatures, whose signatures the caller looks at.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Self
from uuid import UUID

from ledger.bodies import decode_body
from ledger.errors import MalformedError, SignatureError, VerificationError
from ledger.schemes import schemes_of
from ledger.verification.verified_entries import VerifiedEntry, verify_author
from ledger.verification.verified_notes import parse_note, parse_vkey, verify_note

_ROTATION = "ledger/rotation/v1"
_LIMIT = 2**63  # integers stay below it
_NS = 10**9
AUTHORITY_EVENTS: dict[str, dict[str, type]] = {
    "key.granted": {"role": str, "vkey": str},
    "key.revoked": {"role": str, "vkey": str, "since": int, "reason": str},
    "key.rotated": {"note": str},
    "clock.jumped": {"by": int, "clock": int},
}
"""The events that mean something in the authority stream, and their bodies' keys beside `v`."""


@dataclass(frozen=True, kw_only=True)
class Rotation:
    """The ledger's key hands over to another."""

    old: str  # vkeys
    new: str


@dataclass(frozen=True, kw_only=True)
class Revocation:
    """From `since` on a key is not to be trusted."""

    index: int  # of the entry that says so
    since: int  # ns
    reason: str
    lifted: int | None = None  # the entry that granted the key again; it does not reach further

    def reaches_line(self, *, size: int, seconds: int) -> bool:
        """Tell whether a witness's line with this time, under a head of this size, is in doubt."""
        if self.lifted is not None and size > self.lifted:
            return False
        return size > self.index or (seconds + 1) * _NS > self.since


@dataclass(frozen=True, kw_only=True)
class KeyRecord:
    """One key, and where in the ledger it is in force."""

    role: str
    vkey: str
    public_key: bytes  # as in VerifierKey
    granted: int | None  # the last entry that let it in, in force after it; None: from the start
    ended: int | None = None  # the last entry where it is in force
    revocations: tuple[Revocation, ...] = ()

    @property
    def key_id(self) -> bytes:
        """What an author block names it by, 32 bytes."""
        return hashlib.sha256(self.public_key).digest()


@dataclass(frozen=True, kw_only=True)
class Suspicion:
    """What one revocation leaves in doubt."""

    key: KeyRecord
    revocation: Revocation
    witnessed: int  # entries below this index were witnessed before
    covered: range  # entries whose first tree head the key signed; empty unless a ledger's key

    def includes(self, entry: VerifiedEntry) -> bool:
        """Tell whether an entry of this ledger is suspect."""
        if entry.index < self.witnessed:
            return False
        lifted = self.revocation.lifted
        reached = lifted is None or entry.index <= lifted
        authored = entry.author is not None and entry.author.key_id == self.key.key_id
        return (authored and reached) or entry.index in self.covered


class Authority:
    """What stands after the entries that were applied, in the order of their index."""

    def __init__(self, vkey: str) -> None:
        first = parse_vkey(vkey)
        self.origin = first.name
        self.stream_id = authority_stream(first.name)
        self.operated = False  # whether an operator was ever granted
        self.last_jump: tuple[int, int] | None = None  # time of its entry, and by how much, in ns
        self._turns: tuple[tuple[int, str], ...] = ((0, vkey.strip()),)  # smallest size, vkey
        self.rotations: tuple[str, ...] = ()  # notes, oldest first
        record = KeyRecord(
            role="ledger", vkey=vkey.strip(), public_key=first.public_key, granted=None
        )
        self._records = {record.key_id: record}

    @property
    def vkey(self) -> str:
        """The ledger's key that signs the next tree head."""
        return self._turns[-1][1]

    @property
    def keys(self) -> tuple[KeyRecord, ...]:
        """Every key that ever stood, in the order in which they were let in."""
        return tuple(self._records.values())

    def ledger_vkey_at(self, size: int) -> str:
        """Return the key that has to sign the tree head of this size."""
        return self._turns[bisect_right(self._turns, size, key=lambda turn: turn[0]) - 1][1]

    def in_force(self, role: str, public_key: bytes) -> bool:
        """Tell whether a key may act in a role in the entry that follows."""
        record = self._records.get(hashlib.sha256(public_key).digest())
        return record is not None and record.ended is None and record.role == role

    def vouches(self, public_key: bytes, *, size: int, seconds: int) -> bool:
        """Tell whether a witness's line under a tree head counts, as far as revocations go.

        Whom to trust beside that is the reader's choice: a key never granted here counts.
        """
        record = self._records.get(hashlib.sha256(public_key).digest())
        return record is None or not any(
            revocation.reaches_line(size=size, seconds=seconds) for revocation in record.revocations
        )

    def copy(self) -> Self:
        """Return another one that stands where this one does."""
        other = copy(self)
        other._records = dict(self._records)
        return other

    def apply(self, entry: VerifiedEntry) -> None:
        """Take in an entry that stands in the authority stream or has an author.

        All others may be left out. Raises MalformedError or SignatureError, with the index.
        """
        if entry.author is not None:
            self._check_author(entry)
        if entry.stream_id == self.stream_id and entry.name in AUTHORITY_EVENTS:
            fields = _fields(entry)
            try:
                self._check_right(entry, fields)
                match entry.name:
                    case "key.granted":
                        again = entry.author is not None and entry.author.role == "ledger"
                        self._grant(entry.index, again=again, **fields)
                    case "key.revoked":
                        self._revoke(entry.index, **fields)
                    case "key.rotated":
                        self._rotate(entry.index, **fields)
                    case "clock.jumped":
                        _check_jump(**fields)
                        self.last_jump = (entry.time_ns, fields["by"])
            except VerificationError as e:
                raise type(e)(f"entry {entry.index}: {e}", index=entry.index) from e

    def _check_author(self, entry: VerifiedEntry) -> None:
        """ "Author": the key is in force in that role where the entry stands, and has signed."""
        author = entry.author
        assert author is not None
        record = self._records.get(author.key_id)
        stands = record is not None and record.ended is None and record.role == author.role
        if (
            record is None
            or not stands
            or not parse_vkey(record.vkey, role=record.role).scheme.entries
        ):
            raise SignatureError(
                f"entry {entry.index} is signed as {author.role!r} by a key that is not in force "
                f"for that role at that entry: {author.key_id.hex()}",
                index=entry.index,
            )
        verify_author(entry, origin=self.origin, public_key=record.public_key)

    def _check_right(self, entry: VerifiedEntry, fields: dict[str, Any]) -> None:
        """ "Keys", the table's last column."""
        role = None if entry.author is None else entry.author.role
        if entry.name in ("key.rotated", "clock.jumped"):
            if role is not None:
                raise MalformedError(f"{entry.name} has an author, but must not have one")
        elif role != "operator" and (
            role != "ledger" or not self._is_left_to_the_root(entry, fields)
        ):
            wanted = (
                "operator"
                if self.operated and fields["role"] != "operator"
                else "operator or ledger"
            )
            raise MalformedError(
                f"{entry.name} has the author {role}, but must be signed by {wanted}"
            )

    def _is_left_to_the_root(self, entry: VerifiedEntry, fields: dict[str, Any]) -> bool:
        """Tell whether the ledger's key may write this: always what dislodges a stolen operator."""
        again = (
            entry.name == "key.granted" and self._find(fields["role"], fields["vkey"]) is not None
        )
        return not self.operated or fields["role"] == "operator" or again

    def _grant(self, index: int, *, role: str, vkey: str, again: bool) -> None:
        if role == "ledger" or not schemes_of(role):
            raise MalformedError(f"the role {role!r} cannot be granted")
        record = self._find(role, vkey)
        if again and record is not None and record.ended is not None:
            self._records[record.key_id] = replace(
                record,
                granted=index,
                ended=None,
                revocations=tuple(
                    replace(r, lifted=index) if r.lifted is None else r for r in record.revocations
                ),
            )
            return
        self._admit(
            KeyRecord(
                role=role,
                vkey=vkey,
                public_key=_public_key(vkey, role=role),
                granted=index,
            )
        )
        self.operated = self.operated or role == "operator"

    def _revoke(self, index: int, *, role: str, vkey: str, since: int, reason: str) -> None:
        record = self._find(role, vkey)
        if record is None:
            raise MalformedError(f"the revoked key was never in force as {role!r}: {vkey}")
        if not 0 <= since < _LIMIT:
            raise MalformedError(f"the revocation has `since` {since}, which is not a valid time")
        revocation = Revocation(index=index, since=since, reason=reason)
        self._records[record.key_id] = replace(
            record,
            ended=index if record.ended is None else record.ended,
            revocations=(*record.revocations, revocation),
        )

    def _rotate(self, index: int, *, note: str) -> None:
        rotation = parse_rotation(note, origin=self.origin)
        if rotation.old != self.vkey:
            raise MalformedError("the rotation is from a key that is not the ledger's")
        old = next(r for r in self.keys if r.vkey == self.vkey)
        public_key = _public_key(rotation.new, role="ledger")
        self._admit(
            KeyRecord(role="ledger", vkey=rotation.new, public_key=public_key, granted=index)
        )
        if old.ended is None:
            self._records[old.key_id] = replace(old, ended=index)
        self._turns = (*self._turns, (index + 1, rotation.new))
        self.rotations = (*self.rotations, note)

    def _find(self, role: str, vkey: str) -> KeyRecord | None:
        return next((r for r in self.keys if (r.role, r.vkey) == (role, vkey)), None)

    def _admit(self, record: KeyRecord) -> None:
        """ "Keys": one public key, one vkey, one role, once."""
        if record.key_id in self._records:
            raise MalformedError(f"the key was already used in this ledger: {record.vkey}")
        self._records[record.key_id] = record


def authority_stream(origin: str) -> UUID:
    """Return the id of the stream that says which keys stand for a ledger."""
    return UUID(bytes=hashlib.sha256(f"ledger/authority/v1\n{origin}".encode()).digest()[:16])


def parse_rotation(note: str, *, origin: str) -> Rotation:
    """Return what a rotation of this ledger's key says, its two signatures having been checked.

    Whether the old key is the one in force is Authority's to say.
    """
    signed = parse_note(note)
    title, own_origin, old, new, *rest = [*signed.text.split("\n"), "", "", ""]
    if (title, own_origin, rest) != (_ROTATION, origin, ["", "", "", ""]):
        raise MalformedError("the note is not a rotation of this ledger's key")
    if len(signed.signatures) != 2:
        raise MalformedError(f"the rotation has {len(signed.signatures)} signatures, expected two")
    if old == new:
        raise MalformedError("the rotation is from a key to itself")
    for vkey in (old, new):
        key = parse_vkey(vkey)
        if key.name != origin or vkey != vkey.strip():
            raise MalformedError("a key of the rotation does not have the ledger's name")
        verify_note(signed, key=key)
    return Rotation(old=old, new=new)


def suspects(
    authority: Authority,
    *,
    witnessed: Iterable[tuple[int, int]] = (),
    sizes: Iterable[int],
) -> tuple[Suspicion, ...]:
    """Return what each revocation leaves in doubt.

    `witnessed` holds size and time (s) of each tree head with a valid cosignature by a witness
    whom the caller trusts, `sizes` the sizes of all tree heads, ascending.
    """
    seen = tuple(witnessed)
    spans = _spans(authority._turns, sizes)
    return tuple(
        Suspicion(
            key=key,
            revocation=revocation,
            witnessed=max(
                (size for size, seconds in seen if (seconds + 1) * _NS <= revocation.since),
                default=0,
            ),
            covered=spans.get(key.vkey, range(0)) if key.role == "ledger" else range(0),
        )
        for key in authority.keys
        for revocation in key.revocations
    )


def _spans(turns: tuple[tuple[int, str], ...], sizes: Iterable[int]) -> dict[str, range]:
    """Return for each ledger key the entries whose first tree head it signed."""
    last = [0] * len(turns)  # the largest size that each key signed
    for size in sizes:
        last[bisect_right(turns, size, key=lambda turn: turn[0]) - 1] = size
    spans = {}
    start = 0
    for (_, vkey), end in zip(turns, last, strict=True):
        spans[vkey] = range(start, max(start, end))
        start = max(start, end)
    return spans


def _fields(entry: VerifiedEntry) -> dict[str, Any]:
    """ "Body": the keys of the table and `v`, no others, in the only permitted encoding."""
    wanted = {"v": int, **AUTHORITY_EVENTS[entry.name]}
    try:
        body = decode_body(entry.body)
    except MalformedError as e:
        raise MalformedError(
            f"entry {entry.index}: the body of {entry.name} is malformed: {e}", index=entry.index
        ) from e
    if {key: type(value) for key, value in body.items()} != wanted or body.pop("v") != 1:
        raise MalformedError(
            f"entry {entry.index}: the body of {entry.name} is not `v` 1 and {list(wanted)[1:]}",
            index=entry.index,
        )
    return body


def _check_jump(*, by: int, clock: int) -> None:
    if not (-_LIMIT <= by < _LIMIT and -_LIMIT <= clock < _LIMIT):
        raise MalformedError(f"the clock values are not possible: clock {clock}, jump {by}")


def _public_key(vkey: str, *, role: str) -> bytes:
    key = parse_vkey(vkey, role=role)
    if vkey != vkey.strip():
        raise MalformedError("the vkey has white space around it")
    return key.public_key
