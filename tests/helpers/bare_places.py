"""Workplaces whose log is in memory: what is read of a line's events needs no more."""

from pathlib import Path

from gauntlet_lines import Line

from aggregates.improvement.line import Line as Chain
from aggregates.registry import REGISTRY
from judge.gauntlet.workplace import Workplace
from ledger.application import LedgerApplication
from ledger.notes import vkey
from ledger.verification.authority import Authority

SUMS = {"manifest": "0" * 64, "reference_set": "0" * 64}


def bare_place(line: Line, folder: Path) -> Workplace:
    """Return a workplace on a line's repository, with a log of its own that nobody has a key to."""
    return Workplace(
        log=LedgerApplication.in_memory(REGISTRY),
        repository=line.repository,
        branch="main",
        blobs=line.home.blobs,
        folder=folder,
        clock=lambda: line.now,
        authority=lambda: Authority(vkey("nobody", bytes(32))),
        tell=lambda _proposal, _what: None,
    )


def promote(place: Workplace, number: int) -> str:
    """Put a checkpoint on record that no repository has; return its id."""
    chain = place.line()
    commits = {"commit": f"{number:040x}", "tree": f"{number:040x}"}
    checkpoint = chain.promote(proposals=["p"], **commits, **SUMS)
    place.log.save(chain)
    return checkpoint


def record(
    place: Workplace,
    *,
    right: int,
    purpose: str = "drift",
    tasks: int = 100,
    checkpoint: str | None = None,
) -> None:
    """Put an evaluation on record that nobody made, by default of the active checkpoint."""
    chain: Chain = place.line()
    chain.evaluate(
        checkpoint or chain.active,
        purpose=purpose,
        seed="00",
        sha256="0" * 64,
        tasks=tasks,
        wrong=["one"] * (tasks - right),
        valid=tasks,
        precision=None,
        code=None,
    )
    place.log.save(chain)
