"""RFC 6962 section 2.1 as it is written there, recursive and slow, to compare with."""

import hashlib
from collections.abc import Sequence


def leaf(entry: bytes) -> bytes:
    return hashlib.sha256(b"\x00" + entry).digest()


def leaves(count: int) -> list[bytes]:
    return [leaf(str(place).encode()) for place in range(count)]


def root(hashes: Sequence[bytes]) -> bytes:
    """MTH(D[n]), of hashed leaves."""
    if not hashes:
        return hashlib.sha256(b"").digest()
    if len(hashes) == 1:
        return hashes[0]
    k = split(len(hashes))
    return hashlib.sha256(b"\x01" + root(hashes[:k]) + root(hashes[k:])).digest()


def path(m: int, hashes: Sequence[bytes]) -> list[bytes]:
    """PATH(m, D[n])."""
    if len(hashes) == 1:
        return []
    k = split(len(hashes))
    if m < k:
        return [*path(m, hashes[:k]), root(hashes[k:])]
    return [*path(m - k, hashes[k:]), root(hashes[:k])]


def subproof(m: int, hashes: Sequence[bytes], *, known: bool = True) -> list[bytes]:
    """SUBPROOF(m, D[n], b); PROOF(m, D[n]) where b is true."""
    n = len(hashes)
    if m == n:
        return [] if known else [root(hashes)]
    k = split(n)
    if m <= k:
        return [*subproof(m, hashes[:k], known=known), root(hashes[k:])]
    return [*subproof(m - k, hashes[k:], known=False), root(hashes[:k])]


def split(n: int) -> int:
    """The largest power of two smaller than n."""
    return 1 << (n - 1).bit_length() - 1
