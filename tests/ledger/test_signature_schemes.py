"""Signature schemes: one entry in the table adds one, and no key passes for one of another type."""

import base64
from argparse import Namespace
from collections.abc import Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey, Ed448PublicKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey, MLDSA44PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from eventsourcing.persistence import StoredEvent
from frontdoor import call_here

from ledger.entries import AuthorKey
from ledger.errors import (
    AuthorityError,
    EncodingError,
    KeyFileError,
    MalformedError,
    SignatureError,
)
from ledger.handover import second_verifier
from ledger.handover.envelope import envelope_key_id, open_envelope, public_pem, seal
from ledger.keys import load_or_create_key
from ledger.notes import public_bytes, vkey
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording.opening import open_ledger
from ledger.schemes import SCHEMES, Algorithm, PrivateKey, Scheme, schemes_of
from ledger.verification.reader import check_ledger, read_tree_head
from ledger.verification.verified_notes import open_tree_head, parse_note, parse_vkey, verify_note
from ledger.witnessing.cosignatures import cosigned_at, sign_cosignature

UNUSED = 0x7E  # no signature type of the specification
ROLES = ("ledger", "judge", "operator", "publisher", "witness")
NEW = [
    Algorithm("an ML-DSA-44", MLDSA44PrivateKey, MLDSA44PublicKey.from_public_bytes, 1312, 2420),
    Algorithm("an Ed448", Ed448PrivateKey, Ed448PublicKey.from_public_bytes, 57, 114),
]


