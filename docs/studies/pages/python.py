"""The reference page of the Python API, from the docstrings."""

import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import proctor
from aggregates.decisions import Decision, Observation, Said, Settings
from aggregates.spec import WatchedModel
from monitor.answering import Policy

__all__ = ["python_page"]

_HEAD = """# Python API

Written by `python docs/studies pages` from the docstrings. Edit them there. A whole
example: [watch your own loop](../how-to/watch-your-own-loop.md).

`import proctor` needs no PyTorch. The first use of `proctor.watch` imports it (extra `train`);
`proctor.report` needs the extra `report`.
"""
_POLICIES = """
## Policies of your own

`watch(policy=...)` takes an object with the three members of `monitor.answering.Policy`. A complete
example: [write a policy](../how-to/own-policy.md). Which directions and parameters there are:
[decisions](rules.md#decisions).
"""
_PARAMETERS = re.compile(r"^([a-z_]+(?:, [a-z_]+)*): ")
_FIELD = re.compile(r"^    (\w+): (.+?)(?:  # (.*))?$")


def python_page() -> str:
    """Return the page as Markdown."""
    lines = [_HEAD]
    lines += _function("proctor.watch", proctor.watch)
    lines += _class("proctor.WatchedRun", proctor.WatchedRun)
    lines += [f"\n## proctor.WatchError\n\n{_text(proctor.WatchError)}\n"]
    lines += _function("proctor.report", proctor.report)
    lines += [*_class("proctor.Report", proctor.Report), _POLICIES]
    lines += _class("monitor.answering.Policy", Policy, level="###")
    for each in (Observation, Settings):
        lines += _fields(f"aggregates.decisions.{each.__name__}", each)
    lines += _function("aggregates.decisions.Decision.of", Decision.of, level="###")
    lines += _fields("aggregates.decisions.Said", Said)
    lines += _fields("aggregates.spec.WatchedModel", WatchedModel)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip("\n") + "\n"


def _class(name: str, kind: type, *, level: str = "##") -> Iterator[str]:
    yield f"\n{level} {name}\n\n{_text(kind)}\n"
    members = {key: each for key, each in vars(kind).items() if not key.startswith("_")}
    for key, each in members.items():
        if isinstance(each, property | cached_property):
            get = each.func if isinstance(each, cached_property) else each.fget
            returns = inspect.signature(get).return_annotation if get else ""
            yield f"- `{key}`: {_plain(returns)}. {_text(each)}"
    for key, each in members.items():
        if inspect.isfunction(each):
            yield from _function(f"{kind.__name__}.{key}", each, level=level + "#")


def _function(name: str, function: Any, *, level: str = "##") -> Iterator[str]:
    yield f"\n{level} {name}\n\n```python\n{_signature(name, function)}\n```\n\n{_text(function)}"


def _signature(name: str, function: Any) -> str:
    found = inspect.signature(inspect.unwrap(function))
    short = name.rpartition(".")[2]
    parts = []
    for each in found.parameters.values():
        if each.name == "self":
            continue
        if each.kind is each.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        star = "**" if each.kind is each.VAR_KEYWORD else ""
        default = "" if each.default is each.empty else f" = {each.default!r}"
        parts.append(f"{star}{each.name}: {_plain(each.annotation)}{default}")
    line = f"{short}({', '.join(part for part in parts if part != '/')})"
    if len(line) > 90:
        line = f"{short}(\n" + "".join(f"    {part},\n" for part in parts) + ")"
    returns = _plain(found.return_annotation)
    return line if returns == "None" or short == "watch" else f"{line} -> {returns}"


def _plain(annotation: Any) -> str:
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    if "[" in str(annotation):
        text = str(annotation)
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])|collections\.abc\.|typing\.", "", text)


def _fields(name: str, kind: type) -> Iterator[str]:
    yield f"\n### {name}\n\n{_text(kind)}\n"
    for line in inspect.getsource(kind).splitlines():
        if found := _FIELD.match(line):
            field, annotation, meaning = found.groups()
            annotation, meaning = annotation.partition(" = ")[0], meaning or ""
            yield f"- `{field}: {annotation}`{': ' if meaning else ''}{meaning}"
    yield ""


def _text(documented: Any) -> str:
    """Return a docstring as Markdown: lines like `name: meaning` become a list."""
    lines: list[str] = []
    listed = False
    for line in (inspect.getdoc(documented) or "").splitlines():
        if found := _PARAMETERS.match(line):
            names = ", ".join(f"`{name}`" for name in found[1].split(", "))
            lines.append(f"- {names}: {line[found.end() :]}")
            listed = True
        elif listed and line:
            lines.append(f"  {line}")
        else:
            lines.append(line)
            listed = listed and bool(line)
    return "\n".join(lines)
