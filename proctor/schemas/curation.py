"""Shapes of the commands that export training data and review decisions.

I/O: none.
"""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from proctor.schemas.making import columns

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


class Recalled(TypedDict):
    """An exported example that would be excluded now."""

    export: str
    example: str | None  # None: all of them
    tainted: bool
    why: list[str]


class Export(TypedDict):
    """An export of training data; exit code 1 if there is no example."""

    export: str | None
    kind: str
    as_of: int
    examples: int
    root: str
    sha256: str
    sealed_before: int | None  # index of the entry
    to_be_called_back: int
    runs: NotRequired[int]
    proposals: NotRequired[int]
    let_in: int
    why_not: dict[str, int]  # reason -> how many runs or proposals


class ExportRefused(TypedDict):
    """An export that was refused since examples of it were excluded; exit code 1."""

    export: None
    kind: str
    as_of: int
    examples: int
    to_be_called_back: int
    excluded: list[Recalled]


class Sealed(TypedDict):
    """A sealed export."""

    export_id: str
    kind: str
    as_of: int
    sealed_idx: int
    examples: int
    query: dict[str, Any]
    sha256: str
    to_be_called_back: int


class DataList(TypedDict):
    """What was exported, and from which origins data and answers came."""

    exports: list[Sealed]
    origins: list["OriginRow"]


class SealedFile(TypedDict):
    """A file with its seal; exit code 1 if part of it is recalled."""

    sealed: Literal[True]
    export: str
    entry: int
    as_of: int
    examples: int
    drawn_again: bool
    to_be_called_back: int


class NotSealed(TypedDict):
    """A file without a seal; exit code 1."""

    sealed: Literal[False]
    problem: str


class OriginRow(TypedDict):
    """An origin of data or answers."""

    kind: str
    name: str
    runs: int
    standing: str
    note: str | None


class OriginWord(TypedDict):
    """What an operator said of an origin."""

    what: Literal["admitted", "withdrawn"]
    kind: str
    name: str


class Reviewed(TypedDict):
    """A decision that was marked."""

    review: str
    index: int
    mark: str
