"""tlog-proof files: one entry is shown with the public key alone, or the file is refused."""

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from threat_scene import Scene, make_scene

from ledger.errors import (
    ConsistencyError,
    InclusionError,
    MalformedError,
    SignatureError,
    VerificationError,
)
from ledger.handover.proof_files import open_proof, open_proofs, write_proofs
from ledger.paths import LedgerPaths
from ledger.verification.reader import VerifiedLedger, open_verified
from ledger.witnessing.quorum import parse_quorum


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return make_scene(tmp_path_factory.mktemp("proofs") / "scene")


@pytest.fixture(scope="module")
def ledger(scene: Scene) -> Iterator[VerifiedLedger]:
    with open_verified(scene.ledger, vkey=scene.vkey) as opened:
        yield opened


@pytest.fixture(scope="module")
def proof(ledger: VerifiedLedger) -> str:
    return write_proofs(ledger, [5])


def test_every_entry_is_proved_by_the_vkey_alone(scene: Scene, ledger: VerifiedLedger) -> None:
    for entry in ledger.entries():
        if entry.index % 23 == 0 or entry.index > ledger.size - 3:
            proved = open_proof(write_proofs(ledger, [entry.index]), vkey=scene.vkey)
            assert proved.entry == entry
            assert proved.head.size == ledger.size
            assert proved.rotations == ledger.authority.rotations


def test_proof_bears_the_cosignatures(scene: Scene, proof: str) -> None:
    parse_quorum(scene.policy).verify(open_proof(proof, vkey=scene.vkey).head.note)


def test_proof_stands_under_the_newest_cosigned_head_that_covers_the_entry(
    scene: Scene, tmp_path: Path
) -> None:
    """On top of the fork's cosigned beginning lie entries that no witness has seen."""
    with open_verified(scene.fork, vkey=scene.vkey) as fork:
        sizes = [
            open_proof(write_proofs(fork, [index]), vkey=scene.vkey).head.size
            for index in (0, 23, fork.size - 1)
        ]
        cosigned = open_proof(write_proofs(fork, [0]), vkey=scene.vkey)
        assert sizes == [cosigned.head.size, cosigned.head.size, fork.size]
        assert cosigned.head.size < fork.size
        assert cosigned.rotations == ()
        parse_quorum(scene.policy).verify(cosigned.head.note)


def test_form_is_that_of_the_specification(proof: str) -> None:
    base64_line = r"[A-Za-z0-9+/]+={0,2}\n"
    assert re.fullmatch(
        rf"c2sp\.org/tlog-proof@v1\nextra {base64_line}index 5\n(?:{base64_line})+\n"
        rf"proctor\.local/[0-9a-f]{{32}}\n[0-9]+\n{base64_line}\n(?:\u2014 \S+ {base64_line})+",
        proof,
    )


def test_proof_of_a_missing_entry_is_refused(ledger: VerifiedLedger) -> None:
    for index in (ledger.size, -1):
        with pytest.raises(InclusionError, match=f"entry {index} not found"):
            write_proofs(ledger, [index])


def test_proof_for_another_vkey_is_rejected(scene: Scene, proof: str) -> None:
    other = LedgerPaths(scene.other).vkey.read_text()
    with pytest.raises(VerificationError, match="the note is not a rotation of this ledger's key"):
        open_proof(proof, vkey=other)
    with open_verified(scene.other) as opened:
        another = write_proofs(opened, [5])
    assert open_proof(another, vkey=other).entry.index == 5  # the honest control
    with pytest.raises(SignatureError, match="0 signatures by proctor"):
        open_proof(another, vkey=scene.vkey)


def parts(proof: str) -> tuple[bytes, str]:
    """Return the extra data, and the file with a place for it."""
    extra = re.findall(r"(?m)^extra (.*)$", proof)[0]
    return base64.b64decode(extra), proof.replace(extra, "EXTRA")


def with_extra(proof: str, extra: bytes) -> str:
    return parts(proof)[1].replace("EXTRA", base64.b64encode(extra).decode())


def test_proof_without_its_rotation_is_rejected(scene: Scene, proof: str) -> None:
    extra, _ = parts(proof)
    entry_only = extra[: 2 + int.from_bytes(extra[:2], "big")]
    with pytest.raises(SignatureError, match="0 signatures by proctor"):
        open_proof(with_extra(proof, entry_only), vkey=scene.vkey)
    rotation = extra[len(entry_only) :]
    with pytest.raises(SignatureError, match="the rotations do not start"):
        open_proof(with_extra(proof, entry_only + rotation + rotation), vkey=scene.vkey)


