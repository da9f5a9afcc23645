"""Each kind of violation on tables filled by hand, and beside it what nearly is one and is none."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import duckdb
import pytest

from aggregates.playbook import ARCHITECTURE_CHANGE, HYPERPARAMETER_CHANGE, NO_ACTION
from aggregates.rulebook import PRECEDENCE
from aggregates.rules import CALIBRATED, DOCUMENT, RulesConfig
from judge.auditing.coverage import Coverage, Violation, create_inputs, measure_coverage
from projections.projector import create_schema
from projections.template import copied

RUN = "a run"


class Story:
    """A run told in rows."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection
        self.decisions = 0

    def begin(
        self,
        *,
        epochs: int,
        fired: dict[str, set[int]],
        waived: tuple[str, ...] = (),
        profile: RulesConfig = CALIBRATED,
    ) -> None:
        config, rules = json.dumps({"waived": list(waived)}), json.dumps(asdict(profile))
        self.connection.execute(
            "INSERT INTO log.run_starts BY NAME SELECT ? AS run_id, 0 AS idx, ? AS config,"
            " 'h' AS config_hash, ? AS rules, 'h' AS rules_hash, '{}' AS spec, '{}' AS policy,"
            " ? AS data, '{}' AS environment",
            [RUN, config, rules, json.dumps({"sizes": {"train": 1_000}})],
        )
        rows = [
            (epoch, rule, epoch in fired.get(rule, ()), precedence)
            for epoch in range(epochs)
            for precedence, rule in enumerate(PRECEDENCE, start=1)
        ]
        self.connection.execute(
            "INSERT INTO log.rule_evaluations SELECT ?, unnest(?), 0, unnest(?), unnest(?),"
            " NULL, NULL, NULL, 0, unnest(?)",
            [RUN, *map(list, zip(*rows, strict=True))],
        )

    def decide(
        self,
        epoch: int,
        *rules: str,
        direction: str = "defer",
        outcome: str | None = None,
        source: str = "policy",
    ) -> None:
        self.decisions += 1
        kind = {"defer": NO_ACTION, "add_norm": ARCHITECTURE_CHANGE}.get(
            direction, HYPERPARAMETER_CHANGE
        )
        self.connection.execute(
            "INSERT INTO log.decisions (run_id, number, epoch, idx, source, event_type, direction,"
            " params, justification) VALUES (?, ?, ?, 0, ?, ?, ?, '{}', 'words')",
            [RUN, self.decisions, epoch, source, kind, direction],
        )
        for rule in rules:
            self.connection.execute(
                "INSERT INTO log.citations VALUES (?, ?, 0, ?)", [RUN, self.decisions, rule]
            )
        if outcome is not None:
            self.connection.execute(
                "INSERT INTO log.remedies (run_id, decision, epoch, idx, outcome)"
                " VALUES (?, ?, ?, 0, ?)",
                [RUN, self.decisions, epoch, outcome],
            )

    def act(
        self, epoch: int, *rules: str, direction: str = "stop", outcome: str = "applied"
    ) -> None:
        self.decide(epoch, *rules, direction=direction, outcome=outcome)

    def in_force(self, lr: float = 0.1, batch_size: int = 8, accumulation: int = 1) -> None:
        """Record the settings of every epoch."""
        self.connection.execute(
            "INSERT INTO log.epochs BY NAME SELECT DISTINCT run_id, epoch, 0 AS idx, ? AS lr,"
            " ? AS batch_size, ? AS accumulation, '{}' AS reported FROM log.rule_evaluations",
            [lr, batch_size, accumulation],
        )

    def end(self, reason: str) -> None:
        self.connection.execute(
            "INSERT INTO log.run_ends VALUES (?, 9, ?, '', '{}', 'hash')", [RUN, reason]
        )

    def measure(self) -> Coverage:
        return measure_coverage(self.connection, RUN)

    def found(self) -> list[tuple[str, str | None, int | None, str]]:
        return [(v.kind, v.rule, v.epoch, v.emitter) for v in self.measure().violations]


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:", config={"threads": 1}) as connection:  # as the judge has it
        copied(connection, create_schema)
        create_inputs(connection)
        yield connection


