"""Quorum policies: what the specification allows, refused by line where it does not."""

from contextlib import suppress
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from loose_entries import Entry, encode_entry
from signed_notes import sign_tree_head

from ledger.bodies import encode_body
from ledger.entries import AuthorKey
from ledger.errors import MalformedError, QuorumError, QuorumFileError, StorageError
from ledger.notes import public_bytes, vkey
from ledger.verification.authority import Authority, authority_stream
from ledger.verification.verified_entries import parse_entry
from ledger.witnessing.cosignatures import cosignature_vkey, sign_cosignature
from ledger.witnessing.quorum import Quorum, parse_quorum, read_quorum, witnessed_heads

LOG = Ed25519PrivateKey.from_private_bytes(bytes(32))
ORIGIN = "log.example/a"
LOG_VKEY = vkey(ORIGIN, public_bytes(LOG))
NAMES = ("X1", "X2", "X3", "Y1", "Y2", "Y3")
KEYS = {name: Ed25519PrivateKey.from_private_bytes(name.encode() * 16) for name in NAMES}


def key_name(name: str) -> str:
    return f"witness.example/{name.lower()}"


def vkey_of(name: str) -> str:
    return cosignature_vkey(key_name(name), public_bytes(KEYS[name]))


WITNESSES = "".join(f"witness {name} {vkey_of(name)}\n" for name in NAMES)
# The specification's example: two levels of groups.
TWO_LEVELS = f"""\
# Two organisations.
log {LOG_VKEY}

{WITNESSES}\
group X-witnesses 2 X1 X2 X3
group Y-witnesses any Y1 Y2 Y3
  group\tX-and-Y all   X-witnesses Y-witnesses\t
quorum X-and-Y
"""


def head(size: int = 3) -> str:
    return sign_tree_head(origin=ORIGIN, size=size, root=bytes(32), key=LOG)


def cosigned(note: str, *names: str, seconds: int = 1_700_000_000) -> str:
    text = note.rpartition("\n\n")[0] + "\n"
    lines = [
        sign_cosignature(text, name=key_name(name), key=KEYS[name], seconds=seconds)
        for name in names
    ]
    return note + "".join(lines)


@pytest.mark.parametrize(
    ("names", "met"),
    [
        ((), False),
        (("X1", "X2"), False),
        (("X1", "Y1"), False),
        (("Y1", "Y2", "Y3"), False),
        (("X1", "X2", "X3"), False),
        (("X1", "X2", "Y3"), True),
        (("X3", "Y1", "X1"), True),
        (NAMES, True),
    ],
)
def test_quorum_of_two_levels_is_met_exactly_when_both_groups_agree(
    names: tuple[str, ...], met: bool
) -> None:
    quorum = parse_quorum(TWO_LEVELS)
    found = quorum.check(cosigned(head(), *names))
    assert found.met is met
    assert found.times == dict.fromkeys(names, 1_700_000_000)
    if met:
        quorum.verify(cosigned(head(), *names))
    else:
        with pytest.raises(QuorumError, match="which does not meet the quorum 'X-and-Y'"):
            quorum.verify(cosigned(head(), *names))


def test_quorum_of_nobody_is_met_by_any_note() -> None:
    parse_quorum("quorum none\n").verify(head())


def test_quorum_can_be_one_witness() -> None:
    quorum = parse_quorum(f"witness a {vkey_of('X1')} https://w.example/\nquorum a\n")
    quorum.verify(cosigned(head(), "X1"))
    assert quorum.witnesses[0].url == "https://w.example/"
    with pytest.raises(QuorumError, match="no trusted witness"):
        quorum.verify(cosigned(head(), "X2"))


@given(st.sets(st.sampled_from(NAMES)), st.integers(1, 6))
def test_threshold_is_met_exactly_when_so_many_members_agree(names: set[str], k: int) -> None:
    quorum = parse_quorum(f"{WITNESSES}group g {k} {' '.join(NAMES)}\nquorum g\n")
    assert quorum.check(cosigned(head(), *names)).met is (len(names) >= k)


