"""Frozen bytes: vectors of the specifications, and the ledger's own."""

import base64
import hashlib
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from loose_entries import Entry, decode_entry, encode_entry
from signed_notes import sign_note, sign_tree_head

from ledger.bodies import decode_body, encode_body
from ledger.entries import Author, author_statement, entry_hash
from ledger.errors import MalformedError, SignatureError
from ledger.notes import public_bytes, vkey
from ledger.verification.states import State
from ledger.verification.verified_entries import parse_entry, verify_author
from ledger.verification.verified_notes import open_tree_head
from ledger.verification.verify import Verification

# RFC 6962 trees over these leaves, as published with certificate-transparency-go.
RFC6962_LEAVES = [
    "",
    "00",
    "10",
    "2021",
    "3031",
    "40414243",
    "5051525354555657",
    "606162636465666768696a6b6c6d6e6f",
]
RFC6962_ROOTS = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]

# C2SP signed-note, "Example".
C2SP_VKEY = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k"
C2SP_NOTE = (
    "This is an example message.\n\n\u2014 example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi"
    "2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n"
)

# The example of Go's golang.org/x/mod/sumdb/note, which has the private key too.
GO_SEED = base64.b64decode("AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz")[1:]
GO_VKEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
GO_TEXT = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n"
)
GO_SIGNATURE_LINE = (
    "\u2014 PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdng"
    "otpRZb6KE6RyyBwJnAM=\n"
)

SEED = bytes(range(32))  # RFC 8032 lets any 32 bytes be a private key
ORIGIN = "proctor.local/000102030405060708090a0b0c0d0e0f"
STREAM = UUID("00112233-4455-6677-8899-aabbccddeeff")

GOLDEN_ENTRY = (
    "01"  # format
    "0000000000000000"  # index
    "00112233445566778899aabbccddeeff"  # stream id
    "0000000000000001"  # stream version
    "17979cfe362a0000"  # time: 1 700 000 000 s
    "0000000000000000000000000000000000000000000000000000000000000000"  # previous
    "00"  # no author
    "0b"
    "72756e2e73746172746564"  # run.started
    "0005"
    "68656c6c6f"  # hello
)
GOLDEN_VKEY = (
    "proctor.local/000102030405060708090a0b0c0d0e0f+f22d6947+AQOh"
    "B7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4"
)
GOLDEN_NOTE = (
    "proctor.local/000102030405060708090a0b0c0d0e0f\n"
    "1\n"
    "Jxv1/1zuMrPZWpEemLkSNb6VNSdM32cYXdVmkwIisVA=\n"
    "\n"
    "\u2014 proctor.local/000102030405060708090a0b0c0d0e0f "
    "8i1pRy81NQB7GPHRrZnItepps2/wj9ycxxEEpeborxUfNFPUpxmRfN3ScF9B"
    "nJFFwux7bWKiMomqoVzD0wVbvFMj9Qg=\n"
)


def golden_key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(SEED)


def test_tree_roots_are_those_of_rfc6962() -> None:
    tree = State()
    roots = [tree.root.hex()]
    for leaf in RFC6962_LEAVES:
        tree = tree.grown([entry_hash(bytes.fromhex(leaf))])
        roots.append(tree.root.hex())
    assert roots == RFC6962_ROOTS


def test_note_of_the_specification_is_signed_but_is_no_tree_head() -> None:
    with pytest.raises(MalformedError, match="the note is not a tree head"):
        open_tree_head(C2SP_NOTE, vkey=C2SP_VKEY)
    with pytest.raises(SignatureError, match=r"the signature by example\.com/foo is invalid"):
        open_tree_head(C2SP_NOTE.replace("example message", "example massage"), vkey=C2SP_VKEY)


def test_vkey_is_that_of_the_specification() -> None:
    public_key = base64.b64decode(C2SP_VKEY.rpartition("+")[2])[1:]
    assert vkey("example.com/foo", public_key) == C2SP_VKEY


