"""The ladder: four ways to ask a server for JSON of a given form, the strictest first.

Servers differ in what they honour, and some answer 200 and ignore what was asked. So the rung is
chosen by what comes back: the probe asks for a word that stands in the schema alone.

Trust: messages are hostile until extract() returns; what it returns is JSON and no more.
I/O: none.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from policies.asking.settings import ModelSettings
from policies.extraction import ANSWER
from policies.forms import list_of, read_form, strict_object

TRIES = 3  # for each rung

PROBE_WORD = "quartz-7306"
PROBE_MESSAGES = (
    {"role": "system", "content": "You answer in the form that is asked for, without any comment."},
    {"role": "user", "content": "Fill in the form. Where it allows a single word, give that word."},
)
_WORD = {
    "word": {"type": "string", "enum": [PROBE_WORD]},
    "size": {"type": ["integer", "null"]},
}
PROBE_SCHEMA: Mapping[str, Any] = strict_object(
    {"words": list_of(strict_object(_WORD)), "certain": {"type": "boolean"}}
)


class _Word(Struct, forbid_unknown_fields=True):
    word: Literal["quartz-7306"]
    size: int | None


class _Probe(Struct, forbid_unknown_fields=True):
    words: Annotated[list[_Word], Meta(min_length=1)]
    certain: bool


def request_for(
    rung: str,
    settings: ModelSettings,
    messages: Sequence[Mapping[str, Any]],
    schema: Mapping[str, Any],
    *,
    seed: int | None = None,
    refused: Collection[str] = frozenset(),
) -> dict[str, Any]:
    """Return the body of a request; `seed` replaces the settings' own.

    `refused` are optional fields that the server does not take.
    """
    chosen = settings.seed if seed is None else seed
    request: dict[str, Any] = {
        "model": settings.model,
        "messages": [dict(message) for message in messages],
        **settings.parameters(chosen, refused),
    }
    if rung == "json_schema":
        form = {"name": ANSWER, "strict": settings.form == "full", "schema": schema}
        return {**request, "response_format": {"type": "json_schema", "json_schema": form}}
    if rung == "tool":
        function = {
            "name": ANSWER,
            "description": "Give the answer.",
            "parameters": schema,
            "strict": settings.form == "full",
        }
        return {
            **request,
            "tools": [{"type": "function", "function": function}],
            "tool_choice": {"type": "function", "function": {"name": ANSWER}},
        }
    if settings.form == "full":  # an export has no schema: the model has learnt it
        written = json.dumps(schema, separators=(",", ":"))
        request["messages"][-1]["content"] += (
            "\n\nAnswer with one JSON object, and nothing before or after it, that follows this "
            f"JSON schema:\n{written}"
        )
    if rung == "json_object":
        request["response_format"] = {"type": "json_object"}
    return request


def verify_probe(value: Any) -> None:
    """Raise AnswerError unless `value` is what the probe asked for."""
    read_form(_Probe, value)
