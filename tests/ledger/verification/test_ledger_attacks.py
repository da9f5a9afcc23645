"""Attacks on the whole ledger: with and without its key, beside an honest control."""

import base64
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from edge_trees import Tree
from loose_entries import Entry, decode_entry, encode_entry
from signed_notes import sign_note, sign_tree_head
from stores import database_path, make_tables, tables_of

from ledger.entries import entry_hash
from ledger.errors import ConsistencyError, KeptHeadError, MalformedError, SignatureError
from ledger.notes import public_bytes, vkey
from ledger.paths import LedgerPaths
from ledger.verification.reader import check_ledger, open_verified, read_tree_head
from ledger.verification.vectorized import EntryRow
from ledger.verification.verified_notes import open_tree_head
from ledger.verification.verify import HeadRow, Verification

Rows = tuple[list[EntryRow], list[HeadRow], str]

ORIGIN = "proctor.local/000102030405060708090a0b0c0d0e0f"
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
VKEY = vkey(ORIGIN, public_bytes(KEY))


def forge(
    bodies: Sequence[bytes],
    *,
    times: Sequence[int] | None = None,
    versions: Sequence[int] | None = None,
    batch: int = 1,
) -> tuple[list[EntryRow], list[HeadRow]]:
    """Return a ledger by the holder of the key, who may put anything into it."""
    rows: list[EntryRow] = []
    heads: list[HeadRow] = []
    tree = Tree()
    previous = bytes(32)
    for index, body in enumerate(bodies):
        version = versions[index] if versions else index + 1
        entry = encode_entry(
            Entry(
                index=index,
                stream_id=UUID(int=1),
                stream_version=version,
                time_ns=times[index] if times else index,
                previous=previous,
                name="test.event",
                body=body,
            )
        )
        previous = entry_hash(entry)
        tree.append(previous)
        rows.append((index, UUID(int=1).bytes, version, "test.event", entry))
        if tree.size % batch == 0 or tree.size == len(bodies):
            heads.append((tree.size, head_note(tree), b"".join(tree.edge)))
    return rows, heads


def head_note(tree: Tree, *, key: Ed25519PrivateKey = KEY) -> str:
    return sign_tree_head(origin=ORIGIN, size=tree.size, root=tree.root(), key=key)


def relinked(rows: list[EntryRow], *, start: int) -> list[EntryRow]:
    """Return the rows with every link from `start` on made anew."""
    out = rows[:start]
    for idx, stream_id, version, name, data in rows[start:]:
        previous = entry_hash(out[-1][4]) if out else bytes(32)
        entry = encode_entry(replace(decode_entry(data), previous=previous))
        out.append((idx, stream_id, version, name, entry))
    return out


def changed(rows: list[EntryRow], *, at: int) -> list[EntryRow]:
    out = list(rows)
    idx, stream_id, version, name, data = out[at]
    entry = encode_entry(replace(decode_entry(data), body=b"forged"))
    out[at] = (idx, stream_id, version, name, entry)
    return out


def test_change_with_all_links_made_anew_is_rejected(ledger_rows: Rows) -> None:
    entries, heads, key = ledger_rows
    Verification(vkey=key).run(relinked(entries, start=0), heads)
    for at in range(0, len(entries), 23):
        with pytest.raises(ConsistencyError, match="do not match the signed tree head") as caught:
            Verification(vkey=key).run(relinked(changed(entries, at=at), start=at + 1), heads)
        covering = next(size for size, _, _ in heads if size > at)
        assert caught.value.index is not None
        assert caught.value.index <= covering - 1


def test_tree_heads_by_another_key_are_rejected() -> None:
    rows, heads = forge([b"a", b"b"])
    Verification(vkey=VKEY).run(rows, heads)
    tree = Tree()
    tree.append(entry_hash(rows[0][4]))
    note = head_note(tree, key=OTHER_KEY)
    with pytest.raises(SignatureError, match=r"tree head at size 1: .* 0 signatures by") as caught:
        Verification(vkey=VKEY).run(rows, [(1, note, heads[0][2]), heads[1]])
    assert caught.value.index == 0


