"""Examines submitted code in a confined process.

Its answers are read as data: JSON of known shape and safetensors, each of bounded size. Submissions
of one process run one after the other.

An examination ends in a signed record, so free text of the submission is no part of it: of what it
printed the length and hash are kept, of an exception the type and the line in model.py.

Trust: everything that comes back is the submission's word. An answer that is missing, late or
malformed is a problem of the submission, never an error of the judge.
I/O: that of judge/confinement/process.py.  Units: seconds, bytes.  Shapes: batch (B, 3, 32, 32).
"""

import builtins
import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, get_args

import safetensors
from msgspec import Meta, Struct
from safetensors.torch import load, save
from torch import Tensor

from aggregates.errors import WeightsError
from aggregates.weights import layout
from judge.config import JudgeConfig
from judge.confinement.budget import Budget
from judge.confinement.process import (
    Confined,
    ForeignError,
    ProcessLimits,
    WorkerError,
    confined,
)
from judge.confinement.worker import SOURCE, Phrase
from judge.declared import T, read_declared

Stage = Literal["load", "weights", "logits", "done"]
STAGES: tuple[Stage, ...] = get_args(Stage)
_MAX_LOGITS = 64 * 2**20  # bytes: of some hundred images
_Name = Annotated[str, Meta(max_length=500)]
_Whole = Annotated[int, Meta(ge=0, lt=2**31)]
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


class Made(Struct):
    """What a submission says of its model; unknown fields are left out."""

    parameters: tuple[tuple[_Name, tuple[_Whole, ...]], ...]
    modules: tuple[tuple[_Name, _Name], ...]


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
    files = {
        SOURCE: model,
        "weights.safetensors": weights,
        "batch.safetensors": save({"batch": batch}),
    }
    limits = ProcessLimits(
        seconds=config.child_seconds,
        cpu_seconds=config.child_cpu_seconds,
        memory_bytes=config.child_memory_bytes,
        output_bytes=config.child_output_bytes,
    )
    found: dict[str, Any] = {}
    stage, problem = STAGES[0], None
    with (
        _ALONE,
        confined(
            "submission",
            files,
            limits=limits,
            budget=budget or Budget.of(config),
            name=SOURCE,
            portions=list(portions or [len(batch)]),
        ) as process,
    ):
        try:
            for answer, after in zip(_answers(process, config), STAGES[1:], strict=True):
                found |= answer
                stage = after
        except WorkerError as error:
            problem = str(error)
        output = process.finish()
    printed = {"bytes": len(output), "sha256": hashlib.sha256(output).hexdigest()}
    return Examination(
        stage=stage, problem=problem, isolation=process.isolation, printed=printed, **found
    )


def _answers(process: Confined, config: JudgeConfig) -> Iterator[dict[str, Any]]:
    """Yield what comes back of each stage that holds; raises WorkerError."""
    most = config.max_deliverable_bytes
    made, fresh = _read(process, Made, most=most)
    tensors = _tensors("fresh", fresh)
    yield {"parameters": made.parameters, "modules": made.modules, "fresh": tensors}
    _read(process, Struct)
    yield {}
    _, logits = _read(process, Struct, most=min(most, _MAX_LOGITS))
    found = _tensors("logits", logits).get("logits")
    if found is None:
        raise WorkerError("the answer has no logits")
    yield {"logits": found}


def _read(process: Confined, kind: type[T], *, most: int = 0) -> tuple[T, Any]:
    """Return an answer of known form with its tensors; raises WorkerError in words of ours."""
    try:
        try:
            said, tensors = process.read(most=most)
        except ForeignError as error:
            raise WorkerError(str(read_declared(error.told, Problem))) from error
        return read_declared(said, kind), tensors
    except ValueError as error:
        raise WorkerError("its answer is malformed") from error


def _tensors(name: str, data: Any) -> dict[str, Tensor]:
    """Return tensors that can be computed with; raises WorkerError for others."""
    try:
        empty = any(0 in shape for _, _, shape, _ in layout(data, size=len(data)))
        state: dict[str, Tensor] = load(data)
    except (ValueError, WeightsError, safetensors.SafetensorError) as error:
        raise WorkerError(f"the answer {name} is malformed ({type(error).__name__})") from error
    if empty:
        raise WorkerError(f"the answer {name} is malformed (ValueError)")
    return state
