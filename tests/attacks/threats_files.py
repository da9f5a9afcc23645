"""Attacks by somebody who can write the ledger's files, and has no private key."""

import os
import shutil
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

from circular_pages import repeat_first_row
from edge_trees import Tree
from loose_entries import Entry, decode_entry, encode_entry
from signed_notes import sign_tree_head
from stores import copy_ledger, exchange_tables, on_server, tables_of
from threat_scene import STRANGER, WITNESSES, Scene
from threats import threat

from ledger.entries import entry_hash
from ledger.files import create_exclusively
from ledger.notes import public_bytes, vkey
from ledger.paths import LedgerPaths
from ledger.witnessing.cosignatures import sign_cosignature

AT = 20  # an entry in the middle
EntryRow = tuple[int, bytes, int, str, bytes]
HeadRow = tuple[int, str, bytes]


@dataclass
class Tables:
    entries: list[EntryRow]
    heads: list[HeadRow]

    def renumber(self) -> None:
        self.entries = [(at, *row[1:]) for at, row in enumerate(self.entries)]

    def relink(self, start: int) -> None:
        """Make links and indexes anew, as far as that takes no key."""
        for at in range(start, len(self.entries)):
            previous = entry_hash(self.entries[at - 1][4]) if at else bytes(32)
            entry = replace(decode_entry(self.entries[at][4]), index=at, previous=previous)
            self.entries[at] = row_of(entry)


def row_of(entry: Entry) -> EntryRow:
    stream = entry.stream_id.bytes
    return entry.index, stream, entry.stream_version, entry.name, encode_entry(entry)


@contextmanager
def tables(scene: Scene) -> Iterator[Tables]:
    """Give the rows to be changed, then put them in the place of those that are there."""
    with tables_of(scene.ledger) as c:
        found = Tables(
            c.execute("SELECT * FROM entries ORDER BY idx").fetchall(),
            c.execute("SELECT * FROM tree_heads ORDER BY size").fetchall(),
        )
        yield found
        c.execute("DELETE FROM entries")
        c.execute("DELETE FROM tree_heads")
        c.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", found.entries)
        c.executemany("INSERT INTO tree_heads VALUES (?, ?, ?)", found.heads)


def run(scene: Scene, *statements: str) -> None:
    with tables_of(scene.ledger) as c:
        for statement in statements:
            c.execute(statement)


def rows_of(directory: Path) -> Tables:
    with tables_of(directory) as c:
        return Tables(
            c.execute("SELECT * FROM entries ORDER BY idx").fetchall(),
            c.execute("SELECT * FROM tree_heads ORDER BY size").fetchall(),
        )


def changed(row: EntryRow, **fields: object) -> EntryRow:
    return row_of(replace(decode_entry(row[4]), **fields))  # type: ignore[arg-type]


@threat("a bit of an entry flipped")
def flip(scene: Scene) -> int:
    with tables(scene) as t:
        data = bytearray(t.entries[AT][4])
        data[-1] ^= 1
        t.entries[AT] = (*t.entries[AT][:4], bytes(data))
    return AT


@threat("a bit of the last entry flipped")
def flip_last(scene: Scene) -> int:
    with tables(scene) as t:
        data = bytearray(t.entries[-1][4])
        data[-1] ^= 1
        t.entries[-1] = (*t.entries[-1][:4], bytes(data))
        return len(t.entries) - 1


@threat("an entry's body, name or time edited and re-encoded")
def edit(scene: Scene) -> int:
    with tables(scene) as t:
        t.entries[AT] = changed(t.entries[AT], body=b"forged", name="test.other")
    return AT


@threat("... and every later link recomputed", vague=True)
def edit_and_relink(scene: Scene) -> int:
    with tables(scene) as t:
        t.entries[AT] = changed(t.entries[AT], body=b"forged")
        t.relink(AT + 1)
    return AT


@threat("... and the tree heads signed by the attacker's key")
def edit_and_sign(scene: Scene) -> None:
    with tables(scene) as t:
        t.entries[AT] = changed(t.entries[AT], body=b"forged")
        t.relink(AT + 1)
        t.heads = heads_by(STRANGER, t.entries, [head[0] for head in t.heads], scene=scene)


def heads_by(key: object, rows: list[EntryRow], sizes: list[int], *, scene: Scene) -> list[HeadRow]:
    tree, heads = Tree(), []
    for row in rows:
        tree.append(entry_hash(row[4]))
        if tree.size in sizes:
            note = sign_tree_head(
                origin=scene.vkey.partition("+")[0],
                size=tree.size,
                root=tree.root(),
                key=key,  # type: ignore[arg-type]
            )
            heads.append((tree.size, note, b"".join(tree.edge)))
    return heads


