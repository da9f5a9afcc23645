"""The two locks, and the versions that the tests of the extras pin, agree with each other."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
HELD_BACK = {"fsspec"}  # by inspect_ai, which is pinned beside the others
EXTRAS = {"gym", "lightning", "mlflow", "ray", "s3", "tensorboard", "transformers"}


def versions(path: str) -> dict[str, set[str]]:
    """Return what a file pins: each package, with its version for each kind of machine."""
    found: dict[str, set[str]] = {}
    for line in (ROOT / path).read_text("utf-8").splitlines():
        if pinned := re.match(r"([\w.-]+)==(\S+)", line):
            found.setdefault(normal(pinned[1]), set()).add(pinned[2])
    return found


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_locks_have_one_version_of_each_package() -> None:
    setup, extras = versions("requirements.lock"), versions("requirements-extras.lock")
    assert {name: extras[name] for name in extras.keys() & setup.keys()} == {
        name: setup[name] for name in extras.keys() & setup.keys()
    }
    tested = versions("tests/integrations/requirements.txt")
    both = (tested.keys() & extras.keys()) - HELD_BACK
    assert {name: tested[name] for name in both} == {name: extras[name] for name in both}


def test_extras_that_nobody_needs_are_in_the_lock_of_the_extras_alone() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    setup, extras = versions("requirements.lock"), versions("requirements-extras.lock")
    for extra in EXTRAS:
        for wanted in declared["project"]["optional-dependencies"][extra]:
            name = normal(re.match(r"[\w.-]+", wanted)[0])  # type: ignore[index]  # has a name
            if name != "proctor":
                assert name in extras
                assert name not in setup
