"""Attacks on what is handed out, and on what verifiers keep: bundles, proofs, evidence, memory."""

import base64
import json
import re
import shutil
from pathlib import Path

from signed_notes import sign_tree_head
from stores import exchange_tables
from threat_scene import STRANGER, Scene
from threats import threat

from ledger.handover.bundle import export_bundle
from ledger.handover.proof_files import write_proofs
from ledger.paths import LedgerPaths
from ledger.verification.memory import Memory
from ledger.verification.proofs import consistency_proof
from ledger.verification.reader import check_ledger, open_verified, read_tree_head
from ledger.verification.verified_notes import parse_tree_head
from ledger.witnessing.evidence import Contradiction, format_evidence, open_evidence

AT = 20


def patch(path: Path, at: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + len(data)] = data
    path.write_bytes(bytes(content))


def only(folder: Path, pattern: str) -> Path:
    """Return the first file below a folder that matches."""
    return min(path for path in folder.rglob(pattern) if path.is_file())


def entries_tile(scene: Scene) -> Path:
    return scene.bundle / "tile" / "entries" / "000"


def entry_at(scene: Scene, index: int) -> int:
    """Return where an entry's length stands in its tile."""
    data, at = entries_tile(scene).read_bytes(), 0
    for _ in range(index):
        at += 2 + int.from_bytes(data[at : at + 2], "big")
    return at


@threat("bundle: a bit of an entry flipped", target="bundle")
def bundle_flip(scene: Scene) -> int:
    at = entry_at(scene, AT + 1) - 1  # the last byte of the entry's body
    patch(entries_tile(scene), at, bytes([entries_tile(scene).read_bytes()[at] ^ 1]))
    return AT


@threat("bundle: an entry's length changed", target="bundle")
def bundle_length(scene: Scene) -> int:
    patch(entries_tile(scene), entry_at(scene, AT), b"\xff\xff")
    return AT


@threat("bundle: an entry removed", target="bundle")
def bundle_delete(scene: Scene) -> int:
    data = entries_tile(scene).read_bytes()
    entries_tile(scene).write_bytes(data[: entry_at(scene, AT)] + data[entry_at(scene, AT + 1) :])
    return AT


@threat("bundle: bytes after the last entry", target="bundle")
def bundle_trailing(scene: Scene) -> None:
    path = only(scene.bundle / "tile" / "entries" / "001.p", "*")
    path.write_bytes(path.read_bytes() + b"\0")


@threat("bundle: a hash in a tile changed", target="bundle")
def bundle_tile(scene: Scene) -> int:
    patch(scene.bundle / "tile" / "0" / "000", 32 * AT, bytes(32))
    return AT


@threat("bundle: a tile missing", target="bundle")
def bundle_missing_tile(scene: Scene) -> None:
    (scene.bundle / "tile" / "0" / "000").unlink()


@threat("bundle: a partial tile under another width", target="bundle")
def bundle_width(scene: Scene) -> None:
    path = only(scene.bundle / "tile" / "0" / "001.p", "*")
    path.rename(path.with_name(str(int(path.name) - 1)))


@threat("bundle: the tree head's size edited", target="bundle")
def bundle_head_edited(scene: Scene) -> None:
    path = scene.bundle / "checkpoint"
    size = parse_tree_head(scene.kept_head).size
    path.write_text(path.read_text().replace(f"\n{size}\n", f"\n{size - 1}\n"))


@threat("bundle: the tree head of another ledger", target="bundle")
def bundle_other_head(scene: Scene) -> None:
    (scene.bundle / "checkpoint").write_text(read_tree_head(scene.other) or "")


@threat("bundle: a complete earlier one", target="bundle")
def bundle_earlier(scene: Scene) -> None:
    shutil.rmtree(scene.bundle)
    export_bundle(scene.earlier, scene.bundle)


@threat("bundle: a complete one of a fork", target="bundle")
def bundle_fork(scene: Scene) -> None:
    shutil.rmtree(scene.bundle)
    export_bundle(scene.fork, scene.bundle)


@threat("bundle: a complete one of another ledger", target="bundle")
def bundle_other(scene: Scene) -> None:
    shutil.rmtree(scene.bundle)
    export_bundle(scene.other, scene.bundle)


@threat("bundle: the vkey replaced", target="bundle")
def bundle_vkey(scene: Scene) -> None:
    shutil.copy(LedgerPaths(scene.other).vkey, scene.bundle / "ledger.vkey")


@threat("bundle: an earlier tree head edited", target="bundle")
def bundle_earlier_head(scene: Scene) -> None:
    path = only(scene.bundle / "checkpoints", "*")
    text, _, rest = path.read_text().partition("\n\n")
    origin, size, _ = text.split("\n")
    path.write_text(f"{origin}\n{size}\n{base64.b64encode(bytes(32)).decode()}\n\n{rest}")


@threat("bundle: a blob changed", target="bundle")
def bundle_blob(scene: Scene) -> None:
    patch(only(scene.bundle / "blobs", "*"), 0, b"W")