@threat("bytes added after an entry's end")
def trailing(scene: Scene) -> int:
    with tables(scene) as t:
        t.entries[AT] = (*t.entries[AT][:4], t.entries[AT][4] + b"\0")
    return AT


@threat("an entry of 20 MB")
def oversized(scene: Scene) -> int:
    with tables_of(scene.ledger) as c:
        c.execute("UPDATE entries SET entry = ? WHERE idx = ?", (bytes(20_000_000), AT))
    return AT


@threat("an entry deleted")
def delete(scene: Scene) -> int:
    with tables(scene) as t:
        del t.entries[AT]
    return AT


@threat("... and the rows after it renumbered")
def delete_and_renumber(scene: Scene) -> int:
    with tables(scene) as t:
        del t.entries[AT]
        t.renumber()
    return AT


@threat("... and indexes and links within the entries recomputed", vague=True)
def delete_and_relink(scene: Scene) -> int:
    with tables(scene) as t:
        del t.entries[AT]
        t.relink(AT)
    return AT


@threat("a forged entry inserted with valid links, the rest renumbered")
def insert(scene: Scene) -> int:
    with tables(scene) as t:
        t.entries.insert(
            AT,
            changed(
                t.entries[AT],
                index=AT,
                stream_id=UUID(int=99),
                stream_version=1,
                body=b"forged",
                previous=entry_hash(t.entries[AT - 1][4]),
            ),
        )
        t.renumber()
    return AT


@threat("an entry copied to another place")
def copy_entry(scene: Scene) -> int:
    with tables(scene) as t:
        _, stream, _, name, data = t.entries[AT - 7]
        t.entries.insert(AT, (AT, stream, 5_000, name, data))
        t.renumber()
    return AT


@threat("two entries swapped")
def swap(scene: Scene) -> int:
    with tables(scene) as t:
        t.entries[AT], t.entries[AT + 9] = t.entries[AT + 9], t.entries[AT]
        t.renumber()
    return AT


@threat("a run of entries moved")
def reorder(scene: Scene) -> int:
    with tables(scene) as t:
        t.entries[AT : AT + 6] = [*t.entries[AT + 3 : AT + 6], *t.entries[AT : AT + 3]]
        t.renumber()
    return AT


@threat("an entry before the first")
def below(scene: Scene) -> int:
    with tables(scene) as t:
        t.entries.append((-1, *t.entries[0][1:2], 77, *t.entries[0][3:]))
    return -1


@threat("entries appended after the last tree head")
def beyond(scene: Scene) -> int:
    with tables(scene) as t:
        last = t.entries[-1]
        version = max(row[2] for row in t.entries if row[1] == last[1]) + 1
        t.entries.append(
            changed(
                last,
                index=len(t.entries),
                stream_version=version,
                previous=entry_hash(last[4]),
            )
        )
        return len(t.entries) - 1


@threat("the last entries deleted")
def cut(scene: Scene) -> int:
    with tables(scene) as t:
        t.entries = t.entries[:-3]
        return len(t.entries)


@threat("truncated to an earlier tree head, newer heads deleted")
def cut_back(scene: Scene) -> int:
    with tables(scene) as t:
        t.heads = t.heads[:-1]
        t.entries = t.entries[: t.heads[-1][0]]
        return len(t.entries)


@threat("all entries and tree heads deleted")
def empty(scene: Scene) -> None:
    with tables(scene) as t:
        t.entries, t.heads = [], []


@threat("the entries of another ledger appended")
def splice_behind(scene: Scene) -> int:
    other = rows_of(scene.other)
    with tables(scene) as t:
        size = len(t.entries)
        t.entries += [(size + n, *row[1:]) for n, row in enumerate(other.entries[5:])]
        return size


@threat(
    "continued from the middle with the entries of another ledger, and its tree heads",
    vague=True,  # at the seam there is no telling which side is the false one
)
def splice(scene: Scene) -> int:
    other = rows_of(scene.other)
    with tables(scene) as t:
        t.entries = t.entries[:AT] + other.entries[AT:]
        t.heads = [h for h in t.heads if h[0] <= AT] + [h for h in other.heads if h[0] > AT]
    return AT


@threat("an old database restored")
def put_back(scene: Scene) -> None:
    exchange_tables(scene.earlier, scene.ledger)


@threat("the database replaced by another ledger's")
def exchange_database(scene: Scene) -> None:
    exchange_tables(scene.other, scene.ledger)


