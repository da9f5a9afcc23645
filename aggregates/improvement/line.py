"""The line: one branch of one repository under the gauntlet, and its chain of checkpoints.

A checkpoint is a version of the infrastructure. Each but the first came with a proposal, or with
several that an operator let through together; a rolled-back one takes its descendants with it.

I/O: none.  Units: seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid5

from eventsourcing.domain import Aggregate

from aggregates.errors import InvariantError

MAX_TEXT = 4_000  # characters of a reason
SETS = ("hidden", "reference")
PURPOSES = ("baseline", "drift", "confirmation")
INSTALLED = "installed"  # root and branch of the line of installed code, which has no repository
_LINES = UUID("5b0c4f0e-6f0a-5d8c-9a1e-4a0b0d1f2c3e")


@dataclass(frozen=True)
class Checkpoint:
    """One version of the infrastructure."""

    id: str
    parent: str | None
    commit: str
    tree: str
    proposals: tuple[str, ...]  # none: the line began here
    rolled_back: str | None = None  # why it does not stand; the first reason, if there are several
    code: str | None = None  # SHA-256 of what in it decides a run


@dataclass(frozen=True)
class Alarm:
    """What an operator has to answer."""

    number: int  # from 1
    kind: str
    checkpoint: str
    detail: str


class Line(Aggregate):
    """A chain of checkpoints, rebuilt from its events."""

    class Opened(Aggregate.Created):
        """The original baseline, which everything later is measured against."""

        root: str  # the repository's first commit
        branch: str
        checkpoint: str
        commit: str
        tree: str
        manifest: str  # SHA-256
        reference_set: str  # SHA-256
        code: str | None  # SHA-256 of what in it decides a run; None: recorded before that was

    class Promoted(Aggregate.Event):
        """The line moves to a new checkpoint."""

        checkpoint: str
        parent: str
        proposals: list[str]
        commit: str
        tree: str
        manifest: str
        reference_set: str
        code: str | None

        def apply(self, aggregate: "Line") -> None:
            """Add the checkpoint; it is the active one."""
            found = Checkpoint(
                self.checkpoint,
                self.parent,
                self.commit,
                self.tree,
                tuple(self.proposals),
                code=self.code,
            )
            aggregate.add(found)
            if aggregate.valley is not None:
                aggregate.valley["passed"] += 1

    class Adopted(Aggregate.Event):
        """People changed the line by commits of their own: a checkpoint without a proposal."""

        checkpoint: str
        parent: str
        commit: str
        tree: str
        manifest: str
        reference_set: str
        envelope: str  # an operator's signature
        code: str | None

        def apply(self, aggregate: "Line") -> None:
            """Add the checkpoint; it is the active one."""
            found = Checkpoint(
                self.checkpoint, self.parent, self.commit, self.tree, (), code=self.code
            )
            aggregate.add(found)

    class RolledBack(Aggregate.Event):
        """A checkpoint and all that descend from it are not to be trusted."""

        checkpoint: str
        to: str  # the checkpoint that is active from now on
        reason: str

        def apply(self, aggregate: "Line") -> None:
            """Mark it with its descendants."""
            aggregate.rollbacks[self.checkpoint] = self.reason
            for checkpoint in aggregate.descendants(self.checkpoint):
                aggregate.mark(checkpoint, self.reason)
            aggregate.active = self.to

    class Halted(Aggregate.Event):
        """A proposal reached for the controller: nothing goes on before an operator answers."""

        proposal: str
        reason: str

        def apply(self, aggregate: "Line") -> None:
            """Stop."""
            aggregate.halt = self.reason
            aggregate.halted_by = self.proposal

    class Resumed(Aggregate.Event):
        """The operator's answer to a halt."""

        proposal: str
        envelope: str

        def apply(self, aggregate: "Line") -> None:
            """Go on."""
            aggregate.halt = aggregate.halted_by = None

    class ValleyOpened(Aggregate.Event):
        """For these changes, in this order, an operator suspends the comparison.

        The last of them is compared with the checkpoint at which the valley began.
        """

        valley: str  # SHA-256 of what the operator has signed
        steps: list[str]  # SHA-256 of the diffs
        envelope: str
        expires: int  # s

        def apply(self, aggregate: "Line") -> None:
            """Keep what is let through."""
            aggregate.valley = {
                "id": self.valley,
                "steps": list(self.steps),
                "expires": self.expires,
                "envelope": self.envelope,
                "from": aggregate.active,
                "passed": 0,
            }
            aggregate.valleys.add(self.valley)

    class ValleyClosed(Aggregate.Event):
        """The gate is in force again."""

        valley: str
        reason: str

        def apply(self, aggregate: "Line") -> None:
            """Forget the valley."""
            aggregate.valley = None

    class TaskAdmitted(Aggregate.Event):
        """An operator lets a candidate into the reference set."""

        task: str
        sha256: str
        envelope: str

        def apply(self, aggregate: "Line") -> None:
            """Keep the task."""
            aggregate.admitted[self.task] = self.sha256

    class DriftMeasured(Aggregate.Event):
        """What a commit of the line is worth, measured outside of any proposal."""

        checkpoint: str
        commit: str
        set: str  # one of SETS
        sha256: str  # of the set
        tasks: dict[str, dict[str, Any]]
        success: float  # share of tasks

        def apply(self, aggregate: "Line") -> None:
            """Count it."""
            aggregate.measurements += 1

    class DriftAlarmed(Aggregate.Event):
        """What is active is worse than what was promoted, or is not what was promoted."""

        checkpoint: str
        commit: str
        kind: str
        detail: str
        tasks: list[str]

        def apply(self, aggregate: "Line") -> None:
            """Count it; it is open."""
            aggregate.alarms += 1
            found = Alarm(aggregate.alarms, self.kind, self.checkpoint, self.detail)
            aggregate.open_alarms[found.number] = found

    class AlarmAnswered(Aggregate.Event):
        """An operator has looked into an alarm; sums that led to it begin again."""

        alarm: int  # its number
        kind: str
        note: str

        def apply(self, aggregate: "Line") -> None:
            """Close it."""
            del aggregate.open_alarms[self.alarm]

    class Evaluated(Aggregate.Event):
        """What a checkpoint is worth on tasks that were made for this, once."""

        checkpoint: str
        commit: str
        purpose: str  # one of PURPOSES
        number: int  # of that purpose for that checkpoint, from 1
        seed: str | None  # what the tasks were made from; None: it is the set in the repository
        sha256: str  # of the set
        tasks: int
        right: int
        valid: int  # without an answer that was refused
        precision: float | None  # of what was chosen, on average; None: no task tells
        wrong: list[str]  # tasks, by kind and difficulty where they were made
        code: dict[str, int] | None  # files, lines, functions and complexity of tiers 1 and 2

        def apply(self, aggregate: "Line") -> None:
            """Count it."""
            key = (self.checkpoint, self.purpose)
            aggregate.evaluations[key] = self.number

    def __init__(
        self,
        *,
        root: str,
        branch: str,
        checkpoint: str,
        commit: str,
        tree: str,
        manifest: str,
        reference_set: str,
        code: str | None,
    ) -> None:
        self.root = root
        self.branch = branch
        self.manifest = manifest
        self.reference_set = reference_set
        self.checkpoints: dict[str, Checkpoint] = {}
        self.rollbacks: dict[str, str] = {}  # by name, each with its own reason
        self.first = checkpoint
        self.active = checkpoint
        self.halt: str | None = None
        self.halted_by: str | None = None
        self.valley: dict[str, Any] | None = None
        self.valleys: set[str] = set()  # all that ever were; none is opened twice
        self.admitted: dict[str, str] = {}
        self.measurements = 0
        self.alarms = 0
        self.open_alarms: dict[int, Alarm] = {}
        self.evaluations: dict[tuple[str, str], int] = {}  # (checkpoint, purpose) -> how many
        self.add(Checkpoint(checkpoint, None, commit, tree, (), code=code))

    @staticmethod
    def id_of(root: str, branch: str) -> UUID:
        """Return the stream's id: a repository has one line on each branch."""
        return uuid5(_LINES, f"{root} {branch}")

    @staticmethod
    def checkpoint_id(line: UUID, commit: str) -> str:
        """Return the id of the checkpoint that a commit is on this line."""
        return str(uuid5(line, commit))

    @classmethod
    def open(
        cls,
        *,
        root: str,
        branch: str,
        commit: str,
        tree: str,
        manifest: str,
        reference_set: str,
        code: str | None = None,
    ) -> "Line":
        """Put a branch under the gauntlet; where it is now is the original baseline."""
        line = cls.id_of(root, branch)
        return cls._create(
            event_class=cls.Opened,
            id=line,
            root=root,
            branch=branch,
            checkpoint=cls.checkpoint_id(line, commit),
            commit=commit,
            tree=tree,
            manifest=manifest,
            reference_set=reference_set,
            code=code,
        )

    @property
    def head(self) -> Checkpoint:
        """The active checkpoint."""
        return self.checkpoints[self.active]

    def promote(
        self,
        *,
        commit: str,
        tree: str,
        proposals: Sequence[str],
        manifest: str,
        reference_set: str,
        code: str | None = None,
    ) -> str:
        """Move the line to a commit and return the new checkpoint's id."""
        self._check_going()
        if not proposals:
            raise InvariantError("a promotion must name its proposals")
        checkpoint = self._new(commit)
        self.trigger_event(
            self.Promoted,
            checkpoint=checkpoint,
            parent=self.active,
            proposals=list(proposals),
            commit=commit,
            tree=tree,
            manifest=manifest,
            reference_set=reference_set,
            code=code,
        )
        return checkpoint

    def adopt(
        self,
        *,
        commit: str,
        tree: str,
        manifest: str,
        reference_set: str,
        envelope: str,
        code: str | None = None,
    ) -> str:
        """Take over what people committed themselves, as a new checkpoint."""
        self._check_going()
        if self.valley is not None:
            raise InvariantError("a valley is open; nothing can be adopted until it has ended")
        checkpoint = self._new(commit)
        self.trigger_event(
            self.Adopted,
            checkpoint=checkpoint,
            parent=self.active,
            commit=commit,
            tree=tree,
            manifest=manifest,
            reference_set=reference_set,
            envelope=envelope,
            code=code,
        )
        return checkpoint

    def roll_back(self, checkpoint: str, reason: str) -> str:
        """Mark a checkpoint and its descendants; return the one that is active from now on.

        One that was marked with an ancestor can be rolled back by name: it is not to come back.
        """
        found = self.checkpoints.get(checkpoint)
        if found is None or found.parent is None:
            raise InvariantError(f"{checkpoint} is not a checkpoint that can be rolled back")
        if checkpoint in self.rollbacks:
            raise InvariantError(f"checkpoint {checkpoint} is already rolled back")
        active_too = self.active in self.descendants(checkpoint)
        to = found.parent if active_too else self.active
        self.trigger_event(self.RolledBack, checkpoint=checkpoint, to=to, reason=reason[:MAX_TEXT])
        return to

    def stop(self, *, proposal: str, reason: str) -> None:
        """Halt: nothing is promoted before an operator answers."""
        self._check_going()
        self.trigger_event(self.Halted, proposal=proposal, reason=reason[:MAX_TEXT])

    def resume(self, *, envelope: str) -> None:
        """Record the operator's answer."""
        if self.halted_by is None:
            raise InvariantError("the line is not halted")
        self.trigger_event(self.Resumed, proposal=self.halted_by, envelope=envelope)

    def open_valley(
        self, valley: str, *, steps: Sequence[str], envelope: str, expires: int
    ) -> None:
        """Suspend the gate for these proposals, in this order."""
        self._check_going()
        if self.valley is not None or not steps:
            raise InvariantError("only one valley can be open at a time, and it must have steps")
        if valley in self.valleys:
            raise InvariantError(f"valley {valley} was already opened; have a new one signed")
        self.trigger_event(
            self.ValleyOpened, valley=valley, steps=list(steps), envelope=envelope, expires=expires
        )

    def close_valley(self, reason: str) -> None:
        """Bring the gate back into force."""
        if self.valley is None:
            raise InvariantError("no valley is open")
        self.trigger_event(self.ValleyClosed, valley=self.valley["id"], reason=reason[:MAX_TEXT])

    def admit_task(self, task: str, *, sha256: str, envelope: str) -> None:
        """Record that an operator lets this task, with this content, into the reference set."""
        self.trigger_event(self.TaskAdmitted, task=task, sha256=sha256, envelope=envelope)

    def measure(
        self,
        *,
        commit: str,
        set: str,  # noqa: A002 - the field's name
        sha256: str,
        tasks: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Record what a commit is worth on a set of tasks, each {success, metrics}."""
        if set not in SETS or not tasks:
            raise InvariantError(f"the set of a measurement must be {' or '.join(SETS)}")
        right = sum(bool(task["success"]) for task in tasks.values())
        self.trigger_event(
            self.DriftMeasured,
            checkpoint=self.active,
            commit=commit,
            set=set,
            sha256=sha256,
            tasks={name: dict(task) for name, task in tasks.items()},
            success=right / len(tasks),
        )

    def alarm(self, *, commit: str, kind: str, detail: str, tasks: Sequence[str] = ()) -> None:
        """Record that what is active is not as good as it should be."""
        self.trigger_event(
            self.DriftAlarmed,
            checkpoint=self.active,
            commit=commit,
            kind=kind,
            detail=detail[:MAX_TEXT],
            tasks=list(tasks),
        )

    def answer(self, alarm: int, note: str) -> None:
        """Record what an operator says to an alarm that is open."""
        if alarm not in self.open_alarms:
            raise InvariantError(f"no alarm {alarm} is open on this line")
        if not note.strip():
            raise InvariantError("an answer must say what was found")
        kind = self.open_alarms[alarm].kind
        self.trigger_event(self.AlarmAnswered, alarm=alarm, kind=kind, note=note[:MAX_TEXT])

    def evaluate(
        self,
        checkpoint: str,
        *,
        purpose: str,
        seed: str | None,
        sha256: str,
        tasks: int,
        wrong: Sequence[str],
        valid: int,
        precision: float | None,
        code: Mapping[str, int] | None,
    ) -> None:
        """Record what a checkpoint is worth on a set of tasks."""
        if purpose not in PURPOSES or checkpoint not in self.checkpoints:
            raise InvariantError(f"{purpose!r} is not a purpose for an evaluation of {checkpoint}")
        if not 0 < tasks >= max(len(wrong), valid):
            raise InvariantError(f"{len(wrong)} wrong and {valid} valid answers to {tasks} tasks")
        self.trigger_event(
            self.Evaluated,
            checkpoint=checkpoint,
            commit=self.checkpoints[checkpoint].commit,
            purpose=purpose,
            number=self.evaluations.get((checkpoint, purpose), 0) + 1,
            seed=seed,
            sha256=sha256,
            tasks=tasks,
            right=tasks - len(wrong),
            valid=valid,
            precision=precision,
            wrong=list(wrong),
            code=None if code is None else dict(code),
        )

    def add(self, checkpoint: Checkpoint) -> None:
        """Take a checkpoint into the chain as the active one; for events to call."""
        known = self.checkpoints.get(checkpoint.id)
        if known is not None:  # promote() refuses it; an event that repeats one clears no mark
            checkpoint = replace(checkpoint, rolled_back=known.rolled_back)
        self.checkpoints[checkpoint.id] = checkpoint
        self.active = checkpoint.id

    def mark(self, checkpoint: str, reason: str) -> None:
        """Mark one as rolled back, if it is not marked; for events to call."""
        found = self.checkpoints[checkpoint]
        if found.rolled_back is None:
            self.checkpoints[checkpoint] = replace(found, rolled_back=reason)

    def descendants(self, checkpoint: str) -> list[str]:
        """Return a checkpoint and all that descend from it, in the order of the chain."""
        found = [checkpoint]
        for each in self.checkpoints.values():  # parents come first
            if each.parent in found:
                found.append(each.id)
        return found

    def _new(self, commit: str) -> str:
        checkpoint = self.checkpoint_id(self.id, commit)
        if checkpoint in self.checkpoints:
            raise InvariantError(f"commit {commit} is already a checkpoint of this line")
        return checkpoint

    def _check_going(self) -> None:
        if self.halt is not None:
            raise InvariantError(f"the line is halted until an operator answers: {self.halt}")


def without_code(body: dict[str, Any]) -> dict[str, Any]:
    """Lift a checkpoint of version 1 to 2: nobody hashed its code."""
    return {**body, "code": None}
