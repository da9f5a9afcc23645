"""What a run takes from other runs: from those that it restarts from, and from one that it forks.

Source: docs/reference/audit.md, steps 2 and 5 to 7.
Trust: what verified entries say is hostile; what is refused raises StepError.
I/O: none; retraining computes in memory.
"""

from collections.abc import Callable, Sequence
from typing import Any

from aggregates.errors import SpecError
from aggregates.forks import Fork, fork_of, shared_digest
from aggregates.provocations import Fault
from aggregates.run import Run
from aggregates.spec import ModelSpec
from judge.auditing.events import HOSTILE, StreamEvents
from judge.auditing.limits import verify_limits
from judge.auditing.record import RunRecord, told
from judge.auditing.reexecution import reexecute
from judge.auditing.replay import replay_run
from judge.auditing.replayed import Replay
from judge.config import JudgeConfig
from judge.errors import JudgeError, StepError
from ledger.bodies import decode_body
from ledger.errors import LedgerError
from ledger.verification.verified_entries import VerifiedEntry
from monitor.answering import Policy
from monitor.config import RunConfig
from monitor.environment import describe_environment, other_kind
from monitor.errors import ConfigurationError, MonitorError

_RESTART = "run.restart_scheduled"
_MAX_PARENTS = 32  # that are replayed and retrained; our own chains have at most 8 restarts


def read_parents(record: RunRecord, config: JudgeConfig, *, retrained: bool) -> list[Replay]:
    """Replay the runs whose restarts led to this one, as step 5 replays the run itself.

    A parent that scheduled no restart hands nothing on, and neither does what is above it.
    `retrained`: the limits are those of an audit that trains them again.
    """
    found: list[Replay] = []
    child = record.entries
    family = [StreamEvents(child)]
    for entries in record.chain:
        if not any(entry.name == _RESTART for entry in entries):
            break
        run = entries[0].stream_id
        if len(found) == _MAX_PARENTS:
            raise JudgeError(f"run {record.run} descends from more than {_MAX_PARENTS} runs")
        if entries[-1].index > child[0].index:
            raise StepError(f"parent run {run} had not ended when its child started")
        family.append(StreamEvents(entries))
        verify_limits(family[-1], config, retrained=retrained, also=family[:-1])
        try:
            found.append(replay_run(entries))
        except StepError as error:
            raise StepError(f"parent run {run}: {error}", **error.evidence) from error
        child = entries
    return found


def start_problems(record: RunRecord, replay: Replay, parents: Sequence[Replay]) -> list[str]:
    """Return why the architecture of a run or of a parent does not follow from the decisions."""
    runs = [("", replay), *((f"parent run {each.run.id}: ", each) for each in parents)]
    return [
        f"{which}{problem}"
        for (which, each), above in zip(runs, [*record.chain, ()], strict=False)
        for problem in (*_initial_spec_problems(each, above), *each.spec_problems)
    ]


def _initial_spec_problems(replay: Replay, parent: Sequence[VerifiedEntry]) -> list[str]:
    """Return why a run cannot start from the model that it does; `parent` are the entries."""
    started = replay.started
    if started.parent_run is not None and not parent:
        return [f"parent run {started.parent_run} not found in the ledger"]
    try:
        restarts = [decode_body(e.body)["spec"] for e in parent if e.name == _RESTART]
        expected = (
            ModelSpec.from_dict(restarts[-1])
            if restarts
            else replay.run_config.spec(len(started.data["classes"]))
        )
    except (ConfigurationError, LedgerError, SpecError, KeyError, TypeError) as error:
        return [f"the initial specification cannot be derived: {error}"]
    if ModelSpec.from_dict(started.spec) != expected:
        whose = "the parent run's restart" if restarts else "the configuration"
        return [f"the run starts from a different model than {whose} specifies"]
    return []


