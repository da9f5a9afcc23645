"""Cosignatures: the bytes of the specification, and nothing else taken for them."""

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from signed_notes import sign_tree_head

from ledger.errors import EncodingError, MalformedError, SignatureError
from ledger.notes import public_bytes, vkey
from ledger.verification.verified_notes import open_tree_head, parse_note, parse_vkey
from ledger.witnessing.cosignatures import (
    cosignature_vkey,
    cosigned_at,
    open_cosignature,
    sign_cosignature,
)

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
LOG = Ed25519PrivateKey.from_private_bytes(bytes(32))
NAME = "witness.example/w1"
VKEY = "witness.example/w1+e75f6532+BAOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4"
HEAD = sign_tree_head(origin="log.example/a", size=3, root=bytes(32), key=LOG)
TEXT = HEAD.rpartition("\n\n")[0] + "\n"
SECONDS = 1_700_000_000
LINE = (
    "\u2014 witness.example/w1 519lMgAAAABlU/EArz7x1qLIcdA3UQrV9icGO6wsx8x6QLMEvQkEohiX67HYyKBYR3He"
    "s1jfpz0a/rNND61QfIP8b/mQfq0D6F6jAw==\n"
)

# A tree head of the Sigsum project's test log of 2025 with the cosignature of the witness
# witness.glasklar.is, as published: other people's programs made and carried it. Sigsum
# transports it without key names and key ids, which are ours here.
SIGSUM_ORIGIN = (
    "sigsum.org/v1/tree/44ad38f8226ff9bd27629a41e55df727308d0a1cd8a2c31d3170048ac1dd22a1"
)
SIGSUM_TEXT = f"{SIGSUM_ORIGIN}\n12851\nTM7doMPmr8g8/N361989lcvR6Ffs888Fabj2nOMnJ/g=\n"
SIGSUM_LOG_KEY = bytes.fromhex("0ec7e16843119b120377a73913ac6acbc2d03d82432e2c36b841b09a95841f25")
SIGSUM_LOG_SIGNATURE = bytes.fromhex(
    "880207e73dbe7aa11ebab8118d4da67e59a2ff29d9b11e98b8d5d4062dbd4d12"
    "765b5389b4f0583130fa8573cf997d60b94c9e4d700469aba5a9f4383f619509"
)
GLASKLAR_KEY = bytes.fromhex("b2106db9065ec97f25e09c18839216751a6e26d8ed8b41e485a563d3d1498536")
GLASKLAR_SECONDS = 1_754_020_861
GLASKLAR_SIGNATURE = bytes.fromhex(
    "9ab58c0f6cbfd02549891b3b9d7e68fd7fefd42b6dc22fbbee7ed3119d1ed180"
    "7edc74c8b12fd430e4ee6084b59077d4c8eafe09eefdbbe31666828c34d24702"
)


def line_of(name: str, blob: bytes) -> str:
    return f"\u2014 {name} {base64.b64encode(blob).decode()}\n"


def test_cosignature_has_these_bytes_for_a_fixed_key_and_time() -> None:
    assert cosignature_vkey(NAME, public_bytes(KEY)) == VKEY
    assert sign_cosignature(TEXT, name=NAME, key=KEY, seconds=SECONDS) == LINE


def test_cosignature_gives_its_time_when_it_stands_beside_others() -> None:
    other = sign_cosignature(TEXT, name="other.example/w", key=LOG, seconds=5)
    note = parse_note(HEAD + other + LINE)
    assert open_cosignature(note, vkey=VKEY) == SECONDS
    assert open_tree_head(HEAD + other + LINE, vkey=vkey("log.example/a", public_bytes(LOG)))


def test_cosignature_of_another_program_is_accepted() -> None:
    log_vkey = vkey(SIGSUM_ORIGIN, SIGSUM_LOG_KEY)
    witness_vkey = cosignature_vkey("witness.glasklar.is", GLASKLAR_KEY)
    log_id = parse_vkey(log_vkey).key_id
    witness_id = parse_vkey(witness_vkey, role="witness").key_id
    stamped = GLASKLAR_SECONDS.to_bytes(8, "big") + GLASKLAR_SIGNATURE
    note = (
        f"{SIGSUM_TEXT}\n"
        + line_of(SIGSUM_ORIGIN, log_id + SIGSUM_LOG_SIGNATURE)
        + line_of("witness.glasklar.is", witness_id + stamped)
    )
    assert open_tree_head(note, vkey=log_vkey).size == 12851
    assert open_cosignature(parse_note(note), vkey=witness_vkey) == GLASKLAR_SECONDS
    with pytest.raises(SignatureError, match="is invalid"):
        open_cosignature(parse_note(note.replace("12851", "12852")), vkey=witness_vkey)


