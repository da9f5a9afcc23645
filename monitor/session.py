"""The monitor's session: the only way by which a run's events come to be.

What the loop says of itself is kept apart from what was measured. Once appending has failed,
nothing more is appended: the run in memory and the one in the log may differ, and whoever opens the
log next closes the run as crashed.

I/O: appends to the log and the blob store that were passed in.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ParamSpec, Protocol

import torch
from torch.nn import functional

from aggregates.decisions import Settings
from aggregates.forks import repeat
from aggregates.outcomes import in_words
from aggregates.run import Run
from aggregates.spec import Spec
from ledger.blobs import Blobs
from ledger.errors import LedgerError
from monitor.datasets import Split
from monitor.errors import MachineError, MonitorError
from monitor.interrupts import answer, held
from monitor.model import ResidualCNN
from monitor.snapshots import capture
from monitor.state import LiveState

P = ParamSpec("P")
_MACHINES = (MemoryError, torch.OutOfMemoryError, torch.AcceleratorError)
_VALIDATION_BATCH = 256  # examples; fixed, so that sums are made in the same order in every run


class Log(Protocol):
    """Where runs are kept: the ledger's application, or one in memory."""

    def save(self, run: Run, /) -> Any:
        """Append the events that the run has gained."""


class Session:
    """Appends the events of one run."""

    def __init__(self, run: Run, *, log: Log, blobs: Blobs | None = None) -> None:
        self.run = run
        self.outcomes: dict[int, str] = {}  # of decisions, by their number, in words
        self._log = log
        self._blobs = blobs  # None: nothing is stored of a watched loop
        self._broken = False
        self._save()

    def record_epoch(self, measured: Mapping[str, Any], reported: Mapping[str, Any]) -> None:
        """Record what was measured and what the loop says, and evaluate the rules."""
        self.run.measure_epoch(measured, reported)
        self.run.evaluate_rules()
        self._save()

    def record(self, command: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Have a command of the run record an event."""
        command(*args, **kwargs)
        self._save()

    def applied(self, changes: list[dict[str, Any]], *, settings: Settings, spec: Spec) -> None:
        """Record what was done for the decision made last."""
        self.run.apply_remedy(changes, settings=settings.to_dict(), spec=spec.to_dict())
        self.outcomes[len(self.run.decisions)] = f"applied: {in_words(changes)}"
        self._save()

    def refused(self, reason: str) -> None:
        """Record why the decision made last is not carried out."""
        self.record(self.run.refuse_remedy, reason)
        self.outcomes[len(self.run.decisions)] = f"refused: {reason}"

    def save_weights(self, kind: str, data: bytes, *, spec: Spec, probe: Mapping[str, Any]) -> None:
        """Store a model's weights and record them, with the norms on the probe batch."""
        self.run.save_weights(
            kind, sha256=self._store(data), size=len(data), spec=spec.to_dict(), probe=dict(probe)
        )
        self._save()

    def save_snapshot(self, live: LiveState) -> None:
        """Store the training state after the latest epoch and record it."""
        started = time.monotonic()
        state = capture(live)
        sha256 = self._store(state)
        seconds = time.monotonic() - started
        self.record(self.run.save_snapshot, sha256, size=len(state), seconds=seconds)

    def go_on(self, events: Iterable[Any]) -> None:
        """Record once more what was recorded before a state that the training goes on from."""
        for event in events:
            repeat(self.run, event)
        self._save()

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Close the run where the block raises; other errors than ours become MonitorError.

        Those of the machine become MachineError.
        """
        try:
            yield
        except BaseException as error:
            self.abort(error)
            if isinstance(error, MonitorError | LedgerError) or not isinstance(error, Exception):
                raise
            kind = MachineError if isinstance(error, _MACHINES) else MonitorError
            raise kind(
                f"run {self.run.id} failed in epoch {self.run.epoch}: "
                f"{type(error).__name__}: {error}"
            ) from error

    def abort(self, error: BaseException) -> None:
        """Close the run because of `error`, unless it is closed or the log is out of reach."""
        if self._broken or self.run.end_reason is not None:
            return
        reason = "failed" if isinstance(error, Exception) else "interrupted"
        detail = f"{type(error).__name__}: {error}"[:2_000]
        self.record(self.run.end, reason, detail=detail, deliverables=self.run.files)

    def _store(self, data: bytes) -> str:
        assert self._blobs is not None, "only what can be repeated is stored"
        return self._blobs.put(data)

    def _save(self) -> None:
        with held() as came:  # so that Ctrl-C never splits a save
            self._broken = True  # until it is known that the log has everything
            self._log.save(self.run)
            self._broken = False
        answer(came)  # which a command makes a KeyboardInterrupt of


@torch.no_grad()
def validate_model(model: ResidualCNN, split: Split) -> dict[str, Any]:
    """Return loss, accuracy and number of examples, in evaluation mode."""
    training, device = model.training, model.head.weight.device
    model.eval()
    loss = torch.zeros((), dtype=torch.float64, device=device)
    correct = torch.zeros((), dtype=torch.int64, device=device)
    for at in range(0, len(split), _VALIDATION_BATCH):
        images, labels = split.batch(slice(at, at + _VALIDATION_BATCH), device)
        logits = model(images)
        loss += functional.cross_entropy(logits, labels, reduction="sum")
        correct += (logits.argmax(dim=1) == labels).sum()
    model.train(training)
    return {
        "loss": float(loss) / len(split),
        "accuracy": int(correct) / len(split),
        "examples": len(split),
    }
