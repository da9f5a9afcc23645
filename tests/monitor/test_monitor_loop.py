"""A run goes in its order, comes out the same again, and is closed whatever happens."""

import hashlib
import importlib.util
import json
import math
import signal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import torch
from frontdoor import answer, call
from tiny_training import STUCK, TINY, MemoryBlobs, ScriptedPolicy, Trained, train_tiny

from aggregates.decisions import Decision, Observation, Said
from aggregates.registry import REGISTRY
from aggregates.run import Run
from aggregates.spec import Edit, apply_edit
from ledger.application import LedgerApplication
from ledger.errors import StorageError
from ledger.progress import listening
from monitor.computing import computing_as
from monitor.config import RunConfig
from monitor.errors import ConfigurationError, DatasetError, MonitorError, PolicyError
from monitor.loop import epoch_order, train
from monitor.weights import load_weights
from policies.deciding.recorded import RecordedPolicy

# Learning rates that no network without norms survives.
DIVERGING: dict[str, Any] = {
    **TINY,
    "lr": 10.0,
    "norm": "none",
    "activation": "leaky_relu",
    "blocks": 3,
    "warm_up_epochs": 0,
    "epochs": 4,
}


def _story(trained: Trained) -> list[tuple[str, dict[str, Any]]]:
    """Return all that a run's events say, without ids and clocks."""
    story = []
    for name, body in trained.bodies():
        said = {key: value for key, value in body.items() if not key.startswith("_")}
        for key in ("originator_id", "timestamp"):
            said.pop(key)
        if "reported" in said:
            said["reported"] = {**said["reported"], "seconds": None}
        story.append((name, said))
    return story


class _Raising:
    name = "raising"

    def describe(self) -> dict[str, Any]:
        return {}

    def decide(self, observation: Observation) -> list[Decision]:
        raise ValueError("no idea")


def test_events_come_in_their_order() -> None:
    trained = train_tiny(("increase_lr", {"lr": 1e-3}), settings=STUCK)
    names = [name.removeprefix("Run.") for name, _ in trained.bodies()]
    assert names[:4] == ["Started", "EpochMeasured", "RulesEvaluated", "WeightsSaved"]
    at = names.index("DecisionMade")
    assert names[at + 1] == "RemedyApplied"
    assert names[-2:] == ["WeightsSaved", "Ended"]
    assert names.count("EpochMeasured") == names.count("RulesEvaluated") == 4
    assert trained.run.end_reason == "completed"
    assert trained.run.weights["last"].epoch == 3
    assert trained.log.repository.get(trained.run.id).end_reason == "completed"


def test_first_event_holds_what_the_run_is_made_from() -> None:
    identity, parent = uuid4(), str(uuid4())
    trained = train_tiny(run_id=identity, parent_run=parent, campaign="c", checkpoint="k")
    started = trained.bodies()[0][1]
    assert trained.run.id == identity
    assert (started["parent_run"], started["campaign"], started["checkpoint"]) == (parent, "c", "k")
    assert RunConfig.from_dict(started["config"]).hash == started["config_hash"]
    assert started["data"]["sizes"] == {"train": 192, "validation": 64, "test": 64}
    assert set(started["data"]["fingerprints"]) == {"train", "validation", "test"}
    assert started["environment"]["threads"] == 1
    assert len(started["environment"]["code_sha256"]) == 64
    assert started["policy"]["name"] == "scripted"


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "says",
    [
        [],
        [("swap_activation", {"to": "prelu"}), ("increase_lr", {"lr": 0.05})],
        [("widen", {"factor": 2}), ("accumulate_gradients", {"accumulation": 2})],
        [("add_block", {}), ("decrease_lr", {"lr": 1e-8, "reinitialise": True})],
    ],
)
def test_run_is_the_same_when_it_is_done_again(says: list[tuple[str, dict[str, Any]]]) -> None:
    settings = STUCK if says else TINY
    first = train_tiny(*says, settings=settings)
    torch.manual_seed(99)
    torch.rand(3)
    second = train_tiny(*says, settings=settings)
    assert _story(first) == _story(second)
    assert first.blobs == second.blobs
    assert [past.outcome for past in first.run.decisions][: len(says)] == ["applied"] * len(says)


@pytest.mark.slow
def test_run_is_the_same_in_another_process() -> None:
    code = (
        "import json; from tiny_training import STUCK, train_tiny;"
        "run = train_tiny(('widen', {'factor': 2}), settings=STUCK);"
        "print(json.dumps([run.measured, sorted(run.blobs)]))"
    )
    here = train_tiny(("widen", {"factor": 2}), settings=STUCK)
    there = call([], home=None, code=code)
    assert answer(there) == json.loads(json.dumps([here.measured, sorted(here.blobs)]))


