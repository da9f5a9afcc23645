"""Tasks: model, data, loss and metrics of somebody else, in one Python file.

    METRIC = ("accuracy", "higher")               # name in metrics(), and which way is better
    PARAMS = {"lr": 0.01, "epochs": 5, "batch_size": 64}   # defaults; these three are needed

    def model(params): ...                        # a torch.nn.Module
    def data(params): ...                         # ((inputs, targets), (inputs, targets))
    def test(params): ...                         # (inputs, targets), which training never sees
                                                  # each part may be examples instead, see Stream
    def loss(output, target): ...                 # mean loss, a scalar
    def metrics(output, target): ...              # {"accuracy": 0.9}
    def optimizer(model, params): ...             # a torch.optim.Optimizer
    def schedule(progress, params): ...           # optional: factor of the learning rate
    def scheduler(optimizer, params): ...         # optional: one of torch's, a step an epoch
    def augment(inputs, targets, params): ...     # optional: changes a training batch

read_task() says what is missing without running anything. TaskCode runs the file with some of its
functions only: a process that trains or holds the model has neither data() nor test().

Source: docs/reference/tasks.md.
Trust: the file and all that its functions return are hostile; it runs where its caller confines it.
I/O: none.  Shapes: inputs and targets (N, ...), outputs (N, ...), one example after another.
"""

import ast
import hashlib
import random
import re
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from unicodedata import combining, normalize

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from aggregates.rules import PROFILES
from monitor.config import FULL, TaskConfig
from monitor.diagnostics import HALF
from monitor.errors import ConfigurationError, TaskError
from monitor.seeds import derive_seed
from monitor.stored import Rows, pieces, row_bytes, tensor_bytes

FUNCTIONS: Mapping[str, int] = {  # by name, with their number of arguments
    "model": 1,
    "data": 1,
    "test": 1,
    "loss": 2,
    "metrics": 2,
    "optimizer": 2,
    "schedule": 2,
    "scheduler": 2,
    "augment": 3,
}
OPTIONAL = ("schedule", "scheduler", "augment")
NEEDED = ("lr", "epochs", "batch_size")  # of PARAMS: the harness uses them, too
HARNESS = (  # what KEY=VALUE sets beside a task's own parameters
    *("accumulation", "clip_norm", "data_seed", "goes_back", "max_batch_size", "numerics"),
    *("precision", "profile", "seed", "target_accuracy", "threads", "waived"),
)
BATCH = 256  # examples that are computed at once outside of training, so that memory stays small
MAX_SOURCE = 2**20  # bytes
# What Python's parser needs for a file: 5 s and 300 MB at most, here in the process of the judge.
_MAX_PIECES = 200_000  # words, signs and line ends
_MAX_BRACES = 10**10  # braces times bytes: each part of an f-string is looked up from its start
_MAX_MARKS = 100  # of one letter; scripts need five at most
_PIECES = re.compile(rb"\w+|[^\w\s]|\n")
MAX_METRICS = 50
_METRIC_NAME = re.compile(r"[A-Za-z0-9_.@%/-]{1,100}")
_CONSTANTS = {"PARAMS": dict, "METRIC": tuple, "CLASSES": int}

T = TypeVar("T")
Scheduler = torch.optim.lr_scheduler.LRScheduler
KINDS = ("inputs", "targets")
Parts = dict[str, Tensor]  # "train.inputs", "train.targets", "validation.inputs", ...


