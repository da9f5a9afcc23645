"""The base of what commands answer: one declaration, of which JSON and its schema are made.

Here are also the answers that several commands have.

I/O: none.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from types import UnionType
from typing import Any, Self, Union, get_args, get_origin, get_type_hints

import msgspec

SQL = "x-sql"  # the key of a question in a schema whose rows have its columns


class Answer(msgspec.Struct, kw_only=True):
    """What a command answers: its fields are those of the JSON document, in this order."""

    @classmethod
    def of(cls, *sources: object, **more: Any) -> Self:
        """Return an answer with the values of `more`, and in other fields those of `sources`.

        A source is a map, or an object with attributes; the first that has a field gives it. What
        is itself an Answer, or a list of them, is made in the same way.
        """
        given = dict(more)
        for name in cls.__struct_fields__:
            if name not in given:
                given |= next(_named(sources, name), {})  # or its default
        kinds = _kinds(cls)
        return cls(**{name: _made(kinds[name], value) for name, value in given.items()})


class Listening(Answer):
    """A server that is ready; printed on one line as soon as it is."""

    address: str  # URL, or the path of a socket
    name: str | msgspec.UnsetType = msgspec.UNSET  # of a witness
    vkey: str | msgspec.UnsetType = msgspec.UNSET  # of a witness, or a notary's ledger
    user: int | msgspec.UnsetType = msgspec.UNSET  # the notary's, as a number
    token: str | msgspec.UnsetType = msgspec.UNSET  # of the live view; the URL has it, too


def columns(name: str, says: str, sql: str) -> msgspec.Meta:
    """Return what makes `Annotated[dict[str, Any], ...]` a row of the answer to a question."""
    return msgspec.Meta(title=name, description=says, extra_json_schema={SQL: sql})


_kinds = cache(get_type_hints)


def _named(sources: tuple[object, ...], name: str) -> Iterator[dict[str, Any]]:
    for source in sources:
        if isinstance(source, Mapping):
            if name in source:
                yield {name: source[name]}
        elif hasattr(source, name):
            yield {name: getattr(source, name)}


def _made(kind: Any, value: Any) -> Any:
    """Return the value of a field, in which answers are made of what is there."""
    for each in get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,):
        if get_origin(each) is list and isinstance(value, list | tuple):
            return [_made(get_args(each)[0], one) for one in value]
        if isinstance(each, type) and issubclass(each, Answer) and value is not None:
            return value if isinstance(value, Answer) else each.of(value)
    return value
