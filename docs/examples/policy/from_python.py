"""A policy that divides the learning rate by ten when R1 or R7 asks for it, trained and judged."""

from pathlib import Path

from aggregates.decisions import Decision, Observation
from judge.auditing.audit import audit_run
from monitor.config import RunConfig
from monitor.loop import train
from proctor.home import Home


class Cautious:
    name = "cautious"

    def describe(self):
        return {"name": self.name, "factor": 10}

    def decide(self, seen: Observation):
        answers = []
        for rule in seen.due:  # by precedence; each one needs an answer
            side = seen.evaluations[rule].side
            if rule in ("R1", "R7") and side in ("high", "not_finite") and not answers:
                params = {"lr": seen.settings.lr / 10}
                why = f"{rule}: the steps are too large."
                answers.append(Decision.of((rule,), "decrease_lr", params, why))
            else:
                answers.append(Decision.of((rule,), "defer", {}, f"{rule} can wait."))
        return answers


home = Home(Path("own-policy"))
config = RunConfig(lr=3.0, warm_up_epochs=0, epochs=4, train_examples=400, channels=8, threads=1)
with home.open_log() as log:
    run = train(config, Cautious(), log=log, blobs=home.blobs, submission_dir=Path("submission"))
    report = audit_run(run.id, ledger_dir=home.ledger, submission_dir=Path("submission"), log=log)
print(run.end_reason, report.hard_fail, report.scores.process_score)