@dataclass(frozen=True)
class TaskText:
    """A task's file, and what it says without being run."""

    name: str
    source: bytes
    params: Mapping[str, Any]
    metric: str
    better: str
    classes: int | None
    compiles: bool = False  # whether it names torch.compile, which does nothing here

    @property
    def sha256(self) -> str:
        """The hash under which the file is stored."""
        return hashlib.sha256(self.source).hexdigest()

    def configure(self, given: Mapping[str, Any]) -> TaskConfig:
        """Return the configuration of a training; raises ConfigurationError naming the key."""
        unknown = sorted(set(given) - set(HARNESS) - set(self.params))
        if unknown:
            known = ", ".join(sorted({*HARNESS, *self.params}))
            raise ConfigurationError(
                f"{self.name} has no parameter {unknown[0]}; known keys: {known}"
            )
        chosen = {**self.params, **{k: v for k, v in given.items() if k in self.params}}
        for key, value in self.params.items():
            same = type(value) is type(chosen[key]) or value is None
            if not same and not (type(value) is float and type(chosen[key]) is int):
                raise ConfigurationError(
                    f"{key} must be a {type(value).__name__}, as in PARAMS of {self.name}, not "
                    f"{chosen[key]!r:.200}"
                )
            if type(value) is float:
                chosen[key] = float(chosen[key])
        profile = given.get("profile", TaskConfig.profile)
        kept = any(profile == name and rules.kept_states for name, rules in PROFILES.items())
        return TaskConfig.from_dict(
            {
                "task": self.sha256,
                "name": self.name,
                "params": {key: chosen[key] for key in chosen if key not in NEEDED},
                "metric": self.metric,
                "better": self.better,
                "classes": self.classes,
                "goes_back": kept,
                **{key: chosen[key] for key in NEEDED},
                **{key: value for key, value in given.items() if key not in self.params},
            }
        )


def read_task(source: bytes, name: str) -> TaskText:
    """Read a task's file without running it; raises TaskError saying what is missing."""
    tree = _parse(source, name)
    found = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    missing = [each for each in FUNCTIONS if each not in found and each not in OPTIONAL]
    if missing:
        lacks = ", ".join(f"{each}()" for each in missing)
        raise TaskError(
            f"{name} defines no function {lacks}; a task needs "
            f"{', '.join(each for each in FUNCTIONS if each not in OPTIONAL)}"
        )
    for each, count in FUNCTIONS.items():
        if each in found and len(found[each].args.args) != count:
            raise TaskError(
                f"{name}, line {found[each].lineno}: {each}() must take {count} arguments, not "
                f"{len(found[each].args.args)}"
            )
    constants = {key: _constant(tree, key, name) for key in _CONSTANTS}
    params, metric = constants["PARAMS"], constants["METRIC"]
    if params is not None:
        _check_params(params, name)
    if params is None or (absent := [key for key in NEEDED if key not in params]):
        raise TaskError(
            f"{name} must define PARAMS, a dict of numbers, texts or None with at least "
            f"{', '.join(NEEDED)}" + (f"; {absent[0]} is missing" if params is not None else "")
        )
    if taken := sorted(set(params) & set(HARNESS)):
        raise TaskError(f"{name}: PARAMS must not hold {taken[0]}, which Proctor sets itself")
    if (
        metric is None
        or len(metric) != 2
        or not isinstance(metric[0], str)
        or metric[1] not in ("higher", "lower")
    ):
        raise TaskError(f'{name} must define METRIC, as in METRIC = ("accuracy", "higher")')
    if not _METRIC_NAME.fullmatch(metric[0]):  # it could look like another one
        raise TaskError(
            f"{name}: METRIC must name a metric with letters from a to z, digits and _ . @ % / -, "
            f"not {ascii(metric[0])[:100]}"
        )
    compiles = any(_is_compile(node) for node in ast.walk(tree))
    return TaskText(name, source, params, metric[0], metric[1], constants["CLASSES"], compiles)


def _parse(source: bytes, name: str) -> ast.Module:
    if len(source) > MAX_SOURCE:
        raise TaskError(f"{name} has {len(source):,} bytes, the limit is {MAX_SOURCE:,}")
    count = sum(1 for _ in _PIECES.finditer(source))
    if count > _MAX_PIECES or source.count(b"{") * len(source) > _MAX_BRACES:
        raise TaskError(
            f"{name} is too long to be read: it has {count:,} words, signs and lines, the limit "
            f"is {_MAX_PIECES:,}, and less for a file of f-strings; read tables from a data folder"
        )
    text = _decode(source, name)
    try:
        with warnings.catch_warnings(action="ignore"):  # they quote the file on standard error
            return ast.parse(text, filename=name)
    except (RecursionError, MemoryError) as error:
        raise TaskError(f"{name}: its expressions are nested too deeply to be read") from error
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise TaskError(f"{name}{line}: this is not Python: {error}") from error


