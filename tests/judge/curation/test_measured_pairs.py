"""Preference pairs by measured credit: which are drawn, which are not, and which fall later."""

import json
import math
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any
from uuid import UUID

import pytest
from curation_histories import DATA, PREFERENCES, Scene, request_of

from aggregates.credit import CHOSEN, Credit, Place
from judge.curation.examples import outnumbered
from judge.curation.intervals import chance, false_discovery_rates, interval, level_of
from judge.curation.query import Query
from judge.curation.recall import recall
from judge.errors import CurationError

MEASURED = Query(kind="preferences", measured=True)
CLEAR = [0.30, 0.32, 0.31]  # gained by the recorded answer, in each order of the examples


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> tuple[Scene, dict[str, Any]]:
    """Runs with a credit each, of a group of its own, by what is special about them."""
    scene = Scene(tmp_path_factory.mktemp("measured"))
    for origin in (("data", DATA[0]), *(("model", m) for m in ("playbook", "small", "given"))):
        scene.admit(*origin)
    asked = {"author": "small", "calls": [(("R7",), request_of("small", "R7?"))]}
    cases: dict[str, dict[str, Any]] = {
        "kept": {"gains": CLEAR},
        "asked": {"gains": CLEAR, "run": asked},
        "reversed": {"gains": [-each for each in CLEAR], "run": {"acts": False}},
        "unclear": {"gains": [0.3, -0.2, 0.1], "claimed": CLEAR},
        "other way": {"gains": CLEAR, "claimed": [-each for each in CLEAR]},
        "one order": {"gains": CLEAR[:1], "claimed": CLEAR},
        "one not judged": {"gains": CLEAR, "unjudged": 1},
        "one that failed its audit": {"gains": CLEAR, "failed": 2},
        "a violation": {"gains": CLEAR, "violation": True},
    }
    found = {}
    for group, (name, case) in enumerate(cases.items()):
        told = case.get("run", {})
        run = scene.run(scene.line.active, group=group, **told)
        scene.audit(run, exercised=False, violation=case.get("violation", False))
        forks = scene.credit(
            run,
            case["gains"],
            author=told.get("author", "playbook"),
            acts=told.get("acts", True),
            claimed=case.get("claimed"),
        )
        for number, fork in enumerate(fork for arm in forks.values() for fork in arm):
            if number != case.get("unjudged"):
                scene.audit(fork, exercised=False, held=number != case.get("failed"))
        found[name] = {"run": run, **forks}
    return scene, found


def test_pair_is_drawn_where_judged_forks_show_which_answer_is_better(
    scene: tuple[Scene, dict[str, Any]],
) -> None:
    history, found = scene
    drawn = {each.member.id: each for each in history.draw(MEASURED).examples}
    kept, asked, turned = (found[name] for name in ("kept", "asked", "reversed"))
    names = {
        "kept": f"{kept['run']}/1>{kept['nothing'][0]}/1",
        "asked": f"{asked['run']}/1>{asked['nothing'][0]}/1",
        "reversed": f"{turned['decrease_lr'][0]}/1>{turned['run']}/1",
    }
    assert set(drawn) == set(names.values())
    said = {name: json.loads(drawn[id_].line) for name, id_ in names.items()}
    does = {
        name: [_said(each[side]) for side in ("chosen", "rejected")] for name, each in said.items()
    }
    assert [each["direction"] for each in does["kept"]] == ["decrease_lr", "defer"]
    assert said["asked"]["prompt"][1]["content"] == "R7?"  # as the model was asked
    assert [each["direction"] for each in does["reversed"]] == ["decrease_lr", "defer"]
    assert said["reversed"]["prompt"][1]["content"].startswith("# Epoch 1")
    for each in said.values():  # what TRL takes silently
        assert each["prompt"]
        assert each["chosen"] != each["rejected"]
    forks = {fork for name in ("chosen", "nothing") for fork in kept[name]}
    assert set(drawn[names["kept"]].member.measured) == forks


def _said(messages: list[dict[str, str]]) -> dict[str, Any]:
    (decision,) = json.loads(messages[0]["content"])["decisions"]
    return dict(decision)


def _words(messages: list[dict[str, str]]) -> Counter[str]:
    """Return the words of an answer without the fields that say what it does."""
    fields = {"event_type", "cites", "direction", "params"}
    said = {key: value for key, value in _said(messages).items() if key not in fields}
    return Counter(re.findall(r"\w+", json.dumps(said)))


