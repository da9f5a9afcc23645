"""The search along a chain: what follows from verdicts, sure ones and others."""

import json
import math
import random
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from exhaustive import EXHAUSTIVE
from hypothesis import given
from hypothesis import strategies as st
from studies.bisection_rates import ROWS, Errors, simulate, simulate_one

from judge.bisection.search import Probe, Search, estimated, luck, next_probe, posterior, standing

CHAINS = st.integers(1, 70)
VERDICTS = st.sampled_from(("bad", "good", "skip"))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Search, int, frozenset[int]]:
    """A search, its culprit, and which cannot be tested."""
    suspects = draw(CHAINS)
    culprit = draw(st.integers(1, suspects))
    untestable = draw(st.frozensets(st.integers(0, suspects), max_size=suspects))
    return Search(suspects=suspects, ends_believed=draw(st.booleans())), culprit, untestable


@st.composite
def noisy(draw: st.DrawFn) -> tuple[Search, list[Probe]]:
    """A search with verdicts that nobody has chosen."""
    suspects = draw(st.integers(1, 20))
    search = Search(
        suspects=suspects,
        error=draw(st.sampled_from((0.01, 0.2, 0.45))),
        ends_believed=draw(st.booleans()),
        rules=draw(st.sampled_from((1, 2, 3))),
    )
    return search, draw(st.lists(st.tuples(st.integers(0, suspects), VERDICTS), max_size=40))


@given(CHAINS, st.data())
def test_culprit_is_found_in_as_many_probes_as_halvings_when_verdicts_are_sure(
    suspects: int, data: st.DataObject
) -> None:
    search, culprit = Search(suspects=suspects), data.draw(st.integers(1, suspects))
    probes = simulate_one(search, culprit)
    found = standing(search, probes)
    assert (found.likely, found.probability) == (range(culprit, culprit + 1), 1.0)
    assert len(probes) <= math.ceil(math.log2(suspects))


def test_five_probes_suffice_whichever_of_thirty_two_is_the_culprit() -> None:
    search = Search(suspects=32)
    assert {len(simulate_one(search, culprit)) for culprit in range(1, 33)} == {5}


@given(cases())
def test_culprit_is_among_the_likely_ones_when_some_cannot_be_tested(
    case: tuple[Search, int, frozenset[int]],
) -> None:
    search, culprit, untestable = case
    probes = simulate_one(search, culprit, untestable=untestable)
    found = standing(search, probes)
    assert culprit in found.likely
    assert math.isclose(found.probability, 1.0)
    assert set(found.likely[:-1]) <= untestable  # each of them hides whether it is bad
    asked = [number for number, _ in probes]
    assert len(set(asked)) == len(asked)


def test_untestable_neighbours_are_avoided_when_one_is_known() -> None:
    search, block = Search(suspects=32), range(12, 20)
    counts = [
        len(simulate_one(search, culprit, untestable=block))
        for culprit in range(1, 33)
        if culprit < 12 or culprit > 20
    ]
    assert sum(counts) / len(counts) < 8  # all of the block and the halvings would be 12


@pytest.mark.parametrize(("outside", "likely"), [(0, range(1)), (33, range(33, 34))])
def test_ends_are_told_when_they_are_not_believed_and_not_so(outside: int, likely: range) -> None:
    search = Search(suspects=32, ends_believed=False)
    assert standing(search, simulate_one(search, outside)).likely == likely


def test_sure_verdicts_have_no_answer_when_they_contradict_each_other() -> None:
    search = Search(suspects=8)
    probes: list[Probe] = [(3, "bad"), (6, "good")]
    assert standing(search, probes).probability == 0.0
    assert standing(search, probes).over
    assert next_probe(search, probes) is None


@given(noisy(), st.randoms(use_true_random=False))
def test_posterior_is_the_same_when_probes_come_in_another_order(
    case: tuple[Search, list[Probe]], rng: random.Random
) -> None:
    search, probes = case
    mixed = rng.sample(probes, len(probes))
    assert posterior(search, mixed) == posterior(search, probes)


