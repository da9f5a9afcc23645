"""A witness: cosigns a ledger's tree heads as long as each continues the one before.

Free of any network: a request's text in, an answer out. What it answers has been written down
before, so that it stays true after a crash. What to answer is decided in rules.py.

Source: C2SP tlog-witness; docs/explanation/trust.md.
Trust: requests are hostile, and from anybody; a ledger's first key is trusted.
I/O: the witness's folder.  Units: POSIX seconds; bytes.
Not covered: sign-subtree.
"""

import hashlib
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self

from ledger.database import explained
from ledger.errors import ConflictError, KeyFileError, MalformedError
from ledger.files import create_exclusively, read_text
from ledger.keys import load_key, load_or_create_key
from ledger.notes import public_bytes
from ledger.paths import MAX_VKEY
from ledger.schemes import PrivateKey
from ledger.verification.verified_notes import parse_vkey
from ledger.witnessing.cosignatures import cosignature_vkey, sign_cosignature
from ledger.witnessing.evidence import Contradiction, format_evidence
from ledger.witnessing.rules import (
    KnownLog,
    RefusalError,
    Request,
    Response,
    accepted_note,
    follow_rotations,
    parse_request,
    split_rotations,
)
from ledger.witnessing.store import WitnessStore, create_store, origin_hash

MAX_REQUEST = 131_072  # bytes; a note with 16 post-quantum signatures fits
_MAX_EVIDENCE = 100  # files for each ledger and kind: submitting again must not fill the disk
_KEY, _VKEY, _STORE = "witness.pem", "witness.vkey", "witness.sqlite"  # files in its folder
_ORIGIN_HASH = re.compile(r"[0-9a-f]{64}")


class Witness:
    """One witness: a key, a name, and what it remembers.

    Any number of threads and processes may have it open. `clock` gives POSIX seconds.
    """

    def __init__(
        self,
        folder: Path,
        *,
        name: str,
        key: PrivateKey,
        store: WitnessStore,
        clock: Callable[[], int] = lambda: int(time.time()),
    ) -> None:
        self.folder = folder
        self.name = name
        self.vkey = cosignature_vkey(name, public_bytes(key))
        self._key = key
        self._store = store
        self._clock = clock

    @classmethod
    def create(cls, folder: Path, *, name: str, passphrase: bytes | None) -> str:
        """Make a witness in a folder and return its vkey; made again, it stays as it is.

        The vkey's file comes last: without it the witness is not there yet.
        """
        with explained(folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (folder / _VKEY).exists():
            key = load_or_create_key(folder / _KEY, role="witness", passphrase=passphrase)
            vkey = cosignature_vkey(name, public_bytes(key))
            create_store(folder / _STORE)
            with explained(folder / _VKEY):
                create_exclusively(folder / _VKEY, f"{vkey}\n".encode(), mode=0o644)
        with cls.open(folder, passphrase=passphrase) as witness:
            if witness.name != name:
                raise KeyFileError(
                    f"{folder}: there is already a witness named {witness.name} here; choose "
                    "another folder"
                )
            return witness.vkey

    @classmethod
    @contextmanager
    def open(
        cls,
        folder: Path,
        *,
        passphrase: bytes | None,
        clock: Callable[[], int] = lambda: int(time.time()),
    ) -> Iterator[Self]:
        """Open the witness in a folder. Raises KeyFileError or StorageError."""
        path = folder / _VKEY
        if not path.exists():
            raise KeyFileError(f"{path}: witness not found; give --name to make one")
        with explained(path):
            vkey = read_text(path, most=MAX_VKEY).strip()
        name = parse_vkey(vkey, role="witness").name
        key = load_key(folder / _KEY, role="witness", passphrase=passphrase)
        if cosignature_vkey(name, public_bytes(key)) != vkey:
            raise KeyFileError(
                f"{folder / _KEY}: this is not the key of {path.name}; one of the two files "
                "was replaced, restore it from a copy"
            )
        with closing(WitnessStore(folder / _STORE)) as store:
            yield cls(folder, name=name, key=key, store=store, clock=clock)

    def trust(self, vkey: str) -> str:
        """Register a ledger by the key that it was begun with; return its origin.

        Raises ConflictError if its name is registered with another key.
        """
        wanted = vkey.strip()
        origin = parse_vkey(wanted).name

        def register(known: KnownLog | None) -> tuple[KnownLog, None]:
            if known is not None and known.vkey != wanted:
                raise ConflictError(
                    f"{origin} is already registered with a different key; a ledger's key changes "
                    "only by a rotation"
                )
            return known or KnownLog(vkey=wanted), None

        self._store.update(origin_hash(origin), register)
        return origin

    def add_rotations(self, request: bytes) -> Response:
        """Follow a ledger's rotations, given oldest first; those known already change nothing."""
        try:
            notes = split_rotations(_text(request))
            origin = notes[0].split("\n")[1]
            return self._store.update(
                origin_hash(origin),
                lambda known: (
                    follow_rotations(known, notes, origin),
                    Response(status=200, body=""),
                ),
            )
        except MalformedError as e:
            return Response(status=400, body=f"{e}\n")
        except RefusalError as e:
            return e.answer

    def add_checkpoint(self, request: bytes) -> Response:
        """Answer a request to cosign."""
        try:
            parsed = parse_request(_text(request))
            return self._store.update(
                origin_hash(parsed.head.origin), lambda known: self._cosign(known, parsed)
            )
        except MalformedError as e:
            return Response(status=400, body=f"{e}\n")
        except RefusalError as e:
            if e.evidence is not None:
                self._keep(e.evidence)
            return e.answer

    def checkpoint(self, log: str) -> Response:
        """Answer with the latest cosigned tree head of a ledger, named by its origin's hash."""
        known = self._store.get(log) if _ORIGIN_HASH.fullmatch(log) else None
        if known is None or known.note is None:
            return Response(status=404, body="no tree head of this ledger was cosigned here\n")
        return Response(status=200, body=known.note)

    def _cosign(self, known: KnownLog | None, request: Request) -> tuple[KnownLog, Response]:
        """Return what to remember and what to answer; raise RefusalError."""
        if known is None:
            raise RefusalError(404, f"the ledger {request.head.origin} is not known here")
        note = accepted_note(known, request)
        seconds = max(self._clock(), known.seconds)  # a clock set back must not show
        line = sign_cosignature(request.note.text, name=self.name, key=self._key, seconds=seconds)
        # "... MUST persist the new checkpoint before responding": update() does, then answers.
        return replace(known, note=note + line, seconds=seconds), Response(status=200, body=line)

    def _keep(self, evidence: Contradiction) -> None:
        """Write evidence down, once."""
        text = format_evidence(evidence)
        folder = self.folder / "evidence"
        log = origin_hash(parse_vkey(evidence.vkey).name)[:16]
        stem = f"{evidence.kind}-{log}"
        with explained(folder):
            folder.mkdir(mode=0o755, exist_ok=True)
            if sum(1 for _ in folder.glob(f"{stem}-*.txt")) < _MAX_EVIDENCE:
                digest = hashlib.sha256(text.encode()).hexdigest()[:16]
                create_exclusively(folder / f"{stem}-{digest}.txt", text.encode(), mode=0o644)


def _text(request: bytes) -> str:
    if len(request) > MAX_REQUEST:
        raise MalformedError(f"the request is longer than {MAX_REQUEST} bytes")
    try:
        return request.decode()
    except UnicodeDecodeError as e:
        raise MalformedError("the request is not text") from e
