"""The run's invariants: order of calls, one start and one end, decisions within their window."""

from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from aggregates.decisions import Decision
from aggregates.errors import InvariantError, MeasurementError
from aggregates.firing import evaluate_rules
from aggregates.playbook import DEFER, NO_ACTION
from aggregates.registry import REGISTRY
from aggregates.rules import CALIBRATED
from aggregates.run import Run
from aggregates.spec import BlockSpec, Edit, ModelSpec, apply_edit
from ledger.application import LedgerApplication

SPEC = ModelSpec(10, 8, 2, (BlockSpec(8, True, "batch", "relu"),), "batch", "relu")


def start(**config: Any) -> Run:
    return Run.start(
        config=config,
        rules=CALIBRATED.to_dict(),
        spec=SPEC.to_dict(),
        data={},
        environment={},
        policy={"name": "test"},
    )


def measured(*, finite: bool = True, dead: int = 0, loss: float = 1.0) -> dict[str, Any]:
    return {
        "train": {"loss": loss, "accuracy": 0.5, "examples": 10, "steps": 2},
        "validation": {"loss": loss, "accuracy": 0.5, "examples": 10},
        "gradients": {"finite": finite, "signal_to_noise": 1.0, "norm_noise_scale": 60.0},
        "layers": [
            {
                "name": "stem",
                "rank": 4,
                "grad_norm": 1.0,
                "update_ratio": 1e-3,
                "epoch_update_ratio": 1e-2,
            }
        ],
        "activations": [{"name": "a", "units": 8, "dead_units": dead, "sparsity": 0.5}],
        "settings": {"lr": 0.1, "batch_size": 64, "accumulation": 1, "clip_norm": None},
    }


LOWER = Decision(
    "hyperparameter_change", ("R7",), "decrease_lr", {"lr": 0.01, "clip_norm": 1.0}, "too steep"
)
WAIT = Decision(NO_ACTION, ("R7",), DEFER, {}, "later")


def exploded() -> Run:
    run = start()
    run.measure_epoch(measured(finite=False), {})
    run.evaluate_rules()
    return run


def test_epochs_count_up_by_one_whatever_the_caller_says() -> None:
    run = start()
    for expected in range(3):
        assert run.measure_epoch({**measured(), "epoch": 77}, {"epoch": 99}) == expected
        run.evaluate_rules()


def test_what_the_loop_reports_reaches_no_rule() -> None:
    run, quiet = exploded(), start()
    quiet.measure_epoch(
        measured(), {"gradients": {"finite": False}, "train": {"loss": float("nan")}}
    )
    quiet.evaluate_rules()
    assert run.fired() == ("R7",)
    assert quiet.fired() == ()


def test_epoch_is_refused_when_its_measurements_are_incomplete() -> None:
    run, incomplete = start(), measured()
    del incomplete["gradients"]["finite"]
    with pytest.raises(MeasurementError, match="finite"):
        run.measure_epoch(incomplete, {})
    assert run.epoch == -1
    assert len(run.pending_events) == 1


def test_rules_are_evaluated_once_after_each_epoch() -> None:
    run = start()
    with pytest.raises(InvariantError, match="once after each"):
        run.evaluate_rules()
    run.measure_epoch(measured(), {})
    with pytest.raises(InvariantError, match="not evaluated"):
        run.measure_epoch(measured(), {})
    run.evaluate_rules()
    with pytest.raises(InvariantError, match="once after each"):
        run.evaluate_rules()


def test_false_citation_is_recorded_as_it_was_said() -> None:
    run = exploded()
    false = Decision(NO_ACTION, ("R2",), DEFER, {}, "made up")
    assert run.falsely_cited(false) == ("R2",)
    assert run.decide(false, source="policy") == 1
    assert run.decisions[0].decision == false
    assert run.falsely_cited(WAIT) == ()
    assert run.decide(WAIT, source="policy") == 2


def test_citation_holds_within_its_window_and_no_longer() -> None:
    run = exploded()
    for _ in range(CALIBRATED.action_window):
        run.measure_epoch(measured(), {})
        run.evaluate_rules()
        assert run.falsely_cited(WAIT) == ()
        run.decide(WAIT, source="policy")
    run.measure_epoch(measured(), {})
    run.evaluate_rules()
    assert run.falsely_cited(WAIT) == WAIT.cites


