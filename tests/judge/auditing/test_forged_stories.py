"""Stories told with a valid key about what no training did; the honest run is their control."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from judge_cases import CONFIG, Case, Change, SilentPolicy, failed, rewrite, train_case

from aggregates.decisions import Decision, Observation
from aggregates.run import Run
from judge.auditing.gates import Redo, chance_of_notice
from judge.auditing.reexecution import reexecute
from judge.auditing.report import AuditReport
from judge.auditing.scores import choose_target
from judge.config import JudgeConfig
from judge.errors import JudgeError
from monitor.config import RunConfig
from monitor.diagnostics import EpochWatch
from monitor.errors import MachineError
from policies.deciding.recorded import RecordedPolicy


def at(kind: type, epoch: int | None, **changes: Any) -> Change:
    """Return a change of the events of one kind, in one epoch or in all."""

    def change(event: Any) -> dict[str, Any]:
        hit = isinstance(event, kind) and epoch in (None, getattr(event, "epoch", None))
        return dict(changes) if hit else {}

    return change


def measured(*path: Any, value: Any) -> Change:
    """Return a change of one value in the measured part of epoch 1."""

    def change(event: Any) -> dict[str, Any]:
        if not isinstance(event, Run.EpochMeasured) or event.epoch != 1:
            return {}
        part = deepcopy(event.measured)
        place: Any = part
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value(place[path[-1]]) if callable(value) else value
        return {"measured": part}

    return change


def without_probes(gradients: dict[str, Any]) -> dict[str, Any]:
    """Leave out what earlier versions did not record."""
    newer = ("probes", "spread", "spread_pairs", "signal_to_noise_low", "signal_to_noise_high")
    return {key: value for key, value in gradients.items() if key not in newer}


def more_epochs(event: Any) -> dict[str, Any]:
    if not isinstance(event, Run.Started):
        return {}
    config = RunConfig.from_dict({**event.config, "epochs": 9})
    return {"config": config.to_dict(), "config_hash": config.hash}


def smuggle_clipping(event: Any) -> dict[str, Any]:
    if isinstance(event, Run.RemedyApplied):
        return {"settings": {**event.settings, "clip_norm": 0.5}}
    if isinstance(event, Run.EpochMeasured) and event.epoch > 2:
        settings = {**event.measured["settings"], "clip_norm": 0.5}
        return {"measured": {**event.measured, "settings": settings}}
    return {}


def smuggle_schedule(event: Any) -> dict[str, Any]:
    if not isinstance(event, Run.RemedyApplied):
        return {}
    schedule = {"kind": "warm_up", "epochs": 3, "since": event.epoch + 1}
    return {"settings": {**event.settings, "schedule": schedule}}


def refuse(event: Any) -> dict[str, Any]:
    if not isinstance(event, Run.RemedyApplied):
        return {}
    place = {"decision": event.decision, "epoch": event.epoch}
    return {"event": Run.RemedyRefused, **place, "reason": "the memory does not hold it"}


def drop_a_best(event: Any) -> dict[str, Any] | None:
    best = isinstance(event, Run.WeightsSaved) and event.kind == "best"
    return None if best and event.epoch in (1, 5) else {}


def last_as_best(event: Any) -> dict[str, Any]:
    last = isinstance(event, Run.WeightsSaved) and event.kind == "last"
    return {"kind": "best"} if last else {}


def without_last(event: Any) -> dict[str, Any] | None:
    return None if isinstance(event, Run.WeightsSaved) and event.kind == "last" else {}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (more_epochs, "ended as completed after 8 of 9 epochs"),
        (at(Run.Ended, None, reason="stopped"), "a run must end with `stopped` if"),
        (smuggle_clipping, "leads to settings.clip_norm None, but 0.5 is recorded"),
        (smuggle_schedule, "leads to settings.schedule"),
        (at(Run.RemedyApplied, 2, changes=[]), "leads to changes.length 1, but 0 is recorded"),
        (refuse, "decision 1 is recorded as refused, but it could have been applied"),
        (drop_a_best, "has no weights saved as best"),
        (last_as_best, "is not a new minimum"),
        (without_last, "its last weights were not saved"),
        (measured("layers", value=lambda old: old * 2), "measured layers.length"),
        (measured("layers", value=lambda old: old[:-1]), "measured layers.length"),
        (measured("layers", 0, "name", value="x"), "measured layers[0][0] is 'x'"),
        (measured("layers", 0, "rank", value=1), "measured layers[0][1] is 1"),
        (measured("layers", 0, "grad_norm", value=-1.0), "stem.weight grad_norm is -1.0"),
        (measured("activations", 0, "units", value=99), "measured activations[0][1] is 99"),
        (measured("activations", 0, "dead_units", value=-9), "-9 dead units of 6"),
        (measured("activations", 0, "sparsity", value=2.0), "sparsity is 2.0"),
        (measured("train", "accuracy", value=7.0), "measured accuracy is 7.0"),
        (measured("train", "accuracy", value=0.12345), "a whole number of 192 examples"),
        (measured("validation", "accuracy", value=0.5001), "a whole number of 96 examples"),
        (measured("gradients", "norm_noise_scale", value=0.01), "6 norms give at least 0.1667"),
        (measured("gradients", "norm_noise_scale", value=None), "must be missing if there are"),
        (measured("gradients", "signal_to_noise", value=1e6), "from the recorded probes"),
        (measured("gradients", value=without_probes), "epoch 1 has no noise probes, but the code"),
        (measured("train", "steps", value=77), "measured train.steps is 77"),
        (measured("train", "examples", value=200), "measured train.examples is 200"),
        (measured("validation", "examples", value=2), "measured validation.examples is 2"),
        (measured("train", "steps", value="many"), "measured train.steps is 'many'"),
        (measured("gradients", "probes", value=[]), "epoch 1: measured gradients.probes has 0"),
    ],
)
def test_story_that_no_training_tells_is_rejected(
    tampered: Callable[[], Case], change: Change, words: str
) -> None:
    report = rewrite(tampered(), change).audit()
    assert failed(report) == "ledger"
    assert words in report.step("ledger").summary


def test_audit_passes_when_the_story_is_told_again_unchanged(
    tampered: Callable[[], Case], honest_report: AuditReport
) -> None:
    report = rewrite(tampered(), lambda _: {}).audit()
    assert failed(report) is None
    assert report.scores == honest_report.scores


def test_weights_of_another_size_than_recorded_is_rejected(tampered: Callable[[], Case]) -> None:
    report = rewrite(tampered(), at(Run.WeightsSaved, None, size=7)).audit()
    assert failed(report) == "weights"
    assert "the ledger records 7" in report.step("weights").summary


@pytest.fixture(scope="module")
def diverged(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A run whose validation loss is never finite, so that nothing but its last weights remains."""
    changes = {"lr": 10.0, "epochs": 1, "momentum": 0.9999, "weight_decay": 1.0, "batch_size": 2}
    config = replace(CONFIG, **changes)  # type: ignore[arg-type]  # values of several types
    case = train_case(tmp_path_factory.mktemp("diverged"), SilentPolicy(), config)
    assert {e.kind for e in case.events() if isinstance(e, Run.WeightsSaved)} == {"last"}
    return case


