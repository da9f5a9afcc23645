"""The gates of an audit of a task's run: model, data, loss and metrics are somebody else's code.

That code decides nothing. It runs in confined processes, one for each purpose (see
judge/confinement/tasks.py): the one that holds the model gets inputs without targets, in an order
of ours, and the one that scores outputs has no model. The record is compared here.

Source: docs/reference/tasks.md, "What the judge does".
Trust: the task's file is hostile, and so is every answer of its processes.
I/O: reads the submission; starts processes.
"""

import itertools
import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from judge.auditing.gates import Accuracies, Gates, Redo
from judge.auditing.known_metrics import known_metric
from judge.auditing.outcomes import StepOutcome
from judge.auditing.own_model import deviation
from judge.auditing.reexecution import Retraining, reexecute
from judge.auditing.report import capped
from judge.compare import differences
from judge.confinement.process import ProcessLimits
from judge.confinement.tasks import ConfinedTask, confined_workers, data_places
from judge.errors import ConfinementError, JudgeError, StepError
from ledger.held_folder import HeldFolder
from monitor.config import TaskConfig
from monitor.environment import other_kind
from monitor.errors import MonitorError, RoomError
from monitor.stored import PIECE, Rows, Spooled, row_bytes, spans, spool, tensor_bytes
from monitor.submission import TASK_FILES
from monitor.task_data import OpenWorker, TaskData, load_task_data, loaders_here
from monitor.task_form import Bounds, read_named
from monitor.task_loop import train_task
from monitor.task_worker import OUTPUTS, SCORE, Worker
from monitor.tasks import BATCH, MAX_METRICS, NEEDED, read_task

_CHUNKS = 10  # of the test part, and of another draw of it
_MIXED = "-mixed"  # chunks of examples in an order that the judge draws
_LEAST = 50  # examples of each, below which the two are not compared
_HELD = 4 * PIECE  # bytes of a part's outputs in memory; more are in a file
_SIGMAS = 7.0  # of the difference of two such means: less than one in 100,000 by chance
_SIGMAS_ONE = 8.0  # the same, where one of the two spreads is used for both
_EXACT = 1e-5  # relative, between a metric as the task computes it and as we do


