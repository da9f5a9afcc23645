"""Model specifications and their edits, free of torch.

A specification lists everything that the model's shape depends on, so that the architecture of a
submission can be derived again from a run's events alone: initial specification, then each edit.
I/O: none.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

from msgspec import Meta

from aggregates.declared import build, check_fields, one_of
from aggregates.errors import SpecError

ACTIVATIONS = ("gelu", "leaky_relu", "prelu", "relu")
NORMS = ("batch", "none")
MAX_BLOCKS = 32
MAX_WIDTH = 1024  # channels
OPERATIONS = ("add_block", "add_norm", "add_residual", "swap_activation", "widen")

Activation = Annotated[str, one_of(ACTIVATIONS)]
Norm = Annotated[str, one_of(NORMS)]
Channels = Annotated[int, Meta(ge=1, le=MAX_WIDTH)]
Block = Annotated[int, Meta(ge=0, le=MAX_BLOCKS - 1)]
Factor = Annotated[int, Meta(ge=2, le=8)]


@dataclass(frozen=True)
class BlockSpec:
    """One pre-activation block: norm, activation, 3x3 convolution, twice; both without bias.

    `width` is the number of hidden channels between the two convolutions; the trunk's width is the
    model's `channels`, so a block can be widened without touching its neighbours.
    """

    width: Channels
    residual: bool
    norm: Norm
    activation: Activation

    def __post_init__(self) -> None:
        """Refuse what no model can be built from."""
        check_fields(self, SpecError)


@dataclass(frozen=True)
class ModelSpec:
    """Stem convolution, blocks, then norm, activation, global average pooling and a linear layer.

    Input is (B, 3, 32, 32); output is (B, classes) logits.
    """

    classes: Annotated[int, Meta(ge=2, le=10_000)]
    channels: Channels  # width of the trunk
    stem_stride: Annotated[int, Meta(ge=1, le=4)]  # 1 keeps 32x32, 2 halves it
    blocks: tuple[BlockSpec, ...]
    norm: Norm  # of the head
    activation: Activation  # of the head

    def __post_init__(self) -> None:
        """Refuse what no model can be built from."""
        check_fields(self, SpecError)
        if not 1 <= len(self.blocks) <= MAX_BLOCKS:
            raise SpecError(f"a model must have 1 to {MAX_BLOCKS} blocks, not {len(self.blocks)}")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as events hold them."""
        return {**asdict(self), "blocks": [asdict(block) for block in self.blocks]}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "ModelSpec":
        """Build a specification from plain values; raises SpecError naming what is wrong."""
        blocks = value.get("blocks") if isinstance(value, Mapping) else None
        if isinstance(blocks, list | tuple):
            built = [
                build(BlockSpec, block, what=f"block {number}", error=SpecError)
                for number, block in enumerate(blocks)
            ]
            value = {**value, "blocks": tuple(built)}
        return build(cls, value, what="model specification", error=SpecError)


@dataclass(frozen=True)
class Edit:
    """A change of a specification; `block` None means wherever it applies."""

    op: Annotated[str, one_of(OPERATIONS)]
    block: Block | None = None
    to: Activation | None = None  # swap_activation: the new activation
    factor: Factor | None = None  # widen: what the hidden width is multiplied by

    def __post_init__(self) -> None:
        """Refuse an operation that is unknown or lacks what it needs."""
        check_fields(self, SpecError)
        if (self.op == "swap_activation") != (self.to is not None):
            raise SpecError("swap_activation, and nothing else, needs 'to'")
        if (self.op == "widen") != (self.factor is not None):
            raise SpecError("widen, and nothing else, needs 'factor'")
        if self.op == "add_block" and self.block is not None:
            raise SpecError("add_block appends behind the last block and takes no 'block'")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values without the fields that do not apply."""
        return {key: value for key, value in asdict(self).items() if value is not None}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "Edit":
        """Build an edit from plain values; raises SpecError naming what is wrong."""
        return build(cls, value, what="an edit", error=SpecError)


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