def test_tree_heads_of_another_origin_are_rejected() -> None:
    rows, heads = forge([b"a"])
    tree = Tree()
    tree.append(entry_hash(rows[0][4]))
    note = sign_tree_head(origin="proctor.local/other", size=1, root=tree.root(), key=KEY)
    with pytest.raises(SignatureError, match="0 signatures by"):
        Verification(vkey=VKEY).run(rows, [(1, note, heads[0][2])])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda h: [h[0], h[2]], None),  # heads may be missing; the batch is then a longer one
        (lambda h: h[:2], "no tree head covers entry 2 and"),
        (lambda h: [], "no tree head covers entry 0 and"),
        (lambda h: [h[0], h[0], h[2]], "tree heads are out of order: size 1 after size 1"),
        (lambda h: [h[1], h[0], h[2]], "tree heads are out of order: size 1 after size 2"),
        (lambda h: [*h, (4, h[2][1], h[2][2])], "but a tree head of size 4"),
        (lambda h: [h[0], h[1], (3, h[1][1], h[2][2])], "tree head at size 3 states size 2"),
        (lambda h: [h[0], h[1], (3, h[2][1], bytes(64))], "tree head at size 3 has a wrong edge"),
    ],
)
def test_tree_heads_that_do_not_cover_the_ledger_are_rejected(
    spoil: object, message: str | None
) -> None:
    rows, heads = forge([b"a", b"b", b"c"])
    assert callable(spoil)
    if message is None:
        Verification(vkey=VKEY).run(rows, spoil(heads))
        return
    with pytest.raises(ConsistencyError, match=message):
        Verification(vkey=VKEY).run(rows, spoil(heads))


def test_every_flipped_bit_of_a_tree_head_is_rejected() -> None:
    rows, heads = forge([b"a", b"b"])
    size, note, edge = heads[1]
    data = note.encode()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        text = flipped.decode("utf-8", "surrogateescape")
        with pytest.raises((SignatureError, MalformedError), match="tree head at size 2"):
            Verification(vkey=VKEY).run(rows, [heads[0], (size, text, edge)])


def test_tree_head_in_another_spelling_is_rejected() -> None:
    _, heads = forge([b"a"])
    note = heads[0][1]
    assert note.endswith("=\n")
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    other = alphabet[alphabet.index(note[-3]) + 1]  # differs in bits that base64 does not use
    assert base64.b64decode(note.split(" ")[-1]) == base64.b64decode(
        f"{note[:-3]}{other}=\n".split(" ")[-1]
    )
    assert open_tree_head(note, vkey=VKEY).size == 1
    with pytest.raises(MalformedError, match="not canonical base64"):
        open_tree_head(f"{note[:-3]}{other}=\n", vkey=VKEY)


def test_rows_under_other_numbers_are_rejected() -> None:
    rows, heads = forge([b"a", b"b"])
    Verification(vkey=VKEY).run(rows, heads)
    for at, number in ((0, 1), (1, 5), (0, 0.0), (1, True)):
        moved = list(rows)
        moved[at] = (number, *rows[at][1:])  # type: ignore[assignment]
        with pytest.raises(ConsistencyError, match=f"entry {at} is missing") as caught:
            Verification(vkey=VKEY).run(moved, heads)
        assert caught.value.index == at


def test_rewriting_by_the_holder_of_the_key_is_rejected_with_a_kept_head_only() -> None:
    honest, heads = forge([b"a", b"b", b"c"])
    kept = heads[1][1]
    Verification(vkey=VKEY, kept_heads=[kept]).run(honest, heads)
    rewritten, new_heads = forge([b"A", b"b", b"c"])
    Verification(vkey=VKEY).run(rewritten, new_heads)  # nothing in it shows the rewriting
    with pytest.raises(ConsistencyError, match="the first 2 entries do not match the kept"):
        Verification(vkey=VKEY, kept_heads=[kept]).run(rewritten, new_heads)
    later, later_heads = forge([b"a", b"b", b"C"])  # what came after the kept head is not covered
    Verification(vkey=VKEY, kept_heads=[kept]).run(later, later_heads)


def test_kept_head_is_found_between_batches() -> None:
    rows, heads = forge([b"a", b"b", b"c"], batch=3)
    other_rows, other_heads = forge([b"a", b"b", b"c"], batch=2)
    assert rows == other_rows
    Verification(vkey=VKEY, kept_heads=[other_heads[0][1]]).run(rows, heads)


def test_forged_kept_head_is_rejected() -> None:
    rows, heads = forge([b"a"])
    tree = Tree()
    tree.append(entry_hash(b"x"))
    with pytest.raises(SignatureError, match="0 signatures by"):
        Verification(vkey=VKEY, kept_heads=[head_note(tree, key=OTHER_KEY)]).run(rows, heads)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda note: "",
        lambda note: "no note at all\n",
        lambda note: note.removesuffix("\n"),
        lambda note: note.replace("\n", "\r\n"),
        lambda note: note.rpartition("\n\n")[0],
        lambda note: sign_note("a text\n", name=ORIGIN, key=KEY),
    ],
)
def test_kept_head_that_is_no_tree_head_is_rejected(
    tmp_path: Path, spoil: Callable[[str], str]
) -> None:
    rows, heads = forge([b"a"])
    written(tmp_path, rows, heads)
    assert check_ledger(tmp_path, kept_head=heads[0][1]).ok
    with pytest.raises(KeptHeadError, match="the kept tree head cannot be read: the note"):
        check_ledger(tmp_path, kept_head=spoil(heads[0][1]))


