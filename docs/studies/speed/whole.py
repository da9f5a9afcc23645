"""One table of what a ledger costs, each row beside what a user would otherwise have.

Both sides of a row take turns, round after round: its ratio is that of two measurements that lie
side by side. Extras that are not installed are named, and their rows are left out.

I/O: a temporary folder below the one that is given; processes.
Units: seconds of processors; where a row has two processes, seconds.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import duckdb

from aggregates.registry import REGISTRY
from aggregates.rules import PROFILES
from aggregates.run import Run
from aggregates.spec import BlockSpec, ModelSpec
from ledger.application import LedgerApplication
from ledger.handover.bundle import export_bundle
from ledger.handover.bundle_check import check_bundle
from ledger.verification.reader import check_ledger
from projections.cookbook import recipes
from projections.projector import create_schema
from projections.source import open_source
from studies.speed import ledger, projections
from studies.speed.cookbook import fill
from studies.speed.notary import PRODUCERS, append_through_notary
from studies.speed.timing import Conditions, Spread, in_turns, timed
from studies.statistics import Table, short

__all__ = ["PARTS", "Row", "WholeBench", "measure", "write_runs"]

PARTS = ("append", "verify", "tables", "questions", "log", "train", "episodes")
_LAYERS = 20  # of a run that is recorded
_RECORDED = "an epoch recorded"
_SPEC = ModelSpec(
    classes=10,
    channels=8,
    stem_stride=2,
    blocks=(BlockSpec(8, residual=True, norm="batch", activation="relu"),),
    norm="batch",
    activation="relu",
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One thing that was measured; `ratio` is the other's time to ours, above 1 where we win."""

    what: str
    beside: str
    clock: str  # processor or wall
    counted: int  # events, epochs or questions in each measurement
    own: float  # s for one, median of the rounds
    other: float
    ratio: Spread


@dataclass(frozen=True, kw_only=True)
class WholeBench(Conditions):
    """What was measured."""

    events: int
    rows: list[Row]
    limits: dict[str, float]  # bare operations a second
    left_out: dict[str, str]  # row -> why
    episodes: dict[str, float]  # of proctor/Training-v0, a minute, by reward

    def tables(self) -> Iterator[Table]:
        """Yield what is shown."""
        yield Table(
            title=f"{self.events:,} events, {self.conditions()}",
            columns=("what", "beside", "clock", "\u00b5s", "other, \u00b5s", "times as fast"),
            rows=tuple(
                (
                    *(row.what, row.beside, row.clock),
                    *(short(1e6 * row.own), short(1e6 * row.other), row.ratio.shown(2)),
                )
                for row in self.rows
            ),
        )
        for title, columns, found in (
            ("", ("limits of the hardware", "a second"), self.limits),
            ("", ("episodes of proctor/Training-v0, reward", "a minute"), self.episodes),
            ("", ("left out", "why"), self.left_out),
        ):
            if found:
                rows = [(k, v if isinstance(v, str) else f"{v:,.0f}") for k, v in found.items()]
                yield Table(title=title, columns=columns, rows=tuple(rows))


@dataclass(frozen=True)
class _Pair:
    what: str
    beside: str
    counted: tuple[int, int]  # in ours and in the other's
    own: Callable[[], float]  # s
    other: Callable[[], float]
    clock: str = "processor"


