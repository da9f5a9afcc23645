"""Rounds of tuning an advice block: a text is proposed, tested on scenarios, promoted or not.

Everything is in the ledger, in the stream of the model's advice: each text, each pair of answers,
each outcome, rounds without a proposal among them. Whoever is killed and begins again goes on with
the text that is open. One process of a home at a time does a round for a model; another waits.
The scoreboard of techniques follows from the stream, over all campaigns.

I/O: appends to the log; asks the model, and the writer where there is one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from random import Random, SystemRandom
from typing import Any

from aggregates.canonical import digest
from aggregates.improvement.advice import Advice
from judge.auditing.report import AuditReport
from judge.gauntlet.arms import in_turn
from judge.gauntlet.comparison.e_values import ComparisonSettings
from judge.gauntlet.comparison.evaluate import error_level
from judge.gauntlet.tasks.benchmark import Arm, TaskResult
from judge.gauntlet.tasks.reference_set import Task
from judge.reference.observations import from_plain, to_plain
from judge.reference.scenarios import (
    acceptable_answers,
    held_out,
    observation_of,
    scenario,
)
from ledger.application import LedgerApplication
from ledger.progress import advanced
from ledger.wording import counted
from policies.asking.ask import Asker, Client, find_rung
from policies.asking.settings import ModelSettings
from policies.errors import AnswerError, SilentError
from policies.proposing.adversary import edge_cases
from policies.proposing.advice import PLAYBOOK_EXAMPLES, ask_for_advice, verify_advice
from policies.proposing.tuner import (
    DISTILLATION,
    LOST,
    TIED,
    WON,
    Choice,
    Example,
    Pattern,
    Trial,
    choices,
    marked_bad,
    rewrite,
)
from proctor.home import Home
from proctor.improvement.marks import (
    Mark,
    bad_examples,
    marks_on,
    situation_of,
)
from proctor.improvement.proposers import ProposalTranscript, Wanted, outcome_of
from proctor.improvement.scenario_tests import SETTINGS, Judge, Tester

TEMPLATE = "template"
_BLOCK = "advice"  # the one text that a round changes
_ANSWERS = "answers to scenarios"  # that are shown as they come
_PATIENCE = 3  # answers in a row that were not given
_ASKED = 3  # times, before a scenario of the adversary's is kept
_CAME_TO = {"promoted": WON, "unusable": LOST, "refused": LOST, "nothing": TIED}


def open_advice(log: LedgerApplication, model: str) -> Advice:
    """Return the advice to a model as it is recorded, or a new one."""
    return log.find(Advice.id_of(model), Advice) or Advice.opened(model)


def trials_of(advice: Advice) -> list[Trial]:
    """Return what techniques were tried on what since the last reset, oldest first."""
    return [
        Trial(technique=each.technique, pattern=each.pattern, result=result)
        for each in advice.tried
        if each.round > advice.since
        and each.technique is not None
        and (result := _result(each)) is not None
    ]


def patterns_of(verdict: AuditReport) -> list[Pattern]:
    """Return what an attempt's policy did wrong; what others caused no prompt can mend."""
    counts = {
        (kind, rule or "", emitter): count
        for (kind, rule, emitter), count in verdict.by_kind().items()
        if emitter in ("policy", "driver")
    }
    return [
        violated(kind, rule or None, emitter, count, (verdict.run_id,))
        for (kind, rule, emitter), count in sorted(counts.items())
    ]


def violated(kind: str, rule: str | None, emitter: str, count: int, runs: Iterable[str]) -> Pattern:
    """Return the pattern of one kind of violation by the policy or by its driver."""
    return Pattern(
        key=f"violation {kind} {rule or '-'} {emitter}",
        kind="answer" if emitter == "driver" else "violation",
        count=count,
        says=f"{kind.replace('_', ' ')}{f' of {rule}' if rule else ''} by the {emitter}",
        rule=rule,
        runs=tuple(runs),
    )


