"""What all charts are drawn with: colours, axes, legends, and the SVG that holds them.

A chart is drawn for a width. A page has it twice, wide and narrow, and shows one of them. The
colours are those of a light page; style.css gives each its counterpart on a dark one. They differ
for the colour-blind, and each also differs by dashes, shape or a letter.

Trust: texts are hostile; Drawing escapes each. Numbers may be any that a float can be.
I/O: none.  Units: pixels.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from markupsafe import Markup, escape

from proctor.output.terminal import visible

NARROW, WIDE = 358, 1024
INK, SOFT, LINE, SUNK, PAPER = "#1b2733", "#55636f", "#d5dbe1", "#f3f5f7", "#ffffff"
BLUE, ORANGE, GREEN, PINK = "#0068a8", "#c44f00", "#007a5a", "#a6478a"
BROWN, RED, VIOLET, DARK = "#7a5600", "#b00040", "#4a5a9a", "#3d3d3d"
COLOURS = (BLUE, ORANGE, GREEN, PINK, BROWN, RED, VIOLET, DARK)
DASHES = ("", "7 3", "2 2", "9 3 2 3", "14 4", "4 2", "9 2 2 2 2 2", "1 3")
LEFT, RIGHT = 52, 10  # beside a plot: the epochs of charts lie below each other
_FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
LETTER = 6.4  # of a text, on average
_FEW = 5  # values, of which none is wild
_NEAR = 0.5  # a range, in powers of ten, below which no value is wild
_HUGE = 1e300  # values beyond are drawn there
_VIRIDIS = (
    *(0x440154, 0x482878, 0x3E4A89, 0x31688E, 0x26828E),
    *(0x1F9E89, 0x35B779, 0x6ECE58, 0xB5DE2B, 0xFDE725),
)


@dataclass(frozen=True)
class Chart:
    """What a chart is called and says, and how it is drawn for a width."""

    name: str  # of its file, and of its anchor in a page
    title: str
    caption: str  # below the title
    text: str  # what it shows, for those who do not see it
    draw: "Callable[[Drawing], None]" = field(compare=False)
    marks: str = ""  # what its marks mean: a page says it once

    def drawn(self, wide: int = WIDE) -> Markup:
        """Return the two drawings of a page."""
        return Markup(  # noqa: S704 - escaped by both
            "\n".join(
                svg(self, width, kind) for width, kind in ((wide, "wide"), (NARROW, "narrow"))
            )
        )


def svg(chart: Chart, width: int = WIDE, kind: str = "") -> str:
    """Return the drawing for a width, which is complete without a page."""
    drawing = Drawing(width)
    chart.draw(drawing)
    height = math.ceil(drawing.height)
    name = f'class="{kind}" ' if kind else ""
    return (
        f'<svg {name}role="img" aria-label="{escape(visible(chart.text))}" '
        f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="{_FONT}" font-size="12">{"".join(drawing.parts)}</svg>'
    )


def on_white(chart: Chart) -> str:
    """Return a drawing for places whose background is not known."""
    drawn = svg(chart)
    at = drawn.index(">") + 1
    return f'{drawn[:at]}<rect width="100%" height="100%" fill="{PAPER}"/>{drawn[at:]}'


def png(chart: Chart) -> bytes:
    """Return a picture on white, in twice the size for sharp print."""
    import vl_convert  # noqa: PLC0415 - an extra that pages do without

    return vl_convert.svg_to_png(on_white(chart), scale=2)


@dataclass(frozen=True)
class Key:
    """A part of a legend: a line with dashes, a field with a letter, or a shape."""

    label: str
    colour: str
    dashes: str | None = None
    letter: str | None = None
    shape: str | None = None


class Drawing:
    """An SVG that grows downwards."""

    def __init__(self, width: int) -> None:
        """Begin an empty drawing."""
        self.width = width
        self.height = 4.0
        self.parts: list[str] = []

    def path(
        self, d: str, *, stroke: str = "", fill: str = "none", wide: float = 1, dashes: str = ""
    ) -> None:
        """Draw a path, if there is one."""
        if d:
            line = f' stroke="{stroke}" stroke-width="{wide:g}"' if stroke else ""
            line += f' stroke-dasharray="{dashes}"' if dashes else ""
            self.parts.append(f'<path d="{d}" fill="{fill}"{line}/>')

    def text(
        self,
        x: float,
        y: float,
        words: Any,
        *,
        anchor: str = "middle",
        colour: str = SOFT,
        bold: bool = False,
    ) -> None:
        """Write a text on a line."""
        weight = ' font-weight="bold" font-size="11"' if bold else ""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"{weight}>'
            f"{escape(visible(str(words)))}</text>"
        )

    def point(self, shape: str, x: float, y: float, colour: str, size: float = 4) -> None:
        """Draw a mark around a place."""
        d = {
            "circle": f"M{x - size:.1f} {y:.1f}a{size} {size} 0 1 0 {2 * size} 0"
            f"a{size} {size} 0 1 0 {-2 * size} 0z",
            "square": f"M{x - size:.1f} {y - size:.1f}h{2 * size}v{2 * size}h{-2 * size}z",
            "diamond": f"M{x:.1f} {y - size * 1.4:.1f}l{size * 1.4:.1f} {size * 1.4:.1f}"
            f"l{-size * 1.4:.1f} {size * 1.4:.1f}l{-size * 1.4:.1f} {-size * 1.4:.1f}z",
            "fired": f"M{x - size:.1f} {y - size:.1f}h{2 * size}l{-size} {1.7 * size:.1f}z",
        }.get(shape)
        if d is not None:
            self.path(d, fill=colour)
        else:
            cross = f"M{x - size:.1f} {y - size:.1f}l{2 * size} {2 * size}m0 {-2 * size}"
            self.path(f"{cross}l{-2 * size} {2 * size}", stroke=colour, wide=2.5)

    def legend(self, keys: Sequence[Key]) -> None:
        """Write what colours and shapes mean, in as many lines as it takes."""
        x = 0.0
        for key in keys:
            label = fitted(key.label, self.width - 40)
            room = 34 + len(label) * LETTER + 14
            if x and x + room > self.width:
                x, self.height = 0.0, self.height + 20
            y = self.height + 8
            if key.dashes is not None:
                line = f"M{x:.1f} {y:.1f}h26"
                self.path(line, stroke=key.colour, wide=2, dashes=key.dashes)
            elif key.letter is not None:
                self.path(f"M{x + 6:.1f} {y - 7:.1f}h18v14h-18z", fill=key.colour)
                self.text(x + 15, y + 4, key.letter, colour=PAPER, bold=True)
            else:
                self.point(key.shape or "circle", x + 15, y, key.colour, 5)
            self.text(x + 32, y + 4, label, anchor="start", colour=INK)
            x += room
        self.height += 24 if keys else 0

    def plot(self, room: float) -> tuple[float, float]:
        """Draw the frame of a plot below what there is; return its upper and lower end."""
        top = self.height + 4
        self.path(f"M{LEFT} {top:.1f}H{self.width - RIGHT}v{room:g}H{LEFT}z", stroke=LINE)
        self.height = top + room
        return top, top + room

    def measured(self, scale: "Scale", *, most: int) -> None:
        """Draw the lines and numbers of an axis of measured values at the left."""
        for value, label in scale.ticks(most):
            y = scale(value)
            self.path(f"M{LEFT} {y:.1f}H{self.width - RIGHT}", stroke=LINE)
            self.text(LEFT - 6, y + 4, label, anchor="end")

    def counted(self, columns: "Columns", title: str, names: Sequence[str] = ()) -> None:
        """Write the numbers of an axis that counts, or their names, and what it counts, below."""
        for value in columns.ticks(self.width // 44):
            x = columns(value)
            self.path(f"M{x:.1f} {self.height:.1f}v4", stroke=LINE)
            self.text(x, self.height + 17, names[value] if names else f"{value}")
        self.text((columns.start + columns.end) / 2, self.height + 33, title)
        self.height += 40


class Scale:
    """Where measured values lie between two places."""

    def __init__(
        self,
        values: Iterable[float],
        start: float,
        end: float,
        *,
        logarithmic: bool = False,
        ends: tuple[float, float] | None = None,
        within: tuple[float, float] | None = None,
    ) -> None:
        """Take the range of values, widened a little, as far as `within`; or given ends."""
        found = [max(-_HUGE, min(_HUGE, value)) for value in values]
        self.start, self.end, self.logarithmic = start, end, logarithmic
        low, high = min(found, default=0.0), max(found, default=1.0)
        if logarithmic:
            low, high = math.log10(low), math.log10(high)
        size = max(abs(low), abs(high))
        seen = high - low > size * 1e-4
        room = (high - low) * 0.06 if seen else size * 0.1 or 0.5
        if within is not None and within[0] <= low and high <= within[1]:
            ends = max(within[0], low - room), min(within[1], high + room)
        self.low, self.high = ends or (low - room, high + room)

    def __call__(self, value: float) -> float:
        """Return the place of a value."""
        value = max(-_HUGE, min(_HUGE, value))
        if self.logarithmic:
            value = math.log10(value)
        return self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low)

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Return round numbers between the ends, as they are written."""
        if self.logarithmic:
            return [(value, f"{value:g}") for value in _powers(self.low, self.high, most)]
        step = _step((self.high - self.low) / most)
        if step <= 0 or not math.isfinite(step):
            return []
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        size, power = max(abs(self.low), abs(self.high)), math.floor(math.log10(step))
        if 1e-4 <= size < 1e6:
            form = f",.{max(0, -power)}f"
        else:
            form = f".{max(0, math.floor(math.log10(size)) - power)}e"
        return [(number * step, f"{number * step:{form}}") for number in range(first, last + 1)]


