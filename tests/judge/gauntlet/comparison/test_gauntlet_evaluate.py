"""What two arms' answers come to: better, worse, or no telling."""

import json
import random
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins
from paired_results import CONFIRMED, confirmed, pair, result, task

from aggregates.improvement.proposal import Proposal
from judge.gauntlet.comparison.evaluate import Evaluation, compare, wanted_pairs
from judge.gauntlet.errors import GauntletError
from judge.gauntlet.tasks.benchmark import TaskResult
from judge.gauntlet.tasks.reference_set import Task

LEVEL = 0.02


def compared(*results: list[TaskResult], stochastic: tuple[str, ...] = ()) -> Evaluation:
    flat = confirmed([each for one in results for each in one], stochastic=stochastic)
    names = dict.fromkeys(each.task_id for each in flat)
    return compare(
        flat,
        tasks=[task(name, stochastic=name in stochastic) for name in names],
        level=LEVEL,
    )


def repeats(task_id: str, *kinds: tuple[int, Any, Any]) -> list[TaskResult]:
    """Return pairs of one task: so many of each kind (base, candidate)."""
    pairs = [each for count, *both in kinds for each in [both] * count]
    return [r for at, (b, c) in enumerate(pairs) for r in pair(task_id, b, c, repeat=at)]


def test_change_is_better_when_a_task_succeeds_that_failed() -> None:
    found = compared(pair("a", False, True), pair("b", True, True))
    assert (found.verdict, found.improvements, found.regressions) == ("better", ("a",), ())
    assert found.reasons == ("a: succeeds now",)


def test_change_is_worse_when_one_task_fails_though_eight_are_won() -> None:
    won = [pair(f"won-{at}", False, True) for at in range(8)]
    found = compared(*won, pair("lost", True, False))
    assert (found.verdict, found.regressions) == ("worse", ("lost",))
    assert found.reasons == ("lost: fails now: wrong",)


def test_change_is_neither_when_nothing_differs() -> None:
    found = compared(
        pair("a", False, False), pair("b", {"recall": 1.0, "rows": 3}, {"recall": 1.0, "rows": 3})
    )
    assert found.verdict == "cannot tell"
    assert found.reasons == ("no task is shown to be better",)


def test_change_is_worse_when_validation_failures_rise_in_sum() -> None:
    more = pair("a", False, True), pair("b", {"faults": 0}, {"faults": 1})
    found = compared(*more)
    assert (found.verdict, found.regressions) == ("worse", ("b",))
    moved = compared(*more, pair("c", {"faults": 1}, {"faults": 0}))
    assert moved.verdict == "better"


def test_change_is_better_when_rows_are_saved_and_recall_is_kept() -> None:
    found = compared(pair("a", {"recall": 1.0, "rows": 8}, {"recall": 1.0, "rows": 5}))
    assert (found.verdict, found.reasons) == ("better", ("a: rows 8 -> 5",))


def test_saving_of_rows_that_costs_recall_is_rejected() -> None:
    found = compared(
        pair("a", {"recall": 1.0, "rows": 8}, {"recall": 0.9, "rows": 5}),
        pair("b", {"recall": 1.0, "rows": 8}, {"recall": 1.0, "rows": 5}),
    )
    assert (found.verdict, found.regressions) == ("worse", ("a",))
    assert found.reasons == ("a: recall 1 -> 0.9",)


def test_saving_that_another_task_pays_for_is_rejected() -> None:
    saved = pair("a", {"recall": 1.0, "rows": 8}, {"recall": 1.0, "rows": 2})
    paid = pair("b", {"recall": 1.0, "bytes": 10}, {"recall": 1.0, "bytes": 11})
    found = compared(saved, paid)
    assert (found.verdict, found.improvements) == ("cannot tell", ())
    assert "a saving does not count while another metric is worse" in found.reasons
    assert compared(saved).verdict == "better"


def test_higher_costs_are_let_through_when_a_task_is_won_by_them() -> None:
    found = compared(pair("a", False, True), pair("b", {"steps": 10}, {"steps": 11}))
    assert (found.verdict, found.improvements) == ("better", ("a",))


def test_saving_is_no_improvement_when_the_task_fails() -> None:
    base = {"success": False, "recall": 0.5, "rows": 8}
    found = compared(pair("a", base, {**base, "rows": 2}))
    assert found.verdict == "cannot tell"
    won = compared(pair("a", base, {"recall": 1.0, "rows": 2}))
    assert won.reasons == ("a: succeeds now", "a: recall 0.5 -> 1")


