"""Other people's tools accept what is written here, and refuse it once it was changed."""

import base64
import hashlib
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from eventsourcing.persistence import StoredEvent
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError as OtherVerificationError
from securesystemslib.signer import SSlibKey  # type: ignore[attr-defined]  # no __all__

from ledger.application import LedgerApplication
from ledger.errors import MalformedError, SignatureError, VerificationError
from ledger.handover.bundle import export_bundle
from ledger.handover.envelope import (
    IN_TOTO,
    envelope_key_id,
    open_envelope,
    public_pem,
    seal,
    tree_head_statement,
)
from ledger.mapper import EventRegistry
from ledger.verification.reader import read_tree_head
from ledger.verification.verified_notes import parse_vkey

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key().public_bytes_raw()


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("ledger")
    with LedgerApplication.open(directory, EventRegistry()) as app:
        app.recorder.insert_events([StoredEvent(UUID(int=1), 1, "test.event", b"body")])
    return directory


# --- openssl ---


def openssl(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("openssl")
    assert program, "these tests need the program openssl; install it (apt-get install openssl)"
    command = [program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def pem_beside(ledger: Path) -> str:
    return public_pem(parse_vkey((ledger / "ledger.vkey").read_text()).public_key)


@pytest.fixture
def signed_head(ledger: Path, tmp_path: Path) -> tuple[Path, Path, Path]:
    """A tree head's text, its signature, and the public key as PEM, in files."""
    note = read_tree_head(ledger)
    assert note
    text, _, lines = note.partition("\n\n")
    signature = base64.b64decode(lines.split(" ")[2])[4:]
    files = tmp_path / "text", tmp_path / "signature", tmp_path / "public.pem"
    files[0].write_text(f"{text}\n")
    files[1].write_bytes(signature)
    files[2].write_text(pem_beside(ledger))
    return files


def openssl_verifies(text: Path, signature: Path, public: Path) -> bool:
    done = openssl(
        *("pkeyutl", "-verify", "-rawin", "-pubin"),
        *("-inkey", public, "-in", text, "-sigfile", signature),
    )
    return done.returncode == 0 and "Signature Verified Successfully" in done.stdout


def test_openssl_verifies_a_tree_head(signed_head: tuple[Path, Path, Path]) -> None:
    assert openssl_verifies(*signed_head)


@pytest.mark.parametrize("which", [0, 1])
def test_mutated_tree_head_is_rejected_by_openssl(
    signed_head: tuple[Path, Path, Path], which: int
) -> None:
    path, rng = signed_head[which], random.Random(which)
    honest = path.read_bytes()
    for _ in range(10):
        changed = bytearray(honest)
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        assert not openssl_verifies(*signed_head)
    path.write_bytes(honest)
    assert openssl_verifies(*signed_head)


def test_tree_head_under_another_key_is_rejected_by_openssl(
    signed_head: tuple[Path, Path, Path],
) -> None:
    other = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    signed_head[2].write_text(public_pem(other))
    assert not openssl_verifies(*signed_head)


def test_openssl_reads_the_private_key_and_finds_the_same_public_one(
    ledger: Path, signed_head: tuple[Path, Path, Path]
) -> None:
    done = openssl("pkey", "-in", ledger / "keys" / "ledger.pem", "-pubout")
    assert done.returncode == 0, done.stderr
    assert done.stdout == signed_head[2].read_text()


def test_openssl_asks_for_the_passphrase_of_an_encrypted_key(tmp_path: Path) -> None:
    with LedgerApplication.open(tmp_path, EventRegistry(), passphrase=b"correct horse"):
        pass
    key = tmp_path / "keys" / "ledger.pem"
    right = openssl("pkey", "-in", key, "-passin", "pass:correct horse", "-pubout")
    assert right.stdout == pem_beside(tmp_path)
    assert openssl("pkey", "-in", key, "-passin", "pass:wrong", "-pubout").returncode != 0


# --- securesystemslib ---


def theirs(public: bytes = PUBLIC) -> SSlibKey:
    keyid = hashlib.sha256(public).hexdigest()
    return SSlibKey(keyid, "ed25519", "ed25519", {"public": public.hex()})


def securesystemslib_verifies(text: str, key: SSlibKey) -> bool:
    envelope = Envelope.from_dict(json.loads(text))
    try:
        envelope.verify([key], 1)
    except OtherVerificationError:
        return False
    return True


def test_securesystemslib_verifies_our_envelope() -> None:
    for payload in (b"", b"{}", "é\n".encode(), bytes(range(256)) * 100):
        text = seal(payload, payload_type=IN_TOTO, key=KEY)
        assert securesystemslib_verifies(text, theirs())
        assert Envelope.from_dict(json.loads(text)).payload == payload
        assert open_envelope(text, public_key=PUBLIC) == (IN_TOTO, payload)


def change_payload(envelope: dict[str, Any]) -> None:
    envelope["payload"] = base64.b64encode(b"another").decode()


def change_type(envelope: dict[str, Any]) -> None:
    envelope["payloadType"] += "x"


def move_a_byte_between_type_and_payload(envelope: dict[str, Any]) -> None:
    payload = envelope["payloadType"][-1].encode() + base64.b64decode(envelope["payload"])
    envelope["payload"] = base64.b64encode(payload).decode()
    envelope["payloadType"] = envelope["payloadType"][:-1]


def change_signature(envelope: dict[str, Any]) -> None:
    signature = bytearray(base64.b64decode(envelope["signatures"][0]["sig"]))
    signature[5] ^= 1
    envelope["signatures"][0]["sig"] = base64.b64encode(signature).decode()


def sign_with_another_key(envelope: dict[str, Any]) -> None:
    payload = base64.b64decode(envelope["payload"])
    other = seal(payload, payload_type=IN_TOTO, key=Ed25519PrivateKey.generate())
    envelope["signatures"][0]["sig"] = json.loads(other)["signatures"][0]["sig"]


def name_another_key(envelope: dict[str, Any]) -> None:
    envelope["signatures"][0]["keyid"] = "00" * 32


CHANGES: list[Callable[[dict[str, Any]], None]] = [
    change_payload,
    change_type,
    move_a_byte_between_type_and_payload,
    change_signature,
    sign_with_another_key,
    name_another_key,
]


@pytest.mark.parametrize("change", CHANGES)
def test_mutated_envelope_is_rejected_by_both(change: Callable[[dict[str, Any]], None]) -> None:
    envelope = json.loads(seal(b"some payload", payload_type=IN_TOTO, key=KEY))
    assert securesystemslib_verifies(json.dumps(envelope), theirs())
    change(envelope)
    text = json.dumps(envelope)
    assert not securesystemslib_verifies(text, theirs())
    with pytest.raises(SignatureError):
        open_envelope(text, public_key=PUBLIC)


def test_our_reader_opens_what_securesystemslib_has_signed_beside_others() -> None:
    envelope = json.loads(seal(b"payload", payload_type="text/plain", key=KEY))
    other = json.loads(
        seal(b"payload", payload_type="text/plain", key=Ed25519PrivateKey.generate())
    )
    envelope["signatures"].insert(0, other["signatures"][0])
    written_by_them = Envelope.from_dict(json.loads(json.dumps(envelope))).to_dict()
    text = json.dumps(written_by_them)
    assert open_envelope(text, public_key=PUBLIC) == ("text/plain", b"payload")


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ('{"payload":', '{"payload": "", "payload":', "a key is repeated"),
        ('{"payload":', '{"more": 1, "payload":', "unknown field `more`"),
        ('"payloadType":', '"type":', "unknown field `type`"),
        ('"sig":', '"cert": 1, "sig":', "unknown field `cert`"),
        ('"cGF5bG9hZA=="', '"cGF5bG9hZA"', "base64"),
        ('"cGF5bG9hZA=="', '"cGF5bG9hZB=="', "canonical"),
        ('"cGF5bG9hZA=="', "17", "Expected `str`"),
        ('"text/plain"', "null", r"got `null` - at `\$.payloadType`"),
        ("}]}", "}], ", "not JSON"),
        ("}]}", "}]} {}", "not JSON"),
        ('"signatures": [{', '"signatures": [[' + "[" * 100_000, "deeper than 32"),
    ],
)
def test_envelope_of_another_form_is_rejected(old: str, new: str, match: str) -> None:
    text = seal(b"payload", payload_type="text/plain", key=KEY)
    assert old in text
    with pytest.raises(MalformedError, match=match):
        open_envelope(text.replace(old, new), public_key=PUBLIC)


