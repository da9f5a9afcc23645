"""What of this repository decides a run: which files, and one hash over them.

The same files have the same hash in a folder and in a commit of the repository.

Not covered: the harness of a command, the ledger, Python and its libraries.
I/O: code_sha256() reads the source files.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

HOUSE = Path(__file__).resolve().parent.parent  # the folder of all packages
PACKAGES = ("aggregates", "monitor", "policies")
_SUFFIXES = (".md", ".py", ".safetensors", ".toml")  # code, prompts, numbers and weights
_HARNESS = (  # what an attempt is told, who is asked, and in which order attempts follow each other
    "proctor/runs/campaign_feedback.py",
    "proctor/runs/campaign_run.py",
    "proctor/runs/policies.py",
    "proctor/runs/training.py",
)


def decides_a_run(path: str) -> bool:
    """Tell whether a file of this repository decides what happens in a run, by its path."""
    package = PurePosixPath(path).parts[0]
    return path in _HARNESS or (package in PACKAGES and path.endswith(_SUFFIXES))


def hash_files(files: Iterable[tuple[str, bytes]]) -> str:
    """Return the SHA-256 over paths and contents, each with its length, in the order of paths."""
    sha = hashlib.sha256()
    for path, content in sorted(files):
        for part in (path.encode(errors="surrogateescape"), content):
            sha.update(len(part).to_bytes(8, "big"))
            sha.update(part)
    return sha.hexdigest()


def deciding_files() -> dict[str, Path]:
    """Return the files that decide a run, by their paths from the folder of all packages."""
    tops = {*PACKAGES, *(PurePosixPath(path).parts[0] for path in _HARNESS)}
    files = [path for top in sorted(tops) for path in (HOUSE / top).rglob("*") if path.is_file()]
    named = {path.relative_to(HOUSE).as_posix(): path for path in files}
    return {name: path for name, path in named.items() if decides_a_run(name)}


def code_sha256() -> str:
    """Return the hash over all files that decide a run."""
    return hash_files((name, path.read_bytes()) for name, path in deciding_files().items())
