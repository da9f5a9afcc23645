"""A small model as a submission, and its examination by the judge."""

import torch

from aggregates.spec import BlockSpec, ModelSpec
from judge.config import JudgeConfig
from judge.confinement.sandbox import Examination, examine
from monitor.model import ResidualCNN
from monitor.weights import dump_weights

SPEC = ModelSpec(
    classes=10,
    channels=4,
    stem_stride=4,
    blocks=(BlockSpec(4, residual=True, norm="batch", activation="relu"),),
    norm="batch",
    activation="relu",
)
HONEST = f"""
from aggregates.spec import ModelSpec
from monitor.model import ResidualCNN


def load_model():
    return ResidualCNN(ModelSpec.from_dict({SPEC.to_dict()!r}), seed=3)
"""
# Loading torch takes 2 to 8 of the seconds, by the machine and by what else it does.
LIMITS = JudgeConfig(child_cpu_seconds=30, child_output_bytes=4_096, child_memory_bytes=3 * 2**30)
BATCH = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(5))


def judged(
    source: str, *, weights: bytes | None = None, config: JudgeConfig = LIMITS
) -> Examination:
    model = ResidualCNN(SPEC, seed=8)
    return examine(
        source.encode(), dump_weights(model) if weights is None else weights, BATCH, config=config
    )
