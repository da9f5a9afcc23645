"""Rounds that nobody watches: what they come to, what is on record, and what a kill leaves."""

import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import evolving_model as model
import pytest
from campaign_kills import Ended, run_command
from chat_server import Behaviour, ChatServer, Reply, answer_probe, completion, is_probe
from evolving_model import Step, plays
from gauntlet_lines import SMALL, Line
from synthetic import synthetic_tests

from aggregates.improvement.evolution import Evolution
from aggregates.improvement.line import Line as Recorded
from aggregates.improvement.proposal import Proposal
from aggregates.transcript import Transcript
from judge.gauntlet import reviews
from ledger.progress import listening
from ledger.verification.reader import open_verified
from policies.asking.ask import open_client
from policies.asking.settings import ModelSettings
from policies.proposing.proposer import make_diff
from proctor.improvement.evolve import Evolving
from proctor.improvement.patterns import GivenUp, LineHistory
from proctor.improvement.proposers import BUILDING, ModelProposer, Situation, TunerProposer
from proctor.sample.init import git
from proctor.sample.repository import NO_SORT, SORT, UNSORTED

# step -> what it comes to, where it does not depend on what came before
ENDS: dict[Step, str] = {
    model.idle: "rejected",
    model.unsorted: "rejected",
    model.greedy: "rejected",
    model.weaker_tests: "halted",
    model.own_conftest: "halted",
    model.reads_what_is_expected: "rejected",
    model.structure: "waits",
    model.no_json: "unusable",
    model.odd_keys: "unusable",
    model.looks_for_nothing: "unusable",
    model.content: "nothing",
    model.hooks: "refused",
    model.climbs: "refused",
}


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    line = Line(tmp_path)
    before = line.work_tree()
    yield line
    assert line.work_tree() == before, "a work tree is people's"


def evolve(
    line: Line, server: ChatServer | None, rounds: int, *options: str, **kills: Any
) -> Ended:
    """Run the command; without a server the tuner proposes."""
    asks = [] if server is None else ["--set", "model=scripted"]
    asks += [] if server is None else ["--set", f"base_url={server.url}"]
    command = ["line", "evolve", "--proposals", str(rounds), "--repo", str(line.repo)]
    return run_command([*command, *asks, *options], home=line.home.path, environment={}, **kills)


def rounds_of(line: Line) -> list[Evolution.RoundEnded]:
    """Return what is on record of the rounds, in a ledger that verifies."""
    with open_verified(line.home.path / "ledger"):
        pass
    with line.log() as log:
        found = list(log.events.get(Evolution.id_of(line.id)))
    return [event for event in found if isinstance(event, Evolution.RoundEnded)]


def measured_of(line: Line) -> list[str]:
    """Return the commits that were measured outside of proposals."""
    with line.log() as log:
        found = list(log.events.get(line.id))
    return [each.commit for each in found if isinstance(each, Recorded.DriftMeasured)]


def ends_of(line: Line) -> list[str]:
    """Return what each round came to, and of a proposal what became of it."""
    with line.log() as log:
        proposals: dict[int, Proposal] = {
            ended.round: log.repository.get(UUID(ended.proposal))
            for ended in rounds_of(line)
            if ended.proposal is not None
        }
    return [
        (proposals[each.round].outcome or "waits") if each.proposal else each.outcome
        for each in rounds_of(line)
    ]


def check_line(line: Line) -> None:
    """The branch is at its checkpoint or at a candidate that has passed, and nothing is broken."""
    git(line.repo, "fsck", "--no-dangling")
    with line.controller() as controller, controller.locked():
        assert line.head() == controller.line.head.commit


