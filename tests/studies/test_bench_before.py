"""An earlier revision and this checkout are asked the same; a page takes up what was printed."""

from pathlib import Path

import pytest
from studies.speed import before
from studies.speed.page import filled

from proctor.errors import ProctorError


@pytest.mark.slow  # it measures
def test_an_earlier_revision_and_this_checkout_are_asked_the_same(tmp_path: Path) -> None:
    found = before.measure(tmp_path, "HEAD", entries=[500], epochs=20, rounds=1)
    assert len(found.rows) == 12
    assert all(row.before > 0 and row.ratio.least == row.ratio.most for row in found.rows)
    assert not list(tmp_path.iterdir())


def test_a_revision_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for name in ("no-such-revision", "--output=x"):
        with pytest.raises(ProctorError, match="git rev-parse"):
            before.extract(name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_figures_take_the_place_of_earlier_ones() -> None:
    page = "a\n<!-- figures: x -->\n\nold\n\n<!-- end -->\nb\n<!-- figures: y -->\n<!-- end -->\n"
    new = filled(filled(page, "y", r"\1 of y"), "x", "new\n")
    assert new == (
        "a\n<!-- figures: x -->\n\nnew\n\n<!-- end -->\nb\n"
        "<!-- figures: y -->\n\n\\1 of y\n\n<!-- end -->\n"
    )
    with pytest.raises(ProctorError, match="'z'"):
        filled(page, "z", "")
