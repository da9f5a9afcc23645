"""Bisection and salvage from the front door, kills included."""

import json
import os
import shlex
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from bisected_chain import SCORING, WORDS, Chain
from forked import start_forked
from frontdoor import call_here
from gauntlet_lines import SELECTION, SETTINGS, UNSORTED

from aggregates.improvement.bisection import Bisection
from judge.gauntlet.promotion import roll_back
from proctor.sample.repository import FILES

CULPRIT = 3
SLOW_CHECK = "import time\ntime.sleep(0.5)\n"
BETTER = FILES[SETTINGS].replace("length_penalty = 0.0", "length_penalty = 0.05")


class Story(Chain):
    """A comment, the culprit, a change of its neighbourhood, and what is worth having."""

    def change(self, number: int, culprit: int) -> tuple[str, str]:
        return {
            1: (WORDS, FILES[WORDS] + "# one\n"),
            2: (SCORING, FILES[SCORING] + "# two\n"),
            culprit: (SELECTION, UNSORTED),
            4: (SETTINGS, BETTER),
            5: (SELECTION, UNSORTED.replace("ordered[:cap]", "ordered[0:cap]")),
            6: (WORDS, FILES[WORDS] + "# one\n# six\n"),
        }[number]


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return Story(tmp_path_factory.mktemp("story"), checkpoints=7, culprit=CULPRIT)


def told(line: Chain, *arguments: str | Path, code: int = 0) -> Any:
    done = call_here(["line", *arguments, "--repo", line.repo, "--json"], home=line.home.path)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def salvaged(line: Chain, culprit: str, *more: str) -> Any:
    return told(line, "rollback", culprit, "--salvage", *more)["salvaged"]


def refused(line: Chain, *arguments: str | Path) -> str:
    done = call_here(["line", *arguments, "--repo", line.repo], home=line.home.path)
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


def check(line: Chain) -> list[str | Path]:
    return ["bisect", "--command", "{python} {files}/check.py", "--file", line.check]


def test_culprit_is_told_with_its_commit_and_proposal(line: Story) -> None:
    found = told(line, *check(line), code=1)
    assert found["culprit"] == line.ids[CULPRIT]
    assert found["proposals"] == [line.proposals[CULPRIT - 1]]
    shown = call_here(["line", *check(line), "--repo", line.repo], home=line.home.path)
    assert shown.returncode == 1
    assert f"{line.ids[CULPRIT]} is the first bad checkpoint of the 6 searched" in shown.stdout
    assert f"commit {found['commit']}" in shown.stdout
    assert found["believed"] == []
    options = shlex.join(["--repo", str(line.repo)])  # the home is in the environment
    commands = [text.partition(": ")[2] for text in shown.stdout.splitlines()[-2:]]
    assert commands == [
        f"proctor line rollback {line.ids[CULPRIT]} "
        f"--reason 'found by bisection {found['bisection'][:12]}' {options}",
        f"proctor line rollback {line.ids[CULPRIT]} --salvage {options}"
        "  # proposes again what came after it",
    ]


@pytest.mark.slow
def test_search_goes_on_another_time_when_so_many_probes_were_asked_for(line: Story) -> None:
    begun = told(line, *check(line), "--afresh", "--most", "1")
    assert (begun["ended"], len(begun["probes"])) == (False, 1)
    ended = told(line, *check(line), code=1)
    assert ended["bisection"] == begun["bisection"]
    assert ended["culprit"] == line.ids[CULPRIT]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--command", "true", "--task", "late-rows"], "two ways to probe; give one"),
        (["--seconds", "3"], "--file and --seconds are for --command"),
        (["--command", "true", "--error", "0.5"], "--error is below 0.5"),
        (
            ["--command", "true", "--good", "nothing"],
            "none of the line's checkpoints (7) can be meant by 'nothing'",
        ),
        (["--command", "'"], "is not a valid command: No closing quotation"),
        (["--command", "true", "--file", "nowhere"], "nowhere is not a file"),
        (["--task", "unknown"], "task 'unknown' not found in the reference set"),
    ],
)
def test_wrong_usage_is_told(line: Story, arguments: Sequence[str], words: str) -> None:
    assert words in refused(line, "bisect", *arguments).replace("\n", " ")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("{python} {files}/check.py", "names {files}/check.py, which is not given: add --file"),
        (
            "{pithon} check.py",
            "contains the unknown placeholder {pithon}; known are {python}, {files}, {repeat}",
        ),
    ],
)
def test_command_that_names_what_no_probe_has_is_rejected_and_nothing_recorded(
    line: Story, command: str, words: str
) -> None:
    with line.log() as log:
        before = log.recorder.max_notification_id()
    assert words in " ".join(refused(line, "bisect", "--command", command).split())
    with line.log() as log:
        assert log.recorder.max_notification_id() == before


def test_ends_are_to_be_checked_when_the_culprit_rests_on_their_word(line: Story) -> None:
    ends = ["--good", line.ids[CULPRIT - 1], "--bad", line.ids[CULPRIT]]
    command = ["line", *check(line), *ends, "--repo", line.repo]
    shown = call_here(command, home=line.home.path)
    assert shown.returncode == 1
    assert "it was assumed to be bad and not verified" in shown.stdout.replace("\n", " ")
    assert f"next: {shlex.join(['proctor', *map(str, command)])} --check-ends" in shown.stdout
    assert "rollback" not in shown.stdout
    assert told(line, *command[1:-2], code=1)["believed"] == ["good", "bad"]


