"""A model that is no better than guessing, from its training to every page that shows it."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from frontdoor import answer, call
from judge_cases import events_of

import proctor
from aggregates.run import Run

# One channel for everything: the gradients are sound, and nothing is learned.
GUESSES = [
    *("channels=1", "width=1", "blocks=2", "seed=2", "epochs=6", "threads=1", "numerics=portable"),
    *("train_examples=256", "val_examples=100", "test_examples=100"),
]


def rules_of(home: Path, run: str) -> list[Run.RulesEvaluated]:
    found = events_of(home / "ledger", run)
    return [event for event in found if isinstance(event, Run.RulesEvaluated)]


def _words(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


@pytest.mark.slow
def test_model_that_only_guesses_is_no_lack_of_capacity(tmp_path: Path) -> None:
    ran = call(["run", "profile=relative", *GUESSES], home=tmp_path)
    assert "fired R1 no better than guessing (learning rate)" in ran.stderr + ran.stdout
    found = answer(call(["judge", "--json"], home=tmp_path))
    assert not found["hard_fail"]
    assert found["violations"] == []
    run = found["run_id"]
    events = rules_of(tmp_path, run)
    sides = [{r: e["side"] for r, e in each.evaluations.items() if e["fired"]} for each in events]
    assert {"R1": "guessing"} in sides
    assert not any("R4" in fired for fired in sides)
    shown = call(["show", run], home=tmp_path).stdout
    assert "no better than guessing" in shown
    page = tmp_path / "report.html"
    call(["report", run, "--out", str(page)], home=tmp_path)
    told = _words(page.read_text())
    assert "the model is no better than guessing, and its training loss stands still" in told
    assert "Fired: R1 no better than guessing (learning rate)" in told


def watched(home: Path, **arguments: Any) -> list[str]:
    """Watch a loop whose validation accuracy stays where guessing is, and return what is said."""
    torch.manual_seed(0)
    model = torch.nn.Linear(6, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    said: list[str] = []
    x, y = torch.randn(64, 6), torch.randint(0, 10, (64,))
    with proctor.watch(
        model,
        optimizer,
        name="guesses",
        batch_size=16,
        home=home,
        profile="relative",
        say=said.append,
        **arguments,
    ) as run:
        for _ in run.epochs(4):
            for at in torch.split(torch.arange(64), 16):
                loss = torch.nn.functional.cross_entropy(model(x[at]), y[at])
                loss.backward()  # type: ignore[no-untyped-call]
                run.step(torch.tensor(2.3))
            run.validate(loss=2.3, accuracy=0.1)
    return said


def test_watching_says_that_a_model_only_guesses_where_it_knows_the_classes(
    tmp_path: Path,
) -> None:
    said = watched(tmp_path / "known", classes=10)
    (advice,) = [line for line in said if "guessing" in line]
    assert advice.startswith("no remedy advised for R1 in epoch 2:")
    assert "try other learning rates from fresh weights" in advice
    assert not any("guessing" in line for line in watched(tmp_path / "unknown"))
