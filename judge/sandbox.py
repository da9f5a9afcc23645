"""Submitted code, run at arm's length in a fresh interpreter.

The child gets copies of what it needs in an empty folder, no standard input, no variable of our
environment, and limits of time, memory and output. Its answer is read as data: JSON of known shape
and safetensors, each of bounded size.

Trust: everything that comes back is the submission's word. An answer that is missing, late or
malformed is a problem of the submission, never an error of the judge.
I/O: a temporary folder, one process.  Units: seconds, bytes.  Shapes: batch (B, 3, 32, 32).
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import safetensors
from safetensors.torch import load, save
from torch import Tensor

from judge.config import JudgeConfig
from judge.errors import JudgeError

STAGES = ("load", "weights", "logits", "done")
_MAX_REPORT = 4 * 2**20  # bytes
_SHOWN = 2_000  # characters of what the child printed


@dataclass(frozen=True, kw_only=True)
class Examination:
    """What came back: how far the submission got, and what it says of itself."""

    stage: str  # the stage that did not hold, or done
    problem: str | None
    isolation: str
    printed: str
    parameters: tuple[tuple[str, tuple[int, ...]], ...] = ()
    modules: tuple[tuple[str, str], ...] = ()
    fresh: Mapping[str, Tensor] = field(default_factory=dict)
    logits: Tensor | None = None

    def passed(self, stage: str) -> bool:
        """Return whether the submission got beyond `stage`."""
        return STAGES.index(self.stage) > STAGES.index(stage)


def examine(model: bytes, weights: bytes, batch: Tensor, *, config: JudgeConfig) -> Examination:
    """Run a submission's code on its weights and a batch; raises JudgeError only for our own."""
    with tempfile.TemporaryDirectory(prefix="proctor-judge-") as name:
        folder = Path(name)
        (folder / "cwd").mkdir()
        (folder / "model.py").write_bytes(model)
        (folder / "weights.safetensors").write_bytes(weights)
        (folder / "batch.safetensors").write_bytes(save({"batch": batch}))
        request = {
            "cpu_seconds": config.child_cpu_seconds,
            "memory_bytes": config.child_memory_bytes,
            "file_bytes": config.max_deliverable_bytes,
        }
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        ended, printed = _run(folder, config)
        return _read_answer(folder, ended, printed, config)


def _run(folder: Path, config: JudgeConfig) -> tuple[str, str]:
    """Run the child; return how it ended, in words, and what it printed."""
    child = subprocess.Popen(  # noqa: S603 - a fixed command of our own
        [sys.executable, "-I", "-B", "-m", "judge.child", str(folder)],
        cwd=folder / "cwd",
        env=_environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert child.stdout is not None
    printed = _Printed(child.stdout, limit=config.child_output_bytes, stop=lambda: _kill(child))
    try:
        code = child.wait(timeout=config.child_seconds)
        ended = f"it was ended by signal {-code}" if code < 0 else f"it left with status {code}"
    except subprocess.TimeoutExpired:
        ended = f"it ran for more than {config.child_seconds:g} seconds"
    finally:
        _kill(child)
        child.wait()
    text = printed.read()
    if printed.exceeded:
        ended = f"it printed more than {config.child_output_bytes} bytes"
    return ended, text


class _Printed:
    """What the child prints, kept up to a limit, at which the child is stopped."""

    def __init__(self, pipe: IO[bytes], *, limit: int, stop: Any) -> None:
        self._pipe, self._limit, self._stop = pipe, limit, stop
        self._kept = bytearray()
        self.exceeded = False
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def read(self) -> str:
        self._thread.join(timeout=5.0)  # a process that escaped may hold the pipe open
        return bytes(self._kept[:_SHOWN]).decode("utf-8", "replace")

    def _follow(self) -> None:
        with suppress(OSError, ValueError):
            while chunk := os.read(self._pipe.fileno(), 65_536):
                self._kept += chunk[: self._limit - len(self._kept)]
                if len(self._kept) >= self._limit:
                    self.exceeded = True
                    self._stop()
                    break


def _kill(child: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        child.kill()


def _environment(folder: Path) -> dict[str, str]:
    return {
        "CUDA_VISIBLE_DEVICES": "",
        "HOME": str(folder / "cwd"),
        "LANG": "C.UTF-8",
        "MKL_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "TMPDIR": str(folder / "cwd"),
    }


def _read_answer(folder: Path, ended: str, printed: str, config: JudgeConfig) -> Examination:
    try:
        said = _read_report(folder / "report.json")
    except FileNotFoundError:
        # Nothing submitted has run yet when the report is opened.
        raise JudgeError(
            f"the process for submitted code did not start: {ended}. {printed}"
        ) from None
    except (OSError, ValueError, RecursionError, UnicodeDecodeError) as error:
        return Examination(
            stage="load",
            problem=f"the report is malformed ({error}); {ended}",
            isolation="unknown",
            printed=printed,
        )
    if said["stage"] != "done" and said["problem"] is None:
        said["problem"] = ended
    stage, problem = said["stage"], said["problem"]
    states: dict[str, dict[str, Tensor]] = {}
    for name, needed in (("fresh", "load"), ("logits", "logits")):
        states[name] = {}
        if STAGES.index(stage) > STAGES.index(needed):
            try:
                states[name] = _read_tensors(folder / f"{name}.safetensors", config)
            except (OSError, ValueError, KeyError, safetensors.SafetensorError) as error:
                stage, problem = needed, f"the answer {name} is malformed: {error}"
    logits = states["logits"].get("logits")
    if stage == "done" and logits is None:
        stage, problem = "logits", "the answer holds no logits"
    return Examination(
        stage=stage,
        problem=problem,
        isolation=said["isolation"],
        printed=printed,
        parameters=said["parameters"],
        modules=said["modules"],
        fresh=states["fresh"],
        logits=logits,
    )


def _read_report(path: Path) -> dict[str, Any]:
    """Return the report with nothing in it but what is expected; raises ValueError."""
    if path.stat().st_size > _MAX_REPORT:
        raise _MalformedError(f"longer than {_MAX_REPORT} bytes")
    found = json.loads(path.read_bytes())
    if not isinstance(found, dict) or found.get("stage") not in STAGES:
        raise _MalformedError("no stage")
    problem = found.get("problem")
    parameters, modules = found.get("parameters", []), found.get("modules", [])
    if not isinstance(problem, str | None) or not isinstance(found.get("isolation"), str):
        raise _MalformedError("a problem and an isolation in words are expected")
    if not isinstance(parameters, list) or not isinstance(modules, list):
        raise _MalformedError("parameters and modules in lists are expected")
    return {
        "stage": found["stage"],
        "problem": problem if problem is None else problem[:_SHOWN],
        "isolation": found["isolation"][:100],
        "parameters": tuple((_text(n), tuple(_whole(s) for s in shape)) for n, shape in parameters),
        "modules": tuple((_text(n), _text(kind)) for n, kind in modules),
    }


class _MalformedError(ValueError):
    """An answer that is not what was asked for."""


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > 500:
        raise _MalformedError("a short name is expected")
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _MalformedError("a whole number is expected")
    return value


def _read_tensors(path: Path, config: JudgeConfig) -> dict[str, Tensor]:
    if path.stat().st_size > config.max_deliverable_bytes:
        raise _MalformedError(f"longer than {config.max_deliverable_bytes} bytes")
    state: dict[str, Tensor] = load(path.read_bytes())
    return state
