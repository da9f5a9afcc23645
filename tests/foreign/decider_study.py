"""What a language model that was trained here is worth as a decider, behind llama.cpp's server.

`decider_study.py FOLDER` takes FOLDER/decider.gguf, which train_decider.py wrote. Each start is a
fault with a seed that the model has not learnt from. It is trained under four deciders, with the
same seed, and judged: nobody, the playbook, the model with a grammar that the server makes of the
schema, and the model without one. The last part asks whether the model heeds an instruction.
The tables are those of docs/studies/agents.md.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from typing import Any

from decider_runs import LEARNT, PROCESSES, proctor, provoked
from foreign_servers import KEY, LLAMA, LLAMA_SERVER, MODELS, Server, serving
from studies.statistics import Share, print_table

from policies.asking.chat import ChatClient
from policies.asking.ladder import request_for
from policies.asking.prompt import ADVICE_TITLE
from policies.asking.settings import ModelSettings
from policies.errors import AnswerError
from policies.extraction import extract
from proctor.runs.standings import paired_interval

SEEDS = range(3)
FAULTS = ("lr_too_high", "lr_too_low", "init_too_large", "exploding_loss", "infinite_loss")
ASKING = ("form=exported", "temperature=0.0", "max_tokens=512", "repairs=0", "retries=1")
DECIDERS: Mapping[str, tuple[str, ...]] = {  # the model's file and rung
    "nothing": (),
    "playbook": (),
    "model, grammar": ("decider", "json_schema"),
    "model, free": ("decider", "prompt"),
}
INSTRUCTION = "Defer every rule, whatever it is: the direction of each decision is `defer`."
_INSTRUCTED = 40  # situations


@dataclass(frozen=True)
class Judged:
    """A run of the study."""

    fault: str
    seed: int
    decider: str
    accuracy: float  # on the test images, as the judge measured it
    process: float
    exercised: bool
    asked: int  # calls
    usable: int
    outcomes: tuple[str, ...]
    rules: int  # that were due
    answered: int  # of them, by the decider and not in its place


def measure(folder: Path, url: str, fault: str, seed: int, decider: str) -> Judged:
    """Train one start under one decider and judge it."""
    policy = ["--policy", decider]
    if decider.startswith("model"):
        model, rung = DECIDERS[decider]
        settings = (f"model={model}", f"base_url={url}", f"rung={rung}", *ASKING)
        policy = ["--policy", "openai", *(part for one in settings for part in ("--set", one))]
    home = folder / "measured" / f"{fault}-{seed}-{decider.replace(', ', '-')}"
    proctor(provoked(fault, seed, *policy), home=home)
    scores = json.loads(proctor(["judge", "--json"], home=home))["scores"]
    decided = rows(home, "SELECT source FROM decisions")
    calls = [one["outcome"] for one in rows(home, "SELECT outcome FROM calls")]
    return Judged(
        fault,
        seed,
        decider,
        accuracy=scores["test_accuracy"],
        process=scores["process_score"],
        exercised=scores["process_axis_exercised"],
        asked=len(calls),
        usable=calls.count("usable"),
        outcomes=tuple(calls),
        rules=len(decided),
        answered=sum(one["source"] == "policy" for one in decided),
    )


def rows(home: Path, sql: str) -> list[dict[str, Any]]:
    """Return what a query finds in a home."""
    found: list[dict[str, Any]] = json.loads(proctor(["sql", sql, "--json"], home=home))
    return found


def print_runs(found: Iterable[Judged]) -> None:
    """Print a row for each decider, over all starts, and one for each fault."""
    by = {(one.decider, one.fault, one.seed): one for one in found}
    starts = sorted({key[1:] for key in by})
    table = []
    for decider in DECIDERS:
        runs = [by[decider, *start] for start in starts]
        gains = [one.accuracy - by["nothing", one.fault, one.seed].accuracy for one in runs]
        low, high = paired_interval(gains) if any(gains) else (0.0, 0.0)
        asked = Share(sum(one.usable for one in runs), sum(one.asked for one in runs))
        table.append(
            (
                decider,
                asked,
                Share(sum(one.answered for one in runs), sum(one.rules for one in runs)),
                mean(one.process for one in runs),
                sum(one.exercised for one in runs),
                mean(one.accuracy for one in runs),
                f"{mean(gains):+.3f} ({low:+.3f} to {high:+.3f})",
            )
        )
    print_table(
        (
            "decider",
            "usable answers",
            "rules answered",
            "process score",
            "exercised runs",
            "test accuracy",
            "less that of nothing",
        ),
        table,
    )
    print()
    print_table(
        ("fault", "learnt", *DECIDERS),
        [
            (
                fault,
                "yes" if fault in LEARNT else "no",
                *(
                    mean(by[decider, fault, seed].accuracy for seed in SEEDS)
                    for decider in DECIDERS
                ),
            )
            for fault in FAULTS
        ],
    )
    for decider in (name for name, served in DECIDERS.items() if served):
        calls = Counter(out for start in starts for out in by[decider, *start].outcomes)
        print(f"\n{decider}: {dict(calls)}", flush=True)


def print_instructed(folder: Path, url: str) -> None:
    """Ask about the playbook's own situations, without and with an instruction to defer."""
    examples: list[Sequence[Mapping[str, str]]] = []
    for fault, seed in product(FAULTS, SEEDS):
        home, target = folder / "measured" / f"{fault}-{seed}-playbook", folder / "held-out.jsonl"
        try:
            proctor(["export", "data", "--kind", "sft", "--out", target], home=home)
        except SystemExit:  # not exercised: nothing to export
            continue
        examples += [json.loads(line)["messages"] for line in target.read_text().splitlines()]
        target.unlink()
    settings = ModelSettings(model="decider", base_url=url, form="exported", temperature=0.0)
    client = ChatClient(settings, KEY)
    said: dict[bool, list[list[str] | None]] = {False: [], True: []}
    right = [directions(json.loads(one[-1]["content"])) for one in examples][:_INSTRUCTED]
    for *asked, _ in examples[:_INSTRUCTED]:
        for instructed, answers in said.items():
            system = asked[0]["content"]
            system += f"\n\n{ADVICE_TITLE}\n\n{INSTRUCTION}" if instructed else ""
            told = [{"role": "system", "content": system}, *asked[1:]]
            request = request_for("prompt", settings, told, {})
            answer = client.ask(json.dumps(request).encode())
            try:
                answers.append(directions(extract("prompt", answer.message)))
            except (AnswerError, KeyError, TypeError):
                answers.append(None)
    client.close()
    plain, told_to = said[False], said[True]
    print(f"\nsituations of held-out playbook runs: {len(right)}")
    print("the playbook's directions, all of a situation:", Share.true(map(_same, plain, right)))
    defers = [one is not None and set(one) == {"defer"} for one in plain]
    print("defers everything, not told to:", Share.true(defers))
    defers = [one is not None and set(one) == {"defer"} for one in told_to]
    print("defers everything, told to:", Share.true(defers))
    print("the same directions, told to and not:", Share.true(map(_same, plain, told_to)))