def test_envelope_with_no_or_too_many_signatures_is_rejected() -> None:
    envelope = json.loads(seal(b"payload", payload_type="text/plain", key=KEY))
    for times in (0, 17):
        text = json.dumps({**envelope, "signatures": envelope["signatures"] * times})
        with pytest.raises(MalformedError, match="1 to 16 signatures"):
            open_envelope(text, public_key=PUBLIC)
    twice = json.dumps({**envelope, "signatures": envelope["signatures"] * 2})
    with pytest.raises(SignatureError, match="2 signatures by this key"):
        open_envelope(twice, public_key=PUBLIC)


def test_no_flipped_bit_of_an_envelope_changes_what_is_read() -> None:
    honest, rng = seal(b"payload", payload_type="text/plain", key=KEY), random.Random(1)
    for _ in range(300):
        changed = bytearray(honest.encode())
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(7)
        try:
            read = open_envelope(changed.decode(), public_key=PUBLIC)
        except VerificationError:
            continue
        assert read == ("text/plain", b"payload")  # a space became another white space


def test_statement_about_a_tree_head_is_what_in_toto_expects(ledger: Path) -> None:
    note = read_tree_head(ledger)
    assert note
    text = seal(tree_head_statement(note), payload_type=IN_TOTO, key=KEY)
    assert securesystemslib_verifies(text, theirs())
    statement = json.loads(Envelope.from_dict(json.loads(text)).payload)
    origin, size, root = note.split("\n")[:3]
    assert statement == {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": origin, "digest": {"sha256": base64.b64decode(root).hex()}}],
        "predicateType": "https://proctor.local/tree-head/v1",
        "predicate": {"size": int(size), "note": note},
    }


def test_key_id_of_an_envelope_is_that_of_an_author() -> None:
    assert envelope_key_id(PUBLIC) == hashlib.sha256(PUBLIC).hexdigest()


# --- The guide ---

GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "verify.md"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a home and a bundle in it, as the guide has them."""
    with LedgerApplication.open(tmp_path / ".proctor" / "ledger", EventRegistry()) as app:
        app.recorder.insert_events([StoredEvent(UUID(int=1), 1, "test.event", b"body")])
    export_bundle(tmp_path / ".proctor" / "ledger", tmp_path / "mine")
    return tmp_path


def test_shell_commands_of_the_guide_verify_a_tree_head(home: Path) -> None:
    section = GUIDE.read_text().partition("## With openssl")[2]
    block = section.partition("```console\n")[2].partition("```")[0]
    script = "\n".join(line[2:] for line in block.splitlines() if line.startswith("$ "))
    done = subprocess.run(
        ["sh", "-euc", script], cwd=home, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "Signature Verified Successfully\n", done.stderr


def test_python_of_the_example_verifies_an_envelope(home: Path) -> None:
    house = GUIDE.parents[2]
    code = (house / "docs/examples/audit/envelope.py").read_text(encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(house)!r})\n{code}"],
        cwd=home,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
