"""A chain of rotations that comes with a proof or with evidence, outside of its ledger.

Source: docs/reference/ledger-format.md, "Rotation", "Proofs" and "Evidence".
Trust: notes are hostile until vkeys_along() returns; the first vkey is trusted.
I/O: none.
Not covered: which sizes a key signs, which only the whole ledger says (authority.py).
"""

from collections.abc import Sequence

from ledger.errors import SignatureError
from ledger.verification.authority import Authority, parse_rotation
from ledger.verification.verified_notes import parse_vkey


def vkeys_along(rotations: Sequence[str], *, vkey: str) -> list[str]:
    """Return the vkey and those to which the rotations lead, oldest first."""
    vkeys = [vkey.strip()]
    origin = parse_vkey(vkey).name
    for note in rotations:
        rotation = parse_rotation(note, origin=origin)
        if rotation.old != vkeys[-1] or rotation.new in vkeys:
            raise SignatureError("the rotations do not start from the ledger's vkey")
        vkeys.append(rotation.new)
    return vkeys


def rotations_up_to(size: int, *, authority: Authority, vkey: str) -> list[str]:
    """Return the rotations that lead from the ledger's first vkey to the one that signs there."""
    vkeys = vkeys_along(authority.rotations, vkey=vkey)
    return list(authority.rotations[: vkeys.index(authority.ledger_vkey_at(size))])