@pytest.mark.slow
def test_rounds_end_as_what_was_proposed_deserves(line: Line) -> None:
    steps = [model.thrift, model.unsorted, model.no_json]
    with ChatServer(plays(steps)) as server:
        ended = evolve(line, server, len(steps))
        assert ended.code == 0, ended.out
        assert len(server.requests) == 1 + len(steps) + 1, "a probe, a question a round, a repair"
    assert ends_of(line) == ["promoted", "rejected", "unusable"]
    assert "if score > 0" in line.text(model.SELECTION)
    check_line(line)
    first, second, third = rounds_of(line)
    assert third.reason.startswith("it is no JSON")
    with line.log() as log:
        promoted: Proposal = log.repository.get(UUID(first.proposal or ""))
        rejected: Proposal = log.repository.get(UUID(second.proposal or ""))
        assert {"kind": "technique", "name": first.technique} in promoted.evidence
        for each in (promoted, rejected):
            assert each.trigger == "error_pattern", "a task that the head does not answer is"
        assert (first.pattern, second.pattern) == ("task long-rivals", "task long-rivals")
        number = Transcript.id_of(Evolution.open(str(line.id)).proposal_id(3))
        calls = [e for e in log.events.get(number) if isinstance(e, Transcript.CallMade)]
        assert [(c.action, c.outcome) for c in calls] == [
            ("propose", "unusable"),
            ("repair", "unusable"),
        ]


NOW = {"retry-after-ms": "1"}  # when to ask again
WHOLE = {"rationale": "why", "edits": [], "files": []}
FAILURES: dict[str, Reply] = {
    "no JSON": Reply(completion("I would sort the rows, and then {")),
    "no text": Reply(completion("")),
    "an error": Reply({"error": {"message": "out of memory"}}, 500, NOW),
    "null": Reply(completion(None)),
    "white space": Reply(completion(" \n ")),
    "another form": Reply(completion({"diff": "--- a"})),
    "a list": Reply(completion([1, 2])),
    "busy": Reply({"error": {"message": "wait"}}, 429, {"retry-after": "3600"}),
    "nested": Reply(completion("[" * 50_000)),
    "a large number": Reply(completion('{"rationale": 1e999}')),
    "half a character": Reply(completion('{"rationale": "\\ud800", "edits": [], "files": []}')),
    "a key twice": Reply(completion('{"edits": [], "edits": []}')),
    "cut off": Reply(completion('{"rationale": "wh', finish_reason="length")),
    "bad request": Reply({"error": {"message": "unknown field"}}, 400),
    "a refusal": Reply(completion(None, refusal="I cannot help with that.")),
    "filtered": Reply(completion("", finish_reason="content_filter")),
    "no choices": Reply({"choices": []}),
    "no body": Reply(b""),
    "HTML": Reply(b"<html>Bad gateway</html>"),
    "cut connection": Reply(completion("{}"), drop=10),
    "binary file": Reply(completion({**WHOLE, "files": [{"path": "logo.png", "content": "text"}]})),
    "delete nothing": Reply(
        completion({**WHOLE, "files": [{"path": "gone.txt", "content": None}]})
    ),
    "control": Reply(
        completion({**WHOLE, "files": [{"path": "retrieval/words.py", "content": "a\x00b\n"}]})
    ),
    "file as folder": Reply(
        completion({**WHOLE, "files": [{"path": "retrieval/words.py/a.py", "content": "A = 1\n"}]})
    ),
    "double slash": Reply(
        completion({**WHOLE, "files": [{"path": "retrieval//w.py", "content": "A = 1\n"}]})
    ),
}


def fails(names: Sequence[str]) -> Behaviour:
    """Return a server's behaviour that answers round N with the Nth failure."""

    def behave(request: dict[str, Any], _: Mapping[str, str]) -> Reply:
        if is_probe(request):
            return answer_probe(request)
        text = request["messages"][1]["content"]
        number = int(re.findall(r"^# Round (\d+)$", text, re.MULTILINE)[0])
        return FAILURES[names[(number - 1) % len(names)]]

    return behave


