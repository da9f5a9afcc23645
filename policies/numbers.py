"""The policies' own numbers: read strictly from numbers.toml, each within bounds that are set here.

The file may be changed to try other numbers, but only within the bounds.
Trust: the file is hostile until parse_numbers() returns.  I/O: its own package's file.
"""

from functools import cache
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from aggregates.spec import MAX_BLOCKS
from policies.errors import PolicyError

MAX_FILE = 20_000  # bytes

_LRFactor = Annotated[float, Meta(ge=3.0, le=10.0)]
_Bytes = Annotated[int, Meta(ge=400, le=16_000)]


class PlaybookNumbers(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the playbook leaves to the policy that follows it."""

    least_lr_factor: _LRFactor
    most_lr_factor: _LRFactor
    clip_norm: Annotated[float, Meta(ge=0.01, le=100.0)]  # gradient norm
    most_blocks: Annotated[int, Meta(ge=1, le=MAX_BLOCKS)]
    lag_patience: Annotated[int, Meta(ge=0, le=6)]  # epochs; within a deferral's limit of seven


class EvidenceNumbers(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of what was observed goes into a prompt."""

    epoch_bytes: _Bytes
    decision_bytes: _Bytes


class Numbers(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that the file holds, by its tables."""

    playbook: PlaybookNumbers
    evidence: EvidenceNumbers


def parse_numbers(data: bytes) -> Numbers:
    """Return the numbers of a file; raises PolicyError naming the number and what is allowed."""
    if len(data) > MAX_FILE:
        raise PolicyError(f"numbers.toml has {len(data)} bytes; the maximum is {MAX_FILE}")
    try:
        numbers = msgspec.toml.decode(data, type=Numbers)
    except (ValueError, RecursionError) as error:  # ValidationError is one, with the place
        raise PolicyError(f"numbers.toml: {error}") from error
    if numbers.playbook.least_lr_factor > numbers.playbook.most_lr_factor:
        raise PolicyError("numbers.toml: playbook.least_lr_factor is above most_lr_factor")
    return numbers


@cache
def load_numbers() -> Numbers:
    """Return the numbers of the package's own file."""
    return parse_numbers(Path(__file__).with_name("numbers.toml").read_bytes())
