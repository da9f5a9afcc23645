"""The Merkle tree over the entries, kept as its right edge.

Source: RFC 6962 section 2.1; docs/reference/ledger-format.md, "Hashes".
I/O: none.  Memory: one hash for each bit that is set in the tree's size.
Not covered: proofs.
"""

import hashlib
from dataclasses import dataclass, field

__all__ = ["Tree"]


@dataclass
class Tree:
    """A growing tree: `edge` holds the roots of its perfect subtrees, largest first."""

    size: int = 0
    edge: list[bytes] = field(default_factory=list)

    def append(self, leaf_hash: bytes) -> None:
        """Add one leaf; amortised cost is one hash."""
        node = leaf_hash
        carry = self.size
        while carry & 1:
            node = _node_hash(self.edge.pop(), node)
            carry >>= 1
        self.edge.append(node)
        self.size += 1

    def root(self) -> bytes:
        """Return the root hash at the present size."""
        if not self.edge:
            return hashlib.sha256(b"").digest()
        node = self.edge[-1]
        for left in reversed(self.edge[:-1]):
            node = _node_hash(left, node)
        return node


def _node_hash(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()
