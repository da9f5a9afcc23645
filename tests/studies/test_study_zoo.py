"""Healthy kinds of model under watch: each can be trained, and what fires is counted."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from studies import runner, zoo
from studies.kinds import KINDS
from studies.runner import Job, StudyError
from studies.zoo import NOBODY, Trained, main, tables, train

from aggregates.rules import PROFILES


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_loss_that_its_optimizer_lowers(kind: str) -> None:
    torch.manual_seed(0)
    made = KINDS[kind]()
    batch = [part[: made.batch] for part in made.data]
    first = made.loss(batch)
    torch.autograd.backward(first)
    made.optimizer.step()
    assert torch.isfinite(made.loss(batch))
    assert any(each.grad is not None for each in made.model.parameters())


def test_training_is_watched_and_every_profile_is_asked() -> None:
    found = train(Job("one", {"kind": "regression, Adam", "seed": 0, "epochs": 2}, NOBODY))
    assert found.gained > 0.2
    assert found.fired.keys() == PROFILES.keys()
    assert all(len(epochs) == 2 for epochs in found.fired.values())


def test_results_go_on_and_those_of_other_code_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = []

    def train_here(missing: Sequence[Job], workers: int, work: Any) -> Any:
        for job in missing:
            trained.append(job.key)
            yield job, work(job)

    monkeypatch.setattr(runner, "_train_all", train_here)
    arguments = ["--seeds", "2", "--epochs", "2", "--kind", "regression, Adam"]
    arguments += ["--results", str(tmp_path / "zoo.jsonl")]
    main(arguments)
    first = capsys.readouterr().out
    main(arguments)
    assert capsys.readouterr().out == first
    assert trained == ["regression, Adam/0/2/none", "regression, Adam/1/2/none"]
    monkeypatch.setattr(zoo, "code", lambda: "another")
    with pytest.raises(StudyError, match="line 1: made with another code_sha256"):
        main(arguments)


def test_plateaus_are_not_counted() -> None:
    told = [["R3 plateau", "R1 plateau"], ["R1 high", "R3 plateau"], []]
    rows = [
        Trained("one", seed, 0.5 - seed / 10, dict.fromkeys(PROFILES, told)) for seed in range(2)
    ]
    (table,) = tables(rows)
    one, whole = table.rows
    assert one[:3] == ("one", "40% at least", "2 of 6: R1 high 2")
    assert whole[2].startswith("2 of 6 (33.3%")