@pytest.fixture(autouse=True)
def own_table(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    yield monkeypatch
    parse_vkey.cache_clear()


def add(algorithm: Algorithm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what somebody does who adds a scheme for tree heads: one entry."""
    added = Scheme(UNUSED, algorithm, f"for {algorithm.name.split()[1]}", ("ledger",))
    monkeypatch.setitem(SCHEMES, UNUSED, added)


def put_key(algorithm: Algorithm, ledger: Path) -> None:
    path = LedgerPaths(ledger).key
    path.parent.mkdir(parents=True)
    key = algorithm.generate()
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    path.chmod(0o600)


def opened(ledger: Path) -> closing[SignedRecorder]:
    store, signer = open_ledger(LedgerPaths(ledger), passphrase=None)
    return closing(SignedRecorder(store, signer=signer))


def type_of(vkey: str) -> int:
    return base64.b64decode(vkey.split("+", 2)[2])[0]


def append_one(ledger: Path) -> str:
    """Append an event and return the ledger's first vkey."""
    with opened(ledger) as recorder:
        recorder.insert_events([StoredEvent(uuid4(), 1, "test.event", b"")])
    return LedgerPaths(ledger).vkey.read_text().strip()


@pytest.mark.parametrize("algorithm", NEW, ids=lambda each: each.name.split()[1])
def test_scheme_that_the_table_gained_signs_and_verifies_tree_heads(
    tmp_path: Path, own_table: pytest.MonkeyPatch, algorithm: Algorithm
) -> None:
    put_key(algorithm, tmp_path / "new" / "ledger")
    with pytest.raises(KeyFileError, match="the key is not an Ed25519 key"):
        append_one(tmp_path / "new" / "ledger")
    before = append_one(tmp_path / "before")
    add(algorithm, own_table)
    own = append_one(tmp_path / "new" / "ledger")
    assert type_of(own) == UNUSED
    assert check_ledger(tmp_path / "new" / "ledger", vkey=own).size == 1
    done = call_here(
        ["verify", "--vkey", LedgerPaths(tmp_path / "new" / "ledger").vkey], home=tmp_path / "new"
    )
    assert done.returncode == 0, done.stderr
    # The second verifier has a table of its own.
    target = str(LedgerPaths(tmp_path / "new" / "ledger").database)
    arguments = Namespace(target=target, vkey=own, witness=[], head=None, blob_bytes=1)
    with pytest.raises(second_verifier.Usage, match="a type that its role has"):
        second_verifier.check(arguments)
    load = lambda public: algorithm.load(public).verify  # noqa: E731
    known = {**second_verifier.KINDS["ledger"], UNUSED: (algorithm.key_bytes, load)}
    own_table.setitem(second_verifier.KINDS, "ledger", known)
    assert "1 entries" in second_verifier.check(arguments)
    # Changed text, and another's signature under this key's id, are rejected.
    note = read_tree_head(tmp_path / "new" / "ledger")
    assert note is not None
    assert open_tree_head(note, vkey=own).size == 1
    for changed in (note.replace("\n1\n", "\n2\n"), note[:-8] + "AAAAAA=\n"[-8:]):
        with pytest.raises((SignatureError, MalformedError)):
            open_tree_head(changed, vkey=own)
    # It signs no entries, for which the table does not name it; Ed25519 takes over by a rotation.
    with opened(tmp_path / "new" / "ledger") as recorder:
        operator = vkey("o", public_bytes(load_or_create_key(tmp_path / "o", passphrase=None)))
        with pytest.raises(EncodingError, match="a signature of 64"):
            recorder.grant_key(operator, role="operator")
        assert type_of(recorder.rotate_key()) == 0x01
        recorder.grant_key(operator, role="operator")
    assert check_ledger(tmp_path / "new" / "ledger", vkey=own).ok
    # The control: what Ed25519 signed before and signs now.
    assert append_one(tmp_path / "before") == before
    assert check_ledger(tmp_path / "before", vkey=before).size == 2
    own_table.delitem(SCHEMES, UNUSED)
    parse_vkey.cache_clear()
    with pytest.raises(MalformedError, match="not a C2SP verifier key for Ed25519; check"):
        open_tree_head(note, vkey=own)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PrivateKey]:
    folder = tmp_path_factory.mktemp("keys")
    return {role: load_or_create_key(folder / role, role=role, passphrase=None) for role in ROLES}


def test_each_role_has_its_schemes_and_no_vkey_of_another_is_accepted(
    keys: dict[str, PrivateKey],
) -> None:
    types = {role: [scheme.type for scheme in schemes_of(role)] for role in ROLES}
    assert types == {
        "ledger": [1], "judge": [1], "operator": [1], "publisher": [2], "witness": [4],
    }  # fmt: skip
    for own, other in product(ROLES, ROLES):
        text = vkey("name", public_bytes(keys[own]), role=own)
        if types[own] == types[other]:
            assert parse_vkey(text, role=other).public_key == public_bytes(keys[own])
        else:
            with pytest.raises(MalformedError, match="not a C2SP verifier key"):
                parse_vkey(text, role=other)
    with pytest.raises(MalformedError, match="not a C2SP verifier key"):
        parse_vkey(text, role="nobody")


@pytest.mark.parametrize("byte", [0x00, 0x02, 0x03, 0x04, 0x05, 0x06, 0xFF])
def test_type_byte_is_part_of_the_key_id(keys: dict[str, PrivateKey], byte: int) -> None:
    text = vkey("name", public_bytes(keys["ledger"]))
    name, key_id, material = text.split("+", 2)
    retyped = base64.b64encode(bytes([byte]) + base64.b64decode(material)[1:]).decode()
    for role in ROLES:
        with pytest.raises(MalformedError, match=r"not a C2SP|key id does not fit"):
            parse_vkey(f"{name}+{key_id}+{retyped}", role=role)
    assert parse_vkey(text).name == "name"


def test_signature_of_one_type_is_rejected_as_one_of_another(keys: dict[str, PrivateKey]) -> None:
    """The same 32 bytes may be a ledger's key in one place, and a witness's in another."""
    key, text = keys["witness"], "name\n1\nAAAA\n"
    as_ledger = parse_vkey(vkey("name", public_bytes(key)))
    as_witness = parse_vkey(vkey("name", public_bytes(key), role="witness"), role="witness")
    assert as_ledger.key_id != as_witness.key_id
    publisher = parse_vkey(
        vkey("name", public_bytes(keys["publisher"]), role="publisher"), role="publisher"
    )

    def note(key_id: bytes, signature: bytes) -> str:
        line = base64.b64encode(key_id + signature).decode()
        return f"{text}\n\u2014 name {line}\n"

    plain = as_ledger.scheme.algorithm.sign(key, text.encode())
    by_p256 = publisher.scheme.algorithm.sign(keys["publisher"], text.encode())
    stamped = f"{text}\n" + sign_cosignature(text, name="name", key=key, seconds=5)
    verify_note(parse_note(note(as_ledger.key_id, plain)), key=as_ledger)
    witness_vkey = vkey("name", public_bytes(key), role="witness")
    assert cosigned_at(parse_note(stamped), vkey=witness_vkey) == (5, False)
    cosignature = parse_note(stamped).signatures[0].signature
    for signed, verifier in [
        (note(as_witness.key_id, plain), as_witness),
        (note(publisher.key_id, by_p256), publisher),
        (note(as_ledger.key_id, by_p256), as_ledger),
        (note(as_ledger.key_id, cosignature), as_ledger),
        (note(as_ledger.key_id, cosignature[8:]), as_ledger),
        (stamped, as_ledger),
        (stamped, as_witness),
    ]:
        with pytest.raises(SignatureError):
            verify_note(parse_note(signed), key=verifier)
    for signature in (plain, (5).to_bytes(8, "big") + plain):
        signed = note(as_witness.key_id, signature)
        assert cosigned_at(parse_note(signed), vkey=witness_vkey) == (None, True)


def test_envelope_is_verified_by_its_own_algorithm_only(keys: dict[str, PrivateKey]) -> None:
    ledger, publisher = keys["ledger"], keys["publisher"]
    for key, other in [(ledger, publisher), (publisher, ledger)]:
        text = seal(b"payload", payload_type="text/plain", key=key)
        assert open_envelope(text, public_key=public_bytes(key))[1] == b"payload"
        own, others = (envelope_key_id(public_bytes(each)) for each in (key, other))
        with pytest.raises(SignatureError, match="is invalid"):
            open_envelope(text.replace(own, others), public_key=public_bytes(other))


@pytest.mark.parametrize("role", ["witness", "judge"])
def test_entries_are_signed_only_by_schemes_that_the_table_names_for_it(
    tmp_path: Path, keys: dict[str, PrivateKey], own_table: pytest.MonkeyPatch, role: str
) -> None:
    """Even if the algorithm and the length of its signatures would do."""
    ed25519 = SCHEMES[1].algorithm
    own_table.setitem(SCHEMES, UNUSED, Scheme(UNUSED, ed25519, "for trials", ("judge",)))
    key, judge = keys[role], ed25519.generate()
    text = vkey("name", public_bytes(key), role=role)
    if role == "judge":
        raw, scheme = public_bytes(key), SCHEMES[UNUSED]
        material = base64.b64encode(bytes([UNUSED]) + raw).decode()
        text = f"name+{scheme.key_id('name', raw).hex()}+{material}"
    with opened(tmp_path) as recorder:
        recorder.grant_key(text, role=role)
        recorder.grant_key(vkey("judge", public_bytes(judge)), role="judge")
        event = [StoredEvent(uuid4(), 1, "test.event", b"")]
        with pytest.raises(AuthorityError, match="not in force for that role"):
            recorder.insert_events(event, author=AuthorKey(role, key))
        recorder.insert_events(event, author=AuthorKey("judge", judge))
    assert check_ledger(tmp_path).size == 3


def test_algorithms_that_a_public_key_does_not_tell_apart_are_rejected(
    keys: dict[str, PrivateKey], own_table: pytest.MonkeyPatch
) -> None:
    public_key = public_bytes(keys["ledger"])
    assert "PUBLIC KEY" in public_pem(public_key)
    add(Algorithm("an X", Ed448PrivateKey, Ed448PublicKey.from_public_bytes, 32, 64), own_table)
    with pytest.raises(ValueError, match="not of exactly one signature scheme"):
        public_pem(public_key)
