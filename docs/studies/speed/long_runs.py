"""What a run of many epochs costs: recording it, judging it without training, asking about it.

    python docs/studies bench long-runs

The run is made up: measurements that a small model can have, a rule that fires in nearly every
epoch, and answers to all of it. Nothing is trained. Memory is that of processes of their own, as
the difference between a long run and one of a tenth of its epochs.

I/O: a temporary folder below the one that is given; processes.
Units: seconds of processors; bytes.
"""

import json
import math
import os
import tempfile
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from random import Random
from statistics import median
from typing import Any
from uuid import UUID

from aggregates.decisions import Decision, Observation, Settings
from aggregates.noise import NoiseProbes, pool_noise
from aggregates.outcomes import derive_outcome
from aggregates.playbook import DEFER
from aggregates.registry import REGISTRY
from aggregates.rules import PROFILES
from aggregates.run import Run
from aggregates.spec import ModelSpec
from ledger.application import LedgerApplication
from studies.speed.timing import Conditions, in_process, timed
from studies.statistics import Table

__all__ = ["MOST", "LongRunBench", "audit", "measure", "record"]

_TRAIN, _VALIDATION, _CLASSES = 6_400, 1_000, 10
_PROBE_EVERY = 48  # steps
MOST = 10_000  # epochs, as a configuration allows
_KINDS = ("record", "judge")


@dataclass(frozen=True, kw_only=True)
class LongRunBench(Conditions):
    """What was measured; seconds and bytes are medians of the rounds."""

    epochs: int
    events: int
    decisions: int
    record_seconds: float  # the whole run, as its loop records it
    record_last_seconds: float  # of these, its last tenth
    record_bytes: float  # of memory, for each epoch
    judge_seconds: float  # verification, and steps 5, 8 and 9
    import_seconds: float  # before them: the judge's modules, torch among them
    judge_bytes: float
    prompt_seconds: float  # what a language model is asked at the end
    asked_bytes: int  # of the question to a program at the end
    kept_bytes: int  # the same, to one that keeps what it was told an epoch before

    def tables(self) -> Iterator[Table]:
        """Yield what is shown."""
        tenth = self.epochs / 10
        yield Table(
            title=f"{self.epochs:,} epochs, {self.events:,} events, {self.decisions:,} decisions; "
            f"{self.conditions()}",
            columns=("a run of many epochs", "figure"),
            rows=(
                ("recorded, ms an epoch", f"{1e3 * self.record_seconds / self.epochs:.2f}"),
                (
                    "the same, last tenth of the epochs",
                    f"{1e3 * self.record_last_seconds / tenth:.2f}",
                ),
                ("audited without training, s", f"{self.judge_seconds:.1f}"),
                ("imports before that, s", f"{self.import_seconds:.1f}"),
                ("memory of the loop, kB an epoch", f"{self.record_bytes / 1e3:.1f}"),
                ("memory of the judge, kB an epoch", f"{self.judge_bytes / 1e3:.1f}"),
                ("prompt of the last epoch, ms", f"{1e3 * self.prompt_seconds:.0f}"),
                (
                    "question to a program that keeps nothing, kB",
                    f"{self.asked_bytes / 1e3:,.0f}",
                ),
                ("question to a program that keeps it, kB", f"{self.kept_bytes / 1e3:,.0f}"),
            ),
        )


