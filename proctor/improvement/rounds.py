"""What the rounds of an evolution have used and achieved, and the limits at which they end early.

All of it follows from the ledger, so that a command which goes on after a kill has what is left of
its budget. Seconds are those of one command.

I/O: none.  Units: tokens, US dollars, seconds.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from typing import Annotated

from msgspec import Meta

from aggregates.declared import check_fields
from policies.proposing.tuner import Tally
from proctor.errors import ProctorError

_UNDECIDED = (None, "proposed", "superseded", "withdrawn")  # say nothing of who proposed


@dataclass(frozen=True, kw_only=True)
class Round:
    """A round, with the calls to the model that it has asked."""

    number: int
    outcome: str | None  # of its proposal, or why there is none; None: it has not ended
    model: str | None = None  # None: none was asked
    calls: int = 0
    tokens: int | None = None  # None: no server reported any
    cost: float | None = None  # None: not known of any call


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How much may be used; None: any amount."""

    tokens: Annotated[int, Meta(ge=1)] | None = None
    cost: Annotated[float, Meta(gt=0.0)] | None = None
    seconds: Annotated[float, Meta(gt=0.0)] | None = None

    def __post_init__(self) -> None:
        check_fields(self, ProctorError)

    def exceeded(self, rounds: Sequence[Round], seconds: float) -> str | None:
        """Return which limit is reached, or cannot be kept; None: go on."""
        for name, limit in asdict(self).items():
            if limit is None:
                continue
            used = seconds if name == "seconds" else used_of(rounds, name) or 0
            if used >= limit:
                return (
                    f"the budget is used up, {name}: {round(used, 4):,} of {limit:,}; a larger "
                    f"--budget {name}=N continues"
                )
            silent = None if name == "seconds" else _unmeasured(rounds, name)
            if silent is not None:
                return (
                    f"a budget of {name} cannot be kept: the server of {silent.model} reported no "
                    f"tokens in round {silent.number}; use --budget seconds=N"
                )
        return None


def used_of(rounds: Sequence[Round], name: str) -> float | None:
    """Return what is known of the `tokens` or the `cost` of rounds; None: of no call."""
    known = [used for one in rounds if (used := getattr(one, name)) is not None]
    return sum(known) if known or not any(one.calls for one in rounds) else None


def standstill(rounds: Sequence[Round], patience: int | None) -> str | None:
    """Return that so many rounds in a row have promoted nothing; None: go on."""
    ended = (one for one in reversed(rounds) if one.outcome is not None)
    since = len([*takewhile(lambda one: one.outcome != "promoted", ended)])
    if patience is None or since < patience:
        return None
    return f"{since} rounds in a row without a promotion; a larger --patience continues"


def record_of(rounds: Sequence[Round]) -> dict[str, Tally]:
    """Return how often each model's change was promoted, and how often its round came to less."""
    found = {}
    for name in dict.fromkeys(one.model for one in rounds if one.model is not None):
        ends = [one.outcome for one in rounds if one.model == name]
        decided = [outcome == "promoted" for outcome in ends if outcome not in _UNDECIDED]
        found[name] = Tally(wins=sum(decided), losses=len(decided) - sum(decided))
    return found


def unanswering(rounds: Sequence[Round]) -> set[str | None]:
    """Return the models that have not answered since a round was answered."""
    return {one.model for one in takewhile(lambda o: o.outcome == "unanswered", reversed(rounds))}


def _unmeasured(rounds: Iterable[Round], name: str) -> Round | None:
    answered = (one for one in rounds if one.calls and one.outcome not in (None, "unanswered"))
    return next((one for one in answered if getattr(one, name) is None), None)
