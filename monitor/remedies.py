"""Remedies: a decision carried out on the live state, or refused with that state untouched.

Every remedy checks first and changes afterwards; it returns what it changed, as plain values.
I/O: none.
"""

from typing import TYPE_CHECKING

import torch
from torch import nn

from aggregates.decisions import Decision
from aggregates.errors import RemedyRefused
from aggregates.outcomes import Changes, derive_outcome
from aggregates.playbook import FRESH
from monitor.model import ResidualCNN, edit_model

if TYPE_CHECKING:
    from monitor.state import LiveState


def execute_decision(state: "LiveState", decision: Decision, *, epoch: int) -> Changes:
    """Carry out `decision` after `epoch`; raises RemedyRefused saying why it cannot be."""
    back = FRESH if decision.params.get("reinitialise", False) else decision.back
    if back is not None and back != FRESH:
        weights, _ = state.kept[back]
        if not all(
            bool(torch.isfinite(weights[name]).all()) for name, _ in state.model.named_parameters()
        ):
            raise RemedyRefused(f"the weights after epoch {back} are not finite")
    elif decision.direction != "stop" and back is None and not is_finite(state.model):
        raise RemedyRefused(
            "the weights are not finite, and only a reinitialisation brings them back"
        )
    outcome = derive_outcome(
        decision,
        settings=state.settings,
        spec=state.model.spec(),
        epoch=epoch,
        max_batch_size=state.config.max_batch_size,
        train_examples=state.train_examples,
    )
    if decision.edit is not None:
        momentum = state.momentum()
        edit_model(state.model, decision.edit, seed=state.config.seed, salt=f"edit {epoch}")
        state.renew_optimizer(momentum)
    state.settings = outcome.settings
    if back is not None:
        put_back(state, back, asked=epoch)
    return outcome.changes


def put_back(state: "LiveState", back: int, *, asked: int) -> None:
    """Put the state after epoch `back` in the place of the present one.

    That of FRESH has fresh weights and BatchNorm statistics and no momentum; which weights, follows
    from the epoch in which it was decided.
    """
    if back != FRESH:
        state.go_back(back)
        return
    salt = f"reinitialise {asked}"
    state.model.adopt(ResidualCNN(state.model.spec(), seed=state.config.seed, salt=salt))
    state.renew_optimizer({})


def is_finite(model: nn.Module) -> bool:
    """Return whether training can go on; running variances may overflow, and it still can."""
    return all(bool(torch.isfinite(value).all()) for value in model.parameters())
