"""The agent's end of the process that trains: starts it, talks to it, and ends it.

I/O: starts one process, which inherits standard error.  Units: seconds.
"""

import json
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from monitor.code import HOUSE
from monitor.config import RunConfig
from monitor.dispatch import PORTABLE_VARIABLES, environment_with
from proctor.errors import ProctorError

# A training of about a second that begins with far too large a learning rate. With one that fits,
# it is right three times as often as chance or more; else no answer could be worth anything.
DEFAULTS: Mapping[str, Any] = {
    "train_examples": 640,
    "val_examples": 128,
    "test_examples": 128,
    "epochs": 12,
    "batch_size": 32,
    "lr": 5.0,
    "warm_up_epochs": 0,
    "channels": 16,
    "blocks": 1,
    "width": 16,
    "stem_stride": 4,
    "threads": 1,
}
_PATIENCE = 5.0  # for a process to end by itself
# -P: nothing is imported from the current folder. The packages may lie in no site folder.
_CODE = (
    f"import sys; sys.path.append({str(HOUSE)!r}); "
    "from proctor.environment.worker import main; main()"
)


def episode_config(settings: Mapping[str, Any]) -> RunConfig:
    """Return the configuration of an episode, DEFAULTS where the settings name nothing else."""
    config = RunConfig.from_dict({**DEFAULTS, **settings})
    if config.edits != "live":
        raise ProctorError(
            'an episode is one run: edits must be "live", not "restart", which begins another'
        )
    return config


class Trainer:
    """A process that trains, started for the first episode and kept for the following ones."""

    def __init__(self, *, portable: bool) -> None:
        self._portable = portable
        self._child: subprocess.Popen[bytes] | None = None
        self._end: weakref.finalize[..., Any] | None = None

    def begin(self, episode: Mapping[str, Any]) -> dict[str, Any]:
        """Begin an episode, leaving an earlier one; return the first situation, or the end.

        Raises ProctorError with what the training says, or if the process has died.
        """
        if self._child is not None and self._child.poll() is not None:
            self.close()
        if self._child is None:
            self._child = subprocess.Popen(  # noqa: S603 - our own code
                [sys.executable, "-P", "-c", _CODE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment_with(PORTABLE_VARIABLES) if self._portable else None,
            )
            self._end = weakref.finalize(self, _end, self._child, os.getpid())
        return self._exchange(episode)

    def answer(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Answer the situation; return the next one, or the end. Raises as begin() does."""
        if self._child is None:
            raise ProctorError("there is no training process: call reset()")
        return self._exchange(answer)

    def interrupt(self) -> None:
        """Have the process leave its episode at once, also while another thread waits for it."""
        if self._child is not None:
            self._child.terminate()

    def close(self) -> None:
        """End the process; a recorded run that it trains is closed as interrupted."""
        if self._end is not None:
            self._end()
        self._child = self._end = None

    def _exchange(self, message: Mapping[str, Any]) -> dict[str, Any]:
        child = self._child
        assert child is not None
        assert child.stdin is not None
        assert child.stdout is not None
        line = b""
        try:
            with suppress(BrokenPipeError):
                child.stdin.write(json.dumps(message, allow_nan=False).encode() + b"\n")
                child.stdin.flush()
                line = child.stdout.readline()
        except BaseException:
            self.close()  # Ctrl-C: nobody knows what the process would say next
            raise
        if not line.endswith(b"\n"):
            self.close()
            raise ProctorError(
                f"the training process ended by itself (exit status {child.returncode}), and its "
                "episode is lost; what it wrote to standard error may say why. reset() starts "
                "another process"
            )
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise ProctorError(found["error"])
        return found


def _end(child: subprocess.Popen[bytes], owner: int) -> None:
    """End a process and wait for it; a process that was forked from its owner leaves it alone."""
    if os.getpid() != owner:
        return
    for stream in (child.stdin, child.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()
    for signal_to_send in (None, signal.SIGTERM, signal.SIGKILL):
        if signal_to_send is not None:
            child.send_signal(signal_to_send)
        with suppress(subprocess.TimeoutExpired):
            child.wait(_PATIENCE)
            return