@pytest.mark.slow
def test_last_weights_of_a_run_that_broke_off_is_rejected(diverged: Case, tmp_path: Path) -> None:
    case = diverged.copy(tmp_path)
    control = rewrite(case, lambda _: {}).audit()
    assert control.step("weights").status == "passed"
    forged = rewrite(case, at(Run.Ended, None, reason="interrupted"))
    report = forged.audit()
    assert failed(report) == "weights"
    assert (
        "last weights count only for a run that ended by itself" in report.step("weights").summary
    )


def recorded(run: Run) -> RecordedPolicy:
    return RecordedPolicy(run.decisions, run.policy)


def test_forged_last_weights_of_a_run_that_broke_off_is_rejected(
    diverged: Case, tmp_path: Path
) -> None:
    case = diverged.copy(tmp_path)

    def broke_off(event: Any) -> dict[str, Any]:
        return {"reason": "interrupted"} if isinstance(event, Run.Ended) else {}

    def other_weights(event: Any) -> dict[str, Any]:
        saved = isinstance(event, Run.WeightsSaved)
        return {"sha256": "0" * 64} if saved else broke_off(event)

    assert reexecute(rewrite(case, broke_off).events(), SilentPolicy()).same
    comparison = reexecute(rewrite(case, other_weights).events(), SilentPolicy())
    assert [d.place for d in comparison.differences] == ["event 4 run.weights_saved.sha256"]


# Step 7, trained again


@pytest.mark.slow
def test_sample_reaches_the_submitted_weights_whatever_is_drawn(honest: Case) -> None:
    drawn: list[int] = []

    def draw(below: int) -> int:
        drawn.append(below)
        return 0

    report = honest.audit(redo=Redo(recorded, sample=True, draw=draw))
    assert failed(report) is None
    saved = report.step("weights").evidence["epoch"]
    executed = report.step("probe").evidence["executed"]
    assert report.retrained == executed["share"] == (saved + 1) / 8
    assert executed["noticed"] == chance_of_notice(saved, 8)
    assert "a sample notices one forged epoch" in report.step("probe").summary
    assert report.step("probe").evidence["executed"]["epochs"] == saved + 1
    assert drawn == [8 - saved]
    assert report.executed


