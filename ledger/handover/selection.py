"""Entries that somebody selected from a ledger, and what they prove without the rest of it.

Reports, models handed over and lineages rest on such entries. Their writers and their verifiers
choose with choose(); what was chosen is opened with read_selection(), whose rules are the ledger's:

1. Entries have the order, the links and the times of a ledger, as far as they are there.
2. The authority stream is there from its first event on, without a gap. Authority replays it, and
   checks each author where the entry stands.
3. Every other stream that is wanted as a whole is there from its first event on, without a gap.

Source: docs/reference/ledger-format.md, "Selections".
Trust: entries are proved to be under one tree head; which of them are there, and what they say, is
hostile.
I/O: none.
Not covered: what is left out at the end of a stream, and whole streams (Selection.as_of says so).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from uuid import UUID

from ledger.bodies import encode_body
from ledger.errors import ConsistencyError, InclusionError, LinkError, SignatureError
from ledger.handover.proof_files import open_proofs
from ledger.mapper import ns_to_datetime
from ledger.verification.authority import Authority, KeyRecord, authority_stream
from ledger.verification.proofs import earlier_roots
from ledger.verification.rotations import vkeys_along
from ledger.verification.verified_entries import VerifiedEntry
from ledger.verification.verified_notes import TreeHead

LAST = "the last "  # before the name of an event of which the last is wanted
Wanted = Mapping[UUID, Collection[str] | None]
"""By stream: the names of the events that are wanted beside its last one; None for all."""


@dataclass(frozen=True)
class Selection:
    """Entries of one ledger as of one tree head, their authors checked."""

    head: TreeHead
    rotations: tuple[str, ...]  # notes, oldest first
    vkeys: tuple[str, ...]  # of the ledger itself, oldest first; the last signed the tree head
    authority: Authority  # as it stands after the last entry
    entries: tuple[VerifiedEntry, ...]
    paths: tuple[tuple[bytes, ...], ...]  # of the entries, to the tree head's root

    @cached_property
    def _streams(self) -> dict[UUID, list[VerifiedEntry]]:
        found: dict[UUID, list[VerifiedEntry]] = {}
        for entry in self.entries:
            found.setdefault(entry.stream_id, []).append(entry)
        return found

    @cached_property
    def _places(self) -> dict[int, int]:
        return {entry.index: place for place, entry in enumerate(self.entries)}

    def of_stream(self, stream: UUID) -> Sequence[VerifiedEntry]:
        """Return the entries of a stream, as far as they are here."""
        return self._streams.get(stream, ())

    def root_at(self, size: int) -> bytes | None:
        """Return the root that the ledger had at a size.

        It is known where the last entry of that size is here, or the one that follows it.
        """
        for index in (size - 1, size):
            place = self._places.get(index)
            if place is not None:
                before, upto = earlier_roots(
                    self.entries[place].entry_hash,
                    index=index,
                    size=self.head.size,
                    proof=self.paths[place],
                )
                return upto if index < size else before
        return None

    def verify_choice(self, wanted: Wanted, *, beside: Collection[int] = ()) -> None:
        """Raise InclusionError unless the entries are those that choose() chooses, without gaps.

        Entries with the indexes `beside` may be there as well.
        """
        chosen = choose(self.entries, wanted, origin=self.head.origin)
        if {entry.index for entry in chosen} | {*beside} != {e.index for e in self.entries}:
            raise InclusionError("entries are proved that nothing here rests on")
        for stream in (stream for stream, names in wanted.items() if names is None):
            _verify_whole(self.entries, stream)

    @property
    def as_of(self) -> str:
        """Up to where the entries are known, and what can be left out, in one sentence."""
        newest = ns_to_datetime(self.entries[-1].time_ns)
        return (
            f"As of tree head {self.head.size} (newest entry shown: {newest:%Y-%m-%dT%H:%M:%SZ}): "
            "other audits and later entries, such as a revoked key, can be left out; verify the "
            "ledger or a bundle to exclude that."
        )

    def author(self, entry: VerifiedEntry) -> KeyRecord | None:
        """Return the key that signed an entry; None for an entry that nobody signed."""
        if entry.author is None:
            return None
        named = entry.author.key_id
        return next(key for key in self.authority.keys if key.key_id == named)

    def granted_by(self, key: KeyRecord) -> KeyRecord | None:
        """Return the key that granted another; None for the ledger's first key."""
        grant = next((entry for entry in self.entries if entry.index == key.granted), None)
        return None if grant is None else self.author(grant)