@pytest.fixture
def story(connection: duckdb.DuckDBPyConnection) -> Iterator[Story]:
    connection.begin()
    yield Story(connection)
    connection.rollback()


def test_coverage_is_empty_when_no_rule_fires(story: Story) -> None:
    story.begin(epochs=3, fired={})
    story.end("completed")
    assert story.measure() == Coverage((), {}, 0, (), tested=0, remedied=False)


def test_coverage_counts_firings_and_answers_when_one_decision_answers_several(
    story: Story,
) -> None:
    story.begin(epochs=9, fired={"R1": {2, 3, 4, 7}, "R2": {4}}, waived=("R2",))
    story.act(3, "R1")
    story.end("stopped")
    coverage = story.measure()
    assert (len(coverage.firings), coverage.answered, coverage.rules_answered) == (4, 3, ("R1",))
    assert (coverage.waived, coverage.excused) == (1, 0)


def test_coverage_tells_firings_that_could_be_put_off_from_those_that_needed_an_answer(
    story: Story,
) -> None:
    story.begin(epochs=9, fired={"R7": {2, 3}, "R1": {2, 3}, "R3": {5}}, waived=("R3",))
    for epoch in (2, 3):
        story.act(epoch, "R7")
        story.decide(epoch, "R1")  # R1 may wait while R7 fires
    story.end("completed")
    coverage = story.measure()
    assert (len(coverage.firings), coverage.excused, coverage.waived) == (2, 2, 1)
    assert coverage.answered == 2


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("epoch", "missing"), [(2, False), (6, False), (1, True), (7, True)])
def test_missing_decision_is_found_when_none_is_within_two_epochs(
    story: Story, epoch: int, missing: bool
) -> None:
    story.begin(epochs=9, fired={"R7": {0, 4}, "R1": set()})
    story.act(0, "R7")
    story.act(epoch, "R7")
    story.end("completed")
    kinds = [entry for entry in story.found() if entry[0] == "missing_decision"]
    assert kinds == ([("missing_decision", "R7", 4, "policy")] if missing else [])


def test_missing_decision_is_none_when_the_rule_is_waived(story: Story) -> None:
    story.begin(epochs=4, fired={"R7": {1, 2}}, waived=("R7",))
    story.end("completed")
    assert story.found() == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize("reason", ["crashed", "failed", "interrupted", None])
def test_missing_decision_is_the_harness_s_when_the_run_broke_off_before_an_answer(
    story: Story, reason: str | None
) -> None:
    story.begin(epochs=4, fired={"R7": {3}})
    if reason:
        story.end(reason)
    assert story.found() == [("missing_decision", "R7", 3, "harness")]


def test_missing_decision_is_the_policy_s_when_it_answered_another_rule_in_the_last_epoch(
    story: Story,
) -> None:
    story.begin(epochs=4, fired={"R7": {3}, "R1": {3}})
    story.act(3, "R7")
    story.end("crashed")
    assert story.found() == [("missing_decision", "R1", 3, "policy")]


@pytest.mark.parametrize(("acted", "other", "missing"), [("R4", "R1", []), ("R4", "R6", ["R6"])])
def test_missing_decision_is_none_when_a_restart_for_a_rule_that_goes_first_closed_the_epoch(
    story: Story, acted: str, other: str, missing: list[str]
) -> None:
    story.begin(epochs=4, fired={acted: {3}, other: {3}})
    story.act(3, acted, direction="add_block", outcome="restart")
    story.end("restart")
    assert [rule for kind, rule, _, _ in story.found() if kind == "missing_decision"] == missing


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("fired", "is_false"), [(2, False), (4, False), (1, True), (5, True)])
def test_false_citation_is_found_when_the_rule_fired_in_none_of_the_last_epochs(
    story: Story, fired: int, is_false: bool
) -> None:
    story.begin(epochs=7, fired={"R1": {fired}})
    story.decide(4, "R1", source="human")
    story.end("completed")
    false = [entry for entry in story.found() if entry[0] == "false_citation"]
    assert false == ([("false_citation", "R1", 4, "human")] if is_false else [])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("source", ["policy", "driver", "human"])
