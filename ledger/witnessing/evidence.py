"""Evidence: a file that shows anyone that a ledger's key has signed two histories.

Source: docs/reference/ledger-format.md, "Evidence".
Trust: a file is hostile until open_evidence() returns; it then speaks against the vkey that it
names, which its reader has to know for the ledger's.
I/O: none.  Memory: that of the proof.
Not covered: when the first note of a rollback was shown, which is the word of the file's maker;
when a note was signed, so that signers() has to say which key may have been stolen by then.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from ledger.errors import EvidenceError, VerificationError
from ledger.verification.proofs import MAX_PROOF, consistency_proof, roots_from_consistency
from ledger.verification.rotations import vkeys_along
from ledger.verification.verified_notes import (
    TreeHead,
    decode_base64,
    encode_base64,
    open_tree_head,
    parse_vkey,
)

_TITLE = "ledger/evidence/v1"
_MAX_FILE = 1_000_000  # characters; each rotation takes some 1,000
_LINE = re.compile(r"(kind|vkey|rotation|first|second|proof) ([\x21-\x7e]+)")
Kind = Literal["fork", "rollback"]


@dataclass(frozen=True, kw_only=True)
class Contradiction:
    """Two tree heads of one ledger that do not go together, and what shows it."""

    kind: Kind
    vkey: str  # the one that the ledger was begun with
    rotations: tuple[str, ...] = ()  # notes, oldest first
    first: str  # note of the smaller tree head
    second: str  # note of the larger one
    proof: tuple[bytes, ...] = ()  # (32,) each


@dataclass(frozen=True, kw_only=True)
class Signer:
    """The key that signed one of the tree heads."""

    vkey: str
    first: bool  # whether the ledger was begun with it
    in_force: bool  # whether no rotation is known that leads away from it

    def __str__(self) -> str:
        key = parse_vkey(self.vkey)
        first = ", the ledger's first key" if self.first else ""
        rotated = "" if self.in_force else ", since rotated out"
        return f"{key.name}+{key.key_id.hex()}{first}{rotated}"


def find_contradiction(
    leaf_hashes: Iterable[bytes], *, vkey: str, rotations: Sequence[str], newest: str, kept: str
) -> Contradiction | None:
    """Return evidence if a ledger does not continue a tree head that somebody kept.

    The ledger has to be verified: `leaf_hashes` are those of all its entries, `newest` is the
    note of its newest tree head. Raises SignatureError or MalformedError for a kept note that is
    no tree head by one of the ledger's keys.
    """
    vkeys = vkeys_along(rotations, vkey=vkey)
    old, new = (open_head_by_any(note, vkeys=vkeys) for note in (kept, newest))
    evidence = Contradiction(
        kind="fork", vkey=vkeys[0], rotations=tuple(rotations), first=kept, second=newest
    )
    if old.size > new.size:
        evidence = replace(evidence, kind="rollback", first=newest, second=kept)
    elif old.size < new.size:
        proof = consistency_proof(leaf_hashes, old.size, with_old_root=True)
        if roots_from_consistency(old=old.size, new=new.size, proof=proof)[0] == old.root:
            return None
        evidence = replace(evidence, proof=tuple(proof))
    elif old.root == new.root:
        return None
    return open_evidence(format_evidence(evidence))  # what is handed out holds


def format_evidence(evidence: Contradiction) -> str:
    """Return the file's text; whether it shows anything is for open_evidence() to say."""
    lines = [
        _TITLE,
        f"kind {evidence.kind}",
        f"vkey {evidence.vkey}",
        *(f"rotation {encode_base64(note.encode())}" for note in evidence.rotations),
        f"first {encode_base64(evidence.first.encode())}",
        f"second {encode_base64(evidence.second.encode())}",
        *(f"proof {encode_base64(each)}" for each in evidence.proof),
    ]
    return "".join(f"{line}\n" for line in lines)


def open_evidence(text: str) -> Contradiction:
    """Return what a file shows against the key that it names; raise EvidenceError if nothing."""
    evidence = _parse(text)
    try:
        vkeys = vkeys_along(evidence.rotations, vkey=evidence.vkey)
        first = open_head_by_any(evidence.first, vkeys=vkeys)
        second = open_head_by_any(evidence.second, vkeys=vkeys)
        _check_contradiction(evidence, first, second)
    except EvidenceError:
        raise
    except VerificationError as e:
        raise EvidenceError(f"the evidence proves nothing: {e}") from e
    return evidence


