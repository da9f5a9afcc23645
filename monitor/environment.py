"""What a run was made with: versions, machine, threads and the code's own hash.

I/O: reads the source files of what decides a run.
"""

import platform
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

from monitor.code import code_sha256


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
