"""The process that trains the episodes of one environment, and asks it for decisions.

It has torch's global settings to itself, and is kept between episodes. Both sides write one JSON
object in a line, in turn: an episode or an answer comes in; a situation, the end or an error goes
out. An episode that is left, because another one begins or nobody is there any more, is closed as
interrupted.

An episode with a `model` is decided by the language model policy of `proctor run`. Its requests go
out in place of situations: the other side sends them on and returns what came of them.

Trust: whoever started the process. Answers are hostile until policies.answers has read them.
I/O: standard input and output; a recorded episode appends to the home's ledger.
"""

import hashlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, BinaryIO, NoReturn
from uuid import UUID, uuid4

from aggregates.decisions import Observation
from aggregates.registry import REGISTRY
from aggregates.run import Run
from aggregates.spec import ModelSpec
from judge.auditing.process import measure_process
from judge.auditing.reexecution import NoBlobs
from ledger.application import LedgerApplication
from ledger.mapper import LedgerMapper, recorded_fields
from ledger.notary.remote import RemoteRecorder
from ledger.recorder import SignedRecorder
from ledger.verification.verified_entries import VerifiedEntry
from monitor.config import RunConfig
from monitor.datasets import Splits
from monitor.loop import prepare, train
from policies.asking.completion import Completion, read_body
from policies.asking.settings import ModelSettings
from policies.deciding.nothing import NothingPolicy
from policies.deciding.outside import OutsidePolicy, observation_json
from policies.errors import AnswerError
from proctor.environment.choices import CHOICES, answers
from proctor.environment.numbers import numbers_of
from proctor.errors import ProctorError, roots
from proctor.home import Home
from proctor.runs.policies import model_policy
from proctor.runs.training import Prepared, Told, Watching, train_run
from proctor.runs.transcript_log import TranscriptLog

MOST_LOSS = 20.0  # nats; a loss above it, or that is not finite, counts as this one
_KEPT = 4  # data sets
_WAITS = 1_024  # trainings that waited
_FORESEEN: tuple[type[Exception], ...] = (OSError, ProctorError, *roots())


class _LeftError(BaseException):
    """The episode is left; `command` is what came instead of an answer, None for the end."""

    def __init__(self, command: dict[str, Any] | None = None) -> None:
        super().__init__("the agent has left the episode")
        self.command = command


def main() -> None:
    """Serve episodes until standard input ends."""
    answers_to = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the agent, which then closes us
    signal.signal(signal.SIGTERM, _leave)
    with suppress(_LeftError, BrokenPipeError):
        Worker(sys.stdin.buffer, answers_to).serve()
    os._exit(0)  # nothing is left to be written, and unloading torch takes long


def _leave(*_: object) -> NoReturn:
    raise _LeftError


