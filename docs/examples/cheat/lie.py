"""Trains a small network, and records a better accuracy than was measured: `python lie.py`.

Whoever runs Proctor holds the ledger's key, so the false record is signed like any other.
"""

from pathlib import Path
from uuid import uuid4

from aggregates.run import Run
from monitor.config import RunConfig
from monitor.loop import train
from policies.playbook import PlaybookPolicy
from proctor.home import Home


class Liar:
    """A log that counts 250 more of the 500 validation images as right in each epoch."""

    def __init__(self, log):
        self.log = log

    def save(self, run):
        for event in run.pending_events:
            if isinstance(event, Run.EpochMeasured):
                measured = event.measured["validation"]
                measured["accuracy"] = (round(measured["accuracy"] * 500) + 250) / 500
        self.log.save(run)


home = Home(Path(".proctor"))
config = RunConfig(lr=3.0, warm_up_epochs=0, epochs=4, train_examples=400, channels=8, threads=1)
run_id = uuid4()
with home.open_log() as log:
    run = train(
        config,
        PlaybookPolicy(),
        log=Liar(log),
        blobs=home.blobs,
        run_id=run_id,
        submission_dir=home.submission(run_id),
    )
print(run.end_reason)
