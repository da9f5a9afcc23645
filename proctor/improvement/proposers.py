"""Who looks for a change of a line: a language model or the tuner.

Each is asked in a round and says what it wants changed, or why it wants nothing. What it says is
handed in like anybody's proposal.

Trust: what a model answers is hostile; policies.proposing.proposer reads it, the gauntlet judges
it.
I/O: a model's endpoint, the log and the blobs; reads the repository.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from hashlib import sha256
from itertools import islice
from random import Random
from typing import Any, ClassVar, Protocol
from uuid import UUID

from aggregates.improvement.evolution import MODE, Evolution
from aggregates.transcript import Transcript
from judge.gauntlet.controller import Controller
from judge.gauntlet.errors import DiffError, GauntletError
from judge.gauntlet.repository.changes import tier_of_change
from judge.gauntlet.repository.manifest import Manifest
from ledger.application import LedgerApplication
from ledger.blobs import Blobs
from ledger.errors import LedgerError
from ledger.wording import counted
from policies.asking.ask import Asked, Asker, Client, find_rung
from policies.asking.completion import read_body
from policies.asking.prompt import quoted
from policies.asking.settings import ModelSettings
from policies.errors import AnswerError, SilentError
from policies.extraction import extract
from policies.proposing.distiller import LEAST_SAVING
from policies.proposing.proposer import (
    MOST_SHOWN,
    MOST_WORDS,
    Change,
    Request,
    ask_for_change,
    is_plain,
    opening,
    read_change,
)
from policies.proposing.tuner import (
    BASELINE,
    LADDER,
    Choice,
    Pattern,
    choices,
    choose,
    choose_model,
    rewrite,
    temperature_after,
    used,
)
from proctor.improvement.patterns import OPEN_TIER, GivenUp, LineHistory
from proctor.improvement.rounds import record_of, unanswering
from proctor.runs.transcript_log import TranscriptLog

BUILDING = 0.5  # of a model's rounds, if there is a change to build on
_MOST_PARENTS = 20  # that are tried, of which the first that still applies is taken
_MOST_DIFF = MOST_SHOWN // 3  # bytes of a change to build on
MOST_BYTES = 100_000  # of a file that is shown or rewritten
_PROMPTS = (".md", ".txt")  # what of a repository is a text that guides
_FOR_TEXTS = ("answer", "review", "violation")  # kinds of patterns that a text can do something for
_REQUEST = Pattern(
    key="request",
    kind="request",
    count=1,
    says="nothing is known to be wrong, and an operator asks for something better",
)


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What a proposer has before it in one round."""

    controller: Controller
    history: LineHistory
    round: int
    proposal: UUID  # the id that a proposal will have
    technique: str | None  # that was ordered
    changed: Mapping[str, str | None] = field(default_factory=dict)  # texts, over the head's

    @cached_property
    def head(self) -> str:
        """The commit that the line is at."""
        return self.controller.line.head.commit

    @cached_property
    def manifest(self) -> Manifest:
        """The tiers in force."""
        return self.controller.place.manifest(self.head)

    def read(self, path: str, commit: str = "") -> str | None:
        """Return a file's text, by default in the head; None where there is none of that name."""
        repository = self.controller.place.repository
        if not commit and path in self.changed:
            return self.changed[path]
        try:
            return repository.read(commit or self.head, path, most=MOST_BYTES).decode()
        except (GauntletError, UnicodeDecodeError):
            return None

    def texts(self, *tiers: int) -> Iterator[tuple[str, str]]:
        """Give the texts of these tiers, by path."""
        for path in sorted({*self.controller.place.repository.paths(self.head), *self.changed}):
            if self.manifest.tier_of(path) in tiers and (text := self.read(path)) is not None:
                yield path, text

    def task(self, pattern: Pattern) -> dict[str, Any] | None:
        """Return what is asked and expected of the reference task that a pattern is of."""
        name = pattern.key.removeprefix("task ") if pattern.kind == "task" else None
        for each in self.controller.place.reference_set(self.head).tasks if name else ():
            if each.task_id == name:
                files = {path: data.decode(errors="replace") for path, data in each.files.items()}
                told = {"description": each.entry.description, "parameters": each.parameters}
                return {**told, "expected": each.expected, "files": files}
        return None

    def built_on(self, change: GivenUp) -> "Situation | None":
        """Return the same with a change made to the head; None where it cannot be.

        What needs an approval now, or is no text that can be shown beside others, is left alone.
        """
        place = self.controller.place
        try:
            diff = place.blobs.get(change.diff)
            tree = place.repository.candidate_tree(self.head, diff)
        except (DiffError, LedgerError):
            return None
        changes = place.repository.changes(place.repository.tree_of(self.head), tree)
        texts = {each.path: self.read(each.path, tree) for each in changes}
        usual = all(
            tier_of_change(each, self.manifest) == OPEN_TIER
            and is_plain(each.path)
            and (texts[each.path] is None) == (each.kind == "deleted")
            for each in changes
        )
        return replace(self, changed=texts) if texts and usual and len(diff) <= _MOST_DIFF else None

    def prompts(self) -> dict[str, str]:
        """Return the texts that guide, what needs no approval first."""
        found = {path: text for tier in (2, 1) for path, text in self.texts(tier)}
        return {path: text for path, text in found.items() if path.endswith(_PROMPTS)}


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What somebody wants changed, or why nothing: then there are no texts."""

    outcome: str  # as a round's
    reason: str
    technique: str | None = None
    pattern: Pattern | None = None
    texts: Mapping[str, str | None] = field(default_factory=dict)
    calls: int = 0
    evidence: Sequence[Mapping[str, Any]] = ()
    last: bool = False  # asked again, it would say the same


class Proposer(Protocol):
    """Looks for a change."""

    reads_tasks: ClassVar[bool]  # whether it learns from reference tasks that the head fails

    @property
    def described(self) -> Mapping[str, Any]:
        """Who it is, with settings; nothing secret."""

    def propose(self, seen: Situation, /) -> Wanted:
        """Say what is wanted."""


class TunerProposer:
    """Rewrites texts by the tuner's techniques, without a model."""

    described: Mapping[str, Any] = {"name": "tuner"}
    reads_tasks: ClassVar[bool] = False

    def propose(self, seen: Situation, /) -> Wanted:
        """Try the first technique that leaves a text another; else make one shorter."""
        if not (prompts := seen.prompts()):
            reason = "the line has no text that the tuner may change"
            return Wanted(outcome="nothing", reason=reason, last=True)
        trials, examples = seen.history.trials(), seen.history.examples()
        patterns = [p for p in seen.history.patterns(seen.head) if p.kind in _FOR_TEXTS]
        lengths = {path: _too_long(path, text) for path, text in prompts.items()}
        own = {pattern.key: path for path, pattern in lengths.items()}
        for choice in choices(
            patterns, trials, examples, technique=seen.technique, lengths=lengths.values()
        ):
            pattern = choice.pattern
            path = own.get(pattern.key) or _target(pattern, prompts, seen.manifest)
            text = rewrite(choice.technique, prompts[path], pattern, examples)
            if text is not None:
                shown = used(choice.technique, pattern, examples)
                return Wanted(
                    outcome="proposed",
                    reason=f"{choice.technique} on {path}. Seen {pattern.count} times: "
                    f"{pattern.says}.",
                    technique=choice.technique,
                    pattern=pattern,
                    texts={path: text},
                    evidence=[
                        {"kind": "example", "index": each.entry, "run": each.run} for each in shown
                    ],
                )
        reason = (
            "no pattern is open that a technique has not been tried on, and no text can be "
            f"made {LEAST_SAVING:.0%} shorter without a model"
        )
        if left_out := seen.history.kept_out():
            verb = "is" if left_out == 1 else "are"
            reason += (
                f"; {counted(left_out, 'run')} {verb} not learned from (`proctor data why RUN`)"
            )
        return Wanted(outcome="nothing", last=True, reason=reason)