def _told_apart(pairs: list[tuple[Counter[str], Counter[str]]]) -> float:
    """Return how often naive Bayes, taught by half of the pairs, knows the chosen of the others."""
    taught, asked = pairs[::2], pairs[1::2]
    counts = [sum((pair[side] for pair in taught), Counter[str]()) for side in (0, 1)]

    def score(words: Counter[str]) -> float:
        return sum(n * math.log((counts[0][w] + 1) / (counts[1][w] + 1)) for w, n in words.items())

    known = [score(chosen) - score(rejected) for chosen, rejected in asked]
    return fmean(0.5 if not found else float(found > 0) for found in known)


def test_words_of_a_pair_do_not_tell_which_answer_is_chosen(tmp_path: Path) -> None:
    history = _admitting(tmp_path)
    for group in range(6):
        acting, waiting = (
            history.run(history.line.active, group=group, acts=a) for a in (True, False)
        )
        forks = history.credit(acting, CLEAR)
        _judged(history, acting, forks)
        history.audit(acting, accuracy=0.7)
        history.audit(waiting, accuracy=0.3)
    tables = history.tables()
    words = "SELECT justification FROM decisions WHERE run_id = ? AND number = ?"
    for query in (MEASURED, PREFERENCES):
        drawn = history.draw(query).examples
        lines = [json.loads(each.line) for each in drawn]
        pairs = [(_words(each["chosen"]), _words(each["rejected"])) for each in lines]
        assert len(pairs) >= 6
        assert _told_apart(pairs) == 0.5
        # The controls: words that give the answer away are found, and those on record do.
        assert _told_apart([(one + Counter(["better"]), other) for one, other in pairs]) == 1.0
        recorded = [
            [
                Counter(tables.ask(words, [run, number])[0]["justification"].split())
                for (run, number), *_ in (each.member.decisions, each.member.rejected)
            ]
            for each in drawn
        ]
        assert _told_apart([(one, other) for one, other in recorded]) == 1.0


def test_pair_says_its_effect_and_how_many_questions_were_asked(tmp_path: Path) -> None:
    history = _admitting(tmp_path)
    gains = [[0.30, 0.32, 0.31], [0.1, 0.2, 0.15], *([0.1, -0.2, 0.05 * n] for n in range(1, 7))]
    for group, each in enumerate(gains):
        run = history.run(history.line.active, group=group)
        _judged(history, run, history.credit(run, each))
    told = [
        json.loads(json.loads(each.line)["evidence"]) for each in history.draw(MEASURED).examples
    ]
    assert [round(each["accuracy"]["difference"], 4) for each in told] == [0.31, 0.15]
    clear, weak = (each["false_discovery_rate"] for each in told)
    assert told[0]["accuracy"]["low"] == pytest.approx(interval(gains[0]).low, abs=1e-5)
    assert clear < 0.05 < weak  # though its own interval excludes 0: eight questions were asked
    kept = history.draw(replace(MEASURED, false_discoveries=0.05)).examples
    assert len(kept) == 1
    alone = false_discovery_rates({"weak": 2 * chance(gains[1])}, 1)["weak"]
    assert alone == pytest.approx(weak * 2 / 8, rel=1e-4)


FORGED: dict[str, dict[str, Any]] = {
    "none": {},
    "means that the forks do not have": {"claimed": [0.4, 0.4, 0.4]},
    "a level at which everything is certain": {"level": 0.01},
    "one fork for two orders": {"named": [0, 1, 0]},
    "forks under other orders": {"named": [1, 0, 2]},
    "another policy afterwards": {"after": "playbook"},
}


