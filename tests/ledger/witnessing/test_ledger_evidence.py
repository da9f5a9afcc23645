"""Evidence: two histories are shown, and nothing can be made to speak against an honest ledger."""

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from naive_trees import leaves, root
from signed_notes import sign_rotation, sign_tree_head
from threat_scene import Scene, make_scene

from ledger.errors import EvidenceError, MalformedError, SignatureError
from ledger.notes import public_bytes, vkey
from ledger.verification.proofs import consistency_proof, leaf_hash
from ledger.verification.reader import check_ledger, open_verified, read_tree_head
from ledger.witnessing.evidence import (
    Contradiction,
    find_contradiction,
    format_evidence,
    open_evidence,
    signers,
    verify_signers,
)

ORIGIN = "proctor.local/0123456789abcdef0123456789abcdef"
KEY, NEW_KEY, STRANGER = (Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (1, 2, 3))
VKEY = vkey(ORIGIN, public_bytes(KEY))
HONEST = leaves(40)
SIZES = (1, 2, 3, 4, 7, 8, 12, 16, 31, 32, 33, 39)


def told(count: int, *, fork_at: int) -> list[bytes]:
    """The honest story, and from one place on another."""
    return [*HONEST[:fork_at], *leaves(1_000 + count)[1_000 + fork_at :]]


def head(hashes: list[bytes], *, key: Ed25519PrivateKey = KEY, origin: str = ORIGIN) -> str:
    return sign_tree_head(origin=origin, size=len(hashes), root=root(hashes), key=key)


def contradiction(
    hashes: list[bytes], kept: str, *, rotations: tuple[str, ...] = (), key: str = VKEY
) -> Contradiction | None:
    newest = head(hashes, key=NEW_KEY if rotations else KEY)
    return find_contradiction(hashes, vkey=key, rotations=rotations, newest=newest, kept=kept)


@pytest.mark.parametrize("size", SIZES)
def test_fork_is_shown_when_the_ledger_contradicts_a_kept_head(size: int) -> None:
    evidence = contradiction(told(40, fork_at=size - 1), head(HONEST[:size]))
    assert evidence is not None
    assert (evidence.kind, evidence.vkey) == ("fork", VKEY)
    assert open_evidence(format_evidence(evidence)) == evidence
    assert contradiction(HONEST, head(HONEST[:size])) is None  # the honest control


def test_fork_of_one_size_is_shown_without_a_proof() -> None:
    evidence = contradiction(told(40, fork_at=39), head(HONEST))
    assert evidence is not None
    assert (evidence.kind, evidence.proof) == ("fork", ())
    assert open_evidence(format_evidence(evidence)) == evidence
    assert contradiction(HONEST, head(HONEST)) is None


def test_rollback_is_shown_when_the_ledger_ends_before_a_kept_head() -> None:
    evidence = contradiction(HONEST[:10], head(HONEST))
    assert evidence is not None
    assert (evidence.kind, evidence.proof) == ("rollback", ())
    assert open_evidence(format_evidence(evidence)) == evidence


def test_fork_over_a_rotation_is_shown_with_the_rotation() -> None:
    rotation = sign_rotation(origin=ORIGIN, old=KEY, new=NEW_KEY)
    evidence = contradiction(
        told(40, fork_at=9), head(HONEST[:10]), rotations=(rotation,), key=VKEY
    )
    assert evidence is not None
    assert evidence.rotations == (rotation,)
    assert open_evidence(format_evidence(evidence)) == evidence
    with pytest.raises(EvidenceError, match="signatures by proctor"):
        open_evidence(format_evidence(replace(evidence, rotations=())))
    with pytest.raises(EvidenceError, match="the rotations do not start"):
        open_evidence(format_evidence(replace(evidence, rotations=(rotation, rotation))))
    by_stranger = sign_rotation(origin=ORIGIN, old=STRANGER, new=NEW_KEY)
    with pytest.raises(EvidenceError, match="the rotations do not start"):
        open_evidence(format_evidence(replace(evidence, rotations=(by_stranger,))))


def test_evidence_says_which_keys_signed_and_convinces_only_if_both_are_in_force() -> None:
    rotation = sign_rotation(origin=ORIGIN, old=KEY, new=NEW_KEY)
    present = contradiction(
        told(40, fork_at=9), head(HONEST[:10], key=NEW_KEY), rotations=(rotation,)
    )
    mixed = contradiction(told(40, fork_at=9), head(HONEST[:10]), rotations=(rotation,))
    first = contradiction(told(40, fork_at=9), head(HONEST[:10]))
    assert present
    assert mixed
    assert first
    key_id = VKEY.removeprefix(f"{ORIGIN}+").partition("+")[0]
    said = f"{ORIGIN}+{key_id}, the ledger's first key"
    assert [str(each) for each in signers(first)] == [said] * 2
    assert str(signers(mixed)[0]) == f"{said}, since rotated out"
    assert [each.first for each in signers(mixed)] == [True, False]
    for known in ((), (rotation,)):
        verify_signers(present, rotations=known)
        with pytest.raises(EvidenceError, match=r"the first tree head is by .* since rotated out"):
            verify_signers(mixed, rotations=known)
    newest = head(HONEST, key=NEW_KEY)
    back = find_contradiction(  # to before the rotation
        HONEST[:10], vkey=VKEY, rotations=(rotation,), newest=head(HONEST[:10]), kept=newest
    )
    assert back
    verify_signers(back, rotations=(rotation,))
    verify_signers(first)  # as far as who knows the first vkey alone can tell


