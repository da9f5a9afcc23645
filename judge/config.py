"""The judge's own settings, recorded in every audit.

Units: seconds, bytes.  I/O: none.
"""

from dataclasses import asdict, dataclass
from typing import Any

from judge.errors import JudgeError

# What can be switched off, to study which check catches what. An audit says so in its record.
CHECKS = (
    "architecture",  # step 6: specification and parameters
    "config_record",  # step 4
    "contract",  # step 2: residual, norm, initialisation
    "deliverable_hashes",  # step 1: against run.ended
    "ledger_verification",  # step 5: links, tree heads, signatures
    "logits",  # step 6: what the submitted code computes
    "measurements",  # step 5: what was measured and saved fits model, settings and data
    "order",  # step 5: the stream replayed through the aggregate
    "probe",  # step 7: gradient norms at the save
    "rules_profile",  # step 5: hashes and the profile
    "rules_recomputed",  # step 5
    "settings",  # step 5: measured settings against recorded remedies
    "validation",  # step 7: loss and accuracy of the weights
    "weights_hash",  # step 3
)


@dataclass(frozen=True, kw_only=True)
class JudgeConfig:
    """How strict an audit is; frozen, and part of its first event."""

    min_exercised_rules: int = 1  # different rules that fired and were answered
    min_firings: int = 2  # answered firings, each with an epoch after it
    target_accuracy: float | None = None  # of the test set; None takes the run's own, from a floor
    min_target_accuracy: float = 0.5  # the floor: a run cannot set itself a target below it
    min_test_examples: int = 50  # below, the audit says that the accuracy rests on few images
    # The probe is one forward and backward pass over weights at rest. On the same kind of machine
    # it comes out alike to the last bits; elsewhere kernels sum in another order.
    probe_tolerance: float = 1e-3  # relative, same kind of machine
    probe_tolerance_elsewhere: float = 1e-2
    logits_tolerance: float = 1e-3  # relative to the largest logit
    max_deliverable_bytes: int = 256 * 2**20
    child_seconds: float = 60.0  # wall clock
    child_cpu_seconds: int = 60
    child_memory_bytes: int = 8 * 2**30  # data segment and private mappings
    child_output_bytes: int = 64 * 2**10  # of what it prints
    disabled: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a name that switches nothing off, and a target that is none."""
        if unknown := sorted(set(self.disabled) - set(CHECKS)):
            raise JudgeError(f"unknown check {', '.join(unknown)}; choose from {', '.join(CHECKS)}")
        for target in (self.target_accuracy, self.min_target_accuracy):
            if target is not None and not 0.0 < target <= 1.0:
                raise JudgeError(
                    f"the target accuracy must be above 0 and at most 1, not {target!r}"
                )

    def checks(self, name: str) -> bool:
        """Return whether a check is on."""
        if name not in CHECKS:
            raise JudgeError(f"unknown check {name}")
        return name not in self.disabled

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as audit.started holds them."""
        return {**asdict(self), "disabled": list(self.disabled)}