def test_credit_that_its_forks_contradict_is_not_backed_and_makes_no_pair(tmp_path: Path) -> None:
    history = Scene(tmp_path)
    for origin in (("data", DATA[0]), ("model", "playbook"), ("model", "given")):
        history.admit(*origin)
    for group, told in enumerate(FORGED.values()):
        run = history.run(history.line.active, group=group)
        forks = history.credit(run, CLEAR, **told)
        for each in (run, *(fork for arm in forks.values() for fork in arm)):
            history.audit(each, exercised=False)
    invented = Credit.start(run, after="nothing", seeds=[0, 1], arms={"2": ["nothing"]})
    for seed in (0, 1):
        for arm, accuracy in ((CHOSEN, 0.9), ("nothing", 0.1)):
            fork = str(UUID(int=seed))
            invented.record_fork(2, arm, seed, fork, 3, "completed", 1.0, accuracy, 1, 0)
    history.log.save(invented)
    tables = history.tables()
    backed = tables.ask("SELECT backed FROM decision_credit ORDER BY credit_id")
    assert sum(row["backed"] for row in backed) == 1
    assert len(backed) == len(FORGED)
    told_forks = tables.ask("SELECT backed FROM credit_evidence WHERE decision = 2")
    assert [row["backed"] for row in told_forks] == [False] * 4
    assert len(history.draw(MEASURED).examples) == 1


def _judged(history: Scene, run: str, *measured: dict[str, list[str]]) -> None:
    named = [fork for forks in measured for arm in forks.values() for fork in arm]
    for each in (run, *named):
        history.audit(each, exercised=False)


def _admitting(path: Path) -> Scene:
    history = Scene(path)
    for origin in (("data", DATA[0]), ("model", "playbook"), ("model", "given")):
        history.admit(*origin)
    return history


def _why(history: Scene) -> list[str | None]:
    rows = history.tables().ask(
        "SELECT why_not FROM decision_credit JOIN credit_starts USING (credit_id) ORDER BY idx"
    )
    return [row["why_not"] for row in rows]


def test_pair_by_fewer_orders_than_were_measured_is_rejected(tmp_path: Path) -> None:
    history = _admitting(tmp_path)
    run = history.run(history.line.active)
    all_orders = history.credit(run, [0.30, 0.32, 0.31, -0.4, -0.5, 0.1])
    few = history.credit(run, [0.30, 0.32, 0.31])
    _judged(history, run, all_orders, few)
    assert history.draw(MEASURED).examples == ()
    assert _why(history) == [None, "6 orders were measured, and it has 3"]


@pytest.mark.slow
def test_question_that_was_measured_twice_honestly_makes_one_pair(tmp_path: Path) -> None:
    history = _admitting(tmp_path)
    run = history.run(history.line.active)
    few = history.credit(run, CLEAR)
    more = history.credit(run, [*CLEAR, 0.33])
    _judged(history, run, few, more)
    (pair,) = history.draw(MEASURED).examples
    assert set(pair.member.measured) == {fork for arm in more.values() for fork in arm}
    tables = history.tables()
    assert [
        row["better"] for row in tables.ask("SELECT better FROM decision_credit ORDER BY pairs")
    ] == [
        None,
        "chosen",
    ]


def _more(history: Scene, run: str, **told: Any) -> None:
    """Measure six orders, which leave a decision undecided, and three that would decide it."""
    all_orders = history.credit(run, [*CLEAR, -0.4, -0.5, 0.1], acts=told.pop("acts", True))
    of = told.pop("of", run)
    _judged(history, run, all_orders)
    few = history.credit(of, CLEAR, **told)
    _judged(history, of, few)


def _same_run_again(history: Scene, run: str) -> None:
    _more(history, run, of=history.run(history.line.active))


def _fork_of_it(history: Scene, run: str) -> None:
    fork = history.credit(run, [0.3, 0.3])[CHOSEN][0]  # decides the same in the same state
    _more(history, run, of=fork)


def _other_policy_afterwards(history: Scene, run: str) -> None:
    _more(history, run, after="playbook", then="playbook")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", [_same_run_again, _fork_of_it, _other_policy_afterwards])
def test_fewer_orders_of_the_same_question_asked_elsewhere_are_rejected(
    way: Any, tmp_path: Path
) -> None:
    history = _admitting(tmp_path)
    way(history, history.run(history.line.active))
    assert history.draw(MEASURED).examples == ()
    assert "6 orders were measured, and it has 3" in _why(history)


def test_fewer_orders_of_an_alternative_under_another_name_are_rejected(tmp_path: Path) -> None:
    history = _admitting(tmp_path)
    run = history.run(history.line.active, acts=False)
    all_orders = history.credit(run, [*CLEAR, -0.4, -0.5, 0.1], acts=False)
    few = history.credit(run, CLEAR, acts=False, arm="slower")
    _judged(history, run, all_orders, few)
    assert history.draw(MEASURED).examples == ()
    assert _why(history) == [None, "6 orders were measured, and it has 3"]


