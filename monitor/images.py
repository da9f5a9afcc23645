"""Turns the bytes of an image file into the 32x32 pixels that a model sees.

Apart from monitor/datasets.py, because this needs no torch: a judge decodes images in a process of
its own, which is confined (judge/confinement/decoding.py).

Source: Pillow 12, Image.open().
Trust: the bytes are hostile, and decoders are large programs in C; what they do is bounded by the
caller's process.  I/O: none.  Shapes: images (3, 32, 32) uint8, row by row.
"""

import io
import warnings

import numpy as np
from PIL import Image

from monitor.errors import DataLimitError, DatasetError

SIDE = 32  # pixels
IMAGE_BYTES = 3 * SIDE * SIDE
SUFFIXES = frozenset({".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})
# What a file is read as whatever its name says. Pillow knows more: EPS starts another program.
FORMATS = ("BMP", "JPEG", "PNG", "PPM", "TIFF", "WEBP")


def decode_image(content: bytes, *, most_pixels: int, side: int = SIDE) -> bytes:
    """Return an image file's first image as bytes (3, side, side).

    Raises DataLimitError for more than `most_pixels`, before anything is decoded, and DatasetError
    for bytes that cannot be decoded.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our limit is another
            with Image.open(io.BytesIO(content), formats=FORMATS) as image:
                _check_pixels(image.size, most_pixels)
                pixels = image.convert("RGB")
                if pixels.size != (side, side):
                    pixels = pixels.resize((side, side), Image.Resampling.BILINEAR)
    except DataLimitError:
        raise
    except Exception as error:  # decoders raise whatever broken bytes lead them to
        raise DatasetError(f"cannot be read as an image: {error}") from error
    return np.asarray(pixels).transpose(2, 0, 1).tobytes()


def _check_pixels(size: tuple[int, int], most: int) -> None:
    width, height = size
    if width * height > most:
        raise DataLimitError(f"has {width} x {height} pixels; the limit is {most:,}")
