"""Histories for curation: a line, runs, audits, origins, rollbacks, and an account kept beside.

The account says in plain Python, from what was done, which runs may be learned from; it reads no
table. Runs have three epochs: in the second a loss is not finite, R7 fires, and it is answered.
"""

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from synthetic import PARAMS, SETTINGS, SPEC, measured, synthetic_call

from aggregates.audit import STEPS, Audit
from aggregates.credit import CHOSEN, Credit, Interval, Place
from aggregates.curation.corpus import Corpus
from aggregates.decisions import Decision
from aggregates.forks import Fork, Order
from aggregates.improvement.line import Line
from aggregates.playbook import DEFER, HYPERPARAMETER_CHANGE, NO_ACTION
from aggregates.registry import REGISTRY
from aggregates.review import Review
from aggregates.rules import CALIBRATED
from aggregates.run import Run
from aggregates.transcript import Transcript
from judge.curation.query import Query
from judge.curation.sealing import Drawn, draw
from judge.curation.tables import Tables, open_tables
from ledger.application import LedgerApplication
from ledger.blobs import BlobStore
from ledger.entries import AuthorKey
from ledger.notes import public_bytes, vkey
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.verification.reader import open_verified
from projections.identity import read_position
from projections.projector import project, projected

DATA = ("aa" * 32, "bb" * 32)
AUTHORS = ("playbook", "small")
OPERATOR = Ed25519PrivateKey.from_private_bytes(bytes([5]) * 32)
FIRES = 1  # the epoch in which R7 does
_RETRAINED: dict[int, dict[str, object]] = {  # evidence of steps: all epochs were trained again
    5: {"epochs": 3},
    7: {"executed": {"done": True, "epochs": 3}},
}


@dataclass
class Known:
    """What the account knows of a run."""

    checkpoint: str | None
    honest: bool  # its label is one that stood before, and the code is that checkpoint's
    origins: frozenset[tuple[str, str]]
    parent: str | None
    group: int
    acts: bool
    judged: bool = False  # and all gates passed
    exercised: bool = False
    accuracy: float = 0.0
    violated: bool = False  # as the latest audit found
    marked: bool = False  # by people, once and for all

    @property
    def bad(self) -> bool:
        """Whether what was decided in it is not to be shown as what to do."""
        return self.violated or self.marked


@dataclass
class Exported:
    """What was handed out, and when."""

    query: Query
    as_of: int
    lines: bytes
    members: dict[str, tuple[str, ...]]  # example -> runs
    seal: UUID