def test_recall_that_is_not_given_any_more_is_a_regression() -> None:
    found = compared(pair("a", {"success": False, "recall": 0.5}, {"success": False}))
    assert (found.verdict, found.reasons) == ("worse", ("a: recall 0.5 -> nothing",))


def test_recall_that_one_arm_alone_gives_is_that_arms() -> None:
    assert compared(pair("a", True, {"recall": 1.0})).verdict == "better"
    assert compared(pair("a", {"recall": 1.0}, True)).verdict == "worse"


def test_difference_of_a_deterministic_task_counts_when_every_pair_shows_it() -> None:
    tasks = [task("a")]
    for before, after, verdict in ((False, True, "better"), (True, False, "worse")):
        found: list[TaskResult] = []
        for repeat in range(CONFIRMED):
            assert evaluated_of(found, tasks) == ("cannot tell" if found else None)
            assert wanted_pairs(found, tasks=tasks, level=LEVEL) == [("a", repeat)]
            found += pair("a", before, after, repeat=repeat)
        assert wanted_pairs(found, tasks=tasks, level=LEVEL) == []
        assert evaluated_of(found, tasks) == verdict


def test_one_loss_or_one_gain_is_confirmed_and_the_others_are_told_as_seen() -> None:
    tasks = [task("a"), task("b"), task("other")]
    for before, after, verdict in ((False, True, "better"), (True, False, "worse")):
        other = pair("other", verdict == "better", True)  # beside the losses there is a gain
        first = [*pair("a", before, after), *pair("b", before, after), *other]
        assert wanted_pairs(first, tasks=tasks, level=LEVEL) == [("a", 1)]
        more = [r for at in range(1, CONFIRMED) for r in pair("a", before, after, repeat=at)]
        assert wanted_pairs([*first, *more], tasks=tasks, level=LEVEL) == []
        found = compared_as_given([*first, *more], tasks)
        assert found.verdict == verdict
        assert [each.verdict for each in found.comparisons[:2]] == [verdict, "unconfirmed"]
        assert (*found.improvements, *found.regressions) == ("a",)
        (note,) = found.comparisons[1].notes
        assert note.endswith(" (not confirmed: seen in 1 pair)")
        assert (note in found.reasons) == (verdict == "worse")


def test_losses_of_several_tasks_count_together_while_nothing_is_gained() -> None:
    names = [f"t{at}" for at in range(CONFIRMED)]
    tasks = [task(name) for name in (*names, "same", "won")]
    lost = [r for name in names for r in pair(name, True, False)]
    rest = [*pair("same", True, True), *pair("won", True, True)]
    found = compared_as_given([*lost, *rest], tasks)
    assert (found.verdict, found.regressions) == ("worse", tuple(names))
    assert wanted_pairs([*lost, *rest], tasks=tasks, level=LEVEL) == []
    for other in (
        [*lost[2:], *pair("t0", True, True), *rest],  # one fewer
        [*lost, *pair("same", True, True), *pair("won", False, True)],  # a gain
        [*lost, *rest, *pair("same", False, True, repeat=1)],  # a gain in one pair of two
    ):
        assert compared_as_given(other, tasks).verdict == "cannot tell"
        assert wanted_pairs(other, tasks=tasks, level=LEVEL) != []


def test_loss_is_asked_again_before_a_gain() -> None:
    tasks = [task("won"), task("lost")]
    first = [*pair("won", False, True), *pair("lost", True, False)]
    assert wanted_pairs(first, tasks=tasks, level=LEVEL) == [("lost", 1)]
    results = [r for at in range(CONFIRMED) for r in pair("won", False, True, repeat=at)]
    results += pair("lost", True, False)
    assert wanted_pairs(results, tasks=tasks, level=LEVEL) == [("lost", 1)]
    assert compared_as_given(results, tasks).verdict == "cannot tell"


def test_cost_that_one_pair_shows_is_cleared_up_while_a_saving_depends_on_it() -> None:
    tasks, much, less = [task("a"), task("b")], {"steps": 11}, {"steps": 10}
    results = [r for at in range(CONFIRMED) for r in pair("a", much, less, repeat=at)]
    results += pair("b", less, much)
    assert wanted_pairs(results, tasks=tasks, level=LEVEL) == [("b", 1)]
    assert compared_as_given(results, tasks).verdict == "cannot tell"
    paid = [r for at in range(1, CONFIRMED) for r in pair("b", less, much, repeat=at)]
    assert wanted_pairs([*results, *paid], tasks=tasks, level=LEVEL) == []
    assert compared_as_given([*results, *paid], tasks).verdict == "cannot tell"
    alone = pair("b", less, much)  # nothing is saved by it, so nothing depends on it
    assert wanted_pairs([*pair("a", less, less), *alone], tasks=tasks, level=LEVEL) == []