@given(noisy())
def test_posterior_is_what_bayes_says_one_verdict_after_the_other(
    case: tuple[Search, list[Probe]],
) -> None:
    search, probes = replace(case[0], rules=1), case[1]
    beliefs = [1.0 / len(search.hypotheses)] * len(search.hypotheses)
    for number, verdict in probes:
        if verdict == "skip":
            continue
        beliefs = [
            belief * (1 - search.error if (number >= first) == (verdict == "bad") else search.error)
            for belief, first in zip(beliefs, search.hypotheses, strict=True)
        ]
        beliefs = [belief / sum(beliefs) for belief in beliefs]
    assert posterior(search, probes) == pytest.approx(beliefs, abs=1e-9)


@given(noisy())
def test_next_probe_has_not_been_skipped_and_is_asked_where_it_tells_something(
    case: tuple[Search, list[Probe]],
) -> None:
    search, probes = case
    number = next_probe(search, probes)
    if number is not None:
        assert (number, "skip") not in probes
        yes, no = ([*probes, (number, verdict)] for verdict in ("bad", "good"))
        assert posterior(search, yes) != posterior(search, no)
    else:
        assert standing(search, probes).over


def test_posterior_holds_when_there_are_thousands_of_verdicts() -> None:
    search = Search(suspects=32, error=0.01, rules=1)
    probes: list[Probe] = [(16, "good"), (17, "bad")] * 5_000
    assert posterior(search, probes)[16] == pytest.approx(1.0)
    for rules in (2, 3):
        estimating = posterior(replace(search, rules=rules), probes)
        assert max(estimating) == estimating[16]
        assert estimating[16] < 1.0  # however often a sticky checkpoint repeats its verdict
    assert luck(search, probes, 17)[0] == 0
    assert luck(search, probes, 17)[1] == pytest.approx(1.0)


def test_luck_is_small_when_verdicts_are_wrong_more_often_than_believed() -> None:
    search = Search(suspects=4, error=0.05)
    probes: list[Probe] = [(2, "bad"), (2, "good")] * 20
    assert luck(search, probes, 2)[0] == 20
    assert luck(search, probes, 2)[1] < 1e-9


def test_noisy_search_is_right_at_its_confidence_when_one_verdict_in_five_is_wrong() -> None:
    search, errors = Search(suspects=32, error=0.2, rules=1), Errors(rate=0.2)
    found = simulate(search, errors, trials=100, seed=1)
    assert found.right >= 0.95
    assert found.probes <= 25


def test_sure_search_goes_wrong_when_one_verdict_in_five_is_wrong() -> None:
    found = simulate(Search(suspects=32), Errors(rate=0.2), trials=100, seed=1)
    assert found.right < 0.5


STICKY = Errors(rate=0.2, sticky=1.0)


FLAKY = Errors(missed=0.7)  # good checkpoints never fail, and bad ones in 30% of probes


@pytest.mark.parametrize("errors", [Errors(missed=0.1), Errors(missed=0.5), FLAKY])
def test_first_checkpoint_of_a_flaky_fault_is_among_the_suspects_named(errors: Errors) -> None:
    found = simulate(Search(suspects=20, error=0.2), errors, trials=5, seed=4)
    assert found.right == 1.0
    assert found.claimed >= 0.95
    assert found.named <= 5


def test_first_bad_checkpoint_stays_a_suspect_when_it_looks_good_in_most_probes() -> None:
    """The 13th of 20 is the first bad one, and bad ones fail in 30% of probes."""
    said = {10: (0, 4), 12: (0, 12), 13: (2, 6), 14: (0, 5), 15: (1, 5), 16: (3, 5), 17: (1, 4)}
    probes: list[Probe] = []
    for number, (bad, good) in said.items():
        probes.extend([(number, "bad")] * bad)
        probes.extend([(number, "good")] * good)
    search = Search(suspects=20, error=0.2)
    beliefs = dict(zip(search.hypotheses, posterior(search, probes), strict=True))
    assert max(beliefs, key=beliefs.__getitem__) == 13
    before = posterior(replace(search, rules=2), probes)
    assert before[12] < 0.01  # what the third rules are for


