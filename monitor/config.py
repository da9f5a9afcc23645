"""The configurations of runs: frozen dataclasses, strict about what they take.

RunConfig is that of a training of the built-in network, TaskConfig that of a task, whose model and
data are somebody else's; both can be repeated. WatchConfig is that of a loop that belongs to
somebody else and is watched.

Trust: files and maps are hostile until a RunConfig exists; every instance holds allowed values.
I/O: from_toml() reads one file; nothing is read from the environment.
Units: learning rates per step, batch sizes in examples.
"""

import sys
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from msgspec import Meta

from aggregates.canonical import digest
from aggregates.decisions import Settings
from aggregates.declared import build, check_fields, one_of
from aggregates.errors import ProvocationError, SpecError
from aggregates.noise import SOURCES
from aggregates.playbook import GO_BACK, MAX_ACCUMULATION, MAX_BATCH_SIZE, MAX_LR, MIN_LR
from aggregates.provocations import CATALOGUE, MAX_SEED, Fault, fault_of
from aggregates.rulebook import RULES
from aggregates.rules import PROFILES
from aggregates.run import MEASURED, REPORTED
from aggregates.spec import ACTIVATIONS, MAX_BLOCKS, MAX_WIDTH, NORMS, BlockSpec, ModelSpec
from monitor.dispatch import FAST, NUMERICS, PORTABLE
from monitor.errors import ConfigurationError

EDITS = ("live", "restart")
DEVICES = ("cpu", "cuda")
DATASETS = ("shapes", "cifar10")  # and imagefolder:DIR
IMAGE_FOLDER = "imagefolder:"
FULL, SCALED = "float32", "float16"  # with SCALED, a loss scaler keeps gradients from vanishing
PRECISIONS = (FULL, "bfloat16", SCALED)


_DATASET = Meta(
    pattern=rf"\A(?:{'|'.join(DATASETS)}|{IMAGE_FOLDER}(?s:.+))\Z",
    extra={"allowed": f"one of {', '.join(DATASETS)}, {IMAGE_FOLDER}DIR"},
)
_SNAPSHOTS = Meta(
    pattern=r"\A(?:every:[1-9][0-9]{0,4}|at:[0-9]{1,5}(?:,[0-9]{1,5}){0,99})\Z",
    extra={"allowed": "every:N or at:EPOCH,EPOCH"},
)
_FOLDER = Meta(min_length=1, extra={"allowed": "a folder"})
_OWN_RATE = Meta(ge=0.0, le=sys.float_info.max, extra={"allowed": "a finite number from 0"})
_WAIVED = Meta(extra={"allowed": f"different rules of {', '.join(RULES)}"})
_Rule = Annotated[str, one_of(RULES)]
_Examples = Annotated[int, Meta(ge=2, le=10_000_000)] | None
_Seed = Annotated[int, Meta(ge=0, le=2**53)]
_Size = Annotated[int, Meta(ge=1, le=MAX_BATCH_SIZE)]


