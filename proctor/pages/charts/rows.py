"""Values by label: a row for each policy, with its runs, or with an interval.

Trust: labels are hostile.  I/O: none.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from proctor.output.terminal import visible
from proctor.pages.charts.drawing import (
    BLUE,
    INK,
    LETTER,
    LINE,
    ORANGE,
    RIGHT,
    SOFT,
    Chart,
    Drawing,
    Scale,
    fitted,
    known,
)

_ROW = 34


def strip(
    name: str,
    title: str,
    *,
    rows: Mapping[str, Sequence[Any]],
    unit: str,
    share: bool = True,
) -> Chart:
    """Chart each value as a dot in the row of its label, with the mean as a vertical tick."""
    found = {label: [value for value in values if known(value)] for label, values in rows.items()}
    means = {each: sum(values) / len(values) for each, values in found.items() if values}

    def draw(drawing: Drawing) -> None:
        values = [one for several in found.values() for one in several]
        scale = _rows(drawing, [*found], values, unit, within=(0, 1) if share else None)
        for place, each in enumerate(found):
            y = drawing.height + (place + 0.5) * _ROW
            for one in found[each]:
                drawing.point("circle", scale(one), y, BLUE)
            if each in means:
                drawing.path(f"M{scale(means[each]):.1f} {y - 12:.1f}v24", stroke=ORANGE, wide=3)
        drawing.height += len(found) * _ROW + 40

    said = ", ".join(f"{each} {mean:.4g}" for each, mean in means.items())
    text = f"{title}. Means: {said}." if said else f"{title}. No values."
    return Chart(name, title, "A dot for each seed, the mean as a line down.", text, draw)


def intervals(
    name: str,
    title: str,
    *,
    rows: Sequence[tuple[str, float, float | None, float | None]],
    unit: str,
    caption: str,
) -> Chart:
    """Chart a difference and its interval for each label; zero is a line down."""
    ends = [v for _, *values in rows for v in values if known(v)]

    def draw(drawing: Drawing) -> None:
        scale = _rows(drawing, [label for label, *_ in rows], [0.0, *ends], unit)
        bottom = drawing.height + len(rows) * _ROW
        drawing.path(f"M{scale(0):.1f} {drawing.height:.1f}V{bottom:.1f}", stroke=INK, wide=1.5)
        for place, (_, middle, low, high) in enumerate(rows):
            y = drawing.height + (place + 0.5) * _ROW
            if low is not None and high is not None:
                drawing.path(
                    f"M{scale(low):.1f} {y - 6:.1f}v12m0 -6H{scale(high):.1f}m0 -6v12",
                    stroke=BLUE,
                    wide=2,
                )
            drawing.point("diamond", scale(middle), y, BLUE)
        drawing.height = bottom + 40

    said = "; ".join(
        f"{label} {middle:+.4g}" + (f", from {low:+.4g} to {high:+.4g}" if low is not None else "")
        for label, middle, low, high in rows
    )
    return Chart(name, title, caption, f"{title}. {said or 'No values'}.", draw)


def _rows(
    drawing: Drawing,
    labels: Sequence[str],
    values: Sequence[float],
    unit: str,
    *,
    within: tuple[float, float] | None = None,
) -> Scale:
    """Draw the frame, with a line for each label and an axis below; return the scale of values."""
    longest = max((len(visible(label)) for label in labels), default=0)
    left = min(drawing.width * 0.4, max(60, longest * LETTER + 14))
    right = drawing.width - RIGHT - 6
    top, bottom = drawing.height, drawing.height + len(labels) * _ROW
    drawing.path(f"M{left} {top:.1f}H{drawing.width - RIGHT}V{bottom:.1f}H{left}z", stroke=LINE)
    scale = Scale(values, left + 6, right, within=within)
    for value, label in scale.ticks(4 if drawing.width > 450 else 3):
        drawing.path(f"M{scale(value):.1f} {top:.1f}V{bottom + 4:.1f}", stroke=LINE)
        drawing.text(scale(value), bottom + 17, label)
    for place, label in enumerate(labels):
        y = top + (place + 0.5) * _ROW
        drawing.path(f"M{left} {y:.1f}H{drawing.width - RIGHT}", stroke=LINE)
        drawing.text(left - 6, y + 4, fitted(label, left - 8), anchor="end", colour=SOFT)
    drawing.text((left + right) / 2, bottom + 33, unit)
    return scale
