"""`proctor data`: what may become training data, and what speaks against it.

Exit code 0: done, or nothing speaks against it. 1: an example is to be called back, or a run is
not let in.
"""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

from aggregates.curation.corpus import KINDS as ORIGINS
from aggregates.curation.corpus import Corpus
from aggregates.review import Review
from judge.curation.recall import recall as called_back
from judge.curation.tables import Tables, open_tables
from ledger.wording import counted
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.options import MOST, Argument, OperatorKeyOption
from proctor.errors import ProctorError
from proctor.home import Home, find_run
from proctor.inputs import operator_key
from proctor.output.shape import Answer, columns
from proctor.output.terminal import console, print_rows, print_table, print_words
from proctor.remembering import keep_definitions, open_remembered

app = CommandGroup(
    "data",
    "Curate training data: admit origins, review decisions, trace and recall examples.",
    lazy={"lineage": "proctor.cli.lineage"},
)

_KindArgument = Annotated[str, f"{' or '.join(ORIGINS)}.", Argument("KIND")]
_NameArgument = Annotated[
    str,
    "For data, the fingerprint of the training examples; for a model, its name, or "
    "`playbook` or `human`. `proctor data list` lists them.",
    Argument("NAME"),
]
_NoteOption = Annotated[str, "Reason."]
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


Why = Annotated[
    dict[str, Any],
    columns(
        "Why",
        "A row of curated_runs with its row of run_forces and its rows of curated_decisions; exit "
        "code 1 unless the run is training data.",
        "SELECT r.*, '' AS says, f AS forces, "
        "[{number: d.number, author: d.author, faults: d.faults}] AS decisions "
        "FROM curated_runs AS r, run_forces AS f, curated_decisions AS d",
    ),
]


class Sealed(Answer):
    """A sealed export."""

    export_id: str
    kind: str
    as_of: int
    sealed_idx: int
    examples: int
    query: dict[str, Any]
    sha256: str
    to_be_called_back: int


class OriginRow(Answer):
    """An origin of data or answers."""

    kind: str
    name: str
    runs: int
    standing: str
    note: str | None


class DataList(Answer):
    """What was exported, and from which origins data and answers came."""

    exports: list[Sealed]
    origins: list[OriginRow]


class OriginWord(Answer):
    """What an operator said of an origin."""

    what: Literal["admitted", "withdrawn"]
    kind: str
    name: str


class Reviewed(Answer):
    """A decision that was marked."""

    review: UUID
    index: int
    mark: str


@app.command("list", long=True, prints=DataList)
def list_(home: Home) -> Output:
    """List sealed exports with their recalled examples, and origins with their standing."""
    with opened(home, None) as tables:
        counts = Counter(each.export for each in called_back(tables, blobs=home.blobs))
        exports = [
            {**row, "to_be_called_back": counts[row["export_id"]]}
            for row in tables.ask(
                "SELECT export_id, kind, as_of, idx AS sealed_idx, examples, query, sha256 "
                "FROM exports ORDER BY idx"
            )
        ]
        origins = tables.ask(
            "SELECT kind, name, COUNT(DISTINCT o.run_id) AS runs, "
            "COALESCE(ANY_VALUE(s.what), CASE WHEN BOOL_AND(o.own) THEN 'own code' "
            "ELSE 'never admitted' END) AS standing, ANY_VALUE(s.note) AS note "
            "FROM (SELECT kind, name, run_id, own FROM origin_tags UNION ALL "
            "SELECT 'model', author, NULL, FALSE FROM curated_proposals) AS o "
            "FULL JOIN origin_standing AS s USING (kind, name) "
            "GROUP BY kind, name ORDER BY kind, runs DESC, name"
        )

    def tell() -> None:
        if exports:
            print_rows(Sealed.__struct_fields__, exports)
        else:
            console.print("no exports yet; `proctor export data --kind sft` makes one")
        print_rows(OriginRow.__struct_fields__, origins, title="\norigins")

    sealed = [{**row, "query": json.loads(row["query"])} for row in exports]
    return Output(DataList.of(exports=sealed, origins=origins), tell)