class _Config:
    """What all configurations have in common: how they are read, and what runs record of them."""

    _later: ClassVar[tuple[tuple[str, Any], ...]] = ()  # newer keys, each with its default

    def __post_init__(self: Any) -> None:
        """Refuse a value that is not allowed, by its name."""
        check_fields(self, ConfigurationError)
        if len(set(self.waived)) != len(self.waived):
            raise ConfigurationError(f"waived must be different rules, not {self.waived!r}")
        if not isinstance(self, WatchConfig) and self.batch_size > self.max_batch_size:
            raise ConfigurationError(
                f"batch_size {self.batch_size} is above max_batch_size {self.max_batch_size}"
            )

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Build a configuration; raises ConfigurationError naming the key and what is allowed."""
        waived = value.get("waived", ())
        if not isinstance(waived, list | tuple):
            raise ConfigurationError(
                f"waived must be a list of rules, as in 'waived=[\"R2\"]', not {waived!r}"
            )
        return build(cls, value, error=ConfigurationError, suggest=True)

    def to_dict(self: Any) -> dict[str, Any]:
        """Return plain values, as run.started holds them.

        Newer keys are there only where they have other values than their defaults: configurations
        that were recorded before these keys existed keep their hash.
        """
        plain = {**asdict(self), "waived": list(self.waived)}
        return {key: value for key, value in plain.items() if (key, value) not in self._later}

    @property
    def hash(self) -> str:
        """SHA-256 of the configuration in canonical JSON."""
        return digest(self.to_dict())


@dataclass(frozen=True, kw_only=True)
class RunConfig(_Config):
    """Everything that a training is made from, beside the code and the data."""

    _later = (("numerics", FAST), ("snapshots", None), ("provocation", None))

    dataset: Annotated[str, _DATASET] = "shapes"
    data_dir: Annotated[str, _FOLDER] | None = None  # where cifar10 lies
    download: bool = False  # whether cifar10 may be fetched into data_dir
    # None takes all that there are: for shapes a fixed number, see docs/reference/diagnostics.md.
    train_examples: _Examples = None
    val_examples: _Examples = None
    test_examples: _Examples = None
    data_seed: _Seed = 0  # of the split: runs of different seeds share a test set
    seed: _Seed = 0  # of initialisation and data order
    epochs: Annotated[int, Meta(ge=1, le=10_000)] = 12
    batch_size: _Size = 64
    max_batch_size: _Size = 512  # examples that fit into memory
    lr: Annotated[float, Meta(ge=MIN_LR, le=MAX_LR)] = 0.05
    momentum: Annotated[float, Meta(ge=0.0, le=0.9999)] = 0.9
    weight_decay: Annotated[float, Meta(ge=0.0, le=1.0)] = 5e-4
    warm_up_epochs: Annotated[int, Meta(ge=0, le=1_000)] = 1
    accumulation: Annotated[int, Meta(ge=1, le=MAX_ACCUMULATION)] = 1  # batches to one step
    clip_norm: Annotated[float, Meta(ge=1e-6, le=1e6)] | None = None
    channels: Annotated[int, Meta(ge=1, le=MAX_WIDTH)] = 32  # of the trunk
    blocks: Annotated[int, Meta(ge=1, le=MAX_BLOCKS)] = 2
    width: Annotated[int, Meta(ge=1, le=MAX_WIDTH)] = 32  # between the two convolutions of a block
    stem_stride: Annotated[int, Meta(ge=1, le=4)] = 2
    activation: Annotated[str, one_of(ACTIVATIONS)] = "relu"
    norm: Annotated[str, one_of(NORMS)] = "batch"
    residual: bool = True
    profile: Annotated[str, one_of(tuple(sorted(PROFILES)))] = "relative"
    edits: Annotated[str, one_of(EDITS)] = "live"
    waived: Annotated[tuple[_Rule, ...], _WAIVED] = ()  # rules that are advisory
    # The default of from_dict() is 1 if numerics is portable.
    threads: Annotated[int, Meta(ge=1, le=1_024)] = 2
    numerics: Annotated[str, one_of(NUMERICS)] = FAST  # portable: the same bits on every x86-64 CPU
    target_accuracy: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.8
    device: Annotated[str, one_of(DEVICES)] = "cpu"
    snapshots: Annotated[str, _SNAPSHOTS] | None = None  # of the training state, by epoch
    # A fault that is put in on purpose.
    provocation: Annotated[str, one_of(tuple(CATALOGUE))] | None = None
    provocation_seed: Annotated[int, Meta(ge=0, le=MAX_SEED)] = 0

    def __post_init__(self) -> None:
        """Refuse a value that is not allowed, by its name."""
        super().__post_init__()
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
        one_thread = {"threads": 1} if value.get("numerics") == PORTABLE else {}
        return super().from_dict({**one_thread, **value})

    @classmethod
    def from_toml(cls, path: Path) -> "RunConfig":
        """Read a configuration file; raises ConfigurationError naming the file."""
        try:
            value = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise ConfigurationError(f"{path} is not valid TOML: {error}") from error
        try:
            return cls.from_dict(value)
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; the seed of a provocation only where there is one."""
        plain = super().to_dict()
        if self.provocation is None:
            del plain["provocation_seed"]
        return plain

    def keeps_state(self, epoch: int) -> bool:
        """Return whether the training state after an epoch is saved."""
        kind, _, which = (self.snapshots or "").partition(":")
        if kind == "every":
            return (epoch + 1) % int(which) == 0
        return kind == "at" and str(epoch) in which.split(",")

    @property
    def fault(self) -> Fault | None:
        """The fault that is put into the run on purpose, if there is one."""
        return fault_of(asdict(self))

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


