"""Images of the judged party are decoded by a process that has given up its rights."""

import io
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from PIL import Image

from judge.auditing.limits import judges_reading
from judge.config import JudgeConfig
from judge.confinement import process
from judge.confinement.decoding import confined_decoder
from monitor import datasets
from monitor.config import RunConfig
from monitor.datasets import load_test
from monitor.errors import DataLimitError, DatasetError
from monitor.folders import DataLimits
from monitor.images import decode_image

FORMATS = ("BMP", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
MOST = 10_000  # pixels
Decoder = Callable[[bytes, int], bytes]


def picture(kind: str, *, width: int = 70, seed: int = 0) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (50, width, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


@contextmanager
def decoding() -> Iterator[tuple[Decoder, int]]:
    """Yield a decoder, and the number of its process."""
    with (
        mock.patch.object(process, "Confined", wraps=process.Confined) as made,
        confined_decoder(DataLimits()) as decoder,
    ):
        yield decoder, made.call_args.args[0].pid


@pytest.fixture(scope="module")
def decoder_and_process() -> Iterator[tuple[Decoder, int]]:
    with decoding() as found:
        yield found


@pytest.fixture
def decoder(decoder_and_process: tuple[Decoder, int]) -> Decoder:
    return decoder_and_process[0]


@pytest.mark.parametrize("kind", FORMATS)
def test_pixels_are_those_that_the_trainer_sees(decoder: Decoder, kind: str) -> None:
    content = picture(kind)
    assert decoder(content, MOST) == decode_image(content, most_pixels=MOST)


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        (b"", DatasetError, "cannot be read as an image"),
        (b"x" * 5_000, DatasetError, "cannot be read as an image"),
        (picture("PNG")[:200], DatasetError, "cannot be read as an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", DatasetError, "cannot be read as an image"),
        (picture("PNG", width=MOST), DataLimitError, "has 10000 x 50 pixels; the limit is 10,000"),
    ],
)
def test_bytes_that_are_no_image_are_rejected_and_the_next_is_decoded(
    decoder: Decoder, content: bytes, error: type[DatasetError], words: str
) -> None:
    with pytest.raises(error, match=words):
        decoder(content, MOST)
    assert decoder(picture("PNG"), MOST) == decode_image(picture("PNG"), most_pixels=MOST)


def family(process: int) -> list[int]:
    """Return a process and what it has started."""
    found = [process]
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == process:
            found += family(int(path.parent.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")
def test_process_that_decodes_has_given_up_its_rights(
    decoder_and_process: tuple[Decoder, int],
) -> None:
    status = Path(f"/proc/{family(decoder_and_process[1])[-1]}/status").read_text()
    said = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert said["Seccomp"] == "2"
    assert said["NoNewPrivs"] == "1"
    assert int(said["CapEff"], 16) == 0
    if os.geteuid() == 0:
        assert "0" not in said["Uid"].split()


def test_process_that_is_killed_ends_in_an_error_and_no_wait() -> None:
    with decoding() as (decoder, pid):
        os.killpg(pid, signal.SIGKILL)
        with pytest.raises(DatasetError, match="its decoder failed: it was killed by signal 9"):
            decoder(picture("PNG") * 100, MOST)


def test_process_that_does_not_read_ends_in_an_error_and_no_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with decoding() as (decoder, pid):
        os.killpg(pid, signal.SIGSTOP)
        monkeypatch.setattr("judge.confinement.decoding._PATIENCE", 1.0)
        with pytest.raises(DatasetError, match="it ran for more than 1 seconds"):
            decoder(bytes(2**21), MOST)  # more than a pipe holds


def test_judge_decodes_no_image_in_its_own_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for number in range(20):
            content = picture("PNG", seed=1_000 * (name == "cat") + number)
            (tmp_path / name / f"{number:02}.png").write_bytes(content)
    config = RunConfig.from_dict({"dataset": f"imagefolder:{tmp_path}"})
    expected = load_test(config).fingerprint

    def never(*_: object, **__: object) -> bytes:
        raise AssertionError("an image is decoded in the judge's own process")

    monkeypatch.setattr(datasets, "decode_image", never)
    assert load_test(config, judges_reading(JudgeConfig())).fingerprint == expected
    with pytest.raises(AssertionError, match="own process"):
        load_test(config)