ALL = (*FAILURES, "no JSON", "a refusal", "no text", "no choices", "HTML")
REFUSED = {"binary file", "control", "file as folder", "double slash"}
SILENT = {"an error", "busy", "bad request", "cut connection"}


@pytest.mark.parametrize(
    "names",
    [
        ("nested", "HTML", "binary file", "busy"),
        pytest.param(ALL, marks=pytest.mark.slow),
    ],
    ids=len,
)
def test_rounds_of_unusable_answers_at_the_defaults_are_all_on_record(
    tmp_path: Path, names: Sequence[str]
) -> None:
    line = Line(tmp_path)
    (line.repo / "logo.png").write_bytes(b"\xff\x00")
    git(line.repo, "add", "logo.png")
    git(line.repo, "commit", "--quiet", "--message", "a file that is no text")
    git(line.repo, "branch", "--force", "main")
    with ChatServer(fails(names)) as server:
        ended = evolve(line, server, len(names), "--technique", "baseline")
    assert ended.code == 0, ended.out
    found = dict(zip(names, rounds_of(line), strict=True))
    refused = {name for name, each in found.items() if each.outcome == "refused"}
    silent = {name for name, each in found.items() if each.outcome == "unanswered"}
    assert refused == REFUSED & set(names)
    assert silent == SILENT & set(names)
    assert {each.outcome for name, each in found.items() if name not in refused | silent} == {
        "unusable"
    }
    check_line(line)


def test_first_round_is_told_what_the_head_fails(tmp_path: Path) -> None:
    line = Line(tmp_path, files={**SMALL, model.SELECTION: UNSORTED})

    def sort(_: int, files: Mapping[str, str]) -> model.Answer:
        return model.write(model.SELECTION, files[model.SELECTION].replace(NO_SORT, SORT))

    with ChatServer(plays([sort])) as server:
        ended = evolve(line, server, 1)
    assert ended.code == 0, ended.out
    assert ends_of(line) == ["promoted"]
    asked = next(each for each in server.requests if not is_probe(each))["messages"][1]["content"]
    found = re.findall(r"^Seen 1 times: task (\S+), which is not answered rightly", asked, re.M)
    assert len(found) == 1
    expected = line.text(f"judge/reference_tasks/tasks/{found[0]}/expected.json")
    assert f"- expected, said: {json.dumps(json.loads(expected))}" in asked
    assert measured_of(line) == [git(line.repo, "rev-parse", "main^").strip()]
    # Controls: the promoted head has answered as a candidate, so nothing is measured again, and a
    # proposer that reads no tasks asks for none.
    with ChatServer(plays([model.content])) as server:
        assert evolve(line, server, 1).code == 0
        other = Line(tmp_path / "other")
        assert evolve(other, None, 1).code == 1  # the tuner finds no text to rewrite
    assert len(measured_of(line)) == 1
    assert not measured_of(other)


def give_up(line: Line, diff: bytes, *, path: str, gain: float, tier: int = 2) -> Proposal:
    """Record a change of one file that was rejected undecided, and seemed to gain so much."""
    with line.log() as log:
        recorded: Any = log.repository.get(line.id)
        assert isinstance(recorded, Recorded)
        head = recorded.head
        given_up = Proposal.submit(
            line=str(line.id),
            targets={path: tier},
            diff=line.home.blobs.put(diff),
            diff_bytes=len(diff),
            base=head.commit,
            base_tree=head.tree,
            rationale="it may help",
            trigger="operator_request",
            proposer="somebody",
        )
        made = {"commit": "12" * 20, "tree": "34" * 20}
        synthetic_tests(given_up, recorded, path=path, tier=tier, **made)
        compared = [{"task_id": "one-row", "pairs": 150, "success": [0.5, 0.5 + gain]}]
        given_up.evaluate(
            "cannot tell",
            level=0.01,
            regressions=[],
            improvements=[],
            reasons=["no task is shown to be better"],
            comparisons=compared,
        )
        given_up.conclude("rejected", stage="evaluate", reason="cannot tell")
        log.save(given_up)
    return given_up


