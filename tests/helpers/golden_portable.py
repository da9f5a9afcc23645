"""Four short portable runs, each with a remedy, and one digest of each.

A digest covers every measured value, the rules, the remedies and the weights. `python tests/
golden_portable.py` prints them for this version of the code.
"""

import hashlib
import json
from typing import Any

from portable import in_portable_process
from tiny_training import Trained, train_tiny

from aggregates.canonical import digest
from monitor.errors import ConfigurationError

_BASE: dict[str, Any] = {
    "train_examples": 160,
    "val_examples": 64,
    "test_examples": 64,
    "epochs": 4,
    "batch_size": 16,
    "channels": 6,
    "blocks": 2,
    "width": 5,
    "stem_stride": 2,
    "numerics": "portable",
    "profile": "calibrated",
}
# name -> settings, the remedy that the first firing gets
RUNS: dict[str, tuple[dict[str, Any], tuple[str, dict[str, Any]]]] = {
    "learning rate": (
        {"lr": 1e-6, "warm_up_epochs": 0, "clip_norm": 1.0},
        ("increase_lr", {"lr": 1e-5}),
    ),
    "batch size and gelu": (
        {"lr": 1e-6, "warm_up_epochs": 0, "activation": "gelu", "accumulation": 2, "batch_size": 8},
        ("cycle_lr", {"lr_min": 1e-5, "lr_max": 5e-2, "epochs": 2}),
    ),
    "prelu and momentum": (
        {"lr": 1e-6, "warm_up_epochs": 0, "activation": "prelu", "momentum": 0.5},
        ("increase_lr", {"lr": 1e-5}),
    ),
    "going back": (
        {"lr": 1e-6, "warm_up_epochs": 0, "profile": "relative"},
        ("go_back", {"epoch": -1, "lr": 1e-2}),
    ),
}


def digest_of(trained: Trained) -> str:
    """Return the SHA-256 over what was measured, decided and done, and over all weights."""
    told = []
    for kind, body in trained.bodies():
        kept = {key: value for key, value in body.items() if key not in _LEFT_OUT}
        if kind == "Run.Started":
            kept = {key: body[key] for key in ("config_hash", "rules_hash", "spec", "data")}
        if "reported" in kept:
            kept["reported"] = {**kept["reported"], "seconds": 0.0}
        told.append((kind, kept))
    weights = sorted(hashlib.sha256(blob).hexdigest() for blob in trained.blobs.values())
    return digest({"events": _plain(told), "weights": weights})


_LEFT_OUT = ("originator_id", "originator_version", "originator_topic", "timestamp", "environment")


def _plain(value: Any) -> Any:
    """Return a value in which floats are their exact digits, NaN and infinities included."""
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


def digests(*names: str) -> dict[str, str]:
    """Train these runs, or all, in a portable process, and return their digests."""
    found = {}
    for name in names or RUNS:
        settings, remedy = RUNS[name]
        trained = train_tiny(remedy, settings={**_BASE, **settings})
        assert trained.run.remedies, f"{name}: no remedy was applied"
        found[name] = digest_of(trained)
    return found


def refusal() -> str:
    """Return what a portable training says in a process that was not started for it."""
    try:
        train_tiny(settings=_BASE)
    except ConfigurationError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    print(json.dumps(in_portable_process("golden_portable", "digests"), indent=4))
