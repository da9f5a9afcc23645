"""Forks: runs that go on from a recorded epoch of another one, with other decisions.

The parent's state is rebuilt once (judge/auditing/reexecution.py), and each fork starts from it.
Nothing is recorded before the state is there.

Trust: the parent comes from a ledger that has just been verified.
I/O: reads the home; trains; appends to the log.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aggregates.decisions import Said
from aggregates.errors import AggregateError
from aggregates.forks import Fork, Order, fork_of, shared_digest, shared_events
from aggregates.rules import PROFILES
from aggregates.run import Run
from judge.auditing.events import HOSTILE, decode_events
from judge.auditing.reexecution import Rebuilt, rebuild, verify_epoch
from judge.config import JudgeConfig
from ledger.errors import LedgerError
from ledger.verification.verified_entries import VerifiedEntry
from monitor.config import RunConfig
from monitor.environment import describe_environment, other_kind
from policies.deciding.recorded import RecordedPolicy
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.runs.jobs import Job, data_of
from proctor.runs.policies import PolicyChoice
from proctor.runs.replay import folded, read_recording


@dataclass(frozen=True)
class Parent:
    """A run as the verified ledger has it."""

    entries: Sequence[VerifiedEntry]
    events: Sequence[Any]
    run: Run

    @property
    def policy(self) -> RecordedPolicy:
        """The policy that says again what was said then."""
        return RecordedPolicy(self.run.decisions, self.run.policy)


@dataclass(frozen=True)
class Origin:
    """Where forks start: the parent's state after an epoch."""

    parent: Parent
    rebuilt: Rebuilt
    digest: str

    def job(
        self,
        home: Home,
        *,
        run: str,
        order: int,
        said: Sequence[Said],
        then: PolicyChoice | None,
    ) -> Job:
        """Return the job of a fork with this order of the examples."""
        parent, epoch = self.parent.run, self.rebuilt.epoch
        above = fork_of(self.parent.events)
        orders = tuple(o for o in (above.orders if above else ()) if o.after < epoch)
        if order:
            orders = (*orders, Order(epoch, order))
        elif above is not None:  # an order that begins right here is the parent's own
            orders = tuple(o for o in above.orders if o.after <= epoch)
        fork = Fork(str(parent.id), epoch, self.digest, self.rebuilt.sha256, orders)
        config = RunConfig.from_dict(parent.config)
        return Job(home.path, run, config, then, fork=fork, said=tuple(said))


def read_parent(home: Home, name: str) -> Parent:
    """Verify the ledger and read a run from it; raises ProctorError for what is no run."""
    found = read_recording(home, name)
    events = decode_events(found.entries)
    if type(events[0]) is not Run.Started:
        raise ProctorError(
            f"{found.run_id} is a campaign or comparison; give one of its runs: `proctor log` "
            "lists them"
        )
    try:
        run = folded(events)
    except (AggregateError, *HOSTILE) as error:
        raise ProctorError(f"run {found.run_id} does not replay: {error}") from error
    return Parent(found.entries, events, run)


def rebuild_state(
    home: Home,
    parent: Parent,
    epoch: int,
    *,
    from_start: bool = False,
    config: JudgeConfig | None = None,
) -> Rebuilt:
    """Rebuild a run's state after an epoch; raises JudgeError or ProctorError saying why not.

    Snapshots count only on the kind of machine and code that made them: anything else has to come
    to the same values from the start.
    """
    here = describe_environment(RunConfig.from_dict(parent.run.config)) if _ours(parent) else {}
    other = other_kind(parent.run.environment, here)
    return rebuild(
        parent.events,
        parent.policy,
        epoch,
        blobs=None if from_start or other else home.blobs,
        config=config,
    )


def find_origin(
    home: Home,
    parent: Parent,
    epoch: int,
    *,
    from_start: bool = False,
) -> Origin:
    """Return where forks after an epoch start, with everything checked that they will need."""
    run = parent.run
    verify_epoch(parent.events, epoch)
    if _ours(parent):
        config = RunConfig.from_dict(run.config)
        if config.edits == "restart":
            raise ProctorError(
                f"run {run.id} restarts for structural changes (edits = restart), and a fork has "
                "no run that follows it; train the run with edits=live"
            )
        if run.forked_at is not None and run.rules.kept_states:
            raise ProctorError(
                f"run {run.id} is a fork whose rules keep states to go back to, and which states "
                "its parent had is not recorded in it; fork the run at the beginning of the chain"
            )
        if (trials := run.trying(epoch)) is not None:
            raise ProctorError(
                f"epoch {epoch} of run {run.id} is a trial of decision {trials.decision}, and a "
                f"fork has no states of the other trials; fork the run at epoch {trials.asked}"
                + (f" or after epoch {last}" if (last := trials.epochs[-1]) < run.epoch else "")
            )
        if run.rules != PROFILES[config.profile]:
            raise ProctorError(
                f"run {run.id} has an older version of the rules; train it again to fork it"
            )
        for event in shared_events(parent.events, epoch):
            if type(event) is Run.WeightsSaved:
                _verify_weights(home, event)  # a fork that gains nothing hands them in
        splits = data_of(config)
        if dict(splits.fingerprints) != run.data.get("fingerprints"):
            raise ProctorError(
                f"the data of run {run.id} has changed since it was trained: its fingerprints "
                "differ; restore the data, or train the run again"
            )
    rebuilt = rebuild_state(
        home,
        parent,
        epoch,
        from_start=from_start,
        config=JudgeConfig.for_own_run(),
    )
    home.blobs.put(rebuilt.state)
    return Origin(parent, rebuilt, shared_digest(parent.events, epoch))


def _verify_weights(home: Home, saved: Run.WeightsSaved) -> None:
    try:
        home.blobs.get(saved.sha256)
    except LedgerError as error:
        raise ProctorError(
            f"the weights of epoch {saved.epoch}, which a fork starts with, cannot be used: {error}"
        ) from error


def _ours(parent: Parent) -> bool:
    return not {"task", "level"} & set(parent.run.config)
