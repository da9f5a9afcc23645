"""Which of several audits of a run counts, and what a campaign's view shows of it."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from eventsourcing.persistence import StoredEvent
from synthetic import begun_campaign, synthetic_audit, synthetic_campaign, synthetic_run

from aggregates.audit import REVISION, STEPS, Audit
from aggregates.campaign import Campaign
from aggregates.registry import REGISTRY
from aggregates.run import Run
from ledger.application import LedgerApplication
from ledger.bodies import encode_body
from ledger.entries import AuthorKey
from ledger.notes import public_bytes, vkey
from projections.identity import read_position
from projections.projector import project, projected
from projections.source import open_source
from projections.stretches import stretch_of

HARD = {"hard_fail": True}


class Told:
    """A ledger with its tables."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = LedgerApplication.open(directory, REGISTRY)
        self.tables = projected([])

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        start, *_ = read_position(self.tables)
        with open_source(self.directory) as ledger:
            entries = ledger.entries(start=start)
            project(self.tables, entries, authority=ledger.authority, quarantine=True)
        return self.tables.execute(sql).fetchall()

    def grant_judge(self) -> AuthorKey:
        operator = AuthorKey("operator", Ed25519PrivateKey.generate())
        judge = AuthorKey("judge", Ed25519PrivateKey.generate())
        recorder: Any = self.log.recorder
        recorder.grant_key(vkey("operator", public_bytes(operator.key)), role="operator")
        recorder.grant_key(vkey("judge", public_bytes(judge.key)), role="judge", author=operator)
        return judge


def of_campaign(log: LedgerApplication, number: int = 3) -> tuple[Campaign, list[Run]]:
    """Begin a campaign and make its runs."""
    begun, ids = begun_campaign(log, number, epochs=1)
    return begun, [synthetic_run(log, epochs=1, run_id=i, campaign=str(begun.id)) for i in ids]


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    found = Told(tmp_path / "ledger")
    with found.log, found.tables:
        yield found


@pytest.mark.parametrize(
    ("earlier", "later", "standing"),
    [
        # A pass that checked less does not hide a fail.
        ({**HARD, "retrained": 10}, {"retrained": None}, "earlier"),
        ({**HARD, "retrained": 10}, {"retrained": 8}, "earlier"),
        ({**HARD, "retrained": 10}, {"retrained": 10, "disabled": ["probe"]}, "earlier"),
        (HARD, {"retrained": None}, "earlier"),  # it was going to retrain, or does not say
        ({**HARD, "retrains": 1.0}, {"retrained": 9}, "earlier"),
        # Nor does it hide a pass.
        ({"retrained": 10}, {"retrained": None, "score": 0.5}, "earlier"),
        ({"retrained": 10}, {**HARD, "retrains": 0.0}, "earlier"),
        # One that checked as much, or more, is the newer word.
        ({**HARD, "retrained": 10}, {"retrained": 10}, "later"),
        ({"retrained": 10}, {**HARD, "retrained": 10}, "later"),
        ({**HARD, "retrains": 0.0}, {"retrained": None}, "later"),
        ({"retrained": None}, {"retrained": 4}, "later"),
        ({"retrained": 4}, {"retrained": 10, "score": 0.5}, "later"),
    ],
)
@pytest.mark.sampled(3)
def test_audit_that_checked_most_stands(
    told: Told, earlier: dict[str, Any], later: dict[str, Any], standing: str
) -> None:
    run = synthetic_run(told.log, epochs=1)
    audits = {
        "earlier": synthetic_audit(told.log, run, **earlier),
        "later": synthetic_audit(told.log, run, **later),
    }
    expected = [(str(audits[standing].id),)]
    assert told.ask("SELECT audit_id FROM run_summary") == expected
    assert told.ask("SELECT audit_id FROM counting_audits") == expected
    assert told.ask("SELECT audit_id FROM audits WHERE standing") == expected


def test_hard_fail_before_the_retraining_has_retrained_nothing(told: Told) -> None:
    run = synthetic_run(told.log, epochs=1)
    synthetic_audit(told.log, run, hard_fail=True, retrains=1.0)
    for view in ("audit_strengths", "counting_audits", "audits", "run_summary"):
        assert told.ask(f"SELECT retrained FROM {view}") == [(0.0,)]
    assert told.ask("SELECT reach FROM audit_strengths") == [(1.0,)]


