"""Attacks on verdicts: made up, or weakened by an audit that checks less."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from rebuilt import rebuild
from synthetic import synthetic_audit, synthetic_run
from threat_scene import JUDGE, OPERATOR, STRANGER, Scene
from threats import threat

from aggregates.registry import REGISTRY
from aggregates.run import Run
from judge.auditing.record import read_record
from ledger.application import LedgerApplication
from ledger.entries import AuthorKey
from ledger.notes import public_bytes, vkey

HARD: dict[str, Any] = {"hard_fail": True, "retrains": 1.0}
WHOLE: dict[str, Any] = {"retrained": 10}  # of ten epochs
Audit = Callable[..., Any]


@contextmanager
def judged(scene: Scene, *, granted: bool = True, **verdict: Any) -> Iterator[tuple[Audit, Any]]:
    """Record a run and its honest verdict; yield how more audits are appended, and the recorder."""
    with LedgerApplication.open(scene.verdicts, REGISTRY) as log:
        recorder: Any = log.recorder
        operator, judge = AuthorKey("operator", OPERATOR), AuthorKey("judge", JUDGE)
        if granted:
            recorder.grant_key(vkey("operator.example", public_bytes(OPERATOR)), role="operator")
            recorder.grant_key(
                vkey("judge.example", public_bytes(JUDGE)), role="judge", author=operator
            )
        run = synthetic_run(log, epochs=1)
        save = partial(log.save, author=judge) if granted else log.save
        honest = synthetic_audit(log, run, save=save, **verdict)
        scene.standing.write_text(str(honest.id))

        def audit(*, key: AuthorKey | None, **changes: Any) -> None:
            signed = log.save if key is None else partial(log.save, author=key)
            synthetic_audit(log, run, save=signed, **changes)

        yield audit, recorder


JUDGES = AuthorKey("judge", JUDGE)


def signed_pass(scene: Scene, *, bound: bool) -> Run:
    """Record a run with a judge's signed pass, of which nothing ought to stand after the attack."""
    with LedgerApplication.open(scene.verdicts, REGISTRY) as log:
        recorder: Any = log.recorder
        recorder.grant_key(vkey("judge.example", public_bytes(JUDGE)), role="judge")
        run = synthetic_run(log, epochs=1)
        state = read_record(scene.verdicts, run.id).judged if bound else None
        synthetic_audit(log, run, judged=state, save=partial(log.save, author=JUDGES), **WHOLE)
    scene.standing.write_text("")
    return run


def edited(name: str, body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "policy": {"name": "my-great-agent"}} if name == "run.started" else body


@threat(
    "verdict: the run goes on after it, with other files and another end",
    target="verdict",
    by="append",
)
def gone_on(scene: Scene) -> None:
    run = signed_pass(scene, bound=True)
    files = {"weights.safetensors": "f" * 64}
    run.trigger_event(Run.Ended, reason="completed", detail="", deliverables=files)
    with LedgerApplication.open(scene.verdicts, REGISTRY) as log:
        log.save(run)


@threat("verdict: a judge's signed audit over an edited run", target="verdict", by="append")
def over_another_run(scene: Scene) -> None:
    signed_pass(scene, bound=True)
    rebuild(scene.verdicts, edited)


@threat(
    "verdict: ... an audit by an earlier version, which names no state of the run",
    target="verdict",
    by="append",
    undetected="`proctor show` calls such a verdict not bound; a kept tree head shows that the "
    "ledger was written anew; judge the run again",
)
def unbound_over_another_run(scene: Scene) -> None:
    signed_pass(scene, bound=False)
    rebuild(scene.verdicts, edited)


@threat("verdict: made up, unsigned, where a judge has a key", target="verdict", by="append")
def made_up(scene: Scene) -> None:
    with judged(scene, **HARD) as (audit, _):
        audit(key=None, **WHOLE)


@threat(
    "verdict: made up, unsigned, where no judge has a key",
    target="verdict",
    by="append",
    undetected="`proctor show` calls such a verdict unsigned; grant a judge's key, or judge the "
    "run yourself",
)
def made_up_without_a_judge(scene: Scene) -> None:
    with judged(scene, granted=False, **HARD) as (audit, _):
        audit(key=None, **WHOLE)


@threat("verdict: a hard fail followed by a pass without retraining", target="verdict", by="append")
def weaker(scene: Scene) -> None:
    with judged(scene, **HARD) as (audit, _):
        audit(key=JUDGES)


@threat("verdict: a hard fail followed by a pass of a sample", target="verdict", by="append")
def sampled(scene: Scene) -> None:
    with judged(scene, **HARD) as (audit, _):
        audit(key=JUDGES, retrained=7)


@threat(
    "verdict: a hard fail followed by a pass with checks disabled", target="verdict", by="append"
)
def disabled(scene: Scene) -> None:
    with judged(scene, **HARD) as (audit, _):
        audit(key=JUDGES, disabled=["probe"], **WHOLE)


@threat("verdict: a pass followed by a fail that checked less", target="verdict", by="append")
def spoiled(scene: Scene) -> None:
    with judged(scene, **WHOLE) as (audit, _):
        audit(key=JUDGES, hard_fail=True, retrains=0.0)


@threat("verdict: signed by a judge's key that was revoked", target="verdict", by="append")
def revoked(scene: Scene) -> None:
    with judged(scene, **HARD) as (audit, recorder):
        name, operator = (
            vkey("stolen.example", public_bytes(STRANGER)),
            AuthorKey("operator", OPERATOR),
        )
        recorder.grant_key(name, role="judge", author=operator)
        audit(key=AuthorKey("judge", STRANGER), **WHOLE)
        recorder.revoke_key(name, role="judge", author=operator, since=0, reason="stolen")


@threat(
    "verdict: made up, signed with a stolen judge's key",
    target="verdict",
    by="append",
    undetected="a judge's signature is that judge's word; judge the run again with a key of your "
    "own, and revoke the stolen one since the theft",
)
def stolen(scene: Scene) -> None:
    with judged(scene, **HARD) as (audit, _):
        audit(key=JUDGES, **WHOLE)
