"""A run told from its events: in order, its state after any of them, or done again.

Trust: what is told comes from a ledger that has just been verified.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any
from uuid import UUID

from aggregates.campaign import Campaign
from aggregates.comparison import Comparison
from aggregates.registry import REGISTRY
from aggregates.run import Run
from judge.auditing.events import decode_events
from ledger.verification.reader import VerifiedLedger
from ledger.verification.verified_entries import VerifiedEntry
from proctor.errors import ProctorError
from proctor.home import Home, find_run
from proctor.output.shape import Answer
from proctor.remembering import open_remembered, tell_aside


@dataclass(frozen=True)
class Recording:
    """The verified entries of a run or a campaign."""

    run_id: UUID
    entries: list[VerifiedEntry]

    def state(self, after: int | None = None) -> Any:
        """Return the aggregate as it stood after its first `after` events, by default after all.

        Events that cannot be read, or do not fit what came before, change nothing.
        """
        count = len(self.entries) if after is None else after
        if not 1 <= count <= len(self.entries):
            raise ProctorError(
                f"{self.run_id} has events 1 to {len(self.entries)}; there is no {count}"
            )
        state, aside = _folded_as_far_as_readable(self.entries[:count])
        tell_aside(aside)
        if state is None:
            raise ProctorError(f"{self.run_id} has no state: its first event cannot be read")
        return state


def _folded_as_far_as_readable(entries: Sequence[VerifiedEntry]) -> tuple[Any, list[int]]:
    """Return the aggregate of some entries, and the indexes of those that it had to leave out."""
    aside: list[int] = []
    while True:
        state: Any = None
        for entry in entries:
            if entry.index in aside:
                if state is not None:
                    state._version = entry.stream_version
                continue
            try:
                state = folded(decode_events([entry]), state)
            except Exception:
                aside.append(entry.index)  # it may be half applied: begin again without it
                break
        else:
            return state, aside


def folded(events: Sequence[Any], state: Any = None) -> Any:
    """Apply events to an aggregate, or to none, and return it."""
    return reduce(lambda state, event: event.mutate(state), events, state)


def audited_run(entry: VerifiedEntry, name: str = "audit.started") -> str | None:
    """Return the run that an entry begins an audit of; None for any other or unreadable entry.

    With `credit.started`, the run whose decisions are measured.
    """
    if entry.name != name:
        return None
    body = REGISTRY.readable(entry.name, entry.body)
    return None if body is None else str(body["run"])


def find_verified_run(ledger: VerifiedLedger, name: str) -> UUID:
    """Return the run of a verified ledger that `name` means; raises ProctorError."""
    called = run_names(ledger)
    return find_run([*called], name, called)


def run_names(ledger: VerifiedLedger) -> dict[UUID, str]:
    """Return what the runs of a verified ledger are called; the last is what `latest` means."""
    return _by_start(ledger, "run.started")


def _by_start(ledger: VerifiedLedger, *names: str) -> dict[UUID, str]:
    """Return what runs are called, by streams whose first entries can be read.

    The last is what `latest` means.

    Campaigns and comparisons come first, then forks, which `fork --decision` makes by the dozen,
    then the other runs.
    """
    starts, forks = [], set()
    called: dict[UUID, str] = {}
    for entry in ledger.select(names=[*names, "run.forked"]):
        if entry.name == "run.forked":
            if (REGISTRY.readable(entry.name, entry.body) or {}).get("state"):
                forks.add(entry.stream_id)  # a loop that was resumed goes on as the same training
        elif entry.stream_version == 1 and (body := REGISTRY.readable(entry.name, entry.body)):
            starts.append(entry)
            called[entry.stream_id] = called_by(body.get("config"))
    starts.sort(key=lambda each: (each.name == "run.started", each.stream_id not in forks))
    return {entry.stream_id: called[entry.stream_id] for entry in starts}


def called_by(config: object) -> str:
    """Return a run's name as the view `runs` has it: of its data set, or the one it was given."""
    told = config if isinstance(config, Mapping) else {}
    dataset, name = told.get("dataset"), told.get("name")
    return str(name if dataset is None else dataset)


def find_recorded(ledger: VerifiedLedger, name: str) -> UUID:
    """Return the run, campaign or comparison of a ledger that `name` means; raises ProctorError.

    The latest is the run that started last and is no fork.
    """
    names = ("campaign.started", "comparison.started", "run.started")
    called = _by_start(ledger, *names)
    return find_run([*called], name, called)


def read_streams(
    ledger: VerifiedLedger, wanted: Collection[UUID]
) -> dict[UUID, list[VerifiedEntry]]:
    """Return the entries of those of the wanted streams that a verified ledger has."""
    found: dict[UUID, list[VerifiedEntry]] = {}
    for entry in ledger.select(streams=wanted):
        found.setdefault(entry.stream_id, []).append(entry)
    return found


def read_recording(home: Home, name: str) -> Recording:
    """Verify the ledger and read one run, or one campaign, from it."""
    with open_remembered(home) as ledger:
        run_id = find_recorded(ledger, name)
        return Recording(run_id, read_streams(ledger, {run_id})[run_id])


class RunState(Answer):
    """The state of a run after an event."""

    run: UUID
    events: int
    epoch: int
    ended: str | None
    settings: Mapping[str, Any]
    spec: Mapping[str, Any]
    signals: dict[str, Any] | None
    fired: list[str]
    decisions: int
    remedies: list[dict[str, Any]]
    weights: dict[str, dict[str, Any]]  # kind -> epoch and SHA-256
    parent_run: str | None


class CampaignState(Answer):
    """The state of a campaign after an event."""

    campaign: UUID
    events: int
    mode: str
    runs: list[str]
    abandoned: list[str]
    ranking: list[str] | None


class ComparisonState(Answer):
    """The state of a comparison after an event."""

    comparison: UUID
    events: int
    runs: dict[str, str]  # by cell
    done: dict[str, str | None]  # problem, by cell
    ended: bool


def describe_state(
    run: Run | Campaign | Comparison,
) -> RunState | CampaignState | ComparisonState:
    """Return the state of a run, a campaign or a comparison."""
    if isinstance(run, Comparison):
        return ComparisonState.of(
            run,
            comparison=run.id,
            events=run.version,
            runs={str(cell): found for cell, found in run.runs.items()},
            done={str(cell): problem for cell, problem in run.done.items()},
        )
    if isinstance(run, Campaign):
        return CampaignState.of(run, campaign=run.id, events=run.version)
    latest = run.history[-1] if run.history else None
    return RunState.of(
        run,
        run=run.id,
        events=run.version,
        ended=run.end_reason,
        settings=run.settings or {key: run.config.get(key) for key in ("lr", "batch_size")},
        spec=run.spec.to_dict(),
        signals=asdict(latest) if latest else None,
        fired=list(run.fired()),
        decisions=len(run.decisions),
        remedies=[asdict(remedy) for remedy in run.remedies],
        weights={k: {"epoch": w.epoch, "sha256": w.sha256} for k, w in run.weights.items()},
    )
