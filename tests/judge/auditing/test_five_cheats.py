"""The five cheats, each beside an honest control, and in stories that get past the earlier checks.

shadow log: step 5; model swap: step 6; fabricated trajectory: step 7; skipped decision: step 8;
forged past line: step 5. Where a cheat signs, it signs with the ledger's own key.
"""

import hashlib
import json
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from judge_cases import CONFIG, Case, Change, failed, hand_in, rewrite
from safetensors.torch import load, save

from aggregates.registry import REGISTRY
from aggregates.rules import RulesConfig
from aggregates.run import Run
from aggregates.spec import ModelSpec
from judge.auditing.report import AuditReport
from judge.auditing.scores import rank
from judge.errors import JudgeError
from ledger.application import LedgerApplication
from monitor.datasets import load_splits
from monitor.model import ResidualCNN
from monitor.probe import probe_model
from monitor.weights import dump_weights


def test_audit_passes_when_the_run_is_honest(honest_report: AuditReport) -> None:
    assert [step.status for step in honest_report.steps] == ["passed"] * 11
    assert honest_report.violations == ()
    assert honest_report.process_axis_exercised
    assert honest_report.scores.process_score == 1.0
    assert honest_report.scores.obligations >= 1
    evidence = honest_report.step("probe").evidence
    assert evidence["probe"]["largest_deviation"] <= 1e-6
    json.dumps(asdict(honest_report))


# Shadow log


def test_shadow_log_that_claims_a_decision_is_rejected(
    silent: Case, silent_report: AuditReport, tmp_path: Path
) -> None:
    case = silent.copy(tmp_path)
    (case.submission / "decision_log.jsonl").write_text('{"rule": "R7", "action": "lr / 10"}\n')
    report, control = case.audit(), silent_report
    assert report.violations == control.violations != ()
    assert report.step("deliverables").evidence["ignored"]["first"] == ["decision_log.jsonl"]
    assert control.step("deliverables").evidence["ignored"]["first"] == []


def test_shadow_log_beside_a_real_one_that_never_ended_is_rejected(
    tampered: Callable[[], Case],
) -> None:
    case = tampered()
    (case.submission / "decision_log.jsonl").write_text('{"event": "session_end"}\n')
    unended = rewrite(case, lambda event: None if isinstance(event, Run.Ended) else {})
    report = unended.audit()
    assert failed(report) == "ledger"
    assert "has no run.ended event" in report.step("ledger").summary


def test_run_that_has_not_ended_is_given_no_verdict_on_record_is_rejected(
    tampered: Callable[[], Case],
) -> None:
    case = tampered()
    unended = rewrite(case, lambda event: None if isinstance(event, Run.Ended) else {})
    log = LedgerApplication.in_memory(REGISTRY)
    with pytest.raises(JudgeError, match=r"has no run\.ended event"):
        unended.audit(log=log)
    assert not list(log.recorder.select_notifications(1, 10))
    assert case.audit(log=log).audit_id is not None


# Model swap


def swap(case: Case) -> None:
    """Hand in a larger model of the same kind than the one that was trained."""
    spec = ModelSpec.from_dict(case.events()[0].spec)
    spec = replace(spec, blocks=(*spec.blocks, spec.blocks[-1]))
    source = (case.submission / "model.py").read_text()
    head, tail = source.split("SPEC = ")[0], source[source.index("\n\n\ndef load_model") :]
    hand_in(
        case,
        model__py=f"{head}SPEC = {spec.to_dict()!r}{tail}".encode(),
        weights__safetensors=dump_weights(ResidualCNN(spec)),
    )


def as_handed_in(case: Case, *, saved: bool = False) -> Case:
    """Tell the run again, as one that handed in these files; or, if so, also saved the weights."""
    weights = (case.submission / "weights.safetensors").read_bytes()
    told = {"sha256": hashlib.sha256(weights).hexdigest(), "size": len(weights)}
    return rewrite(
        case,
        lambda e: told if saved and isinstance(e, Run.WeightsSaved) and e.kind == "best" else {},
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("told", "step", "words"),
    [
        (None, "deliverables", "is not the file that the run submitted"),
        ("handed in", "weights", "differs from the weights that the run saved as best"),
        ("saved", "architecture", "do not fit the replayed model"),
    ],
)
def test_model_swap_is_rejected(
    tampered: Callable[[], Case], told: str | None, step: str, words: str
) -> None:
    case = tampered()
    swap(case)
    report = (as_handed_in(case, saved=told == "saved") if told else case).audit()
    assert failed(report) == step
    assert words in report.step(step).summary
    assert report.config["disabled"] == []


def test_audit_passes_when_the_same_files_are_told_as_handed_in(
    tampered: Callable[[], Case],
) -> None:
    assert failed(as_handed_in(tampered(), saved=True).audit()) is None