@threat("replaced by another ledger, with its vkey and private key")
def exchange_all(scene: Scene) -> None:
    shutil.rmtree(scene.ledger)
    copy_ledger(scene.other, scene.ledger)


@threat("the database deleted")
def delete_database(scene: Scene) -> None:
    scene.database.unlink()


_VKEY = "a verifier with a vkey of its own ignores the one next to the ledger"


@threat("the vkey replaced", harmless=_VKEY)
def exchange_vkey(scene: Scene) -> None:
    shutil.copy(LedgerPaths(scene.other).vkey, LedgerPaths(scene.ledger).vkey)


@threat("the vkey deleted", harmless=_VKEY)
def delete_vkey(scene: Scene) -> None:
    LedgerPaths(scene.ledger).vkey.unlink()


_KEY = "a private key signs future entries; recorded entries do not change"


@threat("the private key replaced", harmless=_KEY)
def exchange_key(scene: Scene) -> None:
    shutil.copy(LedgerPaths(scene.other).key, LedgerPaths(scene.ledger).key)


@threat("the private key made readable for others", harmless=_KEY)
def open_key(scene: Scene) -> None:
    LedgerPaths(scene.ledger).key.chmod(0o644)


@threat("meta: another vkey, and beside the database too")
def meta_vkey(scene: Scene) -> None:
    own = vkey(scene.vkey.partition("+")[0], public_bytes(STRANGER))
    run(scene, f"UPDATE meta SET value = '{own}' WHERE key = 'vkey'")
    LedgerPaths(scene.ledger).vkey.write_text(f"{own}\n")
    LedgerPaths(scene.ledger).key.unlink()
    create_exclusively(
        LedgerPaths(scene.ledger).key, (scene.root / "old.pem").read_bytes(), mode=0o600
    )


@threat("meta: another origin")
def meta_origin(scene: Scene) -> None:
    run(scene, "UPDATE meta SET value = 'proctor.local/other' WHERE key = 'origin'")


@threat("meta: a row added")
def meta_row(scene: Scene) -> None:
    run(scene, "INSERT INTO meta VALUES ('trust', 'me')")


@threat("the column `name` changed")
def column_name(scene: Scene) -> int:
    run(scene, f"UPDATE entries SET name = 'test.other' WHERE idx = {AT}")
    return AT


@threat("the column `name` not UTF-8")
def column_text(scene: Scene) -> int:
    run(scene, f"UPDATE entries SET name = CAST(X'FF' AS TEXT) WHERE idx = {AT}")
    return AT


@threat("the columns `stream_id` or `stream_version` changed (positions in streams)")
def column_stream(scene: Scene) -> int:
    run(scene, f"UPDATE entries SET stream_version = 5000 WHERE idx = {AT}")
    with tables_of(scene.ledger) as c:
        c.execute("UPDATE entries SET stream_id = ? WHERE idx = ?", (bytes(16), AT + 1))
    return AT


@threat("the column `idx` changed (position in the ledger)")
def column_idx(scene: Scene) -> int:
    run(scene, f"UPDATE entries SET idx = 5000 WHERE idx = {AT}")
    return AT


@threat(
    "an inner tree head deleted",
    harmless="the next head covers the same entries; only the statement about the earlier size is "
    "lost, and two batches look like one",
)
def head_deleted(scene: Scene) -> None:
    with tables(scene) as t:
        del t.heads[3]


@threat("the last tree head deleted")
def last_head_deleted(scene: Scene) -> int:
    with tables(scene) as t:
        t.heads.pop()
        return t.heads[-1][0]


@threat("a tree head signed by another key")
def head_forged(scene: Scene) -> int:
    with tables(scene) as t:
        forged = heads_by(STRANGER, t.entries, [t.heads[-1][0]], scene=scene)
        t.heads[-1:] = forged
        return len(t.entries) - 1


@threat("a tree head's text edited")
def head_edited(scene: Scene) -> int:
    with tables(scene) as t:
        size, note, edge = t.heads[-1]
        t.heads[-1] = (size, note.replace(f"\n{size}\n", f"\n{size - 1}\n"), edge)
        return size - 1


@threat("two tree heads swapped")
def heads_swapped(scene: Scene) -> int:
    with tables(scene) as t:
        (a, note_a, edge_a), (b, note_b, edge_b) = t.heads[4:6]
        t.heads[4:6] = [(a, note_b, edge_b), (b, note_a, edge_a)]
        return a - 1


@threat("a tree head's `edge` changed")
def head_edge(scene: Scene) -> int:
    with tables(scene) as t:
        size, note, edge = t.heads[-1]
        t.heads[-1] = (size, note, bytes(len(edge)))
        return size - 1


