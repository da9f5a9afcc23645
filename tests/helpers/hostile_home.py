"""A home whose every text tries to be more than text: for pages that show it."""

from pathlib import Path

from hostile_pages import write_hostile_ledger
from synthetic import (
    SPEC,
    measured,
    synthetic_audit,
    synthetic_call,
    synthetic_run,
    synthetic_transcript,
)

from aggregates.canonical import digest
from aggregates.decisions import Decision
from aggregates.registry import REGISTRY
from aggregates.rules import CALIBRATED
from aggregates.run import Run
from ledger.application import LedgerApplication
from proctor.home import Home

HOSTILE = "\"'><script>window.hostile=1</script><img src=x onerror=window.hostile=1>{{7*7}}\u202e"


def make_hostile_home(path: Path) -> tuple[str, str]:
    """Make a home with a hostile run and an honest one that goes on; return their ids.

    Before them comes everything else that a ledger can have, also hostile.
    """
    home = Home(path)
    write_hostile_ledger(path / "ledger")
    with LedgerApplication.open(path / "ledger", REGISTRY) as log:
        hostile = _hostile_run(log)
        body = home.blobs.put(f'{{"messages": [{{"content": "<script>{HOSTILE[2:]}"}}]}}'.encode())
        calls = [
            synthetic_call(
                agent=HOSTILE[:100],
                model=HOSTILE[:100],
                request=body,
                request_bytes=100,
                response=body,
                response_bytes=100,
            ),
            synthetic_call("unusable", problem=HOSTILE),
        ]
        synthetic_transcript(log, hostile, calls)
        synthetic_audit(
            log,
            hostile,
            violations=[
                {"kind": HOSTILE, "rule": "R7", "epoch": 2, "emitter": "policy", "detail": HOSTILE}
            ],
        )
        going_on = synthetic_run(log, epochs=4, dead=range(4), end=None)
    return str(hostile.id), str(going_on.id)


def _hostile_run(log: LedgerApplication) -> Run:
    config = {"dataset": HOSTILE, "seed": 1, "epochs": 6, HOSTILE: HOSTILE, "edits": "live"}
    run = Run.start(
        config=config,
        config_hash=digest(config),
        rules=CALIBRATED,
        spec=SPEC,
        data={"dataset": HOSTILE, "fingerprint": "00" * 32},
        environment={"python": HOSTILE},
        policy={"name": HOSTILE, "model": HOSTILE},
        campaign=HOSTILE,
        parent_run=HOSTILE,
    )
    log.save(run)
    for epoch in range(6):
        told = measured(epoch, exploding=True)
        for layer in told["layers"]:
            layer["name"] = f"{layer['name']}{HOSTILE}"
        run.measure_epoch(told, {"note": HOSTILE})
        run.evaluate_rules()
        for rule in run.fired():
            run.decide(
                Decision.of((rule,), "decrease_lr", {"lr": 0.01}, HOSTILE)
                if rule == "R7"
                else Decision.of((rule,), "defer", {}, HOSTILE),
                source="policy",
            )
            if rule == "R7":
                run.refuse_remedy(HOSTILE)
        log.save(run)
    run.end("completed", detail=HOSTILE, deliverables={HOSTILE: "11" * 32})
    log.save(run)
    return run
