"""A test run's report in JUnit's form, as pytest writes it: which case ended how.

Trust: the file was written by the process that is being judged. It is read without definitions of
its own, and says no more than what that process wants to have said.
I/O: reads one file.  Units: bytes.
"""

from collections.abc import Mapping
from pathlib import Path
from xml.parsers import expat

from judge.gauntlet.errors import CandidateError
from ledger.errors import StorageError
from ledger.files import read_bounded

OUTCOMES = ("passed", "skipped", "failed")  # of several words on one case the last of these counts
MAX_BYTES = 64 * 2**20
MAX_CASES = 200_000
MAX_NAME = 2_000  # characters
_MARKS = {"skipped": "skipped", "failure": "failed", "error": "failed"}


def read_report(path: Path) -> Mapping[str, str]:
    """Return each case's outcome by `class::name`; raise CandidateError for what is no report."""
    try:
        if path.is_symlink():
            raise CandidateError("the report is a link")
        data = read_bounded(path, most=MAX_BYTES)
    except FileNotFoundError:
        raise CandidateError("the report was not found") from None
    except (OSError, StorageError):
        raise CandidateError("the report cannot be read") from None
    reader = _Reader()
    try:
        reader.parse(data)
    except expat.ExpatError:
        raise CandidateError("the report is not XML") from None
    if not reader.cases:
        raise CandidateError("the report has no test cases")
    return reader.cases


class _Reader:
    def __init__(self) -> None:
        self.cases: dict[str, str] = {}
        self._case: str | None = None
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.StartDoctypeDeclHandler = self._refuse

    def parse(self, data: bytes) -> None:
        self._parser.Parse(data, True)

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "testcase":
            self._case = f"{attributes.get('classname', '')}::{attributes.get('name', '')}"
            if len(self._case) > MAX_NAME or len(self.cases) == MAX_CASES:
                raise CandidateError(
                    "the report has too many test cases, or a name that is too long"
                )
            self._add("passed")
        elif tag in _MARKS:
            if self._case is None:
                raise CandidateError("the report has an outcome without a test case")
            self._add(_MARKS[tag])

    def _add(self, outcome: str) -> None:
        assert self._case is not None
        before = self.cases.get(self._case, outcome)
        self.cases[self._case] = max(before, outcome, key=OUTCOMES.index)

    def _end(self, tag: str) -> None:
        if tag == "testcase":
            self._case = None

    def _refuse(self, *_: object) -> None:
        raise CandidateError("the report contains XML definitions")