def test_unresolved_deferral_of_whoever_said_it_is_found_when_the_rule_fires_on_to_the_limit(
    story: Story, source: str
) -> None:
    story.begin(epochs=12, fired={"R1": set(range(2, 12))})
    story.decide(2, "R1", source=source)
    story.end("completed")
    assert ("unresolved_deferral", "R1", 2, source) in story.found()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("source", "tested"), [("policy", 2), ("human", 2), ("driver", 0)])
def test_firing_that_only_the_driver_speaks_of_is_no_missing_decision_and_no_test(
    story: Story, source: str, tested: int
) -> None:
    story.begin(epochs=5, fired={"R1": {2, 3}})
    for epoch in (2, 3):
        story.decide(epoch, "R1", source=source)
    story.end("completed")
    coverage = story.measure()
    assert (coverage.violations, coverage.answered, coverage.tested) == ((), 2, tested)


def test_deferrals_of_one_rule_are_told_apart_by_who_said_them(story: Story) -> None:
    story.begin(epochs=12, fired={"R1": set(range(2, 12))})
    for epoch, source in ((2, "policy"), (3, "driver"), (4, "human")):
        story.decide(epoch, "R1", source=source)
    story.end("completed")
    found = [entry for entry in story.found() if entry[0] == "unresolved_deferral"]
    assert [(epoch, emitter) for _, _, epoch, emitter in found] == [
        (2, "policy"),
        (3, "driver"),
        (4, "human"),
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("silent", "unresolved"), [(3, False), (9, False), (10, True)])
def test_unresolved_deferral_is_none_when_the_rule_falls_silent_within_the_limit(
    story: Story, silent: int, unresolved: bool
) -> None:
    story.begin(epochs=12, fired={"R1": set(range(2, 12)) - {silent}})
    story.decide(2, "R1")
    story.end("completed")
    assert ("unresolved_deferral" in [kind for kind, *_ in story.found()]) is unresolved


@pytest.mark.parametrize(
    ("epoch", "outcome", "unresolved"),
    [
        (9, "applied", []),
        (2, "applied", []),
        (5, "restart", []),
        (10, "applied", ["policy"]),
        (5, "refused", ["harness", "harness"]),  # the deferral, and the remedy that was none
    ],
)
def test_unresolved_deferral_depends_on_a_remedy_that_takes_effect_within_the_limit(
    story: Story, epoch: int, outcome: str, unresolved: list[str]
) -> None:
    story.begin(epochs=12, fired={"R1": set(range(2, 12))})
    story.decide(2, "R1")
    story.act(epoch, "R1", direction="decrease_lr", outcome=outcome)
    story.end("completed")
    found = [entry[3] for entry in story.found() if entry[0] == "unresolved_deferral"]
    assert found == unresolved


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("reason", "count"), [("stopped", 0), ("restart", 0), ("completed", 1)])
def test_unresolved_deferral_is_none_when_the_training_is_stopped_within_the_limit(
    story: Story, reason: str, count: int
) -> None:
    story.begin(epochs=10, fired={"R1": set(range(2, 10))})
    story.decide(2, "R1")
    story.end(reason)
    assert [kind for kind, *_ in story.found()].count("unresolved_deferral") == count


def test_unresolved_deferral_is_found_when_the_stop_comes_behind_the_limit(story: Story) -> None:
    story.begin(epochs=11, fired={"R1": set(range(2, 11))})
    story.decide(2, "R1")
    story.end("stopped")
    assert ("unresolved_deferral", "R1", 2, "policy") in story.found()


@pytest.mark.parametrize(
    ("others", "unresolved"),
    [
        ({2, 3, 4, 5}, False),  # something else went on to the end
        ({3}, False),  # or within the action window
        ({2}, True),  # in epoch 5 the rule had its turn
    ],
)
def test_unresolved_deferral_in_a_run_that_ends_early_depends_on_whether_the_rule_had_its_turn(
    story: Story, others: set[int], unresolved: bool
) -> None:
    story.begin(epochs=6, fired={"R1": {2, 3, 4, 5}, "R5": others})
    story.decide(2, "R1")
    for epoch in others:
        story.act(epoch, "R5", direction="swap_activation")
    story.end("completed")
    assert ("unresolved_deferral" in [kind for kind, *_ in story.found()]) is unresolved