@dataclass
class Scene:
    """A ledger that grows, and the account of it."""

    folder: Path
    runs: dict[str, Known] = field(default_factory=dict)
    parents: dict[str, str | None] = field(default_factory=dict)
    rolled_back: set[str] = field(default_factory=set)
    admitted: set[tuple[str, str]] = field(default_factory=set)
    exports: list[Exported] = field(default_factory=list)
    operated: bool = True  # an operator has a key

    def __post_init__(self) -> None:
        self.connection = projected([])
        self.ledger = self.folder / "ledger"
        self.log = LedgerApplication.open(self.ledger, REGISTRY)
        self.blobs = BlobStore(LedgerPaths(self.ledger).blobs)
        assert isinstance(self.log.recorder, SignedRecorder)
        if self.operated:
            self.log.recorder.grant_key(vkey("ada", public_bytes(OPERATOR)), role="operator")
        self.author = AuthorKey("operator", OPERATOR)
        self.line = Line.open(
            root="0" * 40,
            branch="main",
            commit="1" * 40,
            tree="2" * 40,
            manifest="3" * 64,
            reference_set="4" * 64,
            code=code_of(0),
        )
        self.parents[self.line.first] = None
        self.corpus = Corpus.open()
        self.log.save(self.line, self.corpus)

    def promote(self) -> str:
        number = len(self.parents)
        parent = self.line.active
        checkpoint = self.line.promote(
            commit=f"{number:040x}",
            tree=f"{number:040d}",
            proposals=[f"proposal {number}"],
            manifest="3" * 64,
            reference_set="4" * 64,
            code=code_of(number),
        )
        self.log.save(self.line)
        self.parents[checkpoint] = parent
        return checkpoint

    def roll_back(self, checkpoint: str) -> None:
        self.line.roll_back(checkpoint, "it was worse after all")
        self.log.save(self.line)
        self.rolled_back.add(checkpoint)

    def run(
        self,
        checkpoint: str | None,
        *,
        code: str | None = None,
        data: str = DATA[0],
        author: str = "playbook",
        parent: str | None = None,
        group: int = 0,
        acts: bool = True,
        temperature: float | None = None,
        source: str = "policy",
        refuse: bool = False,
        effect: bool = True,
        campaign: str | None = None,
        calls: Sequence[tuple[tuple[str, ...], bytes]] = (),
    ) -> str:
        """Record a run; those of one group are the same until the answer in epoch FIRES.

        `calls` are the rules that a model was asked about, each time, and the request.
        """
        own = code_of(list(self.parents).index(checkpoint)) if checkpoint in self.parents else "x"
        run = told_run(
            checkpoint=checkpoint,
            code=code or own,
            data=data,
            author=author,
            parent=parent,
            group=group,
            acts=acts,
            source=source,
            refuse=refuse,
            effect=effect,
            campaign=campaign,
        )
        made: list[Any] = [run]
        if temperature is not None:
            calls = [(("R7",), request_of(author, f"group {group}: R7 is not finite"))]
        if calls:
            made.append(self._transcript(run, author, calls, temperature or 0.0))
        self.log.save(*made)
        self.runs[str(run.id)] = Known(
            checkpoint=checkpoint,
            honest=checkpoint in self.parents and code in (None, own),
            origins=frozenset({("data", data), ("model", author)}),
            parent=parent,
            group=group,
            acts=acts,
        )
        return str(run.id)

    def credit(
        self,
        run: str,
        gains: Sequence[float],
        *,
        author: str = "playbook",
        acts: bool = True,
        claimed: Sequence[float] | None = None,
        level: float = 0.95,
        named: Sequence[int] | None = None,
        after: str = "nothing",
        then: str = "nothing",
        seeds: Sequence[int] | None = None,
        ends: bool = True,
        swapped: bool = False,
        arm: str | None = None,
        settings: tuple[dict[str, str], dict[str, str]] = ({}, {}),
        codes: tuple[str | None, str | None] = (None, None),
        states: tuple[str, str] = ("e", "e"),
    ) -> dict[str, list[str]]:
        """Record a credit of the run's answer beside the opposite one; return the forks by arm.

        `gains` is what the recorded answer gains in accuracy, for each order of the examples;
        `claimed`, `level`, `named` (the order of the forks that the credit names for each order)
        and `after` are what the credit's own words make of it. `then` decides in the forks, which
        have the orders `seeds`; a credit that does not end has all its forks and no result. `arm`
        is the alternative's name, and `settings` what the forks of each arm record of `then`;
        `codes` trained the forks of each arm, from `states`.
        """
        arm = arm or ("nothing" if acts else "decrease_lr")
        seeds = range(len(gains)) if seeds is None else seeds
        credit = Credit.start(run, after=after, seeds=seeds, arms={"1": [arm]})
        self.log.save(credit)
        forks: dict[str, list[str]] = {CHOSEN: [], arm: []}
        endings: dict[str, list[tuple[Any, ...]]] = {name: [] for name in forks}
        known = self.runs[run]
        for seed, gain in zip(seeds, gains, strict=True):
            for name, runs in forks.items():
                own = code_of(list(self.parents).index(str(known.checkpoint)))
                fork = told_run(
                    checkpoint=known.checkpoint,
                    code=codes[name != CHOSEN] or own,
                    state=states[name != CHOSEN] * 64,
                    data=DATA[0],
                    author="given",
                    parent=None,
                    group=known.group,
                    acts=(acts == (name == CHOSEN)) != swapped,
                    forked=run,
                    then={"name": then, **settings[name != CHOSEN]},
                    order=seed,
                    accuracy=0.5 + (gain if name == CHOSEN else 0.0),
                    wording=author if name == CHOSEN else "the alternative",
                )
                self.log.save(fork)
                runs.append(str(fork.id))
                self.runs[str(fork.id)] = replace(
                    known, origins=frozenset({("data", DATA[0]), ("model", "given")}), parent=run
                )
                last = fork.history[-1]
                came_to = (last.val_loss, 0.5 + (gain if name == CHOSEN else 0.0))
                endings[name].append((str(fork.id), 3, "completed", *came_to, 1, 0))
        for seed, source in zip(seeds, named or range(len(gains)), strict=True):
            for name, found in endings.items():
                credit.record_fork(*Place(1, name, seed), *found[source])
        if not ends:
            self.log.save(credit)
            return forks
        said = [answer_of(each, "anybody").to_dict() for each in (acts, not acts)]
        told = Interval(*[fmean(claimed or gains)] * 3)
        credit.measure(
            1,
            arm,
            epoch=FIRES,
            chosen=said[0],
            other=said[1],
            level=level,
            loss=asdict(Interval(0.0, 0.0, 0.0)),
            accuracy=asdict(told),
        )
        credit.end()
        self.log.save(credit)
        return forks

    def _transcript(
        self,
        run: Run,
        model: str,
        calls: Sequence[tuple[tuple[str, ...], bytes]],
        temperature: float,
    ) -> Transcript:
        transcript = Transcript.start(str(run.id), policy=run.policy)
        for number, (rules, request) in enumerate(calls):
            transcript.add(
                **synthetic_call(
                    action="repair" if number else "decide",
                    model=model,
                    epoch=FIRES,
                    rules=rules,
                    request=self.blobs.put(request),
                    request_bytes=len(request),
                    parameters={"temperature": temperature, "seed": 7},
                )
            )
        return transcript

    def audit(
        self,
        run: str,
        *,
        held: bool = True,
        exercised: bool = True,
        accuracy: float = 0.5,
        violation: bool = False,
    ) -> None:
        audit = Audit.start(run=run, tree_head="note", config={"disabled": []}, environment={})
        for number, name in enumerate(STEPS, start=1):
            status = "passed" if held else "failed" if number == 1 else "not_run"
            told = _RETRAINED.get(number, {}) if held else {}
            audit.complete_step(name, status, summary=status, evidence=told)
        found = [{"kind": "insincere", "rule": "R7", "epoch": 1, "decision": 1}]
        audit.score(
            accuracy_score=accuracy if held else 0.0,
            process_score=1.0 if held else 0.0,
            process_axis_exercised=exercised,
            test_accuracy=accuracy,
            validation_accuracy=accuracy,
            obligations=1,
            decisions=1,
            violations=found if violation else [],
        )
        self.log.save(audit)
        self.runs[run].judged = held
        self.runs[run].exercised = exercised
        self.runs[run].accuracy = accuracy
        self.runs[run].violated = violation

    def mark_bad(self, run: str) -> None:
        index = self.index_of(run, "run.decision_made")
        self.log.save(Review.of(index=index, entry_hash="0" * 64, run=run, mark="bad", note=""))
        self.runs[run].marked = True

    def admit(self, kind: str, name: str, *, signed: bool = True) -> None:
        if (kind, name) in self.corpus.admitted:
            return
        self.corpus.admit(kind, name, "known")
        if signed:
            self.log.save(self.corpus, author=self.author)
            self.admitted.add((kind, name))
        else:
            self.log.save(self.corpus)

    def withdraw(self, kind: str, name: str) -> None:
        if (kind, name) in self.corpus.admitted:
            self.corpus.withdraw(kind, name, "not so well known")
            self.log.save(self.corpus, author=self.author)
            self.admitted.discard((kind, name))

    def let_in(self, run: str) -> bool:
        """Tell by the account whether a run may be learned from now."""
        return self.runs[run].exercised and self.usable(run)

    def usable(self, run: str) -> bool:
        """Tell by the account whether a run may be shown as a failure now."""
        return self.runs[run].judged and self._clean(run)

    def _clean(self, run: str) -> bool:
        known = self.runs[run]
        at = known.checkpoint
        while at is not None and known.honest:
            if at in self.rolled_back:
                return False
            at = self.parents[at]
        return (
            known.honest
            and known.origins <= self.admitted
            and (known.parent is None or self._clean(known.parent))
        )

    def sft(self) -> set[str]:
        """Return the runs that an export of messages would hold now."""
        return {run for run, known in self.runs.items() if self.let_in(run) and not known.bad}

    def pairs(self) -> set[tuple[str, str]]:
        """Return the runs, better and worse, of which preferences would be made now."""
        return {
            (better, worse)
            for better in self.sft()
            for worse in self.runs
            if self.usable(worse)
            and self.runs[better].group == self.runs[worse].group
            and self._same_data(better, worse)
            and self.runs[better].acts != self.runs[worse].acts
            and self.runs[better].accuracy - self.runs[worse].accuracy
            >= (0.0 if self.runs[worse].violated else 0.1)
        }

    def _same_data(self, one: str, other: str) -> bool:
        kinds = [{o for o in self.runs[run].origins if o[0] == "data"} for run in (one, other)]
        return kinds[0] == kinds[1]

    def tables(self) -> Tables:
        """Return the tables as of now; they are brought up to date, not built anew."""
        with open_verified(self.ledger) as ledger:
            position = read_position(self.connection)[0]
            project(self.connection, ledger.entries(start=position))
        position, head, _ = read_position(self.connection)
        return Tables(self.connection, position - 1, str(head))

    def draw(self, query: Query) -> Drawn:
        return draw(self.tables(), query, blobs=self.blobs)

    def draw_again(self, query: Query, *, as_of: int, anew: bool) -> Drawn:
        """Draw as of an earlier index: from tables that end there, or that look back."""
        with open_verified(self.ledger) as ledger:
            if anew:
                with open_tables(ledger, as_of=as_of) as tables:
                    return draw(tables, query, blobs=self.blobs)
            head = next(ledger.entries(start=as_of)).entry_hash.hex()
        then = replace(self.tables(), as_of=as_of, head=head)
        self.connection.execute(f"SET VARIABLE as_of = {as_of}")
        try:
            return draw(then, query, blobs=self.blobs)
        finally:
            self.connection.execute("RESET VARIABLE as_of")

    def export(self, query: Query) -> Exported:
        """Draw as of now, and seal it."""
        drawn = self.draw(query)
        sealed = drawn.seal()
        assert self.blobs.put(drawn.members) == sealed.members
        self.log.save(sealed)
        runs = {
            each.id: tuple(run for run, _ in (*each.decisions, *each.rejected))
            for each in (example.member for example in drawn.examples)
        }
        done = Exported(query, drawn.as_of, drawn.lines, runs, sealed.id)
        self.exports.append(done)
        return done

    def index_of(self, stream: str, name: str) -> int:
        with open_verified(self.ledger) as ledger:
            return next(
                entry.index
                for entry in ledger.entries()
                if str(entry.stream_id) == stream and entry.name == name
            )


