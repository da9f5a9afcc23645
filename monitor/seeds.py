"""Randomness by purpose: every draw has a generator of its own, and no global state is used.

A purpose's draws do not move when another purpose draws more or less: a changed batch size or an
edit of the model leaves the data order of later epochs as it was.
I/O: none.
"""

import hashlib

import torch


def derive_seed(*purpose: int | str) -> int:
    """Return 63 bits that depend on every part of `purpose`, and on nothing else."""
    text = "\x1f".join(str(part) for part in purpose)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(*purpose: int | str) -> torch.Generator:
    """Return a CPU generator seeded for `purpose`."""
    return torch.Generator().manual_seed(derive_seed(*purpose))
