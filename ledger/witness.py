"""A witness: cosigns a ledger's tree heads as long as each continues the one before.

All that a witness decides, free of any network: a request's text in, an answer out. What it
answers has been written down before, so that it stays true after a crash.

Source: C2SP tlog-witness, "add-checkpoint"; docs/reference/ledger-format.md, "Cosignature",
"Rotation" and "Evidence".
Trust: requests are hostile, and from anybody; a ledger's first key is believed.
I/O: the witness's folder.  Units: POSIX seconds; sizes in entries.
Not covered: extension lines in tree heads, which our ledgers do not have; sign-subtree.
"""

import base64
import hashlib
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger.authority import parse_rotation
from ledger.cosignatures import cosignature_vkey, sign_cosignature
from ledger.database import explained
from ledger.errors import ConflictError, KeyFileError, MalformedError, VerificationError
from ledger.evidence import Evidence, Kind, format_evidence
from ledger.keys import create_exclusively, load_key, load_or_create_key
from ledger.notes import public_bytes
from ledger.proofs import roots_from_consistency
from ledger.verified_notes import (
    COSIGNATURE,
    ED25519,
    SignedNote,
    TreeHead,
    VerifierKey,
    decode_base64,
    parse_note,
    parse_tree_head,
    parse_vkey,
    verify_note,
)
from ledger.witness_store import KnownLog, WitnessStore, create_store, origin_hash

__all__ = ["MAX_REQUEST", "Answer", "Request", "Witness", "parse_request", "split_rotations"]

MAX_REQUEST = 131_072  # bytes; a note with 16 post-quantum signatures fits
_MAX_PROOF = 63  # lines
_MAX_EVIDENCE = 100  # files for each ledger and kind: submitting again must not fill the disk
_MAX_ROTATIONS = 1_000  # for each ledger
_ROTATION_LINES = 7  # four of text, an empty one, two signatures
_TEXT = "text/plain; charset=utf-8"
_SIZE = "text/x.tlog.size"
_OLD = re.compile(r"old (0|[1-9][0-9]{0,18})")
_EMPTY_ROOT = hashlib.sha256(b"").digest()
_ORIGIN_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a witness says to a request, in the terms of HTTP."""

    status: int
    body: str
    content_type: str = _TEXT


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request to cosign, taken apart, unverified."""

    old_size: int
    proof: tuple[bytes, ...]
    note: SignedNote
    head: TreeHead


