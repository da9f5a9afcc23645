"""Additional signature lines in a tree head's note: where cosignatures are stored.

Source: docs/reference/ledger-format.md, "Cosignature".
Trust: a line is hostile; it may not spoil a note that held without it.
I/O: a connection that is in a transaction that writes.
"""

from collections.abc import Sequence

from ledger.errors import AuthorityError, EncodingError, ForbiddenError, VerificationError
from ledger.store import Rows
from ledger.verification.authority import Authority
from ledger.verification.verified_notes import open_tree_head, parse_note, parse_vkey
from ledger.witnessing.cosignatures import cosigned_at

_MAX_LINE = 400  # characters; 16 of them fit into a notary's answer


def add_line(
    c: Rows,
    size: int,
    line: str,
    *,
    authority: Authority,
    witnesses: Sequence[str] | None = None,
) -> None:
    """Add a signature line to the tree head of this size, unless it is there already.

    Nor is a second line added by a witness that was granted or is in `witnesses` (vkeys). Where
    these are given, nobody else may add one; else a line by an unknown key is taken as it is, and
    whether to believe it is the verifier's choice. Raises EncodingError, AuthorityError or
    ForbiddenError.
    """
    row = c.execute("SELECT note FROM tree_heads WHERE size = ?", (size,)).fetchone()
    if row is None:
        raise EncodingError(
            f"no tree head of size {size} found; give the size of an existing tree head"
        )
    note = str(row[0])
    if not line.endswith("\n") or line.count("\n") != 1:
        raise EncodingError("a signature line is one line with its newline")
    if len(line) > _MAX_LINE:
        raise EncodingError(f"a signature line has at most {_MAX_LINE} characters")
    if f"\n{line}" in note:
        return
    granted = [key.vkey for key in authority.keys if key.role == "witness" and key.ended is None]
    vkey = _witness(line, [*granted, *(witnesses or ())])
    if witnesses is not None and vkey is None:
        raise ForbiddenError(
            "the signature line is not by a witness that was granted in the ledger or is named "
            "in the notary's rules; grant its key, or add its vkey to the rules"
        )
    if vkey is not None:
        text = note.rpartition("\n\n")[0]
        alone = parse_note(f"{text}\n\n{line}")
        if cosigned_at(alone, vkey=vkey)[0] is None:
            raise AuthorityError("the signature line is not valid: its signature is invalid")
        if cosigned_at(parse_note(note), vkey=vkey)[0] is not None:
            return
    longer = note + line
    try:
        open_tree_head(longer, vkey=authority.ledger_vkey_at(size))
    except VerificationError as e:
        raise EncodingError(
            f"the signature line does not match the tree head of size {size}: {e}"
        ) from e
    c.execute("UPDATE tree_heads SET note = ? WHERE size = ?", (longer, size))


def _witness(line: str, vkeys: Sequence[str]) -> str | None:
    """Return the vkey in whose name a line is, if it is in the name of one of these."""
    try:
        (signature,) = parse_note(f"-\n\n{line}").signatures
    except VerificationError as e:
        raise EncodingError(f"this is not a signature line: {e}") from e
    for vkey in vkeys:
        key = parse_vkey(vkey, role="witness")
        if (key.name, key.key_id) == (signature.name, signature.key_id):
            return vkey
    return None