def test_kept_head_of_another_ledger_fails_verification(tmp_path: Path) -> None:
    rows, heads = forge([b"a"])
    written(tmp_path, rows, heads)
    tree = Tree()
    tree.append(entry_hash(rows[0][4]))
    report = check_ledger(tmp_path, kept_head=head_note(tree, key=OTHER_KEY))
    assert (report.ok, report.error_type) == (False, "SignatureError")
    assert "the kept tree head is not from this ledger" in str(report.error)
    LedgerPaths(tmp_path).vkey.write_text("no key")  # a fault of the ledger, not of the kept head
    report = check_ledger(tmp_path, kept_head=heads[0][1])
    assert report.error_type == "MalformedError", report.error


def test_emptied_ledger_is_rejected_with_a_kept_head_only() -> None:
    _, heads = forge([b"a"])
    Verification(vkey=VKEY).run([], [])
    with pytest.raises(ConsistencyError, match="covers 1 entries, but the ledger has only 0"):
        Verification(vkey=VKEY, kept_heads=[heads[0][1]]).run([], [])


def test_time_that_runs_backwards_is_rejected() -> None:
    Verification(vkey=VKEY).run(*forge([b"a", b"b", b"c"], times=[5, 5, 6]))
    with pytest.raises(ConsistencyError, match="entry 2 has an earlier time than") as caught:
        Verification(vkey=VKEY).run(*forge([b"a", b"b", b"c"], times=[5, 6, 5]))
    assert caught.value.index == 2


@pytest.mark.parametrize(
    ("column", "value"), [(1, UUID(int=9).bytes), (2, 9), (3, "test.other"), (1, None), (3, b"x")]
)
def test_columns_that_disagree_with_their_entry_are_rejected(column: int, value: object) -> None:
    rows, heads = forge([b"a", b"b"])
    row = list(rows[1])
    row[column] = value
    with pytest.raises(ConsistencyError, match="entry 1 does not match its columns") as caught:
        Verification(vkey=VKEY).run([rows[0], tuple(row)], heads)  # type: ignore[arg-type]
    assert caught.value.index == 1


@pytest.mark.parametrize(
    ("versions", "bad"), [([1, 2, 4], 2), ([2, 3, 4], 0), ([1, 3, 2], 1), ([0, 1, 2], None)]
)
def test_stream_with_a_version_out_of_step_is_rejected(
    tmp_path: Path, versions: list[int], bad: int | None
) -> None:
    rows, heads = forge([b"a", b"b", b"c"], versions=versions)
    directory = written(tmp_path, rows, heads)
    report = check_ledger(directory)
    assert (report.ok, report.index) == (bad is None, bad), report


def written(directory: Path, rows: list[EntryRow], heads: list[HeadRow]) -> Path:
    paths = LedgerPaths(directory)
    paths.vkey.write_text(VKEY)
    make_tables(directory, meta={"origin": ORIGIN, "vkey": VKEY})
    with tables_of(directory) as c:
        c.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", rows)
        c.executemany("INSERT INTO tree_heads VALUES (?, ?, ?)", heads)
    return directory


def test_whole_ledger_exchanged_for_another_is_rejected_by_a_known_vkey(
    tmp_path: Path, ledger_directory: Path
) -> None:
    known = LedgerPaths(ledger_directory).vkey.read_text()
    assert check_ledger(ledger_directory, vkey=known).ok
    exchanged = written(tmp_path, *forge([b"a"]))
    assert check_ledger(exchanged).ok  # the vkey beside it was exchanged along with it
    report = check_ledger(exchanged, vkey=known)
    assert (report.ok, report.error_type) == (False, "SignatureError")


@pytest.mark.parametrize("index", [-1, -(2**63), 3, 100])
@pytest.mark.parametrize("size", [0, 3])
def test_row_beyond_either_end_is_rejected(tmp_path: Path, index: int, size: int) -> None:
    rows, heads = forge([b"a", b"b", b"c"])
    written(tmp_path, rows[:size], heads[:size])
    assert check_ledger(tmp_path).ok
    with tables_of(tmp_path) as c:
        foreign = (index, UUID(int=2).bytes, 1, "test.event", rows[0][4])
        c.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", foreign)
    report = check_ledger(tmp_path)
    assert (report.ok, report.error_type) == (
        False,
        "ConsistencyError" if index != size else "LinkError",
    )
    assert report.index == min(index, size)
    assert str(index) in str(report.error)