def test_cosignature_by_a_trusted_witness_that_does_not_hold_is_rejected() -> None:
    quorum = parse_quorum(TWO_LEVELS)
    good = cosigned(head(), "X1", "X2", "Y1")
    quorum.verify(good)
    moved = cosigned(head(4), "X2").rpartition("\u2014")[2]
    quorum.verify(f"{good}\u2014{moved}")  # beside a good one it takes nothing away
    without = cosigned(head(), "X1", "Y1")
    with pytest.raises(
        QuorumError, match="does not meet the quorum 'X-and-Y'; the signature line of X2"
    ):
        quorum.verify(f"{without}\u2014{moved}")
    with pytest.raises(QuorumError, match=r"does not meet the quorum 'X-and-Y'$"):
        quorum.verify(without)


def test_cosignature_under_another_witness_name_does_not_count() -> None:
    note = cosigned(head(), "X1").replace(key_name("X1"), key_name("X2"))
    assert parse_quorum(TWO_LEVELS).check(note).times == {}


def test_text_that_is_no_note_is_rejected() -> None:
    with pytest.raises(MalformedError, match="note"):
        parse_quorum(TWO_LEVELS).verify("log.example/a\n3\n")


def test_policy_for_another_ledger_is_rejected() -> None:
    quorum = parse_quorum(TWO_LEVELS)
    quorum.verify_log(LOG_VKEY)
    parse_quorum("quorum none\n").verify_log(LOG_VKEY)  # names no ledger: it is for any
    with pytest.raises(QuorumError, match="the policy has no log line for the ledger"):
        quorum.verify_log(vkey(ORIGIN, public_bytes(KEYS["X1"])))


def test_names_are_bytes_and_not_characters() -> None:
    kelvin, broken = b"\xe2\x84\xaa", b"\xff"
    policy = b"".join(
        b"witness %s %s\n" % (name, vkey_of(key).encode())
        for name, key in ((b"K", "X1"), (kelvin, "X2"), (broken, "X3"), (b"a\xc2\xa0b", "Y1"))
    )
    quorum = parse_quorum(policy + b"group g all K %s %s\nquorum g\n" % (kelvin, broken))
    assert quorum.check(cosigned(head(), "X1", "X2", "X3")).met
    assert not quorum.check(cosigned(head(), "X1", "X2", "Y1")).met


def test_policy_of_many_lines_is_accepted() -> None:
    seeds = [number.to_bytes(32, "big") for number in range(1, 41)]
    keys = [public_bytes(Ed25519PrivateKey.from_private_bytes(seed)) for seed in seeds]
    lines = [f"log {vkey(f'log.example/{i}', key)}" for i, key in enumerate(keys)]
    lines += [f"witness w{i} {cosignature_vkey(f'w.example/{i}', k)}" for i, k in enumerate(keys)]
    lines += [f"group g{i} all w{i}" for i in range(40)]
    lines.append(f"group all 40 {' '.join(f'g{i}' for i in range(40))}")
    quorum = parse_quorum("\n".join([*lines, "quorum all", ""]))
    assert (len(quorum.logs), len(quorum.witnesses), len(quorum.groups)) == (40, 40, 41)


