"""One arm's answers to reference tasks: the candidate in its own process, the scorer in ours.

They talk in lines of JSON, one each way. Each repeat gets a copy of the task's input under a new
name, read-only, and a scratch folder of its own; both are gone before the next one begins, so that
no answer depends on an earlier one.

Source: docs/reference/gauntlet.md, "How a candidate is run".
Trust: answers are bounded in size and time, and read strictly; whatever the candidate does wrong is
its result, in words of ours; errors are only our own.
I/O: processes, and folders below `scratch`.  Units: seconds, bytes.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Literal

from judge.confinement.messages import ResourceLimits
from judge.confinement.supervised import Supervised, discarded
from judge.errors import JudgeError
from judge.gauntlet.errors import CandidateError, GauntletError, NoAnswerError
from judge.gauntlet.repository.git import Repository
from judge.gauntlet.repository.manifest import Manifest
from judge.gauntlet.tasks.hidden_tests import Bench, ByTests
from judge.gauntlet.tasks.reference_set import TASKS, Task, message_of, write_snapshot
from judge.gauntlet.tasks.scoring import Score, Scorer, same
from judge.gauntlet.tasks.scoring import drawn as drawn_task
from ledger.strict_json import read_json

Arm = Literal["base", "candidate"]
ARMS: tuple[Arm, Arm] = ("base", "candidate")
_MAX_OUTPUT = 4 * 2**20
_MOST_ERRORS = 2**14
READY: Mapping[str, bool] = {"ready": True}
"""The only reply to the first message."""
MAX_MESSAGE = 8 * 2**20
_GRACE = 2.0  # s for a candidate to leave when nothing more is asked


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """What one answer was worth."""

    task_id: str
    arm: Arm
    repeat: int  # from 0: the number of the pair of answers
    seed: int
    success: bool
    validation_failures: int
    metrics: Mapping[str, float]
    problem: str | None  # in words of ours
    isolation: tuple[str, ...]  # what was in force while the candidate ran
    missing: bool = False  # there is no answer: counted as a failure, in either arm alike
    errors: bytes = field(default=b"", compare=False, repr=False)  # printed instead of an answer
    cached: bool = False  # from an earlier proposal, as old records have it; it decides nothing
    # Until the answers came, and of the processor for all processes, each from the start of the
    # candidate; None: not measured, or there is no answer.
    seconds: float | None = field(default=None, compare=False)
    cpu_seconds: float | None = field(default=None, compare=False)


def seed_of(task: Task, repeat: int) -> int:
    """Return the seed of a numbered repeat, for answers that are not compared in pairs."""
    if not task.stochastic:
        return task.seed
    from monitor.seeds import derive_seed  # noqa: PLC0415 - torch takes seconds to import

    return derive_seed("repeat", task.seed, repeat)


def drawn_seed(task: Task, random: Random) -> int:
    """Return a seed that nobody can know before the pair is asked; a deterministic task has one."""
    return random.getrandbits(63) if task.stochastic else task.seed


def export(repository: Repository, commit: str, manifest: Manifest, into: Path) -> None:
    """Write the tree that a candidate answers from: without the tasks of the reference set."""
    hidden = f"{manifest.reference_set}/{TASKS}/"
    repository.export(commit, into, keep=lambda path: not f"{path}/".startswith(hidden))


class Conversation(Supervised):
    """A command that is asked and answers, one line of JSON each way, until the block is left."""

    waited = 0.0  # s for answers

    def ask(self, message: object) -> Any:
        """Send one message and return the one answer; raise CandidateError where there is none."""
        line = json.dumps(message, allow_nan=False).encode() + b"\n"
        if len(line) > MAX_MESSAGE:
            raise GauntletError(f"a message of {len(line)} bytes is too long to be sent")
        self._check_quiet()
        begun = time.monotonic()
        self.say(line)
        answer = self.line()
        self.waited += time.monotonic() - begun
        if answer is None:
            raise NoAnswerError(f"there is no answer: {self.end().words}")
        try:
            return read_json(answer)
        except ValueError as error:
            raise CandidateError(f"the answer is malformed: {error}") from error

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        try:
            if kind is None:
                self.say_no_more()
                ended = self.end(grace=_GRACE)
                self._check_quiet()
                if ended.leftovers:
                    raise CandidateError(f"it left {ended.leftovers} processes behind")
        finally:
            super().__exit__(kind, error, trace)

    def _check_quiet(self) -> None:
        if self.unread():
            raise CandidateError("it printed more than the replies it was asked for")


def _weighed(task: Task, conversation: Conversation, scorer: Scorer) -> Score:
    """Return what the answer is worth; raise CandidateError for one that the scorer fails on.

    If that ended the command, a candidate could choose which of its answers are recorded, and no
    later proposal would be judged.
    """
    try:
        return scorer(task, conversation.ask)
    except (JudgeError, ImportError, OSError):  # ours, or this machine's
        raise
    except Exception as error:
        name = type(error).__name__
        raise CandidateError(f"the scorer {task.scorer} fails on the answer: {name}") from error


def run_task(
    task: Task,
    tree: Path,
    manifest: Manifest,
    *,
    scorers: Mapping[str, Scorer],
    arm: Arm,
    scratch: Path,
    repeat: int = 0,
    seed: int | None = None,
) -> TaskResult:
    """Ask one arm for its answer; raise GauntletError only where we cannot run it at all.

    `seed` is the one that was drawn for the pair; by default it follows from the repeat.
    """
    seed = seed_of(task, repeat) if seed is None else seed
    drawn = drawn_task(task.with_seed(seed), scorers)
    missing, errors, cpu_seconds = False, b"", None
    limits = manifest.benchmark
    seconds: float = limits.seconds
    scorer = scorers[drawn.scorer]
    with discarded(scratch) as folder:
        place, own = folder / "input", folder / "scratch"
        place.mkdir()
        own.mkdir()
        write_snapshot(drawn, place)
        if isinstance(scorer, ByTests):
            seconds += scorer.seconds(drawn)
            scorer = partial(scorer.score, bench=Bench(manifest=manifest, scratch=folder))
        conversation = Conversation(
            limits.command,
            tree=tree,
            scratch=own,
            limits=ResourceLimits(
                seconds=seconds,
                memory_bytes=limits.memory_bytes,
                output_bytes=_MAX_OUTPUT,
            ),
            readable=(place,),
            environment=manifest.interpreter,
        )
        try:
            with conversation:
                if not same(conversation.ask(message_of(drawn, place)), READY):
                    raise CandidateError('the first reply is not {"ready": true}')  # noqa: TRY301
                score = _weighed(drawn, conversation, scorer)
            cpu_seconds = conversation.end().cpu_seconds
        except CandidateError as error:
            missing = isinstance(error, NoAnswerError)
            errors = conversation.end().errors[-_MOST_ERRORS:] if missing else b""
            score = Score(success=False, validation_failures=1, metrics={}, problem=str(error))
    return TaskResult(
        task_id=task.task_id,
        arm=arm,
        repeat=repeat,
        seed=seed,
        **vars(score),
        isolation=conversation.isolation,
        missing=missing,
        errors=errors,
        seconds=None if cpu_seconds is None else conversation.waited,
        cpu_seconds=cpu_seconds,
    )


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A task that arms are asked, one after the other."""

    task: Task
    seed: int
    repeat: int = 0
    arms: tuple[Arm, ...] = ("base",)


@dataclass(frozen=True, kw_only=True)
class Arms:
    """Where the files of each arm are, and how it is asked."""

    trees: Mapping[Arm, Path]
    manifest: Manifest
    scratch: Path

    def answer(self, turn: Turn, scorers: Mapping[str, Scorer]) -> Iterator[TaskResult]:
        """Yield what each arm's answer is worth, as run_task() does."""
        for arm in turn.arms:
            yield run_task(
                turn.task,
                self.trees[arm],
                self.manifest,
                scorers=scorers,
                arm=arm,
                scratch=self.scratch,
                repeat=turn.repeat,
                seed=turn.seed,
            )


Others = Callable[[Arms, Turn], Future[list[TaskResult]]]
"""Has another process ask; it knows the scorers, except for a language model's."""
