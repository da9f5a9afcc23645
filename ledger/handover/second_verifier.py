#!/usr/bin/env python3
"""A verifier in one file: is this what the holder of a ledger's key has signed?

    python verify.py TARGET --vkey KEY [--head FILE] [--witness VKEY]...

TARGET is a bundle's folder, a `*.tlog-proof` or `*.lineage` file, or a `ledger.sqlite`. KEY is the
ledger's vkey, or a file that holds it: have it from its owner, not from the target. Prints one
line, "held: ..." or "failed: ...", and exits with 0 (held), 1 (failed) or 2 (wrong usage).

Source: docs/reference/ledger-format.md and lineage.md, whose sections the comments name, and the
C2SP, DSSE and RFC 6962 texts that they cite; written from those alone. It shares no code with the
ledger, in either direction: a fault has to be made twice to go unseen. Needs: `cryptography`.
Trust: every byte of TARGET is hostile.  Memory: does not grow with the entries, only with the keys.
Not covered: what bodies mean, beyond a lineage's links; which entries a revocation makes suspect;
in proof and lineage, whether a key was still in force (that takes the whole ledger).
"""

import argparse
import base64
import hashlib
import heapq
import json
import os
import re
import shutil
import sqlite3
import stat
import struct
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from io import BufferedReader
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256

P256 = bytes.fromhex(
    "3059301306072a8648ce3d020106082a8648ce3d030107034200"
)  # "Keys", before a point
Verify = Callable[[bytes, bytes], None]  # of a signature and a message: raises if it is invalid
LIMIT = 1 << 63  # integers stay below
NOTE_LIMIT = 100_000  # characters
PROOF_LIMIT = 1_000_000  # characters; each rotation takes some 1,000
LINEAGE_LIMIT = 4_000_000  # characters
LINES = uuid.UUID("5b0c4f0e-6f0a-5d8c-9a1e-4a0b0d1f2c3e")  # lineage.md, "Links", 4
SHOWN = {"cites", "direction", "event_type", "justification", "params"}  # the same, 8
NEUTRAL = "The rule is due."  # the same: the words of both answers of a pair


class Failed(Exception):  # noqa: N818 - it is the verdict
    """The target is not what it should be; `index` is the first bad entry's, where one is known."""

    def __init__(self, reason: object, index: int | None = None) -> None:
        super().__init__(reason)
        self.index = index


class Usage(Exception):  # noqa: N818 - as above
    """What the user gave cannot be read; it says nothing about the target."""


def need(holds: object, reason: str, index: int | None = None) -> None:
    """Go on only if it holds."""
    if not holds:
        raise Failed(reason, index)


@contextmanager
def at(index: int | None, what: str = "") -> Iterator[None]:
    """Say where it was, of a failure that does not know; bad UTF-8 is one too."""
    try:
        yield
    except UnicodeError as error:
        raise Failed(f"{what}text is not UTF-8", index) from error
    except Failed as error:
        raise Failed(f"{what}{error}", index if error.index is None else error.index) from error


def sha256(data: bytes) -> bytes:
    """Hash."""
    return hashlib.sha256(data).digest()


class Reader:
    """Takes bytes from the left, and never more than there are."""

    def __init__(self, raw: bytes) -> None:
        self.raw, self.place = raw, 0

    def take(self, size: int) -> bytes:
        """Take so many bytes."""
        self.place += size
        need(self.place <= len(self.raw), "it ends early")
        return self.raw[self.place - size : self.place]

    def sized(self, width: int) -> bytes:
        """Take a length of this width, and so many bytes."""
        return self.take(int.from_bytes(self.take(width)))

    def end(self) -> None:
        """Refuse trailing bytes."""
        need(self.place == len(self.raw), "it has trailing bytes")


# --- "Conventions", signed-note, tlog-checkpoint: base64, verifier keys, notes, tree heads --------


def unbase64(text: str) -> bytes:
    """Decode the one spelling that base64 has for some bytes."""
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise Failed("base64 is damaged") from error
    need(base64.b64encode(raw).decode() == text, "base64 has a second spelling")
    return raw


def number(text: str) -> int:
    """Read a decimal below 2^63, without leading zeroes."""
    plain = re.fullmatch("0|[1-9][0-9]{0,18}", text) and int(text) < LIMIT
    need(plain, "a number is not a plain decimal below 2^63")
    return int(text)


def check_name(name: str) -> None:
    """Refuse what is no key name."""
    bad = not name or "+" in name or any(c.isspace() or c < " " for c in name)
    need(not bad, "a key name is empty or has spaces, plus or control characters")


def load_p256(public: bytes) -> Verify:
    """Read a key of ECDSA over P-256, in DER."""
    need(public[:26] == P256 and public[26] == 4, "a vkey's key is not of P-256")
    key = EllipticCurvePublicKey.from_encoded_point(SECP256R1(), public[26:])
    return lambda signature, message: key.verify(signature, message, ECDSA(SHA256()))


def load_ed25519(public: bytes) -> Verify:
    """Read a key of Ed25519."""
    return Ed25519PublicKey.from_public_bytes(public).verify


AUTHOR = {1: (32, load_ed25519)}
KINDS = {  # "Keys": who has vkeys of which types, the length of their keys, and what reads these
    "ledger": AUTHOR,
    "operator": AUTHOR,
    "judge": AUTHOR,
    "publisher": {2: (91, load_p256)},
    "witness": {4: (32, load_ed25519)},
}


