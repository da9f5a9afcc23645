"""The home folder: one ledger, and the submissions of its runs.

    ledger/               the signed ledger, its keys and its blobs
    runs/RUN/submission/  what a run hands in
    runs/RUN/running.lock held by the process that trains
    tuning/*.lock         held by the process that tunes a model's advice
    comparing/*.lock      held by the process that carries out a comparison

With PERSISTENCE_MODULE=ledger.postgres a new ledger is begun on the server that POSTGRES_DBNAME and
its like name; ledger/ledger.postgres remembers it.

With PROCTOR_NOTARY a notary keeps ledger and blobs, and ledger/ is a copy of its ledger, brought up
to date whenever it is looked at.

A run whose process was killed still stands open in the ledger; the next command that appends
closes it as crashed. Whether its process is gone is asked of the operating system, by the run's
lock, and only the locks are looked through. A command that only reads appends nothing.
"""

import fcntl
import hashlib
import os
import stat
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from ledger.blobs import BlobStore
from ledger.errors import ConflictError, MemoryFileError, SignatureError, StorageError
from ledger.files import locked, open_regular
from ledger.paths import SERVERS, LedgerPaths
from ledger.recording.opening import has_key
from ledger.recording.recorders import EntryRecorder
from ledger.verification.reader import read_vkey
from proctor.errors import ProctorError
from proctor.state import memory, tell_once

if TYPE_CHECKING:
    from ledger.application import LedgerApplication
    from ledger.notary.remote import RemoteRecorder
    from ledger.notary.remote_blobs import RemoteBlobs

_LOOK = 1.0  # s that another command may look at a lock, at most
NOTARY = "PROCTOR_NOTARY"
Id = TypeVar("Id", str, UUID)
PASSPHRASE = "PROCTOR_KEY_PASSPHRASE"  # noqa: S105 - the variable's name, not its value


def passphrase() -> bytes | None:
    """Return the passphrase of private keys, None if there is none."""
    text = os.environ.get(PASSPHRASE)
    return text.encode(errors="surrogateescape") if text else None


