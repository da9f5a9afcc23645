"""Which runs stood open when a home's ledger was last looked through.

With this, a command reads the entries that came since, and not every run of the ledger. It decides
nothing about what a ledger says: without it, or where it does not fit, all entries are looked at.

Trust: the folder is this user's own.
I/O: one file for each home of more than a few entries.
"""

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from msgspec import MsgspecError, Struct, convert, json

from ledger.errors import LedgerError
from ledger.files import read_text, write_durably
from ledger.strict_json import read_json
from proctor.state import state_folder

if TYPE_CHECKING:
    from eventsourcing.persistence import ApplicationRecorder

_WORTH_NOTING = 1_000  # new entries; to look at as many takes less than to write a file
_MAX_FILE = 64 << 20  # bytes


class _File(Struct, kw_only=True, forbid_unknown_fields=True):
    last: int  # notification id
    sha256: str  # of that event
    runs: list[UUID]


class NotedRuns:
    """The file for one home."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def recall(self, recorder: "ApplicationRecorder") -> tuple[int, list[UUID]]:
        """Return the last event that was looked at and the runs that stood open; or 0 and none."""
        with suppress(LedgerError, MsgspecError, OSError, ValueError):
            file = convert(read_json(read_text(self._path, most=_MAX_FILE)), _File)
            if file.last > 0 and file.sha256 == _digest(recorder, file.last):
                return file.last, file.runs
        return 0, []

    def keep(
        self, recorder: "ApplicationRecorder", last: int, runs: list[UUID], *, after: int
    ) -> None:
        """Note which runs stand open after an event, if that saves anything."""
        if last - after < _WORTH_NOTING:
            return
        file = _File(last=last, sha256=_digest(recorder, last), runs=runs)
        with suppress(LedgerError, OSError):  # then all is looked at again next time
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_durably(self._path, json.encode(file))


def noted_runs(home: Path) -> NotedRuns | None:
    """Return the file for a home; None if nothing is remembered."""
    folder = state_folder()
    if folder is None:
        return None
    name = hashlib.sha256(str(home.resolve()).encode(errors="surrogateescape")).hexdigest()
    return NotedRuns(folder / f"{name[:32]}.open")


def _digest(recorder: "ApplicationRecorder", number: int) -> str:
    """Return what recognises an event: a ledger in its place would have another one here."""
    found = recorder.select_notifications(number, 1)
    parts = [
        (each.originator_id, each.originator_version, each.topic, each.state) for each in found
    ]
    return hashlib.sha256(repr(parts).encode()).hexdigest()
