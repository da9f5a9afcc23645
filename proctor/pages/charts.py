"""Charts as SVG, drawn by Vega-Lite (vl-convert): no script and no request in the page.

Each chart is drawn for a width. A page has it twice, wide and narrow, and shows one of them. The
colours are those of a light page; style.css gives each its counterpart on a dark one. They differ
for the colour-blind, and each also differs by dashes, shape or a letter.

Source: rows as the views of projections/*.sql name them.
Trust: rows are hostile; texts of theirs become data of a specification, never a part of it.
I/O: none; the library is given nothing to fetch.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import vl_convert
from markupsafe import Markup, escape

from aggregates.rules import PRECEDENCE
from proctor.output.terminal import visible
from proctor.pages.plots import Chain, Dots, Lines, Plot

__all__ = [
    "COLOURS",
    "Chart",
    "attempt_curves",
    "curves",
    "layer_heatmap",
    "lineage",
    "png",
    "rule_heatmap",
    "strip",
    "svg",
]

NARROW, WIDE = 358, 1024  # pixels
_WIDTHS = ((WIDE, "wide"), (NARROW, "narrow"))
INK, SOFT, LINE, SUNK, PAPER = "#1b2733", "#55636f", "#d5dbe1", "#f3f5f7", "#ffffff"
BLUE, ORANGE, GREEN, PINK, BROWN, RED = (
    "#0068a8",
    "#c44f00",
    "#007a5a",
    "#a6478a",
    "#7a5600",
    "#b00040",
)
COLOURS = (BLUE, ORANGE, GREEN, PINK, BROWN, RED)
_DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 3], [1, 4])
_VERSION = "5.20"  # of Vega-Lite
_AXIS = 48  # pixels beside a plot: the epochs of charts lie below each other
_STRIP = 32  # pixels above curves, for rules and decisions
_LONGEST = 300  # characters of a text
_LAYERS = 80  # of a heatmap
_CELLS = 6_000  # likewise; a cell has some 130 bytes
_APART = 16  # pixels between two numbers of decisions
_CONFIG: Mapping[str, Any] = {
    "mark": {"aria": False},  # the whole drawing has one text, see _labelled()
    "background": None,
    "font": "Liberation Sans, Arial, Helvetica, sans-serif",
    "padding": {"left": 8, "right": 8, "top": 4, "bottom": 4},
    "view": {"stroke": LINE},
    "axis": {
        "aria": False,
        "labelColor": SOFT,
        "titleColor": SOFT,
        "titleFontWeight": "normal",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "gridColor": LINE,
        "domainColor": LINE,
        "tickColor": LINE,
    },
    "legend": {
        "aria": False,
        "orient": "top",
        "title": None,
        "labelColor": INK,
        "labelFontSize": 12,
        "titleColor": SOFT,
        "titleFontWeight": "normal",
        "symbolSize": 160,
        "offset": 6,
        "symbolStrokeWidth": 2,
    },
}


@dataclass(frozen=True)
class Chart:
    """What a chart is called and says, and the specification for a width."""

    name: str  # of its file, and of its anchor in a page
    title: str
    caption: str  # below the title
    text: str  # what it shows, for those who do not see it
    specify: Callable[[int], dict[str, Any]] = field(compare=False)
    plot: Plot | None = field(default=None, compare=False)  # of those that the live view draws

    def drawn(self, *, half: bool = False) -> Markup:
        """Return the two drawings of a page; `half` for a place beside another chart."""
        widths = ((WIDE // 2, "wide"), (NARROW, "narrow")) if half else _WIDTHS
        return Markup("\n").join(
            Markup(_labelled(svg(self, width), self, kind))  # noqa: S704 - escaped by both
            for width, kind in widths
        )


def svg(chart: Chart, width: int = WIDE) -> str:
    """Return the drawing for a width."""
    specification = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": width,
        "autosize": {"type": "fit", "contains": "padding"},
        "config": dict(_CONFIG),
        **chart.specify(width),
    }
    return vl_convert.vegalite_to_svg(
        json.dumps(_drawable(specification)), vl_version=_VERSION, allowed_base_urls=[]
    )


def _drawable(value: Any) -> Any:
    """Return a specification whose texts are short and printable: any other aborts the process."""
    if isinstance(value, dict):
        return {key: _drawable(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_drawable(inner) for inner in value]
    return visible(value[:_LONGEST]) if isinstance(value, str) else value


def png(chart: Chart) -> bytes:
    """Return a picture on white, in twice the size for sharp print."""
    drawn = svg(chart)
    at = drawn.index(">") + 1
    white = f'<rect width="100%" height="100%" fill="{PAPER}"/>'
    return vl_convert.svg_to_png(drawn[:at] + white + drawn[at:], scale=2)


def _labelled(drawn: str, chart: Chart, kind: str) -> str:
    """Return a drawing with its text, and with names of gradients that no other drawing has.

    The library numbers them through all that it ever draws: the same chart is to be the same text.
    """
    numbers: dict[str, int] = {}

    def rename(found: re.Match[str]) -> str:
        number = numbers.setdefault(found[2], len(numbers))
        return f"{found[1]}{chart.name}-{kind}-{number}"

    drawn = re.sub(r'(id="|url\(#)((?:gradient|clip)_?\d+)', rename, drawn)
    label = f'<svg role="img" aria-label="{escape(visible(chart.text))}" '
    return drawn.replace("<svg ", label, 1).replace('class="marks"', f'class="{kind}"', 1)


# ------------------------------------------------------------------------------------------------
# A run


def curves(
    name: str,
    title: str,
    *,
    rows: Sequence[Mapping[str, Any]],
    series: Mapping[str, str],
    over: str = "epoch",
    rules: Iterable[Mapping[str, Any]] = (),
    decisions: Iterable[Mapping[str, Any]] = (),
    limit: tuple[float, str] | None = None,
    domain: tuple[float, float] | None = None,
    small: bool = False,
) -> Chart:
    """Chart columns of rows over another column; `series` names each column for people.

    Above the curves: a triangle where a rule fired, and the number of each decision that was
    carried out, from which a dashed line goes down. `limit` is a line across, and what it is.
    `domain` are the values that the axis has; `small` is half a chart.
    """
    points, broken = [], set()
    for row in rows:
        for column, label in series.items():
            value = row[column]
            if value is None:
                continue
            if not isinstance(value, int | float) or not math.isfinite(value):
                broken.add(row[over])
            else:
                points.append({"x": row[over], "value": value, "series": label})
    ends = [
        min((row[over] for row in rows), default=0),
        max((row[over] for row in rows), default=0),
    ]
    fired = sorted({row["epoch"] for row in rules if row["fired"] and not row["waived"]})
    done = [row for row in decisions if row["outcome"] in ("applied", "restart")]
    values = [point["value"] for point in points]
    logarithmic = bool(values) and min(values) > 0 and max(values) / min(values) > 300
    shown = [label for label in series.values() if any(p["series"] == label for p in points)]
    legend = {"symbolType": "stroke"} if len(shown) > 1 else None

    def specify(width: int) -> dict[str, Any]:
        x = _axis(ends, over, width=width)
        room = (width - _AXIS) / (ends[1] - ends[0] + 1)
        strip = {"range": [{"expr": "height"}, _STRIP]} if fired or done else {}
        scale = {"type": "log" if logarithmic else "linear", "zero": False, "nice": True, **strip}
        y = {
            "field": "value",
            "type": "quantitative",
            "title": None,
            "axis": {
                "minExtent": _AXIS,
                "maxExtent": _AXIS,
                "domain": False,
                "ticks": False,
                "tickCount": 4 if small else 5,
                "format": "~g",
            },
            "scale": scale if domain is None else {**scale, "domain": list(domain)},
        }
        layers: list[dict[str, Any]] = [
            {
                "data": {"values": [{"x": row["epoch"]} for row in done]},
                "mark": {"type": "rule", "color": SOFT, "strokeDash": [3, 3]},
                "encoding": {"x": x, "y": {"value": 14}, "y2": {"value": {"expr": "height"}}},
            },
            {
                "data": {"values": _apart(done, pixels=room)},
                "mark": {"type": "text", "color": INK, "fontSize": 11, "fontWeight": "bold"},
                "encoding": {"x": x, "y": {"value": 7}, "text": {"field": "label"}},
            },
            {
                "data": {"values": [{"x": epoch} for epoch in fired]},
                "mark": {
                    "type": "point",
                    "shape": "triangle-down",
                    "filled": True,
                    "opacity": 1,
                    "color": RED,
                    "size": 50,
                },
                "encoding": {"x": x, "y": {"value": 22}},
            },
            {
                "data": {"values": [] if limit is None else [{"value": limit[0]}]},
                "mark": {"type": "rule", "color": RED, "strokeDash": [6, 4], "strokeWidth": 1.5},
                "encoding": {"y": y},
            },
            {
                "data": {"values": points},
                "mark": {
                    "type": "line",
                    "strokeWidth": 2,
                    "point": {"size": 26, "filled": True, "opacity": 1} if room > 8 else False,
                },
                "encoding": {
                    "x": x,
                    "y": y,
                    "color": _by_series(shown, COLOURS, legend=legend),
                    "strokeDash": _by_series(shown, _DASHES, legend=legend),
                },
            },
            {
                "data": {"values": [{"x": place} for place in sorted(broken)]},
                "mark": {"type": "point", "shape": "cross", "angle": 45, "size": 60, "color": RED},
                "encoding": {"x": x, "y": {"value": {"expr": "height - 6"}}},
            },
        ]
        used = [layer for layer in layers if layer["data"]["values"]]
        height = 170 if small else 300 if width > NARROW else 240
        return {"height": height, "layer": used or layers[4:5]}

    notes = []
    if fired:
        notes.append("▼ a rule fired")
    if done:
        notes.append("a dashed line with a number: the remedy of that decision was carried out")
    if broken:
        notes.append("✕ at the bottom: the value was not a finite number")
    if limit is not None:
        notes.append(f"broken line across: {limit[1]}")
    if logarithmic:
        notes.append("logarithmic scale")
    told = [_course(label, [p for p in points if p["series"] == label]) for label in shown]
    if not told:
        told.append("Nothing was measured.")
    if fired:
        told.append(f"Rules fired in epochs {_listed(fired)}.")
    return Chart(
        name,
        title,
        f"{'; '.join(notes)}." if notes else "",
        f"{title}, by {over}, {ends[0]} to {ends[1]}. {' '.join(told)}",
        specify,
        Lines(
            [
                (label, [(r[over], _value(r[column])) for r in rows])
                for column, label in series.items()
            ],
            over,
            limit,
        ),
    )


def _value(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float | str) else None  # "NaN" is text in JSON


def _course(label: str, points: Sequence[Mapping[str, Any]]) -> str:
    first, last = points[0]["value"], points[-1]["value"]
    values = [point["value"] for point in points]
    return (
        f"{label}: from {first:.4g} to {last:.4g}, lowest {min(values):.4g}, "
        f"highest {max(values):.4g}."
    )


def _listed(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:12]))
    return shown if len(numbers) <= 12 else f"{shown} and {len(numbers) - 12} more"


def _apart(done: Iterable[Mapping[str, Any]], *, pixels: float) -> list[dict[str, Any]]:
    """Return the numbers of decisions that fit beside each other."""
    labels: list[dict[str, Any]] = []
    for row in done:
        if not labels or (row["epoch"] - labels[-1]["x"]) * pixels >= _APART:
            labels.append({"x": row["epoch"], "label": str(row["number"])})
        elif row["epoch"] == labels[-1]["x"] and len(labels[-1]["label"]) < 4:
            labels[-1]["label"] += f" {row['number']}"
    return labels


def _axis(ends: Sequence[int], title: str, *, width: int) -> dict[str, Any]:
    """Return an axis of whole numbers, of which so many have a label as there is room for."""
    most = max(2, width // 48)
    span = ends[1] - ends[0] + 1
    steps = (factor * 10**power for power in range(10) for factor in (1, 2, 5))
    step = next(step for step in steps if span / step <= most)
    first = math.ceil(ends[0] / step) * step
    return {
        "field": "x",
        "type": "quantitative",
        "title": title,
        "scale": {"domain": [ends[0] - 0.5, ends[1] + 0.5], "nice": False},
        "axis": {
            "format": "d",
            "grid": False,
            "values": list(range(first, ends[1] + 1, step)),
        },
    }


def _by_series(
    labels: Sequence[str], values: Sequence[Any], *, legend: Mapping[str, Any] | None
) -> dict[str, Any]:
    return {
        "field": "series",
        "type": "nominal",
        "legend": legend,
        "scale": {"domain": list(labels), "range": list(values[: len(labels)])},
    }


# What became of a fired rule -> letter, words, colour.
_STATES: Mapping[str, tuple[str, str, str]] = {
    "applied": ("A", "acted on", GREEN),
    "restart": ("R", "acted on in a restart", BLUE),
    "deferred": ("D", "deferred", BROWN),
    "refused": ("X", "refused", ORANGE),
    "unanswered": ("!", "unanswered", RED),
    "waived": ("w", "waived", SOFT),
}


def rule_heatmap(cells: Sequence[Mapping[str, Any]]) -> Chart:
    """Chart the view rule_heatmap: which rule fired in which epoch, and what became of it."""
    last = max((cell["epoch"] for cell in cells), default=0)
    fired = []
    for cell in cells:
        if cell["fired"]:
            known = cell["outcome"] if cell["outcome"] in _STATES else "unanswered"
            state = _STATES["waived" if cell["waived"] else known]
            fired.append(
                {
                    "x": cell["epoch"],
                    "rule": cell["rule"],
                    "letter": state[0],
                    "state": state[1],
                }
            )
    states = [s for s in _STATES.values() if any(cell["letter"] == s[0] for cell in fired)]

    def specify(width: int) -> dict[str, Any]:
        y = {
            "field": "rule",
            "type": "nominal",
            "title": None,
            "scale": {"domain": list(PRECEDENCE), "padding": 0.12},
            "axis": {"minExtent": _AXIS, "maxExtent": _AXIS, "domain": False, "ticks": False},
        }
        x = _axis((0, last), "epoch", width=width)
        layers: list[dict[str, Any]] = [
            {
                "data": {"values": [{"rule": rule} for rule in PRECEDENCE]},
                "mark": {"type": "bar", "color": SUNK},
                "encoding": {
                    "y": y,
                    "x": {"datum": -0.5, **_without_field(x)},
                    "x2": {"datum": last + 0.5},
                },
            },
            {
                "data": {"values": fired},
                "transform": [
                    {"calculate": "datum.x - 0.46", "as": "from"},
                    {"calculate": "datum.x + 0.46", "as": "to"},
                ],
                "mark": {"type": "bar"},
                "encoding": {
                    "y": y,
                    "x": {**x, "field": "from"},
                    "x2": {"field": "to"},
                    "color": {
                        "field": "state",
                        "type": "nominal",
                        "scale": {
                            "domain": [s[1] for s in states],
                            "range": [s[2] for s in states],
                        },
                    },
                },
            },
        ]
        if (width - _AXIS) / (last + 1) >= 11:
            layers.append(
                {
                    "data": {"values": fired},
                    "mark": {"type": "text", "color": PAPER, "fontSize": 11, "fontWeight": "bold"},
                    "encoding": {"y": y, "x": x, "text": {"field": "letter"}},
                }
            )
        return {"height": 230, "layer": layers if fired else layers[:1]}

    said = [f"{s[0]} {s[1]}" for s in states]
    counted = [
        f"{rule} in {_listed([c['x'] for c in fired if c['rule'] == rule])}"
        for rule in PRECEDENCE
        if any(c["rule"] == rule for c in fired)
    ]
    return Chart(
        "rules",
        "Rules that fired",
        (f"{'; '.join(said)}." if said else "No rule fired.")
        + " The rule at the top is acted on first.",
        f"Rules by epoch, {last + 1} epochs. "
        + (f"Fired: {'; '.join(counted)}." if counted else "No rule fired."),
        specify,
    )


def _without_field(channel: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in channel.items() if key != "field"}


def layer_heatmap(rows: Sequence[Mapping[str, Any]]) -> Chart:
    """Chart the gradient norms of the table layer_metrics, by layer and epoch."""
    last = max((row["epoch"] for row in rows), default=0)
    places = {row["layer"]: row["place"] for row in rows}
    order = sorted(places, key=lambda layer: (places[layer], layer))[:_LAYERS]
    norms = {
        (row["epoch"], row["layer"]): row["grad_norm"]
        for row in rows
        if isinstance(row["grad_norm"], int | float)
        and math.isfinite(row["grad_norm"])
        and row["grad_norm"] > 0
    }

    ticks = _decades(norms.values())
    coarse = all(1e-3 <= tick < 1e4 for tick in ticks)

    def specify(width: int) -> dict[str, Any]:
        wide = width > NARROW
        most = max(1, (_CELLS if wide else _CELLS // 3) // max(1, len(order)))
        step = math.ceil((last + 1) / most)
        return {
            "height": 18 * len(order) + 80,
            "data": {"values": _pooled(norms, order, last=last, step=step)},
            "transform": [
                {"calculate": "datum.x - datum.wide / 2", "as": "from"},
                {"calculate": "datum.x + datum.wide / 2", "as": "to"},
            ],
            "mark": {"type": "bar", "clip": True},
            "encoding": {
                "x": {**_axis((0, last), "epoch", width=width), "field": "from"},
                "x2": {"field": "to"},
                "y": {
                    "field": "layer",
                    "type": "nominal",
                    "title": None,
                    "scale": {"domain": order, "padding": 0},
                    "axis": {"labelLimit": 200 if wide else 110, "domain": False, "ticks": False},
                },
                "color": {
                    "field": "norm",
                    "type": "quantitative",
                    "scale": {"type": "log", "scheme": "viridis"},
                    "legend": {
                        "title": "gradient norm",
                        "format": "~g" if coarse else "~e",
                        "values": ticks,
                        "gradientLength": 300 if wide else 200,
                    },
                },
            },
        }

    spread = ""
    if norms:
        spread = f", from {min(norms.values()):.3g} to {max(norms.values()):.3g}"
    left_out = f" Of {len(places)} layers, the first {_LAYERS}." if len(places) > _LAYERS else ""
    return Chart(
        "gradients",
        "Gradient norm of each layer",
        "The first layer is at the top. Logarithmic scale; an empty cell was zero, not finite or "
        f"not measured.{left_out}",
        f"Gradient norms of {len(order)} layers over {last + 1} epochs{spread}.",
        specify,
    )


def _decades(values: Iterable[float]) -> list[float]:
    """Return at most five powers of ten between values, or their ends."""
    found = sorted(values)
    if not found:
        return []
    low, high = math.ceil(math.log10(found[0])), math.floor(math.log10(found[-1]))
    if high <= low:
        return [float(f"{found[0]:.2g}"), float(f"{found[-1]:.2g}")]
    return [10.0**power for power in range(low, high + 1, math.ceil((high - low + 1) / 5))]


def _pooled(
    norms: Mapping[tuple[int, str], float], layers: Sequence[str], *, last: int, step: int
) -> list[dict[str, Any]]:
    """Return cells of some epochs each, with the geometric mean of what was measured in them."""
    logs: dict[tuple[int, str], list[float]] = {}
    for (epoch, layer), norm in norms.items():
        logs.setdefault((epoch // step, layer), []).append(math.log(norm))
    wide = min(step, last + 1)
    return [
        {
            "x": number * step + (wide - 1) / 2,
            "wide": wide,
            "layer": layer,
            "norm": math.exp(sum(found) / len(found)),
        }
        for (number, layer), found in logs.items()
        if layer in layers
    ]


# ------------------------------------------------------------------------------------------------
# Campaigns, comparisons and lines


def attempt_curves(rows: Sequence[Mapping[str, Any]]) -> Chart:
    """Chart the validation accuracy of each attempt of a campaign over its epochs."""
    points = [
        {"x": row["epoch"], "value": row["val_accuracy"], "attempt": row["number"]}
        for row in rows
        if isinstance(row["val_accuracy"], int | float) and math.isfinite(row["val_accuracy"])
    ]
    last = max((point["x"] for point in points), default=0)
    attempts = sorted({point["attempt"] for point in points})

    def specify(width: int) -> dict[str, Any]:
        return {
            "height": 300 if width > NARROW else 240,
            "data": {"values": points},
            "mark": {"type": "line", "point": last < 30, "strokeWidth": 2},
            "encoding": {
                "x": _axis((0, last), "epoch", width=width),
                "y": {"field": "value", "type": "quantitative", "title": None},
                "detail": {"field": "attempt", "type": "nominal"},
                "color": {
                    "field": "attempt",
                    "type": "ordinal",
                    "scale": {
                        "domain": attempts,
                        "scheme": {"name": "viridis", "extent": [0.3, 0.75]},
                    },
                    "legend": {"title": "attempt", "columns": 12 if width > NARROW else 6},
                },
            },
        }

    best = [(max(p["value"] for p in points if p["attempt"] == n), n) for n in attempts]
    return Chart(
        "curves",
        "Validation accuracy of each attempt",
        "Later attempts are lighter.",
        f"Validation accuracy of {len(attempts)} attempts over {last + 1} epochs."
        + (f" The best is {max(best)[0]:.4g}, in attempt {max(best)[1]}." if best else ""),
        specify,
        Lines(
            [
                (f"attempt {n}", [(p["x"], p["value"]) for p in points if p["attempt"] == n])
                for n in attempts
            ],
            "epoch",
        ),
    )


def strip(
    name: str,
    title: str,
    *,
    rows: Sequence[Mapping[str, Any]],
    label: str,
    value: str,
    unit: str,
    caption: str,
) -> Chart:
    """Chart each value as a dot in the row of its label, with the mean as a vertical tick."""
    points = [
        {"label": str(row[label]), "value": row[value]}
        for row in rows
        if isinstance(row[value], int | float) and math.isfinite(row[value])
    ]
    labels = list(dict.fromkeys(str(row[label]) for row in rows))
    means = {
        each: sum(found) / len(found)
        for each in labels
        if (found := [point["value"] for point in points if point["label"] == each])
    }

    def specify(width: int) -> dict[str, Any]:
        x = {
            "field": "value",
            "type": "quantitative",
            "title": unit,
            "scale": {"zero": False, "nice": True},
            "axis": {"format": "~g"},
        }
        y = {
            "field": "label",
            "type": "nominal",
            "title": None,
            "scale": {"domain": labels},
            "axis": {
                "labelLimit": 220 if width > NARROW else 110,
                "domain": False,
                "ticks": False,
                "grid": True,
            },
        }
        return {
            "height": 34 * len(labels) + 60,
            "layer": [
                {
                    "data": {"values": [{"label": k, "value": v} for k, v in means.items()]},
                    "mark": {"type": "tick", "color": ORANGE, "thickness": 3, "size": 22},
                    "encoding": {"x": x, "y": y},
                },
                {
                    "data": {"values": points},
                    "mark": {
                        "type": "point",
                        "filled": True,
                        "opacity": 0.75,
                        "color": BLUE,
                        "size": 55,
                    },
                    "encoding": {"x": x, "y": y},
                },
            ],
        }

    said = ", ".join(f"{each} {mean:.4g}" for each, mean in means.items())
    return Chart(
        name,
        title,
        caption,
        f"{title}. Means: {said}." if said else f"{title}. No values.",
        specify,
        Dots(labels, [(point["label"], point["value"]) for point in points], unit),
    )


# State of a checkpoint -> shape, colour.
_CHECKPOINTS: Mapping[str, tuple[str, str]] = {
    "baseline": ("square", SOFT),
    "promoted": ("circle", BLUE),
    "adopted": ("square", PINK),
    "active": ("diamond", GREEN),
    "rolled back": ("cross", ORANGE),
}


def lineage(
    checkpoints: Sequence[Mapping[str, Any]], refused: Mapping[str, int], *, name: str = "lineage"
) -> Chart:
    """Chart the checkpoints of a line, each right of its parent, by rows of checkpoint_standing.

    `refused` counts the proposals that were not promoted, by the commit that they would change.
    """
    lanes = _lanes(checkpoints)
    nodes = [
        {
            "x": row["place"],
            "y": lanes[row["checkpoint_id"]],
            "state": _state(row),
            "label": str(row["commit"])[:7],
            "refused": f"{refused[row['commit']]} ✕" if refused.get(row["commit"]) else "",
        }
        for row in checkpoints
    ]
    at = {row["checkpoint_id"]: node for row, node in zip(checkpoints, nodes, strict=True)}
    edges = [
        {
            "x": at[row["parent"]]["x"],
            "y": at[row["parent"]]["y"],
            "x2": at[row["checkpoint_id"]]["x"],
            "y2": at[row["checkpoint_id"]]["y"],
        }
        for row in checkpoints
        if row["parent"] in at
    ]
    last = max((node["x"] for node in nodes), default=0)
    depth = max((node["y"] for node in nodes), default=0)
    states = [state for state in _CHECKPOINTS if any(n["state"] == state for n in nodes)]

    def specify(width: int) -> dict[str, Any]:
        x = _axis((0, last), "checkpoints after the first", width=width)
        y = {
            "field": "y",
            "type": "quantitative",
            "axis": None,
            "scale": {"domain": [depth + 0.6, -0.6], "nice": False},
        }
        room = (width - 20) / (last + 1)
        text = {"type": "text", "fontSize": 11}
        layers: list[dict[str, Any]] = [
            {
                "data": {"values": edges},
                "mark": {"type": "rule", "color": SOFT, "strokeWidth": 1.5},
                "encoding": {"x": x, "y": y, "x2": {"field": "x2"}, "y2": {"field": "y2"}},
            },
            {
                "data": {"values": nodes},
                "mark": {"type": "point", "filled": True, "opacity": 1, "size": 140},
                "encoding": {
                    "x": x,
                    "y": y,
                    "shape": _by_state(states, 0),
                    "color": _by_state(states, 1),
                },
            },
        ]
        if room >= 24:
            layers.append(
                {
                    "data": {"values": nodes},
                    "mark": {**text, "color": ORANGE, "dy": -16, "fontWeight": "bold"},
                    "encoding": {"x": x, "y": y, "text": {"field": "refused"}},
                }
            )
        if room >= 54:
            layers.append(
                {
                    "data": {"values": nodes},
                    "mark": {**text, "color": INK, "dy": 18},
                    "encoding": {"x": x, "y": y, "text": {"field": "label"}},
                }
            )
        used = [layer for layer in layers if layer["data"]["values"]]
        return {"height": 64 * (depth + 1) + 90, "layer": used}

    return Chart(
        name,
        "Lineage of the checkpoints",
        "Each checkpoint is right of the one that it changes; below the chain are those that were "
        "rolled back. A number with ✕ counts proposals that were not promoted there.",
        f"{len(nodes)} checkpoints: "
        + ", ".join(f"{sum(n['state'] == s for n in nodes)} {s}" for s in states)
        + f". {sum(refused.values())} proposals were not promoted.",
        specify,
        Chain(nodes, edges),
    )


def _state(row: Mapping[str, Any]) -> str:
    if row["rolled_back"]:
        return "rolled back"
    if row["active"]:
        return "active"
    return "baseline" if row["origin"] == "opened" else str(row["origin"])


def _by_state(states: Sequence[str], part: int) -> dict[str, Any]:
    return {
        "field": "state",
        "type": "nominal",
        "scale": {"domain": list(states), "range": [_CHECKPOINTS[s][part] for s in states]},
    }


def _lanes(checkpoints: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the row of each checkpoint: 0 for the chain to the active one, the rest below."""
    parents = {row["checkpoint_id"]: row["parent"] for row in checkpoints}
    chain = set()
    at: Any = next((row["checkpoint_id"] for row in checkpoints if row["active"]), None)
    while at in parents and at not in chain:
        chain.add(at)
        at = parents[at]
    lanes: dict[str, int] = {}
    taken: dict[int, set[int]] = {}  # places that are taken, by lane
    for row in checkpoints:
        lane = 0 if row["checkpoint_id"] in chain else max(1, lanes.get(row["parent"], 0))
        while row["checkpoint_id"] not in chain and row["place"] in taken.get(lane, ()):
            lane += 1
        lanes[row["checkpoint_id"]] = lane
        taken.setdefault(lane, set()).add(row["place"])
    return lanes
