"""What a run asks of the machine that judges it, compared with the judge's limits before any work.

All of it is recorded by the judged party: numbers of examples, epochs, threads and decisions, and
the specifications of models. Nothing is drawn, built or trained before verify_limits() returns.

Trust: events are hostile.  I/O: none.
Units: activations in bytes of float32; work in multiply-adds, a backward pass as two forward.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from aggregates.errors import SpecError
from aggregates.run import Run
from aggregates.spec import ModelSpec
from judge.auditing.events import HOSTILE
from judge.config import JudgeConfig
from judge.confinement.decoding import confined_decoder
from judge.errors import JudgeError
from monitor.config import RunConfig, TaskConfig, config_of
from monitor.datasets import SPLITS, Reading
from monitor.errors import MonitorError
from monitor.folders import DataLimits

LIMITED = frozenset({"config", "data", "measured", "spec"})  # fields that verify_limits() reads
_PASSES = 3  # forward, and backward as two
_VALIDATION_BATCH = 256  # examples that are validated at once


def judges_reading(config: JudgeConfig) -> Reading:
    """Return how the judge reads data: from its own folder or its own user's, without writing."""
    limits = DataLimits(
        examples=config.max_examples,
        files=config.max_image_files,
        image_bytes=config.max_image_bytes,
        image_pixels=config.max_image_pixels,
    )
    return Reading(
        folder=None if config.data_dir is None else Path(config.data_dir),
        own=True,
        download=False,
        limits=limits,
        decoding=lambda: confined_decoder(limits),
    )


def verify_limits(
    events: Iterable[Any],
    config: JudgeConfig,
    *,
    retrained: bool,
    also: Iterable[Iterable[Any]] = (),
) -> None:
    """Raise JudgeError if the run asks for more than the judge's limits, naming the limit.

    Whether it is to be `retrained` decides whether the work of that counts, together with that of
    `also`: the events of runs that are retrained with it.
    What cannot be read is left to the replay, which says what is wrong with it.
    """
    for name, own in _demands(events):
        found = own
        if name == "max_multiply_adds":
            if not retrained:
                continue
            found += sum(dict(_demands(other)).get(name, 0) for other in also)
        limit = getattr(config, name)
        if found > limit:
            what = name.removeprefix("max_").replace("_", " ")
            raise JudgeError(
                f"the run is above the judge's limits: {found:,} {what}, the limit is {limit:,}; "
                f"to judge it all the same, give --limit {name}={found}"
            )


def _demands(events: Iterable[Any]) -> Iterator[tuple[str, int]]:
    """Yield limits by name, each with what the run asks for, from one pass that keeps no event."""
    started: Any = None  # the first event
    kinds = Counter[type]()
    batch = _VALIDATION_BATCH  # the largest that is computed at once
    specs: set[ModelSpec] = set()
    for event in events:
        started = event if not kinds else started
        kinds[type(event)] += 1
        if type(event) is Run.EpochMeasured:
            batch = max(batch, _batch(event.measured))
        if (spec := _spec(event)) is not None:
            specs.add(spec)
    yield "max_events", kinds.total()
    yield "max_decisions", kinds[Run.DecisionMade]
    yield "max_epochs", kinds[Run.EpochMeasured]
    if not isinstance(started, Run.Started):
        return
    try:
        run = config_of(started.config)
    except (MonitorError, *HOSTILE):
        return
    yield "max_threads", run.threads
    if not isinstance(run, RunConfig):  # a task's processes have limits of their own
        if isinstance(run, TaskConfig):
            yield "max_task_examples", sum(_whole_numbers(started.data).values())
        return
    sizes = {**_whole_numbers(started.data), **_asked(run)}
    yield "max_examples", sum(sizes.values())
    batch, work = max(batch, run.batch_size), 0
    for spec in specs:
        positions = (-(-32 // spec.stem_stride)) ** 2
        yield "max_parameters", _parameters(spec)
        yield "max_activation_bytes", 4 * batch * positions * _channels(spec)
        work = max(work, positions * _parameters(spec))
    yield "max_multiply_adds", _PASSES * work * sizes.get("train", 0) * kinds[Run.EpochMeasured]


def _asked(run: RunConfig) -> dict[str, int]:
    """Return the numbers of examples that the configuration names."""
    asked = (run.train_examples, run.val_examples, run.test_examples)
    return {name: count for name, count in zip(SPLITS, asked, strict=True) if count is not None}


def _whole_numbers(data: Any) -> dict[str, int]:
    """Return the recorded sizes of the splits."""
    sizes = data.get("sizes") if isinstance(data, Mapping) else None
    if not isinstance(sizes, Mapping):
        return {}
    found = {name: sizes.get(name) for name in SPLITS}
    return {name: size for name, size in found.items() if type(size) is int and size > 0}


def _batch(measured: Any) -> int:
    """Return the batch size that an epoch records, 0 where there is none."""
    settings = measured.get("settings") if isinstance(measured, Mapping) else None
    batch = settings.get("batch_size") if isinstance(settings, Mapping) else None
    return batch if type(batch) is int else 0


def _spec(event: Any) -> ModelSpec | None:
    """Return the specification that an event records; steps 5 and 6 check that it follows."""
    spec = getattr(event, "spec", None)
    try:
        return ModelSpec.from_dict(spec) if isinstance(spec, Mapping) else None
    except (SpecError, *HOSTILE):
        return None


def _parameters(spec: ModelSpec) -> int:
    """Return the number of weights in convolutions and the head, which are nearly all."""
    blocks = sum(2 * 9 * spec.channels * block.width for block in spec.blocks)
    return 27 * spec.channels + blocks + spec.channels * spec.classes


def _channels(spec: ModelSpec) -> int:
    """Return how many values of each position a training step keeps for its backward pass."""
    return 3 * spec.channels + sum(4 * spec.channels + 3 * block.width for block in spec.blocks)
