"""`proctor runs` and `annotate`: which runs a ledger has, and what people say of them."""

import json
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Annotated, Any, Literal
from uuid import UUID

from aggregates.annotation import Annotation
from aggregates.errors import InvariantError
from aggregates.run import EndReason
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.options import MOST, RunArgument, Takes
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.output.columns import field, fields, figure, figures, grouped
from proctor.output.shape import Answer, columns
from proctor.output.terminal import dotted, print_rows
from proctor.remembering import held_session, open_remembered
from proctor.runs.replay import find_verified_run

app = CommandGroup()
State = Literal["running", EndReason]
_RUNS = """
    SELECT run_id, dataset AS name, state, started_at, policy_name AS policy, epochs,
        best_val_accuracy, verdict, process_score, a.tags, a.notes, metric, best_val_metric,
        r.config, a.config AS own
    FROM run_summary JOIN run_starts AS r USING (run_id)
    LEFT JOIN annotations AS a USING (run_id)
    WHERE ($1 IS NULL OR state = $1) AND ($2 IS NULL OR policy_name = $2)
        AND ($3 IS NULL OR dataset = $3) AND ($4 IS NULL OR list_contains(a.tags, $4))
    ORDER BY started_at DESC, run_id LIMIT $5"""
_LATEST = "SELECT tags, notes, config FROM annotations WHERE run_id = ?"
_ROWS = f"SELECT * EXCLUDE (config, own), MAP {{'lr': ''}} AS settings FROM ({_RUNS})"  # noqa: S608 - our own question
RunRow = Annotated[
    dict[str, Any],
    columns("RunRow", "A run in the list of runs; `settings` has its configuration.", _ROWS),
]
_COLUMNS = (
    field("run", lambda row: row["run_id"][:8]),
    *fields("name", "state"),
    field("started", "started_at"),
    *fields("policy"),
    *figures("epochs"),
    figure("best", "best_val_metric"),
    field("metric", lambda row: None if row["best_val_metric"] is None else row["metric"]),
    *fields("verdict"),
    figure("process", "process_score"),
    field("tags", lambda row: ", ".join(row["tags"] or ()) or None),
)
_MOST_SETTINGS = 6  # that are shown of a run


class Said(Answer):
    """What is said of a run now."""

    run: UUID
    tags: list[str]
    notes: str


@app.command(long=True, prints=list[RunRow])
def runs(
    home: Home,
    state: Annotated[State | None, "Only runs in this state."] = None,
    policy: Annotated[str | None, "Only runs that this policy decided in."] = None,
    name: Annotated[str | None, "Only runs of this name, data set or task."] = None,
    tag: Annotated[str | None, "Only runs with this tag."] = None,
    last: Annotated[int | None, "Only the newest N runs.", Takes(least=1, most=MOST)] = None,
) -> Output:
    """List the runs, the newest first; `proctor show` tells one of them."""
    with held_session(home) as session:
        found = session.query(_RUNS, [state, policy, name, tag, last]).records
    for row in found:
        row["settings"] = {**_object(row.pop("config")), **_object(row.pop("own"))}

    def tell() -> None:
        differ = _differing(found)
        more = [field("settings", lambda row: differ[row["run_id"]] or None)]
        print_rows([*_COLUMNS, *(more if any(differ.values()) else ())], found)

    return Output(found, tell)


def _object(text: str | None) -> dict[str, Any]:
    """Return the map that a column of JSON holds; an empty one where it holds none."""
    said = json.loads(text or "{}")
    return said if isinstance(said, dict) else {}


def _differing(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return, by run, the settings that differ among the runs of its name."""
    found = {}
    for alike in grouped(rows, itemgetter("name")).values():
        told = [
            {
                name.removeprefix("params."): value if isinstance(value, str) else json.dumps(value)
                for name, value in dotted(row["settings"])
            }
            for row in alike
        ]
        names = dict.fromkeys(name for each in told for name in each)
        differ = [name for name in names if len({each.get(name) for each in told}) > 1]
        for row, each in zip(alike, told, strict=True):
            shown = [f"{name}={each[name]:.24}" for name in differ if name in each]
            rest = len(shown) - _MOST_SETTINGS
            more = [f"and {rest} more"] if rest > 0 else []
            found[row["run_id"]] = " ".join((*shown[:_MOST_SETTINGS], *more))
    return found


@app.command(prints=Said)
def annotate(
    home: Home,
    run: RunArgument,
    tag: Annotated[list[str] | None, "A tag to add.", Takes("TAG")] = None,
    remove: Annotated[list[str] | None, "A tag to remove.", Takes("TAG")] = None,
    notes: Annotated[str | None, "Notes in place of earlier ones."] = None,
) -> Output:
    """Tag a run, or write notes on it; `proctor runs --tag TAG` finds it again."""
    if not (tag or remove or notes is not None):
        raise ProctorError("say what to change: give --tag TAG, --remove TAG or --notes TEXT")
    with open_remembered(home) as ledger:
        chosen = find_verified_run(ledger, run)
    with held_session(home) as session:
        before = next(iter(session.query(_LATEST, [str(chosen)]).rows), ((), "", "{}"))
    tags, earlier, config = before
    kept = [each for each in tags or () if each not in (remove or ())]
    try:
        annotation = Annotation.give(
            str(chosen),
            tags=list(dict.fromkeys((*kept, *(tag or ())))),
            notes=earlier if notes is None else notes,
            config=_object(config),
        )
    except InvariantError as error:
        raise ProctorError(str(error)) from error
    with home.open_log() as log:
        log.save(annotation)
    told = Said(run=chosen, tags=annotation.tags, notes=annotation.notes)
    return Output(told, f"run {chosen}: {', '.join(annotation.tags) or 'no tags'}")
