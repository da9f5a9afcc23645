"""A model that obeys the advice block of its prompt and nothing else that could mend it.

It acts on every due rule that goes first, but for its weaknesses: rules that it defers for ever,
until the advice speaks of the rule in a way that it understands. Feedback does not move it. It can
be spoilt by advice, and it can be flaky: then it defers everything in a share of its answers.
"""

import random
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from chat_server import Behaviour, Reply, act, answer_probe, defer, due_rules, is_probe, say

ADVICE_TITLE = "# Advice"  # as the prompt has it
ALL = ("What not to do", "An example", "Examples", "Step by step", "Whose answer it is")


@dataclass
class Obeys:
    """How a model behaves; `mended_by` has the titles of sections that it understands."""

    weak: Collection[str] = ("R1",)
    mended_by: Collection[str] = ALL
    spoils: Mapping[str, str] = field(default_factory=dict)  # a rule in the advice -> rule deferred
    flaky: float = 0.0  # share of answers
    seed: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def __call__(self, request: dict[str, Any], _: Mapping[str, str]) -> Reply:
        return answer_probe(request) if is_probe(request) else say(request, self.answer(request))

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        rules = due_rules(request)
        if self._random.random() < self.flaky:
            return {"decisions": [defer(rule, "not now") for rule in rules]}
        understood = advised_rules(request, self.mended_by)
        left = {rule for rule in self.weak if rule not in understood}
        left |= {lost for named, lost in self.spoils.items() if named in understood}
        decisions, acted = [], False
        for rule in rules:
            if acted or rule in left:
                decisions.append(defer(rule))
            else:
                decisions.append(act(request, rule))
                acted = True
        return {"decisions": decisions}


def advice_of(request: Mapping[str, Any]) -> str:
    """Return the advice block of a request, empty if it has none."""
    system = request["messages"][0]["content"]
    found = re.search(rf"^{ADVICE_TITLE}\n(.*?)(?=^# |\Z)", system, re.DOTALL | re.MULTILINE)
    return found[1] if found else ""


def advised_rules(request: Mapping[str, Any], titles: Collection[str]) -> set[str]:
    """Return the rules that sections of these titles speak of."""
    sections = re.findall(
        r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", advice_of(request), re.DOTALL | re.MULTILINE
    )
    return {
        rule for title, body in sections if title in titles for rule in re.findall(r"R\d", body)
    }


def obeys(**settings: Any) -> Behaviour:
    """Return the behaviour of such a model."""
    return Obeys(**settings)
