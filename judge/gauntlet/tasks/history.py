"""Makes tasks from a repository's own commits, and examines a task before it is admitted.

A commit gives the snapshot (its parent's files, as far as the tests need them), the right answer
(what it changed of them) and the hidden tests (the test files that it changed or added, and what
they import). An examination runs the hidden tests ten times without the right answer and ten times
with it: the task is sound if they fail before, pass after, and end in the same way each time.

Source: docs/reference/gauntlet.md, "Tasks from commits".
Trust: the commits are the owner's; their tests are run confined.
I/O: reads the repository; processes.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch

from judge.gauntlet.errors import CandidateError, TaskError
from judge.gauntlet.repository.git import Repository
from judge.gauntlet.repository.manifest import is_obeyed
from judge.gauntlet.tasks.hidden_tests import Bench, run_hidden
from judge.gauntlet.tasks.reference_set import MAX_FILE, Task
from judge.gauntlet.testing.choice import closure
from judge.gauntlet.testing.plants import is_test_file
from judge.gauntlet.testing.suite import SuiteResult

REPEATS = 10
_SETTINGS = ("pyproject.toml", "pytest.ini", "setup.cfg", "tox.ini")  # that pytest may obey
_SHOWN = 3  # cases that a sentence names


@dataclass(frozen=True, kw_only=True)
class Change:
    """What a commit says, as a task needs it."""

    commit: str
    message: str
    snapshot: Mapping[str, str]  # path -> text, as it was before
    diff: bytes
    changed: tuple[str, ...]  # paths of the diff
    tests: Mapping[str, str]  # path -> text, as it is after: the tests' side
    run: tuple[str, ...]  # of these, what runs


def read_change(
    repository: Repository,
    commit: str,
    *,
    is_test: Callable[[str], bool],
    also: Sequence[str] = (),
    only_tests: Sequence[str] = (),
) -> Change:
    """Return what a commit changed; raise TaskError, in one sentence, where it makes no task.

    `also` are patterns of paths that the snapshot holds besides, `only_tests` the test files that
    run, if not all that the commit touches.
    """
    parents = repository.parents_of(commit)
    if len(parents) != 1:
        raise TaskError(f"commit {commit[:12]} has {len(parents)} parents instead of one")
    before, after = repository.tree_of(parents[0]), repository.tree_of(commit)
    touched = {each.path: each for each in repository.changes(before, after)}

    def tests_side(path: str) -> bool:
        return is_test(path) or is_obeyed(path)

    run = [
        path
        for path, change in touched.items()
        if is_test(path) and is_test_file(path) and change.kind != "deleted"
    ]
    run = [path for path in run if not only_tests or path in only_tests]
    if not run:
        raise TaskError(f"commit {commit[:12]} changes no test file that pytest collects")
    code = [path for path in touched if path.endswith(".py") and not is_test(path)]
    own = [path for path in code if not is_obeyed(path)]
    needed = _imported(repository, after, [*run, *own], is_test)
    needed |= {path for path in _SETTINGS if path in repository.paths(after)}
    wanted = {path for path in repository.paths(before) if any(fnmatch(path, p) for p in also)}
    shown = {
        path
        for path in {*needed, *wanted, *_imported(repository, before, code, is_test)}
        if not tests_side(path)
    }
    changed = tuple(sorted(path for path in touched if path in shown or path in own))
    if not changed:
        raise TaskError(f"commit {commit[:12]} changes nothing that its tests import")
    return Change(
        commit=commit,
        message=repository.message_of(commit),
        snapshot=_texts(repository, before, shown),
        diff=repository.diff(before, after, changed),
        changed=changed,
        tests=_texts(repository, after, {path for path in needed if tests_side(path)}),
        run=tuple(sorted(run)),
    )


def _imported(
    repository: Repository, tree: str, start: Collection[str], is_test: Callable[[str], bool]
) -> set[str]:
    """Return what the files of a tree among these import, with themselves."""
    paths = repository.paths(tree)
    return closure(
        dict(repository.contents(tree, keep=lambda path: path.endswith(".py"))),
        [path for path in start if path in paths],
        paths=paths,
        is_test=is_test,
    )


def sort_cases(
    before: Mapping[str, str], after: Mapping[str, str]
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the cases that the change makes pass, those that pass all along, and the others."""
    passing = sorted(case for case, outcome in after.items() if outcome == "passed")
    fails = tuple(case for case in passing if before.get(case) != "passed")
    keeps = tuple(case for case in passing if before.get(case) == "passed")
    return fails, keeps, tuple(sorted(after.keys() - set(passing)))