def signers(evidence: Contradiction, *, rotations: Sequence[str] = ()) -> tuple[Signer, Signer]:
    """Return who signed the two tree heads of evidence that open_evidence() returned.

    `rotations` are those that the reader knows of; without them a key that was rotated out may
    seem to be in force, for a file can leave rotations out. Raises EvidenceError for a file whose
    rotations are others.
    """
    own, known = (vkeys_along(each, vkey=evidence.vkey) for each in (evidence.rotations, rotations))
    if own[: len(known)] != known[: len(own)]:
        raise EvidenceError("the evidence lists rotations that this ledger is not known to have")
    vkeys = max(own, known, key=len)
    first, second = (_signer(note, vkeys=vkeys) for note in (evidence.first, evidence.second))
    return first, second


def verify_signers(evidence: Contradiction, *, rotations: Sequence[str] = ()) -> None:
    """Raise EvidenceError unless both tree heads are by the key in force; as signers().

    What a key has signed that was rotated out may be older than the rotation or made yesterday, by
    whoever has that key by now: it speaks against nobody. In a rollback the first head may be that
    old: it is evidence of nothing anyway but its maker's word.
    """
    for which, signer in zip(
        ("first", "second"), signers(evidence, rotations=rotations), strict=True
    ):
        may_be_old = evidence.kind == "rollback" and which == "first"
        if not signer.in_force and not may_be_old:
            raise EvidenceError(
                f"the {which} tree head is by {signer}: whoever has that key may have signed it "
                "after the rotation, so the evidence proves nothing unless the tree head is "
                "known to be older"
            )


def open_head_by_any(note: str, *, vkeys: Sequence[str]) -> TreeHead:
    """Return what a note says that one of a ledger's keys has signed, the newest asked first."""
    return open_tree_head(note, vkey=_signer(note, vkeys=vkeys).vkey)


def _signer(note: str, *, vkeys: Sequence[str]) -> Signer:
    """Return whose tree head a note is: one of these keys', or else, unverified, the first's."""
    for vkey in vkeys[:0:-1]:
        try:
            open_tree_head(note, vkey=vkey)
        except VerificationError:
            continue
        return Signer(vkey=vkey, first=False, in_force=vkey == vkeys[-1])
    return Signer(vkey=vkeys[0], first=True, in_force=len(vkeys) == 1)


def _check_contradiction(evidence: Contradiction, first: TreeHead, second: TreeHead) -> None:
    if evidence.kind == "rollback":
        if evidence.proof or first.size >= second.size:
            raise EvidenceError(
                "a rollback must go from a larger tree head to a smaller one, without a proof"
            )
        return
    if first.size == second.size:
        if evidence.proof or first.root == second.root:
            raise EvidenceError("two tree heads of the same size must differ and have no proof")
        return
    old_root, new_root = roots_from_consistency(
        old=first.size, new=second.size, proof=evidence.proof
    )
    if new_root != second.root:
        raise EvidenceError("the proof does not lead to the second tree head's root")
    if old_root == first.root:
        raise EvidenceError("the second tree head continues the first: this is not a fork")


def _parse(text: str) -> Contradiction:
    """Take a file apart: these lines in this order, and nothing else."""
    if len(text) > _MAX_FILE or not text.endswith("\n"):
        raise EvidenceError("the evidence must be text of a valid length that ends with a newline")
    title, *lines = text[:-1].split("\n")
    found: dict[str, list[str]] = {
        key: [] for key in ("kind", "vkey", "rotation", "first", "second", "proof")
    }
    order = list(found)
    place = 0
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None or order.index(match[1]) < place:
            raise EvidenceError(f"the evidence has a malformed or misplaced line: {line[:40]!r}")
        place = order.index(match[1])
        found[match[1]].append(match[2])
    single = [len(found[key]) for key in ("kind", "vkey", "first", "second")]
    if title != _TITLE or single != [1, 1, 1, 1] or len(found["proof"]) > MAX_PROOF + 1:
        raise EvidenceError("the evidence has a missing or an extra line")
    kind = next((each for each in get_args(Kind) if found["kind"] == [each]), None)
    if kind is None:
        raise EvidenceError(f"the evidence is of an unknown kind, {found['kind'][0][:40]!r}")
    try:
        return Contradiction(
            kind=kind,
            vkey=found["vkey"][0],
            rotations=tuple(map(_note, found["rotation"])),
            first=_note(found["first"][0]),
            second=_note(found["second"][0]),
            proof=tuple(map(decode_base64, found["proof"])),
        )
    except (VerificationError, UnicodeDecodeError) as e:
        raise EvidenceError(f"the evidence has a malformed line: {e}") from e


def _note(encoded: str) -> str:
    return decode_base64(encoded).decode()
