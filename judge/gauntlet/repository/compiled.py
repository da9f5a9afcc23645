"""Compiles the modules of a candidate's files once, which each of its processes would do otherwise.

A candidate cannot write beside its files, so that an interpreter would compile what it imports
whenever it starts. What is compiled is kept by its source, and shared by all trees that hold it.

Each import compares the compiled module with its source, since tests may change copies. A module
that gives a warning is left to each process, which may take warnings for errors.

Source: the `compileall` module's documentation; PEP 552 for files that are held against no date.
Trust: the sources are hostile. They are compiled in confinement, by an interpreter that finds no
module but its own and runs none of theirs, the small ones first; what cannot be compiled in time,
or becomes large, is left as it is.
I/O: processes; writes to the tree, and to a folder of our own.  Units: seconds, bytes.
"""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from shutil import copyfile

from judge.confinement.messages import ResourceLimits
from judge.confinement.supervised import discarded, run
from judge.gauntlet.repository.changes import MAX_PART

_COMMAND = (
    *("{python}", "-I", "-S", "-W", "error", "-X", "pycache_prefix={prefix}"),
    *("-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "-i", "-"),
)
_LIMITS = ResourceLimits(seconds=300.0, memory_bytes=2 * 2**30, output_bytes=2**20)
_PART = "part"
_GROWTH = 16  # times its source's size, that a module has at most; six are the most usual


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
    for source in sorted(tree.rglob("*.py"), key=lambda each: each.lstat().st_size):
        path = str(source.relative_to(tree))
        beside = source.parent / "__pycache__"
        if leave(path) or not path.isprintable() or source.is_symlink() or beside in own_ones:
            continue
        if not source.is_file() or len(source.name.encode()) > MAX_PART:
            continue
        name = sha256(source.read_bytes()).hexdigest()
        if name not in known:
            missing[source] = name
        elif known[name].suffix:
            _put(known[name], source)
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
            if made is None or made.stat().st_size > _GROWTH * source.stat().st_size + 2**12:
                (kept / name).touch()  # so that it is not tried again
            else:
                place = kept / f"{name}{made.name.removeprefix(source.stem)}"
                copyfile(made, kept / _PART)  # a full disk leaves no part of one under its name
                (kept / _PART).rename(place)
                _put(place, source)


def _made(folder: Path, stem: str) -> Path | None:
    """Return what was made of a source: its name has the kind of interpreter in it."""
    if not folder.is_dir():
        return None
    dots = stem.count(".") + 2
    found = (each for each in folder.iterdir() if each.name.startswith(f"{stem}."))
    whole = (each for each in found if each.suffix == ".pyc")  # who is ended may leave parts
    return next((each for each in whole if each.name.count(".") == dots), None)


def _put(compiled: Path, source: Path) -> None:
    folder = source.parent / "__pycache__"
    folder.mkdir(exist_ok=True)
    copyfile(compiled, folder / f"{source.stem}.{compiled.name.partition('.')[2]}")
