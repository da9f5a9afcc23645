"""The policy `trials` tries rates where nothing measured tells which is right."""

from pathlib import Path

import pytest
from frontdoor import TINY, answer, call, call_here, with_settings


@pytest.mark.slow
def test_training_tries_rates_and_every_command_reads_it(tmp_path: Path) -> None:
    settings = with_settings(TINY, "epochs=5", "numerics=portable")
    fault = ["--provoke", "exploding_loss", "--provoke-seed", "7"]
    run = call(["run", *fault, "--policy", "trials", *settings], home=tmp_path)
    assert run.returncode == 0, run.stderr
    rates = "SELECT epoch, lr, val_loss FROM epochs ORDER BY epoch"
    found = answer(call_here(["sql", rates, "--json"], home=tmp_path))
    first, second = (row["val_loss"] for row in found[1:3])
    assert [row["lr"] for row in found] == [
        *(0.05, 0.05, 0.005),
        *[0.05 if first <= second else 0.005] * 2,
    ]
    audit = answer(call(["judge", "--json"], home=tmp_path))
    (step,) = (each for each in audit["steps"] if each["name"] == "defensibility")
    assert (audit["hard_fail"], audit["retrained"]) == (False, 1.0)
    assert step["evidence"]["asked_again"]["same"] is True
    again = answer(call(["replay", "--execute", "--json"], home=tmp_path))
    assert again["same"] is True
    told = "tried learning rates, an epoch each from fresh weights, by validation loss: 0.05 (epoch"
    shown = " ".join(call_here(["show"], home=tmp_path).stdout.split())
    assert told in shown
    assert "was chosen and went on from epoch" in shown
    page = tmp_path / "page.html"
    assert call_here(["report", "--out", str(page)], home=tmp_path).returncode == 0
    assert told in page.read_text(encoding="utf-8")
    refused = call(["fork", "--at", "2"], home=tmp_path)
    assert refused.returncode != 0
    assert "epoch 2 of run" in refused.stderr
    assert "is a trial of decision 1" in " ".join(refused.stderr.split())
