"""The events that a handed-over model rests on: which they are, and what they say.

The same events are picked from a ledger when a folder is written, and read from their proofs when
it is verified. What the folder claims follows from them alone.

Trust: entries are proved to be the ledger's; what they say is hostile, or missing.
I/O: none.
Not covered: events that are left out, such as a later audit, or the revocation of a key.
"""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from aggregates.audit import GATES, STEPS, unchecked
from aggregates.run import REPEATABLE
from aggregates.violations import violations_found
from ledger.errors import MalformedError, SignatureError
from ledger.handover.proof_files import ProvedEntry
from ledger.mapper import readable_body
from ledger.verification.authority import authority_stream
from ledger.verification.rotations import vkeys_along
from ledger.verification.verified_entries import VerifiedEntry, verify_author
from ledger.verification.verified_notes import ECDSA, ED25519, TreeHead, parse_vkey

__all__ = ["NO_OUTCOME", "Decision", "Evidence", "evidence_of", "pick", "verify_authors"]

_MAX_DECIDED = 600  # events of decisions that are proved; the first ones
_DECIDED = (
    "run.decision_made",
    "run.remedy_applied",
    "run.remedy_refused",
    "run.restart_scheduled",
)
NO_OUTCOME = "no action"
_OF_RUN = ("run.started", "run.provoked", "run.ended")
_OF_AUDIT = ("audit.started", "audit.step_completed", "audit.scored")


@dataclass(frozen=True)
class Decision:
    """What was decided, and what came of it."""

    said: dict[str, Any]
    outcome: str


def pick(
    entries: Iterable[VerifiedEntry],
    *,
    origin: str,
    run: UUID,
    audit: UUID,
    scored: int,
    weights: Collection[str],
    publisher: str,
) -> list[int]:
    """Return the indexes of the events to prove: `scored` is the index of the audit's scores.

    `weights` are hashes of files that are handed over; `publisher` is the vkey that signs them.
    """
    found: list[int] = []
    decided: list[int] = []
    grants: dict[bytes, int] = {}  # by the key that is granted
    authors: list[bytes] = []
    for entry in entries:
        body = readable_body(entry.body) or {}
        wanted = False
        if entry.stream_id == run and entry.name in _DECIDED:
            decided.append(entry.index)
            wanted = len(decided) <= _MAX_DECIDED
        elif entry.stream_id == run:
            saved = entry.name == "run.weights_saved" and body.get("sha256") in weights
            wanted = entry.name in _OF_RUN or saved
        elif entry.stream_id == audit:
            wanted = entry.name in _OF_AUDIT and entry.index <= scored
        elif entry.name == "key.granted" and entry.stream_id == authority_stream(origin):
            vkey = str(body.get("vkey"))
            grants.setdefault(_key_id(vkey, str(body.get("role"))), entry.index)
            wanted = vkey == publisher
            if entry.author is not None and entry.author.role == "operator":
                authors.append(entry.author.key_id)  # who let in a key that may be needed
        if wanted:
            found.append(entry.index)
            if entry.author is not None:
                authors.append(entry.author.key_id)
    return sorted({*found, *(grants[each] for each in authors if each in grants)})


def evidence_of(proved: Sequence[ProvedEntry], *, vkey: str) -> "Evidence":
    """Return what proved entries say, their authors checked; raises VerificationError."""
    evidence = Evidence(
        head=proved[0].head,
        vkeys=tuple(vkeys_along(proved[0].rotations, vkey=vkey)),
        entries=tuple(each.entry for each in proved),
    )
    evidence.verify()
    return evidence


def verify_authors(entries: Iterable[VerifiedEntry], *, origin: str, vkeys: Sequence[str]) -> None:
    """Raise VerificationError unless each signed entry is signed by a key that was granted.

    `vkeys` are the ledger's own, oldest first.
    """
    stream = authority_stream(origin)
    known = {_key_id(vkey, "ledger"): ("ledger", vkey) for vkey in vkeys}
    for entry in entries:
        author = entry.author
        if author is not None:
            role, vkey = known.get(author.key_id, ("", ""))
            if role != author.role:
                raise SignatureError(f"entry {entry.index} is signed by a key without a grant")
            public_key = parse_vkey(vkey, type=ED25519).public_key
            verify_author(entry, origin=origin, public_key=public_key)
        if entry.name == "key.granted":
            body = readable_body(entry.body) or {}
            if (
                entry.stream_id != stream
                or author is None
                or author.role not in ("ledger", "operator")
            ):
                raise SignatureError(f"entry {entry.index} grants a key without the right to")
            role, vkey = str(body.get("role")), str(body.get("vkey"))
            known[_key_id(vkey, role)] = (role, vkey)