class Columns:
    """Where numbers that are counted lie: each has a column."""

    def __init__(self, first: int, last: int, start: float, end: float) -> None:
        """Divide the room between two places."""
        self.first, self.last, self.start, self.end = first, last, start, end
        self.room = (end - start) / (last - first + 1)

    def __call__(self, value: float) -> float:
        """Return the middle of a column."""
        return self.start + (value - self.first + 0.5) * self.room

    def ticks(self, most: int) -> range:
        """Return round numbers of columns."""
        step = max(1, round(_step((self.last - self.first + 1) / most)))
        return range(-(-self.first // step) * step, self.last + 1, step)


def _step(least: float) -> float:
    """Return the smallest round number that is not less."""
    if least < 1e-300:
        return 0.0
    power = 10.0 ** math.floor(math.log10(least))
    return next((power * each for each in (1, 2, 5) if power * each >= least * 0.999), power * 10)


def _powers(low: float, high: float, most: int) -> list[float]:
    """Return powers of ten between logarithms; of few, also their double and fivefold."""
    low, high = max(low, -307.0), min(high, 307.0)
    powers = range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)
    if len(powers) >= 3:
        return [10.0**power for power in powers[:: math.ceil(len(powers) / most)]]
    found = [
        factor * 10.0**power
        for power in range(math.floor(low), math.ceil(high))
        for factor in (1, 2, 5)
    ]
    return [value for value in found if low <= math.log10(value) <= high]


def shade(part: float) -> str:
    """Return a colour from dark violet (0) over green to yellow (1), for everybody's eyes."""
    at = max(0.0, min(1.0, part)) * (len(_VIRIDIS) - 1)
    one, other = _VIRIDIS[math.floor(at)], _VIRIDIS[math.ceil(at)]
    mixed = [
        round((one >> bits & 255) * (1 - at % 1) + (other >> bits & 255) * (at % 1))
        for bits in (16, 8, 0)
    ]
    return f"rgb({','.join(map(str, mixed))})"


def known(value: Any) -> TypeGuard[float]:
    """Return whether a value is a finite number."""
    return isinstance(value, int | float) and math.isfinite(value)


def fitted(words: Any, room: float, *, end: bool = False) -> str:
    """Return as much of a text as fits into some pixels: its beginning, or its end."""
    text, most = visible(str(words)[:400]), max(2, math.floor(room / LETTER))
    if len(text) <= most:
        return text
    return f"…{text[1 - most :]}" if end else f"{text[: most - 1]}…"


def without_wild(values: Iterable[float]) -> tuple[float, float] | None:
    """Return the ends of values without a few that lie far from all others; None: none do.

    Far is three times the range of the others away; of positive values, by their logarithms.
    """
    found = sorted(values)
    if len(found) < _FEW:
        return None
    told = [math.log10(value) for value in found] if found[0] > 0 else found
    first, last = 0, len(found) - 1
    for _ in range(max(1, len(found) // 20)):
        within = max(
            told[last - 1] - told[first], _NEAR * (1 if found[0] > 0 else abs(told[last - 1]))
        )
        if told[last] - told[last - 1] > 3 * within:
            last -= 1
        within = max(
            told[last] - told[first + 1], _NEAR * (1 if found[0] > 0 else abs(told[first + 1]))
        )
        if told[first + 1] - told[first] > 3 * within:
            first += 1
    return None if last - first == len(found) - 1 else (found[first], found[last])


def course(label: str, values: Sequence[float]) -> str:
    """Return how values went, for those who do not see them."""
    if not values:
        return f"{label}: no values."
    return (
        f"{label}: from {values[0]:.4g} to {values[-1]:.4g}, lowest {min(values):.4g}, "
        f"highest {max(values):.4g}."
    )