@threat(
    "bundle: a file that does not belong there",
    target="bundle",
    harmless="nothing reads it",
)
def bundle_stranger(scene: Scene) -> None:
    (scene.bundle / "tile" / "0" / "readme").write_text("trust me")


@threat("bundle: a tile that is a link out of the folder", target="bundle")
def bundle_link(scene: Scene) -> None:
    path = scene.bundle / "tile" / "0" / "000"
    path.rename(scene.root / "elsewhere")
    path.symlink_to(scene.root / "elsewhere")


@threat(
    "bundle: its `verify.py` replaced",
    target="bundle",
    harmless="a verifier that comes with the data it verifies proves nothing; use your own copy",
)
def bundle_verifier(scene: Scene) -> None:
    (scene.bundle / "verify.py").write_text("print('held')\n")


def edit_proof(scene: Scene, pattern: str, replacement: str) -> None:
    text = scene.proof.read_text()
    edited = re.sub(pattern, replacement, text, count=1, flags=re.MULTILINE)
    assert edited != text
    scene.proof.write_text(edited)


@threat("proof: the entry changed", target="proof")
def proof_entry(scene: Scene) -> None:
    text = scene.proof.read_text()
    extra = re.search(r"^extra (.*)$", text, re.MULTILINE)
    assert extra is not None
    data = bytearray(base64.b64decode(extra[1]))
    data[1 + int.from_bytes(data[:2], "big")] ^= 1
    scene.proof.write_text(text.replace(extra[1], base64.b64encode(bytes(data)).decode()))


@threat("proof: another index", target="proof")
def proof_index(scene: Scene) -> None:
    edit_proof(scene, r"^index \d+$", "index 21")


@threat("proof: a hash changed", target="proof")
def proof_hash(scene: Scene) -> None:
    zeros = base64.b64encode(bytes(32)).decode()
    edit_proof(scene, r"^(index \d+\n).*$", rf"\g<1>{zeros}")


@threat("proof: a hash missing", target="proof")
def proof_short(scene: Scene) -> None:
    edit_proof(scene, r"^(index \d+\n).*\n", r"\1")


@threat("proof: a hash too many", target="proof")
def proof_long(scene: Scene) -> None:
    zeros = base64.b64encode(bytes(32)).decode()
    edit_proof(scene, r"^(index \d+\n)", rf"\g<1>{zeros}\n")


@threat("proof: under a tree head of the attacker's", target="proof")
def proof_forged_head(scene: Scene) -> None:
    head = parse_tree_head(scene.kept_head)
    forged = sign_tree_head(origin=head.origin, size=head.size, root=head.root, key=STRANGER)
    text = scene.proof.read_text()
    scene.proof.write_text(text[: text.index(head.origin)] + forged)


@threat("proof: bytes after its end", target="proof")
def proof_trailing(scene: Scene) -> None:
    scene.proof.write_text(scene.proof.read_text() + "\n")


@threat(
    "proof: its cosignatures removed",
    target="proof",
    harmless="the ledger's signature remains; a verifier that requires witnesses rejects the proof",
)
def proof_bare(scene: Scene) -> None:
    edit_proof(scene, r"^\u2014 witness-1\.example .*\n", "")
    edit_proof(scene, r"^\u2014 witness-2\.example .*\n", "")


@threat(
    "proof: a cosignature forged",
    target="proof",
    harmless="the ledger's signature remains; a verifier that requires witnesses detects the "
    "forgery",
)
def proof_cosignature(scene: Scene) -> None:
    edit_proof(scene, r"^(\u2014 witness-1\.example ........).{8}", r"\1AAAAAAAA")


@threat("proof: of another ledger", target="proof")
def proof_other(scene: Scene) -> None:
    with open_verified(scene.other) as ledger:
        scene.proof.write_text(write_proofs(ledger, [AT]))


@threat(
    "proof: by the key's holder, of an entry that only a fork has",
    target="proof",
    by="key",
    undetected="a single proof cannot show a fork; two inconsistent heads or a quorum of "
    "witnesses can",
)
def proof_fork(scene: Scene) -> None:
    with open_verified(scene.fork) as ledger:
        scene.proof.write_text(write_proofs(ledger, [ledger.size - 1]))


def forge_evidence(scene: Scene, **changes: object) -> None:
    fields = open_evidence(scene.evidence.read_text()).__dict__ | changes
    scene.evidence.write_text(format_evidence(Contradiction(**fields)))


@threat("evidence: of a fork, out of two honest tree heads", target="evidence")
def evidence_of_nothing(scene: Scene) -> None:
    forge_evidence(scene, first=read_tree_head(scene.earlier))


@threat("evidence: a proof hash changed", target="evidence")
def evidence_hash(scene: Scene) -> None:
    found = open_evidence(scene.evidence.read_text())
    forge_evidence(scene, proof=(bytes(32), *found.proof[1:]))