def compared_as_given(results: list[TaskResult], tasks: list[Task]) -> Evaluation:
    base = [each for each in results if each.arm == "base"]
    candidate = [each for each in results if each.arm == "candidate"]
    return compare([*base, *candidate], tasks=tasks, level=LEVEL)


def evaluated_of(results: list[TaskResult], tasks: list[Task]) -> str | None:
    if not results:
        return None
    return compared_as_given(results, tasks).verdict


def test_deterministic_task_that_fails_once_is_weighed_like_a_stochastic_one() -> None:
    tasks = [task("a")]
    once = [*pair("a", False, True), *pair("a", True, True, repeat=1)]
    assert evaluated_of(once, tasks) == "cannot tell"
    assert wanted_pairs(once, tasks=tasks, level=LEVEL) == [("a", at) for at in range(2, 20)]
    honest = [r for at in range(20) for r in pair("a", at > 0 and at % 7 > 0, True, repeat=at)]
    assert evaluated_of(honest, tasks) == "cannot tell"
    cured = [r for at in range(80) for r in pair("a", at % 2 == 0, True, repeat=at)]
    assert evaluated_of(cured, tasks) == "better"


def test_deterministic_task_that_the_base_answered_otherwise_before_is_unsteady() -> None:
    tasks = [task("a")]
    results = [r for at in range(CONFIRMED) for r in pair("a", False, True, repeat=at)]
    base = [each for each in results if each.arm == "base"]
    candidate = [each for each in results if each.arm == "candidate"]
    for record, verdict in (({"a": {(True, 0, ())}}, "cannot tell"), ({}, "better")):
        found = compare([*base, *candidate], tasks=tasks, level=LEVEL, record=record)
        assert found.verdict == verdict
    same = {"a": {(False, 0, ())}}
    found = compare([*base, *candidate], tasks=tasks, level=LEVEL, record=same)
    assert found.verdict == "better"


def test_candidate_that_answers_at_random_is_worse_when_the_base_repeats_itself() -> None:
    rows = [8, 3, 5, 2, 6, 1, 4, 7]
    results = [
        r
        for at in range(60)
        for r in pair(
            "a", {"recall": 1.0, "rows": 8}, {"recall": 1.0, "rows": rows[at % 8]}, repeat=at
        )
    ]
    found = compare(
        results,
        tasks=[task("a")],
        level=LEVEL,
    )
    assert (found.verdict, found.regressions) == ("worse", ("a",))
    assert "a: repeatability is worse, answers differ from one time to the next" in found.reasons[1]


def test_answer_taken_from_an_earlier_proposal_decides_nothing() -> None:
    tasks = [task("a")]
    results = [r for at in range(CONFIRMED) for r in pair("a", False, True, repeat=at)]
    old = [replace(each, cached=each.arm == "base") for each in results]
    wanted = [("a", CONFIRMED)]  # the repeats that are taken cannot be answered again
    assert wanted_pairs(old, tasks=tasks, level=LEVEL) == wanted
    assert wanted_pairs(results, tasks=tasks, level=LEVEL) == []


def test_missing_answer_counts_the_same_in_either_arm() -> None:
    given, gone = {"recall": 1.0, "rows": 4}, {"success": False, "faults": 1, "missing": True}
    kinds = [(30, given, given), (8, given, gone), (8, gone, given), (4, gone, gone)]
    found = compared(repeats("a", *kinds), stochastic=("a",))
    assert found.verdict == "cannot tell"
    assert found.comparisons[0].missing == (12, 12)
    evidence = found.comparisons[0].evidence
    for name in ("success", "recall", "rows", "validity"):
        assert evidence[f"harmed {name}"] < 1.0 if name != "rows" else "rows" not in evidence
    turned = compared(
        repeats("a", *[(count, after, before) for count, before, after in kinds]),
        stochastic=("a",),
    )
    assert turned.comparisons[0].evidence == pytest.approx(evidence)


@pytest.mark.parametrize(("name", "value"), [("recall", 1.5), ("precision", -0.5), ("rows", -1.0)])
def test_metric_out_of_its_range_is_rejected(name: str, value: float) -> None:
    good = {"recall": 0.5, "precision": 0.5, "rows": 1.0}
    with pytest.raises(GauntletError, match=f"task a: {name} goes from"):
        compared(pair("a", good, {**good, name: value}))


