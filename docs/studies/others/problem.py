"""The problem: twelve numbers of which some matter, and cases that a program passes or fails.

What a program is worth is known exactly, and nobody but the study sees it: the share of cases that
it passes. A case has a difficulty, and a program passes it that is worth more; but in a quarter of
all answers chance decides anew. Some numbers raise the worth on the way to their best value, some
lower it by five points as soon as they are changed, the others do nothing.

I/O: none. It needs Python alone, since what is evolved elsewhere imports it there.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from random import Random

NAMES = (
    *("amber", "birch", "cedar", "delta", "ember", "flint"),
    *("grove", "haven", "ivory", "jetty", "karst", "linen"),
)
MATTERING = {"two large": 2, "six small": 6}  # kind of problem -> numbers that raise the worth
BEGINNING, ALL = 0.3, 0.6  # what the first program is worth, and what can be gained in all
SPOILT = 0.05  # the worth of a number that is best left alone
CHANCE = 0.25  # of the answers
_VALUE = re.compile(r"^(\w+) = (\d)$", re.MULTILINE)


@dataclass(frozen=True)
class Problem:
    """One problem of a kind; the seed says which numbers matter, and how."""

    kind: str
    seed: int

    @cached_property
    def _drawn(self) -> tuple[dict[str, int], dict[str, int], frozenset[str]]:
        """The first values, the best ones of what matters, and what is best left alone."""
        rng = Random(f"{self.kind} {self.seed}")  # noqa: S311 - repeatable
        names = rng.sample(NAMES, k=len(NAMES))
        first = {name: rng.randrange(10) for name in names}
        matter, rest = names[: MATTERING[self.kind]], names[MATTERING[self.kind] :]
        best = {
            name: rng.choice([v for v in range(10) if abs(v - first[name]) >= 4]) for name in matter
        }
        return first, best, frozenset(rest[: len(rest) // 2])

    @property
    def text(self) -> str:
        """The first program."""
        first, _, _ = self._drawn
        return "".join(f"{name} = {first[name]}\n" for name in NAMES)

    def worth(self, text: str) -> float:
        """Return the share of cases that a program passes; 0 for what is none."""
        values = {name: int(value) for name, value in _VALUE.findall(text)}
        if set(values) != set(NAMES):
            return 0.0
        first, best, delicate = self._drawn
        part = ALL / len(best)
        gained = sum(part * (1 - abs(values[n] - b) / abs(first[n] - b)) for n, b in best.items())
        spoilt = SPOILT * sum(values[n] != first[n] for n in delicate)
        return round(min(1.0, max(0.0, BEGINNING + gained - spoilt)), 9)

    def passes(self, text: str, *, case: object, luck: Random) -> bool:
        """Answer a case; `luck` decides where chance does."""
        difficulty = Random(f"{self.seed} {case}").random()  # noqa: S311 - repeatable
        return (luck.random() if luck.random() < CHANCE else difficulty) < self.worth(text)


def changed(text: str, *, seed: int, call: int) -> tuple[str, str, str]:
    """Return the line that a call changes, what stands there then, and the whole text."""
    rng = Random(f"{seed} {call}")  # noqa: S311 - repeatable
    values = dict(_VALUE.findall(text))
    name = rng.choice(NAMES)
    value = rng.choice([each for each in map(str, range(10)) if each != values[name]])
    old, new = f"{name} = {values[name]}", f"{name} = {value}"
    return old, new, text.replace(old, new)
