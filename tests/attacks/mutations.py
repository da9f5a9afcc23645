"""Random mutations of everything that a ledger leaves on disk, and verifiers that look at them.

Each target mutates itself, asks a verifier that holds the vkey and the newest witnessed tree
head, and tells what came of it: `refused`, `named` (the one touched entry was named as the first
bad one), or `same` (accepted, because all verified content is byte for byte what it was).
"""

import random
import shutil
import sqlite3
from abc import ABC, abstractmethod
from contextlib import closing
from pathlib import Path

from stores import Tables, copy_ledger, database_path, on_server, tables_of
from threat_scene import Scene

from ledger.errors import LedgerError, VerificationError
from ledger.handover.bundle_check import check_bundle
from ledger.handover.proof_files import open_proof
from ledger.paths import LedgerPaths
from ledger.verification.reader import check_ledger, open_verified
from ledger.verification.states import Signatures
from ledger.verification.verified_notes import open_tree_head
from ledger.witnessing.evidence import open_evidence
from ledger.witnessing.quorum import parse_quorum


def garbled(data: bytes, rng: random.Random) -> tuple[bytes, str]:
    """Return some other bytes, and in a word how they came about."""
    out = bytearray(data)
    kind = rng.choice(("bit", "bit", "byte", "run", "cut", "grow", "lose", "twice", "swap"))
    at = rng.randrange(len(out)) if out else 0
    end = min(len(out), at + rng.choice((2, 16, 300, 4096)))
    if kind == "bit" and out:
        out[at] ^= 1 << rng.randrange(8)
    elif kind == "byte" and out:
        out[at] = rng.randrange(256)
    elif kind == "run":
        out[at:end] = rng.choice((bytes(end - at), rng.randbytes(end - at)))
    elif kind == "cut":
        del out[at:]
    elif kind == "grow":
        out += rng.choice((b"\0", b"\n", rng.randbytes(40), bytes(out[:at])))
    elif kind == "lose":
        del out[at:end]
    elif kind == "twice":
        out[at:at] = out[at:end]
    else:
        other = rng.randrange(len(out)) if out else 0
        length = min(end - at, abs(at - other), len(out) - max(at, other))
        first, second = out[at : at + length], out[other : other + length]
        out[at : at + length], out[other : other + length] = second, first
    return bytes(out), kind


class Target(ABC):
    """Something that can be mutated over and over."""

    def __init__(self, scene: Scene, folder: Path) -> None:
        self.scene = scene
        self.folder = folder
        self.touched: set[Path] = set()  # of several files
        folder.mkdir()
        self.prepare()
        self.honest = self.verified()

    @abstractmethod
    def prepare(self) -> None:
        """Lay out what is honest."""

    @abstractmethod
    def mutate(self, rng: random.Random) -> tuple[str, int | None]:
        """Change something; tell how, and the entry's index, if it was one that was touched."""

    @abstractmethod
    def verified(self) -> object:
        """Verify, and return all the content that was verified; raise LedgerError."""

    @abstractmethod
    def restore(self) -> None:
        """Make everything honest again."""

    def same(self, content: object) -> bool:
        """Tell whether what was verified is what was honest."""
        return content == self.honest

    def trial(self, rng: random.Random) -> tuple[str, str]:
        """Mutate once; return how, and what came of it: anything else than that is an error."""
        how, index = self.mutate(rng)
        error: LedgerError | None = None
        try:
            content = self.verified()
        except LedgerError as e:
            error = e
        self.restore()
        if error is None:
            assert self.same(content), f"undetected: {how} at {index} of {self.touched}"
            return how, "same"
        if index is None:
            return how, "refused"
        assert getattr(error, "index", None) == index, f"{how} at {index}: {error}"
        return how, "named"