class Key(NamedTuple):
    """A verifier key: `<name>+<key id>+base64(type || public key)`."""

    vkey: str
    name: str
    public: bytes
    key_id: bytes  # 4 bytes
    load: Callable[[bytes], Verify]

    def holds(self, signature: bytes, message: bytes) -> bool:
        """Tell whether this key has signed the message."""
        try:
            self.load(self.public)(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


def parse_key(vkey: str, role: str) -> Key:
    """Read a vkey of a type that its role may have."""
    name, _, rest = vkey.partition("+")
    digits, _, encoded = rest.partition("+")
    raw = unbase64(encoded)
    kind, public = raw[:1], raw[1:]
    check_name(name)
    size, load = KINDS[role].get(int.from_bytes(kind), (-1, load_ed25519))
    need(len(public) == size, "a vkey is not of a type that its role has")
    try:
        load(public)
    except ValueError as error:
        raise Failed("a vkey's key is no point of its curve") from error
    named = kind != b"\x02"  # signed-note, "Signature types"
    key_id = sha256(name.encode() + b"\n" + raw if named else public)[:4]
    need(digits == key_id.hex(), "a vkey's key id does not fit its key")
    return Key(vkey, name, public, key_id, load)


class Note(NamedTuple):
    """A signed note: the text, and who says to have signed it."""

    text: str  # ends with a newline
    lines: list[tuple[str, bytes]]  # key name, key id || signature

    def by(self, key: Key) -> list[bytes]:
        """Give the signatures that claim to be this key's."""
        return [raw[4:] for name, raw in self.lines if (name, raw[:4]) == (key.name, key.key_id)]

    def signed_once(self, key: Key) -> bool:
        """Tell whether exactly one line claims to be this key's, and holds."""
        claims = self.by(key)
        return len(claims) == 1 and key.holds(claims[0], self.text.encode())


def parse_note(text: str) -> Note:
    """Split a note at its last empty line."""
    need(len(text) <= NOTE_LIMIT, "a note is too long")
    need(not any(c < " " and c != "\n" for c in text), "a note has control characters")
    body, gap, rest = text.rpartition("\n\n")
    need(gap and rest.endswith("\n"), "a note has no signature lines, or no newline at its end")
    lines = rest[:-1].split("\n")
    need(len(lines) <= 16, "a note has more than 16 signature lines")
    signatures = []
    for line in lines:
        parts = line.split(" ")
        need(len(parts) == 3 and parts[0] == "\u2014", "a signature line has another form")
        check_name(parts[1])
        signatures.append((parts[1], unbase64(parts[2])))
        need(len(signatures[-1][1]) > 4, "a signature is too short")
    return Note(body + "\n", signatures)


class Head(NamedTuple):
    """A tree head: so many entries, and their root. Says nothing until its signature is checked."""

    note: Note
    origin: str
    size: int
    root: bytes
    edge: bytes | None = None  # the database's column

    def check(self, key: Key) -> None:
        """Check that the ledger's key in force has signed it, once (section "Tree head")."""
        need(self.origin == key.name, "a tree head has another origin", self.last)
        signed = self.note.signed_once(key)
        need(signed, "a tree head is not signed, once, by the key in force", self.last)

    @property
    def last(self) -> int:
        """The index of the last entry that it covers."""
        return max(self.size - 1, 0)


def parse_head(text: str, edge: bytes | None = None) -> Head:
    """Read a tree head's three lines."""
    note = parse_note(text)
    lines = note.text.split("\n")
    need(len(lines) == 4, "a tree head has not exactly three lines")
    root = unbase64(lines[2])
    need(len(root) == 32, "a root has not 32 bytes")
    return Head(note, lines[0], number(lines[1]), root, edge)


# --- "Hashes": RFC 6962, section 2.1 --------------------------------------------------------------


def leaf_hash(raw: bytes) -> bytes:
    """Hash an entry."""
    return sha256(b"\x00" + raw)


class Tree:
    """The roots of the perfect subtrees so far, largest first, and the tiles if there are any."""

    def __init__(self, tiles: "Tiles | None" = None) -> None:
        self.size, self.edge, self.tiles = 0, list[bytes](), tiles

    def append(self, node: bytes) -> None:
        """Add a leaf hash."""
        height = 0
        if self.tiles:
            self.tiles.put(0, node)
        while self.size >> height & 1:
            node, height = sha256(b"\x01" + self.edge.pop() + node), height + 1
            if self.tiles and height % 8 == 0:
                self.tiles.put(height // 8, node)
        self.edge.append(node)
        self.size += 1

    @property
    def root(self) -> bytes:
        """The edge folded from the right."""
        root = self.edge[-1] if self.edge else sha256(b"")
        for left in self.edge[-2::-1]:
            root = sha256(b"\x01" + left + root)
        return root


def roots_of_proof(node: bytes, place: int, size: int, proof: list[bytes]) -> list[bytes]:
    """Fold an inclusion proof (section 2.1.1) from the leaf up; give the root of the tree.

    Before it come the roots that the tree had before the leaf (of none: empty) and with it: those
    of the left siblings.
    """
    last, before = size - 1, b""  # the last place in the row of the tree in which the node is
    upto = root = node
    for other in proof:
        need(last, "the inclusion proof is too long")
        while place == last and not place & 1:  # no sibling in this row: it moves up as it is
            place, last = place >> 1, last >> 1
        if place & 1:
            before = sha256(b"\x01" + other + before) if before else other
            upto, root = sha256(b"\x01" + other + upto), sha256(b"\x01" + other + root)
        else:
            root = sha256(b"\x01" + root + other)
        place, last = place >> 1, last >> 1
    need(not last, "the inclusion proof is too short")
    return [before, upto, root]


# --- "Entry" and "Author" -------------------------------------------------------------------------


class Entry(NamedTuple):
    """An entry's fields; `author` is (role, key id, signature, end of the statement) or None."""

    stream: bytes
    version: int
    time: int
    previous: bytes
    author: tuple[str, bytes, bytes, bytes] | None
    name: str
    body: bytes


def parse_entry(raw: bytes, index: int) -> Entry:
    """Read one entry's bytes, to the last."""
    need(len(raw) <= 65_535, "it is too long")
    reader = Reader(raw)
    form, said, stream, version, time, previous = struct.unpack(">BQ16sQQ32s", reader.take(73))
    author, name, body = (reader.sized(width) for width in (1, 1, 2))
    reader.end()
    need((form, said) == (1, index), f"it states format {form}, index {said}")
    need(version < LIMIT and time < LIMIT, "a version or time is 2^63 or more")
    need(name, "it has no name")
    signed = None
    if author:
        reader = Reader(author)
        role, key_id, signature = reader.sized(1), reader.take(32), reader.take(64)
        reader.end()
        need(1 <= len(role) <= 64, "the author's role has not 1 to 64 bytes")
        what = bytes([len(role)]) + role + bytes([len(name)]) + name + sha256(body)
        signed = (role.decode(), key_id, signature, stream + version.to_bytes(8) + what)
    return Entry(stream, version, time, previous, signed, name.decode(), body)


# --- "Keys", "Rotation": what the authority stream says -------------------------------------------

AUTHORITY: dict[str, dict[str, type]] = {  # the four events' bodies
    "key.granted": {"v": int, "role": str, "vkey": str},
    "key.revoked": {"v": int, "role": str, "vkey": str, "since": int, "reason": str},
    "key.rotated": {"v": int, "note": str},
    "clock.jumped": {"v": int, "by": int, "clock": int},
}


def parse_value(reader: Reader, depth: int = 1) -> Any:
    """Read any value that a body may hold, in msgpack's shortest form."""
    need(depth <= 33, "a body is nested too deeply")
    kind = reader.take(1)[0]
    if kind <= 0x7F or kind >= 0xE0:  # the byte is the value: 0 to 127, -32 to -1
        return (kind + 32) % 256 - 32
    if kind in (0xC0, 0xC2, 0xC3):
        return None if kind == 0xC0 else kind == 0xC3
    if kind == 0xCB:
        return struct.unpack(">d", reader.take(8))[0]
    if 0xA0 <= kind <= 0xBF:
        return reader.take(kind - 0xA0).decode()
    if kind in (0xC4, 0xC5, 0xD9, 0xDA):  # bytes and texts, of a length of 1 or 2 bytes
        raw = reader.sized(1 if kind in (0xC4, 0xD9) else 2)
        least = {0xC4: 0, 0xD9: 32}.get(kind, 256)
        need(len(raw) >= least, "a length is in too long a form")
        return raw if kind < 0xD0 else raw.decode()
    if 0xCC <= kind <= 0xD3:
        width, signed = 1 << (kind & 3), kind >= 0xD0  # 1, 2, 4 or 8 bytes
        value = int.from_bytes(reader.take(width), signed=signed)
        least = -32 if width == 1 else -(1 << (4 * width - 1))  # what the next shorter forms hold
        most = 127 if width == 1 else (1 << (4 * width)) - 1
        need(value < least if signed else value > most, "an integer is in too long a form")
        return value
    need(kind < 0xA0 or kind in (0xDC, 0xDE), "a value is of a type that no body has")
    count = kind & 15 if kind < 0xA0 else int.from_bytes(reader.take(2))
    need(kind < 0xA0 or count > 15, "a count is in too long a form")
    if 0x90 <= kind <= 0x9F or kind == 0xDC:
        return [parse_value(reader, depth + 1) for _ in range(count)]
    fields = dict[str, Any]()
    for _ in range(count):
        key = parse_value(reader, depth + 1)
        need(type(key) is str and key not in fields, "a key is repeated or is not text")
        fields[key] = parse_value(reader, depth + 1)
    return fields


def parse_body(raw: bytes) -> dict[str, Any]:
    """Read a map, to the last byte."""
    reader = Reader(raw)
    body = parse_value(reader)
    reader.end()
    need(isinstance(body, dict), "the body is not a map")
    return dict(body)


@dataclass
class Revocation:
    """From `since` on a key is not to be trusted."""

    vkey: str
    index: int  # of the entry that says so
    since: int  # ns
    lifted: int = LIMIT  # the entry that granted the key again

    def reaches(self, size: int, seconds: int) -> bool:
        """Tell whether a witness's line is in doubt by it, under a head of this size."""
        after = size > self.index or (seconds + 1) * 10**9 > self.since
        return after and size <= self.lifted


class Keys:
    """Which keys stand for a ledger, followed entry by entry from the vkey that it began with."""

    def __init__(self, first: Key) -> None:
        self.ledger, self.revocations = first, list[Revocation]()
        self.ledgers = [first]  # all that were the ledger's
        self.stream = sha256(b"ledger/authority/v1\n" + first.name.encode())[:16]
        self.used = {first.public}  # a public key serves once
        self.held = {("ledger", first.vkey)}  # who may be revoked
        self.ended = set[tuple[str, str]]()  # who was, and was not granted again
        self.authors = {("ledger", sha256(first.public)): first}  # who is in force
        self.operated = False  # whether an operator was ever granted

    def apply(self, entry: Entry, index: int) -> None:
        """Check the entry's author, and take in what it says if it is an authority event."""
        role = None
        if entry.author:
            role, key_id, signature, place = entry.author
            statement = f"ledger/author/v2\n{self.ledger.name}\n".encode() + place
            key = self.authors.get((role, key_id))
            need(key and key.holds(signature, statement), "its author's signature is invalid")
        if entry.stream != self.stream or entry.name not in AUTHORITY:
            return
        body = parse_body(entry.body)
        types = {name: type(value) for name, value in body.items()}
        need(types == AUTHORITY[entry.name] and body["v"] == 1, "it has another body")
        if entry.name in ("key.rotated", "clock.jumped"):
            need(role is None, "it must not have an author")
        else:
            subject = (str(body["role"]), str(body["vkey"]))
            again = entry.name == "key.granted" and subject in self.held
            root = not self.operated or subject[0] == "operator" or again
            need(
                role == "operator" or (role == "ledger" and root),
                "its author is not allowed to write it",
            )
        if entry.name == "key.rotated":
            self.rotate(str(body["note"]))
        elif entry.name == "key.revoked":
            self.revoke(*subject, index, int(body["since"]))
        elif entry.name == "clock.jumped":
            whole = all(-LIMIT <= int(body[name]) < LIMIT for name in ("by", "clock"))
            need(whole, "the clock values are not possible")
        else:
            need(body["role"] in KINDS.keys() - {"ledger"}, "unknown role")
            if role == "ledger" and subject in self.ended:
                self.ended.remove(subject)
                self.used.remove(parse_key(subject[1], subject[0]).public)
                for revocation in self.revocations:
                    if revocation.vkey == subject[1]:
                        revocation.lifted = min(revocation.lifted, index)
            self.grant(*subject)

    def grant(self, role: str, vkey: str) -> Key:
        """Let a key that does not serve, and never did without being ended, stand for a role."""
        key = parse_key(vkey, role)
        need(key.public not in self.used, "the key was in use before")
        self.used.add(key.public)
        self.held.add((role, vkey))
        self.operated |= role == "operator"
        if role not in ("publisher", "witness"):  # which are no authors
            self.authors[role, sha256(key.public)] = key
        return key

    def revoke(self, role: str, vkey: str, index: int, since: int) -> None:
        """End a key's role as an author; a ledger key signs tree heads until it is rotated."""
        need((role, vkey) in self.held, "the revoked key was never granted")
        need(0 <= since < LIMIT, "the revocation has no valid time")
        self.authors.pop((role, sha256(parse_key(vkey, role).public)), None)
        self.ended.add((role, vkey))
        self.revocations.append(Revocation(vkey, index, since))

    def rotate(self, text: str) -> None:
        """Let a new key follow, if both keys have signed that."""
        note, old = parse_note(text), self.ledger
        lines = note.text.split("\n")
        need(len(lines) == 5 and lines[0] == "ledger/rotation/v1", "a rotation has other lines")
        new = parse_key(lines[3], "ledger")
        names = (old.name, old.vkey, old.name)
        need((lines[1], lines[2], new.name) == names, "a rotation is of another ledger or key")
        both = len(note.lines) == 2 and note.signed_once(old) and note.signed_once(new)
        need(both, "a rotation is not signed by the old and the new key alone")
        self.ledger = self.grant("ledger", new.vkey)
        self.ledgers.append(self.ledger)
        self.authors.pop(("ledger", sha256(old.public)), None)


# --- "Cosignature" --------------------------------------------------------------------------------


class Witnesses:
    """Looks for cosignatures of trusted witnesses, and for lines that only pretend to be some."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self.seen = {key: list[tuple[int, int]]() for key in keys}  # size, POSIX seconds
        self.false = {key: set[int]() for key in self.seen}  # sizes of heads with a bad line

    def look(self, head: Head) -> None:
        """Check each trusted witness's lines; one that does not hold is as none, and is told."""
        for key in self.seen:
            for line in head.note.by(key):
                seconds = int.from_bytes(line[:8])
                message = f"cosignature/v1\ntime {seconds}\n{head.note.text}".encode()
                if 0 < seconds < LIMIT and key.holds(line[8:], message):
                    self.seen[key].append((head.size, seconds))
                else:
                    self.false[key].add(head.size)

    def told(self, revocations: list[Revocation]) -> Iterator[str]:
        """Say of each witness the largest head that it cosigned, and when, if it counts."""
        for key, lines in self.seen.items():
            doubts = [each for each in revocations if each.vkey == key.vkey]
            good = [line for line in lines if not any(each.reaches(*line) for each in doubts)]
            size, seconds = max(good, key=lambda line: (line[0], -line[1]), default=(-1, 0))
            when = f"size {size} at {seconds} s" if good else "nothing valid"
            yield f"; {key.name} cosigned {when}"
            if self.false[key]:
                yield f", and a line in its name is invalid at size {max(self.false[key])}"


# --- The whole ledger: every entry in order, every tree head at its size --------------------------

NEXT_VERSION = """
    INSERT INTO streams SELECT :id, :at
    WHERE :at < 2 OR EXISTS (SELECT 1 FROM streams WHERE id = :id)
    ON CONFLICT (id) DO UPDATE SET version = excluded.version WHERE version = excluded.version - 1
"""


class Check:
    """Goes through a ledger once, beside its keys, its tree and the heads to come."""

    def __init__(self, keys: Keys, heads: Iterator[Head], seen: Witnesses, tree: Tree) -> None:
        self.keys, self.heads, self.seen, self.tree = keys, heads, seen, tree
        self.head, self.covered = next(heads, None), 0

    def run(self, entries: Iterator[bytes]) -> None:
        """Check form, links, time, stream versions, authors and heads."""
        streams = sqlite3.connect("", isolation_level=None)  # a file, once it outgrows its cache
        streams.execute("CREATE TABLE streams (id BLOB PRIMARY KEY, version INTEGER) WITHOUT ROWID")
        streams.execute("BEGIN")
        previous, time, before = bytes(32), 0, list[bytes]()
        self.check_heads(previous, entries)
        for index, raw in enumerate(entries):
            with at(index):
                entry = parse_entry(raw, index)
                if entry.previous != previous:
                    raise Failed("a hash link is broken", self.blame(index, raw, entries, before))
                need(entry.time >= time, "the time runs backwards")
                place = {"id": entry.stream, "at": entry.version}
                counts = streams.execute(NEXT_VERSION, place).rowcount == 1
                need(counts, "the stream's versions do not count up by one")
                self.keys.apply(entry, index)
            previous, time, before = leaf_hash(raw), entry.time, self.tree.edge[:]
            self.tree.append(previous)
            self.check_heads(previous, entries)
        need(not self.head, "a tree head covers more entries than there are", self.tree.size)
        if self.tree.tiles:
            self.tree.tiles.end()

    def check_heads(self, previous: bytes, entries: Iterator[bytes]) -> None:
        """Check the heads of this size."""
        while self.head and self.head.size <= self.tree.size:
            head, last = self.head, self.head.last
            need(head.size == self.tree.size, "tree heads are out of order", last)
            head.check(self.keys.ledger)
            if head.root != self.tree.root:  # by a forger who mended the links, if they go on
                first = self.covered if peek(entries) == previous else last
                raise Failed("the entries since the last tree head have another root", first)
            edge = head.edge in (None, b"".join(self.tree.edge))
            need(edge, "a tree head's edge is not the tree's", last)
            self.seen.look(head)
            self.head, self.covered = next(self.heads, None), head.size

    def blame(self, index: int, raw: bytes, entries: Iterator[bytes], before: list[bytes]) -> int:
        """Say which end of a broken link was touched: this entry, or the one before it.

        This one is intact if the next one links to it; where there is none, if the next head's root
        is right once this one's word is taken for the hash of the one before.
        """
        hashes, following = (raw[41:73], leaf_hash(raw)), peek(entries)
        if following or not index:
            return index - (following == hashes[1] and index > 0)
        tree = Tree()
        tree.size, tree.edge = index - 1, before
        for node in hashes:
            tree.append(node)
        return index - 1 if self.head and self.head.root == tree.root else index


def peek(entries: Iterator[bytes]) -> bytes | None:
    """Give what the next entry holds as the hash of the one before; for who is about to fail."""
    try:
        return next(entries)[41:73]
    except (Failed, StopIteration, sqlite3.Error):
        return None


# --- "Files", "Database" --------------------------------------------------------------------------

SCHEMA = {
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT",
    "CREATE TABLE entries (idx INTEGER PRIMARY KEY, stream_id BLOB NOT NULL,"
    " stream_version INTEGER NOT NULL, name TEXT NOT NULL, entry BLOB NOT NULL,"
    " UNIQUE (stream_id, stream_version)) STRICT",
    "CREATE TABLE tree_heads (size INTEGER PRIMARY KEY, note TEXT NOT NULL, edge BLOB NOT NULL)"
    " STRICT",
}


def open_database(path: Path) -> sqlite3.Connection:
    """Open one snapshot for reading, with everything off by which a schema could act."""
    journal = f"{os.path.realpath(path)}-journal"  # SQLite would obey it; a ledger has none
    need(not os.path.lexists(journal), "a rollback journal lies beside the database")
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1 << 20)  # bytes in a row
    db.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
    db.execute("PRAGMA trusted_schema = OFF")
    db.set_progress_handler(lambda: True, 100_000)  # pages in circles could hold a longer schema
    db.execute("BEGIN")
    db.execute("SELECT * FROM sqlite_schema").fetchone()  # takes the snapshot
    db.set_progress_handler(None, 0)
    return db


def check_schema(db: sqlite3.Connection, key: Key) -> None:
    """Accept the three tables, and nothing that computes: views, triggers, generated columns."""
    marks = [db.execute(f"PRAGMA {m}").fetchone()[0] for m in ("application_id", "user_version")]
    need(marks == [0x50524C31, 1], "this is not a ledger's database")
    sql = [row[0] for row in db.execute("SELECT sql FROM sqlite_schema WHERE sql NOT NULL LIMIT 4")]
    need(len(sql) == 3 and set(sql) == SCHEMA, "the database has another schema")
    meta = db.execute("SELECT key, value FROM meta NOT INDEXED LIMIT 3").fetchall()
    same = len(meta) == 2 and set(meta) == {("origin", key.name), ("vkey", key.vkey)}
    need(same, "meta names another ledger or key")


def read_entries(db: sqlite3.Connection) -> Iterator[bytes]:
    """Give the entries in order; refuse a row whose columns say anything else than its entry."""
    columns = "idx, stream_id, stream_version, name, entry"
    rows = db.execute(f"SELECT {columns} FROM entries NOT INDEXED ORDER BY idx")  # noqa: S608 - own
    for index, row in enumerate(rows):
        need(row[0] == index, "it is missing, or a row is out of place", min(row[0], 0) or index)
        types = [type(value) for value in row] == [int, bytes, int, str, bytes]
        need(types, "a column has a value of another type", index)
        with at(index):
            entry = parse_entry(row[4], index)
        same = row[1:4] == (entry.stream, entry.version, entry.name)
        need(same, "the columns do not repeat what the entry says", index)
        yield row[4]


def read_heads(db: sqlite3.Connection, covered: list[int]) -> Iterator[Head]:
    """Give the tree heads in order, and note what they cover."""
    for row in db.execute("SELECT size, note, edge FROM tree_heads NOT INDEXED ORDER BY size"):
        need([type(value) for value in row] == [int, str, bytes], "a tree head has other types")
        with at(max(row[0] - 1, 0), "a tree head: "):
            need(row[0] > covered[0], "its size is not larger than that of the tree head before it")
            head = parse_head(row[1], row[2])
            need(head.size == row[0], "it is stored under a different size")
        covered[0] = head.size
        yield head


def check_database(path: Path, keys: Keys, kept: list[Head], seen: Witnesses) -> Tree:
    """Check a ledger.sqlite, and what lies beside it."""
    for end in ("", "-wal", "-shm", "-journal"):  # SQLite would wait for a pipe
        beside = path.with_name(path.name + end)
        plain = beside.is_file() or not os.path.lexists(beside)
        need(plain, f"{beside.name!a} is not a regular file")
    with tempfile.TemporaryDirectory() as folder:
        try:
            db = open_database(path)
        except sqlite3.OperationalError:  # SQLite may not put its -shm there: take a copy
            for name in (path.name, f"{path.name}-wal"):
                if path.with_name(name).is_file():
                    shutil.copyfile(path.with_name(name), Path(folder, name))
            db = open_database(Path(folder, path.name))
        with closing(db):
            check_schema(db, keys.ledger)
            check_vkey(path.with_name("ledger.vkey"), keys.ledger, needed=False)
            covered, tree = [0], Tree()
            heads = heapq.merge(read_heads(db, covered), kept, key=lambda head: head.size)
            Check(keys, heads, seen, tree).run(read_entries(db))
    need(covered[0] == tree.size, "no tree head covers the last entries", covered[0])
    check_blobs(path.with_name("blobs").resolve())  # which may lie on another disk
    return tree


# --- "Bundle", tlog-tiles -------------------------------------------------------------------------


def open_file(path: Path) -> BufferedReader:
    """Open a regular file; never wait for a pipe or a device, never follow a link."""
    try:
        straight = path.resolve() == path
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
    except (OSError, ValueError, RuntimeError) as error:
        raise Failed(f"{path.name!a} is missing, or cannot be read") from error
    regular = straight and stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    need(regular, f"{path.name!a} is not a regular file, or lies behind a link")
    return file


def read_file(path: Path, limit: int) -> bytes:
    """Read a file that may have so many bytes."""
    with open_file(path) as file:
        data = file.read(limit + 1)
    need(len(data) <= limit, f"{path.name!a} is too large")
    return data


def names_in(folder: Path) -> list[str]:
    """Give the names in a folder, none if it is missing; never follow a link."""
    straight = folder.is_dir() and not folder.is_symlink()
    need(straight or not os.path.lexists(folder), f"{folder.name!a} is not a folder, or is a link")
    return sorted(path.name for path in folder.iterdir()) if straight else []


def tile_name(n: int, width: int) -> str:
    """Write a tile's index in groups of three digits, with its width if it is partial."""
    name = f"{n % 1000:03}"
    while n := n // 1000:
        name = f"x{n % 1000:03}/{name}"
    return name if width == 256 else f"{name}.p/{width}"


class Tiles:
    """Compares the hash tiles on disk with those that the entries make."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.rows = folder, list[tuple[int, list[bytes]]]()  # by level: index, hashes

    def put(self, level: int, node: bytes) -> None:
        """Take the next hash of a level."""
        if level == len(self.rows):
            self.rows.append((0, []))
        n, hashes = self.rows[level]
        hashes.append(node)
        if len(hashes) == 256:
            self.compare(level)
            self.rows[level] = (n + 1, [])

    def compare(self, level: int) -> None:
        """Compare one tile; the first hash that differs names the first entry under it."""
        n, hashes = self.rows[level]
        step = 1 << (8 * level)  # entries under a hash
        with at(n * 256 * step, f"tile {level}/{n}: "):
            found = read_file(self.folder / f"{level}" / tile_name(n, len(hashes)), 8192)
            for place, node in enumerate(hashes):
                same = found[32 * place : 32 * place + 32] == node
                need(same, "a hash is not that of the tree", (n * 256 + place) * step)
            need(len(found) == 32 * len(hashes), "it has trailing bytes")

    def end(self) -> None:
        """Compare the partial tiles at the right edge."""
        for level, (_, hashes) in enumerate(self.rows):
            if hashes:
                self.compare(level)


def read_bundles(folder: Path, size: int) -> Iterator[bytes]:
    """Give the entries of a tree of this size from its entry bundles."""
    for start in range(0, size, 256):
        width = min(256, size - start)
        with at(start, "entry bundle: "):
            path = folder / tile_name(start // 256, width)
            reader = Reader(read_file(path, 256 * (2 + 65_535)))
        for index in range(start, start + width):
            with at(index, "entry bundle: "):
                raw = reader.sized(2)
            yield raw
        with at(start + width - 1, "entry bundle: "):
            reader.end()


def check_bundle(folder: Path, keys: Keys, kept: list[Head], seen: Witnesses) -> Tree:
    """Check a bundle's folder."""
    check_vkey(folder / "ledger.vkey", keys.ledger, needed=True)
    with at(None, "checkpoint: "):
        newest = parse_head(read_file(folder / "checkpoint", 4 * NOTE_LIMIT).decode())
        need(newest.size, "a bundle of no entries has no tree head")
    older = folder / "checkpoints"
    sizes = sorted(int(n) for n in names_in(older) if re.fullmatch("[1-9][0-9]{0,18}", n))

    def read_heads() -> Iterator[Head]:
        for size in sizes:
            with at(max(size - 1, 0), "an earlier tree head: "):
                head = parse_head(read_file(older / f"{size}", 4 * NOTE_LIMIT).decode())
                need(head.size == size, "it is stored under a different size")
            yield head

    tree = Tree(Tiles(folder / "tile"))
    heads = heapq.merge(read_heads(), [newest], kept, key=lambda head: head.size)
    Check(keys, heads, seen, tree).run(read_bundles(folder / "tile" / "entries", newest.size))
    check_blobs(folder / "blobs")
    return tree


def check_vkey(path: Path, key: Key, *, needed: bool) -> None:
    """Refuse a vkey in the target that is not the one that the user holds."""
    if needed or os.path.lexists(path):
        same = read_file(path, NOTE_LIMIT) == f"{key.vkey}\n".encode()
        need(same, "the ledger.vkey in the target is another")


def blobs_in(folder: Path) -> Iterator[Path]:
    """Give what lies in the folders of blobs."""
    for digits in names_in(folder):
        for name in names_in(folder / digits) if re.fullmatch("[0-9a-f]{2}", digits) else []:
            yield folder / digits / name


def limit_blobs(folder: Path, most: int) -> None:
    """Refuse to read more bytes of blobs than the user wants: a file can be large and empty."""
    total = 0
    for path in blobs_in(folder):
        total += os.lstat(path).st_size
        if total > most:
            raise Usage(f"the blobs have more than {most} bytes; see --blob-bytes")


def check_blobs(folder: Path) -> None:
    """Check that each blob's SHA-256 is its name."""
    for path in blobs_in(folder):
        if re.fullmatch(f"{path.parent.name}[0-9a-f]{{62}}", path.name):
            with open_file(path) as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            need(digest == path.name, f"the blob {path.name} has other content")


# --- "Proofs", tlog-proof -------------------------------------------------------------------------


@dataclass(frozen=True)
class Proof:
    """A proof that holds."""

    index: int
    entry: Entry
    head: Head
    keys: Keys  # as the rotations in it leave them
    leaf: bytes
    earlier: list[bytes]  # roots of the tree before this entry, and with it


TITLE = "c2sp.org/tlog-proof@v1"


def read_proof(text: str, first: Key) -> Proof:
    """Check one entry's proof, but for the kept heads and witnesses."""
    need(len(text) <= PROOF_LIMIT, "a proof is too long")
    text, _, note = text.partition("\n\n")
    lines = text.split("\n")
    starts = (lines[0], *(line[:6] for line in lines[1:3]))
    known = starts == (TITLE, "extra ", "index ") and len(lines) <= 3 + 63
    need(known, "this is not a tlog-proof")
    head, index, proof = parse_head(note), number(lines[2][6:]), [unbase64(x) for x in lines[3:]]
    with at(index):
        keys = Keys(first)
        extra = Reader(unbase64(lines[1][6:]))
        raw = extra.sized(2)
        entry = parse_entry(raw, index)
        while extra.place < len(extra.raw):
            keys.rotate(extra.sized(2).decode())
        head.check(keys.ledger)
        earlier = check_inclusion(leaf_hash(raw), index, head.size, proof, head.root)
    return Proof(index, entry, head, keys, leaf_hash(raw), earlier)


def check_inclusion(
    leaf: bytes, index: int, size: int, proof: list[bytes], root: bytes
) -> list[bytes]:
    """Check that a leaf is under a root; give the roots of the tree before it, and with it."""
    need(index < size, "the tree head does not cover it")
    need(all(len(node) == 32 for node in proof), "the proof's hashes have not 32 bytes")
    *earlier, found = roots_of_proof(leaf, index, size, proof)
    need(found == root, "the entry is not under the tree head's root")
    return earlier


def look_at(head: Head, keys: Keys, kept: list[Head], seen: Witnesses) -> None:
    """Compare a proof's tree head with the kept ones, and look for cosignatures."""
    for other in kept:
        if other.size != head.size:
            raise Usage("a proof can be compared with a kept head of its own size only")
        other.check(keys.ledger)
        need(other.root == head.root, "the kept tree head has another root")
    seen.look(head)


def read_proofs(text: str, first: Key, most: int) -> list[Proof]:
    """Check proofs that lie one after the other, all under one tree head."""
    texts = text.removeprefix(f"{TITLE}\n").split(f"\n{TITLE}\n", most)
    need(text.startswith(f"{TITLE}\n"), "this is not a tlog-proof")
    need(len(texts) <= most, f"there are more than {most} proofs")
    texts = [f"{TITLE}\n{each}\n" for each in texts[:-1]] + [f"{TITLE}\n{texts[-1]}"]
    proofs = [read_proof(each, first) for each in texts]
    head, rotated = proofs[0].head, proofs[0].keys
    for before, after in pairwise(proofs):
        need(before.index < after.index, "it is out of order", after.index)
        one = after.head == head and after.keys.ledgers == rotated.ledgers
        need(one, "it is under another tree head", after.index)
    return proofs


def check_proofs(path: Path, keys: Keys, kept: list[Head], seen: Witnesses) -> tuple[str, Head]:
    """Check the proofs in a file; say which entries they are of, and give the tree head."""
    with at(None):
        proofs = read_proofs(read_file(path, 64 << 20).decode(), keys.ledger, 20_000)
    first = proofs[0]
    with at(first.index):
        look_at(first.head, first.keys, kept, seen)
    which = f"entry {first.index}" if len(proofs) == 1 else f"{len(proofs)}"
    return f"{which} of ", first.head


# --- "Lineages": docs/reference/curation.md, by the numbers of its links --------------------------


@dataclass(frozen=True)
class Found:
    """An entry with its body."""

    index: int
    entry: Entry
    body: dict[str, Any]


def same(found: Any, wanted: Any) -> bool:
    """Compare without taking 1 for true."""
    return type(found) is type(wanted) and found == wanted


class Story:
    """Follows an example through the proved entries, and notes which it has met."""

    def __init__(self, proofs: list[Proof], first: Key, form: str) -> None:
        self.keys, self.entries, self.met = Keys(first), list[Found](), set[int]()
        self.form = form  # the second has all audits of a run, the first one only
        self.origin, self.leaves = first.name, {proof.index: proof.leaf for proof in proofs}
        self.roots = {p.index + n: root for p in proofs for n, root in enumerate(p.earlier)}
        self.force = dict[int, list[tuple[str, Key]]]()  # authors' keys where an entry is
        due = 1
        for proof in proofs:
            with at(proof.index):
                body = parse_body(proof.entry.body)
                if proof.entry.stream == self.keys.stream:
                    need(proof.entry.version == due, f"event {due} of the keys is left out")
                    self.met.add(proof.index)
                    due += 1
                self.force[proof.index] = [(r, key) for (r, _), key in self.keys.authors.items()]
                self.keys.apply(proof.entry, proof.index)
            self.entries.append(Found(proof.index, proof.entry, body))
        need(self.keys.ledgers == proofs[0].keys.ledgers, "a rotation of the keys is left out")

    def trusted(self, found: Found, wanted: str) -> list[Key]:
        """Give the keys in force in a role at an entry, but for those revoked since before."""
        doubted = {
            each.vkey
            for each in self.keys.revocations
            if each.since <= found.entry.time and found.index <= each.lifted
        }
        keys = [key for role, key in self.force[found.index] if role == wanted]
        return [key for key in keys if key.vkey not in doubted]

    def all(
        self,
        name: str,
        *,
        stream: bytes = b"",
        after: int = -1,
        before: int = LIMIT,
        **fields: Any,
    ) -> list[Found]:
        """Give the entries of this name, in this stream if one is named, that say that."""
        return [
            each
            for each in self.entries
            if each.entry.name == name
            and (not stream or each.entry.stream == stream)
            and after < each.index < before
            and all(same(each.body.get(key), value) for key, value in fields.items())
        ]

    def meet(self, name: str, *, begins: bool = False, **wanted: Any) -> Found:
        """Give the last such entry; it belongs to the story."""
        found = self.all(name, **wanted)
        need(found, f"a link is missing: {name}")
        self.met.add(found[-1].index)
        begun = not begins or found[-1].entry.version == 1
        need(begun, f"{name} is not the first event of its stream", found[-1].index)
        return found[-1]

    def tell(self, parts: list[tuple[bytes, int]], shown: list[list[Any]]) -> tuple[str, int]:
        """Follow links 1 to 4 from each decision; say what the example rests on."""
        told = ""
        made = [self.meet("run.decision_made", stream=run, number=n) for run, n in parts]
        for first, answer in zip(made[: len(shown)], shown, strict=True):
            made += self.answer(first, answer, paired=len(parts) == 2)
        for run in dict.fromkeys(run for run, _ in parts):
            own = [each.index for each in made if each.entry.stream == run]
            start = self.meet("run.started", begins=True, stream=run, before=min(own))
            parent = start.body.get("parent_run")
            told += f"; run {hyphened(run)}"
            told += "" if parent is None else f" (it continues {parent!a}, which is not shown)"
            told += f", {self.audit(run, max(own))}: {self.checkpoint(start)}"
            if self.form == "2":
                self.verdict(run)
        return told, max(each.index for each in made)

    def answer(self, first: Found, answer: list[Any], *, paired: bool) -> list[Found]:
        """Find each decision that an answer shows; the first is the example's own."""
        found = [first]
        for place, said in enumerate(answer):
            after = found[-1].index if place else first.index - 1
            for each in self.all("run.decision_made", stream=first.entry.stream, after=after):
                body: dict[str, Any] = {name: each.body.get(name) for name in SHOWN}
                body["cites"] = sorted(map(str, body["cites"]))
                if body == said or (paired and {**body, "justification": NEUTRAL} == said):
                    found.append(each)
                    break
            else:
                raise Failed("the line shows a decision that is not recorded", first.index)
        need(
            found[1].index == first.index,
            "the line shows a decision that is not recorded",
            first.index,
        )
        self.met |= {each.index for each in found}
        return found

    def audit(self, run: bytes, newest: int) -> str:
        """Follow link 3; say whose word it is."""
        for audit in reversed(self.all("audit.started", run=hyphened(run))):
            body, stream = audit.body, audit.entry.stream
            config, seen = body.get("config"), audit.index
            size = [*str(body.get("tree_head")).split("\n"), ""][1]
            if re.fullmatch("0|[1-9][0-9]{0,17}", size):
                seen = min(seen, int(size))
            if not isinstance(config, dict) or config.get("disabled") != [] or seen <= newest:
                continue
            if audit.entry.version != 1:
                continue
            judged, ends = body.get("judged"), list[Found]()
            if isinstance(judged, dict) and "root" in judged:
                need(self.form == "2", "it has the form of an earlier version", audit.index)
                ends = self.all("run.ended", stream=run)
                ends = [e for e in ends if self.leaves[e.index].hex() == judged.get("entry")][-1:]
                if not ends:
                    continue
            for scored in reversed(self.all("audit.scored", stream=stream, after=audit.index)):
                role = scored.entry.author[0] if scored.entry.author else "nobody"
                judges = self.all("key.granted", before=scored.index, role="judge")
                named = scored.entry.author[1] if scored.entry.author else b""
                known = [sha256(key.public) for key in self.trusted(scored, "judge")]
                # A score does not say which run it is of: the start does.
                same = (audit.entry.author or ("",))[:2] == (scored.entry.author or ("",))[:2]
                if (named in known and same) or not judges:
                    if self.form == "2" and scored.body.get("hard_fail") is not False:
                        continue
                    need(scored.body.get("hard_fail") is False, "the audit failed", scored.index)
                    if role == "judge":
                        self.as_judged(audit, ends)
                    self.met |= {audit.index, scored.index, *(each.index for each in ends)}
                    return f"judged by {role}"
        raise Failed("a link is missing: an audit of the run, after it, complete, by a judge")

    def verdict(self, run: bytes) -> None:
        """Meet what decides which audit counts. Not covered: which one that is."""
        audits = {each.entry.stream for each in self.all("audit.started", run=hyphened(run))}
        own = [each for each in self.entries if each.entry.stream == run]
        need(self.all("run.ended", stream=run), "the end of the run is left out")
        ends = [each for each in own if each.entry.name in ("run.started", "run.ended")]
        self.met |= {each.index for each in [*ends, own[-1]]}
        talk = uuid.uuid5(uuid.UUID(bytes=run), "transcript").bytes
        for stream in (*audits, talk):
            rest = [each for each in self.entries if each.entry.stream == stream]
            versions = [each.entry.version for each in rest]
            whole = stream == talk or versions == [n + 1 for n in range(len(rest))]
            need(whole, "an event of an audit is left out", rest[0].index if rest else None)
            self.met |= {each.index for each in (rest if stream != talk else rest[:1] + rest[-1:])}

    def as_judged(self, audit: Found, ends: list[Found]) -> None:
        """Check that the ledger, up to the run's end, is the one whose root the judge signed."""
        size, signed = 0, ""
        if ends:
            size, signed = ends[0].index + 1, str(audit.body["judged"]["root"])
        else:
            origin, *rest = str(audit.body.get("tree_head")).split("\n")
            if origin == self.origin and len(rest) > 1 and rest[0].isdecimal():
                size, signed = int(rest[0]), unbase64(rest[1]).hex()
        found = self.roots.get(size, b"").hex()
        need(found in ("", signed), "the judge signed another state of the ledger", audit.index)

    def checkpoint(self, start: Found) -> str:
        """Follow link 4, and what a checkpoint of each kind rests on."""
        wanted, environment = start.body.get("checkpoint"), start.body.get("environment")
        need(type(wanted) is str, "the run names no checkpoint", start.index)
        names = ("checkpoint.promoted", "checkpoint.adopted", "line.opened")
        found = [f for n in names for f in self.all(n, before=start.index, checkpoint=wanted)[-1:]]
        need(found, f"a link is missing: checkpoint {wanted!a}")
        point, body = found[0], found[0].body
        named = uuid.uuid5(uuid.UUID(bytes=point.entry.stream), str(body.get("commit")))
        need(str(named) == wanted, "the checkpoint does not match its line and commit", point.index)
        code = environment.get("code_sha256") if isinstance(environment, dict) else None
        ran = type(code) is str and same(body.get("code"), code)
        need(ran, "the checkpoint's code is not the code that the run recorded", point.index)
        self.met.add(point.index)
        said = f"under {wanted}"
        if point.entry.name == "line.opened":
            need(
                point.entry.version == 1,
                "line.opened is not the first event of its stream",
                point.index,
            )
            place = uuid.uuid5(LINES, f"{body.get('root')} {body.get('branch')}")
            need(
                place.bytes == point.entry.stream,
                "the line does not match its repository",
                point.index,
            )
            return f"{said}, the original baseline"
        if point.entry.stream == uuid.uuid5(LINES, "installed installed").bytes:
            return f"{said}, a version that was installed, approved by nobody"
        if point.entry.name == "checkpoint.adopted":
            subjects = {key: body.get(key) for key in ("commit", "tree", "manifest")}
            return f"{said}, adopted by {self.approval(point, 'adopt', point, subjects)[0]}"
        proposals = body.get("proposals")
        need(isinstance(proposals, list) and proposals, "no proposal was promoted", point.index)
        assert isinstance(proposals, list)
        for proposal in proposals:
            last, more = self.proposal(unhyphened(proposal), point)
            said += f", with {proposal}{more}"
        candidate = [last.body.get(key) for key in ("commit", "tree")]
        moved = candidate == [body.get(key) for key in ("commit", "tree")]
        need(moved, "the promoted commit is not the candidate's", point.index)
        return said

    def proposal(self, stream: bytes, point: Found) -> tuple[Found, str]:
        """Follow links 5 to 7."""
        line = hyphened(point.entry.stream)
        end = point.index
        told = self.meet("proposal.submitted", begins=True, stream=stream, line=line, before=end)
        branch = self.meet("proposal.branched", stream=stream, after=told.index)
        test = self.meet("proposal.tested", stream=stream, after=branch.index, passed=True)
        result = self.meet("proposal.evaluated", stream=stream, after=test.index, before=end)
        if test.body.get("left_out"):
            after = result.index
            self.meet("proposal.rest_tested", stream=stream, after=after, before=end, passed=True)
        goal = {"outcome": "promoted", "checkpoint": point.body["checkpoint"]}
        done = self.meet("proposal.concluded", stream=stream, after=result.index, **goal)
        said = f" ({result.body.get('verdict')})"
        if branch.body.get("tier") == 1:
            before = branch.index
            said += f", approved by {self.reviewed(told, point, before, 'approve', 'refactor')}"
        if result.body.get("verdict") == "no worse":
            said += f", as a refactoring by {self.reviewed(told, point, done.index, 'refactor')}"
        elif result.body.get("verdict") != "better":
            valley, before = done.body.get("valley"), done.index
            way = self.meet(
                "valley.opened", stream=point.entry.stream, before=before, valley=valley
            )
            steps = way.body.get("steps")
            need(isinstance(steps, list), "a valley has no steps", way.index)
            assert isinstance(steps, list)
            need(
                told.body.get("diff") in steps, "the valley is for a different proposal", way.index
            )
            who, signed = self.approval(way, "valley", point, {})
            named = [signed.get(f"step-{n + 1}") for n in range(len(steps))]
            whole = named == steps and f"step-{len(steps) + 1}" not in signed
            need(whole, "the valley's steps were not signed", way.index)
            said += f", in a valley by {who}"
        return branch, said

    def reviewed(self, told: Found, point: Found, before: int, *words: str) -> str:
        """Follow link 6; the approval may be of a batch, and name an earlier proposal for this."""
        found = [
            each
            for word in words
            for each in self.all(
                "proposal.reviewed", stream=told.entry.stream, before=before, verdict=word
            )
        ]
        need(found, "a link is missing: proposal.reviewed")
        review = max(found, key=lambda each: each.index)
        self.met.add(review.index)
        word = review.body["verdict"]
        assert isinstance(word, str)
        diff, name = told.body.get("diff"), hyphened(told.entry.stream)
        with at(review.index, "an approval: "):
            payload = unbase64(read_json(review.body.get("envelope"))["payload"]).decode()
            batch = word == "approve" and read_json(payload)["predicate"]["kind"] == "batch"
        if not batch:
            subjects = {key: told.body.get(key) for key in ("diff", "base", "base_tree")}
            return self.approval(review, word, point, subjects, name)[0]
        evidence = told.body.get("evidence")
        named = [
            each.get("proposal")
            for each in (evidence if isinstance(evidence, list) else [])
            if isinstance(each, dict) and each.get("kind") == "carried"
        ]
        first = told
        if named:
            first = self.meet(
                "proposal.submitted",
                begins=True,
                stream=unhyphened(named[0]),
                line=hyphened(point.entry.stream),
                before=review.index,
            )
            fits = all(same(first.body.get(key), told.body.get(key)) for key in ("diff", "targets"))
            need(fits, "it is not the change that was approved", first.index)
        subjects = {key: first.body.get(key) for key in ("base", "base_tree")}
        subjects[f"diff:{hyphened(first.entry.stream)}"] = diff
        return self.approval(review, "batch", point, subjects)[0]

    def approval(
        self,
        found: Found,
        kind: str,
        point: Found,
        subjects: dict[str, Any],
        proposal: str | None = None,
    ) -> tuple[str, dict[str, str]]:
        """Check an envelope (DSSE) in an entry; give the operator's vkey, and what was signed."""
        with at(found.index, "an approval: "):
            envelope = read_json(found.body.get("envelope"))
            payload, kind_of_payload = unbase64(envelope["payload"]), envelope["payloadType"]
            need(kind_of_payload == "application/vnd.in-toto+json", "it is of another type")
            kind_said = kind_of_payload.encode()
            message = b"DSSEv1 %d %b %d %b" % (len(kind_said), kind_said, len(payload), payload)
            for key in self.trusted(found, "operator"):
                sealed = [
                    unbase64(each["sig"])
                    for each in envelope["signatures"]
                    if each["keyid"] == sha256(key.public).hex()
                ]
                if len(sealed) == 1 and key.holds(sealed[0], message):
                    break
            else:
                raise Failed("it is not signed by an operator whose key is in force")
            statement = read_json(payload.decode())
            form = (statement["_type"], statement["predicateType"])
            about = {each["name"]: str(*each["digest"].values()) for each in statement["subject"]}
            said = statement["predicate"]
            line = hyphened(point.entry.stream)
            predicate = {"kind": kind, "line": line, "proposal": proposal}
            fits = (
                form == ("https://in-toto.io/Statement/v1", "https://proctor.local/approval/v1")
                and len(about) == len(statement["subject"])
                and all(key in said and said[key] == value for key, value in predicate.items())
                and all(about.get(key) == value for key, value in subjects.items())
            )
            need(fits, "it is for something else")
            need(found.entry.time < said["expires"] * 10**9, "it had expired")
        return key.vkey, about

    def seal(self, line: tuple[int, bytes, list[bytes]], newest: int) -> str:
        """Follow link 8."""
        place, data, path = line
        fault = Failed("a link is missing: export.sealed")
        for sealed in reversed(self.all("export.sealed", after=newest)):
            size, root, as_of = (sealed.body.get(key) for key in ("examples", "root", "as_of"))
            try:
                whole = type(size) is int and type(root) is str and type(as_of) is int
                need(whole, "a seal has other types")
                assert isinstance(size, int)
                assert isinstance(root, str)
                assert isinstance(as_of, int)
                need(re.fullmatch("[0-9a-f]{64}", root), "a root is not 32 bytes")
                check_inclusion(leaf_hash(data), place, size, path, bytes.fromhex(root))
            except Failed as failed:
                fault = Failed(f"the example is not in a sealed export: {failed}")
                continue
            timely = newest <= as_of < sealed.index and sealed.entry.version == 1
            need(timely, "the export is as of a different entry", sealed.index)
            self.met.add(sealed.index)
            return f"; line {place} of {size} in export {hyphened(sealed.entry.stream)}"
        raise fault

    def end(self) -> None:
        """Refuse what no link led to."""
        strange = [each.index for each in self.entries if each.index not in self.met]
        need(not strange, "it does not belong to this lineage", *strange[:1])


def hyphened(raw: bytes) -> str:
    """Write a UUID."""
    return str(uuid.UUID(bytes=raw))


def unhyphened(text: Any) -> bytes:
    """Read a UUID in its one spelling."""
    pattern = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    need(type(text) is str and re.fullmatch(pattern, text), "this is not a stream id")
    return uuid.UUID(str(text)).bytes


def read_json(text: Any) -> Any:
    """Read JSON that names nothing twice."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        need(len(dict(pairs)) == len(pairs), "the JSON repeats a key")
        return dict(pairs)

    need(type(text) is str, "this is not text")
    try:
        return json.loads(str(text), object_pairs_hook=once)
    except (RecursionError, ValueError) as error:
        raise Failed(f"a text is not JSON: {error}") from error


def read_line(data: bytes, example: str, count: int) -> list[list[Any]]:
    """Read what an export's line shows: a list of decisions for each of the example's."""
    told, shown = read_json(data.decode()), list[list[Any]]()
    names = {"messages"} if count == 1 else {"prompt", "chosen", "rejected"}
    need(isinstance(told, dict), "the line is not an example")
    more = {"evidence"} if count == 2 and type(told.get("evidence")) is str else set()
    need(set(told) == {"id", *names} | more, "the line is not an example")
    need(told["id"] == example, "the line is of another example")
    for name in sorted(names - {"prompt"}):
        messages = told[name]
        alone = isinstance(messages, list) and (count == 1 or len(messages) == 1)
        need(alone and messages and isinstance(messages[-1], dict), "the line shows no answer")
        need(messages[-1].get("role") == "assistant", "the line shows an answer without an author")
        said = read_json(messages[-1].get("content"))
        need(isinstance(said, dict) and set(said) == {"decisions"}, "the line shows no decisions")
        made: Any = said["decisions"]
        need(isinstance(made, list) and made, "the line shows no decision")
        need(
            all(isinstance(one, dict) and set(one) == SHOWN for one in made),
            "the line shows more than decisions",
        )
        shown.append(made)
    return shown


def check_lineage(path: Path, keys: Keys, kept: list[Head], seen: Witnesses) -> tuple[str, Head]:
    """Check where an example comes from; say it, and give the tree head."""
    with at(None):
        text = read_file(path, 4 * LINEAGE_LIMIT).decode()
        need(len(text) <= LINEAGE_LIMIT, "a lineage is too long")
        text, _, rest = text.partition("\n\n")
        title, example, *lines = text.split("\n")
        form = title.removeprefix("proctor/lineage/v")
        known = form in ("1", "2") and form != title and example[:8] == "example "
        need(known and rest.startswith(f"{TITLE}\n"), "this is not a lineage")
        proofs = read_proofs(rest, keys.ledger, 20_000)
        head = proofs[0].head
        look_at(head, proofs[0].keys, kept, seen)
        parts = []
        for part in example[8:].split(">"):
            run, _, n = part.partition("/")
            parts.append((unhyphened(run), number(n)))
        need(len(parts) <= 2, "an example has one decision or two")
        story, shown, line = Story(proofs, keys.ledger, form), list[list[Any]](), None
        if lines:
            word, n, data = (*lines[0].split(" "), "", "")[:3]
            need(word == "line" and lines[0].count(" ") == 2, "this is not a lineage")
            line = (number(n), unbase64(data), [unbase64(each) for each in lines[1:]])
            shown = read_line(line[1], example[8:], len(parts))
        said, newest = story.tell(parts, shown)
        if line:
            said += story.seal(line, newest)
        story.end()
    return f"example {example[8:]}{said}; {len(proofs)} of ", head


# --- The command line -----------------------------------------------------------------------------


def read_given(path: Path) -> str:
    """Read a file of the user's own, which may be a pipe; the end is left out of one too long."""
    with path.open("rb") as file:
        return file.read(4 * NOTE_LIMIT).decode()


def read_key(given: str) -> str:
    """Take a file's text, or the argument itself where it names no file."""
    return read_given(Path(given)).removesuffix("\n") if Path(given).is_file() else given


def check(arguments: argparse.Namespace) -> str:
    """Check the target, and say what held."""
    target = Path(arguments.target)
    try:
        keys = Keys(parse_key(read_key(arguments.vkey), "ledger"))
        seen = Witnesses(parse_key(read_key(vkey), "witness") for vkey in arguments.witness)
        kept = [parse_head(read_given(Path(arguments.head)))] if arguments.head else []
    except (Failed, OSError, ValueError) as error:
        raise Usage(f"a key or a kept tree head cannot be read: {error}") from error
    if not target.exists():
        raise Usage("target not found")
    form, target = target.suffix, target.resolve()
    what = ""
    tree: Tree | Head
    if form == ".lineage":
        what, tree = check_lineage(target, keys, kept, seen)
    elif form == ".tlog-proof":
        what, tree = check_proofs(target, keys, kept, seen)
    elif target.is_dir():
        limit_blobs(target / "blobs", arguments.blob_bytes)
        tree = check_bundle(target, keys, kept, seen)
    else:
        limit_blobs(target.with_name("blobs").resolve(), arguments.blob_bytes)
        tree = check_database(target, keys, kept, seen)
    root = base64.b64encode(tree.root).decode()
    said = f"{what}{tree.size} entries of {keys.ledger.name}, root {root}"
    if keys.revocations:
        said += f"; {len(keys.revocations)} revocations: check which entries are suspect"
    return said + "".join(seen.told(keys.revocations))


def main() -> int:
    """Print one line, and return the exit code."""
    parser = argparse.ArgumentParser(
        description="Verifies a ledger, a bundle, a proof or a lineage."
    )
    parser.add_argument("target", help="a bundle, *.tlog-proof, *.lineage or ledger.sqlite")
    parser.add_argument("--vkey", required=True, help="the ledger's vkey, or a file that holds it")
    parser.add_argument("--head", help="a file with a tree head that was kept")
    parser.add_argument(
        "--witness", action="append", default=[], help="a witness's vkey, or a file"
    )
    parser.add_argument(
        "--blob-bytes", type=int, default=64 * 2**30, help="how much of blobs to read at most"
    )
    try:
        print("held:", check(parser.parse_args()))
    except Usage as error:
        print("usage:", error, file=sys.stderr)
        return 2
    except Failed as error:
        print("failed:", *([] if error.index is None else [f"entry {error.index}:"]), error)
        return 1
    except Exception as error:  # whatever hostile bytes break, they have not held
        print(f"failed: {type(error).__name__}: {str(error)!a}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
