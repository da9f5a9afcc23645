"""Model specifications and their edits, free of torch.

A specification lists everything that the model's shape depends on, so that the architecture of a
submission can be derived again from a run's events alone: initial specification, then each edit.
I/O: none.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from aggregates.errors import SpecError

ACTIVATIONS = ("gelu", "leaky_relu", "prelu", "relu")
NORMS = ("batch", "none")
MAX_BLOCKS = 32
MAX_WIDTH = 1024  # channels


@dataclass(frozen=True)
class BlockSpec:
    """One pre-activation block: norm, activation, 3x3 convolution, twice; both without bias.

    `width` is the number of hidden channels between the two convolutions; the trunk's width is the
    model's `channels`, so a block can be widened without touching its neighbours.
    """

    width: int
    residual: bool
    norm: str
    activation: str

    def __post_init__(self) -> None:
        """Refuse what no model can be built from."""
        _check_int("width", self.width, 1, MAX_WIDTH)
        if not isinstance(self.residual, bool):
            raise SpecError(f"residual must be true or false, not {self.residual!r}")
        _check_choice("norm", self.norm, NORMS)
        _check_choice("activation", self.activation, ACTIVATIONS)


@dataclass(frozen=True)
class ModelSpec:
    """Stem convolution, blocks, then norm, activation, global average pooling and a linear layer.

    Input is (B, 3, 32, 32); output is (B, classes) logits.
    """

    classes: int
    channels: int  # width of the trunk
    stem_stride: int  # 1 keeps 32x32, 2 halves it
    blocks: tuple[BlockSpec, ...]
    norm: str  # of the head
    activation: str  # of the head

    def __post_init__(self) -> None:
        """Refuse what no model can be built from."""
        _check_int("classes", self.classes, 2, 10_000)
        _check_int("channels", self.channels, 1, MAX_WIDTH)
        _check_int("stem_stride", self.stem_stride, 1, 4)
        if not 1 <= len(self.blocks) <= MAX_BLOCKS:
            raise SpecError(f"a model has 1 to {MAX_BLOCKS} blocks, not {len(self.blocks)}")
        _check_choice("norm", self.norm, NORMS)
        _check_choice("activation", self.activation, ACTIVATIONS)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as events hold them."""
        return {**asdict(self), "blocks": [asdict(block) for block in self.blocks]}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "ModelSpec":
        """Build a specification from plain values; raises SpecError naming what is wrong."""
        _check_keys("model specification", value, {f.name for f in fields(cls)})
        blocks = value["blocks"]
        if not isinstance(blocks, list | tuple):
            raise SpecError(f"blocks must be a list, not {type(blocks).__name__}")
        names = {f.name for f in fields(BlockSpec)}
        for number, block in enumerate(blocks):
            _check_keys(f"block {number}", block, names)
        return cls(**{**value, "blocks": tuple(BlockSpec(**block) for block in blocks)})


OPERATIONS = ("add_block", "add_norm", "add_residual", "swap_activation", "widen")


@dataclass(frozen=True)
class Edit:
    """A change of a specification; `block` None means wherever it applies."""

    op: str
    block: int | None = None
    to: str | None = None  # swap_activation: the new activation
    factor: int | None = None  # widen: what the hidden width is multiplied by

    def __post_init__(self) -> None:
        """Refuse an operation that is unknown or lacks what it needs."""
        _check_choice("op", self.op, OPERATIONS)
        if self.block is not None:
            _check_int("block", self.block, 0, MAX_BLOCKS - 1)
        if (self.op == "swap_activation") != (self.to is not None):
            raise SpecError("swap_activation, and nothing else, needs 'to'")
        if (self.op == "widen") != (self.factor is not None):
            raise SpecError("widen, and nothing else, needs 'factor'")
        if self.to is not None:
            _check_choice("to", self.to, ACTIVATIONS)
        if self.factor is not None:
            _check_int("factor", self.factor, 2, 8)
        if self.op == "add_block" and self.block is not None:
            raise SpecError("add_block appends behind the last block and takes no 'block'")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values without the fields that do not apply."""
        return {key: value for key, value in asdict(self).items() if value is not None}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "Edit":
        """Build an edit from plain values; raises SpecError naming what is wrong."""
        unknown = set(value) - {f.name for f in fields(cls)}
        if unknown or "op" not in value:
            raise SpecError(f"an edit has 'op' and its arguments, not {sorted(value)}")
        return cls(**value)


def apply_edit(spec: ModelSpec, edit: Edit) -> ModelSpec:
    """Return `spec` after `edit`; raises SpecError if the edit would change nothing or too much."""
    if edit.block is not None and edit.block >= len(spec.blocks):
        raise SpecError(f"there is no block {edit.block}: the model has {len(spec.blocks)}")
    if edit.op == "add_block":
        last = spec.blocks[-1]
        new = BlockSpec(last.width, residual=True, norm="batch", activation=last.activation)
        return replace(spec, blocks=(*spec.blocks, new))
    changes: dict[str, dict[str, Any]] = {
        "add_norm": {"norm": "batch"},
        "add_residual": {"residual": True},
        "swap_activation": {"activation": edit.to},
    }
    change = changes.get(edit.op, {})
    blocks = tuple(
        replace(block, **(change or {"width": block.width * (edit.factor or 1)}))
        if edit.block in (None, number)
        else block
        for number, block in enumerate(spec.blocks)
    )
    head: dict[str, Any] = {}
    if edit.block is None and edit.op in ("swap_activation", "add_norm"):
        head = change
    edited = replace(spec, blocks=blocks, **head)
    if edited == spec:
        raise SpecError(f"{edit.op} changes nothing: the model is already so")
    return edited


def _check_keys(what: str, value: Any, names: set[str]) -> None:
    if not isinstance(value, Mapping):
        raise SpecError(f"{what} must be a map, not {type(value).__name__}")
    if set(value) != names:
        raise SpecError(f"{what} needs exactly {sorted(names)}, not {sorted(map(str, value))}")


def _check_int(what: str, value: Any, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise SpecError(f"{what} must be a whole number from {low} to {high}, not {value!r}")


def _check_choice(what: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise SpecError(f"{what} must be one of {', '.join(choices)}, not {value!r}")
