"""Specifications and edits of models, free of torch."""

from collections.abc import Callable
from typing import Any

import pytest

from aggregates.errors import SpecError
from aggregates.spec import BlockSpec, Edit, ModelSpec, apply_edit

PLAIN = ModelSpec(
    classes=10,
    channels=8,
    stem_stride=2,
    blocks=(BlockSpec(8, False, "none", "relu"), BlockSpec(8, True, "batch", "relu")),
    norm="none",
    activation="relu",
)


def test_specification_survives_the_trip_through_plain_values() -> None:
    assert ModelSpec.from_dict(PLAIN.to_dict()) == PLAIN


@pytest.mark.parametrize(
    ("edit", "change"),
    [
        (Edit("add_block"), lambda spec: len(spec.blocks) == 3 and spec.blocks[2].residual),
        (Edit("widen", factor=2), lambda spec: [b.width for b in spec.blocks] == [16, 16]),
        (Edit("widen", block=1, factor=4), lambda spec: [b.width for b in spec.blocks] == [8, 32]),
        (Edit("add_norm"), lambda spec: spec.norm == spec.blocks[0].norm == "batch"),
        (
            Edit("add_norm", block=0),
            lambda spec: (spec.norm, spec.blocks[0].norm) == ("none", "batch"),
        ),
        (Edit("add_residual"), lambda spec: all(b.residual for b in spec.blocks)),
        (
            Edit("swap_activation", to="gelu"),
            lambda spec: {spec.activation, *(b.activation for b in spec.blocks)} == {"gelu"},
        ),
    ],
)
def test_edit_changes_what_it_names(edit: Edit, change: Callable[[ModelSpec], bool]) -> None:
    edited = apply_edit(PLAIN, edit)
    assert change(edited)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (Edit("swap_activation", to="relu"), "changes nothing"),
        (Edit("add_norm", block=1), "changes nothing"),
        (Edit("add_residual", block=7), "there is no block 7"),
    ],
)
def test_edit_is_refused_when_it_cannot_be_done(edit: Edit, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        apply_edit(PLAIN, edit)


@pytest.mark.parametrize(
    ("edit", "message"), [(Edit("widen", factor=8), "width"), (Edit("add_block"), "blocks")]
)
def test_growth_ends_at_the_limits(edit: Edit, message: str) -> None:
    def grow() -> None:
        spec = PLAIN
        for _ in range(40):
            spec = apply_edit(spec, edit)

    with pytest.raises(SpecError, match=message):
        grow()


@pytest.mark.parametrize(
    "arguments",
    [
        {"op": "remove_block"},
        {"op": "widen"},
        {"op": "widen", "factor": 1},
        {"op": "swap_activation"},
        {"op": "swap_activation", "to": "tanh"},
        {"op": "add_norm", "to": "relu"},
        {"op": "add_block", "block": 0},
        {"op": "add_norm", "block": -1},
        {"op": "add_norm", "block": True},
    ],
)
def test_malformed_edit_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        Edit(**arguments)


@pytest.mark.parametrize(
    "damage",
    [
        {"blocks": []},
        {"blocks": "relu"},
        {"blocks": [{"width": 8}]},
        {"blocks": [None]},
        {"classes": 1},
        {"channels": 8.0},
        {"norm": "layer"},
        {"activation": None},
        {"more": 1},
    ],
)
def test_malformed_specification_is_refused(damage: dict[str, object]) -> None:
    with pytest.raises(SpecError):
        ModelSpec.from_dict({**PLAIN.to_dict(), **damage})
