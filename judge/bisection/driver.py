"""A search from its opening to its end, recorded probe by probe.

The next probe depends only on recorded events, so a new process can continue the search of a killed
one. Repeating the same request continues the same search. Verdicts of an earlier search with the
same oracle are reused.

I/O: the workplace; processes for the probes.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from aggregates.canonical import digest
from aggregates.improvement.bisection import Bisection
from aggregates.improvement.line import Line
from judge.bisection.probes import Oracle, Probed, Tasks, key_of, oracle_of, plain_oracle, probe
from judge.bisection.reports import culprit_of, fault_of, probes_of, reason_of, search_of
from judge.bisection.search import RULES, next_probe, standing
from judge.confinement.supervised import discard
from judge.errors import BisectionError
from judge.gauntlet.workplace import Workplace
from ledger.files import locked
from ledger.progress import advanced

FOLDER = "bisecting"
_EVENTS = ("bisection.opened", "bisection.probed")


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a search is for."""

    good: str  # checkpoint
    bad: str  # a checkpoint that descends from it
    oracle: Oracle
    error: float = 0.0
    confidence: float = 0.95
    ends_believed: bool = True


def chain(line: Line, *, good: str, bad: str) -> tuple[str, ...]:
    """Return the checkpoints after the good one up to the bad one, in their order."""
    found = line.ancestors(bad)
    if good not in found[1:]:
        raise BisectionError(
            f"checkpoint {bad} does not descend from checkpoint {good}: name a good "
            "checkpoint and one of its descendants"
        )
    return tuple(reversed(found[: found.index(good)]))


@contextmanager
def working(place: Workplace) -> Iterator[Path]:
    """Be the one process that searches on this line; give a folder for what it makes."""
    folder = place.folder / FOLDER
    lock = folder / "lock"
    busy = BisectionError(
        f"another process is already searching this line (it holds {lock}); try again later"
    )
    with locked(lock, busy=busy):
        for left in folder.iterdir():
            if left.is_dir():
                discard(left)
        yield folder


def open_search(place: Workplace, question: Question, *, afresh: bool = False) -> Bisection:
    """Return the search for an answer: the one that there is, or a new one.

    With `afresh` only one that was made so and has not ended is carried on; a new one believes no
    other. Raises BisectionError where what there is was not written by this program.
    """
    line = place.line()
    asked: dict[str, Any] = {
        "good": question.good,
        "suspects": list(chain(line, good=question.good, bad=question.bad)),
        "oracle": plain_oracle(question.oracle),
        "error": question.error,
        "confidence": question.confidence,
        "ends_believed": question.ends_believed,
        "rules": RULES,
    }
    repository, number = place.log.repository, 0
    while _search_id(line.id, asked, number + 1) in repository:
        number += 1
    if (found_id := _search_id(line.id, asked, number)) in repository:
        found: Bisection = repository.get(found_id)
        if not afresh or (number > 0 and not found.ended):
            _verify(found, asked)
            return found
        found_id = _search_id(line.id, asked, number + 1)
    place.log.save(Bisection.open(line=str(line.id), search_id=found_id, **asked))
    opened: Bisection = repository.get(found_id)
    return opened


def go_on(
    place: Workplace,
    found: Bisection,
    *,
    folder: Path,
    most: int | None = None,
    tell: Callable[[Bisection], None] = lambda _search: None,
) -> Bisection:
    """Probe until the search has ended, or `most` probes were made; return it as it is then.

    `tell` is called after each probe.
    """
    line, oracle, search = place.line(), oracle_of(found.oracle), search_of(found)
    order = (found.good, *found.suspects)
    # Not of one that was made although there was one with the same question.
    is_first = found.id == _search_id(UUID(found.line), _asked(found), 0)
    known = _known(place, found) if is_first else {}
    made = 0
    while not found.ended:
        probes = probes_of(found)
        now = standing(search, probes)
        if now.over:
            found.end(
                culprit=culprit_of(found),
                candidates=[order[at] for at in now.likely if at < len(order) and now.probability],
                posterior=now.probability,
                reason=reason_of(found),
            )
            place.log.save(found)
            return found
        if made == most:
            return found
        number = next_probe(search, probes)
        assert number is not None  # or it would be over
        repeat = sum(each == number for each, _ in probes)
        got = known.get((order[number], repeat))
        if got is None:
            checkpoint = line.checkpoints[order[number]]
            advanced("probes", made, most)
            got = probe(place, oracle, checkpoint, repeat=repeat, folder=folder)
            made += 1
        found.probe(order[number], got.verdict, got.evidence)
        place.log.save(found)  # nobody else appends to it: this process holds the lock
        tell(found)
    return found


def chosen_before(place: Workplace, *, good: str, bad: str) -> Tasks | None:
    """Return the tasks that got worse between two checkpoints, if a search began with them.

    They are not chosen again: a process that carries on must not come to others.
    """
    found: Oracle | None = None
    for event in place.recorded(_EVENTS[:1]):
        asked = (event.line, event.good, event.suspects[-1])
        if event.oracle.get("measured") and asked == (str(place.line_id), good, bad):
            found = oracle_of(event.oracle)
    return found if isinstance(found, Tasks) else None


def _search_id(line: UUID, asked: Mapping[str, Any], number: int) -> UUID:
    return uuid5(line, f"bisection {digest(asked)} {number}")


def _asked(found: Bisection) -> dict[str, Any]:
    names = ("good", "suspects", "oracle", "error", "confidence", "ends_believed")
    # The first searches did not name their rules, and their ids follow from what they named.
    rules = {"rules": found.rules} if found.rules != 1 else {}
    return {name: getattr(found, name) for name in names} | rules


def _verify(found: Bisection, asked: Mapping[str, Any]) -> None:
    """Raise BisectionError where a search under a question's id is none that we would have made.

    Ids follow from the question, and anybody who writes to the ledger can be there first.
    """
    fault = fault_of(found)
    if digest(_asked(found)) != digest(asked):
        fault = "does not match its id"
    if fault is not None:
        raise BisectionError(
            f"search {found.id} {fault}: it was not written by this program; start a new search "
            "with `--afresh`"
        )


def _known(place: Workplace, found: Bisection) -> dict[tuple[str, int], Probed]:
    """Return what other searches were told by the same oracle, by checkpoint and repeat."""
    key, alike, told = key_of(found.oracle), set(), {}
    for event in place.recorded(_EVENTS):
        if isinstance(event, Bisection.Opened):
            if event.line == found.line and key_of(event.oracle) == key:
                alike.add(event.originator_id)
        elif event.originator_id in alike and event.originator_id != found.id:
            where = f"{event.originator_id}/{event.number}"
            evidence = {"from": where, **event.evidence}
            repeat = event.evidence.get("repeat")
            if event.verdict in ("bad", "good") and type(repeat) is int:
                told[event.checkpoint, repeat] = Probed(verdict=event.verdict, evidence=evidence)
    return told
