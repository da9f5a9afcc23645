"""A stand-in for a language model that solves the tasks it can see, over real HTTP.

It knows the right change of each task by the issue's text. It answers with that change if the
prompt shows every file that has to be edited, and with no change at all otherwise: what it says
depends on what it is shown, and on nothing else.
"""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chat_server import Behaviour, ChatServer, decide

from judge.gauntlet.repository.git import Repository
from judge.gauntlet.tasks.hidden_tests import snapshot_of
from judge.gauntlet.tasks.reference_set import Task


def solving(tasks: Sequence[Task]) -> Behaviour:
    """Return the behaviour of a model that knows these tasks."""
    known = {task.files["issue.md"].decode().strip(): right_files(task) for task in tasks}

    def answer(request: Mapping[str, Any]) -> Any:
        prompt = request["messages"][-1]["content"]
        files = next(files for issue, files in known.items() if issue in prompt)
        seen = all(f"# {path}\n\n~~~~\n{before}" in prompt for path, (before, _) in files.items())
        written = [{"path": path, "content": after} for path, (_, after) in files.items()]
        return {"rationale": "as the issue says", "edits": [], "files": written if seen else []}

    return decide(answer)


def right_files(task: Task) -> dict[str, tuple[str, str | None]]:
    """Return the files that a task's right answer changes: before and after."""
    before, files = snapshot_of(task), dict[str, tuple[str, str | None]]()
    with tempfile.TemporaryDirectory() as folder:
        texts = {path: text.encode() for path, text in before.items()}
        repository, commit = Repository.of_files(Path(folder) / "r", texts)
        assert task.diff is not None
        tree = repository.candidate_tree(commit, task.diff)
        for change in repository.changes(repository.tree_of(commit), tree):
            after = None if change.new_mode is None else repository.read(tree, change.path).decode()
            files[change.path] = (before.get(change.path, ""), after)
    return files


__all__ = ["ChatServer", "right_files", "solving"]