class Worker:
    """Trains one episode after another."""

    def __init__(self, commands: BinaryIO, answers_to: BinaryIO) -> None:
        self._commands = commands
        self._answers_to = answers_to
        self._load = lru_cache(_KEPT)(prepare)
        self._episode: dict[str, Any] = {}
        self._accuracy = 0.0
        self._waits: dict[RunConfig, float] = {}

    def serve(self) -> None:
        """Train the episodes that are asked for, until there are no more commands."""
        command = self._read()
        while command is not None:
            try:
                self._episode = command
                self._send(self._trained())
            except _LeftError as left:
                command = left.command
                continue
            except _FORESEEN as error:
                self._send({"error": f"{error}" or type(error).__name__})
            command = self._read()

    def _trained(self) -> dict[str, Any]:
        """Train the episode to its end, and return what is said of it."""
        config = RunConfig.from_dict(self._episode["config"])
        splits = self._load(replace(config, seed=0))
        if self._episode["record"] is None:
            log = LedgerApplication.in_memory(REGISTRY)
            run = train(
                config,
                self._agent(),
                log=log,
                blobs=NoBlobs(),
                splits=splits,
                on_epoch=self._on_epoch,
            )
            events, recorded = list(log.events.get(run.id)), dict[str, Any]()
        else:
            run, events, recorded = self._recorded(config, splits)
        assert isinstance(run.spec, ModelSpec)
        settings = run.settings or {
            key: config.to_dict()[key] for key in ("lr", "batch_size", "accumulation", "clip_norm")
        }
        process = {"process_score": 0.0}
        if self._episode["process"]:
            found = measure_process(_entries(events, run.id))
            process = {
                "process_score": found.score,
                "obligations": found.obligations,
                "exercised": found.exercised,
            }
        if self._episode.get("waiting"):
            process["gain"] = self._accuracy - self._waited(config, splits, run)
        return {
            "end": run.end_reason,
            "run": str(run.id),
            "digest": digest(events),
            "val_accuracy": self._accuracy,
            "numbers": numbers_of(
                history=run.history,
                due=(),
                settings=settings,
                spec=run.spec,
                epochs=config.epochs,
            ),
            **process,
            **recorded,
            **_latest(run.history, run.decisions),
        }

    def _recorded(self, config: RunConfig, splits: Splits) -> tuple[Run, list[Any], dict[str, Any]]:
        """Train in a home; return the run, its events, and what else its ledger says."""
        home = Home(Path(self._episode["record"]))
        with home.open_log() as log:
            run_id = uuid4()
            transcript = TranscriptLog(log, run_id)
            if "model" in self._episode:
                policy = model_policy(
                    ModelSettings.from_dict(self._episode["model"]),
                    client=_Elsewhere(self._exchange, run_id, self._episode["endpoint"]),
                    log=transcript,
                    blobs=home.blobs,
                    answers=None,
                    told=Told(),
                )
                prepared = Prepared(policy, transcript)
            else:
                prepared = Prepared(self._agent())
            run = train_run(
                home,
                log,
                partial(train, splits=splits),
                config,
                run_id=run_id,
                prepared=prepared,
                watching=Watching(on_epoch=self._on_epoch),
            )
            assert isinstance(log.recorder, RemoteRecorder | SignedRecorder)
            tally = transcript.tally
            recorded = {
                "tree_head": log.recorder.tree_head(),
                "requests": tally.calls,
                "usable": tally.usable,
                "usable_share": tally.usable / tally.calls if tally.calls else None,
            }
            return run, list(log.events.get(run.id)), recorded

    def _waited(self, config: RunConfig, splits: Splits, run: Run) -> float:
        """Return the validation accuracy of the same training where every rule waits.

        Most of what two seeds differ in is in both trainings.
        """
        if not any(past.decision.acts for past in run.decisions):
            return self._accuracy
        if config not in self._waits:
            found: dict[str, Any] = {}
            train(
                config,
                NothingPolicy(),
                log=LedgerApplication.in_memory(REGISTRY),
                blobs=NoBlobs(),
                splits=splits,
                on_epoch=lambda _, measured: found.update(measured["validation"]),
            )
            self._waits[config] = found["accuracy"]
            if len(self._waits) > _WAITS:
                del self._waits[next(iter(self._waits))]
        return self._waits[config]

    def _agent(self) -> OutsidePolicy:
        return OutsidePolicy("agent", self._ask, told=self._episode["policy"])

    def _on_epoch(self, _: Run, measured: dict[str, Any]) -> None:
        self._accuracy = measured["validation"]["accuracy"]

    def _ask(self, seen: Observation) -> Any:
        """Return the agent's answer; raises AnswerError if it is none."""
        assert isinstance(seen.spec, ModelSpec)
        possible = answers(seen)
        command = self._exchange(
            {
                "due": {rule: seen.evaluations[rule].side for rule in seen.due},
                "mask": [each is not None for each in possible],
                "numbers": numbers_of(
                    history=seen.history,
                    due=(seen.evaluations[rule] for rule in seen.due),
                    settings=seen.settings.to_dict(),
                    spec=seen.spec,
                    epochs=self._episode["config"]["epochs"],
                ),
                "observation": observation_json(seen) if self._episode["words"] else None,
                **_latest(seen.history, seen.decisions),
            }
        )
        if "problem" in command:
            raise AnswerError(str(command["problem"]))
        if "choice" not in command:
            return command["answer"]
        number = command["choice"]
        if not 0 <= number < len(CHOICES) or (chosen := possible[number]) is None:
            what = CHOICES[number].name if 0 <= number < len(CHOICES) else "unknown"
            raise AnswerError(f"choice {number} ({what}) does not fit the situation")
        return {"decisions": chosen}

    def _exchange(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Say something that is to be answered, and return the answer."""
        self._send(message)
        command = self._read()
        if command is None or "config" in command:
            raise _LeftError(command)
        return command

    def _read(self) -> dict[str, Any] | None:
        line = self._commands.readline()
        command: dict[str, Any] | None = json.loads(line) if line.endswith(b"\n") else None
        return command

    def _send(self, message: Mapping[str, Any]) -> None:
        self._answers_to.write(json.dumps(message, allow_nan=False).encode() + b"\n")
        self._answers_to.flush()


class _Elsewhere:
    """A language model that the other process asks."""

    def __init__(
        self,
        exchange: Callable[[Mapping[str, Any]], dict[str, Any]],
        run_id: UUID,
        endpoint: str,
    ) -> None:
        self.endpoint = endpoint
        self._exchange = exchange
        self._run_id = run_id

    def ask(self, request: bytes, /) -> Completion:
        """Return what came of a request."""
        said = self._exchange({"run": str(self._run_id), "request": json.loads(request)})
        if "outcome" in said:
            return Completion(said["outcome"], problem=said["problem"])
        return read_body(said["body"].encode(), status=None)


def _latest(history: Any, decisions: Any) -> dict[str, Any]:
    """Return the loss of the latest epoch, and what became of the answer before."""
    loss = history[-1].val_loss
    last = [each for each in decisions if each.epoch == decisions[-1].epoch]
    return {
        "epoch": history[-1].epoch,
        "val_loss": loss if loss < MOST_LOSS else MOST_LOSS,  # NaN too
        "answered": bool(last) and all(each.source == "policy" for each in last),
        "outcomes": [each.outcome or "deferred" for each in last],
    }


def digest(events: Iterable[Any]) -> str:
    """Return the SHA-256 of what an episode's events say.

    Times, the machine, the label and the files of a recorded run are left out, so that the same
    seed and the same actions give the same digest.
    """
    found = hashlib.sha256()
    for event in events:
        fields = recorded_fields(event)
        match event:
            case Run.Started():
                del fields["environment"], fields["checkpoint"]
            case Run.EpochMeasured():
                told = fields["reported"].items()
                fields["reported"] = {key: value for key, value in told if key != "seconds"}
            case Run.Ended():
                del fields["deliverables"]
        told = [REGISTRY.for_class(type(event)).name, fields]
        found.update(json.dumps(told, sort_keys=True).encode() + b"\n")
    return found.hexdigest()


def _entries(events: Iterable[Any], run_id: UUID) -> list[VerifiedEntry]:
    """Return the events of this process as the judge reads them; nobody else wrote them."""
    mapper = LedgerMapper(REGISTRY)
    stored = [mapper.to_stored_event(event) for event in events]
    return [
        VerifiedEntry(
            index=index,
            time_ns=index,
            stream_id=run_id,
            stream_version=each.originator_version,
            name=each.topic,
            body=each.state,
            author=None,
            previous=b"",
            entry_hash=b"",
        )
        for index, each in enumerate(stored)
    ]
