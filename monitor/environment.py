"""What a run was made with: versions, CPU, code paths, threads and the code's own hash.

I/O: reads the source files of what decides a run, and /proc/cpuinfo.
"""

import platform
import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

from monitor.code import code_sha256
from monitor.config import AnyConfig
from monitor.dispatch import PORTABLE, current_variables, describe_cpu

_MKL = re.compile(r"Math Kernel Library Version (\S+)")
_ONEDNN = re.compile(r"MKL-DNN v(\S+)")
# What has to be the same for the same bits. Portable results do not depend on the CPU.
_ANYWHERE = ("code_sha256", "device", "libc", "machine", "mkl", "numerics", "torch", "variables")
_FAST_ONLY = ("cpu", "cpu_capability", "onednn")


def describe_environment(config: AnyConfig) -> dict[str, Any]:
    """Return what the same metrics depend on beside configuration and data."""
    built = torch.__config__.show()
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "torchvision": version("torchvision"),  # importing it takes seconds
        "numpy": np.__version__,
        "mkl": _found(_MKL, built),
        "onednn": _found(_ONEDNN, built),
        "libc": "-".join(platform.libc_ver()),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu": describe_cpu(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "numerics": config.numerics,
        "variables": current_variables(),
        "threads": config.threads,
        "device": "cpu" if config.device == "cpu" else describe_gpu(),
        "code_sha256": code_sha256(),
    }


def other_kind(recorded: Mapping[str, Any], here: Mapping[str, Any]) -> tuple[str, ...]:
    """Return in what two environments differ that decides the bits of a training; () if in none.

    A key that one of them lacks differs: nobody can tell that it would be the same.
    """
    portable = recorded.get("numerics") == PORTABLE == here.get("numerics")
    keys = _ANYWHERE if portable else (*_ANYWHERE, *_FAST_ONLY)
    missing = object()
    return tuple(
        key
        for key in sorted(keys)
        if (there := recorded.get(key, missing)) is missing or there != here.get(key, missing)
    )


def describe_gpu(device: torch.device | None = None) -> str:
    """Return a GPU's name, by default the current one's, with what else decides its kernels."""
    if not torch.cuda.is_available():
        return "none"
    major, minor = torch.cuda.get_device_capability(device)
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]  # has no types
    return (
        f"{torch.cuda.get_device_name(device)}, capability {major}.{minor}, "
        f"CUDA {torch.version.cuda}, cuDNN {cudnn}"
    )


def _found(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return match.group(1) if match else None
