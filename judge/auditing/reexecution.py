"""Retrains a run from its events alone and compares it value by value.

Configuration, seeds, data and decisions are in the events; no language model is asked. On the same
kind of machine all measured values are identical to the last bit. Each event is compared as soon as
the training gives it, and neither side's events are kept.

Source: docs/explanation/determinism.md.
I/O: reads the dataset; trains.  Units: epochs from 0.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aggregates.forks import fork_of, shared_events
from aggregates.registry import REGISTRY
from aggregates.rules import RulesConfig, version_of
from aggregates.run import OWN_ENDS, Run
from aggregates.spec import ModelSpec
from judge.auditing.limits import judges_reading, verify_limits
from judge.auditing.own_model import OUTDATED, data_is_outdated
from judge.compare import Difference, differences
from judge.config import JudgeConfig
from judge.errors import JudgeError
from ledger.blobs import Blobs
from ledger.errors import LedgerError
from ledger.mapper import LedgerMapper, recorded_fields
from monitor.answering import Policy
from monitor.code import code_sha256
from monitor.config import AnyConfig, RunConfig, TaskConfig, config_of
from monitor.environment import other_kind
from monitor.errors import MachineError, MonitorError
from monitor.loop import OnState, prepare, train
from monitor.snapshots import Start, capture
from monitor.state import LiveState

_SHOWN = 50  # differences


@dataclass(frozen=True)
class Retraining:
    """The result of comparing a retrained run with its record."""

    run_id: str
    epochs: int  # that were done again
    whole: bool  # up to the run's own end, and not only a part of it
    events: int  # compared
    values: int  # compared
    total: int  # differences
    differences: tuple[Difference, ...]  # the first of them
    environment: tuple[Difference, ...]  # versions, machine and code, then and now
    kind: tuple[str, ...]  # what of it decides the bits and differs

    @property
    def same(self) -> bool:
        """Whether every value is the same, bit for bit."""
        return self.total == 0


class NoBlobs:
    """Blobs of which only the hashes are wanted: weights are saved at each new minimum."""

    def put(self, content: bytes) -> str:
        """Return the hex SHA-256."""
        return hashlib.sha256(content).hexdigest()

    def get(self, digest: str) -> bytes:
        """Raise KeyError: nothing is kept."""
        raise KeyError(digest)


def reexecute(
    events: Sequence[Any],
    policy: Policy,
    *,
    until_epoch: int | None = None,
    on_epoch: Callable[[Run, dict[str, Any]], None] | None = None,
    config: JudgeConfig | None = None,
    task: Callable[..., Run] | None = None,
    start: Start | None = None,
    on_state: OnState | None = None,
) -> Retraining:
    """Retrain as the run's events say, up to `until_epoch`, and compare the measured values.

    With a `start` this begins at its state; what was recorded before is taken as it is.

    `policy` answers from the recorded decisions. A run that crashed or was interrupted is done
    again up to its last measured epoch. Data is read as the judge's configuration says. `task` is
    train_task() with a task's file, its data and what runs it. Raises JudgeError where that is not
    possible, or above the judge's limits; MachineError where this machine fails at it.
    """
    judge = config or JudgeConfig()
    verify_limits(events, judge, retrained=True)
    if not events or type(events[0]) is not Run.Started:
        raise JudgeError("not the events of a run: the first event is not run.started")
    started, ended = events[0], events[-1]
    if "level" in started.config:
        raise JudgeError(
            "a watched run cannot be trained again: neither its code nor its data are on record"
        )
    reached = max((event.epoch for event in events if type(event) is Run.EpochMeasured), default=-1)
    if reached < 0:
        raise JudgeError("the run has no measured epoch: nothing to retrain")
    if until_epoch is not None and not 0 <= until_epoch <= reached:
        raise JudgeError(f"epoch {until_epoch} is out of range: the run has epochs 0 to {reached}")
    last = reached if until_epoch is None else until_epoch
    whole = last == reached and type(ended) is Run.Ended and ended.reason in OWN_ENDS
    try:
        comparison = _Comparison(events, last=last, whole=whole, cut=last < reached)
        run_config = config_of(started.config)
        common: dict[str, Any] = {
            "policy": policy,
            "until_epoch": None if whole else last,
            "rules": _rules(started, run_config),
            "log": comparison,
            "blobs": NoBlobs(),
            "checkpoint": started.checkpoint,
            "run_id": started.originator_id,
            "on_epoch": on_epoch,
        }
        if isinstance(run_config, TaskConfig):
            if task is None:
                raise JudgeError("the run is of a task, and its file is missing")
            task(run_config, **common)
        else:
            assert isinstance(run_config, RunConfig), "a watched run was refused above"
            _verify_device(run_config, started.environment)
            splits = prepare(run_config, judges_reading(judge))
            here = {"code_sha256": code_sha256()}
            if data_is_outdated(run_config, started.data, started.environment, splits, here):
                raise JudgeError(OUTDATED)
            train(
                run_config,
                spec=ModelSpec.from_dict(started.spec),
                parent_run=started.parent_run,
                campaign=started.campaign,
                splits=splits,
                fork=fork_of(events),
                start=start,
                on_state=on_state,
                **common,
            )
    except MachineError:
        raise  # which tells nothing of the run
    except MonitorError as error:
        raise JudgeError(f"the run cannot be retrained: {error}") from error
    return comparison.result(broken=last == reached and not whole)


@dataclass(frozen=True)
class Rebuilt:
    """The training state of a run after an epoch, before its decisions."""

    epoch: int
    state: bytes
    sha256: str
    since: int | None  # the epoch of the snapshot that it was rebuilt from; None: from the start
    epochs: int  # that were trained for it
    values: int  # that were compared with the record

    @property
    def size(self) -> int:
        """The state's bytes."""
        return len(self.state)


