"""The tuner: which technique is tried on which error pattern next, and what it does to a text.

The scoreboard is never stored: it follows from the proposals that are on record, of which each
names its technique and its pattern. A pattern that was seen often begins with a stronger
technique; what has lost on a pattern comes again only after everything else has been tried on it;
and what has won elsewhere goes first.

Trust: reviewers' notes are others' words; they reach a text as JSON strings on one line.
I/O: none.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from policies.asking.prompt import quoted
from policies.proposing.distiller import distil

DISTILLATION = "distillation"
BASELINE = "baseline"

# name -> what a model is told that is to use it
INSTRUCTIONS: Mapping[str, str] = {
    "negative_constraint": (
        "Look at what failed before and rule it out: say what must not happen, where a text "
        "guides, or make it impossible, where code decides."
    ),
    "one_shot": "Let one example lead you: the clearest case of what goes wrong, put right.",
    "few_shot": "Let two to four examples of different kinds lead you, and find what they share.",
    "chain_of_thought": (
        "Think in steps before you change anything: what is observed, what causes it, what would "
        "remove the cause, what else that would touch. Give the steps."
    ),
    "role_play": (
        "Be the person who is woken at night when this component fails, knows all of it, and "
        "wants the smallest change that lets everybody sleep."
    ),
    "structured_template": (
        "Fill in the parts: the problem with its evidence, its cause, the change, and what is "
        "expected to be measured afterwards."
    ),
    BASELINE: "Make the plainest change that does it.",
    DISTILLATION: (
        "Make one text at least 15% shorter. Nothing that it says may be lost: rules, numbers, "
        "names and their order stay."
    ),
}
TECHNIQUES = tuple(INSTRUCTIONS)
LADDER = TECHNIQUES[:6]  # weaker first, for texts that are silent on something
FORM_FIRST = ("structured_template", "one_shot", "few_shot")  # where answers have no form
_RUNGS = ((10, 3), (5, 2), (3, 1))  # seen at least so often: begin at this place of the ladder
STALL = 5  # rejections in a row: a stall
MOST_TEMPERATURE = 1.4  # that a stall leads to
_WARMER = 0.2  # for each stall
MOST_EXAMPLES = 4
MOST_RUNS = 1_000  # that evidence names; an entry of the ledger holds no more
_MOST_NOTE = 160  # bytes

WON, LOST, TIED = "won", "lost", "tied"


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """Something that went wrong, and how often."""

    key: str  # the same thing has the same key
    kind: str  # violation, answer, review, task, rejection, drift; or request: somebody asks
    count: int
    says: str  # in our words
    rule: str | None = None
    entries: tuple[int, ...] = ()  # of the ledger, that show it; the latest of many
    runs: tuple[str, ...] = ()  # all that it was seen in, as far as it was seen in runs

    @property
    def trigger(self) -> str:
        """What a proposal about it is triggered by."""
        special = {"drift": "performance_regression", "request": "operator_request"}
        return special.get(self.kind, "error_pattern")

    def evidence(self) -> list[dict[str, Any]]:
        """Return what a proposal about it points to."""
        told = {"kind": "pattern", "key": self.key, "count": self.count, "says": self.says}
        seen = [{"kind": "runs", "runs": list(self.runs[-MOST_RUNS:])}] if self.runs else []
        return [told, *({"kind": "entry", "index": index} for index in self.entries), *seen]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A technique that was tried on a pattern, and how it ended."""

    technique: str
    pattern: str | None
    result: str  # won, lost or tied


@dataclass(frozen=True, kw_only=True)
class Tally:
    """How often a technique has won, lost and done neither."""

    wins: int = 0
    losses: int = 0
    ties: int = 0

    @property
    def rate(self) -> float:
        """The share of wins, pulled towards a half by two trials that never were."""
        return (self.wins + 1) / (self.wins + self.losses + self.ties + 2)


@dataclass(frozen=True, kw_only=True)
class Example:
    """A decision that a person has marked."""

    mark: str  # gold or bad
    rule: str
    side: str | None
    direction: str
    params: Mapping[str, Any] = field(default_factory=dict)
    justification: str = ""
    note: str = ""  # the reviewer's
    entry: int  # of the ledger, with the mark
    run: str  # that it was decided in


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What is tried next."""

    pattern: Pattern
    technique: str


def scoreboard(trials: Iterable[Trial]) -> dict[str, Tally]:
    """Return every technique's tally; a tie keeps the old text and wins nothing."""
    counts = Counter((trial.technique, trial.result) for trial in trials)
    return {
        name: Tally(
            wins=counts[(name, WON)], losses=counts[(name, LOST)], ties=counts[(name, TIED)]
        )
        for name in TECHNIQUES
    }


