"""`proctor curate`: training data out of the ledger, and back again when what it rests on falls.

Exit code 0: done, or nothing speaks against it. 1: something is to be called back, a run is not let
in, a file is not what was sealed, or no example is left to export.
"""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import typer

from aggregates.curation.corpus import KINDS as ORIGINS
from aggregates.curation.corpus import Corpus
from judge.curation.examples import outnumbered
from judge.curation.query import MARGIN, Query
from judge.curation.recall import Recalled, recall_of
from judge.curation.recall import recall as called_back
from judge.curation.sealing import Drawn, draw, find_seal, verify_file
from judge.curation.tables import Tables, open_tables
from judge.errors import CurationError
from ledger.wording import counted
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.failures import require_extra
from proctor.cli.inputs import operator_key, read_octets
from proctor.cli.options import (
    AsOfOption,
    OperatorKeyOption,
    RunArgument,
)
from proctor.errors import ProctorError
from proctor.home import Home, find_named, find_run
from proctor.output.exports import write_export
from proctor.output.files import verify_target
from proctor.output.terminal import console, error_console, print_table, words
from proctor.remembering import open_remembered

app = CommandGroup(
    "curate", "Export training data from valid runs, seal the exports, and recall examples."
)

_MAX_FILE = 1 << 30  # bytes
_KindArgument = Annotated[str, typer.Argument(metavar="KIND", help=f"{' or '.join(ORIGINS)}.")]
_NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="For data, the fingerprint of the training examples; for a model, its name, or "
        "`playbook` or `human`. `proctor curate origins` lists them.",
    ),
]
_NoteOption = Annotated[str, typer.Option("--note", help="Reason.")]
_BECAUSE = {  # run_standing.why_not
    "not repeatable": "it was watched in a loop of its owner, and nobody can train it again",
    "no label": "the code that made it is not a checkpoint of this ledger",
    "label unknown": "its checkpoint was not on record before it began",
    "label of other code": "other code made it than its checkpoint's",
    "derived from an unlabelled run": "it uses a run that has no valid label",
    "not judged": "it was not judged since its last event",
    "did not hold": "its audit failed a gate, or a check was disabled",
    "not exercised": "too few fired rules were answered by a remedy that took effect",
    "tainted": "it depends on a checkpoint that was rolled back or an origin that was withdrawn",
    "entry unreadable": "an entry that may be about it cannot be read",
}


