"""Further signature lines in a tree head's note: where cosignatures are kept.

Source: docs/reference/ledger-format.md, "Cosignature".
Trust: a line is hostile; it may not spoil a note that held without it.
I/O: a connection that is in a transaction that writes.
"""

import sqlite3

from ledger.authority import Authority
from ledger.cosignatures import cosignature_time
from ledger.errors import AuthorityError, EncodingError, SignatureError, VerificationError
from ledger.verified_notes import open_tree_head, parse_note

__all__ = ["add_line"]

_MAX_LINE = 400  # characters; 16 of them fit into a notary's answer


def add_line(c: sqlite3.Connection, size: int, line: str, *, authority: Authority) -> None:
    """Add a signature line to the tree head of this size, unless it is there already.

    Raises EncodingError or AuthorityError. A line by an unknown key is taken as it is: whether
    to believe it is the verifier's choice.
    """
    row = c.execute("SELECT note FROM tree_heads WHERE size = ?", (size,)).fetchone()
    if row is None:
        raise EncodingError(f"there is no tree head of size {size}; give the size of one")
    note = str(row[0])
    if not line.endswith("\n") or line.count("\n") != 1:
        raise EncodingError("a signature line is one line with its newline")
    if len(line) > _MAX_LINE:
        raise EncodingError(f"a signature line has at most {_MAX_LINE} characters")
    if f"\n{line}" in note:
        return
    longer = note + line
    try:
        open_tree_head(longer, vkey=authority.ledger_vkey_at(size))
    except VerificationError as e:
        raise EncodingError(f"the line does not fit the tree head of size {size}: {e}") from e
    try:
        for key in authority.keys:
            if key.role == "witness":
                cosignature_time(parse_note(longer), vkey=key.vkey)
    except SignatureError as e:
        raise AuthorityError(f"the line is not a witness's own: {e}") from e
    c.execute("UPDATE tree_heads SET note = ? WHERE size = ?", (longer, size))