def _decode(source: bytes, name: str) -> str:
    """Return a file's text, whatever encoding it declares: a codec can cost any time and size.

    Python brings each name into one form, for which it sorts combining marks in a row: this takes
    the square of their number.
    """
    try:
        text = source.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = 1 + source.count(b"\n", 0, error.start)
        raise TaskError(
            f"{name}, line {line}: this is not UTF-8; save the file as UTF-8"
        ) from error
    marks = {each for each in set(text) if combining(normalize("NFKD", each)[0])}
    if marks and (found := re.search(f"[{''.join(marks)}]{{{_MAX_MARKS}}}", text)):
        line = 1 + text.count("\n", 0, found.start())
        raise TaskError(
            f"{name}, line {line}: a letter must have fewer than {_MAX_MARKS} combining marks"
        )
    return text


def _is_compile(node: ast.AST) -> bool:
    """Return whether a node is `torch.compile`; one look at each node, however deep they nest."""
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "compile"
        and isinstance(node.value, ast.Name)
        and node.value.id == "torch"
    )


def _check_params(params: Mapping[Any, Any], name: str) -> None:
    """Raise TaskError unless PARAMS has what a configuration can record."""
    for key, value in params.items():
        if not isinstance(key, str):
            raise TaskError(f"{name}: the keys of PARAMS must be texts, not {key!r:.100}")
        if not (value is None or isinstance(value, bool | int | float | str)):
            raise TaskError(
                f"{name}: {key:.100} in PARAMS must be a number, a text or None, not a "
                f"{_kind(value)}"
            )