def rebuild(
    events: Sequence[Any],
    policy: Policy,
    epoch: int,
    *,
    blobs: Blobs | None,
    config: JudgeConfig | None = None,
) -> Rebuilt:
    """Rebuild the state after an epoch, from the nearest snapshot in `blobs` or from the start.

    Every value on the way is compared with the record: raises JudgeError where one differs, where
    there is no such epoch, or where a snapshot is missing or was changed.
    """
    which = verify_epoch(events, epoch)
    saved = {e.epoch: e.sha256 for e in events if type(e) is Run.SnapshotSaved}
    # A run that goes back to earlier states has them only where it is trained from the start.
    usable = blobs is not None and not events[0].rules.get("kept_states")
    since = max((at for at in saved if at <= epoch), default=None) if usable else None
    start = None
    if since is not None:
        assert blobs is not None, "it was looked for there"
        start = Start(tuple(shared_events(events, since)), _snapshot(blobs, saved[since], since))
        if since == epoch:
            return Rebuilt(epoch, start.state, saved[since], since, 0, 0)
    found: list[bytes] = []

    def on_state(at: int, live: LiveState) -> None:
        if at == epoch:
            found.append(capture(live))

    again = reexecute(
        events,
        policy,
        until_epoch=epoch,
        config=config,
        start=start,
        on_state=on_state,
    )
    if not again.same or not found:
        first = again.differences[0] if again.differences else None
        why = f", since it was made with another {' and '.join(again.kind)}" if again.kind else ""
        place = f" (first {first.place}: {first.recorded!r}, now {first.found!r})" if first else ""
        raise JudgeError(
            f"{which} does not come out as it was recorded{why}: {again.total} of {again.values} "
            f"values differ{place}. Its state cannot be rebuilt here; use the machine and version "
            "that made it, or train it again with numerics=portable"
        )
    sha256 = hashlib.sha256(found[0]).hexdigest()
    if saved.get(epoch, sha256) != sha256:
        raise JudgeError(
            f"{which}: its snapshot of epoch {epoch} is not the state after that epoch"
        )
    trained = epoch + 1 if since is None else epoch - since
    return Rebuilt(epoch, found[0], sha256, since, trained, again.values)


def verify_epoch(events: Sequence[Any], epoch: int) -> str:
    """Return the name of a run that has this epoch; raises JudgeError for any other."""
    started = events[0] if events else None
    if type(started) is not Run.Started:
        raise JudgeError("not the events of a run: the first event is not run.started")
    which = f"run {started.originator_id}"
    if "task" in started.config or "level" in started.config:
        kind = "a task's" if "task" in started.config else "a watched loop's"
        raise JudgeError(
            f"{which} is {kind}: only the state of a run of the built-in model can be rebuilt; "
            "train one with `proctor run`"
        )
    last = max((each.epoch for each in events if type(each) is Run.RulesEvaluated), default=-1)
    if not 0 <= epoch <= last:
        ended = events[-1].reason if type(events[-1]) is Run.Ended else "open"
        there = f"the epochs 0 to {last}" if last >= 0 else "no measured epoch"
        raise JudgeError(f"{which} ({ended}) has {there}, not epoch {epoch}: choose one of these")
    return which


