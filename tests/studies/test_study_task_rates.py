"""The study of rates in tasks, as its command runs it, on its smallest table."""

from pathlib import Path

import pytest
from studies.runner import Job
from studies.task_rates import ARMS, main, train

from proctor.errors import ProctorError


def job(arm: str, lr: float) -> Job:
    settings = {"lr": lr, "epochs": 2, "seed": 0}
    return Job(f"{arm}/{lr}", {"task": "tabular", "settings": settings}, arm)


@pytest.mark.usefixtures("one_thread")
def test_policies_agree_where_no_rule_fires() -> None:
    good = {arm: train(job(arm, 0.01)) for arm in ARMS}
    assert len({each.best for each in good.values()}) == 1
    assert good["nothing"].best > 0.5


@pytest.mark.slow
def test_table_has_a_row_for_each_rate_and_goes_on_from_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--seeds", "1", "--epochs", "2", "--times", "1", "--times", "30", "--task", "tabular"]
    asked += ["--results", str(tmp_path / "results.jsonl")]
    main(asked)
    first = capsys.readouterr().out
    assert [line[:4] for line in first.splitlines() if line.startswith(("| 1 ", "| 30"))] == [
        "| 1 ",
        "| 30",
    ]
    main(asked)
    assert capsys.readouterr().out == first


def test_too_few_epochs_are_refused() -> None:
    with pytest.raises(ProctorError, match="two epochs"):
        main(["--epochs", "1"])
