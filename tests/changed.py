"""Print the folders of tests whose packages changed lately, one a line.

    python tests/changed.py [BASE]

Lately: since the commit BASE, by default the newest that is six hours older than the last one. A
changed file belongs to the deepest folder of tests that has its path; a file of the whole project,
such as pyproject.toml, belongs to all of them.
"""

import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

_TESTS = Path(__file__).parent
_LATELY = timedelta(hours=6)
_OF_ALL = ("pyproject.toml", "requirements.lock", "tests/conftest.py", "tests/helpers/")
_WITH_TESTS = {"docs", "tests", *(each.name for each in _TESTS.iterdir() if each.is_dir())}


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=_TESTS.parent, check=True, capture_output=True, text=True
    ).stdout


def base() -> str:
    """Return the commit that changes are counted from; the first one of a young repository."""
    last = datetime.fromisoformat(_git("log", "-1", "--format=%cI").strip())
    earlier = _git("rev-list", "-1", f"--before={(last - _LATELY).isoformat()}", "HEAD").strip()
    return earlier or _git("rev-list", "--max-parents=0", "HEAD").split()[-1]


def folders(changed: list[str]) -> list[Path]:
    """Return the folders of tests that belong to changed files, none within another."""
    if any(path.startswith(_OF_ALL) for path in changed):
        return [_TESTS]
    found = set()
    for path in map(Path, changed):
        if path.parts[0] not in _WITH_TESTS:
            continue
        place = _TESTS / path.relative_to("tests" if path.parts[0] == "tests" else ".").parent
        while not place.is_dir():
            place = place.parent
        if place != _TESTS:
            found.add(place)
    return sorted(each for each in found if not found.intersection(each.parents))


if __name__ == "__main__":
    since = sys.argv[1] if len(sys.argv) > 1 else base()
    for folder in folders(_git("diff", "--name-only", since, "HEAD").splitlines()):
        print(folder.relative_to(_TESTS.parent))
