"""The model follows its specification, and edits keep what they promise."""

import pytest
import torch
from torch import Tensor

from aggregates.errors import SpecError
from aggregates.spec import ACTIVATIONS, BlockSpec, Edit, ModelSpec, apply_edit
from monitor.diagnostics import EpochWatch
from monitor.model import ResidualCNN, edit_model


def _spec(activation: str = "relu", *, norm: str = "batch", residual: bool = True) -> ModelSpec:
    block = BlockSpec(6, residual, norm, activation)
    return ModelSpec(10, 8, 4, (block, block), norm, activation)


def _batch() -> Tensor:
    return torch.randn(16, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def _trained(spec: ModelSpec) -> ResidualCNN:
    """Return a model whose BatchNorm statistics and biases are not those of the start."""
    model = ResidualCNN(spec, seed=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(3):
        optimizer.zero_grad()
        torch.autograd.backward(model(_batch()).logsumexp(1).mean())
        optimizer.step()
    return model


def test_initialisation_depends_on_seed_and_name_only() -> None:
    torch.manual_seed(5)
    one = ResidualCNN(_spec(), seed=3).state_dict()
    torch.manual_seed(6)
    deeper = apply_edit(_spec(), Edit("add_block"))
    other = ResidualCNN(deeper, seed=3).state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert not torch.equal(one["stem.weight"], ResidualCNN(_spec(), seed=4).stem.weight)


def test_initialisation_has_the_variance_of_he() -> None:
    model = ResidualCNN(
        ModelSpec(10, 64, 2, (BlockSpec(64, True, "batch", "relu"),), "batch", "relu")
    )
    for name, parameter in model.named_parameters():
        if parameter.dim() >= 2:
            expected = 2.0 / parameter[0].numel()
            assert parameter.var().item() == pytest.approx(expected, rel=0.15), name


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_added_block_leaves_the_function_exactly_unchanged(activation: str, training: bool) -> None:
    model = _trained(_spec(activation)).train(training)
    before = model(_batch())
    edit_model(model, Edit("add_block"), seed=3, salt="edit")
    assert len(model.blocks) == 3
    assert model.training == training
    assert torch.equal(before, model(_batch()))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_widening_leaves_the_function_unchanged_to_rounding(
    activation: str, training: bool
) -> None:
    model = _trained(_spec(activation)).train(training)
    before = model(_batch())
    edit_model(model, Edit("widen", factor=2), seed=3, salt="edit")
    assert [block.width for block in model.spec().blocks] == [12, 12]
    # the sums over more channels are made in another order: a few units in the last place
    torch.testing.assert_close(model(_batch()), before, rtol=0, atol=1e-5)


@pytest.mark.parametrize("edit", [Edit("add_block"), Edit("widen", factor=2)])
def test_new_units_learn_when_they_are_trained(edit: Edit) -> None:
    model = _trained(_spec())
    edit_model(model, edit, seed=3, salt="edit")
    name = f"blocks.{len(model.blocks) - 1}.conv2.weight"
    new = dict(model.named_parameters())[name]
    torch.autograd.backward(model(_batch()).logsumexp(1).mean())
    assert new.grad is not None
    assert new.grad[:, -1].abs().max() > 0


@pytest.mark.parametrize(
    "edit",
    [
        Edit("add_block"),
        Edit("widen", block=1, factor=3),
        Edit("swap_activation", to="prelu"),
        Edit("swap_activation", block=0, to="gelu"),
        Edit("add_norm"),
        Edit("add_norm", block=0),
        Edit("add_residual", block=1),
    ],
)
def test_edited_model_is_the_one_that_its_specification_builds(edit: Edit) -> None:
    plain = _spec(norm="none", residual=False)
    model = _trained(plain)
    old = {name: value.clone() for name, value in model.state_dict().items()}
    edit_model(model, edit, seed=3, salt="edit")
    assert model.spec() == apply_edit(plain, edit)
    fresh = ResidualCNN(model.spec())
    assert [(n, type(m)) for n, m in model.named_modules()] == [
        (n, type(m)) for n, m in fresh.named_modules()
    ]
    new = model.state_dict()
    assert {n: v.shape for n, v in new.items()} == {
        n: v.shape for n, v in fresh.state_dict().items()
    }
    kept = [name for name in old if name in new and new[name].shape == old[name].shape]
    assert kept
    assert all(torch.equal(new[name], old[name]) for name in kept)


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (Edit("add_norm"), "changes nothing"),
        (Edit("widen", block=7, factor=2), "no block 7"),
    ],
)
def test_edit_that_cannot_be_applied_is_rejected(edit: Edit, reason: str) -> None:
    model = _trained(_spec())
    before = model(_batch())
    with pytest.raises(SpecError, match=reason):
        edit_model(model, edit, seed=3, salt="edit")
    assert model.spec() == _spec()
    assert torch.equal(model(_batch()), before)


@pytest.mark.parametrize(
    "edit", [Edit("add_block"), Edit("widen", factor=2), Edit("swap_activation", to="gelu")]
)
def test_hooks_see_every_activation_when_the_model_was_edited(edit: Edit) -> None:
    model = _trained(_spec())
    edit_model(model, edit, seed=3, salt="edit")
    watch = EpochWatch(model, effective_batch=16)
    model(_batch())
    watch.close()
    seen = [layer["name"] for layer in watch.measured()["activations"]]
    blocks = range(len(model.spec().blocks))
    assert seen == [f"blocks.{n}.act{place}" for n in blocks for place in (1, 2)] + ["act"]