class DatabaseFile(Target):
    """The bytes of the database file."""

    signatures: Signatures = "newest"

    def prepare(self) -> None:
        shutil.copytree(
            self.scene.ledger, self.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("b*")
        )
        self.path = database_path(self.folder)
        self.original = self.path.read_bytes()
        self.donor = LedgerPaths(self.scene.earlier).database.read_bytes()

    def verified(self) -> object:
        held = check_ledger(
            self.folder,
            vkey=self.scene.vkey,
            kept_head=self.scene.kept_head,
            signatures=self.signatures,
        )
        if not held.ok:
            raise VerificationError(str(held.error), index=held.index)
        return self.stored()

    def stored(self) -> list[bytes]:
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True)) as c:
            rows = c.execute("SELECT entry FROM entries NOT INDEXED ORDER BY idx").fetchall()
        return [entry for (entry,) in rows]

    def mutate(self, rng: random.Random) -> tuple[str, int | None]:
        pages = len(self.original) // 4096
        kind = rng.choice(("bytes", "bytes", "page exchanged", "page of an older state"))
        if kind == "bytes":
            data, kind = garbled(self.original, rng)
        else:
            one, other = rng.randrange(pages), rng.randrange(pages)
            page = self.original[other * 4096 :][:4096]
            if kind == "page of an older state":
                one %= len(self.donor) // 4096
                page = self.donor[one * 4096 :][:4096]
            data = self.original[: one * 4096] + page + self.original[(one + 1) * 4096 :]
        self.path.write_bytes(data)
        return kind, None

    def restore(self) -> None:
        for suffix in ("-wal", "-shm", "-journal"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        self.path.write_bytes(self.original)


class WriteAheadLog(DatabaseFile):
    """The bytes of the write-ahead log, with the newest half of the ledger in it."""

    def prepare(self) -> None:
        super().prepare()
        shutil.copy(self.scene.root / "open" / self.path.name, self.path)
        self.original = self.path.read_bytes()
        self.log = self.path.with_name(f"{self.path.name}-wal")
        self.log_original = (self.scene.root / "open" / self.log.name).read_bytes()
        self.log.write_bytes(self.log_original)

    def mutate(self, rng: random.Random) -> tuple[str, int | None]:
        data, kind = garbled(self.log_original, rng)
        self.log.write_bytes(data)
        return kind, None

    def restore(self) -> None:
        super().restore()
        self.log.write_bytes(self.log_original)


class Rows(DatabaseFile):
    """Rows of the three tables, changed in SQL."""

    signatures: Signatures = "all"

    def prepare(self) -> None:
        if on_server():
            self.folder.rmdir()
            copy_ledger(self.scene.ledger, self.folder, ignore=shutil.ignore_patterns("b*"))
        else:
            super().prepare()
        with tables_of(self.folder) as c:
            self.entries = c.execute("SELECT * FROM entries ORDER BY idx").fetchall()
            self.heads = c.execute("SELECT * FROM tree_heads ORDER BY size").fetchall()
            self.meta = c.execute("SELECT * FROM meta").fetchall()
        self.restore()

    def stored(self) -> list[bytes]:
        with tables_of(self.folder) as c:
            return [
                entry for (entry,) in c.execute("SELECT entry FROM entries ORDER BY idx").fetchall()
            ]

    def restore(self) -> None:
        if not on_server():
            super().restore()
            return
        honest = {"entries": self.entries, "tree_heads": self.heads, "meta": self.meta}
        with tables_of(self.folder) as c:
            for table, rows in honest.items():
                marks = ", ".join("?" * len(rows[0]))
                c.execute(f"DELETE FROM {table}")
                c.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)

    def mutate(self, rng: random.Random) -> tuple[str, int | None]:
        at = rng.randrange(len(self.entries))
        kind = rng.choice(
            ("entry", "entry", "entry", "column", "delete", "swap", "note", "edge", "meta")
        )
        with tables_of(self.folder) as c:
            touched = getattr(self, f"_{kind}")(c, at, rng)
        return kind, touched

    def _entry(self, c: Tables, at: int, rng: random.Random) -> int | None:
        honest = self.entries[at][4]
        data, _ = garbled(honest, rng)
        c.execute("UPDATE entries SET entry = ? WHERE idx = ?", (data, at))
        return at if data != honest else None

    def _column(self, c: Tables, at: int, rng: random.Random) -> int | None:
        column, value = rng.choice(
            (
                ("stream_id", rng.randbytes(16)),
                ("stream_version", rng.randrange(1_000, 10_000)),
                ("name", f"test.{rng.randrange(100)}"),
            )
        )
        c.execute(f"UPDATE entries SET {column} = ? WHERE idx = ?", (value, at))
        return at

    def _delete(self, c: Tables, at: int, rng: random.Random) -> int | None:
        c.execute("DELETE FROM entries WHERE idx = ?", (at,))
        return at

    def _swap(self, c: Tables, at: int, rng: random.Random) -> int | None:
        other = rng.randrange(len(self.entries))
        for to, row in ((at, self.entries[other]), (other, self.entries[at])):
            c.execute("UPDATE entries SET entry = ? WHERE idx = ?", (row[4], to))
        return None if other == at else min(at, other)

    def _note(self, c: Tables, at: int, rng: random.Random) -> None:
        size, note, _ = rng.choice(self.heads)
        data, _ = garbled(note.encode(), rng)
        c.execute("UPDATE tree_heads SET note = CAST(? AS TEXT) WHERE size = ?", (text(data), size))

    def _edge(self, c: Tables, at: int, rng: random.Random) -> None:
        size, _, edge = rng.choice(self.heads)
        data, _ = garbled(edge, rng)
        c.execute("UPDATE tree_heads SET edge = ? WHERE size = ?", (data, size))

    def _meta(self, c: Tables, at: int, rng: random.Random) -> None:
        key, value = rng.choice(c.execute("SELECT * FROM meta").fetchall())
        data, _ = garbled(value.encode(), rng)
        c.execute("UPDATE meta SET value = CAST(? AS TEXT) WHERE key = ?", (text(data), key))