def code_of(number: int) -> str:
    return hashlib.sha256(b"code %d" % number).hexdigest()


def request_of(model: str, question: str) -> bytes:
    asked = [
        {"role": "system", "content": "answer the due rules"},
        {"role": "user", "content": question},
    ]
    return json.dumps({"model": model, "messages": asked}).encode()


def told_run(
    *,
    checkpoint: str | None,
    code: str,
    data: str,
    author: str,
    parent: str | None,
    group: int,
    acts: bool,
    source: str = "policy",
    refuse: bool = False,
    effect: bool = True,
    campaign: str | None = None,
    forked: str | None = None,
    then: Mapping[str, str] | None = None,
    order: int = 0,
    accuracy: float | None = None,
    wording: str | None = None,
    described: dict[str, Any] | None = None,
    state: str = "e" * 64,
) -> Run:
    """Tell a run; with `forked` it goes on from that one's epoch FIRES, and ends at `accuracy`."""
    config = {"dataset": "shapes", "seed": group, "epochs": 3, "edits": "live", "waived": []}
    run = Run.start(
        config=config,
        rules=CALIBRATED.to_dict(),
        spec=SPEC.to_dict(),
        data={"dataset": "shapes", "fingerprints": {"train": data}, "sizes": {"validation": 2_000}},
        environment={"code_sha256": code},
        policy={
            "name": author,
            **({"then": dict(then or {})} if forked else {}),
            **(described or {}),
        },
        parent_run=parent,
        campaign=campaign,
        checkpoint=checkpoint,
    )
    if forked is not None:
        orders = (Order(FIRES, order),) if order else ()
        run.fork(**Fork(forked, FIRES, "d" * 64, state, orders).to_dict())
    for epoch in range(3):
        seen = measured(epoch, diverged=epoch == FIRES)
        seen["train"]["accuracy"] += group / 1_000
        if epoch > FIRES:
            seen["settings"]["lr"] = 0.01 if acts and effect else 0.1
            if accuracy is not None:
                seen["validation"]["accuracy"] = accuracy
        run.measure_epoch(seen, {})
        run.evaluate_rules()
        if epoch != FIRES:
            continue
        run.decide(answer_of(acts, wording or author), source=source)
        if acts:
            if refuse:
                run.refuse_remedy("it cannot be done")
                continue
            settings = {**SETTINGS, **PARAMS["decrease_lr"]}
            run.apply_remedy([{"what": "lr"}], settings=settings, spec=run.spec.to_dict())
    run.end("completed")
    return run