def node_of(case: str, files: Sequence[str]) -> str:
    """Return what pytest calls a case of a report: `class::name` as `file::Class::name`."""
    where, _, name = case.partition("::")
    for file in files:
        module = file.removesuffix(".py").replace("/", ".")
        if where == module or where.startswith(f"{module}."):
            classes = where[len(module) + 1 :]
            return "::".join([file, *(classes.split(".") if classes else ()), name])
    raise TaskError(f"the case {case} stands in none of the test files {', '.join(files)}")


def examine(task: Task, bench: Bench, *, repeats: int = REPEATS) -> tuple[float, float]:
    """Run a task's tests without and with its right answer; raise TaskError where it is not sound.

    Returns the seconds that one run took in the mean, before and after.
    """
    if task.diff is None:
        raise TaskError(f"task {task.task_id} has no right answer to be examined with")
    before = [_run(task, None, bench) for _ in range(repeats)]
    after = [_run(task, task.diff, bench) for _ in range(repeats)]
    fails, keeps = (tuple(task.expected.get(name, ())) for name in ("fails", "keeps"))
    if task.stochastic:
        if any(each.problem is None for each in before):
            raise TaskError("the hidden tests pass before the change, so nothing is left to do")
        if sum(each.problem is None for each in after) * 2 < repeats:
            raise TaskError(f"the hidden tests pass in less than half of {repeats} runs after it")
        return _mean(before), _mean(after)
    for number, each in enumerate(before, start=1):
        if passed := [case for case in fails if each.cases.get(case) == "passed"]:
            raise TaskError(f"{_listed(passed)} already in run {number} without the change")
        if lost := [case for case in keeps if each.cases.get(case) != "passed"]:
            raise TaskError(f"{_listed(lost, 'does not pass')} in run {number} without the change")
    failed = [number for number, each in enumerate(after, start=1) if each.problem is not None]
    if len(failed) == repeats:
        raise TaskError(f"the hidden tests do not pass with the change: {after[0].problem}")
    if failed:
        raise TaskError(
            f"the hidden tests failed in {len(failed)} of {repeats} runs with the change, so the "
            "task is not deterministic; repair the tests, or declare it with --stochastic"
        )
    return _mean(before), _mean(after)


def _run(task: Task, diff: bytes | None, bench: Bench) -> SuiteResult:
    try:
        return run_hidden(task, diff, bench)
    except CandidateError as error:
        raise TaskError(str(error)) from error


def _mean(runs: Sequence[SuiteResult]) -> float:
    return sum(each.seconds for each in runs) / len(runs)


def _listed(cases: Sequence[str], verb: str = "passes") -> str:
    more = f" and {len(cases) - _SHOWN} more" if len(cases) > _SHOWN else ""
    return f"{', '.join(cases[:_SHOWN])}{more} {verb}"


def _texts(repository: Repository, tree: str, paths: Collection[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for path, content in repository.contents(tree, keep=lambda each: each in paths):
        try:
            found[path] = content.decode()
        except UnicodeDecodeError:
            continue  # no text: neither a model nor a diff could do anything with it
    if sum(map(len, found.values())) > MAX_FILE // 2:
        raise TaskError(
            f"the snapshot has more than {MAX_FILE // 2:,} characters; choose a smaller change"
        )
    return dict(sorted(found.items()))
