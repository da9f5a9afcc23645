"""What a witness decides: a request and what is known in, a tree head to cosign or a refusal out.

Source: C2SP tlog-witness, "add-checkpoint"; docs/reference/ledger-format.md, "Cosignature",
"Rotation" and "Evidence".
Trust: requests are hostile, and from anybody; known ledgers are trusted.
I/O: none.  Units: sizes in entries.
Not covered: extension lines in tree heads, which our ledgers do not have.
"""

import hashlib
import re
from dataclasses import dataclass, replace

from ledger.errors import LedgerError, MalformedError, VerificationError
from ledger.verification.authority import parse_rotation
from ledger.verification.proofs import MAX_PROOF, roots_from_consistency
from ledger.verification.verified_notes import (
    SignedNote,
    TreeHead,
    VerifierKey,
    decode_base64,
    parse_note,
    parse_tree_head,
    parse_vkey,
    verify_note,
)
from ledger.witnessing.evidence import Contradiction, Kind

_MAX_ROTATIONS = 1_000  # for each ledger
_ROTATION_LINES = 7  # four of text, an empty one, two signatures
_TEXT = "text/plain; charset=utf-8"
_SIZE = "text/x.tlog.size"
_OLD = re.compile(r"old (0|[1-9][0-9]{0,18})")
_EMPTY_ROOT = hashlib.sha256(b"").digest()


@dataclass(frozen=True, kw_only=True)
class KnownLog:
    """One ledger, as a witness knows it."""

    vkey: str  # as it was registered
    rotations: str = ""  # the notes that were followed since, one after the other
    note: str | None = None  # the latest tree head, with the ledger's line and the witness's
    seconds: int = 0  # the time of the latest cosignature


@dataclass(frozen=True, kw_only=True)
class Response:
    """What a witness says to a request, in the terms of HTTP."""

    status: int
    body: str
    content_type: str = _TEXT


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request to cosign, taken apart, unverified."""

    old_size: int
    proof: tuple[bytes, ...]
    note: SignedNote
    head: TreeHead


class RefusalError(LedgerError):
    """An answer other than 200, and what it is that was found out, if anything."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        content_type: str = _TEXT,
        evidence: Contradiction | None = None,
    ) -> None:
        super().__init__(message)
        self.answer = Response(status=status, body=f"{message}\n", content_type=content_type)
        self.evidence = evidence


def accepted_note(known: KnownLog, request: Request) -> str:
    """Return the note to cosign, with the ledger's line only; the order is that of the source.

    Raises RefusalError.
    """
    # "The witness MUST verify the checkpoint signature ..."
    key, in_force = _signing_key(known, request.note)
    note = _bare_note(request.note, key)
    if not in_force:  # it shows nothing: whoever has the key by now may have signed it
        raise RefusalError(403, "the key that signed this was replaced by a rotation")
    contradiction = _contradiction(known, request.head, note)
    _check_consistency(known, request, note, contradiction=contradiction)
    return note


def parse_request(text: str) -> Request:
    """Take a request apart; raise MalformedError if it is none."""
    front, separator, note = text.partition("\n\n")
    first, *lines = front.split("\n")
    old = _OLD.fullmatch(first)
    if not separator or old is None or int(old[1]) >= 2**63:
        raise MalformedError("the request must be an old size, a proof, an empty line and a note")
    if len(lines) > MAX_PROOF:
        raise MalformedError(f"the proof has {len(lines)} lines; the maximum is {MAX_PROOF}")
    proof = tuple(map(decode_base64, lines))
    if any(len(each) != 32 for each in proof):
        raise MalformedError("a line of the proof is not a hash")
    return Request(
        old_size=int(old[1]), proof=proof, note=parse_note(note), head=parse_tree_head(note)
    )


def split_rotations(text: str) -> list[str]:
    """Take a text of rotation notes, one after the other, apart; each has seven lines."""
    *lines, rest = text.split("\n")
    if rest or not lines or len(lines) % _ROTATION_LINES:
        raise MalformedError("the text is not a sequence of rotation notes")
    return [
        "".join(f"{line}\n" for line in lines[at : at + _ROTATION_LINES])
        for at in range(0, len(lines), _ROTATION_LINES)
    ]


def _signing_key(known: KnownLog, note: SignedNote) -> tuple[VerifierKey, bool]:
    """Return the ledger's key that signed a note, and whether it is the one in force."""
    names = {(line.name, line.key_id) for line in note.signatures}
    keys = [parse_vkey(vkey) for vkey in _vkeys(known)]
    key = next((k for k in reversed(keys) if (k.name, k.key_id) in names), keys[-1])
    try:
        verify_note(note, key=key)
    except VerificationError as e:
        raise RefusalError(403, str(e)) from e
    return key, key == keys[-1]