def test_stochastic_task_is_better_when_it_is_won_often_enough() -> None:
    found = compared(repeats("a", (100, True, True), (15, False, True)), stochastic=("a",))
    assert (found.verdict, found.improvements, found.level) == ("better", ("a",), LEVEL)
    assert found.reasons == ("a: success is better, 0.870 -> 1.000 over 115 pairs",)


def test_stochastic_task_tells_nothing_when_it_is_won_once() -> None:
    found = compared(repeats("a", (99, True, True), (1, False, True)), stochastic=("a",))
    assert (found.verdict, found.comparisons[0].verdict) == ("cannot tell", "unharmed")


def test_stochastic_task_is_worse_when_it_is_lost_often_enough() -> None:
    found = compared(
        repeats("a", (80, True, True), (20, False, True)),
        repeats("b", (80, True, True), (20, True, False)),
        stochastic=("a", "b"),
    )
    assert (found.verdict, found.regressions) == ("worse", ("b",))


def test_stochastic_task_that_may_be_harmed_holds_up_a_promotion() -> None:
    won = pair("won", False, True)
    few = compared(won, repeats("a", (20, True, True)), stochastic=("a",))
    assert (few.verdict, few.improvements) == ("cannot tell", ("won",))
    assert few.reasons == ("a: after 20 pairs, a loss of 0.1 cannot be excluded",)
    assert compared(won, repeats("a", (60, True, True)), stochastic=("a",)).verdict == "better"


def test_stochastic_answers_that_become_invalid_are_a_regression() -> None:
    found = compared(
        pair("won", False, True),
        repeats("a", (80, {"faults": 0}, {"faults": 0}), (20, {"faults": 0}, {"faults": 1})),
        stochastic=("a",),
    )
    assert (found.verdict, found.regressions) == ("worse", ("a",))
    assert found.reasons == ("a: validity is worse, 0 -> 20 invalid answers in 100 pairs",)


def test_stochastic_saving_counts_when_recall_is_kept_in_each_pair() -> None:
    base, less = {"recall": 1.0, "rows": 8}, {"recall": 1.0, "rows": 4}
    assert compared(repeats("a", (80, base, less)), stochastic=("a",)).verdict == "better"


def test_stochastic_saving_that_recall_pays_for_is_rejected() -> None:
    base, less = {"recall": 1.0, "rows": 8}, {"recall": 1.0, "rows": 4}
    cut = {"recall": 0.97, "rows": 4}  # within the margin
    found = compared(repeats("a", (120, base, less), (40, base, cut)), stochastic=("a",))
    assert found.verdict != "better"


def test_saving_that_a_stochastic_task_pays_for_is_rejected() -> None:
    saved = pair("a", {"recall": 1.0, "rows": 8}, {"recall": 1.0, "rows": 2})
    base, more = {"recall": 1.0, "rows": 4}, {"recall": 1.0, "rows": 8}
    lost = {"success": False, "recall": 1.0, "rows": 4}
    found = compared(saved, repeats("b", (80, base, more)), stochastic=("b",))
    assert (found.verdict, found.improvements) == ("cannot tell", ())
    assert "b: rows is worse" in found.reasons
    same = compared(saved, repeats("b", (80, base, base), (3, lost, more)), stochastic=("b",))
    assert (same.verdict, same.improvements) == ("better", ("a",))


def test_stochastic_saving_that_another_task_pays_for_is_rejected() -> None:
    base, less = {"recall": 1.0, "rows": 8}, {"recall": 1.0, "rows": 4}
    saved, paid = repeats("a", (80, base, less)), pair("b", {"steps": 10}, {"steps": 11})
    found = compared(saved, paid, stochastic=("a",))
    assert (found.verdict, found.improvements) == ("cannot tell", ())
    honest = compared(saved, pair("b", {"steps": 10}, {"steps": 10}), stochastic=("a",))
    assert (honest.verdict, honest.improvements) == ("better", ("a",))
    assert [each.stochastic for each in honest.comparisons] == [True, False]


def test_costs_are_not_told_as_a_reason_when_nothing_is_saved() -> None:
    found = compared(pair("a", {"steps": 10}, {"steps": 11}))
    assert found.reasons == ("no task is shown to be better",)
    assert found.comparisons[0].notes == ("a: steps 10 -> 11",)


def test_quality_that_stays_away_is_told_as_nothing() -> None:
    pairs = repeats("a", (80, {"recall": 1.0}, True))
    found = compared(pairs, stochastic=("a",))
    assert (found.verdict, found.regressions) == ("worse", ("a",))
    assert found.reasons == ("a: recall is worse, 1.000 -> nothing over 80 pairs",)


