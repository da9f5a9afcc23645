"""Which technique comes next follows from the record; what it writes stays in its section."""

from collections import Counter
from random import Random

import pytest

from policies.asking.prompt import quoted
from policies.proposing.tuner import (
    DISTILLATION,
    LADDER,
    LOST,
    TECHNIQUES,
    TIED,
    WON,
    Example,
    Pattern,
    Tally,
    Trial,
    choose,
    choose_model,
    choose_technique,
    rank_patterns,
    rewrite,
    scoreboard,
    temperature_after,
    usable_techniques,
)

TEXT = "# Playbook\n\nAct on what fires.\n\n## R2: batch size\n\nTwice, or half.\n"
GOLD = Example(
    mark="gold",
    rule="R2",
    side="low",
    direction="increase_batch_size",
    params={"batch_size": 64},
    justification="R2 is low at 0.2",
    entry=3,
    run="a",
)
OTHER = Example(
    mark="gold",
    rule="R7",
    side="high",
    direction="decrease_lr",
    params={"lr": 0.01},
    entry=5,
    run="b",
)
BAD = Example(
    mark="bad",
    rule="R2",
    side=None,
    direction="defer",
    note="it waited\nfor ever",
    entry=7,
    run="c",
)


def pattern(count: int = 1, *, kind: str = "violation", rule: str = "R2") -> Pattern:
    return Pattern(
        key=f"{kind} {rule}", kind=kind, count=count, says=f"no decision on {rule}", rule=rule
    )


def trial(technique: str, result: str = LOST, about: str = "violation R2") -> Trial:
    return Trial(technique=technique, pattern=about, result=result)


@pytest.mark.parametrize(
    ("count", "technique"),
    [
        (1, "negative_constraint"),
        (3, "one_shot"),
        (5, "few_shot"),
        (9, "few_shot"),
        (10, "chain_of_thought"),
    ],
)
def test_technique_is_the_stronger_the_more_often_it_went_wrong(count: int, technique: str) -> None:
    assert choose_technique(pattern(count), []) == technique


def test_form_comes_first_where_answers_have_none() -> None:
    assert choose_technique(pattern(12, kind="answer"), []) == "structured_template"


def test_another_history_makes_another_choice() -> None:
    elsewhere = "violation R5"
    lost = [trial("negative_constraint", LOST, elsewhere)]
    won = [trial("role_play", WON, elsewhere)]
    assert choose_technique(pattern(), []) == "negative_constraint"
    assert choose_technique(pattern(), lost) == "one_shot"
    assert choose_technique(pattern(), won) == "role_play"


def test_technique_that_lost_waits_until_every_other_was_tried_on_the_pattern() -> None:
    trials: list[Trial] = []
    chosen: list[str] = []
    for _ in range(2 * len(LADDER)):
        technique = choose_technique(pattern(), trials)
        assert technique is not None
        chosen.append(technique)
        trials.append(trial(technique))
    assert sorted(chosen[: len(LADDER)]) == sorted(LADDER)
    assert sorted(chosen[len(LADDER) :]) == sorted(LADDER)


def test_technique_that_lost_on_one_pattern_is_open_to_another() -> None:
    trials = [trial("negative_constraint", WON, "violation R5"), trial("negative_constraint")]
    assert choose_technique(pattern(rule="R5"), trials[1:]) != "negative_constraint"
    assert choose_technique(pattern(rule="R6"), trials) == "negative_constraint"


def test_scoreboard_counts_wins_losses_and_ties_of_every_technique() -> None:
    trials = [trial("few_shot", WON), trial("few_shot"), trial("few_shot", TIED), trial("one_shot")]
    board = scoreboard(trials)
    assert tuple(board) == TECHNIQUES
    few = board["few_shot"]
    assert (few.wins, few.losses, few.ties) == (1, 1, 1)
    assert board["one_shot"].rate < board["role_play"].rate == 0.5


def test_pattern_that_much_was_tried_on_makes_room_for_others() -> None:
    often, seldom = pattern(6), pattern(4, rule="R5")
    assert rank_patterns([seldom, often], []) == [often, seldom]
    assert rank_patterns([seldom, often], [trial("one_shot")]) == [seldom, often]


def test_nothing_is_chosen_when_everything_was_tried_and_nothing_comes_twice() -> None:
    trials = [trial(technique) for technique in LADDER]
    assert choose([pattern()], trials, again=False) is None
    again = choose([pattern()], trials)
    assert again is not None
    assert again.technique == "negative_constraint"
    assert choose([], []) is None