@pytest.mark.parametrize(("profile", "violated"), [(DOCUMENT, False), (CALIBRATED, True)])
def test_average_that_lags_behind_a_remedy_excuses_deferrals_only_where_it_goes_on_through_it(
    story: Story, profile: RulesConfig, violated: bool
) -> None:
    story.begin(epochs=11, fired={"R2": {4, 7, 8, 9, 10}}, profile=profile)
    story.act(4, "R2", direction="increase_batch_size")
    for epoch in range(7, 11):
        story.decide(epoch, "R2")
    story.end("completed")
    assert (("unresolved_deferral", "R2", 7, "policy") in story.found()) is violated
    assert bool(story.found()) is violated


def test_unresolved_deferral_is_none_when_the_rule_is_waived(story: Story) -> None:
    story.begin(epochs=12, fired={"R2": set(range(12))}, waived=("R2",))
    story.decide(2, "R2")
    story.end("completed")
    assert story.found() == []


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("first", "second"), list(pairwise(PRECEDENCE)))
def test_precedence_is_violated_when_a_rule_that_goes_first_is_left_alone(
    story: Story, first: str, second: str
) -> None:
    story.begin(epochs=4, fired={first: {3}, second: {3}})
    story.act(3, second)
    story.decide(3, first)
    story.end("completed")
    assert ("precedence", first, 3, "policy") in story.found()


@pytest.mark.parametrize(
    ("epoch", "outcome", "violated"),
    [
        (10, "applied", False),  # acted on in the same epoch
        (10, "refused", False),  # which the harness refused: the policy kept the order
        (3, "applied", False),  # its average lags
        (3, "refused", True),
        (2, "applied", True),  # too long ago for a lag
    ],
)
def test_precedence_is_kept_when_the_rule_that_goes_first_was_acted_on(
    story: Story, epoch: int, outcome: str, violated: bool
) -> None:
    fired = {"R5": set(range(2, 11)), "R2": {10}}
    story.begin(epochs=11, fired=fired, profile=DOCUMENT)
    story.act(epoch, "R5", direction="swap_activation", outcome=outcome)
    story.act(10, "R2", direction="increase_batch_size")
    story.end("completed")
    assert ("precedence" in [kind for kind, *_ in story.found()]) is violated


def test_remedies_that_are_always_refused_answer_nothing_is_rejected(story: Story) -> None:
    story.begin(epochs=12, fired={"R1": set(range(2, 12))})
    for epoch in range(2, 12):
        story.act(epoch, "R1", direction="decrease_lr", outcome="refused")
    story.end("completed")
    found = story.measure()
    assert [v.epoch for v in found.violations if v.kind == "unresolved_deferral"][:3] == [2, 3, 4]
    assert "R1, whose remedy was refused in decision 1" in found.violations[0].detail
    assert not found.remedied


@pytest.mark.parametrize(
    ("cited", "waived", "emitter"),
    [
        (("R1",), (), "harness"),  # the control: all that it cites fired
        (("R1", "R5"), (), "policy"),
        (("R1", "R3"), ("R3",), "policy"),  # a waived rule, which accuses nobody by itself
    ],
)
def test_remedy_that_is_refused_for_a_false_citation_is_held_against_its_author(
    story: Story, cited: tuple[str, ...], waived: tuple[str, ...], emitter: str
) -> None:
    story.begin(epochs=12, fired={"R1": set(range(2, 12))}, waived=waived)
    story.act(2, *cited, direction="decrease_lr", outcome="refused")
    story.end("completed")
    found = story.found()
    assert ("unresolved_deferral", "R1", 2, emitter) in found
    assert (("false_citation", "R5", 2, "policy") in found) is ("R5" in cited)


def test_refusal_of_the_harness_stays_its_own_beside_one_for_a_false_citation(story: Story) -> None:
    story.begin(epochs=12, fired={"R1": set(range(2, 12))})
    story.act(2, "R1", "R5", direction="decrease_lr", outcome="refused")
    story.act(4, "R1", direction="decrease_lr", outcome="refused")
    story.end("completed")
    found = [entry[2:] for entry in story.found() if entry[0] == "unresolved_deferral"]
    assert found == [(2, "harness"), (4, "harness")]


