"""The Python that a candidate is given: ours, with its own tree in the place of our packages.

A folder of the form of a virtual environment, whose one path file names the tree first and then the
folders that our own third-party packages lie in, or those of another virtual environment. What is
installed there under the name of a package or module of the tree, or of ours, cannot be read: a
candidate finds itself under its own name, and nobody else.

Source: the `site` and `venv` modules' documentation, "pyvenv.cfg".
I/O: writes one folder; lists the folders of installed packages.
"""

import os
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from judge.confinement.landlock import (
    PROGRAM_PLACES,
    SYSTEM_PLACES,
    package_folders,
    readable_places,
)
from judge.confinement.namespaces import SHORT
from judge.errors import ConfinementError

PYTHON = "{python}"  # in a command: this interpreter
_OURS = frozenset(
    ("aggregates", "judge", "ledger", "monitor", "policies", "proctor", "projections")
)
_INHERITED = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")  # how threads wait, see proctor/cli/start.py
_THREADS = ("MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """Where it is, and what has to be readable for it to work."""

    executable: Path
    places: tuple[Path, ...]
    listed: tuple[Path, ...]  # folders of which only some parts are among the places

    @classmethod
    def make(cls, folder: Path, *, tree: Path, environment: Path | None = None) -> Self:
        """Write the interpreter into a folder that does not exist yet.

        It is that of a virtual environment where one is given, and ours elsewhere. Raises
        ConfinementError where the environment is none.
        """
        found = _own() if environment is None else _environment(environment)
        base, version, installed, needed = found
        packages = folder / f"lib/{version}/site-packages"
        packages.mkdir(parents=True)
        (folder / "bin").mkdir()
        executable = folder / "bin" / "python"
        executable.symlink_to(base)
        (folder / "bin" / "python3").symlink_to(base)
        (folder / "pyvenv.cfg").write_text(
            f"home = {base.parent}\ninclude-system-site-packages = false\n", encoding="utf-8"
        )
        (packages / "candidate.pth").write_text(
            "".join(f"{path}\n" for path in (*_roots(tree), *installed)), encoding="utf-8"
        )
        for name, target in _scripts(tree):
            module, _, function = target.partition(":")
            script = folder / "bin" / name
            script.write_text(
                f"#!{executable}\nimport sys\nfrom {module} import {function}\n"
                f"sys.exit({function}())\n",
                encoding="utf-8",
            )
            script.chmod(0o755)
        names = _importable(tree) | (_OURS if environment is None else set())
        # What a candidate must not find there.
        hidden = {
            path
            for place in installed
            for path in place.iterdir()
            if path.name.partition(".")[0] in names
        }
        places: list[Path] = [folder]
        listed: list[Path] = []
        for place in (*needed, *PROGRAM_PLACES, base):
            _open(place, hidden, places, listed)
        return cls(executable=executable, places=tuple(places), listed=tuple(listed))

    def environment(self, *, tree: Path, scratch: Path) -> dict[str, str]:
        """Return the variables that a candidate starts with: these and no others."""
        return {
            **variables(scratch),
            "PATH": f"{self.executable.parent}:/usr/bin:/bin",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": ":".join(map(str, _roots(tree))),
            "TMPDIR": str(SHORT),
        }


def variables(own: Path, *, threads: int = 1) -> dict[str, str]:
    """Return the variables of any confined process; `own` is the folder that it may write to."""
    return {
        "CUDA_VISIBLE_DEVICES": "",
        "HOME": str(own),
        "LANG": "C.UTF-8",
        "TMPDIR": str(own),
        **{name: os.environ[name] for name in _INHERITED if name in os.environ},
        **dict.fromkeys(_THREADS, str(threads)),
    }


def _scripts(tree: Path) -> list[tuple[str, str]]:
    """Return the commands that the tree's project declares, with their functions."""
    try:
        project = tomllib.loads((tree / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
        found = [(name, target) for name, target in project.items() if "/" not in name]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []  # none, or none that an installer could make sense of
    for name, target in found:
        module, _, function = str(target).partition(":")
        if not all(part.isidentifier() for part in (*module.split("."), function)):
            raise ConfinementError(f"pyproject.toml: the script {name!r} names no function")
    return found


# An interpreter, its folder's name in lib (python3.11), the folders of its packages, and what has
# to be readable.
_Source = tuple[Path, str, Sequence[Path], Sequence[Path]]


def _own() -> _Source:
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    places = readable_places(ours=False)
    return Path(sys.executable).resolve(), version, package_folders(), places


def _environment(folder: Path) -> _Source:
    """Return what a virtual environment is made of."""
    packages = sorted(folder.glob("lib*/python3*/site-packages"))
    if not (folder / "pyvenv.cfg").is_file() or not packages:
        raise ConfinementError(
            f"{folder} is not a virtual environment: make it with `python -m venv {folder}`, and "
            "install the repository's dependencies in it"
        )
    try:
        executable = (folder / "bin" / "python").resolve(strict=True)
    except OSError as error:
        raise ConfinementError(f"{folder}: its bin/python is missing; make it again") from error
    places = (*SYSTEM_PLACES, executable.parent.parent / "lib", *packages)
    return executable, packages[0].parent.name, packages, places


def _roots(tree: Path) -> tuple[Path, ...]:
    """Return the folders of a tree that modules are imported from."""
    source = tree / "src"
    return (source, tree) if source.is_dir() and not (source / "__init__.py").exists() else (tree,)


def _importable(tree: Path) -> set[str]:
    """Return the names of the packages and modules of a tree: of its Python, and of nothing else.

    A file of settings has the name of the program that reads it, which is a package elsewhere.
    """
    return {
        path.name.partition(".")[0]
        for root in _roots(tree)
        for path in root.iterdir()
        if (any(path.glob("*.py")) if path.is_dir() else path.suffix in (".py", ".pyc", ".so"))
    }


def _open(place: Path, hidden: set[Path], places: list[Path], listed: list[Path]) -> None:
    """Add a place to the places; of one that holds something hidden, its parts without that."""
    if place in hidden:
        return
    if not any(path.is_relative_to(place) for path in hidden):
        places.append(place)
    elif place.is_dir():
        listed.append(place)
        for part in place.iterdir():
            _open(part, hidden, places, listed)
