"""Curves over epochs, attempts, checkpoints or runs, with the rules that fired and the decisions.

Trust: rows are hostile; a value that is no number is marked or left out.
I/O: none.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from markupsafe import Markup

from ledger.wording import listed
from proctor.pages.charts.drawing import (
    BLUE,
    COLOURS,
    DASHES,
    INK,
    LEFT,
    RED,
    RIGHT,
    SOFT,
    Chart,
    Columns,
    Drawing,
    Key,
    Scale,
    course,
    known,
    shade,
    without_wild,
)
from proctor.pages.rendering import number

CURVES = len(COLOURS)  # that can be told apart
_MOST_POINTS = 400  # of a curve; more could not be seen
_FAR = 30  # times the smallest value: then the scale is logarithmic
_STRIP = 34  # above curves, for rules and decisions
_DIGIT = 7  # of the number of a decision; as much lies between two numbers
_ASIDE = 3  # between the intervals of two curves
_NAMED = 3  # of the values beyond the axis
_SPARK = (96, 22)


@dataclass(frozen=True)
class Curve:
    """A line of a chart. A value that is None was not measured."""

    label: str
    points: Sequence[tuple[int, Any]]
    spans: Mapping[int, tuple[float, float]] = field(default_factory=dict)  # intervals, by place
    apart: Collection[int] = ()  # places with a cross, which the line leaves out

    @cached_property
    def finite(self) -> Sequence[tuple[int, float]]:
        """The points that can be drawn."""
        return [(x, y) for x, y in self.points if known(y)]

    @property
    def broken(self) -> Iterator[int]:
        """Where a value is no finite number."""
        return (x for x, y in self.points if y is not None and not known(y))


def curves_of(
    name: str,
    title: str,
    rows: Sequence[Mapping[str, Any]],
    series: Mapping[str, str],
    *,
    over: str = "epoch",
    **more: Any,
) -> Chart:
    """Chart columns of rows over another column; `series` names each column for people."""
    drawn = [
        Curve(label, [(row[over], row[column]) for row in rows]) for column, label in series.items()
    ]
    return curves(name, title, drawn, over=over, **more)


def curves(  # noqa: PLR0915 - all that can be drawn, in its order
    name: str,
    title: str,
    drawn: Sequence[Curve],
    *,
    over: str = "epoch",
    names: Sequence[str] = (),
    unit: str = "",
    rules: Iterable[Mapping[str, Any]] = (),
    decisions: Iterable[Mapping[str, Any]] = (),
    lost: Collection[int] = (),
    limit: tuple[float, str] | None = None,
    ends: tuple[float, float] | None = None,
    share: bool = False,
    small: bool = False,
    sequence: bool = False,
    told: str = "",
) -> Chart:
    """Chart curves over something that is counted, from 0 if its numbers have names.

    Above them: a triangle where a rule fired, and the number of each decision that was carried
    out, from which a dashed line goes down.
    `limit` is a line across, and what it is; `lost` are places with a bar below. `ends` are
    those of the axis of values; a `share` has no logarithmic scale; `small` is half a chart; the
    curves of a `sequence` become lighter, and its legend names the first and the last.
    """
    drawn = [curve for curve in drawn if curve.points]
    places = [x for curve in drawn for x, _ in curve.points]
    first, last = min(places, default=0), max(places, default=0)
    values = [y for curve in drawn for _, y in curve.finite]
    values += [end for curve in drawn for span in curve.spans.values() for end in span]
    free = not share and ends is None
    kept = without_wild(values) if free else None
    if kept is not None:
        values = [value for value in values if kept[0] <= value <= kept[1]]
    wild = [
        (x, y)
        for curve in drawn
        for x, y in curve.finite
        if kept is not None and not kept[0] <= y <= kept[1]
    ]
    broken = sorted({x for curve in drawn for x in curve.broken})
    fired = sorted({row["epoch"] for row in rules if row["fired"] and not row["waived"]})
    done = [row for row in decisions if row["outcome"] in ("applied", "restart")]
    far = free and bool(values) and min(values) > 0 and max(values) / min(values) > _FAR
    within = (0.0, 1.0) if share else None
    shown = [curve for curve in drawn if curve.finite]
    looks = _looks(len(shown), sequence=sequence)

    def draw(drawing: Drawing) -> None:
        if len(shown) > 1:
            keys = [Key(c.label, *look) for c, look in zip(shown, looks, strict=True)]
            drawing.legend([keys[0], keys[-1]] if sequence and len(keys) > CURVES else keys)
        strip = _STRIP if fired or done else 0
        room = 130 if small else 240 if drawing.width > 700 else 190
        top, bottom = drawing.plot(room + strip)
        columns = Columns(first, last, LEFT, drawing.width - RIGHT)
        scale = Scale(values, bottom, top + strip, logarithmic=far, ends=ends, within=within)
        drawing.measured(scale, most=4 if small else 6)
        _marks(drawing, columns, done, fired, top=top, bottom=bottom)
        half = columns.room / 2
        bars = (f"M{columns(x) - half:.1f} {bottom - 2:.1f}h{2 * half:.1f}" for x in sorted(lost))
        drawing.path("".join(bars), stroke=RED, wide=5)

        def height(value: float) -> float:
            if kept is not None and not kept[0] <= value <= kept[1]:
                return bottom if value < kept[0] else top + strip
            return scale(value)

        if limit is not None:
            across = f"M{LEFT} {scale(limit[0]):.1f}H{drawing.width - RIGHT}"
            drawing.path(across, stroke=RED, wide=1.5, dashes="6 4")
        wide = columns.room > 8  # enough for a dot at each value
        for place, (curve, look) in enumerate(zip(shown, looks, strict=True)):
            on, off = (
                _thinned([point for point in curve.finite if (point[0] in curve.apart) == apart])
                for apart in (False, True)
            )
            aside = _ASIDE * (place - (len(shown) - 1) / 2) if wide else 0.0
            spans = [
                (columns(x) + aside, *map(height, curve.spans[x]))
                for x, _ in ([*on, *off] if wide else on)
                if x in curve.spans
            ]
            drawing.path(_spans(spans, apart=wide), stroke=look[0])
            _line(drawing, [(columns(x), height(y)) for x, y in on], *look, dots=wide)
            for x, y in off:
                drawing.point("cross", columns(x), height(y), RED, 3)
        for x, y in wild[:_NAMED]:
            anchor = "start" if columns(x) < drawing.width / 2 else "end"
            at = columns(x) + (6 if anchor == "start" else -6)
            drawing.text(at, height(y) + (10 if y > 0 else -4), number(y, 3), anchor=anchor)
        for x in broken[:_MOST_POINTS]:
            drawing.point("cross", columns(x), bottom - 8, RED, 3)
        if not values:
            middle = (LEFT + drawing.width - RIGHT) / 2
            drawing.text(middle, (top + bottom) / 2, "nothing was measured")
        drawing.counted(columns, over, names)

    marks = [
        *(["▼ a rule fired"] if fired else []),
        *(["dashed line with a number: that decision changed the training"] if done else []),
        *(["red bar below: points were lost there"] if lost else []),
    ]
    notes = [
        *(["✕ at the bottom: the value was not a finite number"] if broken else []),
        *([_told_wild(wild, over)] if wild else []),
        *([f"broken line across: {limit[1]}"] if limit is not None else []),
        *(["logarithmic scale"] if far else []),
    ]
    said = [course(curve.label, [y for _, y in curve.finite]) for curve in shown]
    ends_at = (names[first], names[last]) if names else (first, last)
    text = f"{title}, by {over}, {ends_at[0]} to {ends_at[1]}. " + (
        told or " ".join(said[:CURVES]) or "Nothing was measured."
    )
    if fired:
        text += f" Rules fired in epochs {listed(fired)}."
    return Chart(
        name, title, _sentence([unit, *notes] if unit else notes), text, draw, _sentence(marks)
    )


def _sentence(parts: Sequence[str]) -> str:
    told = "; ".join(parts)
    return f"{told[:1].upper()}{told[1:]}." if told else ""


def _told_wild(wild: Sequence[tuple[int, float]], over: str) -> str:
    """Return which values the axis leaves out."""
    told = ", ".join(f"{number(y, 3)} in {over} {x}" for x, y in wild[:_NAMED])
    more = f" and {len(wild) - _NAMED} more" if len(wild) > _NAMED else ""
    return f"beyond the axis, drawn at its end: {told}{more}"


def _marks(
    drawing: Drawing,
    columns: Columns,
    done: Sequence[Mapping[str, Any]],
    fired: Sequence[int],
    *,
    top: float,
    bottom: float,
) -> None:
    """Draw a line for each decision that was carried out, and a triangle where a rule fired."""
    free = 0.0  # where the next number does not touch the one before
    lines = []
    for row in done:
        x = columns(row["epoch"])
        lines.append(f"M{x:.1f} {top + 15:.1f}V{bottom:.1f}")
        half = _DIGIT / 2 * len(str(row["number"]))
        if x - half >= free:
            drawing.text(x, top + 12, row["number"], colour=INK, bold=True)
            free = x + half + _DIGIT
    drawing.path("".join(lines), stroke=SOFT, dashes="3 3")
    for epoch in fired:
        drawing.point("fired", columns(epoch), top + 24, RED)


def _spans(spans: Sequence[tuple[float, ...]], *, apart: bool) -> str:
    """Return the path of intervals: a line down for each, or a line along either end of all."""
    if apart:
        return "".join(f"M{x:.1f} {low:.1f}V{high:.1f}" for x, low, high in spans)
    ends = ("L".join(f"{each[0]:.1f} {each[end]:.1f}" for each in spans) for end in (1, 2))
    return "".join(f"M{end}" for end in ends if end)


def _line(
    drawing: Drawing, at: Sequence[tuple[float, float]], colour: str, dashes: str, *, dots: bool
) -> None:
    """Draw a curve, with a dot at each value if there is room for dots."""
    if len(at) > 1:
        line = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in at)
        drawing.path(line, stroke=colour, wide=2, dashes=dashes)
    if dots or len(at) == 1:
        for x, y in at:
            drawing.point("circle", x, y, colour, 2.2 if len(at) > 3 else 3.5)


def attempt_curves(rows: Sequence[Mapping[str, Any]]) -> Chart:
    """Chart the validation accuracy of each attempt of a campaign over its epochs."""
    numbers = sorted({row["number"] for row in rows})
    drawn = [
        Curve(
            f"attempt {number}",
            [(row["epoch"], row["val_accuracy"]) for row in rows if row["number"] == number],
        )
        for number in numbers
    ]
    best = max(
        ((y, curve.label) for curve in drawn for _, y in curve.finite), default=(0.0, "none")
    )
    return curves(
        "curves",
        "Validation accuracy of each attempt",
        drawn,
        share=True,
        sequence=len(drawn) > CURVES,
        unit="later attempts are lighter" if len(drawn) > CURVES else "",
        told=f"{len(drawn)} attempts. The best is {best[0]:.4g}, in {best[1]}.",
    )


def spark(values: Sequence[float | None]) -> Markup:
    """Return a small line without axes; what it shows stands in figures beside it."""
    finite = [(place, value) for place, value in enumerate(values) if known(value)]
    if len(finite) < 2:
        return Markup("")
    width, height = _SPARK
    ends = without_wild([y for _, y in finite]) or (-math.inf, math.inf)
    finite = [(x, min(max(y, ends[0]), ends[1])) for x, y in finite]
    scale = Scale([y for _, y in finite], height - 2, 2)
    end = finite[-1][0] or 1
    points = "L".join(
        f"{2 + (width - 4) * x / end:.1f} {scale(y):.1f}" for x, y in _thinned(finite, 60)
    )
    return Markup(  # noqa: S704 - numbers only
        f'<svg class="spark" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'aria-hidden="true"><path d="M{points}" fill="none" stroke="{BLUE}" '
        'stroke-width="1.5"/></svg>'
    )


def _looks(many: int, *, sequence: bool) -> list[tuple[str, str]]:
    """Return the colour and the dashes of each curve."""
    if sequence:
        return [(shade(0.25 + 0.55 * place / max(1, many - 1)), "") for place in range(many)]
    return [(COLOURS[place % CURVES], DASHES[place % CURVES]) for place in range(many)]


def _thinned(
    points: Sequence[tuple[int, float]], most: int = _MOST_POINTS
) -> Sequence[tuple[int, float]]:
    """Return so many points that each can be seen: of many, the lowest and highest of a stretch."""
    if len(points) <= most:
        return points
    size = -(-len(points) // (most // 2))
    kept: list[tuple[int, float]] = []
    for start in range(0, len(points), size):
        part = points[start : start + size]
        kept += sorted({min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])})
    return kept
