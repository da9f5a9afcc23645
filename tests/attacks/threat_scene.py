"""An honest ledger with everything that it can have beside it, for attacks to be made on a copy.

Some 300 entries by several batches: keys granted, a blob, an operator's signed event, a rotation,
tree heads cosigned by two witnesses. Beside it an earlier state of it, another continuation by the
same key (a fork) and evidence of it, another ledger, a bundle, a proof, and what its verifiers
hold: the first vkey, the newest witnessed head, a quorum policy, a memory.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from eventsourcing.persistence import StoredEvent
from signed_notes import sign_tree_head
from stores import copy_ledger, database_path, on_server

from ledger.application import LedgerApplication
from ledger.blobs import BlobStore
from ledger.entries import AuthorKey
from ledger.handover.bundle import export_bundle
from ledger.handover.proof_files import write_proofs
from ledger.keys import load_key
from ledger.mapper import EventRegistry
from ledger.notes import public_bytes, vkey
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.schemes import PrivateKey
from ledger.verification.memory import Memory
from ledger.verification.reader import check_ledger, open_verified, read_tree_head
from ledger.verification.verified_notes import parse_tree_head
from ledger.witnessing.cosignatures import cosignature_vkey, sign_cosignature
from ledger.witnessing.evidence import find_contradiction, format_evidence

STREAMS = [UUID(int=n) for n in range(1, 6)]
OTHER_STREAMS = [UUID(int=n) for n in range(11, 16)]
WITNESSES = {
    f"witness-{n}.example": Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (1, 2)
}
OPERATOR = Ed25519PrivateKey.from_private_bytes(b"o" * 32)
JUDGE = Ed25519PrivateKey.from_private_bytes(b"j" * 32)
STRANGER = Ed25519PrivateKey.from_private_bytes(b"s" * 32)
COSIGNED_AT = 1_700_000_000  # s
REVIEWED, ROTATED, BLOB_NAMED = "decision.reviewed", "key.rotated", "test.blob_named"


@dataclass(frozen=True)
class Scene:
    """The files; `fork` and `earlier` share the ledger's identity, `other` does not."""

    root: Path

    @property
    def ledger(self) -> Path:
        return self.root / "ledger"

    @property
    def database(self) -> Path:
        return database_path(self.ledger)

    @property
    def earlier(self) -> Path:
        return self.root / "earlier"

    @property
    def fork(self) -> Path:
        return self.root / "fork"

    @property
    def other(self) -> Path:
        return self.root / "other"

    @property
    def bundle(self) -> Path:
        return self.root / "bundle"

    @property
    def proof(self) -> Path:
        return self.root / "one.tlog-proof"

    @property
    def evidence(self) -> Path:
        return self.root / "fork.evidence"

    @property
    def memory(self) -> Path:
        return self.root / "memory"

    @property
    def verdicts(self) -> Path:
        """A ledger with a judged run; there is none before an attack on verdicts makes one."""
        return self.root / "verdicts"

    @property
    def standing(self) -> Path:
        """The id of the audit that ought to stand there."""
        return self.root / "standing"

    @cached_property
    def vkey(self) -> str:
        """What a verifier was told, once."""
        return (self.root / "vkey").read_text()

    @cached_property
    def kept_head(self) -> str:
        """The newest tree head, witnessed."""
        return (self.root / "kept").read_text()

    @cached_property
    def policy(self) -> str:
        return (self.root / "policy").read_text()

    @cached_property
    def old_key(self) -> PrivateKey:
        """The ledger's key before the rotation, by now out of force."""
        return load_key(self.root / "old.pem", passphrase=None)

    @cached_property
    def new_key(self) -> PrivateKey:
        return load_key(self.root / "new.pem", passphrase=None)

    def copy(self, root: Path) -> "Scene":
        """Copy what may be attacked; what only serves for it is linked to."""
        root.mkdir()
        for path in self.root.iterdir():
            if path.name in ("earlier", "fork", "other", "open", "open-other"):
                (root / path.name).symlink_to(path)
            elif LedgerPaths(path).exist:
                copy_ledger(path, root / path.name)
            elif path.is_dir():
                shutil.copytree(path, root / path.name)
            else:
                shutil.copy(path, root)
        return Scene(root)


@contextmanager
def recorder(directory: Path) -> Iterator[SignedRecorder]:
    with LedgerApplication.open(directory, EventRegistry()) as app:
        assert isinstance(app.recorder, SignedRecorder)
        yield app.recorder