def rank_patterns(patterns: Iterable[Pattern], trials: Sequence[Trial]) -> list[Pattern]:
    """Return what is to be looked at first in front: seen often, and tried on seldom."""
    tried = Counter(trial.pattern for trial in trials)
    return sorted(patterns, key=lambda each: (-each.count / (1 + tried[each.key]), each.key))


def choose_technique(
    pattern: Pattern, trials: Sequence[Trial], *, usable: Collection[str] = LADDER
) -> str | None:
    """Return the technique to try on a pattern, None if there is none that can be used.

    First what was tried on this pattern least often, then what wins more often, then what the
    number of times asks for.
    """
    here = Counter(trial.technique for trial in trials if trial.pattern == pattern.key)
    board = scoreboard(trials)
    order = _order(pattern)
    known = [name for name in order if name in usable]
    if not known:
        return None
    return min(known, key=lambda name: (here[name], -board[name].rate, order.index(name)))


def choose(
    patterns: Iterable[Pattern],
    trials: Sequence[Trial],
    *,
    usable: Collection[str] = LADDER,
    again: bool = True,
) -> Choice | None:
    """Return what to try next; without `again`, nothing is tried twice on one pattern."""
    for pattern in rank_patterns(patterns, trials):
        tried = {trial.technique for trial in trials if trial.pattern == pattern.key}
        left = usable if again else [name for name in usable if name not in tried]
        technique = choose_technique(pattern, trials, usable=left)
        if technique is not None:
            return Choice(pattern=pattern, technique=technique)
    return None


def choices(
    patterns: Iterable[Pattern],
    trials: Sequence[Trial],
    examples: Sequence[Example],
    *,
    technique: str | None,
    lengths: Iterable[Pattern] = (),
) -> Iterator[Choice]:
    """Give what to try next, the best first; the next one is for whom the last changes no text.

    Without a technique that was ordered, nothing is tried twice on one pattern. A distillation is
    about no pattern but the `lengths` of texts, each of which it is tried on once, at last.
    """
    left = list(patterns)
    while left and technique != DISTILLATION:
        usable = {name for each in left for name in usable_techniques(each, examples)}
        usable &= set(LADDER if technique is None else (technique,))
        choice = choose(left, trials, usable=usable, again=technique is not None)
        if choice is None:
            break
        yield choice
        left.remove(choice.pattern)
    tried = {trial.pattern for trial in trials}
    for length in lengths if technique in (None, DISTILLATION) else ():
        if length.key not in tried:
            yield Choice(pattern=length, technique=DISTILLATION)


def choose_model(names: Iterable[str], record: Mapping[str, Tally], *, seed: str) -> str:
    """Return the model to ask, by Thompson sampling: the same for the same record and seed.

    Each draws a share of wins from what is likely after its wins and losses, with a uniform prior;
    the largest is asked. Source: Chapelle & Li 2011, "An Empirical Evaluation of Thompson Sampling"
    (NIPS), algorithm 2.
    """
    draw = Random(seed)  # noqa: S311 - repeatable from the record

    def drawn(name: str) -> float:
        tally = record.get(name, Tally())
        return draw.betavariate(1 + tally.wins, 1 + tally.losses)

    return max(names, key=drawn)


def marked_bad(examples: Iterable[Example]) -> Iterator[Pattern]:
    """Give what people have marked as bad, by rule and direction."""
    alike: dict[tuple[str, str], list[Example]] = {}
    for each in examples:
        if each.mark == "bad":
            alike.setdefault((each.rule, each.direction), []).append(each)
    for (rule, direction), found in sorted(alike.items()):
        yield Pattern(
            key=f"review {rule} {direction}",
            kind="review",
            count=len(found),
            says=f"{direction} for {rule}, which a reviewer marked as bad",
            rule=rule,
            entries=tuple(each.entry for each in found),
            runs=tuple(sorted({each.run for each in found})),
        )


def messages(system: str, parts: Sequence[str], *, problem: str | None) -> list[dict[str, str]]:
    """Return the messages that ask a model, with the problem of its answer before if it had one."""
    told = list(parts)
    if problem is not None:
        told.append(
            "# Your last answer could not be used\n\n"
            f"reported: {quoted(problem, 600)}\nAnswer again, in the form that was asked for."
        )
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": "\n\n".join(told)},
    ]


