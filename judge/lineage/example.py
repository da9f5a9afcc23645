"""One training example: its id, its line in an export, and the decisions that the line shows.

Source: docs/reference/curation.md, "Links", 1 and 8.
Trust: ids and lines are hostile.
I/O: none.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec

from aggregates.situation import NEUTRAL
from judge.errors import LineageError
from ledger.strict_json import JSONError, read_object
from ledger.verification.proofs import inclusion_proofs, leaf_hash

_SHOWN = {"cites", "direction", "event_type", "justification", "params"}  # of a decision
_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_DECISION = re.compile(rf"({_UUID})/([1-9][0-9]{{0,8}})")


@dataclass(frozen=True, kw_only=True)
class ExportLine:
    """One line of an export, and its path to the root that the export was sealed with."""

    number: int  # from 0
    data: bytes  # without its line break
    path: tuple[bytes, ...]


class _Answer(msgspec.Struct, forbid_unknown_fields=True):
    role: Literal["assistant"]
    content: str


class _Decisions(msgspec.Struct, forbid_unknown_fields=True):
    decisions: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1)]


class _Messages(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    messages: Annotated[list[Any], msgspec.Meta(min_length=1)]


class _Preference(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    prompt: list[Any]
    chosen: Annotated[list[_Answer], msgspec.Meta(min_length=1, max_length=1)]
    rejected: Annotated[list[_Answer], msgspec.Meta(min_length=1, max_length=1)]
    evidence: str = ""


def decisions_of(example: str) -> list[tuple[UUID, int]]:
    """Return run and number of an example's decision, or of both that a preference compares."""
    found = [_DECISION.fullmatch(part) for part in example.split(">")]
    if not 1 <= len(found) <= 2 or not all(found):
        raise LineageError(
            f"an example must be RUN/NUMBER or RUN/NUMBER>RUN/NUMBER, not {example!r:.90}"
        )
    return [(UUID(match[1]), int(match[2])) for match in found if match]


def line_of(example: str, lines: Sequence[bytes]) -> ExportLine:
    """Return the line of an export that is about this example, with its path to the root."""
    for number, data in enumerate(lines):
        if _object(data, f"line {number + 1} of the export").get("id") == example:
            (path,) = inclusion_proofs(map(leaf_hash, lines), [number])
            return ExportLine(number=number, data=data, path=tuple(path))
    raise LineageError(f"example {example} not found in the export")


def shown_by(line: ExportLine, example: str) -> list[list[dict[str, Any]]]:
    """Return what an example's line shows as decided, answer by answer."""
    found = _object(line.data, "the line of the export")
    if found.get("id") != example:
        named = found.get("id")
        raise LineageError(f"the line of the export is for a different example: {named!r:.90}")
    try:
        if ">" in example:
            pair = msgspec.convert(found, _Preference)
            answers = [*pair.chosen, *pair.rejected]
        else:
            answers = [msgspec.convert(msgspec.convert(found, _Messages).messages[-1], _Answer)]
        shown = [
            msgspec.convert(
                _object(answer.content, "an answer in the line of the export"), _Decisions
            ).decisions
            for answer in answers
        ]
    except msgspec.ValidationError as e:
        raise LineageError(f"the line of the export is not an example: {e}") from e
    if any(set(decision) != _SHOWN for decisions in shown for decision in decisions):
        raise LineageError("the line of the export contains more than decisions")
    return shown


def is_shown(body: dict[str, Any], decision: dict[str, Any], example: str) -> bool:
    """Return whether an example's line shows a recorded decision; a pair's words are NEUTRAL."""
    cites = body.get("cites")
    shown = {name: body.get(name) for name in _SHOWN}
    shown["cites"] = sorted(map(str, cites)) if isinstance(cites, list) else None
    if ">" in example and decision["justification"] == NEUTRAL:
        shown["justification"] = NEUTRAL
    return shown == decision


def _object(data: str | bytes, what: str) -> dict[str, Any]:
    try:
        return read_object(data)
    except JSONError as e:
        raise LineageError(f"{what} is not a strict JSON object: {e}") from e
