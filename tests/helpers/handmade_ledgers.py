"""Ledgers, bundles and proofs made by hand from the format page, sharing no code with the writer.

Everything in memory and by the plainest way (recursive Merkle trees): for tests with up to a few
thousand entries. Keys, times and contents follow from a seed.
"""

import base64
import hashlib
import random
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ORIGIN = "proctor.local/00112233445566778899aabbccddeeff"
START = 1_790_000_000_000_000_000  # ns; some day in 2026
SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE entries (idx INTEGER PRIMARY KEY, stream_id BLOB NOT NULL, \
stream_version INTEGER NOT NULL, name TEXT NOT NULL, entry BLOB NOT NULL, \
UNIQUE (stream_id, stream_version)) STRICT;
CREATE TABLE tree_heads (size INTEGER PRIMARY KEY, note TEXT NOT NULL, edge BLOB NOT NULL) STRICT;
PRAGMA application_id = 0x50524C31;
PRAGMA user_version = 1;
"""


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def encode64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def merkle_root(leaves: list[bytes]) -> bytes:
    """MTH of RFC 6962, section 2.1, over leaf hashes."""
    if len(leaves) < 2:
        return leaves[0] if leaves else sha256(b"")
    k = 1 << ((len(leaves) - 1).bit_length() - 1)
    return sha256(b"\x01" + merkle_root(leaves[:k]) + merkle_root(leaves[k:]))


def merkle_path(index: int, leaves: list[bytes]) -> list[bytes]:
    """PATH of RFC 6962, section 2.1.1."""
    if len(leaves) < 2:
        return []
    k = 1 << ((len(leaves) - 1).bit_length() - 1)
    if index < k:
        return [*merkle_path(index, leaves[:k]), merkle_root(leaves[k:])]
    return [*merkle_path(index - k, leaves[k:]), merkle_root(leaves[:k])]


@dataclass(frozen=True)
class Signer:
    """A key with a name, of one of the signed note's types."""

    name: str
    seed: int
    kind: int = 1

    @property
    def private(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(sha256(b"key %d" % self.seed))

    @property
    def public(self) -> bytes:
        return self.private.public_key().public_bytes_raw()

    @property
    def key_id(self) -> bytes:
        return sha256(self.name.encode() + b"\n" + bytes([self.kind]) + self.public)[:4]

    @property
    def vkey(self) -> str:
        return f"{self.name}+{self.key_id.hex()}+{encode64(bytes([self.kind]) + self.public)}"

    def line(self, text: str) -> str:
        signature = self.private.sign(text.encode())
        return f"\u2014 {self.name} {encode64(self.key_id + signature)}\n"

    def cosign(self, text: str, seconds: int) -> str:
        signature = self.private.sign(f"cosignature/v1\ntime {seconds}\n{text}".encode())
        stamped = self.key_id + seconds.to_bytes(8, "big") + signature
        return f"\u2014 {self.name} {encode64(stamped)}\n"


@dataclass
class HandmadeLedger:
    """Entries and notes, and what is needed to add more."""

    ledger: Signer = Signer(ORIGIN, 0)
    entries: list[bytes] = field(default_factory=list)
    notes: dict[int, str] = field(default_factory=dict)  # by size
    rotations: list[str] = field(default_factory=list)
    rotated: list[int] = field(default_factory=list)  # indexes of rotations
    blobs: list[bytes] = field(default_factory=list)
    time: int = START

    def __post_init__(self) -> None:
        self.first = self.ledger
        self.authority = sha256(b"ledger/authority/v1\n" + self.ledger.name.encode())[:16]
        self.versions: dict[bytes, int] = {}

    @property
    def leaves(self) -> list[bytes]:
        return [sha256(b"\x00" + entry) for entry in self.entries]

    def add(
        self, stream: bytes, name: str, body: bytes, author: tuple[str, Signer] | None = None
    ) -> None:
        version = self.versions[stream] = self.versions.get(stream, 0) + 1
        place, title = stream + version.to_bytes(8, "big"), name.encode()
        block = b""
        if author:
            role, signer = author[0].encode(), author[1]
            statement = b"ledger/author/v2\n" + self.ledger.name.encode() + b"\n"
            statement += place + bytes([len(role)]) + role
            statement += bytes([len(title)]) + title + sha256(body)
            block = bytes([len(role)]) + role + sha256(signer.public)
            block += signer.private.sign(statement)
        self.time += 1_000_000
        self.entries.append(
            b"\x01"
            + len(self.entries).to_bytes(8, "big")
            + place
            + self.time.to_bytes(8, "big")
            + (sha256(b"\x00" + self.entries[-1]) if self.entries else bytes(32))
            + bytes([len(block)])
            + block
            + bytes([len(title)])
            + title
            + len(body).to_bytes(2, "big")
            + body
        )

    def say(self, name: str, author: tuple[str, Signer] | None = None, **body: Any) -> None:
        """Add an authority event."""
        self.add(self.authority, name, msgpack.packb({"v": 1, **body}), author)

    def grant(self, role: str, key: Signer, author: tuple[str, Signer]) -> None:
        self.say("key.granted", author, role=role, vkey=key.vkey)

    def rotate(self, new: Signer) -> None:
        text = f"ledger/rotation/v1\n{self.ledger.name}\n{self.ledger.vkey}\n{new.vkey}\n"
        self.rotations.append(f"{text}\n{self.ledger.line(text)}{new.line(text)}")
        self.rotated.append(len(self.entries))
        self.say("key.rotated", note=self.rotations[-1])
        self.ledger = new

    def head_text(self) -> str:
        root = encode64(merkle_root(self.leaves))
        return f"{self.ledger.name}\n{len(self.entries)}\n{root}\n"

    def sign(self, *witnesses: tuple[Signer, int]) -> str:
        text = self.head_text()
        note = f"{text}\n{self.ledger.line(text)}"
        note += "".join(witness.cosign(text, seconds) for witness, seconds in witnesses)
        self.notes[len(self.entries)] = note
        return note

    def edge(self, size: int) -> bytes:
        edge, start, leaves = b"", 0, self.leaves
        for height in reversed(range(size.bit_length())):
            if size >> height & 1:
                edge += merkle_root(leaves[start : start + (1 << height)])
                start += 1 << height
        return edge

    def write_database(self, folder: Path) -> Path:
        path = folder / "ledger.sqlite"
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("PRAGMA journal_mode = WAL")
            db.executescript(SCHEMA)
            meta = [("origin", self.first.name), ("vkey", self.first.vkey)]
            db.executemany("INSERT INTO meta VALUES (?, ?)", meta)
            for index, entry in enumerate(self.entries):
                author = entry[73]
                name = entry[75 + author : 75 + author + entry[74 + author]].decode()
                version = int.from_bytes(entry[25:33], "big")
                row = (index, entry[9:25], version, name, entry)
                db.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", row)
            for size, note in self.notes.items():
                row_of_head = (size, note, self.edge(size))
                db.execute("INSERT INTO tree_heads VALUES (?, ?, ?)", row_of_head)
        self.write_rest(folder)
        return path

    def write_rest(self, folder: Path) -> None:
        (folder / "ledger.vkey").write_text(f"{self.first.vkey}\n")
        for blob in self.blobs:
            name = sha256(blob).hex()
            (folder / "blobs" / name[:2]).mkdir(parents=True, exist_ok=True)
            (folder / "blobs" / name[:2] / name).write_bytes(blob)

    def write_bundle(self, folder: Path) -> Path:
        def write(name: str, data: bytes) -> None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)

        size = max(self.notes)
        assert size == len(self.entries)
        write("checkpoint", self.notes[size].encode())
        for older, note in self.notes.items():
            if older != size and note.count("\u2014") > 1:
                write(f"checkpoints/{older}", note.encode())
        for index in self.rotated:
            before = max((older for older in self.notes if older <= index), default=0)
            if before:
                write(f"checkpoints/{before}", self.notes[before].encode())
        for start in range(0, size, 256):
            part = self.entries[start : start + 256]
            data = b"".join(len(entry).to_bytes(2, "big") + entry for entry in part)
            write(f"tile/entries/{tile_path(start // 256, len(part))}", data)
        row, level = self.leaves, 0
        while row:
            for start in range(0, len(row), 256):
                part = row[start : start + 256]
                write(f"tile/{level}/{tile_path(start // 256, len(part))}", b"".join(part))
            full = range(0, len(row) - len(row) % 256, 256)
            row, level = [merkle_root(row[start : start + 256]) for start in full], level + 1
        self.write_rest(folder)
        return folder

    def write_proof(self, index: int, path: Path, *, size: int | None = None) -> Path:
        size = size or max(self.notes)
        rotations = [
            note for place, note in zip(self.rotated, self.rotations, strict=True) if place < size
        ]
        parts = [self.entries[index], *(note.encode() for note in rotations)]
        extra = b"".join(len(part).to_bytes(2, "big") + part for part in parts)
        hashes = [encode64(node) for node in merkle_path(index, self.leaves[:size])]
        lines = ["c2sp.org/tlog-proof@v1", f"extra {encode64(extra)}", f"index {index}", *hashes]
        path.write_text("\n".join(lines) + f"\n\n{self.notes[size]}")
        return path


