"""Model specifications and their edits, free of torch.

A specification lists everything that the model's shape depends on, so that the architecture of a
submission can be derived again from a run's events alone: initial specification, then each edit.
I/O: none.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Self, overload

from msgspec import Meta

from aggregates.declared import Plain, build, check_fields, one_of
from aggregates.errors import SpecError

ACTIVATIONS = ("gelu", "leaky_relu", "prelu", "relu")
SWAPPED_IN = ("gelu", "leaky_relu", "relu")  # in a watched model: those without parameters
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
class _Checked(Plain):
    """Its fields are as they are declared; raises SpecError."""

    WHAT: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_fields(self, SpecError)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Build it from plain values; raises SpecError naming what is wrong."""
        return build(cls, value, what=cls.WHAT, error=SpecError)


@dataclass(frozen=True)
class BlockSpec(_Checked):
    """One pre-activation block: norm, activation, 3x3 convolution, twice; both without bias.

    `width` is the number of hidden channels between the two convolutions; the trunk's width is the
    model's `channels`, so a block can be widened without touching its neighbours.
    """

    width: Channels
    residual: bool
    norm: Norm
    activation: Activation


@dataclass(frozen=True)
class ModelSpec(_Checked):
    """Stem convolution, blocks, then norm, activation, global average pooling and a linear layer.

    Input is (B, 3, 32, 32); output is (B, classes) logits.
    """

    WHAT = "model specification"
    classes: Annotated[int, Meta(ge=2, le=10_000)]
    channels: Channels  # width of the trunk
    stem_stride: Annotated[int, Meta(ge=1, le=4)]  # 1 keeps 32x32, 2 halves it
    blocks: tuple[BlockSpec, ...]
    norm: Norm  # of the head
    activation: Activation  # of the head

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= len(self.blocks) <= MAX_BLOCKS:
            raise SpecError(f"a model must have 1 to {MAX_BLOCKS} blocks, not {len(self.blocks)}")


@dataclass(frozen=True)
class WatchedActivation(_Checked):
    """An activation module of a model that is watched in a loop of its owner."""

    name: Annotated[str, Meta(min_length=1, max_length=500)]  # as named_modules() has it
    kind: Activation


@dataclass(frozen=True)
class WatchedModel(_Checked):
    """A model that somebody else built: what is known of it, and what may be changed in it.

    Policies see each activation module as a block, so that one of them can be swapped.
    """

    WHAT = "watched model"
    model: Annotated[str, Meta(min_length=1, max_length=500)]  # name of its class
    parameters: Annotated[int, Meta(ge=0)]
    sha256: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]  # of its parameters' names and shapes
    activations: tuple[WatchedActivation, ...]  # those that can be swapped, at most MAX_BLOCKS
    offers: tuple[str, ...]  # directions that can be carried out
    classes: Annotated[int, Meta(ge=2)] | None = None  # None: the loss is no cross-entropy

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.activations) > MAX_BLOCKS:
            raise SpecError(f"a watched model lists at most {MAX_BLOCKS} activations")

    @property
    def blocks(self) -> tuple[BlockSpec, ...]:
        """The activations as blocks; what else a block has is not known and needs no remedy."""
        return tuple(BlockSpec(1, True, "batch", each.kind) for each in self.activations)

    @property
    def norm(self) -> str:
        """Whether it is normalised is not known: nothing is offered for it."""
        return "batch"

    @property
    def activation(self) -> str:
        """The last activation."""
        return self.activations[-1].kind if self.activations else "relu"


Spec = ModelSpec | WatchedModel


def spec_of(value: Mapping[str, Any]) -> Spec:
    """Build the specification that an event holds, of either kind; raises SpecError."""
    kind = WatchedModel if isinstance(value, Mapping) and "model" in value else ModelSpec
    return kind.from_dict(value)


@dataclass(frozen=True)
class Edit(_Checked):
    """A change of a specification; `block` None means wherever it applies."""

    op: Annotated[str, one_of(OPERATIONS)]
    block: Block | None = None
    to: Activation | None = None  # swap_activation: the new activation
    factor: Factor | None = None  # widen: what the hidden width is multiplied by

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.op == "swap_activation") != (self.to is not None):
            raise SpecError("swap_activation, and nothing else, needs 'to'")
        if (self.op == "widen") != (self.factor is not None):
            raise SpecError("widen, and nothing else, needs 'factor'")
        if self.op == "add_block" and self.block is not None:
            raise SpecError("add_block appends behind the last block and takes no 'block'")


@overload
def apply_edit(spec: ModelSpec, edit: Edit) -> ModelSpec: ...
@overload
def apply_edit(spec: WatchedModel, edit: Edit) -> WatchedModel: ...
def apply_edit(spec: Spec, edit: Edit) -> Spec:
    """Return `spec` after `edit`; raises SpecError if the edit would change nothing or too much."""
    if isinstance(spec, WatchedModel):
        return _swap_watched(spec, edit)
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


def _swap_watched(spec: WatchedModel, edit: Edit) -> WatchedModel:
    if edit.op not in spec.offers or edit.to is None:
        raise SpecError(f"{edit.op} is not offered: this model is watched in a loop of its owner")
    if edit.block is not None and edit.block >= len(spec.activations):
        raise SpecError(
            f"there is no activation {edit.block}: the model has {len(spec.activations)}"
        )
    if edit.to not in SWAPPED_IN:
        raise SpecError(
            f"{edit.to} has parameters of its own, which the loop's optimizer would not train; "
            f"choose {' or '.join(SWAPPED_IN)}"
        )
    activations = tuple(
        replace(each, kind=edit.to) if edit.block in (None, number) else each
        for number, each in enumerate(spec.activations)
    )
    if activations == spec.activations:
        raise SpecError(f"{edit.op} changes nothing: the model is already so")
    return replace(spec, activations=activations)
