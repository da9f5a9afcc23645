"""Where the gauntlet's folders are in a home, and how its controller is opened.

infra/LINE/work/     the controller's lock and scratch folder
infra/LINE/hidden/   siblings of the reference tasks, which no proposal has seen
infra/LINE/candidates/   drafts of tasks, which only an operator lets into the reference set
infra/LINE/server.json   the language model that answers the tasks for one, if there is one
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from uuid import UUID

from aggregates.improvement.line import Checkpoint, Line
from judge.gauntlet.controller import Controller
from judge.gauntlet.repository.git import Repository
from judge.gauntlet.tasks.benchmark import Arms, Others, TaskResult, Turn
from judge.gauntlet.tasks.hidden_tests import BY_MODEL, ByTests
from judge.gauntlet.tasks.reference_set import Task
from judge.gauntlet.tasks.scoring import Scorer
from judge.gauntlet.workplace import Workplace
from ledger.application import LedgerApplication
from ledger.verification.authority import Authority
from proctor.cli.options import MOST, Argument, Takes
from proctor.errors import ProctorError
from proctor.home import Home, find_named
from proctor.improvement.clone import scorers
from proctor.output.terminal import on_one_line, warn
from proctor.remembering import open_remembered

BRANCH = "main"
SERVER = "server.json"
RepoOption = Annotated[Path, "Repository to manage."]
DrawSeedOption = Annotated[int, "With --challenge: seed of the draws.", Takes(least=0, most=MOST)]
AskersOption = Annotated[
    int,
    "Number of candidates that run at a time; each may use the memory that the manifest allows.",
    Takes(option="--workers", least=1, most=1_024),
]
BranchOption = Annotated[str, "Branch to manage.", Takes(option="--line")]
CheckpointArgument = Annotated[
    str, "An id or commit, the beginning of one, `active` or `latest`.", Argument("CHECKPOINT")
]
HERE = Path()


@dataclass(frozen=True, kw_only=True)
class LineOptions:
    """Which line a command works on, and over which ledger."""

    repo: RepoOption = HERE
    branch: BranchOption = BRANCH
    home: Home

    @contextmanager
    def open(self, *, workers: int = 1) -> Iterator[Controller]:
        """Give the controller of the line; `workers` processes ask candidates at a time."""
        home, repository = self.home, Repository(self.repo)
        line = Line.id_of(repository.root(self.branch), self.branch)
        folder = line_folder(home, line)
        with home.open_log() as log, _others(workers) as others:
            place = Workplace(
                log=log,
                repository=repository,
                branch=self.branch,
                blobs=home.blobs,
                folder=(folder / "work").resolve(),
                clock=lambda: int(time.time()),
                authority=lambda: _authority(home),
                tell=lambda subject, what: warn(f"{subject[:8]} {on_one_line(what)}"),
                scorers=_scorers(folder, line, log, home),
                others=others,
            )
            yield Controller(place)


def line_folder(home: Home, line: UUID) -> Path:
    """Return what belongs to one line beside the ledger."""
    return home.path / "infra" / str(line)


def hidden_folder(home: Home, line: UUID) -> Path:
    """Return where the hidden siblings lie, once there are any."""
    return line_folder(home, line) / "hidden"


def hidden_tasks(home: Home, controller: Controller) -> tuple[Task, ...]:
    """Return the hidden siblings."""
    folder = hidden_folder(home, controller.place.line_id)
    return controller.place.set_in(folder).tasks if folder.is_dir() else ()


@contextmanager
def _others(workers: int) -> Iterator[Others | None]:
    """Give what has a process of a pool ask candidates; None for one worker, which is this one."""
    if workers == 1:
        yield None
        return
    from proctor.runs.pools import pool  # noqa: PLC0415 - other commands need none

    with pool(workers) as processes:
        yield lambda arms, turn: processes.submit(_answered, arms, turn)


def _answered(arms: Arms, turn: Turn) -> list[TaskResult]:
    return [*arms.answer(turn, scorers())]


def _scorers(folder: Path, line: UUID, log: LedgerApplication, home: Home) -> Mapping[str, Scorer]:
    """Return the scorers, those for a language model with the line's server."""
    from proctor.improvement.server import LineServer, read_server  # noqa: PLC0415 - slow to load

    settings = read_server(folder / SERVER)
    if settings is None:
        return scorers()
    server = LineServer(settings, line=line, log=log, blobs=home.blobs)
    return {**scorers(), BY_MODEL: ByTests(by_model=True, server=server)}


def find_proposal(controller: Controller, name: str) -> UUID:
    """Return the proposal that `name` means: `latest`, an id, or the beginning of one."""
    ids = controller.records.proposals()
    if not ids:
        raise ProctorError("there is no proposal on this line; `proctor line propose` makes one")
    if name == "latest":
        return ids[-1]
    return find_named(ids, name, noun="proposal", see="see `proctor line show`")


def checkpoint_of(line: Line, name: str) -> str:
    """Return the checkpoint of a line that `name` means.

    An id or a commit, or the beginning of one; `active` is the active one, `latest` the newest,
    which may have been rolled back.
    """
    if name in ("active", "latest"):
        return line.active if name == "active" else [*line.checkpoints][-1]
    found = checkpoints_like(line, name)
    if len(found) != 1:
        raise ProctorError(
            f"{len(found) or 'none'} of the line's checkpoints ({len(line.checkpoints)}) can be "
            f"meant by {name!r}; see `proctor line show --list checkpoints`"
        )
    return found[0].id


def checkpoints_like(line: Line, name: str) -> list[Checkpoint]:
    """Return the checkpoints of a line whose id or commit begins so."""
    sought = name.lower()
    return [
        each
        for each in line.checkpoints.values()
        if sought and (each.id.startswith(sought) or each.commit.startswith(sought))
    ]


def _authority(home: Home) -> Authority:
    with open_remembered(home) as ledger:
        return ledger.authority
