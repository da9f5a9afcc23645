"""Charts of the live view as SVG: drawn again with every epoch, so each takes about a millisecond.

The reports' charts (proctor/pages/charts.py) come from a library that needs 30 ms and 150 MB; a
page that changes every second has neither. Colours are classes of live.css, which knows both light
and dark; each curve also has dashes of its own.

Trust: texts are hostile and escaped here; numbers are formatted.
I/O: none.  Units: pixels.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup, escape

from proctor.output.terminal import visible

__all__ = ["CURVES", "Curve", "Frame", "curves", "figure", "rules", "spark", "start", "ticks"]

CURVES = 8  # that can be told apart
_CURVES = {"wide": 620, "narrow": 360}  # two beside each other in a wide window
_RULES = {"wide": 1248, "narrow": 360}
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 8, 24, 34
_HEIGHT = 260
_MOST_POINTS = 400  # of a curve; more could not be seen
_MOST_COLUMNS = 200  # of the rules
_FEW = 30  # places, whose points are also dots
_ROW = 22
_DIGIT = 8
_SPARK = (96, 22)
_STATES = {  # what became of a fired rule -> letter, words
    "applied": ("A", "acted on"),
    "restart": ("R", "acted on in a restart"),
    "deferred": ("D", "deferred"),
    "refused": ("X", "refused"),
    "unanswered": ("!", "unanswered"),
    "waived": ("w", "waived"),
}
_ORDER = ("unanswered", "refused", "applied", "restart", "deferred", "waived")


@dataclass(frozen=True)
class Curve:
    """A line of a chart."""

    label: str
    points: Sequence[tuple[float, float | None]]  # NaN and infinite values are marked, not drawn
    finite: Sequence[tuple[float, float]] = field(init=False)

    def __post_init__(self) -> None:
        finite = [(x, y) for x, y in self.points if y is not None and math.isfinite(y)]
        object.__setattr__(self, "finite", finite)

    def broken(self) -> list[float]:
        """Return where a value is not finite."""
        return [x for x, y in self.points if y is not None and not math.isfinite(y)]


def curves(
    name: str,
    title: str,
    drawn: Sequence[Curve],
    *,
    fired: Collection[int] = (),
    done: Mapping[int, str] | None = None,
    logarithmic: bool = False,
    over: str = "epoch",
    limit: tuple[float, str] | None = None,
) -> Markup:
    """Return a figure with curves over epochs, or over something else that is counted.

    `fired` are epochs in which a rule fired; `done` are those behind which a decision was carried
    out, with its number. `limit` is a value to compare with, and what it is.
    """
    done = done or {}
    drawn = drawn[:CURVES]
    values = [y for curve in drawn for _, y in curve.finite] + ([limit[0]] if limit else [])
    places = {x for curve in drawn for x, _ in curve.points}
    first, last = min(places, default=0), max(places, default=0)
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    logarithmic = logarithmic and low > 0 and high / low > 100
    notes = []
    if any(curve.broken() for curve in drawn):
        notes.append("✕ not a finite number")
    if logarithmic:
        notes.append("logarithmic scale")
    if limit:
        notes.append(f"the dashed line is {limit[1]}")
    count = int(last - first) + 1
    text = f"{title} over {count} {over}{'' if count == 1 else 's'}. " + " ".join(
        map(_course, drawn)
    )
    if fired:
        text += f" Rules fired in {len(fired)} epochs."
    parts = [figure(name, title, "; ".join(notes)), _legend(title, drawn)]
    for kind, width in _CURVES.items():
        frame = Frame(width, _HEIGHT, last, low, high, logarithmic=logarithmic, first=first)
        parts.append(start(kind, width, _HEIGHT, text))
        parts += frame.axes(over)
        if limit:
            y = frame.y(limit[0])
            parts.append(f'<path class="done" d="M{_LEFT} {y:.1f}H{width - _RIGHT}"/>')
        free = 0.0  # where the next number does not touch the one before
        for epoch, number in sorted(done.items()):
            x = frame.x(epoch)
            parts.append(f'<path class="done" d="M{x:.1f} {_TOP - 8}V{_HEIGHT - _BOTTOM}"/>')
            if x >= free:
                parts.append(
                    f'<text class="mark" x="{x:.1f}" y="{_TOP - 12}">{escape(number)}</text>'
                )
                free = x + _DIGIT * (len(number) + 1)
        for epoch in fired:
            x = frame.x(epoch)
            parts.append(f'<path class="fired" d="M{x - 4:.1f} {_TOP - 9}h8l-4 7z"/>')
        for place, curve in enumerate(drawn):
            path = _path(frame, _thinned(curve.finite))
            parts.append(f'<path class="curve c{place}" d="{path}"/>')
            if last - first < _FEW:
                dots = "".join(f"M{frame.x(x):.1f} {frame.y(y):.1f}h0" for x, y in curve.finite)
                parts.append(f'<path class="dot c{place}" d="{dots}"/>')
            parts += [
                f'<path class="fired cross" d="M{x - 3:.1f} {_HEIGHT - _BOTTOM - 9}l6 6m0-6l-6 6"/>'
                for x in map(frame.x, curve.broken()[:_MOST_POINTS])
            ]
        parts.append("</svg>")
    return Markup("".join([*parts, "</figure>"]))  # noqa: S704 - every text was escaped


def rules(cells: Iterable[Mapping[str, Any]], order: Sequence[str]) -> Markup:
    """Return a figure that shows which rule fired in which epoch, and what became of it."""
    found: dict[tuple[str, int], str] = {}
    last = 0
    listed = list(cells)
    last = max((cell["epoch"] for cell in listed), default=0)
    together = math.ceil((last + 1) / _MOST_COLUMNS)  # epochs in a column
    for cell in listed:
        if cell["fired"]:
            state = cell["outcome"] if cell["outcome"] in _STATES else "unanswered"
            state = "waived" if cell["waived"] else state
            at = cell["rule"], cell["epoch"] // together
            if at not in found or _ORDER.index(state) < _ORDER.index(found[at]):
                found[at] = state
    used = [state for state in _STATES if state in found.values()]
    counts = {rule: sum(r == rule for r, _ in found) for rule in order}
    text = f"Rules over {last + 1} epochs. " + (
        "; ".join(f"{rule} fired in {count} columns" for rule, count in counts.items() if count)
        or "No rule fired"
    )
    note = "The rule at the top is acted on first"
    if together > 1:
        note += f"; a column is {together} epochs"
    height = len(order) * _ROW + _BOTTOM + 4
    parts = [figure("rules", "Rules that fired", note)]
    keys = [
        f'<span><i class="s-{state}">{_STATES[state][0]}</i> {_STATES[state][1]}</span>'
        for state in used
    ]
    parts.append(f'<p class="keys">{"".join(keys) or "No rule fired."}</p>')
    for kind, width in _RULES.items():
        frame = Frame(width, height, last // together, 0, 1, logarithmic=False)
        frame.columns = last // together + 1
        room = (width - _LEFT - _RIGHT) / frame.columns
        parts.append(start(kind, width, height, text))
        for place, rule in enumerate(order):
            y = 4 + place * _ROW
            parts.append(
                f'<rect class="row" x="{_LEFT}" y="{y}" width="{width - _LEFT - _RIGHT}" '
                f'height="{_ROW - 3}"/><text class="name" x="{_LEFT - 8}" y="{y + 14}">'
                f"{escape(rule)}</text>"
            )
        for (rule, column), state in sorted(found.items()):
            if rule not in order:
                continue
            y = 4 + order.index(rule) * _ROW
            x = _LEFT + column * room
            parts.append(
                f'<rect class="s-{state}" x="{x:.1f}" y="{y}" width="{max(room - 0.5, 1):.1f}" '
                f'height="{_ROW - 3}"/>'
            )
            if room >= 12:  # there is room for a letter
                parts.append(
                    f'<text class="letter" x="{x + room / 2:.1f}" y="{y + 14}">'
                    f"{_STATES[state][0]}</text>"
                )
        parts += frame.epochs(height, factor=together)
        parts.append("</svg>")
    return Markup("".join([*parts, "</figure>"]))  # noqa: S704 - every text was escaped


def spark(values: Sequence[float | None]) -> Markup:
    """Return a small line without axes; what it shows stands in figures beside it."""
    finite = [
        (place, value)
        for place, value in enumerate(values)
        if value is not None and math.isfinite(value)
    ]
    if len(finite) < 2:
        return Markup("")
    width, height = _SPARK
    low, high = min(y for _, y in finite), max(y for _, y in finite)
    end = finite[-1][0] or 1
    points = " ".join(
        f"{2 + (width - 4) * x / end:.1f},"
        f"{height - 2 - (height - 4) * ((y - low) / (high - low) if high > low else 0.5):.1f}"
        for x, y in finite
    )
    return Markup(  # noqa: S704 - numbers only
        f'<svg class="spark" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'aria-hidden="true"><polyline points="{points}"/></svg>'
    )


class Frame:
    """The place of values in a drawing."""

    def __init__(
        self,
        width: int,
        height: int,
        last: float,
        low: float,
        high: float,
        *,
        logarithmic: bool = False,
        first: float = 0,
    ) -> None:
        self.width, self.height, self.first = width, height, first
        self.last = max(last, first + 1)
        self.columns = 0  # a value is in the middle of its column, if there are any
        self.logarithmic = logarithmic
        if logarithmic:
            low, high = math.log10(low), math.log10(high)
        if high <= low:
            low, high = low - (abs(low) * 0.1 or 0.5), high + (abs(high) * 0.1 or 0.5)
        room = (high - low) * 0.05
        self.low, self.high = low - room, high + room

    def x(self, value: float) -> float:
        """Return where a counted value is."""
        part = (value - self.first) / (self.last - self.first)
        if self.columns:
            part = (value + 0.5) / self.columns
        return _LEFT + (self.width - _LEFT - _RIGHT) * part

    def y(self, value: float) -> float:
        """Return where a measured value is."""
        if self.logarithmic:
            value = math.log10(value)
        part = (value - self.low) / (self.high - self.low)
        return self.height - _BOTTOM - (self.height - _BOTTOM - _TOP) * part

    def axes(self, over: str) -> list[str]:
        """Return the lines and numbers of both axes."""
        parts = []
        if self.logarithmic:
            ends = range(math.ceil(self.low), math.floor(self.high) + 1)
            marked = [10.0**power for power in ends] or [10 ** ((self.low + self.high) / 2)]
            marked = marked[:: math.ceil(len(marked) / 6)]
        else:
            marked = list(ticks(self.low, self.high, 5))
        for value in marked:
            y = self.y(value)
            parts.append(
                f'<path class="grid" d="M{_LEFT} {y:.1f}H{self.width - _RIGHT}"/>'
                f'<text class="name" x="{_LEFT - 6}" y="{y + 4:.1f}">{value:.4g}</text>'
            )
        return parts + self.epochs(self.height, over=over)

    def epochs(self, height: int, *, factor: int = 1, over: str = "epoch") -> list[str]:
        """Return the numbers of the epochs, or of what else is counted, and what they are."""
        parts = []
        most = 10 if self.width > 500 else 5
        base = height - _BOTTOM + 4
        for value in ticks(self.first, self.last, most, whole=True):
            parts.append(
                f'<text class="tick" x="{self.x(value):.1f}" y="{base + 12}">'
                f"{value * factor:.0f}</text>"
            )
        middle = _LEFT + (self.width - _LEFT - _RIGHT) / 2
        parts.append(f'<text class="tick" x="{middle:.0f}" y="{base + 27}">{escape(over)}</text>')
        return parts


def ticks(low: float, high: float, most: int, *, whole: bool = False) -> Iterable[float]:
    """Yield round numbers between two."""
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw)) if raw > 0 else 1.0
    step = next((power * each for each in (1, 2, 5) if power * each >= raw), power * 10)
    if whole:
        step = max(1.0, round(step))
    first = math.ceil(low / step)
    for number in range(first, first + most + 2):
        if number * step <= high + step * 1e-9:
            yield number * step


def _path(frame: Frame, points: Sequence[tuple[float, float]]) -> str:
    if len(points) == 1:  # a dot
        return f"M{frame.x(points[0][0]) - 2:.1f} {frame.y(points[0][1]):.1f}h4"
    return "M" + "L".join(f"{frame.x(x):.1f} {frame.y(y):.1f}" for x, y in points) if points else ""


def _thinned(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Return so many points that each can be seen: of many, the lowest and highest of a stretch."""
    if len(points) <= _MOST_POINTS:
        return points
    size = math.ceil(len(points) / (_MOST_POINTS // 2))
    kept: list[tuple[float, float]] = []
    for start in range(0, len(points), size):
        part = points[start : start + size]
        ends = {min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])}
        kept += sorted(ends)
    return kept


