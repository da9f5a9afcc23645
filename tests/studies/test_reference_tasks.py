"""The reference set: what it holds, that it can be solved, and that its scorers are not fooled.

Nothing here asks the policies of the tree for their answers: how good they are is for the gate to
say, and a better one must not fail here.
"""

import ast
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import studies.reference.seeds
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from studies.reference.going_back import undoing_answers
from studies.reference.scorers import SCORERS
from studies.reference.seeds import ANEW, DRAWN, PLAN, make, make_siblings, write_set

from aggregates.decisions import Decision, Observation
from aggregates.playbook import DEFER, NO_ACTION
from aggregates.rulebook import RULES
from judge.gauntlet.errors import CandidateError, GauntletError, TaskError
from judge.gauntlet.tasks.reference_set import (
    Task,
    gaps,
    load,
    message_of,
    write_snapshot,
    write_tasks,
)
from judge.gauntlet.tasks.scoring import Score, drawn, told_seed
from judge.reference.observations import from_plain, to_plain
from judge.reference.oracle import expected_answers
from judge.reference.rules import REFERENCE_RULES

ROOT = Path(studies.reference.seeds.__file__).parents[3]
SET = ROOT / "docs/studies/reference_tasks"
LOADED = load(SET, scorers=SCORERS)
WHOLE = tuple(  # without those from history: tests/studies/test_history_tasks.py
    task for task in LOADED.tasks if task.entry.source.startswith("made: ")
)
TASKS = {task.task_id: task for task in WHOLE if not task.stochastic}
STOCHASTIC = {task.task_id: task for task in WHOLE if task.stochastic}
RESCUES = [task for task in TASKS.values() if task.scorer == "rescue"]
Answer = Callable[[Task, Mapping[str, Any]], Any]


def score(task: Task, answer: Answer) -> Score:
    """Score what `answer` says, as it comes through JSON."""
    return SCORERS[task.scorer](
        task, lambda message: json.loads(json.dumps(answer(task, json.loads(json.dumps(message)))))
    )


def wait(rule: str, first: str | None = None) -> dict[str, Any]:
    params = {"deferred_to": first} if first else {}
    return Decision(NO_ACTION, (rule,), DEFER, params, f"{rule} waits.").to_dict()


def by_the_book(
    seen: Observation, book: Callable[[Observation], Any] = expected_answers
) -> list[dict[str, Any]]:
    """Answer as the playbook's document says."""
    said = []
    for expected in book(seen):
        rule, acts = expected["rule"], expected["acts"]
        if not acts:
            said.append(wait(rule, expected["for"]))
            continue
        direction, params = acts[-1]["direction"], {}  # where there is a choice, the other one
        for name, bounds in acts[-1]["params"].items():
            between = len(bounds) == 2 and all(isinstance(bound, float) for bound in bounds)
            params[name] = sum(bounds) / 2 if between else bounds[0]
        structural = (
            direction in ("add_block", "widen", "add_norm", "add_residual") or "to" in params
        )
        kind = "architecture_change" if structural else "hyperparameter_change"
        found = seen.evaluations[rule]
        words = f"{rule} is at {found.value if found.ema is None else found.ema}."
        said.append(Decision(kind, (rule,), direction, params, words).to_dict())
    return said


def decided(task: Task, message: Mapping[str, Any]) -> Any:
    if "observation" in message:
        return by_the_book(from_plain(message["observation"]))
    return [by_the_book(from_plain(plain)) for plain in json.loads(task.files["observations.json"])]


def deferred(task: Task, message: Mapping[str, Any]) -> Any:
    return [wait(rule) for rule in message["observation"]["due"]]