class _RefusalError(Exception):
    """An answer other than 200, and what it is that was found out, if anything."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        content_type: str = _TEXT,
        evidence: Evidence | None = None,
    ) -> None:
        super().__init__(message)
        self.answer = Answer(status=status, body=f"{message}\n", content_type=content_type)
        self.evidence = evidence


class Witness:
    """One witness: a key, a name, and what it remembers.

    Any number of threads and processes may have it open. `clock` gives POSIX seconds.
    """

    def __init__(
        self,
        folder: Path,
        *,
        name: str,
        key: Ed25519PrivateKey,
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
        if not _vkey_file(folder).exists():
            key = load_or_create_key(_key_file(folder), passphrase=passphrase)
            vkey = cosignature_vkey(name, public_bytes(key))
            create_store(_store_file(folder))
            with explained(_vkey_file(folder)):
                create_exclusively(_vkey_file(folder), f"{vkey}\n".encode(), mode=0o644)
        with cls.open(folder, passphrase=passphrase) as witness:
            if witness.name != name:
                raise KeyFileError(
                    f"{folder}: there is a witness named {witness.name} here; take another folder "
                    "for another one"
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
        path = _vkey_file(folder)
        if not path.exists():
            raise KeyFileError(f"{path}: there is no witness here; make one with `witness init`")
        with explained(path):
            vkey = path.read_text(encoding="utf-8", errors="replace").strip()
        name = parse_vkey(vkey, type=COSIGNATURE).name
        key = load_key(_key_file(folder), passphrase=passphrase)
        if cosignature_vkey(name, public_bytes(key)) != vkey:
            raise KeyFileError(
                f"{_key_file(folder)}: this is not the key of {path.name}; one of the two was "
                "exchanged, restore it from a copy"
            )
        with closing(WitnessStore(_store_file(folder))) as store:
            yield cls(folder, name=name, key=key, store=store, clock=clock)

    def trust(self, vkey: str) -> str:
        """Register a ledger by the key that it was begun with; return its origin.

        Raises ConflictError if its name is registered with another key.
        """
        wanted = vkey.strip()
        origin = parse_vkey(wanted, type=ED25519).name

        def register(known: KnownLog | None) -> tuple[KnownLog, None]:
            if known is not None and known.vkey != wanted:
                raise ConflictError(
                    f"{origin} is trusted with another key; a ledger's key changes by a rotation"
                )
            return known or KnownLog(vkey=wanted), None

        self._store.update(origin_hash(origin), register)
        return origin

    def add_rotations(self, request: bytes) -> Answer:
        """Follow a ledger's rotations, given oldest first; those known already change nothing."""
        try:
            notes = split_rotations(_text(request))
            origin = notes[0].split("\n")[1]
            return self._store.update(
                origin_hash(origin),
                lambda known: (_rotated(known, notes, origin), Answer(status=200, body="")),
            )
        except MalformedError as e:
            return Answer(status=400, body=f"{e}\n")
        except _RefusalError as e:
            return e.answer

    def add_checkpoint(self, request: bytes) -> Answer:
        """Answer a request to cosign."""
        try:
            parsed = parse_request(_text(request))
            return self._store.update(
                origin_hash(parsed.head.origin), lambda known: self._cosign(known, parsed)
            )
        except MalformedError as e:
            return Answer(status=400, body=f"{e}\n")
        except _RefusalError as e:
            if e.evidence is not None:
                self._keep(e.evidence)
            return e.answer

    def checkpoint(self, log: str) -> Answer:
        """Answer with the latest cosigned tree head of a ledger, named by its origin's hash."""
        known = self._store.get(log) if _ORIGIN_HASH.fullmatch(log) else None
        if known is None or known.note is None:
            return Answer(status=404, body="no tree head of this ledger was cosigned here\n")
        return Answer(status=200, body=known.note)

    def _cosign(self, known: KnownLog | None, request: Request) -> tuple[KnownLog, Answer]:
        """Decide, in the order of the source's clauses, and say what to remember."""
        if known is None:
            raise _RefusalError(404, f"the ledger {request.head.origin} is not known here")
        # "The witness MUST verify the checkpoint signature ..."
        key, in_force = _signing_key(known, request.note)
        note = _bare_note(request.note, key)
        contradiction = _contradiction(known, request.head, note)
        if not in_force:
            raise _RefusalError(
                403, "the key that signed this was rotated away", evidence=contradiction
            )
        _check_consistency(known, request, note, contradiction=contradiction)
        seconds = max(self._clock(), known.seconds)  # a clock set back must not show
        line = sign_cosignature(request.note.text, name=self.name, key=self._key, seconds=seconds)
        # "... MUST persist the new checkpoint before responding": update() does, then answers.
        return replace(known, note=note + line, seconds=seconds), Answer(status=200, body=line)

    def _keep(self, evidence: Evidence) -> None:
        """Write evidence down, once."""
        text = format_evidence(evidence)
        folder = self.folder / "evidence"
        log = origin_hash(parse_vkey(evidence.vkey, type=ED25519).name)[:16]
        stem = f"{evidence.kind}-{log}"
        with explained(folder):
            folder.mkdir(mode=0o755, exist_ok=True)
            if sum(1 for _ in folder.glob(f"{stem}-*.txt")) < _MAX_EVIDENCE:
                digest = hashlib.sha256(text.encode()).hexdigest()[:16]
                create_exclusively(folder / f"{stem}-{digest}.txt", text.encode(), mode=0o644)


def parse_request(text: str) -> Request:
    """Take a request apart; raise MalformedError if it is none."""
    front, separator, note = text.partition("\n\n")
    first, *lines = front.split("\n")
    old = _OLD.fullmatch(first)
    if not separator or old is None or int(old[1]) >= 2**63:
        raise MalformedError("the request is not an old size, a proof, an empty line and a note")
    if len(lines) > _MAX_PROOF:
        raise MalformedError(f"the proof has {len(lines)} lines; {_MAX_PROOF} at most are possible")
    proof = tuple(map(decode_base64, lines))
    if any(len(each) != 32 for each in proof):
        raise MalformedError("a line of the proof is not a hash")
    return Request(
        old_size=int(old[1]), proof=proof, note=parse_note(note), head=parse_tree_head(note)
    )


def split_rotations(text: str) -> list[str]:
    """Take a text of rotation notes, one after the other, apart; each has seven lines."""
    *lines, rest = text.split("\n")
    if rest or not lines or len(lines) % _ROTATION_LINES:
        raise MalformedError("the text is not one rotation note after the other")
    return [
        "".join(f"{line}\n" for line in lines[at : at + _ROTATION_LINES])
        for at in range(0, len(lines), _ROTATION_LINES)
    ]


def _signing_key(known: KnownLog, note: SignedNote) -> tuple[VerifierKey, bool]:
    """Return the ledger's key that signed a note, and whether it is the one in force."""
    names = {(line.name, line.key_id) for line in note.signatures}
    keys = [parse_vkey(vkey, type=ED25519) for vkey in _vkeys(known)]
    key = next((k for k in reversed(keys) if (k.name, k.key_id) in names), keys[-1])
    try:
        verify_note(note, key=key)
    except VerificationError as e:
        raise _RefusalError(403, str(e)) from e
    return key, key == keys[-1]


