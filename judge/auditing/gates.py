"""The gates of an audit: steps 1 to 7. Each raises StepError if it fails.

Source: docs/reference/audit.md.
Trust: the submission is hostile, and so is what verified entries say.
I/O: reads the submission and the dataset; starts one process.
"""

import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from aggregates.forks import Fork, shared_digest, shared_events
from aggregates.playbook import why_waived
from aggregates.run import OWN_ENDS, Run
from aggregates.spec import WatchedModel
from judge.auditing import own_model
from judge.auditing.coverage import Coverage, project_coverage
from judge.auditing.events import StreamEvents
from judge.auditing.family import (
    compare_fork,
    execute_parents,
    read_parents,
    start_problems,
    waived_contract,
)
from judge.auditing.labels import label_problem
from judge.auditing.limits import LIMITED, verify_limits
from judge.auditing.outcomes import StepOutcome
from judge.auditing.record import RunRecord
from judge.auditing.reexecution import Retraining, reexecute
from judge.auditing.replay import replay_run
from judge.auditing.replayed import Replay, SavedWeights
from judge.auditing.report import capped
from judge.auditing.submission import (
    Submission,
    read_submission,
    verify_contract,
    verify_handed_in,
    verify_hashes,
    verify_run_config,
    verify_weights,
)
from judge.auditing.unforeseen import Drawn, draw_images
from judge.config import JudgeConfig
from judge.confinement.budget import Budget
from judge.confinement.sandbox import Examination, examine
from judge.errors import ConfinementError, JudgeError, SandboxError, StepError
from ledger.wording import counted
from monitor.answering import Policy
from monitor.config import RunConfig
from monitor.datasets import Splits
from monitor.environment import describe_environment, other_kind
from monitor.model import ResidualCNN
from monitor.snapshots import Start, capture
from monitor.state import LiveState
from monitor.submission import FILES


class States(Protocol):
    """Training states that this judge has come to by training, so that none is trained twice."""

    def find(self, shared: str, sha256: str) -> bytes | None:
        """Return the state after what has this digest, if it is one of them and still there."""

    def add(self, shared: str, sha256: str) -> None:
        """Remember that training what has this digest led to this state."""


@dataclass(frozen=True)
class Redo:
    """How a run is retrained: which policy answers, and whether up to its end.

    A sample ends between the epoch of the submitted weights and the last one, where nobody could
    foresee it.
    """

    policy: Callable[[Run], Policy]  # from the recorded decisions
    states: States | None = None
    sample: bool = False
    draw: Callable[[int], int] = secrets.randbelow  # how many epochs more, below the number left


class Accuracies(NamedTuple):
    """What the judge's own model, or a task's outputs, score."""

    test: float
    validation: float | None
    own_target: float  # of the run
    classes: int
    examples: int  # of the validation


