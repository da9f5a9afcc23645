"""The configurations of the rules, their versions, and what a rule says of an epoch.

The rules themselves are in aggregates/rulebook/; aggregates/firing.py evaluates them.

Source: docs/reference/rules.md.  I/O: none.  Units: epochs from 0; see EpochSignals.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from aggregates.canonical import digest

FIRST_RULES = ("R1", "R2", "R3", "R4", "R5", "R6", "R7")
"""The rules of each configuration that does not say which it has."""
GROWTH = "grad_norm_growth"  # the largest layer norm, over its median in the epochs before


def _added(default: Any) -> Any:
    """Declare a field that the first rules did not have; the default is their behaviour."""
    return field(default=default, metadata={"added": True})


@dataclass(frozen=True)
class RulesConfig:
    """Signals, thresholds and windows of the rules; frozen, and named by its hash in every run."""

    profile: str
    restart_after_remedy: bool  # a rule's EMA and window start afresh once its remedy was applied
    r1_signal: str
    r1_low: float
    r1_high: float
    r2_signal: str
    r2_low: float
    r2_high: float
    r5_signal: str
    r5_high: float  # share
    r6_low: float  # gradient norm
    r7_high: float  # gradient norm
    r1_patience: int  # epochs without a better validation loss
    r1_min_delta: float  # nats
    r3_patience: int  # epochs
    r3_min_delta: float  # nats
    r4_saturation_gap: float  # change of training accuracy per epoch
    r4_ceiling: float  # training accuracy at which nothing is left to gain
    ema_alpha: float = 0.1
    persistence: int = 3  # consecutive epochs
    action_window: int = 2  # epochs within which a firing must be decided on
    deferral_limit: int = 7  # epochs within which a deferral must clear: one for each rule
    band_needs_value: bool = _added(False)  # the epoch's own value is outside the band, too
    r1_at_once: float | None = _added(None)  # update ratio above which R1 fires in that epoch
    r2_needs_interval: bool = _added(False)  # and the whole 90% interval of the signal-to-noise
    r2_pooled: bool = _added(False)  # R2's interval is that of the last `persistence` epochs
    r2_stall_epochs: int = _added(0)  # epochs without progress that R2 low needs; 0 asks for none
    r2_stall_gain: float = _added(0.0)  # share by which training loss must fall to be progress
    r7_validation: bool = _added(False)  # a validation loss that is not finite fires R7
    r7_at_once: float | None = _added(None)  # gradient norm above which R7 fires in that epoch
    # Consecutive epochs that the bands of R1, R5, R6 and R7 need; None: as many as `persistence`.
    band_persistence: int | None = _added(None)
    r6_signal: str = _added("min_layer_grad_norm")
    r7_signal: str = _added("max_layer_grad_norm")
    kept_states: int = _added(0)  # latest epochs whose training states can be gone back to
    back_sets_batch: bool = _added(False)  # going back answers R2 high, by a batch in the band
    back_bounds_steps: bool = _added(False)  # fresh weights keep R1's rate if clip_norm is tighter
    tries_rates: bool = _added(False)  # a decision may try several rates, an epoch each
    # Skill (see EpochSignals) up to which an epoch only guesses: R4 does not count it, and R1 fires
    # where the training loss stands still too, not falling by `guess_gain` in two epochs.
    guess_skill: float | None = _added(None)
    guess_gain: float = _added(0.0)
    r1_majority: bool = _added(False)  # more than half of the tensors are outside of R1's band
    # R1 high is silent in an epoch that lowers the validation loss by more than this share, up to
    # an update ratio of `r1_at_once`. None: it fires whatever the loss does.
    r1_learning_gain: float | None = _added(None)
    # Update ratio above which R2 high is silent: a smaller batch makes long steps noisier still.
    r2_longest_steps: float | None = _added(None)
    r1_adds_norm: bool = _added(False)  # `add_norm` also answers R1 low and guessing
    names: tuple[str, ...] = _added(FIRST_RULES)  # which rules there are

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))  # recorded as a list

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as run.started holds them.

        A field that was added later is left out at its default, so that rules recorded before it
        existed keep their hash.
        """
        legacy = {
            item.name
            for item in fields(self)
            if "added" in item.metadata and getattr(self, item.name) == item.default
        }
        return {name: value for name, value in asdict(self).items() if name not in legacy}

    @property
    def hash(self) -> str:
        """SHA-256 of the configuration in canonical JSON."""
        return digest(self.to_dict())