def _contradiction(known: KnownLog, head: TreeHead, note: str) -> Evidence | None:
    """Return what a tree head shows beside the latest one, without any proof."""
    if known.note is None or head.size == 0:
        return None
    latest = parse_tree_head(known.note)
    if head.size < latest.size:
        return _evidence("rollback", known, first=note, second=known.note)
    if head.size == latest.size and head.root != latest.root:
        return _evidence("fork", known, first=known.note, second=note)
    return None


def _evidence(
    kind: Kind, known: KnownLog, *, first: str, second: str, proof: tuple[bytes, ...] = ()
) -> Evidence:
    rotations = tuple(_rotations(known))
    return Evidence(
        kind=kind, vkey=known.vkey, rotations=rotations, first=first, second=second, proof=proof
    )


def _check_consistency(
    known: KnownLog, request: Request, note: str, *, contradiction: Evidence | None
) -> None:
    head, old = request.head, request.old_size
    latest = None if known.note is None else parse_tree_head(known.note)
    latest_size = 0 if latest is None else latest.size
    # "The old size MUST be equal to or lower than the checkpoint size."
    if old > head.size:
        raise _RefusalError(400, f"the old size {old} is larger than the tree head's {head.size}")
    # "... MUST check that the old size matches the size of the latest checkpoint ..."
    if old != latest_size:
        raise _RefusalError(409, str(latest_size), content_type=_SIZE, evidence=contradiction)
    # "A checkpoint of size zero MUST have the root hash of the empty tree ..."
    if head.size == 0 and head.root != _EMPTY_ROOT:
        raise _RefusalError(422, "the tree head of no entries has a root of some")
    # "If the old size matches the checkpoint size ..."
    if contradiction is not None:
        raise _RefusalError(
            422, f"another tree head of size {old} was cosigned: a fork", evidence=contradiction
        )
    # "If the old size is zero, the consistency proof MUST be empty ..."
    if old in (0, head.size):
        if request.proof:
            raise _RefusalError(422, "the proof has to be empty here")
        return
    assert latest is not None  # because the old size is not zero
    assert known.note is not None
    try:
        old_root, new_root = roots_from_consistency(
            old=old, new=head.size, proof=request.proof, old_root=latest.root
        )
    except VerificationError as e:
        raise _RefusalError(422, str(e)) from e
    if new_root != head.root:
        raise _RefusalError(422, f"the proof does not lead to the root of size {head.size}")
    if old_root != latest.root:
        raise _RefusalError(
            422,
            f"the proof shows another root at size {old} than was cosigned: a fork",
            evidence=_evidence("fork", known, first=known.note, second=note, proof=request.proof),
        )


def _rotated(known: KnownLog | None, notes: list[str], origin: str) -> KnownLog:
    """Return what is known after these rotations; refuse all of them if one does not follow."""
    if known is None:
        raise _RefusalError(404, f"the ledger {origin} is not known here")
    followed = _rotations(known)
    rotations = [parse_rotation(note, origin=origin) for note in followed]
    for note in notes:
        try:
            rotation = parse_rotation(note, origin=origin)
        except VerificationError as e:
            raise _RefusalError(403, str(e)) from e
        if rotation in rotations:
            continue
        keys = [known.vkey, *(each.new for each in rotations)]
        if rotation.old != keys[-1] or rotation.new in keys:
            raise _RefusalError(403, "the rotation does not follow the last one that is known here")
        if len(rotations) >= _MAX_ROTATIONS:
            raise _RefusalError(403, f"{_MAX_ROTATIONS} rotations were followed; register it anew")
        rotations.append(rotation)
        followed.append(note)
    return replace(known, rotations="".join(followed))


def _rotations(known: KnownLog) -> list[str]:
    return split_rotations(known.rotations) if known.rotations else []


def _vkeys(known: KnownLog) -> list[str]:
    """Return the ledger's keys, oldest first; its rotations were verified when they came."""
    return [known.vkey, *(note.split("\n")[3] for note in _rotations(known))]


def _bare_note(note: SignedNote, key: VerifierKey) -> str:
    """Return a verified note with the ledger's line only: the others may say anything."""
    (line,) = [s for s in note.signatures if (s.name, s.key_id) == (key.name, key.key_id)]
    encoded = base64.b64encode(line.key_id + line.signature).decode()
    return f"{note.text}\n\u2014 {line.name} {encoded}\n"


def _text(request: bytes) -> str:
    if len(request) > MAX_REQUEST:
        raise MalformedError(f"the request is longer than {MAX_REQUEST} bytes")
    try:
        return request.decode()
    except UnicodeDecodeError as e:
        raise MalformedError("the request is not text") from e


def _key_file(folder: Path) -> Path:
    return folder / "witness.pem"


def _vkey_file(folder: Path) -> Path:
    return folder / "witness.vkey"


def _store_file(folder: Path) -> Path:
    return folder / "witness.sqlite"