class Home:
    """Where everything lies; nothing is created before it is needed."""

    def __init__(self, path: Path, *, vkey: str | None = None) -> None:
        """Name a home; with a `vkey`, no other ledger than this one is read or written."""
        if path.exists() and not path.is_dir():
            raise ProctorError(f"{path} is a file; --home takes a folder, existing or new")
        self.path = path
        self.vkey = vkey
        socket = os.environ.get(NOTARY)
        self._notary = Path(socket) if socket else None

    @property
    def ledger(self) -> Path:
        """The ledger's folder; what a notary keeps is copied into it first."""
        path = self.path / "ledger"
        if self._notary is not None:
            from ledger.notary.mirror import refresh_mirror  # noqa: PLC0415 - only with a notary

            refresh_mirror(self._recorder, path)
        return path

    @property
    def writable(self) -> bool:
        """Whether this user can append to the ledger."""
        if self._notary is not None:
            return bool(self._recorder.client.greeting.append)
        return has_key(LedgerPaths(self.path / "ledger"))

    def may_append(self, name: str) -> bool:
        """Tell whether a notary takes events of this name from this user; true without one."""
        if self._notary is None:
            return True
        from ledger.notary.rules import User  # noqa: PLC0415 - only with a notary

        return User(uid=os.getuid(), append=self._recorder.client.greeting.append).may_append(name)

    @cached_property
    def _recorder(self) -> "RemoteRecorder":
        from ledger.notary.client import NotaryClient  # noqa: PLC0415 - only with a notary
        from ledger.notary.remote import RemoteRecorder  # noqa: PLC0415 - likewise

        assert self._notary is not None
        return RemoteRecorder(NotaryClient(self._notary))

    @property
    def blobs(self) -> "BlobStore | RemoteBlobs":
        """What events name by hash."""
        if self._notary is not None:
            from ledger.notary.remote_blobs import RemoteBlobs  # noqa: PLC0415 - with a notary

            return RemoteBlobs(self._recorder.client)
        return BlobStore(LedgerPaths(self.path / "ledger").blobs)

    def submission(self, run_id: UUID | str) -> Path:
        """What a run hands in."""
        return self.path / "runs" / str(run_id) / "submission"

    def require_ledger(self) -> None:
        """Raise ProctorError if there is no ledger to read."""
        if not LedgerPaths(self.ledger).exist:
            raise ProctorError(
                f"there is no ledger in {self.path}; `proctor run` or `proctor demo` makes one, "
                "--home names another place"
            )

    def verify_key(self) -> None:
        """Raise VerificationError if the key beside the ledger is not the one known or given.

        Where none lies there, nothing is said: whoever opens the ledger looks for it.
        """
        path = LedgerPaths(self.path / "ledger").vkey
        if path.exists():
            self._verify_key(read_vkey(path))

    def _verify_key(self, vkey: str) -> None:
        if self.vkey not in (None, vkey):
            raise SignatureError(f"{self.path}: the ledger's public key is not the one given")
        known = memory()
        if known is not None:
            known.places.verify(self.path / "ledger", vkey)

    def _verify_no_key(self) -> None:
        """Raise if a private key lies where a ledger that this user knew is gone.

        A new ledger would have that key, and whoever put it there could sign for it.
        """
        paths, known = LedgerPaths(self.path / "ledger"), memory()
        for path in (paths.key, paths.next_key):
            if known is not None and path.exists() and known.places.others(paths.directory, ""):
                raise ProctorError(
                    f"{path}: a private key is here, but the ledger that you knew in this place is "
                    "gone. A new ledger would have this key, and somebody else may have a copy. "
                    "Restore the ledger; or, to begin a new one, move the key away"
                )

    def settle(self) -> None:
        """Remember a ledger that this user has just begun here; say so if another was here."""
        directory, known = self.path / "ledger", memory()
        if known is None:
            return
        vkey = read_vkey(LedgerPaths(directory).vkey)
        with suppress(MemoryFileError, StorageError):
            for other in known.places.others(directory, vkey):
                tell_once(f"{directory}: a new ledger, where you knew one with the key {other}")
            known.places.keep(directory, vkey)

    @contextmanager
    def open_log(self) -> Iterator["LedgerApplication"]:
        """Open the ledger for writing; close what a killed process left open."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ProctorError(f"{self.path} cannot be made: {error.strerror}") from error
        begins = self._notary is None and not LedgerPaths(self.ledger).exist
        if begins and self.vkey is not None:
            raise ProctorError(f"there is no ledger in {self.path}; leave out --vkey to begin one")
        if begins:
            self._verify_no_key()
        log = self._open_log()
        try:
            if begins:
                self.settle()
            else:
                assert isinstance(log.recorder, EntryRecorder), "a ledger's"
                self._verify_key(log.recorder.vkey)
            self._close_crashed(log)
            yield log
        finally:
            log.close()

    def _open_log(self) -> "LedgerApplication":
        from aggregates.registry import REGISTRY  # noqa: PLC0415 - takes long, and only writers
        from ledger.application import LedgerApplication  # noqa: PLC0415 - need these

        if self._notary is not None:
            return LedgerApplication.connect(self._notary, REGISTRY)
        served = os.environ.get("PERSISTENCE_MODULE") in SERVERS
        server = os.environ if served else None
        return LedgerApplication.open(self.ledger, REGISTRY, passphrase=passphrase(), server=server)

    @contextmanager
    def running(self, run_id: UUID) -> Iterator[None]:
        """Hold the run's lock for as long as this process trains."""
        path = self._lock(run_id)
        with locked(path, patience=_LOOK):
            yield
            path.unlink(missing_ok=True)  # after an error it stays: the run's end may be missing

    @contextmanager
    def alone(self, subject: str, name: str, *, say: Callable[[str], None]) -> Iterator[None]:
        """Be the one process of this home with this subject and name; wait for another.

        The subject is "tuning" (of a model's advice) or "comparing" (with a comparison's id).
        """
        lock = hashlib.sha256(name.encode()).hexdigest()[:32]
        path = self.path / subject / f"{lock}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"waiting for another process that is {subject} {name} (it holds {path})")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _lock(self, run_id: UUID | str) -> Path:
        return self.path / "runs" / str(run_id) / "running.lock"

    def is_gone(self, run_id: UUID | str) -> bool:
        """Tell whether a process of this home trained the run and is gone.

        Its lock is there, and nobody holds it. A run without a lock was begun elsewhere, or by a
        program that takes none: whether that still runs is not known here.
        """
        lock = self._lock(run_id)
        return os.path.lexists(lock) and not _is_held(lock)

    def is_running(self, run_id: UUID | str) -> bool:
        """Tell whether a process of this home trains the run."""
        lock = self._lock(run_id)
        return os.path.lexists(lock) and _is_held(lock)

    def _close_crashed(self, log: "LedgerApplication") -> None:
        from aggregates.run import Run  # noqa: PLC0415 - as in _open_log()

        for lock in sorted(self.path.glob("runs/*/running.lock")):
            try:
                run_id = UUID(lock.parent.name)
            except ValueError:  # it is none of ours
                continue
            run = log.readable(run_id, Run) if self.is_gone(run_id) else None
            if run is None or not self.is_gone(run_id):  # it may just have begun when we looked
                continue
            if run.end_reason is None:  # it may have ended while we looked
                run.end("crashed", detail="its process was gone when the next command looked")
                with suppress(ConflictError):  # another command was quicker
                    log.save(run)
            self._lock(run_id).unlink(missing_ok=True)


