"""The line: one branch of one repository under the gauntlet, and its chain of checkpoints.

A checkpoint is a version of the infrastructure. Each but the first came with a proposal, or with
several that an operator let through together; a rolled-back one takes its descendants with it.

I/O: none.  Units: seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any
from uuid import UUID, uuid5

from eventsourcing.domain import Aggregate

from aggregates.errors import InvariantError
from aggregates.events import Cut, Event, First, KeptAs, Since, begins, counted, records

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
    proposals: tuple[str, ...]  # none: people made it
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

    class Opened(First):
        """A branch that the gauntlet manages, with its first checkpoint."""

        root: str  # first commit of the repository
        branch: str
        checkpoint: str = counted()
        commit: str
        tree: str
        manifest: str
        reference_set: str
        code: Annotated[str | None, Since(2, None)] = None

        def stream(self) -> UUID:
            return Line.id_of(self.root, self.branch)

        def check(self) -> dict[str, Any]:
            return {"checkpoint": Line.checkpoint_id(self.stream(), self.commit)}

        def apply(self, line: "Line") -> None:
            """Begin the chain."""
            line.first = self.checkpoint
            line.add(self, None)

    class Halted(Event):
        """A proposal reached for the controller: nothing goes on before an operator answers."""

        proposal: Annotated[str, KeptAs("halted_by")]  # the proposal that touched the controller
        reason: Annotated[str, Cut(MAX_TEXT), KeptAs("halt")]  # the touched files

        def check(self, line: "Line") -> None:
            line.verify_going()

    class Resumed(Event):
        """The operator's answer to a halt."""

        proposal: str = counted("halted_by")  # the proposal that halted the line
        envelope: str

        def check(self, line: "Line") -> None:
            if line.halted_by is None:
                raise InvariantError("the line is not halted")

        def apply(self, line: "Line") -> None:
            line.halt = line.halted_by = None

    class Promoted(Event):
        """The line moves to a new checkpoint."""

        NAME = "checkpoint.promoted"
        checkpoint: str = counted()
        parent: str = counted("active")  # the checkpoint before it; null: the line began here
        proposals: Sequence[str]
        commit: str
        tree: str
        manifest: str
        reference_set: str
        code: Annotated[str | None, Since(2, None)] = None

        def check(self, line: "Line") -> dict[str, Any]:
            line.verify_going()
            if not self.proposals:
                raise InvariantError("a promotion must name its proposals")
            return {"checkpoint": line.new_checkpoint(self.commit)}

        def apply(self, line: "Line") -> None:
            line.add(self, self.parent, tuple(self.proposals))
            if line.valley is not None:
                line.valley["passed"] += 1

    class Adopted(Event):
        """A commit that a person made on the line, adopted by an operator."""

        NAME = "checkpoint.adopted"
        checkpoint: str = counted()
        parent: str = counted("active")  # the checkpoint before it; null: the line began here
        commit: str
        tree: str
        manifest: str
        reference_set: str
        envelope: str
        code: Annotated[str | None, Since(2, None)] = None

        def check(self, line: "Line") -> dict[str, Any]:
            line.verify_going()
            if line.valley is not None:
                raise InvariantError("a valley is open; nothing can be adopted until it has ended")
            return {"checkpoint": line.new_checkpoint(self.commit)}

        def apply(self, line: "Line") -> None:
            line.add(self, self.parent)

    class RolledBack(Event):
        """A checkpoint that was rolled back, with all that descend from it.

        One that was marked with an ancestor can be rolled back by name: it is not to come back.
        """

        NAME = "checkpoint.rolled_back"
        checkpoint: str  # the checkpoint that is rolled back, with all its descendants
        to: str = counted()  # the checkpoint that becomes active
        reason: Annotated[str, Cut(MAX_TEXT)]

        def check(self, line: "Line") -> dict[str, Any]:
            found = line.checkpoints.get(self.checkpoint)
            if found is None or found.parent is None:
                raise InvariantError(
                    f"{self.checkpoint} is not a checkpoint that can be rolled back"
                )
            if self.checkpoint in line.rollbacks:
                raise InvariantError(f"checkpoint {self.checkpoint} is already rolled back")
            active_too = line.active in line.descendants(self.checkpoint)
            return {"to": found.parent if active_too else line.active}

        def apply(self, line: "Line") -> None:
            """Mark it with its descendants."""
            line.rollbacks[self.checkpoint] = self.reason
            for checkpoint in line.descendants(self.checkpoint):
                line.mark(checkpoint, self.reason)
            line.active = self.to

    class ValleyOpened(Event):
        """For these changes, in this order, an operator suspends the comparison.

        The last of them is compared with the checkpoint at which the valley began.
        """

        NAME = "valley.opened"
        valley: str  # SHA-256 of the signed content
        steps: Sequence[str]  # SHA-256 of the allowed diffs, in order
        envelope: str
        expires: int  # in seconds since 1970

        def check(self, line: "Line") -> None:
            line.verify_going()
            if line.valley is not None or not self.steps:
                raise InvariantError(
                    "only one valley can be open at a time, and it must have steps"
                )
            if self.valley in line.valleys:
                raise InvariantError(
                    f"valley {self.valley} was already opened; have a new one signed"
                )

        def apply(self, line: "Line") -> None:
            line.valley = {
                "id": self.valley,
                "steps": list(self.steps),
                "expires": self.expires,
                "envelope": self.envelope,
                "from": line.active,
                "passed": 0,
            }
            line.valleys.add(self.valley)

    class ValleyClosed(Event):
        """The gate is in force again."""

        NAME = "valley.closed"
        valley: str = counted()
        reason: Annotated[str, Cut(MAX_TEXT)]

        def check(self, line: "Line") -> dict[str, Any]:
            if line.valley is None:
                raise InvariantError("no valley is open")
            return {"valley": line.valley["id"]}

        def apply(self, line: "Line") -> None:
            line.valley = None

    class TaskAdmitted(Event):
        """A task, with this content, that an operator added to the reference set."""

        NAME = "task.admitted"
        task: str
        sha256: Annotated[str, KeptAs("admitted", by="task")]  # of its content
        envelope: str

    class DriftMeasured(Event):
        """A measurement of a commit of the line, outside of any proposal."""

        NAME = "drift.measured"
        checkpoint: str = counted("active")  # active checkpoint at the time
        commit: str  # the measured commit
        set: str  # `reference`, or `hidden` for tasks outside the repository
        sha256: str
        tasks: Mapping[str, Mapping[str, Any]]  # task to success and metrics
        success: float = counted()  # share of tasks that succeeded

        def check(self, _: "Line") -> dict[str, Any]:
            if self.set not in SETS or not self.tasks:
                raise InvariantError(f"the set of a measurement must be {' or '.join(SETS)}")
            right = sum(bool(task["success"]) for task in self.tasks.values())
            return {"success": right / len(self.tasks)}

    class DriftAlarmed(Event):
        """An alarm: the line scored worse than the promoted commit, or is another commit."""

        NAME = "drift.alarmed"
        checkpoint: str = counted("active")  # active checkpoint at the time
        commit: str  # commit that raised the alarm
        kind: str  # what kind of alarm
        detail: Annotated[str, Cut(MAX_TEXT)]
        tasks: Sequence[str] = ()  # tasks that raised it

        def apply(self, line: "Line") -> None:
            line.alarms += 1
            found = Alarm(line.alarms, self.kind, self.checkpoint, self.detail)
            line.open_alarms[found.number] = found

    class AlarmAnswered(Event):
        """An operator's answer to an alarm; sums that led to it begin again.

        The view `alarms` is easier to query.
        """

        NAME = "drift.answered"
        alarm: int  # number of the alarm on its line, from 1
        kind: str = counted()  # of the alarm
        note: Annotated[str, Cut(MAX_TEXT)]  # the operator's answer

        def check(self, line: "Line") -> dict[str, Any]:
            if self.alarm not in line.open_alarms:
                raise InvariantError(f"no alarm {self.alarm} is open on this line")
            if not self.note.strip():
                raise InvariantError("an answer must say what was found")
            return {"kind": line.open_alarms[self.alarm].kind}

        def apply(self, line: "Line") -> None:
            del line.open_alarms[self.alarm]

    class Evaluated(Event):
        """An evaluation of a checkpoint on generated tasks."""

        NAME = "checkpoint.evaluated"
        checkpoint: str  # what was evaluated
        commit: str = counted()  # of the checkpoint
        purpose: str  # `baseline`, `drift` or `confirmation`
        number: int = counted()  # number of the evaluation for that purpose and checkpoint, from 1
        seed: str | None  # seed of the tasks, hexadecimal; null: the set in the repository
        sha256: str
        tasks: int  # how many
        right: int = counted()  # number of right answers
        valid: int  # number of tasks without a refused answer
        precision: float | None  # mean precision of the selections; null: no task measures it
        wrong: Sequence[str]  # tasks with a wrong answer
        # files, lines, functions and cyclomatic complexity of tiers 1 and 2; null: not measured
        code: Mapping[str, int] | None

        def check(self, line: "Line") -> dict[str, Any]:
            checkpoint, purpose, wrong = self.checkpoint, self.purpose, len(self.wrong)
            if purpose not in PURPOSES or checkpoint not in line.checkpoints:
                raise InvariantError(
                    f"{purpose!r} is not a purpose for an evaluation of {checkpoint}"
                )
            if not 0 < self.tasks >= max(wrong, self.valid):
                raise InvariantError(
                    f"{wrong} wrong and {self.valid} valid answers to {self.tasks} tasks"
                )
            return {
                "commit": line.checkpoints[checkpoint].commit,
                "number": line.evaluations.get((checkpoint, purpose), 0) + 1,
                "right": self.tasks - wrong,
            }

        def apply(self, line: "Line") -> None:
            line.evaluations[self.checkpoint, self.purpose] = self.number

    root: str
    branch: str
    manifest: str
    reference_set: str
    checkpoints: dict[str, Checkpoint] = field(default_factory=dict)
    rollbacks: dict[str, str] = field(default_factory=dict)  # by name, each with its own reason
    first: str = ""
    active: str = ""
    halt: str | None = None
    halted_by: str | None = None
    valley: dict[str, Any] | None = None
    valleys: set[str] = field(default_factory=set)  # all that ever were; none is opened twice
    admitted: dict[str, str] = field(default_factory=dict)
    alarms: int = 0
    open_alarms: dict[int, Alarm] = field(default_factory=dict)
    # (checkpoint, purpose) -> how many
    evaluations: dict[tuple[str, str], int] = field(default_factory=dict)

    open = begins(Opened)
    promote = records(Promoted, lambda told: told.checkpoint)
    adopt = records(Adopted, lambda told: told.checkpoint)
    roll_back = records(RolledBack, lambda told: told.to)
    stop = records(Halted)
    resume = records(Resumed)
    open_valley = records(ValleyOpened)
    close_valley = records(ValleyClosed)
    admit_task = records(TaskAdmitted)
    measure = records(DriftMeasured)
    alarm = records(DriftAlarmed)
    answer = records(AlarmAnswered)
    evaluate = records(Evaluated)

    @staticmethod
    def id_of(root: str, branch: str) -> UUID:
        """Return the stream's id: a repository has one line on each branch."""
        return uuid5(_LINES, f"{root} {branch}")

    @staticmethod
    def checkpoint_id(line: UUID, commit: str) -> str:
        """Return the id of the checkpoint that a commit is on this line."""
        return str(uuid5(line, commit))

    @property
    def head(self) -> Checkpoint:
        """The active checkpoint."""
        return self.checkpoints[self.active]

    @property
    def trusted(self) -> Checkpoint:
        """The active checkpoint, or the newest before it, that people made: no proposal did."""
        chain = (self.checkpoints[each] for each in self.ancestors(self.active))
        return next(each for each in chain if not each.proposals)

    def add(
        self, told: Opened | Promoted | Adopted, parent: str | None, proposals: tuple[str, ...] = ()
    ) -> None:
        """Take a checkpoint into the chain as the active one; for events to call."""
        self.active = told.checkpoint
        known = self.checkpoints.get(self.active)
        # promote() refuses one that is known; an event that repeats it clears no mark
        mark = None if known is None else known.rolled_back
        self.checkpoints[self.active] = Checkpoint(
            self.active, parent, told.commit, told.tree, proposals, mark, told.code
        )

    def mark(self, checkpoint: str, reason: str) -> None:
        """Mark one as rolled back, if it is not marked; for events to call."""
        found = self.checkpoints[checkpoint]
        if found.rolled_back is None:
            self.checkpoints[checkpoint] = replace(found, rolled_back=reason)

    def ancestors(self, checkpoint: str) -> list[str]:
        """Return a checkpoint and those that it descends from, the newest first."""
        found, here = [], self.checkpoints[checkpoint]
        while True:
            found.append(here.id)
            if here.parent is None:
                return found
            here = self.checkpoints[here.parent]

    def descendants(self, checkpoint: str) -> list[str]:
        """Return a checkpoint and all that descend from it, in the order of the chain."""
        found = [checkpoint]
        for each in self.checkpoints.values():  # parents come first
            if each.parent in found:
                found.append(each.id)
        return found

    def new_checkpoint(self, commit: str) -> str:
        """Return the id of the checkpoint that a commit becomes, if it is none yet."""
        checkpoint = self.checkpoint_id(self.id, commit)
        if checkpoint in self.checkpoints:
            raise InvariantError(f"commit {commit} is already a checkpoint of this line")
        return checkpoint

    def verify_going(self) -> None:
        """Raise InvariantError if the line is halted."""
        if self.halt is not None:
            raise InvariantError(f"the line is halted until an operator answers: {self.halt}")
