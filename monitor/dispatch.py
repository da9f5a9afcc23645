"""Which of their code paths the numeric libraries take: the environment variables that decide it.

PyTorch, oneDNN, MKL and the C library choose a code path for the CPU when they are loaded, and the
paths round differently. The variables below fix the choice. They have to be in the environment
before Python starts.

Source: docs/explanation/determinism.md; PyTorch "ATEN_CPU_CAPABILITY"; oneDNN "CPU Dispatcher
Control"; MKL "Conditional Numerical Reproducibility"; glibc manual "Hardware Capability Tunables".
Trust: recorded variables are hostile; restorable() returns known names with known values only.
I/O: current_variables() reads the environment, describe_cpu() reads /proc/cpuinfo.
"""

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FAST = "fast"
PORTABLE = "portable"
NUMERICS = (FAST, PORTABLE)

# The C library's exp and log have variants that use fused multiply-add, chosen by the CPU. The
# names with "_Usable" are those of glibc 2.32 and earlier; a name that is unknown is ignored.
_NO_FMA = "glibc.cpu.hwcaps=-FMA,-FMA4,-FMA_Usable,-FMA4_Usable"
PORTABLE_VARIABLES: Mapping[str, str] = {
    "ATEN_CPU_CAPABILITY": "default",
    "GLIBC_TUNABLES": _NO_FMA,
    "MKL_CBWR": "COMPATIBLE",
}
_ISA = (
    *("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE", "AVX512_CORE_VNNI"),
    *("AVX512_CORE_BF16", "AVX512_CORE_FP16", "AVX512_CORE_AMX", "AVX512_CORE_AMX_FP16"),
    *("AVX10_1_512", "AVX10_1_512_AMX", "ALL", "DEFAULT"),
)
_PRECISION = ("STRICT", "BF16", "F16", "TF32", "ANY")
# name -> values that a process may be started with because a ledger says so
_KNOWN: Mapping[str, tuple[str, ...]] = {
    "ATEN_CPU_CAPABILITY": ("default", "avx2", "avx512"),
    "DNNL_DEFAULT_FPMATH_MODE": _PRECISION,
    "DNNL_MAX_CPU_ISA": _ISA,
    "GLIBC_TUNABLES": (_NO_FMA,),
    "MKL_CBWR": (
        *("AUTO", "COMPATIBLE", "SSE2", "SSE4_2", "AVX", "AVX2", "AVX512", "AVX512_E1"),
        *("AVX2,STRICT", "AVX512,STRICT", "AVX512_E1,STRICT"),
    ),
    "MKL_DEBUG_CPU_TYPE": ("5",),
    "MKL_ENABLE_INSTRUCTIONS": ("SSE4_2", "AVX", "AVX2", "AVX512", "AVX512_E1"),
    "ONEDNN_DEFAULT_FPMATH_MODE": _PRECISION,
    "ONEDNN_MAX_CPU_ISA": _ISA,
}
_FEATURES = ("amx", "avx", "f16c", "fma", "sse4")  # beginnings of the flags that select kernels
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")  # libraries cut matrices to fit into them


def current_variables() -> dict[str, str]:
    """Return the variables that are set in this process's environment."""
    return {name: os.environ[name] for name in _KNOWN if name in os.environ}


def restorable(recorded: object) -> dict[str, str] | None:
    """Return recorded variables that a process may be started with; None if one is not known."""
    if not isinstance(recorded, Mapping):
        return None
    for name, value in recorded.items():
        if value not in _KNOWN.get(name, ()):
            return None
    return dict(recorded)


def environment_with(variables: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with these variables, and none of the others."""
    rest = {name: value for name, value in os.environ.items() if name not in _KNOWN}
    return {**rest, **variables}


def variables_for(environment: object, *, here: object) -> dict[str, str] | None:
    """Return the variables to start a process with that computes as a recorded run did.

    None where nothing is to be changed: the run recorded no variables, records some that are not
    known, or was made on another CPU, whose code paths may not exist `here`.
    """
    if not isinstance(environment, Mapping):
        return None
    if environment.get("numerics") != PORTABLE and environment.get("cpu") != here:
        return None
    return restorable(environment.get("variables"))


def describe_cpu() -> dict[str, Any]:
    """Return the CPU's name, the instruction sets that libraries look at, and its cache sizes."""
    fields = _cpuinfo()
    named = ("vendor_id", "cpu family", "model", "model name")
    return {
        "name": " ".join(fields[key] for key in named if key in fields) or platform.processor(),
        "features": sorted(
            flag for flag in fields.get("flags", "").split() if flag.startswith(_FEATURES)
        ),
        "caches": _caches(),
    }


def _caches() -> list[str]:
    """Return level, kind and size of each cache, as the system tells them; empty elsewhere."""
    parts = ("level", "type", "size")
    try:
        return [
            " ".join((place / part).read_text(encoding="ascii").strip() for part in parts)
            for place in sorted(_CACHES.glob("index*"))
        ]
    except (OSError, UnicodeDecodeError):
        return []


def _cpuinfo() -> dict[str, str]:
    """Return the fields of the first processor; empty where the system does not tell."""
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
    except (OSError, UnicodeDecodeError):
        return {}
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}