@dataclass(kw_only=True)
class ModelProposer:
    """Asks a language model; every call is in the proposal's transcript."""

    settings: ModelSettings
    client: Client
    log: LedgerApplication
    blobs: Blobs
    rung: str | None = None
    reads_tasks: ClassVar[bool] = True

    @property
    def described(self) -> Mapping[str, Any]:
        """Which model it is, and how it is asked."""
        return {"name": "openai", **self.settings.to_dict()}

    def propose(self, seen: Situation, /) -> Wanted:
        """Ask for one change, and again as often as the settings say if the answer is none."""
        choice, parent = _choose(seen), None
        for change in islice(_parents(seen), _MOST_PARENTS):
            if (built := seen.built_on(change)) is not None:
                seen, parent = built, change
                break
        transcript = ProposalTranscript(self.log, seen.proposal, policy=self.described)
        settings = _warmed(self.settings, seen)
        asker = Asker(settings, client=self.client, log=transcript, blobs=self.blobs)
        try:
            self.rung = self.rung or transcript.rung or find_rung(asker)
        except SilentError as error:
            return Wanted(
                outcome="unanswered",
                reason=str(error),
                technique=choice.technique,
                pattern=choice.pattern,
                calls=transcript.calls,
            )
        request, read = _request(seen, choice, parent), cache(seen.read)
        asked = transcript.answered(
            self.blobs,
            lambda value: read_change(value, read=read, technique=choice.technique),
            request=request,
        ) or ask_for_change(asker, self.rung, request, read=read)
        for _ in range(self.settings.repairs):
            if asked.outcome not in ("unusable", "truncated"):
                break
            asked = ask_for_change(asker, self.rung, request, read=read, problem=asked.problem)
        said = Wanted(
            outcome="proposed",
            reason=asked.problem or asked.outcome,
            technique=choice.technique,
            pattern=choice.pattern,
            calls=transcript.calls,
            evidence=[
                {"kind": "call", "proposal": str(seen.proposal), "number": asked.number},
                *([] if parent is None else [{"kind": "parent", "proposal": parent.proposal}]),
            ],
        )
        if asked.found is None:
            return replace(said, outcome=outcome_of(asked.outcome))
        if asked.found.texts:
            texts = {**seen.changed, **asked.found.texts}
            return replace(said, reason=asked.found.rationale, texts=texts)
        return replace(said, outcome="nothing", reason=f"the model says: {asked.found.rationale}")


