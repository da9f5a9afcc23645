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
_MARKS = {"testcase": "passed", "skipped": "skipped", "failure": "failed", "error": "failed"}


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
    parser, cases = expat.ParserCreate(), dict[str, str]()
    opened: list[str] = []  # the case that is being read, if any

    def start(tag: str, attributes: dict[str, str]) -> None:
        if tag not in _MARKS:
            return
        if tag == "testcase":
            opened[:] = [f"{attributes.get('classname', '')}::{attributes.get('name', '')}"]
            if len(opened[0]) > MAX_NAME or len(cases) == MAX_CASES:
                raise CandidateError(
                    "the report has too many test cases, or a name that is too long"
                )
        if not opened:
            raise CandidateError("the report has an outcome without a test case")
        outcome = _MARKS[tag]
        cases[opened[0]] = max(cases.get(opened[0], outcome), outcome, key=OUTCOMES.index)

    def end(tag: str) -> None:
        if tag == "testcase":
            opened.clear()

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = _refuse
    try:
        parser.Parse(data, True)
    except expat.ExpatError:
        raise CandidateError("the report is not XML") from None
    if not cases:
        raise CandidateError("the report has no test cases")
    return cases


def _refuse(*_: object) -> None:
    raise CandidateError("the report contains XML definitions")
