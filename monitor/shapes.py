"""Shapes: procedural 32x32 RGB images in ten classes, with nothing to download.

Each image holds one bright shape of varying size, place, angle, stretch and colour on a darker,
shaded background, with blots of both colours and noise on top. Only the form tells the class.

The bytes are the same on every CPU: only + - x / and square roots are used, which are rounded
correctly everywhere. NumPy's sine, cosine and normal numbers depend on the code path.

I/O: none.  Units: image coordinates from -1 to 1.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from monitor.seeds import derive_seed

Floats = NDArray[np.float32]
SIZE = 32  # pixels
_DISTRACTORS = 2
_MAX_HALF_TANGENT = 0.546  # of half the angle: 1 radian
_CHUNK = 1024  # images drawn at once, so that memory stays small


def draw_shapes(
    split: str, count: int, *, seed: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images (count, 3, 32, 32) and labels (count,), balanced over the classes."""
    rng = np.random.Generator(np.random.PCG64(derive_seed("shapes", split, seed)))
    labels = rng.permutation(np.arange(count, dtype=np.int64) % len(CLASSES))
    chunks = [_draw(labels[at : at + _CHUNK], rng) for at in range(0, count, _CHUNK)]
    return np.concatenate(chunks), labels


def _draw(labels: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.uint8]:
    n = len(labels)
    y, x = np.meshgrid(*[np.linspace(-1, 1, SIZE, dtype=np.float32)] * 2, indexing="ij")
    u, v = _local(x, y, rng, n, size=(0.5, 0.8), offset=0.25)
    distance = np.empty((n, SIZE, SIZE), np.float32)
    for label, name in enumerate(CLASSES):
        chosen = labels == label
        distance[chosen] = _FORMS[name](u[chosen], v[chosen])
    mask = _soft(distance)[:, None]  # (n, 1, SIZE, SIZE)

    front = _uniform(rng, (n, 3, 1, 1), 0.6, 1.0)
    back = _uniform(rng, (n, 3, 1, 1), 0.0, 0.4)
    shade = _uniform(rng, (n, 2, 1, 1, 1), -0.15, 0.15)
    background = back + shade[:, 0] * x + shade[:, 1] * y  # (n, 3, SIZE, SIZE)
    image = background * (1 - mask) + front * mask
    for _ in range(_DISTRACTORS):
        du, dv = _local(x, y, rng, n, size=(0.06, 0.16), offset=0.95)
        blot = _soft(np.maximum(np.abs(du), np.abs(dv)) - 1)[:, None]
        colour = np.where(rng.random((n, 1, 1, 1)) < 0.5, front, back)
        image = image * (1 - blot) + colour.astype(np.float32) * blot
    image += _noise(rng, image.shape) * _uniform(rng, (n, 1, 1, 1), 0.02, 0.10)
    bytes_: NDArray[np.uint8] = np.clip(image * 255, 0, 255).astype(np.uint8)
    return bytes_


def _local(
    x: Floats,
    y: Floats,
    rng: np.random.Generator,
    n: int,
    *,
    size: tuple[float, float],
    offset: float,
) -> tuple[Floats, Floats]:
    """Return image coordinates seen from shapes of random place, angle, size and stretch."""
    half = _uniform(rng, (n, 1, 1), -_MAX_HALF_TANGENT, _MAX_HALF_TANGENT)
    cosine, sine = (1 - half * half) / (1 + half * half), 2 * half / (1 + half * half)
    cx, cy = _uniform(rng, (n, 1, 1), -offset, offset), _uniform(rng, (n, 1, 1), -offset, offset)
    scale = _uniform(rng, (n, 1, 1), *size)
    stretch = _uniform(rng, (n, 1, 1), 0.85, 1.18)
    dx, dy = x - cx, y - cy
    u = (dx * cosine + dy * sine) / (scale * stretch)
    v = (dy * cosine - dx * sine) / (scale / stretch)
    return u, v


def _soft(distance: Floats) -> Floats:
    """Return 1 inside, 0 outside and a ramp of about one pixel between."""
    soft: Floats = np.clip(0.5 - distance * 5, 0, 1)
    return soft


def _uniform(rng: np.random.Generator, shape: tuple[int, ...], low: float, high: float) -> Floats:
    return (low + (high - low) * rng.random(shape, dtype=np.float32)).astype(np.float32)


def _noise(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Return numbers of mean 0 and variance 1: sums of four uniform whole numbers."""
    steps = 2**16
    terms = rng.integers(steps, size=(4, *shape), dtype=np.uint16).sum(axis=0, dtype=np.int32)
    scale = np.float32(math.sqrt(3.0) / steps)  # the variance of such a sum is steps^2 / 3
    noise: Floats = (terms - 2 * (steps - 1)).astype(np.float32) * scale
    return noise


def _polygon(u: Floats, v: Floats, directions: list[tuple[float, float]], radius: float) -> Any:
    edges = [u * np.float32(x) + v * np.float32(y) for x, y in directions]
    return np.maximum.reduce(edges) - radius


def _length(u: Any, v: Any) -> Any:
    return np.sqrt(u * u + v * v)


def _star(u: Floats, v: Floats) -> Any:
    """Return a distance from a star of five points; the wave is the cosine of five angles."""
    length = _length(u, v)
    c = u / np.maximum(length, np.float32(1e-6))  # cosine of the angle
    square = c * c
    wave = ((16 * square - 20) * square + 5) * c  # Chebyshev polynomial of degree five
    return length - 0.68 - 0.32 * wave


def _box(u: Any, v: Any, half_width: float, half_height: float) -> Any:
    return np.maximum(np.abs(u) - half_width, np.abs(v) - half_height)


_ROOT = math.sqrt(3.0) / 2
_THREE = [(1.0, 0.0), (-0.5, _ROOT), (-0.5, -_ROOT)]  # directions of a triangle's edges
_SIX = [*_THREE, (-1.0, 0.0), (0.5, -_ROOT), (0.5, _ROOT)]
# Signed distances, roughly: negative inside, each form about one unit in radius.
_FORMS: dict[str, Callable[[Floats, Floats], Any]] = {
    "circle": lambda u, v: _length(u, v) - 0.85,
    "crescent": lambda u, v: np.maximum(_length(u, v) - 0.95, 0.72 - _length(u - 0.45, v)),
    "cross": lambda u, v: np.minimum(_box(u, v, 0.95, 0.28), _box(u, v, 0.28, 0.95)),
    "hexagon": lambda u, v: _polygon(u, v, _SIX, 0.8),
    "ring": lambda u, v: np.abs(_length(u, v) - 0.72) - 0.2,
    "square": lambda u, v: _box(u, v, 0.75, 0.75),
    "star": _star,
    "stripes": lambda u, v: _box(np.abs(u) - 0.55, v, 0.2, 0.85),
    "tee": lambda u, v: np.minimum(_box(u, v + 0.6, 0.9, 0.28), _box(u, v - 0.1, 0.28, 0.85)),
    "triangle": lambda u, v: _polygon(u, v, _THREE, 0.55),
}
CLASSES = tuple(sorted(_FORMS))
