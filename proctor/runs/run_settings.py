"""What a run is configured with at the command line, read without loading torch.

I/O: reads the configuration file.
"""

import math
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aggregates.provocations import apply_to_config
from monitor.config import IMAGE_FOLDER, RunConfig
from monitor.dispatch import PORTABLE
from policies.deciding.rescue import RescuePolicy
from proctor.errors import ProctorError

DEFAULT_POLICY = RescuePolicy.name  # who decides in a built-in run where nobody names a policy


def read_config(path: Path | None, settings: Sequence[str]) -> RunConfig:
    """Return the configuration of a file, or the default one, changed by KEY=VALUE settings.

    Raises ConfigurationError naming the key.
    """
    chosen = {} if path is None else RunConfig.from_toml(path).to_dict()
    given = read_pairs(settings)
    if given.get("numerics") == PORTABLE and chosen.get("threads") == RunConfig().threads:
        del chosen["threads"]  # the default, which nobody asked for; portable has another
    chosen |= given
    dataset = chosen.get("dataset")
    if isinstance(dataset, str) and dataset.startswith(IMAGE_FOLDER) and dataset != IMAGE_FOLDER:
        # Recorded as an absolute path: judge and replay may be called from elsewhere.
        chosen["dataset"] = IMAGE_FOLDER + str(Path(dataset.removeprefix(IMAGE_FOLDER)).resolve())
    if isinstance(data_dir := chosen.get("data_dir"), str) and data_dir:
        chosen["data_dir"] = str(Path(data_dir).resolve())
    return RunConfig.from_dict(chosen)


def provoked(config: RunConfig, name: str | None, seed: int) -> RunConfig:
    """Return the configuration with a fault of the catalogue in it; None leaves it as it is."""
    if name is None:
        return config
    return RunConfig.from_dict(apply_to_config(config.to_dict(), name, seed))


def read_pairs(pairs: Sequence[str]) -> dict[str, Any]:
    """Return KEY=VALUE settings; a value is read as TOML, and else taken as text."""
    read: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise ProctorError(f"{pair!r} is not KEY=VALUE, as in lr=0.3")
        if key in read:
            raise ProctorError(f"{key} is given twice, the second time in {pair!r}; give it once")
        read[key] = read_value(text)
    return read


def read_value(text: str) -> Any:
    """Return a value as TOML has it; else the text."""
    try:
        found = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):  # no TOML, a number of thousands of digits, or too deep
        return text
    value = found.get("value")
    return value if set(found) == {"value"} and _finite(value) else text


def _finite(value: Any) -> bool:
    """Return whether all numbers are finite: `nan` is somebody's name, and no setting is such."""
    if isinstance(value, list | dict):
        return all(map(_finite, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)
