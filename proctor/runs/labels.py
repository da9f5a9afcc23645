"""The label of a run: the checkpoint whose code, prompts and numbers are exactly those that run.

Every checkpoint records one hash over what in it decides a run, and so does every run. A label is
looked for, never asked for: whoever runs cannot choose it. Where none fits there is none, and the
run is in no training data. A home that has neither a run nor a line begins with the code that is
installed then, as the genesis checkpoint.

Trust: this process describes itself; the judge, and whoever has the repository, can check it.
Not covered: code that was changed on disk after it had been loaded.
I/O: reads the log, and the source files.
"""

import hashlib
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from uuid import UUID

from aggregates.improvement.line import INSTALLED, Checkpoint, Line
from judge.gauntlet.repository.manifest import PATH
from judge.gauntlet.tasks.reference_set import load
from judge.reference.scorers import SCORERS
from ledger.application import LedgerApplication
from ledger.errors import ConflictError
from monitor.code import HOUSE, PACKAGES, code_sha256
from proctor.home import notifications

__all__ = ["Label", "find_label", "record_genesis"]


@dataclass(frozen=True)
class Label:
    """What a run may call itself, and what is to be said about it."""

    checkpoint: str | None
    remark: str | None = None  # one line, if there is anything to say


def record_genesis(log: LedgerApplication) -> None:
    """Record the installed code as a checkpoint, if this ledger has neither a run nor a line.

    There is no commit; the hash of the code stands for it and for its tree.
    """
    if next(notifications(log, "line.opened", "run.started"), None) is not None:
        return
    if _loaded_from_elsewhere() is not None:
        return
    code = code_sha256()
    genesis = Line.open(
        root=INSTALLED,
        branch=INSTALLED,
        commit=code,
        tree=code,
        manifest=hashlib.sha256((HOUSE / PATH).read_bytes()).hexdigest(),
        reference_set=load(HOUSE / "judge" / "reference_tasks", scorers=SCORERS).sha256,
        code=code,
    )
    with suppress(ConflictError):  # another first run was quicker
        log.save(genesis)


def find_label(log: LedgerApplication) -> Label:
    """Return the label of what runs here, by what this ledger knows of checkpoints."""
    lines = list(_lines(log))
    if not lines:
        return _none(
            "this ledger has no registered code version; a new home registers the installed one, "
            "and `proctor infra status --repo .` in the repository of this code registers it here, "
            "see docs/how-to/curate.md"
        )
    if (foreign := _loaded_from_elsewhere()) is not None:
        return _none(f"{foreign} is loaded, and what is hashed lies in {HOUSE}; run without it")
    code = code_sha256()
    fitting = [
        (
            each.rolled_back is None,
            line.branch != INSTALLED,  # a line under the gauntlet says more
            each.id == line.active,
            place,
            each,
        )
        for line in lines
        for place, each in enumerate(line.checkpoints.values())
        if each.code == code
    ]
    if not fitting:
        return _none(
            "this code is not a checkpoint of this ledger; check out a checkpoint, or commit the "
            "code to the line and run `proctor infra adopt`"
        )
    chosen: Checkpoint = max(fitting, key=lambda found: found[:4])[-1]
    if chosen.rolled_back is not None:
        return Label(
            chosen.id,
            f"this code is checkpoint {chosen.id}, which was rolled back: this run is tainted from "
            f"its start ({chosen.rolled_back}); check out one that was not rolled back: "
            "`proctor checkpoints list`",
        )
    return Label(chosen.id)


def _none(why: str) -> Label:
    return Label(None, f"not exportable as training data: {why}")


def _lines(log: LedgerApplication) -> Iterator[Line]:
    for each in notifications(log, "line.opened"):
        line: Line = log.repository.get(UUID(str(each.originator_id)))
        yield line


def _loaded_from_elsewhere() -> str | None:
    """Return a module's file that is not the one that is hashed, if any was loaded."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] not in PACKAGES:
            continue
        file = getattr(module, "__file__", None)
        if file is None and _holds_modules_only(module):
            continue
        wanted = HOUSE.joinpath(*name.split("."))
        if file is None or Path(file).resolve() not in (
            wanted.with_suffix(".py"),
            wanted / "__init__.py",
        ):
            return str(file or name)
    return None


def _holds_modules_only(module: ModuleType) -> bool:
    """Return whether a module is a mere name for what lies below it."""
    held = [value for name, value in vars(module).items() if not name.startswith("__")]
    return all(isinstance(value, ModuleType) for value in held)