class Gates:
    """The gates of one run: each step leaves what the later ones need."""

    replay: Replay
    coverage: Coverage
    submission: Submission
    examination: Examination | None = None  # of a submitted model; a task's code has none
    saved: SavedWeights
    model: ResidualCNN
    drawn: Drawn
    splits: Splits
    parents: Sequence[Replay] = ()  # whose restart led here, the nearest first
    files: Sequence[str] = FILES  # that are handed in
    fork: Fork | None = None  # where the run is one
    shared_epochs = 0  # that were not trained, since this judge had trained them for another run
    _test: float  # accuracy
    _loaded: Splits | None = None  # the data, before it was compared with the record

    def __init__(
        self,
        run: UUID,
        config: JudgeConfig,
        *,
        record: RunRecord,
        directory: Path,
        redo: Redo | None,
    ) -> None:
        self.run = run
        self.config = config
        self.record = record
        self.directory = directory
        self.redo = redo
        self.environment = describe_environment(RunConfig())  # in which the judge computes
        self.budget = Budget.of(config)  # of everything that is submitted

    @property
    def retrains(self) -> float:
        """Share of the epochs that this audit is going to retrain; 0 if that decides nothing."""
        if self.redo is None:
            return 0.0
        replay: Replay | None = getattr(self, "replay", None)  # none where step 5 failed
        if replay is None:
            return 1.0
        if replay.watched:
            return 0.0
        if other_kind(replay.started.environment, self.environment):
            return 0.0
        saved = replay.submitted
        if not self.redo.sample or saved is None or saved.kind == "last":
            return 1.0
        return (saved.epoch + 1) / replay.epochs

    # Step 1
    def deliverables(self) -> StepOutcome:
        """Read the three files that were handed in, as the run names them."""
        verify_handed_in(self.replay.deliverables, self.replay.run.end_reason, files=self.files)
        try:
            self.submission = read_submission(self.directory, config=self.config, files=self.files)
            verify_hashes(self.submission, self.replay.deliverables)
        except StepError as error:  # a problem of these files, not of the run
            raise StepError(str(error), **error.evidence, other_files=True) from error
        ignored = self.submission.ignored
        return StepOutcome(
            "all three files are present"
            + (f"; {len(ignored)} others are ignored" if ignored else ""),
            {"sha256": dict(self.submission.hashes), "ignored": capped(ignored)},
        )

    # Step 2
    def load_model(self) -> StepOutcome:
        """Have the submitted code make its model, confined."""
        with suppress(JudgeError):  # step 7 says why
            self._loaded = own_model.load_data(self.replay.run_config, self.config)
        known = None if self._loaded is None else self._loaded.validation
        self.drawn = draw_images(known, seed=secrets.randbits(63))
        found = self.examination = examine(
            self.submission.model,
            self.submission.weights,
            self.drawn.images,
            portions=self.drawn.portions,
            config=self.config,
            budget=self.budget,
        )
        said = {"isolation": found.isolation, "printed": found.printed}
        if not found.passed("load"):
            raise SandboxError(f"load_model() failed: {found.problem}", **said)
        saved = self.replay.submitted
        if saved is not None:
            waived = waived_contract(self.record, self.replay)
            said = {**said, "waived": list(waived)}
            verify_contract(saved.model_spec, found, waived=waived)
        return StepOutcome("load_model() returns a model of the required kind", said)

    # Step 3
    def weights(self) -> StepOutcome:
        """Compare the weights with those that the run saved."""
        saved = self.saved = verify_weights(self.submission, self.replay.submitted)
        reason, size = self.replay.run.end_reason, len(self.submission.weights)
        if saved.kind == "last" and reason not in OWN_ENDS:
            raise StepError(
                f"the run ended as {reason} and has no best weights; last weights count only for "
                "a run that ended by itself"
            )
        if saved.size != size:
            raise StepError(
                f"weights.safetensors has {size} bytes; the ledger records {saved.size}"
            )
        found = self.examination
        if found is not None and not found.passed("weights"):
            raise SandboxError(f"the weights cannot be loaded: {found.problem}")
        return StepOutcome(
            f"the weights are those saved as {saved.kind} in epoch {saved.epoch}",
            {"sha256": saved.sha256, "kind": saved.kind, "epoch": saved.epoch},
        )

    # Step 4
    def run_config(self) -> StepOutcome:
        """Compare the submitted configuration with the recorded one."""
        verify_run_config(self.submission, self.replay, self.saved)
        return StepOutcome("run_config.json matches the ledger")

    # Step 5, done first
    def ledger(self) -> StepOutcome:
        """Replay the run from its verified entries; to be done before all other steps."""
        entries = self.record.entries
        verify_limits(
            StreamEvents(entries, fields=LIMITED), self.config, retrained=self.redo is not None
        )
        self.replay = replay_run(entries)
        if not self.replay.watched:
            self.environment = describe_environment(self.replay.config)
        self.coverage = project_coverage(entries, self.replay)
        epochs = self.replay.epochs
        started = self.replay.started
        rules = self.replay.rules
        self._verify_own_code(rules)
        spec = self.replay.spec
        offers = spec.offers if isinstance(spec, WatchedModel) else None
        run = self.replay.run
        waived = why_waived(run.waived, offers, run.config.get("noise"))
        self.fork, fork = compare_fork(self.record, self.replay)
        problem = label_problem(
            started.checkpoint,
            started.environment.get("code_sha256"),
            start=entries[0].index,
            recorded=self.record.checkpoints,
        )
        return StepOutcome(
            f"{counted(self.record.size, 'entry')} verified; the rules of "
            f"{counted(epochs, 'epoch')} were evaluated again with the same result"
            + (
                f"; its rules are version {rules['version']} of the profile {rules['profile']}, "
                f"the newest is {rules['newest']}"
                if rules["version"] != rules["newest"]
                else ""
            )
            + (f"; its label is wrong: {problem}" if problem is not None else ""),
            {
                **fork,
                "label": {"checkpoint": started.checkpoint, "problem": problem},
                "rules": {**rules, "hash": started.rules_hash},
                "verified": True,
                "entries": self.record.size,
                "entries_of_run": len(entries),
                "epochs": epochs,
                "end": self.replay.run.end_reason,
                "level": self.replay.run.level,
                **({"waived": waived} if waived else {}),
            },
        )

    def _verify_own_code(self, rules: Mapping[str, Any]) -> None:
        """Raise StepError where the judge's own code made the run, but does not record like that.

        It starts every run with the newest rules, and measures the gradient's noise in every epoch
        by probes. Earlier versions did not.
        """
        code, epoch = self.replay.started.environment.get("code_sha256"), self.replay.without_probes
        if code != self.environment["code_sha256"]:
            return
        if epoch is not None:
            raise StepError(
                f"epoch {epoch} has no noise probes, but the code_sha256 of the run is that of "
                "this version of Proctor, which measures them in every epoch; train the run again "
                "with `proctor run`",
                epoch=epoch,
                code_sha256=code,
            )
        if rules["version"] != rules["newest"]:
            raise StepError(
                f"run.started records version {rules['version']} of the profile "
                f"{rules['profile']}, but its code_sha256 is that of this version of Proctor, "
                f"which trains with version {rules['newest']}; train the run again with `proctor "
                "run`",
                recorded=rules["version"],
                newest=rules["newest"],
                code_sha256=code,
            )

    # Step 6
    def architecture(self) -> StepOutcome:
        """Build the model that the edits produce, and compare the submitted one with it."""
        self.parents = read_parents(self.record, self.config, retrained=self.redo is not None)
        if problems := start_problems(self.record, self.replay, self.parents):
            raise StepError(
                f"the architecture does not follow from the recorded decisions: {problems[0]}",
                problems=capped(problems),
            )
        self.model = own_model.build_model(self.saved, self.submission.weights)
        theirs = self.examination
        assert theirs is not None, "step 2 has examined it"
        own_model.verify_architecture(self.model, theirs)
        if not theirs.passed("logits"):
            raise SandboxError(f"the model's forward pass failed: {theirs.problem}")
        deviation = own_model.verify_logits(
            self.model, self.drawn.images, theirs, tolerance=self.config.logits_tolerance
        )
        return StepOutcome(
            "the submitted model is the one that the recorded edits produce, with the same outputs",
            {
                "spec": self.saved.spec.to_dict(),
                "logits_deviation": deviation,
                "images": {"seed": self.drawn.seed, "number": len(self.drawn.images)},
            },
        )

    # Step 7
    def probe(self) -> StepOutcome:
        """Measure the model on our own data, and train the run again if that was asked for."""
        recorded = self.replay.started.environment
        self.splits = self._loaded or own_model.load_data(self.replay.run_config, self.config)
        own_model.verify_data(self.splits, self.replay, self.environment)
        differs = other_kind(recorded, self.environment)
        strict = not differs and self.replay.run_config.device == "cpu"  # the judge's own device
        tolerance = self.config.probe_tolerance if strict else self.config.probe_tolerance_elsewhere
        evidence: dict[str, Any] = {
            "same_kind_of_machine": not differs,
            "differs": list(differs),
            "tolerance": tolerance,
            "repeated": dict(self.splits.repeated),
        }
        measured = self.saved.measured
        found = own_model.compare_probe(self.model, self.splits, self.saved, tolerance=tolerance)
        norms = found.pop("layer_norms")
        evidence["probe"] = found
        evidence["epoch_mean"] = own_model.epoch_mean_comparison(norms, measured)
        if self.weights_are_as_measured():
            evidence["validation"] = own_model.compare_validation(
                self.model, self.splits, measured, tolerance=tolerance
            )
        summary = "gradient norms, loss and accuracy of the weights match the recorded values"
        if repeated := sum(self.splits.repeated.values()):
            summary += f"; {repeated} images repeat another of their split"
        executed = evidence["executed"] = self.execute(differs)
        return StepOutcome(f"{summary}; {executed['summary']}", evidence)

    def execute(self, differs: Sequence[str]) -> dict[str, Any]:
        """Retrain at least up to the submitted weights, and compare every value.

        Equal values prove the record on any machine. Other values disprove it on the same kind of
        machine alone: elsewhere they are inconclusive, evidence that gates nothing.
        """
        if self.redo is None:
            return {"done": False, "summary": "the run was not retrained"}
        epochs = self.replay.epochs
        until, noticed = epochs - 1, {"anywhere": 1.0, "last": 1.0}
        if self.redo.sample and self.saved.kind == "best":
            left = epochs - self.saved.epoch  # ways to draw
            until = self.saved.epoch + self.redo.draw(left)
            noticed = chance_of_notice(self.saved.epoch, epochs)
        why = f"the run was made with a different {' and '.join(differs)}"
        if inconclusive := execute_parents(self.parents, self.redo.policy, self.config):
            return {"done": False, "summary": f"not retrained: {inconclusive}"}
        try:
            found = self.retrain(self.redo, until)
        except ConfinementError:
            raise  # this machine's problem, not the run's
        except JudgeError as error:
            if not differs:
                raise StepError(str(error)) from error
            return {"done": False, "summary": f"not retrained: {why}; {error}"}
        evidence: dict[str, Any] = {
            "done": found.same or not differs,
            "parents": [str(parent.run.id) for parent in self.parents],
            "epochs": found.epochs,
            "share": found.epochs / epochs,
            "noticed": noticed,
            "values": found.values,
            "differ": found.total,
            "first": found.differences[0].to_dict() if found.differences else None,
        }
        again = f"{found.epochs} of {epochs} epoch{'s' * (epochs != 1)} retrained"
        if self.shared_epochs:
            evidence["shared"] = self.shared_epochs
            again += f", the first {self.shared_epochs} earlier, for the run that it is a fork of"
        if count := len(self.parents):
            again += f", after {counted(count, 'parent run')}"
        if found.same:
            words = f"{again}: all {found.values} values match"
            if self.redo.sample:
                words += (
                    "; a sample notices one forged epoch with a probability of "
                    f"{noticed['anywhere']:.2f} if its place is unknown, and of "
                    f"{noticed['last']:.2f} if it is the last"
                )
            return {**evidence, "summary": words}
        if differs:
            apart = f"{found.total} of {found.values} values differ"
            return {**evidence, "summary": f"{again}, inconclusive: {apart}; {why}"}
        raise StepError(
            f"retrained: {found.total} of {found.values} values differ from the recorded ones",
            executed=evidence,
        )

    def retrain(self, redo: Redo, until: int) -> Retraining:
        """Train the run again up to an epoch, and compare every value.

        What a fork shares with its parent is not trained where this judge has done so before.
        """
        events, fork, states = self.replay.events, self.fork, redo.states
        start = None
        if fork is not None and fork.epoch <= until and states is not None:
            state = states.find(fork.digest, fork.state)
            if state is not None:
                start = Start(tuple(shared_events(events, fork.epoch)), state)
                self.shared_epochs = fork.epoch + 1
        reached: dict[int, str] = {}

        def on_state(epoch: int, live: LiveState) -> None:
            if fork is not None and epoch == fork.epoch:
                reached[epoch] = hashlib.sha256(capture(live)).hexdigest()

        found = reexecute(
            events,
            redo.policy(self.replay.run),
            until_epoch=until,
            config=self.config,
            start=start,
            on_state=on_state,
        )
        if fork is not None and reached.get(fork.epoch, fork.state) != fork.state:
            raise JudgeError("the recorded state of the fork is not the one that training leads to")
        if states is not None and found.same:
            saved = {e: sha for e, sha in self.replay.run.snapshots.items() if e <= until}
            for epoch, sha256 in {**saved, **reached}.items():
                states.add(shared_digest(events, epoch), sha256)
        return found

    # Step 10
    def test_metric(self) -> StepOutcome:
        """Measure the model on the split that only the judge reads."""
        found = own_model.measure_test_accuracy(self.model, self.replay, self.config)
        self._test, images = found["accuracy"], found["examples"]
        few = images < self.config.min_test_examples
        return StepOutcome(
            f"top-1 accuracy on {images} test images: {self._test:.4f}"
            + (" (too few images to compare models)" if few else ""),
            {**found, "few": few},
        )

    def accuracies(self) -> Accuracies | str:
        """Return what the accuracy score is made of, or why there is none."""
        return Accuracies(
            test=self._test,
            validation=self.saved.measured["validation"]["accuracy"],
            own_target=self.replay.run_config.target_accuracy,
            classes=self.saved.model_spec.classes,
            examples=len(self.splits.validation),
        )

    def weights_are_as_measured(self) -> bool:
        """Return whether no remedy lies between the epoch's measurement and the save."""
        return self.saved.kind == "best" or all(
            remedy.epoch != self.saved.epoch for remedy in self.replay.run.remedies
        )


def chance_of_notice(saved: int, epochs: int) -> dict[str, float]:
    """Return the probabilities that a sample reaches one forged epoch, before it is drawn.

    `anywhere`: the epoch may be any. `last`: it is the last one, which is the best place for it.
    All epochs up to the submitted weights, of epoch `saved`, are retrained; each end from there on
    is drawn alike.
    """
    left = epochs - saved
    return {"anywhere": (saved + 1 + (left - 1) / 2) / epochs, "last": 1 / left}
