"""The measurements of a run in the files of other trackers: TensorBoard and MLflow.

Source: the table `epochs`, whose columns name the curves, and epoch_metrics (val_NAME). What was
not measured has no point.
Trust: what is exported comes from a ledger that was just verified; what other tools do with the
files is theirs. I/O: writes into the folders that are named; asks nobody on a network.
"""

import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from ledger.mapper import readable_body
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.output.terminal import dotted, records_of
from proctor.remembering import keep_definitions, open_remembered
from proctor.runs.metrics import EPOCHS, with_columns
from proctor.runs.replay import find_verified_run
from projections.projector import projected

_NO_CURVE = ("epoch", "idx", "run_id")
_EXPERIMENT = "proctor"
_LONGEST = 6_000  # characters of a parameter of MLflow
_PARAMETERS = 100  # and metrics, in one call
_RUN_TAG = "proctor.run"


@dataclass(frozen=True)
class Curves:
    """A run's measurements."""

    run: UUID
    origin: str  # of the ledger
    size: int  # entries in it
    started: int  # ns
    ended: int | None  # ns; None while it trains
    reason: str | None
    config: Mapping[str, Any]
    epochs: list[tuple[int, int, dict[str, float]]]  # epoch, time of its entry in ns, by curve


def read_curves(home: Home, name: str) -> Curves:
    """Return the measurements of the run that `name` means; raises VerificationError."""
    with open_remembered(home) as ledger:
        run = find_verified_run(ledger, name)
        entries = list(ledger.select(streams=[run]))
        origin, size = ledger.authority.origin, ledger.size
    keep_definitions()
    times = {entry.index: entry.time_ns for entry in entries}
    with closing(projected(entries, quarantine=True, gaps=True)) as tables:
        rows = with_columns(records_of(tables, EPOCHS, [str(run)]))
    start = readable_body(entries[0].body) or {}
    ends = [entry for entry in entries if entry.name == "run.ended"]
    return Curves(
        run=run,
        origin=origin,
        size=size,
        started=entries[0].time_ns,
        ended=ends[0].time_ns if ends else None,
        reason=str((readable_body(ends[0].body) or {}).get("reason")) if ends else None,
        config=start.get("config") or {},
        epochs=[
            (
                row["epoch"],
                times[row["idx"]],
                {
                    name: float(value)
                    for name, value in row.items()
                    if name not in _NO_CURVE and value is not None
                },
            )
            for row in rows
        ],
    )


def write_tensorboard(curves: Curves, folder: Path) -> Path:
    """Write an event file into FOLDER/RUN, with float32 values; return that folder."""
    from tensorboardX.event_file_writer import EventsWriter  # noqa: PLC0415 - an extra
    from tensorboardX.proto.event_pb2 import Event  # noqa: PLC0415
    from tensorboardX.proto.summary_pb2 import Summary  # noqa: PLC0415

    own = folder / str(curves.run)
    if own.exists():
        raise ProctorError(f"{own} exists: TensorBoard would show each point twice; remove it")
    own.mkdir(parents=True)
    writer = EventsWriter(str(own / "events"))
    for epoch, time_ns, values in curves.epochs:
        points = [Summary.Value(tag=name, simple_value=values[name]) for name in sorted(values)]
        event = Event(wall_time=time_ns / 10**9, step=epoch, summary=Summary(value=points))
        writer.write_event(event)
    writer.close()
    return own


def write_mlflow(curves: Curves, folder: Path) -> str:
    """Write a run into the experiment `proctor` of a file store; return MLflow's id of it."""
    # MLflow reads these when it is imported. It refuses a file store without the first, and
    # reports its use to its makers without the second.
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    from mlflow import MlflowClient  # noqa: PLC0415 - an extra
    from mlflow.entities import Metric, Param  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    client = MlflowClient(tracking_uri=folder.resolve().as_uri())
    known = client.get_experiment_by_name(_EXPERIMENT)
    experiment = client.create_experiment(_EXPERIMENT) if known is None else known.experiment_id
    if client.search_runs([experiment], f"tags.`{_RUN_TAG}` = '{curves.run}'"):
        raise ProctorError(f"{folder} has run {curves.run} already; delete it there first")
    tags = {
        _RUN_TAG: str(curves.run),
        "proctor.ledger": curves.origin,
        "proctor.entries": str(curves.size),
        "proctor.ended": str(curves.reason),
    }
    made = client.create_run(
        experiment, start_time=curves.started // 10**6, run_name=str(curves.run), tags=tags
    ).info.run_id
    parameters = [Param(name, str(value)[:_LONGEST]) for name, value in dotted(curves.config)]
    for at in range(0, len(parameters), _PARAMETERS):
        client.log_batch(made, params=parameters[at : at + _PARAMETERS])
    for epoch, time_ns, values in curves.epochs:
        moment = time_ns // 10**6
        metrics = [Metric(name, values[name], moment, epoch) for name in sorted(values)]
        client.log_batch(made, metrics=metrics)
    if curves.ended is not None:
        failed = curves.reason in ("crashed", "failed", "interrupted")
        status = "FAILED" if failed else "FINISHED"
        client.set_terminated(made, status=status, end_time=curves.ended // 10**6)
    return str(made)