def temperature_after(outcomes: Sequence[str], usual: float) -> float:
    """Return the temperature to ask at: more with each stall since the last promotion."""
    rejected = 0
    for outcome in outcomes:
        rejected = 0 if outcome == "promoted" else rejected + (outcome == "rejected")
    warmer = min(usual + _WARMER * (rejected // STALL), MOST_TEMPERATURE)
    return max(usual, round(warmer, 6))


def usable_techniques(pattern: Pattern, examples: Sequence[Example]) -> tuple[str, ...]:
    """Return the techniques that there is material for."""
    gold = len(_about(pattern, examples, "gold"))
    needed = {"one_shot": 1, "few_shot": 2}
    return tuple(name for name in LADDER if gold >= needed.get(name, 0))


def used(technique: str, pattern: Pattern, examples: Sequence[Example]) -> list[Example]:
    """Return the examples that a technique puts into a text about a pattern."""
    if technique == "negative_constraint":
        return _about(pattern, examples, "bad")
    most = {"one_shot": 1, "few_shot": MOST_EXAMPLES}.get(technique, 0)
    return _about(pattern, examples, "gold")[:most]


def rewrite(
    technique: str, text: str, pattern: Pattern, examples: Sequence[Example] = ()
) -> str | None:
    """Return the text as the technique would have it; None if that leaves it as it is.

    Each technique has a section of its own at the end, which is written anew.
    """
    if technique == DISTILLATION:
        return distil(text)
    title, write = _SECTIONS[technique]
    place = rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)"
    found = re.search(place, text, re.DOTALL | re.MULTILINE)
    kept = re.findall(r"^- .*$", found[1], re.MULTILINE) if found else []
    if isinstance(write, str):
        above = f", {pattern.rule} above all" if pattern.rule else ""
        body = write.format(rule=pattern.rule or "each due rule", above=above)
    else:
        body = write(pattern, kept, examples)
    if not body:
        return None
    section = f"## {title}\n\n{body}\n"
    if found:
        tail = text[found.end() :]
        after = text[: found.start()] + section + ("\n" if tail else "") + tail
    else:
        after = f"{text.rstrip()}\n\n{section}"
    return None if after == text else after


def _order(pattern: Pattern) -> tuple[str, ...]:
    """Return the ladder from where the number of times begins, the rungs below at the end."""
    start = next((place for least, place in _RUNGS if pattern.count >= least), 0)
    order = (*LADDER[start:], *LADDER[:start])
    if pattern.kind == "answer":
        return (*FORM_FIRST, *(name for name in order if name not in FORM_FIRST))
    return order


def _constraints(pattern: Pattern, kept: list[str], examples: Sequence[Example]) -> str:
    lines = [f"- Not again: {pattern.says}."]
    for bad in used("negative_constraint", pattern, examples):
        why = f", because {quoted(bad.note, _MOST_NOTE)}" if bad.note else ""
        side = f" on side {bad.side}" if bad.side else ""
        lines.append(f"- Not `{bad.direction}` for {bad.rule}{side}{why}.")
    return "\n".join([*kept, *(line for line in lines if line not in kept)])


def _shown(
    technique: str, least: int, pattern: Pattern, _: list[str], examples: Sequence[Example]
) -> str:
    found = used(technique, pattern, examples)
    return "\n".join(map(_example, found)) if len(found) >= least else ""


_Write = Callable[[Pattern, list[str], Sequence[Example]], str]
# Title of a technique's section, and its text, or what writes it of a pattern, the lines that the
# section has, and examples.
_SECTIONS: Mapping[str, tuple[str, str | _Write]] = {
    "negative_constraint": ("What not to do", _constraints),
    "one_shot": ("An example", partial(_shown, "one_shot", 1)),
    "few_shot": ("Examples", partial(_shown, "few_shot", 2)),
    "chain_of_thought": (
        "Step by step",
        "Before the answer is given, go through this for {rule}: say on which side it fired and "
        "by how much; say which rule goes first; take the remedy that fits the side, or say for "
        "which effect it waits; see that no due rule is left without an answer.",
    ),
    "role_play": (
        "Whose answer it is",
        "You answer for this training as its only engineer: every due rule is yours{above}, and "
        "whoever reads the record tomorrow must find nothing left undone.",
    ),
    "structured_template": (
        "The form of a justification",
        "A justification has four parts in this order: the rule and its side; the measured number "
        "and its limit; the remedy, or what is waited for; what should be seen in which epoch.",
    ),
}


def _about(pattern: Pattern, examples: Sequence[Example], mark: str) -> list[Example]:
    """Return the examples with this mark, those on the pattern's rule first."""
    found = [each for each in examples if each.mark == mark]
    return sorted(found, key=lambda each: each.rule != pattern.rule)


def _example(one: Example) -> str:
    side = f", side {one.side}" if one.side else ""
    said = json.dumps({"direction": one.direction, "params": dict(one.params)}, sort_keys=True)
    why = f"; said: {quoted(one.justification, _MOST_NOTE)}" if one.justification else ""
    return f"- {one.rule} fired{side}: {said}{why}"