def test_level_is_spent_when_one_task_was_repeated() -> None:
    results = repeats("a", (5, True, True))
    found = compare(
        results,
        tasks=[task("a", stochastic=True), task("b", stochastic=True)],
        level=LEVEL,
    )
    assert (found.level, found.comparisons[1].success) == (LEVEL, None)


def test_comparison_tells_means_of_each_metric_by_name() -> None:
    base = {"steps": 4, "rows": 2, "recall": 1.0, "precision": 0.5, "bytes": 9, "agreement": 1.0}
    found = compared(pair("a", base, {**base, "rows": 1}), pair("b", True, False))
    told = to_builtins(found.comparisons[0])
    assert set(told) == set(found.comparisons[0].__dataclass_fields__)
    assert list(told["metrics"]) == sorted(base)
    assert (told["pairs"], told["metrics"]["rows"]) == (CONFIRMED, (2.0, 1.0))


def test_nothing_is_spent_when_a_deterministic_task_decides() -> None:
    results = confirmed(pair("a", True, False))
    found = compare(
        results,
        tasks=[task("a"), task("b", stochastic=True)],
        level=LEVEL,
    )
    assert (found.verdict, found.level) == ("worse", 0.0)


def test_results_of_other_tasks_are_left_out() -> None:
    results = confirmed([*pair("a", False, True), *pair("b", True, False)])
    found = compare(
        results,
        tasks=[task("a")],
        level=LEVEL,
    )
    assert found.verdict == "better"


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ([result("a", "base", True)], "before both arms have answered a"),
        ([*pair("a", True, True), result("a", "base", True)], "two answers by the base"),
        (
            [result("a", "base", True), result("a", "candidate", True, seed=9)],
            "the arms have different seeds",
        ),
    ],
)
def test_results_that_are_no_pairs_are_rejected(results: list[TaskResult], message: str) -> None:
    with pytest.raises(GauntletError, match=message):
        compared(results)


def test_level_that_is_no_chance_is_rejected() -> None:
    with pytest.raises(GauntletError, match="must lie between 0 and 1, not 0"):
        compare([], tasks=[], level=0.0)


def test_evaluation_is_what_a_proposal_records() -> None:
    found = compared(
        pair("won", False, {"recall": 1.0, "rows": 3}),
        repeats("a", (60, True, True)),
        stochastic=("a",),
    )
    told = json.loads(json.dumps(to_builtins(found.comparisons), allow_nan=False))
    proposal = Proposal.submit(
        line=str(uuid4()),
        targets={"a.py": 2},
        diff="0" * 64,
        diff_bytes=1,
        base="0" * 40,
        base_tree="0" * 40,
        rationale="better",
        trigger="operator_request",
        proposer="test",
    )
    proposal.branch, proposal.tested = "infra/x", True
    proposal.evaluate(
        found.verdict,
        level=found.level,
        regressions=found.regressions,
        improvements=found.improvements,
        reasons=found.reasons,
        comparisons=told,
    )
    assert proposal.verdict == "better"


outcomes = st.tuples(st.booleans(), st.booleans())


@given(st.lists(outcomes, min_size=1, max_size=6), st.lists(outcomes, max_size=120))
def test_verdict_is_turned_round_when_the_arms_change_places(
    exact: list[tuple[bool, bool]], drawn: list[tuple[bool, bool]]
) -> None:
    def verdict(*, turned: bool) -> str:
        order = -1 if turned else 1
        results = [pair(f"d{at}", *both[::order]) for at, both in enumerate(exact)]
        stochastic = [r for at, b in enumerate(drawn) for r in pair("s", *b[::order], repeat=at)]
        return compared(*results, stochastic, stochastic=("s",)).verdict

    if verdict(turned=False) == "better":
        assert verdict(turned=True) == "worse"
    if all(before == after for before, after in [*exact, *drawn]):
        assert verdict(turned=False) == "cannot tell"


@given(st.lists(outcomes, max_size=60), st.randoms(use_true_random=False))
def test_order_of_results_is_no_matter(drawn: list[tuple[bool, bool]], rng: random.Random) -> None:
    results = [
        *pair("d", True, True),
        *(r for i, b in enumerate(drawn) for r in pair("s", *b, repeat=i)),
    ]
    other = rng.sample(results, len(results))
    tasks = [task("d"), task("s", stochastic=True)]

    def found(those: list[TaskResult]) -> Evaluation:
        base = [each for each in those if each.arm == "base"]
        candidate = [each for each in those if each.arm == "candidate"]
        return compare([*base, *candidate], tasks=tasks, level=LEVEL)

    assert found(results) == found(other)
