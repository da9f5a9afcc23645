"""Observations written by hand, and a transcript in memory: what policies are given in tests."""

import dataclasses
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from synthetic import SPEC

from aggregates.decisions import Decision, Observation, PastDecision, Settings
from aggregates.rulebook import fired_in_precedence
from aggregates.rules import FIRST_RULES as RULES
from aggregates.rules import RuleEvaluation
from aggregates.signals import EpochSignals
from aggregates.transcript import Transcript
from judge.reference.rules import REFERENCE_RULES


def observe(
    fired: Mapping[str, str], *, epoch: int = 5, ema: float | None = 1.0, **changes: Any
) -> Observation:
    """Return an observation in which the rules of `fired` are due, each on its side."""
    evaluations = {
        rule: RuleEvaluation(rule, rule in fired, fired.get(rule), ema, ema, 3) for rule in RULES
    }
    observation = Observation(
        run_id="run",
        epoch=epoch,
        due=fired_in_precedence(evaluations),
        evaluations=evaluations,
        settings=Settings(lr=0.1, batch_size=64),
        max_batch_size=256,
        train_examples=1000,
        spec=SPEC,
        history=tuple(signals(number) for number in range(epoch + 1)),
        decisions=(),
        waived=(),
        rules=REFERENCE_RULES["calibrated"],
        edits="live",
    )
    return dataclasses.replace(observation, **changes)


def signals(epoch: int, **changes: Any) -> EpochSignals:
    """Return the signals of an epoch in which R2 is low and all else is well.

    The interval of the signal-to-noise ratio lies close around its value.
    """
    noise = changes.get("signal_to_noise", 0.1)
    return dataclasses.replace(
        EpochSignals(
            epoch=epoch,
            train_loss=1.234,
            train_accuracy=0.95,
            val_loss=2.0 * 0.99**epoch,
            gradients_finite=True,
            max_layer_grad_norm=1.0,
            min_layer_grad_norm=0.1,
            update_ratio=2e-3,
            epoch_update_ratio=2e-3,
            signal_to_noise=0.1,
            norm_noise_scale=300.0,
            dead_share=0.0,
            sparsity=0.5,
            signal_to_noise_low=0.9 * noise,
            signal_to_noise_high=1.1 * noise,
        ),
        **changes,
    )


def past(
    rule: str,
    epoch: int,
    *,
    number: int = 1,
    words: str = "before",
    outcome: str | None = "applied",
) -> PastDecision:
    """Return a decision that was made before, with what became of it."""
    said = Decision("hyperparameter_change", (rule,), "decrease_lr", {"lr": 0.1}, words)
    return PastDecision(number, epoch, "policy", said, outcome)


class MemoryLog:
    """A transcript that is nowhere but in memory."""

    def __init__(self) -> None:
        self.transcript = Transcript.start(str(UUID(int=1)), policy={"name": "test"})
        self.add = self.transcript.add
        self.count_votes = self.transcript.count_votes
        self.review_proposal = self.transcript.review_proposal

    def events(self, kind: type) -> list[Any]:
        """Return the events of one kind, in order."""
        return [event for event in self.transcript.pending_events if isinstance(event, kind)]
