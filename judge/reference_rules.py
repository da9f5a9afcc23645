"""The rules by which the reference set's simulated trainings are judged.

They are fixed: a task has the same answer whatever the thresholds of the calibrated profile become.
The simulated world (judge/reference_world.py) is laid out for these thresholds.
I/O: none.
"""

from collections.abc import Mapping
from types import MappingProxyType

from aggregates.rules import DOCUMENT, RulesConfig

_CALIBRATED = RulesConfig(
    profile="calibrated",
    restart_after_remedy=True,
    r1_signal="update_ratio",
    r1_low=1.4e-4,
    r1_high=1.1e-2,
    r2_signal="signal_to_noise",
    r2_low=0.14,
    r2_high=2.6,
    r5_signal="dead_share",
    r5_high=0.25,
    r6_low=3e-3,
    r7_high=3.0,
    r1_patience=5,
    r1_min_delta=0.0,
    r3_patience=8,
    r3_min_delta=1e-3,
    r4_saturation_gap=0.01,
    r4_ceiling=0.90,
    band_needs_value=True,
    r2_needs_interval=True,
    r2_stall_epochs=2,
    r2_stall_gain=0.03,
    r7_validation=True,
    r7_at_once=300.0,  # 100 times r7_high
)
REFERENCE_RULES: Mapping[str, RulesConfig] = MappingProxyType(
    {"calibrated": _CALIBRATED, "document": DOCUMENT}
)