def test_recorded_searches_of_earlier_rules_are_replayed_as_they_were() -> None:
    file = Path(__file__).parents[2] / "golden" / "bisections.json"
    for told in json.loads(file.read_text()):
        search = Search(**told["search"])
        parts = [text.split() for text in told["probes"]]
        probes: list[Probe] = [(int(number), verdict) for number, verdict in parts]
        for count, (number, _) in enumerate(probes):
            assert next_probe(search, probes[:count]) == number
            assert not standing(search, probes[:count]).over
        found = standing(search, probes)
        assert (found.likely, found.over) == (range(*told["likely"]), True)
        assert found.probability == pytest.approx(told["probability"], abs=1e-8)
        assert posterior(search, probes) == pytest.approx(told["posterior"], abs=1e-8)
        assert posterior(search, probes[:5]) == pytest.approx(told["after_five"], abs=1e-8)


@pytest.mark.parametrize(
    ("suspects", "given", "errors"), [(32, 0.2, STICKY), (200, 0.1, Errors(rate=0.2))]
)
def test_first_rules_state_more_than_is_right_when_the_given_errors_are_not_the_true_ones(
    suspects: int, given: float, errors: Errors
) -> None:
    """What the later rules are for."""
    search = Search(suspects=suspects, error=given, rules=1)
    found = simulate(search, errors, trials=60, seed=4)
    assert found.right < found.claimed - 0.08


def test_search_names_a_range_when_errors_of_a_checkpoint_repeat() -> None:
    search = Search(suspects=32, error=0.2)
    probes = simulate_one(search, 20, STICKY, rng=random.Random(1))
    found = standing(search, probes)
    assert found.over
    assert len(probes) <= 100
    assert 20 in found.likely
    assert 1 < len(found.likely) < 32
    assert found.probability >= 0.95


def test_wrong_rate_is_noticed() -> None:
    search = Search(suspects=32, error=0.05)
    probes = simulate_one(search, 20, Errors(rate=0.3), rng=random.Random(1))
    found = estimated(search, probes)
    assert found is not None
    assert found[0] == pytest.approx(0.3, abs=0.2)  # 0.05 was given
    assert found[1] == pytest.approx(0.3, abs=0.2)
    assert estimated(replace(search, rules=1), probes) is None


def test_false_alarms_and_missed_faults_are_told_apart() -> None:
    search = Search(suspects=20, error=0.2)
    found = estimated(search, simulate_one(search, 9, FLAKY, rng=random.Random(1)))
    assert found is not None
    assert found[0] == pytest.approx(0.0, abs=0.05)
    assert found[1] == pytest.approx(0.7, abs=0.2)


def test_independence_is_refuted_when_verdicts_of_a_checkpoint_repeat_and_not_otherwise() -> None:
    search = Search(suspects=8, error=0.3)
    sticky: list[Probe] = [(1, "bad"), (2, "good"), (3, "bad"), (4, "good"), (5, "bad")] * 6
    good: list[Probe]
    bad: list[Probe]
    good, bad = [(3, "good"), (3, "good"), (3, "bad")], [(5, "bad"), (5, "bad"), (5, "good")]
    found = [estimated(search, probes) for probes in (sticky, (good + bad) * 6)]
    assert [each[2] for each in found if each is not None] == [False, True]


def test_checkpoint_is_not_asked_twice_in_a_row_when_another_tells_half_as_much() -> None:
    search = Search(suspects=32, error=0.2)
    probes = simulate_one(search, 20, Errors(rate=0.2), rng=random.Random(1))
    in_a_row = sum(one == other for (one, _), (other, _) in pairwise(probes))
    assert in_a_row < len(probes) / 4


