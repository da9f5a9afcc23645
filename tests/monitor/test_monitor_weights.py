"""Weights go to bytes and back, strictly; probes recognise them."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from safetensors.torch import load, save

from aggregates.errors import WeightsError
from aggregates.spec import BlockSpec, ModelSpec
from aggregates.weights import verify_canonical
from monitor.config import RunConfig
from monitor.datasets import Split, load_splits
from monitor.model import ResidualCNN
from monitor.probe import probe_model
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


Header = dict[str, Any]


def _file(header: str | bytes, tensors: bytes) -> bytes:
    header = header.encode() if isinstance(header, str) else header
    return len(header).to_bytes(8, "little") + header + tensors


def _parts(data: bytes) -> tuple[Header, bytes]:
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def _compact(header: Header) -> str:
    text = json.dumps(header, separators=(",", ":"))
    return text.ljust(-(-len(text) // 8) * 8)


def _repeated_key(header: Header, tensors: bytes) -> bytes:
    again = json.dumps(header["head.bias"], separators=(",", ":"))
    return _file(f'{_compact(header).rstrip()[:-1]},"head.bias":{again}}}', tensors)


def _reordered(header: Header, tensors: bytes) -> bytes:
    return _file(_compact(dict(reversed(header.items()))), tensors)


def _swapped(header: Header, tensors: bytes) -> bytes:
    """Let two tensors of one size change places."""
    one, other = (header[f"blocks.0.norm1.{name}"] for name in ("bias", "weight"))
    one["data_offsets"], other["data_offsets"] = other["data_offsets"], one["data_offsets"]
    return _file(_compact(header), tensors)


def _padded(header: Header, tensors: bytes) -> bytes:
    return _file(_compact(header) + " " * 8, tensors)


def _huge_header(header: Header, tensors: bytes) -> bytes:
    return _file(_compact(header) + " " * 90_000_000, tensors)


def _metadata(header: Header, tensors: bytes) -> bytes:
    return _file(_compact({"__metadata__": {"hidden": "words"}, **header}), tensors)


def _gap(header: Header, tensors: bytes) -> bytes:
    last = max(header.values(), key=lambda tensor: tensor["data_offsets"][1])
    start, end = last["data_offsets"]
    last["data_offsets"] = [start + 8, end + 8]
    return _file(_compact(header), tensors[:start] + b"8 hidden" + tensors[start:])


def _overlap(header: Header, tensors: bytes) -> bytes:
    header["blocks.0.norm1.bias"]["data_offsets"] = header["blocks.0.norm1.weight"]["data_offsets"]
    return _file(_compact(header), tensors)


def _trailing(header: Header, tensors: bytes) -> bytes:
    return _file(_compact(header), tensors + b"trailing")


def _deep(header: Header, tensors: bytes) -> bytes:
    return _file("[" * 5_000 + "]" * 5_000, tensors)


def _enormous(header: Header, tensors: bytes) -> bytes:
    more = {"dtype": "F32", "shape": [2**31 - 1] * 8, "data_offsets": [0, 1]}
    return _file(_compact({**header, "z": more}), tensors)


NOT_CANONICAL: list[Callable[[Header, bytes], bytes]] = [
    _repeated_key,
    _reordered,
    _swapped,
    _padded,
    _huge_header,
    _metadata,
    _gap,
    _overlap,
    _trailing,
    _deep,
    _enormous,
    lambda header, tensors: _file(json.dumps(header), tensors),
    lambda header, tensors: _file(b"\xff\xfe", tensors),
    lambda header, tensors: _file("{}", tensors),
    lambda header, tensors: b"\xff" * 8 + tensors,
]


@pytest.mark.parametrize("change", NOT_CANONICAL)
def test_weights_in_another_form_than_the_canonical_are_rejected(
    change: Callable[[Header, bytes], bytes],
) -> None:
    data = dump_weights(ResidualCNN(SPEC))
    header, tensors = _parts(data)
    assert _file(_compact(header), tensors) == data
    verify_canonical(data)
    with pytest.raises(WeightsError, match="not a safetensors file"):
        verify_canonical(change(header, tensors))


@pytest.mark.parametrize("norm", ["batch", "none"])
@pytest.mark.parametrize("activation", ["relu", "prelu"])
@pytest.mark.parametrize("blocks", [1, 12, 32])
def test_what_the_library_writes_of_our_models_is_canonical(
    norm: str, activation: str, blocks: int
) -> None:
    block = BlockSpec(3, True, norm, activation)
    model = ResidualCNN(ModelSpec(10, 4, 4, (block,) * blocks, norm, activation))
    verify_canonical(dump_weights(model))


def test_probe_tells_weights_apart_and_leaves_the_model_alone() -> None:
    splits = load_splits(RunConfig(train_examples=10, val_examples=80, test_examples=10))
    batch = splits.validation
    first = Split(batch.images[:64], batch.labels[:64])
    model = ResidualCNN(SPEC, seed=1).train()
    before = dump_weights(model)
    probe = probe_model(model, batch)
    assert probe["mode"] == "eval"
    assert probe["batch_sha256"] == first.fingerprint
    assert set(probe["layer_norms"]) == {name for name, _ in model.named_parameters()}
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert dump_weights(model) == before
    again = ResidualCNN(SPEC, seed=9)
    load_weights(again, before)
    assert probe_model(again, batch) == probe
    assert probe_model(ResidualCNN(SPEC, seed=2), batch)["layer_norms"] != probe["layer_norms"]