def measure(folder: Path, *, epochs: int, rounds: int) -> LongRunBench:
    """Record made-up runs of so many epochs and of a tenth, and judge them in turns."""
    load, few = os.getloadavg()[0], max(epochs // 10, 1)
    taken: dict[tuple[str, int], list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(dir=folder.resolve(), prefix=".bench-") as name:
        for number in range(rounds):
            for size in (few, epochs):
                directory = Path(name) / f"{size}-{number}"
                for kind in _KINDS:
                    found = in_process(f"{__name__}:work", kind, str(directory), str(size))
                    taken.setdefault((kind, size), []).append(found)
    seconds = {key: median(each["seconds"] for each in found) for key, found in taken.items()}

    def grown(kind: str, what: str) -> float:
        peaks = {size: median(e[what] for e in taken[kind, size]) for size in (few, epochs)}
        return (peaks[epochs] - peaks[few]) / max(epochs - few, 1)

    latest = taken["record", epochs][-1]
    return LongRunBench(
        **Conditions.since(load, rounds=rounds),
        epochs=epochs,
        events=int(latest["events"]),
        decisions=int(latest["decisions"]),
        record_seconds=seconds["record", epochs],
        record_last_seconds=median(each["last"] for each in taken["record", epochs]),
        record_bytes=grown("record", "recorded_peak"),
        judge_seconds=seconds["judge", epochs],
        import_seconds=median(each["imports"] for each in taken["judge", epochs]),
        judge_bytes=grown("judge", "peak"),
        prompt_seconds=median(each["prompt"] for each in taken["record", epochs]),
        asked_bytes=int(latest["asked"]),
        kept_bytes=int(latest["kept"]),
    )


def record(folder: Path, epochs: int) -> Iterator[Run]:
    """Record a made-up run, and yield it after each epoch."""
    from monitor.config import RunConfig, initial_settings  # noqa: PLC0415 - torch

    draw = Random(0)  # noqa: S311 - made-up numbers
    config = RunConfig.from_dict(
        {"epochs": epochs, "warm_up_epochs": 0, "threads": 1, "profile": "calibrated"}
    )
    now, spec = initial_settings(config), config.spec(_CLASSES)
    shapes = _shapes(spec)
    run = Run.start(
        config=config.to_dict(),
        rules=PROFILES[config.profile].to_dict(),
        spec=spec.to_dict(),
        data={"sizes": {"train": _TRAIN, "validation": _VALIDATION}, "classes": ["x"] * _CLASSES},
        environment={"threads": 1, "device": "cpu", "numerics": config.numerics},
        policy={"name": "made up"},
    )
    best = math.inf
    with LedgerApplication.open(folder, REGISTRY) as log:
        for epoch in range(epochs):
            part = _measured(draw, epoch, now, shapes)
            run.measure_epoch(part, {"seconds": 1.0})
            run.evaluate_rules()
            saved: dict[str, Any] = {"sha256": "0" * 64, "size": 1, "probe": {}}
            saved["spec"] = spec.to_dict()
            if part["validation"]["loss"] < best:
                best = part["validation"]["loss"]
                run.save_weights("best", **saved)
            for decision in _answers(run, now):
                run.decide(decision, source="policy")
                if decision.acts:
                    outcome = derive_outcome(
                        decision,
                        settings=now,
                        spec=spec,
                        epoch=epoch,
                        max_batch_size=config.max_batch_size,
                        train_examples=_TRAIN,
                    )
                    now = outcome.settings
                    run.apply_remedy(outcome.changes, settings=now.to_dict(), spec=spec.to_dict())
            if epoch == epochs - 1:
                run.save_weights("last", **saved)
                run.end("completed")
            log.save(run)
            yield run


def audit(folder: Path, run: UUID) -> int:
    """Verify the ledger, perform steps 5, 8 and 9, and return the number of violations."""
    from judge.auditing.defensibility import (  # noqa: PLC0415 - torch
        find_excessive,
        find_indefensible,
        repeated_words,
    )
    from judge.auditing.gates import Gates  # noqa: PLC0415 - torch
    from judge.auditing.record import read_record  # noqa: PLC0415 - torch
    from judge.config import JudgeConfig  # noqa: PLC0415

    config = JudgeConfig(max_epochs=MOST, max_decisions=100_000, max_events=200_000)
    found = read_record(folder, run)
    gates = Gates(run, config, record=found, directory=folder, redo=None)
    gates.ledger()
    replay = gates.replay
    repeated_words(replay.run)
    step9 = [*find_indefensible(replay.run, replay.settings_at), *find_excessive(replay)]
    return len(gates.coverage.violations) + len(step9)


def _answers(run: Run, now: Settings) -> list[Decision]:
    """Answer each rule that fired; R1 is acted on every third epoch."""
    found = []
    for rule in run.fired():
        side = run.evaluations[run.epoch][rule].side
        if rule == "R1" and side in ("high", "low") and run.epoch % 3 == 0:
            rate, direction = (
                (now.lr / 3, "decrease_lr") if side == "high" else (now.lr * 3, "increase_lr")
            )
            words = f"R1 is {side} in epoch {run.epoch}: the rate becomes {rate:.3g}"
            found.append(Decision.of((rule,), direction, {"lr": rate}, words))
        else:
            words = f"{rule} waits in epoch {run.epoch}"
            found.append(Decision.of((rule,), DEFER, {}, words))
    return found


def _measured(
    draw: Random, epoch: int, now: Settings, shapes: tuple[list[tuple[str, int]], list[Any]]
) -> dict[str, Any]:
    """Return what the hooks could measure of an epoch; rates move the steps as they would."""
    parameters, activations = shapes
    step = now.batch_size * now.accumulation
    steps = _TRAIN // step
    # In most epochs the steps are too short or too long for the rate; a remedy brings them back.
    wanted = 0.003 if epoch // 40 % 2 else 0.3
    ratio = 2e-3 * now.lr / wanted * draw.uniform(0.9, 1.1)
    right = draw.randrange(_VALIDATION // 2, _VALIDATION)
    trained = steps * step
    correct = draw.randrange(trained // 2, trained)
    probes = []
    for _ in range(-(-steps // _PROBE_EVERY)):
        square = draw.uniform(1.0, 2.0)
        probes.append([square * draw.uniform(0.2, 0.4), square])
    pairs, spread = steps - 1, draw.uniform(0.001, 0.01)
    gradients = {
        "finite": True,
        "norm_noise_scale": draw.uniform(1.0, 300.0),
        "probes": probes,
        "spread": spread,
        "spread_pairs": pairs,
        "total_norm_mean": 1.5,
    }
    return {
        "train": {
            "loss": draw.uniform(0.5, 1.0),
            "accuracy": correct / trained,
            "examples": trained,
            "steps": steps,
        },
        "validation": {
            "loss": 2.0 / math.sqrt(epoch + 1) + draw.uniform(0.0, 0.5),
            "accuracy": right / _VALIDATION,
            "examples": _VALIDATION,
        },
        "gradients": {**gradients, **_signal_to_noise(gradients)},
        "layers": [
            {
                "name": name,
                "rank": rank,
                "grad_norm": draw.uniform(0.05, 0.5),
                "update_ratio": ratio if rank > 1 else None,
                "epoch_update_ratio": ratio if rank > 1 else None,
            }
            for name, rank in parameters
        ],
        "activations": [
            {
                "name": name,
                "units": units,
                "dead_units": draw.randrange(2),
                "sparsity": draw.uniform(0.3, 0.6),
                "p50": 0.0,
                "p99": 2.5,
            }
            for name, units in activations
        ],
        "settings": now.to_dict(),
    }


def _signal_to_noise(gradients: dict[str, Any]) -> dict[str, float | None]:
    """Return the ratio of an epoch's probes and its interval, as the hooks record them."""
    probes = tuple((product, square) for product, square in gradients["probes"])
    found = pool_noise([NoiseProbes(probes, gradients["spread"], gradients["spread_pairs"])])
    ends = (None, None, None) if found is None else (found.estimate, found.low, found.high)
    names = ("signal_to_noise", "signal_to_noise_low", "signal_to_noise_high")
    return dict(zip(names, ends, strict=True))


def _shapes(spec: ModelSpec) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Return names and ranks of the parameters, and names and units of the activations."""
    from judge.auditing.measurements import shape_of  # noqa: PLC0415 - torch

    parameters, units = shape_of(spec)
    return [(name, rank) for name, rank in parameters], [(name, size) for name, size in units]


def _asked(run: Run) -> Observation:
    """Return what the policy of a recorded run is asked at its end."""
    return Observation(
        run_id=str(run.id),
        epoch=run.epoch,
        due=run.fired() or ("R1",),
        evaluations=dict(run.evaluations[run.epoch]),
        settings=Settings(**(run.settings or {"lr": 0.05, "batch_size": 64})),
        max_batch_size=512,
        train_examples=_TRAIN,
        spec=run.spec,
        history=tuple(run.history),
        decisions=tuple(run.decisions),
        waived=(),
        rules=run.rules,
        edits="live",
        fired=tuple(run.fired_rules[: run.epoch]),
    )


def work(kind: str, directory: str, epochs: str) -> dict[str, float]:
    """Measure one thing in this process; measure() has others do it."""
    folder, size, found = Path(directory), int(epochs), dict[str, float]()
    run_id = folder / "run-id"

    if kind == "judge":
        run = UUID(run_id.read_text(encoding="utf-8"))
        found["imports"] = timed(lambda: import_module("judge.auditing.gates")).processor
        found["seconds"] = timed(lambda: audit(folder, run)).processor
    else:
        found |= _recorded(folder, size)
    return found | {"peak": _peak()}


def _recorded(folder: Path, epochs: int) -> dict[str, float]:
    """Record a run, and ask about its last epoch."""
    from policies.asking.prompt import messages  # noqa: PLC0415 - httpx
    from policies.asking.settings import ModelSettings  # noqa: PLC0415
    from policies.deciding.outside import observation_json  # noqa: PLC0415

    runs = record(folder, epochs)
    early = timed(lambda: deque(islice(runs, epochs - epochs // 10 - 1), maxlen=0)).processor
    latest: deque[Run] = deque(maxlen=1)
    last = timed(lambda: latest.extend(runs)).processor
    peak, run = _peak(), latest[0]
    seen = _asked(run)
    decided = sum(past.epoch < run.epoch - 1 for past in run.decisions)
    prompt = timed(lambda: messages(seen, settings=ModelSettings(model="any"))).processor
    (folder / "run-id").write_text(str(run.id), encoding="utf-8")
    return {
        "seconds": early + last,
        "last": last,
        "recorded_peak": peak,
        "prompt": prompt,
        "asked": len(json.dumps(observation_json(seen))),
        "kept": len(json.dumps(observation_json(seen, history=epochs - 1, decisions=decided))),
        "events": run.version,
        "decisions": len(run.decisions),
    }


def _peak() -> int:
    """Return the most bytes that this process had at once."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return 1_024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
