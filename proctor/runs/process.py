"""The process of a command that trains or judges: started again where its code paths are others.

The numeric libraries choose their code paths as they are loaded (monitor/dispatch.py). A command
that needs other paths than this process would take replaces itself, before torch is loaded, by the
same command with the right environment. Its process id, terminal and exit code stay the same.

I/O: replaces the process (execve).
"""

import json
import os
import signal
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any, NoReturn, TypeVar, cast
from uuid import UUID

from ledger.errors import LedgerError
from ledger.mapper import readable_body
from monitor.code import HOUSE
from monitor.config import RunConfig, TaskConfig, config_of
from monitor.dispatch import (
    PORTABLE,
    PORTABLE_VARIABLES,
    current_variables,
    describe_cpu,
    environment_with,
    variables_for,
)
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.remembering import open_remembered
from proctor.runs.replay import find_recorded

_STARTED = "PROCTOR_STARTED_AGAIN"  # tells the new process that it is one, and what was read
# What a CPU has to have where a ledger says so: PyTorch takes a path without looking at the CPU.
_NEEDS: Mapping[tuple[str, str], frozenset[str]] = {
    ("ATEN_CPU_CAPABILITY", "avx2"): frozenset({"avx2", "fma"}),
    ("ATEN_CPU_CAPABILITY", "avx512"): frozenset(
        {"avx512bw", "avx512dq", "avx512f", "avx512vl", "fma"}
    ),
    ("MKL_DEBUG_CPU_TYPE", "5"): frozenset({"avx2", "fma"}),
}
# The current folder is no place to import from, so -P; the packages may lie in no site folder.
# A library that is used puts the folder of argv[0] in front of the path: that is the interpreter's.
_CODE = "import sys; sys.argv[0] = sys.executable; sys.path.append({house!r}); {main}"
_MAIN = "from proctor.cli.start import main; main()"


Config = TypeVar("Config", bound=RunConfig | TaskConfig)


def start_for(read: Callable[[], Config]) -> Config:
    """Return the configuration, in a process that computes as it says.

    A process that was started again is handed what the first one has read: a pipe is read once.
    """
    again = handed_over()
    config = read() if again is None else cast("Config", config_of(json.loads(again)))
    if config.numerics == PORTABLE:
        _start_with(PORTABLE_VARIABLES, again=again, carried=json.dumps(config.to_dict()))
    return config


def start_as_recorded(home: Home, name: str) -> str:
    """Go on in a process that computes as a recorded run did, whatever this one's variables are.

    `name` is that of a run or a campaign. Returns the id that it stands for, which the command
    uses from here on: `latest` can mean another run a moment later. A process that was started
    again is handed the id. The name itself is returned where it is not found or the ledger does
    not verify: the command reports that. A run that was made on another CPU starts nothing.
    """
    again = handed_over()
    try:
        chosen, environment = _recorded_environment(home, again or name)
    except (LedgerError, OSError, ProctorError):
        return again or name
    start_like(environment, again=again, carried=chosen)
    return str(chosen)


def start_like(environment: Mapping[str, Any] | None, *, again: str | None, carried: UUID) -> None:
    """Go on in a process that computes as in a run's recorded environment.

    `again` is what handed_over() has returned, `carried` the id that a new process is handed.
    """
    here = describe_cpu()
    variables = variables_for(environment, here=here)
    if variables is not None and runnable(variables, here["features"]):
        _start_with(variables, again=again, carried=str(carried))


def runnable(variables: Mapping[str, str], features: Collection[str]) -> bool:
    """Return whether a CPU with these features has the code paths that variables ask for."""
    return all(_NEEDS.get(pair, frozenset()) <= set(features) for pair in variables.items())


def _recorded_environment(home: Home, name: str) -> tuple[UUID, Mapping[str, Any] | None]:
    """Return the id of a run, campaign or comparison, and the environment of its first run."""
    with open_remembered(home) as ledger:
        chosen = find_recorded(ledger, name)
        allotted: set[str] = set()  # runs of the comparison that is chosen
        for entry in ledger.select(names=["comparison.run_allotted", "run.started"]):
            if entry.name == "comparison.run_allotted" and entry.stream_id == chosen:
                allotted.add(str((readable_body(entry.body) or {}).get("run")))
            if entry.name != "run.started":
                continue
            body = readable_body(entry.body)
            if body is None:  # the command itself says so
                continue
            named = body.get("campaign") == str(chosen) or str(entry.stream_id) in allotted
            if entry.stream_id == chosen or named:
                found = body.get("environment")
                return chosen, found if isinstance(found, Mapping) else None
    return chosen, None


def handed_over() -> str | None:
    """Return what this process was handed when it started itself again, None if it has not."""
    number, _, handed = os.environ.pop(_STARTED, "").partition(" ")  # children do not inherit it
    return handed if number == str(os.getpid()) else None


def _start_with(variables: Mapping[str, str], *, again: str | None, carried: str = "") -> None:
    if current_variables() == variables:
        return
    if again is not None:
        raise ProctorError(
            f"this process could not be started with {dict(variables)}: its environment changes "
            "while Python starts, which a sitecustomize module or a wrapper may do"
        )
    _replace({**environment_with(variables), _STARTED: f"{os.getpid()} {carried}"})


def _replace(environment: Mapping[str, str]) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    code = _CODE.format(house=str(HOUSE), main=_MAIN)
    # Until the command has begun again, Ctrl-C would end in a traceback of Python's own start.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.execve(  # noqa: S606 - this interpreter, with the arguments it was given
        sys.executable, [sys.executable, "-P", "-c", code, *sys.argv[1:]], dict(environment)
    )
