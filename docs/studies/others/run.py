"""The gate beside OpenEvolve and GEPA: the same noisy problem, proposer and number of calls.

    python docs/studies others [--seeds 20] [--calls 100] [--front-door 3] [--front-calls 6]
        [--results FILE] [--python .venv-others/bin/python]

Each seed draws a problem of each kind, and each arm evolves its first program. Theirs run twice:
with as many cases for an evaluation as their documentation has it, and with as many as the gate has
spent in all; so does `climbing`, the gate's search without the gate. Some seeds go through the
front door as well. `make study-others` makes the environment, too.

I/O: standard output; --results keeps each run in a file, so that the same command goes on.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from operator import eq, gt, lt
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from scipy.stats import t as student

from studies.others.ours import climbing, front_door, in_process, processor_seconds
from studies.others.problem import MATTERING, Problem
from studies.others.proposer import proposing
from studies.runner import Job, StudyError, do_jobs
from studies.statistics import Table

_HERE = Path(__file__).parent
_EXAMPLES = 30  # each to learn from and to select by, for GEPA; its documentation: 30 to 300
_BUILDING = {"building": 0.5}  # of the calls, as `line evolve` does
_MANY = 100  # of each, where it may spend as much as the gate
ADVISED: Mapping[str, Mapping[str, int]] = {
    "climbing": {"cases": 10},
    "openevolve": {"cases": 10},
    "gepa": {"examples": _EXAMPLES, "answers": 4},
}
LABELS = {"climbing": "ten cases", "openevolve": "as advised", "gepa": "as advised"}


@dataclass(frozen=True)
class Evolved:
    """What an arm came to."""

    best: list[tuple[float | None, float]]  # what it measured of its best program, and its worth
    cases: int  # that programs were run on
    calls: int  # to the proposer
    seconds: float  # of the processor


def work(job: Job) -> Evolved:
    """Let one arm evolve."""
    begun, how = processor_seconds(), dict(job.config)
    python, problem = how.pop("python", None), Problem(how["kind"], how["seed"])
    with proposing(problem.seed) as (proposer, url), tempfile.TemporaryDirectory() as folder:
        if job.policy == "gate":
            found, calls = in_process(**how), how["calls"]
        elif job.policy == "climbing":
            found, calls = climbing(**how), how["calls"]
        elif job.policy == "front door":
            found = front_door(**how, url=url, folder=Path(folder))
            calls = proposer.calls
        else:
            command = (python, str(_HERE / f"by_{job.policy}.py"), json.dumps({**how, "url": url}))
            told = subprocess.run(  # noqa: S603 - arguments are our own
                command, cwd=folder, capture_output=True, text=True, check=False
            )
            if told.returncode:
                raise StudyError(f"{job.key} failed: {told.stderr[-2000:]}")
            found, calls = json.loads(told.stdout.splitlines()[-1]), proposer.calls
    if calls != how["calls"]:
        raise StudyError(f"{job.key}: {calls} calls to the proposer, and not {how['calls']}")
    best = [(claimed, problem.worth(text)) for claimed, text in found["best"]]
    return Evolved(best, found["cases"], calls, processor_seconds() - begun)


def _as_much(policy: str, spent: int, calls: int) -> Mapping[str, int]:
    """Return how an arm spends about as many cases as the gate did, in as many calls."""
    if policy != "gepa":
        return {"cases": max(1, round(spent / (calls + 1)))}
    each = _MANY / 2 + 6  # half of the proposals reach validation; three cases before and after
    return {"examples": _MANY, "answers": max(1, round(spent / (calls * each)))}


def _with_interval(values: Sequence[float]) -> str:
    """Return the mean with half of Student's 95% interval."""
    if len(values) < 2:
        return "".join(f"{each:.2f}" for each in values) or "-"
    half = float(student.ppf(0.975, len(values) - 1)) * stdev(values) / len(values) ** 0.5
    return f"{round(mean(values), 2) + 0.0:.2f}±{half:.2f}"  # no -0.00


