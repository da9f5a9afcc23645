"""Whether a report file is what its proved entries say.

A page is compared with the one that this version makes. Another version makes another page: then
what the page says is not checked, and `proctor report FILE.html --out NEW.html` writes it again.

Trust: the file is hostile.  I/O: reads the file.
"""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ledger.errors import MalformedError
from ledger.files import read_bounded
from proctor.reports.files import MAX_FILE, Source, differences, made_by, open_report
from proctor.reports.pages import page_of

_MOST = 20  # differences that are named


@dataclass(frozen=True)
class Checked:
    """What was found."""

    source: Source
    altered: list[str]
    unchecked: str  # why the page was not compared; empty if it was

    @property
    def ok(self) -> bool:
        """Whether every value, sentence and chart follows from the proved entries."""
        return not self.altered and not self.unchecked


def check_report(path: Path, *, vkey: str) -> Checked:
    """Compare a report with its proved entries; raises VerificationError, StorageError, OSError."""
    try:
        text = read_bounded(path, most=MAX_FILE).decode()
    except UnicodeDecodeError as error:
        raise MalformedError(f"{path} is not text in UTF-8") from error
    source = open_report(text, vkey=vkey)
    if source.made_by != made_by():
        versions = ", ".join(f"{name} {number}" for name, number in source.made_by.items())
        return Checked(
            source,
            [],
            f"the page was made by other versions ({versions}); its proofs hold: `proctor report "
            f"{path} --out NEW.html` writes the page again from them",
        )
    page = page_of(source)
    if page == text:
        return Checked(source, [], "")
    found = list(islice(differences(text, source, page), _MOST + 1))
    if len(found) > _MOST:
        found[_MOST:] = ["and more"]
    return Checked(source, found or ["the file's bytes"], "")
