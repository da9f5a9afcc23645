"""A ledger with every kind of event, none of which was measured."""

from dataclasses import asdict
from pathlib import Path

from synthetic import (
    measured,
    synthetic_audit,
    synthetic_call,
    synthetic_campaign,
    synthetic_line,
    synthetic_proposal,
    synthetic_run,
    synthetic_transcript,
)

from aggregates.annotation import Annotation
from aggregates.comparison import Comparison
from aggregates.credit import Credit, Interval
from aggregates.curation.corpus import Corpus
from aggregates.curation.export import Export
from aggregates.improvement.advice import Advice
from aggregates.improvement.bisection import Bisection
from aggregates.improvement.evolution import Evolution
from aggregates.improvement.line import Line
from aggregates.improvement.proposal import Proposal
from aggregates.registry import REGISTRY
from aggregates.review import Review
from aggregates.run import Run
from ledger.application import LedgerApplication
from ledger.notes import vkey
from ledger.recorder import SignedRecorder


def write_some_of_everything(directory: Path) -> None:
    """Write a ledger with every kind of event."""
    with LedgerApplication.open(directory, REGISTRY) as log:
        first = synthetic_run(log, epochs=8, exploding=range(2, 6), dead=range(1, 7))
        second = synthetic_run(log, diverged=(3,), waived=("R3",), parent_run=str(first.id))
        synthetic_run(log, dead=range(5), edits="restart")
        synthetic_run(log, dead=range(5), refuse=True, end="crashed")
        synthetic_run(log, epochs=3, dead=range(3), diverged=(2,))  # defers R5 to R7 for ever
        going_on = synthetic_run(log, epochs=1, end=None)
        going_on.measure_epoch(measured(1), {"metrics": {"f1": 0.5}})
        going_on.evaluate_rules()
        file = {"epoch": 1, "name": "kept.pt", "sha256": "5f" * 32, "size": 9}
        going_on.trigger_event(Run.FileSaved, **file)  # as a watched loop does
        log.save(going_on)
        synthetic_run(log, epochs=5, dead=range(5), provoke="dead_activations")
        cut_off = synthetic_run(log, epochs=2, end="crashed")
        probe = synthetic_call(action="probe", epoch=None, rules=())
        transcript = synthetic_transcript(
            log, first, [probe, synthetic_call(), synthetic_call("unusable", problem="no JSON")]
        )
        transcript.count_votes(
            epoch=2,
            rule="R6",
            votes={"add_norm": 1, "unusable": 1},
            chosen="add_norm",
            calls=[2, 3],
        )
        said = first.decisions[0].decision.to_dict()
        transcript.review_proposal(epoch=2, proposed=said, verdict="approve", decision=said)
        log.save(transcript)
        padded = [{"kind": "padding", "rule": "R5", "epoch": 2}]
        audits = [
            synthetic_audit(log, first, violations=padded),
            synthetic_audit(log, second, hard_fail=True),
        ]
        synthetic_campaign(log, [first, second], abandoned=[cut_off], audits=audits)
        log.save(Review.of(index=3, entry_hash="00", run=str(first.id), mark="gold", note=""))
        log.save(Annotation.give(str(first.id), tags=["baseline"], notes="as before", config={}))
        line = synthetic_line(log)
        taken = synthetic_proposal(log, line)
        refused = synthetic_proposal(log, line, outcome="rejected")
        waiting = synthetic_proposal(log, line, outcome=None)
        waiting.record_review(
            "approve", envelope="{}", key="operator+00+00", expires=2_000_000_000, note="go on"
        )
        line.stop(proposal=str(refused.id), reason="it reached for the controller")
        line.resume(envelope="{}")
        line.adopt(commit="a" * 40, tree="b" * 40, manifest="m", reference_set="r", envelope="{}")
        line.open_valley("v", steps=[str(waiting.id)], envelope="{}", expires=2_000_000_000)
        line.close_valley("the last step is through")
        line.admit_task("anchor", sha256="0" * 64, envelope="{}")
        tasks = {"first": {"success": False}}
        line.measure(commit="a" * 40, set="hidden", sha256="0" * 64, tasks=tasks)
        line.alarm(commit="a" * 40, kind="worse", detail="one task less", tasks=["first"])
        line.answer(1, "the task was wrong")
        weighed = dict.fromkeys(("files", "lines", "functions", "complexity"), 12)
        for purpose, code in (("baseline", None), ("drift", weighed)):
            line.evaluate(
                line.active,
                purpose=purpose,
                seed="ab" * 32,
                sha256="0" * 64,
                tasks=4,
                wrong=["first"],
                valid=4,
                precision=0.5,
                code=code,
            )
        evolution = Evolution.open(str(line.id))
        evolution.begin(2, proposer={"name": "tuner"})
        evolution.end_round(
            "proposed", proposal=str(taken.id), proposer="tuner", technique="one_shot"
        )
        evolution.end_round("nothing", proposer="tuner", reason="there is no pattern")
        evolution.steer("off")
        log.save(evolution)
        advice = Advice.opened("scripted")
        advice.end_round("nothing", reason="nothing went wrong", proposer="template")
        advice.propose(
            "## An example",
            proposer="template",
            technique="one_shot",
            pattern="p",
            rationale="why",
        )
        came = {"success": True, "valid": True, "missing": False, "problem": None}
        advice.answer("r1-high", repeat=0, seed=7, first="base", base=came, candidate=came)
        compared = {"verdict": "better", "level": 0.01, "pairs": 1, "comparisons": []}
        compared |= {"pass_rates": [0.5, 1.0], "scores": [0.5, 0.99], "scenarios": "00"}
        compared |= {"regressions": [], "improvements": ["r1-high"], "reasons": []}
        advice.end_round("promoted", reason="better", proposer="template", measured=compared)
        advice.record_scenario(
            "edge", origin="adversary", observation={}, expected=[], admitted=False
        )
        advice.admit_scenario("edge")
        advice.steer("off")
        log.save(advice)
        search = Bisection.open(
            line=str(line.id), good="a", suspects=["b"], oracle={}, error=0.0, confidence=0.95
        )
        search.probe("b", "bad", {"exit code": 1})
        search.end(
            culprit="b", candidates=["b"], posterior=1.0, reason="one suspect, and it is bad"
        )
        corpus = Corpus.open()
        corpus.admit("data", "ab" * 32, "made here")
        corpus.withdraw("data", "ab" * 32, "made badly")
        sealed = Export.seal(
            kind="sft",
            as_of=3,
            head="cd" * 32,
            query={},
            code="ef" * 32,
            examples=0,
            root="01" * 32,
            sha256="23" * 32,
            members="45" * 32,
        )
        log.save(search, corpus, sealed)
        assert taken.checkpoint is not None
        line.roll_back(taken.checkpoint, "it was worse after all")
        log.save(waiting, line)
        assert isinstance(log.recorder, SignedRecorder)
        log.recorder.grant_key(vkey("judge", bytes(32)), role="judge")
        comparison = Comparison.start(
            policies=[{"name": "synthetic"}], conditions={"hot": {"lr": 3.0}}, seeds=[0]
        )
        (cell,) = comparison.cells
        comparison.allot(cell, str(first.id))
        comparison.finish(cell, audit=str(audits[0].id), problem=None)
        comparison.end()
        log.save(comparison)
        fork = synthetic_run(log, epochs=4, dead=range(1, 4), fork_of=first)
        credit = Credit.start(str(first.id), after="nothing", seeds=[0], arms={"1": ["nothing"]})
        for arm in ("chosen", "nothing"):
            credit.record_fork(1, arm, 0, str(fork.id), 4, "completed", 1.5, 0.5, 2, 0)
        past = first.decisions[0]
        credit.measure(
            1,
            "nothing",
            epoch=past.epoch,
            chosen=past.decision.to_dict(),
            other=past.decision.to_dict(),
            level=0.95,
            loss=asdict(Interval(None, None, None)),
            accuracy=asdict(Interval(0.1, 0.05, 0.15)),
        )
        credit.end()
        log.save(credit)