def _contradiction(known: KnownLog, head: TreeHead, note: str) -> Contradiction | None:
    """Return what a tree head shows beside the latest one, without any proof."""
    if known.note is None or head.size == 0:
        return None
    latest = parse_tree_head(known.note)
    if head.size < latest.size:
        return _evidence("rollback", known, first=note, second=known.note)
    if head.size == latest.size and head.root != latest.root:
        return _evidence("fork", known, first=known.note, second=note)
    return None


def _evidence(
    kind: Kind, known: KnownLog, *, first: str, second: str, proof: tuple[bytes, ...] = ()
) -> Contradiction:
    rotations = tuple(_rotations(known))
    return Contradiction(
        kind=kind, vkey=known.vkey, rotations=rotations, first=first, second=second, proof=proof
    )


def _check_consistency(
    known: KnownLog, request: Request, note: str, *, contradiction: Contradiction | None
) -> None:
    head, old = request.head, request.old_size
    latest = None if known.note is None else parse_tree_head(known.note)
    latest_size = 0 if latest is None else latest.size
    # "The old size MUST be equal to or lower than the checkpoint size."
    if old > head.size:
        raise RefusalError(400, f"the old size {old} is larger than the tree head's {head.size}")
    # "... MUST check that the old size matches the size of the latest checkpoint ..."
    if old != latest_size:
        raise RefusalError(409, str(latest_size), content_type=_SIZE, evidence=contradiction)
    # "A checkpoint of size zero MUST have the root hash of the empty tree ..."
    if head.size == 0 and head.root != _EMPTY_ROOT:
        raise RefusalError(422, "the tree head of size 0 has the root of a tree with entries")
    # "If the old size matches the checkpoint size ..."
    if contradiction is not None:
        raise RefusalError(
            422, f"another tree head of size {old} was cosigned: a fork", evidence=contradiction
        )
    # "If the old size is zero, the consistency proof MUST be empty ..."
    if old in (0, head.size):
        if request.proof:
            raise RefusalError(422, "the proof must be empty here")
        return
    assert latest is not None  # because the old size is not zero
    assert known.note is not None
    try:
        old_root, new_root = roots_from_consistency(
            old=old, new=head.size, proof=request.proof, old_root=latest.root
        )
    except VerificationError as e:
        raise RefusalError(422, str(e)) from e
    if new_root != head.root:
        raise RefusalError(422, f"the proof does not lead to the root of size {head.size}")
    if old_root != latest.root:
        raise RefusalError(
            422,
            f"the proof shows another root at size {old} than was cosigned: a fork",
            evidence=_evidence("fork", known, first=known.note, second=note, proof=request.proof),
        )


def follow_rotations(known: KnownLog | None, notes: list[str], origin: str) -> KnownLog:
    """Return what is known after these rotations; refuse all of them if one does not follow."""
    if known is None:
        raise RefusalError(404, f"the ledger {origin} is not known here")
    followed = _rotations(known)
    rotations = [parse_rotation(note, origin=origin) for note in followed]
    for note in notes:
        try:
            rotation = parse_rotation(note, origin=origin)
        except VerificationError as e:
            raise RefusalError(403, str(e)) from e
        if rotation in rotations:
            continue
        keys = [known.vkey, *(each.new for each in rotations)]
        if rotation.old != keys[-1] or rotation.new in keys:
            raise RefusalError(403, "the rotation does not follow the last one known here")
        if len(rotations) >= _MAX_ROTATIONS:
            raise RefusalError(
                403,
                f"the limit of {_MAX_ROTATIONS} rotations is reached; register the ledger again",
            )
        rotations.append(rotation)
        followed.append(note)
    return replace(known, rotations="".join(followed))


def _rotations(known: KnownLog) -> list[str]:
    return split_rotations(known.rotations) if known.rotations else []


def _vkeys(known: KnownLog) -> list[str]:
    """Return the ledger's keys, oldest first; its rotations were verified when they came."""
    return [known.vkey, *(note.split("\n")[3] for note in _rotations(known))]


def _bare_note(note: SignedNote, key: VerifierKey) -> str:
    """Return a verified note with the ledger's line only: the others may say anything."""
    (line,) = [s for s in note.signatures if (s.name, s.key_id) == (key.name, key.key_id)]
    return f"{note.text}\n{line}"
