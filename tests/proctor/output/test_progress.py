"""Progress: at a terminal only, after a while only, with the time left; elsewhere nothing."""

import os
import re
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest
import rich.progress  # noqa: F401 - which takes a while, and is imported when it is needed
from forked import COMMAND
from frontdoor import TINY, call
from rich.console import Console
from terminals import at_a_terminal

from ledger.progress import advanced, listening
from proctor.output import progress
from proctor.output.progress import settle, showing, unseen


def _work(*, wanted: bool = True, typing: bool = False) -> None:
    setattr(progress, "error_console", Console(stderr=True))  # noqa: B010 - which asks once whether this is a terminal
    with showing(wanted=wanted), unseen(when=typing):
        for done in range(10):
            advanced("counting", done, 12)
            time.sleep(0.05)
        settle()
        print("the answer")
    sys.exit(0)


def test_progress_with_the_time_left_is_shown_at_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "DELAY", 0.0)
    written, code = at_a_terminal(run=_work)
    assert code == 0
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)
    assert re.search(r"counting \S+ +\d+% 0:00:00 left (0:00:0\d|-:--:--)", plain)
    assert plain.splitlines()[-1].endswith("the answer")  # the lines before were taken away


def test_work_that_is_quick_or_unseen_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert at_a_terminal(run=_work)[0].strip() == "the answer"
    monkeypatch.setattr(progress, "DELAY", 0.0)
    for work in (partial(_work, wanted=False), partial(_work, typing=True)):
        assert at_a_terminal(run=work)[0].strip() == "the answer"


def _done_before_it_shows() -> None:
    threading.excepthook = lambda failed: print("failed:", failed.exc_value)
    with showing(wanted=True):
        for what in ("one", "two", "three"):
            advanced(what, 1, 1)
        time.sleep(0.4)
    print("the answer")
    sys.exit(0)


def test_what_is_done_before_it_would_show_needs_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "DELAY", 0.1)
    written, _ = at_a_terminal(run=_done_before_it_shows)
    assert "failed" not in written
    assert "the answer" in written


def test_only_the_process_that_listens_hears() -> None:
    heard: list[tuple[str, int, int | None]] = []
    with listening(lambda *told: heard.append(told)):
        advanced("work", 1, 2)
        if not (child := os.fork()):
            advanced("work", 2, 2)
            os._exit(len(heard))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
        with listening(None):
            advanced("other work", 1)
    advanced("work", 2, 2)
    assert heard == [("work", 1, 2)]


@pytest.mark.slow
def test_run_shows_progress_at_a_terminal_and_none_in_a_pipe_or_as_json(tmp_path: Path) -> None:
    code = "import proctor.output.progress as p; p.DELAY = 0.0; " + COMMAND

    def run() -> None:
        os.execv(sys.executable, [sys.executable, "-c", code, *sys.argv[1:]])

    where = {"PROCTOR_HOME": str(tmp_path), "PROCTOR_STATE": "off"}
    shown = [at_a_terminal("run", *TINY, *each, run=run, **where) for each in ((), ("--json",))]
    assert [found for _, found in shown] == [0, 0]
    assert ["training" in written for written, _ in shown] == [True, False]
    assert "training" not in call(["run", *TINY], home=tmp_path, code=code).stderr
