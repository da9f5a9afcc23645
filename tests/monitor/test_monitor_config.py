"""The configuration takes what is allowed and names what is not."""

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.config import RunConfig
from monitor.errors import ConfigurationError


def test_configuration_survives_a_round_trip() -> None:
    config = RunConfig.from_dict({"lr": 0.3, "waived": ["R3"], "dataset": "imagefolder:/data"})
    assert RunConfig.from_dict(config.to_dict()) == config
    assert RunConfig.from_dict(config.to_dict()).hash == config.hash
    assert config.hash != RunConfig().hash


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("learning_rate", 0.1, "unknown key learning_rate; known keys: .* lr,"),
        ("lr", math.nan, "lr must be a number from 1e-08 to 10, not nan"),
        ("lr", math.inf, "lr must be"),
        ("lr", -0.1, "lr must be"),
        ("lr", 10**400, "lr must be"),
        ("lr", "0.1", "lr must be"),
        ("lr", True, "lr must be"),
        ("momentum", 1.0, "momentum must be"),
        ("clip_norm", 0.0, "clip_norm must be"),
        ("epochs", 0, "epochs must be a whole number from 1"),
        ("epochs", 2.0, "epochs must be a whole number"),
        ("batch_size", 1024, "batch_size 1024 is above max_batch_size 512"),
        ("blocks", 33, "blocks must be"),
        ("seed", -1, "seed must be"),
        ("activation", "tanh", "activation must be one of gelu, leaky_relu, prelu, relu"),
        ("activation", ["relu"], "activation must be one of"),
        ("norm", None, "norm must be one of"),
        ("residual", 1, "residual must be true or false"),
        ("waived", ["R99"], "waived must be different rules"),
        ("waived", ["R1", "R1"], "waived must be different rules"),
        ("waived", "R1", "waived must be a list"),
        ("waived", [["R1"]], "waived must be different rules"),
        ("profile", "own", "profile must be one of calibrated, document"),
        ("edits", "later", "edits must be one of live, restart"),
        ("dataset", "mnist", "dataset must be one of shapes, cifar10, imagefolder:DIR"),
        ("dataset", "imagefolder:", "dataset must be one of"),
        ("data_dir", 3, "data_dir must be a folder"),
        ("train_examples", 1, "train_examples must be"),
        ("device", "tpu", "device must be one of cpu, cuda"),
    ],
)
def test_configuration_with_a_bad_value_is_rejected(key: str, value: Any, allowed: str) -> None:
    with pytest.raises(ConfigurationError, match=allowed):
        RunConfig.from_dict({key: value})


@settings(deadline=None)  # other tests may hold the machine
@given(
    st.dictionaries(
        st.sampled_from(sorted(RunConfig().to_dict())),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
        | st.lists(st.text(max_size=2), max_size=2),
        max_size=3,
    )
)  # fmt: skip
def test_configuration_raises_its_one_error_or_holds(value: dict[str, Any]) -> None:
    try:
        config = RunConfig.from_dict(value)
    except ConfigurationError:
        return
    assert RunConfig.from_dict(config.to_dict()) == config
    assert len(config.hash) == 64


def test_configuration_file_is_read_when_it_is_toml(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('dataset = "shapes"\nlr = 0.1\nwaived = ["R3"]\n', encoding="utf-8")
    assert RunConfig.from_toml(path) == RunConfig(lr=0.1, waived=("R3",))


@pytest.mark.parametrize(
    "text", [b"lr = ", b"\xff", b"lr = nan\n", b"[lr]\n", b"seed = 1" + b"0" * 5000]
)
def test_configuration_file_with_bad_content_is_rejected(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(text)
    with pytest.raises(ConfigurationError, match=r"run\.toml"):
        RunConfig.from_toml(path)


def test_configuration_file_that_is_missing_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.toml"):
        RunConfig.from_toml(tmp_path / "none.toml")