def measure(folder: Path, *, events: int, rounds: int, parts: Sequence[str] = PARTS) -> WholeBench:
    """Measure the rows of these parts, on the disk of this folder."""
    before, left_out = os.getloadavg()[0], {}
    limits: dict[str, float] = {}
    episodes: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=folder.resolve(), prefix=".bench-") as name:
        scratch = Path(name)
        pairs = [pair for part in parts if part in _MADE for pair in _MADE[part](scratch, events)]
        for package, (extra, log) in _LOGGERS.items() if "log" in parts else ():
            if find_spec(package) is None:
                left_out[f"{_RECORDED}, {package}"] = f"it is not installed: extra {extra}"
            else:
                pairs.append(_logging(scratch, max(events // 1_000, 5), package, log))
        taken = in_turns([(pair.own, pair.other) for pair in pairs], rounds=rounds)
        rows = [_row(pair, seconds) for pair, seconds in zip(pairs, taken, strict=True)]
        if "verify" in parts:
            thousands = scratch / "thousands"
            limits = ledger.measure_limits(thousands, scratch, events=events, rounds=rounds)
    if "train" in parts and find_spec("torch") is None:
        left_out["a step trained, watched"] = "PyTorch is not installed: extra train"
    elif "train" in parts:
        rows.append(_training(rounds))
    if "episodes" in parts and find_spec("torch") is None:
        left_out["an episode"] = "PyTorch is not installed: extra train"
    elif "episodes" in parts:
        episodes = {name: _episodes(rounds, gain=name == "gain") for name in ("gain", "val_loss")}
    return WholeBench(
        **Conditions.since(before, rounds=rounds),
        events=events,
        rows=rows,
        limits=limits,
        left_out=left_out,
        episodes=episodes,
    )


def _episodes(rounds: int, *, gain: bool) -> float:
    """Return the episodes a minute of an agent that takes the first remedy that fits."""
    from proctor.environment.trainer import Trainer, episode_config  # noqa: PLC0415 - needs torch

    trainer, taken = Trainer(portable=False), list[float]()
    for seed in range(rounds + 1):
        begun = time.perf_counter()
        told: dict[str, Any] = {
            "record": None,
            "policy": {},
            "process": False,
            "words": False,
            "waiting": gain,
        }
        now = trainer.begin({"config": episode_config({"seed": seed}).to_dict(), **told})
        while "end" not in now:
            now = trainer.answer(
                {"choice": next((n for n, fits in enumerate(now["mask"]) if n and fits), 0)}
            )
        taken.append(time.perf_counter() - begun)
    trainer.close()
    return 60 / median(taken[1:])  # the first one starts the process


def _row(pair: _Pair, taken: Sequence[Sequence[float]]) -> Row:
    own, other = (
        [seconds / count for seconds in each]
        for count, each in zip(pair.counted, zip(*taken, strict=True), strict=True)
    )
    return Row(
        what=pair.what,
        beside=pair.beside,
        clock=pair.clock,
        counted=pair.counted[0],
        own=median(own),
        other=median(other),
        ratio=Spread.of([b / a for a, b in zip(own, other, strict=True)]),
    )


def _appending(scratch: Path, events: int) -> Iterator[_Pair]:
    for batch, share in ((1, 100), (10, 10), (ledger.BATCH, 1)):
        number = max(events // share, batch)
        given = ledger.make_events(number)
        append = partial(ledger.append_to_ledger, scratch, given, batch)
        unsigned = partial(ledger.append_to_library, scratch, given, batch)
        what = f"append in batches of {batch:,}" if batch > 1 else "append single events"
        sizes = (number, number)
        yield _Pair(what, "unsigned recorder", sizes, _processor(append), _processor(unsigned))
        if batch == ledger.BATCH:
            path = scratch / "appended.jsonl"
            chain = partial(timed, partial(ledger.write_chain, path, events=number))
            yield _Pair(what, "JSON lines", sizes, _processor(append), _processor(chain))

    number = max(events // 100, PRODUCERS[-1]) // PRODUCERS[-1] * PRODUCERS[-1]
    append = partial(
        append_through_notary,
        scratch,
        ledger.make_events(1)[0].state,
        events=number,
        producers=PRODUCERS[-1],
    )
    yield _Pair(
        f"single events of {PRODUCERS[-1]} producers, a notary's time",
        "a tree head for each",
        (number, number),
        _processor(partial(append, together=True)),
        _processor(partial(append, together=False)),
    )


def _processor(work: Callable[[], Any]) -> Callable[[], float]:
    return lambda: float(work().processor)


def _wall(work: Callable[[], Any]) -> Callable[[], float]:
    return lambda: float(work().wall)


def _verifying(scratch: Path, events: int) -> Iterator[_Pair]:
    lines = max(events // 5, 100)
    chain = scratch / "chain.jsonl"
    ledger.write_chain(chain, events=lines)
    verify_chain = partial(timed, partial(ledger.verify_chain, chain))

    def side(directory: Path, **options: Any) -> Callable[[], Any]:
        return lambda: timed(lambda: ledger.held(check_ledger(directory, **options)))

    thousands = ledger.written(scratch / "thousands", events=events, batch=ledger.BATCH)
    tens = ledger.written(scratch / "tens", events=max(events // 10, 10), batch=10)
    tried: tuple[tuple[str, Path, int, dict[str, Any]], ...] = (
        ("newest signature, batches of 1,000", thousands, events, {"signatures": "newest"}),
        ("every signature, batches of 1,000", thousands, events, {}),
        ("every signature, batches of 10", tens, max(events // 10, 10), {}),
    )
    for what, directory, size, options in tried:
        yield _Pair(
            f"verify, {what}",
            "JSON lines",
            (size, lines),
            _processor(side(directory, **options)),
            _processor(verify_chain),
        )
    bundle = scratch / "bundle"
    export_bundle(thousands, bundle)
    yield _Pair(
        "verify, a bundle",
        "JSON lines",
        (events, lines),
        _processor(lambda: timed(lambda: ledger.held(check_bundle(bundle)))),
        _processor(verify_chain),
    )
    for what, directory, size, options in (tried[0], tried[2]):
        yield _Pair(
            f"verify, {what}, {ledger.CORES} processes",
            "JSON lines, 1 process",
            (size, lines),
            _wall(side(directory, **options, processes=ledger.CORES)),
            _wall(verify_chain),
            "wall",
        )


def _rebuilding(scratch: Path, events: int) -> Iterator[_Pair]:
    write_runs(scratch / "pattern")
    with open_source(scratch / "pattern") as source:
        pattern = list(source.entries(start=0))
    directory = scratch / "projected"
    projections.write(directory, pattern, events=events)

    def rebuild() -> float:
        return projections.rebuilt(directory).processor

    def decode() -> float:
        return projections.worked("decode", directory).processor

    yield _Pair("build the tables", "read and decode", (events, events), rebuild, decode)


def _asking(scratch: Path, events: int) -> Iterator[_Pair]:
    """Compare the cookbook's questions to our tables with the same questions to Parquet files."""
    database, files = scratch / "cookbook.duckdb", scratch / "parquet"
    files.mkdir()
    fill(database, rows=events)
    stored = duckdb.connect(":memory:")
    create_schema(stored)
    with closing(duckdb.connect(str(database))) as connection:
        listed = "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'log'"
        for (table,) in connection.execute(listed).fetchall():
            path = str(files / f"{table}.parquet").replace("'", "''")
            connection.execute(f"COPY log.{table} TO '{path}'")
            stored.execute(f"DROP TABLE log.{table}")
            stored.execute(f"CREATE VIEW log.{table} AS FROM '{path}'")
    questions = [recipe.sql for recipe in recipes()]

    def tables() -> float:
        with closing(duckdb.connect(str(database), read_only=True)) as connection:
            return _answered(connection, questions)

    sizes = (len(questions), len(questions))
    yield _Pair(
        "cookbook, a question",
        "DuckDB on Parquet",
        sizes,
        tables,
        lambda: _answered(stored, questions),
    )


def _answered(connection: duckdb.DuckDBPyConnection, questions: list[str]) -> float:
    return timed(lambda: [connection.execute(sql).fetchall() for sql in questions]).processor


def _logging(scratch: Path, epochs: int, package: str, log: Callable[[Path, int], None]) -> _Pair:
    """Compare recording epochs, rules included, with logging their numbers."""
    numbers = count()
    log(scratch / f"{package}-imported", 1)

    def record() -> float:
        place = scratch / f"recorded-beside-{package}-{next(numbers)}"
        return timed(lambda: write_runs(place, epochs=epochs)).processor

    def beside() -> float:
        place = scratch / f"{package}-{next(numbers)}"
        return timed(lambda: log(place, epochs)).processor

    return _Pair(_RECORDED, package, (epochs, epochs), record, beside)


def _log_to_tensorboard(folder: Path, epochs: int) -> None:
    from tensorboardX import SummaryWriter  # noqa: PLC0415 - an extra

    with closing(SummaryWriter(str(folder))) as writer:
        for epoch in range(epochs):
            for name, value in _numbers(_measured(epoch)):
                writer.add_scalar(name, value, epoch)
            writer.flush()


def _log_to_mlflow(folder: Path, epochs: int) -> None:
    """Log as an epoch ends: its numbers with one call, into MLflow's file store."""
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # read when it is imported
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    from mlflow import MlflowClient  # noqa: PLC0415 - an extra
    from mlflow.entities import Metric  # noqa: PLC0415

    client = MlflowClient(tracking_uri=folder.resolve().as_uri())
    run = client.create_run(client.create_experiment("bench")).info.run_id
    for epoch in range(epochs):
        numbers = _numbers(_measured(epoch))
        metrics = [Metric(name, value, epoch, epoch) for name, value in numbers]
        client.log_batch(run, metrics=metrics)
    client.set_terminated(run)


def _numbers(value: Any, name: str = "epoch") -> Iterator[tuple[str, float]]:
    """Yield the numbers of a measured part, each with its place."""
    if isinstance(value, int | float):
        yield name, value
    elif isinstance(value, dict | list):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in parts:
            yield from _numbers(part, f"{name}/{key}")


def _training(rounds: int) -> Row:
    from studies.speed.monitor import measure_smallest  # noqa: PLC0415 - torch

    cost = measure_smallest(epochs=rounds)
    step = cost.step_ms / 1_000
    return Row(
        what="a step trained, watched",
        beside=f"bare loop, {cost.model}",
        clock="processor",
        counted=1,
        own=step * median(cost.watched),
        other=step,
        ratio=Spread.of([1 / ratio for ratio in cost.watched]),
    )


# Package -> the extra that brings it, and what logs so many epochs into a folder.
_LOGGERS: Mapping[str, tuple[str, Callable[[Path, int], None]]] = {
    "tensorboardX": ("tensorboard", _log_to_tensorboard),
    "mlflow": ("mlflow", _log_to_mlflow),
}
_MADE: Mapping[str, Callable[[Path, int], Iterator[_Pair]]] = {
    "append": _appending,
    "verify": _verifying,
    "tables": _rebuilding,
    "questions": _asking,
}


def write_runs(directory: Path, *, epochs: int = 40, layers: int = _LAYERS) -> None:
    """Record a made-up run: what the other measurements repeat where no home is given."""
    rules = PROFILES["calibrated"]
    run = Run.start(
        config={"epochs": epochs, "profile": "calibrated", "waived": []},
        rules=rules.to_dict(),
        spec=_SPEC.to_dict(),
        data={"dataset": "shapes", "sizes": {"train": 256, "validation": 64}},
        environment={"python": "3", "threads": 1},
        policy={"name": "playbook"},
    )
    with LedgerApplication.open(directory, REGISTRY) as log:
        log.save(run)
        for epoch in range(epochs):
            run.measure_epoch(_measured(epoch, layers), {"seconds": 1.0})
            run.evaluate_rules()
            log.save(run)
        run.end("completed")
        log.save(run)


def _measured(epoch: int, layers: int = _LAYERS) -> dict[str, Any]:
    loss = 2.0 / (epoch + 1)
    return {
        "train": {"loss": loss, "accuracy": 1 - loss / 4, "examples": 256, "steps": 4},
        "validation": {"loss": loss * 1.1, "accuracy": 1 - loss / 3, "examples": 64},
        "gradients": {"finite": True, "signal_to_noise": 1.5, "norm_noise_scale": 300.0},
        "layers": [
            {
                "name": f"blocks.{number}.weight",
                "rank": 4,
                "grad_norm": 1.0 + 0.01 * epoch,
                "update_ratio": 2e-3,
                "epoch_update_ratio": 2e-3,
            }
            for number in range(layers)
        ],
        "activations": [
            {
                "name": f"blocks.{number}.act",
                "units": 8,
                "dead_units": 0,
                "sparsity": 0.5,
                "p50": 0.0,
                "p99": 2.5,
            }
            for number in range(layers // 2)
        ],
        "settings": {"lr": 0.1, "batch_size": 64, "accumulation": 1, "clip_norm": None},
    }
