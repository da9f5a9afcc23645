"""The images that submitted code is compared on: drawn anew each time."""

import pytest
import torch

from aggregates.spec import BlockSpec, ModelSpec
from judge.auditing.unforeseen import draw_images
from monitor.datasets import Split
from monitor.model import ResidualCNN

IMAGES = torch.randint(0, 256, (5, 3, 32, 32), generator=torch.Generator().manual_seed(1))
VALIDATION = Split(IMAGES.to(torch.uint8), torch.zeros(5, dtype=torch.int64))


def test_draw_is_the_same_when_the_seed_is() -> None:
    one, again, other = (draw_images(VALIDATION, seed=seed) for seed in (7, 7, 8))
    assert torch.equal(one.images, again.images)
    assert one.portions == again.portions
    assert not torch.equal(one.images, other.images)


@pytest.mark.parametrize("validation", [VALIDATION, None], ids=["images", "none"])
def test_draw_is_of_several_kinds_in_several_portions(validation: Split | None) -> None:
    drawn = draw_images(validation, seed=2)
    assert sum(drawn.portions) == len(drawn.images)
    assert {1, 2, 3} <= set(drawn.portions)
    assert drawn.images.isfinite().all()
    one_colour = drawn.images.flatten(2).std(2).amax(1) < 1e-6
    assert 0 < int(one_colour.sum()) < len(drawn.images)


def test_honest_model_answers_alike_in_portions() -> None:
    block = BlockSpec(4, residual=True, norm="batch", activation="relu")
    model = ResidualCNN(ModelSpec(10, 4, 4, (block,), "batch", "relu"), seed=3).eval()
    for seed in range(20):
        drawn = draw_images(VALIDATION, seed=seed)
        sizes = list(drawn.portions)
        with torch.no_grad():
            whole = model(drawn.images)
            parts = torch.cat([model(part) for part in torch.split(drawn.images, sizes)])
        assert float((whole - parts).abs().max()) < 1e-4 * float(whole.abs().max())
