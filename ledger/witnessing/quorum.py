"""Quorums: which witnesses are trusted, and how many of them must cosign.

Source: C2SP tlog-policy; docs/reference/ledger-format.md, "Cosignature" and "Suspect entries".
Trust: the policy file is the reader's own, but is read strictly; notes are hostile.
I/O: read_quorum() reads the policy file.  Units: POSIX seconds; sizes in entries.
Not covered: witnesses with ML-DSA-44 keys; a policy that names one is refused.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ledger.database import explained
from ledger.errors import MalformedError, QuorumError, QuorumFileError
from ledger.files import open_regular
from ledger.verification.authority import Authority
from ledger.verification.verified_notes import (
    parse_note,
    parse_tree_head,
    parse_vkey,
)
from ledger.witnessing.cosignatures import cosigned_at

_NONE = "none"  # the predefined name of a quorum of nobody
_MAX_FILE = 1_000_000  # bytes; 32 of everything take some 10,000
_FORBIDDEN = re.compile(rb"[^\t\n\x20-\x7e\x80-\xff]")
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


@dataclass(frozen=True, kw_only=True)
class PolicyWitness:
    """A trusted witness under the name that it has inside of this policy."""

    name: str
    vkey: str
    url: str | None  # submission prefix


@dataclass(frozen=True, kw_only=True)
class Group:
    """Agrees if at least so many of its members do."""

    name: str
    threshold: int
    members: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Witnessed:
    """Who cosigned a note, and whether that is enough."""

    since: int | None  # s, when enough had; 0 where the rule asks for nobody, None where too few
    times: Mapping[str, int]  # s, by the policy's name for the witness
    false: tuple[str, ...] = ()  # the names in which a line stands that does not hold
    revoked: tuple[str, ...] = ()  # whose line would hold, had its key not been revoked

    @property
    def met(self) -> bool:
        """Whether enough cosigned."""
        return self.since is not None


@dataclass(frozen=True, kw_only=True)
class WitnessedHeads:
    """What a ledger's tree heads show of its witnesses."""

    size: int  # of the largest tree head that meets the quorum; 0 if none does
    note: str | None  # of that tree head
    times: tuple[tuple[int, int], ...]  # size of each tree head that meets it, and s since when
    false: tuple[tuple[int, str], ...] = ()
    """Size and witness of each line that does not hold: somebody forged or damaged it."""


@dataclass(frozen=True, kw_only=True)
class Quorum:
    """A policy file, read and found sound; groups stand behind what they refer to."""

    logs: tuple[str, ...]  # vkeys of the ledgers that the policy is for; none: for any
    witnesses: tuple[PolicyWitness, ...]
    groups: tuple[Group, ...]
    rule: str  # the name of a witness or a group, or `none`

    def verify_log(self, vkey: str) -> None:
        """Raise QuorumError if the policy names logs and this ledger's first key is not one.

        Keys are compared, as the source asks; the name is the ledger's origin and has to be
        the same too.
        """
        key = parse_vkey(vkey)
        if self.logs and key not in list(map(parse_vkey, self.logs)):
            raise QuorumError(
                f"the policy has no log line for the ledger {key.name}; use the policy "
                "for this ledger"
            )

    def check(self, note: str, *, authority: Authority | None = None) -> Witnessed:
        """Tell which witnesses cosigned a tree head and when.

        With the ledger's `authority`, lines by keys that it revoked do not count from there on.
        The ledger's own signature is not looked at. Raises MalformedError for what is no tree head.
        """
        signed, size = parse_note(note), parse_tree_head(note).size
        times: dict[str, int] = {}
        false, revoked = [], []
        for witness in self.witnesses:
            seconds, pretended = cosigned_at(signed, vkey=witness.vkey)
            if pretended:
                false.append(witness.name)
            if seconds is None:
                continue
            public_key = parse_vkey(witness.vkey, role="witness").public_key
            if authority and not authority.vouches(public_key, size=size, seconds=seconds):
                revoked.append(witness.name)
            else:
                times[witness.name] = seconds
        met = (
            at
            for at in sorted({0, *times.values()})
            if self._is_met({name for name, seconds in times.items() if seconds <= at})
        )
        return Witnessed(
            since=next(met, None), times=times, false=tuple(false), revoked=tuple(revoked)
        )

    def verify(self, note: str, *, authority: Authority | None = None) -> None:
        """Raise QuorumError unless enough witnesses cosigned; else as check()."""
        witnessed = self.check(note, authority=authority)
        if not witnessed.met:
            by = ", ".join(map(_shown, witnessed.times)) or "no trusted witness"
            asides = [
                *(f"; the signature line of {_shown(w)} is invalid" for w in witnessed.false),
                *(f"; the key of {_shown(w)} is revoked" for w in witnessed.revoked),
            ]
            raise QuorumError(
                f"the tree head is cosigned by {by}, which does not meet the quorum "
                f"{_shown(self.rule)!r}{''.join(asides)}"
            )

    def _is_met(self, agreeing: set[str]) -> bool:
        for group in self.groups:
            if len(agreeing.intersection(group.members)) >= group.threshold:
                agreeing.add(group.name)
        return self.rule == _NONE or self.rule in agreeing