def test_reference_set_has_tasks_of_every_difficulty_and_part() -> None:
    difficulties = Counter(task.entry.difficulty for task in TASKS.values())
    assert len(TASKS) >= 24
    assert min(difficulties[each] for each in ("easy", "medium", "hard")) >= 8
    assert {name for name, _ in gaps(TASKS.values())} >= {
        "answers",
        "boundaries",
        "cap",
        "decisions",
        "ensemble",
        "evidence",
        "false_alarms",
        "hindsight",
        "ledgers",
        "limits",
        "offers",
        "precedence",
        "prompt",
        "rescue",
        "training",
        *(rule.lower() for rule in RULES),
    }
    assert len(STOCHASTIC) >= len(WHOLE) / 3


def test_stochastic_tasks_are_other_problems_for_each_seed_and_the_same_for_one() -> None:
    for task in STOCHASTIC.values():
        one, same, other = (drawn(task.with_seed(seed), SCORERS) for seed in (1, 1, 2))
        assert one.sha256 == same.sha256, task.task_id
        assert (one.files, one.expected) != (other.files, other.expected), task.task_id
        assert one.scorer not in ("drawn", task.scorer)


def test_stochastic_tasks_tell_the_candidate_another_seed_than_they_are_drawn_from() -> None:
    for task in STOCHASTIC.values():
        one = drawn(task.with_seed(12_345), SCORERS)
        assert one.seed == told_seed(12_345) != 12_345
        assert "12345" not in json.dumps(message_of(one, Path("input")))


def test_task_that_is_asked_without_being_drawn_is_rejected() -> None:
    with pytest.raises(GauntletError, match="was asked without being drawn"):
        score(STOCHASTIC["drawn-votes-medium"], decided)


@pytest.mark.parametrize(
    "name",
    [
        "drawn-remedies-easy",
        "drawn-precedence-hard",
        "drawn-changed-hard",
        "drawn-fresh-hard",
        "drawn-norms-hard",
        "drawn-past-hard",
        "drawn-watched-medium",
    ],
)
def test_drawn_decisions_by_the_book_succeed_and_waiting_does_not(name: str) -> None:
    def idle(task: Task, _: Mapping[str, Any]) -> Any:
        shown = json.loads(task.files["observations.json"])
        return [[wait(rule) for rule in plain["due"]] for plain in shown]

    for seed in range(5):
        task = drawn(STOCHASTIC[name].with_seed(seed), SCORERS)
        assert score(task, decided).success
        assert not score(task, idle).success


def test_drawn_damage_is_undone_by_the_book_and_not_by_the_usual_remedies() -> None:
    def undone(task: Task, _: Mapping[str, Any]) -> Any:
        shown = map(from_plain, json.loads(task.files["observations.json"]))
        return [by_the_book(seen, undoing_answers) for seen in shown]

    for seed in range(5):
        task = drawn(STOCHASTIC["drawn-going-back-hard"].with_seed(seed), SCORERS)
        assert score(task, undone).success
        usual = score(task, decided)
        assert not usual.success
        assert not usual.validation_failures


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["drawn-rescue-lag-hard", "drawn-rescue-two-faults-hard"])
def test_drawn_rescue_succeeds_by_the_book_and_not_by_waiting(name: str) -> None:
    for seed in range(5):
        task = drawn(STOCHASTIC[name].with_seed(seed), SCORERS)
        assert score(task, decided).success
        assert not score(task, deferred).success


def test_reference_set_is_what_its_makers_make(tmp_path: Path) -> None:
    write_set(tmp_path, PLAN, drawn=DRAWN)
    listed, made = (
        json.loads((folder / "manifest.json").read_bytes())["tasks"] for folder in (SET, tmp_path)
    )
    assert [entry for entry in listed if entry["source"].startswith("made: ")] == made
    anew = {one.task_id for one in PLAN if one.kind in ANEW}
    written = load(tmp_path, scorers=SCORERS)
    known = {**TASKS, **STOCHASTIC}
    for task_id in known.keys() - anew:
        task, again = known[task_id], written.task(task_id)
        assert again.sha256 == task.sha256, f"{task_id} has to be written anew"


