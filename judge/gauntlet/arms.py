"""Both arms of a comparison: the files that each answers from, and whose turn it is.

Both arms of a pair are asked one after the other, in an order that is drawn: whatever disturbs the
machine disturbs either arm as often. A stochastic pair's seed is drawn for it alone.

Before that, the line's own commit has to get ready for one of the tasks: what cannot be started
can be compared with nothing, and no proposal is to blame.

Trust: the code of either arm is hostile, and told neither its arm nor its task.
I/O: the workplace; processes for the tasks.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Protocol

from judge.gauntlet.errors import GauntletError
from judge.gauntlet.repository.failures import explained, fails_to_import
from judge.gauntlet.repository.manifest import Manifest
from judge.gauntlet.tasks.benchmark import ARMS, Arm, TaskResult, drawn_seed, export, run_task
from judge.gauntlet.tasks.reference_set import Task
from judge.gauntlet.tasks.scoring import QUESTION, Drawing, Score
from judge.gauntlet.tasks.scoring import Ask as AskOne
from judge.gauntlet.workplace import Workplace


class Ask(Protocol):
    """Asks an arm."""

    def __call__(
        self, task: Task, arm: Arm, *, repeat: int = 0, seed: int | None = None
    ) -> TaskResult:
        """Return its answer's worth, as run_task() does."""


@contextmanager
def answering(
    place: Workplace, commits: Mapping[Arm, str], manifest: Manifest, tasks: Iterable[Task]
) -> Iterator[Ask]:
    """Give what asks the commits, each of which has its files in a folder of its own.

    The first commit is the line's own. Raises GauntletError where it cannot answer at all.
    """
    with place.scratch() as scratch:
        trees: dict[Arm, Path] = {}
        for arm in place.random.sample([*commits], k=len(commits)):
            trees[arm] = Path(tempfile.mkdtemp(dir=scratch))  # its name tells no arm
            export(place.repository, commits[arm], manifest, trees[arm])

        def ask(task: Task, arm: Arm, *, repeat: int = 0, seed: int | None = None) -> TaskResult:
            return run_task(
                task,
                trees[arm],
                manifest,
                scorers=place.scorers,
                arm=arm,
                scratch=scratch,
                repeat=repeat,
                seed=seed,
            )

        own = next(iter(commits))
        _verify_ready(place, commits[own], manifest, tasks, tree=trees[own], scratch=scratch)
        yield ask


def verify_ready(place: Workplace, commit: str) -> None:
    """Raise GauntletError where a commit of the line's own cannot answer at all."""
    tasks = place.reference_set(commit).tasks
    with answering(place, {"base": commit}, place.manifest(commit), tasks):
        pass


def _verify_ready(
    place: Workplace,
    commit: str,
    manifest: Manifest,
    tasks: Iterable[Task],
    *,
    tree: Path,
    scratch: Path,
) -> None:
    """Raise GauntletError where a commit of the line's own gets ready for no task, or imports fail.

    That it fails on its tasks in other ways is for a change to correct.
    """
    failed: TaskResult | None = None
    for task in tasks:
        ready: list[str] = []

        def once(asked: Task, ask: AskOne, ready: list[str] = ready) -> Score:
            ready.append(asked.task_id)
            ask(QUESTION)
            return Score(success=True, validation_failures=0, metrics={})

        found = run_task(
            task,
            tree,
            manifest,
            scorers={
                name: scorer if isinstance(scorer, Drawing) else once
                for name, scorer in place.scorers.items()
            },
            arm="base",
            scratch=scratch,
            seed=task.seed,
        )
        if ready and not fails_to_import(found.errors):
            return
        failed = failed or found
    if failed is not None:
        raise GauntletError(
            f"the line's own worker answers no task at {commit}: {failed.problem}: "
            f"{explained(failed.errors, place.repository, commit, manifest)}"
        )


def in_turn(
    wanted: Callable[[], Sequence[tuple[str, int]]],
    tasks: Sequence[Task],
    *,
    random: Random,
    arms: Sequence[Arm] = ARMS,
) -> Iterator[tuple[Task, int, int, list[Arm]]]:
    """Yield the pairs that are wanted until none is: task, repeat, seed, and the arms' order.

    `wanted` gives them as wanted_pairs() does, of these tasks. It is asked again when all that it
    wanted has been answered.
    """
    by_id = {task.task_id: task for task in tasks}
    while pairs := wanted():
        for name, repeat in random.sample(pairs, k=len(pairs)):
            seed = drawn_seed(by_id[name], random)
            yield by_id[name], repeat, seed, random.sample(arms, k=len(arms))
