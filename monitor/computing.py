"""How this process computes: deterministic, with so many threads, portable or fast.

Source: docs/explanation/determinism.md.  I/O: none.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from monitor.config import AnyConfig
from monitor.dispatch import PORTABLE, PORTABLE_VARIABLES, current_variables
from monitor.errors import ConfigurationError


@contextmanager
def computing_as(config: AnyConfig, *, strict: bool = True) -> Iterator[None]:
    """Compute as the configuration says for a while.

    Portable numerics leave oneDNN and NNPACK out, which choose their kernels by the CPU. Raises
    ConfigurationError if `strict` and the process was not started for what is asked for.
    """
    if config.numerics == PORTABLE and strict:
        require_portable()
    threads = torch.get_num_threads()
    deterministic = torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(config.threads)
    torch.use_deterministic_algorithms(True)
    try:
        with ExitStack() as stack:
            if config.numerics == PORTABLE:
                stack.enter_context(_without_dispatchers())
            if config.device == "cuda":
                stack.enter_context(_on_gpu())
            yield
    finally:
        torch.use_deterministic_algorithms(deterministic)
        torch.set_num_threads(threads)


def require_portable() -> None:
    """Raise ConfigurationError unless this process was started for portable numerics."""
    if (
        current_variables() == PORTABLE_VARIABLES
        and torch.backends.cpu.get_cpu_capability() == "DEFAULT"
    ):
        return
    settings = " ".join(f"{name}={value}" for name, value in PORTABLE_VARIABLES.items())
    raise ConfigurationError(
        'numerics = "portable" needs a process that was started for it. The proctor command does '
        f"that by itself; for Python, set these variables before it starts: {settings}"
    )


@contextmanager
def _on_gpu() -> Iterator[None]:
    """Take what decides a GPU's bits from nobody else: neither the environment nor other code.

    float32 means float32: convolutions would round their inputs to TF32, with 10 bits.
    """
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # cuBLAS reads nothing else
    cudnn: Any = torch.backends.cudnn
    places: tuple[Any, ...] = (cudnn.conv, torch.backends.cuda.matmul)
    before, timing = [place.fp32_precision for place in places], cudnn.benchmark
    cudnn.benchmark = False  # which would choose kernels by how long they take
    for place in places:
        place.fp32_precision = "ieee"
    try:
        yield
    finally:
        for place, precision in zip(places, before, strict=True):
            place.fp32_precision = precision
        cudnn.benchmark = timing


@contextmanager
def _without_dispatchers() -> Iterator[None]:
    """Leave out the libraries that choose a kernel by the CPU and have no portable setting."""
    libraries: tuple[Any, ...] = (torch.backends.mkldnn, torch.backends.nnpack)
    # flags() of the first would warn about GPUs on the way back
    before = [library.set_flags(False)[0] for library in libraries]
    try:
        yield
    finally:
        for library, enabled in zip(libraries, before, strict=True):
            library.set_flags(enabled)
