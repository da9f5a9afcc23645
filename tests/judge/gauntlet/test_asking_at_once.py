"""Several processes that ask candidates: all that is recorded is what one process records."""

import time
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path
from random import Random
from threading import Event, Thread
from typing import Any

import pytest
from gauntlet_lines import SELECTION, THRIFTY, UNSORTED, Line, facts, submit

from judge.gauntlet.controller import Controller
from judge.gauntlet.errors import GauntletError
from judge.gauntlet.measurement import measure
from proctor.improvement.home import LineOptions

TASKS = ("late-rows", "long-rivals")
Story = list[tuple[str, dict[str, Any]]]


def judged(path: Path, workers: int, *, names: tuple[str, ...], killing: bool = False) -> Story:
    """Judge a worse change and a better one, measure the line, and return what is on record.

    What is drawn is known. If it is asked for, one of the processes is killed at its work.
    """
    line, over = Line(path, names), Event()

    def kill() -> None:
        while not over.wait(0.05):
            if children := active_children():
                over.wait(0.3)  # in the middle of an answer
                children[0].kill()
                return

    killer = Thread(target=kill if killing else over.wait)
    killer.start()
    try:
        with LineOptions(home=line.home, repo=line.repo).open(workers=workers) as opened:
            known = replace(opened.place, random=Random(7), settings=line.settings)
            controller = Controller(known)
            for change in (UNSORTED, THRIFTY):
                controller.carry_on(submit(controller, line.diff(SELECTION, change)).id)
            measure(controller.place, hidden=None)
            over.set()
            streams = [*controller.records.proposals(), line.id]
            events = controller.place.log.events
            return [
                (type(one).__name__, facts(one)) for each in streams for one in events.get(each)
            ]
    finally:
        over.set()
        killer.join()


def test_several_processes_record_what_one_records(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    alone = judged(tmp_path / "alone", 1, names=TASKS)
    assert [told["outcome"] for name, told in alone if name == "Concluded"] == [
        "rejected",
        "promoted",
    ]
    assert judged(tmp_path / "two", 2, names=TASKS) == alone
    assert "was killed" not in capfd.readouterr().err


@pytest.mark.slow
def test_with_drawn_tasks_and_a_killed_process_too(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    names = (*TASKS, "drawn-rows")
    alone = judged(tmp_path / "alone", 1, names=names)
    assert judged(tmp_path / "three", 3, names=names) == alone
    assert "was killed" not in capfd.readouterr().err
    assert judged(tmp_path / "killed", 2, names=names, killing=True) == alone
    assert "a process that asks was killed" in capfd.readouterr().err


def fail_beside_a_writer(controller: Controller) -> None:
    """Raise an error while somebody writes to the folder that is removed."""
    with controller.place.scratch() as folder:
        for number in range(2_000):
            (folder / str(number)).touch()
        begun = folder.stat().st_mtime_ns

        def write() -> None:
            while folder.stat().st_mtime_ns == begun:
                time.sleep(0.001)
            (folder / "late").touch()  # not among what is being removed

        Thread(target=write).start()
        raise GauntletError("ours")


def test_an_error_is_told_while_another_process_still_writes(tmp_path: Path) -> None:
    line = Line(tmp_path, TASKS[:1])
    with line.controller() as controller:
        with pytest.raises(GauntletError, match="ours"):
            fail_beside_a_writer(controller)
        with controller.locked():
            assert not [*controller.place.folder.glob("scratch/*")]
