"""The rules by which the reference set's simulated trainings are judged.

They are fixed: a task has the same answer whatever the thresholds of the calibrated profile become.
docs/studies/reference/simulated_training.py is laid out for these thresholds.
I/O: none.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from aggregates.rules import CALIBRATED_1, DOCUMENT, RELATIVE_1, VERSIONS, RulesConfig

_CALIBRATED = replace(
    CALIBRATED_1,
    band_needs_value=True,
    r2_needs_interval=True,
    r2_stall_epochs=2,
    r2_stall_gain=0.03,
    r7_validation=True,
    r7_at_once=300.0,  # 100 times r7_high
)
REFERENCE_RULES: Mapping[str, RulesConfig] = MappingProxyType(
    {
        "calibrated": _CALIBRATED,
        "document": DOCUMENT,
        "relative": replace(RELATIVE_1, back_sets_batch=True, back_bounds_steps=True),
        "relative_4": VERSIONS["relative"][3],  # versions are never changed
    }
)
