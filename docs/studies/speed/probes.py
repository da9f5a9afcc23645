"""Questions that no command asks alone; each prints nothing and writes its seconds to a file.

    python -P probes.py NAME FOLDER RESULT

It is run by its path, under this version of Proctor and under earlier ones: it may import only what
all of them have.

I/O: reads the ledger in the folder; writes the result.  Units: seconds of processors.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import fields
from inspect import signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

RUN = "run-id"  # beside the ledger: the run that is asked about


def record(_: Path) -> float:
    """Record a run of 2,000 epochs, whose rules are evaluated."""
    from aggregates.registry import REGISTRY  # noqa: PLC0415 - not measured
    from aggregates.rules import PROFILES  # noqa: PLC0415
    from aggregates.run import Run  # noqa: PLC0415
    from aggregates.spec import BlockSpec, ModelSpec  # noqa: PLC0415
    from ledger.application import LedgerApplication  # noqa: PLC0415

    names = [f"blocks.{number}.weight" for number in range(20)]
    ratios = {"update_ratio": 2e-3, "epoch_update_ratio": 2e-3}
    block = BlockSpec(8, residual=True, norm="batch", activation="relu")
    rules = PROFILES["calibrated"]
    spec = ModelSpec(
        classes=10,
        channels=8,
        stem_stride=2,
        blocks=(block,),
        norm="batch",
        activation="relu",
    )
    # Earlier versions take the objects, and a hash.
    earlier = "config_hash" in signature(Run.start).parameters
    given: dict[str, Any] = (
        {"rules": rules, "spec": spec, "config_hash": ""}
        if earlier
        else {"rules": rules.to_dict(), "spec": spec.to_dict()}
    )
    run = Run.start(
        config={"epochs": 2_000, "profile": "calibrated", "waived": []},
        data={"dataset": "shapes", "sizes": {"train": 256, "validation": 64}},
        environment={"python": "3", "threads": 1},
        policy={"name": "playbook"},
        **given,
    )
    measured = {
        "train": {"loss": 1.0, "accuracy": 0.5, "examples": 256, "steps": 4},
        "validation": {"loss": 1.1, "accuracy": 0.5, "examples": 64},
        "gradients": {"finite": True, "signal_to_noise": 1.5, "norm_noise_scale": 300.0},
        "layers": [{"name": name, "rank": 4, "grad_norm": 1.0, **ratios} for name in names],
        "activations": [],
        "settings": {"lr": 0.1, "batch_size": 64, "accumulation": 1, "clip_norm": None},
    }
    with TemporaryDirectory() as name, LedgerApplication.open(Path(name), REGISTRY) as log:
        began = time.process_time()
        for epoch in range(2_000):
            loss = 2.0 / (epoch + 1)
            run.measure_epoch(measured | {"validation": {"loss": loss, "accuracy": 0.5}}, {})
            run.evaluate_rules()
            log.save(run)
        return time.process_time() - began


def prompt(folder: Path) -> float:
    """Write what a language model is asked in the last epoch of a run."""
    from aggregates.decisions import Observation, Settings  # noqa: PLC0415 - not measured
    from aggregates.registry import REGISTRY  # noqa: PLC0415
    from aggregates.run import Run  # noqa: PLC0415
    from ledger.application import LedgerApplication  # noqa: PLC0415
    from policies.asking.prompt import messages  # noqa: PLC0415
    from policies.asking.settings import ModelSettings  # noqa: PLC0415

    with LedgerApplication.open(folder, REGISTRY) as log:
        run: Run = log.repository.get(_run(folder))
    given: dict[str, Any] = {
        "run_id": str(run.id),
        "epoch": run.epoch,
        "due": run.fired() or ("R1",),
        "evaluations": dict(run.evaluations[run.epoch]),
        "settings": Settings(**(run.settings or {"lr": 0.1, "batch_size": 64})),
        "max_batch_size": 512,
        "train_examples": 6_400,
        "spec": run.spec,
        "history": tuple(run.history),
        "decisions": tuple(run.decisions),
        "waived": (),
        "rules": run.rules,
        "edits": "live",
        "fired": tuple(getattr(run, "fired_rules", ()))[: run.epoch],
    }
    known = {field.name for field in fields(Observation)}
    seen = Observation(**{name: value for name, value in given.items() if name in known})
    began = time.process_time()
    messages(seen, settings=ModelSettings(model="any"))
    return time.process_time() - began


def audit(folder: Path) -> float:
    """Verify the ledger, and perform the steps 5 and 8 of an audit."""
    from judge.auditing.gates import Gates  # noqa: PLC0415 - not measured
    from judge.auditing.record import read_record  # noqa: PLC0415
    from judge.config import JudgeConfig  # noqa: PLC0415

    run = _run(folder)
    config = JudgeConfig(max_epochs=10_000, max_decisions=100_000, max_events=200_000)
    more = (config,) if "config" in signature(read_record).parameters else ()  # of earlier versions
    began = time.process_time()
    found = read_record(folder, run, *more)
    gates = Gates(run, config, record=found, directory=folder, redo=None)
    gates.ledger()
    return time.process_time() - began


def _run(folder: Path) -> UUID:
    return UUID((folder / RUN).read_text(encoding="utf-8"))


PROBES: dict[str, Callable[[Path], float]] = {"record": record, "prompt": prompt, "audit": audit}

if __name__ == "__main__":
    name, folder, result = sys.argv[1:]
    Path(result).write_text(str(PROBES[name](Path(folder))), encoding="utf-8")
