"""The practitioners' arms keep to the budget, and leave a fault where it is."""

import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from studies import practice
from studies.__main__ import parse
from studies.practice import ARMS, OURS, RATES, train_arm
from studies.runner import Job, Result, run_job

from aggregates.provocations import apply_to_config
from monitor.config import RunConfig
from proctor.errors import ProctorError

TINY: dict[str, Any] = {
    "profile": "relative",
    "channels": 4,
    "width": 4,
    "blocks": 1,
    "stem_stride": 4,
    "train_examples": 64,
    "val_examples": 32,
    "test_examples": 32,
    "batch_size": 16,
    "epochs": 7,
    "seed": 3,
    "threads": 1,
}


def config(**changes: Any) -> dict[str, Any]:
    return RunConfig.from_dict({**TINY, **changes}).to_dict()


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the configurations that were trained."""
    found: list[dict[str, Any]] = []

    def noting(job: Job, **hooks: Any) -> Result:
        found.append(dict(job.config))
        return run_job(job, **hooks)

    monkeypatch.setattr(practice, "run_job", noting)
    return found


@pytest.mark.parametrize("arm", [arm for arm in ARMS if arm not in ("halving", "range test")])
def test_arm_that_tries_nothing_out_has_all_epochs(arm: str) -> None:
    found = train_arm(Job("one", config(), arm))
    assert (found.key, found.error, len(found.history)) == ("one", None, TINY["epochs"])
    assert found.test_accuracy is not None


def test_halving_spends_the_epochs_of_the_training(trained: list[dict[str, Any]]) -> None:
    found = train_arm(Job("one", config(), "halving"))
    first, second, rest = trained[:4], trained[4:6], trained[6]
    assert ([each["lr"] for each in first], len(trained)) == ([*RATES], 7)
    assert ({each["epochs"] for each in first}, {each["epochs"] for each in second}) == ({1}, {2})
    # Continued, not begun again: 4 epochs, 2 more, and what is left.
    assert 4 * 1 + 2 * 1 + (rest["epochs"] - 2) == TINY["epochs"]
    trials = [run_job(Job("trial", each, "nothing")) for each in (*second, rest)]
    assert [each.history[0] for each in trials[:2]] == [
        run_job(Job("trial", {**each, "epochs": 1}, "nothing")).history[0] for each in second
    ]
    losses = [each.history[-1].val_loss for each in trials[:2]]
    assert rest["lr"] == second[losses.index(min(losses))]["lr"]
    assert found.history == trials[2].history


def test_range_test_spends_its_epochs_and_finds_a_rate_that_trains(
    trained: list[dict[str, Any]],
) -> None:
    found = train_arm(Job("one", config(), "range test"))
    assert len(found.history) + practice.TEST_EPOCHS == TINY["epochs"]
    (used,) = trained
    assert practice.LEAST / 10 <= used["lr"] <= practice.MOST / 10


def test_range_test_that_meets_no_finite_loss_keeps_the_rate() -> None:
    faulty = [apply_to_config(config(), "infinite_loss", seed) for seed in range(20)]
    lost = next(
        each
        for each in map(RunConfig.from_dict, faulty)
        if each.fault is not None and each.fault.loss_factor(0) == math.inf
    )
    assert practice.find_rate(lost) is None


def test_schedule_lowers_the_rate_where_the_loss_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stuck = config(lr=1e-8, warm_up_epochs=0)
    slower = train_arm(Job("one", stuck, "ReduceLROnPlateau"))
    idle = train_arm(Job("one", stuck, "nothing"))
    assert slower.history == idle.history  # steps too small to move the loss, at any rate
    hot = config(lr=5.0, warm_up_epochs=0)
    rates: list[float] = []

    def noting(state: Any, **changes: Any) -> Any:
        rates.append(changes["lr"])
        return replace(state, **changes)

    monkeypatch.setattr(practice, "replace", noting)
    train_arm(Job("one", hot, "ReduceLROnPlateau"))
    assert rates[0] == 5.0
    assert rates[-1] < 5.0
    assert all(old / new in (1.0, pytest.approx(10.0)) for old, new in pairwise(rates))


@pytest.mark.parametrize(("name", "kept"), [("lr_too_high", False), ("init_too_small", True)])
def test_setting_takes_a_fault_of_settings_away_and_no_other(name: str, kept: bool) -> None:
    faulty = apply_to_config(config(), name, 7)
    changed = practice.without(faulty, warm_up_epochs=3, lr=0.1)
    assert (RunConfig.from_dict(changed).fault is not None) is kept
    assert (changed["warm_up_epochs"], changed["lr"]) == (3, 0.1)


def test_tables_tell_what_is_won_back_and_against_whom(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every arm wins back half of a fault's cost, `rescue` all of it."""
    worth = {"nothing": 0.2, OURS: 0.6}
    asked: list[str] = []

    def run_jobs(jobs: Any, *_: Any, **__: Any) -> dict[str, Result]:
        found = {}
        for job in jobs:
            asked.append(job.key)
            healthy = job.key.startswith("healthy")
            accuracy = 0.6 if healthy else worth.get(job.policy, 0.4)
            fired = ({},) if healthy else ({"R1": "high"},)
            found[job.key] = Result(job.key, (), fired, accuracy + 0.001 * job.config["seed"], None)
        return found

    monkeypatch.setattr(practice, "run_jobs", run_jobs)
    conditions = {"healthy": config(), "hot": config(lr=3.0)}
    rows = practice.collect_rows(conditions, range(8), None)
    assert not [key for key in asked if key.startswith("healthy/0/") and key.endswith(OURS)]
    practice.print_study(rows, [*conditions])
    shown = capsys.readouterr().out
    assert "| hot | 0.400 | 1.00 (1.00 to 1.00) | 0.50 (0.50 to 0.50) |" in shown
    assert "| halving | 0.50 | +0.200 (+0.200 to +0.200) | +0.200 (+0.200 to +0.200) |" in shown
    assert "128 runs, 0 failed" in shown


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[hot]\nlr = 3.0", "needs a condition [healthy]"),
        ("[healthy]\nepochs = 6", "condition healthy: epochs must be at least 7, not 6"),
        ("[healthy]\nlrr = 3.0", "condition healthy: unknown key lrr"),
    ],
)
def test_conditions_that_no_figure_could_be_made_of_are_named(
    tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(ProctorError, match=re.escape(words)):
        practice.run(parse(["practice", "--conditions", str(tmp_path / "c.toml")]))


@pytest.mark.slow
def test_command_prints_its_tables_and_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(practice, "BASE", {k: v for k, v in TINY.items() if k != "seed"})
    (tmp_path / "c.toml").write_text('[healthy]\n[lost]\nprovoke = "infinite_loss"\n')
    words = ["practice", "--conditions", str(tmp_path / "c.toml"), "--seeds", "2"]
    shown = []
    for _ in range(2):
        practice.run(parse([*words, "--results", str(tmp_path / "r.jsonl")]))
        shown.append(capsys.readouterr())
    assert shown[0].out == shown[1].out
    assert "32 runs, 0 failed" in shown[0].out
    assert (shown[0].err.count("/halving"), shown[1].err) == (4, "")
