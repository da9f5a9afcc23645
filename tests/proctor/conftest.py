"""Homes that tests start from."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from forked import workers_forked
from frontdoor import TINY, call


@pytest.fixture(scope="session", autouse=True)
def _forked() -> Iterator[None]:
    with workers_forked():
        yield


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with one judged run; tests that change it take a copy."""
    home = tmp_path_factory.mktemp("trained") / "home"
    start = ["lr=1e-5", "warm_up_epochs=0", "epochs=7"]  # R1 fires in epochs 2 and 5
    done = call(["run", *TINY[:-2], "threads=1", *start], home=home)
    assert done.returncode == 0, done.stderr
    done = call(["judge"], home=home)
    assert done.returncode == 0, done.stdout + done.stderr
    return home
