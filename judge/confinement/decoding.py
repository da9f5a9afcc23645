"""Decodes image files in a confined process.

Image decoders are large programs in C, and the files are the judged party's. So the judge's own
process never runs them. The confined one gets bytes through a pipe and gives pixels back, as many
as an image has here. It can open no file but those of Python and its libraries, and reach no
network and no other process.

Trust: what comes back are pixels or words of a hostile process: their length and form are checked.
I/O: a temporary folder, one process, its pipes.  Units: seconds, bytes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from judge.confinement.process import ProcessLimits, WorkerError, confined
from monitor.errors import DataLimitError, DatasetError
from monitor.folders import DataLimits
from monitor.images import IMAGE_BYTES

_WORDS = 500  # characters of an error's words, at most
_PATIENCE = 600.0  # s for one image; the largest takes some seconds of processor time
_BASE = 2**30  # bytes that Python and the decoders need beside an image
_PER_PIXEL = 12  # bytes: decoded with four channels, converted, and a copy
_FOR_LONG = 7 * 24 * 3_600  # s of processor time: the number of images is limited elsewhere


@contextmanager
def confined_decoder(limits: DataLimits) -> Iterator[Callable[[bytes, int], bytes]]:
    """Yield what decodes and raises as decode_image() does; raises ConfinementError."""
    memory = _BASE + _PER_PIXEL * limits.image_pixels + 2 * limits.image_bytes
    needed = ProcessLimits(
        seconds=_PATIENCE, cpu_seconds=_FOR_LONG, memory_bytes=memory, file_bytes=0
    )
    with confined("images", {}, limits=needed, most_pixels=limits.image_pixels) as process:

        def decode(content: bytes, most_pixels: int) -> bytes:
            process.give(_PATIENCE)
            try:
                told = most_pixels == limits.image_pixels  # as for all images of a folder
                process.ask("" if told else "decode", {"most_pixels": most_pixels}, content)
                said, pixels = process.read(most=IMAGE_BYTES)
            except WorkerError as error:
                raise DatasetError(
                    f"cannot be read as an image: its decoder failed: {error}"
                ) from error
            if isinstance(pixels, bytes) and len(pixels) == IMAGE_BYTES:
                return pixels
            words = str(said.get("refused"))[:_WORDS]
            shown = "".join(each if each.isprintable() else "?" for each in words)
            raise (DataLimitError if said.get("large") is True else DatasetError)(shown)

        yield decode
