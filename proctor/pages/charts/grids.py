"""Grids over epochs: which rule fired, and how large the gradients of each layer were.

Source: rows as the views of projections/*.sql name them.
Trust: rows are hostile.  I/O: none.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aggregates.rulebook import PRECEDENCE
from ledger.wording import listed
from proctor.output.firings import fired_on, named
from proctor.pages.charts.drawing import (
    BLUE,
    BROWN,
    GREEN,
    LEFT,
    ORANGE,
    PAPER,
    RED,
    RIGHT,
    SOFT,
    SUNK,
    Chart,
    Columns,
    Drawing,
    Key,
    fitted,
    known,
    shade,
    without_wild,
)
from proctor.pages.rendering import number

_STATES = {  # what became of a fired rule -> letter, words, colour; the worst first
    "unanswered": ("!", "unanswered", RED),
    "refused": ("X", "refused: the remedy could not be carried out", ORANGE),
    "applied": ("A", "acted on", GREEN),
    "restart": ("R", "acted on in a restart", BLUE),
    "deferred": ("D", "deferred: put off", BROWN),
    "waived": ("w", "waived: does not count in this run", SOFT),
}
_ORDER = list(_STATES)
_MOST_COLUMNS = 240  # of the rules
_ROW = 26
_LAYERS = 160
_CELLS = 6_000  # of the layers
_LAYER_ROW = 18  # of many layers, each is lower, and not each row has its name
_LAYER_ROOM = 640
_NAME_ROOM = 12
_SHADES = 24


def rule_heatmap(cells: Sequence[Mapping[str, Any]], waived: Mapping[str, str]) -> Chart:
    """Chart the view rule_heatmap: which rule fired in which epoch, and what became of it.

    `waived` says why each waived rule is.
    """
    last = max((cell["epoch"] for cell in cells), default=0)
    together = math.ceil((last + 1) / _MOST_COLUMNS)  # epochs in a column
    found: dict[tuple[str, int], str] = {}
    fired: dict[str, list[int]] = {}
    for cell in cells:
        if cell["fired"] and cell["rule"] in PRECEDENCE:
            state = cell["outcome"] if cell["outcome"] in _STATES else "unanswered"
            state = "waived" if cell["waived"] else state
            at = cell["rule"], cell["epoch"] // together
            found[at] = min(found.get(at, state), state, key=_ORDER.index)
            fired.setdefault(cell["rule"], []).append(cell["epoch"])
    used = [state for state in _STATES if state in found.values()]

    def draw(drawing: Drawing) -> None:
        drawing.legend([Key(_STATES[s][1], _STATES[s][2], letter=_STATES[s][0]) for s in used])
        right = drawing.width - RIGHT
        columns = Columns(0, last // together, LEFT, right)
        for place, rule in enumerate(PRECEDENCE):
            y = drawing.height + place * _ROW
            drawing.path(f"M{LEFT} {y:.1f}H{right}v{_ROW - 4}H{LEFT}z", fill=SUNK)
            drawing.text(LEFT - 6, y + 15, rule, anchor="end")
        wide = max(columns.room - 1, columns.room * 0.9)
        for state in used:
            letter, _, colour = _STATES[state]
            at = [
                (columns(column), drawing.height + PRECEDENCE.index(rule) * _ROW)
                for (rule, column), each in sorted(found.items())
                if each == state
            ]
            drawing.path(
                "".join(
                    f"M{x - wide / 2:.1f} {y:.1f}h{wide:.1f}v{_ROW - 4}h{-wide:.1f}z" for x, y in at
                ),
                fill=colour,
            )
            if columns.room >= 11:
                for x, y in at:
                    drawing.text(x, y + 15, letter, colour=PAPER, bold=True)
        drawing.height += len(PRECEDENCE) * _ROW
        drawing.counted(
            Columns(0, last, LEFT, right), "epoch" if together == 1 else f"epoch, {together} each"
        )

    counted = [f"{rule} in {listed(fired[rule])}" for rule in PRECEDENCE if rule in fired]
    caption = "The rule at the top is acted on first."
    sides = [named(*each) for each in fired_on(cells)]
    if sides:
        caption = f"Fired: {', '.join(sides)}. {caption}"
    for why in dict.fromkeys(waived.values()):
        about = ", ".join(rule for rule, reason in waived.items() if reason == why)
        caption += f" Waived: {about}, {why}."
    if together > 1:
        caption += f" A column is {together} epochs."
    return Chart(
        "rules",
        "Rules that fired",
        caption if used else f"No rule fired. {caption}",
        f"Rules by epoch, {last + 1} epochs. "
        + (f"Fired: {'; '.join(counted)}." if counted else "No rule fired."),
        draw,
    )


def layer_heatmap(rows: Sequence[Mapping[str, Any]]) -> Chart:
    """Chart the gradient norms of the table layer_metrics, by layer and epoch."""
    last = max((row["epoch"] for row in rows), default=0)
    places = {row["layer"]: row["place"] for row in rows}
    layers = sorted(places, key=lambda layer: (places[layer], layer))
    together = math.ceil(len(layers) / _LAYERS) or 1  # layers in a row
    order = layers[::together]  # the first of each row
    rank = {layer: place // together for place, layer in enumerate(layers)}
    norms = [
        (row["epoch"], rank[row["layer"]], math.log10(row["grad_norm"]))
        for row in rows
        if known(row["grad_norm"]) and row["grad_norm"] > 0
    ]
    values = [value for _, _, value in norms]
    kept = without_wild(10.0**value for value in values)
    low, high = min(values, default=0.0), max(values, default=0.0)
    if kept is not None:
        low, high = map(math.log10, kept)
    high_row = min(_LAYER_ROW, _LAYER_ROOM // max(1, len(order)))
    apart = math.ceil(_NAME_ROOM / high_row)  # between rows with a name

    def draw(drawing: Drawing) -> None:
        left = 200 if drawing.width > 700 else 110
        most = max(1, (_CELLS if drawing.width > 700 else _CELLS // 3) // max(1, len(order)))
        step = math.ceil((last + 1) / most)
        _norm_legend(drawing, low, high)
        columns = Columns(0, last, left, drawing.width - RIGHT)
        cells: dict[int, list[str]] = {}
        for (pool, row), value in _pooled(norms, step=step).items():
            begin = left + pool * step * columns.room
            wide = min(step * columns.room, drawing.width - RIGHT - begin)
            y = drawing.height + row * high_row
            cells.setdefault(_shade_of(value, low, high), []).append(
                f"M{begin:.1f} {y:.0f}h{wide:.1f}v{high_row}h{-wide:.1f}z"
            )
        for place in sorted(cells):
            drawing.path("".join(cells[place]), fill=shade(place / (_SHADES - 1)))
        for place, layer in enumerate(order):
            y = drawing.height + place * high_row + high_row // 2 + 4
            if place % apart == 0:
                drawing.text(left - 6, y, fitted(layer, left - 8, end=True), anchor="end")
        drawing.height += len(order) * high_row
        drawing.counted(columns, "epoch")

    pooled = (
        f" The model has {len(layers)} layers: a row is the mean of {together} that follow each "
        "other, named after the first."
        if together > 1
        else f" The model has {len(layers)} layers."
    )
    if kept is not None:
        least, most = 10 ** min(values), 10 ** max(values)
        pooled += (
            f" A few are beyond the colours: all are from {number(least, 3)} to {number(most, 3)}."
        )
    spread = f", from {number(10**low, 3)} to {number(10**high, 3)}" if norms else ""
    return Chart(
        "gradients",
        "Gradient norm of each layer",
        "How strongly the loss pulls at each layer; the first layer is at the top. Logarithmic "
        f"colours; an empty cell was zero, not finite or not measured.{pooled}",
        f"Gradient norms of {len(layers)} layers over {last + 1} epochs{spread}.",
        draw,
    )


def _shade_of(value: float, low: float, high: float) -> int:
    value = max(low, min(high, value))
    return round((_SHADES - 1) * (value - low) / (high - low)) if high > low else _SHADES // 2


def _norm_legend(drawing: Drawing, low: float, high: float) -> None:
    """Draw the colours with the values at both ends and in the middle."""
    y, x = drawing.height + 6, 92.0
    wide = 200 / _SHADES
    drawing.text(0, y + 10, "gradient norm", anchor="start")
    for place in range(_SHADES):
        at = x + place * wide
        drawing.path(
            f"M{at:.1f} {y:.1f}h{wide + 0.4:.1f}v12h{-wide - 0.4:.1f}z",
            fill=shade(place / (_SHADES - 1)),
        )
    for part in (0.0, 0.5, 1.0) if high > low else (0.5,):
        drawing.text(x + 200 * part, y + 26, number(10 ** (low + (high - low) * part), 2))
    drawing.height += 40


def _pooled(norms: Iterable[tuple[int, int, float]], *, step: int) -> dict[tuple[int, int], float]:
    """Return cells of a row and some epochs each, with the mean of the logarithms in them."""
    found: dict[tuple[int, int], list[float]] = {}
    for epoch, row, value in norms:
        found.setdefault((epoch // step, row), []).append(value)
    return {place: sum(values) / len(values) for place, values in found.items()}
