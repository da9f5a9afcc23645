"""The configuration of a run: one frozen dataclass, strict about what it takes.

Trust: files and maps are hostile until a RunConfig exists; every instance holds allowed values.
I/O: from_toml() reads one file; nothing is read from the environment.
Units: learning rates per step, batch sizes in examples.
"""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from aggregates.canonical import digest
from aggregates.errors import ProvocationError, SpecError
from aggregates.playbook import MAX_BATCH_SIZE, MAX_LR, MIN_LR
from aggregates.provocations import CATALOGUE, MAX_SEED, Fault, fault_of
from aggregates.rules import PROFILES, RULES
from aggregates.spec import ACTIVATIONS, MAX_BLOCKS, MAX_WIDTH, NORMS, BlockSpec, ModelSpec
from monitor.dispatch import FAST, NUMERICS, PORTABLE
from monitor.errors import ConfigurationError

EDITS = ("live", "restart")
DEVICES = ("cpu", "cuda")
DATASETS = ("shapes", "cifar10")  # and imagefolder:DIR
IMAGE_FOLDER = "imagefolder:"


def _field(default: Any, allowed: str, check: Callable[[Any], bool]) -> Any:
    """Return a field that takes what `check` accepts, and None where that is the default."""
    return field(default=default, metadata={"allowed": allowed, "check": check})


def _number(default: float | None, low: float, high: float) -> Any:
    return _field(
        default,
        f"a number from {low:g} to {high:g}",
        lambda value: type(value) in (int, float) and low <= value <= high,  # false for NaN
    )


def _whole(default: int | None, low: int, high: int) -> Any:
    return _field(
        default,
        f"a whole number from {low:,} to {high:,}",
        lambda value: type(value) is int and low <= value <= high,
    )


def _choice(default: str | None, choices: tuple[str, ...]) -> Any:
    return _field(default, f"one of {', '.join(choices)}", lambda value: value in choices)


def _switch(*, default: bool) -> Any:
    return _field(default, "true or false", lambda value: isinstance(value, bool))


def _is_dataset(value: Any) -> bool:
    return isinstance(value, str) and (
        value in DATASETS or (value.startswith(IMAGE_FOLDER) and value != IMAGE_FOLDER)
    )


