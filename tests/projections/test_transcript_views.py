"""Views over calls, campaigns and strategy, beside what the aggregates say of the same events."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import duckdb
import msgspec
import pytest
from synthetic import (
    begun_campaign,
    synthetic_audit,
    synthetic_call,
    synthetic_campaign,
    synthetic_run,
    synthetic_transcript,
)

from aggregates.campaign import MODE, Campaign
from aggregates.decisions import Decision, PastDecision
from aggregates.registry import REGISTRY
from aggregates.rulebook import PRECEDENCE, RULE_CLASSES, RULES
from aggregates.strategy import phases, remedy_effects
from ledger.application import LedgerApplication
from ledger.bodies import encode_body
from projections.projector import create_schema, project
from projections.source import open_source
from projections.template import copied

pytest_plugins = ("projection_fixtures",)

Ask = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def log(tmp_path: Path) -> LedgerApplication:
    return LedgerApplication.open(tmp_path / "ledger", REGISTRY)


@pytest.fixture
def ask(log: LedgerApplication, tmp_path: Path) -> Ask:
    """Ask tables that are made from the ledger as it stands."""

    def answer(sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with duckdb.connect() as connection, open_source(tmp_path / "ledger") as source:
            copied(connection, create_schema)
            project(connection, source.entries(start=0))
            return connection.execute(sql, parameters).fetchall()

    return answer


def test_calls_of_a_run_are_summed_up(log: LedgerApplication, ask: Ask) -> None:
    run = synthetic_run(log, epochs=1)
    synthetic_transcript(
        log,
        run,
        [
            synthetic_call(action="probe", epoch=None, request_bytes=10),
            synthetic_call(request_bytes=1_000),
            synthetic_call("unusable", request_bytes=3_000),
            synthetic_call(action="repair", request_bytes=2_000),
            synthetic_call(cached=True, request_bytes=2_000, usage=None, cost=0.0, seconds=0.0),
            synthetic_call("timeout", usage=None, cost=None, retries=({"status": 429},) * 3),
            {
                "agent": "playbook",
                "action": "decide",
                "outcome": "usable",
                "epoch": 2,
                "seconds": 9.0,
            },
        ],
    )
    columns = "calls, cached, retries, asked, usable, usable_share, prompt_tokens, "
    columns += "completion_tokens, unpriced, seconds, min_request_bytes, max_request_bytes"
    assert ask(f"SELECT {columns} FROM call_summary WHERE run_id = ?", [str(run.id)]) == [
        (6, 1, 3, 5, 3, 3 / 5, 1_200, 160, 1, 2.5, 1_000, 3_000)
    ]
    [(model, rung, cost, median)] = ask(
        "SELECT model, rung, cost, median_request_bytes FROM call_summary"
    )
    assert (model, rung) == ("small", "json_schema")
    assert cost == pytest.approx(0.004)
    assert median == 2_000


def test_run_that_asked_nobody_has_no_share(log: LedgerApplication, ask: Ask) -> None:
    synthetic_transcript(log, synthetic_run(log, epochs=1))
    synthetic_run(log, epochs=1)
    assert ask("SELECT calls, asked, usable_share FROM call_summary") == [(0, 0, None)]


def test_cost_and_tokens_that_nobody_knows_are_missing(log: LedgerApplication, ask: Ask) -> None:
    unknown = synthetic_call(usage=None, cost=None)
    synthetic_transcript(log, synthetic_run(log, epochs=1), [unknown, unknown])
    columns = "prompt_tokens, completion_tokens, cost, unpriced"
    assert ask(f"SELECT {columns} FROM call_summary") == [(None, None, None, 2)]


def test_transcript_of_another_run_is_unreadable(log: LedgerApplication, tmp_path: Path) -> None:
    judged = synthetic_run(log, epochs=1, run_id=uuid4())
    transcript = synthetic_transcript(log, judged)
    with open_source(tmp_path / "ledger") as source:
        entries = list(source.entries(start=0))
    honest = entries[-1]
    assert honest.stream_id == transcript.id
    body = {"v": 1, "at": 0, "mode": MODE, "policy": {}}
    for run, rows in ((str(judged.id), 1), (str(uuid4()), 0), ("x", 0)):
        entry = msgspec.structs.replace(honest, body=encode_body({**body, "run": run}))
        with duckdb.connect() as connection:
            copied(connection, create_schema)
            project(connection, [*entries[:-1], entry], quarantine=True)
            assert connection.execute("SELECT COUNT(*) FROM transcripts").fetchall() == [(rows,)]
            assert connection.execute("SELECT COUNT(*) FROM unreadable").fetchall() == [(1 - rows,)]


def test_progress_tells_attempts_with_scores_calls_and_place(
    log: LedgerApplication, ask: Ask
) -> None:
    begun, ids = begun_campaign(log, 2, abandoned=1, epochs=1)
    cut_off, second, first = (
        synthetic_run(log, epochs=1, run_id=each, campaign=str(begun.id), end=end)
        for each, end in zip(ids, ("crashed", "completed", "completed"), strict=True)
    )
    padded = {"kind": "padding", "emitter": "policy"}
    synthetic_transcript(log, second, [synthetic_call(), synthetic_call()])
    audits = [
        synthetic_audit(log, first, violations=[padded], score=0.5),
        synthetic_audit(log, second),
    ]
    synthetic_campaign(log, [second, first], audits=audits, begun=begun)
    assert ask(
        "SELECT number, run_id, abandoned, violations, validation_accuracy, calls, "
        "prompt_tokens, place FROM campaign_progress ORDER BY abandoned DESC, number"
    ) == [
        (1, str(cut_off.id), True, None, None, None, None, None),
        (1, str(second.id), False, 0, 0.75, 2, 600, 1),
        (2, str(first.id), False, 1, 0.75, None, None, 2),
    ]
    assert ask("SELECT attempts, feedback, policy ->> '$.name' FROM campaigns") == [
        (2, True, "synthetic")
    ]


DEFERRED = {"kind": "unresolved_deferral", "rule": "R1", "epoch": 2}


@pytest.mark.parametrize(
    ("violation", "asked", "cause"),
    [
        ({**DEFERRED, "emitter": "policy"}, True, "policy"),
        ({**DEFERRED, "rule": "R2", "emitter": "policy"}, True, "prompt"),
        ({**DEFERRED, "kind": "precedence", "emitter": "policy"}, True, "prompt"),
        ({**DEFERRED, "rule": None, "emitter": "policy"}, True, "prompt"),
        ({**DEFERRED, "rule": "R2", "epoch": None, "emitter": "policy"}, True, "prompt"),
        ({**DEFERRED, "rule": "R2", "emitter": "policy"}, False, "policy"),
        ({**DEFERRED, "rule": "R2", "epoch": 3, "emitter": "policy"}, True, "policy"),
        ({**DEFERRED, "rule": "R3", "emitter": "policy"}, True, "policy"),
        ({**DEFERRED, "emitter": "driver"}, True, "harness"),
        ({**DEFERRED, "emitter": "harness"}, True, "harness"),
        ({**DEFERRED, "emitter": "human"}, True, "human"),
    ],
)
def test_violation_has_a_cause(
    log: LedgerApplication, ask: Ask, violation: dict[str, Any], asked: bool, cause: str
) -> None:
    first, second = (synthetic_run(log, epochs=1) for _ in range(2))
    probe = synthetic_call(action="probe", epoch=None)
    call = synthetic_call(epoch=2, rules=("R1", "R2"))
    synthetic_transcript(log, second, [probe, call] if asked else [probe])
    feedback = {
        "attempts": [{"number": 1, "violations": [{"kind": "unresolved_deferral", "rule": "R1"}]}]
    }
    synthetic_campaign(log, [first, second], feedback=feedback)
    synthetic_audit(log, second, violations=[violation])
    assert ask("SELECT run_id, cause FROM violation_causes") == [(str(second.id), cause)]


@pytest.mark.parametrize("named", [0, 1])
def test_views_tell_of_an_attempt_what_the_audit_that_counts_found(
    log: LedgerApplication, ask: Ask, named: int
) -> None:
    run = synthetic_run(log, epochs=1)
    audits = [
        synthetic_audit(log, run, violations=[{**DEFERRED, "emitter": "policy"}]),
        synthetic_audit(log, run, hard_fail=True, violations=[{**DEFERRED, "emitter": "driver"}]),
    ]
    assert ask("SELECT cause FROM violation_causes") == [("harness",)]
    synthetic_campaign(log, [run], audits=[audits[named]])
    columns = "audit_id, recorded_audit_id, verdict, process_score, violations"
    told = (str(audits[1].id), str(audits[named].id), "failed", 0.0, 1)
    assert ask(f"SELECT {columns} FROM campaign_progress") == [told]
    assert ask("SELECT cause FROM violation_causes") == [("harness",)]


def test_audit_of_another_run_is_no_verdict_on_an_attempt(log: LedgerApplication, ask: Ask) -> None:
    mine, other = (synthetic_run(log, epochs=1) for _ in range(2))
    audit = synthetic_audit(log, other, violations=[{**DEFERRED, "emitter": "policy"}])
    campaign = Campaign.start(config={}, attempts=1, policy={})
    campaign.start_attempt(str(mine.id))
    campaign.judge_attempt(str(mine.id), str(audit.id))
    log.save(campaign)
    assert ask("SELECT run_id, verdict FROM campaign_progress") == [(str(mine.id), None)]
    assert ask("SELECT run_id FROM violation_causes") == [(str(other.id),)]


def test_violation_of_an_attempt_that_was_told_nothing_is_for_the_prompt(
    log: LedgerApplication, ask: Ask
) -> None:
    first, second = (synthetic_run(log, epochs=1) for _ in range(2))
    for run in (first, second):
        synthetic_transcript(log, run, [synthetic_call(rules=("R1",))])
        synthetic_audit(log, run, violations=[{**DEFERRED, "emitter": "policy"}])
    synthetic_campaign(log, [first, second], feedback={"violations": [DEFERRED]})
    rows = ask("SELECT run_id, told, cause FROM violation_causes")
    assert sorted(rows) == sorted(
        [(str(first.id), False, "prompt"), (str(second.id), True, "policy")]
    )


def test_strategy_views_say_what_the_functions_say() -> None:
    random = Random(4)
    phases_told: set[Any] = set()
    effects_told: set[Any] = set()
    with duckdb.connect() as connection:
        copied(connection, create_schema)
        for number in range(60):
            run, epochs = f"run {number}", random.choice([1, 5, 6, 15, 20, 40])
            likely = random.choice([0.0, 0.1, 0.5])
            fired = [
                tuple(rule for rule in RULES if random.random() < likely) for _ in range(epochs)
            ]
            decided = sorted(random.choices(range(epochs), k=random.randrange(8)))
            decisions = [
                PastDecision(
                    place,
                    epoch,
                    "policy",
                    replace(LOWER, cites=tuple(random.sample(RULES, random.choice([1, 1, 2])))),
                    random.choice(["applied", "applied", "refused", "restart", None]),
                )
                for place, epoch in enumerate(decided, start=1)
            ]
            _fill(connection, run, fired, decisions)
            for phase in phases(fired):
                part = (phase.name, phase.first, phase.last, phase.expected, phase.dominant)
                counts = [
                    phase.firings.get(kind, 0) for kind in dict.fromkeys(RULE_CLASSES.values())
                ]
                phases_told.add((run, *part, *counts))
            effects_told |= {
                (run, effect.decision, effect.rule, effect.epoch, effect.worked)
                for effect in remedy_effects(fired, decisions)
            }
        found = connection.execute("SELECT * FROM strategy_phases").fetchall()
        assert sorted(found, key=str) == sorted(phases_told, key=str)
        effects = connection.execute("SELECT * FROM remedy_effects").fetchall()
        assert sorted(effects, key=str) == sorted(effects_told, key=str)
    assert {worked for *_, worked in effects} == {True, False, None}
    assert len({dominant for _, _, _, _, _, dominant, *_ in found}) == 5  # None among them


LOWER = Decision("hyperparameter_change", ("R1",), "decrease_lr", {"lr": 0.01}, "lower")


def _fill(
    connection: duckdb.DuckDBPyConnection,
    run: str,
    fired: Sequence[Sequence[str]],
    decisions: Sequence[PastDecision],
) -> None:
    """Write the rows that the views read, without the aggregate: it would refuse some of them."""
    evaluated = [
        (run, epoch, rule, rule in rules, PRECEDENCE.index(rule) + 1)
        for epoch, rules in enumerate(fired)
        for rule in RULES
    ]
    connection.executemany(
        "INSERT INTO log.rule_evaluations VALUES (?, ?, 0, ?, ?, NULL, NULL, NULL, 0, ?)", evaluated
    )
    for past in decisions:
        for rule in past.decision.cites:
            connection.execute(
                "INSERT INTO log.citations VALUES (?, ?, 0, ?)", [run, past.number, rule]
            )
        if past.outcome is not None:
            connection.execute(
                "INSERT INTO log.remedies (run_id, decision, epoch, idx, outcome)"
                " VALUES (?, ?, ?, 0, ?)",
                [run, past.number, past.epoch, past.outcome],
            )