@dataclass(frozen=True)
class Evidence:
    """Entries of one ledger, in order, as of one tree head."""

    head: TreeHead
    vkeys: tuple[str, ...]  # of the ledger itself, oldest first; the last signed the tree head
    entries: tuple[VerifiedEntry, ...]

    def verify(self) -> None:
        """Raise VerificationError unless its authors are known and the events fit together."""
        verify_authors(self.entries, origin=self.head.origin, vkeys=self.vkeys)
        for kind in ("run.started", "run.ended", "audit.started", "audit.scored", "key.granted"):
            self.last(kind)
        if {entry.stream_id for entry in self._all(*_OF_RUN, *_DECIDED)} != {self.run}:
            raise MalformedError("the events are of several runs")
        audit = self.last("audit.started")
        if {entry.stream_id for entry in self._all(*_OF_AUDIT)} != {audit.stream_id}:
            raise MalformedError("the events are of several audits")
        if self.says("audit.started").get("run") != str(self.run):
            raise MalformedError("the audit is of another run")
        if [step.get("name") for step in self.steps] != [*STEPS]:
            raise MalformedError("the audit's steps are not all there")

    def _all(self, *names: str) -> list[VerifiedEntry]:
        return [entry for entry in self.entries if entry.name in names]

    def last(self, name: str) -> VerifiedEntry:
        """Return the last entry of a name; raises MalformedError if there is none."""
        found = self._all(name)
        if not found:
            raise MalformedError(f"no event {name} is proved")
        return found[-1]

    def says(self, name: str) -> dict[str, Any]:
        """Return what the last entry of a name says."""
        return readable_body(self.last(name).body) or {}

    @property
    def run(self) -> UUID:
        """The run."""
        return self.last("run.started").stream_id

    @property
    def key(self) -> bytes:
        """The ledger's public key that signed the tree head."""
        return parse_vkey(self.vkeys[-1], type=ED25519).public_key

    @cached_property
    def publisher(self) -> bytes:
        """The public key that may sign the files: the last one granted."""
        for entry in reversed(self._all("key.granted")):
            body = readable_body(entry.body) or {}
            if body.get("role") == "publisher":
                return parse_vkey(str(body.get("vkey")), type=ECDSA).public_key
        raise MalformedError("no publisher's key is granted")

    @property
    def level(self) -> str:
        """How far the run can be checked: repeatable, measured or reported."""
        config = self.says("run.started").get("config")
        return str((config if isinstance(config, dict) else {}).get("level", REPEATABLE))

    @property
    def files(self) -> dict[str, str]:
        """The files that the run handed in, or the weights that it saved before it broke off."""
        handed_in = self.says("run.ended").get("deliverables")
        if isinstance(handed_in, dict) and handed_in:
            return {str(name): str(sha256) for name, sha256 in handed_in.items()}
        saved = self._all("run.weights_saved")
        if not saved:
            return {}
        return {"weights.safetensors": str((readable_body(saved[-1].body) or {}).get("sha256"))}

    @property
    def weights(self) -> list[dict[str, Any]]:
        """The weights that the run saved and that are handed over."""
        return [readable_body(entry.body) or {} for entry in self._all("run.weights_saved")]

    @property
    def decisions(self) -> list[Decision]:
        """The decisions, each with what came of it."""
        outcomes = {
            "run.remedy_applied": "applied",
            "run.remedy_refused": "refused",
            "run.restart_scheduled": "left to a following run",
        }
        ended: dict[Any, str] = {}
        said = []
        for entry in self._all(*_DECIDED):
            body = readable_body(entry.body) or {}
            if entry.name in outcomes:
                ended[body.get("decision")] = outcomes[entry.name]
            else:
                said.append(body)
        return [Decision(body, ended.get(body.get("number"), NO_OUTCOME)) for body in said]

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The steps of the audit."""
        return [readable_body(entry.body) or {} for entry in self._all("audit.step_completed")]

    @property
    def signed_by_judge(self) -> bool:
        """Whether one judge's key signed the whole audit."""
        authors = {
            (entry.author.role, entry.author.key_id) if entry.author else None
            for entry in self._all(*_OF_AUDIT)
        }
        return len(authors) == 1 and all(each and each[0] == "judge" for each in authors)

    @property
    def retrained(self) -> tuple[int, int]:
        """How many epochs the judge trained again, and of how many."""
        shown = {step.get("name"): step.get("evidence") or {} for step in self.steps}
        executed = shown["probe"].get("executed")
        executed = executed if isinstance(executed, dict) else {}
        done = executed.get("epochs") if executed.get("done") is True else 0
        return _count(done), _count(shown["ledger"].get("epochs"))

    @property
    def reservations(self) -> list[str]:
        """Why a verdict that did not fail is no unreserved pass."""
        config = self.says("audit.started").get("config") or {}
        steps = [f"step {s.get('name')}: {s.get('status')}" for s in self._not_passed()]
        said = []
        if self.level != REPEATABLE:
            said.append(f"the evidence level is {self.level}: nobody can train this run again")
        if config.get("disabled"):
            said.append("the judge had checks switched off")
        done, epochs = self.retrained
        if self.level == REPEATABLE and done < epochs:
            said.append(f"the judge retrained {done} of {epochs} epochs")
        if self.violations:
            said.append(f"violations: {self.violations}")
        said += [f"not checked: {each}" for each in unchecked(self.steps)]
        return [*said, *steps]

    @property
    def violations(self) -> int:
        """How many violations the audit found, also those that its last event does not list."""
        try:
            return violations_found(self.says("audit.scored"), self.steps)[0]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise MalformedError(f"the violations of the audit cannot be read: {error}") from error

    @property
    def unexercised(self) -> str:
        """Why the process score says little, as the judge found it."""
        shown = {step.get("name"): step.get("evidence") or {} for step in self.steps}
        why = shown.get("scores", {}).get("unexercised")
        return f"unexercised: {why}" if isinstance(why, str) else "unexercised"

    @property
    def verdict(self) -> str:
        """PASSED, WARNED or FAILED."""
        gates = [step.get("status") for step in self.steps[:GATES]]
        if self.says("audit.scored").get("hard_fail") is not False or "failed" in gates:
            return "FAILED"
        return "WARNED" if self.reservations else "PASSED"

    def _not_passed(self) -> list[dict[str, Any]]:
        return [step for step in self.steps if step.get("status") != "passed"]


def _count(value: object) -> int:
    return value if type(value) is int and value >= 0 else 0


def _key_id(vkey: str, role: str) -> bytes:
    """Return what an author block names a key by; of no key where a vkey is none."""
    kind = {"publisher": ECDSA, "witness": 0x04}.get(role, ED25519)
    try:
        return hashlib.sha256(parse_vkey(vkey, type=kind).public_key).digest()
    except MalformedError:
        return b""