def test_question_about_another_state_or_answer_is_another_one(tmp_path: Path) -> None:
    history = _admitting(tmp_path)
    one, other = (history.run(history.line.active, group=group) for group in range(2))
    turned = history.run(history.line.active, acts=False)
    _judged(history, one, history.credit(one, CLEAR))
    _judged(history, other, history.credit(other, [*CLEAR, 0.33]))
    _judged(history, turned, history.credit(turned, [-each for each in CLEAR], acts=False))
    assert _why(history) == [None] * 3
    assert len(history.draw(MEASURED).examples) == 3


def test_orders_added_until_the_answer_pleases_are_rejected(tmp_path: Path) -> None:
    """Each further measurement is one more chance; the interval of an export is as wide as that."""
    gains = [0.2, 0.5, 0.1, 0.4, 0.15]
    alone = _admitting(tmp_path / "alone")
    run = alone.run(alone.line.active)
    _judged(alone, run, alone.credit(run, gains))
    assert interval(gains).low > 0 > interval(gains, level_of(4)).low  # type: ignore[operator]
    assert len(alone.draw(MEASURED).examples) == 1
    assert outnumbered(alone.tables()) == 0
    until = _admitting(tmp_path / "until")
    run = until.run(until.line.active)
    _judged(until, run, *(until.credit(run, gains[:number]) for number in range(2, 6)))
    assert until.draw(MEASURED).examples == ()
    assert outnumbered(until.tables()) == 1


def test_forks_of_one_measurement_with_other_policies_afterwards_are_rejected(
    tmp_path: Path,
) -> None:
    history = _admitting(tmp_path)
    run = history.run(history.line.active)
    forks = history.credit(run, CLEAR, settings=({"sha256": "1"}, {"sha256": "2"}))
    _judged(history, run, forks)
    rows = history.tables().ask("SELECT backed, better FROM decision_credit")
    assert rows == [{"backed": False, "better": None}]


def test_pair_stays_when_a_run_that_was_trained_again_shows_it_with_more_orders(
    tmp_path: Path,
) -> None:
    history = _admitting(tmp_path)
    run, again = (history.run(history.line.active) for _ in range(2))
    _judged(history, run, history.credit(run, CLEAR))
    history.export(MEASURED)
    _judged(history, again, history.credit(again, [*CLEAR, 0.33]))
    assert not list(recall(history.tables(), blobs=history.blobs))
    assert len(history.draw(MEASURED).examples) == 1


@pytest.mark.slow
def test_pair_by_chosen_orders_is_rejected(tmp_path: Path) -> None:
    history = _admitting(tmp_path)
    run = history.run(history.line.active)
    _judged(history, run, history.credit(run, CLEAR, seeds=[3, 17, 40]))
    assert history.draw(MEASURED).examples == ()
    assert _why(history) == ["its orders are not the first ones: 0, 1 and so on"]


@pytest.mark.slow
def test_pair_is_rejected_while_a_measurement_of_the_same_has_not_ended(tmp_path: Path) -> None:
    history = _admitting(tmp_path)
    run = history.run(history.line.active)
    cut_off = history.credit(run, [*CLEAR, -0.4, -0.5], ends=False)
    _judged(history, run, cut_off, history.credit(run, CLEAR))
    assert history.draw(MEASURED).examples == ()
    assert _why(history) == ["a measurement of the same was begun and has not ended"]


@pytest.mark.slow
def test_pairs_that_contradict_each_other_are_rejected(tmp_path: Path) -> None:
    history = _admitting(tmp_path)
    run = history.run(history.line.active)
    one = history.credit(run, CLEAR)
    turned = history.credit(run, [-each for each in CLEAR], after="playbook", then="playbook")
    _judged(history, run, one, turned)
    assert history.draw(MEASURED).examples == ()
    opposite = "with another policy after the decision, the opposite was measured"
    assert _why(history) == [opposite, opposite]