def test_audit_of_an_earlier_revision_does_not_stand_before_one_of_this(told: Told) -> None:
    run = synthetic_run(told.log, epochs=1)
    strict = synthetic_audit(told.log, run, hard_fail=True, retrained=10)
    made_up(told.log, run, config={"disabled": []}, epochs=10)
    assert told.ask("SELECT audit_id, verdict FROM run_summary") == [(str(strict.id), "failed")]


def test_made_up_revision_is_rejected(told: Told) -> None:
    run = synthetic_run(told.log, epochs=1)
    made_up(told.log, run, config={"disabled": [], "revision": 99}, epochs=10)
    honest = synthetic_audit(told.log, run, hard_fail=True, retrained=10)
    assert told.ask("SELECT audit_id, verdict FROM run_summary") == [(str(honest.id), "failed")]
    made_up(told.log, run, config={"disabled": [], "revision": 99}, epochs=99)
    assert told.ask("SELECT audit_id, verdict FROM run_summary") == [(str(honest.id), "failed")]
    assert told.ask("SELECT MAX(revision), MAX(retrained) FROM audit_strengths") == [(REVISION, 1)]


def made_up(log: LedgerApplication, run: Run, *, config: dict[str, Any], epochs: int) -> Audit:
    audit = Audit.start(run=str(run.id), tree_head="note", config=config, environment={})
    for number, name in enumerate(STEPS, start=1):
        evidence: dict[str, Any] = {"epochs": 10} if number == 5 else {}
        evidence = {"executed": {"done": True, "epochs": epochs}} if number == 7 else evidence
        audit.complete_step(name, "passed", summary="perfect", evidence=evidence)
    audit.score(
        accuracy_score=1.0,
        process_score=1.0,
        process_axis_exercised=True,
        test_accuracy=1.0,
        validation_accuracy=1.0,
        obligations=1,
        decisions=1,
        violations=[],
    )
    log.save(audit)
    return audit


def test_unsigned_audit_is_shown_as_unsigned(told: Told) -> None:
    run = synthetic_run(told.log, epochs=1)
    audit = synthetic_audit(told.log, run)
    columns = "audit_id, audit_signed, retrained"
    assert told.ask(f"SELECT {columns} FROM run_summary") == [(str(audit.id), False, 0.0)]
    assert told.ask("SELECT signed_by, signed FROM audits") == [(None, False)]


def test_unsigned_audit_decides_nothing_where_a_judge_has_a_key(told: Told) -> None:
    judge = told.grant_judge()
    begun, (unjudged, cheat, honest) = of_campaign(told.log)
    save = partial(told.log.save, author=judge)
    failed = synthetic_audit(told.log, cheat, hard_fail=True, retrains=0.0, save=save)
    passed = synthetic_audit(told.log, honest, retrained=10, score=0.5, save=save)
    newest = {"disabled": [], "revision": REVISION}
    forged, made = (made_up(told.log, run, config=newest, epochs=10) for run in (cheat, unjudged))
    runs = [unjudged, cheat, honest]
    synthetic_campaign(told.log, runs, audits=[made, forged, passed], begun=begun)
    columns = "run_id, audit_id, recorded_audit_id, verdict, process_score, audit_signed"
    asked = f"SELECT {columns}, place, recorded_place FROM campaign_progress ORDER BY place"
    assert told.ask(asked) == [
        (str(honest.id), str(passed.id), str(passed.id), "held", 0.5, True, 1, 3),
        (str(cheat.id), str(failed.id), str(forged.id), "failed", 0.0, True, 2, 2),
        (str(unjudged.id), None, str(made.id), None, None, None, 3, 1),
    ]
    shown = told.ask("SELECT verdict FROM run_summary ORDER BY verdict NULLS LAST")
    assert shown == [("failed",), ("held",), (None,)]


@pytest.mark.parametrize("signed", [("audit.scored",), ("audit.started", "audit.scored")])
def test_signed_scores_behind_a_start_or_steps_that_nobody_signed_are_rejected(
    told: Told, signed: tuple[str, ...]
) -> None:
    judge = told.grant_judge()
    honest, cheat = (synthetic_run(told.log, epochs=1) for _ in range(2))
    held = synthetic_audit(
        told.log, honest, retrained=10, save=partial(told.log.save, author=judge)
    )
    mixed: Any = synthetic_audit(told.log, cheat, retrained=10, save=lambda _: None)
    for event in mixed.collect_events():  # as the holder of the ledger's key can put them together
        name = REGISTRY.for_class(type(event)).name
        told.log.events.put([event], **({"author": judge} if name in signed else {}))
    assert told.ask("SELECT audit_id FROM counting_audits") == [(str(held.id),)]
    asked = f"SELECT signed, valid FROM audit_strengths WHERE audit_id = '{mixed.id}'"
    assert told.ask(asked) == [(False, False)]