@pytest.mark.slow
def test_run_differs_with_another_seed() -> None:
    assert train_tiny().blobs != train_tiny(settings={**TINY, "seed": 1}).blobs


def test_what_the_loop_reports_is_kept_apart_from_what_was_measured() -> None:
    for name, body in train_tiny().bodies():
        if name == "Run.EpochMeasured":
            assert set(body["reported"]) == {"seconds", "clipped_steps", "last_lr"}
            assert not set(body["reported"]) & set(body["measured"])


def test_order_of_the_data_changes_with_epoch_and_seed_only() -> None:
    order = epoch_order(100, seed=1, epoch=2)
    assert sorted(order.tolist()) == list(range(100))
    assert torch.equal(order, epoch_order(100, seed=1, epoch=2))
    assert not torch.equal(order, epoch_order(100, seed=1, epoch=3))
    assert not torch.equal(order, epoch_order(100, seed=2, epoch=2))


def test_accumulated_gradients_are_those_of_the_larger_batch() -> None:
    settings = {**STUCK, "norm": "none"}  # with BatchNorm, each batch has its own statistics
    norms = [
        train_tiny(said, settings=settings).measured[3]["gradients"]["total_norm_mean"]
        for said in [
            ("accumulate_gradients", {"accumulation": 2}),
            ("increase_batch_size", {"batch_size": 64}),
        ]
    ]
    assert norms[0] == pytest.approx(norms[1], rel=1e-3)


def test_clipping_bounds_the_step_and_not_the_measurement() -> None:
    free, bound = train_tiny(), train_tiny(settings={**TINY, "clip_norm": 1e-4})
    ratios = [run.run.history[0].update_ratio or 0.0 for run in (free, bound)]
    assert ratios[1] < 0.05 * ratios[0]
    norms = [run.measured[0]["gradients"]["total_norm_mean"] for run in (free, bound)]
    assert norms[1] == pytest.approx(norms[0], rel=0.5)


def test_diverged_run_survives_and_r7_fires() -> None:
    trained = train_tiny(settings=DIVERGING)
    run = trained.run
    assert run.end_reason == "completed"
    assert not math.isfinite(run.history[-1].train_loss)
    assert run.evaluations[run.epoch]["R7"].side == "not_finite"
    assert trained.policy.asked[0].due[0] == "R7"
    assert "last" in run.weights


def test_diverged_run_recovers_when_it_is_reinitialised() -> None:
    trained = train_tiny(
        ("decrease_lr", {"lr": 0.01, "clip_norm": 1.0, "reinitialise": True}), settings=DIVERGING
    )
    losses = [signals.train_loss for signals in trained.run.history]
    assert not math.isfinite(losses[0])
    assert all(math.isfinite(loss) for loss in losses[1:])


def test_decision_that_cannot_be_carried_out_is_recorded_as_made_and_refused() -> None:
    trained = train_tiny(("widen", {"factor": 2, "block": 9}), settings=STUCK)
    bodies = trained.bodies()
    at = next(n for n, (name, _) in enumerate(bodies) if name == "Run.DecisionMade")
    assert bodies[at][1]["params"] == {"factor": 2, "block": 9}
    assert bodies[at + 1][0] == "Run.RemedyRefused"
    assert "no block 9" in bodies[at + 1][1]["reason"]
    assert trained.run.spec == trained.run.initial_spec
    assert trained.run.end_reason == "completed"


def test_second_structural_edit_is_refused_when_edits_restart() -> None:
    settings = {**STUCK, "edits": "restart"}
    run = train_tiny(("add_block", {}), ("widen", {"factor": 2}), settings=settings).run
    said = [(past.decision.direction, past.outcome) for past in run.decisions]
    assert said == [("add_block", "refused"), ("widen", "restart")]


class _Several:
    """Answers, once, as the rules of the script say and in its order."""

    name = "several"

    def __init__(self, *says: Decision | Said) -> None:
        self.says = says

    def describe(self) -> dict[str, Any]:
        return {}

    def decide(self, observation: Observation) -> list[Decision | Said]:
        return list(self.says) if observation.epoch == 2 else []


