"""The checkpoints of a line, as a chain with what was rolled back below it.

Source: rows of the view checkpoint_standing.
Trust: rows are hostile.  I/O: none.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from proctor.pages.charts.drawing import (
    BLUE,
    GREEN,
    INK,
    LINE,
    ORANGE,
    PINK,
    RED,
    SOFT,
    Chart,
    Columns,
    Drawing,
    Key,
)

_STATES: Mapping[str, tuple[str, str, str]] = {  # of a checkpoint -> words, colour, shape
    "baseline": ("where the line began", SOFT, "square"),
    "promoted": ("promoted: tested and better", BLUE, "circle"),
    "adopted": ("adopted: committed by people", PINK, "square"),
    "active": ("active: the line as it is now", GREEN, "diamond"),
    "rolled back": ("rolled back", RED, "cross"),
}
_LANE = 62


def lineage(checkpoints: Sequence[Mapping[str, Any]], refused: Mapping[str, int]) -> Chart:
    """Chart the checkpoints of a line, each right of its parent.

    `refused` counts the proposals that were not promoted, by the commit that they would change.
    """
    lanes = _lanes(checkpoints)
    states = {row["checkpoint_id"]: _state(row) for row in checkpoints}
    used = [state for state in _STATES if state in states.values()]
    last = max((row["place"] for row in checkpoints), default=0)
    depth = max(lanes.values(), default=0)

    def draw(drawing: Drawing) -> None:
        keys = [
            Key(words, colour, shape=shape)
            for words, colour, shape in (_STATES[state] for state in used)
        ]
        if any(refused.values()):
            keys.append(Key("with a number: proposals not promoted there", ORANGE, shape="cross"))
        drawing.legend(keys)
        columns = Columns(0, last, 4, drawing.width - 4)
        top = drawing.height
        at = {
            row["checkpoint_id"]: (
                columns(row["place"]),
                top + (lanes[row["checkpoint_id"]] + 0.5) * _LANE,
            )
            for row in checkpoints
        }
        drawing.height = top + (depth + 1) * _LANE
        drawing.path(f"M4 {top:.1f}H{drawing.width - 4}V{drawing.height:.1f}H4z", stroke=LINE)
        edges = (
            f"M{at[row['parent']][0]:.1f} {at[row['parent']][1]:.1f}"
            f"L{at[row['checkpoint_id']][0]:.1f} {at[row['checkpoint_id']][1]:.1f}"
            for row in checkpoints
            if row["parent"] in at
        )
        drawing.path("".join(edges), stroke=SOFT, wide=1.5)
        for row in checkpoints:
            x, y = at[row["checkpoint_id"]]
            _, colour, shape = _STATES[states[row["checkpoint_id"]]]
            drawing.point(shape, x, y, colour, 6)
            if columns.room >= 54:
                drawing.text(x, y + 22, str(row["commit"])[:7], colour=INK)
            if columns.room >= 24 and refused.get(row["commit"]):
                drawing.text(x, y - 13, f"{refused[row['commit']]} ✕", colour=ORANGE, bold=True)
        drawing.counted(columns, "checkpoints after the first")

    counts = [f"{list(states.values()).count(state)} {state}" for state in used]
    return Chart(
        "lineage",
        "Lineage of the checkpoints",
        "Each checkpoint is right of the one that it changes; below the chain are those that were "
        "rolled back.",
        f"{len(checkpoints)} checkpoints: {', '.join(counts)}. "
        f"{sum(refused.values())} proposals were not promoted.",
        draw,
    )


def _state(row: Mapping[str, Any]) -> str:
    if row["rolled_back"]:
        return "rolled back"
    if row["active"]:
        return "active"
    return "baseline" if row["origin"] == "opened" else str(row["origin"])


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
