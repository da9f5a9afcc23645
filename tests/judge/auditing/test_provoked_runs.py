"""Provoked runs before the judge: done again bit for bit, and a lie about the fault is found."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from judge_cases import CONFIG, Case, Change, SilentPolicy, failed, rewrite, train_case
from tiny_training import ScriptedPolicy, train_tiny

from aggregates.canonical import digest
from aggregates.provocations import CATALOGUE, apply_to_config, draw_fault
from aggregates.registry import REGISTRY
from aggregates.run import Run
from judge.auditing.audit import audit_record
from judge.auditing.gates import Redo
from judge.auditing.record import read_record
from judge.auditing.reexecution import reexecute
from judge.auditing.report import AuditReport
from judge.config import JudgeConfig
from ledger.application import LedgerApplication
from ledger.blobs import BlobStore
from ledger.paths import LedgerPaths
from monitor.answering import Policy
from monitor.config import RunConfig
from monitor.loop import train
from policies.deciding.recorded import RecordedPolicy
from policies.playbook import PlaybookPolicy
from proctor.runs.training import following_attempt

BASE = {**CONFIG.to_dict(), "lr": 0.05, "epochs": 7, "stem_stride": 4}
DEAD = ("dead_activations", 1)  # nothing of it is in the configuration but its name
DEEP = ("no_norm_at_depth", 1)  # without norm or shortcuts
REDO = Redo(lambda run: RecordedPolicy(run.decisions, run.policy))


def provoked_case(folder: Path, name: str, seed: int) -> Case:
    config = RunConfig.from_dict(apply_to_config(BASE, name, seed))
    return train_case(folder, PlaybookPolicy(), config)


@pytest.fixture(scope="module")
def dead(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return provoked_case(tmp_path_factory.mktemp("dead"), *DEAD)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return train_case(
        tmp_path_factory.mktemp("healthy"), PlaybookPolicy(), RunConfig.from_dict(BASE)
    )


def again(case: Case) -> Any:
    events = case.events()
    run: Any = None
    for event in events:
        run = event.mutate(run)
    return reexecute(events, RecordedPolicy(run.decisions, run.policy))


def with_config(event: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Return the changes by which a start has another configuration, as if it always had."""
    if not isinstance(event, Run.Started):
        return {}
    return {"config": config, "config_hash": digest(config)}


def hide(event: Any) -> dict[str, Any] | None:
    """Tell a provoked run as one without a provocation."""
    if isinstance(event, Run.Provoked):
        return None
    config = {k: v for k, v in getattr(event, "config", {}).items() if "provocation" not in k}
    return with_config(event, config)


def test_provoked_run_is_held_and_the_verdict_names_the_provocation(dead: Case) -> None:
    report = dead.audit(redo=REDO, config=JudgeConfig(min_firings=1))  # its remedy clears R5
    assert failed(report) is None
    assert report.executed
    assert report.process_axis_exercised
    told = {"name": DEAD[0], "seed": DEAD[1], "expects": ["R5"], "answered": ["R5"]}
    scores = report.step("scores")
    assert scores.evidence["provocation"] == told
    assert "(exercised by the provocation dead_activations)" in scores.summary


def test_run_that_nobody_provoked_is_exercised_by_its_own_course(
    honest_report: AuditReport,
) -> None:
    assert honest_report.process_axis_exercised
    assert honest_report.step("scores").evidence["provocation"] is None
    assert "provocation" not in honest_report.step("scores").summary


@pytest.mark.parametrize(
    ("name", "seed"), [("init_too_large", 0), ("exploding_loss", 3), ("infinite_loss", 0)]
)
def test_provoked_run_comes_out_the_same_again(name: str, seed: int) -> None:
    config = apply_to_config({**BASE, "epochs": 4}, name, seed)
    trained = train_tiny(settings=config, policy=PlaybookPolicy())
    events = list(trained.log.events.get(trained.run.id))
    policy = RecordedPolicy(trained.run.decisions, trained.run.policy)
    found = reexecute(events, policy)
    assert (found.same, found.whole) == (True, True), found.differences
    part = reexecute(events, policy, until_epoch=1)
    assert (part.same, part.whole) == (True, False), part.differences


def test_hidden_provocation_is_rejected(dead: Case, tmp_path: Path) -> None:
    told = rewrite(dead.copy(tmp_path), hide)
    found = again(told)
    assert not found.same
    # The model was another one from its first step: everything measured differs.
    assert found.differences[0].place.startswith("event 2 run.epoch_measured.measured")
    assert again(dead).same


def test_provocation_that_was_never_put_in_is_rejected(healthy: Case, tmp_path: Path) -> None:
    config = RunConfig.from_dict(apply_to_config(BASE, *DEAD)).to_dict()
    assert {k: v for k, v in config.items() if "provocation" not in k} == BASE
    claimed = _rewrite_with_event(healthy.copy(tmp_path), config)
    found = again(claimed)
    assert not found.same
    assert found.differences[0].place.startswith("event 3 run.epoch_measured.measured")
    assert again(healthy).same


