"""OpenEvolve on the problem, as its documentation advises; run with the Python of `.venv-others`.

Defaults throughout: five islands, MAP-Elites over length and diversity, changes as SEARCH/REPLACE.
A noisy evaluator averages trials itself, of which the package's own example has ten; the package
takes no averages and evaluates no program twice.

Source: openevolve 0.4.1: README, configs/default_config.yaml, examples/function_minimization, issue
132.
I/O: standard output gets one line of JSON; a log of all evaluations in a folder that is removed.
"""

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from studies.others.problem import Problem


def evaluate(program_path: str, kind: str, seed: int, cases: int, log: str) -> dict[str, float]:
    """Return the share of fresh cases that a program passes; the package calls it."""
    problem, text = Problem(kind, seed), Path(program_path).read_text(encoding="utf-8")
    with Path(log).open("a+", encoding="utf-8") as file:
        file.seek(0)
        luck = Random(f"{kind} {seed} {sum(1 for _ in file)}")  # noqa: S311 - repeatable
        passed = [problem.passes(text, case=luck.random(), luck=luck) for _ in range(cases)]
        score = sum(passed) / cases
        file.write(json.dumps([score, text]) + "\n")
    return {"combined_score": score}


def evolve(*, kind: str, seed: int, calls: int, url: str, cases: int) -> Mapping[str, Any]:
    """Return the programs that were the best so far, with their scores, and the cases spent."""
    from openevolve import run_evolution  # noqa: PLC0415 - not for those who only evaluate
    from openevolve.config import Config  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "evaluations.jsonl"
        arguments = {"kind": kind, "seed": seed, "cases": cases, "log": str(log)}
        config = Config.from_dict(
            {
                "random_seed": seed,
                "log_level": "WARNING",
                "llm": {"primary_model": "mutator", "api_base": url, "api_key": "none"},
                "database": {"random_seed": seed},
                "evaluator": {"evaluator_args": arguments},
            }
        )
        program = Problem(kind, seed).text
        result = run_evolution(
            program, __file__, config=config, iterations=calls, output_dir=folder, cleanup=False
        )
        evaluated = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    best = evaluated[:1]
    for score, text in evaluated[1:]:  # as its database does
        if score > best[-1][0]:
            best.append([score, text])
    assert best[-1] == [result.best_score, result.best_code]
    return {"best": best, "cases": cases * len(evaluated)}


if __name__ == "__main__":
    print(json.dumps(evolve(**json.loads(sys.argv[1]))))
