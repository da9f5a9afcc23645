"""Both arms of a comparison: the files that each answers from, and whose turn it is.

Both arms of a pair are asked one after the other, in an order that is drawn: whatever disturbs the
machine disturbs either arm as often. A stochastic pair's seed is drawn for it alone. Several pairs
can be asked at once, each by one process; their answers come in the order in which the pairs were
drawn, so that nothing else depends on how many there are.

Before that, the line's own commit has to get ready for one of the tasks: what cannot be started
can be compared with nothing, and no proposal is to blame.

Trust: the code of either arm is hostile, and told neither its arm nor its task.
I/O: the workplace; processes for the tasks.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from judge.gauntlet.errors import GauntletError
from judge.gauntlet.repository.compiled import compile_modules
from judge.gauntlet.repository.failures import explained, fails_to_import
from judge.gauntlet.repository.manifest import Manifest
from judge.gauntlet.tasks.benchmark import (
    ARMS,
    Arm,
    Arms,
    TaskResult,
    Turn,
    drawn_seed,
    export,
    seed_of,
)
from judge.gauntlet.tasks.hidden_tests import BY_MODEL
from judge.gauntlet.tasks.reference_set import Task
from judge.gauntlet.tasks.scoring import QUESTION, Drawing, Score
from judge.gauntlet.tasks.scoring import Ask as AskOne
from judge.gauntlet.workplace import Workplace


@dataclass(frozen=True, kw_only=True)
class Asking:
    """Asks arms, in this process or in several others."""

    place: Workplace
    arms: Arms

    def ask(self, task: Task) -> TaskResult:
        """Return the worth of the base's answer to a task."""
        return next(self.each([Turn(task=task, seed=seed_of(task, 0))]))

    def each(self, turns: Sequence[Turn]) -> Iterator[TaskResult]:
        """Yield what the answers are worth, in the order of the turns."""
        asked = [self._elsewhere(turn) for turn in turns]
        try:
            for turn, future in zip(turns, asked, strict=True):
                yield from self._answers(turn, future)
        finally:
            for future in asked:
                if future is not None:
                    future.cancel()

    def _elsewhere(self, turn: Turn) -> Future[list[TaskResult]] | None:
        if self.place.others is None or turn.task.scorer == BY_MODEL:
            return None
        try:
            return self.place.others(self.arms, turn)
        except BrokenExecutor:
            return None

    def _answers(
        self, turn: Turn, elsewhere: Future[list[TaskResult]] | None
    ) -> Iterable[TaskResult]:
        if elsewhere is not None:
            try:
                return elsewhere.result()
            except BrokenExecutor:  # a process was killed: its turn is taken again
                told = "a process that asks was killed; asking here"
                self.place.tell(str(self.place.line_id), told)
        return self.arms.answer(turn, self.place.scorers)


@contextmanager
def answering(
    place: Workplace, commits: Mapping[Arm, str], manifest: Manifest, tasks: Iterable[Task]
) -> Iterator[Asking]:
    """Give what asks the commits, each of which has its files in a folder of its own.

    The first commit is the line's own. Raises GauntletError where it cannot answer at all.
    """
    with place.scratch() as scratch:
        trees: dict[Arm, Path] = {}
        for arm in place.random.sample([*commits], k=len(commits)):
            trees[arm] = Path(tempfile.mkdtemp(dir=scratch))  # its name tells no arm
            export(place.repository, commits[arm], manifest, trees[arm])
            compile_modules(
                trees[arm],
                kept=place.repository.compiled,
                scratch=scratch,
                environment=manifest.interpreter,
                leave=manifest.is_test,
            )
        asking = Asking(place=place, arms=Arms(trees=trees, manifest=manifest, scratch=scratch))
        _verify_ready(asking, *next(iter(commits.items())), tasks)
        yield asking


def verify_ready(place: Workplace, commit: str) -> None:
    """Raise GauntletError where a commit of the line's own cannot answer at all."""
    tasks = place.reference_set(commit).tasks
    with answering(place, {"base": commit}, place.manifest(commit), tasks):
        pass


def _verify_ready(asking: Asking, arm: Arm, commit: str, tasks: Iterable[Task]) -> None:
    """Raise GauntletError where a commit of the line's own gets ready for no task, or imports fail.

    That it fails on its tasks in other ways is for a change to correct.
    """
    place, arms, failed = asking.place, asking.arms, None
    for task in tasks:
        ready: list[str] = []

        def once(asked: Task, ask: AskOne, ready: list[str] = ready) -> Score:
            ready.append(asked.task_id)
            ask(QUESTION)
            return Score(success=True, validation_failures=0, metrics={})

        scorers = {
            name: scorer if isinstance(scorer, Drawing) else once
            for name, scorer in place.scorers.items()
        }
        found = next(arms.answer(Turn(task=task, seed=task.seed, arms=(arm,)), scorers))
        if ready and not fails_to_import(found.errors):
            return
        failed = failed or found
    if failed is not None:
        raise GauntletError(
            f"the line's own worker answers no task at {commit}: {failed.problem}: "
            f"{explained(failed.errors, place.repository, commit, arms.manifest)}"
        )


def in_turn(
    wanted: Callable[[], Sequence[tuple[str, int]]],
    tasks: Sequence[Task],
    *,
    random: Random,
    arms: Sequence[Arm] = ARMS,
) -> Iterator[list[Turn]]:
    """Yield the pairs that are wanted together, in a drawn order, until none is.

    `wanted` gives them as wanted_pairs() does, of these tasks. It is asked again when all that it
    wanted has been answered.
    """
    by_id = {task.task_id: task for task in tasks}
    while pairs := wanted():
        yield [
            Turn(
                task=by_id[name],
                repeat=repeat,
                seed=drawn_seed(by_id[name], random),
                arms=tuple(random.sample(arms, k=len(arms))),
            )
            for name, repeat in random.sample(pairs, k=len(pairs))
        ]
