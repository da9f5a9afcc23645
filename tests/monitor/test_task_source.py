"""The source of a task, as the judge's own process reads it: bounded, whatever it contains."""

import pytest

from monitor.errors import TaskError
from monitor.tasks import read_task

HONEST = """# {about}
METRIC = ("accuracy", "higher")
PARAMS = {{"lr": 0.1, "epochs": 1, "batch_size": 2, "{name}": 1}}
{name} = 1


def model(params): ...
def data(params): ...
def test(params): ...
def loss(output, target): ...
def metrics(output, target): ...
def optimizer(model, params): ...
"""
GRAVE, BELOW = "\u0300", "\u0316"  # of two classes: in a row, they are sorted


def source(*, about: str = "a task", name: str = "beta") -> bytes:
    return HONEST.format(about=about, name=name).encode()


@pytest.mark.parametrize(
    "name",
    ["x" + 20_000 * (GRAVE + BELOW), "x" + 99 * GRAVE + BELOW, "x" + 50 * "\u0344\uff9e"],
    ids=["many", "just too many", "that others are made of"],
)
def test_letter_with_too_many_marks_is_refused_before_it_is_parsed(name: str) -> None:
    with pytest.raises(TaskError, match=r"line 3: a letter must have fewer than 100 combining"):
        read_task(source(name=name), "task.py")


@pytest.mark.parametrize("codec", ["utf-7", "idna", "punycode", "unicode_escape", "zlib", "x.y"])
def test_declared_encoding_is_not_used(codec: str) -> None:
    """A codec is code that a file would choose; 100 kB of UTF-7 cost a minute."""
    text = source(about=f"coding: {codec}").replace(b'"epochs"', b'"+AOk-": 1, "epochs"')
    assert "+AOk-" in read_task(text, "task.py").params


@pytest.mark.parametrize(
    ("data", "line"),
    [
        ("# coding: latin-1\nx = 'Gr\u00f6\u00dfe'\n".encode("latin-1"), 2),
        (b"\xff\xfe" + "x = 1\n".encode("utf-16-le"), 1),
        (b"x = '\xed\xa0\x80'\n", 1),
    ],
    ids=["latin-1", "utf-16", "surrogate"],
)
def test_file_that_is_not_utf_8_is_refused(data: bytes, line: int) -> None:
    with pytest.raises(TaskError, match=rf"line {line}: this is not UTF-8; save the file as UTF-8"):
        read_task(data, "task.py")


@pytest.mark.parametrize(
    "name", ["\u03b2", "e\u0301tat", "\u0e17\u0e35\u0e48", "d\u0065\u0323\u0302m"]
)
def test_honest_names_of_any_script_are_read(name: str) -> None:
    text = b"\xef\xbb\xbf# -*- coding: utf-8 -*-\r\n" + source(about="Z" + 99 * GRAVE, name=name)
    assert name in read_task(text, "task.py").params
    assert read_task(text.replace(b"\r\n", b"\n"), "task.py").sha256 != ""