# The versions of the profiles. One that is on the main branch is never changed: recorded runs name
# it by its hash. A change of thresholds is another version.
DOCUMENT = RulesConfig(
    profile="document",
    restart_after_remedy=False,
    r1_signal="epoch_update_ratio",
    r1_low=1e-4,
    r1_high=1e-2,
    r2_signal="norm_noise_scale",
    r2_low=50.0,
    r2_high=5000.0,
    r5_signal="sparsity",
    r5_high=0.40,
    r6_low=1e-5,
    r7_high=10.0,
    r1_patience=3,
    r1_min_delta=0.0,
    r3_patience=5,
    r3_min_delta=1e-3,
    r4_saturation_gap=0.02,
    r4_ceiling=0.99,
)
# Midpoints between ten healthy and ten faulty runs: docs/studies/rules.md.
CALIBRATED_1 = RulesConfig(
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
)
# Chosen on one half of a grid of settings: docs/studies/rules.md.
CALIBRATED = replace(
    CALIBRATED_1,
    r1_low=3.3e-4,
    r1_high=2.5e-2,
    r2_high=2.5,
    r5_high=0.28,
    r6_low=9.2e-3,
    r1_patience=7,
    r3_patience=9,
    ema_alpha=1.0,  # no average: persistence alone keeps chance out, and nothing lags behind
    band_needs_value=True,
    r1_at_once=0.036,
    r2_pooled=True,
    r2_stall_epochs=2,
    r2_stall_gain=0.03,
    r7_validation=True,
    r7_at_once=9.77,
)
# No threshold depends on the scale of the loss, and one epoch is evidence enough: faults lie some
# four times outside of these bands, and healthy runs inside.
RELATIVE_1 = replace(
    CALIBRATED,
    profile="relative",
    band_persistence=1,
    r1_low=3.3e-4,
    r1_high=0.036,
    r1_at_once=None,
    r3_min_delta=0.0,
    r6_signal="grad_norm_ratio",
    r6_low=0.01,
    r7_signal=GROWTH,
    r7_high=30.0,
    r7_at_once=None,
    kept_states=10,
)
RELATIVE_2 = replace(
    RELATIVE_1,
    back_sets_batch=True,
    back_bounds_steps=True,
    guess_skill=0.03,
    guess_gain=0.01,
)
RELATIVE_3 = replace(RELATIVE_2, r1_majority=True, r6_low=0.007, tries_rates=True)
RELATIVE = replace(
    RELATIVE_3, r1_at_once=0.1, r1_learning_gain=0.1, r2_longest_steps=0.012, r1_adds_norm=True
)
VERSIONS: Mapping[str, tuple[RulesConfig, ...]] = {
    "calibrated": (CALIBRATED_1, CALIBRATED),
    "document": (DOCUMENT,),
    "relative": (RELATIVE_1, RELATIVE_2, RELATIVE_3, RELATIVE),
}
"""Every version of each profile, the oldest first. Runs start with the newest; the judge accepts
all of them, and its verdict names the version."""

PROFILES: Mapping[str, RulesConfig] = {
    profile: versions[-1] for profile, versions in VERSIONS.items()
}


def version_of(rules: RulesConfig) -> int | None:
    """Return the number of the profile's version (from 1), None for rules that are no version."""
    for versions in VERSIONS.values():
        if rules in versions:
            return versions.index(rules) + 1
    return None


@dataclass(frozen=True)
class AppliedRemedy:
    """A rule's remedy took effect after the evaluation of `epoch`."""

    epoch: int
    rule: str
    trials: int = 0  # epochs after it that are trials: no rule judges them


@dataclass(frozen=True, slots=True)  # a run keeps many
class RuleEvaluation:
    """What one rule says of the latest epoch, and the numbers it says it from."""

    rule: str
    fired: bool
    side: str | None  # high, low, guessing, plateau, stalled or not_finite; None while silent
    value: float | None  # this epoch's signal
    ema: float | None
    streak: int  # consecutive epochs with a value, up to the latest, in which the condition held

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as run.rules_evaluated holds them."""
        return {name: getattr(self, name) for name in self.__slots__}
