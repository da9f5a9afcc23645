"""The events that a handed-over model rests on: which they are, and what they say.

The same events are chosen from a ledger when a folder is written, and from their proofs when it is
verified: the run, its audits and the authority stream, each whole, and both ends of its transcript.
What the folder claims follows from them alone.

Trust: entries are proved to be the ledger's; what they say is hostile, or missing.
I/O: none.
Not covered: what Selection.as_of says.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from aggregates.audit import GATES, STEPS, unchecked
from aggregates.judged import is_as_judged
from aggregates.run import REPEATABLE
from aggregates.violations import violations_found
from ledger.errors import InclusionError, MalformedError
from ledger.handover.selection import Selection, choose, read_selection
from ledger.mapper import readable_body
from ledger.verification.reader import VerifiedLedger
from ledger.verification.verified_entries import VerifiedEntry
from ledger.verification.verified_notes import TreeHead, parse_vkey
from proctor.output.columns import grouped
from projections.counting import CountingAudit, counting_audits, streams_of

UNBOUND = "the verdict is not bound to a state of the run: its audit is of an earlier version"
_OUTCOMES = {
    "run.remedy_applied": "applied",
    "run.remedy_refused": "refused",
    "run.restart_scheduled": "left to a following run",
}
NO_OUTCOME = "no action"
_STEP = "step "  # how the reservation about a step begins
_REPORTED = {"train": "train", "validation": "validation", "metrics": ""}  # parts, in words


def events_of(ledger: VerifiedLedger, run: UUID) -> list[VerifiedEntry]:
    """Return the events of a ledger that a verdict on a run rests on."""
    wanted = streams_of(ledger.select(names=["audit.started"]), run)
    entries = ledger.select(streams=[*wanted, ledger.authority.stream_id])
    return choose(entries, wanted, origin=ledger.authority.origin)


def evidence_of(proofs: str, *, vkey: str, earlier: bool = False) -> "Evidence":
    """Return what a text of proofs says; raises VerificationError where they do not fit together.

    `earlier`: they are of a folder of the first form, which leaves events out.
    """
    selection = read_selection(proofs, vkey=vkey, gaps=earlier)
    starts = [entry for entry in selection.entries if entry.name == "run.started"]
    if len(starts) != 1:
        raise MalformedError(f"{len(starts)} starts of a run are proved, not one")
    run = starts[0].stream_id
    wanted = streams_of(selection.entries, run)
    if not earlier:
        selection.verify_choice(wanted)
    elif {each.stream_id for each in selection.entries} - {*wanted, selection.authority.stream_id}:
        raise MalformedError("the events are of several runs")
    counting = counting_audits(selection.entries, authority=selection.authority.stream_id).get(
        str(run)
    )
    if counting is None:
        raise MalformedError(
            f"no audit of run {run} counts: it must have all steps, judge the complete run and, "
            "where the ledger granted a judge's key, be signed by a judge"
        )
    evidence = Evidence(selection, run, counting, earlier)
    evidence.verify()
    return evidence


@dataclass(frozen=True)
class Evidence:
    """A run and the audit of it that counts, as of one tree head."""

    selection: Selection
    run: UUID
    counting: CountingAudit
    earlier: bool  # of a folder of the first form
    only_listed: bool = False  # count the violations that are listed, as earlier versions did

    def verify(self) -> None:
        """Raise VerificationError unless the audit is whole, and judged the files of the run."""
        if self.earlier and self.audit_start.get("judged") is not None:
            raise MalformedError(
                "the folder has the form of an earlier version, whose audits name no state of the "
                "run; this one does: ask for a folder of this form"
            )
        if self.counting.signed:
            is_as_judged(self.selection, self.counting.audit)
        if len(self._of_run("run.ended")) != 1:
            raise MalformedError(f"run {self.run} has {len(self._of_run('run.ended'))} ends")
        if [step.get("name") for step in self.steps] != [*STEPS]:
            raise MalformedError("the audit's steps are not all there")
        if self.verdict == "FAILED":
            return  # the judge may have found other files
        for judged in self._judged_files():
            for name, sha256 in self.files.items():
                if judged.get(name, sha256) != sha256:
                    raise InclusionError(f"{name} is not the file that the judge judged")

    def _judged_files(self) -> list[Mapping[str, Any]]:
        """Return the files' hashes as the audit's start, step 1 and step 3 name them."""
        shown = self._shown
        start = mapping(self.audit_start.get("judged"))
        weights = shown["weights"].get("sha256")
        return [
            mapping(start.get("files")),
            mapping(shown["deliverables"].get("sha256")),
            {"weights.safetensors": weights} if isinstance(weights, str) else {},
        ]

    @property
    def head(self) -> TreeHead:
        """The tree head that everything is proved under."""
        return self.selection.head

    def _of_run(self, *names: str) -> list[VerifiedEntry]:
        return [e for e in self.selection.entries if e.stream_id == self.run and e.name in names]

    @cached_property
    def _audit(self) -> list[VerifiedEntry]:
        """The audit that counts, from its start to its scores."""
        audit, scored = self.counting.audit, self.counting.scored
        return [e for e in self.selection.entries if e.stream_id == audit and e.index <= scored]

    @property
    def started(self) -> VerifiedEntry:
        """The run's start."""
        return self._of_run("run.started")[0]

    @property
    def ended(self) -> VerifiedEntry:
        """The run's end."""
        return self._of_run("run.ended")[0]

    @property
    def audit_start(self) -> dict[str, Any]:
        """What the audit's start says."""
        return says(self._audit[0])

    @property
    def scored(self) -> VerifiedEntry:
        """The audit's scores."""
        return self._audit[-1]

    @property
    def key(self) -> bytes:
        """The ledger's public key that signed the tree head."""
        return parse_vkey(self.selection.vkeys[-1]).public_key

    @property
    def publishers(self) -> list[bytes]:
        """The public keys that may sign the files: those granted and not revoked."""
        keys = self.selection.authority.keys
        return [key.public_key for key in keys if key.role == "publisher" and key.ended is None]

    @property
    def level(self) -> str:
        """How far the run can be checked: repeatable, measured or reported."""
        return str(mapping(says(self.started).get("config")).get("level", REPEATABLE))

    @property
    def files(self) -> dict[str, str]:
        """The files that the run handed in, or the weights that it saved before it broke off."""
        handed_in = says(self.ended).get("deliverables")
        if isinstance(handed_in, dict) and handed_in:
            return {str(name): str(sha256) for name, sha256 in handed_in.items()}
        saved = self._of_run("run.weights_saved")
        return {"weights.safetensors": str(says(saved[-1]).get("sha256"))} if saved else {}

    @property
    def weights(self) -> list[dict[str, Any]]:
        """The weights that the run saved and that are handed over."""
        saved = [says(entry) for entry in self._of_run("run.weights_saved")]
        return [each for each in saved if each.get("sha256") in self.files.values()]

    @property
    def sizes(self) -> dict[Any, Any]:
        """The sizes of what the run saved, by SHA-256."""
        saved = map(says, self._of_run("run.weights_saved", "run.file_saved"))
        return {each.get("sha256"): each.get("size") for each in saved}

    @property
    def decisions(self) -> list[tuple[dict[str, Any], str]]:
        """What was decided, each time with what came of it."""
        ended = {
            says(entry).get("decision"): _OUTCOMES[entry.name] for entry in self._of_run(*_OUTCOMES)
        }
        said = map(says, self._of_run("run.decision_made"))
        return [(body, ended.get(body.get("number"), NO_OUTCOME)) for body in said]

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The steps of the audit."""
        return [says(entry) for entry in self._audit if entry.name == "audit.step_completed"]

    @property
    def _shown(self) -> dict[Any, Mapping[str, Any]]:
        """What each step shows, by its name."""
        return {step.get("name"): mapping(step.get("evidence")) for step in self.steps}

    @property
    def retrained(self) -> tuple[int, int]:
        """How many epochs the judge trained again, and of how many."""
        executed = mapping(self._shown["probe"].get("executed"))
        done = executed.get("epochs") if executed.get("done") is True else 0
        return _count(done), _count(self._shown["ledger"].get("epochs"))

    @property
    def reservations(self) -> list[str]:
        """Why a verdict that did not fail is no unreserved pass."""
        config = self.audit_start.get("config") or {}
        said = []
        if self.level != REPEATABLE:
            said.append(f"the evidence level is {self.level}: nobody can train this run again")
        if not self.earlier and not mapping(self.audit_start.get("judged")):
            said.append(UNBOUND)
        if config.get("disabled"):
            said.append("the judge had checks switched off")
        done, epochs = self.retrained
        if self.level == REPEATABLE and done < epochs:
            said.append(f"the judge retrained {done} of {epochs} epochs")
        if self.violations:
            said.append(f"violations: {self.violations}")
        said += [f"not checked: {each}" for each in unchecked(self.steps)]
        short = (step for step in self.steps if step.get("status") != "passed")
        return [*said, *(f"{_STEP}{step.get('name')}: {step.get('status')}" for step in short)]

    @property
    def warnings(self) -> list[str]:
        """The reservations for people: the steps of one status are one line."""
        told = [each for each in self.reservations if not each.startswith(_STEP)]
        if self.level != REPEATABLE:
            told[0] = (
                f"the evidence level is {self.level}, so WARNED is the best verdict: the judge "
                "checks the record, the rules and the answers to them; the files and what the loop "
                "reported cannot be checked, and nobody can train this run again"
            )
        for status, steps in grouped(self.steps, lambda step: step.get("status")).items():
            if status != "passed":
                which = f"{len(steps)} steps" if len(steps) > 1 else _STEP.strip()
                told.append(f"{which} {status}: {', '.join(str(s.get('name')) for s in steps)}")
        return told

    @property
    def reported(self) -> dict[str, dict[str, float]]:
        """What a watched loop said of its last epoch, and of those after which files were saved.

        It is by the epoch and the names of its files; at most five epochs.
        """
        saved: dict[object, list[str]] = {}
        for body in map(says, self._of_run("run.file_saved")):
            if self.files.get(str(body.get("name"))) == body.get("sha256"):
                saved.setdefault(body.get("epoch"), []).append(str(body.get("name")))
        epochs = [] if self.level == REPEATABLE else self._of_run("run.epoch_measured")
        shown = [each for each in map(says, epochs[:-1]) if each.get("epoch") in saved]
        told = {}
        for body in [*shown, *map(says, epochs[-1:])][-5:]:
            files = ", ".join(saved.get(body.get("epoch"), ()))
            said = mapping(body.get("reported"))
            told[f"epoch {body.get('epoch')}" + (f" ({files})" if files else "")] = {
                f"{words} {name}".strip(): value
                for part, words in _REPORTED.items()
                for name, value in mapping(said.get(part)).items()
                if isinstance(value, int | float)
            }
        return told

    @property
    def parent(self) -> str | None:
        """The run that this one goes on from, in words."""
        return next(
            (
                f"run {body.get('parent')}, after epoch {body.get('epoch')}"
                for body in map(says, self._of_run("run.forked"))
            ),
            None,
        )

    @property
    def violations(self) -> int:
        """How many violations the audit found, also those that its last event does not list."""
        if self.only_listed:
            return self.violations_listed
        try:
            return violations_found(says(self.scored), self.steps)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise MalformedError(f"the violations of the audit cannot be read: {error}") from error

    @property
    def violations_listed(self) -> int:
        """How many violations the audit's last event lists, which may be the first ones only."""
        return len(says(self.scored).get("violations") or ())

    @property
    def unexercised(self) -> str:
        """Why the process score says little, as the judge found it."""
        why = self._shown["scores"].get("unexercised")
        return f"unexercised: {why}" if isinstance(why, str) else "unexercised"

    @property
    def verdict(self) -> str:
        """PASSED, WARNED or FAILED."""
        gates = [step.get("status") for step in self.steps[:GATES]]
        if says(self.scored).get("hard_fail") is not False or "failed" in gates:
            return "FAILED"
        return "WARNED" if self.reservations else "PASSED"


def says(entry: VerifiedEntry) -> dict[str, Any]:
    """Return what an entry says, nothing where that cannot be read."""
    return readable_body(entry.body) or {}


def mapping(value: object) -> Mapping[str, Any]:
    """Return a map, empty for what is none."""
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int:
    return value if type(value) is int and value >= 0 else 0
