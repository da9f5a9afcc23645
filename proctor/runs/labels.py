"""The label of a run: the checkpoint whose code, prompts and numbers are exactly those that run.

Every checkpoint records one hash over what in it decides a run, and so does every run. A label is
looked for, never asked for: whoever runs cannot choose it. Where none fits there is none, and the
run is in no training data. A home that has neither a run nor a line begins with the code that is
installed then, as the genesis checkpoint. In such a home each version that is installed later
becomes a checkpoint after it, if its files are those of the package: edited code has no label.

Trust: this process describes itself; the judge, and whoever has the repository, can check it.
Not covered: code that was changed on disk after it had been loaded.
I/O: reads the log, and the source files.
"""

import sys
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import ModuleType
from uuid import UUID

from aggregates.canonical import digest
from aggregates.improvement.line import INSTALLED, Checkpoint, Line
from ledger.application import LedgerApplication
from ledger.errors import ConflictError
from monitor.code import HOUSE, PACKAGES, code_sha256, deciding_files


@dataclass(frozen=True)
class Label:
    """What a run may call itself, and what is to be said about it."""

    checkpoint: str | None
    remark: str | None = None  # one line, if there is anything to say


def record_installed(
    log: LedgerApplication, *, may: Callable[[str], bool] = lambda _event: True
) -> None:
    """Record the installed code as a checkpoint, once, in a home that began with such a one.

    There is no commit; the hash of the code stands for it and for its tree. Nor is there an
    envelope: nobody approves what is installed. `may` tells of which events this user can append.
    """
    line = log.readable(Line.id_of(INSTALLED, INSTALLED), Line)
    if not may("line.opened" if line is None else "checkpoint.adopted"):
        return
    if line is None and next(log.notifications("line.opened", "run.started"), None) is not None:
        return
    if _loaded_from_elsewhere() is not None:
        return
    code = code_sha256()
    if line is not None:
        known = {each.code for other in lines(log) for each in other.checkpoints.values()}
        if code in known or not _is_as_packaged():
            return
    told = {
        "commit": code,
        "tree": code,
        "manifest": sha256((HOUSE / "judge/tiers.toml").read_bytes()).hexdigest(),
        "reference_set": digest({"tasks": []}),  # no task measures it
        "code": code,
    }
    if line is None:
        line = Line.open(root=INSTALLED, branch=INSTALLED, **told)
    else:
        line.adopt(envelope="", **told)
    with suppress(ConflictError):  # another run was quicker
        log.save(line)


def find_label(log: LedgerApplication) -> Label:
    """Return the label of what runs here, by what this ledger knows of checkpoints."""
    known = list(lines(log))
    if not known:
        return _none(
            "this ledger has no registered code version; a new home registers the installed one, "
            "and `proctor line show --repo .` in the repository of this code registers it here, "
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
            line.branch,
            each,
        )
        for line in known
        for place, each in enumerate(line.checkpoints.values())
        if each.code == code
    ]
    if not fitting:
        return _none(
            "this code is not a checkpoint of this ledger; check out a checkpoint, or commit the "
            "code to the line and run `proctor line sign adopt --key KEY`"
        )
    chosen: Checkpoint
    *_, branch, chosen = max(fitting, key=lambda found: found[:4])
    if chosen.rolled_back is not None:
        do = "install another version" if branch == INSTALLED else "check out one"
        return Label(
            chosen.id,
            f"this code is checkpoint {chosen.id}, which was rolled back: this run is tainted from "
            f"its start ({chosen.rolled_back}); {do} that was not rolled back: "
            "`proctor line show --list checkpoints`",
        )
    return Label(chosen.id)


def _none(why: str) -> Label:
    return Label(None, f"not exportable as training data: {why}")


def lines(log: LedgerApplication) -> Iterator[Line]:
    """Give the lines that this ledger has opened and that can be read."""
    for each in log.notifications("line.opened"):
        line = log.readable(UUID(str(each.originator_id)), Line)
        if line is not None:
            yield line


def _is_as_packaged() -> bool:
    """Return whether what decides a run is what an installed package brought, unchanged."""
    try:
        package = distribution("proctor")
    except PackageNotFoundError:
        return False
    brought = {
        Path(str(file.locate())).resolve(): file.hash.value
        for file in package.files or ()
        if file.hash is not None and file.hash.mode == "sha256"
    }
    return all(
        brought.get(path)
        == urlsafe_b64encode(sha256(path.read_bytes()).digest()).decode().rstrip("=")
        for path in deciding_files().values()
    )


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