@threat("a tree head of size 0 added")
def head_zero(scene: Scene) -> None:
    with tables(scene) as t:
        t.heads.insert(0, (0, t.heads[0][1], b""))


@threat("a tree head of another ledger added beyond the end")
def head_beyond(scene: Scene) -> int:
    other = rows_of(scene.other)
    with tables(scene) as t:
        t.heads.append(other.heads[-1])
        return len(t.entries)


@threat(
    "cosignatures removed from the newest tree head",
    harmless="the newest cosignatures are missing; earlier cosignatures and the kept head still "
    "bind the ledger",
)
def cosignatures_removed(scene: Scene) -> None:
    with tables(scene) as t:
        size, note, edge = t.heads[-1]
        text, _, lines = note.rpartition("\n\n")
        own = lines.splitlines(keepends=True)[0]
        t.heads[-1] = (size, f"{text}\n\n{own}", edge)


@threat(
    "a cosignature forged in a witness's name",
    harmless="nothing in the ledger depends on it; a verifier that counts cosignatures verifies "
    "them",
)
def cosignature_forged(scene: Scene) -> None:
    with tables(scene) as t:
        size, note, edge = t.heads[-1]
        text, _, lines = note.rpartition("\n\n")
        name = next(iter(WITNESSES))
        forged = sign_cosignature(f"{text}\n", name=name, key=STRANGER, seconds=1)
        right = next(line for line in lines.splitlines() if name in line).split(" ")[2]
        wrong = forged.split(" ")[2].strip()
        t.heads[-1] = (size, note.replace(right, right[:8] + wrong[8:]), edge)


@threat(
    "a cosignature moved from another tree head",
    harmless="nothing in the ledger depends on it; a verifier that counts cosignatures verifies "
    "them",
)
def cosignature_moved(scene: Scene) -> None:
    with tables(scene) as t:
        size, note, edge = t.heads[-1]
        donor = next(h[1] for h in t.heads if next(iter(WITNESSES)) in h[1] and h[0] != size)
        own = note.rpartition("\n\n")[2].splitlines(keepends=True)[0]
        moved = [line for line in donor.splitlines(keepends=True) if "witness-" in line]
        text = note.rpartition("\n\n")[0]
        t.heads[-1] = (size, f"{text}\n\n{own}{''.join(moved)}", edge)


@threat("a second signature line in the ledger's name")
def second_line(scene: Scene) -> int:
    with tables(scene) as t:
        size, note, edge = t.heads[-1]
        own = note.rpartition("\n\n")[2].splitlines(keepends=True)[0]
        t.heads[-1] = (size, note + own, edge)
        return size - 1


@threat("a table of snapshots added")
def add_table(scene: Scene) -> None:
    run(scene, "CREATE TABLE snapshots (stream_id TEXT, state TEXT)")


@threat("a trigger added that deletes what is appended")
def add_trigger(scene: Scene) -> None:
    if on_server():
        run(
            scene,
            "CREATE OR REPLACE FUNCTION public.quiet() RETURNS trigger LANGUAGE plpgsql AS "
            "'BEGIN RETURN NULL; END'",
            "CREATE TRIGGER quiet BEFORE INSERT ON entries EXECUTE FUNCTION public.quiet()",
        )
        return
    run(
        scene,
        "CREATE TRIGGER quiet AFTER INSERT ON entries BEGIN "
        "DELETE FROM entries WHERE idx = NEW.idx; END",
    )


@threat("a table replaced by a view of it")
def add_view(scene: Scene) -> None:
    run(
        scene,
        "ALTER TABLE entries RENAME TO real_entries",
        f"CREATE VIEW entries AS SELECT * FROM real_entries WHERE idx < {AT}",
    )


@threat("application id or schema version changed")
def pragma(scene: Scene) -> None:
    run(
        scene,
        "COMMENT ON TABLE meta IS 'version 2'" if on_server() else "PRAGMA user_version = 2",
    )


def page_of(scene: Scene, name: str) -> tuple[int, int]:
    """Return offset and size of a table's or index's root page."""
    with closing(sqlite3.connect(scene.database)) as c:
        c.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (size,) = c.execute("PRAGMA page_size").fetchone()
        (root,) = c.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (name,)).fetchone()
    return (root - 1) * size, size


