"""The images on which submitted code is compared with the judge's own model.

They are drawn after the submission was read: validation images as they are, moved, mirrored, with
another brightness and with one pixel changed, images of one colour, and noise, in an order and in
portions that are drawn as well. Code that answers differently for some of these is found out.

Not covered: code that answers differently for images which hardly any draw has, say for those with
one mark that its author chose. The judge scores its own model, so that this gains no score.

I/O: none.  Shapes: images (B, 3, 32, 32).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from monitor.datasets import Split, normalise

_REAL, _PLAIN, _NOISE = 8, 4, 8  # images of a kind
_PORTIONS = (1, 2, 3)  # what remains is the last
_BYTE = 256


@dataclass(frozen=True)
class Drawn:
    """Images as a model takes them, and how many are given to it at a time."""

    seed: int  # which draws them again
    images: Tensor  # (B, 3, 32, 32)
    portions: tuple[int, ...]  # sum up to B


def draw_images(validation: Split | None, *, seed: int) -> Drawn:
    """Draw the images; without validation images, those of one colour and noise are left."""
    generator = torch.Generator().manual_seed(seed)

    def below(limit: int, *shape: int) -> Tensor:
        return torch.randint(0, limit, shape, generator=generator)

    noise = torch.randn(_NOISE, 3, 32, 32, generator=generator)
    as_bytes = [
        below(_BYTE, _PLAIN, 3, 1, 1).expand(_PLAIN, 3, 32, 32),
        below(_BYTE, _NOISE, 3, 32, 32),
    ]
    if validation is not None and len(validation):
        real = validation.images[below(len(validation), _REAL)].to(torch.int64)
        shift = (int(below(32, 1)), int(below(32, 1)))
        brighter = real + below(128, _REAL, 1, 1, 1) - 64
        changed = real.clone()
        row, column = below(32, _REAL), below(32, _REAL)
        changed[torch.arange(_REAL), :, row, column] = below(_BYTE, _REAL, 3)
        as_bytes += [
            real,
            changed,
            real.flip(3),
            real.roll(shift, (2, 3)),
            brighter.clamp(0, _BYTE - 1),
        ]
    images = torch.cat([noise, *(normalise(each) for each in as_bytes)])
    images = images[torch.randperm(len(images), generator=generator)].contiguous()
    sizes = torch.randperm(len(_PORTIONS), generator=generator)
    portions = [_PORTIONS[int(place)] for place in sizes]
    return Drawn(seed, images, (*portions, len(images) - sum(portions)))
