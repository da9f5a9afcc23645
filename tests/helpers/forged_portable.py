"""Portable runs whose record was changed in one value, by somebody who holds the ledger's key."""

from copy import deepcopy
from pathlib import Path
from typing import Any
from uuid import uuid4

from forked import workers_forked
from judge_cases import Case, failed, rewrite

from aggregates.run import Run
from judge.auditing.gates import Redo
from monitor.config import RunConfig
from monitor.dispatch import current_variables
from monitor.loop import train
from policies.deciding.recorded import RecordedPolicy
from policies.playbook import PlaybookPolicy
from proctor.home import Home

CONFIG = RunConfig.from_dict(
    {
        "train_examples": 160,
        "val_examples": 64,
        "test_examples": 64,
        "epochs": 4,
        "batch_size": 32,
        "channels": 4,
        "width": 4,
        "stem_stride": 4,
        "lr": 5.0,
        "warm_up_epochs": 0,
        "numerics": "portable",
    }
)


def variables() -> dict[str, str]:
    """Return the variables of dispatch that this process has."""
    return current_variables()


def make_homes(folder: str) -> None:
    """Train a portable run into the home `honest`; lie about one value in the home `forged`."""
    for name in ("honest", "forged"):
        home = Home(Path(folder, name))
        log: Any
        with home.open_log() as log:
            saving = log if name == "honest" else _Liar(log)
            run_id = uuid4()
            train(
                CONFIG,
                PlaybookPolicy(),
                log=saving,
                blobs=home.blobs,
                run_id=run_id,
                submission_dir=home.submission(run_id),
            )


class _Liar:
    """A log that changes a measured value on its way into the ledger."""

    def __init__(self, log: Any) -> None:
        self._log = log

    def save(self, run: Run) -> None:
        for event in run.pending_events:
            if isinstance(event, Run.EpochMeasured) and event.epoch == 1:
                event.measured["train"]["loss"] *= 1 + 1e-12
        self._log.save(run)


def judge_forgeries(folder: str, count: int) -> dict[str, Any]:
    """Judge the honest run and `count` retellings of it with one changed value each."""
    home = Home(Path(folder, "honest"))
    with home.open_log() as log:
        (run_id,) = {
            n.originator_id
            for n in log.recorder.select_notifications(1, 10)
            if n.topic == "run.started"
        }
    honest = Case(str(run_id), home.ledger, home.submission(run_id))
    redo = Redo(lambda run: RecordedPolicy(run.decisions, run.policy))
    with workers_forked():
        found = [
            failed(rewrite(honest, _forge(number)).audit(redo=redo)) for number in range(count)
        ]
        return {"honest": failed(honest.audit(redo=redo)), "forged": found}


def _forge(number: int) -> Any:
    """Return a change of one number of one epoch, by one part in a million million."""

    def change(event: Any) -> dict[str, Any]:
        if not isinstance(event, Run.EpochMeasured) or event.epoch != 0:
            return {}
        part = deepcopy(event.measured)
        places = [(part["train"], "loss"), (part["gradients"], "total_norm_mean")]
        places += [(layer, "grad_norm") for layer in part["layers"]]
        place, key = places[number % len(places)]
        place[key] *= 1 + (1 + number) * 1e-12
        return {"measured": part}

    return change