def row(name: str, found: Mapping[str, Sequence[Evolved]]) -> dict[str, str]:
    """Return an arm's row, in which each cell has a value for each kind of problem."""
    cells: dict[str, list[str]] = {}
    for each in found.values():
        steps = [(b[1], a[1]) for one in each for b, a in pairwise(one.best)]
        won = [one.best[-1] for one in each]
        over = [claimed - worth for claimed, worth in won if claimed is not None]
        counts = [sum(compare(a, b) for b, a in steps) for compare in (gt, eq, lt)]
        values = {
            "winner's true worth": _with_interval([worth for _, worth in won]),
            "its score less its worth": _with_interval(over),
            "new bests: better/equal/worse": "/".join(map(str, counts)),
            "cases run": f"{mean(one.cases for one in each):,.0f}",
        }
        for column, value in values.items():
            cells.setdefault(column, []).append(value)
    return {"arm": name, **{column: "; ".join(each) for column, each in cells.items()}}


def told(found: Evolved) -> str:
    """Return the worths of what was promoted, and the cases that it took."""
    return f"{', '.join(f'{worth:.2f}' for _, worth in found.best)}; {found.cases:,} cases"


def main(arguments: Sequence[str]) -> None:
    """Let all of them evolve, and print what came of it."""
    parser = argparse.ArgumentParser(prog="python docs/studies others", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--calls", type=int, default=100, help="To the proposer (default: 100).")
    parser.add_argument("--front-door", type=int, default=3, help="Seeds (default: 3).")
    parser.add_argument("--front-calls", type=int, default=6, help="For these (default: 6).")
    parser.add_argument("--python", default=".venv-others/bin/python", help="With the packages.")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--results", type=Path, help="File to keep what was found in.")
    given = parser.parse_args(arguments)
    python = str(Path(given.python).absolute())  # its link says which environment it is
    if not Path(python).exists():
        raise StudyError(f"{python} is not there: make .venv-others/.installed, or name --python")
    files = (*sorted({*_HERE.glob("*.py")} - {Path(__file__)}), _HERE / "requirements.txt")
    code = sha256(b"".join(each.read_bytes() for each in files)).hexdigest()

    def evolved(policy: str, name: str, each: Iterable[Mapping[str, Any]]) -> list[Evolved]:
        jobs = [Job(f"{c['kind']}/{name}/{c['seed']}/{c['calls']}", c, policy) for c in each]
        found = do_jobs(
            jobs,
            given.results,
            given.workers,
            code=code,
            work=work,
            kind=Evolved,
            on_result=lambda n, of, _: print(f"{name}: {n} of {of}", file=sys.stderr, flush=True),
        )
        return [found[job.key] for job in jobs]

    found: dict[str, dict[str, list[Evolved]]] = {}  # arm -> kind of problem
    for kind in MATTERING:
        seeds = [{"kind": kind, "seed": n, "calls": given.calls} for n in range(given.seeds)]
        gate = evolved("gate", "gate", seeds)
        found.setdefault("the gate", {})[kind] = gate
        built = evolved("gate", "building", [{**each, **_BUILDING} for each in seeds])
        found.setdefault("the gate, building", {})[kind] = built
        for name, advised in ADVISED.items():
            whole = [each if name == "climbing" else {**each, "python": python} for each in seeds]
            plain = evolved(name, name, [{**each, **advised} for each in whole])
            found.setdefault(f"{name}, {LABELS[name]}", {})[kind] = plain
            spent = [_as_much(name, each.cases, given.calls) for each in gate]
            as_much = [{**each, **how} for each, how in zip(whole, spent, strict=True)]
            much = evolved(name, f"{name}, as much", as_much)
            found.setdefault(f"{name}, as many cases", {})[kind] = much
    title = f"{'; '.join(MATTERING)}: {given.calls} calls, {given.seeds} seeds"
    Table.of(title, [row(*each) for each in found.items()]).show(markdown=True)
    few = [
        {"kind": next(iter(MATTERING)), "seed": each, "calls": given.front_calls}
        for each in range(given.front_door)
    ]
    if few:
        alone = evolved("gate", "building", [{**each, **_BUILDING} for each in few])
        front = evolved("front door", "front door", few)
        rows = [
            {"seed": str(seed), "alone": told(one), "front door": told(other)}
            for seed, (one, other) in enumerate(zip(alone, front, strict=True))
        ]
        Table.of(f"The gate: {given.front_calls} calls", rows).show(markdown=True)
        seconds = sum(each.seconds for each in front) / sum(each.cases for each in front)
        print(f"{seconds:.2f} s of the processor for each case through the front door")