def test_note_signed_with_the_published_key_has_the_published_signature() -> None:
    key = Ed25519PrivateKey.from_private_bytes(GO_SEED)
    assert vkey("PeterNeumann", public_bytes(key)) == GO_VKEY
    assert sign_note(GO_TEXT, name="PeterNeumann", key=key) == f"{GO_TEXT}\n{GO_SIGNATURE_LINE}"


def test_entry_bytes_are_frozen() -> None:
    entry = Entry(
        index=0,
        stream_id=STREAM,
        stream_version=1,
        time_ns=1_700_000_000 * 10**9,
        previous=bytes(32),
        name="run.started",
        body=b"hello",
    )
    data = bytes.fromhex(GOLDEN_ENTRY)
    assert encode_entry(entry) == data
    assert decode_entry(data) == entry
    assert hashlib.sha256(b"\x00" + data).hexdigest() == (
        "271bf5ff5cee32b3d95a911e98b91235be9535274cdf67185dd566930222b150"
    )
    parsed = parse_entry(data, index=0)
    assert parsed.entry_hash == entry_hash(data)
    assert (parsed.name, parsed.body, parsed.author) == ("run.started", b"hello", None)


def test_tree_head_bytes_are_frozen() -> None:
    root = hashlib.sha256(b"\x00" + bytes.fromhex(GOLDEN_ENTRY)).digest()
    note = sign_tree_head(origin=ORIGIN, size=1, root=root, key=golden_key())
    assert note == GOLDEN_NOTE
    key = vkey(ORIGIN, public_bytes(golden_key()))
    assert key == GOLDEN_VKEY
    stream = (0, STREAM.bytes, 1, "run.started", bytes.fromhex(GOLDEN_ENTRY))
    Verification(vkey=key).run([stream], [(1, note, root)])


def test_author_block_is_frozen_and_verifies() -> None:
    key = golden_key()
    public_key = public_bytes(key)
    statement = author_statement(
        origin=ORIGIN,
        stream_id=STREAM,
        stream_version=2,
        role="operator",
        name="key.granted",
        body=b"x",
    )
    assert statement == (
        b"ledger/author/v2\n"
        + ORIGIN.encode()
        + b"\n"
        + STREAM.bytes
        + b"\x00\x00\x00\x00\x00\x00\x00\x02"
        + b"\x08operator\x0bkey.granted"
        + hashlib.sha256(b"x").digest()
    )
    author = Author(
        role="operator",
        key_id=hashlib.sha256(public_key).digest(),
        signature=key.sign(statement),
    )
    entry = Entry(
        index=7,
        stream_id=STREAM,
        stream_version=2,
        time_ns=5,
        previous=bytes(range(32)),
        name="key.granted",
        body=b"x",
        author=author,
    )
    data = encode_entry(entry)
    assert data[73] == 1 + len("operator") + 32 + 64
    assert decode_entry(data) == entry
    verify_author(parse_entry(data, index=7), origin=ORIGIN, public_key=public_key)
    with pytest.raises(SignatureError, match="entry 7: the author's signature is invalid"):
        verify_author(parse_entry(data, index=7), origin=f"{ORIGIN}x", public_key=public_key)
    moved = data.replace(b"operator", b"operetta")
    with pytest.raises(SignatureError, match="entry 7: the author's signature is invalid"):
        verify_author(parse_entry(moved, index=7), origin=ORIGIN, public_key=public_key)
    with pytest.raises(SignatureError, match="entry 7 names a different key"):
        verify_author(parse_entry(data, index=7), origin=ORIGIN, public_key=bytes(32))


def test_body_bytes_are_frozen() -> None:
    body = {"v": 1, "at": 2**60, "loss": float("inf"), "xs": [None, True, -1, b"\x00", "é"]}
    data = bytes.fromhex(
        "84a17601a26174cf1000000000000000a46c6f7373cb7ff0000000000000a2787395c0c3ffc40100a2c3a9"
    )
    assert encode_body(body) == data
    assert decode_body(data) == body
