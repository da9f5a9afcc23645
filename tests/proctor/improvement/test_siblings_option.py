"""How many siblings a drift evaluation has: honoured where tasks can be made, else refused."""

from functools import partial
from pathlib import Path

import pytest

from judge.gauntlet.tasks.reference_set import ReferenceSet, write_tasks
from judge.gauntlet.tasks.reference_set import load as load_set
from proctor.errors import ProctorError
from proctor.improvement.enroll import SET, WORKER
from proctor.improvement.task_drafts import Wish, from_call
from proctor.sample.drift_tasks import maker_of
from proctor.sample.tasks import make_tasks


def fixed_tasks(repo: Path) -> ReferenceSet:
    """Return a set that nothing is known to vary: no call, nor any of the sample's."""
    (repo / WORKER).parent.mkdir(parents=True)
    (repo / WORKER).write_text('FUNCTIONS = {"slugs.text:slugify": None}\n')
    call = partial(from_call, repo, "slugs.text:slugify", ["A b"], "a-b", name="plain", wish=Wish())
    call()
    with pytest.raises(ProctorError, match="already exists"):
        call()
    told = repo / SET / "tasks/plain/task.json"
    told.write_text(told.read_text().replace('"call"', '"question"'))
    return load_set(repo / SET)


def test_siblings_are_made_in_the_number_asked_for(tmp_path: Path) -> None:
    write_tasks(tmp_path / "set", make_tasks(seed=1))
    make = maker_of(load_set(tmp_path / "set"), 4)
    assert make is not None
    make(tmp_path / "made")
    assert len(load_set(tmp_path / "made").tasks) == 4 * len(load_set(tmp_path / "set").tasks)


def test_several_siblings_are_refused_where_tasks_are_fixed(tmp_path: Path) -> None:
    tasks = fixed_tasks(tmp_path)
    assert maker_of(tasks, 1) is None, "they are answered as they stand"
    with pytest.raises(ProctorError, match="--siblings 4: this repository's reference tasks are"):
        maker_of(tasks, 4)
