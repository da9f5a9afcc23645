"""The judge's own settings, recorded in every audit.

Units: seconds, bytes.  I/O: none.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from aggregates.audit import REVISION
from judge.errors import JudgeError

_NO_BOUND = 2**62
NO_LIMITS: Mapping[str, Any] = MappingProxyType({})  # other than the default ones


@dataclass(frozen=True, kw_only=True)
class JudgeConfig:
    """How strict an audit is; frozen, and part of its first event."""

    min_exercised_rules: int = 1  # different rules that fired and were answered
    min_firings: int = 1  # answered firings, each with an epoch after it
    target_accuracy: float | None = None  # of the test set; None takes the run's own, from a floor
    min_target_accuracy: float = 0.5  # the floor: a run cannot set itself a target below it
    min_test_examples: int = 50  # below, the audit says that the accuracy rests on few images
    # The probe is one forward and backward pass over weights at rest. On the same kind of machine
    # it comes out alike to the last bits; elsewhere kernels sum in another order.
    probe_tolerance: float = 1e-3  # relative, same kind of machine
    probe_tolerance_elsewhere: float = 1e-2
    logits_tolerance: float = 1e-3  # relative to the largest logit
    # The standard error of an accuracy is at most 0.5 / sqrt(n): 0.05 for 100 examples.
    min_validation_examples: int = 100  # below, validation accuracy ranks no attempts
    data_dir: str | None = None  # the judge's own data; None: the recorded folder, if it is theirs
    max_deliverable_bytes: int = 256 * 2**20
    # Of the judged run, compared before any work. A run above them gets no verdict.
    max_examples: int = 120_000  # of all splits: twice CIFAR-10
    max_image_files: int = 1_000_000
    max_image_bytes: int = 64 * 2**20  # of one file
    max_image_pixels: int = 128_000_000  # of one image
    max_epochs: int = 2_000
    max_threads: int = 64
    max_events: int = 100_000
    max_decisions: int = 20_000
    max_parameters: int = 64_000_000  # as many as max_deliverable_bytes can hold
    max_activation_bytes: int = 32 * 2**30  # of one training step
    max_multiply_adds: int = 10**16  # of the retraining: about 60 hours at 50 billion a second
    max_task_seconds: int = 4 * 3_600  # wall clock of each process of a task, its training too
    max_task_examples: int = 2_000_000  # of a task's parts together; each costs 200 bytes
    max_task_example_bytes: int = 64 * 2**20  # of the inputs, targets or outputs of one example
    max_audit_seconds: int = 24 * 3_600  # wall clock of all processes of submitted code together
    max_audit_bytes: int = 256 * 2**30  # that all of them send to the judge
    child_seconds: float = 600.0  # wall clock, the start too: a busy machine needs it
    child_cpu_seconds: int = 60
    child_memory_bytes: int = 8 * 2**30  # data segment and private mappings
    child_output_bytes: int = 64 * 2**10  # of what it prints

    def __post_init__(self) -> None:
        """Refuse a target that is none."""
        for target in (self.target_accuracy, self.min_target_accuracy):
            if target is not None and not 0.0 < target <= 1.0:
                raise JudgeError(
                    f"the target accuracy must be above 0 and at most 1, not {target!r}"
                )

    @classmethod
    def limited(
        cls, limits: Mapping[str, Any] = NO_LIMITS, *, data_dir: str | None = None
    ) -> "JudgeConfig":
        """Return the default with other limits; raises JudgeError naming what cannot be set."""
        for name, value in limits.items():
            if name not in LIMITS:
                raise JudgeError(f"unknown limit {name}; choose from {', '.join(LIMITS)}")
            if type(value) is not int or value < 1:
                raise JudgeError(f"{name} must be a whole number above 0, not {value!r}")
        return replace(cls(data_dir=data_dir), **limits)

    @classmethod
    def for_own_run(cls, limits: Mapping[str, Any] = NO_LIMITS) -> "JudgeConfig":
        """Return the settings of a user who has just trained the run: its work is not too much."""
        return cls.limited({**dict.fromkeys(WORK, _NO_BOUND), **limits})

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as audit.started holds them; no check can be `disabled` any more."""
        return {**asdict(self), "disabled": [], "revision": REVISION}


# Bounds on the work that a run asks for; those on images are a training's, too.
WORK = tuple(
    item.name
    for item in fields(JudgeConfig)
    if item.name.startswith("max_")
    and not item.name.startswith("max_image_")
    and item.name != "max_deliverable_bytes"
)
# What the command line can set: bounds on work, and on how little data may decide.
LIMITS = tuple(
    sorted(
        item.name
        for item in fields(JudgeConfig)
        if item.name.startswith(("child_", "max_")) or item.name.endswith("_examples")
    )
)
