"""Opening a ledger: the first time its key, database and vkey are made, then they must match.

Source: docs/reference/ledger-format.md, "Files".
Trust: the private key decides who may append; a ledger that is not its own is refused.
I/O: everything in the ledger's directory but blobs.
"""

import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

from ledger.database import Database, create_database, explained
from ledger.entries import AuthorKey
from ledger.errors import KeyFileError, StorageError
from ledger.files import create_exclusively, read_text, replace_durably, sync_folder
from ledger.keys import load_key, load_or_create_key
from ledger.notes import NoteKey, public_bytes, vkey
from ledger.paths import MAX_VKEY, LedgerPaths, is_served, server_at
from ledger.recording.newest import read_authority
from ledger.schemes import PrivateKey
from ledger.store import Rows, Store
from ledger.verification.authority import Authority


class Signer:
    """Holds a ledger's private key, and takes up the next one when it is rotated.

    The two key files change hands under the database's write lock only: take_up() and
    rotation() are called inside of a transaction that writes.
    """

    def __init__(
        self, paths: LedgerPaths, *, origin: str, passphrase: bytes | None, ledger: str
    ) -> None:
        self.origin = origin
        self._ledger = ledger  # the name of its file
        self._paths = paths
        self._passphrase = passphrase
        self._keys: dict[str, tuple[PrivateKey, NoteKey]] = {}  # by vkey

    def author(self, vkey: str) -> AuthorKey:
        """Return the key with this vkey as an author; it is at hand."""
        return AuthorKey("ledger", self._keys[vkey][0])

    def tree_head(self, *, size: int, root: bytes, vkey: str) -> str:
        """Return the signed note, by the key with this vkey; it is at hand."""
        return self._keys[vkey][1].tree_head(size=size, root=root)

    def holds(self, vkey: str) -> bool:
        """Tell whether the key with this vkey is at hand, if need be from its file."""
        if vkey not in self._keys:
            self._load_current()
        return vkey in self._keys

    def take_up(self, vkey: str) -> None:
        """Have the key in force at hand; raise KeyFileError if it is in neither file."""
        if self.holds(vkey):
            return
        self.finish_rotation(vkey)
        if vkey not in self._keys:
            raise KeyFileError(
                f"{self._paths.key}: this key is not in force in {self._ledger}; "
                "put the right key there, or move this one away to open the ledger read-only"
            )

    def finish_rotation(self, vkey: str) -> None:
        """Give the key in force its name, if it still bears the next key's."""
        with explained(self._paths.next_key):
            waiting = self._paths.next_key.exists()
        if waiting and self._load_next() == vkey:
            with explained(self._paths.key):
                replace_durably(self._paths.next_key, self._paths.key)

    def rotation(self, old: str) -> tuple[str, str]:
        """Return a new key's vkey, and the note by which the key in force hands over to it.

        The new key is on disk by then. One that was left by a rotation that came to nothing
        was never in force, and is taken.
        """
        self.finish_rotation(old)
        new = self._load_next()
        return new, self._keys[old][1].rotation_to(self._keys[new][1])

    def _load_current(self) -> str:
        return self._remember(load_key(self._paths.key, passphrase=self._passphrase))

    def _load_next(self) -> str:
        return self._remember(load_or_create_key(self._paths.next_key, passphrase=self._passphrase))

    def _remember(self, key: PrivateKey) -> str:
        signing = NoteKey(self.origin, key)
        self._keys[signing.vkey] = (key, signing)
        return signing.vkey


def open_ledger(
    paths: LedgerPaths, *, passphrase: bytes | None, server: Mapping[str, str] | None = None
) -> tuple[Store, Signer | None]:
    """Open or begin the ledger in a directory; without its private key there is no signer.

    A `server`, by its settings, has its entries and tree heads, if this is said the first time.
    Raises StorageError or KeyFileError; then nothing is left open.
    """
    with explained(paths.directory):
        had_vkey = paths.vkey.exists()  # asked first: it comes into being last
        on_server = is_served(paths)
        if server is not None and paths.database.exists():
            raise StorageError(
                f"{paths.database}: this ledger is in a file; choose another folder for one on a "
                "server, or unset PERSISTENCE_MODULE"
            )
    make = _in_file if server is None and not on_server else _on_server
    store = make(paths, server, had_vkey, passphrase)
    try:
        return store, _signer(paths, store, passphrase=passphrase)
    except BaseException:
        store.close()
        raise