class TaskGates(Gates):
    """The gates of one run of a task."""

    files: Sequence[str] = TASK_FILES
    data: TaskData
    outputs: dict[str, Rows]  # of validation, test and fresh
    scored: Mapping[str, Any]  # loss and metrics, by part
    isolation = "unknown"  # of the latest process
    _pairs: Mapping[str, tuple[Rows, Rows]]  # outputs and targets, by part
    _chosen: Mapping[str, tuple[str, Tensor]]  # part and positions of what is scored, by name
    _again: list[dict[str, Any]]  # what the latest retraining measured, by epoch

    # Step 1
    def deliverables(self) -> StepOutcome:
        """Read the three files; the task's is the one that the configuration names."""
        outcome = super().deliverables()
        config = self.replay.task_config
        digest = self.submission.hashes["task.py"]
        if digest != config.task:
            raise StepError(
                "task.py is not the task that the run was configured with: its SHA-256 differs",
                recorded=config.task,
                found=digest,
            )
        return outcome

    # Step 2
    def load_model(self) -> StepOutcome:
        """Read the task's file, and have it make its data, confined."""
        config = self.replay.task_config
        with _explained("the task's file does not fit the record"):
            text = read_task(self.submission.model, config.name)
        said, recorded = (
            {name: getattr(each, name) for name in ("metric", "better", "classes")}
            | {"params": sorted(params)}
            for each, params in ((text, text.params), (config, {*config.params, *NEEDED}))
        )
        if different := next(differences(recorded, said), None):
            raise StepError(
                f"the task's file says otherwise than the configuration: {different.place} is "
                f"{different.found!r}, recorded is {different.recorded!r}"
            )
        with _explained("the task's data cannot be made"):
            self._decoded = HeldFolder("proctor-decoded-")  # goes with these gates
            self.data = load_task_data(
                self.submission.model,
                config,
                self._open,
                decoded=self._decoded.path,
                places=partial(data_places, config, data_dir=self._data_dir),
                keep_test=True,
                draw=secrets.randbits(53),
                loaders=loaders_here(),
                bounds=self._bounds,
            )
        sizes = ", ".join(f"{count} {name}" for name, count in self.data.sizes.items())
        return StepOutcome(
            f"the task has every part of the protocol, and made its data: {sizes} examples",
            {
                "isolation": self.isolation,
                "sizes": dict(self.data.sizes),
                "fresh": len(self.data.fresh.get("fresh.inputs", ())),
            },
        )

    @contextmanager
    def _open(
        self,
        source: bytes,
        config: TaskConfig,
        *,
        keep: tuple[str, ...],
        stored: Path | None = None,
    ) -> Iterator[Worker]:
        """Open a confined worker, and note what confines it."""
        with self._workers(source, config, keep=keep, stored=stored) as worker:
            if isinstance(worker, ConfinedTask):
                self.isolation = worker.isolation
            yield worker

    @property
    def _workers(self) -> OpenWorker:
        limits = ProcessLimits(
            seconds=float(self.config.max_task_seconds),
            memory_bytes=self.config.child_memory_bytes,
            output_bytes=self.config.child_output_bytes,
        )
        return confined_workers(
            limits=limits,
            weights_bytes=self.config.max_deliverable_bytes,
            budget=self.budget,
            data_dir=self._data_dir,
        )

    @property
    def _bounds(self) -> Bounds:
        return Bounds(
            examples=self.config.max_task_examples,
            example_bytes=self.config.max_task_example_bytes,
        )

    @property
    def _data_dir(self) -> Path | None:
        return None if self.config.data_dir is None else Path(self.config.data_dir)

    # Step 6
    def architecture(self) -> StepOutcome:
        """Compute outputs of the weights in a process that has neither targets nor metrics."""
        replay = self.replay
        if problems := replay.spec_problems:
            raise StepError(
                f"the model does not follow from the recorded decisions: {problems[0]}",
                problems=capped(problems),
            )
        self.outputs = {}
        with (
            _explained("the model's outputs cannot be computed"),
            self._open(self.submission.model, replay.task_config, keep=OUTPUTS) as worker,
        ):
            told = {"spec": self.saved.spec.to_dict()}
            said, _ = worker.ask("model", told, self.submission.weights)
            if different := next(differences(replay.started.spec, said.get("spec")), None):
                raise StepError(
                    f"model() gives another model than the run records: {different.place} is "
                    f"{different.found!r}, recorded is {different.recorded!r}"
                )
            for name, rows in self._held_out("inputs").items():
                order = _order(name, len(rows))
                self.outputs[name] = _outputs_of(worker, rows, order=order, bounds=self._bounds)
        parts = list(self.outputs)
        return StepOutcome(
            "the model of the task takes the weights; it computed outputs without having targets",
            {"parts": parts, "spec": self.saved.spec.to_dict()},
        )

    def _held_out(self, kind: str) -> dict[str, Rows]:
        """Return inputs or targets of validation, test and fresh."""
        found = {**self.data.parts, **self.data.fresh}
        parts = (name for name in found if name.endswith(f".{kind}"))
        names = (name.removesuffix(f".{kind}") for name in parts if not name.startswith("train"))
        return {name: found[f"{name}.{kind}"] for name in names}

    # Step 7
    def probe(self) -> StepOutcome:
        """Score the outputs apart from the model, and train the run again if asked for."""
        self._verify_data()
        differs = other_kind(self.replay.started.environment, self.environment)
        tolerance = (
            self.config.probe_tolerance_elsewhere if differs else self.config.probe_tolerance
        )
        with _explained("the outputs cannot be scored"):
            self.scored = self._score()
        unchecked = [
            "train loss, gradients, updates, activations, and the validation of epochs without "
            "submitted weights are measured beside the task's code",
            *self._verify_metrics(),
            *self._verify_unseen(),
        ]
        if "hidden files" not in self.isolation:
            unchecked.append(
                "this kernel hides no files: data() may have read the test part's, too"
            )
        executed = self.execute(differs)  # first: it tells what cannot be repeated from a forgery
        if self.weights_are_as_measured():
            self._verify_validation(tolerance)
        return StepOutcome(
            "loss and metrics of the weights, scored without the model, match the recorded "
            f"values; {executed['summary']}",
            {
                "same_kind_of_machine": not differs,
                "differs": list(differs),
                "tolerance": tolerance,
                "scored": {name: self.scored[name] for name in self.outputs},
                "unchecked": unchecked,
                "executed": executed,
            },
        )

    def _verify_data(self) -> None:
        recorded = self.replay.started.data
        found = {
            **({"files": dict(self.data.files)} if self.data.files else {}),
            "sizes": dict(self.data.sizes),
            "fingerprints": dict(self.data.fingerprints),
        }
        wanted = {key: recorded.get(key) for key in found}
        if different := next(differences(wanted, found), None):
            raise StepError(
                "the task does not give the data that the run records: "
                f"{different.place} differs. Its data changes from run to run, or its data folder "
                "has other files"
            )

    def _score(self) -> Mapping[str, Any]:
        """Have outputs and targets scored by a process that never had the model."""
        targets = self._held_out("targets")
        self._pairs = {name: (self.outputs[name], targets[name]) for name in self.outputs}
        chosen = {name: (name, torch.arange(len(rows))) for name, rows in self.outputs.items()}
        self._chosen = chosen
        for name in ("test", "fresh"):
            count = len(self.outputs.get(name, ()))
            if count >= _LEAST:
                mixed = _order("mixed", count)
                for kind, order in (("", torch.arange(count)), (_MIXED, mixed)):
                    for number, (start, stop) in enumerate(tenths(count)):
                        chosen[f"{name}{kind}{number}"] = name, order[start:stop]
        blob = spool(
            {
                f"{part}.{kind}": (rows, order)
                for part, (name, order) in chosen.items()
                for kind, rows in zip(("outputs", "targets"), self._pairs[name], strict=True)
            }
        )
        config = self.replay.task_config
        with self._open(self.submission.model, config, keep=SCORE) as worker:
            said, _ = worker.ask("score", {}, blob)
        return {name: _score_of(said, name, config.metric) for name in chosen}

    def _known(self, metric: str, name: str) -> float | None:
        """Return a metric of what was scored under a name, by its known definition if it has one.

        The process that scores knows how many examples it is given: of a piece it could say
        anything.
        """
        part, order = self._chosen[name]
        return known_metric(metric, *self._pairs[part], order=order)

    def _verify_metrics(self) -> list[str]:
        """Compute the metrics that have a known definition; return what could not be checked."""
        unchecked = []
        for metric in sorted(self.scored["validation"]["metrics"]):
            unknown = []
            for part in self.outputs:
                own = self._known(metric, part)
                if own is None:
                    unknown.append(part)
                    continue
                said = self.scored[part]["metrics"].get(metric, math.nan)
                if not deviation(said, own, 1e-6) <= _EXACT:
                    raise StepError(
                        f"the task's code says that the {metric} of the {part} part is "
                        f"{said:.6g}; it is {own:.6g}: metrics() computes something else, or the "
                        "code changes what it is computed with",
                        said=said,
                        found=own,
                    )
            if unknown:
                where = "" if len(unknown) == len(self.outputs) else f", of {', '.join(unknown)}"
                unchecked.append(f"{metric} is the task's own definition{where}")
        return unchecked

    def _metric_of(self, name: str) -> float:
        """Return the task's metric of what was scored under a name."""
        metric = self.replay.task_config.metric
        own = self._known(metric, name)
        return float(self.scored[name]["metrics"][metric]) if own is None else own

    def _verify_unseen(self) -> list[str]:
        """Raise StepError where the model knows the recorded test part, but not another draw."""
        metric, better = self.replay.task_config.metric, self.replay.task_config.better
        if not self.data.fresh:
            return [
                "test() gives the same examples for every seed: whether the model has seen their "
                "targets was checked by fingerprints alone"
            ]
        if min(len(self.outputs[name]) for name in ("test", "fresh")) < _LEAST:
            return [f"one of two draws has fewer than {_LEAST} examples: they were not compared"]
        tested, drawn = (self.scored[part]["metrics"][metric] for part in ("test", "fresh"))
        if math.isfinite(tested) and not math.isfinite(drawn):
            raise StepError(
                f"the {metric} is {tested:.4g} on the test part and {drawn} on test examples that "
                "the judge had drawn afresh: the model gives usable outputs for known examples "
                "only",
                test=tested,
                fresh=drawn,
            )
        values, mixed = (
            [
                np.array([self._metric_of(f"{part}{kind}{n}") for n in range(_CHUNKS)])
                for part in ("test", "fresh")
            ]
            for kind in ("", _MIXED)
        )
        if not all(np.isfinite(each).all() for each in (*values, *mixed)):
            return ["the metric of the test part is not finite: two draws cannot be compared"]
        scale = max(float(np.abs(each).max()) for each in (*values, *mixed)) or 1.0
        values, mixed = (
            [each / scale for each in both] for both in (values, mixed)
        )  # sums do not overflow
        sign = 1.0 if better == "higher" else -1.0
        counts = sorted(len(self.outputs[name]) for name in ("test", "fresh"))
        alike = counts[1] < 1.25 * counts[0]
        ahead, spread = _are_apart(*(sign * each for each in values), alike=alike)
        mixed_ahead, mixed_spread = _are_apart(*(sign * each for each in mixed), alike=alike)
        # Examples that depend on their neighbours spread the chunks of both draws alike. Where only
        # the test part's spread, the model knows some of its examples.
        own = math.sqrt(2.0 * float(values[1].var(ddof=1)) / _CHUNKS)
        gap = sign * float(values[0].mean() - values[1].mean())
        means = {
            part: float(each.mean()) * scale
            for part, each in zip(("test", "fresh"), values, strict=True)
        }
        if gap * scale > _EXACT * max(map(abs, means.values())) and (
            ahead or gap > _SIGMAS_ONE * max(own, mixed_spread)
        ):
            raise StepError(
                f"the model has seen the test part: its {metric} is {means['test']:.4g} there and "
                f"{means['fresh']:.4g} on test examples that the judge had drawn afresh",
                **means,
                spread=spread * scale,
            )
        if mixed_ahead:
            return [
                f"the {metric} is {tested:.4g} on the test part and {drawn:.4g} on another draw: "
                "more than by chance, unless examples of a part depend on each other"
            ]
        return []

    def _verify_validation(self, tolerance: float) -> None:
        recorded, found = self.saved.measured["validation"], self.scored["validation"]
        pairs = {
            "loss": (recorded["loss"], found["loss"]),
            **{
                name: (value, found["metrics"].get(name, math.nan))
                for name, value in recorded["metrics"].items()
            },
        }
        for name, (said, value) in pairs.items():
            if not deviation(said, value, 1e-6) <= tolerance:
                raise StepError(
                    f"the submitted weights have a validation {name} of {value:.6g}; the ledger "
                    f"records {said:.6g}. The record was changed, or the task's code changes what "
                    "is measured while it trains",
                    recorded=said,
                    found=value,
                    allowed=tolerance,
                )

    def retrain(self, redo: Redo, until: int) -> Retraining:
        """Train the task again in a confined process, and compare every value here."""
        self._again = []
        return reexecute(
            self.replay.events,
            redo.policy(self.replay.run),
            until_epoch=until,
            config=self.config,
            task=partial(
                train_task,
                source=self.submission.model,
                data=self.data,
                open_worker=self._open,
            ),
            on_epoch=lambda _, measured: self._again.append(measured),
        )

    def execute(self, differs: Sequence[str]) -> dict[str, Any]:
        """Do as for any run; where values differ, train once more to say why."""
        try:
            return super().execute(differs)
        except StepError as error:
            if self.redo is None or "executed" not in error.evidence:
                raise
            first = self._again
            try:
                self.retrain(self.redo, len(first) - 1)
            except (ConfinementError, StepError):
                raise
            except JudgeError as failed:
                raise StepError(f"{error}; trained once more: {failed}") from failed
            if apart := next(differences(first, self._again), None):
                raise StepError(
                    "the task is not repeatable: trained twice by the judge, it gives different "
                    f"values, first at epoch{apart.place}. It draws random numbers that no seed "
                    "decides, reads the clock, or depends on something else outside of its file",
                    **error.evidence,
                ) from error
            raise StepError(
                f"{error}; trained twice by the judge, it gives the same values", **error.evidence
            ) from error

    # Step 10
    def test_metric(self) -> StepOutcome:
        """Return the metric of the test part, as it was scored without the model."""
        config = self.replay.task_config
        found, count = self.scored["test"]["metrics"], len(self.outputs["test"])
        value = found[config.metric]
        fresh = self.scored.get("fresh")
        drawn = "" if fresh is None else f"; {fresh['metrics'][config.metric]:.4f} on another draw"
        return StepOutcome(
            f"{config.metric} on {count} test examples: {value:.4f} ({config.better} is better)"
            + drawn,
            {"metric": config.metric, "value": value, "examples": count, "metrics": dict(found)},
        )

    def accuracies(self) -> Accuracies | str:
        """Return the judge's own accuracies, where that is the metric."""
        config = self.replay.task_config
        tested = self._known("accuracy", "test")
        if tested is None or (config.metric, config.better) != ("accuracy", "higher"):
            return f"the metric is {config.metric}"
        return Accuracies(
            test=tested,
            validation=self._known("accuracy", "validation"),
            own_target=config.target_accuracy,
            classes=config.classes or 2,
            examples=self.data.sizes["validation"],
        )


