"""The tester and the judge of advice blocks: scenarios asked of the live model, with and without.

Each scenario is asked through the policy that decides in a run, at temperature 0: the same prompt,
the same ladder of answer forms, the same parsing and repairs. Both texts answer a scenario one
after the other, in an order that is drawn, and what they answered is compared as reference tasks
are: a promotion is wrong in at most five of a hundred, over all texts that will ever be proposed.
Stopping early never promotes anything, so a text that does not look better is given up early.

Source: judge/gauntlet/comparison, docs/reference/gauntlet.md.
Trust: answers are the model's; what is acceptable is the judge's.
I/O: the client's, through the policy.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, NamedTuple

from msgspec import to_builtins

from aggregates.decisions import Decision
from judge.gauntlet.comparison.e_values import ComparisonSettings
from judge.gauntlet.comparison.evaluate import compare, wanted_pairs
from judge.gauntlet.tasks.benchmark import Arm, TaskResult
from judge.gauntlet.tasks.reference_set import Task
from judge.reference.scenarios import LENGTH, length_task, observation_of, unaccepted
from ledger.blobs import Blobs
from policies.asking.ask import Asker, Client
from policies.asking.settings import ModelSettings
from policies.deciding.language_model import LanguageModelPolicy
from proctor.improvement.proposers import ProposalTranscript

LENGTH_PENALTY = 1e-5  # of the pass rate, for each character of the block
SETTINGS = ComparisonSettings(first=5, margin=0.2, most=150)
_NAMED = 0.5  # of the pass rate of one scenario: a change of this size is named
_READ = ("usable", "unusable", "refused", "truncated", "too_large")  # somebody answered


@dataclass(frozen=True, kw_only=True)
class Tester:
    """Asks a model scenarios, in the name of a round."""

    settings: ModelSettings
    client: Client
    rung: str
    log: ProposalTranscript
    blobs: Blobs

    def ask(self, task: Task, advice: str) -> dict[str, Any]:
        """Return what the model's answer to a scenario is worth, with this advice block."""
        before = len(self.log.outcomes)
        # Remembered answers would make one answer of many; votes are many answers in one.
        settings = replace(self.settings, temperature=0.0, cache=False, votes=1)
        asker = Asker(settings, client=self.client, log=self.log, blobs=self.blobs)
        policy = LanguageModelPolicy(asker, rung=self.rung, advice=advice)
        said = policy.decide(observation_of(task))
        decisions: list[Decision] = [each.decision for each in said if each.source == "policy"]
        problem = unaccepted(decisions, task.expected["answers"])
        return {
            "success": problem is None,
            "valid": len(decisions) == len(said),
            "missing": not any(outcome in _READ for outcome in self.log.outcomes[before:]),
            "problem": problem,
        }


class Comparison(NamedTuple):
    """What the answers to both texts say."""

    better: bool  # the candidate is promoted
    reason: str
    measured: dict[str, Any]  # in plain values, as an event takes them