def test_tasks_that_no_maker_made_stay_when_the_set_is_written_anew(tmp_path: Path) -> None:
    others = [task for task in LOADED.tasks if not task.entry.source.startswith("made: ")][:2]
    write_tasks(tmp_path, others)
    write_set(tmp_path, [one for one in PLAN if one.task_id == "silent-easy"])
    written = load(tmp_path, scorers=SCORERS)
    assert {task.task_id for task in written.tasks} == {
        "silent-easy",
        *(task.task_id for task in others),
    }


@pytest.fixture(scope="module")
def siblings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("siblings")
    make_siblings(folder, b"one secret of many", 1)
    return folder


def test_rules_of_the_reference_set_keep_their_hash() -> None:
    assert {profile: rules.hash for profile, rules in REFERENCE_RULES.items()} == {
        "calibrated": "2e477e42f588ed4685b552b935c994ff156147f4824c3ae18e72e332a07901b0",
        "document": "8bc5e2f324660d8b7b1720a32c48a9621ba44b48802e79e6bf7f1f2558a9c298",
        "relative": "79e6ba95c6dddb1326c487b4f012d6701f6f748181844fb1100ba8cff3984df9",
        "relative_4": "af1e72901df3e707aed9b75b2bb3a365ead3ec3beb7f3133d7d860b2916e86f8",
    }


def test_siblings_are_of_the_same_kinds_and_other_tasks(siblings: Path) -> None:
    hidden = load(siblings, scorers=SCORERS).tasks
    assert Counter(task.kind for task in hidden) == Counter(task.kind for task in TASKS.values())
    known = {json.dumps(task.expected) + str(dict(task.files)) for task in TASKS.values()}
    same = [
        task.kind for task in hidden if json.dumps(task.expected) + str(dict(task.files)) in known
    ]
    assert not same


def test_siblings_tell_neither_their_secret_nor_their_task(siblings: Path, tmp_path: Path) -> None:
    make_siblings(tmp_path, b"another secret still", 1)
    ours, theirs = load(siblings, scorers=SCORERS).tasks, load(tmp_path, scorers=SCORERS).tasks
    assert not {task.task_id for task in ours} & {task.task_id for task in theirs}
    for one in PLAN:
        assert one.task_id not in (siblings / "manifest.json").read_text()


def test_siblings_with_a_guessable_secret_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="a secret of at least 16 bytes"):
        make_siblings(tmp_path, b"short", 1)


@pytest.mark.parametrize("known", [("rescue", "easiest"), ("nothing", "easy")])
def test_make_of_what_is_not_known_is_rejected(known: tuple[str, str]) -> None:
    with pytest.raises(TaskError, match="no task is made of kind"):
        make(known[0], 0, known[1])


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: str(task.task_id))
def test_observations_come_through_json_unchanged(task: Task) -> None:
    shown = json.loads(task.files.get("observations.json", b"[]"))
    for plain in shown:
        assert json.dumps(to_plain(from_plain(plain))) == json.dumps(plain)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("task", RESCUES, ids=lambda task: str(task.task_id))
def test_rescue_succeeds_by_the_book_and_not_by_waiting(task: Task) -> None:
    book, idle = score(task, decided), score(task, deferred)
    assert book.success, book.problem
    assert not book.validation_failures
    if "nothing" not in task.task_id:
        assert not idle.success
        assert idle.metrics["steps"] >= book.metrics["steps"]


def test_rescue_by_decisions_that_are_not_due_is_rejected() -> None:
    def answer(_: Task, message: Mapping[str, Any]) -> Any:
        return [wait(rule) for rule in RULES]

    found = score(TASKS["rescue-dead-easy"], answer)
    assert not found.success
    assert found.validation_failures > 0
    assert found.problem is not None
    assert "not due" in found.problem


def test_rescue_that_stops_the_run_is_rejected() -> None:
    def answer(_: Task, message: Mapping[str, Any]) -> Any:
        stop = Decision("hyperparameter_change", ("R1",), "stop", {}, "enough").to_dict()
        return [{**stop, "cites": [rule]} for rule in message["observation"]["due"]]

    found = score(TASKS["rescue-lr-high-easy"], answer)
    assert not found.success
    assert found.validation_failures > 0