def test_unresolved_deferral_is_none_when_a_refused_remedy_is_followed_by_one_that_works(
    story: Story,
) -> None:
    story.begin(epochs=12, fired={"R1": {2, 3}})
    story.act(2, "R1", direction="decrease_lr", outcome="refused")
    story.act(3, "R1", direction="decrease_lr")
    story.end("completed")
    assert story.found() == []
    assert story.measure().remedied


def test_other_remedies_that_are_refused_excuse_no_deferral_is_rejected(story: Story) -> None:
    story.begin(epochs=5, fired={"R1": {2, 3, 4}, "R5": {2, 3, 4}})
    story.decide(2, "R1")
    for epoch in (2, 3, 4):
        story.act(epoch, "R5", direction="swap_activation", outcome="refused")
    story.end("completed")
    assert ("unresolved_deferral", "R1", 2, "policy") in story.found()


@pytest.mark.parametrize(
    ("epochs", "acted", "tested", "remedied"),
    [
        (5, "decrease_lr", 2, True),
        (5, "defer", 2, False),
        (4, "decrease_lr", 1, False),  # in the last epoch a remedy has nothing to change
    ],
)
def test_run_is_put_to_the_test_by_what_has_an_epoch_after_it(
    story: Story, epochs: int, acted: str, tested: int, remedied: bool
) -> None:
    story.begin(epochs=epochs, fired={"R1": {2, 3}})
    story.decide(2, "R1")
    story.decide(3, "R1", direction=acted, outcome=None if acted == "defer" else "applied")
    story.end("completed")
    coverage = story.measure()
    assert (len(coverage.firings), coverage.answered) == (2, 2)
    assert (coverage.tested, coverage.remedied) == (tested, remedied)


@pytest.mark.parametrize(("side", "violated"), [("high", False), ("low", False), ("plateau", True)])
def test_precedence_lets_r1_act_before_capacity_while_the_update_ratio_is_out_of_its_band(
    story: Story, side: str, violated: bool
) -> None:
    story.begin(epochs=4, fired={"R1": {2}, "R4": {2}})
    story.connection.execute("UPDATE log.rule_evaluations SET side = ? WHERE rule = 'R1'", [side])
    story.act(2, "R1", direction="decrease_lr")
    story.decide(2, "R4")
    story.end("completed")
    assert ("precedence" in [kind for kind, *_ in story.found()]) is violated


@pytest.mark.parametrize(("epoch", "violated"), [(5, False), (6, True)])
def test_precedence_leaves_three_epochs_to_a_remedy_of_r1_before_capacity(
    story: Story, epoch: int, violated: bool
) -> None:
    story.begin(epochs=8, fired={"R1": {2}, "R2": {epoch}, "R4": {epoch}})
    story.act(2, "R1", direction="decrease_lr")
    story.act(epoch, "R2", direction="increase_batch_size")
    story.decide(epoch, "R4")
    story.end("completed")
    assert ("precedence" in [kind for kind, *_ in story.found()]) is violated