def test_examples_are_shown_only_where_people_have_marked_some_as_gold() -> None:
    assert not {"one_shot", "few_shot"} & set(usable_techniques(pattern(), [BAD]))
    assert "one_shot" in usable_techniques(pattern(), [GOLD])
    assert "few_shot" not in usable_techniques(pattern(), [GOLD])
    assert "few_shot" in usable_techniques(pattern(), [GOLD, OTHER])


@pytest.mark.parametrize("technique", LADDER)
def test_technique_adds_a_section_once_and_leaves_the_rest_as_it_is(technique: str) -> None:
    once = rewrite(technique, TEXT, pattern(), [GOLD, OTHER, BAD])
    assert once is not None
    assert once.startswith(TEXT)
    assert once.count("\n## ") == TEXT.count("\n## ") + 1
    assert rewrite(technique, once, pattern(), [GOLD, OTHER, BAD]) is None


def test_gold_becomes_an_example_with_its_side_and_values() -> None:
    text = rewrite("one_shot", TEXT, pattern(), [OTHER, GOLD])
    assert text is not None
    assert (
        '- R2 fired, side low: {"direction": "increase_batch_size", "params": {"batch_size": 64}}'
        in text
    ), "the example on the pattern's own rule comes first"


def test_bad_becomes_a_constraint_and_its_note_stays_on_one_line() -> None:
    text = rewrite("negative_constraint", TEXT, pattern(), [BAD])
    assert text is not None
    assert f"- Not `defer` for R2, because {quoted('it waited for ever', 80)}." in text


def test_constraints_pile_up_and_none_stands_twice() -> None:
    once = rewrite("negative_constraint", TEXT, pattern())
    assert once is not None
    twice = rewrite("negative_constraint", once, pattern(rule="R5"))
    assert twice is not None
    assert [line for line in twice.splitlines() if line.startswith("- Not again")] == [
        "- Not again: no decision on R2.",
        "- Not again: no decision on R5.",
    ]


def test_temperature_rises_while_proposals_are_rejected_and_falls_with_a_promotion() -> None:
    stall = ["rejected"] * 5
    assert temperature_after([*stall[1:], "superseded", "open"], 0.2) == 0.2
    assert temperature_after(stall, 0.2) == 0.4
    assert temperature_after([*stall, "halted", *stall], 0.2) == 0.6
    assert temperature_after(stall * 99, 0.2) == 1.4
    assert temperature_after(stall * 99, 1.9) == 1.9
    assert temperature_after([*stall, "promoted"], 0.2) == 0.2


def test_section_is_written_anew_in_its_place() -> None:
    first = rewrite("one_shot", "# Text\n", pattern(), [GOLD])
    assert first is not None
    behind = first + "\n## More\n\nStays.\n"
    again = rewrite("one_shot", behind, pattern(rule="R7"), [GOLD, OTHER])
    assert again is not None
    assert "- R7 fired" in again
    assert "- R2 fired" not in again
    assert again.endswith("\n\n## More\n\nStays.\n")


def test_distillation_is_the_distillers() -> None:
    padded = "# T\n\nKeep `this`. " + "What was said before is said again in other words. " * 9
    shorter = rewrite(DISTILLATION, padded, pattern())
    assert shorter is not None
    assert len(shorter) <= 0.85 * len(padded)


def test_model_that_wins_more_often_is_asked_more_often() -> None:
    """And the same model is asked by whoever has the same record and seed."""
    shares = {"good": 0.4, "weak": 0.1, "idle": 0.0}
    draw = Random(1)
    tallies = dict.fromkeys(shares, Tally())
    asked = Counter[str]()
    for number in range(300):
        name = choose_model(shares, tallies, seed=f"round {number}")
        assert name == choose_model(shares, dict(tallies), seed=f"round {number}")
        won = draw.random() < shares[name]
        before = tallies[name]
        tallies[name] = Tally(wins=before.wins + won, losses=before.losses + (not won))
        asked[name] += 1
    assert asked["good"] > 200, asked
    assert min(asked.values()) > 2, "each was given a chance"


def test_models_without_a_record_are_asked_in_turns_of_chance() -> None:
    asked = Counter(choose_model(["a", "b"], {}, seed=str(number)) for number in range(200))
    assert 70 < asked["a"] < 130
