"""Evaluates a checkpoint on tasks that are made for this evaluation and were never seen before.

The tasks are of the same kinds as the reference set and come from a seed that is drawn for them, so
that what one evaluation says has an error that repeats can tell. The seed is recorded afterwards:
whoever doubts an evaluation makes the tasks again.

The code of a checkpoint is weighed beside it: lines, functions, branches. They are counted on the
syntax tree, in a time and a memory that grow with the file and no faster. The code may be a
proposer's: whatever weighs it here must not be what the code can exhaust.

Source: McCabe 1976, "A complexity measure" (IEEE Transactions on Software Engineering SE-2).
Trust: the checkpoint's code is hostile, and run as a candidate's is; to be weighed, it is not run.
I/O: the workplace; processes.
"""

import ast
from collections.abc import Callable
from pathlib import Path

from judge.drift.history import read_baseline
from judge.errors import DriftError
from judge.gauntlet.arms import answering
from judge.gauntlet.repository.lint import parsed
from judge.gauntlet.tasks.benchmark import Turn, seed_of
from judge.gauntlet.tasks.reference_set import Task
from judge.gauntlet.workplace import Workplace

Maker = Callable[[Path], str]
"""Writes a reference set into an empty folder and returns what it was made from."""
_WEIGHED = (1, 2)  # tiers that proposals change
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BRANCHES = (
    ast.AsyncFor,
    ast.ExceptHandler,
    ast.For,
    ast.If,
    ast.IfExp,
    ast.While,
    ast.comprehension,
    ast.match_case,
)


def evaluate(place: Workplace, checkpoint: str, *, purpose: str, make: Maker | None) -> float:
    """Evaluate a checkpoint once, record it, and return the share of tasks that it got right.

    Without a maker the set in the repository is answered, with the seeds of another repeat.
    """
    line = place.line()
    commit = line.checkpoints[checkpoint].commit
    manifest = place.manifest(line.head.commit)
    number = line.evaluations.get((checkpoint, purpose), 0)
    with place.scratch() as folder:
        seed = None if make is None else make(folder)
        tasks = place.reference_set(line.head.commit) if make is None else place.set_in(folder)
    if purpose != "baseline" and len(tasks.tasks) != (base := read_baseline(place).tasks):
        raise DriftError(
            f"the baseline has {base} tasks in each evaluation, but this one has "
            f"{len(tasks.tasks)}: use the same --siblings, or make a new baseline for a "
            "different reference set"
        )
    with answering(place, {"base": commit}, manifest, tasks.tasks) as asking:
        turns = [Turn(task=task, seed=seed_of(task, number), repeat=number) for task in tasks.tasks]
        results = [*asking.each(turns)]
    answered = list(zip(tasks.tasks, results, strict=True))
    precisions = [each.metrics["precision"] for each in results if "precision" in each.metrics]
    wrong = [_name(task, made=seed is not None) for task, each in answered if not each.success]
    valid = sum(not each.validation_failures for each in results)
    code = weigh_code(place, commit)
    place.change_line(
        lambda fresh: fresh.evaluate(
            checkpoint,
            purpose=purpose,
            seed=seed,
            sha256=tasks.sha256,
            tasks=len(results),
            wrong=wrong,
            valid=valid,
            precision=sum(precisions) / len(precisions) if precisions else None,
            code=code,
        )
    )
    return 1.0 - len(wrong) / len(results)


def count_tasks(place: Workplace, make: Maker | None) -> int:
    """Return how many tasks one evaluation has."""
    if make is None:
        return len(place.reference_set(place.line().head.commit).tasks)
    with place.scratch() as scratch:
        make(scratch)
        return len(place.set_in(scratch).tasks)


def _name(task: Task, *, made: bool) -> str:
    """Return what tells people which task it was: those that were made have no lasting names."""
    return f"{'/'.join(task.entry.categories)}, {task.entry.difficulty}" if made else task.task_id


def weigh_code(place: Workplace, commit: str) -> dict[str, int]:
    """Return how much code of tiers 1 and 2 there is in a commit, and how complex it is."""
    manifest = place.manifest(place.line().head.commit)
    tree = place.repository.tree_of(commit)
    weight = dict.fromkeys(("files", "lines", "functions", "complexity"), 0)

    def keep(path: str) -> bool:
        return path.endswith(".py") and manifest.tier_of(path) in _WEIGHED

    for _, content in place.repository.contents(tree, keep=keep):
        weight["files"] += 1
        for name, found in weigh(content).items():
            weight[name] += found
    return weight


def weigh(content: bytes) -> dict[str, int]:
    """Return the lines of code, the functions, and their cyclomatic complexities together.

    Of a file that is no Python, or nested too deeply, only the lines are counted.
    """
    lines = {
        number
        for number, line in enumerate(content.splitlines(), start=1)
        if line.strip() and not line.strip().startswith(b"#")
    }
    functions = branches = 0
    tree = parsed(content)
    waiting: list[tuple[ast.AST, bool]] = [] if tree is None else [(tree, False)]
    while waiting:
        node, inside = waiting.pop()
        if isinstance(node, _FUNCTIONS):
            functions, inside = functions + 1, True
        if inside:
            branches += _branches_of(node)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):  # a comment
            lines -= {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}
        waiting += [(child, inside) for child in ast.iter_child_nodes(node)]
    return {"lines": len(lines), "functions": functions, "complexity": functions + branches}


def _branches_of(node: ast.AST) -> int:
    match node:
        case ast.BoolOp(values=values):
            return len(values) - 1
        case ast.comprehension(ifs=conditions):
            return 1 + len(conditions)
        case ast.Try(finalbody=[_, *_]):
            return 1
    return int(isinstance(node, _BRANCHES))
