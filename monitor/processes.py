"""The processes that train one model together, as torch.distributed starts them.

The first of them records the run. Values travel as tensors and JSON, never as pickles.

I/O: torch.distributed's default group.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Timer
from typing import Any

import torch
from torch import Tensor, distributed

from aggregates.sums import added

PATIENCE = 60.0  # seconds for which a process waits for the others and says nothing


@dataclass(frozen=True)
class Processes:
    """This process's rank among `size`, and where the group's backend wants its tensors."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @classmethod
    def joined(cls) -> "Processes":
        """Return the default group; this process alone if there is none."""
        if not (distributed.is_available() and distributed.is_initialized()):
            return cls()
        on_cpu = "gloo" in distributed.get_backend_config() or not torch.cuda.is_available()
        device = torch.device("cpu") if on_cpu else torch.device(torch.cuda.current_device())
        return cls(distributed.get_rank(), distributed.get_world_size(), device)

    @property
    def first(self) -> bool:
        """Whether this process records the run."""
        return self.rank == 0

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        """Say it once on standard error where the others do not come."""
        told = (
            f"proctor: process {self.rank} of {self.size} has waited {PATIENCE:g} seconds for the "
            "others; each process has to call watch() and, in each epoch, run.validate(), also "
            "where only the first one has a validation loss"
        )
        timer = Timer(PATIENCE, lambda: print(told, file=sys.stderr, flush=True))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def gather(self, vector: Tensor) -> list[Tensor]:
        """Return the vectors of all processes, of one type and any length, in main memory."""
        if self.size == 1:
            return [vector]
        with self._waiting():
            own = vector.to(self.device)
            lengths = [
                torch.zeros(1, dtype=torch.int64, device=self.device) for _ in range(self.size)
            ]
            distributed.all_gather(lengths, torch.tensor([len(own)], device=self.device))
            counts = [int(length) for length in lengths]
            padded = own.new_zeros(max(counts))
            padded[: len(own)] = own
            found = [torch.empty_like(padded) for _ in counts]
            distributed.all_gather(found, padded)
            return [part[:count].cpu() for part, count in zip(found, counts, strict=True)]

    def gather_json(self, value: Any) -> list[Any]:
        """Return the values of all processes."""
        if self.size == 1:
            return [value]
        data = bytearray(json.dumps(value).encode())
        parts = self.gather(torch.frombuffer(data, dtype=torch.uint8))
        return [json.loads(part.numpy().tobytes()) for part in parts]

    def of_first(self, value: Any) -> Any:
        """Return the value that the first process gives; what the others give does not matter."""
        return self.gather_json(value if self.first else None)[0]

    def mean(self, values: dict[str, float]) -> dict[str, float]:
        """Return the mean over the processes of each number that the first one gives."""
        said = self.gather_json(values)
        return {name: _mean([each[name] for each in said if name in each]) for name in said[0]}

    def agree_on(self, tensor: Tensor) -> None:
        """Give all processes the values that the first one has."""
        if self.size > 1:
            there = tensor.to(self.device)
            distributed.broadcast(there, src=0)
            tensor.copy_(there)


def _mean(values: list[float]) -> float:
    return values[0] if len(set(values)) == 1 else added(values) / len(values)