def _are_rules(value: Any) -> bool:
    return all(rule in RULES for rule in value) and len(set(value)) == len(value)


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that a training is made from, beside the code and the data."""

    dataset: str = _field("shapes", f"one of {', '.join(DATASETS)}, {IMAGE_FOLDER}DIR", _is_dataset)
    # where cifar10 lies
    data_dir: str | None = _field(None, "a folder", lambda v: isinstance(v, str) and v != "")
    download: bool = _switch(default=False)  # whether cifar10 may be fetched into data_dir
    # None takes all that there are: for shapes a fixed number, see docs/reference/diagnostics.md.
    train_examples: int | None = _whole(None, 2, 10_000_000)
    val_examples: int | None = _whole(None, 2, 10_000_000)
    test_examples: int | None = _whole(None, 2, 10_000_000)
    data_seed: int = _whole(0, 0, 2**53)  # of the split: runs of different seeds share a test set
    seed: int = _whole(0, 0, 2**53)  # of initialisation and data order
    epochs: int = _whole(12, 1, 10_000)
    batch_size: int = _whole(64, 1, MAX_BATCH_SIZE)
    max_batch_size: int = _whole(512, 1, MAX_BATCH_SIZE)  # examples that fit into memory
    lr: float = _number(0.05, MIN_LR, MAX_LR)
    momentum: float = _number(0.9, 0.0, 0.9999)
    weight_decay: float = _number(5e-4, 0.0, 1.0)
    warm_up_epochs: int = _whole(1, 0, 1_000)
    accumulation: int = _whole(1, 1, 1_024)  # batches to one step
    clip_norm: float | None = _number(None, 1e-6, 1e6)
    channels: int = _whole(32, 1, MAX_WIDTH)  # of the trunk
    blocks: int = _whole(2, 1, MAX_BLOCKS)
    width: int = _whole(32, 1, MAX_WIDTH)  # between the two convolutions of a block
    stem_stride: int = _whole(2, 1, 4)
    activation: str = _choice("relu", ACTIVATIONS)
    norm: str = _choice("batch", NORMS)
    residual: bool = _switch(default=True)
    profile: str = _choice("calibrated", tuple(sorted(PROFILES)))
    edits: str = _choice("live", EDITS)
    # rules that are advisory
    waived: tuple[str, ...] = _field((), "different rules R1 to R7", _are_rules)
    threads: int = _whole(2, 1, 1_024)  # from_dict() takes 1 where numerics is portable
    numerics: str = _choice(FAST, NUMERICS)  # portable: the same bits on every x86-64 CPU
    target_accuracy: float = _number(0.8, 0.0, 1.0)
    device: str = _choice("cpu", DEVICES)
    provocation: str | None = _choice(None, tuple(CATALOGUE))  # a fault that is put in on purpose
    provocation_seed: int = _whole(0, 0, MAX_SEED)

    def __post_init__(self) -> None:
        """Refuse a value that is not allowed, by its name."""
        for item in fields(self):
            value, optional = getattr(self, item.name), item.default is None
            if not (value is None and optional) and not item.metadata["check"](value):
                raise ConfigurationError(
                    f"{item.name} must be {item.metadata['allowed']}, not {value!r}"
                )
        if self.batch_size > self.max_batch_size:
            raise ConfigurationError(
                f"batch_size {self.batch_size} is above max_batch_size {self.max_batch_size}"
            )
        if self.numerics == PORTABLE and (self.threads != 1 or self.device != "cpu"):
            raise ConfigurationError(
                "portable numerics need threads = 1 and device = cpu, "
                f"not threads = {self.threads} and device = {self.device}"
            )
        try:
            fault_of(asdict(self))
        except ProvocationError as error:
            raise ConfigurationError(str(error)) from error

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "RunConfig":
        """Build a configuration; raises ConfigurationError naming the key and what is allowed."""
        known = {item.name for item in fields(cls)}
        if unknown := sorted(set(map(str, value)) - known):
            raise ConfigurationError(
                f"unknown key {', '.join(unknown)}; known keys: {', '.join(sorted(known))}"
            )
        waived = value.get("waived", ())
        if not isinstance(waived, list | tuple):
            raise ConfigurationError(f"waived must be a list of rules, not {waived!r}")
        one_thread = {"threads": 1} if value.get("numerics") == PORTABLE else {}
        return cls(**{**one_thread, **value, "waived": tuple(waived)})

    @classmethod
    def from_toml(cls, path: Path) -> "RunConfig":
        """Read a configuration file; raises ConfigurationError naming the file."""
        try:
            value = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{path} cannot be read as TOML: {error}") from error
        try:
            return cls.from_dict(value)
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as run.started holds them.

        A provocation is there only where there is one, and numerics only where they are not fast:
        configurations that were recorded before these keys existed keep their hash.
        """
        plain = {**asdict(self), "waived": list(self.waived)}
        if self.numerics == FAST:
            del plain["numerics"]
        if self.provocation is None:
            del plain["provocation"], plain["provocation_seed"]
        return plain

    @property
    def fault(self) -> Fault | None:
        """The fault that is put into the run on purpose, if there is one."""
        return fault_of(asdict(self))

    @property
    def hash(self) -> str:
        """SHA-256 of the configuration in canonical JSON."""
        return digest(self.to_dict())

    def spec(self, classes: int) -> ModelSpec:
        """Return the model that the run starts with."""
        block = BlockSpec(self.width, self.residual, self.norm, self.activation)
        try:
            return ModelSpec(
                classes=classes,
                channels=self.channels,
                stem_stride=self.stem_stride,
                blocks=(block,) * self.blocks,
                norm=self.norm,
                activation=self.activation,
            )
        except SpecError as error:
            raise ConfigurationError(str(error)) from error