@pytest.mark.slow
def test_orders_that_came_to_other_ends_the_second_time_decide_nothing(tmp_path: Path) -> None:
    history = _admitting(tmp_path)
    run = history.run(history.line.active)
    one = history.credit(run, [0.1, 0.2, 0.3])
    more = history.credit(run, [*CLEAR, 0.33])
    _judged(history, run, one, more)
    assert history.draw(MEASURED).examples == ()
    assert "an order that was measured twice came to another end" in _why(history)


def test_forks_that_another_measurement_has_named_are_rejected(tmp_path: Path) -> None:
    history = _admitting(tmp_path)
    run = history.run(history.line.active)
    first = history.credit(run, CLEAR)
    again = Credit.start(run, after="nothing", seeds=[0, 1], arms={"1": ["nothing"]})
    for seed in (0, 1):
        for arm in (CHOSEN, "nothing"):
            fork = first[arm][seed]
            again.record_fork(*Place(1, arm, seed), fork, 3, "completed", 1.0, 0.5, 1, 0)
    history.log.save(again)
    _judged(history, run, first)
    rows = history.tables().ask(
        "SELECT backed FROM credit_evidence WHERE credit_id = ?", [str(again.id)]
    )
    assert [row["backed"] for row in rows] == [False] * 4


def test_forks_of_swapped_arms_are_rejected(tmp_path: Path) -> None:
    history = _admitting(tmp_path)
    run = history.run(history.line.active)
    forks = history.credit(run, CLEAR, swapped=True)
    _judged(history, run, forks)
    rows = history.tables().ask("SELECT backed, better FROM decision_credit")
    assert rows == [{"backed": False, "better": None}]


@pytest.mark.slow
def test_sealed_pair_falls_when_more_orders_leave_it_undecided(tmp_path: Path) -> None:
    history = _admitting(tmp_path)
    run = history.run(history.line.active)
    _judged(history, run, history.credit(run, CLEAR))
    history.export(MEASURED)
    assert not list(recall(history.tables(), blobs=history.blobs))
    more = history.credit(run, [*CLEAR, 0.33])
    _judged(history, run, more)
    assert not list(recall(history.tables(), blobs=history.blobs))  # by other forks, it is so too
    most = history.credit(run, [*CLEAR, 0.33, -0.4, -0.5])
    _judged(history, run, most)
    (fallen,) = recall(history.tables(), blobs=history.blobs)
    assert fallen.why == ("what is measured now does not say which answer is better",)


@pytest.mark.slow
def test_filters_are_on_the_recorded_answer(scene: tuple[Scene, dict[str, Any]]) -> None:
    history, found = scene
    by_small = history.draw(replace(MEASURED, decided_by=("small",)))
    assert [each.member.decisions[0][0] for each in by_small.examples] == [found["asked"]["run"]]
    assert not history.draw(Query(kind="preferences")).examples  # no run was exercised


@pytest.mark.slow
def test_pair_falls_with_any_fork_that_it_rests_on(tmp_path: Path) -> None:
    history = Scene(tmp_path)
    for origin in (("data", DATA[0]), ("model", "playbook"), ("model", "given")):
        history.admit(*origin)
    run = history.run(history.line.active)
    forks = history.credit(run, CLEAR)
    for each in (run, *(fork for arm in forks.values() for fork in arm)):
        history.audit(each, exercised=False)
    history.export(MEASURED)
    assert not list(recall(history.tables(), blobs=history.blobs))
    history.audit(forks["nothing"][1], held=False)  # names neither answer
    (fallen,) = recall(history.tables(), blobs=history.blobs)
    assert any(forks["nothing"][1] in why and "did not hold" in why for why in fallen.why)
    assert not history.draw(MEASURED).examples


@pytest.mark.slow
def test_forks_of_credit_need_no_admission_until_an_operator_has_a_key(tmp_path: Path) -> None:
    history = Scene(tmp_path, operated=False)
    run = history.run(history.line.active)
    forks = history.credit(run, CLEAR)
    for each in (run, *(fork for arm in forks.values() for fork in arm)):
        history.audit(each, exercised=False)
    assert len(history.draw(MEASURED).examples) == 1


@pytest.mark.parametrize("told", [{"kind": "sft"}, {"kind": "preferences", "margin": 0.1}])
def test_measured_is_for_preferences_without_a_margin(told: dict[str, Any]) -> None:
    with pytest.raises(
        CurationError, match="measured works for preferences only, and without a margin"
    ):
        Query(measured=True, **told)