def _same(one: Any, other: Any) -> bool:
    return one is not None and one == other


def directions(answer: Any) -> list[str]:
    """Return the directions of an answer's decisions."""
    return [str(one["direction"]) for one in answer["decisions"]]


def served(path: Path) -> Server:
    """Return llama.cpp's server with a model of ours."""
    ours = {"random.gguf": str(path.resolve()), "random": "decider"}
    command = tuple(ours.get(part, part) for part in LLAMA_SERVER.command)
    return replace(LLAMA_SERVER, command=command, model="decider")


def main(folder: Path) -> None:
    """Serve the model, make the runs and print the tables."""
    os.environ["OPENAI_API_KEY"] = KEY
    MODELS.mkdir(exist_ok=True)
    assert LLAMA.is_dir(), "make .venv-foreign/.installed builds the servers"
    with (
        serving(served(folder / "decider.gguf"), folder / "server.log") as url,
        ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool,
    ):
        starts = list(product([folder], [url], FAULTS, SEEDS, DECIDERS))
        found = list(pool.map(measure, *zip(*starts, strict=True)))
        lines = [json.dumps(vars(one)) for one in found]
        (folder / "measured.jsonl").write_text("\n".join(lines) + "\n")
        print_runs(found)
        print_instructed(folder, url)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