@dataclass(frozen=True)
class Writer:
    """A model that writes the texts."""

    settings: ModelSettings
    client: Client


@dataclass
class Tuner:
    """Tunes the advice to one model."""

    home: Home  # whose marked decisions can be replayed
    log: LedgerApplication
    settings: ModelSettings
    client: Client
    writer: Writer | None = None
    scenarios: Sequence[Task] = field(default_factory=held_out)
    comparison: ComparisonSettings = SETTINGS
    random: Random = field(default_factory=SystemRandom)
    say: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        self.advice = open_advice(self.log, self.settings.model)

    def champion(self) -> tuple[str, int]:
        """Return the advice block that is in force, and its version."""
        advice = self.advice = open_advice(self.log, self.settings.model)
        return (advice.champion, advice.champion_version) if advice.on else ("", 0)

    def after_attempt(self, campaign: str, number: int, verdict: AuditReport) -> None:
        """Do the round after an attempt, unless it was done."""
        with self._alone():
            done = [(each.campaign, each.attempt) for each in self.advice.tried]
            if (campaign, number) not in done:
                where = {"campaign": campaign, "attempt": number}
                self._round(patterns_of(verdict), None, where)

    def round(
        self, patterns: Sequence[Pattern], *, technique: str | None = None
    ) -> Advice.RoundEnded:
        """Do a round; one that another process left open is ended first."""
        with self._alone():
            return self._round(patterns, technique, {"campaign": None, "attempt": None})

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Be the one process that tunes the model, with what others have recorded meanwhile."""
        model = self.settings.model
        with self.home.alone("tuning", model, say=self.say):
            self.advice = open_advice(self.log, model)
            yield

    def _round(
        self, patterns: Sequence[Pattern], technique: str | None, where: dict[str, Any]
    ) -> Advice.RoundEnded:
        if (opened := self.advice.open) is not None:
            ended = self._finish()
            if where == {name: getattr(opened, name) for name in where}:
                return ended
        if not self.advice.on:
            return self._end("nothing", "tuning is turned off", **where)
        marks = marks_on(self.log, self.settings.model)
        self._take_in(marks)
        bad = bad_examples(marks)
        examples, found = (*PLAYBOOK_EXAMPLES, *bad), [*patterns, *marked_bad(bad)]
        return self._propose(found, examples, technique, where) or self._finish()

    def challenge(self, *, seed: int, count: int) -> list[str]:
        """Have the adversary make scenarios; keep those that the champion fails as candidates."""
        with self._alone():
            if self.advice.open is not None:
                self._finish()
            tester = self._tester(f"adversary {seed}")
            kept = []
            situations = [observation_of(task) for task in self._scenarios()]
            for number, seen in enumerate(edge_cases(situations, seed=seed, count=count)):
                advanced("scenarios of the adversary", number, count)
                plain, expected = to_plain(seen), acceptable_answers(seen)
                name = f"edge-{digest({'observation': plain, 'expected': expected})[:12]}"
                told: dict[str, Any] = {"origin": f"adversary, seed {seed}", "expected": expected}
                champion, _ = self.champion()
                task = scenario(name, seen, **told)
                found = [tester.ask(task, champion) for _ in range(_ASKED)]
                if all(each["missing"] for each in found):
                    raise SilentError(f"{self.client.endpoint} did not answer any scenario")
                wrong = sum(not each["success"] and not each["missing"] for each in found)
                if 2 * wrong > _ASKED and name not in self.advice.scenarios:
                    self.advice.record_scenario(name, observation=plain, admitted=False, **told)
                    self.log.save(self.advice)
                    kept.append(name)
            advanced("scenarios of the adversary", count, count)
            self.say(f"the adversary's scenarios took {counted(tester.log.calls, 'call')}")
            return kept

    def _take_in(self, marks: Sequence[Mark]) -> None:
        """Make scenarios of decisions that were marked as gold, once."""
        for mark in marks:
            name = f"gold-{mark.index}"
            if mark.mark != "gold" or name in self.advice.scenarios:
                continue
            if (seen := situation_of(self.home, mark)) is None:
                continue
            acts = [{"direction": mark.decision.direction, "params": {}}]
            self.advice.record_scenario(
                name,
                origin=f"the decision in entry {mark.index}, marked as gold",
                observation=to_plain(seen),
                expected=[
                    {"rule": rule, "acts": acts if mark.decision.acts else []}
                    for rule in mark.decision.cites
                ],
                admitted=True,
            )
            self.log.save(self.advice)

    def _propose(
        self,
        patterns: Sequence[Pattern],
        examples: Sequence[Example],
        technique: str | None,
        where: dict[str, Any],
    ) -> Advice.RoundEnded | None:
        """Record a proposal; where there is none, end the round and return that."""
        choice = self._choose(patterns, examples, technique)
        if choice is None:
            by = f" by {technique}" if technique else ""
            reason = f"nothing went wrong that is not tried yet{by}"
            return self._end("nothing", reason if patterns else "nothing went wrong", **where)
        about = {"technique": choice.technique, "pattern": choice.pattern.key, **where}
        try:
            found = self._written(choice, examples)
        except SilentError as error:
            return self._end("unanswered", str(error), **about)
        if found.outcome != "proposed":
            return self._end(found.outcome, found.reason, calls=found.calls, **about)
        self.advice.propose(
            str(found.texts[_BLOCK]),
            proposer=self._proposer,
            rationale=found.reason,
            evidence=choice.pattern.evidence(),
            **about,
        )
        self.log.save(self.advice)
        return None

    @property
    def _proposer(self) -> str:
        return TEMPLATE if self.writer is None else self.writer.settings.model

    def _choose(
        self, patterns: Sequence[Pattern], examples: Sequence[Example], technique: str | None
    ) -> Choice | None:
        """Return what is tried: what was not tried on the pattern; at last, a shorter text."""
        champion = self.advice.champion
        found = choices(
            patterns,
            trials_of(self.advice),
            examples,
            technique=technique,
            lengths=[_too_long(champion, self.advice.champion_version)] if champion else [],
        )
        if self.writer is not None:
            return next(found, None)
        return next((each for each in found if self._rewritten(each, examples) is not None), None)

    def _rewritten(self, choice: Choice, examples: Sequence[Example]) -> str | None:
        return rewrite(choice.technique, self.advice.champion, choice.pattern, examples)

    def _written(self, choice: Choice, examples: Sequence[Example]) -> Wanted:
        before = self.advice.champion
        if self.writer is None:
            text = (self._rewritten(choice, examples) or "").strip()
            try:
                verify_advice(text, technique=choice.technique, before=before)
            except AnswerError as error:
                return Wanted(outcome="refused", reason=str(error))
            reason = f"{choice.technique}. {choice.pattern.says}"
            return Wanted(outcome="proposed", reason=reason, texts={_BLOCK: text})
        settings = self.writer.settings
        transcript = self._transcript("writer", settings)
        asker = Asker(settings, client=self.writer.client, log=transcript, blobs=self.home.blobs)
        asked = ask_for_advice(
            asker,
            find_rung(asker),
            before=before,
            pattern=choice.pattern,
            technique=choice.technique,
            earlier=self._earlier(),
        )
        said = Wanted(
            outcome=outcome_of(asked.outcome),
            reason=asked.problem or asked.outcome,
            calls=transcript.calls,
        )
        if asked.found is None:
            return said
        texts = {_BLOCK: asked.found.advice}
        return replace(said, outcome="proposed", reason=asked.found.rationale, texts=texts)

    def _earlier(self) -> list[str]:
        return [
            f"{each.technique} on {each.pattern}: {each.outcome}"
            for each in self.advice.tried
            if each.round > self.advice.since and each.technique is not None
        ]

    def _transcript(self, name: str, settings: ModelSettings) -> ProposalTranscript:
        stream = self.advice.transcript_of(self.advice.rounds + 1, name)
        return ProposalTranscript(self.log, stream, policy={"name": name, **settings.to_dict()})

    def _finish(self) -> Advice.RoundEnded:
        """Test the text that is open, and promote it or keep the champion."""
        advice = self.advice
        opened = advice.open
        assert opened is not None
        earlier = [
            each.outcome == "promoted"
            for each in advice.tried
            if each.measured is not None and each.measured.get("level", 0.0) > 0
        ]
        scenarios = self._scenarios()
        judge = Judge(
            scenarios,
            {"base": advice.champion, "candidate": opened.text},
            level=error_level(earlier),
            shorter=opened.technique == DISTILLATION,
            settings=self.comparison,
        )
        try:
            tester = self._tester("tester")
        except SilentError as error:
            return self._end("unanswered", str(error))
        results = [result for each in advice.answers for result in _results(each)]
        missing = 0
        self.say(f"testing version {opened.version} of the advice ({opened.technique})")
        batches = in_turn(lambda: judge.wanted(results), scenarios, random=self.random)
        for turn in chain.from_iterable(batches):
            advanced(_ANSWERS, len(results))
            task, first = turn.task.task_id, turn.arms[0]
            told = {arm: tester.ask(turn.task, judge.texts[arm]) for arm in turn.arms}
            advice.answer(task, repeat=turn.repeat, seed=turn.seed, first=first, **told)
            self.log.save(advice)
            pair = _results(advice.answers[-1])
            results += pair
            missing = missing + 1 if all(each.missing for each in pair) else 0
            if missing == _PATIENCE:
                reason = f"{_PATIENCE} scenarios in a row were not answered"
                return self._end("unanswered", reason, calls=tester.log.calls)
        advanced(_ANSWERS, len(results), len(results))
        found = judge.compare(results)
        return self._end(
            "promoted" if found.better else "kept",
            found.reason,
            calls=tester.log.calls,
            measured=found.measured,
        )

    def _tester(self, name: str) -> Tester:
        """Return who asks scenarios, on the rung that a probe finds."""
        transcript = self._transcript(name, self.settings)
        asker = Asker(self.settings, client=self.client, log=transcript, blobs=self.home.blobs)
        return Tester(
            settings=self.settings,
            client=self.client,
            rung=transcript.rung or find_rung(asker),
            log=transcript,
            blobs=self.home.blobs,
        )

    def _scenarios(self) -> list[Task]:
        own = [
            scenario(name, from_plain(each["observation"]), each["expected"], origin=each["origin"])
            for name, each in self.advice.scenarios.items()
            if each["admitted"]
        ]
        return [*self.scenarios, *own]

    def _end(self, outcome: str, reason: str, **told: Any) -> Advice.RoundEnded:
        self.advice.end_round(outcome, reason=reason, proposer=self._proposer, **told)
        self.log.save(self.advice)
        ended = self.advice.tried[-1]
        self.say(f"advice, round {ended.round}: {outcome}. {reason}")
        return ended


def _results(pair: Advice.Answered) -> list[TaskResult]:
    """Return what both texts' answers to a scenario are worth."""
    answers: dict[Arm, Mapping[str, Any]] = {"base": pair.base, "candidate": pair.candidate}
    return [
        TaskResult(
            task_id=pair.scenario,
            arm=arm,
            repeat=pair.repeat,
            seed=pair.seed,
            success=told["success"],
            validation_failures=int(not told["valid"]),
            metrics={},
            problem=told["problem"],
            isolation=(),
            missing=told["missing"],
        )
        for arm, told in answers.items()
    ]


def _result(tried: Advice.RoundEnded) -> str | None:
    """Return how a technique did; None if the round says nothing of it."""
    if tried.outcome == "kept":
        return TIED if (tried.measured or {}).get("verdict") == "cannot tell" else LOST
    return _CAME_TO.get(tried.outcome)


def _too_long(text: str, version: int) -> Pattern:
    return Pattern(
        key=f"length of version {version}",
        kind="request",
        count=1,
        says=f"the advice has {len(text)} characters, which every call pays for",
    )
