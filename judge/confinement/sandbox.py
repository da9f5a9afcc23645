"""Runs submitted code in an isolated new interpreter.

The child gets copies of what it needs in an empty folder, no standard input, no variable of our
environment, and limits of time, memory and output. Its answer is read as data: JSON of known shape
and safetensors, each of bounded size. While it runs, the memory and the environment of this process
are closed to others of the same user; submissions of one process run one after the other.

An examination ends in a signed record, so free text of the submission is no part of it: of what it
printed the length and hash are kept, of an exception the type and the line in model.py.

Trust: everything that comes back is the submission's word. An answer that is missing, late or
malformed is a problem of the submission, never an error of the judge.
I/O: a temporary folder, one process, the dumpable flag of this one (prctl(2)).
Units: seconds, bytes.  Shapes: batch (B, 3, 32, 32).
"""

import builtins
import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Annotated, Any, Literal, get_args

import safetensors
from msgspec import Meta, Struct
from safetensors.torch import load, save
from torch import Tensor

from aggregates.errors import WeightsError
from aggregates.weights import layout
from judge.config import JudgeConfig
from judge.confinement.budget import Budget
from judge.confinement.child import Phrase
from judge.confinement.interpreter import variables
from judge.confinement.kernel import GET_DUMPABLE, LIBC, SET_DUMPABLE
from judge.declared import read_declared
from judge.errors import JudgeError
from ledger.held_folder import HeldFolder

Stage = Literal["load", "weights", "logits", "done"]
Measure = Literal[
    "limits", "unprivileged user", "own namespaces", "hidden files", "system-call filter"
]
STAGES: tuple[Stage, ...] = get_args(Stage)
ISOLATION: tuple[Measure, ...] = get_args(Measure)
_MAX_REPORT = 4 * 2**20  # bytes
_MAX_LOGITS = 64 * 2**20  # bytes: of some hundred images
_SHOWN = 2_000  # characters of what a child printed that did not come to run the submission
_Name = Annotated[str, Meta(max_length=500)]
_Whole = Annotated[int, Meta(ge=0, lt=2**31)]
_ANSWERS: tuple[tuple[str, Stage], ...] = (("fresh", "load"), ("logits", "logits"))
_ALONE = threading.Lock()


class Problem(Struct):
    """What the submission failed with, as the report says it."""

    phrase: Phrase | None = None
    type: str | None = None
    line: _Whole | None = None

    def __str__(self) -> str:
        """Return the problem in words of ours, whatever the report says."""
        if self.phrase is not None:
            return str(self.phrase)
        found = getattr(builtins, self.type or "", None)
        known = isinstance(found, type) and issubclass(found, BaseException)
        words = self.type if known else "an exception that is not a Python built-in"
        return str(words) if self.line is None else f"{words} in line {self.line} of model.py"


