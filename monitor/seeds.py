"""Randomness by purpose: every draw has a generator of its own, and no global state is used.

A purpose's draws do not move when another purpose draws more or less: a changed batch size or an
edit of the model leaves the data order of later epochs as it was.
I/O: none.
"""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

_TERMS = 12  # uniform numbers to one normal number: the variance of their sum is one
_STEPS = 2**20  # values that each of them takes


def derive_seed(*purpose: int | str) -> int:
    """Return 63 bits that depend on every part of `purpose`, and on nothing else."""
    text = "\x1f".join(str(part) for part in purpose)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(*purpose: int | str) -> torch.Generator:
    """Return a CPU generator seeded for `purpose`."""
    return torch.Generator().manual_seed(derive_seed(*purpose))


def normal_draws(shape: Sequence[int], source: torch.Generator) -> Tensor:
    """Return float64 numbers of `shape`, normal to a good approximation, none beyond 6.

    Each is a sum of twelve uniform whole numbers (Irwin-Hall), scaled exactly: the same bits on
    every CPU, where the logarithms and cosines of Tensor.normal_() depend on the code path.
    """
    terms = torch.randint(_STEPS, (_TERMS, *shape), generator=source)
    return (terms.sum(dim=0).double() - _TERMS * (_STEPS - 1) / 2) / _STEPS