def _in_file(
    paths: LedgerPaths, _: Mapping[str, str] | None, had_vkey: bool, passphrase: bytes | None
) -> Store:
    with explained(paths.directory):
        begun = paths.database.exists()
    if not begun:
        _check_new(paths, paths.database, had_vkey=had_vkey)
        create_database(paths.database, meta=_begun(paths, passphrase=passphrase))
    return Database(paths.database)


def _on_server(
    paths: LedgerPaths,
    server: Mapping[str, str] | None,
    had_vkey: bool,
    passphrase: bytes | None,
) -> Store:
    file = paths.server
    if server is not None and not is_served(paths):
        file = paths.directory / server.get("PERSISTENCE_MODULE", file.name)
    kind = server_at(file)
    store: Any = kind.connect(file, given=None if server is None else kind.settings(server))
    try:
        if not store.begun():
            _check_new(paths, f"{file}: {store.settings}", had_vkey=had_vkey)
            store.create(meta=_begun(paths, passphrase=passphrase))
        with explained(paths.directory):
            paths.directory.mkdir(parents=True, exist_ok=True)
        store.settings.keep(file)
    except BaseException:
        store.close()
        raise
    return cast("Store", store)


def _check_new(paths: LedgerPaths, place: object, *, had_vkey: bool) -> None:
    if had_vkey:
        raise StorageError(
            f"{place}: ledger not found, although {paths.vkey.name} exists; restore "
            f"the ledger from a copy, or remove {paths.vkey.name} to start a new one"
        )


def has_key(paths: LedgerPaths) -> bool:
    """Tell whether the private key is here for this user, who may be kept out of its folder."""
    with explained(paths.key):
        try:
            return paths.key.exists()
        except PermissionError:
            return False


def _begun(paths: LedgerPaths, *, passphrase: bytes | None) -> dict[str, str]:
    """Make the folder and the key, and return the identity of a new ledger."""
    with explained(paths.directory):
        paths.directory.mkdir(parents=True, exist_ok=True)
        with suppress(PermissionError):  # who may not read a folder cannot sync it
            sync_folder(paths.directory.parent)
    key = load_or_create_key(paths.key, passphrase=passphrase)
    origin = f"proctor.local/{secrets.token_hex(16)}"
    return {"origin": origin, "vkey": vkey(origin, public_bytes(key))}


def _signer(paths: LedgerPaths, store: Store, *, passphrase: bytes | None) -> Signer | None:
    own_vkey = store.meta("vkey")
    stated = None
    with explained(paths.vkey), suppress(FileNotFoundError):
        stated = read_text(paths.vkey, most=MAX_VKEY)
    if stated is not None and stated.strip() != own_vkey:
        raise KeyFileError(
            f"{paths.vkey}: this is not the key of {store.path.name}; one of the two files "
            "was replaced, restore it from a copy"
        )
    if not has_key(paths):
        return None
    signer = Signer(
        paths, origin=store.meta("origin"), passphrase=passphrase, ledger=store.path.name
    )
    begun_with = Authority(own_vkey)

    def in_force(rows: Rows) -> str:
        return read_authority(rows, begun_with, after=-1, path=store.path)[0].vkey

    if not signer.holds(store.run(in_force, write=False)):  # a rotation is going on, or was cut off
        store.run(lambda rows: signer.take_up(in_force(rows)), write=True)
    if stated is None:
        with explained(paths.vkey):
            create_exclusively(paths.vkey, f"{own_vkey}\n".encode(), mode=0o644)
    return signer
