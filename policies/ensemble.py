"""The ensemble: a stability rule is put to several voters, and the majority's direction is taken.

A wrong remedy for gradients that explode or vanish costs the run, so these rules, and no others,
are worth several requests. Each voter is asked about one rule, with a seed of its own.

Trust: each ballot has been validated like any answer. What wins is one voter's decision, word for
word: no average of parameters that nobody chose.
I/O: none; asking and recording are passed in.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from aggregates.decisions import Decision, Observation
from aggregates.rulebook import PRECEDENCE, RULE_CLASSES
from aggregates.transcript import UNUSABLE
from policies.calls import CallLog

VOTED = tuple(rule for rule in PRECEDENCE if RULE_CLASSES[rule] == "stability")


@dataclass(frozen=True)
class Ballot:
    """What one call came to, for one rule."""

    call: int  # its number in the transcript
    decision: Decision | None  # None: nothing usable
    problem: str | None  # why, then


class Ask(Protocol):
    """One request to the model about the due rules of an observation."""

    def __call__(self, observation: Observation, /, *, agent: str, voter: int) -> Ballot:
        """Ask as `agent`; `voter`, from 0, is added to the seed."""


def put_to_vote(
    rule: str, observation: Observation, *, ask: Ask, votes: int, log: CallLog
) -> Ballot:
    """Ask every voter about `rule`, record the count and return the ballot that won."""
    seen = replace(observation, due=(rule,))
    ballots = [ask(seen, agent=f"voter {number + 1}", voter=number) for number in range(votes)]
    winner = elect(ballots)
    log.count_votes(
        epoch=observation.epoch,
        rule=rule,
        votes=count_ballots(ballots),
        chosen=winner.decision.direction if winner.decision else None,
        calls=[ballot.call for ballot in ballots],
    )
    return winner


def count_ballots(ballots: Sequence[Ballot]) -> dict[str, int]:
    """Return how many ballots each direction got; those without a decision are `unusable`."""
    return dict(
        Counter(ballot.decision.direction if ballot.decision else UNUSABLE for ballot in ballots)
    )


def elect(ballots: Sequence[Ballot]) -> Ballot:
    """Return the ballot that wins: the first one for the direction that most are for.

    Of directions with equally many, the one that was voted for first wins. Where no ballot is
    usable, the first stands for all.
    """
    usable = [ballot for ballot in ballots if ballot.decision] or ballots
    counts = count_ballots(usable)
    chosen = max(counts, key=lambda direction: counts[direction])  # the first of the largest
    return next(
        ballot for ballot in usable if not ballot.decision or ballot.decision.direction == chosen
    )