WIDEN_R2 = Decision("architecture_change", ("R2",), "widen", {"factor": 2}, "for R2")
ADD_R1 = Decision("architecture_change", ("R1",), "add_block", {}, "for R1")
LOWER_R1 = Decision("hyperparameter_change", ("R1",), "decrease_lr", {"lr": 1.0}, "for R1")
NOT_R2 = Decision("rule_triggered_no_action", ("R2",), "defer", {}, "no usable answer")
TOO_FAST: dict[str, Any] = {**TINY, "lr": 10.0, "warm_up_epochs": 0, "epochs": 3}
# In this profile two rules fire, R1 and R2, whatever the interval of R2's signal.
TOO_FAST["profile"] = "document"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("says", [(ADD_R1, WIDEN_R2), (WIDEN_R2, ADD_R1)])
def test_restart_is_for_the_rule_that_goes_first_and_comes_last_also_when_it_is_said_again(
    says: tuple[Decision, ...],
) -> None:
    settings = {**TOO_FAST, "edits": "restart"}
    run = train_tiny(policy=_Several(*says), settings=settings).run
    said = [(past.decision.direction, past.outcome) for past in run.decisions]
    assert said == [("widen", "refused"), ("add_block", "restart")]
    again = train_tiny(policy=RecordedPolicy(run.decisions), settings=settings).run
    assert again.decisions == run.decisions


def test_decision_is_recorded_as_that_of_whoever_said_it() -> None:
    says = (LOWER_R1, Said(NOT_R2, "driver"))
    run = train_tiny(policy=_Several(*says), settings=TOO_FAST).run
    assert [past.source for past in run.decisions] == ["policy", "driver"]
    run = train_tiny(policy=_Several(Said(LOWER_R1, "human")), settings=TOO_FAST).run
    assert [(past.source, past.outcome) for past in run.decisions] == [("human", "applied")]
    again = train_tiny(policy=RecordedPolicy(run.decisions), settings=TOO_FAST).run
    assert again.decisions == run.decisions


def test_structural_edit_becomes_a_following_run_when_edits_restart() -> None:
    settings = {**STUCK, "edits": "restart"}
    first = train_tiny(
        ("add_block", {}), ("increase_lr", {"lr": 1e-3}), ("defer", {}), settings=settings
    )
    said = [(past.decision.direction, past.outcome) for past in first.run.decisions]
    assert said == [("increase_lr", "applied"), ("defer", None), ("add_block", "restart")]
    assert first.run.end_reason == "restart"
    assert first.run.restart_spec == apply_edit(first.run.initial_spec, Edit("add_block"))
    second = train_tiny(
        settings=settings, spec=first.run.restart_spec, parent_run=str(first.run.id)
    )
    assert second.run.initial_spec == first.run.restart_spec
    assert any(layer["name"] == "blocks.1.conv2.weight" for layer in second.measured[0]["layers"])


def test_policy_is_not_asked_when_the_rule_is_waived() -> None:
    trained = train_tiny(settings={**STUCK, "waived": ["R1"]})
    assert "R1" in trained.run.fired(2)
    assert all("R1" not in observation.due for observation in trained.policy.asked)


def test_policy_that_raises_is_rejected() -> None:
    log = LedgerApplication.in_memory(REGISTRY)
    identity = uuid4()
    with pytest.raises(PolicyError, match="policy raising raised ValueError: no idea"):
        train(RunConfig.from_dict(STUCK), _Raising(), log=log, blobs=MemoryBlobs(), run_id=identity)
    assert log.repository.get(identity).end_reason == "failed"


def test_remedy_for_a_rule_that_did_not_fire_is_recorded_and_refused() -> None:
    class Inventing(ScriptedPolicy):
        def decide(self, observation: Observation) -> list[Decision]:
            return [
                Decision("hyperparameter_change", ("R5",), "increase_lr", {"lr": 0.1}, "invented")
            ]

    log = LedgerApplication.in_memory(REGISTRY)
    run = train(RunConfig.from_dict(STUCK), Inventing(), log=log, blobs=MemoryBlobs())
    assert run.end_reason == "completed"
    assert {(past.decision.cites, past.outcome) for past in run.decisions} == {(("R5",), "refused")}
    assert run.settings == {}  # nothing was changed