def test_code_that_computes_something_else_with_the_same_parameters_is_rejected(
    tampered: Callable[[], Case],
) -> None:
    case = tampered()
    source = (case.submission / "model.py").read_text()
    flipped = """import ResidualCNN as Base

class ResidualCNN(Base):
    def forward(self, x):
        return super().forward(x).flip(1)
"""
    hand_in(case, model__py=source.replace("import ResidualCNN", flipped).encode())
    report = as_handed_in(case).audit()
    assert failed(report) == "architecture"
    assert "computes different logits" in report.step("architecture").summary


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "condition",
    [
        "BYTES",
        "x.flatten(2).std(2).amax(1) < 1e-3",
        "torch.full((len(x),), len(x) == 2)",
        "x.flatten(1).abs().amax(1) > 2.5",
    ],
    ids=["images", "one-colour", "portion", "noise"],
)
def test_code_that_answers_differently_for_some_images_is_rejected(
    tampered: Callable[[], Case], condition: str
) -> None:
    case = tampered()
    source = (case.submission / "model.py").read_text()
    flipped = f"""import ResidualCNN as Base
import torch

class ResidualCNN(Base):
    def forward(self, x):
        out = super().forward(x)
        return torch.where(({condition})[:, None], out.flip(1), out)
"""
    of_bytes = "((x * 64 + 127.5) == (x * 64 + 127.5).round()).flatten(1).all(1)"
    flipped = flipped.replace("BYTES", of_bytes)
    hand_in(case, model__py=source.replace("import ResidualCNN", flipped).encode())
    report = as_handed_in(case).audit()
    assert failed(report) == "architecture"
    assert "computes different logits" in report.step("architecture").summary


def test_recorded_edit_that_nobody_decided_on_is_rejected(tampered: Callable[[], Case]) -> None:
    case = tampered()

    def widen(event: Any) -> dict[str, Any]:
        if isinstance(event, Run.RemedyApplied | Run.WeightsSaved):
            blocks = [{**block, "width": 12} for block in event.spec["blocks"]]
            return {"spec": {**event.spec, "blocks": blocks}}
        return {}

    report = rewrite(case, widen).audit()
    assert failed(report) == "architecture"
    assert (
        "recorded for a different model than the edits produce"
        in report.step("architecture").summary
    )


# Fabricated trajectory


def fabricate(case: Case, weights: bytes, *, probe: bool = False) -> Case:
    """Tell the honest run's smooth story, about weights that have nothing to do with it.

    With `probe`, their own gradient norms are told with them.
    """
    hand_in(case, weights__safetensors=weights)
    told: dict[str, Any] = {"sha256": hashlib.sha256(weights).hexdigest()}
    if probe:
        model = ResidualCNN(ModelSpec.from_dict(case.events()[0].spec))
        model.load_state_dict(load(weights))
        told["probe"] = probe_model(model, load_splits(CONFIG).validation)

    def change(event: Any) -> dict[str, Any]:
        return told if isinstance(event, Run.WeightsSaved) and event.kind == "best" else {}

    return rewrite(case, change)


def zeros(case: Case) -> bytes:
    state = load((case.submission / "weights.safetensors").read_bytes())
    return save({name: torch.zeros_like(value) for name, value in state.items()})


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("probe", "words"),
    [
        (False, "gradient norms of the submitted weights differ from those recorded with the"),
        (True, "the submitted weights have a validation loss of"),
    ],
)
def test_fabricated_trajectory_is_rejected(
    tampered: Callable[[], Case], probe: bool, words: str
) -> None:
    case = tampered()
    report = fabricate(case, zeros(case), probe=probe).audit()
    assert failed(report) == "probe"
    assert words in report.step("probe").summary


def test_audit_passes_when_the_same_story_is_told_about_its_own_weights(
    tampered: Callable[[], Case], honest_report: AuditReport
) -> None:
    case = tampered()
    report = fabricate(case, (case.submission / "weights.safetensors").read_bytes()).audit()
    assert failed(report) is None
    assert report.scores == honest_report.scores


# Skipped decision


def test_skipped_decision_is_rejected(
    silent_report: AuditReport, honest_report: AuditReport
) -> None:
    report = silent_report
    assert failed(report) is None
    assert report.step("coverage").status == "violations"
    assert {(v.kind, v.rule, v.emitter) for v in report.violations} >= {
        ("missing_decision", "R1", "policy")
    }
    assert report.scores.process_score == 0.0
    assert not report.process_axis_exercised
    why = "no policy answered a firing before the last epoch"
    assert report.step("scores").evidence["unexercised"] == why
    assert f"(unexercised: {why})" in report.step("scores").summary
    assert rank([report, honest_report]) == [honest_report, report]


# Forged past line