@app.command(long=True, prints="proctor.cli.data.Why | list[judge.curation.recall.Recalled]")
def why(
    home: Home,
    subject: Annotated[
        str | None,
        "Id of a run or export, its start, a run's name, or `latest`: the newest run that is no "
        "fork; by default all exports.",
        Argument("[RUN|EXPORT]"),
    ] = None,
) -> Output:
    """Say why a run is or is not training data, or which exported examples are recalled.

    Exit code 1 if the run is not training data, or an example is recalled.
    """
    with opened(home, None) as tables:
        exports = [row["export_id"] for row in tables.ask("SELECT export_id FROM exports")]
        runs = {
            UUID(row["run_id"]): row["name"]
            for row in tables.ask(
                "SELECT run_id, dataset AS name FROM runs "
                "ORDER BY run_id NOT IN (SELECT run_id FROM forks WHERE state <> ''), started_idx"
            )
        }
        chosen = None
        if subject is not None:
            chosen = str(find_run([*map(UUID, exports), *runs], subject, runs))
            if chosen not in exports:
                return _why(tables, chosen)
        found = list(called_back(tables, blobs=home.blobs, export=chosen))

    def tell() -> None:
        if found:
            rows = [(e.export[:8], e.example or "all", e.tainted, "; ".join(e.why)) for e in found]
            print_table(("export", "example", "tainted", "why"), rows)
        else:
            console.print(f"no example to recall in {counted(len(exports), 'export')}")

    return Output(found, tell, found=bool(found))


@app.command(prints=OriginWord)
def admit(
    home: Home,
    kind: _KindArgument,
    name: _NameArgument,
    key: OperatorKeyOption,
    note: _NoteOption,
    unseen: Annotated[bool, "Admit an origin that no run of this ledger has yet."] = False,
) -> Output:
    """Admit an origin to training data; signed with an operator's key."""
    if kind in ORIGINS and not unseen:
        _verify_seen(home, kind, name)
    return _say(home, "admitted", kind, name, note=note, key=key)


@app.command(prints=OriginWord)
def withdraw(
    home: Home,
    kind: _KindArgument,
    name: _NameArgument,
    key: OperatorKeyOption,
    note: _NoteOption,
) -> Output:
    """Withdraw an origin, with everything derived from it."""
    return _say(home, "withdrawn", kind, name, note=note, key=key)


@app.command(prints=Reviewed)
def review(
    home: Home,
    index: Annotated[int, "Index of the decision's entry.", Argument(least=0, most=MOST)],
    mark: Annotated[Literal["gold", "bad"], "What is said of it.", Argument("MARK")],
    key: OperatorKeyOption,
    note: Annotated[str, "Comment."] = "",
) -> Output:
    """Mark a decision as gold or bad; signed with an operator's key."""
    author = operator_key(key)
    with open_remembered(home) as ledger:
        if index >= ledger.size:
            raise ProctorError(f"there is no entry {index}; `proctor log` lists {ledger.size}")
        entry = next(ledger.entries(start=index))
    if entry.name != "run.decision_made":
        raise ProctorError(
            f"entry {index} is {entry.name}, not a decision; `proctor log` lists them by name"
        )
    made = Review.of(
        index=index,
        entry_hash=entry.entry_hash.hex(),
        run=str(entry.stream_id),
        mark=mark,
        note=note,
    )
    with home.open_log() as log:
        log.save(made, author=author)
    told = Reviewed(review=made.id, index=index, mark=mark)
    return Output(told, f"marked the decision in entry {index} as {mark}")


def _why(tables: Tables, chosen: str) -> Output:
    """Say whether a run is training data, only a failure, or excluded."""
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
        print_words(sentence)
        print_table(("", ""), list(forces.items())[1:])
        for each in answers:
            for fault in each["faults"]:
                print_words(f"decision {each['number']} is left out: {fault}")

    return Output(
        {**standing, "says": sentence, "forces": forces, "decisions": answers},
        tell,
        found=not standing["let_in"],
    )


def _verify_seen(home: Home, kind: str, name: str) -> None:
    """Raise ProctorError unless some run has this origin: a name that nobody has is a mistake."""
    with opened(home, None) as tables:
        if not tables.ask(
            "SELECT 1 FROM origin_tags WHERE kind = ? AND name = ? "
            "UNION ALL SELECT 1 FROM curated_proposals WHERE 'model' = ? AND author = ?",
            [kind, name] * 2,
        ):
            raise ProctorError(
                f"no run of this ledger has the {kind} {name!r}: `proctor data list` lists "
                "them, --unseen admits it all the same"
            )


def _say(
    home: Home,
    what: Literal["admitted", "withdrawn"],
    kind: str,
    name: str,
    *,
    note: str,
    key: Path,
) -> Output:
    author = operator_key(key)
    home.require_ledger()
    with home.open_log() as log:
        corpus = log.find(Corpus.id_of(), Corpus) or Corpus.open()
        if what == "admitted":
            corpus.admit(kind, name, note)
        else:
            corpus.withdraw(kind, name, note)
        log.save(corpus, author=author)
    told = OriginWord(what=what, kind=kind, name=name)
    return Output(told, f"{what}: {kind} {name}")


@contextmanager
def opened(home: Home, as_of: int | None) -> Iterator[Tables]:
    """Open the tables of a ledger that was just verified."""
    keep_definitions()
    with open_remembered(home) as ledger, open_tables(ledger, as_of=as_of) as tables:
        yield tables
