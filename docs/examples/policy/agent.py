"""A policy as a program that speaks JSON lines: `proctor run --policy "exec:python agent.py"`."""

import json
import sys

for line in sys.stdin:
    seen = json.loads(line)
    decisions = []
    for rule in seen["due"]:
        side = seen["rules"][rule]["side"]
        if rule in ("R1", "R7") and side in ("high", "not_finite") and not decisions:
            lr = seen["settings"]["lr"] / 10
            answer = {"event_type": "hyperparameter_change", "direction": "decrease_lr"}
            answer |= {"params": {"lr": lr}, "justification": f"{rule}: the steps are too large"}
        else:
            answer = {"event_type": "rule_triggered_no_action", "direction": "defer"}
            answer |= {"params": {}, "justification": f"{rule} can wait"}
        decisions.append({**answer, "cites": [rule]})
    print(json.dumps({"decisions": decisions}), flush=True)