def _constant(tree: ast.Module, key: str, name: str) -> Any:
    """Return what a literal at the top of the file says; None where there is none."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == key for target in targets):
            assert isinstance(node, ast.Assign)
            try:
                found = ast.literal_eval(node.value)
            except (ValueError, TypeError, RecursionError, MemoryError) as error:
                raise TaskError(
                    f"{name}, line {node.lineno}: {key} must be written out, without calls or names"
                ) from error
            if not isinstance(found, _CONSTANTS[key]):
                kind = _CONSTANTS[key].__name__
                raise TaskError(f"{name}, line {node.lineno}: {key} must be a {kind}")
            return found
    return None


class Stream:
    """Examples of a part that are made one by one, as they are asked for."""

    def __init__(self, name: str, part: Any, seed: Callable[[int], None]) -> None:
        self._name, self._seed = name, seed
        self._part = part if _has_examples(part) else TensorDataset(*_as_pair(name, part))
        if not len(self):
            raise TaskError(f"the {name} part has no examples")

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self._part)

    def rows(self, start: int, stop: int) -> Parts:
        """Return inputs and targets of examples, each made with random numbers of its own."""
        examples = list(self._examples(start, stop))
        return {kind: torch.stack([each[at] for each in examples]) for at, kind in enumerate(KINDS)}

    def _examples(self, start: int, stop: int) -> Iterator[tuple[Tensor, Tensor]]:
        kinds: set[tuple[Any, ...]] = set()
        for number in range(start, stop):
            self._seed(number)
            what = f"example {number} of the {self._name} part"
            found = self._part[number]
            if not isinstance(found, tuple | list) or len(found) != 2:
                raise TaskError(f"{what} must be two: its input and its target")
            try:
                inputs, targets = (torch.as_tensor(each).detach().cpu() for each in found)
            except (TypeError, ValueError, RuntimeError) as error:
                raise TaskError(f"{what} must be tensors or numbers: {error}") from error
            for kind, tensor in zip(KINDS, (inputs, targets), strict=True):
                _check_numbers(f"{kind} of {what}", tensor)
            kinds.add((inputs.dtype, inputs.shape, targets.dtype, targets.shape))
            if len(kinds) > 1:
                raise TaskError(f"{what} has another shape or type than those before it")
            yield inputs, targets


Streams = dict[str, Stream]


class TaskCode:
    """A task's file as it runs in this process, with the functions that are kept."""

    def __init__(self, source: bytes, config: TaskConfig, *, keep: Collection[str]) -> None:
        self.config = config
        tree = _parse(source, config.name)
        tree.body = [
            node
            for node in tree.body
            if not isinstance(node, ast.FunctionDef)
            or node.name not in FUNCTIONS
            or node.name in keep
        ]
        self._scope: dict[str, Any] = {"__name__": "task", "__file__": config.name}
        self._seed("file")
        exec(compile(tree, config.name, "exec"), self._scope)  # noqa: S102 - confined by the caller

    def _function(self, name: str) -> Callable[..., Any]:
        found = self._scope.get(name)
        if not callable(found):
            raise TaskError(f"{self.config.name} defines no function {name}()")
        function: Callable[..., Any] = found
        return function

    def _built(self, name: str, kind: type[T], what: str, *args: Any) -> T:
        found = self._function(name)(*args, self.config.given)
        if not isinstance(found, kind):
            raise TaskError(f"{name}() must return {what}, not {_kind(found)}")
        return found

    def _seed(self, *purpose: int | str, data: bool = False) -> None:
        seed_everything(self.config.data_seed if data else self.config.seed, "task", *purpose)

    def model(self) -> nn.Module:
        """Return a fresh model; the same for the same seed."""
        self._seed("model")
        found = self._built("model", nn.Module, "a torch.nn.Module")
        if not any(each.requires_grad for each in found.parameters()):
            raise TaskError("the model that model() returns has no trainable parameter")
        return found

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return the optimizer of a model."""
        kind = torch.optim.Optimizer
        return self._built("optimizer", kind, "a torch.optim.Optimizer", model)

    def data(self) -> Parts | Streams:
        """Return what a training sees: train and validation, each inputs and targets."""
        self._seed("data", data=True)
        found = self._function("data")(self.config.given)
        if not isinstance(found, tuple | list) or len(found) != 2:
            raise TaskError("data() must return two parts: train and validation")
        return self._made({"train": found[0], "validation": found[1]})

    def test(self, draw: int | None = None) -> Parts | Streams:
        """Return the test part; with a `draw`, the one that these random numbers give."""
        drawn = () if draw is None else (draw,)
        self._seed("test", *drawn, data=True)
        return self._made({"test": self._function("test")(self.config.given)}, *drawn)

    def _made(self, found: Mapping[str, Any], *draw: int) -> Parts | Streams:
        if any(_has_examples(part) for part in found.values()):
            return {
                name: Stream(name, part, partial(self._seed_example, name, *draw))
                for name, part in found.items()
            }
        return {
            f"{name}.{kind}": tensor.clone()
            for name, part in found.items()
            for kind, tensor in zip(KINDS, _as_pair(name, part), strict=True)
        }

    def _seed_example(self, *which: int | str) -> None:
        self._seed("example", *which, data=True)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the mean loss of examples, a scalar."""
        found = self._function("loss")(output, target)
        if not isinstance(found, Tensor) or found.numel() != 1:
            shape = list(found.shape) if isinstance(found, Tensor) else _kind(found)
            raise TaskError(f"loss() must return a scalar tensor, not {shape}")
        return found.reshape(())

    def metrics(self, output: Tensor, target: Tensor) -> dict[str, float]:
        """Return the metrics of examples."""
        found = self._function("metrics")(output, target)
        if not isinstance(found, dict) or len(found) > MAX_METRICS:
            raise TaskError(f"metrics() must return a dict of at most {MAX_METRICS} numbers")
        if self.config.metric not in found:
            raise TaskError(f"metrics() must return {self.config.metric!r}, which METRIC names")
        try:
            return {str(name)[:100]: float(value) for name, value in found.items()}
        except (TypeError, ValueError, RuntimeError) as error:
            raise TaskError("metrics() must return numbers") from error

    def factor(self, progress: float) -> float:
        """Return what schedule() multiplies the learning rate by at `progress`, from 0 to 1."""
        if "schedule" not in self._scope:
            return 1.0
        found = self._function("schedule")(progress, self.config.given)
        try:
            return float(found)
        except (TypeError, ValueError) as error:
            raise TaskError("schedule() must return a number") from error

    def scheduler(self, optimizer: torch.optim.Optimizer) -> Scheduler | None:
        """Return the scheduler of an optimizer, which takes a step after each epoch."""
        if "scheduler" not in self._scope:
            return None
        return self._built("scheduler", Scheduler, "a scheduler of torch.optim", optimizer)

    def augment(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return a training batch as augment() changes it."""
        if "augment" not in self._scope:
            return inputs, targets
        found = self._function("augment")(inputs, targets, self.config.given)
        if not (isinstance(found, tuple) and len(found) == 2):
            raise TaskError("augment() must return inputs and targets")
        return found

    @torch.no_grad()
    def outputs(self, model: nn.Module, inputs: Rows) -> Tensor:
        """Return the outputs (N, ...) of a model in evaluation mode."""
        training = model.training
        model.eval()
        starts = range(0, len(inputs), BATCH)
        parts = [self.output(model, inputs[start : start + BATCH]) for start in starts]
        model.train(training)
        return torch.cat(parts)

    def output(self, model: nn.Module, inputs: Tensor) -> Tensor:
        """Return a batch's outputs, computed in the configured precision.

        They are never of half precision: loss() and metrics() compute in float32. Raises TaskError
        unless there is one for each input.
        """
        if self.config.precision == FULL:
            return _checked(model(inputs), inputs)
        with torch.autocast("cpu", dtype=getattr(torch, self.config.precision)):
            found = _checked(model(inputs), inputs)
        return found.float() if found.dtype in HALF else found


def _checked(found: Any, inputs: Tensor) -> Tensor:
    if not isinstance(found, Tensor) or not found.dim() or len(found) != len(inputs):
        shape = list(found.shape) if isinstance(found, Tensor) else _kind(found)
        raise TaskError(
            f"the model must return a tensor with one output for each of {len(inputs)} inputs, "
            f"not {shape}"
        )
    return found


def seed_everything(*purpose: int | str) -> None:
    """Seed the global generators of torch, NumPy and Python for a purpose."""
    seed = derive_seed(*purpose)
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def fingerprint(inputs: Rows, targets: Rows) -> str:
    """Return the SHA-256 over types, shapes and bytes of a part's two tensors."""
    sha = hashlib.sha256()
    for rows in (inputs, targets):
        sha.update(f"{rows.dtype} {list(rows.shape)}\n".encode())
        for piece in pieces(rows):
            sha.update(tensor_bytes(piece))
    return sha.hexdigest()


def example_hashes(inputs: Rows) -> Iterator[bytes]:
    """Yield the SHA-256 of each example's inputs."""
    size = row_bytes(inputs)
    for piece in pieces(inputs):
        data = memoryview(tensor_bytes(piece))
        for at in range(len(piece)):
            yield hashlib.sha256(data[at * size : (at + 1) * size]).digest()


def _has_examples(part: Any) -> bool:
    """Return whether a part gives its examples by number, as a data set of torch.utils.data."""
    if isinstance(part, tuple | list | Tensor | str | Mapping):
        return False
    return hasattr(part, "__getitem__") and hasattr(part, "__len__")


def _as_pair(name: str, found: Any) -> tuple[Tensor, Tensor]:
    if not isinstance(found, tuple | list) or len(found) != 2:
        raise TaskError(
            f"the {name} part must be two tensors, inputs and targets, or examples by number"
        )
    inputs, targets = found
    for what, tensor in (("inputs", inputs), ("targets", targets)):
        if not isinstance(tensor, Tensor) or not tensor.dim():
            raise TaskError(f"{what} of the {name} part must be a tensor (N, ...) of numbers")
        _check_numbers(f"{what} of the {name} part", tensor)
    if len(inputs) != len(targets) or not len(inputs):
        raise TaskError(
            f"the {name} part has {len(inputs)} inputs and {len(targets)} targets; it needs as "
            "many of one as of the other, and at least one"
        )
    return inputs.detach().cpu().contiguous(), targets.detach().cpu().contiguous()


def _check_numbers(what: str, tensor: Tensor) -> None:
    if tensor.is_complex():
        raise TaskError(f"{what} must be a tensor (N, ...) of numbers")
    if not bool(torch.isfinite(tensor).all()):
        raise TaskError(f"{what} hold values that are not finite")


def _kind(value: object) -> str:
    return type(value).__name__[:100]
