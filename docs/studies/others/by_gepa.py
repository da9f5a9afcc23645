"""GEPA on the problem, as its documentation advises; run with the Python of `.venv-others`.

Cases to learn from and cases to select by, each answered several times by the evaluator, which
averages; minibatches of three, Pareto selection and strict improvement are defaults.

Source: gepa 0.1.4: README; guides/faq ("30 to 300 examples", half for validation); its skill
gepa-optimize-anything: writing_evaluators ("average N samples", N=4), gotchas ("winner's curse").
I/O: standard output gets one line of JSON.
"""

import contextlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from studies.others.problem import Problem


def evolve(
    *, kind: str, seed: int, calls: int, url: str, examples: int, answers: int
) -> Mapping[str, Any]:
    """Return the programs that were the best so far, with their scores, and the cases spent."""
    from gepa.optimize_anything import (  # noqa: PLC0415 - in an environment of its own
        EngineConfig,
        GEPAConfig,
        ReflectionConfig,
        optimize_anything,
    )
    from openai import OpenAI  # noqa: PLC0415

    problem, luck = Problem(kind, seed), Random(f"{kind} {seed}")  # noqa: S311 - repeatable
    client, spent, best = OpenAI(base_url=url, api_key="none"), 0, []

    def reflect(prompt: str) -> str:
        said = client.chat.completions.create(
            model="mutator", messages=[{"role": "user", "content": prompt}]
        )
        return str(said.choices[0].message.content)

    def evaluate(candidate: str, example: float) -> tuple[float, dict[str, Any]]:
        nonlocal spent
        spent += answers
        passed = [problem.passes(candidate, case=example, luck=luck) for _ in range(answers)]
        return sum(passed) / answers, {"case": example, "passed": passed}

    class Watching:
        def on_valset_evaluated(self, event: Mapping[str, Any]) -> None:
            if event["is_best_program"]:
                best.append([event["average_score"], *event["candidate"].values()])

    drawn = [luck.random() for _ in range(2 * examples)]
    result = optimize_anything(
        seed_candidate=problem.text.strip(),
        evaluator=evaluate,
        dataset=drawn[:examples],
        valset=drawn[examples:],
        objective="Raise the share of cases that the program passes.",
        config=GEPAConfig(
            engine=EngineConfig(seed=seed, max_candidate_proposals=calls, parallel=False),
            reflection=ReflectionConfig(reflection_lm=reflect),
            callbacks=[Watching()],
        ),
    )
    claimed = result.val_aggregate_scores[result.best_idx]
    assert best[-1] == [claimed, result.best_candidate]
    return {"best": best, "cases": spent}


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        found = evolve(**json.loads(sys.argv[1]))
    print(json.dumps(found))
