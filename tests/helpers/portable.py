"""Processes that were started for portable numerics: what they train is the same on every CPU.

Functions are called by name in a fresh interpreter; arguments and results are plain values. An
emulator may stand in front of the interpreter, as in `qemu-x86_64 -cpu EPYC`.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from monitor.dispatch import PORTABLE_VARIABLES, environment_with

HELPERS = Path(__file__).parent
DISPATCH: dict[str, dict[str, str]] = {  # settings under which everything has to hold
    "default": {"ATEN_CPU_CAPABILITY": "default"},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "onednn-avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
    "onednn-sse41": {"ONEDNN_MAX_CPU_ISA": "SSE41"},
    "mkl-compatible": {"MKL_CBWR": "COMPATIBLE"},
}
_CODE = """
import importlib, json, sys
sys.path[:0] = {paths!r}
module, function, arguments = sys.argv[1:]
found = getattr(importlib.import_module(module), function)(*json.loads(arguments))
print("\\n" + json.dumps(found))
"""


def in_portable_process(
    module: str, function: str, *arguments: Any, emulator: Sequence[str] = ()
) -> Any:
    """Return what a function of a module returns in a portable process."""
    return _in_process(PORTABLE_VARIABLES, module, function, arguments, emulator)


def in_process_with(
    variables: Mapping[str, str], module: str, function: str, *arguments: Any
) -> Any:
    """Return what a function returns in a process with these variables of dispatch alone."""
    return _in_process(variables, module, function, arguments, ())


def _in_process(
    variables: Mapping[str, str],
    module: str,
    function: str,
    arguments: Sequence[Any],
    emulator: Sequence[str],
) -> Any:
    paths = [str(HELPERS), str(HELPERS.parents[1])]
    code = _CODE.format(paths=paths)
    done = subprocess.run(
        [*emulator, sys.executable, "-c", code, module, function, json.dumps(arguments)],
        env=environment_with(variables),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
