"""What the command line prints: tables for people, one JSON document for programs."""

import json
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from rich.console import Console
from rich.table import Table

_WIDTH = None if sys.stdout.isatty() else 160  # what is piped is not folded at 80
console = Console(soft_wrap=True, highlight=False, width=_WIDTH)
error_console = Console(stderr=True, soft_wrap=True, highlight=False)


def print_json(value: Any) -> None:
    """Print `value` as JSON; numbers that are not finite become the words NaN and Infinity."""
    print(json.dumps(plain(value), ensure_ascii=False))


def plain(value: Any) -> Any:
    """Return `value` in terms that JSON knows."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, UUID | Path):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    return value


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str = "") -> None:
    """Print rows as a table."""
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(cell(value) for value in row))
    console.print(table)


def cell(value: Any) -> str:
    """Return a short text for one value."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    return str(value)
