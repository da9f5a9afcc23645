"""What an audit reads from a ledger, in one verification, before torch is loaded.

I/O: reads the ledger and the judge's key.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from judge.auditing.record import RunRecord, record_of
from ledger.entries import AuthorKey
from ledger.notes import public_bytes
from ledger.verification.reader import VerificationReport, VerifiedLedger, check_ledger
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.inputs import read_private_key, read_text
from proctor.output.terminal import warn
from proctor.remembering import ask, open_remembered, tell_unread
from proctor.runs.replay import find_recorded, find_verified_run
from proctor.state import memory

_ALL = """
SELECT r.run_id, r.environment::VARCHAR AS environment, s.run_id IS NOT NULL AS judged,
    a.hard_fail, a.accuracy_score, a.process_score, a.process_axis_exercised
FROM run_starts AS r
JOIN run_ends AS e USING (run_id)
LEFT JOIN counting_audits AS k USING (run_id)
LEFT JOIN audit_strengths AS s
    ON s.audit_id = k.audit_id AND s.idx = k.idx AND NOT s.other_files
LEFT JOIN audit_scores AS a ON a.audit_id = s.audit_id AND a.idx = s.idx
WHERE e.reason IN ('completed', 'restart', 'stopped') AND ($1 = '' OR r.run_id IN (
    SELECT $1
    UNION SELECT run_id FROM run_starts WHERE campaign = $1
    UNION SELECT run_id FROM comparison_runs WHERE comparison_id = $1
    UNION SELECT run_id FROM credit_starts WHERE credit_id = $1
    UNION SELECT f.run_id FROM credit_forks AS f JOIN credit_starts AS s USING (credit_id)
        WHERE $1 IN (s.credit_id, s.run_id)))
ORDER BY r.idx
"""
_CREDITS = "SELECT credit_id FROM credit_starts WHERE STARTS_WITH(credit_id, LOWER(?))"
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


def find_subject(home: Home, name: str) -> str:
    """Return the id of the run, campaign, comparison or credit that is meant."""
    if len(found := ask(home, _CREDITS, name)) == 1:
        return str(found[0]["credit_id"])
    with open_remembered(home) as ledger:
        return str(find_recorded(ledger, name))


def read_verdicts(home: Home, subject: str) -> list[dict[str, Any]]:
    """Return the ended runs that a subject rests on ("": all), with the verdict that counts.

    An audit that was given other files than the run submitted is no verdict on it.
    """
    return ask(home, _ALL, subject)


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