def tile_path(n: int, width: int) -> str:
    digits = f"{n:0{-(-len(str(n)) // 3) * 3}}"
    groups = [digits[start : start + 3] for start in range(0, len(digits), 3)]
    path = "/".join([*(f"x{group}" for group in groups[:-1]), groups[-1]])
    return path if width == 256 else f"{path}.p/{width}"


ALICE, JUDGE = Signer("alice", 1), Signer("judge.example", 2)
WITNESS = Signer("witness.example/w1", 3, kind=4)
SECOND, THIRD = Signer(ORIGIN, 4), Signer(ORIGIN, 5)


def busy_ledger(seed: int, *, size: int, streams: int = 7) -> HandmadeLedger:
    """Batches of 1 to 30, with grants, authors, rotations, a revocation, cosigned heads, blobs."""
    rng, made = random.Random(seed), HandmadeLedger()
    made.blobs = [rng.randbytes(100) for _ in range(3)]
    ids = [rng.randbytes(16) for _ in range(streams)]
    by_ledger, by_alice = ("ledger", made.ledger), ("operator", ALICE)
    story = [
        lambda: made.grant("witness", WITNESS, by_ledger),
        lambda: made.grant("operator", ALICE, by_ledger),
        lambda: made.grant("judge", JUDGE, by_alice),
        lambda: made.rotate(SECOND),
        lambda: made.say("clock.jumped", by=-(1 << 40), clock=made.time - (1 << 40)),
        lambda: made.say(
            "key.revoked", by_alice, role="judge", vkey=JUDGE.vkey, since=START, reason="lost"
        ),
        lambda: made.rotate(THIRD),
        lambda: made.say("unknown.event", what=[1.5, None]),
    ]
    granted = {2: [by_alice], 3: [by_alice, ("judge", JUDGE)], 6: [by_alice]}
    authors: list[tuple[str, Signer]] = []
    told = 0
    while len(made.entries) < size:
        for _ in range(rng.randint(1, 30)):
            due = told < len(story) and len(made.entries) >= told * size // 10
            if due and (told or made.entries):
                story[told]()
                told += 1
                authors = granted.get(told, authors)
            else:
                author = rng.choice(authors) if authors and rng.random() < 0.3 else None
                made.add(rng.choice(ids), "test.event", rng.randbytes(rng.randint(0, 90)), author)
        witnesses = [(WITNESS, made.time // 10**9)] if rng.random() < 0.3 else []
        made.sign(*witnesses)
    return made
