"""Older faults that a later rejection reveals: found, and taken back as the tiers allow."""

import json
from pathlib import Path
from typing import Any

import pytest
from bisected_chain import Chain
from chat_server import ChatServer
from evolving_model import idle, plays
from frontdoor import call_here
from gauntlet_lines import SELECTION, Line, judged

from aggregates.improvement.bisection import Bisection
from judge.bisection.latent import ALARM, look
from judge.gauntlet.controller import Controller
from judge.gauntlet.tasks.reference_set import write_tasks
from proctor.sample.init import git
from proctor.sample.repository import FILES
from proctor.sample.tasks import SET, SHAPES, make_tasks

pytestmark = pytest.mark.slow
TASK, CULPRIT = "late-rows", 2


def rejected(line: Line, controller: Controller) -> str:
    """Have a change rejected that makes nothing better, and nothing worse."""
    proposal = judged(controller, line.diff(SELECTION, lambda text: f"{text}\nROUND = 1\n"))
    assert proposal.outcome == "rejected"
    return str(proposal.id)


def test_checkpoint_of_an_older_fault_is_found_and_rolled_back_when_a_rejection_reveals_it(
    tmp_path: Path,
) -> None:
    line = Chain(tmp_path, checkpoints=6, culprit=CULPRIT)
    with line.controller() as controller, controller.locked():
        place = controller.place
        assert look(place, controller.records) is None, "nothing is known of it"
        proposal = rejected(line, controller)
        begun = look(place, controller.records, most=1)
        assert begun is not None
        assert not begun.search.ended
        found = look(place, controller.records)
        assert found is not None
        assert (found.search.id, found.search.culprit) == (begun.search.id, line.ids[CULPRIT])
        assert found.revealed.by == f"proposal {proposal}"
        assert found.revealed.tasks == (TASK,)
        assert found.rollback is not None
        assert found.rollback.to == controller.line.active == line.ids[CULPRIT - 1]
        reason = controller.line.rollbacks[line.ids[CULPRIT]]
        assert all(word in reason for word in (ALARM, TASK, str(found.search.id), proposal))
        recorded: Bisection = place.log.repository.get(found.search.id)
        assert recorded.oracle["revealed_by"] == f"proposal {proposal}"
        assert line.text(SELECTION) == FILES[SELECTION]
        assert look(place, controller.records) is None, "it is mended"


def test_rejection_that_reveals_nothing_starts_nothing(tmp_path: Path) -> None:
    line = Chain(tmp_path, checkpoints=4, culprit=99)
    with line.controller() as controller, controller.locked():
        rejected(line, controller)  # its base fails a task, which no ancestor answers
        before = controller.place.log.recorder.max_notification_id()
        assert look(controller.place, controller.records) is None
        assert controller.place.log.recorder.max_notification_id() == before
    done = call_here(["line", "bisect", "--revealed", "--repo", line.repo], home=line.home.path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "no rejection and no alarm reveals an older fault" in done.stdout


def told(line: Line, *command: str | Path, code: int) -> Any:
    done = call_here([*command, "--repo", line.repo, "--json"], home=line.home.path)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_alarm_proposes_the_rollback_when_people_made_a_checkpoint_that_goes_with_it(
    tmp_path: Path,
) -> None:
    line = Chain(tmp_path, checkpoints=4, culprit=CULPRIT, names=("long-rivals",))
    git(line.repo, "switch", "--quiet", "main")
    new = [shape for shape in SHAPES if shape.name == TASK]
    write_tasks(line.repo / SET, make_tasks(seed=0, shapes=new), add=True)
    git(line.repo, "add", "--all")
    git(line.repo, "commit", "--quiet", "--message", "A task that nobody was asked before")
    git(line.repo, "switch", "--quiet", "work")
    with line.controller() as controller:
        controller.adopt(line.adoption(controller))
        rejected(line, controller)
    found = told(line, "line", "bisect", "--revealed", code=1)
    assert (found["culprit"], found["tasks"]) == (line.ids[CULPRIT], [TASK])
    assert found["rollback"] is None
    assert "people made checkpoint" in found["needs_operator"]
    assert told(line, "line", "bisect", "--revealed", code=1)["bisection"] == found["bisection"]
    with line.controller() as controller:
        (alarm,) = controller.line.open_alarms.values()
        assert alarm.kind == ALARM
        assert line.ids[CULPRIT] in alarm.detail
        assert not controller.line.rollbacks
    command = ("line", "rollback", found["culprit"], "--reason", "it does not sort")
    assert told(line, *command, code=0)["to"] == line.ids[CULPRIT - 1]
    assert line.text(SELECTION) == FILES[SELECTION]


def test_rounds_at_their_defaults_take_an_older_fault_back(tmp_path: Path) -> None:
    line = Chain(tmp_path, checkpoints=4, culprit=CULPRIT)
    with ChatServer(plays([idle])) as server:
        settings = ["--set", "model=scripted", "--set", f"base_url={server.url}"]
        done = told(line, "line", "evolve", *settings, code=0)
    assert [each["outcome"] for each in done["ended"]] == ["rejected"]
    (fault,) = done["faults"]
    assert fault["culprit"] == line.ids[CULPRIT]
    assert fault["rollback"]["to"] == line.ids[CULPRIT - 1]
    assert line.text(SELECTION) == FILES[SELECTION]