def _course(curve: Curve) -> str:
    if not curve.finite:
        return f"{visible(curve.label)}: no values."
    values = [y for _, y in curve.finite]
    return (
        f"{visible(curve.label)}: from {values[0]:.4g} to {values[-1]:.4g}, "
        f"lowest {min(values):.4g}, highest {max(values):.4g}."
    )


def figure(name: str, title: str, note: str) -> str:
    """Return the beginning of a figure."""
    return (
        f'<figure id="chart-{escape(name)}" class="live"><figcaption><b>{escape(title)}.</b> '
        f"{escape(note)}{'.' if note else ''}</figcaption>"
    )


def _legend(title: str, drawn: Sequence[Curve]) -> str:
    if [curve.label.lower() for curve in drawn] == [title.lower()]:
        return ""
    keys = [
        f'<span><svg class="key" width="28" height="10" aria-hidden="true">'
        f'<path class="curve c{place}" d="M0 5h28"/></svg> {escape(visible(curve.label))}</span>'
        for place, curve in enumerate(drawn)
    ]
    return f'<p class="keys">{"".join(keys)}</p>'


def start(kind: str, width: int, height: int, text: str) -> str:
    """Return the beginning of a drawing; `text` says what it shows."""
    return (
        f'<svg class="{kind}" role="img" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" aria-label="{escape(text)}">'
    )
