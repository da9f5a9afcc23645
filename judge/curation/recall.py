"""Which examples of sealed exports are tainted by now, or would no longer be admitted.

Trust: a list of members is trusted if its hash is the sealed one.
I/O: reads blobs.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

import msgspec

from judge.curation.examples import Member, is_measured
from judge.curation.tables import Tables
from judge.errors import CurationError
from ledger.blobs import Blobs
from ledger.errors import LedgerError

_RUNS = "SELECT run_id, tainted, usable, why_not FROM curated_runs"
_PROPOSALS = "SELECT proposal_id, tainted, let_in, why_not FROM curated_proposals"
_FAULTS = "SELECT run_id, number, faults FROM curated_decisions WHERE LEN(faults) > 0"


@dataclass(frozen=True)
class Recalled:
    """An example that was handed out, and what speaks against it now."""

    export: str
    example: str | None  # None: all of them, for the list of members is lost
    tainted: bool  # a checkpoint was rolled back, or an origin withdrawn
    why: tuple[str, ...]


def recall(tables: Tables, *, blobs: Blobs, export: str | None = None) -> Iterator[Recalled]:
    """Yield what is to be called back, export by export in the order of their seals.

    Where the list of members is missing or changed, the whole export is to be called back: which
    examples are clean cannot be told.
    """
    standing = _Standing(tables)
    for sealed in tables.ask("SELECT export_id, members, examples FROM exports ORDER BY idx"):
        if export is not None and sealed["export_id"] != export:
            continue
        try:
            members = read_members(blobs.get(sealed["members"]), examples=sealed["examples"])
        except (CurationError, LedgerError) as error:
            yield Recalled(sealed["export_id"], None, tainted=True, why=(str(error),))
            continue
        yield from standing.against(sealed["export_id"], members)


def recall_of(tables: Tables, export: str, members: Iterable[Member]) -> list[Recalled]:
    """Return those examples that would be kept out by these tables, of an export still unsealed."""
    return list(_Standing(tables).against(export, members))


class _Standing:
    """What speaks against runs, decisions and proposals."""

    def __init__(self, tables: Tables) -> None:
        with tables.settled():
            runs, faults, proposals = map(tables.ask, (_RUNS, _FAULTS, _PROPOSALS))
        # Of each run and proposal, whether it is tainted, whether it is usable as a failure (of a
        # proposal: let in), and why not.
        self._told = {row[0]: row[1:] for row in map(tuple, map(dict.values, (*runs, *proposals)))}
        self._proposals = {row["proposal_id"] for row in proposals}
        self._faults = {(row["run_id"], row["number"]): row["faults"] for row in faults}
        # Whether measurements show a pair now.
        self._is_measured = cache(lambda: is_measured(tables))

    def against(self, export: str, members: Iterable[Member]) -> Iterator[Recalled]:
        for member in members:
            tainted, why = False, []
            # As right, because their runs went well; what forks have shown rests on the forks.
            shown = set() if member.measured else {run for run, _ in member.decisions}
            named = (run for run, _ in (*member.decisions, *member.rejected))
            for run in dict.fromkeys((*named, *member.measured)):
                unknown = (True, False, ["not found in this ledger"])
                noun = "proposal" if run in self._proposals else "run"
                reached, usable, reasons = self._told.get(run, unknown)
                tainted = tainted or reached
                if run in shown or not usable:
                    why += [f"{noun} {run}: {reason}" for reason in reasons]
            for run, number in member.decisions:
                faults = self._faults.get((run, number), [])
                why += [f"decision {number}: {fault}" for fault in faults]
            if member.measured and not why and not self._is_measured()(member):
                why = ["what is measured now does not say which answer is better"]
            if why:
                yield Recalled(export, member.id, tainted=tainted, why=tuple(why))


def read_members(content: bytes, *, examples: int) -> list[Member]:
    """Return what a list of so many members says; raises CurationError if it does not say it.

    Each has the decisions that its id begins with: of an example that names none nothing would ever
    be called back.
    """
    try:
        members = [msgspec.json.decode(line, type=Member) for line in content.splitlines()]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CurationError(f"the list of its examples cannot be read: {error}") from error
    for member in members:
        parts = [member.decisions, *([member.rejected] if member.rejected else [])]
        if member.id != ">".join("{}/{}".format(*part[0]) for part in parts):
            raise CurationError(
                f"the list of its examples cannot be read: {member!r:.80} is not a valid member"
            )
    if len(members) != examples:
        raise CurationError(
            f"the list of its examples has {len(members)} entries, but the export has {examples}"
        )
    return members