def test_evidence_that_leaves_a_known_rotation_out_is_rejected() -> None:
    rotation = sign_rotation(origin=ORIGIN, old=KEY, new=NEW_KEY)
    by_old_key = contradiction(told(40, fork_at=9), head(HONEST[:10]))
    assert by_old_key
    verify_signers(by_old_key, rotations=())
    with pytest.raises(EvidenceError, match="since rotated out: whoever has that key"):
        verify_signers(by_old_key, rotations=(rotation,))
    by_other = sign_rotation(origin=ORIGIN, old=KEY, new=STRANGER)
    other = contradiction(
        told(40, fork_at=9), head(HONEST[:10], key=NEW_KEY), rotations=(rotation,)
    )
    assert other
    with pytest.raises(EvidenceError, match="lists rotations"):
        verify_signers(other, rotations=(by_other,))


def test_kept_head_of_another_key_is_no_contradiction() -> None:
    with pytest.raises(SignatureError, match="0 signatures by proctor"):
        contradiction(HONEST, head(HONEST[:10], key=STRANGER))
    with pytest.raises(MalformedError, match="no signatures"):
        contradiction(HONEST, "no note")


def honest_notes() -> tuple[str, str]:
    return head(HONEST[:13]), head(HONEST)


def refused(evidence: Contradiction, message: str) -> None:
    with pytest.raises(EvidenceError, match=message):
        open_evidence(format_evidence(evidence))


def forged(**changes: object) -> Contradiction:
    """Evidence against an honest ledger, with the proof that it continues its own beginning."""
    first, second = honest_notes()
    proof = tuple(consistency_proof(HONEST, 13))
    honest = Contradiction(kind="fork", vkey=VKEY, first=first, second=second, proof=proof)
    return replace(honest, **changes)  # type: ignore[arg-type]


def test_evidence_of_an_honest_ledger_is_rejected() -> None:
    refused(forged(), "continues the first: this is not a fork")


def test_proof_of_another_ledger_is_rejected() -> None:
    other = tuple(consistency_proof(told(40, fork_at=5), 13))
    refused(forged(proof=other), "does not lead to the second tree head's root")


def test_evidence_without_its_proof_is_rejected() -> None:
    refused(forged(proof=()), "the consistency proof is empty")


def test_cut_or_lengthened_proof_is_rejected() -> None:
    proof = forged().proof
    refused(forged(proof=proof[:-1]), "too short")
    refused(forged(proof=(*proof, proof[-1])), "too long")


def test_chosen_old_root_of_a_power_of_two_is_rejected() -> None:
    """There the proof begins with a root of the forger's choice: it has to lead to the new one."""
    first, proof = head(HONEST[:16]), consistency_proof(HONEST, 16)
    refused(
        forged(first=first, proof=(root(told(16, fork_at=3)), *proof)),
        "does not lead to the second tree head's root",
    )
    refused(forged(first=first, proof=(root(HONEST[:16]), *proof)), "this is not a fork")
    refused(forged(first=first, proof=tuple(proof)), "too short")


def test_one_note_twice_is_rejected() -> None:
    _, second = honest_notes()
    refused(forged(first=second, second=second, proof=()), "must differ")
    refused(forged(kind="rollback", first=second, second=second, proof=()), "without a proof")


def test_notes_in_the_wrong_order_are_rejected() -> None:
    first, second = honest_notes()
    refused(forged(first=second, second=first), "no proof leads from size 40 to size 13")
    refused(
        forged(kind="rollback", first=second, second=first, proof=()), "from a larger tree head"
    )


def test_fork_of_one_size_with_a_proof_is_rejected() -> None:
    other = told(40, fork_at=39)
    assert open_evidence(format_evidence(forged(first=head(other), proof=())))
    refused(forged(first=head(other), proof=(root(HONEST),)), "and have no proof")


def test_rollback_with_a_proof_is_rejected() -> None:
    refused(forged(kind="rollback"), "without a proof")


def test_note_signed_by_nobody_known_is_rejected() -> None:
    other = told(40, fork_at=5)
    proof = tuple(consistency_proof(other, 13, with_old_root=True))
    against = forged(second=head(other), proof=proof)
    assert open_evidence(format_evidence(against))  # the key has signed it: that would be a fork
    refused(replace(against, second=head(other, key=STRANGER)), "signatures by proctor")
    unsigned = head(other).rpartition("\n\n")[0] + "\n"
    refused(replace(against, second=unsigned), "proves nothing: the note")


def test_note_of_another_ledger_is_rejected() -> None:
    """One key, two ledgers: their origins tell them apart."""
    other = "proctor.local/ffffffffffffffffffffffffffffffff"
    hashes = told(40, fork_at=5)
    proof = tuple(consistency_proof(hashes, 13, with_old_root=True))
    refused(forged(second=head(hashes, origin=other), proof=proof), "signatures by proctor")


