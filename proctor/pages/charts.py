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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import vl_convert
from markupsafe import Markup, escape

from aggregates.rules import PRECEDENCE
from proctor.output.terminal import visible

__all__ = ["COLOURS", "Chart", "curves", "layer_heatmap", "png", "rule_heatmap", "svg"]

NARROW, WIDE = 358, 1024  # pixels
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
_APART = 16  # pixels between two numbers of decisions
_CONFIG: Mapping[str, Any] = {
    "aria": False,  # the whole drawing has one text, see _labelled()
    "background": None,
    "font": "sans-serif",
    "view": {"stroke": LINE},
    "axis": {
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
        "orient": "top",
        "title": None,
        "labelColor": INK,
        "labelFontSize": 12,
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

    def drawn(self) -> Markup:
        """Return the two drawings of a page."""
        return Markup("\n").join(
            Markup(_labelled(svg(self, width), self.text, kind))  # noqa: S704 - escaped by both
            for width, kind in ((WIDE, "wide"), (NARROW, "narrow"))
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
        json.dumps(specification), vl_version=_VERSION, allowed_base_urls=[]
    )


def png(chart: Chart) -> bytes:
    """Return a picture on white, in twice the size for sharp print."""
    drawn = svg(chart)
    at = drawn.index(">") + 1
    white = f'<rect width="100%" height="100%" fill="{PAPER}"/>'
    return vl_convert.svg_to_png(drawn[:at] + white + drawn[at:], scale=2)


def _labelled(drawn: str, text: str, kind: str) -> str:
    label = escape(visible(text))
    return drawn.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1).replace(
        'class="marks"', f'class="{kind}"', 1
    )


# ------------------------------------------------------------------------------------------------
# A run


def curves(
    name: str,
    title: str,
    *,
    epochs: Sequence[Mapping[str, Any]],
    series: Mapping[str, str],
    rules: Iterable[Mapping[str, Any]] = (),
    decisions: Iterable[Mapping[str, Any]] = (),
) -> Chart:
    """Chart columns of `epochs` over the epochs; `series` names each column for people.

    Above the curves: a triangle where a rule fired, and the number of each decision that was
    carried out, from which a dashed line goes down.
    """
    points, broken = [], set()
    for row in epochs:
        for column, label in series.items():
            value = row[column]
            if value is None:
                continue
            if not isinstance(value, int | float) or not math.isfinite(value):
                broken.add((row["epoch"], label))
            else:
                points.append({"epoch": row["epoch"], "value": value, "series": label})
    last = max((row["epoch"] for row in epochs), default=0)
    fired = sorted({row["epoch"] for row in rules if row["fired"] and not row["waived"]})
    done = [row for row in decisions if row["outcome"] in ("applied", "restart")]
    values = [point["value"] for point in points]
    logarithmic = bool(values) and min(values) > 0 and max(values) / min(values) > 300
    shown = [label for label in series.values() if any(p["series"] == label for p in points)]

    def specify(width: int) -> dict[str, Any]:
        x = _epoch_axis(last)
        labels = _apart(done, pixels=(width - _AXIS) / (last + 1))
        few = last < 40
        layers: list[dict[str, Any]] = [
            {
                "data": {"values": [{"epoch": row["epoch"]} for row in done]},
                "mark": {"type": "rule", "color": SOFT, "strokeDash": [3, 3]},
                "encoding": {"x": x, "y": {"value": 14}, "y2": {"value": {"expr": "height"}}},
            },
            {
                "data": {"values": labels},
                "mark": {"type": "text", "color": INK, "fontSize": 11, "fontWeight": "bold"},
                "encoding": {"x": x, "y": {"value": 7}, "text": {"field": "label"}},
            },
            {
                "data": {"values": [{"epoch": epoch} for epoch in fired]},
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
                "data": {"values": points},
                "mark": {
                    "type": "line",
                    "strokeWidth": 2,
                    "point": {"size": 22, "filled": True, "opacity": 1} if few else False,
                },
                "encoding": {
                    "x": x,
                    "y": {
                        "field": "value",
                        "type": "quantitative",
                        "title": None,
                        "axis": {
                            "minExtent": _AXIS,
                            "maxExtent": _AXIS,
                            "domain": False,
                            "ticks": False,
                            "tickCount": 5,
                            "format": "~g",
                        },
                        "scale": {
                            "type": "log" if logarithmic else "linear",
                            "zero": False,
                            "nice": True,
                            "range": [{"expr": "height"}, _STRIP],
                        },
                    },
                    "color": _by_series(shown, COLOURS, legend={"symbolType": "stroke"}),
                    "strokeDash": _by_series(shown, _DASHES, legend={"symbolType": "stroke"}),
                },
            },
            {
                "data": {"values": [{"epoch": epoch} for epoch, _ in sorted(broken)]},
                "mark": {"type": "point", "shape": "cross", "angle": 45, "size": 60, "color": RED},
                "encoding": {"x": x, "y": {"value": {"expr": "height - 6"}}},
            },
        ]
        used = [layer for layer in layers if layer["data"]["values"]]
        return {"height": 300 if width > NARROW else 240, "layer": used or layers[3:4]}

    notes = []
    if fired:
        notes.append("▼ a rule fired")
    if done:
        notes.append("a dashed line and its number: the remedy of that decision was carried out")
    if broken:
        notes.append("✕ at the bottom: the value was not a finite number")
    if logarithmic:
        notes.append("logarithmic scale")
    return Chart(
        name,
        title,
        f"{'; '.join(notes)}." if notes else "No rule fired.",
        f"{title} over {last + 1} epochs. "
        + " ".join(_course(label, [p for p in points if p["series"] == label]) for label in shown)
        + (f" Rules fired in epochs {_listed(fired)}." if fired else " No rule fired."),
        specify,
    )


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
        if not labels or (row["epoch"] - labels[-1]["epoch"]) * pixels >= _APART:
            labels.append({"epoch": row["epoch"], "label": str(row["number"])})
        elif row["epoch"] == labels[-1]["epoch"] and len(labels[-1]["label"]) < 4:
            labels[-1]["label"] += f" {row['number']}"
    return labels


def _epoch_axis(last: int, **axis: Any) -> dict[str, Any]:
    return {
        "field": "epoch",
        "type": "quantitative",
        "title": "epoch",
        "scale": {"domain": [-0.5, last + 0.5], "nice": False},
        "axis": {"format": "d", "tickMinStep": 1, "grid": False, **axis},
    }


def _by_series(
    labels: Sequence[str], values: Sequence[Any], *, legend: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "field": "series",
        "type": "nominal",
        "legend": dict(legend),
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
                    "epoch": cell["epoch"],
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
        x = _epoch_axis(last)
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
                    {"calculate": "datum.epoch - 0.46", "as": "from"},
                    {"calculate": "datum.epoch + 0.46", "as": "to"},
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
        f"{rule} in {_listed([c['epoch'] for c in fired if c['rule'] == rule])}"
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
    order = sorted(places, key=lambda layer: (places[layer], layer))
    cells = [
        {"epoch": row["epoch"], "layer": row["layer"], "norm": row["grad_norm"]}
        for row in rows
        if row["grad_norm"] is not None
        and isinstance(row["grad_norm"], int | float)
        and math.isfinite(row["grad_norm"])
        and row["grad_norm"] > 0
    ]
    norms = [cell["norm"] for cell in cells]

    def specify(width: int) -> dict[str, Any]:
        wide = width > NARROW
        limit = 180 if wide else 96
        return {
            "height": 18 * len(order) + 80,
            "data": {"values": cells},
            "transform": [
                {"calculate": "datum.epoch - 0.5", "as": "from"},
                {"calculate": "datum.epoch + 0.5", "as": "to"},
            ],
            "mark": {"type": "bar"},
            "encoding": {
                "x": {**_epoch_axis(last), "field": "from"},
                "x2": {"field": "to"},
                "y": {
                    "field": "layer",
                    "type": "nominal",
                    "title": None,
                    "scale": {"domain": order, "padding": 0},
                    "axis": {"labelLimit": limit, "domain": False, "ticks": False},
                },
                "color": {
                    "field": "norm",
                    "type": "quantitative",
                    "scale": {"type": "log", "scheme": "viridis"},
                    "legend": {
                        "title": "gradient norm",
                        "titleColor": SOFT,
                        "titleFontWeight": "normal",
                        "format": "~e",
                        "tickCount": 4,
                        "gradientLength": 300 if wide else 200,
                    },
                },
            },
        }

    spread = f" from {min(norms):.3g} to {max(norms):.3g}" if norms else ""
    return Chart(
        "gradients",
        "Gradient norm of each layer",
        "The first layer is at the top. Logarithmic scale; an empty cell was zero, not finite or "
        "not measured.",
        f"Gradient norms of {len(order)} layers over {last + 1} epochs,{spread}.",
        specify,
    )
