"""The policies' own numbers: read strictly from numbers.toml, each within bounds that are set here.

The file may be changed to try other numbers, but only within the bounds.
Trust: the file is hostile until parse_numbers() returns.  I/O: its own package's file.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

from aggregates.spec import MAX_BLOCKS
from policies.errors import PolicyError

MAX_FILE = 20_000  # bytes


def _number(low: float, high: float) -> Any:
    return field(metadata={"kind": float, "low": low, "high": high})


def _whole(low: int, high: int) -> Any:
    return field(metadata={"kind": int, "low": low, "high": high})


@dataclass(frozen=True, kw_only=True)
class PlaybookNumbers:
    """What the playbook leaves to the policy that follows it."""

    least_lr_factor: float = _number(3.0, 10.0)
    most_lr_factor: float = _number(3.0, 10.0)
    clip_norm: float = _number(0.01, 100.0)  # gradient norm
    most_blocks: int = _whole(1, MAX_BLOCKS)
    lag_patience: int = _whole(0, 20)  # epochs


@dataclass(frozen=True, kw_only=True)
class EvidenceNumbers:
    """How much of what was observed goes into a prompt."""

    epoch_bytes: int = _whole(400, 16_000)
    decision_bytes: int = _whole(400, 16_000)


@dataclass(frozen=True, kw_only=True)
class Numbers:
    """Everything that the file holds, by its tables."""

    playbook: PlaybookNumbers
    evidence: EvidenceNumbers


def parse_numbers(data: bytes) -> Numbers:
    """Return the numbers of a file; raises PolicyError naming the number and what is allowed."""
    if len(data) > MAX_FILE:
        raise PolicyError(f"numbers.toml has {len(data)} bytes; the maximum is {MAX_FILE}")
    try:
        tables = tomllib.loads(data.decode("utf-8"))
    except ValueError as error:
        raise PolicyError(f"numbers.toml cannot be read as TOML: {error}") from error
    _check_names("tables", tables, {"playbook", "evidence"})
    numbers = Numbers(
        playbook=PlaybookNumbers(**_table(PlaybookNumbers, "playbook", tables)),
        evidence=EvidenceNumbers(**_table(EvidenceNumbers, "evidence", tables)),
    )
    if numbers.playbook.least_lr_factor > numbers.playbook.most_lr_factor:
        raise PolicyError("numbers.toml: playbook.least_lr_factor is above most_lr_factor")
    return numbers


@cache
def load_numbers() -> Numbers:
    """Return the numbers of the package's own file."""
    return parse_numbers(Path(__file__).with_name("numbers.toml").read_bytes())


def _table(kind: type, name: str, tables: Mapping[str, Any]) -> dict[str, Any]:
    table = tables[name]
    if not isinstance(table, dict):
        raise PolicyError(f"numbers.toml: {name} must be a table")
    _check_names(name, table, {item.name for item in fields(kind)})
    for item in fields(kind):
        _check_range(f"{name}.{item.name}", table[item.name], item.metadata)
    return table


def _check_names(what: str, found: Mapping[str, Any], wanted: set[str]) -> None:
    if set(found) != wanted:
        raise PolicyError(
            f"numbers.toml: {what} must be {', '.join(sorted(wanted))}, not "
            f"{', '.join(sorted(found))}"
        )


def _check_range(name: str, value: object, rule: Mapping[str, Any]) -> None:
    kind, low, high = rule["kind"], rule["low"], rule["high"]
    if type(value) is not kind or not low <= value <= high:  # false for NaN too
        what = "a whole number" if kind is int else "a number with a decimal point"
        raise PolicyError(
            f"numbers.toml: {name} must be {what} from {low:g} to {high:g}, not {value!r}"
        )


# Every number comes from the file and has bounds: none has a default beside it.
assert all(
    item.metadata and item.default is MISSING
    for kind in (PlaybookNumbers, EvidenceNumbers)
    for item in fields(kind)
)