@dataclass(frozen=True)
class ModelsProposer:
    """Asks one of several language models in each round: the more it has won, the more often."""

    models: Mapping[str, ModelProposer]  # by name
    reads_tasks: ClassVar[bool] = True

    @property
    def described(self) -> Mapping[str, Any]:
        """Which models they are, and how each is asked."""
        return {
            "name": "openai",
            "models": [each.settings.to_dict() for each in self.models.values()],
        }

    def propose(self, seen: Situation, /) -> Wanted:
        """Ask the model that has begun the round, else the one whose turn it is by the record."""
        *ended, this = seen.history.rounds()
        silent = unanswering(ended)
        usual = [name for name in self.models if name not in silent] or [*self.models]
        begun = [name for name in self.models if name == this.model]
        seed = f"{Evolution.id_of(seen.controller.place.line_id)} {seen.round}"
        name = choose_model(begun or usual, record_of(ended), seed=seed)
        return self.models[name].propose(seen)


class ProposalTranscript(TranscriptLog):
    """The transcript of the calls for one proposal; a killed process's is gone on with.

    A line's reference tasks have one, too: then the id is that of the line with its server.
    """

    def __init__(
        self,
        log: LedgerApplication,
        proposal: UUID,
        *,
        policy: Mapping[str, Any],
        mode: str = MODE,
    ) -> None:
        super().__init__(log, proposal)
        self._waiting = None
        begun = log.find(Transcript.id_of(proposal), Transcript)
        self._transcript = begun or Transcript.start(str(proposal), policy=policy, mode=mode)

    @property
    def calls(self) -> int:
        """How many there are."""
        return self._transcript.calls

    def answered(
        self, blobs: Blobs, read: Callable[[Any], Change], *, request: Request
    ) -> Asked[Change] | None:
        """Return the usable answer that a process which was killed was given, if there is one.

        It may no longer fit: the line can have moved meanwhile, and with it what is asked.
        """
        begins = json.dumps(opening(request), ensure_ascii=False)[:-1].encode()
        for event in self._made("propose", "repair"):
            if event.response is not None and event.request is not None:
                with suppress(AnswerError, LedgerError):
                    if begins not in blobs.get(event.request):
                        continue
                    said = read_body(blobs.get(event.response), status=None)
                    found = read(extract(str(event.rung), said.message))
                    return Asked(event.number, "usable", None, found, said)
        return None

    @property
    def rung(self) -> str | None:
        """The rung that a process which was killed has found by its probe."""
        return next((event.rung for event in self._made("probe")), None)

    def _made(self, *actions: str) -> Iterator[Transcript.CallMade]:
        """Give the usable calls with these actions."""
        for event in self._log.events.get(self._transcript.id):
            if (
                isinstance(event, Transcript.CallMade)
                and event.action in actions
                and event.outcome == "usable"
            ):
                yield event