def test_exchanged_or_changed_entry_is_rejected(
    scene: Scene, ledger: VerifiedLedger, proof: str
) -> None:
    extra, _ = parts(proof)
    length = int.from_bytes(extra[:2], "big")
    changed = bytearray(extra)
    changed[2 + length - 1] ^= 1  # the body's last byte
    with pytest.raises(InclusionError, match="does not lead from entry 5 to the root"):
        open_proof(with_extra(proof, bytes(changed)), vkey=scene.vkey)
    other, _ = parts(write_proofs(ledger, [6]))
    with pytest.raises(InclusionError, match="states index 6, not 5"):
        open_proof(with_extra(proof, other), vkey=scene.vkey)
    renamed = with_extra(proof, other).replace("\nindex 5\n", "\nindex 6\n")
    with pytest.raises(InclusionError, match="does not lead from entry 6"):
        open_proof(renamed, vkey=scene.vkey)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.replace("@v1", "@v2"), "not a tlog-proof"),
        (lambda t: t.replace("index 5", "index 05"), "not a tlog-proof"),
        (lambda t: t.replace("index 5", "index -5"), "not a tlog-proof"),
        (lambda t: t.replace("index 5", "index 6"), "states index 5, not 6"),
        (lambda t: t.replace("index 5\n", "index 5\n\n", 1), "is invalid for this note"),
        (lambda t: re.sub(r"extra .*\n", "", t), "not a tlog-proof"),
        (lambda t: re.sub(r"extra .*\n", "extra \n", t), "not a tlog-proof"),
        (lambda t: re.sub(r"extra .*\n", "extra AAA\n", t), "the extra data is not base64"),
        (lambda t: with_extra(t, parts(t)[0] + b"\0"), "cut short"),
        (lambda t: with_extra(t, parts(t)[0][:-1]), "cut short"),
        (lambda t: with_extra(t, parts(t)[0] + b"\0\0"), "note"),
        (lambda t: with_extra(t, parts(t)[0] + b"\0\1\xff"), "not text"),
        (lambda t: with_extra(t, b"\0\0"), "not a byte string of a possible length"),
        (lambda t: t.replace("\n\n", "\n" + "A" * 43 + "=\n\n", 1), "proof is too long"),
        (lambda t: t.replace("\n\n", "\n" + ("A" * 43 + "=\n") * 64 + "\n", 1), "not a tlog-proof"),
        (lambda t: t.replace("\n\n", "\n" + "A" * 42 + "B=\n\n", 1), "not canonical base64"),
        (lambda t: re.sub(r"(index 5\n)\S+\n", r"\1", t), "proof is too short"),
        (lambda t: t + "\n", r"malformed signature line|no signatures"),
        (lambda t: t + "trailing", "no signatures"),
        (lambda t: t[:-1], "no signatures"),
        (lambda t: t.replace("\n", "\r\n"), "not a tlog-proof"),
        (lambda t: t.partition("\n\n")[0], "not a tlog-proof"),
        (lambda t: "", "not a tlog-proof"),
        (lambda t: t + " " * 10_000_000, "not a tlog-proof"),
    ],
)
def test_malformed_file_is_rejected(scene: Scene, proof: str, change: object, message: str) -> None:
    assert open_proof(proof, vkey=scene.vkey).entry.index == 5
    assert callable(change)
    with pytest.raises(VerificationError, match=message):
        open_proof(change(proof), vkey=scene.vkey)


@given(data=st.data())
def test_flipped_bit_is_rejected_or_in_a_cosignature(
    scene: Scene, proof: str, data: st.DataObject
) -> None:
    """Lines by other keys than the ledger's are for the quorum to look at."""
    raw = bytearray(proof.encode())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= 1 << data.draw(st.integers(0, 7))
    changed = raw.decode(errors="replace")
    try:
        proved = open_proof(changed, vkey=scene.vkey)
    except VerificationError:
        return
    assert proved.entry == open_proof(proof, vkey=scene.vkey).entry
    assert at > len(proof.encode()) - 2 * len(proof.rpartition("\n\n")[2].split("\n")[1].encode())


def test_vkey_that_is_none_is_refused(proof: str) -> None:
    with pytest.raises(MalformedError, match="the vkey is not a C2SP verifier key"):
        open_proof(proof, vkey="none")


def test_several_entries_are_proved_under_one_tree_head(
    scene: Scene, ledger: VerifiedLedger
) -> None:
    places = [2, 5, ledger.size - 1]
    text = write_proofs(ledger, [5, 2, ledger.size - 1, 5])
    assert text == "".join(write_proofs(ledger, [place]) for place in places)
    proved = open_proofs(text, vkey=scene.vkey)
    assert [each.entry.index for each in proved] == places
    assert len({each.head.note for each in proved}) == 1


def test_proofs_in_another_order_or_under_several_heads_are_rejected(scene: Scene) -> None:
    with open_verified(scene.fork, vkey=scene.vkey) as fork:
        first, second = write_proofs(fork, [3]), write_proofs(fork, [4])
        newest = write_proofs(fork, [fork.size - 1])
    assert len(open_proofs(first + second, vkey=scene.vkey)) == 2  # the honest control
    for text in (second + first, first + first):
        with pytest.raises(ConsistencyError, match="is out of order"):
            open_proofs(text, vkey=scene.vkey)
    with pytest.raises(ConsistencyError, match="is proved under a different tree head"):
        open_proofs(first + newest, vkey=scene.vkey)


@pytest.mark.parametrize("damage", ["\n{}", "{}\n", "a line\n{}", "{}c2sp.org/tlog-proof@v1\n", ""])
def test_text_that_holds_more_or_less_than_proofs_is_rejected(
    scene: Scene, proof: str, damage: str
) -> None:
    assert len(open_proofs(proof, vkey=scene.vkey)) == 1
    with pytest.raises(VerificationError):
        open_proofs(damage.format(proof), vkey=scene.vkey)
