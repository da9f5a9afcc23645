"""Proofs that an entry is in a tree, and that one tree continues another.

Source: RFC 6962 sections 2.1.1 and 2.1.2; folded as in RFC 9162 sections 2.1.3.2 and 2.1.4.2.
Trust: a proof is hostile until verify_inclusion() returns, or roots are compared.
I/O: none.  Units: sizes in entries.
Memory: building a proof takes one walk over the tree's nodes and holds O(log n) of them.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from ledger.errors import ConsistencyError, InclusionError, VerificationError

MAX_PROOF = 63  # hashes: a tree has fewer than 2^63 leaves
_LIMIT = 2**63
BLOCK = 9  # the level of the subtrees whose roots a verification keeps: 512 leaves each
Node = bytes | tuple[int, bytes]
"""The hash of a leaf, or the width and the root of a perfect subtree."""


def leaf_hash(entry: bytes) -> bytes:
    """Return the hash of an entry as a leaf of the tree."""
    return hashlib.sha256(b"\x00" + entry).digest()


def inclusion_proofs(nodes: Iterable[Node], indexes: Iterable[int]) -> list[list[bytes]]:
    """Return the hashes that lead to the root from each of these leaves, ascending, in one walk.

    The nodes are those of a tree from left to right: leaves, and subtrees that no index is in. The
    hashes of each begin with the leaf's sibling.

    Raises InclusionError if one of them is not there.
    """
    return [path for path, _ in _paths(nodes, indexes)[0]]


def consistency_proof(
    leaf_hashes: Iterable[bytes], old_size: int, *, with_old_root: bool = False
) -> list[bytes]:
    """Return the hashes that show that this tree continues its own first `old_size` leaves.

    The RFC leaves the old root out where it is itself a node of the new tree, which is when
    `old_size` is a power of two: its reader has it. `with_old_root` puts it first even then.
    Raises ConsistencyError if there are fewer leaves than that.
    """
    if old_size < 1:
        raise ConsistencyError(f"no proof is possible from size {old_size}; the smallest size is 1")
    try:
        ((path, node),), size = _paths(leaf_hashes, [old_size - 1])
    except InclusionError:
        raise ConsistencyError(f"there are fewer than {old_size} entries") from None
    # The last leaf's siblings, below the last perfect subtree of the old tree, all lie in it.
    power = (old_size & -old_size).bit_length() - 1
    for sibling in path[:power]:
        node = _node_hash(sibling, node)
    path = path[power:]
    if size == old_size:
        for sibling in path:
            node = _node_hash(sibling, node)
        return [node] if with_old_root else []
    return [node, *path] if with_old_root or old_size != 1 << power else path


def verify_inclusion(
    leaf: bytes, *, index: int, size: int, root: bytes, proof: Sequence[bytes]
) -> None:
    """Raise InclusionError unless the leaf is at this place in the tree with this root."""
    if not 0 <= index < size < _LIMIT:
        raise InclusionError(f"entry {index} is out of range: the tree has {size} entries")
    _check_hashes([leaf, *proof], error=InclusionError)
    if _climb(leaf, index, size - 1, proof, error=InclusionError)[2] != root:
        raise InclusionError(f"the inclusion proof does not lead from entry {index} to the root")


def earlier_roots(
    leaf: bytes, *, index: int, size: int, proof: Sequence[bytes]
) -> tuple[bytes | None, bytes]:
    """Return the roots that the tree had before this leaf, None for an empty tree, and with it.

    The siblings on the left of a leaf's path are the perfect subtrees of all leaves before it, in
    every tree that continues that one. The proof is one that verify_inclusion() has verified.
    """
    return _climb(leaf, index, size - 1, proof, error=InclusionError)[:2]


def roots_from_consistency(
    *, old: int, new: int, proof: Sequence[bytes], old_root: bytes | None = None
) -> tuple[bytes, bytes]:
    """Return the roots at both sizes that the proof gives; both are claims until compared.

    Where `old` is a power of two the RFC's proof does not hold the old root: `old_root` is then
    taken for it, and comes back as it is. Without one, the proof has to begin with it.
    Raises ConsistencyError unless the proof's form is right.
    """
    if not 0 < old <= new < _LIMIT:
        raise ConsistencyError(f"no proof leads from size {old} to size {new}")
    if old_root is not None and (old == new or old & (old - 1) == 0):
        proof = [old_root, *proof]
    if not proof:
        raise ConsistencyError("the consistency proof is empty")
    _check_hashes(proof, error=ConsistencyError)
    width = old & -old
    place, last = (old - width) // width, (new - 1) // width
    if old == new:  # both trees are one: the only hash is its root
        place = last = 0
    return _climb(proof[0], place, last, proof[1:], error=ConsistencyError)[1:]


def _climb(
    node: bytes, place: int, last: int, proof: Sequence[bytes], *, error: type[VerificationError]
) -> tuple[bytes | None, bytes, bytes]:
    """Return the roots to which a proof leads: before a node, up to it, and of all.

    The first two are of the node's siblings on the left, without it and with it. `place` is the
    node's on its level, `last` that of the level's last node.
    """
    kind = "consistency" if error is ConsistencyError else "inclusion"
    before: bytes | None = None
    upto = every = node
    for sibling in proof:
        if last == 0:
            raise error(f"the {kind} proof is too long")
        if place & 1 or place == last:
            before = sibling if before is None else _node_hash(sibling, before)
            upto, every = _node_hash(sibling, upto), _node_hash(sibling, every)
            while not place & 1 and place:  # subtrees without a right part have no sibling
                place >>= 1
                last >>= 1
        else:
            every = _node_hash(every, sibling)
        place >>= 1
        last >>= 1
    if last:
        raise error(f"the {kind} proof is too short")
    return before, upto, every


def _paths(
    nodes: Iterable[Node], indexes: Iterable[int]
) -> tuple[list[tuple[list[bytes], bytes]], int]:
    """Return siblings from the leaf up, and the leaf, for each index, ascending; and the size.

    One walk; raises InclusionError if one of them is not there.
    """
    wanted = sorted(set(indexes))
    paths: list[list[bytes]] = [[] for _ in wanted]
    leaves: list[bytes] = []
    edge: list[tuple[int, int, bytes]] = []  # start, width and root of perfect subtrees
    size = 0

    def join(left: tuple[int, int, bytes], right: tuple[int, int, bytes]) -> tuple[int, int, bytes]:
        end = right[0] + right[1]
        at = bisect_left(wanted, left[0])
        while at < len(wanted) and wanted[at] < end:
            paths[at].append(right[2] if wanted[at] < right[0] else left[2])
            at += 1
        return left[0], left[1] + right[1], _node_hash(left[2], right[2])

    for node in nodes:
        width, root = (1, node) if isinstance(node, bytes) else node
        if len(leaves) < len(wanted) and wanted[len(leaves)] < size + width:
            if width > 1:
                raise InclusionError(
                    f"entry {wanted[len(leaves)]} cannot be proved: its leaf is not given"
                )
            leaves.append(root)
        tree = (size, width, root)
        while edge and edge[-1][1] == tree[1]:
            tree = join(edge.pop(), tree)
        edge.append(tree)
        size += width
    if wanted and not 0 <= wanted[0] <= wanted[-1] < size:
        missing = wanted[0] if wanted[0] < 0 else wanted[-1]
        raise InclusionError(f"entry {missing} not found: it cannot be proved")
    while len(edge) > 1:
        right = edge.pop()
        edge.append(join(edge.pop(), right))
    return list(zip(paths, leaves, strict=True)), size


def _check_hashes(hashes: Sequence[bytes], *, error: type[VerificationError]) -> None:
    if len(hashes) > MAX_PROOF + 1:
        raise error(f"a proof has at most {MAX_PROOF} hashes")
    if any(not isinstance(each, bytes) or len(each) != 32 for each in hashes):
        raise error("a hash in the proof is not 32 bytes long")


def _node_hash(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()