def _snapshot(blobs: Blobs, sha256: str, epoch: int) -> bytes:
    try:
        return blobs.get(sha256)
    except LedgerError as error:
        raise JudgeError(
            f"the snapshot of epoch {epoch} cannot be used: {error}; or train from the start with "
            "--from-start"
        ) from error


def _verify_device(config: RunConfig, environment: Mapping[str, Any]) -> None:
    """Raise JudgeError for a run that was trained on a GPU where there is none."""
    if config.device == "cuda" and not torch.cuda.is_available():
        raise JudgeError(
            "the run needs a CUDA device, and this machine has none; it was trained on "
            f"{environment.get('device')!r:.200}"
        )


def _rules(started: Any, config: AnyConfig) -> RulesConfig | None:
    """Return the version of the profile that the run recorded, None where it is no version."""
    try:
        rules = RulesConfig(**started.rules)
    except TypeError:
        return None
    return rules if rules.profile == config.profile and version_of(rules) else None


def _is_last(event: Any) -> bool:
    return isinstance(event, Run.WeightsSaved) and event.kind == "last"


class _Comparison:
    """The log of a training that is done again: compares its events with the recorded ones."""

    def __init__(self, recorded: Sequence[Any], *, last: int, whole: bool, cut: bool) -> None:
        self._recorded = _told(recorded, last=last, whole=whole)
        self._started = recorded[0]
        self._cut = cut  # only the shortened training closes with its last weights here
        self._part: dict[str, Any] = {"last": last, "whole": whole}
        self._mapper = LedgerMapper(REGISTRY)
        self._environment: Any = None
        self._events = self._again = self._values = self._total = 0
        self._shown: list[Difference] = []
        self._apart = False  # whether the two tell different stories by now
        self._over = False  # whether the training has told what is to be compared

    def save(self, run: Run, /) -> None:
        """Compare the events that the run has gained."""
        for event in run.collect_events():
            # As a ledger would give it back.
            again: Any = self._mapper.to_domain_event(self._mapper.to_stored_event(event))
            if self._environment is None:
                self._environment = again.environment
            if not self._over and not (self._cut and _is_last(again)):
                told = list(_told([again], **self._part))
                self._over = not told
                for each in told:
                    self._take(each)

    def result(self, *, broken: bool) -> Retraining:
        """Return what was found; where a run was `broken` off, the training would have gone on."""
        for _ in self._next_recorded():  # counts the rest
            pass
        again = min(self._again, self._events) if broken else self._again
        if not self._apart and self._events != again:
            self._add([Difference("number of events", self._events, again)])
        here = self._environment
        return Retraining(
            run_id=str(self._started.originator_id),
            epochs=self._part["last"] + 1,
            whole=self._part["whole"],
            events=self._events,
            values=self._values,
            total=self._total,
            differences=tuple(self._shown),
            environment=tuple(differences(self._started.environment, here)),
            kind=other_kind(self._started.environment, here),
        )

    def _take(self, again: tuple[str, dict[str, Any]]) -> None:
        self._again += 1
        recorded = next(self._next_recorded(), None)
        if recorded is None or self._apart:
            return
        (kind, fields), (kind_again, found) = recorded, again
        place = f"event {self._again}"
        if kind != kind_again:
            self._add([Difference(place, kind, kind_again)])
            self._apart = True  # from here on nothing corresponds
        else:
            self._add(differences(fields, found, place=f"{place} {kind}"))

    def _next_recorded(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for recorded in self._recorded:
            self._events += 1
            self._values += _count(recorded[1])
            yield recorded

    def _add(self, found: Iterable[Difference]) -> None:
        for difference in found:
            self._total += 1
            if len(self._shown) < _SHOWN:
                self._shown.append(difference)


def _told(events: Iterable[Any], *, last: int, whole: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what both trainings have to tell alike: kinds of events with their fields."""
    for event in events:
        fields = recorded_fields(event)
        if fields.get("epoch", 0) > last:
            return
        match event:
            case Run.Started():
                del fields["environment"]  # compared apart: it may differ
            case Run.SnapshotSaved():
                del fields["seconds"]
            case Run.EpochMeasured():
                reported = dict(fields["reported"])
                reported.pop("seconds", None)
                fields["reported"] = reported
            case Run.Ended():
                if not whole:
                    return
                fields = {"reason": event.reason}
        yield REGISTRY.for_class(type(event)).name, fields


def _count(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_count, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_count, value))
    return 1