TRAINED = [task for task in TASKS.values() if task.scorer == "trained"]


@pytest.mark.slow  # trains
@pytest.mark.parametrize(
    "task",
    TRAINED,
    ids=lambda task: str(task.task_id),
)
def test_training_is_rescued_by_the_book_and_not_by_waiting(task: Task) -> None:
    book, idle = score(task, decided), score(task, deferred)
    assert book.success, book.problem
    assert not idle.success


@pytest.mark.parametrize(
    "task",
    [task for task in LOADED.tasks if task.scorer == "decisions"],
    ids=lambda task: str(task.task_id),
)
def test_decisions_by_the_book_succeed_and_others_do_not(task: Task) -> None:
    book = score(task, decided)
    assert book.success, book.problem
    assert book.metrics == {"agreement": 1.0}

    def idle(task: Task, _: Mapping[str, Any]) -> Any:
        shown = json.loads(task.files["observations.json"])
        return [[wait(rule) for rule in plain["due"]] for plain in shown]

    found = score(task, idle)
    assert not found.success
    assert found.metrics["agreement"] < 1


@pytest.mark.parametrize("words", ["It is far too high.", "It is at 999.", "9" * 3_999])
def test_decisions_that_name_no_measured_number_are_rejected(words: str) -> None:
    def answer(task: Task, message: Mapping[str, Any]) -> Any:
        return [
            [{**one, "justification": words} for one in said] for said in decided(task, message)
        ]

    found = score(TASKS["remedies-easy"], answer)
    assert not found.success
    assert not found.validation_failures


def test_decisions_twice_on_one_rule_are_rejected() -> None:
    found = score(
        TASKS["remedies-easy"],
        lambda task, message: [said * 2 for said in decided(task, message)],
    )
    assert not found.success
    assert found.validation_failures > 0


def chosen(task: Task, _: Mapping[str, Any]) -> Any:
    return task.expected["needed"]


@pytest.mark.parametrize("difficulty", ["easy", "medium", "hard"])
def test_evidence_needs_every_needed_piece(difficulty: str) -> None:
    task = TASKS[f"evidence-{difficulty}"]
    right = score(task, chosen)
    assert right.success, right.problem
    assert right.metrics["recall"] == right.metrics["precision"] == 1
    less = score(task, lambda task, message: [rows[1:] for rows in chosen(task, message)])
    assert not less.success
    assert less.metrics["recall"] < 1


def test_evidence_beyond_the_cap_is_rejected() -> None:
    def everything(task: Task, _: Mapping[str, Any]) -> Any:
        cases = json.loads(task.files["cases.json"])
        return [sorted(map(int, case["sizes"])) for case in cases]

    found = score(TASKS["evidence-hard"], everything)
    assert not found.success
    assert found.validation_failures == 7
    assert found.problem == "the cap is exceeded"


@pytest.mark.parametrize("rows", [[[1000]] * 2, [[3, 3]] * 2, [[5, 4]] * 2, [], [["3"]] * 2, 7])
def test_evidence_that_is_no_choice_is_rejected(rows: Any) -> None:
    with pytest.raises(CandidateError):
        score(TASKS["evidence-easy"], lambda *_: rows)


def read(task: Task, _: Mapping[str, Any]) -> Any:
    """Read every message as it was meant."""
    told: list[Any] = []
    for case in task.expected["cases"]:
        if "refused" in case:
            told.append({"refused": "why" if case["refused"] is True else case["refused"]})
        elif "value" in case:
            told.append({"value": case["value"]})
        else:
            says = case.get("says", {})
            reasons = {rule: says.get(rule, "why") for rule in case["open"]}
            told.append({"decisions": case["decisions"], "open": reasons})
    return told