@dataclass(frozen=True, kw_only=True)
class WatchConfig(_Config):
    """What is known of a training whose loop belongs to somebody else.

    What the loop says is told, not known: `lr` and `clip_norm` are those that it starts with.
    """

    level: Annotated[str, one_of((MEASURED, REPORTED))]
    name: Annotated[str, Meta(min_length=1, max_length=500)]
    epochs: Annotated[int, Meta(ge=1, le=100_000)] | None = None  # None: nobody said so
    batch_size: Annotated[int, Meta(ge=1)]
    max_batch_size: Annotated[int, Meta(ge=1)]
    train_examples: Annotated[int, Meta(ge=1)] | None = None  # None: nobody said so
    accumulation: Annotated[int, Meta(ge=1)] = 1
    lr: Annotated[float, _OWN_RATE]  # any: see aggregates.playbook.rate_remedies()
    clip_norm: Annotated[float, Meta(gt=0.0)] | None = None
    optimizer: Annotated[str, Meta(min_length=1, max_length=500)]
    seed: int | None = None
    profile: Annotated[str, one_of(tuple(sorted(PROFILES)))] = "relative"
    waived: Annotated[tuple[_Rule, ...], _WAIVED] = ()
    # What measures the gradients' noise, without which R2 is waived. None: an earlier version ran.
    noise: Annotated[str, one_of(SOURCES)] | None = None

    _later = (("noise", None),)
    edits = "live"
    fault = None
    numerics = FAST
    device = "cpu"  # that which the judge computes on: it trains nothing here
    threads = 1
    target_accuracy = 0.0


@dataclass(frozen=True, kw_only=True)
class TaskConfig(_Config):
    """Everything that the training of a task is made from, beside the data: see monitor/tasks.py.

    Its code is named by its hash, so that the configuration says all that a judge needs.
    """

    task: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]  # SHA-256 of the file
    name: Annotated[str, Meta(min_length=1, max_length=500)]  # of the file
    params: dict[str, bool | int | float | str | None]  # those that only the task knows
    metric: Annotated[str, Meta(min_length=1, max_length=100)]
    better: Annotated[str, one_of(("higher", "lower"))]
    classes: Annotated[int, Meta(ge=2)] | None = None  # None: the loss is no cross-entropy
    seed: _Seed = 0  # of initialisation, data order and what is drawn in an epoch
    data_seed: _Seed = 0  # of what the task draws as data
    epochs: Annotated[int, Meta(ge=1, le=10_000)]
    batch_size: _Size
    max_batch_size: _Size = MAX_BATCH_SIZE  # examples that fit into memory
    lr: Annotated[float, Meta(ge=MIN_LR, le=MAX_LR)]
    accumulation: Annotated[int, Meta(ge=1, le=MAX_ACCUMULATION)] = 1  # batches to one step
    clip_norm: Annotated[float, Meta(ge=1e-6, le=1e6)] | None = None
    profile: Annotated[str, one_of(tuple(sorted(PROFILES)))] = "relative"
    goes_back: bool = False  # whether states are kept for decisions to go back to
    waived: Annotated[tuple[_Rule, ...], _WAIVED] = ()  # those without a remedy among them
    threads: Annotated[int, Meta(ge=1, le=1_024)] = 1
    numerics: Annotated[str, one_of(NUMERICS)] = FAST
    precision: Annotated[str, one_of(PRECISIONS)] = FULL  # of the model's forward pass
    target_accuracy: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.8  # where the metric is accuracy

    _later = (("precision", FULL), ("goes_back", False))
    edits = "live"
    fault = None
    device = "cpu"

    def __post_init__(self) -> None:
        """Refuse a value that is not allowed, by its name."""
        super().__post_init__()
        if self.numerics == PORTABLE and self.threads != 1:
            raise ConfigurationError(
                f"portable numerics need threads = 1, not threads = {self.threads}"
            )
        if self.goes_back and not PROFILES[self.profile].kept_states:
            raise ConfigurationError(
                f"the rules {self.profile} keep no states to go back to: leave goes_back out, or "
                "use profile=relative"
            )

    @property
    def restoring(self) -> tuple[str, ...]:
        """The directions that put an earlier state back."""
        return (GO_BACK,) if self.goes_back else ()

    @property
    def given(self) -> dict[str, Any]:
        """The parameters that the task's functions get."""
        return {**self.params, "lr": self.lr, "epochs": self.epochs, "batch_size": self.batch_size}


AnyConfig = RunConfig | WatchConfig | TaskConfig


def initial_settings(config: AnyConfig) -> Settings:
    """Return the hyperparameters that a run of this configuration begins with."""
    epochs = config.warm_up_epochs if isinstance(config, RunConfig) else 0
    warm_up = {"kind": "warm_up", "epochs": epochs, "since": 0}
    return Settings(
        lr=float(config.lr),
        batch_size=config.batch_size,
        accumulation=config.accumulation,
        clip_norm=None if config.clip_norm is None else float(config.clip_norm),
        schedule=warm_up if epochs else {"kind": "constant"},
    )


def config_of(value: Mapping[str, Any]) -> AnyConfig:
    """Build the configuration that run.started holds, of any kind; raises ConfigurationError."""
    if isinstance(value, Mapping) and "task" in value:
        return TaskConfig.from_dict(value)
    kind = WatchConfig if isinstance(value, Mapping) and "level" in value else RunConfig
    return kind.from_dict(value)
