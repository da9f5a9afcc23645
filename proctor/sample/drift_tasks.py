"""Fresh tasks for one evaluation, of the kinds that a line's reference set has.

This repository's tasks and the sample's are made. Of others, calls have siblings
(proctor/improvement/siblings.py); the rest are answered as they stand in the repository.
"""

import secrets
from pathlib import Path
from types import ModuleType

from judge.drift.evaluation import Maker
from judge.gauntlet.tasks.reference_set import ReferenceSet, Task, write_tasks
from proctor.errors import ProctorError
from proctor.improvement.clone import clone_module
from proctor.sample.tasks import SHAPES, Shape, make_tasks

_OWN = "made: "  # how the sources of tasks begin that docs/studies/reference makes


def maker_of(tasks: ReferenceSet, siblings: int) -> Maker | None:
    """Return what makes `siblings` tasks of each kind anew; None where nothing is known to.

    Raises ProctorError where several are asked for and none can be made.
    """
    makers = clone_module("seeds")
    names = {task.task_id for task in tasks.tasks}
    if makers and all(task.entry.source.startswith(_OWN) for task in tasks.tasks):
        return lambda folder: _make_own(makers, folder, siblings, names)
    shapes = [shape for shape in SHAPES if shape.name in names]
    if len(shapes) == len(names):
        return lambda folder: _make_sample(folder, shapes, siblings)
    if siblings > 1:
        raise ProctorError(
            f"--siblings {siblings}: this repository's reference tasks are no calls, so no fresh "
            "ones can be made of them; leave the option out, or add calls with `proctor line task "
            "new NAME --function MODULE:NAME`"
        )
    return None


def _make_own(makers: ModuleType, folder: Path, siblings: int, names: set[str]) -> str:
    secret = secrets.token_bytes(32)
    makers.make_siblings(folder, secret, siblings, planned=makers.kinds_of(names))
    return secret.hex()


def _make_sample(folder: Path, shapes: list[Shape], siblings: int) -> str:
    seed = secrets.randbits(48)
    tasks: list[Task] = []
    for number in range(siblings):
        tasks += make_tasks(
            seed=seed + number * len(shapes), shapes=shapes, suffix=f"-{number}", source="drift"
        )
    write_tasks(folder, tasks)
    return f"{seed:012x}"
