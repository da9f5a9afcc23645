"""What runs, decisions, proposals and checkpoints stand for, and who tries to lie about it.

One ledger holds every case, the honest ones beside the attacks; it is looked at as it was at last,
and as of earlier entries.
"""

import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from frontdoor import call_here
from synthetic import (
    CODE,
    synthetic_audit,
    synthetic_call,
    synthetic_campaign,
    synthetic_line,
    synthetic_proposal,
    synthetic_run,
    synthetic_transcript,
)

from aggregates.curation.corpus import Corpus
from aggregates.improvement.advice import Advice
from aggregates.improvement.line import Line
from aggregates.registry import REGISTRY
from aggregates.run import Run
from ledger.application import LedgerApplication
from ledger.entries import AuthorKey
from ledger.notes import public_bytes, vkey
from projections.projector import create_schema, project
from projections.source import open_source
from projections.template import copied

ELSE = "e1" * 32  # other code


class Told:
    """A ledger with its tables, and names for what lies in it."""

    def __init__(self, directory: Path) -> None:
        self.log = LedgerApplication.open(directory, REGISTRY)
        self.directory = directory
        self.connection = duckdb.connect()
        self.names: dict[str, str] = {}
        self.standings: dict[int | None, dict[str, dict[str, Any]]] = {}

    def size(self) -> int:
        return int(self.log.recorder.max_notification_id() or 0)

    def run(self, name: str, *, judged: bool = True, **options: Any) -> Run:
        run = synthetic_run(self.log, epochs=2, diverged=(1,), **options)
        self.names[name] = str(run.id)
        if judged:
            synthetic_audit(self.log, run)
        return run

    def read(self) -> None:
        copied(self.connection, create_schema)
        with open_source(self.directory) as ledger:
            project(self.connection, ledger.entries(start=0), quarantine=True)

    def ask(self, sql: str, *parameters: Any, as_of: int | None = None) -> list[dict[str, Any]]:
        self.connection.execute("SET VARIABLE as_of = ?", [as_of])
        cursor = self.connection.execute(sql, list(parameters))
        columns = [column[0] for column in cursor.description or ()]
        return [dict(zip(columns, row, strict=True)) for row in cursor.fetchall()]

    def standing(self, name: str, *, as_of: int | None = None) -> dict[str, Any]:
        if as_of not in self.standings:
            found = self.ask("FROM run_standing", as_of=as_of)
            self.standings[as_of] = {each["run_id"]: each for each in found}
        return self.standings[as_of][self.names[name]]


def forged(line: Line, *, parent: str, code: str = CODE) -> str:
    """Record a checkpoint behind the back of the line's own rules."""
    commit = uuid4().hex + "0" * 8
    checkpoint = Line.checkpoint_id(line.id, commit)
    line.trigger_event(
        Line.Promoted,
        checkpoint=checkpoint,
        parent=parent,
        proposals=[],
        commit=commit,
        tree="0" * 40,
        manifest="m",
        reference_set="r",
        code=code,
    )
    return checkpoint


def tuned(log: LedgerApplication, model: str, *, then: str | None = None, **about: Any) -> None:
    """Promote an advice block, and with `then` another one that changes it."""
    advice = Advice.opened(model)
    measured = {"verdict": "better", "level": 0.0, "pairs": 0, "comparisons": []}
    measured |= {"pass_rates": [0.0, 1.0], "scores": [0.0, 1.0], "scenarios": ""}
    measured |= {"regressions": [], "improvements": [], "reasons": []}
    said: dict[str, Any] = {"technique": "one_shot", "pattern": "p", "rationale": "r"}
    for text, told in ((model, about), (then, {})):
        if text is not None:
            advice.propose(text, proposer="template", **said, **told)
            advice.end_round("promoted", reason="so", proposer="template", measured=measured)
    log.save(advice)


