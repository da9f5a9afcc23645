"""`proctor export data`: training data out of the ledger, sealed.

Exit code 1: no example is left to export, or one was excluded since.
"""

import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

from msgspec import UNSET, UnsetType

from judge.curation.examples import outnumbered
from judge.curation.query import MARGIN, Query
from judge.curation.recall import Recalled, recall_of
from judge.curation.recall import recall as called_back
from judge.curation.sealing import Drawn, draw, find_seal
from judge.curation.tables import Tables
from ledger.wording import counted
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.data import opened
from proctor.cli.failures import require_extra
from proctor.cli.options import AsOfOption, Takes
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.output.files import verify_target, write_output
from proctor.output.shape import Answer
from proctor.output.terminal import error_console, print_words, warn

app = CommandGroup()
_PARQUET = {  # kind -> columns of messages
    "preferences": ("prompt", "chosen", "rejected"),
    "proposals": ("prompt", "completion"),
    "sft": ("messages",),
}


class Export(Answer, kw_only=True):
    """An export of training data; exit code 1 if there is no example."""

    export: UUID | None
    kind: str
    as_of: int
    examples: int
    root: str
    sha256: str
    sealed_before: int | None  # index of the entry
    to_be_called_back: int
    runs: int | UnsetType = UNSET
    proposals: int | UnsetType = UNSET
    let_in: int
    why_not: dict[str, int]  # reason -> how many runs or proposals


class ExportRefused(Answer):
    """An export that was refused since examples of it were excluded; exit code 1."""

    export: None
    kind: str
    as_of: int
    examples: int
    to_be_called_back: int
    excluded: list[Recalled]


@dataclass(frozen=True, kw_only=True)
class Filters:
    """What of the data is exported; as in a Query."""

    decided_by: Annotated[
        list[str] | None, "Only answers of this decider; can be repeated.", Takes("NAME")
    ] = None
    max_temperature: Annotated[
        float | None, "Temperature at which the models were sampled.", Takes(least=0)
    ] = None
    dataset: Annotated[str | None, "Only runs on this dataset."] = None
    min_process_score: Annotated[
        float | None, "Lowest process score of the runs.", Takes(least=0, most=1)
    ] = None
    min_accuracy: Annotated[float | None, "Lowest validation accuracy.", Takes(least=0, most=1)] = (
        None
    )
    provoked: Annotated[
        bool | None,
        "Only runs with, or without, a provoked fault.",
        Takes(option="--provoked/--unprovoked"),
    ] = None
    gold: Annotated[bool, "Only answers that people marked gold or bad."] = False
    margin: Annotated[
        float, "Preferences only: smallest difference between the two runs.", Takes(least=0, most=1)
    ] = MARGIN
    measured: Annotated[
        bool,
        "Preferences only: pairs by the measured credit of `proctor fork`, in place of a margin.",
    ] = False
    false_discoveries: Annotated[
        float | None,
        "With --measured: largest expected share of pairs that are due to chance, over all "
        "questions measured in the ledger (Benjamini and Hochberg).",
        Takes(least=0, most=1),
    ] = None


@app.command(prints=Export | ExportRefused)
def data(
    home: Home,
    kind: Annotated[str, "Kind of data: sft, preferences or proposals."],
    only: Filters,
    out: Annotated[
        Path | None, "Write JSON Lines to this file, or Parquet if its name ends in .parquet."
    ] = None,
    as_of: AsOfOption = None,
    as_it_was: Annotated[
        bool, "With --as-of: include examples that were excluded since; the seal records it."
    ] = False,
) -> Output:
    """Export training data as of an index, and seal it; exit code 1 if there is none.

    With --as-of, also if an example was excluded since, for instance by a rollback.
    """
    if as_it_was and as_of is None:
        raise ProctorError("--as-it-was needs --as-of: without it nothing excluded is exported")
    parquet = out is not None and out.suffix == ".parquet"
    if parquet:
        require_extra("arrow")  # before anything is sealed
    query = Query(kind=kind, **{**vars(only), "decided_by": tuple(only.decided_by or ())})
    if out is not None:  # nothing is sealed that cannot be handed out
        verify_target(out, home=home)
    with opened(home, as_of) as tables:
        drawn = draw(tables, query, blobs=home.blobs)
        unsettled = _unsettled(tables) if only.measured else []
        standing = _standing(tables, kind)
        sealed, since = _since(home, tables, drawn) if as_of is None else (None, 0)
    if as_of is not None:
        with opened(home, None) as tables:
            excluded = recall_of(tables, "", [each.member for each in drawn.examples])
            if excluded and not as_it_was:
                return _refuse_excluded(drawn, excluded)
            drawn = replace(drawn, query=replace(query, as_it_was=bool(excluded)))
            sealed, _ = _since(home, tables, drawn)
            since = len(excluded)
    empty = not drawn.examples and sealed is None
    seal = drawn.seal()
    told = Export.of(
        standing,
        drawn,
        seal,
        export=None if empty else seal.id,
        kind=kind,
        examples=len(drawn.examples),
        sealed_before=None if sealed is None else sealed["idx"],
        to_be_called_back=since,
    )
    for why, number in unsettled:
        measures = f"{counted(number, 'measurement')} of credit"
        warn(f"{measures} decided nothing and made no pair: {why}")
    if sealed is None and not empty:
        home.blobs.put(drawn.members)
        with home.open_log() as log:
            log.save(seal)
    if out is not None and not empty:
        write_output(out, _parquet(drawn) if parquet else drawn.lines, home=home)
    if empty:
        error_console.print(
            "no example is left: nothing was sealed or written; ask for less, or see what keeps a "
            "run out with `proctor data why RUN`"
        )
    return Output(told, lambda: _tell_export(told), found=empty)