def answer_of(acts: bool, author: str) -> Decision:
    """Return the answer to R7 in the epoch FIRES."""
    if not acts:
        return Decision(NO_ACTION, ("R7",), DEFER, {}, f"{author} waits and sees")
    change = ("decrease_lr", PARAMS["decrease_lr"])
    return Decision(HYPERPARAMETER_CHANGE, ("R7",), *change, f"{author} slows it down")


SFT = Query(kind="sft")
PREFERENCES = Query(kind="preferences")


def step(scene: Scene, rng: random.Random) -> None:
    """Let one thing happen."""
    runs = list(scene.runs)
    what = rng.choices(
        ("run", "audit", "promote", "roll back", "admit", "withdraw", "bad", "export"),
        weights=(10, 10, 3, 1, 3, 1, 1, 1),
    )[0]
    if what == "run":
        labels: Sequence[str | None] = [scene.line.active] * 20 + [None, *scene.parents, "no such"]
        author = rng.choice(AUTHORS)
        parents: Sequence[str | None] = [*[None] * 40, *runs]
        scene.run(
            rng.choice(labels),
            code=rng.choice([None] * 20 + [code_of(99)]),
            data=DATA[rng.random() < 0.1],
            author=author,
            parent=rng.choice(parents),
            group=int(rng.random() < 0.3),
            acts=rng.random() < 0.6,
            temperature=0.5 if author == "small" else None,
        )
    elif what == "audit" and runs:
        waiting = [run for run in runs if not scene.runs[run].judged]
        scene.audit(
            rng.choice(waiting if waiting and rng.random() < 0.9 else runs),
            held=rng.random() < 0.95,
            exercised=rng.random() < 0.95,
            accuracy=rng.choice([0.3, 0.7]),
            violation=rng.random() < 0.05,
        )
    elif what == "promote":
        scene.promote()
    elif what == "roll back":
        standing = [c for c, parent in scene.parents.items() if parent and _stands(scene, c)]
        if standing:
            scene.roll_back(rng.choice(standing[-2:]))
    elif what in ("admit", "withdraw"):
        kind = rng.choice(["data", "model"])
        name = rng.choice(DATA if kind == "data" else AUTHORS)
        if what == "admit":
            scene.admit(kind, name, signed=rng.random() < 0.8)
        else:
            scene.withdraw(kind, name)
    elif what == "bad" and runs:
        scene.mark_bad(rng.choice(runs))
    elif what == "export":
        check_export(scene, rng.choice([SFT, PREFERENCES]))


def _stands(scene: Scene, checkpoint: str | None) -> bool:
    while checkpoint is not None:
        if checkpoint in scene.rolled_back:
            return False
        checkpoint = scene.parents[checkpoint]
    return True


def check_export(scene: Scene, query: Query) -> None:
    """Export, and hold what comes out against the account: nothing more, and nothing less."""
    sft, pairs = scene.sft(), scene.pairs()
    done = scene.export(query)
    if query.kind == "sft":
        assert {runs[0] for runs in done.members.values()} == sft
    else:
        assert {(runs[0], runs[1]) for runs in done.members.values()} == pairs
