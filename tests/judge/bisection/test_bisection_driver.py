"""Searches along a chain of real commits, with real processes for the probes."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from bisected_chain import SCORING, WORDS, Chain
from gauntlet_lines import SELECTION

from aggregates.improvement.bisection import Bisection
from aggregates.improvement.line import Checkpoint
from judge.bisection import probes
from judge.bisection.driver import (
    Question,
    chain,
    chosen_before,
    go_on,
    open_search,
    working,
)
from judge.bisection.probes import Command, Tasks, command_oracle, probe, tasks_oracle, with_repeats
from judge.bisection.reports import summary
from judge.errors import BisectionError
from judge.gauntlet.tasks.benchmark import TaskResult
from judge.gauntlet.workplace import Workplace

CHECKPOINTS, CULPRIT = 9, 6
CHECK = "{python} {files}/check.py"
UNTESTABLE = f"""
import sys
from pathlib import Path
text = Path("{WORDS}").read_text() + Path("{SCORING}").read_text()
bad = "key=" not in Path("{SELECTION}").read_text()
sys.exit(125 if "# 5" in text and "# 7" not in text else bad)
"""
NOISY = f"""
import sys, zlib
from pathlib import Path
text = Path("{WORDS}").read_text() + Path("{SCORING}").read_text()
bad = "key=" not in Path("{SELECTION}").read_text()
numbers = [line for line in text.splitlines() if line[:2] == "# " and line[2:].isdigit()]
wrong = zlib.crc32(f"{{numbers}} {{bad}} {{sys.argv[1]}}".encode()) % 5 == 0
sys.exit(bad != wrong)
"""


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Chain:
    return Chain(tmp_path_factory.mktemp("chain"), checkpoints=CHECKPOINTS, culprit=CULPRIT)


@pytest.fixture
def place(line: Chain) -> Iterator[Workplace]:
    with line.controller() as controller:
        yield controller.place


def script(place: Workplace, tmp_path: Path, text: str, more: str = "") -> Command:
    file = tmp_path / "script.py"
    file.write_text(text)
    command = f"{{python}} {{files}}/script.py {more}"
    return command_oracle(place, command, commit=place.line().head.commit, files=[file])


def searched(place: Workplace, question: Question, **options: bool) -> Bisection:
    with working(place) as folder:
        return go_on(place, open_search(place, question, **options), folder=folder)


def check(place: Workplace, line: Chain, **options: object) -> Question:
    """Ask whether the best document is chosen."""
    commit = place.line().head.commit
    oracle = command_oracle(place, CHECK, commit=commit, files=[line.check])
    ends = {"good": line.ids[0], "bad": line.ids[-1]}
    return Question(oracle=oracle, **{**ends, **options})  # type: ignore[arg-type]


def evidence(place: Workplace, found: Bisection) -> list[dict[str, object]]:
    events = place.log.events.get(found.id)
    return [dict(event.evidence) for event in events if isinstance(event, Bisection.Probed)]


def test_command_finds_the_culprit_in_three_probes_of_eight(place: Workplace, line: Chain) -> None:
    found = searched(place, check(place, line))
    assert found.culprit == line.ids[CULPRIT]
    assert len(found.probes) == 3
    assert {each["status"] for each in evidence(place, found)} == {"exited"}
    assert all("no network" in each["isolation"] for each in evidence(place, found))  # type: ignore[operator]


def test_same_question_is_one_search_when_it_is_asked_again(place: Workplace, line: Chain) -> None:
    first = searched(place, check(place, line))
    again = searched(place, check(place, line))
    assert (again.id, again.version) == (first.id, first.version)


def test_probes_of_another_search_count_when_the_oracle_is_the_same(
    place: Workplace, line: Chain
) -> None:
    whole = searched(place, check(place, line))
    part = searched(place, check(place, line, ends_believed=False))
    assert part.culprit == line.ids[CULPRIT]
    known = {checkpoint for checkpoint, _ in whole.probes}
    for (checkpoint, _), told in zip(part.probes, evidence(place, part), strict=True):
        assert ("from" in told) == (checkpoint in known)


def test_nothing_known_is_believed_when_it_is_asked_afresh(place: Workplace, line: Chain) -> None:
    first = searched(place, check(place, line))
    again = searched(place, check(place, line), afresh=True)
    assert again.id != first.id
    assert again.probes == first.probes
    assert not any("from" in told for told in evidence(place, again))
    assert searched(place, check(place, line)).id == again.id  # the latest is what there is


def commits(place: Workplace, *checkpoints: str) -> list[str]:
    return [place.line().checkpoints[each].commit for each in checkpoints]


def test_named_task_finds_the_culprit(place: Workplace, line: Chain, tmp_path: Path) -> None:
    ends = line.ids[CULPRIT - 1], line.ids[CULPRIT + 1]
    good, bad = commits(place, *ends)
    oracle = tasks_oracle(place, good=good, bad=bad, folder=tmp_path, tasks=["late-rows"])
    found = searched(place, Question(good=ends[0], bad=ends[1], oracle=oracle))
    assert found.culprit == line.ids[CULPRIT]
    assert "late-rows: " in str(evidence(place, found)[0]["reason"])


@pytest.fixture
def late_rows(place: Workplace) -> Tasks:
    commit = place.line().head.commit
    sha256 = place.reference_set(commit).sha256
    return Tasks(tasks=("late-rows",), commit=commit, reference_set=sha256, measured=False)


def answering(monkeypatch: pytest.MonkeyPatch, successes: Sequence[bool]) -> list[int]:
    """Have tasks answered so, one after the other; return where the repeats are counted."""
    asked: list[int] = []

    def answer(*_: object, repeat: int, **__: object) -> TaskResult:
        asked.append(repeat)
        return TaskResult(
            task_id="late-rows",
            arm="candidate",
            repeat=repeat,
            seed=0,
            success=successes[(len(asked) - 1) % len(successes)],
            validation_failures=0,
            metrics={},
            problem=None,
            isolation=(),
        )

    monkeypatch.setattr(probes, "run_task", answer)
    return asked


@pytest.mark.parametrize(("success", "verdict"), [(True, "good"), (False, "bad")])
def test_deterministic_task_is_asked_as_often_as_the_gate_asks_it(
    place: Workplace,
    late_rows: Tasks,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    success: bool,
    verdict: str,
) -> None:
    times = place.settings.confirmed
    asked = answering(monkeypatch, [success] * times)
    oracle = with_repeats(place, late_rows, error=0.0)
    head = place.line().head
    assert probe(place, oracle, head, repeat=1, folder=tmp_path).verdict == verdict
    assert asked == list(range(times, 2 * times))
    asked.clear()
    once = with_repeats(place, oracle, error=0.2)  # each answer is a verdict of its own
    assert probe(place, once, head, repeat=1, folder=tmp_path).verdict == verdict
    assert asked == [1]
    assert once == late_rows  # a search that an earlier version recorded


@pytest.mark.parametrize("first", [True, False])
def test_task_whose_answers_differ_is_rejected_when_verdicts_are_called_sure(
    place: Workplace,
    late_rows: Tasks,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    first: bool,
) -> None:
    times = place.settings.confirmed
    assert times >= 2
    answering(monkeypatch, [first, *[not first] * (times - 1)])
    failed = times - 1 if first else 1
    oracle = with_repeats(place, late_rows, error=0.0)
    words = f"'late-rows' is declared deterministic, but at .* {failed} of {times} .*: add --error"
    with pytest.raises(BisectionError, match=words):
        probe(place, oracle, place.line().head, repeat=0, folder=tmp_path)


@pytest.mark.slow
def test_tasks_that_got_worse_are_the_oracle_when_none_is_named(
    place: Workplace, line: Chain, tmp_path: Path
) -> None:
    good, bad = commits(place, line.ids[0], line.ids[-1])
    oracle = tasks_oracle(place, good=good, bad=bad, folder=tmp_path)
    assert oracle.tasks == ("late-rows",)
    first, last = line.ids[0], line.ids[-1]
    assert chosen_before(place, good=first, bad=last) is None
    open_search(place, Question(oracle=oracle, good=first, bad=last))
    assert chosen_before(place, good=first, bad=last) == oracle
    with pytest.raises(
        BisectionError, match=r"has no deterministic task that .* always answers and .* never does"
    ):
        tasks_oracle(place, good=good, bad=good, folder=tmp_path)


def test_culprit_is_one_of_three_when_it_and_the_one_before_cannot_be_tested(
    place: Workplace, line: Chain, tmp_path: Path
) -> None:
    oracle = script(place, tmp_path, UNTESTABLE)
    found = searched(place, Question(good=line.ids[0], bad=line.ids[-1], oracle=oracle))
    told = summary(found)
    assert found.culprit is None
    assert told["candidates"] == line.ids[CULPRIT - 1 : CULPRIT + 2]
    assert told["reason"].endswith("cannot be tested")


@pytest.mark.slow
def test_culprit_is_among_few_when_one_verdict_in_five_is_wrong(
    place: Workplace, line: Chain, tmp_path: Path
) -> None:
    oracle = script(place, tmp_path, NOISY, "{repeat}")
    question = Question(good=line.ids[0], bad=line.ids[-1], oracle=oracle, error=0.2)
    found = searched(place, question)
    # As docs/studies/gate.md says: one suspect or few, and the culprit among them.
    candidates = summary(found)["candidates"]
    assert line.ids[CULPRIT] in candidates
    assert len(candidates) <= 4
    told = zip(found.probes, evidence(place, found), strict=True)
    asked = [(checkpoint, each["repeat"]) for (checkpoint, _), each in told]
    assert len(set(asked)) == len(asked)  # each in its own way
    assert summary(found)["posterior"] >= 0.95


def test_good_one_is_told_of_when_it_is_not_good(place: Workplace, line: Chain) -> None:
    question = check(place, line, good=line.ids[CULPRIT], ends_believed=False)
    found = searched(place, question)
    assert (found.culprit, summary(found)["candidates"]) == (None, [line.ids[CULPRIT]])
    assert "is already bad" in summary(found)["reason"]


def test_bad_one_is_told_of_when_none_is_bad(place: Workplace, line: Chain) -> None:
    question = check(place, line, bad=line.ids[CULPRIT - 1], ends_believed=False)
    found = searched(place, question)
    assert summary(found)["reason"] == f"none of the {CULPRIT - 1} suspects is bad"


def test_command_that_does_not_start_is_rejected_and_nothing_recorded(
    place: Workplace, line: Chain
) -> None:
    oracle = command_oracle(place, "no-such-program", commit=place.line().head.commit)
    question = Question(good=line.ids[0], bad=line.ids[-1], oracle=oracle)
    with pytest.raises(
        BisectionError, match="status 127, which means that it could not be started"
    ):
        searched(place, question)
    assert open_search(place, question).probes == []


def test_checkpoint_is_skipped_when_its_commit_is_gone(
    place: Workplace, line: Chain, tmp_path: Path
) -> None:
    there = place.line().checkpoints[line.ids[1]]
    gone: Checkpoint = replace(there, commit="ab" * 20)
    oracle = check(place, line).oracle
    assert probe(place, oracle, gone, repeat=0, folder=tmp_path).verdict == "skip"
    assert probe(place, oracle, there, repeat=0, folder=tmp_path).verdict == "good"


def test_second_search_waits_when_one_goes_on(place: Workplace) -> None:
    with (
        working(place),
        pytest.raises(BisectionError, match="another process is already searching this line"),
        working(place),
    ):
        pass


def test_chain_is_refused_when_it_leads_the_other_way(place: Workplace, line: Chain) -> None:
    recorded = place.line()
    assert chain(recorded, good=line.ids[2], bad=line.ids[4]) == tuple(line.ids[3:5])
    for good, bad in ((4, 2), (3, 3)):
        with pytest.raises(BisectionError, match="does not descend from"):
            chain(recorded, good=line.ids[good], bad=line.ids[bad])


@pytest.mark.slow
def test_planted_culprit_is_found_in_five_probes_among_thirty_two_checkpoints(
    tmp_path: Path,
) -> None:
    line = Chain(tmp_path, checkpoints=32, culprit=19)
    with line.controller() as controller:
        found = searched(controller.place, check(controller.place, line))
    assert found.culprit == line.ids[19]
    assert len(found.probes) == 5