def test_missing_cosignature_is_told_from_a_bad_one() -> None:
    assert cosigned_at(parse_note(HEAD), vkey=VKEY) == (None, False)
    moved = sign_cosignature("another text\n", name=NAME, key=KEY, seconds=1)
    assert cosigned_at(parse_note(HEAD + moved), vkey=VKEY) == (None, True)
    with pytest.raises(SignatureError, match=r"has no cosignature by witness\.example/w1"):
        open_cosignature(parse_note(HEAD), vkey=VKEY)


def test_earliest_time_counts_when_a_witness_cosigned_twice() -> None:
    again = sign_cosignature(TEXT, name=NAME, key=KEY, seconds=SECONDS + 60)
    assert open_cosignature(parse_note(HEAD + again + LINE), vkey=VKEY) == SECONDS


def test_second_line_that_does_not_hold_is_rejected_and_takes_nothing_from_the_first() -> None:
    forged = sign_cosignature("another text\n", name=NAME, key=KEY, seconds=1)
    assert cosigned_at(parse_note(HEAD + LINE + forged), vkey=VKEY) == (SECONDS, True)
    assert cosigned_at(parse_note(HEAD + LINE), vkey=VKEY) == (SECONDS, False)
    with pytest.raises(SignatureError, match="is invalid"):
        open_cosignature(parse_note(HEAD + LINE + forged), vkey=VKEY)


@given(position=st.integers(4, 75), bit=st.integers(0, 7))
def test_cosignature_with_a_flipped_bit_is_rejected(position: int, bit: int) -> None:
    blob = bytearray(base64.b64decode(LINE.split(" ")[2]))
    blob[position] ^= 1 << bit
    with pytest.raises(SignatureError, match=r"is invalid for this note|is malformed"):
        open_cosignature(parse_note(HEAD + line_of(NAME, bytes(blob))), vkey=VKEY)


@pytest.mark.parametrize("length", [5, 11, 12, 75, 77, 140])
def test_cosignature_of_another_length_is_rejected(length: int) -> None:
    blob = (base64.b64decode(LINE.split(" ")[2]) * 2)[:length]
    with pytest.raises(SignatureError, match="is malformed"):
        open_cosignature(parse_note(HEAD + line_of(NAME, blob)), vkey=VKEY)


@pytest.mark.parametrize("seconds", [0, -1, 2**63])
def test_cosignature_without_a_possible_time_is_rejected(seconds: int) -> None:
    with pytest.raises(EncodingError, match="is not a valid time"):
        sign_cosignature(TEXT, name=NAME, key=KEY, seconds=seconds)
    stamp = (seconds % 2**64).to_bytes(8, "big")
    message = f"cosignature/v1\ntime {seconds % 2**64}\n{TEXT}".encode()
    blob = parse_vkey(VKEY, role="witness").key_id + stamp + KEY.sign(message)
    with pytest.raises(SignatureError, match="is malformed"):
        open_cosignature(parse_note(HEAD + line_of(NAME, blob)), vkey=VKEY)


def test_plain_signature_by_the_witness_key_is_rejected_as_a_cosignature() -> None:
    blob = parse_vkey(VKEY, role="witness").key_id + bytes(7) + b"\x01" + KEY.sign(TEXT.encode())
    with pytest.raises(SignatureError, match="is invalid"):
        open_cosignature(parse_note(HEAD + line_of(NAME, blob)), vkey=VKEY)


def test_ledger_vkey_is_rejected_as_a_witness_vkey() -> None:
    with pytest.raises(MalformedError, match="for cosignatures"):
        open_cosignature(parse_note(HEAD + LINE), vkey=vkey(NAME, public_bytes(KEY)))


@pytest.mark.parametrize(
    "name", ["", "a b", "a+b", "a\nb", "a\u2003b", "a\x00b", "a\x85b", "\ud800"]
)
def test_witness_name_that_cannot_stand_in_a_note_is_rejected(name: str) -> None:
    with pytest.raises(EncodingError, match="cannot be a witness name"):
        cosignature_vkey(name, public_bytes(KEY))
