"""Each rule fires in a real training, its remedy acts on the live model, and all of it can be
done again, bit for bit, by another process from the events alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from frontdoor import answer, call

from aggregates.decisions import Decision, Observation
from aggregates.playbook import DEFER
from aggregates.provocations import apply_to_config
from aggregates.registry import REGISTRY
from aggregates.run import Run
from ledger.application import LedgerApplication
from monitor.answering import Policy
from monitor.config import RunConfig
from monitor.loop import train
from policies.playbook import PlaybookPolicy
from proctor.home import Home

TINY: dict[str, Any] = {
    "channels": 8,
    "width": 8,
    "train_examples": 300,
    "val_examples": 100,
    "test_examples": 100,
    "threads": 1,
}


@dataclass(frozen=True)
class Case:
    rule: str
    side: str
    direction: str
    config: dict[str, Any]


CASES = [
    Case("R1", "high", "decrease_lr", {"lr": 3.0, "warm_up_epochs": 0, "epochs": 4}),
    Case("R1", "low", "increase_lr", {"lr": 1e-4, "epochs": 4}),
    Case("R1", "plateau", "decrease_lr", {"train_examples": 40, "batch_size": 20, "epochs": 18}),
    Case("R3", "plateau", "stop", {"train_examples": 40, "batch_size": 20, "epochs": 20}),
    # Without normalisation and with whole batches, almost the same answers in every epoch.
    Case(
        "R4",
        "stalled",
        "add_block",
        {
            "norm": "none",
            "blocks": 1,
            "width": 1,
            "lr": 1e-3,
            "warm_up_epochs": 0,
            "batch_size": 60,
            "epochs": 5,
            "profile": "calibrated",
        },
    ),
    Case(
        "R5",
        "high",
        "swap_activation",
        apply_to_config({"epochs": 4}, "dead_activations", 0),
    ),
    Case(
        "R6",
        "low",
        "add_norm",
        {
            "norm": "none",
            "residual": False,
            "activation": "gelu",
            "blocks": 16,
            "lr": 0.01,
            "epochs": 4,
            "train_examples": 128,
        },
    ),
    Case(
        "R7",
        "high",
        "decrease_lr",
        {"norm": "none", "blocks": 14, "lr": 1e-4, "epochs": 4, "train_examples": 128},
    ),
    Case(
        "R7",
        "not_finite",
        "decrease_lr",
        apply_to_config({"epochs": 4}, "infinite_loss", 0),
    ),
    Case("R2", "low", "increase_batch_size", {"batch_size": 1, "train_examples": 100, "epochs": 4}),
    Case("R2", "high", "decrease_batch_size", {"batch_size": 150, "lr": 0.02, "epochs": 4}),
]


def _name(case: Case) -> str:
    return f"{case.rule}-{case.side}"


class OneEachTime:
    """Says the next thing on its list whenever a rule is due; it cites whatever fired."""

    name = "list"

    def __init__(self, says: list[tuple[str, dict[str, Any]]]) -> None:
        self._says = iter(says)

    def describe(self) -> dict[str, Any]:
        return {}

    def decide(self, observation: Observation) -> list[Decision]:
        direction, params = next(self._says, (DEFER, {}))
        return [Decision.of(observation.due[:1], direction, params, "next on the list")]


def run_at_home(home: Path, config: dict[str, Any], policy: Policy) -> tuple[Run, list[Any]]:
    """Train into a real ledger and return the run with its events."""
    place = Home(home)
    with place.open_log() as log:
        run = train(RunConfig(**{**TINY, **config}), policy, log=log, blobs=place.blobs)
        return run, list(log.events.get(run.id))


@pytest.mark.parametrize("case", CASES, ids=_name)
@pytest.mark.sampled(4)
def test_rule_fires_in_a_real_run_and_its_remedy_acts(case: Case, tmp_path: Path) -> None:
    config = {"profile": "calibrated", **case.config}  # under which the cases fire what they name
    run, events = run_at_home(tmp_path, config, PlaybookPolicy())
    acted = [
        past
        for past in run.decisions
        if past.outcome == "applied"
        and past.decision.cites == (case.rule,)
        and past.decision.direction == case.direction
        and run.evaluations[past.epoch][case.rule].side == case.side
    ]
    assert acted, [
        (past.epoch, past.decision.cites, past.decision.direction) for past in run.decisions
    ]
    _EFFECTS[case.direction](run, events, acted[0].epoch, acted[0].number)

    found = answer(call(["replay", "--execute", "--json"], home=tmp_path))
    assert found["same"], found["differences"]
    assert found["whole"]


def _measured(events: list[Any], epoch: int) -> dict[str, Any]:
    (measured,) = [e for e in events if isinstance(e, Run.EpochMeasured) and e.epoch == epoch]
    return dict(measured.measured)


def _applied(events: list[Any], number: int) -> Any:
    (applied,) = [e for e in events if isinstance(e, Run.RemedyApplied) and e.decision == number]
    return applied


def _lr_changed(run: Run, events: list[Any], epoch: int, number: int) -> None:
    asked = run.decisions[number - 1].decision.params
    assert _measured(events, epoch + 1)["settings"]["lr"] == asked["lr"]
    assert _measured(events, epoch + 1)["settings"]["clip_norm"] == asked.get("clip_norm")
    if asked.get("reinitialise"):
        assert not run.history[epoch].gradients_finite
        assert run.history[epoch + 1].gradients_finite


def _batch_changed(run: Run, events: list[Any], epoch: int, number: int) -> None:
    before, after = _measured(events, epoch), _measured(events, epoch + 1)
    asked = run.decisions[number - 1].decision.params["batch_size"]
    assert after["settings"]["batch_size"] == asked
    assert (after["train"]["steps"] > before["train"]["steps"]) == (
        asked < before["settings"]["batch_size"]
    )


def _stopped(run: Run, _: list[Any], epoch: int, __: int) -> None:
    assert run.end_reason == "stopped"
    assert run.epoch == epoch
    assert run.weights["best"].epoch < epoch


def _block_added(run: Run, events: list[Any], epoch: int, number: int) -> None:
    blocks = len(_applied(events, number).spec["blocks"])
    layers = {layer["name"].split(".")[1] for layer in _measured(events, epoch + 1)["layers"][1:-2]}
    assert blocks > len(run.initial_spec.blocks)
    assert str(blocks - 1) in layers


def _activation_swapped(run: Run, events: list[Any], epoch: int, number: int) -> None:
    asked = run.decisions[number - 1].decision.params["to"]
    assert {block["activation"] for block in _applied(events, number).spec["blocks"]} == {asked}
    assert (run.history[epoch + 1].dead_share or 0.0) < run.rules.r5_high
    sparsity = [layer["sparsity"] for layer in _measured(events, epoch + 1)["activations"]]
    assert max(sparsity) < 0.01
    assert (run.history[epoch].sparsity or 0.0) > 0.3


def _norm_added(run: Run, events: list[Any], epoch: int, number: int) -> None:
    assert {block["norm"] for block in _applied(events, number).spec["blocks"]} == {"batch"}
    before, after = run.history[epoch], run.history[epoch + 1]
    assert before.min_layer_grad_norm is not None
    assert after.min_layer_grad_norm is not None
    assert after.min_layer_grad_norm > 10 * before.min_layer_grad_norm


_EFFECTS: dict[str, Callable[[Run, list[Any], int, int], None]] = {
    "decrease_lr": _lr_changed,
    "increase_lr": _lr_changed,
    "increase_batch_size": _batch_changed,
    "decrease_batch_size": _batch_changed,
    "stop": _stopped,
    "add_block": _block_added,
    "swap_activation": _activation_swapped,
    "add_norm": _norm_added,
}


@pytest.mark.slow
def test_every_other_remedy_is_done_again_bit_for_bit(tmp_path: Path) -> None:
    # The document profile fires in nearly every epoch of any run, which is what is wanted here.
    said: list[tuple[str, dict[str, Any]]] = [
        ("warm_up_lr", {"lr": 0.02, "epochs": 2}),
        ("accumulate_gradients", {"accumulation": 2}),
        ("widen", {"factor": 2}),
        ("add_residual", {"block": 0}),
        ("cycle_lr", {"lr_min": 0.005, "lr_max": 0.02, "epochs": 2}),
        ("swap_activation", {"to": "prelu"}),
        ("decrease_lr", {"lr": 0.001, "reinitialise": True}),
        ("widen", {"factor": 2, "block": 20}),  # there is no such block: refused
    ]
    config = {"profile": "document", "residual": False, "epochs": 11, "lr": 0.05}
    run, _ = run_at_home(tmp_path, config, OneEachTime(said))
    outcomes = [
        (past.decision.direction, past.outcome) for past in run.decisions if past.decision.acts
    ]
    assert outcomes == [(name, "applied") for name, _ in said[:-1]] + [("widen", "refused")]

    found = answer(call(["replay", "--execute", "--json"], home=tmp_path))
    assert found["same"], found["differences"]


@pytest.mark.slow
def test_forged_measurement_is_found_by_doing_the_run_again(tmp_path: Path) -> None:
    honest = Home(tmp_path / "honest")
    with honest.open_log() as log:
        run = train(
            RunConfig(**{**TINY, "epochs": 2}),
            PlaybookPolicy(),
            log=log,
            blobs=honest.blobs,
            submission_dir=tmp_path / "submission",
        )
        events: list[Any] = list(log.events.get(run.id))
    measured = events[1].measured
    measured["gradients"]["noise_scale"] += 0.01  # a liar with the key, and a flawless chain
    (tmp_path / "forged").mkdir()
    with LedgerApplication.open(tmp_path / "forged" / "ledger", REGISTRY) as log:
        log.events.put(events)
    assert call(["verify"], home=tmp_path / "forged").returncode == 0
    done = call(["replay", "--execute", "--json"], home=tmp_path / "forged")
    assert done.returncode == 1
    assert "noise_scale" in answer(done)["differences"][0]["place"]
    assert call(["replay", "--execute"], home=honest.path).returncode == 0

    audit = ["judge", "--submission", str(tmp_path / "submission")]
    believed = call([*audit, "--no-execute"], home=tmp_path / "forged")  # the weights are real
    assert (believed.returncode, "not retrained" in believed.stdout) == (0, True)
    done = call([*audit, "--json"], home=tmp_path / "forged")
    assert done.returncode == 1
    assert answer(done)["steps"][6]["status"] == "failed"
    assert call(audit, home=honest.path).returncode == 0
