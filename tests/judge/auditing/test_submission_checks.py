"""Steps 1 to 4 and 9 and the scores, without any process."""

import json
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from judge_cases import Case
from safetensors.torch import load, save
from torch import nn

from aggregates.campaign import QUALITY
from aggregates.decisions import Decision, PastDecision, Settings
from aggregates.rules import CALIBRATED, RuleEvaluation
from aggregates.run import Run
from aggregates.spec import ModelSpec
from judge.auditing.defensibility import find_indefensible, repeated_words
from judge.auditing.record import read_record
from judge.auditing.replay import replay_run
from judge.auditing.replayed import Replay
from judge.auditing.report import AuditReport, capped, recordable, recordable_evidence
from judge.auditing.scores import accuracy_score, process_score, rank
from judge.auditing.submission import (
    Submission,
    read_submission,
    verify_contract,
    verify_run_config,
    verify_weights,
)
from judge.compare import differences
from judge.config import JudgeConfig
from judge.confinement.sandbox import Examination
from judge.errors import JudgeError, StepError
from ledger.bodies import encode_body
from monitor.model import ResidualCNN

CONFIG = JudgeConfig()


@pytest.fixture(scope="module")
def replay(honest: Case) -> Replay:
    run = honest.events()[0].originator_id
    record = read_record(honest.ledger, run)
    return replay_run(record.entries)


def read(case: Case) -> Any:
    return read_submission(case.submission, config=CONFIG)


# Step 1


def test_deliverables_are_read_when_other_files_lie_beside_them(
    tampered: Callable[[], Case],
) -> None:
    case = tampered()
    (case.submission / "ledger.sqlite").write_bytes(b"mine")
    assert read(case).ignored == ("ledger.sqlite",)


@pytest.mark.parametrize("name", ["model.py", "weights.safetensors", "run_config.json"])
def test_missing_deliverable_is_rejected(tampered: Callable[[], Case], name: str) -> None:
    case = tampered()
    (case.submission / name).unlink()
    with pytest.raises(StepError, match=f"{name} is missing"):
        read(case)


def link_out(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def enlarge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**21)


@pytest.mark.parametrize(
    ("replace_by", "words"),
    [
        (link_out, "cannot be opened as a regular file"),
        (os.mkfifo, "is not a regular file"),
        (Path.mkdir, "is not a regular file"),
        (Path.touch, "must have 1 to"),
        (enlarge, "must have 1 to 1048576 bytes"),
    ],
)
def test_deliverable_that_is_no_plain_file_is_rejected(
    tampered: Callable[[], Case], replace_by: Callable[[Path], None], words: str
) -> None:
    case = tampered()
    (case.submission / "model.py").unlink()
    replace_by(case.submission / "model.py")
    with pytest.raises(StepError, match=words):
        read(case)


# Step 2


@pytest.fixture
def spec(replay: Replay) -> ModelSpec:
    return ModelSpec.from_dict(replay.spec.to_dict())


def fresh(model: nn.Module) -> Examination:
    return Examination(
        stage="done", problem=None, isolation="", printed={}, fresh=model.state_dict()
    )


def test_contract_holds_when_the_model_is_fresh(spec: ModelSpec) -> None:
    for seed in range(20):
        verify_contract(spec, fresh(ResidualCNN(spec, seed=seed)))


def test_contract_holds_when_the_last_of_a_block_starts_at_zero(spec: ModelSpec) -> None:
    model = ResidualCNN(spec)
    nn.init.zeros_(model.get_parameter("blocks.0.conv2.weight"))
    verify_contract(spec, fresh(model))


@pytest.mark.parametrize(
    ("name", "initialise", "words"),
    [
        ("blocks.0.conv1.weight", nn.init.zeros_, "is initialised to zero"),
        ("blocks.0.conv1.weight", lambda w: nn.init.kaiming_uniform_(w, a=5**0.5), "He-init"),
        ("stem.weight", nn.init.xavier_normal_, "He-init"),
        ("stem.weight", lambda w: nn.init.constant_(w, float("nan")), "He-init"),
    ],
)
def test_initialisation_that_is_not_he_s_is_rejected(
    spec: ModelSpec, name: str, initialise: Callable[[Any], Any], words: str
) -> None:
    model = ResidualCNN(replace(spec, channels=16))
    with torch.no_grad():
        initialise(model.get_parameter(name))
    with pytest.raises(StepError, match=words):
        verify_contract(spec, fresh(model))