def complete(*, norm: str = "batch", residual: bool = True, blocks: int = 2, width: int = 8) -> str:
    block = {"norm": norm, "residual": residual, "width": width, "activation": "relu"}
    return json.dumps({"norm": "batch", "blocks": [block] * blocks})


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("spec", "swapped", "violated"),
    [
        (complete(), True, False),
        (complete(), False, True),
        (complete(norm="none"), True, True),
        (complete(residual=False), True, True),
        ("{}", True, True),
    ],
)
def test_r6_may_be_deferred_for_good_once_it_has_had_all_remedies(
    story: Story, spec: str, swapped: bool, violated: bool
) -> None:
    story.begin(epochs=12, fired={"R6": {0, *range(2, 12)}, "R1": {5}})
    story.connection.execute("UPDATE log.run_starts SET spec = ?", [spec])
    story.in_force(lr=0.1)
    if swapped:
        story.act(0, "R6", direction="swap_activation")
    for epoch in range(2, 12):
        story.decide(epoch, "R6")
    story.act(5, "R1", direction="increase_lr")
    story.end("completed")
    kinds = {kind for kind, *_ in story.found()}
    assert ("unresolved_deferral" in kinds) is violated
    assert ("caveat" in kinds) is violated


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("rule", "side", "settings", "violated"),
    [
        ("R7", "high", {"lr": 9e-8}, False),
        ("R7", "high", {"lr": 2e-7}, True),
        ("R1", "low", {"lr": 4.0}, False),
        ("R1", "low", {"lr": 3.0}, True),
        ("R1", "high", {"lr": 2e-8}, False),
        ("R1", "plateau", {"lr": 4e-8}, True),
        ("R2", "high", {"batch_size": 1}, False),
        ("R2", "high", {"batch_size": 2}, True),
        ("R2", "low", {"batch_size": 64, "accumulation": 8}, False),
        ("R2", "low", {"batch_size": 64, "accumulation": 4}, True),
        ("R3", "plateau", {}, True),
        ("R5", "high", {}, True),
    ],
)
def test_a_rule_whose_remedy_is_at_its_limit_may_be_deferred_and_holds_up_no_other(
    story: Story, rule: str, side: str, settings: dict[str, Any], violated: bool
) -> None:
    story.begin(epochs=12, fired={"R3": {3}, rule: set(range(12))})
    story.connection.execute("UPDATE log.rule_evaluations SET side = ? WHERE fired", [side])
    story.in_force(**settings)
    for epoch in range(12):
        story.decide(epoch, rule)
    if rule != "R3":
        story.act(3, "R3", direction="stop")
    story.end("completed")
    kinds = {kind for kind, found, *_ in story.found() if found == rule}
    assert ("unresolved_deferral" in kinds) is violated
    assert ("precedence" in kinds) is (violated and rule != "R3")


@pytest.mark.parametrize(
    ("direction", "epoch", "violated"),
    [("add_norm", 4, False), ("add_norm", 1, True), ("decrease_lr", 4, True)],
)
def test_plateau_may_be_deferred_behind_a_change_of_the_model(
    story: Story, direction: str, epoch: int, violated: bool
) -> None:
    story.begin(epochs=12, fired={"R1": {9, 10, 11}, "R6": {epoch}})
    story.connection.execute("UPDATE log.rule_evaluations SET side = 'plateau' WHERE rule = 'R1'")
    story.in_force()
    story.act(epoch, "R6", direction=direction)
    for deferred in (9, 10, 11):
        story.decide(deferred, "R1")
    story.end("completed")
    assert ("unresolved_deferral" in [kind for kind, *_ in story.found()]) is violated


@pytest.mark.parametrize(("exploding", "violated"), [(set(range(12)), False), ({0}, True)])
def test_r1_may_be_deferred_while_gradients_explode(
    story: Story, exploding: set[int], violated: bool
) -> None:
    story.begin(epochs=12, fired={"R7": exploding, "R1": set(range(12))})
    story.in_force()
    story.act(0, "R7", direction="decrease_lr")
    for epoch in range(12):
        story.decide(epoch, "R1")
    story.end("completed")
    assert (("unresolved_deferral", "R1") in [v[:2] for v in story.found()]) is violated


@pytest.mark.parametrize(("exploding", "violated"), [(set(range(3, 12)), False), ({3, 4, 5}, True)])
def test_deferral_holds_if_the_rule_may_be_left_alone_in_every_later_epoch(
    story: Story, exploding: set[int], violated: bool
) -> None:
    story.begin(epochs=10, fired={"R5": {2}, "R7": exploding, "R1": set(range(2, 12))})
    story.in_force()
    story.act(2, "R5", direction="swap_activation")
    story.decide(2, "R1")
    story.end("completed")
    assert (("unresolved_deferral", "R1", 2, "policy") in story.found()) is violated