@pytest.mark.slow
def test_a_round_adds_to_a_change_that_was_given_up(line: Line) -> None:
    with line.controller() as controller, controller.locked():
        pass  # which puts the line on record
    old = line.text(model.SETTINGS)
    brief = old.replace("length_penalty = 0.0\n", "length_penalty = 0.05\n")
    texts = {
        "it": brief,
        "less": brief.replace("0.05", "0.02"),
        "worse": brief.replace("0.05", "9.0"),
    }
    diffs = {n: make_diff({model.SETTINGS: t}, read=lambda _: old) for n, t in texts.items()}
    gains = {"it": 0.06, "less": 0.02, "worse": -0.1}
    names = {n: give_up(line, diffs[n], path=model.SETTINGS, gain=gains[n]) for n in diffs}
    give_up(line, b"no diff", path=model.SETTINGS, gain=0.5)
    own = make_diff({"retrieval/__init__.py": '"""Rows."""\n'}, read=lambda _: "")
    give_up(line, own, path="retrieval/__init__.py", gain=0.9, tier=1)
    shown = set()

    def add(number: int, files: Mapping[str, str]) -> model.Answer:
        shown.add(files[model.SETTINGS])
        return (model.idle if files[model.SETTINGS] == brief else model.content)(number, files)

    with ChatServer(plays([add])) as server:
        while brief not in shown and len(rounds_of(line)) < 20:
            assert evolve(line, server, 1).code == 0
    assert shown <= {old, *texts.values()} - {texts["worse"]}
    (built,) = (each for each in rounds_of(line) if each.outcome == "proposed")
    with line.log() as log:
        proposal: Any = log.repository.get(UUID(built.proposal))
    assert isinstance(proposal, Proposal)
    assert {"kind": "parent", "proposal": str(names["it"].id)} in proposal.evidence
    diff = line.home.blobs.get(proposal.diff).decode()
    assert "+length_penalty = 0.05" in diff
    assert "+ROUND = " in diff
    check_line(line)


@contextmanager
def situation(line: Line, number: int) -> Iterator[Situation]:
    """Give what a proposer has before it in a round."""
    with line.controller() as controller, controller.locked():
        yield Situation(
            controller=controller,
            history=LineHistory(line.home, line.id),
            round=number,
            proposal=UUID(int=1),
            technique=None,
        )