def witnessed_heads(
    notes: Iterable[str], *, quorum: Quorum, authority: Authority | None = None
) -> WitnessedHeads:
    """Tell which of a ledger's tree heads were witnessed; give those that were verified.

    `authority` says which keys stand at the ledger's end.
    """
    size, newest = 0, None
    times: list[tuple[int, int]] = []
    false: list[tuple[int, str]] = []
    bare = quorum.rule == _NONE
    for note in notes:
        if not bare and note.count("\n\u2014 ") < 2:  # the ledger's own line only
            continue
        head = parse_tree_head(note)
        witnessed = quorum.check(note, authority=authority)
        false += [(head.size, _shown(name)) for name in witnessed.false]
        if witnessed.since is None:
            continue
        if not bare:
            times.append((head.size, witnessed.since))
        if head.size > size:
            size, newest = head.size, note
    return WitnessedHeads(size=size, note=newest, times=tuple(times), false=tuple(false))


def read_quorum(path: Path) -> Quorum:
    """Read a policy file; raise QuorumFileError, which names file and line."""
    with explained(path), open_regular(path) as file:
        policy = file.read(_MAX_FILE + 1)
    try:
        return parse_quorum(policy)
    except QuorumFileError as e:
        raise QuorumFileError(f"{path}: {e}") from e


def parse_quorum(policy: bytes | str) -> Quorum:
    """Return what a policy file says; raise QuorumFileError, which names the line."""
    octets = policy.encode("utf-8", "surrogateescape") if isinstance(policy, str) else policy
    if len(octets) > _MAX_FILE:
        raise QuorumFileError(f"the policy is longer than {_MAX_FILE} bytes")
    parser = _Parser()
    *lines, rest = octets.split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            parser.line(line)
        except (MalformedError, QuorumFileError) as e:
            raise QuorumFileError(f"line {number}: {e}") from e
    if rest:
        raise QuorumFileError(
            f"line {len(lines) + 1}: no newline at the end; is the file complete?"
        )
    return parser.end()


class _Parser:
    """Takes a policy in line by line.

    A name is a byte string to the format. Here it is text that the bytes can be had back from,
    so that two names are the same text exactly if they are the same bytes.
    """

    def __init__(self) -> None:
        self._logs: dict[bytes, str] = {}  # vkeys, by public key
        self._witnesses: dict[bytes, PolicyWitness] = {}
        self._groups: list[Group] = []
        self._names = {_NONE}
        self._members: set[str] = set()
        self._rule: str | None = None

    def line(self, octets: bytes) -> None:
        if found := _FORBIDDEN.search(octets):
            raise QuorumFileError(f"the byte 0x{found[0][0]:02x} is not allowed in a policy")
        words = [w for w in re.split(r"[ \t]+", octets.decode("utf-8", "surrogateescape")) if w]
        match words:
            case []:
                return
            case [first, *_] if first.startswith("#"):
                return
            case ["log", vkey] | ["log", vkey, _]:
                self._log(vkey)
            case ["witness", name, vkey]:
                self._witness(name, vkey, None)
            case ["witness", name, vkey, url]:
                self._witness(name, vkey, url)
            case ["group", name, threshold, *members] if members:
                self._group(name, threshold, members)
            case ["quorum", name]:
                self._quorum(name)
            case ["log" | "witness" | "group" | "quorum" as kind, *_]:
                raise QuorumFileError(f"a {kind} line cannot have {len(words) - 1} items")
            case [kind, *_]:
                raise QuorumFileError(
                    f"unknown keyword {_shown(kind)!r}; a line starts with log, witness, group, "
                    "quorum or #"
                )

    def end(self) -> Quorum:
        if self._rule is None:
            raise QuorumFileError(
                "quorum line not found; write `quorum none` to require no witness"
            )
        return Quorum(
            logs=tuple(self._logs.values()),
            witnesses=tuple(self._witnesses.values()),
            groups=tuple(self._groups),
            rule=self._rule,
        )

    def _log(self, vkey: str) -> None:
        key = parse_vkey(vkey).public_key
        if key in self._logs:
            raise QuorumFileError("this log's public key is repeated from an earlier line")
        self._logs[key] = vkey

    def _witness(self, name: str, vkey: str, url: str | None) -> None:
        key = parse_vkey(vkey, role="witness").public_key
        if key in self._witnesses:
            raise QuorumFileError("this witness's public key is repeated from an earlier line")
        self._define(name)
        self._witnesses[key] = PolicyWitness(name=name, vkey=vkey, url=url)

    def _group(self, name: str, threshold: str, members: list[str]) -> None:
        for member in members:
            self._refer(member)
            if member == _NONE:
                raise QuorumFileError("none cannot be a member of a group")
            if member in self._members:
                raise QuorumFileError(f"{_shown(member)!r} is already a member of a group")
            self._members.add(member)
        self._define(name)
        self._groups.append(
            Group(name=name, threshold=_threshold(threshold, len(members)), members=tuple(members))
        )

    def _quorum(self, name: str) -> None:
        if self._rule is not None:
            raise QuorumFileError("there is more than one quorum line")
        self._refer(name)
        self._rule = name

    def _define(self, name: str) -> None:
        if name in self._names:
            raise QuorumFileError(f"the name {_shown(name)!r} is already used")
        self._names.add(name)

    def _refer(self, name: str) -> None:
        if name not in self._names:
            raise QuorumFileError(f"{_shown(name)!r} is not defined on an earlier line")


def _threshold(word: str, members: int) -> int:
    if word in ("all", "any"):
        return members if word == "all" else 1
    if not _NUMBER.fullmatch(word) or int(word) > members:
        raise QuorumFileError(
            f"{_shown(word)!r} of {members} members is not possible; write all, any, or a "
            f"number from 1 to {members}"
        )
    return int(word)


def _shown(name: str) -> str:
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