def test_named_audit_that_is_no_audit_of_the_run_gives_no_place(told: Told) -> None:
    begun, (other, run) = of_campaign(told.log, 2)
    audit = synthetic_audit(told.log, other)
    half = Audit.start(run=str(run.id), tree_head="", config={}, environment={}, audit_id=uuid4())
    half.trigger_event(
        Audit.Scored,
        hard_fail=False,
        accuracy_score=1.0,
        process_score=1.0,
        process_axis_exercised=True,
        test_accuracy=1.0,
        validation_accuracy=1.0,
        obligations=0,
        decisions=0,
        violations=[],
    )
    told.log.save(half)
    synthetic_campaign(told.log, [other, run], audits=[audit, half], begun=begun)
    columns = "run_id, verdict, place FROM campaign_progress ORDER BY number"
    assert told.ask(f"SELECT {columns}") == [
        (str(other.id), "held", 1),
        (str(run.id), None, 2),
    ]


def test_attempt_that_was_retrained_is_placed_before_one_that_was_not(told: Told) -> None:
    begun, (trusted, sampled, whole) = of_campaign(told.log)
    audits = [
        synthetic_audit(told.log, trusted, score=1.0),
        synthetic_audit(told.log, sampled, score=0.9, retrained=7),
        synthetic_audit(told.log, whole, score=0.8, retrained=10),
    ]
    synthetic_campaign(told.log, [trusted, sampled, whole], audits=audits, begun=begun)
    assert told.ask("SELECT place, retrained FROM campaign_progress ORDER BY number") == [
        (3, 0.0),
        (2, 0.7),
        (1, 1.0),
    ]


def test_judge_whose_key_was_granted_again_is_a_judge_again(told: Told) -> None:
    """A stolen operator's key revoked it; the ledger's first key gave it back."""
    recorder: Any = told.log.recorder
    operator = AuthorKey("operator", Ed25519PrivateKey.generate())
    judge = AuthorKey("judge", Ed25519PrivateKey.generate())
    its = vkey("judge", public_bytes(judge.key))
    recorder.grant_key(vkey("operator", public_bytes(operator.key)), role="operator")
    recorder.grant_key(its, role="judge", author=operator)
    first, second = synthetic_run(told.log, epochs=1), synthetic_run(told.log, epochs=1)
    save = partial(told.log.save, author=judge)
    synthetic_audit(told.log, first, save=save)
    recorder.revoke_key(its, role="judge", since=1, reason="by a thief", author=operator)
    recorder.grant_key(its, role="judge")
    assert told.ask("SELECT run_id FROM counting_audits") == []  # what was doubted stays so
    again = synthetic_audit(told.log, second, save=save)
    counting = told.ask("SELECT audit_id, signed FROM counting_audits")
    assert counting == [(str(again.id), True)]


@pytest.mark.parametrize("columns", [False, True])
def test_key_event_outside_the_stream_of_the_keys_is_rejected(told: Told, columns: bool) -> None:
    """Verification ignores it, so a verdict that it would take away counts."""
    judge = told.grant_judge()
    run = synthetic_run(told.log, epochs=1)
    audit = synthetic_audit(told.log, run, save=partial(told.log.save, author=judge))
    its = vkey("judge", public_bytes(judge.key))
    body = encode_body({"v": 1, "role": "judge", "vkey": its, "since": 1, "reason": "hidden"})
    told.log.recorder.insert_events([StoredEvent(uuid4(), 1, "key.revoked", body)])
    if columns:
        with open_source(told.directory) as ledger:
            stretch = stretch_of(ledger.pages(start=0), start=0, authority=ledger.authority)
            own = stretch_of(ledger.pages(start=0), start=0)
        assert stretch is not None
        assert own is not None
        assert [len(each.tables.get("unreadable", ())) for each in (stretch, own)] == [1, 0]
        return
    counting = told.ask("SELECT audit_id, signed FROM counting_audits")
    assert counting == [(str(audit.id), True)]
    [(reason,)] = told.ask("SELECT reason FROM unreadable")
    assert reason.endswith(
        "(key.revoked): it is not in the stream that decides on the ledger's keys"
    )
