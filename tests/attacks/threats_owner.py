"""Attacks by somebody who holds private keys: what signatures cannot stop, and what still does."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from itertools import count
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from edge_trees import Tree
from eventsourcing.persistence import StoredEvent
from loose_entries import Entry, decode_entry, encode_entry
from signed_notes import sign_note, sign_tree_head
from stores import exchange_tables
from threat_scene import JUDGE, OPERATOR, REVIEWED, ROTATED, STRANGER, WITNESSES, Scene
from threats import threat
from threats_files import AT, Tables, row_of, rows_of, tables

from ledger.bodies import encode_body
from ledger.entries import AuthorKey, entry_hash
from ledger.notes import public_bytes, vkey
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording.opening import open_ledger
from ledger.schemes import PrivateKey
from ledger.verification.authority import authority_stream
from ledger.witnessing.cosignatures import cosignature_vkey, sign_cosignature

NEW_STREAM = UUID(int=77)
THIRD = Ed25519PrivateKey.from_private_bytes(b"3" * 32)


def sign_again(t: Tables, scene: Scene, *, start: int = 0) -> None:
    """Make links and tree heads anew from this entry on, each by the key that is in force."""
    t.relink(start)
    rotated = next((n for n, row in enumerate(t.entries) if row[3] == ROTATED), len(t.entries))
    sizes = {head[0] for head in t.heads if start < head[0] < len(t.entries)} | {len(t.entries)}
    tree, heads = Tree(), [head for head in t.heads if head[0] <= start]
    for row in t.entries:
        tree.append(entry_hash(row[4]))
        if tree.size in sizes:
            key = scene.new_key if tree.size > rotated else scene.old_key
            note = sign_tree_head(origin=origin(scene), size=tree.size, root=tree.root(), key=key)
            heads.append((tree.size, note, b"".join(tree.edge)))
    t.heads = heads


def origin(scene: Scene) -> str:
    return scene.vkey.partition("+")[0]


def rewrite(scene: Scene, at: int, change: Callable[[Entry], Entry]) -> int:
    """Change one entry, and sign everything again."""
    with tables(scene) as t:
        t.entries[at] = row_of(change(decode_entry(t.entries[at][4])))
        sign_again(t, scene, start=at)
    return at


def append(scene: Scene, entry: Entry, *, author: AuthorKey | None = None) -> int:
    """Append one entry behind the honest ones, with a good tree head."""
    with tables(scene) as t:
        last = decode_entry(t.entries[-1][4])
        signed = author and author.author(
            origin=origin(scene),
            stream_id=entry.stream_id,
            stream_version=entry.stream_version,
            name=entry.name,
            body=entry.body,
        )
        at = len(t.entries)
        entry = replace(entry, index=at, time_ns=last.time_ns, author=signed or entry.author)
        t.entries.append(row_of(entry))
        sign_again(t, scene, start=at)
    return at


def authority_event(scene: Scene, name: str, **fields: object) -> Entry:
    stream = authority_stream(origin(scene))
    entries = [decode_entry(row[4]) for row in rows_of(scene.ledger).entries]
    version = max(e.stream_version for e in entries if e.stream_id == stream) + 1
    return plain(name, stream=stream, version=version, body=encode_body({"v": 1, **fields}))


def plain(name: str, *, stream: UUID = NEW_STREAM, version: int = 1, body: bytes = b"") -> Entry:
    return Entry(
        index=0,
        stream_id=stream,
        stream_version=version,
        time_ns=0,
        previous=bytes(32),
        name=name,
        body=body,
    )


@threat("an entry rewritten, everything after it linked and signed again", by="key", vague=True)
def rewritten(scene: Scene) -> int:
    return rewrite(scene, AT, lambda e: replace(e, body=b"never happened"))


@threat("a fork: another continuation from an earlier tree head", by="key", vague=True)
def fork(scene: Scene) -> int:
    exchange_tables(scene.fork, scene.ledger)
    return len(rows_of(scene.earlier).entries)


@threat("rolled back to an earlier tree head, and continued differently", by="key", vague=True)
def rolled_back(scene: Scene) -> int:
    with tables(scene) as t:
        t.heads = t.heads[:-1]
        t.entries = t.entries[: t.heads[-1][0]]
        at = len(t.entries)
        for n in range(9):
            t.entries.append(row_of(replace(plain("test.event", version=n + 1), time_ns=2**62)))
        sign_again(t, scene, start=at)
    return at


@threat("rewritten, and cosigned by one witness of two", by="key", vague=True)
def rewritten_with_a_witness(scene: Scene) -> int:
    at = rewritten(scene)
    with tables(scene) as t:
        size, note, edge = t.heads[-1]
        name = next(iter(WITNESSES))
        text = note.rpartition("\n\n")[0] + "\n"
        line = sign_cosignature(text, name=name, key=WITNESSES[name], seconds=2_000_000_000)
        t.heads[-1] = (size, note + line, edge)
    return at


_NEW = (
    "no kept head covers an appended entry, so none contradicts it, and the ledger does not judge "
    "content"
)


@threat("an event that never happened, appended", by="key", undetected=_NEW)
def invented(scene: Scene) -> int:
    return append(scene, plain("test.event"))


@threat("a time far in the future", by="key", undetected="the recorder's clock is trusted")
def future(scene: Scene) -> int:
    with tables(scene) as t:
        at = len(t.entries)
        t.entries.append(row_of(replace(plain("test.event"), time_ns=2**62)))
        sign_again(t, scene, start=at)
    return at


@threat("time set back between two entries", by="key")
def time_back(scene: Scene) -> int:
    with tables(scene) as t:
        at = len(t.entries)
        t.entries.append(row_of(replace(plain("test.event"), time_ns=1)))
        sign_again(t, scene, start=at)
    return at


@threat("a stream's version left out", by="key")
def version_skipped(scene: Scene) -> int:
    return append(scene, plain("test.event", version=2))


@threat("bytes after an entry's end, linked and signed", by="key")
def trailing_signed(scene: Scene) -> int:
    with tables(scene) as t:
        at = len(t.entries)
        entry = replace(
            plain("test.event"),
            index=at,
            time_ns=2**62,
            previous=entry_hash(t.entries[-1][4]),
        )
        data = encode_entry(entry) + b"\0"
        t.entries.append((at, entry.stream_id.bytes, 1, "test.event", data))
        tree = Tree()
        for each in t.entries:
            tree.append(entry_hash(each[4]))
        note = sign_tree_head(
            origin=origin(scene), size=tree.size, root=tree.root(), key=scene.new_key
        )
        t.heads.append((tree.size, note, b"".join(tree.edge)))
    return at


@threat("an operator's statement signed by a key that is not an operator's", by="key")
def false_operator(scene: Scene) -> int:
    entry = plain(REVIEWED, body=b"good")
    return append(scene, entry, author=AuthorKey("operator", STRANGER))


@threat("a judge's key in the operator's role", by="key")
def wrong_role(scene: Scene) -> int:
    return append(scene, plain(REVIEWED, body=b"good"), author=AuthorKey("operator", JUDGE))


@threat("an operator's signature moved to another event", by="key")
def moved_author(scene: Scene) -> int:
    rows = rows_of(scene.ledger).entries
    signed = next(decode_entry(row[4]) for row in rows if row[3] == REVIEWED)
    return append(scene, replace(plain(REVIEWED, body=b"good"), author=signed.author))


@threat("an operator's statement moved from another ledger that granted the same key", by="key")
def statement_of_another_ledger(scene: Scene) -> int:
    entry = plain(REVIEWED, body=b"good")
    signed = AuthorKey("operator", OPERATOR).author(
        origin="proctor.local/another",
        stream_id=entry.stream_id,
        stream_version=entry.stream_version,
        name=entry.name,
        body=entry.body,
    )
    return append(scene, replace(entry, author=signed))


@threat("an operator's signed event edited, its signature kept", by="key")
def edited_author(scene: Scene) -> int:
    rows = rows_of(scene.ledger).entries
    at = next(n for n, row in enumerate(rows) if row[3] == REVIEWED)
    return rewrite(scene, at, lambda e: replace(e, body=b"the opposite"))


@threat("an operator's signature removed", by="key", vague=True)
def stripped_author(scene: Scene) -> int:
    rows = rows_of(scene.ledger).entries
    at = next(n for n, row in enumerate(rows) if row[3] == REVIEWED)
    return rewrite(scene, at, lambda e: replace(e, author=None))


@threat("a key granted without a signature", by="key")
def grant_by_nobody(scene: Scene) -> int:
    key = vkey("mallory.example", public_bytes(STRANGER))
    return append(scene, authority_event(scene, "key.granted", role="operator", vkey=key))


@threat("a judge granted by the ledger's key, though there is an operator", by="key")
def grant_by_ledger(scene: Scene) -> int:
    key = vkey("mallory.example", public_bytes(STRANGER))
    entry = authority_event(scene, "key.granted", role="judge", vkey=key)
    return append(scene, entry, author=AuthorKey("ledger", scene.new_key))


def revoke(scene: Scene, role: str, key: PrivateKey, *, by: AuthorKey) -> None:
    """Revoke a key of the scene, as may be done."""
    entry = authority_event(
        scene,
        "key.revoked",
        role=role,
        vkey=vkey(f"{role}.example", public_bytes(key)),
        since=0,
        reason="stolen",
    )
    append(scene, entry, author=by)


_STOLEN = (
    "an operator's key is valid until the ledger's key revokes it; the ledger's key can then grant "
    "the judge's key again"
)


@threat("a judge revoked with a stolen operator's key", by="key", undetected=_STOLEN)
def revoke_by_thief(scene: Scene) -> int:
    revoke(scene, "judge", JUDGE, by=AuthorKey("operator", OPERATOR))
    return len(rows_of(scene.ledger).entries) - 1


@threat("a stolen operator's key still grants after the ledger's key revoked it", by="key")
def grant_by_dislodged_operator(scene: Scene) -> int:
    revoke(scene, "operator", OPERATOR, by=AuthorKey("ledger", scene.new_key))
    key = vkey("mallory.example", public_bytes(STRANGER))
    entry = authority_event(scene, "key.granted", role="judge", vkey=key)
    return append(scene, entry, author=AuthorKey("operator", OPERATOR))


@threat("a revoked judge granted again with a stolen operator's key", by="key")
def grant_again_by_thief(scene: Scene) -> int:
    revoke(scene, "judge", JUDGE, by=AuthorKey("operator", OPERATOR))
    entry = authority_event(
        scene, "key.granted", role="judge", vkey=vkey("judge.example", public_bytes(JUDGE))
    )
    return append(scene, entry, author=AuthorKey("operator", OPERATOR))


@threat("a key granted for a second time, in another role", by="key")
def grant_again(scene: Scene) -> int:
    key = vkey("judge.example", public_bytes(JUDGE))
    entry = authority_event(scene, "key.granted", role="operator", vkey=key)
    return append(scene, entry, author=AuthorKey("operator", OPERATOR))


@threat("a witness's grant removed from the past", by="key", vague=True)
def grant_removed(scene: Scene) -> int:
    key = cosignature_vkey("nobody.example", public_bytes(STRANGER))
    with tables(scene) as t:
        at = next(n for n, row in enumerate(t.entries) if row[3] == "key.granted")
        entry = decode_entry(t.entries[at][4])
        body = encode_body({"v": 1, "role": "witness", "vkey": key})
        signed = AuthorKey("ledger", scene.old_key).author(
            origin=origin(scene),
            stream_id=entry.stream_id,
            stream_version=entry.stream_version,
            name=entry.name,
            body=body,
        )
        t.entries[at] = row_of(replace(entry, body=body, author=signed))
        sign_again(t, scene, start=at)
    return at


def rotation(scene: Scene, *, old: PrivateKey, signers: list[PrivateKey]) -> Entry:
    name = origin(scene)
    text = f"ledger/rotation/v1\n{name}\n{vkey(name, public_bytes(old))}\n"
    text += f"{vkey(name, public_bytes(THIRD))}\n"
    note = "".join(sign_note(text, name=name, key=key).rpartition("\n\n")[2] for key in signers)
    return authority_event(scene, ROTATED, note=f"{text}\n{note}")


@threat("a rotation that the new key has not signed", by="key")
def rotation_unsigned(scene: Scene) -> int:
    return append(scene, rotation(scene, old=scene.new_key, signers=[scene.new_key] * 2))


@threat("a rotation away from a key that is not in force", by="key")
def rotation_from_old(scene: Scene) -> int:
    return append(scene, rotation(scene, old=scene.old_key, signers=[scene.old_key, THIRD]))


@threat("a rotation's note edited", by="files", vague=True)
def rotation_edited(scene: Scene) -> int:
    with tables(scene) as t:
        at = next(n for n, row in enumerate(t.entries) if row[3] == ROTATED)
        entry = decode_entry(t.entries[at][4])
        body = entry.body.replace(b"ledger/rotation", b"ledger/rotatiom")
        t.entries[at] = row_of(replace(entry, body=body))
    return at


@threat("the old key signs on after its rotation", by="old key")
def old_key_signs(scene: Scene) -> int:
    with tables(scene) as t:
        size = t.heads[-1][0]
        tree = Tree()
        for row in t.entries:
            tree.append(entry_hash(row[4]))
        note = sign_tree_head(origin=origin(scene), size=size, root=tree.root(), key=scene.old_key)
        t.heads[-1] = (size, note, t.heads[-1][2])
        return size - 1


@threat("the old key signs another history from before its rotation on", by="old key", vague=True)
def old_key_forks(scene: Scene) -> int:
    return fork(scene)


def append_at(scene: Scene, clock: Iterator[int]) -> None:
    """Append an event for each time that the clock shows; another clock runs on evenly."""
    database, signer = open_ledger(LedgerPaths(scene.ledger), passphrase=None)
    with closing(database):
        steady = count(0, 1_000_000)  # ns
        into = SignedRecorder(
            database, signer=signer, clock=clock.__next__, steady_clock=steady.__next__
        )
        with suppress(StopIteration):
            for version in count(1):
                into.insert_events([StoredEvent(NEW_STREAM, version, "test.event", b"")])


_HOUR = 3_600 * 10**9  # ns


@threat("the clock set back", target="clock", by="clock")
def clock_back(scene: Scene) -> None:
    append_at(scene, iter([time.time_ns() - _HOUR]))


@threat("the clock set forward while a recorder is at work", target="clock", by="clock")
def clock_forward(scene: Scene) -> None:
    append_at(scene, iter([time.time_ns(), time.time_ns() + _HOUR]))


@threat(
    "the clock set forward before a recorder begins",
    target="clock",
    by="clock",
    undetected="a recorder that starts has no earlier time to compare; cosignatures contain times "
    "of other clocks",
)
def clock_ahead(scene: Scene) -> None:
    append_at(scene, iter([time.time_ns() + _HOUR]))
