"""Honest runs of many kinds, each trained and judged: what the judge holds against honest work."""

import random
import tempfile
from pathlib import Path
from typing import Any

import numpy
from judge_cases import train_case
from PIL import Image

from aggregates.decisions import Decision, Observation, Said
from aggregates.playbook import DEFER, DIRECTIONS, MAX_LR
from aggregates.provocations import apply_to_config
from judge.config import JudgeConfig
from monitor.answering import Policy
from monitor.config import RunConfig
from policies.deciding.rescue import RescuePolicy
from policies.playbook import PlaybookPolicy

SMALL: dict[str, Any] = {
    "train_examples": 320,
    "val_examples": 128,
    "test_examples": 100,
    "channels": 8,
    "width": 8,
    "batch_size": 32,
    "stem_stride": 4,
    "threads": 1,
    "lr": 0.05,
}


class PersonLike:
    """Does as the playbook, but takes the other remedies where it leaves a choice, in own words."""

    name = "person"

    def __init__(self, seed: int) -> None:
        self._playbook, self._draws = PlaybookPolicy(), random.Random(seed)

    def describe(self) -> dict[str, Any]:
        return {"name": self.name}

    def decide(self, seen: Observation) -> list[Said]:
        return [Said(self._other(said, seen), "human") for said in self._playbook.decide(seen)]

    def _other(self, said: Decision, seen: Observation) -> Decision:
        (rule,) = said.cites
        side = str(seen.evaluations[rule].side)
        if said.direction == DEFER:
            return said
        choice, lr = self._draws.choice(DIRECTIONS[rule][side]), seen.settings.lr
        words = f"{rule}: I would rather try {choice}."
        params: dict[str, Any]
        match choice:
            case "cycle_lr" if side == "low" and 4 * lr <= MAX_LR:
                params = {"lr_min": lr, "lr_max": 4 * lr, "epochs": self._draws.randint(2, 8)}
            case "cycle_lr" if side == "plateau":
                params = {"lr_min": lr / 4, "lr_max": lr, "epochs": self._draws.randint(2, 8)}
            case "warm_up_lr":
                params = {"lr": lr / 4, "epochs": self._draws.randint(1, 6)}
            case "widen" if seen.spec.blocks[0].width <= 64:
                params = {"factor": 2}
            case "swap_activation" if rule == "R5":
                params = {"to": "gelu" if seen.spec.activation != "gelu" else "prelu"}
            case _:
                return said
        return Decision.of((rule,), choice, params, words)


def train_and_judge(
    changes: dict[str, Any], provocation: list[Any] | None, person: int | None
) -> dict[str, Any]:
    """Train and judge one run, and return what the judge found."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        config = {**SMALL, **changes}
        if config.get("dataset") == "images":
            config["dataset"] = f"imagefolder:{_draw_images(place / 'images')}"
            config |= {"train_examples": None, "val_examples": None, "test_examples": None}
        if provocation is not None:
            config = apply_to_config(config, *provocation)
        usual = RescuePolicy if config.get("profile") == "relative" else PlaybookPolicy
        policy: Policy = usual() if person is None else PersonLike(person)
        case = train_case(place, policy, RunConfig.from_dict(config))
        report = case.audit(config=JudgeConfig(min_test_examples=1, min_validation_examples=1))
        return {
            "hard_fail": [s.summary for s in report.steps if s.status == "failed"],
            "violations": [violation.to_dict() for violation in report.violations],
            "coverage": report.step("coverage").summary,
            "process": report.scores.process_score,
            "why": report.step("scores").evidence.get("unexercised"),
        }


def _draw_images(root: Path) -> Path:
    """Draw noisy images of two classes, which differ in colour."""
    draws = numpy.random.default_rng(3)
    for split, count in (("train", 60), ("validation", 30), ("test", 20)):
        for place, name in enumerate(("cat", "dog")):
            (root / split / name).mkdir(parents=True)
            for number in range(count):
                pixels = draws.integers(0, 200, (32, 32, 3), dtype=numpy.uint8)
                pixels[..., place] += 40
                Image.fromarray(pixels).save(root / split / name / f"{number:02}.png")
    return root