def text(data: bytes) -> bytes | str:
    """Return bytes that a column of text can be made of: a server's take only UTF-8 without NUL."""
    return data.decode(errors="replace").replace("\0", "?") if on_server() else data


class TextFile(Target):
    """A small file that is verified as a whole."""

    text: str

    def mutate(self, rng: random.Random) -> tuple[str, int | None]:
        data, kind = garbled(self.original.encode(), rng)
        self.text = data.decode("utf-8", "surrogateescape")
        return kind, None

    def restore(self) -> None:
        self.text = self.original

    def prepare(self) -> None:
        self.text = self.original = self.read()

    @abstractmethod
    def read(self) -> str:
        """Return the honest text."""


class Proof(TextFile):
    """A proof of one entry."""

    def read(self) -> str:
        return self.scene.proof.read_text(encoding="utf-8")

    def verified(self) -> object:
        proved = open_proof(self.text, vkey=self.scene.vkey)
        parse_quorum(self.scene.policy).verify(proved.head.note)
        return proved.entry, proved.head.size, proved.head.root


class Note(TextFile):
    """A cosigned tree head, as somebody keeps it."""

    def read(self) -> str:
        with open_verified(self.scene.ledger, vkey=self.scene.vkey) as ledger:
            self.key = ledger.authority.ledger_vkey_at(ledger.size)
        return self.scene.kept_head

    def verified(self) -> object:
        head = open_tree_head(self.text, vkey=self.key)
        parse_quorum(self.scene.policy).verify(self.text)
        return head.origin, head.size, head.root


class EvidenceFile(TextFile):
    """Evidence of a fork."""

    def read(self) -> str:
        return self.scene.evidence.read_text(encoding="utf-8")

    def verified(self) -> object:
        found = open_evidence(self.text)
        return found.vkey, found.first.split("\n\n")[0], found.second.split("\n\n")[0]


_MAY_BE_MISSING = ("blobs", "checkpoints", "ledger.vkey")  # in a bundle that holds


class Bundle(Target):
    """The files of a bundle: their bytes, and which of them are there."""

    def prepare(self) -> None:
        shutil.copytree(self.scene.bundle, self.folder, dirs_exist_ok=True)
        self.files = sorted(path for path in self.folder.rglob("*") if path.is_file())
        self.original = {path: path.read_bytes() for path in self.files}

    def verified(self) -> object:
        held = check_bundle(self.folder, vkey=self.scene.vkey, kept_heads=[self.scene.kept_head])
        if not held.ok:
            raise VerificationError(str(held.error), index=held.index)
        return {path: self._content(path) for path in self._verified_files()}

    def same(self, content: object) -> bool:
        assert isinstance(content, dict)
        assert isinstance(self.honest, dict)
        return all(each in (self.honest[path], b"not there") for path, each in content.items())

    def _content(self, path: Path) -> bytes:
        if not path.exists() and path.relative_to(self.folder).parts[0] in _MAY_BE_MISSING:
            return b"not there"
        content = path.read_bytes()
        # Of a tree head's note, what the ledger has signed; other lines are their signers' affair.
        return content.partition(b"\n\n")[0] if b"checkpoint" in bytes(path) else content

    def _verified_files(self) -> list[Path]:
        return [path for path in self.files if path.name != "verify.py"]

    def mutate(self, rng: random.Random) -> tuple[str, int | None]:
        path = rng.choice(self._verified_files())
        self.touched = {path}
        kind = rng.choice(("bytes", "bytes", "bytes", "removed", "exchanged", "added"))
        if kind == "bytes":
            data, kind = garbled(self.original[path], rng)
            path.write_bytes(data)
        elif kind == "removed":
            path.unlink()
        elif kind == "exchanged":
            path.write_bytes(self.original[rng.choice(self.files)])
        else:
            new = path.with_name(rng.choice(("001", "extra", f"{path.name}0", ".hidden")))
            if new not in self.original:
                self.touched = {new}
            new.write_bytes(self.original[path])
        return kind, None

    def restore(self) -> None:
        for path in self.touched:
            if path in self.original:
                path.write_bytes(self.original[path])
            else:
                path.unlink(missing_ok=True)


TARGETS: dict[str, tuple[type[Target], int]] = {
    "rows": (Rows, 25_000),
    "database file": (DatabaseFile, 20_000),
    "write-ahead log": (WriteAheadLog, 15_000),
    "bundle": (Bundle, 20_000),
    "proof": (Proof, 10_000),
    "tree head": (Note, 5_000),
    "evidence": (EvidenceFile, 5_000),
}
"""Each target, and how many mutations of the hundred thousand it gets."""
