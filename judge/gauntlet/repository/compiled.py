"""Compiles the modules of a candidate's files once, which each of its processes would do otherwise.

A candidate cannot write beside its files, so that an interpreter would compile what it imports
whenever it starts. What is compiled is kept by its source, and shared by all trees that hold it.

Source: the `compileall` module's documentation; PEP 552 for files that are not held against a date.
Trust: the sources are hostile. They are compiled in confinement, by an interpreter that finds no
module but its own and runs none of theirs; what cannot be compiled is left as it is.
I/O: processes; writes to the tree, and to a folder of our own.  Units: seconds, bytes.
"""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from shutil import copyfile

from judge.confinement.messages import ResourceLimits
from judge.confinement.supervised import discarded, run

_COMMAND = (
    *("{python}", "-I", "-S", "-X", "pycache_prefix={prefix}", "-m", "compileall", "-q"),
    *("--invalidation-mode", "unchecked-hash", "-i", "-"),
)
_LIMITS = ResourceLimits(seconds=300.0, memory_bytes=2 * 2**30, output_bytes=2**20)


def compile_modules(
    tree: Path,
    *,
    kept: Path,
    scratch: Path,
    environment: Path | None = None,
    leave: Callable[[str], bool] = lambda _: False,
) -> None:
    """Put compiled modules beside a tree's sources, but for paths to `leave`.

    `kept` is a folder of compiled modules of this environment, which is added to.
    """
    kept.mkdir(exist_ok=True)
    known = {each.name.partition(".")[0]: each for each in kept.iterdir()}
    own_ones = set(tree.rglob("__pycache__"))  # are left as the repository has them
    missing: dict[Path, str] = {}
    for source in tree.rglob("*.py"):
        path = str(source.relative_to(tree))
        beside = source.parent / "__pycache__"
        if leave(path) or not path.isprintable() or source.is_symlink() or beside in own_ones:
            continue
        name = sha256(source.read_bytes()).hexdigest()
        if name in known:
            _put(known[name], source)
        else:
            missing[source] = name
    if not missing:
        return
    with discarded(scratch) as folder:
        own = folder / "scratch"
        own.mkdir()
        run(
            [part.replace("{prefix}", str(own)) for part in _COMMAND],
            tree=tree,
            scratch=own,
            limits=_LIMITS,
            stdin="".join(f"{source}\n" for source in missing).encode(),
            environment=environment,
        )
        for source, name in missing.items():
            made = _made(own / str(source.parent.resolve())[1:], source.stem)
            if made is not None:
                place = kept / f"{name}{made.name.removeprefix(source.stem)}"
                copyfile(made, place)
                _put(place, source)


def _made(folder: Path, stem: str) -> Path | None:
    """Return what was made of a source: its name has the kind of interpreter in it."""
    if not folder.is_dir():
        return None
    dots = stem.count(".") + 2
    found = (each for each in folder.iterdir() if each.name.startswith(f"{stem}."))
    return next((each for each in found if each.name.count(".") == dots), None)


def _put(compiled: Path, source: Path) -> None:
    folder = source.parent / "__pycache__"
    folder.mkdir(exist_ok=True)
    copyfile(compiled, folder / f"{source.stem}.{compiled.name.partition('.')[2]}")
