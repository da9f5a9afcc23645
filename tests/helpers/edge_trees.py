"""The Merkle tree over the entries, kept as its right edge: shares no code with the product's.

Source: RFC 6962 section 2.1; docs/reference/ledger-format.md, "Hashes".
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Self


@dataclass
class Tree:
    """A growing tree: `edge` holds the roots of its perfect subtrees, largest first."""

    size: int = 0
    edge: list[bytes] = field(default_factory=list)

    def append(self, leaf_hash: bytes) -> None:
        """Add one leaf."""
        self.extend([leaf_hash])

    def extend(self, leaf_hashes: Sequence[bytes]) -> None:
        """Add leaves, level by level; the cost is about one hash for each."""
        nodes = list(leaf_hashes)
        below = self.size  # nodes of this level that the tree had before
        grown: list[bytes] = []  # the new edge's lower part, smallest first
        while nodes:
            if below & 1:
                nodes.insert(0, self.edge.pop())
            if len(nodes) & 1:
                grown.append(nodes.pop())
            nodes = [
                sha256(b"\x01" + left + right).digest()
                for left, right in zip(nodes[::2], nodes[1::2], strict=True)
            ]
            below >>= 1
        self.edge += reversed(grown)
        self.size += len(leaf_hashes)

    def copy(self) -> Self:
        """Return another one that grows by itself."""
        return type(self)(self.size, self.edge[:])

    def root(self) -> bytes:
        """Return the root hash at the present size."""
        if not self.edge:
            return sha256(b"").digest()
        node = self.edge[-1]
        for left in reversed(self.edge[:-1]):
            node = sha256(b"\x01" + left + node).digest()
        return node