def _unsettled(tables: Tables) -> list[tuple[str, int]]:
    """Return why measurements of credit are no answer, and how many for each reason."""
    rows = tables.ask(
        "SELECT COALESCE(why_not, 'undecided by all orders that were measured') AS why, "
        "COUNT(*) AS number FROM decision_credit WHERE better IS NULL GROUP BY ALL ORDER BY ALL"
    )
    found = [(row["why"], row["number"]) for row in rows]
    if number := outnumbered(tables):
        why = "as one of several measurements of the same, its wider interval contains 0"
        found.append((why, number))
    return found


def _since(home: Home, tables: Tables, drawn: Drawn) -> tuple[dict[str, Any] | None, int]:
    """Return the seal that there is already, and how many of its examples are to be called back."""
    sealed = find_seal(tables, drawn)
    if sealed is None:
        return None, 0
    found = called_back(tables, blobs=home.blobs, export=sealed["export_id"])
    return sealed, sum(1 for _ in found)


def _refuse_excluded(drawn: Drawn, excluded: list[Recalled]) -> Output:
    """Say which examples were excluded since; nothing is sealed or written."""
    first = excluded[0]
    warn(
        f"nothing was sealed or written: {counted(len(excluded), 'example')} of "
        f"{len(drawn.examples)} as of entry {drawn.as_of} would be excluded now, for instance "
        f"{first.example} ({'; '.join(first.why)}); leave out --as-of, or add --as-it-was to "
        "export them on record"
    )
    told = ExportRefused(
        export=None,
        kind=drawn.query.kind,
        as_of=drawn.as_of,
        examples=len(drawn.examples),
        to_be_called_back=len(excluded),
        excluded=excluded,
    )
    return Output(told, lambda: None, found=True)


def _standing(tables: Tables, kind: str) -> dict[str, Any]:
    """Count the runs or proposals that are let in, and what speaks against the others."""
    noun = "proposals" if kind == "proposals" else "runs"
    rows = tables.ask(f"SELECT let_in, why_not FROM curated_{noun}")  # noqa: S608 - our own names
    reasons = Counter(reason for row in rows for reason in row["why_not"])
    return {
        noun: len(rows),
        "let_in": sum(row["let_in"] for row in rows),
        "why_not": dict(sorted(reasons.items())),
    }


def _tell_export(told: Export) -> None:
    noun = "proposal" if told.kind == "proposals" else "run"
    print_words(
        f"{counted(told.examples, 'example')} from {told.let_in} of "
        f"{counted(getattr(told, noun + 's'), noun)}, as of entry {told.as_of}"
    )
    for reason, number in told.why_not.items():
        print_words(f"  kept out: {counted(number, noun)}, {reason}")
    how = "sealed" if told.sealed_before is None else "sealed before, with the same bytes"
    if told.export is not None:
        print_words(f"{how}: export {told.export}, SHA-256 {told.sha256}")
    if told.to_be_called_back:
        warn(f"{told.to_be_called_back} of them would be kept out now; see `data why`")


def _parquet(drawn: Drawn) -> bytes:
    """Return what was drawn as Parquet, with the columns of the lines."""
    import pyarrow as pa  # noqa: PLC0415 - takes long to import, and is in an extra
    import pyarrow.parquet as pq  # noqa: PLC0415 - likewise

    messages = pa.list_(pa.struct([("content", pa.string()), ("role", pa.string())]))
    fields = [("id", pa.string()), *((name, messages) for name in _PARQUET[drawn.query.kind])]
    if drawn.query.kind != "sft":
        fields.append(("evidence", pa.string()))
    if drawn.query.kind == "proposals":
        fields.append(("label", pa.bool_()))
    schema = pa.schema(fields)
    rows = [json.loads(each.line) for each in drawn.examples]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), sink)
    return bytes(sink.getvalue().to_pybytes())
