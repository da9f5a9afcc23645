"""The Python that a candidate is given: ours, with its own tree in the place of our packages.

A folder of the form of a virtual environment, whose one path file names the tree first and then the
folders that our own third-party packages lie in. What is installed there under a name that the tree
has, or that is ours, cannot be read: a candidate finds itself under its own name, and nobody else.

Source: the `site` and `venv` modules' documentation, "pyvenv.cfg".
I/O: writes one folder; lists the folders of installed packages.
"""

import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from judge.confinement.landlock import package_folders, program_places, readable_places
from judge.confinement.namespaces import SHORT
from judge.errors import ConfinementError

PYTHON = "{python}"  # in a command: this interpreter
_OURS = frozenset(
    ("aggregates", "judge", "ledger", "monitor", "policies", "proctor", "projections")
)
_THREADS = ("MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """Where it is, and what has to be readable for it to work."""

    executable: Path
    places: tuple[Path, ...]
    listed: tuple[Path, ...]  # folders of which only some parts are among the places

    @classmethod
    def make(cls, folder: Path, *, tree: Path) -> Self:
        """Write the interpreter into a folder that does not exist yet."""
        base = Path(sys.executable).resolve()
        packages = folder / f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
        packages.mkdir(parents=True)
        (folder / "bin").mkdir()
        executable = folder / "bin" / "python"
        executable.symlink_to(base)
        (folder / "bin" / "python3").symlink_to(base)
        (folder / "pyvenv.cfg").write_text(
            f"home = {base.parent}\ninclude-system-site-packages = false\n", encoding="utf-8"
        )
        installed = package_folders()
        (packages / "candidate.pth").write_text(
            "".join(f"{path}\n" for path in (tree, *installed)), encoding="utf-8"
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
        hidden = {path / name for path in installed for name in _hidden(path, tree)}
        places: list[Path] = [folder]
        listed: list[Path] = []
        for place in (*readable_places(ours=False), *program_places(), base):
            _open(place, hidden, places, listed)
        return cls(executable=executable, places=tuple(places), listed=tuple(listed))

    def environment(self, *, tree: Path, scratch: Path) -> dict[str, str]:
        """Return the variables that a candidate starts with: these and no others."""
        return {
            "CUDA_VISIBLE_DEVICES": "",
            "HOME": str(scratch),
            "LANG": "C.UTF-8",
            "PATH": f"{self.executable.parent}:/usr/bin:/bin",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": str(tree),
            "TMPDIR": str(SHORT),
            **dict.fromkeys(_THREADS, "1"),
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


def _hidden(installed: Path, tree: Path) -> Iterator[str]:
    """Yield the names in a folder of packages that a candidate must not find there."""
    names = _OURS | {path.stem for path in tree.iterdir()}
    yield from (path.name for path in installed.iterdir() if path.stem in names)


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