class Report(Struct):
    """What judge/confinement/child.py writes; unknown fields are left out."""

    stage: Stage
    isolation: list[Measure]
    problem: Problem | None = None
    parameters: tuple[tuple[_Name, tuple[_Whole, ...]], ...] = ()
    modules: tuple[tuple[_Name, _Name], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Examination:
    """What came back: how far the submission got, and what it says of itself."""

    stage: Stage  # the one that did not hold, or done
    problem: str | None
    isolation: str
    printed: Mapping[str, Any]  # bytes (no more than were read) and their sha256
    parameters: tuple[tuple[str, tuple[int, ...]], ...] = ()
    modules: tuple[tuple[str, str], ...] = ()
    fresh: Mapping[str, Tensor] = field(default_factory=dict)
    logits: Tensor | None = None

    def passed(self, stage: Stage) -> bool:
        """Return whether the submission got beyond `stage`."""
        return STAGES.index(self.stage) > STAGES.index(stage)


def examine(
    model: bytes,
    weights: bytes,
    batch: Tensor,
    *,
    portions: Sequence[int] | None = None,
    config: JudgeConfig,
    budget: Budget | None = None,
) -> Examination:
    """Run a submission's code on its weights and a batch; raises JudgeError only for our own.

    The code is given the batch in portions, or else as a whole. BudgetError is raised where the
    submission has used up what its audit may use.
    """
    budget = budget or Budget.of(config)
    with HeldFolder("proctor-judge-") as held:
        folder = held.path
        (folder / "cwd").mkdir()
        (folder / "model.py").write_bytes(model)
        (folder / "weights.safetensors").write_bytes(weights)
        (folder / "batch.safetensors").write_bytes(save({"batch": batch}))
        request = {
            "cpu_seconds": config.child_cpu_seconds,
            "memory_bytes": config.child_memory_bytes,
            "file_bytes": config.max_deliverable_bytes,
            "portions": list(portions or [len(batch)]),
        }
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        with _ALONE, undumpable():
            ended, printed = _run(folder, config, budget)
        return _read_answer(folder, ended, printed, config, budget)


@contextmanager
def undumpable() -> Iterator[None]:
    """Close /proc/PID/mem, environ and the like of this process to all but root, for a while."""
    if platform.system() != "Linux":
        yield
        return
    before = LIBC.prctl(GET_DUMPABLE, 0, 0, 0, 0)
    LIBC.prctl(SET_DUMPABLE, 0, 0, 0, 0)
    try:
        yield
    finally:
        LIBC.prctl(SET_DUMPABLE, before, 0, 0, 0)


def _run(folder: Path, config: JudgeConfig, budget: Budget) -> tuple[str, bytes]:
    """Run the child; return how it ended, in words, and what it printed."""
    seconds = min(config.child_seconds, budget.seconds_left())
    child = _start(folder)
    assert child.stdout is not None
    printed = Printed(child.stdout, limit=config.child_output_bytes, stop=lambda: end_group(child))
    try:
        code = child.wait(timeout=seconds)
        ended = f"it was killed by signal {-code}" if code < 0 else f"it exited with status {code}"
    except subprocess.TimeoutExpired:
        ended = f"it ran for more than {seconds:g} seconds"
    finally:
        end_group(child)
        child.wait()
    kept = printed.read()
    if printed.exceeded:
        ended = f"it printed more than {config.child_output_bytes} bytes"
    return ended, kept


def _start(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - a fixed command of our own
        [sys.executable, "-I", "-B", "-m", "judge.confinement.child", str(folder)],
        cwd=folder / "cwd",
        env=variables(folder / "cwd"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


class Printed:
    """What the child prints, kept up to a limit, at which the child is stopped."""

    def __init__(self, pipe: IO[bytes], *, limit: int, stop: Any) -> None:
        self._pipe, self._limit, self._stop = pipe, limit, stop
        self._kept = bytearray()
        self.exceeded = False
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def read(self) -> bytes:
        """Return what was printed, when the child has ended."""
        self._thread.join(timeout=5.0)  # a process that escaped may hold the pipe open
        return bytes(self._kept)

    def _follow(self) -> None:
        with self._pipe, suppress(OSError, ValueError):
            while chunk := os.read(self._pipe.fileno(), 65_536):
                self._kept += chunk[: self._limit - len(self._kept)]
                if len(self._kept) >= self._limit:
                    self.exceeded = True
                    self._stop()
                    break


def end_group(child: subprocess.Popen[bytes]) -> None:
    """End a child and whatever is in its group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        child.kill()


def _read_answer(
    folder: Path, ended: str, output: bytes, config: JudgeConfig, budget: Budget
) -> Examination:
    printed = {"bytes": len(output), "sha256": hashlib.sha256(output).hexdigest()}
    if not (folder / "started").exists() or not (folder / "started").read_bytes():
        # Nothing submitted has run: what was printed is ours.
        words = output[:_SHOWN].decode("utf-8", "replace")
        raise JudgeError(f"the process for submitted code did not start: {ended}. {words}")
    try:
        said = _read_report(folder / "report.json")
    except (OSError, TypeError, ValueError, RecursionError) as error:
        return Examination(
            stage="load",
            problem=f"the report is malformed ({type(error).__name__}); {ended}",
            isolation="unknown",
            printed=printed,
        )
    stage = said.stage
    problem = None if said.problem is None else str(said.problem)
    if stage != "done" and problem is None:
        problem = ended
    states: dict[str, dict[str, Tensor]] = {}
    for name, needed in _ANSWERS:
        states[name] = {}
        if STAGES.index(stage) > STAGES.index(needed):
            try:
                most = config.max_deliverable_bytes
                if name == "logits":
                    most = min(most, _MAX_LOGITS)
                states[name] = _read_tensors(folder / f"{name}.safetensors", most, budget)
            except (OSError, ValueError, WeightsError, safetensors.SafetensorError) as error:
                stage = needed
                problem = f"the answer {name} is malformed ({type(error).__name__})"
    logits = states["logits"].get("logits")
    if stage == "done" and logits is None:
        stage, problem = "logits", "the answer has no logits"
    return Examination(
        stage=stage,
        problem=problem,
        isolation=", ".join(name for name in ISOLATION if name in said.isolation),
        printed=printed,
        parameters=said.parameters,
        modules=said.modules,
        fresh=states["fresh"],
        logits=logits,
    )


def _read_report(path: Path) -> Report:
    """Return the report with nothing in it but what is expected; raises ValueError."""
    if path.stat().st_size > _MAX_REPORT:
        raise ValueError(f"longer than {_MAX_REPORT} bytes")
    return read_declared(json.loads(path.read_bytes()), Report)


def _read_tensors(path: Path, most: int, budget: Budget) -> dict[str, Tensor]:
    """Return tensors that can be computed with; raises ValueError or WeightsError for others."""
    size = path.stat().st_size
    if size > most:
        raise ValueError(f"longer than {most} bytes")
    budget.take(size)
    data = path.read_bytes()
    if any(0 in shape for _, _, shape, _ in layout(data, size=len(data))):
        raise ValueError("a tensor without numbers")
    state: dict[str, Tensor] = load(data)
    return state