@pytest.mark.parametrize("head_size", [-1, 0, 100])
@pytest.mark.parametrize("size", [0, 3])
def test_tree_head_beyond_either_end_is_rejected(tmp_path: Path, head_size: int, size: int) -> None:
    rows, heads = forge([b"a", b"b", b"c"])
    written(tmp_path, rows[:size], heads[:size])
    assert check_ledger(tmp_path).ok
    with tables_of(tmp_path) as c:
        c.execute("INSERT INTO tree_heads VALUES (?, ?, ?)", (head_size, heads[0][1], b""))
    report = check_ledger(tmp_path)
    assert (report.ok, report.error_type) == (False, "ConsistencyError")
    assert f"size {head_size}" in str(report.error)


def test_entries_cannot_be_hidden_by_a_tampered_inner_page(
    tmp_path: Path, ledger_directory: Path
) -> None:
    shutil.copytree(ledger_directory, tmp_path, dirs_exist_ok=True)
    path = database_path(tmp_path)
    with closing(sqlite3.connect(path)) as c:
        c.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page_size,) = c.execute("PRAGMA page_size").fetchone()
        (root,) = c.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'entries'").fetchone()
    data = bytearray(path.read_bytes())
    page = (root - 1) * page_size
    assert data[page] == 5  # an inner page of a table; cells: u32 child, varint largest key in it
    last_cell = page + int.from_bytes(data[page + 5 : page + 7], "big")
    key_at = last_cell + 4
    assert data[key_at] & 0x80  # a key of two bytes
    largest = (data[key_at] & 0x7F) << 7 | data[key_at + 1]
    data[key_at + 1] -= 5  # looked up, the child's last five rows are no longer found
    path.write_bytes(data)
    with open_verified(tmp_path) as ledger:
        found = [entry.index for entry in ledger.entries(start=largest - 2)]
    assert found == list(range(largest - 2, ledger.size))


def test_empty_ledger_of_another_key_is_rejected(tmp_path: Path) -> None:
    assert check_ledger(written(tmp_path, [], [])).ok
    other = vkey(ORIGIN, public_bytes(OTHER_KEY))
    report = check_ledger(tmp_path, vkey=other)
    assert (report.ok, report.error_type) == (False, "SignatureError")
    assert "public key is not the one given" in str(report.error)


def test_newest_tree_head_can_be_kept(ledger_directory: Path) -> None:
    note = read_tree_head(ledger_directory)
    assert note is not None
    report = check_ledger(ledger_directory, kept_head=note)
    assert report.ok
    assert report.head == open_tree_head(note, vkey=LedgerPaths(ledger_directory).vkey.read_text())


def test_note_with_further_signatures_is_read_but_not_two_of_the_ledger() -> None:
    _, heads = forge([b"a"])
    note = heads[0][1]
    line = note.split("\n")[-2] + "\n"
    text = note.rpartition("\n\n")[0] + "\n"
    witness = sign_note(text, name="witness.example", key=OTHER_KEY).rpartition("\n\n")[2]
    assert open_tree_head(note + witness, vkey=VKEY).size == 1
    assert open_tree_head(f"{text}\n{witness}{line}", vkey=VKEY).size == 1
    assert open_tree_head(note + witness * 15, vkey=VKEY).size == 1
    with pytest.raises(SignatureError, match="2 signatures by"):
        open_tree_head(note + line, vkey=VKEY)
    with pytest.raises(MalformedError, match="more than 16"):
        open_tree_head(note + witness * 16, vkey=VKEY)


@pytest.mark.parametrize(
    "text",
    [
        f"{ORIGIN}\n01\n{{root}}\n",
        f"{ORIGIN}\n+1\n{{root}}\n",
        f"{ORIGIN}\n\u0661\n{{root}}\n",
        f"{ORIGIN}\n1\n{{root}}\nextension\n",
        f"{ORIGIN}\n1\n",
        f"{ORIGIN}\n1\nAAAA\n",
        f"{ORIGIN}\n9223372036854775808\n{{root}}\n",
        "proctor.local/other\n1\n{root}\n",
        f"{ORIGIN}\n1\n{{root}}\r\n",
    ],
)
def test_signed_note_that_is_no_tree_head_is_rejected(text: str) -> None:
    root = base64.b64encode(bytes(32)).decode()
    honest = sign_note(f"{ORIGIN}\n1\n{root}\n", name=ORIGIN, key=KEY)
    assert open_tree_head(honest, vkey=VKEY).root == bytes(32)
    with pytest.raises(MalformedError, match=r"tree head|control characters|base64"):
        open_tree_head(sign_note(text.format(root=root), name=ORIGIN, key=KEY), vkey=VKEY)


def test_vkey_with_a_wrong_key_id_is_rejected() -> None:
    _, heads = forge([b"a"])
    name, key_id, material = VKEY.split("+", 2)
    wrong = f"{name}+{int(key_id, 16) ^ 1:08x}+{material}"
    with pytest.raises(MalformedError, match="key id does not fit"):
        open_tree_head(heads[0][1], vkey=wrong)