@pytest.mark.parametrize(("epoch", "violated"), [(8, False), (9, True)])
def test_remedy_in_the_last_epoch_clears_no_deferral_of_a_rule_that_had_its_turn_is_rejected(
    story: Story, epoch: int, violated: bool
) -> None:
    story.begin(epochs=10, fired={"R1": set(range(2, 10))})
    story.decide(2, "R1")
    story.act(epoch, "R1", direction="decrease_lr")
    story.end("completed")
    assert (("unresolved_deferral", "R1", 2, "policy") in story.found()) is violated


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("clip_norm", "violated"), [(1.0, False), (1e6, True), (None, True)])
def test_r7_may_be_deferred_after_its_remedy_while_gradients_are_clipped(
    story: Story, clip_norm: float | None, violated: bool
) -> None:
    story.begin(epochs=9, fired={"R7": set(range(9)), "R2": {6}})
    side(story, "R7", "high")
    story.in_force()
    story.connection.execute("UPDATE log.epochs SET clip_norm = ?", [clip_norm])
    story.connection.execute("UPDATE log.epochs SET max_layer_grad_norm = 5")
    story.act(0, "R7", direction="decrease_lr")
    story.act(6, "R2", direction="increase_batch_size")
    story.end("completed")
    assert (("precedence", "R7", 6, "policy") in story.found()) is violated


@pytest.mark.parametrize(("blocks", "width", "violated"), [(32, 1024, False), (32, 8, True)])
def test_capacity_may_be_deferred_once_the_model_is_as_large_as_it_can_be(
    story: Story, blocks: int, width: int, violated: bool
) -> None:
    story.begin(epochs=12, fired={"R4": set(range(12))})
    spec = complete(blocks=blocks, width=width)
    story.connection.execute("UPDATE log.run_starts SET spec = ?", [spec])
    story.in_force()
    for epoch in range(12):
        story.decide(epoch, "R4")
    story.end("completed")
    assert bool(story.found()) is violated


def side(story: Story, rule: str, value: str) -> None:
    story.connection.execute(
        "UPDATE log.rule_evaluations SET side = ? WHERE rule = ? AND fired", [value, rule]
    )


def params(story: Story, value: dict[str, Any]) -> None:
    story.connection.execute(
        "UPDATE log.decisions SET params = ? WHERE number = ?",
        [json.dumps(value), story.decisions],
    )


def test_swaps_back_and_forth_excuse_no_plateau_is_rejected(story: Story) -> None:
    fired = {"R6": set(range(2, 60)), "R1": set(range(8, 60)), "R3": set(range(10, 60))}
    story.begin(epochs=60, fired=fired)
    side(story, "R1", "plateau")
    side(story, "R3", "plateau")
    story.in_force()
    story.connection.execute("UPDATE log.run_starts SET spec = ?", [complete()])
    for epoch in range(2, 60):
        if epoch == 2 or epoch % 7 == 0:
            story.act(epoch, "R6", direction="swap_activation")
            params(story, {"to": ("leaky_relu", "relu")[epoch % 2], "block": 0})
        else:
            story.decide(epoch, "R6")
        for rule in ("R1", "R3"):
            if epoch in fired[rule]:
                story.decide(epoch, rule)
    story.end("completed")
    assert len(story.found()) > 80


def test_fresh_weights_for_a_plateau_excuse_no_plateau_is_rejected(story: Story) -> None:
    lowered = set(range(8, 60, 8))
    story.begin(epochs=60, fired={"R1": lowered, "R3": set(range(9, 60))})
    side(story, "R1", "plateau")
    side(story, "R3", "plateau")
    story.in_force()
    for epoch in range(8, 60):
        if epoch in lowered:
            story.act(epoch, "R1", direction="decrease_lr")
            params(story, {"lr": 0.01, "reinitialise": True})
        if epoch >= 9:
            story.decide(epoch, "R3")
    story.end("completed")
    assert len(story.found()) > 40


def test_capacity_may_be_deferred_while_r1_brings_the_rate_back(story: Story) -> None:
    story.begin(epochs=15, fired={"R1": {2, 5, 8, 11, 14}, "R4": set(range(3, 15))})
    side(story, "R1", "low")
    story.in_force(lr=1e-6)
    for epoch in range(2, 15):
        if epoch % 3 == 2:
            story.act(epoch, "R1", direction="increase_lr")
        if epoch > 2:
            story.decide(epoch, "R4")
    story.end("completed")
    assert story.found() == []