def _choose(seen: Situation) -> Choice:
    """Return what a model is asked about, and how."""
    patterns = seen.history.patterns(seen.head) or [_REQUEST]
    usable = LADDER if seen.technique is None else (seen.technique,)
    choice = choose(patterns, seen.history.trials(), usable=(*usable,))
    if choice is not None:
        return choice
    return Choice(pattern=patterns[0], technique=seen.technique or BASELINE)


def _parents(seen: Situation) -> Iterator[GivenUp]:
    """Give earlier changes to build on, in the order in which they are tried; often none.

    A gain below what the gate can show is given up, and two such gains together may be shown. The
    order is drawn, weighted by what a change seemed to gain (Efraimidis & Spirakis 2006).
    """
    seed = f"{Evolution.id_of(seen.controller.place.line_id)} {seen.round} parent"
    rng = Random(seed)  # noqa: S311 - repeatable
    if rng.random() >= BUILDING:
        return
    best = [(max(each.gains.values(), default=0.0), each) for each in seen.history.given_up()]
    drawn = [(rng.random() ** (1 / gain), change) for gain, change in best if gain > 0]
    yield from (change for _, change in sorted(drawn, key=lambda one: one[0], reverse=True))


def _warmed(settings: ModelSettings, seen: Situation) -> ModelSettings:
    """Return the settings with a higher temperature where proposals stall."""
    if settings.temperature is None:  # it is not sent
        return settings
    outcomes = [each.outcome for each in seen.history.earlier()]
    return replace(settings, temperature=temperature_after(outcomes, settings.temperature))


def _request(seen: Situation, choice: Choice, parent: GivenUp | None) -> Request:
    pattern = choice.pattern
    also = seen.prompts() if pattern.kind in _FOR_TEXTS else {}
    return Request(
        round=seen.round,
        technique=choice.technique,
        wanted=(
            f"An operator asks: {pattern.says}."
            if pattern.kind == "request"
            else f"Seen {pattern.count} times: {pattern.says}. Propose what removes the cause."
        )
        + ("" if parent is None else _building_on(parent)),
        files={**dict(seen.texts(2)), **also},
        reviewed=[path for path, _ in seen.texts(1)],
        earlier=seen.history.earlier(),
        task=seen.task(pattern),
    )


def _building_on(parent: GivenUp) -> str:
    said, measured = (quoted(each, MOST_WORDS) for each in (parent.rationale, parent.measured))
    return (
        f"\n\nThe files below already hold an earlier change, {parent.proposal}, that could not be "
        f"shown to be better, and may be; said: {said}; measured: {measured}. Add to it: both are "
        "judged together."
    )


def outcome_of(asked: str) -> str:
    """Return how a round ends whose model gave an answer of this outcome, and nothing usable."""
    return "unusable" if asked in ("unusable", "truncated", "refused") else "unanswered"


def _target(pattern: Pattern, prompts: Mapping[str, str], manifest: Manifest) -> str:
    """Return the text to rewrite: for answers without form, the one that says what it is."""
    first = 1 if pattern.kind == "answer" else 2
    about = pattern.rule or ""

    def rank(path: str) -> tuple[bool, int, str]:
        mentions = prompts[path].count(about) if about else 0
        return manifest.tier_of(path) != first, -mentions, path

    return min(prompts, key=rank)


def _too_long(path: str, text: str) -> Pattern:
    digest = sha256(text.encode()).hexdigest()[:12]
    return Pattern(
        key=f"length {path} {digest}",
        kind="request",
        count=1,
        says=f"{path} has {len(text.encode())} bytes, each of which is paid for with every call",
    )
