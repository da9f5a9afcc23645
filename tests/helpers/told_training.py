"""A run that is told rather than trained, and judged by what the ledger holds of it.

A world says what the hooks would measure under the settings and the model in force. Everything else
is real: the run's aggregate, its rules, remedies as they are carried out, the ledger, the judge's
replay, its coverage and its defensibility. Only ranges and shapes of measurements are not checked.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from synthetic import measured

from aggregates.decisions import Decision, Said, Settings, learning_rate
from aggregates.errors import RemedyRefused
from aggregates.outcomes import derive_outcome
from aggregates.playbook import DEFER
from aggregates.registry import REGISTRY
from aggregates.rules import PROFILES
from aggregates.run import Run
from aggregates.spec import ModelSpec
from judge.auditing import replay as replaying
from judge.auditing.coverage import Coverage, Violation
from judge.auditing.defensibility import find_excessive, find_indefensible
from judge.auditing.gates import Gates
from judge.auditing.record import read_record
from judge.auditing.scores import process_score
from judge.config import JudgeConfig
from ledger.application import LedgerApplication
from monitor.config import RunConfig, initial_settings

World = Callable[[int, Settings, ModelSpec, float], dict[str, Any]]  # epoch, ..., mean rate
Answers = Callable[[Run, Settings], Sequence[Decision | Said]]  # to the latest epoch


@dataclass(frozen=True)
class Told:
    """What the judge found in a told run."""

    run: Run
    coverage: Coverage
    violations: tuple[Violation, ...]

    @property
    def kinds(self) -> list[tuple[str, str | None, int | None]]:
        return [(found.kind, found.rule, found.epoch) for found in self.violations]

    @property
    def obligations(self) -> int:
        return self.coverage.obligations(self.violations)

    @property
    def score(self) -> float:
        return process_score(len(self.violations), self.obligations)


def tell(
    folder: Path, world: World, answers: Answers, *, epochs: int = 12, **settings: Any
) -> Told:
    """Tell a run epoch by epoch, have `answers` speak whenever a rule fires, and judge it."""
    config = RunConfig.from_dict(
        {"epochs": epochs, "warm_up_epochs": 0, "threads": 1, "profile": "calibrated", **settings}
    )
    now, spec = initial_settings(config), config.spec(10)
    run = Run.start(
        config=config.to_dict(),
        rules=PROFILES[config.profile].to_dict(),
        spec=spec.to_dict(),
        data={"sizes": {"train": 3_000, "validation": 500, "test": 500}, "classes": ["x"] * 10},
        environment={"threads": 1, "device": "cpu", "numerics": config.numerics},
        policy={"name": "told"},
    )
    reason = "completed"
    for epoch in range(epochs):
        steps = 3_000 // (now.batch_size * now.accumulation)
        rates = [learning_rate(now, epoch=epoch, fraction=(s + 1) / steps) for s in range(steps)]
        part = world(epoch, now, spec, sum(rates) / steps)
        run.measure_epoch({**part, "settings": now.to_dict()}, {})
        run.evaluate_rules()
        for answer in answers(run, now) if run.fired() else ():
            said = answer if isinstance(answer, Said) else Said(answer)
            run.decide(said.decision, source=said.source)
            if not said.decision.acts:
                continue
            try:
                outcome = derive_outcome(
                    said.decision,
                    settings=now,
                    spec=spec,
                    epoch=epoch,
                    max_batch_size=config.max_batch_size,
                    train_examples=3_000,
                )
            except RemedyRefused as error:
                run.refuse_remedy(str(error))
                continue
            now, spec = outcome.settings, ModelSpec.from_dict(outcome.spec.to_dict())
            run.apply_remedy(outcome.changes, settings=now.to_dict(), spec=spec.to_dict())
        if run.stopped:
            reason = "stopped"
            break
    run.end(reason)
    with LedgerApplication.open(folder, REGISTRY) as log:
        log.save(run)
    return _judge(folder, run)


def _judge(folder: Path, run: Run) -> Told:
    record = read_record(folder, run.id)
    gates = Gates(run.id, JudgeConfig(), record=record, directory=folder, redo=None)
    # What is told as measured fits no model: only its shapes differ.
    with mock.patch.object(replaying, "check_epochs"):
        gates.ledger()
    replay = gates.replay
    assert not replay.settings_problems
    step9 = [*find_indefensible(replay.run, replay.settings_at), *find_excessive(replay)]
    return Told(run, gates.coverage, (*gates.coverage.violations, *step9))


def healthy(epoch: int, **changes: Any) -> dict[str, Any]:
    """Return the measured part of an epoch in which no rule fires, but for what is changed.

    `ratio` of an update to the weights, `probes` of the noise, `dead` units by activation.
    """
    part = measured(epoch)
    if "ratio" in changes:
        for layer in part["layers"]:
            if layer["rank"] >= 2:
                layer["update_ratio"] = layer["epoch_update_ratio"] = float(changes["ratio"])
    if "probes" in changes:
        noise = {"probes": changes["probes"], "spread": 0.5, "spread_pairs": 40}
        ends = {"signal_to_noise_low": None, "signal_to_noise_high": None}
        part["gradients"] = {**part["gradients"], **noise, **ends}
        part["gradients"]["signal_to_noise"] = None
    if "norm" in changes:
        part["layers"][0]["grad_norm"] = float(changes["norm"])
    if "dead" in changes:
        part["activations"] = [
            {**part["activations"][0], "name": name, "units": 8, "dead_units": dead}
            for name, dead in changes["dead"].items()
        ]
    return part


def defer(rule: str) -> Decision:
    return Decision.of((rule,), DEFER, {}, f"{rule} waits")


def act(rule: str, direction: str, **params: Any) -> Decision:
    return Decision.of((rule,), direction, params, f"{rule} wants it")