def choose(entries: Iterable[VerifiedEntry], wanted: Wanted, *, origin: str) -> list[VerifiedEntry]:
    """Return the entries that are wanted, and the authority stream.

    Of a stream of which some events are wanted the last one comes with them, because verdicts
    depend on its length.
    """
    wanted = {**wanted, authority_stream(origin): None}
    chosen = []
    last: dict[UUID, VerifiedEntry] = {}
    ending: dict[UUID, VerifiedEntry] = {}
    for entry in entries:
        if entry.stream_id in wanted:
            names = wanted[entry.stream_id]
            if names is None or entry.name in names:
                chosen.append(entry)
                last.pop(entry.stream_id, None)
            elif LAST + entry.name in names:
                ending[entry.stream_id] = entry
                last.pop(entry.stream_id, None)
            else:
                last[entry.stream_id] = entry
    return sorted([*chosen, *last.values(), *ending.values()], key=lambda entry: entry.index)


def read_selection(proofs: str, *, vkey: str, gaps: bool = False) -> Selection:
    """Return the entries of write_proofs() with the keys in force; raises VerificationError.

    With `gaps`, the authority stream may be incomplete, as in files of earlier versions: then
    nothing says that a key was not revoked.
    """
    proved = open_proofs(proofs, vkey=vkey)
    head, rotations = proved[0].head, proved[0].rotations
    entries = tuple(each.entry for each in proved)
    _verify_order(entries)
    authority = Authority(vkey)
    if not gaps:
        _verify_whole(entries, authority.stream_id)
    due = list(rotations)
    for entry in entries:
        if gaps and entry.name != "key.rotated":
            _rotate_up_to(entry, due, authority)
        if entry.author is not None or entry.stream_id == authority.stream_id:
            authority.apply(entry)
    vkeys = tuple(vkeys_along(rotations, vkey=vkey))
    if not gaps and authority.rotations != rotations:
        raise SignatureError("the file leaves out a rotation of the ledger's key")
    paths = tuple(each.path for each in proved)
    return Selection(head, rotations, vkeys, authority, entries, paths)


def _verify_whole(entries: Iterable[VerifiedEntry], stream: UUID) -> None:
    """Raise InclusionError if an event within a stream is left out."""
    own = (entry for entry in entries if entry.stream_id == stream)
    for due, entry in enumerate(own, start=1):
        if entry.stream_version != due:
            raise InclusionError(f"the file leaves out event {due} of stream {stream}")


def _verify_order(entries: Sequence[VerifiedEntry]) -> None:
    """Raise VerificationError where entries cannot be of one ledger, in this order."""
    versions: dict[UUID, int] = {}
    for before, entry in pairwise([None, *entries]):
        assert entry is not None  # only the first is
        at = entry.index
        if entry.stream_version <= versions.get(entry.stream_id, 0):
            raise ConsistencyError(f"entry {at} repeats an event of its stream", index=at)
        versions[entry.stream_id] = entry.stream_version
        if before is None:
            continue
        if entry.time_ns < before.time_ns:
            raise ConsistencyError(f"entry {at} has an earlier time than entry {before.index}")
        if before.index == at - 1 and entry.previous != before.entry_hash:
            raise LinkError(f"entry {at} does not contain the hash of entry {at - 1}", index=at)


def _rotate_up_to(entry: VerifiedEntry, due: list[str], authority: Authority) -> None:
    """Apply rotations whose entries are left out, where an entry is signed by the new key."""
    author = entry.author
    while due and author and author.role == "ledger" and not _is_known(author.key_id, authority):
        rotated = VerifiedEntry(
            index=entry.index - 1,
            time_ns=entry.time_ns,
            stream_id=authority.stream_id,
            stream_version=0,
            name="key.rotated",
            body=encode_body({"v": 1, "note": due.pop(0)}),
            author=None,
            previous=b"",
            entry_hash=b"",
        )
        authority.apply(rotated)


def _is_known(key_id: bytes, authority: Authority) -> bool:
    return any(key.key_id == key_id for key in authority.keys)