def patch(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


@threat("a byte of the schema's text overwritten, so that it is not UTF-8")
def schema_text(scene: Scene) -> None:
    at = scene.database.read_bytes().index(b"CREATE TABLE tree_heads (size INTEGER")
    patch(scene.database, at + len("CREATE TABLE tree_heads (size INTEG"), b"\x9e")


@threat("a schema without end, of pages that lead in circles")
def endless_schema(scene: Scene) -> None:
    repeat_first_row(scene.database, "sqlite_schema")


@threat("a table `meta` without end, of pages that lead in circles")
def endless_meta(scene: Scene) -> None:
    repeat_first_row(scene.database, "meta")


@threat("the SQLite header overwritten")
def header(scene: Scene) -> None:
    patch(scene.database, 0, b"SQLite format 4\0")


@threat("a page of the entries overwritten")
def page_overwritten(scene: Scene) -> None:
    at, size = page_of(scene, "entries")
    patch(scene.database, at, bytes(size))


@threat(
    "a page of an SQLite index overwritten",
    harmless="verification, and reading a verified ledger, use no index",
)
def index_overwritten(scene: Scene) -> None:
    at, size = page_of(scene, "sqlite_autoindex_entries_1")
    patch(scene.database, at + 8, b"\xa5" * (size - 8))


@threat(
    "rows hidden from look-ups by a changed key in an inner page",
    harmless="verification, and reading verified entries, go through all rows",
)
def inner_page(scene: Scene) -> None:
    at, _ = page_of(scene, "entries")
    data = scene.database.read_bytes()
    assert data[at] == 5  # an inner page; its last cell: u32 child, varint of the largest key
    cell = at + int.from_bytes(data[at + 5 : at + 7], "big")
    patch(scene.database, cell + 4, bytes([data[cell + 4] - 3]))


@threat("the file cut in half")
def half(scene: Scene) -> None:
    os.truncate(scene.database, scene.database.stat().st_size // 2)


def lay_out_wal(scene: Scene) -> Path:
    """Put the ledger as it was on disk while its newest half was in the log only."""
    log = scene.database.with_name("ledger.sqlite-wal")
    for name in ("ledger.sqlite", "ledger.sqlite-wal"):
        shutil.copy(scene.root / "open" / name, scene.ledger / name)
    return log


@threat("the write-ahead log deleted while it held the newest entries")
def wal_deleted(scene: Scene) -> None:
    lay_out_wal(scene).unlink()


@threat("the write-ahead log cut between two commits")
def wal_cut(scene: Scene) -> None:
    log = lay_out_wal(scene)
    os.truncate(log, log.stat().st_size // 2)


@threat("a byte of the write-ahead log changed")
def wal_flipped(scene: Scene) -> None:
    log = lay_out_wal(scene)
    middle = log.stat().st_size // 2
    patch(log, middle, bytes([log.read_bytes()[middle] ^ 1]))


@threat("another ledger's write-ahead log")
def wal_exchanged(scene: Scene) -> None:
    log = lay_out_wal(scene)
    shutil.copy(scene.root / "open-other" / log.name, log)


@threat(
    "shared memory (`-shm`) overwritten",
    harmless="SQLite recreates it when the first process opens the file",
)
def shm(scene: Scene) -> None:
    lay_out_wal(scene)
    scene.database.with_name("ledger.sqlite-shm").write_bytes(b"\xa5" * 32_768)


@threat("a rollback journal added, which SQLite would replay")
def hot_journal(scene: Scene) -> None:
    path = scene.root / scene.database.name
    shutil.copy(LedgerPaths(scene.earlier).database, path)
    run(scene, "PRAGMA journal_mode = DELETE")
    with closing(sqlite3.connect(path, isolation_level=None)) as c:
        c.execute("PRAGMA journal_mode = DELETE")
        c.execute("PRAGMA cache_size = 1")  # so that the journal is complete before the commit
        c.execute("BEGIN")
        c.execute("UPDATE entries SET name = name || name, entry = CAST(entry || entry AS BLOB)")
        c.execute("UPDATE tree_heads SET note = note || note")
        shutil.copy(f"{path}-journal", scene.ledger)
        c.execute("ROLLBACK")


@threat("a rollback journal added that names a file elsewhere, which SQLite would delete")
def journal_that_deletes(scene: Scene) -> None:
    lay_out_journal(scene.database, scene.root / "precious")


def lay_out_journal(database: Path, victim: Path) -> None:
    """Put a journal of no pages beside a database, of a transaction that another file led."""
    magic, page, name = bytes.fromhex("d9d505f920a163d7"), 4096, os.fsencode(victim)
    pages = database.stat().st_size // page
    header = magic + struct.pack(">5I", 0, 0, pages, 512, page)
    leader = struct.pack(">I", 2**30 // page + 1) + name
    leader += struct.pack(">II", len(name), sum(name)) + magic
    victim.write_text("precious")
    database.with_name(f"{database.name}-journal").write_bytes(header.ljust(512, b"\0") + leader)
