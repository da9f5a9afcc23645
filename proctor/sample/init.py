"""Makes the sample repository, with its reference tasks, and their hidden siblings in the home.

I/O: writes a new folder; runs git there, with none of the user's settings.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import UUID, uuid4

from aggregates.improvement.line import Line
from judge.gauntlet.repository.git import Repository
from judge.gauntlet.tasks.reference_set import write_tasks
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.improvement.home import BRANCH, hidden_folder
from proctor.sample.repository import FILES
from proctor.sample.tasks import SET, SHAPES, Shape, make_tasks

WORK = "work"  # the branch that people are on: a line is never checked out
SEED, HIDDEN_SEED = 1, 1_000_001
_SECONDS = 60


def make_sample(
    home: Home,
    folder: Path,
    *,
    files: Mapping[str, str | bytes] = FILES,
    shapes: Sequence[Shape] = SHAPES,
) -> UUID:
    """Write the sample, or another of its kind, into a new folder; return its line's id."""
    if folder.exists() and any(folder.iterdir()):
        advice = "; to put your own repository under the gauntlet, add --function MODULE:NAME"
        raise ProctorError(
            f"{folder} already exists and is not empty; choose another folder"
            + (advice if (folder / ".git").exists() else "")
        )
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    write_tasks(folder / SET, make_tasks(seed=SEED, shapes=shapes))
    git(folder, "init", "--quiet", f"--initial-branch={BRANCH}")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", f"A sample to improve\n\nSample: {uuid4()}\n")
    git(folder, "switch", "--quiet", "--create", WORK)
    line = Line.id_of(Repository(folder).root(BRANCH), BRANCH)
    hidden = make_tasks(
        seed=HIDDEN_SEED, shapes=shapes, suffix="-hidden", source="generated, hidden"
    )
    write_tasks(hidden_folder(home, line), hidden)
    return line


def git(folder: Path, *arguments: str) -> str:
    """Run git as somebody would who has no settings; raise ProctorError with what it says."""
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.devnull,
        "LC_ALL": "C",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_NAME": "Somebody" for who in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{who}_EMAIL": "somebody@localhost" for who in ("AUTHOR", "COMMITTER")},
    }
    try:
        done = subprocess.run(  # noqa: S603 - arguments are our own
            ["git", *arguments],  # noqa: S607 - git is wherever it is
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=True,
        )
    except FileNotFoundError as error:
        raise ProctorError("git is not installed, and the gauntlet needs it") from error
    except subprocess.SubprocessError as error:
        told = getattr(error, "stderr", "") or str(error)
        raise ProctorError(f"git {arguments[0]} in {folder} failed: {told.strip()}") from error
    return done.stdout