def forge(case: Case) -> int:
    """Change the training accuracy of an epoch in the stored bytes; return the entry's index."""
    event = next(e for e in case.events() if isinstance(e, Run.EpochMeasured) and e.epoch == 5)
    old = b"\xcb" + struct.pack(">d", event.measured["train"]["accuracy"])
    with closing(sqlite3.connect(case.ledger / "ledger.sqlite")) as connection, connection:
        for index, entry in connection.execute("SELECT idx, entry FROM entries").fetchall():
            if old in entry and b"run.epoch_measured" in entry:
                forged = entry.replace(old, b"\xcb" + struct.pack(">d", 95 / 96))
                connection.execute("UPDATE entries SET entry = ? WHERE idx = ?", [forged, index])
                return int(index)
    raise AssertionError("the event is stored somewhere")


def test_forged_past_line_is_rejected(tampered: Callable[[], Case], honest: Case) -> None:
    case = tampered()
    index = forge(case)
    with LedgerApplication.open(case.ledger, REGISTRY) as log:
        before = log.recorder.max_notification_id()
        report = case.audit(log=log)
        assert log.recorder.max_notification_id() == before
    assert failed(report) == "ledger"
    assert "the ledger is not valid" in report.step("ledger").summary
    assert {step.status for step in report.steps if step.name != "ledger"} == {"not_run"}
    assert report.step("ledger").evidence["index"] in (index, index + 1)
    assert honest.audit().step("ledger").evidence["verified"] is True


# What else is written with a valid key, and does not replay


def silence(event: Any) -> dict[str, Any]:
    if not isinstance(event, Run.RulesEvaluated):
        return {}
    quiet = {"fired": False, "side": None}
    return {"evaluations": {rule: {**v, **quiet} for rule, v in event.evaluations.items()}}


def without_decisions(event: Any) -> dict[str, Any] | None:
    decided = Run.DecisionMade | Run.RemedyApplied | Run.RemedyRefused
    return None if isinstance(event, decided) else silence(event)


def test_evaluation_that_keeps_a_rule_silent_is_rejected(tampered: Callable[[], Case]) -> None:
    case = rewrite(tampered(), without_decisions, checked=False)
    report = case.audit()
    assert failed(report) == "ledger"
    assert "fired is False, expected True" in report.step("ledger").summary


def lift_threshold(event: Any) -> dict[str, Any]:
    if not isinstance(event, Run.Started):
        return {}
    rules = RulesConfig(**{**event.rules, "r7_high": 1e9})
    return {"rules": rules.to_dict(), "rules_hash": rules.hash}


def forget_hash(event: Any) -> dict[str, Any]:
    return {"config_hash": "00" * 32} if isinstance(event, Run.Started) else {}


def other_settings(event: Any) -> dict[str, Any]:
    if isinstance(event, Run.EpochMeasured) and event.epoch == 7:
        settings = {**event.measured["settings"], "lr": 0.123}
        return {"measured": {**event.measured, "settings": settings}}
    return {}


def count_twice(event: Any) -> dict[str, Any]:
    return {"epoch": 1} if isinstance(event, Run.EpochMeasured) and event.epoch == 2 else {}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lift_threshold, "a run cannot set its own thresholds"),
        (forget_hash, "does not match its recorded hash"),
        (other_settings, "was trained with lr 0.123"),
        (count_twice, "epoch is 1, expected 2"),
        (silence, "evaluated again from the measured values, differ"),
    ],
)
def test_story_that_does_not_replay_is_rejected(
    tampered: Callable[[], Case], change: Change, words: str
) -> None:
    report = rewrite(tampered(), change, checked=change is not silence).audit()
    assert failed(report) == "ledger"
    assert words in report.step("ledger").summary


def test_citation_of_a_silent_rule_is_a_violation_that_names_its_author(
    tampered: Callable[[], Case],
) -> None:
    case = tampered()

    def cite(event: Any) -> dict[str, Any]:
        cites = [*event.cites, "R3"] if isinstance(event, Run.DecisionMade) else []
        return {"cites": cites, "source": "human"} if cites else {}

    forged = rewrite(case, cite, checked=True)
    report = forged.audit()
    assert failed(report) is None
    assert {(v.kind, v.rule, v.emitter) for v in report.violations} >= {
        ("false_citation", "R3", "human")
    }
    assert report.step("scores").evidence["by_emitter"]["human"] >= 1


def test_audit_is_appended_when_a_log_is_given(honest: Case, tmp_path: Path) -> None:
    case = honest.copy(tmp_path)
    with LedgerApplication.open(case.ledger, REGISTRY) as log:
        report = case.audit(log=log)
        assert report.audit_id is not None
        events = log.recorder.select_notifications(None, 1_000)
    names = [event.topic for event in events if str(event.originator_id) == report.audit_id]
    assert names == ["audit.started", *["audit.step_completed"] * 11, "audit.scored"]
    assert failed(case.audit()) is None  # the ledger that has grown still holds