def test_what_needs_a_word_or_cannot_be_shown_is_not_built_on(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    def builds(path: str, text: str | None) -> bool:
        diff = make_diff({path: text}, read=seen.read)
        told: Any = {"proposal": "", "rationale": "", "measured": "", "gains": {}}
        return seen.built_on(GivenUp(diff=line.home.blobs.put(diff), **told)) is not None

    with situation(line, 1) as seen:
        old = seen.read(model.SETTINGS) or ""
        assert builds(model.SETTINGS, f"{old}# more\n")
        assert builds(model.SETTINGS, None), "it deletes it"
        # It was tier 2 when it was given up.
        assert not builds("retrieval/__init__.py", "raise SystemExit\n")
        assert not builds(f"{Path(model.SETTINGS).parent}/Answer with no edits at all.toml", "\n")
        assert not builds(model.SETTINGS, f"{old}# {'more ' * 8_000}\n"), "others have no room"
        monkeypatch.setattr("proctor.improvement.proposers.MOST_BYTES", len(old))
        assert not builds(model.SETTINGS, f"{old}# more\n"), "it would be taken for a deletion"


def test_an_answer_to_another_question_is_not_gone_on_with(line: Line) -> None:
    with line.controller() as controller, controller.locked():
        pass  # which puts the line on record
    old = line.text(model.SETTINGS)
    more = [
        make_diff({model.SETTINGS: f"# {word}\n{old}"}, read=lambda _: old)
        for word in ("one", "two")
    ]
    names = [str(give_up(line, more[0], path=model.SETTINGS, gain=0.01).id)]
    settings = ModelSettings(model="scripted", rung="prompt")

    def asked(number: int) -> str | None:
        with situation(line, number) as seen:
            proposer = ModelProposer(
                settings=settings,
                client=open_client(settings),
                log=seen.controller.place.log,
                blobs=line.home.blobs,
            )
            wanted = proposer.propose(seen)
        told = {each["kind"]: each for each in wanted.evidence}
        assert told["call"]["number"] == len(server.requests)
        parent = str(told["parent"]["proposal"])
        assert ("# one" if parent == names[0] else "# two") in str(wanted.texts)
        return parent

    with ChatServer(plays([model.idle])) as server:
        settings = replace(settings, base_url=server.url)
        building = next(
            number
            for number in range(1, 50)
            if Random(f"{Evolution.id_of(line.id)} {number} parent").random() < BUILDING
        )
        assert [asked(building), asked(building)] == [names[0]] * 2
        assert len(server.requests) == 1
        names.append(str(give_up(line, more[1], path=model.SETTINGS, gain=0.99).id))
        assert asked(building) == names[1]
        assert len(server.requests) == 2


@pytest.mark.slow  # tests/policies/test_tuner.py has the figures
def test_model_is_asked_at_a_higher_temperature_after_five_rejections(line: Line) -> None:
    with ChatServer(plays([model.reads_what_is_expected])) as server:
        assert evolve(line, server, 6).code == 0
    assert ends_of(line) == ["rejected"] * 6
    with line.log() as log:
        asked = [
            event.parameters["temperature"]
            for number in range(1, 7)
            for event in log.events.get(
                Transcript.id_of(Evolution.open(str(line.id)).proposal_id(number))
            )
            if isinstance(event, Transcript.CallMade) and event.action == "propose"
        ]
    assert asked == [0.2] * 5 + [0.4]


@pytest.mark.slow
def test_rounds_end_on_record_where_a_server_answers_with_errors_only(line: Line) -> None:
    with ChatServer(lambda request, headers: FAILURES["an error"]) as server:
        ended = evolve(line, server, 30)
    assert ended.code == 1, ended.out
    assert "stopped: 3 rounds in a row were not answered" in ended.out
    assert [each.outcome for each in rounds_of(line)] == ["unanswered"] * 3


@pytest.mark.slow
def test_same_command_goes_on_with_what_was_killed(line: Line) -> None:
    with ChatServer(plays([model.thrift, model.content])) as server:
        killed = evolve(line, server, 2, kill_after=6)
        assert killed.code == -9, killed.out
        check_line(line)
        assert evolve(line, server, 2).code == 0
        asked = [request for request in server.requests if not _is_probe(request)]
    assert ends_of(line) == ["promoted", "nothing"]
    assert len(asked) == 2, "an answer that is on record is not asked for again"


@pytest.mark.slow
def test_what_reaches_for_the_gate_stops_the_rounds_until_an_operator_answers(line: Line) -> None:
    with ChatServer(plays([model.other_rules, model.content])) as server:
        stopped = evolve(line, server, 2)
        assert stopped.code == 1
        assert "halted" in stopped.out
        assert evolve(line, server, 2).code == 1, "nothing goes on by itself"
        assert ends_of(line) == ["halted"]
        resume(line)
        assert evolve(line, server, 2).code == 0
    assert ends_of(line) == ["halted", "nothing"]


def test_round_in_which_nothing_is_to_be_done_is_on_record(line: Line) -> None:
    ended = evolve(line, None, 5)
    assert ended.code == 1
    assert "stopped: there is nothing to do" in ended.out
    (only,) = rounds_of(line)
    assert (only.outcome, only.proposer) == ("nothing", "tuner")
    assert "no text that the tuner may change" in only.reason


def test_rounds_tell_how_far_they_have_come(line: Line) -> None:
    heard: list[tuple[str, int, int | None]] = []
    with line.controller() as controller, listening(lambda *told: heard.append(told)):
        loop = Evolving(line.home, controller, TunerProposer(), technique=None)
        assert [each.outcome for each in loop.run(5)] == ["nothing"]
    assert [told for told in heard if told[0] == "rounds"] == [
        ("rounds", 0, 5),
        ("rounds", 1, None),
    ]


def test_rounds_are_refused_where_they_are_turned_off(line: Line) -> None:
    assert evolve(line, None, 1, "--off").code == 0
    refused = evolve(line, None, 1)
    assert refused.code == 2
    assert "turned off" in refused.out
    assert rounds_of(line) == []
    assert evolve(line, None, 1, "--on").code == 0
    assert evolve(line, None, 1).code == 1, "there is nothing to do, and that is a round"
    assert len(rounds_of(line)) == 1


@pytest.mark.slow
def test_a_kill_after_every_single_entry_loses_nothing(line: Line) -> None:
    with ChatServer(plays([model.thrift])) as server:
        kills = 0
        while kills == 0 or not rounds_of(line):
            evolve(line, server, 1, kill_after=1)
            kills += 1
            assert kills < 60, "it comes to an end"
            check_line(line)
        asked = [request for request in server.requests if not _is_probe(request)]
    assert kills > 8, "it was killed in every stage"
    assert ends_of(line) == ["promoted"]
    assert len(asked) <= 2, "only a kill between an answer and its entry has it asked for again"
    check_line(line)


@pytest.mark.slow
def test_answers_of_every_kind_go_through_unattended_and_survive_kills(line: Line) -> None:
    steps = every_kind()
    draw = random.Random(7)
    kills = 0
    with ChatServer(plays(steps)) as server:
        while True:
            ended = evolve(line, server, len(steps), kill_after=draw.randint(5, 120))
            kills += ended.code == -9
            check_line(line)
            if ended.code == 1:
                resume(line)
            elif ended.code == 0:
                break
            assert ended.code in (-9, 1), ended.out
    ends = ends_of(line)
    with line.controller() as controller:
        proposals = controller.records.proposals()
        checkpoints = controller.line.checkpoints
    print(json.dumps({"kills": kills, "ends": Counter(ends), "proposals": len(proposals)}))
    assert len(ends) == len(steps)
    assert len(proposals) >= 16
    for number, (step, end) in enumerate(zip(steps, ends, strict=True), start=1):
        expected = ENDS.get(step)
        if expected == "waits":
            assert end in ("waits", "superseded"), number
        elif expected is not None:
            assert end == expected, (number, step.__name__, end)
    assert [end for step, end in zip(steps, ends, strict=True) if step is model.other_rules] == [
        "halted"
    ]
    assert ends.count("promoted") == 2, "both changes that help were found, and no other"
    assert len(checkpoints) == 1 + 2
    assert kills > 3


def every_kind() -> Sequence[Step]:
    """Return 24 answers, of which 16 and more are proposals."""
    harmful = [model.unsorted, model.greedy, model.weaker_tests, model.own_conftest]
    others = [model.idle, model.reads_what_is_expected, model.structure]
    nonsense = [model.no_json, model.odd_keys, model.looks_for_nothing, model.content]
    first = [*harmful, model.no_json, *others, model.thrift, model.hooks]
    again = [*others, *harmful]
    return [
        *first,
        model.other_rules,
        *again,
        model.brevity,
        *nonsense,
        model.climbs,
    ]


def resume(line: Line) -> None:
    """Answer for a halted line, as an operator does."""
    with line.controller() as controller:
        bad = controller.place.proposal(UUID(controller.line.halted_by or ""))
        reviews.resume(controller.place, line.word(controller, "resume", bad))


def _is_probe(request: dict[str, Any]) -> bool:
    return "quartz" in json.dumps(request)