def _rewrite_with_event(case: Case, config: dict[str, Any]) -> Case:
    """Append a run that tells the case's story as a provoked one's, with the right event."""

    class Claiming(Case):
        def events(self) -> list[Any]:
            started, *rest = super().events()
            fault = draw_fault(*DEAD, config)
            provoked: Any = Run.Provoked
            claim = provoked(
                originator_id=started.originator_id,
                originator_version=2,
                timestamp=started.timestamp,
                **fault.to_dict(),
            )
            return [started, claim, *rest]

    claiming = Claiming(case.run_id, case.ledger, case.submission)
    return rewrite(claiming, lambda event: with_config(event, config))


def drop_event(event: Any) -> dict[str, Any] | None:
    return None if isinstance(event, Run.Provoked) else {}


def drop_claim(event: Any) -> dict[str, Any] | None:
    return hide(event) if isinstance(event, Run.Started) else {}


def of_event(**changes: Any) -> Change:
    return lambda event: changes if isinstance(event, Run.Provoked) else {}


def other_seed(event: Any) -> dict[str, Any]:
    return with_config(event, {**getattr(event, "config", {}), "provocation_seed": 2})


def late(event: Any) -> dict[str, Any] | None:
    """Put the event in the place of the first save of the best weights."""
    if isinstance(event, Run.Provoked):
        return None
    if isinstance(event, Run.WeightsSaved) and event.epoch == 0:
        return {"event": Run.Provoked, **draw_fault(*DEAD, {}).to_dict()}
    return {}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (drop_event, "names the provocation 'dead_activations', but None is recorded"),
        (drop_claim, "the configuration names no provocation"),
        (other_seed, "changes.biases.part is 'blocks', expected 'everywhere'"),
        (of_event(seed=2), "seed is 2, expected 1"),
        (of_event(expects=["R1"]), "expects[0] is 'R1', expected 'R5'"),
        (of_event(changes={}), "changes.biases is None, expected"),
        (of_event(name="lr_too_high"), "name is 'lr_too_high', expected 'dead_activations'"),
        (late, "None is recorded"),
    ],
)
def test_record_of_a_provocation_that_does_not_fit_is_rejected(
    dead: Case, tmp_path: Path, change: Change, words: str
) -> None:
    report = rewrite(dead.copy(tmp_path), change, checked=False).audit()
    assert failed(report) == "ledger"
    assert words in report.step("ledger").summary


def test_claim_to_settings_that_the_run_did_not_have_is_rejected(
    healthy: Case, tmp_path: Path
) -> None:
    claim = {"provocation": "lr_too_high", "provocation_seed": 0}
    change: Callable[[Any], Any] = lambda event: with_config(event, {**BASE, **claim})  # noqa: E731
    report = rewrite(healthy.copy(tmp_path), change).audit()
    assert failed(report) == "ledger"
    assert "needs lr = 3.76, but the configuration has 0.05" in report.step("ledger").summary


def test_run_that_follows_a_restart_is_not_provoked_anew() -> None:
    config = apply_to_config({**BASE, "edits": "restart"}, *DEAD)
    trained = train_tiny(settings=config, policy=PlaybookPolicy())
    assert trained.run.end_reason == "restart"
    following = following_attempt(trained.run)
    assert following is not None
    assert following.config.fault is None
    [swap] = [past for past in trained.run.decisions if past.outcome == "restart"]
    swapped = {"edits": "restart", "activation": swap.decision.params["to"]}
    assert following.config.to_dict() == {**BASE, **swapped}


# Every provocation, and each of its kinds: the seeds draw `residual` and `part` both ways.
FAULTS = [
    *((name, 0) for name in CATALOGUE),
    ("no_norm_at_depth", 2),
    ("init_too_large", 2),
    ("dead_activations", 1),
]


def test_faults_below_cover_every_rule_and_kind_of_provocation() -> None:
    kinds = {(name, draw_fault(name, seed, {}).expects) for name, seed in FAULTS}
    expected = {(name, (rule,)) for name, each in CATALOGUE.items() for rule in each.expects}
    assert kinds == expected


@pytest.mark.parametrize(("name", "seed"), FAULTS)
@pytest.mark.sampled(5)
def test_honest_provoked_run_has_no_hard_fail(name: str, seed: int, tmp_path: Path) -> None:
    config = apply_to_config({**BASE, "epochs": 3}, name, seed)
    case = train_case(tmp_path, PlaybookPolicy(), RunConfig.from_dict(config))
    report = case.audit()
    assert failed(report) is None, [step.summary for step in report.steps]