def test_interrupted_run_is_closed_as_interrupted() -> None:
    log = LedgerApplication.in_memory(REGISTRY)
    identity = uuid4()

    def interrupt(_what: str, done: int, total: int | None) -> None:
        if total is not None and done == total // config.epochs + 2:
            raise KeyboardInterrupt

    config = RunConfig.from_dict(TINY)
    with listening(interrupt), pytest.raises(KeyboardInterrupt):
        train(
            config,
            ScriptedPolicy(),
            log=log,
            blobs=MemoryBlobs(),
            run_id=identity,
        )
    run: Run = log.repository.get(identity)
    assert (run.end_reason, run.epoch) == ("interrupted", 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_never_splits_a_save(number: int) -> None:
    log, identity = LedgerApplication.in_memory(REGISTRY), uuid4()

    class Interrupted:
        saves = 0

        def save(self, run: Run) -> None:
            self.saves += 1
            if self.saves == 2:
                signal.raise_signal(number)
            log.save(run)

    before = signal.signal(number, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            train(
                RunConfig.from_dict(TINY),
                ScriptedPolicy(),
                log=Interrupted(),
                blobs=MemoryBlobs(),
                run_id=identity,
            )
    finally:
        signal.signal(number, before)
    run: Run = log.repository.get(identity)
    assert (run.end_reason, run.epoch) == ("interrupted", 0)


def test_error_inside_the_run_closes_it_as_failed() -> None:
    log = LedgerApplication.in_memory(REGISTRY)
    identity = uuid4()

    def fail(_run: Run, _measured: dict[str, Any]) -> None:
        raise RuntimeError("the screen is gone")

    with pytest.raises(MonitorError, match="RuntimeError: the screen is gone"):
        train(
            RunConfig.from_dict(TINY),
            ScriptedPolicy(),
            log=log,
            blobs=MemoryBlobs(),
            run_id=identity,
            on_epoch=fail,
        )
    assert log.repository.get(identity).end_reason == "failed"


class _FullLog(LedgerApplication):
    """A ledger whose disk is full from the third saving on, for a while."""

    saved = 0

    def save(self, *objs: Any, **kwargs: Any) -> Any:
        self.saved += 1
        if self.saved == 3:
            raise StorageError("no space left")
        return super().save(*objs, **kwargs)


def test_nothing_is_appended_when_the_log_has_refused_once() -> None:
    log = _FullLog.in_memory(REGISTRY)
    identity = uuid4()
    with pytest.raises(StorageError, match="no space left"):
        train(
            RunConfig.from_dict(TINY),
            ScriptedPolicy(),
            log=log,
            blobs=MemoryBlobs(),
            run_id=identity,
        )
    assert log.saved == 3
    run: Run = log.repository.get(identity)
    assert (run.epoch, run.end_reason) == (0, None)


def test_float32_on_a_gpu_is_float32_for_as_long_as_a_run_computes() -> None:
    def how() -> tuple[str, str, bool]:
        cudnn: Any = torch.backends.cudnn
        return cudnn.conv.fp32_precision, torch.backends.cuda.matmul.fp32_precision, cudnn.benchmark

    before = how()
    assert before[0] == "tf32"  # as PyTorch has it: 10 bits of each input
    with computing_as(RunConfig.from_dict({**TINY, "device": "cuda"})):
        assert how() == ("ieee", "ieee", False)
    assert how() == before
    with computing_as(RunConfig.from_dict(TINY)):
        assert how() == before


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (
            {"batch_size": 256},
            ConfigurationError,
            "batch_size 256 times accumulation 1 is above the 192",
        ),
        ({"dataset": "imagefolder:/nowhere/at/all"}, DatasetError, "folder .* not found"),
        ({"device": "cuda"}, ConfigurationError, "no CUDA device was found"),
    ],
)
def test_run_that_cannot_start_is_rejected_and_leaves_nothing(
    changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    if changes.get("device") == "cuda" and torch.cuda.is_available():
        changes, message = {"batch_size": 256}, "above the 192"  # this machine has what is missing
    log = LedgerApplication.in_memory(REGISTRY)
    with pytest.raises(error, match=message):
        train(
            RunConfig.from_dict({**TINY, **changes}),
            ScriptedPolicy(),
            log=log,
            blobs=MemoryBlobs(),
        )
    assert log.recorder.max_notification_id() is None


def test_settings_of_torch_are_restored() -> None:
    torch.set_num_threads(2)
    torch.use_deterministic_algorithms(False)
    train_tiny()
    assert torch.get_num_threads() == 2
    assert not torch.are_deterministic_algorithms_enabled()


def test_submission_holds_the_best_weights_and_a_model_that_takes_them(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "submission"
    trained = train_tiny(("add_block", {}), settings=STUCK, submission_dir=directory)
    ended = trained.bodies()[-1][1]
    files = {path.name: path.read_bytes() for path in directory.iterdir()}
    assert ended["deliverables"] == {
        name: hashlib.sha256(content).hexdigest() for name, content in files.items()
    }
    assert set(files) == {"model.py", "run_config.json", "weights.safetensors"}
    assert ended["deliverables"]["weights.safetensors"] == trained.run.weights["best"].sha256
    about = json.loads(files["run_config.json"])
    assert about["mode"] == "iterative_self_refine"
    assert about["run"] == str(trained.run.id)
    started, weights = about["started_from"], about["weights"]
    assert RunConfig.from_dict(started["config"]).hash == started["config_hash"]
    assert started["spec"] == trained.run.initial_spec.to_dict()
    assert not {"config", "spec"} & set(about)
    spec = importlib.util.spec_from_file_location("submitted", directory / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.load_model()
    assert model.spec().to_dict() == weights["spec"]
    load_weights(model, files["weights.safetensors"])


def test_submission_that_cannot_be_written_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with pytest.raises(MonitorError, match="submission cannot be written"):
        train_tiny(submission_dir=tmp_path / "file")
