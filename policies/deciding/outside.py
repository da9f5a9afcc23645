"""Policies that somebody else wrote: a Python class, or a process that speaks JSON lines.

Their answers are read as those of a language model are: each rule that has no usable decision is
answered in the driver's name. An agent that answers nonsense, hangs or dies ends no run.

Source: docs/how-to/own-policy.md.
Trust: answers are hostile until they have been read. A class runs in this process, with its rights.
I/O: starts the process, and writes to it and reads from it.  Units: seconds, bytes.
"""

import hashlib
import inspect
import json
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from aggregates.canonical import finite
from aggregates.decisions import Decision, Observation, Said, printable, unanswered
from aggregates.situation import describe_observation
from ledger.strict_json import JSONError, read_json
from policies.answers import exported_schema, read_answer
from policies.errors import AnswerError, PolicyError

PROCESS = "exec:"
GROUP = "proctor.policies"  # of entry points
SECONDS = 60.0  # for one answer
MOST = 2**20  # bytes of an answer
_MAX_NAME = 200  # characters
_SECRETS = ("PASSPHRASE", "PASSWORD", "SECRET", "TOKEN", "API_KEY")


class OutsidePolicy:
    """Decides what `answer` says, a function from an observation to what JSON can hold."""

    def __init__(
        self, name: str, answer: Callable[[Observation], Any], *, told: Mapping[str, Any]
    ) -> None:
        self.name = name
        self._answer = answer
        self._told = dict(told)

    def describe(self) -> dict[str, Any]:
        """Return what a run records of its policy."""
        return {"name": self.name, **self._told}

    def decide(self, observation: Observation) -> list[Said]:
        """Return one answer for each due rule."""
        try:
            decisions, problems = read_answer(self._answer(observation), observation)
        except (Exception, SystemExit) as error:
            kind = "" if isinstance(error, PolicyError) else f"{type(error).__name__}: "
            what = f"{kind}{error}"
            decisions, problems = [], dict.fromkeys(observation.due, what)
        return [
            *map(Said, decisions),
            *(unanswered(rule, printable(problem)) for rule, problem in problems.items()),
        ]


def outside_policy(name: str) -> OutsidePolicy | None:
    """Return the policy that `name` means: MODULE:CLASS, exec:COMMAND or an entry point.

    None if it is none of these; PolicyError if it is one and cannot be had.
    """
    if name.startswith(PROCESS):
        try:
            command = shlex.split(name.removeprefix(PROCESS))
        except ValueError as error:
            raise PolicyError(f"{name}: {error}") from error
        if not command:
            raise PolicyError("exec: needs a command, as in --policy 'exec:python agent.py'")
        if shutil.which(command[0]) is None:
            raise PolicyError(f"{name}: {command[0]} is not a program that can be started")
        return process_policy(command)
    if ":" in name:
        module, _, attribute = name.partition(":")
        return _of_class(name, _load(module, attribute))
    for found in entry_points(group=GROUP, name=name):
        with _failing(f"the policy {name} cannot be loaded"):
            return _of_class(found.value, found.load())
    return None


def process_policy(command: Sequence[str], *, seconds: float = SECONDS) -> OutsidePolicy:
    """Return the policy that a program decides; each answer may take `seconds`."""
    process = _Process(list(command), seconds)
    name = f"{PROCESS}{shlex.join(command)}"[:_MAX_NAME]
    return OutsidePolicy(name, process.ask, told={"command": list(command)})


def known_entry_points() -> tuple[str, ...]:
    """Return the names of the policies that installed packages bring along."""
    return tuple(sorted(entry_points(group=GROUP).names))


def _load(module: str, attribute: str) -> Any:
    """Import a class, from the current folder too; the installed packages come first."""
    here = str(Path.cwd())
    sys.path.append(here)
    try:
        with _failing(f"{module} cannot be imported"):
            found = import_module(module)
            try:
                return getattr(found, attribute)
            except AttributeError as error:
                raise PolicyError(f"{module} has no {attribute!r}: {error}") from error
    finally:
        sys.path.remove(here)


@contextmanager
def _failing(what: str) -> Iterator[None]:
    """Raise PolicyError for whatever somebody's code raises; it may end the process, too."""
    try:
        yield
    except PolicyError:
        raise
    except (Exception, SystemExit) as error:
        raise PolicyError(f"{what}: {type(error).__name__}: {error}") from error


def _of_class(name: str, kind: Any) -> OutsidePolicy:
    with _failing(f"{name} cannot be made without arguments"):
        policy = kind()
    if not callable(getattr(policy, "decide", None)):
        raise PolicyError(f"{name} has no method decide(observation)")

    def answer(observation: Observation) -> Any:
        return {"decisions": [_plain(each) for each in policy.decide(observation)]}

    return OutsidePolicy(name, answer, told={"class": name, "sha256": _source_hash(kind)})


def _plain(said: Any) -> Any:
    decision = said.decision if isinstance(said, Said) else said
    return decision.to_dict() if isinstance(decision, Decision) else decision


def _source_hash(kind: Any) -> str | None:
    """Return the SHA-256 of the file that a class is from."""
    try:
        path = inspect.getsourcefile(kind)
        if path is None:
            return None
        with open(path, "rb") as file:  # noqa: PTH123 - what inspect gives
            return hashlib.sha256(file.read()).hexdigest()
    except (OSError, TypeError):
        return None


