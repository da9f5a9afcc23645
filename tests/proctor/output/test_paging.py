"""Long answers at a terminal go through a pager; elsewhere nothing stands in between."""

from pathlib import Path

import pytest
from frontdoor import call_here
from synthetic import synthetic_run
from terminals import at_a_terminal

from aggregates.registry import REGISTRY
from ledger.application import LedgerApplication
from proctor.home import Home

SED = "sed s/^/through:/"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    with LedgerApplication.open(Home(folder).ledger, REGISTRY) as log:
        synthetic_run(log, epochs=5)
    return folder


def test_log_at_a_terminal_goes_through_the_pager(home: Path) -> None:
    written, code = at_a_terminal("log", "--last", "3", "--home", str(home), PROCTOR_PAGER=SED)
    assert code == 0
    lines = written.splitlines()
    assert len(lines) > 2
    assert all(line.startswith("through:") for line in lines)


@pytest.mark.parametrize("pager", ["", "cat", "no-such-program --fast", "'"])
def test_without_a_pager_that_starts_the_answer_is_printed(home: Path, pager: str) -> None:
    written, code = at_a_terminal("log", "--last", "3", "--home", str(home), PROCTOR_PAGER=pager)
    assert code == 0
    assert "through:" not in written
    assert len(written.splitlines()) > 2


def test_pager_that_is_left_early_ends_the_command_quietly(home: Path) -> None:
    written, code = at_a_terminal("log", "--home", str(home), PROCTOR_PAGER="head -1")
    assert "Traceback" not in written
    assert len(written.splitlines()) == 1
    assert code in (0, 141)  # 0: all of it was in the pipe already


def test_what_is_not_at_a_terminal_has_no_pager(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_PAGER", SED)
    assert "through:" not in call_here(["log", "--last", "3"], home=home).stdout