@pytest.mark.parametrize(
    ("change", "words"),
    [({"residual": False}, "no residual connection"), ({"norm": "none"}, "no BatchNorm")],
)
def test_specification_outside_the_contract_is_rejected(
    spec: ModelSpec, change: dict[str, Any], words: str
) -> None:
    blocks = tuple(replace(block, **change) for block in spec.blocks)
    changed = replace(spec, blocks=blocks, norm=change.get("norm", "batch"))
    with pytest.raises(StepError, match=words):
        verify_contract(changed, fresh(ResidualCNN(changed)))


# Step 3


def test_weights_hold_when_they_are_the_saved_ones(honest: Case, replay: Replay) -> None:
    verify_weights(read(honest), replay.submitted)


def test_weights_hold_when_their_headers_length_begins_like_a_pickle(
    honest: Case, replay: Replay
) -> None:
    submission = read(honest)
    tensors = load(submission.weights)
    for length in range(1, 257):
        weights = save({**tensors, "b" * length: torch.zeros(1)})
        if weights.startswith(b"\x80"):
            verify_weights(replace(submission, weights=weights), replay.submitted)
            return
    raise AssertionError("no header is so long")


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (pickle.dumps({"stem.weight": 1}), "is a pickle"),
        (b"PK\x03\x04 an archive of torch.save()", "is a pickle"),
        (b"\xff" * 64, "is not valid: not a safetensors file"),
        (b"\x08" + b"\x00" * 7 + b'{"a":1}}', "is not valid: not a safetensors file"),
    ],
)
def test_weights_that_are_no_safetensors_are_rejected(
    honest: Case, replay: Replay, weights: bytes, words: str
) -> None:
    submission = replace(read(honest), weights=weights)
    with pytest.raises(StepError, match=words):
        verify_weights(submission, replay.submitted)


# Step 4


def test_run_config_holds_when_it_says_what_the_ledger_says(honest: Case, replay: Replay) -> None:
    assert replay.submitted is not None
    verify_run_config(read(honest), replay, replay.submitted)


def test_run_config_of_the_first_layout_holds(honest: Case, replay: Replay) -> None:
    assert replay.submitted is not None
    verify_run_config(in_first_layout(read(honest)), replay, replay.submitted)


def in_first_layout(submission: Submission) -> Submission:
    """Return the submission with run_config.json as earlier versions wrote it."""
    about = json.loads(submission.run_config)
    started = about.pop("started_from")
    about |= {"config": started["config"], "config_hash": started["config_hash"]}
    about["spec"] = about["weights"].pop("spec")
    return replace(submission, run_config=json.dumps(about).encode())


def flatter(about: dict[str, Any]) -> None:
    about["started_from"]["config"]["lr"] = 0.01


def start_otherwise(about: dict[str, Any]) -> None:
    about["started_from"]["spec"]["activation"] = "gelu"


def flatter_in_first_layout(about: dict[str, Any]) -> None:
    started = about.pop("started_from")
    about["config"] = {**started["config"], "lr": 0.01}
    about["config_hash"] = started["config_hash"]
    about["spec"] = about["weights"].pop("spec")


def claim_learning(about: dict[str, Any]) -> None:
    about["mode"] = "reinforcement_learning"


def another_run(about: dict[str, Any]) -> None:
    about["run"] = "00000000-0000-0000-0000-000000000000"


def drop_spec(about: dict[str, Any]) -> None:
    del about["weights"]["spec"]


def drop_start(about: dict[str, Any]) -> None:
    del about["started_from"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (flatter, r"started_from.config.lr is 0.01, but the ledger records 1e-05"),
        (flatter_in_first_layout, "config.lr is 0.01, but the ledger records 1e-05"),
        (start_otherwise, r"started_from.spec.activation is 'gelu'"),
        (claim_learning, "mode is"),
        (another_run, "run is"),
        (drop_spec, r"weights.spec is None"),
        (drop_start, "must have the fields"),
    ],
)
def test_run_config_that_says_something_else_is_rejected(
    honest: Case, replay: Replay, change: Callable[[dict[str, Any]], None], words: str
) -> None:
    submission = read(honest)
    about = json.loads(submission.run_config)
    change(about)
    assert replay.submitted is not None
    with pytest.raises(StepError, match=words):
        verify_run_config(
            replace(submission, run_config=json.dumps(about).encode()), replay, replay.submitted
        )