class Inventing:
    """Cites a rule that never fires, and acts on it."""

    name = "inventing"

    def describe(self) -> dict[str, Any]:
        return {}

    def decide(self, observation: Observation) -> Sequence[Decision]:
        true = [Decision.of((rule,), "defer", {}, "later") for rule in observation.due]
        return [*true, Decision.of(("R5",), "increase_lr", {"lr": 0.1}, "invented")]


def test_false_citation_of_a_live_policy_is_a_violation_and_loses_no_run(tmp_path: Path) -> None:
    case = train_case(tmp_path, Inventing(), replace(CONFIG, epochs=4))
    report = case.audit(config=JudgeConfig(min_firings=1), redo=Redo(recorded))
    assert failed(report) is None
    assert report.retrained == 1.0
    found = {(v.kind, v.rule, v.emitter) for v in report.violations}
    assert ("false_citation", "R5", "policy") in found
    assert report.step("scores").evidence["unexercised"] == "no remedy took effect"
    assert not [v for v in report.violations if v.kind == "false_citation" and v.rule != "R5"]


def test_chance_that_a_sample_notices_one_forged_epoch() -> None:
    for saved, epochs in ((0, 1), (3, 12), (6, 12), (11, 12)):
        ends = range(saved, epochs)  # of which one is drawn
        each = [sum(end >= forged for end in ends) / len(ends) for forged in range(epochs)]
        found = chance_of_notice(saved, epochs)
        assert found["anywhere"] == pytest.approx(sum(each) / epochs)
        assert found["last"] == pytest.approx(each[-1])


def test_last_epoch_forged_behind_the_best_weights_is_rejected(tmp_path: Path) -> None:
    case = train_case(tmp_path, SilentPolicy(), replace(CONFIG, lr=0.3, epochs=5))

    def silent(_: Run) -> SilentPolicy:
        return SilentPolicy()

    assert case.audit(redo=Redo(silent)).retrained == 1.0  # the honest run

    def in_last(event: Any) -> dict[str, Any]:
        if not isinstance(event, Run.EpochMeasured) or event.epoch != 4:
            return {}
        part = deepcopy(event.measured)
        part["train"]["loss"] *= 1 + 1e-9
        return {"measured": part}

    forged = rewrite(case, in_last)
    sampled = forged.audit(redo=Redo(silent, sample=True, draw=lambda _: 0))
    assert (failed(sampled), sampled.retrained) == (None, 4 / 5)
    report = forged.audit(redo=Redo(silent))
    assert failed(report) == "probe"
    assert "values differ from the recorded ones" in report.step("probe").summary


@pytest.mark.parametrize("reason", ["interrupted", "crashed", "failed"])
def test_submission_of_a_run_that_broke_off_is_rejected(
    tampered: Callable[[], Case], reason: str
) -> None:
    case = tampered()

    def broke_off(event: Any) -> dict[str, Any]:
        return {"reason": reason, "deliverables": {}} if isinstance(event, Run.Ended) else {}

    (case.submission / "model.py").write_text("from submitted import load_model\n")
    report = rewrite(case, broke_off).audit()
    assert failed(report) == "deliverables"
    words = report.step("deliverables").summary
    assert f"the run ended as {reason} and recorded no hash of model.py" in words
    assert "train it again with `proctor run`" in words


def test_measurement_made_up_beside_the_submitted_weights_is_rejected(
    tampered: Callable[[], Case],
) -> None:
    case = rewrite(tampered(), measured("train", "loss", value=lambda old: old * (1 + 1e-9)))
    assert failed(case.audit()) is None
    report = case.audit(redo=Redo(recorded))
    assert failed(report) == "probe"
    assert "values differ from the recorded ones" in report.step("probe").summary


def test_audit_says_that_nothing_was_trained_again(honest_report: AuditReport) -> None:
    assert not honest_report.executed
    assert honest_report.step("probe").summary.endswith("; the run was not retrained")


def elsewhere(event: Any) -> dict[str, Any]:
    """Say that the run was made on another CPU."""
    cpu = {"name": "another", "features": [], "caches": []}
    made = isinstance(event, Run.Started)
    return {"environment": {**event.environment, "cpu": cpu}} if made else {}


def test_other_values_are_inconclusive_when_the_run_was_made_on_another_cpu(
    tampered: Callable[[], Case],
) -> None:
    another = measured("train", "loss", value=lambda old: old * (1 + 1e-9))
    case = rewrite(tampered(), lambda event: {**elsewhere(event), **(another(event) or {})})
    report = case.audit(redo=Redo(recorded))
    assert failed(report) is None
    assert not report.executed
    words = report.step("probe").summary
    assert "inconclusive: 1 of" in words
    assert words.endswith("values differ; the run was made with a different cpu")


@pytest.mark.slow
def test_equal_values_prove_a_run_that_was_made_on_another_cpu(
    tampered: Callable[[], Case],
) -> None:
    case = rewrite(tampered(), elsewhere)
    report = case.audit(redo=Redo(recorded))
    assert failed(report) is None
    assert report.executed
    assert report.step("probe").evidence["differs"] == ["cpu"]


