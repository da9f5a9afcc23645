"""The form of a diff: headers and hunks, and nothing that git would skip.

What git skips (words between hunks, a file that is named a second time) makes a diff say one thing
and do another, to whoever reads it.

A binary part is a file's whole new content, or a delta to it. Its size is known before git unpacks
it.

Source: git-diff(1), "Generating patch text with -p"; git-apply(1); git's patch-delta.c.
Trust: diffs are hostile.
I/O: none.
"""

import re
import zlib
from base64 import b85decode
from collections.abc import Iterator

from judge.gauntlet.errors import DiffError

_HUNK = re.compile(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@(?: .*)?")
_HEADERS = (
    "--- ",
    "+++ ",
    "deleted file mode ",
    "diff --git ",
    "dissimilarity index ",
    "index ",
    "new file mode ",
    "new mode ",
    "old mode ",
    "rename from ",
    "rename to ",
    "similarity index ",
)
_BEGINS = ("diff --git ", "--- ")
MAX_BINARY = 2**20  # bytes of a file that a binary part writes
_BINARY = "GIT binary patch"
_PART = re.compile(r"(literal|delta) (\d{1,10})")
_PACKED = re.compile(r"[A-Za-z](?:[0-9A-Za-z!#-&(-+;-@^-`{-~-]{5})+")


def check_form(text: str) -> None:
    """Raise DiffError for a line that is neither a header nor part of a hunk."""
    old = new = 0  # lines of the hunk that are yet to come
    begun = in_hunk = False
    lines = enumerate(text.removesuffix("\n").split("\n"), start=1)
    for number, line in lines:
        kind = line[:1]
        if (old and kind in ("-", " ", "")) or (new and kind in ("+", " ", "")):
            old -= kind != "+"
            new -= kind != "-"
            if min(old, new) < 0:
                raise DiffError(
                    f"line {number} of the diff exceeds the length that its hunk header states"
                )
        elif kind == "\\" and in_hunk:
            continue  # "\ No newline at end of file"
        elif old or new:
            raise DiffError(f"line {number} of the diff comes before its hunk is complete")
        elif found := _HUNK.fullmatch(line.rstrip("\r")) if begun else None:
            old, new = (1 if each is None else int(each) for each in found.groups())
            in_hunk = True
        elif line == _BINARY and begun and not in_hunk:
            _check_binary(lines)
            begun = False
        elif line.startswith(_HEADERS) and (begun or line.startswith(_BEGINS)):
            begun, in_hunk = True, False
        else:
            raise DiffError(
                f"line {number} of the diff is neither a header nor part of a hunk: git would "
                "ignore it, but a reader would not; make the diff with `git diff`"
            )
    if old or new:
        raise DiffError("the diff ends in the middle of a hunk")


def _check_binary(lines: Iterator[tuple[int, str]]) -> None:
    """Read what follows the header of a binary part: the new content and the old one, packed."""
    for _ in range(2):
        number, line = next(lines, (0, ""))
        found = _PART.fullmatch(line)
        if found is None:
            raise DiffError("a binary part of the diff is not as `git diff --binary` writes it")
        packed = bytearray()
        while (line := next(lines, (0, ""))[1]) != "":
            if not _PACKED.fullmatch(line):
                raise DiffError(f"the binary part at line {number} of the diff is malformed")
            packed += b85decode(line[1:])[: _length(line[0])]
        if _unpacked_size(found[1], int(found[2]), bytes(packed)) > MAX_BINARY:
            raise DiffError(
                f"the binary part at line {number} of the diff writes a file of more than "
                f"{MAX_BINARY} bytes"
            )


def _length(mark: str) -> int:
    """Return how many bytes a packed line holds: A to Z are 1 to 26, a to z are 27 to 52."""
    return ord(mark) - (ord("A") - 1 if mark <= "Z" else ord("a") - 27)


def _unpacked_size(kind: str, said: int, packed: bytes) -> int:
    """Return the size of the file that a part makes; a delta begins with two sizes."""
    if kind == "literal" or said > MAX_BINARY:
        return said
    try:
        delta = zlib.decompressobj().decompress(packed, 64)
        size = place = 0
        for _ in range(2):  # the old file's, and the new one's: seven bits a byte, lowest first
            size = shift = 0
            while True:
                byte = delta[place]
                size |= (byte & 127) << shift
                place, shift = place + 1, shift + 7
                if byte < 128:
                    break
    except (zlib.error, IndexError) as error:
        raise DiffError(f"a binary part of the diff cannot be unpacked: {error}") from error
    return size
