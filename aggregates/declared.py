"""Fields declared once, with their bounds, and checked where a value comes in.

A dataclass annotates each field with its type and bounds (`Annotated[int, Meta(ge=1, le=8)]`).
msgspec checks a value against that; an error names the field and says what is allowed. The value
itself is never converted: what was recorded keeps its bytes and its hash.
I/O: none.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, inspect

from ledger.mapper import LIBRARY_FIELDS

T = TypeVar("T")
_WRONG = (msgspec.ValidationError, UnicodeEncodeError)  # the latter: half of a surrogate pair
_ATOMS = frozenset({bool, bytes, float, int, str, type(None)})
_TYPED = 64  # characters of a mistyped name that are compared with the known ones
_JSON = {
    inspect.BoolType: "boolean",
    inspect.FloatType: "number",
    inspect.IntType: "integer",
    inspect.ListType: "array",
    inspect.StrType: "string",
}


class Plain:
    """A dataclass, without slots, whose fields events and files hold as plain values."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as events hold them."""
        return {name: plain(value) for name, value in vars(self).items()}


def plain(value: Any) -> Any:
    """Return a value with sequences made lists and mappings made dicts, all of them new."""
    if type(value) in _ATOMS:
        return value
    if isinstance(value, Plain):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(part) for part in value]
    return value


def one_of(choices: Sequence[str]) -> Meta:
    """Return the constraint that a text is one of `choices`."""
    pattern = "|".join(map(re.escape, choices))
    words = f"one of {', '.join(choices)}"
    return Meta(pattern=rf"\A(?:{pattern})\Z", extra={"allowed": words, "choices": tuple(choices)})


def check(name: str, value: object, hint: Any, error: type[Exception]) -> None:
    """Raise `error`, saying what `name` must be, unless `value` is of the declared type."""
    try:
        msgspec.convert(value, hint)
    except _WRONG:
        raise error(
            f"{name} must be {_words(inspect.type_info(hint))}, not {value!r:.200}"
        ) from None


def check_fields(value: object, error: type[Exception]) -> None:
    """Raise `error` naming the first field of a dataclass that is not as it is declared.

    Of an event, what the library adds is no such field.
    """
    kind: type = type(value)
    hints = _hints(kind)
    try:
        msgspec.convert({name: getattr(value, name) for name in hints}, _together(kind))
    except _WRONG:  # told field by field, which takes four times as long
        for name, hint in hints.items():
            check(name, getattr(value, name), hint, error)


def build(
    kind: type[T],
    value: object,
    *,
    error: type[Exception],
    what: str = "",
    suggest: bool = False,
) -> T:
    """Build a dataclass that checks its fields from a map; raise `error` naming what is wrong.

    A list becomes a tuple where the field is one, and its items dataclasses: in an error, `block 3`
    is an item of `blocks`.
    With `suggest`, the message names the known key that is closest to a mistyped one. It is for
    what people type: messages on what a model answered are recorded, and stay as they are.
    """
    if not isinstance(value, Mapping):
        raise error(f"{what or 'the value'} must be a map, not {type(value).__name__}")
    within = f"{what}: " if what else ""
    known, needed = _names(kind)  # type: ignore[arg-type]  # a type is hashable
    if unknown := sorted(set(map(str, value)) - known):
        meant = closest(unknown[0], known) if suggest and len(unknown) == 1 else None
        raise error(
            f"{within}unknown key {', '.join(unknown):.200}; "
            f"{f'did you mean {meant}? ' if meant else ''}known keys: {', '.join(sorted(known))}"
        )
    if missing := sorted(needed - set(value)):
        raise error(f"{within}{', '.join(missing)} is missing")
    told = dict(value)
    for name, item in _tuples(kind).items():  # type: ignore[arg-type]  # a type is hashable
        if isinstance(found := told.get(name), list | tuple):
            if is_dataclass(item):
                called = f"{name.removesuffix('s')} {{}}"
                found = [
                    build(item, part, error=error, what=called.format(number))
                    for number, part in enumerate(found)
                ]
            told[name] = tuple(found)
    return kind(**told)


def closest(given: str, known: Iterable[str]) -> str | None:
    """Return the known name that is closest to a mistyped one, if any is close."""
    near = get_close_matches(given[:_TYPED], sorted(known), n=1)
    return near[0] if near else None


def json_type(hint: Any) -> tuple[str, tuple[str, ...]]:
    """Return the name that a declared type has in JSON schemas, and its choices, if it has any."""
    choices = {}
    if isinstance(info := inspect.type_info(hint), inspect.Metadata):
        choices, info = info.extra or {}, info.type
    return _JSON[type(info)], choices.get("choices", ())


def _words(info: inspect.Type) -> str:
    """Return what a declared type allows."""
    match info:
        case inspect.Metadata(extra={"allowed": words}):
            return str(words)
        case inspect.Metadata(type=inner):
            return _words(inner)
        case inspect.UnionType(types=types):
            return _words(next(each for each in types if not isinstance(each, inspect.NoneType)))
        case inspect.IntType(ge=None):
            return "a whole number"
        case inspect.IntType(ge=low, le=None):
            return f"a whole number from {low:,}"
        case inspect.FloatType(gt=low, ge=None, le=high) if low is not None:
            return f"a number above {low:g}" + ("" if high is None else f", at most {high:g}")
        case inspect.FloatType(ge=None):
            return "a number"
        case inspect.IntType(ge=low, le=high):
            return f"a whole number from {low:,} to {high:,}"
        case inspect.FloatType(ge=low, le=high):
            return f"a number from {low:g} to {high:g}"
        case inspect.BoolType():
            return "true or false"
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return f"a list, each {_words(item)}"
        case inspect.DictType(value_type=inspect.AnyType()):
            return "a map"
        case inspect.DictType(value_type=item):
            return f"a map, each value {_words(item)}"
        case inspect.StrType(max_length=None):
            return "text"
        case inspect.StrType(min_length=low, max_length=high):
            least = f"{low} to" if low else "at most"
            return f"text of {least} {high:,} characters"
    return f"a {type(info).__name__.removesuffix('Type').lower()}"


@cache
def _names(kind: type) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of a dataclass's fields, and of those that have no default."""
    declared = fields(kind)
    plain = (f for f in declared if f.default is MISSING and f.default_factory is MISSING)
    return frozenset(f.name for f in declared), frozenset(f.name for f in plain)


@cache
def _tuples(kind: type) -> dict[str, type[Any]]:
    """Return the type of the items of each field that is a tuple."""
    hints = get_type_hints(kind).items()
    return {name: get_args(hint)[0] for name, hint in hints if get_origin(hint) is tuple}


@cache
def _hints(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {item.name: hints[item.name] for item in fields(kind) if item.name not in LIBRARY_FIELDS}


@cache
def _together(kind: type) -> type[msgspec.Struct]:
    """Return a type that is checked as all fields of a dataclass are."""
    return msgspec.defstruct(kind.__name__, list(_hints(kind).items()))
