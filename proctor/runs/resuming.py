"""Where a watched loop goes on that was broken off: at a checkpoint that the loop has saved.

The run that goes on repeats what the earlier one recorded up to the decisions on the checkpoint's
epoch, so that rules, decided rates and remedies go on; both stay on record (aggregates/forks.py).

Trust: what was saved is compared with the verified ledger.
I/O: reads the home's ledger.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from aggregates.errors import AggregateError, RemedyRefused
from aggregates.forks import repeat, shared_digest, shared_events
from aggregates.run import OWN_ENDS, Run
from judge.auditing.events import HOSTILE, decode_events
from judge.compare import differences
from ledger.paths import LedgerPaths
from monitor.errors import WatchError
from monitor.processes import Processes
from monitor.watching import WatchedRun
from proctor.errors import ProctorError
from proctor.home import Home, find_run
from proctor.remembering import open_remembered
from proctor.runs.replay import folded, read_streams, run_names

Saved = Mapping[str, Any] | str | bool
"""What WatchedRun.state_dict() gave; or a run's id or name; or True: the newest of the name."""

_GIVEN = ("config", "rules", "policy", "spec", "data")  # what follows from watch()'s arguments


@dataclass(frozen=True)
class _Saved:
    """What state_dict() gave."""

    run: str
    epoch: int | None = None
    steps: Annotated[int, msgspec.Meta(ge=1)] | None = None
    from_zero: list[str] = field(default_factory=list)


def _read(saved: Any) -> _Saved:
    try:
        return msgspec.convert(saved, _Saved, strict=True)
    except msgspec.ValidationError as error:
        raise WatchError(
            f"resume= takes what run.state_dict() gave, a run's id or name, or True: {error}"
        ) from error


class Anew:
    """A loop that begins."""

    def lr(self, given: float) -> float:
        """Return the learning rate that the loop began with; `given` is that of its optimizer."""
        return given

    @property
    def told(self) -> list[str]:
        """What is said of it, one line each."""
        return []

    def begin(self, run: Run) -> None:
        """Record in a run that has just started what it repeats; raises WatchError."""

    def go_on(self, watched: WatchedRun) -> None:
        """Put the loop where the repeated epochs have led to."""


@dataclass(frozen=True)
class Resumed(Anew):
    """An earlier run, as far as it is repeated."""

    run: Run  # as it was after the epoch
    events: Sequence[Any]  # all of the earlier run
    saved: "_Saved"

    def lr(self, given: float) -> float:  # noqa: ARG002 - a schedule has moved it meanwhile
        """Return the rate on record."""
        return float(self.run.config["lr"])

    @property
    def told(self) -> list[str]:
        """Where it goes on."""
        return [f"goes on from run {self.run.id} after epoch {self.run.epoch}"]

    def begin(self, run: Run) -> None:
        """Repeat the earlier run."""
        began, begins = self.events[0], run.pending_events[0]
        for name in _GIVEN:
            for each in differences(getattr(began, name), getattr(begins, name), place=name):
                if each.place == "config.epochs":
                    raise WatchError(
                        f"run {self.run.id} was watched with epochs={each.recorded!r:.100}, and "
                        f"watch() has epochs={each.found!r:.100} now: what follows an epoch was "
                        "known to the policy, so it stays; to train on, begin a run of its own "
                        "from your checkpoint, without resume= (a run watched without epochs= goes "
                        "on with any number in run.epochs())"
                    )
                raise WatchError(
                    f"run {self.run.id} was watched with other arguments: {each.place} was "
                    f"{each.recorded!r:.100} and is {each.found!r:.100}; give watch() what it was "
                    "given then, with the model as it was built, or leave resume= out"
                )
        epoch = self.run.epoch
        digest = shared_digest(self.events, epoch, decided=True)
        run.fork(str(self.run.id), epoch=epoch, digest=digest, state="", orders=[])
        for event in shared_events(self.events, epoch, decided=True):
            repeat(run, event)

    def go_on(self, watched: WatchedRun) -> None:
        """Take on the settings of the last repeated epoch."""
        try:
            watched.go_on(steps=self.saved.steps, zero=self.saved.from_zero)
        except RemedyRefused as error:
            raise WatchError(f"run {self.run.id} cannot be resumed: {error}") from error


def find_resumed(home: Home, saved: Saved | None, *, name: str) -> Anew:
    """Return where a loop goes on; it begins anew if nothing was saved, or nothing broken off.

    Raises WatchError or ProctorError.
    """
    if saved is None or saved is False or (saved is True and not LedgerPaths(home.ledger).exist):
        return Anew()
    if Processes.joined().size > 1:
        raise WatchError("resume= goes on in one process, and this loop has several; leave it out")
    told = (
        _Saved(name if saved is True else saved) if isinstance(saved, str | bool) else _read(saved)
    )
    if told.epoch == -1:  # taken before the first epoch
        return Anew()
    with open_remembered(home) as ledger:
        called = run_names(ledger)
        if saved is True and name not in called.values():
            return Anew()
        found = find_run([*called], told.run, called)
        events = decode_events(read_streams(ledger, {found})[found])
    try:
        run = folded(events)
        if saved is True and (run.end_reason in OWN_ENDS or not run.history):
            return Anew()
        return Resumed(_as_after(told.epoch, home, events, run), events, told)
    except (AggregateError, *HOSTILE) as error:
        raise ProctorError(f"run {found} does not replay: {error}") from error


def _as_after(epoch: int | None, home: Home, events: Sequence[Any], run: Run) -> Run:
    """Return a run as it was after an epoch, by default its last; raises WatchError."""
    if "level" not in run.config:
        raise WatchError(f"run {run.id} is no watched loop; `proctor fork` goes on from it")
    if home.is_running(run.id):
        raise WatchError(f"run {run.id} is still being trained by another process; end it first")
    said, epoch = epoch is not None, run.epoch if epoch is None else epoch
    if not 0 <= epoch <= run.epoch:
        has = f"the epochs 0 to {run.epoch}" if run.history else "no epoch"
        raise WatchError(f"run {run.id} has recorded {has}: it cannot go on after epoch {epoch}")
    *_, last = shared_events(events, epoch, decided=True)
    before: Run = folded(events[: last.originator_version])
    if (problem := _problem(before, said)) is not None:
        raise WatchError(
            f"run {run.id} cannot go on after epoch {epoch}: {problem}; go on from the checkpoint "
            "of another epoch, or leave resume= out"
        )
    return before


def _problem(run: Run, said: bool) -> str | None:
    """Return why a loop cannot go on after the latest epoch of a run.

    `said`: by a state that was taken when the epoch was over.
    """
    due = {*run.fired()} - {*run.waived}
    if run.stopped:
        return "a decision has stopped the training"
    if run.trying(run.epoch + 1):
        return "learning rates are being tried, and the states that they began with are lost"
    if due and not said and not any(past.epoch == run.epoch for past in run.decisions):
        return f"it was broken off before {', '.join(sorted(due))} was answered"
    if run.decisions and run.decisions[-1].decision.acts and run.decisions[-1].outcome is None:
        return "it was broken off before a decision was carried out"
    return None
