"""One run's story in the terminal: curves, rules, decisions, verdict; read from the projection.

Source: projections/views.sql.  Trust: the projection is a cache; verify and judge do not use it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import plotext
from rich.markup import escape
from rich.text import Text

from proctor.home import Home
from proctor.output import console, print_table
from projections.cache import query

_MARKS = {  # what became of a fired rule -> what the heatmap shows
    "applied": ("■", "green"),
    "restart": ("■", "blue"),
    "deferred": ("◦", "yellow"),
    "refused": ("x", "red"),
    None: ("!", "bold red"),
}


def read_story(home: Home, run_id: str) -> dict[str, Any]:
    """Return everything that the story tells, as plain values."""

    def rows(sql: str, key: str) -> list[dict[str, Any]]:
        result = query(home.projection, sql, [key])
        return [dict(zip(result.columns, row, strict=True)) for row in result.rows]

    (summary,) = rows("SELECT * FROM run_summary WHERE run_id = ?", run_id)
    audit = str(summary["audit_id"])
    return {
        "summary": summary,
        "epochs": rows(
            "SELECT * EXCLUDE (reported) FROM epochs WHERE run_id = ? ORDER BY epoch", run_id
        ),
        "rules": rows(
            "SELECT epoch, rule, fired, side, streak, waived, outcome FROM rule_heatmap "
            "WHERE run_id = ? ORDER BY precedence, epoch",
            run_id,
        ),
        "decisions": rows(
            "SELECT * EXCLUDE (run_id) FROM decision_outcomes WHERE run_id = ? ORDER BY number",
            run_id,
        ),
        "audit_steps": rows(
            "SELECT step, name, status, summary FROM audit_steps WHERE audit_id = ? ORDER BY step",
            audit,
        ),
        "violations": rows(
            "SELECT kind, rule, epoch, decision, emitter, detail FROM violations "
            "WHERE audit_id = ? ORDER BY place",
            audit,
        ),
    }


def tell_story(story: dict[str, Any]) -> None:
    """Print the story."""
    summary = story["summary"]
    console.print(
        f"[bold]run {summary['run_id']}[/]: {summary['dataset']}, seed {summary['seed']}, "
        f"policy {summary['policy_name']}, rules {summary['profile']}, {summary['state']} after "
        f"{summary['epochs']} of {summary['epochs_planned']} epochs"
    )
    if summary["parent_run"]:
        console.print(f"restart of run {summary['parent_run']}")
    if len(story["epochs"]) > 1:
        _plot(story["epochs"], "loss")
        _plot(story["epochs"], "accuracy")
    _print_heatmap(story["rules"])
    if story["decisions"]:
        print_table(
            ("", "epoch", "by", "cites", "decision", "outcome", "why"),
            [
                (
                    d["number"],
                    d["epoch"],
                    d["source"],
                    " ".join(d["cites"]),
                    d["direction"],
                    d["outcome"],
                    d["justification"],
                )
                for d in story["decisions"]
            ],
            title="\ndecisions",
        )
    _print_verdict(story)


def _plot(epochs: list[dict[str, Any]], what: str) -> None:
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plot_size(min(console.width, 76), 12)
    for part in ("train", "val"):
        points = [
            (row["epoch"], row[f"{part}_{what}"])
            for row in epochs
            if row[f"{part}_{what}"] is not None and abs(row[f"{part}_{what}"]) < 1e6  # not NaN
        ]
        if points:
            plotext.plot(*map(list, zip(*points, strict=True)), label=f"{part} {what}")
    plotext.xticks([row["epoch"] for row in epochs][:: max(1, len(epochs) // 12)])
    console.print(Text.from_ansi(plotext.build()))


def _print_heatmap(cells: list[dict[str, Any]]) -> None:
    if not cells:
        return
    console.print("\nrules, by precedence (one column an epoch)")
    for rule in dict.fromkeys(cell["rule"] for cell in cells):
        line = Text(f"{rule} ")
        for cell in (cell for cell in cells if cell["rule"] == rule):
            mark, style = ("·", "dim")
            if cell["fired"]:
                mark, style = ("w", "dim") if cell["waived"] else _MARKS[cell["outcome"]]
            line.append(mark, style)
        console.print(line)
    console.print("■ acted on   ◦ deferred   x refused   ! unanswered   w waived   · silent")


def _print_verdict(story: dict[str, Any]) -> None:
    summary = story["summary"]
    if summary["audit_id"] is None:
        console.print("\nnot judged yet: `proctor judge` gives two scores")
        return
    print_table(
        ("step", "", "status", ""),
        [(s["step"], s["name"], s["status"], s["summary"]) for s in story["audit_steps"]],
        title="\nverdict",
    )
    print_violations(story["violations"])
    console.print(
        f"accuracy {summary['accuracy_score']:.3f}   process {summary['process_score']:.3f} "
        f"({summary['process_axis']})"
    )


def print_violations(violations: Iterable[Mapping[str, Any]]) -> None:
    """Print one line for each violation."""
    for found in violations:
        place = "run" if found["epoch"] is None else f"epoch {found['epoch']}"
        words = f"{found['rule'] or ''} ({place}, {found['emitter']}) {found['detail']}"
        console.print(f"violation: {found['kind']} {escape(words)}")