def execute_parents(
    parents: Sequence[Replay], policy: Callable[[Run], Policy], config: JudgeConfig
) -> str | None:
    """Retrain the runs whose restarts led to this one; return what makes that inconclusive.

    `policy` answers from a run's recorded decisions. Without this, a parent that nobody trained
    hands any model on. Raises StepError where one gives other values on the same kind of machine.
    """
    for parent in reversed(parents):
        differs = other_kind(parent.started.environment, describe_environment(parent.run_config))
        which = f"parent run {parent.run.id}"
        try:
            found = reexecute(parent.events, policy(parent.run), config=config)
        except JudgeError as error:
            if not differs:
                raise StepError(f"{which}: {error}") from error
            return f"{which}: {error}"
        if found.same:
            continue
        words = f"{which}, retrained: {found.total} of {found.values} values differ"
        if not differs:
            first = found.differences[0].to_dict()
            raise StepError(
                f"{words} from the recorded ones",
                executed={"done": True, "parent": str(parent.run.id), "first": first},
            )
        return f"{words}; it was made with a different {' and '.join(differs)}"
    return None


def compare_fork(record: RunRecord, replay: Replay) -> tuple[Fork | None, dict[str, Any]]:
    """Compare what a fork repeats with what its parent recorded; return the fork and the evidence.

    The parent's part has to be in the ledger before the fork begins, and to give the same
    digest. Its own orders of the examples begin where it does.
    """
    fork = fork_of(replay.events)
    if fork is None:
        return None, {}
    try:
        return fork, {"fork": _compared(fork, record, replay)}
    except HOSTILE as error:
        raise StepError(f"the fork's parent {fork.parent} cannot be read: {error}") from error


def _compared(fork: Fork, record: RunRecord, replay: Replay) -> dict[str, Any]:
    if fork.epoch >= replay.epochs:
        raise StepError(f"the fork of epoch {fork.epoch} has {replay.epochs} epochs only")
    entries = record.forked
    if not entries or entries[0].stream_id == record.run:
        raise StepError(f"the run is a fork of run {fork.parent}, which the ledger lacks")
    first = record.entries[0].index
    events = StreamEvents([entry for entry in entries if entry.index < first])
    if not events or type(events[0]) is not Run.Started:
        raise StepError(f"run {fork.parent} had not started when its fork did")
    above = fork_of(events)
    inherited = tuple(o for o in (above.orders if above else ()) if o.after < fork.epoch)
    if tuple(o for o in fork.orders if o.after < fork.epoch) != inherited:
        raise StepError("the fork's orders of the examples are not those of its parent")
    if not fork.state and events[0].policy != replay.started.policy:
        raise StepError(
            f"the run names another policy than run {fork.parent}, which it goes on from"
        )
    own, parents = (
        shared_digest(each, fork.epoch, decided=not fork.state) for each in (replay.events, events)
    )
    if not own == parents == fork.digest:
        raise StepError(
            f"what the fork records up to epoch {fork.epoch} is not what run {fork.parent} "
            "recorded before it",
            recorded=fork.digest,
            own=own,
            parent=parents,
        )
    saved = replay.run.snapshots.get(fork.epoch, fork.state)
    if saved != fork.state:
        raise StepError(f"the fork starts from another state than the snapshot of {fork.epoch}")
    return {"parent": fork.parent, "epoch": fork.epoch, "digest": own}


def waived_contract(record: RunRecord, replay: Replay) -> tuple[str, ...]:
    """Return what a provocation removed from the run, or from a run that it restarts from."""
    faults = [replay.run_config.fault, *map(_fault_of, record.ancestors)]
    taken = [fault.settings for fault in faults if fault is not None]
    return tuple(
        part
        for part, key, value in (("residual", "residual", False), ("norm", "norm", "none"))
        if any(settings.get(key) == value for settings in taken)
    )


def _fault_of(started: VerifiedEntry) -> Fault | None:
    """Return the fault of an ancestor by its first entry, None where that is no configuration."""
    try:
        return RunConfig.from_dict(told(started, "config")).fault
    except (MonitorError, AttributeError, KeyError, TypeError, ValueError):
        return None