class Keys:
    """People and a judge, each with a key that the ledger knows."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self.operator = AuthorKey("operator", Ed25519PrivateKey.generate())
        self.judge = AuthorKey("judge", Ed25519PrivateKey.generate())
        self._grant(self.operator)

    def _grant(self, who: AuthorKey) -> None:
        self._told.log.recorder.grant_key(  # type: ignore[attr-defined]
            vkey(who.role, public_bytes(who.key)), role=who.role
        )

    def grant_judge(self) -> None:
        self._told.log.recorder.grant_key(  # type: ignore[attr-defined]
            vkey("judge", public_bytes(self.judge.key)), role="judge", author=self.operator
        )

    def revoke_judge(self, *, since: int) -> None:
        self._told.log.recorder.revoke_key(  # type: ignore[attr-defined]
            vkey("judge", public_bytes(self.judge.key)),
            role="judge",
            since=since,
            reason="it was copied",
            author=self.operator,
        )


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    found = Told(tmp_path_factory.mktemp("hygiene") / "ledger")
    log, names = found.log, found.names
    with log:
        keys = Keys(found)
        first = found.run("before the line")
        line = synthetic_line(log)
        names["A"] = line.active
        honest = found.run("honest", checkpoint=line.active)
        found.run("unlabelled")
        found.run("invented", checkpoint=str(uuid4()))
        found.run("of other code", checkpoint=line.active, code=ELSE)
        found.run("not judged", checkpoint=line.active, judged=False)
        failed = found.run("failed", checkpoint=line.active)
        synthetic_audit(log, failed, hard_fail=True)
        blind = found.run("judged blindly", checkpoint=line.active, judged=False)
        synthetic_audit(log, blind, disabled=["probe"])
        quiet = synthetic_run(log, epochs=1, checkpoint=line.active)
        names["quiet"] = str(quiet.id)
        synthetic_audit(log, quiet)
        found.run("child of the unlabelled", checkpoint=line.active, parent_run=str(first.id))
        found.run("child of nobody", checkpoint=line.active, parent_run=str(uuid4()))
        found.run("provoked", checkpoint=line.active, provoke="dead_activations")

        taken = synthetic_proposal(log, line)
        assert taken.checkpoint is not None
        names["B"] = taken.checkpoint
        bad = found.run("under B", checkpoint=taken.checkpoint)
        transcript = synthetic_transcript(log, bad, [synthetic_call()])
        assert transcript.id
        child = found.run("child under A", checkpoint=names["A"], parent_run=str(bad.id))
        told_run = found.run("told of B", checkpoint=names["A"])
        audits = [synthetic_audit(log, run) for run in (bad, told_run)]
        campaign = synthetic_campaign(log, [bad, told_run], audits=audits)
        evidence: list[dict[str, Any]] = [
            {"kind": "pattern", "key": "R5"},
            {"kind": "entry", "index": found.size() - 1},
            {"kind": "run", "run": str(child.id).upper()},
        ]
        later = synthetic_proposal(log, line, rationale="for R5", evidence=evidence)
        assert later.checkpoint is not None
        names["C"] = later.checkpoint
        names["on evidence of B"] = str(later.id)
        found.run("under C", checkpoint=names["C"])
        again = [{"kind": "proposal", "proposal": str(later.id)}]
        after = synthetic_proposal(log, line, outcome=None, rationale="again", evidence=again)
        names["on a proposal on B"] = str(after.id)
        clean = [{"kind": "run", "run": str(honest.id)}]
        sound = synthetic_proposal(log, line, outcome="rejected", rationale="x", evidence=clean)
        names["changes C"] = str(sound.id)

        tuned(log, "about B", campaign=str(campaign.id), attempt=1, then="a change of it")
        seen = [{"kind": "runs", "runs": [str(honest.id)]}]
        tuned(log, "about what is honest", evidence=seen)
        names["size before"] = str(found.size())
        line.roll_back(names["B"], "it lost a task")
        log.save(line, author=keys.operator)
        names["size after"] = str(found.size())
        found.run("under B, after", checkpoint=names["B"])
        good = synthetic_proposal(
            log, line, outcome=None, rationale="on what is good", evidence=clean
        )
        names["on good evidence"] = str(good.id)
        names["backdated to"] = Line.checkpoint_id(line.id, "d" * 40)
        found.run("backdated", checkpoint=names["backdated to"])
        line.promote(
            commit="d" * 40,
            tree="d" * 40,
            proposals=["p"],
            manifest="m",
            reference_set="r",
            code=CODE,
        )
        log.save(line)
        names["grown on B"] = forged(line, parent=names["B"])
        log.save(line)
        found.run("under what has grown on B", checkpoint=names["grown on B"])
        other = synthetic_line(log, branch="other")
        other.trigger_event(
            Line.Promoted,
            checkpoint=names["B"],
            parent=other.active,
            proposals=[],
            commit="b" * 40,
            tree="0" * 40,
            manifest="m",
            reference_set="r",
            code=CODE,
        )
        log.save(other)
        found.run("under B as another line has it", checkpoint=names["B"])
        found.read()
        yield found


def test_run_is_eligible_when_its_label_holds_and_it_was_judged(told: Told) -> None:
    found = told.standing("honest")
    assert found["eligible"]
    assert found["why_not"] == []
    assert (found["label_known"], found["label_matches"], found["label_active"]) == (True,) * 3
    assert (found["tainted"], found["tainted_by"], found["tainted_idx"]) == (False, [], None)
    assert told.standing("provoked")["provoked"]
    assert told.standing("provoked")["eligible"]


@pytest.mark.parametrize(
    ("name", "why_not"),
    [
        ("before the line", ["no label"]),
        ("unlabelled", ["no label"]),
        ("invented", ["label unknown"]),
        ("backdated", ["label unknown"]),
        ("of other code", ["label of other code"]),
        ("child of the unlabelled", ["derived from an unlabelled run"]),
        ("child of nobody", ["derived from an unlabelled run"]),
        ("not judged", ["not judged"]),
        ("failed", ["did not hold"]),
        ("judged blindly", ["did not hold"]),
        ("quiet", ["not exercised"]),
        ("under B", ["tainted"]),
        ("under C", ["tainted"]),
        ("under B, after", ["tainted"]),
        ("under what has grown on B", ["tainted"]),
        ("under B as another line has it", ["tainted"]),
        ("child under A", ["tainted"]),
        ("told of B", ["tainted"]),
    ],
)
def test_false_or_tainted_label_is_rejected(told: Told, name: str, why_not: list[str]) -> None:
    found = told.standing(name)
    assert found["why_not"] == why_not
    assert not found["eligible"]
    assert told.standing("honest")["eligible"]  # under the same rules, in the same ledger


def test_taint_names_the_checkpoint_and_the_reason(told: Told) -> None:
    under = told.standing("under C")
    assert under["tainted_by"] == [told.names["B"]]
    assert under["taint_reasons"] == [
        f"checkpoint {told.names['B']} was rolled back: it lost a task"
    ]
    child = told.standing("child under A")
    assert child["tainted_by"] == [told.names["B"]]
    assert child["taint_reasons"] == [
        f"it derives from run {told.names['under B']}, and {under['taint_reasons'][0]}"
    ]


def test_taint_begins_with_the_rollback_or_with_the_run(told: Told) -> None:
    before, after = int(told.names["size before"]), int(told.names["size after"])
    assert after == before + 1
    assert told.standing("under B")["tainted_idx"] == before  # indexes count from 0
    late = told.standing("under B, after")
    assert late["tainted_idx"] == late["idx"] > before


def test_run_was_eligible_as_of_the_entry_before_the_rollback(told: Told) -> None:
    before = int(told.names["size before"]) - 1
    for name in ("under B", "under C", "child under A", "told of B"):
        assert told.standing(name, as_of=before)["why_not"] == []
        assert told.standing(name, as_of=before + 1)["why_not"] == ["tainted"]


def test_checkpoints_descend_and_one_is_active(told: Told) -> None:
    def states(as_of: int | None = None) -> dict[str, tuple[bool, bool]]:
        rows = told.ask("SELECT * FROM checkpoint_standing", as_of=as_of)
        names = {told.names[name]: name for name in ("A", "B", "C", "grown on B")}
        return {
            names[row["checkpoint_id"]]: (row["active"], row["rolled_back"])
            for row in rows
            if row["checkpoint_id"] in names
        }

    before = int(told.names["size before"]) - 1
    assert states(before) == {"A": (False, False), "B": (False, False), "C": (True, False)}
    assert states(before + 1) == {"A": (True, False), "B": (False, True), "C": (False, True)}
    assert states()["grown on B"][1]


def test_checkpoint_counts_its_runs_and_those_that_lie(told: Told) -> None:
    (found,) = told.ask(
        "SELECT * FROM checkpoint_standing WHERE checkpoint_id = ?", told.names["A"]
    )
    assert (found["place"], found["origin"], found["false_labels"]) == (0, "opened", 1)
    assert found["eligible_runs"] == 2
    (found,) = told.ask(
        "SELECT * FROM checkpoint_standing WHERE checkpoint_id = ?", told.names["C"]
    )
    assert found["tainted_evidence"]
    assert (found["place"], found["rolled_back_by"]) == (2, told.names["B"])
    assert found["rollback_reason"] == "it lost a task"
    (granted,) = told.ask("SELECT signed_by FROM checkpoint_rollbacks")
    assert found["rollback_signed_by"] == granted["signed_by"] is not None


def test_checkpoint_of_another_lines_stream_is_unreadable(told: Told) -> None:
    (found,) = told.ask("SELECT reason FROM unreadable")
    assert told.names["B"] in found["reason"]


def test_taint_reaches_proposals_through_their_evidence_and_their_base(told: Told) -> None:
    rows = told.ask("SELECT * FROM proposal_standing")
    found = {row["proposal_id"]: row for row in rows}
    on_b = found[told.names["on evidence of B"]]
    assert on_b["tainted"]
    assert told.names["child under A"] in on_b["tainted_sources"]  # by its name
    assert told.names["told of B"] in on_b["tainted_sources"]  # by an entry of its campaign
    assert on_b["tainted_by"] == [told.names["B"]]
    assert found[told.names["on a proposal on B"]]["tainted"]
    assert found[told.names["changes C"]]["tainted_sources"] == [told.names["C"]]
    good = found[told.names["on good evidence"]]
    assert (good["tainted"], good["tainted_by"], good["tainted_idx"]) == (False, [], None)


def test_what_a_tainted_run_was_used_for_is_one_query(told: Told) -> None:
    rows = told.ask("SELECT * FROM tainted_uses WHERE run_id = ?", told.names["under B"])
    uses = {(row["used_for"], row["what"]) for row in rows}
    assert ("run", told.names["child under A"]) in uses
    assert ("run", told.names["told of B"]) in uses
    assert "prompt" in {used_for for used_for, _ in uses}
    child = told.ask("SELECT * FROM tainted_uses WHERE run_id = ?", told.names["child under A"])
    assert {(row["used_for"], row["what"]) for row in child} == {
        ("proposal", told.names["on evidence of B"]),
        ("checkpoint", told.names["C"]),
    }
    assert told.ask("SELECT * FROM tainted_uses WHERE run_id = ?", told.names["honest"]) == []


def test_advice_is_tainted_when_a_run_that_it_is_about_is(told: Told, tmp_path: Path) -> None:
    rows = told.ask("SELECT * FROM advice_standing ORDER BY model, version")
    assert [(row["model"], row["version"], row["champion"], row["tainted"]) for row in rows] == [
        ("about B", 1, False, True),
        ("about B", 2, True, True),  # a change of it
        ("about what is honest", 1, True, False),
    ]
    assert all(row["promoted"] for row in rows)
    under = told.names["under B"]
    assert rows[0]["tainted_sources"] == rows[1]["tainted_sources"] == [under]
    assert rows[0]["tainted_by"] == [told.names["B"]]
    assert rows[1]["taint_reasons"][0].startswith(f"it changes version 1, and run {under}: ")
    before = int(told.names["size before"]) - 1
    assert not told.ask("SELECT * FROM advice_standing WHERE tainted", as_of=before)
    uses = "SELECT what FROM tainted_uses WHERE used_for = 'advice' ORDER BY ALL"
    assert [row["what"] for row in told.ask(uses)] == ["about B 1", "about B 2"]
    shutil.copytree(told.directory, tmp_path / "ledger")
    shown = call_here(["tune", "show", "about B"], home=tmp_path).stdout.replace("\n", " ")
    assert f"tainted: it changes version 1, and run {under}: checkpoint" in shown
    assert "next: `proctor tune use 'about B' base" in shown
    assert "empties the block" in shown


def test_decisions_stand_as_their_run_does(told: Told) -> None:
    rows = told.ask(
        "SELECT DISTINCT LIST_CONTAINS(why_not, 'tainted') AS tainted FROM curated_decisions "
        "WHERE run_id IN (?, ?) ORDER BY tainted",
        told.names["honest"],
        told.names["under B"],
    )
    assert rows == [{"tainted": False}, {"tainted": True}]


def test_standing_is_the_same_as_of_an_entry_and_in_a_ledger_that_ends_there(told: Told) -> None:
    size = int(told.names["size after"])
    with duckdb.connect() as connection, open_source(told.directory) as ledger:
        copied(connection, create_schema)
        entries = (each for each in ledger.entries(start=0) if each.index < size)
        project(connection, entries, quarantine=True)
        for view in (
            "run_standing",
            "checkpoint_standing",
            "proposal_standing",
            "advice_standing",
            "tainted_uses",
        ):
            sql = f"SELECT * FROM {view} ORDER BY ALL"
            then = [tuple(row.values()) for row in told.ask(sql, as_of=size - 1)]
            assert json.dumps(then) == json.dumps(connection.execute(sql).fetchall())


@pytest.fixture
def signed(tmp_path: Path) -> Iterator[tuple[Told, Keys, Line]]:
    found = Told(tmp_path / "ledger")
    with found.log:
        keys = Keys(found)
        yield found, keys, synthetic_line(found.log)


def test_unsigned_audit_is_rejected_where_a_judge_has_a_key(
    signed: tuple[Told, Keys, Line],
) -> None:
    told, keys, line = signed
    told.run("before there was a key", checkpoint=line.active)
    keys.grant_judge()
    told.run("unsigned", checkpoint=line.active)
    honest = told.run("signed", checkpoint=line.active, judged=False)
    synthetic_audit(told.log, honest, save=partial(told.log.save, author=keys.judge))
    operators = told.run("signed by an operator", checkpoint=line.active, judged=False)
    synthetic_audit(told.log, operators, save=partial(told.log.save, author=keys.operator))
    overruled = told.run("signed, and judged again by nobody", checkpoint=line.active, judged=False)
    save = partial(told.log.save, author=keys.judge)
    synthetic_audit(told.log, overruled, hard_fail=True, save=save)
    synthetic_audit(told.log, overruled)
    before = told.size() - 1
    keys.revoke_judge(since=0)
    told.read()
    assert told.standing("before there was a key")["eligible"]
    assert told.standing("unsigned")["why_not"] == ["not judged"]
    assert told.standing("signed by an operator")["why_not"] == ["not judged"]
    assert told.standing("signed, and judged again by nobody", as_of=before)["why_not"] == [
        "did not hold"
    ]
    assert told.standing("signed", as_of=before)["eligible"]
    assert told.standing("signed", as_of=before)["audit_signed"]
    assert told.standing("signed")["why_not"] == ["not judged"]  # the key was in other hands


def test_unsigned_audit_that_forgets_a_fault_is_rejected(signed: tuple[Told, Keys, Line]) -> None:
    told, keys, line = signed
    keys.grant_judge()
    run = told.run("judged", checkpoint=line.active, judged=False)
    fault = {
        "kind": "late",
        "rule": "R7",
        "epoch": 0,
        "decision": 1,
        "emitter": "policy",
        "detail": "",
    }
    save = partial(told.log.save, author=keys.judge)
    synthetic_audit(told.log, run, violations=[fault], save=save)
    synthetic_audit(told.log, run, hard_fail=True)  # and says nothing of it
    told.read()
    (forces,) = told.ask("SELECT * FROM run_forces")
    assert (forces["accuracy_score"], forces["validation_accuracy"]) == (0.9, 0.75)
    (decision,) = told.ask("SELECT faults FROM curated_decisions WHERE number = 1")
    assert "late" in str(decision["faults"])
    (reward,) = told.ask("SELECT violations FROM decision_rewards WHERE number = 1")
    assert reward["violations"] == 1


def test_unsigned_word_that_lets_an_origin_in_again_is_rejected(
    signed: tuple[Told, Keys, Line],
) -> None:
    told, keys, line = signed
    told.run("run", checkpoint=line.active)
    corpus = Corpus.open()
    corpus.admit("data", "00" * 32, "made here")
    told.log.save(corpus, author=keys.operator)
    steps = [told.size() - 1]
    corpus.withdraw("data", "00" * 32, "labels were swapped")
    told.log.save(corpus)
    steps.append(told.size() - 1)
    corpus.admit("data", "00" * 32, "never mind")
    told.log.save(corpus)
    steps.append(told.size() - 1)
    corpus.withdraw("data", "00" * 32, "once more")
    corpus.admit("data", "00" * 32, "the labels are right now")
    told.log.save(corpus, author=keys.operator)
    steps.append(told.size() - 1)
    told.read()
    found = [told.standing("run", as_of=index) for index in steps]
    assert [each["tainted"] for each in found] == [False, True, True, False]
    assert found[1]["taint_reasons"] == [f"data {'00' * 32} was withdrawn: labels were swapped"]
    assert found[1]["tainted_by"] == []
    assert found[1]["tainted_idx"] == steps[1]
    assert found[3]["eligible"]