def _are_apart(
    test: NDArray[np.float64], fresh: NDArray[np.float64], *, alike: bool
) -> tuple[bool, float]:
    """Return whether the test part's chunks are ahead of fresh ones, and the spread of the means.

    A few chunks that are far behind widen the spread. So it is also enough that each chunk of the
    one is ahead of each of the other, where they are `alike` in size: one in 184,756 by chance.
    """
    spread = math.sqrt(sum(float(each.var(ddof=1)) / len(each) for each in (test, fresh)))
    apart = alike and bool(test.min() > fresh.max())
    return apart or float(test.mean() - fresh.mean()) > _SIGMAS * spread, spread


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turn what a task's code leads to into a failed step."""
    try:
        yield
    except RoomError:
        raise  # of this machine, whatever was submitted
    except MonitorError as error:
        raise StepError(f"{what}: {error}") from error


def tenths(count: int) -> list[tuple[int, int]]:
    """Return from where to where _CHUNKS pieces of `count` rows go: as equal as can be."""
    ends = [number * count // _CHUNKS for number in range(_CHUNKS + 1)]
    return list(itertools.pairwise(ends))


def _outputs_of(worker: Worker, inputs: Rows, *, order: Tensor, bounds: Bounds) -> Rows:
    """Return the outputs of a worker's model, which it computes in this order and in pieces."""
    like: Tensor | None = None
    for start, stop in spans(len(inputs), row_bytes(inputs), multiple=BATCH):
        asked = order[start:stop]
        _, answer = worker.ask("outputs", {}, spool({"inputs": (inputs, asked)}))
        outputs = read_named(answer, {"outputs"}, bounds)["outputs"]
        if len(outputs) != len(asked):
            raise StepError(f"the model gave {len(outputs)} outputs for {len(asked)} inputs")
        if like is None:
            like, size = outputs[:1], row_bytes(outputs)
            found = Spooled(len(inputs) * size)
        if outputs.dtype != like.dtype or tuple(outputs.shape[1:]) != tuple(like.shape[1:]):
            raise StepError("the model gave outputs of different shapes")
        for first, last in spans(len(outputs), size):
            data = tensor_bytes(outputs[first:last])
            for number, place in enumerate(asked[first:last].tolist()):
                found.put(data[number * size : (number + 1) * size], place * size)
    assert like is not None, "no part is empty"
    rows = found.tensor(like.dtype, (len(inputs), *like.shape[1:]))
    return rows[:] if len(found) <= _HELD else rows


def _order(name: str, count: int) -> Tensor:
    """Return an order in which inputs are given: of the test part one that nobody can foresee."""
    if name.startswith("validation"):
        return torch.arange(count)  # the sums of the record are made in this order
    return torch.randperm(count, generator=torch.Generator().manual_seed(secrets.randbits(63)))


def _score_of(said: Mapping[str, Any], name: str, metric: str) -> dict[str, Any]:
    """Return loss and metrics of a part as an answer has them; raises StepError."""
    try:
        found = said[name]
        metrics = {key[:100]: _number(value) for key, value in found["metrics"].items()}
        score = {"loss": _number(found["loss"]), "metrics": metrics}
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise StepError(f"the scores of the {name} part are malformed") from error
    if metric not in metrics or len(metrics) > MAX_METRICS:
        raise StepError(f"the scores of the {name} part lack {metric}, or are too many")
    return score


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError("not a number")
    return float(value)
