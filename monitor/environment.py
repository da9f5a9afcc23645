"""What a run was made with: versions, machine, threads and the code's own hash.

I/O: reads the source files of the packages that decide what a training does.
"""

import hashlib
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

_PACKAGES = ("aggregates", "monitor")


def describe_environment(*, threads: int, device: str) -> dict[str, Any]:
    """Return what the same metrics depend on beside configuration and data."""
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "torchvision": version("torchvision"),  # importing it takes seconds
        "numpy": np.__version__,
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": threads,
        "device": device if device == "cpu" else torch.cuda.get_device_name(),
        "code_sha256": code_sha256(),
    }


def code_sha256() -> str:
    """Return a hash over the names and bytes of all source files of the watched packages."""
    house = Path(__file__).resolve().parent.parent
    sha = hashlib.sha256()
    for package in _PACKAGES:
        for path in sorted((house / package).rglob("*.py")):
            for part in (path.relative_to(house).as_posix().encode(), path.read_bytes()):
                sha.update(len(part).to_bytes(8, "big"))
                sha.update(part)
    return sha.hexdigest()