def add_what_can_go_wrong(directory: Path) -> None:
    """Add a firing without an answer, and a checkpoint that was rolled back with what it made."""
    with LedgerApplication.open(directory, REGISTRY) as log:
        unanswered = synthetic_run(log, epochs=1, end=None)
        for epoch in range(1, 5):
            unanswered.measure_epoch(measured(epoch, exploding=True), {})
            unanswered.evaluate_rules()
            if unanswered.fired():
                break
        log.save(unanswered)
        line = Line.open(
            root="ab" * 20,
            branch="other",
            commit="cd" * 20,
            tree="ef" * 20,
            manifest="m",
            reference_set="r",
            code="c0" * 32,
        )
        log.save(line)
        culprit = synthetic_proposal(log, line)
        assert culprit.checkpoint is not None
        made = synthetic_run(log, dead=range(5), checkpoint=culprit.checkpoint)
        synthetic_run(log, epochs=2, parent_run=str(made.id))
        assert isinstance(log.recorder, SignedRecorder)
        size = log.recorder.max_notification_id()
        assert size is not None
        sealed = Export.seal(
            kind="sft",
            as_of=size - 1,
            head="ab" * 32,
            query={"of": 1},
            code="ef" * 32,
            examples=1,
            root="01" * 32,
            sha256="23" * 32,
            members="45" * 32,
        )
        log.save(sealed)
        line.alarm(commit="ab" * 20, kind="decline", detail="three in a row", tasks=[])
        line.roll_back(culprit.checkpoint, "it was worse after all")
        told = {
            "kind": "salvage",
            "culprit": culprit.checkpoint,
            "checkpoint": "c",
            "proposal": "p",
        }
        again = Proposal.submit(
            line=str(line.id),
            targets={"component.py": 2},
            diff="0d" * 32,
            diff_bytes=120,
            base=line.head.commit,
            base_tree=line.head.tree,
            rationale="without the culprit",
            trigger="operator_request",
            proposer="salvage",
            evidence=[told],
        )
        log.save(line, again)