def test_plateau_deferred_in_the_epoch_of_the_change_is_excused_in_a_short_run(
    story: Story,
) -> None:
    story.begin(epochs=13, fired={"R5": {8}, "R1": set(range(8, 13))})
    side(story, "R1", "plateau")
    story.in_force()
    story.act(8, "R5", direction="add_norm")
    for epoch in range(8, 13):
        story.decide(epoch, "R1")
    story.end("completed")
    assert story.found() == []


@pytest.mark.parametrize(("waived", "violated"), [((), False), (("R7",), True)])
def test_a_waived_rule_excuses_no_other(
    story: Story, waived: tuple[str, ...], violated: bool
) -> None:
    every = set(range(12))
    story.begin(epochs=12, fired={"R7": every, "R1": every}, waived=waived)
    side(story, "R1", "high")
    story.in_force()
    story.act(0, "R7", direction="decrease_lr")
    for epoch in every:
        story.decide(epoch, "R1")
    story.end("completed")
    assert (("unresolved_deferral", "R1") in [v[:2] for v in story.found()]) is violated


@pytest.mark.parametrize(("size", "obligations"), [(62, 12), (63, 0)])
def test_what_may_be_left_alone_is_no_obligation_once_deferred(
    story: Story, size: int, obligations: int
) -> None:
    story.begin(epochs=12, fired={"R2": set(range(12))})
    side(story, "R2", "high")
    story.in_force(batch_size=size)
    for epoch in range(12):
        story.decide(epoch, "R2")
    story.end("completed")
    measured = story.measure()
    assert (len(measured.firings), measured.tested > 0) == (obligations, obligations > 0)


def test_what_may_be_left_alone_still_wants_an_answer(story: Story) -> None:
    story.begin(epochs=12, fired={"R2": {3}})
    side(story, "R2", "high")
    story.in_force(batch_size=63)
    story.end("completed")
    assert [v[0] for v in story.found()] == ["missing_decision"]
    assert len(story.measure().firings) == 1


def test_precedence_is_kept_when_the_rule_that_goes_first_is_waived(story: Story) -> None:
    story.begin(epochs=4, fired={"R5": {3}, "R2": {3}}, waived=("R5",))
    story.act(3, "R2", direction="increase_batch_size")
    story.end("completed")
    assert story.found() == []


@pytest.mark.parametrize(
    ("rule", "direction", "violated"),
    [
        ("R1", "decrease_lr", True),
        ("R1", "warm_up_lr", True),
        ("R7", "decrease_lr", False),  # its own remedy
        ("R2", "increase_batch_size", False),
    ],
)
def test_caveat_is_violated_when_the_learning_rate_moves_while_gradients_explode(
    story: Story, rule: str, direction: str, violated: bool
) -> None:
    story.begin(epochs=4, fired={"R7": {3}, "R1": {3}, "R2": {3}})
    story.act(3, "R7", direction="decrease_lr")
    story.act(3, rule, direction=direction)
    story.end("completed")
    assert (("caveat", "R1", 3, "policy") in story.found()) is violated


@pytest.mark.parametrize(
    ("epoch", "outcome", "violated"),
    [(5, "applied", True), (4, "applied", True), (3, "applied", False), (4, "refused", False)],
)
def test_caveat_is_violated_when_the_batch_size_does_not_wait_for_the_learning_rate(
    story: Story, epoch: int, outcome: str, violated: bool
) -> None:
    story.begin(epochs=6, fired={"R1": {3, 4, 5}, "R2": {5}})
    story.act(epoch, "R1", direction="decrease_lr", outcome=outcome)
    story.act(5, "R2", direction="increase_batch_size")
    story.end("completed")
    assert (("caveat", "R2", 5, "policy") in story.found()) is violated


def test_violation_says_what_happened_in_words(story: Story) -> None:
    story.begin(epochs=4, fired={"R7": {1}})
    story.end("completed")
    assert story.measure().violations == (
        Violation(
            kind="missing_decision",
            rule="R7",
            epoch=1,
            decision=None,
            emitter="policy",
            detail="R7 fired in epoch 1 and no decision within 2 epochs cites it",
        ),
    )