@pytest.mark.slow
@pytest.mark.parametrize("confidence", [0.95, 0.99])
def test_five_hundred_noisy_searches_are_right_within_fifty_probes_on_average(
    confidence: float,
) -> None:
    search = Search(suspects=32, error=0.2, confidence=confidence, rules=1)
    found = simulate(search, Errors(rate=0.2), trials=500, seed=3)
    assert found.right >= confidence - 0.01
    assert found.right >= 0.95
    assert found.probes <= 50
    assert found.claimed == pytest.approx(found.right, abs=0.02)


def plain_search(culprit: int, errors: Errors, rng: random.Random) -> tuple[int, bool]:
    """Return the probes of a plain Bayesian search of 20, and whether its answer is right.

    Two unknown rates, errors independent; false alarms are absent in half of all searches.
    """
    pairs = np.array(
        [
            (false, missed)
            for false in (0.001, 0.05, 0.1, 0.2, 0.3, 0.4)
            for missed in np.linspace(0.05, 0.85, 9)
            if false + missed < 0.95
        ]
    )
    absent = pairs[:, 0] == 0.001
    prior = np.where(absent, 1.0 / absent.sum(), 1.0 / (~absent).sum())
    numbers = np.arange(21)
    bad = numbers[None, :] >= numbers[1:, None]  # (hypotheses, numbers)
    said = np.where(bad, 1.0 - pairs[:, 1, None, None], pairs[:, 0, None, None])
    logs = np.tile(np.log(prior)[:, None], (1, 20))
    sticky = [rng.random() < errors.sticky for _ in numbers]
    first = [rng.random() < errors.of(bool(number >= culprit)) for number in numbers]

    def entropy(share: "np.typing.NDArray[np.float64]") -> "np.typing.NDArray[np.float64]":
        return -share * np.log2(share) - (1.0 - share) * np.log2(1.0 - share)

    count = 0
    while True:
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        beliefs = weights.sum(axis=0)
        if beliefs.max() >= 0.95 or count == 256:
            return count, int(beliefs.argmax()) + 1 == culprit
        mean = np.einsum("ph,phn->hn", weights, said) / beliefs[:, None]
        at = int(np.round(entropy(beliefs @ mean) - beliefs @ entropy(mean), 9).argmax())
        repeats = sticky[at] and rng.random() < errors.repeats
        wrong = first[at] if repeats else rng.random() < errors.of(at >= culprit)
        logs = logs + np.log(said[:, :, at] if (at >= culprit) != wrong else 1.0 - said[:, :, at])
        count += 1


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "errors"), list(enumerate(ROWS)), ids=repr)
def test_stated_probability_is_at_most_the_share_that_is_right(seed: int, errors: Errors) -> None:
    """And it takes at most twice the probes of a plain search, on the same errors."""
    found = simulate(Search(suspects=20, error=0.2), errors, trials=60, seed=seed)
    rng = random.Random(seed)
    plain = [plain_search(rng.randint(1, 20), errors, rng) for _ in range(180)]  # they scatter more
    probes, right = (sum(each) / len(plain) for each in zip(*plain, strict=True))
    print(f"{errors!r}: {found}; plain: {right:.2f} right after {probes:.1f}")
    assert found.right >= found.claimed - 2 * math.sqrt(0.05 * 0.95 / found.trials)
    assert found.probes <= 2.0 * probes
    assert found.most_probes <= 192


@pytest.mark.slow
@pytest.mark.parametrize("errors", [FLAKY, Errors(rate=0.2), Errors(rate=0.2, sticky=0.5)])
def test_stated_probability_holds_among_a_hundred_suspects(errors: Errors) -> None:
    trials = 40 if EXHAUSTIVE else 10
    found = simulate(Search(suspects=100, error=0.2), errors, trials=trials, seed=5)
    assert found.right >= found.claimed - 2 * math.sqrt(0.05 * 0.95 / found.trials)


@pytest.mark.slow
def test_second_rules_state_more_than_is_right_where_a_fault_shows_in_some_probes() -> None:
    search = Search(suspects=20, error=0.2, rules=2)
    found = simulate(search, FLAKY, trials=20, seed=5)
    assert found.right < found.claimed - 0.3