def test_salvage_is_refused_when_the_culprit_stands(line: Story) -> None:
    said = refused(line, "rollback", line.ids[CULPRIT], "--salvage")
    remedy = f"`proctor line rollback {line.ids[CULPRIT]} --reason TEXT --repo {line.repo}`"
    assert f"is not rolled back; do that first: {remedy}" in said


@pytest.mark.parametrize("name", ["active", "latest"])
def test_salvage_takes_a_name_when_it_is_no_id(line: Story, name: str) -> None:
    assert f"checkpoint {line.ids[-1]} is not rolled back" in refused(
        line, "rollback", name, "--salvage"
    ).replace("\n", " ")


@pytest.mark.slow
def test_search_is_carried_on_when_it_was_killed(tmp_path: Path) -> None:
    line = Chain(tmp_path / "line", checkpoints=9, culprit=6)
    line.check.write_text(SLOW_CHECK + line.check.read_text())
    arguments = ["line", *check(line), "--repo", line.repo, "--json"]
    environment = {**os.environ, "PROCTOR_HOME": str(line.home.path), "PROCTOR_STATE": "off"}
    out, err = tmp_path / "out", tmp_path / "err"
    process = start_forked(arguments, environment=environment, out=out, err=err)
    deadline = time.monotonic() + 120
    while "probe 1:" not in (err.read_text() if err.exists() else ""):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    with line.log() as log:
        before = list(_probes(log))
    assert 1 <= len(before) < 3
    found = told(line, *check(line), code=1)
    assert found["culprit"] == line.ids[6]
    with line.log() as log:
        after = list(_probes(log))
    assert after[: len(before)] == before  # nothing was done twice
    assert len(after) == 3
    folder = line.home.path / "infra" / str(line.id) / "work/bisecting"
    assert not any(each.is_dir() for each in folder.iterdir())


@pytest.fixture(scope="module")
def rolled_back(tmp_path_factory: pytest.TempPathFactory) -> Story:
    line = Story(tmp_path_factory.mktemp("rolled-back"), checkpoints=7, culprit=CULPRIT)
    with line.controller() as controller, controller.locked():
        roll_back(controller.place, line.ids[CULPRIT], "it does not sort")
    return line


@pytest.mark.slow
def test_latest_is_the_newest_when_it_was_rolled_back_and_active_another(
    rolled_back: Story,
) -> None:
    line = rolled_back
    assert salvaged(line, "latest") == []  # nothing came after it
    stands = refused(line, "rollback", "active", "--salvage").replace("\n", " ")
    assert f"checkpoint {line.ids[CULPRIT - 1]} is not rolled back" in stands


@pytest.mark.slow
def test_what_came_after_a_culprit_is_proposed_again_once(rolled_back: Story) -> None:
    line = rolled_back
    first = salvaged(line, line.ids[CULPRIT])
    assert [each["original"] for each in first] == line.proposals[CULPRIT:]
    assert [each["proposal"] is None for each in first] == [False, True, False]
    assert "its diff does not apply" in first[1]["what"]
    assert salvaged(line, line.ids[CULPRIT]) == first
    question = "SELECT original, proposal_id FROM salvages ORDER BY idx"
    done = call_here(["sql", question, "--json"], home=line.home.path)
    assert [tuple(row.values()) for row in json.loads(done.stdout)] == [
        (each["original"], each["proposal"]) for each in first if each["proposal"]
    ]


@pytest.mark.slow
def test_what_came_after_a_culprit_is_judged_again_without_it(rolled_back: Story) -> None:
    line = rolled_back
    first = salvaged(line, line.ids[CULPRIT])
    last = salvaged(line, line.ids[CULPRIT], "--run")
    assert [each["outcome"] for each in last] == ["promoted", None, "rejected"]
    assert last[0]["proposal"] == first[0]["proposal"]
    assert last[2]["proposal"] != first[2]["proposal"]  # the line had moved under it
    assert salvaged(line, line.ids[CULPRIT], "--run") == last
    with line.controller() as controller:
        known = controller.place.proposal(UUID(last[0]["proposal"])).evidence
    assert [each["kind"] for each in known] == ["note", "salvage"]  # what tainted it goes on to
    assert line.text(SETTINGS) == BETTER
    assert line.text(SELECTION) == FILES[SELECTION]


def _probes(log: Any) -> Iterator[tuple[str, str]]:
    for note in log.recorder.select_notifications(1, 1_000, topics=["bisection.probed"]):
        event = log.mapper.to_domain_event(note)
        assert isinstance(event, Bisection.Probed)
        yield event.checkpoint, event.verdict


def test_salvage_leaves_what_was_rolled_back_by_name_when_its_ancestor_was_before(
    rolled_back: Story,
) -> None:
    line = rolled_back
    with line.controller() as controller, controller.locked():
        roll_back(controller.place, line.ids[5], "it is no better by itself")
    left = salvaged(line, line.ids[CULPRIT])
    by_itself = [each["checkpoint"] for each in left if "rolled back itself" in each["what"]]
    assert by_itself == line.ids[5:]
    assert [each["proposal"] for each in left[1:]] == [None, None]
    assert left[0]["checkpoint"] == line.ids[4]