def run_ids(log: "LedgerApplication") -> list[UUID]:
    """Return the runs of a ledger in the order in which they started."""
    return [UUID(str(each.originator_id)) for each in log.notifications("run.started")]


def runs_under(log: "LedgerApplication", checkpoints: Container[str]) -> list[UUID]:
    """Return the runs that name one of these checkpoints as their label."""
    starts = ((run, next(iter(log.events.get(run, lte=1)))) for run in run_ids(log))
    return [run for run, start in starts if getattr(start, "checkpoint", None) in checkpoints]


def find_run(ids: Sequence[UUID], name: str, called: Mapping[UUID, str] | None = None) -> UUID:
    """Return the run that `name` means: `latest`, an id, the beginning of one, or a run's name.

    Of several that are `called` so it is the newest, the last of `ids`. An id goes before a name.
    """
    if not ids:
        raise ProctorError("the ledger has no run yet; `proctor run` makes one")
    if name == "latest":
        return ids[-1]
    if not any(str(each).startswith(name.lower()) for each in ids):
        for each in reversed(ids):
            if called and called.get(each) == name:
                return each
    names = (called or {}).values()
    return find_named(ids, name, noun="run", see="`proctor runs` lists them", names=names)


def find_named(
    known: Iterable[Id], name: str, *, noun: str, see: str, names: Iterable[str] | None = None
) -> Id:
    """Return the one id of these that begins with a name; `see` says where people find them.

    Of the `names` that they have beside their ids, the error suggests the closest.
    """
    found = [each for each in known if name and str(each).startswith(name.lower())]
    if not found:
        if names is None:
            raise ProctorError(f"no {noun} begins with {name!r}; {see}")
        near = get_close_matches(name[:100], sorted(set(names)), n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise ProctorError(f"no {noun} has the id or name {name!r}; {meant}{see}")
    if len(found) > 1:
        raise ProctorError(f"{len(found)} {noun}s begin with {name!r}: give more of it; {see}")
    return found[0]


def _is_held(lock: Path) -> bool:
    """Tell whether a process holds the lock; what is no lock file tells nothing, and stays."""
    try:
        if not stat.S_ISREG(lock.lstat().st_mode):
            return True
        with open_regular(lock) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except (BlockingIOError, NotADirectoryError, PermissionError, StorageError):
        return True
    return False
