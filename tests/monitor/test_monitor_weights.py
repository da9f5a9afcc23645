"""Weights go to bytes and back, strictly; probes recognise them."""

import pytest
import torch
from safetensors.torch import load, save

from aggregates.spec import BlockSpec, ModelSpec
from monitor.config import RunConfig
from monitor.datasets import load_splits
from monitor.errors import WeightsError
from monitor.model import ResidualCNN
from monitor.probe import probe_batch, probe_model
from monitor.weights import dump_weights, load_weights

SPEC = ModelSpec(10, 8, 4, (BlockSpec(6, True, "batch", "relu"),), "batch", "relu")


def test_weights_survive_a_round_trip() -> None:
    one, other = ResidualCNN(SPEC, seed=1), ResidualCNN(SPEC, seed=2)
    data = dump_weights(one)
    assert dump_weights(other) != data
    load_weights(other, data)
    assert dump_weights(other) == data


def test_weights_of_another_model_are_rejected() -> None:
    model = ResidualCNN(SPEC)
    state = load(dump_weights(model))
    without = {name: value for name, value in state.items() if name != "head.bias"}
    cases = [
        (save(without), r"missing \['head.bias'\]"),
        (save({**state, "extra": torch.zeros(1)}), r"unexpected \['extra'\]"),
        (save({**state, "head.bias": torch.zeros(9)}), r"head.bias is \(9,\)"),
        (save({**state, "head.bias": torch.zeros(10, dtype=torch.float64)}), "float64"),
        (b"", "not a safetensors"),
        (dump_weights(model)[:-1], "not a safetensors"),
        (b"\x80\x04}." * 9, "not a safetensors"),
    ]
    before = dump_weights(model)
    for data, reason in cases:
        with pytest.raises(WeightsError, match=reason):
            load_weights(model, data)
    assert dump_weights(model) == before
    load_weights(model, before)


def test_probe_tells_weights_apart_and_leaves_the_model_alone() -> None:
    splits = load_splits(RunConfig(train_examples=10, val_examples=80, test_examples=10))
    batch = probe_batch(splits.validation)
    assert len(batch) == 64
    model = ResidualCNN(SPEC, seed=1).train()
    before = dump_weights(model)
    probe = probe_model(model, batch)
    assert probe["mode"] == "eval"
    assert probe["batch_sha256"] == batch.fingerprint
    assert set(probe["layer_norms"]) == {name for name, _ in model.named_parameters()}
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert dump_weights(model) == before
    again = ResidualCNN(SPEC, seed=9)
    load_weights(again, before)
    assert probe_model(again, batch) == probe
    assert probe_model(ResidualCNN(SPEC, seed=2), batch)["layer_norms"] != probe["layer_norms"]
