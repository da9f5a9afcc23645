"""Rounds of proposing and judging that need nobody to watch them.

A round reads what went wrong, has one change proposed, hands it in, and takes it through the
gauntlet as far as it goes; whatever a round comes to is on record. Who is killed and begins again
goes on where it was: with the proposal that is open, else with an answer that is on record already.
A round that reveals an older fault of the line has its checkpoint searched for and rolled back.

I/O: the home, the repository's branches (no work tree), whoever proposes.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from aggregates.errors import AggregateError
from aggregates.improvement.evolution import Evolution
from aggregates.improvement.proposal import Proposal
from judge.bisection.latent import Known, LatentFault, look
from judge.errors import JudgeError
from judge.gauntlet.controller import Controller
from judge.gauntlet.errors import DiffError, RepositoryError, TierError
from judge.gauntlet.measurement import measure
from ledger.progress import advanced
from policies.proposing.proposer import make_diff
from proctor.home import Home
from proctor.improvement.patterns import LineHistory
from proctor.improvement.proposers import Proposer, Situation, Wanted
from proctor.improvement.rounds import Budget, Round, standstill

PATIENCE = 3  # rounds in a row that nobody answered


@dataclass
class Evolving:
    """The loop, over one controller."""

    home: Home
    controller: Controller
    proposer: Proposer
    technique: str | None
    probes: int = 0  # for an older fault, after each round; 0: none
    budget: Budget = Budget()  # noqa: RUF009 - frozen
    patience: int | None = None  # rounds in a row without a promotion; None: any number
    clock: Callable[[], float] = time.monotonic  # s
    stopped: str | None = None  # why, if it was not done
    faults: dict[UUID, LatentFault] = field(default_factory=dict)  # by search

    def __post_init__(self) -> None:
        self._known: Known = {}
        self._log = self.controller.place.log
        self._began = self.clock()

    @property
    def seconds(self) -> float:
        """How long it has taken so far."""
        return self.clock() - self._began

    def run(self, rounds: int) -> Iterator[Evolution.RoundEnded]:
        """Go through the rounds that were asked for and give each as it is recorded."""
        with self.controller.locked():
            evolution = open_evolution(self.controller)
            evolution.begin(rounds, proposer=self.proposer.described, technique=self.technique)
            self._log.save(evolution)
        unanswered = made = 0
        while True:
            with self.controller.locked():
                self._look_back()
                evolution = open_evolution(self.controller)
                if not (evolution.left and evolution.on) or self.stopped is not None:
                    return
                advanced("rounds", made, made + evolution.left)
                ended = self._round(evolution)
            if ended is None:
                return
            made += 1
            advanced("rounds", made)
            yield ended
            unanswered = unanswered + 1 if ended.outcome == "unanswered" else 0
            if unanswered == PATIENCE:
                self.stopped = f"{PATIENCE} rounds in a row were not answered: {ended.reason}"

    def _look_back(self) -> None:
        """Search for an older fault that the latest round, or an earlier one, has revealed."""
        if not self.probes:
            return
        place, records = self.controller.place, self.controller.records
        try:
            found = look(place, records, most=self.probes, known=self._known)
        except JudgeError as error:  # which does not stop the rounds
            place.tell(str(place.line_id), f"no search for an older fault: {error}")
            return
        if found is not None and self.faults.get(found.search.id) != found:
            self.faults[found.search.id] = found
            place.tell(str(found.search.id), found.says)

    def _round(self, evolution: Evolution) -> Evolution.RoundEnded | None:
        """Do the round that comes next; None, with the reason in `stopped`, if it cannot be."""
        controller, number = self.controller, evolution.rounds + 1
        name = evolution.proposal_id(number)
        if name not in self._log.repository:
            if (why := self._limit(evolution)) is None:
                self._go_on_with_what_is_open()
                why = _blocked(controller)
            if why is not None:
                self.stopped = why
                return None
            wanted = self.proposer.propose(
                Situation(
                    controller=controller,
                    history=self._history(evolution.since),
                    round=number,
                    proposal=name,
                    technique=self.technique,
                )
            )
            if wanted.outcome != "proposed":
                if wanted.last:
                    self.stopped = f"there is nothing to do: {wanted.reason}"
                return self._end(evolution, wanted)
            try:
                self._submit(wanted, name)
            except (AggregateError, DiffError, TierError) as error:
                refused = replace(wanted, outcome="refused", reason=str(error))
                return self._end(evolution, refused)
        proposal = controller.carry_on(name)
        return self._end_with(evolution, proposal)

    def _limit(self, evolution: Evolution) -> str | None:
        """Return why the rounds that were asked for end early; None: they go on."""
        if self.budget == Budget() and self.patience is None:
            return None
        rounds = asked_for(self.home, evolution)
        found = self.budget.exceeded(rounds, self.seconds)
        return found or standstill(rounds, self.patience)

    def _history(self, since: int) -> LineHistory:
        """Return what is known of the line, whose head has answered the tasks if they are read."""
        place, head = self.controller.place, self.controller.line.head.commit
        history = LineHistory(self.home, place.line_id, since=since)
        if not self.proposer.reads_tasks:
            return history
        if {each.task_id for each in place.reference_set(head).tasks} <= history.answered(head):
            return history
        place.tell(str(place.line_id), "the line's head answers the reference set first")
        measure(place, hidden=None)
        return LineHistory(self.home, place.line_id, since=since)

    def _submit(self, wanted: Wanted, name: UUID) -> Proposal:
        controller = self.controller
        head = controller.line.head
        repository = controller.place.repository

        def read(path: str) -> str | None:
            if path not in paths:
                return None
            try:
                return repository.read(head.commit, path).decode()
            except (RepositoryError, UnicodeDecodeError) as error:
                raise DiffError(f"{path} is not a text file, so a round cannot edit it") from error

        paths = set(repository.paths(head.tree))
        diff = make_diff(wanted.texts, read=read)
        pattern = wanted.pattern
        return controller.submit(
            diff,
            declared=controller.tiers(diff),
            rationale=wanted.reason,
            trigger="operator_request" if pattern is None else pattern.trigger,
            proposer=str(self.proposer.described["name"]),
            task=None if pattern is None else pattern.key,
            evidence=[
                {"kind": "technique", "name": wanted.technique},
                *([] if pattern is None else pattern.evidence()),
                *wanted.evidence,
            ],
            proposal_id=name,
        )

    def _go_on_with_what_is_open(self) -> None:
        """Take on what has been approved meanwhile, and close what the line has left behind."""
        for proposal in self.controller.queue():
            if self.controller.waits(proposal) is None:
                try:
                    self.controller.carry_on(proposal.id)
                except JudgeError as error:  # which does not stop the rounds
                    told = f"cannot be judged: {error}"
                    self.controller.place.tell(str(proposal.id), told)

    def _end(self, evolution: Evolution, wanted: Wanted) -> Evolution.RoundEnded:
        pattern = None if wanted.pattern is None else wanted.pattern.key
        told = {"technique": wanted.technique, "pattern": pattern, "calls": wanted.calls}
        return self._record(evolution, wanted.outcome, reason=wanted.reason, **told)

    def _end_with(self, evolution: Evolution, proposal: Proposal) -> Evolution.RoundEnded:
        told = {each.get("kind"): each for each in reversed(proposal.evidence)}
        return self._record(
            evolution,
            "proposed",
            proposal=str(proposal.id),
            technique=told.get("technique", {}).get("name"),
            pattern=told.get("pattern", {}).get("key"),
            calls=told.get("call", {}).get("number", 0),
            reason=self.controller.waits(proposal) or "",
        )

    def _record(self, evolution: Evolution, outcome: str, **told: Any) -> Evolution.RoundEnded:
        proposer = str(self.proposer.described["name"])
        ended = evolution.end_round(outcome, proposer=proposer, **told)
        self._log.save(evolution)
        self.controller.place.tell(
            ended.proposal or str(evolution.id), f"round {ended.round}: {outcome} {ended.reason}"
        )
        return ended


def open_evolution(controller: Controller) -> Evolution:
    """Return the line's evolution as it is recorded, or a new one."""
    line = controller.place.line_id
    found = controller.place.log.find(Evolution.id_of(line), Evolution)
    return found or Evolution.open(str(line))


def asked_for(home: Home, evolution: Evolution) -> list[Round]:
    """Return the rounds of the latest request, the one that has not ended at the end."""
    return LineHistory(home, UUID(evolution.line), since=evolution.begun).rounds()


def _blocked(controller: Controller) -> str | None:
    """Return why nothing can be proposed now."""
    line = controller.line
    if line.halt is not None:
        return f"the line is halted, see `proctor line sign resume --key KEY`: {line.halt}"
    if line.valley is not None:
        return f"valley {line.valley['id'][:12]} is open: its steps go first"
    return controller.astray(line)


def steer(controller: Controller, order: str) -> None:
    """Record that it is turned on or off, or begins anew."""
    with controller.locked():
        evolution = open_evolution(controller)
        evolution.steer(order)
        controller.place.log.save(evolution)