A = f"witness a {vkey_of('X1')}\n"
B = f"witness b {vkey_of('X2')}\n"
SAME_KEY = cosignature_vkey("other.example/name", public_bytes(KEYS["X1"]))
SAME_LOG = vkey("other.example/name", public_bytes(LOG))


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        (f"{A}", "quorum line not found"),
        ("", "quorum line not found"),
        (f"{A}quorum a", "line 2: no newline at the end"),
        (f"{A}quorum a\nquorum a\n", "line 3: there is more than one quorum line"),
        (f"quorum a\n{A}", "line 1: 'a' is not defined on an earlier line"),
        (f"{A}quorum b\n", "line 2: 'b' is not defined"),
        (f"{A}quorum\n", "line 2: a quorum line cannot have 0 items"),
        (f"{A}quorum a a\n", "line 2: a quorum line cannot have 2 items"),
        (f"{A}{A}quorum a\n", "line 2: this witness's public key is repeated from an earlier line"),
        (f"{A}witness b {SAME_KEY}\nquorum a\n", "line 2: this witness's public key is repeated"),
        (
            f"log {LOG_VKEY}\nlog {SAME_LOG}\nquorum none\n",
            "line 2: this log's public key is repeated",
        ),
        (f"{A}witness a {vkey_of('X2')}\nquorum a\n", "line 2: the name 'a' is already used"),
        (f"witness none {vkey_of('X1')}\nquorum none\n", "line 1: the name 'none' is already used"),
        (f"{A}group a any a\nquorum a\n", "line 2: the name 'a' is already used"),
        (f"{A}group g any g\nquorum g\n", "line 2: 'g' is not defined on an earlier line"),
        (f"{A}group g any b\n{B}quorum g\n", "line 2: 'b' is not defined on an earlier line"),
        (f"{A}group g any none\nquorum g\n", "line 2: none cannot be a member"),
        (f"{A}group g any a a\nquorum g\n", "line 2: 'a' is already a member of a group"),
        (
            f"{A}group g any a\ngroup h any a\nquorum h\n",
            "line 3: 'a' is already a member of a group",
        ),
        (f"{A}group g any\nquorum g\n", "line 2: a group line cannot have 2 items"),
        (f"{A}group g 0 a\nquorum g\n", "line 2: '0' of 1 members is not possible"),
        (f"{A}group g 2 a\nquorum g\n", "line 2: '2' of 1 members is not possible"),
        (f"{A}group g 01 a\nquorum g\n", "line 2: '01' of 1 members is not possible"),
        (f"{A}group g -1 a\nquorum g\n", "line 2: '-1' of 1 members is not possible"),
        (f"{A}group g ALL a\nquorum g\n", "line 2: 'ALL' of 1 members is not possible"),
        (f"{A}group g \u0661 a\nquorum g\n", "line 2: '\u0661' of 1 members is not possible"),
        (f"witness a {vkey_of('X1')} u v\nquorum a\n", "line 1: a witness line cannot have 4"),
        (f"log {LOG_VKEY} u v\nquorum none\n", "line 1: a log line cannot have 3 items"),
        (f"witness a {LOG_VKEY}\nquorum a\n", "line 1: the vkey is not .* for cosignatures"),
        (f"log {vkey_of('X1')}\nquorum none\n", "line 1: the vkey is not .* for Ed25519"),
        (f"witness a {vkey_of('X1')[:-4]}\nquorum a\n", "line 1: the vkey is not"),
        ("Quorum none\n", "line 1: unknown keyword 'Quorum'"),
        ("quorum none # nobody\n", "line 1: a quorum line cannot have 3 items"),
        ("quorum none\r\n", "line 1: the byte 0x0d is not allowed"),
        ("#\x00\nquorum none\n", "line 1: the byte 0x00 is not allowed"),
        ("#\x7f\nquorum none\n", "line 1: the byte 0x7f is not allowed"),
        ("quorum\u00a0none\n", r"line 1: unknown keyword 'quorum\\xa0none'"),
        ("#" * 1_000_001, "longer than 1000000 bytes"),
    ],
)
def test_policy_against_the_format_is_rejected(policy: str, error: str) -> None:
    with pytest.raises(QuorumFileError, match=error):
        parse_quorum(policy)


@given(st.binary(max_size=200))
def test_policy_of_random_bytes_raises_one_error_or_none(policy: bytes) -> None:
    with suppress(QuorumFileError):
        parse_quorum(policy)


def test_policy_file_is_named_in_its_errors(tmp_path: Path) -> None:
    path = tmp_path / "policy"
    with pytest.raises(StorageError, match="policy"):
        read_quorum(path)
    path.write_text("quorum me\n")
    with pytest.raises(QuorumFileError, match=r"policy: line 1: 'me' is not defined"):
        read_quorum(path)
    path.write_text("quorum none\n")
    assert read_quorum(path) == Quorum(logs=(), witnesses=(), groups=(), rule="none")