@threat("evidence: a tree head by another key", target="evidence")
def evidence_forged(scene: Scene) -> None:
    head = parse_tree_head(scene.kept_head)
    note = sign_tree_head(origin=head.origin, size=head.size, root=bytes(32), key=STRANGER)
    forge_evidence(scene, first=note, second=scene.kept_head, proof=())


@threat("evidence: the two tree heads in the other order", target="evidence")
def evidence_order(scene: Scene) -> None:
    found = open_evidence(scene.evidence.read_text())
    forge_evidence(scene, first=found.second, second=found.first)


@threat("evidence: a tree head cut short (a fork shown as a rollback)", target="evidence")
def evidence_kind(scene: Scene) -> None:
    forge_evidence(scene, kind="rollback")


@threat("evidence: against another ledger", target="evidence")
def evidence_other(scene: Scene) -> None:
    forge_evidence(scene, vkey=LedgerPaths(scene.other).vkey.read_text().strip())


@threat(
    "evidence: of a rollback that never was, out of two honest tree heads",
    target="evidence",
    undetected="only the accuser states that the shorter one was shown later",
)
def evidence_of_a_rollback(scene: Scene) -> None:
    with open_verified(scene.ledger, vkey=scene.vkey) as ledger:
        *_, shorter, _ = ledger.head_notes()
    forge_evidence(
        scene,
        kind="rollback",
        first=shorter,
        second=scene.kept_head,
        proof=(),
    )


@threat(
    "evidence: of a fork, with a tree head that the old key signs today",
    target="evidence",
    by="old key",
)
def evidence_by_the_old_key(scene: Scene) -> None:
    head = parse_tree_head(read_tree_head(scene.earlier) or "")
    note = sign_tree_head(origin=head.origin, size=head.size, root=bytes(32), key=scene.old_key)
    with open_verified(scene.ledger, vkey=scene.vkey) as ledger:
        proof = consistency_proof(
            [entry.entry_hash for entry in ledger.entries()], head.size, with_old_root=True
        )
    forge_evidence(scene, first=note, second=scene.kept_head, proof=tuple(proof))


@threat(
    "evidence: of a fork, with two tree heads that the old key signs today, its rotation left out",
    target="evidence",
    by="old key",
)
def evidence_without_the_rotation(scene: Scene) -> None:
    name, root = scene.vkey.partition("+")[0], bytes(32)
    first, second = (
        sign_tree_head(origin=name, size=9, root=each, key=scene.old_key)
        for each in (root, root[:-1] + b"x")
    )
    forge_evidence(scene, rotations=(), first=first, second=second, proof=())


def remembered(scene: Scene) -> Path:
    return Memory(scene.memory).path(scene.vkey)


@threat("memory: a byte changed", target="memory")
def memory_flip(scene: Scene) -> None:
    path = remembered(scene)
    text = path.read_text()
    at = text.index(base64.b64encode(parse_tree_head(scene.kept_head).root).decode())
    path.write_text(text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :])


@threat("memory: another ledger's, under this one's name", target="memory")
def memory_other(scene: Scene) -> None:
    fresh = Memory(scene.root / "memory-other")
    assert check_ledger(scene.other, memory=fresh).ok
    shutil.copy(only(fresh.folder, "*.json"), remembered(scene))


def change_memory(scene: Scene, **changes: object) -> None:
    path = remembered(scene)
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@threat("memory: the time of the last entry changed", target="memory")
def memory_time(scene: Scene) -> None:
    change_memory(scene, time_ns=json.loads(remembered(scene).read_text())["time_ns"] + 1)


@threat("memory: the last entry about keys removed", target="memory")
def memory_authority(scene: Scene) -> None:
    authority = json.loads(remembered(scene).read_text())["authority"]
    assert authority
    change_memory(scene, authority=authority[:-1])


_FORGOTTEN = "a memory does not protect against someone who can write it; keep a copy elsewhere"


@threat("memory: deleted, and the ledger rolled back", target="memory", undetected=_FORGOTTEN)
def memory_deleted(scene: Scene) -> None:
    remembered(scene).unlink()
    exchange_tables(scene.earlier, scene.ledger)


@threat("memory: rolled back together with the ledger", target="memory", undetected=_FORGOTTEN)
def memory_rolled_back(scene: Scene) -> None:
    shutil.copy(only(scene.root / "memory-earlier", "*.json"), remembered(scene))
    exchange_tables(scene.earlier, scene.ledger)


@threat("blob: its content changed", target="blob")
def blob_changed(scene: Scene) -> None:
    patch(only(LedgerPaths(scene.ledger).blobs, "*"), 0, b"W")


@threat("blob: deleted", target="blob")
def blob_deleted(scene: Scene) -> None:
    only(LedgerPaths(scene.ledger).blobs, "*").unlink()


@threat("blob: replaced by another", target="blob")
def blob_exchanged(scene: Scene) -> None:
    only(LedgerPaths(scene.ledger).blobs, "*").write_bytes(b"other weights")
