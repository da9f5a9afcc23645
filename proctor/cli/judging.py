"""What an audit reads from a ledger, in one verification, before torch is loaded.

I/O: reads the ledger and the judge's key.
"""

from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from judge.auditing.record import RunRecord, record_of
from ledger.entries import AuthorKey
from ledger.notes import public_bytes
from ledger.verification.reader import VerificationReport, VerifiedLedger, check_ledger
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.inputs import read_private_key, read_text
from proctor.output.terminal import warn
from proctor.remembering import open_remembered, tell_unread
from proctor.runs.replay import find_verified_run
from proctor.state import memory

SUBMITTED = ("model.py", "run_config.json", "task.py", "weights.safetensors")  # of any run


@dataclass(frozen=True)
class Judged:
    """A run's verified record, and the judge's key if it is in force."""

    record: RunRecord
    author: AuthorKey | None


def look_up(
    home: Home, name: str, *, submission: Path | None, head: Path | None, whole: bool = False
) -> tuple[VerificationReport, Judged | None]:
    """Verify what is new in the ledger, or all of it, and find the run that `name` means.

    There is none if the ledger is not valid.

    With a kept `head`, and where nothing is remembered, all is verified.
    """
    home.require_ledger()
    if submission is not None:
        _verify_submission(submission)
    found: list[Judged] = []

    def read(ledger: VerifiedLedger) -> None:
        found.append(_judged(home, ledger, find_verified_run(ledger, name)))

    known = memory()
    new = known is not None and head is None and not whole
    checked = check_ledger(
        home.ledger,
        vkey=home.vkey,
        kept_head=None if head is None else read_text(head),
        signatures="newest" if new else "all",
        memory=known,
        new=new,
        read=read,
    )
    tell_unread(checked)
    return checked, found[-1] if checked.ok else None


def _verify_submission(folder: Path) -> None:
    """Raise ProctorError for a folder that is not there, or that holds no file of a submission.

    It was mistyped: an audit of nothing would be recorded as a hard fail.
    """
    if not folder.is_dir():
        raise ProctorError(f"{folder} is not a folder; give the folder of the submission")
    if not any((folder / name).exists() for name in SUBMITTED):
        raise ProctorError(
            f"{folder} holds no file of a submission: {', '.join(SUBMITTED)}. Give the folder of "
            "the submission, or leave out --submission to judge the run's own"
        )


def read_judged(home: Home, run: UUID) -> Judged:
    """Verify the ledger and read a run from it; raises VerificationError."""
    with open_remembered(home) as ledger:
        return _judged(home, ledger, run)


def judge_key(home: Home, ledger: VerifiedLedger) -> AuthorKey | None:
    """Return the judge's key, if it lies beside the ledger's and is in force."""
    path = home.path / "ledger" / "keys" / "judge.pem"
    if not path.exists() or not home.writable:
        return None
    author = AuthorKey("judge", read_private_key(path, role="judge"))
    if ledger.authority.in_force("judge", public_bytes(author.key)):
        return author
    warn(f"not signed: {path} is not in force as a judge's key")
    return None


def _judged(home: Home, ledger: VerifiedLedger, run: UUID) -> Judged:
    return Judged(record_of(ledger, run), judge_key(home, ledger))