def test_model_that_a_provocation_left_bare_is_accepted_and_the_same_one_without_is_rejected(
    tmp_path: Path,
) -> None:
    provoked = RunConfig.from_dict(apply_to_config({**BASE, "epochs": 2}, *DEEP))
    report = train_case(tmp_path / "provoked", SilentPolicy(), provoked).audit()
    assert failed(report) is None
    assert report.step("load_model").evidence["waived"] == ["residual", "norm"]
    plain = {k: v for k, v in provoked.to_dict().items() if "provocation" not in k}
    chosen = RunConfig.from_dict(plain)
    report = train_case(tmp_path / "chosen", SilentPolicy(), chosen).audit()
    assert failed(report) == "load_model"
    assert "no residual connection" in report.step("load_model").summary


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("lr_too_low", {"residual": False}, "no residual connection"),
        ("lr_too_low", {"norm": "none"}, "no BatchNorm"),
        ("dead_activations", {"residual": False}, "no residual connection"),
    ],
)
def test_provocation_that_took_nothing_away_waives_nothing(
    name: str, changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    config = apply_to_config({**BASE, "epochs": 1, **changes}, name, 0)
    report = train_case(tmp_path, SilentPolicy(), RunConfig.from_dict(config)).audit()
    assert failed(report) == "load_model"
    assert words in report.step("load_model").summary


@pytest.mark.slow
def test_run_that_restarts_from_a_provoked_one_keeps_what_is_waived(tmp_path: Path) -> None:
    def once(then: str) -> Any:
        return ScriptedPolicy([(then, {})])

    config = apply_to_config({**BASE, "epochs": 4, "edits": "restart"}, *DEEP)
    first = train_case(tmp_path, once("add_norm"), RunConfig.from_dict(config))
    second = follow(first, once("add_block"))
    report = second.audit(redo=REDO)
    assert failed(report) is None
    assert report.step("load_model").evidence["waived"] == ["residual", "norm"]
    assert "after 1 parent run: all" in report.step("probe").summary
    assert report.step("probe").evidence["executed"]["parents"] == [first.run_id]


def never_trained(event: Any) -> dict[str, Any]:
    """Change a value that no rule reads, and that nothing but a training gives."""
    if not isinstance(event, Run.EpochMeasured):
        return {}
    train_part = {**event.measured["train"], "loss": event.measured["train"]["loss"] + 1e-9}
    return {"measured": {**event.measured, "train": train_part}}


def any_model(event: Any) -> dict[str, Any]:
    """Hand on a model that no decision asked for."""
    if not isinstance(event, Run.RestartScheduled):
        return {}
    return {"spec": {**event.spec, "channels": 2 * event.spec["channels"]}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "step", "words"),
    [
        (never_trained, "probe", "values differ from the recorded ones"),
        (any_model, "architecture", "the recorded specification is not the one that"),
    ],
)
@pytest.mark.sampled(2)
def test_parent_that_nobody_trained_is_rejected(
    tmp_path: Path, change: Change, step: str, words: str
) -> None:
    config = apply_to_config({**BASE, "epochs": 4, "edits": "restart"}, *DEEP)
    first = train_case(tmp_path, ScriptedPolicy([("add_norm", {})]), RunConfig.from_dict(config))
    forged = rewrite(first, change)
    report = follow(forged, SilentPolicy()).audit(redo=REDO)
    assert failed(report) == step
    assert f"parent run {forged.run_id}" in report.step(step).summary
    assert words in report.step(step).summary


def test_parent_that_goes_on_while_its_child_trains_is_rejected(tmp_path: Path) -> None:
    config = apply_to_config({**BASE, "epochs": 4, "edits": "restart"}, *DEEP)
    first = train_case(tmp_path, ScriptedPolicy([("add_norm", {})]), RunConfig.from_dict(config))
    child = follow(first, SilentPolicy())
    record = read_record(child.ledger, UUID(child.run_id))
    [parent] = record.chain
    late = (*parent[:-1], msgspec.structs.replace(parent[-1], index=record.size))
    report = audit_record(
        dataclasses.replace(record, chain=(late,)), submission_dir=child.submission
    )
    assert failed(report) == "architecture"
    assert "had not ended when its child started" in report.step("architecture").summary


def follow(case: Case, policy: Policy) -> Case:
    """Train what follows the case's restart, into the same ledger."""
    run: Any = None
    for event in case.events():
        run = event.mutate(run)
    this = following_attempt(run)
    assert this is not None
    submission = case.submission.with_name("following")
    with LedgerApplication.open(case.ledger, REGISTRY) as log:
        blobs = BlobStore(LedgerPaths(case.ledger).blobs)
        after = train(
            this.config,
            policy,
            log=log,
            blobs=blobs,
            spec=this.spec,
            parent_run=this.parent,
            submission_dir=submission,
        )
    return Case(str(after.id), case.ledger, submission)


def test_run_that_names_a_provoked_one_its_parent_without_a_restart_is_waived_nothing(
    tmp_path: Path,
) -> None:
    config = RunConfig.from_dict(apply_to_config({**BASE, "epochs": 1}, *DEEP))
    first = train_case(tmp_path, SilentPolicy(), config)
    plain = {k: v for k, v in config.to_dict().items() if "provocation" not in k}
    submission = first.submission.with_name("claiming")
    with LedgerApplication.open(first.ledger, REGISTRY) as log:
        after = train(
            RunConfig.from_dict(plain),
            SilentPolicy(),
            log=log,
            blobs=BlobStore(LedgerPaths(first.ledger).blobs),
            parent_run=first.run_id,
            submission_dir=submission,
        )
    report = Case(str(after.id), first.ledger, submission).audit()
    assert failed(report) == "load_model"
    assert "no residual connection" in report.step("load_model").summary