@dataclass(frozen=True)
class Judge:
    """Compares a candidate with the champion; a tie keeps the champion."""

    scenarios: Sequence[Task]
    texts: Mapping[Arm, str]  # base: the champion
    _: KW_ONLY
    level: float  # of error that may be spent
    shorter: bool  # the candidate is to lose nothing but length
    settings: ComparisonSettings = SETTINGS

    @property
    def _asked(self) -> dict[str, Any]:
        """What is compared, and how."""
        tasks = (*self.scenarios, *([length_task()] if self.shorter else []))
        return {"tasks": tasks, "level": self.level, "settings": self.settings}

    def wanted(self, results: Sequence[TaskResult]) -> list[tuple[str, int]]:
        """Return the pairs that are to be asked next; none: what there is decides."""
        if self._given_up(results):
            return []
        wanted = wanted_pairs(self._measured(results), **self._asked)
        return [pair for pair in wanted if pair[0] != LENGTH]

    def compare(self, results: Sequence[TaskResult]) -> Comparison:
        """Return what the answers say."""
        found = compare(self._measured(results), **self._asked)
        scenarios = "\n".join(sorted(task.sha256 for task in self.scenarios))
        rates = self._rates(results)
        base, candidate = (_mean(each) for each in (rates["base"], rates["candidate"]))
        scores = (self._score("base", base), self._score("candidate", candidate))
        lost, gained = self._named(results)
        lost = _together(lost, found.regressions)
        gained = tuple(name for name in _together(gained, found.improvements) if name != LENGTH)
        better = found.verdict == "better" and not lost
        better = better and (self.shorter or scores[1] > scores[0])
        told = f"pass rate {base:.3f} -> {candidate:.3f}, score {scores[0]:.4f} -> {scores[1]:.4f}"
        told += f"; improved: {', '.join(gained)}" if gained else ""
        told += f"; regressed: {', '.join(lost)}" if lost else ""
        values = {
            "verdict": found.verdict,
            "level": found.level,
            "scenarios": hashlib.sha256(scenarios.encode()).hexdigest(),
            "pairs": sum(each.arm == "base" for each in results),
            "pass_rates": [base, candidate],
            "scores": list(scores),
            "regressions": list(lost),
            "improvements": list(gained),
            "reasons": list(found.reasons),
            "comparisons": to_builtins(found.comparisons),
        }
        told += "" if better else "; the advice stays as it is"
        return Comparison(better, told, values)

    def _score(self, arm: Arm, rate: float) -> float:
        return rate - LENGTH_PENALTY * len(self.texts[arm])

    def _given_up(self, results: Sequence[TaskResult]) -> bool:
        """Return whether the candidate does not look better once each scenario was asked enough."""
        asked = Counter(each.task_id for each in results if each.arm == "candidate")
        if any(asked[task.task_id] < self.settings.first for task in self.scenarios):
            return False
        rates = self._rates(results)
        if self._named(results)[0]:
            return True
        base, candidate = (_mean(rates[arm]) for arm in ("base", "candidate"))
        return not self.shorter and self._score("candidate", candidate) <= self._score("base", base)

    def _named(self, results: Sequence[TaskResult]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the scenarios that are answered worse, and better, by at least half of the pairs.

        By chance, a model that errs in a tenth of its answers does so in fewer than one of 100.
        """
        rates = self._rates(results)
        changes = {
            name: rates["candidate"][name] - rate
            for name, rate in rates["base"].items()
            if name in rates["candidate"]
        }
        lost = tuple(name for name, change in changes.items() if change <= -_NAMED)
        return lost, tuple(name for name, change in changes.items() if change >= _NAMED)

    def _rates(self, results: Sequence[TaskResult]) -> Mapping[Arm, Mapping[str, float]]:
        found: dict[Arm, dict[str, list[bool]]] = {"base": {}, "candidate": {}}
        for each in results:
            found[each.arm].setdefault(each.task_id, []).append(each.success)
        return {
            arm: {name: sum(each) / len(each) for name, each in answers.items()}
            for arm, answers in found.items()
        }

    def _measured(self, results: Iterable[TaskResult]) -> list[TaskResult]:
        """Return the answers, with the lengths of both texts where these are what is to improve."""
        if not self.shorter:
            return list(results)
        lengths = [
            TaskResult(
                task_id=LENGTH,
                arm=arm,
                repeat=repeat,
                seed=0,
                success=True,
                validation_failures=0,
                metrics={"recall": 1.0, "bytes": float(len(text.encode()))},
                problem=None,
                isolation=(),
            )
            for arm, text in self.texts.items()
            for repeat in range(self.settings.confirmed)
        ]
        return [*results, *lengths]


def _mean(rates: Mapping[str, float]) -> float:
    return sum(rates.values()) / len(rates) if rates else 0.0


def _together(*names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({name for each in names for name in each}))