class Writer:
    """Appends test events to five streams."""

    def __init__(self, into: SignedRecorder, streams: Sequence[UUID] = STREAMS) -> None:
        self.recorder = into
        self.versions = {stream: len(into.select_events(stream)) for stream in streams}

    def batch(
        self,
        count: int,
        *,
        name: str = "test.event",
        text: str = "body",
        author: AuthorKey | None = None,
    ) -> None:
        events = []
        for n in range(count):
            stream = list(self.versions)[sum(self.versions.values()) % len(self.versions)]
            self.versions[stream] += 1
            body = f"{text} {n}".encode()
            events.append(StoredEvent(stream, self.versions[stream], name, body))
        self.recorder.insert_events(events, author=author)


def cosign(into: SignedRecorder, *, seconds: int, names: Sequence[str]) -> str:
    """Let witnesses sign the newest tree head; return the note with their lines."""
    note = into.tree_head()
    assert note is not None
    text = note.rpartition("\n\n")[0] + "\n"
    for name in names:
        line = sign_cosignature(text, name=name, key=WITNESSES[name], seconds=seconds)
        into.add_signature_line(parse_tree_head(note).size, line)
    cosigned = into.tree_head()
    assert cosigned is not None
    return cosigned


def copy_open(directory: Path, to: Path) -> None:
    """Copy the database with its log, as a kill would leave them."""
    if on_server():
        return
    to.mkdir()
    for name in ("ledger.sqlite", "ledger.sqlite-wal"):
        shutil.copy(directory / name, to)


def make_scene(root: Path) -> Scene:
    scene = Scene(root)
    root.mkdir()
    with recorder(scene.ledger) as into:
        for name, key in WITNESSES.items():
            into.grant_key(cosignature_vkey(name, public_bytes(key)), role="witness")
        into.grant_key(vkey("operator.example", public_bytes(OPERATOR)), role="operator")
        operator = AuthorKey("operator", OPERATOR)
        into.grant_key(vkey("judge.example", public_bytes(JUDGE)), role="judge", author=operator)
        writer = Writer(into)
        for count in (1, 3, 8, 5, 2):
            writer.batch(count)
        digest = BlobStore(LedgerPaths(scene.ledger).blobs).put(b"weights " * 100)
        writer.batch(1, name=BLOB_NAMED, text=digest)
        cosign(into, seconds=COSIGNED_AT, names=list(WITNESSES))
    copy_ledger(scene.ledger, scene.earlier)
    copy_ledger(scene.ledger, scene.fork)
    with recorder(scene.fork) as into:  # the same key tells another story
        writer = Writer(into)
        for count in (4, 8, 8, 8, 8):
            writer.batch(count, text="otherwise")
    shutil.copy(LedgerPaths(scene.ledger).key, root / "old.pem")
    with recorder(scene.ledger) as into:
        writer = Writer(into)
        writer.batch(6)
        writer.batch(1, name=REVIEWED, author=operator)
        into.rotate_key()
        for count in (7, 1, 250, 9, 6):  # more than one tile's worth
            writer.batch(count)
        kept = cosign(into, seconds=COSIGNED_AT + 60, names=list(WITNESSES))
        copy_open(scene.ledger, root / "open")
    shutil.copy(LedgerPaths(scene.ledger).key, root / "new.pem")
    with recorder(scene.other) as into:
        writer = Writer(into, OTHER_STREAMS)
        for count in (20, 20, 310):
            writer.batch(count)
        copy_open(scene.other, root / "open-other")
    (root / "kept").write_text(kept)
    (root / "vkey").write_text(LedgerPaths(scene.ledger).vkey.read_text().strip())
    (root / "policy").write_text(
        "".join(
            f"witness w{n} {cosignature_vkey(name, public_bytes(key))}\n"
            for n, (name, key) in enumerate(WITNESSES.items())
        )
        + "group both all w0 w1\nquorum both\n"
    )
    hand_out(scene)
    return scene


def hand_out(scene: Scene) -> None:
    """Make what is made from a ledger: a bundle, a proof, evidence; and remember it."""
    export_bundle(scene.ledger, scene.bundle, vkey=scene.vkey)
    fork = parse_tree_head(read_tree_head(scene.fork) or "")
    with open_verified(scene.ledger, vkey=scene.vkey) as ledger:
        scene.proof.write_text(write_proofs(ledger, [20]))
        evidence = find_contradiction(
            [entry.entry_hash for entry in ledger.entries()],
            vkey=scene.vkey,
            rotations=ledger.authority.rotations,
            kept=sign_tree_head(  # shown by the key that signs today
                origin=fork.origin, size=fork.size, root=fork.root, key=scene.new_key
            ),
            newest=scene.kept_head,
        )
    assert evidence is not None
    scene.evidence.write_text(format_evidence(evidence))
    assert check_ledger(scene.ledger, memory=Memory(scene.memory)).ok
    earlier = scene.root / "memory-earlier"  # the same folder's, so with the same key
    earlier.mkdir(mode=0o700)
    shutil.copy2(scene.memory / "key", earlier / "key")
    assert check_ledger(scene.earlier, memory=Memory(earlier)).ok