def observation_json(
    observation: Observation, *, history: int = 0, decisions: int = 0
) -> dict[str, Any]:
    """Return an observation as JSON can hold it, without so many epochs and earlier decisions.

    Numbers that are not finite are the texts NaN, Infinity and -Infinity. `text` says the same in
    words, `schema` is the JSON schema of an answer.
    """
    plain = {
        "version": 1,
        "run_id": observation.run_id,
        "epoch": observation.epoch,
        "epochs_left": observation.left,
        "due": list(observation.due),
        "rules": {
            rule: {
                **{key: value for key, value in found.to_dict().items() if key != "rule"},
                "due": rule in observation.due,
            }
            for rule, found in observation.evaluations.items()
        },
        "settings": observation.settings.to_dict(),
        "max_batch_size": observation.max_batch_size,
        "train_examples": observation.train_examples,
        "model": observation.spec.to_dict(),
        "history": [asdict(signals) for signals in observation.history[history:]],
        "decisions": [
            {**past.decision.to_dict(), "epoch": past.epoch, "outcome": past.outcome}
            for past in observation.decisions[decisions:]
        ],
        "waived": list(observation.waived),
        "edits": observation.edits,
        "text": describe_observation(observation),
        "schema": exported_schema(observation),
    }
    return {key: finite(value) for key, value in plain.items()}


class _EndedError(AnswerError):
    """The program ended, and left no answer."""


def _write(descriptor: int, data: bytes) -> int:
    """Return how many bytes were written, 0 where nobody reads them."""
    try:
        return os.write(descriptor, data)
    except BrokenPipeError:
        return 0


class _Process:
    """A program that is asked one line and answers one line, as often as there is a question.

    One that is too slow or says too much is ended, with what it started in its process group; the
    next question starts it anew. One that keeps what it is told is told only what is new.
    """

    def __init__(self, command: list[str], seconds: float) -> None:
        self._command = command
        self._seconds = seconds
        self._child: subprocess.Popen[bytes] | None = None
        self._kept: tuple[str, int, int] | None = None  # run, epochs and decisions that it knows

    def ask(self, observation: Observation) -> Any:
        """Return the answer; raises AnswerError if there is none that is JSON."""
        try:
            found = self._found(observation)
        except OSError as error:
            self._end()
            raise AnswerError(f"{self._command[0]}: {error.strerror or error}") from None
        self._kept = None
        try:
            answer = read_json(found)
        except JSONError as error:
            raise AnswerError(f"the answer cannot be read: {error}") from None
        if isinstance(answer, dict) and answer.get("keeps") is True:
            del answer["keeps"]
            known = len(observation.history), len(observation.decisions)
            self._kept = (observation.run_id, *known)
        return answer

    def _found(self, observation: Observation) -> bytes:
        """Return the answer; a program that ended after the one before starts anew."""
        earlier = self._child
        child = self._started()
        try:
            return self._exchange(child, self._question(observation))
        except _EndedError:
            if child is not earlier:
                raise
        return self._exchange(self._started(), self._question(observation))

    def _question(self, observation: Observation) -> bytes:
        """Return the line for the program that runs now: `since` says what it knows already."""
        run, history, decisions = self._kept or ("", 0, 0)
        longer = history <= len(observation.history) and decisions <= len(observation.decisions)
        if run != observation.run_id or not longer:
            history = decisions = 0
        told = observation_json(observation, history=history, decisions=decisions)
        told["since"] = {"history": history, "decisions": decisions}
        return json.dumps(told, allow_nan=False).encode() + b"\n"

    def _exchange(self, child: subprocess.Popen[bytes], line: bytes) -> bytes:
        assert child.stdin is not None
        assert child.stdout is not None
        deadline = time.monotonic() + self._seconds
        sent, found = 0, b""
        with selectors.DefaultSelector() as ready:
            ready.register(child.stdin, selectors.EVENT_WRITE)
            ready.register(child.stdout, selectors.EVENT_READ)
            while b"\n" not in found:
                left = deadline - time.monotonic()
                if left <= 0 or len(found) > MOST:
                    self._end()
                    why = (
                        f"more than {self._seconds:g} seconds"
                        if left <= 0
                        else f"over {MOST} bytes"
                    )
                    raise AnswerError(f"the process took or wrote {why}, and was ended")
                for key, _ in ready.select(left):
                    if key.fileobj is child.stdin:
                        taken = _write(child.stdin.fileno(), line[sent : sent + 65_536])
                        sent += taken
                        if sent == len(line):
                            ready.unregister(child.stdin)
                    else:
                        part = os.read(child.stdout.fileno(), 65_536)
                        taken = len(part)
                        found += part
                    if not taken:
                        self._end()
                        raise _EndedError("the process ended without an answer")
        answer, _, more = found.partition(b"\n")
        if more or sent < len(line):
            self._end()
            why = "wrote more than one line" if more else "answered before it had read the question"
            raise AnswerError(f"the process {why}, and was ended")
        return answer

    def _started(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None or self._has_said():
            self._end()
            hidden = {n for n in os.environ if any(each in n.upper() for each in _SECRETS)}
            self._child = subprocess.Popen(  # noqa: S603 - the command that the user gave
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={name: value for name, value in os.environ.items() if name not in hidden},
                start_new_session=True,  # so that it can be ended with what it starts
            )
            assert self._child.stdin is not None
            os.set_blocking(self._child.stdin.fileno(), False)
        return self._child

    def _has_said(self) -> bool:
        """Return whether something was said that answers no question: a second answer, say."""
        assert self._child is not None
        assert self._child.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(self._child.stdout, selectors.EVENT_READ)
            return bool(ready.select(0))

    def _end(self) -> None:
        self._kept = None
        if self._child is not None:
            with suppress(OSError):
                os.killpg(self._child.pid, signal.SIGKILL)
            self._child.kill()
            self._child.wait()
            for stream in (self._child.stdin, self._child.stdout):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()
            self._child = None

    def __del__(self) -> None:
        self._end()