def test_note_that_is_no_tree_head_is_rejected() -> None:
    rotation = sign_rotation(origin=ORIGIN, old=KEY, new=NEW_KEY)
    refused(forged(second=rotation), "proves nothing: the note is not a tree head")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.replace("ledger/evidence/v1", "ledger/evidence/v2"), "a missing or"),
        (lambda t: t.replace("kind fork", "kind splice"), "unknown kind, 'splice'"),
        (lambda t: t.replace("kind fork\n", ""), "a missing or"),
        (lambda t: t.replace("kind fork\n", "kind fork\nkind fork\n"), "an extra line"),
        (lambda t: t[:-1], "ends with a newline"),
        (lambda t: t + "\n", "malformed or misplaced"),
        (lambda t: t + "first " + t.partition("first ")[2].partition("\n")[0] + "\n", "misplaced"),
        (lambda t: t.replace("\n", "\r\n"), "malformed or misplaced"),
        (lambda t: t.replace("kind fork", "kind  fork"), "malformed or misplaced"),
        (lambda t: t + "proof " + "A" * 43 + "=\n", "too long"),
        (lambda t: t + ("proof " + "A" * 43 + "=\n") * 64, "an extra line"),
        (lambda t: t + "proof AAAA\n", "not 32 bytes long"),
        (lambda t: t + "proof " + "A" * 42 + "B=\n", "not canonical base64"),
        (lambda t: t + "proof \u00e9\n", "malformed or misplaced"),
        (lambda t: t.replace(VKEY, VKEY[:-4] + "AAAA"), "proves nothing: the vkey"),
        (lambda t: t.replace("first ", "first !"), "malformed line"),
        (lambda t: "", "ends with a newline"),
        (lambda t: t.replace("first ", "first /w=="), "malformed line"),
    ],
)
def test_malformed_file_is_rejected(change: object, message: str) -> None:
    evidence = contradiction(told(40, fork_at=12), head(HONEST[:13]))
    assert evidence is not None
    text = format_evidence(evidence)
    assert open_evidence(text)
    assert callable(change)
    with pytest.raises(EvidenceError, match=message):
        open_evidence(change(text))


@settings(deadline=None)
@given(st.data())
def test_no_mutation_of_honest_material_becomes_evidence(data: st.DataObject) -> None:
    """Whatever is put together from what an honest ledger has signed shows no fork."""
    sizes = data.draw(st.tuples(st.integers(1, 40), st.integers(1, 40)))
    pool = [*HONEST[:8], *(root(HONEST[:n]) for n in range(1, 41))]
    for size in sizes:
        pool += consistency_proof(HONEST, size, with_old_root=True)
    proof = data.draw(st.lists(st.sampled_from(pool), max_size=8))
    made = Contradiction(
        kind="fork",
        vkey=VKEY,
        first=head(HONEST[: sizes[0]]),
        second=head(HONEST[: sizes[1]]),
        proof=tuple(proof),
    )
    with pytest.raises(EvidenceError):
        open_evidence(format_evidence(made))


@settings(deadline=None)
@given(st.data())
def test_flipped_bit_in_evidence_is_rejected(data: st.DataObject) -> None:
    evidence = contradiction(told(40, fork_at=12), head(HONEST[:13]))
    assert evidence is not None
    lines = format_evidence(evidence).encode()
    at = data.draw(st.integers(0, len(lines) - 1))
    changed = bytearray(lines)
    changed[at] ^= 1 << data.draw(st.integers(0, 6))
    with pytest.raises(EvidenceError):
        open_evidence(changed.decode())


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return make_scene(tmp_path_factory.mktemp("evidence") / "scene")


def test_evidence_is_found_in_ledgers_over_a_rotation(scene: Scene) -> None:
    """One that was forked before its key was rotated, and one that was put back."""
    heads = {each: read_tree_head(each) or "" for each in (scene.fork, scene.earlier)}
    with open_verified(scene.ledger, vkey=scene.vkey) as ledger:
        found = {
            each: find_contradiction(
                map(leaf_hash, ledger.raw_entries()),
                vkey=scene.vkey,
                rotations=ledger.authority.rotations,
                newest=scene.kept_head,
                kept=kept,
            )
            for each, kept in heads.items()
        }
    fork = found[scene.fork]
    assert fork is not None
    assert (fork.kind, len(fork.rotations)) == ("fork", 1)
    assert found[scene.earlier] is None  # the honest control


def test_report_of_a_ledger_put_back_leads_to_evidence(scene: Scene) -> None:
    report = check_ledger(scene.fork, vkey=scene.vkey, kept_head=read_tree_head(scene.earlier))
    assert report.ok  # the honest control
    report = check_ledger(scene.earlier, vkey=scene.vkey, kept_head=read_tree_head(scene.fork))
    assert report.contradiction is not None
    kept, shown = report.contradiction
    found = find_contradiction([], vkey=scene.vkey, rotations=(), newest=shown, kept=kept)
    assert found is not None
    assert found.kind == "rollback"
