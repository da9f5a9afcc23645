"""Rolls back a version of the installed code, which is a checkpoint without a repository.

I/O: the log.
"""

from aggregates.improvement.line import INSTALLED
from judge.gauntlet.hygiene import Rollback
from ledger.application import LedgerApplication
from ledger.entries import AuthorKey
from monitor.code import code_sha256
from proctor.errors import ProctorError
from proctor.runs.labels import lines

__all__ = ["roll_back_installed"]


def roll_back_installed(
    log: LedgerApplication, checkpoint: str, reason: str, *, author: AuthorKey | None
) -> Rollback | None:
    """Roll back a version of the installed code, by its id or hash or the beginning of either.

    None where that is no such checkpoint, or may be another line's as well. Raises ProctorError
    for the first version: there is none before it.
    """
    sought = checkpoint.lower()
    found = [
        (line, each)
        for line in lines(log)
        for each in line.checkpoints.values()
        if sought and (each.id.startswith(sought) or each.commit.startswith(sought))
    ]
    if len(found) != 1 or found[0][0].branch != INSTALLED:
        return None
    line, chosen = found[0]
    if chosen.parent is None:
        raise ProctorError(
            f"checkpoint {chosen.id} is the first version of the installed code in this home, so "
            "there is none to return to; install another version, or begin a new home"
        )
    if chosen.id not in line.rollbacks:
        line.roll_back(chosen.id, reason)
        log.save(line, author=author)
    reached = tuple(line.descendants(chosen.id))
    runs_here = code_sha256() in {line.checkpoints[each].code for each in reached}
    return Rollback(
        checkpoint=chosen.id,
        reached=reached,
        to=line.active,
        commit=line.head.commit,
        branch_at=line.head.commit,
        advice="this version is still installed: install another one" if runs_here else None,
    )
