"""A line of checkpoints, as its events say."""

from dataclasses import replace
from typing import Any

import pytest

from aggregates.errors import InvariantError
from aggregates.improvement.line import Line

SUMS: dict[str, Any] = {"manifest": "3" * 64, "reference_set": "4" * 64}
SECOND: dict[str, Any] = {
    "commit": "b" * 40,
    "tree": "b" * 40,
    "code": "5" * 64,
    "proposals": ["p"],
    **SUMS,
}


def test_checkpoint_that_is_put_on_record_again_keeps_its_mark() -> None:
    line = Line.open(root="r", branch="main", commit="a" * 40, tree="a" * 40, code=None, **SUMS)
    first, second = line.active, line.promote(**SECOND)
    assert line.checkpoints[second].rolled_back is None
    assert line.roll_back(second, "fewer rows") == first
    with pytest.raises(InvariantError, match="is already a checkpoint of this line"):
        line.promote(**SECOND)
    marked = line.checkpoints[second]
    again = {"checkpoint": second, "parent": first, **SECOND}
    line.trigger_event(Line.Promoted, **again)
    assert line.checkpoints[second] == replace(marked, rolled_back="fewer rows")
