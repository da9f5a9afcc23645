"""Drift from the front door: what is drawn, raised, shown and answered."""

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from frontdoor import answer, call_here
from gauntlet_lines import Line
from labelled_lines import own_line
from synthetic import synthetic_line, synthetic_proposal

from aggregates.improvement.line import Line as Chain
from aggregates.registry import REGISTRY
from ledger.application import LedgerApplication

EXPLODES = [
    *("train_examples=2000", "val_examples=200", "test_examples=100", "channels=8", "width=8"),
    *("epochs=12", "threads=1", "lr=0.5", "warm_up_epochs=0", "norm=none"),
]


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Line:
    """A line that lost a percent in each of ten evaluations."""
    line = Line(tmp_path_factory.mktemp("drift"), ("late-rows",))
    with line.controller() as controller:
        place = controller.place
        chain = place.line()
        for _ in range(20):
            evaluate(chain, "baseline", right=94)
        for lost in range(10):
            evaluate(chain, "drift", right=94 - lost)
        place.save(lambda: [chain])
    return line


def evaluate(chain: Chain, purpose: str, *, right: int) -> None:
    chain.evaluate(
        chain.active,
        purpose=purpose,
        seed="00",
        sha256="0" * 64,
        tasks=100,
        wrong=["one"] * (100 - right),
        valid=100,
        precision=None,
        code={"files": 1, "lines": 10, "functions": 1, "complexity": 2},
    )


def write_key(line: Line) -> tuple[str, Path]:
    """Put the operator's key where a command finds it."""
    path = line.home.path / "operator.pem"
    form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(line.operator.private_bytes(*form))
    path.chmod(0o600)
    return "--key", path


def told(line: Line, *arguments: str | Path, code: int = 0) -> Any:
    done = call_here([*arguments, "--repo", line.repo, "--json"], home=line.home.path)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def asked(line: Line, sql: str) -> Any:
    done = call_here(["sql", sql, "--format", "json"], home=line.home.path)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_alarm_is_shown_until_an_operator_answers(line: Line) -> None:
    found = told(line, "line", "watch", "--show", code=1)
    kinds = [alarm["kind"] for alarm in found["open"]]
    assert kinds == [alarm["kind"] for alarm in found["raised"]] == ["ratchet", "decline"]
    assert found["baseline"]["repeats"] == 20
    assert found["points"][-1]["sum"] > 8
    status = told(line, "line", "show")
    assert [alarm["number"] for alarm in status["open_alarms"]] == [1, 2]
    waiting = call_here(
        ["line", "show", "--list", "waiting", "--repo", line.repo], home=line.home.path
    ).stdout
    assert "ALARM 1, ratchet: losses since the original add up to" in waiting
    again = told(line, "line", "watch", "--show", code=1)
    assert again["raised"] == []
    by = write_key(line)
    left = told(line, "line", "sign", "answer", "1", "--note", "the tasks were too hard", *by)
    assert [alarm["number"] for alarm in left["open"]] == [2]
    refused = call_here(
        ["line", "sign", "answer", "1", "--note", "again", "--repo", line.repo], home=line.home.path
    )
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "alarm 1 is not open; open: 2" in refused.stderr
    assert asked(line, "SELECT number, kind, open, note FROM alarms ORDER BY number") == [
        {"number": 1, "kind": "ratchet", "open": False, "note": "the tasks were too hard"},
        {"number": 2, "kind": "decline", "open": True, "note": None},
    ]


def test_evaluations_are_listed_against_the_original(line: Line) -> None:
    shown = call_here(["line", "watch", "--show", "--repo", line.repo], home=line.home.path).stdout
    assert "94.00%  0.00" in shown
    assert "three deviations below that is " in shown
    assert "sum of losses since the original, in deviations: an alarm at 8" in shown


def test_measures_are_asked_in_sql(line: Line) -> None:
    (found,) = asked(line, "SELECT * FROM checkpoint_metrics")
    assert (found["evaluations"], found["complexity"]) == (30, 2)
    assert found["reference_success"] == pytest.approx((20 * 94 + 895) / 3_000)
    assert (found["validation_pass"], found["production_success"]) == (1.0, None)
    trends = asked(line, "SELECT metric, checkpoints, slope FROM metric_trends ORDER BY metric")
    assert trends == [
        {"metric": "reference_success", "checkpoints": 1, "slope": None},
        {"metric": "validation_pass", "checkpoints": 1, "slope": None},
    ]


@pytest.mark.slow
def test_watch_ends_at_an_alarm(line: Line) -> None:
    found = told(line, "line", "watch", "--interval", "60", code=1)
    assert "decline" in {alarm["kind"] for alarm in found["open"]}


@pytest.mark.slow
def test_measures_are_listed_along_the_chain(tmp_path: Path) -> None:
    with LedgerApplication.open(tmp_path / "ledger", REGISTRY) as log:
        chain = synthetic_line(log)
        evaluate(chain, "drift", right=94)
        synthetic_proposal(log, chain)  # whose benchmark is all that is known of its checkpoint
        log.save(chain)
    shown = call_here(["line", "show", "--list", "checkpoints"], home=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "reference_success" in shown.stdout
    assert "94.0%" in shown.stdout
    found = answer(call_here(["line", "show", "--list", "checkpoints", "--json"], home=tmp_path))
    first, second = found["checkpoints"]
    assert (first["reference_success"], first["benchmark_answers"]) == (0.94, 1)
    assert (second["reference_success"], second["evaluations"]) == (1.0, 0)
    one = answer(call_here(["line", "show", "active", "--json"], home=tmp_path))
    assert one["benchmark_success"] == 1.0


@pytest.mark.slow  # trains about thirty times
def test_policy_that_trains_to_chance_level_is_an_alarm_within_ten_runs(tmp_path: Path) -> None:
    """The task's gradients explode: the playbook answers that, and `nothing` leaves it alone."""
    line = own_line(tmp_path)
    with line.controller() as controller:
        chain = controller.place.line()
        for _ in range(20):
            evaluate(chain, "baseline", right=94)
        controller.place.save(lambda: [chain])

    def run(policy: str, seed: int) -> None:
        command = ["run", "--policy", policy, *EXPLODES, f"seed={seed}"]
        done = call_here(command, home=line.home.path)
        assert done.returncode == 0, done.stderr

    for seed in range(20):
        run("playbook", seed)
    healthy = asked(line, "SELECT success, accuracy FROM production_runs")
    assert len(healthy) == 20
    print("healthy", [(each["success"], each["accuracy"]) for each in healthy])
    assert not told(line, "line", "watch", "--show")["open"]
    runs = 0
    while not (found := call_drift(line))["open"]:
        assert runs < 10
        run("nothing", 20 + runs)
        runs += 1
    print("alarm after", runs)
    assert [alarm["kind"] for alarm in found["open"]] == ["production"]


def call_drift(line: Line) -> Any:
    done = call_here(
        ["line", "watch", "--show", "--repo", line.repo, "--json"], home=line.home.path
    )
    assert done.returncode in {0, 1}, done.stderr
    return json.loads(done.stdout)