def test_newest_witnessed_head_is_the_largest_that_meets_the_quorum() -> None:
    quorum = parse_quorum(f"{WITNESSES}group g 2 X1 X2\nquorum g\n")
    notes = [
        head(1),
        cosigned(head(2), "X1", "X2", seconds=20),
        cosigned(head(3), "X1", seconds=30),
        cosigned(head(5), "X1", "X2", seconds=50),
        cosigned(head(8), "Y1", seconds=80),
        head(9),
    ]
    found = witnessed_heads(notes, quorum=quorum)
    assert (found.size, found.note) == (5, notes[3])
    assert found.times == ((2, 20), (5, 50))  # one witness alone vouches for nothing
    assert witnessed_heads(reversed(notes), quorum=quorum).size == 5
    assert witnessed_heads(notes[:1], quorum=quorum).size == 0
    assert witnessed_heads(notes, quorum=parse_quorum("quorum none\n")).size == 9


def test_line_that_does_not_hold_is_told_and_costs_its_own_head_alone() -> None:
    quorum = parse_quorum(TWO_LEVELS)
    trio = ("X1", "X2", "Y1")
    moved = cosigned(head(4), "X2").rpartition("\u2014")[2]
    notes = [cosigned(head(2), *trio), f"{cosigned(head(3), 'X1', 'Y1')}\u2014{moved}"]
    found = witnessed_heads([*notes, cosigned(head(5), *trio)], quorum=quorum)
    assert (found.size, [size for size, _ in found.times]) == (5, [2, 5])
    assert found.false == ((3, "X2"),)
    assert witnessed_heads(notes, quorum=quorum).size == 2
    assert witnessed_heads([notes[0]], quorum=quorum).false == ()


def standing(*, revoked: int | None = None, since: int = 0, again: int | None = None) -> Authority:
    """Return what a ledger says that granted X1 in entry 0, and may have revoked it since (s)."""
    authority = Authority(LOG_VKEY)
    stream = authority_stream(ORIGIN)
    granted = {"v": 1, "role": "witness", "vkey": vkey_of("X1")}
    said: dict[int | None, tuple[str, dict[str, object]]] = {0: ("key.granted", granted)}
    said[revoked] = ("key.revoked", {**granted, "since": since * 10**9, "reason": "stolen"})
    said[again] = ("key.granted", granted)
    for index, (name, fields) in said.items():
        if index is None:
            continue
        body = encode_body(fields)
        author = AuthorKey("ledger", LOG).author(
            origin=ORIGIN, stream_id=stream, stream_version=1, name=name, body=body
        )
        entry = Entry(
            index=index,
            stream_id=stream,
            stream_version=1,
            time_ns=0,
            previous=bytes(32),
            name=name,
            body=body,
            author=author,
        )
        authority.apply(parse_entry(encode_entry(entry), index=index))
    return authority


@pytest.mark.parametrize(
    ("size", "seconds", "counts"),
    [(6, 99, True), (6, 100, False), (7, 99, False), (20, 99, False), (21, 100, True)],
)
def test_witness_counts_up_to_its_revocation_and_from_when_it_is_granted_again(
    size: int, seconds: int, counts: bool
) -> None:
    quorum = parse_quorum(f"witness a {vkey_of('X1')}\nquorum a\n")
    note = cosigned(head(size), "X1", seconds=seconds)
    authority = standing(revoked=6, since=100, again=20)
    assert quorum.check(note, authority=authority).met is counts
    assert witnessed_heads([note], quorum=quorum, authority=authority).size == size * counts
    assert quorum.check(note, authority=standing()).met  # the honest control
    if size > 6:
        with pytest.raises(QuorumError, match="the key of a is revoked"):
            quorum.verify(note, authority=standing(revoked=6, since=100))
