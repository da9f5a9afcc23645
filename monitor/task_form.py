"""The one check of form where tensors of a task's process enter: names, types, shapes, sizes.

What passes has one row for each example, of a type that can be computed with, and no row is empty
or larger than allowed. Whoever uses it needs no check of its own.

Trust: an answer is hostile until read_named() returns.
I/O: none.  Shapes: rows (N, ...).  Units: bytes.
"""

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass

from safetensors.torch import load

from aggregates.errors import WeightsError
from aggregates.weights import MAX_HEADER, layout
from monitor.errors import TaskError
from monitor.stored import TYPES, Rows, Spooled

Blob = bytes | Spooled
"""Tensors of a message, as safetensors: in a file where they are large."""

MOST_EXAMPLES = 2**40


@dataclass(frozen=True)
class Bounds:
    """How much a task's parts may hold; the owner of a task has no other bounds than these."""

    examples: int = MOST_EXAMPLES  # of the parts that are made at once
    example_bytes: int = 2**62  # of one example's inputs, targets or outputs


def read_tensors(
    blob: Blob, parts: Sequence[str], kinds: Sequence[str], bounds: Bounds
) -> dict[str, Rows]:
    """Return the tensors of parts by "part.kind"; raises TaskError unless an answer has these."""
    found = read_named(blob, {f"{part}.{kind}" for part in parts for kind in kinds}, bounds)
    for part in parts:
        if len({len(found[f"{part}.{kind}"]) for kind in kinds}) != 1:
            raise TaskError(f"the tensors of the {part} part have different lengths")
    check_examples(sum(len(found[f"{part}.{kinds[0]}"]) for part in parts), bounds)
    return found


def check_examples(count: int, bounds: Bounds) -> None:
    """Raise TaskError where a task gives more examples than allowed."""
    if count > bounds.examples:
        raise TaskError(
            f"the task gave {count:,} examples, the limit is {bounds.examples:,} "
            "(max_task_examples)"
        )


def read_named(blob: Blob, names: Set[str], bounds: Bounds) -> dict[str, Rows]:
    """Return the tensors of an answer; raises TaskError unless it has just these, well formed."""
    beginning = blob if isinstance(blob, bytes) else blob.read(0, 8 + MAX_HEADER)
    try:
        listed = layout(beginning, size=len(blob))
    except WeightsError as error:
        raise TaskError(f"the tensors of the task are malformed: {error}") from error
    if {name for name, *_ in listed} != names:
        raise TaskError(f"the task gave other tensors than {', '.join(sorted(names))}")
    for name, kind, shape, _ in listed:
        _check_shape(name, shape, math.prod(shape[1:]) * TYPES[kind].itemsize, bounds)
    if isinstance(blob, bytes):
        return dict(load(blob))
    return {
        name: blob.tensor(TYPES[kind], tuple(shape), start=start)
        for name, kind, shape, start in listed
    }


def _check_shape(name: str, shape: Sequence[int], row: int, bounds: Bounds) -> None:
    if not shape or not math.prod(shape):
        raise TaskError(
            f"the task gave {name} of shape {list(shape)}; there must be at least one example, "
            "and each must have at least one number"
        )
    if row > bounds.example_bytes:
        raise TaskError(
            f"the task gave {name} with {row:,} bytes for each example, the limit is "
            f"{bounds.example_bytes:,} (max_task_example_bytes)"
        )