@app.command(prints="curation.Export | curation.ExportRefused")
def export(
    home: Home,
    kind: Annotated[
        str, typer.Option("--kind", help="Kind of data: sft, preferences or proposals.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="Write JSON Lines to this file.")
    ] = None,
    parquet: Annotated[
        Path | None, typer.Option("--parquet", help="Also write Parquet to this file.")
    ] = None,
    as_of: AsOfOption = None,
    as_it_was: Annotated[
        bool,
        typer.Option(
            "--as-it-was",
            help="With --as-of: include examples that were excluded since; the seal records it.",
        ),
    ] = False,
    decided_by: Annotated[
        list[str] | None,
        typer.Option(
            "--decided-by", metavar="NAME", help="Only answers of this decider; can be repeated."
        ),
    ] = None,
    max_temperature: Annotated[
        float | None,
        typer.Option(
            "--max-temperature", min=0, help="Temperature at which the models were sampled."
        ),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option("--dataset", help="Only runs on this dataset.")
    ] = None,
    min_process_score: Annotated[
        float | None,
        typer.Option("--min-process-score", min=0, max=1, help="Lowest process score of the runs."),
    ] = None,
    min_accuracy: Annotated[
        float | None,
        typer.Option("--min-accuracy", min=0, max=1, help="Lowest validation accuracy."),
    ] = None,
    provoked: Annotated[
        bool | None,
        typer.Option(
            "--provoked/--unprovoked", help="Only runs with, or without, a provoked fault."
        ),
    ] = None,
    gold: Annotated[
        bool, typer.Option("--gold", help="Only answers that people marked gold or bad.")
    ] = False,
    margin: Annotated[
        float,
        typer.Option(
            "--margin",
            min=0,
            max=1,
            help="Preferences only: smallest difference between the two runs.",
        ),
    ] = MARGIN,
    measured: Annotated[
        bool,
        typer.Option(
            "--measured",
            help="Preferences only: pairs by the measured credit of `proctor credit`, in place of "
            "a margin.",
        ),
    ] = False,
) -> Output:
    """Export training data as of an index, and seal it; exit code 1 if there is none.

    With --as-of, also if an example was excluded since, for instance by a rollback.
    """
    if as_it_was and as_of is None:
        raise ProctorError("--as-it-was needs --as-of: without it nothing excluded is exported")
    if parquet is not None:
        require_extra("arrow")  # before anything is sealed
    query = Query(
        kind=kind,
        decided_by=tuple(decided_by or ()),
        max_temperature=max_temperature,
        dataset=dataset,
        min_process_score=min_process_score,
        min_accuracy=min_accuracy,
        provoked=provoked,
        gold=gold,
        margin=margin,
        measured=measured,
    )
    for file, other in ((out, parquet), (parquet, out)):
        if file is not None:  # nothing is sealed that cannot be handed out
            verify_target(file, home=home, others=(other,))
    with _opened(home, as_of) as tables:
        drawn = draw(tables, query, blobs=home.blobs)
        unsettled = _unsettled(tables) if measured else []
        standing = _standing(tables, kind)
        sealed, since = _since(home, tables, drawn) if as_of is None else (None, 0)
    if as_of is not None:
        with _opened(home, None) as tables:
            excluded = recall_of(tables, "", [each.member for each in drawn.examples])
            if excluded and not as_it_was:
                return _refuse_excluded(drawn, excluded)
            drawn = replace(drawn, query=replace(query, as_it_was=bool(excluded)))
            sealed, _ = _since(home, tables, drawn)
            since = len(excluded)
    empty = not drawn.examples and sealed is None
    seal = drawn.seal()
    told = {
        "export": None if empty else str(seal.id),
        "kind": kind,
        "as_of": drawn.as_of,
        "examples": len(drawn.examples),
        "root": seal.root,
        "sha256": seal.sha256,
        "sealed_before": None if sealed is None else sealed["idx"],
        "to_be_called_back": since,
        **standing,
    }
    for why, number in unsettled:
        measures = f"{counted(number, 'measurement')} of credit"
        error_console.print(words(f"{measures} decided nothing and made no pair: {why}"))
    if sealed is None and not empty:
        home.blobs.put(drawn.members)
        with home.open_log() as log:
            log.save(seal)
    if not empty:
        write_export(drawn, out=out, parquet=parquet, home=home)
    if empty:
        error_console.print(
            "no example is left: nothing was sealed or written; ask for less, or see what keeps a "
            "run out with `proctor curate why RUN`"
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


@app.command("list", long=True, prints="list[curation.Sealed]")
def list_(home: Home) -> Output:
    """List the sealed exports, and how many examples of each are recalled."""
    with _opened(home, None) as tables:
        counts = Counter(each.export for each in called_back(tables, blobs=home.blobs))
        rows = [
            {**row, "to_be_called_back": counts[row["export_id"]]}
            for row in tables.ask(
                "SELECT export_id, kind, as_of, idx AS sealed_idx, examples, query, sha256 "
                "FROM exports ORDER BY idx"
            )
        ]

    def tell() -> None:
        if rows:
            print_table(list(rows[0]), [list(row.values()) for row in rows])
        else:
            console.print("no exports yet; `proctor curate export --kind sft` makes one")

    return Output([{**row, "query": json.loads(row["query"])} for row in rows], tell)


@app.command(prints="list[curation.Recalled]")
def recall(
    home: Home,
    export: Annotated[
        str | None, typer.Argument(metavar="[EXPORT]", help="Exports to check; by default all.")
    ] = None,
) -> Output:
    """List exported examples that would be excluded now; exit code 1 if there are any."""
    with _opened(home, None) as tables:
        known = [row["export_id"] for row in tables.ask("SELECT export_id FROM exports")]
        chosen = None if export is None else _sealed(known, export)
        found = list(called_back(tables, blobs=home.blobs, export=chosen))

    def tell() -> None:
        if found:
            print_table(
                ("export", "example", "tainted", "why"),
                [
                    (each.export[:8], each.example or "all", each.tainted, "; ".join(each.why))
                    for each in found
                ],
            )
        else:
            console.print(f"no example to recall in {counted(len(known), 'export')}")

    return Output(found, tell, found=bool(found))


@app.command(prints="curation.SealedFile | curation.NotSealed")
def verify(
    home: Home,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON Lines file of an export.")],
) -> Output:
    """Verify a file against its seal; exit code 1 if it has none or part is recalled."""
    content = read_octets(file, most=_MAX_FILE)
    with _opened(home, None) as tables:
        try:
            sealed = verify_file(tables, content, blobs=home.blobs)
        except CurationError as error:
            problem = str(error)
            return Output(
                {"sealed": False, "problem": problem}, f"not sealed: {problem}", found=True
            )
        found = list(called_back(tables, blobs=home.blobs, export=sealed["export_id"]))
    told = {
        "sealed": True,
        "export": sealed["export_id"],
        "entry": sealed["idx"],
        "as_of": sealed["as_of"],
        "examples": sealed["examples"],
        "drawn_again": sealed["drawn"],
        "to_be_called_back": len(found),
    }
    return Output(told, lambda: print_table(("", ""), told.items()), found=bool(found))


@app.command(long=True, prints="curation.Why")
def why(home: Home, run: RunArgument = "latest") -> Output:
    """Say whether a run is training data, only a failure, or excluded; exit code 1 unless data."""
    with _opened(home, None) as tables:
        rows = tables.ask(
            "SELECT run_id FROM run_starts ORDER BY run_id NOT IN (SELECT run_id FROM forks), idx"
        )
        ids = [UUID(row["run_id"]) for row in rows]
        chosen = str(find_run(ids, run))
        standing = tables.ask("SELECT * FROM curated_runs WHERE run_id = ?", [chosen])[0]
        forces = tables.ask("SELECT * FROM run_forces WHERE run_id = ?", [chosen])[0]
        answers = tables.ask(
            "SELECT number, author, faults FROM curated_decisions WHERE run_id = ? ORDER BY number",
            [chosen],
        )

    reasons = standing["why_not"]
    if "not repeatable" in reasons:  # which no label, judge or admission changes
        reasons = ["not repeatable"]
    because = " and ".join(_BECAUSE.get(each, each) for each in reasons)
    if standing["let_in"]:
        sentence = f"run {chosen} is training data."
    elif standing["usable"]:
        sentence = (
            f"run {chosen} is used as a failure only, as evidence for proposals and as the "
            f"rejected side of pairs, because {because}."
        )
    else:
        sentence = f"run {chosen} is excluded from training data because {because}."

    def tell() -> None:
        console.print(words(sentence))
        print_table(("", ""), list(forces.items())[1:])
        for each in answers:
            for fault in each["faults"]:
                console.print(words(f"decision {each['number']} is left out: {fault}"))

    return Output(
        {**standing, "says": sentence, "forces": forces, "decisions": answers},
        tell,
        found=not standing["let_in"],
    )


@app.command(prints="list[curation.OriginRow]")
def origins(home: Home) -> Output:
    """List the origins of the runs' data and answers, and which are admitted."""
    with _opened(home, None) as tables:
        rows = tables.ask(
            "SELECT kind, name, COUNT(DISTINCT o.run_id) AS runs, "
            "COALESCE(ANY_VALUE(s.what), CASE WHEN BOOL_AND(o.own) THEN 'own code' "
            "ELSE 'never admitted' END) AS standing, ANY_VALUE(s.note) AS note "
            "FROM (SELECT kind, name, run_id, own FROM origin_tags UNION ALL "
            "SELECT 'model', author, NULL, FALSE FROM curated_proposals) AS o "
            "FULL JOIN origin_standing AS s USING (kind, name) "
            "GROUP BY kind, name ORDER BY kind, runs DESC, name"
        )
    return Output(
        rows,
        lambda: print_table(
            ("kind", "name", "runs", "standing", "note"), [tuple(row.values()) for row in rows]
        ),
    )


@app.command(prints="curation.OriginWord")
def admit(
    home: Home,
    kind: _KindArgument,
    name: _NameArgument,
    key: OperatorKeyOption,
    note: _NoteOption,
    unseen: Annotated[
        bool, typer.Option("--unseen", help="Admit an origin that no run of this ledger has yet.")
    ] = False,
) -> Output:
    """Admit an origin to training data; signed with an operator's key."""
    if kind in ORIGINS and not unseen:
        _verify_seen(home, kind, name)
    return _say(home, "admit", kind, name, note=note, key=key)


@app.command(prints="curation.OriginWord")
def withdraw(
    home: Home,
    kind: _KindArgument,
    name: _NameArgument,
    key: OperatorKeyOption,
    note: _NoteOption,
) -> Output:
    """Withdraw an origin, with everything derived from it."""
    return _say(home, "withdraw", kind, name, note=note, key=key)


def _sealed(known: list[str], name: str) -> str:
    return find_named(known, name, noun="export", see="`proctor curate list` lists them")


def _verify_seen(home: Home, kind: str, name: str) -> None:
    """Raise ProctorError unless some run has this origin: a name that nobody has is a mistake."""
    with _opened(home, None) as tables:
        if not tables.ask(
            "SELECT 1 FROM origin_tags WHERE kind = ? AND name = ? "
            "UNION ALL SELECT 1 FROM curated_proposals WHERE 'model' = ? AND author = ?",
            [kind, name] * 2,
        ):
            raise ProctorError(
                f"no run of this ledger has the {kind} {name!r}: `proctor curate origins` lists "
                "them, --unseen admits it all the same"
            )


def _say(home: Home, what: str, kind: str, name: str, *, note: str, key: Path) -> Output:
    author = operator_key(key)
    home.require_ledger()
    with home.open_log() as log:
        opened = Corpus.id_of() in log.repository
        corpus: Corpus = log.repository.get(Corpus.id_of()) if opened else Corpus.open()
        if what == "admit":
            corpus.admit(kind, name, note)
        else:
            corpus.withdraw(kind, name, note)
        log.save(corpus, author=author)
    done = {"admit": "admitted", "withdraw": "withdrawn"}[what]
    return Output({"what": done, "kind": kind, "name": name}, f"{done}: {kind} {name}")


@contextmanager
def _opened(home: Home, as_of: int | None) -> Iterator[Tables]:
    home.require_ledger()
    with open_remembered(home) as ledger, open_tables(ledger, as_of=as_of) as tables:
        yield tables


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
    error_console.print(
        words(
            f"nothing was sealed or written: {counted(len(excluded), 'example')} of "
            f"{len(drawn.examples)} as of entry {drawn.as_of} would be excluded now, for instance "
            f"{first.example} ({'; '.join(first.why)}); leave out --as-of, or add --as-it-was to "
            "export them on record"
        )
    )
    told = {
        "export": None,
        "kind": drawn.query.kind,
        "as_of": drawn.as_of,
        "examples": len(drawn.examples),
        "to_be_called_back": len(excluded),
        "excluded": excluded,
    }
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


def _tell_export(told: dict[str, Any]) -> None:
    noun = "proposal" if told["kind"] == "proposals" else "run"
    console.print(
        words(
            f"{counted(told['examples'], 'example')} from {told['let_in']} of "
            f"{counted(told[noun + 's'], noun)}, as of entry {told['as_of']}"
        )
    )
    for reason, number in told["why_not"].items():
        console.print(words(f"  kept out: {counted(number, noun)}, {reason}"))
    how = "sealed" if told["sealed_before"] is None else "sealed before, with the same bytes"
    if told["export"] is not None:
        console.print(words(f"{how}: export {told['export']}, SHA-256 {told['sha256']}"))
    if told["to_be_called_back"]:
        error_console.print(
            words(f"{told['to_be_called_back']} of them would be kept out now; see `recall`")
        )