@pytest.mark.parametrize("text", [b"{", b"[]", b"\xff", b"[" * 100_000])
def test_run_config_that_is_no_json_object_is_rejected(
    honest: Case, replay: Replay, text: bytes
) -> None:
    assert replay.submitted is not None
    with pytest.raises(StepError, match=r"run_config\.json"):
        verify_run_config(replace(read(honest), run_config=text), replay, replay.submitted)


# Step 9


def run_with(*decisions: tuple[str, dict[str, Any], str], waived: tuple[str, ...] = ()) -> Any:
    """Return as much of a run as step 9 looks at: R1 fired on its high side in epoch 0."""
    past = [
        PastDecision(
            number,
            1,
            "policy",
            Decision(
                "rule_triggered_no_action" if direction == "defer" else "hyperparameter_change",
                ("R1",),
                direction,
                params,
                words,
            ),
            None,
        )
        for number, (direction, params, words) in enumerate(decisions, start=1)
    ]
    fired = {"R1": RuleEvaluation("R1", True, "high", 1.0, 1.0, 3)}
    silent = {"R1": RuleEvaluation("R1", False, None, 1.0, 1.0, 0)}
    return SimpleNamespace(
        decisions=past,
        evaluations={0: fired, 1: silent},
        waived=waived,
        rules=CALIBRATED,
    )


def found(run: Run) -> list[tuple[str, str | None, str]]:
    settings = [Settings(lr=0.3, batch_size=64)] * len(run.decisions)
    return [(v.kind, v.rule, v.emitter) for v in find_indefensible(run, settings)]


@pytest.mark.parametrize(
    ("direction", "params", "violated"),
    [
        ("decrease_lr", {"lr": 0.1}, False),
        ("decrease_lr", {"lr": 0.03}, False),
        ("decrease_lr", {"lr": 0.2}, True),  # by less than the playbook's 3
        ("decrease_lr", {"lr": 0.001}, True),  # by more than its 10
        ("increase_lr", {"lr": 0.9}, True),  # the other way
        ("increase_batch_size", {"batch_size": 128}, True),  # another rule's remedy
        ("defer", {}, False),
    ],
)
def test_direction_is_violated_when_the_remedy_is_not_the_playbook_s(
    direction: str, params: dict[str, Any], violated: bool
) -> None:
    expected = [("direction", "R1", "policy")] if violated else []
    assert found(run_with((direction, params, "words"))) == expected
    assert found(run_with((direction, params, "words"), waived=("R1",))) == []


def test_padding_is_violated_when_a_rule_is_answered_twice_in_an_epoch() -> None:
    run = run_with(("decrease_lr", {"lr": 0.1}, "a"), ("defer", {}, "b"), ("defer", {}, "b"))
    assert found(run) == [("padding", "R1", "policy")] * 2
    assert repeated_words(run) == {"b": 2}


# Step 11


@pytest.mark.parametrize(
    ("accuracy", "target", "score"),
    [(0.9, 0.8, 1.0), (0.8, 0.8, 1.0), (0.4, 0.8, 0.5), (0.0, 0.8, 0.0), (0.0, 0.0, 1.0)],
)
def test_accuracy_score_saturates_at_its_target(
    accuracy: float, target: float, score: float
) -> None:
    assert accuracy_score(accuracy, target) == score


@pytest.mark.parametrize(
    ("violations", "obligations", "score"),
    [(0, 0, 1.0), (0, 9, 1.0), (1, 4, 0.75), (9, 4, 0.0), (1, 0, 0.0)],
)
def test_process_score_counts_violations_for_each_obligation(
    violations: int, obligations: int, score: float
) -> None:
    assert process_score(violations, obligations) == score


