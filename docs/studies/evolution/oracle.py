"""An oracle for a bisection: exit status 0 if what decides here saves trainings.

It runs in a checkpoint's own files. The trainings are of other seeds than those of any gate.
"""

import sys
from pathlib import Path
from random import Random

sys.path[:0] = [str(Path.cwd()), str(Path.cwd() / "docs")]
from studies.reference.worth import FAULTS, draw_start, worth_of

from policies.deciding.rescue import RescuePolicy

faults = [fault for each in ("rate", "loss") for fault in FAULTS[each]]
shares = []
for number in range(16):
    rng = Random(f"oracle {number}")
    starts = [draw_start(rng, faults) for _ in range(3)]
    shares.append(worth_of(starts, RescuePolicy().decide).share)
raise SystemExit(sum(shares) / len(shares) < 0.2)