@pytest.mark.parametrize("difficulty", ["easy", "medium", "hard"])
def test_readings_succeed_only_if_every_message_is_read_rightly(difficulty: str) -> None:
    task = TASKS[f"readings-{difficulty}"]
    assert score(task, read).success
    for place in range(len(task.expected["cases"])):

        def wrong(task: Task, message: Mapping[str, Any], place: int = place) -> Any:
            told = read(task, message)
            told[place] = {"value": "something else"}
            return told

        found = score(task, wrong)
        assert not found.success
        assert found.problem == f"message {place} is not read as it should be"


@pytest.mark.parametrize("verdicts", [None, "Failed"])
def test_ledgers_all_held_or_all_refused_are_rejected(verdicts: str | None) -> None:
    task = TASKS["ledgers-medium"]
    right = [[None if held else "LinkError"] * 2 for held in task.expected["held"]]
    assert score(task, lambda *_: right).success
    found = score(task, lambda task, _: [[verdicts] * 2 for _ in task.expected["held"]])
    assert not found.success
    assert (found.validation_failures > 0) == (verdicts is None)


@pytest.mark.parametrize(
    "task",
    [task for task in TASKS.values() if task.scorer not in ("exact", "rescue", "trained")],
    ids=lambda task: str(task.task_id),
)
def test_no_answer_at_all_is_rejected(task: Task) -> None:
    with pytest.raises(CandidateError):
        score(task, lambda *_: None)


KEYS = ("cites", "decisions", "enum", "items", "open", "params", "refused", "required", "type")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ("cites", "decisions", "enum", "items", "open", "params", "refused", "type")
            )
            | st.text(max_size=4),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "task_id",
    [
        "evidence-easy",
        "ledgers-medium",
        "offers-medium",
        "prompt-medium",
        "readings-medium",
        "remedies-easy",
        "rescue-dead-easy",
        "schema-medium",
        "votes-medium",
    ],
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_whatever_is_answered_is_scored_or_refused(task_id: str, data: st.DataObject) -> None:
    task = TASKS[task_id]
    count = len(
        json.loads(task.files.get("observations.json", task.files.get("cases.json", b"[]")))
    )
    one = data.draw(JSON)
    answer = data.draw(
        st.sampled_from((one, [one] * count, [[one]] * count, [{"R1": one}] * count))
    )
    try:
        found = score(task, lambda *_: answer)
    except CandidateError:
        return
    assert not found.success


def test_worker_answers_line_by_line_and_leaves_at_the_end(tmp_path: Path) -> None:
    task = TASKS["precedence-easy"]
    write_snapshot(task, tmp_path)
    lines = [message_of(task, tmp_path), {"ask": "answer"}, {"ask": "answer"}]
    done = subprocess.run(
        [sys.executable, str(SET / "worker.py")],
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    ready, *answers = map(json.loads, done.stdout.splitlines())
    assert ready == {"ready": True}
    assert len(answers) == 2
    assert answers[0] == answers[1]
    assert len(answers[0]) == len(json.loads(task.files["observations.json"]))


def test_worker_of_an_unknown_kind_fails(tmp_path: Path) -> None:
    opening = {"protocol": 1, "kind": "other", "seed": 0, "parameters": {}, "input": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(SET / "worker.py")],
        input=json.dumps(opening) + "\n",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode != 0
    assert not done.stdout


def test_worker_verifies_the_ledgers_by_both_verifiers(tmp_path: Path) -> None:
    """The worker calls them as they are today: without an answer the task would measure nothing."""
    task = TASKS["ledgers-medium"]
    write_snapshot(task, tmp_path)
    opening = "{'kind': 'ledgers', 'input': sys.argv[1]}"
    script = f"import sys, worker; print(worker.answerer({opening})({{}}))"
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path],
        env={"PYTHONPATH": f"{ROOT}:{SET}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    verdicts = ast.literal_eval(done.stdout)
    assert [[each is None for each in both] for both in verdicts] == [
        [holds, holds] for holds in task.expected["held"]
    ]