# Steps 10 and 11


@pytest.mark.parametrize(
    ("own", "classes", "judge", "expected"),
    [
        (0.8, 10, None, (0.8, "run")),
        (0.0, 10, None, (0.5, "floor")),
        (0.1, 3, None, (2 / 3, "floor")),
        (0.5, 2, None, (0.75, "floor")),
        (0.0, 10, 0.9, (0.9, "judge")),
    ],
)
def test_target_is_never_below_the_judge_s_floor(
    own: float, classes: int, judge: float | None, expected: tuple[float, str]
) -> None:
    assert choose_target(own, classes, JudgeConfig(target_accuracy=judge)) == expected


def test_target_of_nothing_is_rejected(tampered: Callable[[], Case]) -> None:
    with pytest.raises(JudgeError, match="above 0 and at most 1"):
        JudgeConfig(min_target_accuracy=0.0)

    def humble(event: Any) -> dict[str, Any]:
        if not isinstance(event, Run.Started):
            return {}
        config = RunConfig.from_dict({**event.config, "target_accuracy": 0.0})
        return {"config": config.to_dict(), "config_hash": config.hash}

    report = rewrite(tampered(), humble).audit(config=JudgeConfig(min_test_examples=101))
    accuracy = report.scores.test_accuracy
    assert accuracy is not None
    assert accuracy < 0.5
    assert report.scores.accuracy_score == accuracy / 0.5
    assert "of the target 0.5 (floor)" in report.step("scores").summary
    assert "on 100 test images" in report.step("test_accuracy").summary


def started_with(environment: dict[str, Any], **settings: Any) -> Change:
    """Return a change to another configuration and environment, as if they always had been."""

    def change(event: Any) -> dict[str, Any]:
        if not isinstance(event, Run.Started):
            return {}
        config = RunConfig.from_dict({**event.config, **settings})
        told = {**event.environment, **environment}
        return {
            "config": config.to_dict(),
            "config_hash": config.hash,
            "environment": {key: value for key, value in told.items() if value is not None},
        }

    return change


PORTABLE = {"numerics": "portable", "threads": 1}


@pytest.mark.parametrize(
    ("environment", "settings", "part"),
    [
        ({"threads": 7}, {}, "threads"),
        ({"device": "NVIDIA H100"}, {}, "device"),
        ({"numerics": "portable"}, {}, "numerics"),
        ({"numerics": "fast"}, PORTABLE, "numerics"),
        ({**PORTABLE, "variables": {"MKL_CBWR": "AVX2"}}, PORTABLE, "variables"),
        ({**PORTABLE, "variables": None}, PORTABLE, "variables"),
    ],
)
def test_environment_that_no_run_of_the_configuration_has_is_rejected(
    tampered: Callable[[], Case], environment: dict[str, Any], settings: dict[str, Any], part: str
) -> None:
    report = rewrite(tampered(), started_with(environment, **settings)).audit()
    assert failed(report) == "ledger"
    assert (
        f"no run with this configuration can have the recorded {part}"
        in report.step("ledger").summary
    )


def test_run_of_a_gpu_is_not_trained_again_where_there_is_none(
    tampered: Callable[[], Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    case = rewrite(tampered(), started_with({"device": "NVIDIA H100"}, device="cuda"))
    report = case.audit(redo=Redo(recorded))
    assert failed(report) is None
    assert report.step("probe").summary.endswith(
        "; not retrained: the run was made with a different device; the run needs a CUDA device, "
        "and this machine has none; it was trained on 'NVIDIA H100'"
    )
    assert not report.step("probe").evidence["executed"]["done"]


@pytest.mark.slow
def test_machine_that_fails_at_training_again_says_nothing_of_the_run(
    honest: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert failed(honest.audit(redo=Redo(recorded))) is None
    for failure in (torch.OutOfMemoryError, torch.AcceleratorError, MemoryError):
        no_room = Mock(side_effect=failure("CUDA out of memory"))
        monkeypatch.setattr(EpochWatch, "gradients", no_room)
        with pytest.raises(MachineError, match="CUDA out of memory"):
            honest.audit(redo=Redo(recorded))
    monkeypatch.setattr(EpochWatch, "gradients", no_gradients)
    report = honest.audit(redo=Redo(recorded))
    assert failed(report) == "probe"  # any other failure here is the run's


def no_gradients(*_: Any, **__: Any) -> None:
    raise ValueError("what no honest training raises")


def test_environment_of_an_earlier_version_is_accepted(tampered: Callable[[], Case]) -> None:
    older = {"numerics": None, "variables": None, "cpu": None}
    assert failed(rewrite(tampered(), started_with(older)).audit()) is None
