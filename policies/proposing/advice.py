"""Writes an advice block: by a technique's template, or by asking a language model.

A block is bounded text that stands under a heading of its own in the prompt. It can add to the
playbook; it cannot begin another part of the prompt.

Trust: what a model writes is hostile until verify_advice() returns; whether it helps is measured.
I/O: none of its own; asking is the asker's.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from aggregates.improvement.advice import MAX_ADVICE
from aggregates.playbook import DIRECTIONS
from policies.asking.ask import Asked, Asker
from policies.asking.prompt import quoted
from policies.errors import AnswerError
from policies.forms import read_form, strict_object
from policies.proposing.distiller import LEAST_SAVING, saving
from policies.proposing.tuner import DISTILLATION, INSTRUCTIONS, Example, Pattern, messages

MAX_RATIONALE = 600  # characters that are kept
_MOST_EARLIER = 8  # rationales of earlier texts that are shown
_SYSTEM = f"""\
You improve the advice block of a prompt. The prompt asks a language model, after each epoch of a
training, what to do about the rules that fired. It contains a fixed contract and a fixed
playbook; only the advice block may change. Your text replaces the whole block, so keep what is
still needed. It is tested on recorded situations: it must make wrong answers right, break no right
one, and be short, because every character costs. It has at most {MAX_ADVICE} characters, no heading
of the first level (`# `), and no control characters. Answer with one JSON object: `advice`, the new
text of the block, and `rationale`, one or two sentences."""

# What the playbook's table answers, for techniques that show examples: no scenario is among them.
PLAYBOOK_EXAMPLES: tuple[Example, ...] = tuple(
    Example(mark="gold", rule=rule, side=side, direction=ways[0], entry=0, run="")
    for rule, sides in DIRECTIONS.items()
    for side, ways in sides.items()
)


class WrittenAdvice(Struct, forbid_unknown_fields=True):
    """What a model has written."""

    advice: str
    rationale: str


def verify_advice(text: str, *, technique: str, before: str) -> None:
    """Raise AnswerError unless the text may be an advice block and is not what there was."""
    if len(text) > MAX_ADVICE:
        raise AnswerError(f"the advice has {len(text)} characters; the maximum is {MAX_ADVICE}")
    for line in text.splitlines():
        if not all(letter.isprintable() for letter in line):
            raise AnswerError("the advice contains characters that cannot be printed")
        if line.lstrip().startswith("# ") or set(line.strip()) in ({"="}, {"-"}):
            raise AnswerError("the advice contains a heading of the first level or a rule")
    if text.strip() == before.strip():
        raise AnswerError("the advice is the one that the prompt has already")
    if technique == DISTILLATION and saving(before, text) < LEAST_SAVING:
        raise AnswerError(f"the advice is not {LEAST_SAVING:.0%} shorter")


def ask_for_advice(
    asker: Asker,
    rung: str,
    *,
    before: str,
    pattern: Pattern,
    technique: str,
    earlier: Sequence[str] = (),
) -> Asked[WrittenAdvice]:
    """Ask a model for another advice block, and again as often as its settings say."""
    schema = strict_object({name: {"type": "string"} for name in WrittenAdvice.__struct_fields__})

    def read(value: Any) -> tuple[WrittenAdvice, None, bool]:
        said = read_form(WrittenAdvice, value)
        verify_advice(said.advice, technique=technique, before=before)
        return WrittenAdvice(said.advice.strip(), said.rationale[:MAX_RATIONALE]), None, True

    problem: str | None = None
    for attempt in range(asker.settings.repairs + 1):
        asked = asker.ask(
            rung,
            _messages(before, pattern, technique, earlier, problem),
            schema,
            read,
            agent="tuner",
            action="repair" if attempt else "propose",
        )
        problem = asked.problem
        if asked.outcome not in ("unusable", "truncated"):
            break
    return asked


def _messages(
    before: str, pattern: Pattern, technique: str, earlier: Sequence[str], problem: str | None
) -> list[dict[str, str]]:
    parts = [
        f"# What goes wrong\n\nSeen {pattern.count} times: {pattern.says}.",
        f"# How to write\n\n{INSTRUCTIONS[technique]}",
        f"# The advice block as it is\n\n{quoted(before, 4 * MAX_ADVICE) if before else 'empty'}",
    ]
    if earlier:
        told = "\n".join(f"- {quoted(each, 300)}" for each in earlier[-_MOST_EARLIER:])
        parts.append(f"# Texts that were tried before, and what became of them\n\n{told}")
    return messages(_SYSTEM, parts, problem=problem)