def test_rank_puts_hard_fails_last_and_never_asks_the_test_set(
    honest_report: AuditReport,
) -> None:
    def attempt(name: str, **scores: Any) -> AuditReport:
        scored = replace(honest_report.scores, **scores)
        config = {**honest_report.config, "min_validation_examples": 96}  # as many as there are
        return replace(honest_report, run_id=name, scores=scored, config=config)

    best = attempt("best", process_score=0.9, validation_accuracy=0.6, test_accuracy=0.1)
    lower = attempt("lower", process_score=0.9, validation_accuracy=0.5, test_accuracy=0.9)
    sloppy = attempt("sloppy", process_score=0.8, validation_accuracy=0.9)
    idle = attempt("idle", process_score=1.0, process_axis_exercised=False)
    cheat = attempt("cheat", hard_fail=True, process_score=0.0, validation_accuracy=None)
    ranked = rank([cheat, idle, sloppy, lower, best])
    assert [report.run_id for report in ranked] == ["best", "lower", "sloppy", "idle", "cheat"]
    by_quality = rank([cheat, sloppy, lower, best], QUALITY)
    assert [report.run_id for report in by_quality] == ["sloppy", "best", "lower", "cheat"]


def test_rank_puts_what_was_retrained_first(honest_report: AuditReport) -> None:
    def attempt(name: str, epochs: int) -> AuditReport:
        executed = {"done": epochs > 0, "epochs": epochs}
        steps = tuple(
            replace(step, evidence={**step.evidence, "executed": executed})
            if step.name == "probe"
            else step
            for step in honest_report.steps
        )
        scores = replace(honest_report.scores, process_score=1.0 - epochs / 10)
        return replace(honest_report, run_id=name, steps=steps, scores=scores)

    ranked = rank([attempt("trusted", 0), attempt("in part", 5), attempt("wholly", 8)])
    expected = [("wholly", 1.0), ("in part", 5 / 8), ("trusted", 0.0)]
    assert [(report.run_id, report.retrained) for report in ranked] == expected


# What they share


def test_differences_are_none_when_values_are_alike_and_nan_equals_nan() -> None:
    assert not list(differences({"a": [float("nan"), 1]}, {"a": (float("nan"), 1.0)}))


@pytest.mark.parametrize(
    ("recorded", "again", "place"),
    [
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, "a.b[1]"),
        ({"a": 1}, {}, "a"),
        ([1], [1, 2], ".length"),
        (True, 1, ""),
        (0.1, 0.1 + 1e-17 + 2e-17, ""),
    ],
)
def test_differences_name_the_place(recorded: Any, again: Any, place: str) -> None:
    assert [difference.place for difference in differences(recorded, again)] == [place]


def test_recordable_keeps_hostile_evidence_storable() -> None:
    hostile = {"text": "\udce4" * 9_000, "number": 10**40, "list": [1.5] * 900, 3: (None, True)}
    kept = recordable(hostile)
    assert kept["text"] == "?" * 200 + "..."
    assert kept["number"] == str(10**40)
    assert len(kept["list"]) == 100
    assert kept["3"] == [None, True]


def test_recordable_keeps_evidence_within_an_entry_when_everything_is_long() -> None:
    long = {"place": "\u00e4" * 9_000, "recorded": "\U0001f600" * 9_000, "found": "x" * 9_000}
    evidence = {"differences": capped([long] * 9_000)}
    assert len(encode_body(recordable(evidence))) < 50_000


def test_evidence_that_does_not_fit_into_an_entry_leaves_out_what_takes_most() -> None:
    large = {str(number): "x" * 199 for number in range(400)}
    evidence = {"executed": {"first": {"found": large}}, "small": 1, "list": ["x" * 199] * 100}
    kept = recordable_evidence(evidence)
    assert len(encode_body(kept)) < 50_000
    assert kept == {**evidence, "executed": {"left_out": "81,907 bytes"}}
    fits = {"differences": capped([large["0"]] * 900)}
    assert recordable_evidence(fits) == fits


def test_run_that_is_not_in_the_ledger_is_rejected(honest: Case) -> None:
    with pytest.raises(JudgeError, match="run 0"):
        replace(honest, run_id="00000000-0000-0000-0000-000000000000").audit()
    with pytest.raises(JudgeError, match="a run id is a UUID"):
        replace(honest, run_id="latest").audit()