def test_acting_decision_must_be_settled_before_anything_follows() -> None:
    run = exploded()
    run.decide(LOWER, source="policy")
    for following in (
        lambda: run.measure_epoch(measured(), {}),
        lambda: run.decide(WAIT, source="policy"),
        lambda: run.end("completed"),
    ):
        with pytest.raises(InvariantError, match="neither applied nor refused"):
            following()
    run.refuse_remedy("the optimizer is made of stone")
    run.end("completed")
    assert run.decisions[0].outcome == "refused"


def test_deferral_is_not_carried_out() -> None:
    run = exploded()
    run.decide(WAIT, source="policy")
    with pytest.raises(InvariantError, match="no decision to carry out"):
        run.apply_remedy([], settings={}, spec=SPEC.to_dict())


def test_restart_ends_the_run() -> None:
    run = start()
    for _ in range(3):
        run.measure_epoch(measured(dead=8), {})
        run.evaluate_rules()
    swap = Decision("architecture_change", ("R5",), "swap_activation", {"to": "gelu"}, "dead")
    run.decide(swap, source="policy")
    run.schedule_restart(apply_edit(SPEC, Edit("swap_activation", to="gelu")).to_dict())
    with pytest.raises(InvariantError, match="restart is scheduled"):
        run.measure_epoch(measured(), {})
    with pytest.raises(InvariantError, match="and only then"):
        run.end("completed")
    run.end("restart")


def test_nothing_follows_the_end() -> None:
    run = exploded()
    run.end("interrupted")
    for following in (
        lambda: run.measure_epoch(measured(), {}),
        run.evaluate_rules,
        lambda: run.decide(WAIT, source="policy"),
        lambda: run.save_weights("last", sha256="", size=0, spec=SPEC.to_dict(), probe={}),
        lambda: run.end("completed"),
    ):
        with pytest.raises(InvariantError, match="no event may follow"):
            following()


class RunMachine(RuleBasedStateMachine):
    """Any order of commands: what is accepted can be replayed, what is refused leaves no trace."""

    @initialize()
    def begin(self) -> None:
        self.log = LedgerApplication.in_memory(REGISTRY)
        self.run = start()
        self.save()

    def save(self) -> None:
        self.log.save(self.run)

    def attempt(self, command: Any) -> None:
        before = self.run.version
        try:
            command()
        except InvariantError:
            assert self.run.version == before
        self.save()

    @rule(finite=st.booleans(), dead=st.sampled_from([0, 8]), loss=st.floats())
    def measure(self, finite: bool, dead: int, loss: float) -> None:
        self.attempt(
            lambda: self.run.measure_epoch(measured(finite=finite, dead=dead, loss=loss), {})
        )

    @rule()
    def evaluate(self) -> None:
        self.attempt(self.run.evaluate_rules)

    @rule(decision=st.sampled_from([LOWER, WAIT]), source=st.sampled_from(["policy", "nobody"]))
    def decide(self, decision: Decision, source: str) -> None:
        self.attempt(lambda: self.run.decide(decision, source=source))

    @rule()
    def apply(self) -> None:
        self.attempt(
            lambda: self.run.apply_remedy([{"what": "lr"}], settings={}, spec=SPEC.to_dict())
        )

    @rule()
    def refuse(self) -> None:
        self.attempt(lambda: self.run.refuse_remedy("no"))

    @rule(kind=st.sampled_from(["best", "last", "middling"]))
    def save_weights(self, kind: str) -> None:
        self.attempt(
            lambda: self.run.save_weights(
                kind, sha256="0" * 64, size=1, spec=SPEC.to_dict(), probe={}
            )
        )

    @precondition(lambda self: self.run.epoch > 3)
    @rule(reason=st.sampled_from(["completed", "restart", "crashed", "bored"]))
    def end(self, reason: str) -> None:
        self.attempt(lambda: self.run.end(reason))

    @invariant()
    def replayed_run_equals_the_live_one(self) -> None:
        if not hasattr(self, "run"):
            return
        again: Run = self.log.repository.get(self.run.id)
        assert repr(vars(again)) == repr(vars(self.run))

    @invariant()
    def recorded_evaluations_can_be_recomputed(self) -> None:
        if not hasattr(self, "run") or self.run.epoch not in self.run.evaluations:
            return
        before = [each for each in self.run.remedies if each.epoch < self.run.epoch]
        found = evaluate_rules(self.run.history, before, self.run.rules)
        assert repr(found) == repr(self.run.evaluations[self.run.epoch])


RunMachine.TestCase.settings = hypothesis_settings(
    max_examples=60, stateful_step_count=25, deadline=None
)
TestRunMachine = RunMachine.TestCase
