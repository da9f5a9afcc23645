"""What watching costs on a GPU, and how fast the built-in model trains there.

    python docs/studies gpu [--rounds 8] [--epochs 2] [--device cuda] [--small] [--out FILE]

Step: three arms train the same model on the same batches: plain, plain again, and watched by
`proctor.watch` (transformers) or by the loop of `proctor run` (residual networks). Each round
trains an epoch of each arm, in an order that changes, and takes the time on the clock until the GPU
is idle. A ratio is that of one round; the two plain arms tell how far equal work differs. What a
watched epoch takes at its end, for reading the GPU and appending to the ledger, is apart. Epoch:
`proctor run`'s own loop, with measuring, validation and the ledger. The output is JSON. Each
part is also written to standard error when it is done. It takes some minutes.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise, permutations
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from monitor.computing import computing_as
from monitor.config import RunConfig
from monitor.environment import describe_gpu
from monitor.loop import prepare, train
from monitor.state import LiveState
from monitor.watching import WatchedRun, keep_quiet
from policies.playbook import PlaybookPolicy
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.output.files import verify_target, write_output
from proctor.runs.watching import watch
from studies.speed.monitor import train_network, train_own
from studies.speed.timing import machine

Arm = Callable[[int], Iterator[None]]  # trains an epoch, step by step
_STEPS = 48  # of an epoch of a transformer


@dataclass(frozen=True)
class Kind:
    """A transformer, and what it is trained on."""

    name: str
    width: int
    layers: int
    tokens: int  # of an example
    batch: int
    half: bool  # whether it computes in bfloat16, by autocast


_TRANSFORMERS = (
    Kind("transformer, small", 192, 6, 64, 8, half=False),
    Kind("transformer, large", 768, 12, 256, 16, half=True),
)
_NETWORKS = (  # name, channels, blocks
    ("residual network, default", 32, 2),
    ("residual network, large", 128, 8),
)
_RUNS = (("default", 32, 2), ("large", 64, 4))  # likewise


class LanguageModel(nn.Module):
    """Predicts the next of 256 tokens, each from those before it."""

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self.mixed, width = kind.half, kind.width
        self.tokens = nn.Embedding(256, width)
        self.place = nn.Parameter(torch.randn(kind.tokens, width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            width, width // 64, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, kind.layers, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 256))
        ahead = torch.full((kind.tokens, kind.tokens), float("-inf")).triu(1)
        self.register_buffer("ahead", ahead, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits (B * T, 256) of the tokens (B, T)."""
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=self.mixed):
            x = self.tokens(tokens) + self.place
            logits: Tensor = self.head(self.layers(x, mask=self.ahead, is_causal=True))
        return logits.flatten(0, 1).float()


def measure_transformer(kind: Kind, *, rounds: int, device: str) -> dict[str, Any]:
    """Compare plain and watched training of a transformer."""
    torch.manual_seed(0)
    shape, size = (kind.batch, kind.tokens + 1), kind.batch
    drawn = [torch.randint(0, 256, shape, device=device) for _ in range(_STEPS)]
    batches = [(each[:, :-1], each[:, 1:].flatten()) for each in drawn]
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="proctor-gpu-")))
        models, arms = [], list[Arm]()
        for watched in (False, False, True):
            torch.manual_seed(1)
            model = LanguageModel(kind).to(device)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
            run: WatchedRun | None = None
            if watched:
                run = stack.enter_context(
                    watch(model, optimizer, name="gpu", batch_size=size, home=home, say=keep_quiet)
                )
            models.append(model)
            arms.append(partial(train_own, model, optimizer, batches, run=run))
        found = _compare(kind.name, models, arms, rounds=rounds, device=device)
        precision = "bfloat16" if kind.half else "float32"
        return {**found, "precision": precision, "batch": [size, kind.tokens]}


def measure_network(
    name: str, channels: int, blocks: int, *, rounds: int, device: str
) -> dict[str, Any]:
    """Compare plain training of the built-in network with that of `proctor run`."""
    config = RunConfig(channels=channels, width=channels, blocks=blocks, device=device)
    splits = prepare(config)
    spec = config.spec(len(splits.classes))
    with computing_as(config):
        states = [LiveState.start(config, spec, train_examples=len(splits.train)) for _ in range(3)]
        arms: list[Arm] = [
            partial(train_network, state, splits, watched=watched)
            for state, watched in zip(states, (False, False, True), strict=True)
        ]
        models = [state.model for state in states]
        said = {"precision": "float32", "batch": [config.batch_size, 32, 32]}
        return {**_compare(name, models, arms, rounds=rounds, device=device), **said}


def _compare(
    name: str, models: Sequence[nn.Module], arms: Sequence[Arm], *, rounds: int, device: str
) -> dict[str, Any]:
    orders = list(permutations(range(3)))
    steps = sum(1 for _ in arms[0](0))
    for arm in arms[1:]:
        for _ in arm(0):
            pass
    times, ends = [], []
    for number in range(1, rounds + 2):  # one more to warm up
        spent, end = [0.0] * 3, 0.0
        for place in orders[number % len(orders)]:
            epoch = arms[place](number)
            began = _now(device)
            for _ in islice(epoch, steps):
                pass
            spent[place] = _now(device) - began
            end = _now(device)
            next(epoch, None)
            end = _now(device) - end
            if place == len(arms) - 1:
                ends.append(end)
        times.append(spent)
    for one, other in zip(models[0].parameters(), models[-1].parameters(), strict=True):
        if not torch.equal(one, other):
            raise ProctorError(f"{name}: the watched training differs from the plain one")
    kept = times[1:]
    plain = [(first * second) ** 0.5 for first, second, _ in kept]
    return {
        "model": name,
        "parameters": sum(each.numel() for each in models[0].parameters()),
        "step_ms": 1_000 * statistics.median(plain) / steps,
        "watched_ms": 1_000 * statistics.median(watched for *_, watched in kept) / steps,
        "watched_over_plain": _spread([t[2] / own for t, own in zip(kept, plain, strict=True)]),
        "plain_over_plain": _spread([second / first for first, second, _ in kept]),
        "end_of_epoch_ms": 1_000 * statistics.median(ends[1:]),
        "rounds": rounds,
        "steps": steps,
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    found = {"median": middle, "quarter": low, "three_quarters": high}
    return {**found, "least": min(values), "most": max(values)}


def _now(device: str) -> float:
    """Return the time on the clock, in s, when the device has done all that it was given."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def measure_epochs(
    name: str, channels: int, blocks: int, *, epochs: int, device: str, threads: int
) -> dict[str, Any]:
    """Return the seconds from one epoch's end to the next in the built-in loop, with a ledger."""
    config = RunConfig(
        channels=channels,
        width=channels,
        blocks=blocks,
        device=device,
        threads=threads,
        epochs=epochs + 1,
    )
    ends: list[float] = []
    with tempfile.TemporaryDirectory(prefix="proctor-gpu-") as folder:
        home = Home(Path(folder))
        with home.open_log() as log:
            train(
                config,
                PlaybookPolicy(),
                log=log,
                blobs=home.blobs,
                on_epoch=lambda *_: ends.append(time.perf_counter()),
            )
    seconds = [after - before for before, after in pairwise(ends)]
    return {
        "run": name,
        "device": device,
        "threads": threads,
        "parameters": sum(each.numel() for each in _model(config).parameters()),
        "seconds_an_epoch": statistics.median(seconds),
        "least": min(seconds),
        "most": max(seconds),
        "epochs": len(seconds),
    }


def _model(config: RunConfig) -> nn.Module:
    return LiveState.start(config, config.spec(10), train_examples=1).model


def measure(*, rounds: int, epochs: int, device: str, small: bool = False) -> dict[str, Any]:
    """Measure everything; `small` leaves the large models out."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True)
    count = 1 if small else 2
    common: dict[str, Any] = {"rounds": rounds, "device": device}
    steps = [_told(measure_transformer(each, **common)) for each in _TRANSFORMERS[:count]]
    steps += [_told(measure_network(*each, **common)) for each in _NETWORKS[:count]]
    places = dict.fromkeys(((device, 2), ("cpu", 2), ("cpu", os.cpu_count() or 1)))
    runs = [
        _told(measure_epochs(*each, epochs=epochs, device=on, threads=threads))
        for each in _RUNS[:count]
        for on, threads in places
        if each is _RUNS[0] or (on, threads) != ("cpu", 2)  # two threads would take minutes
    ]
    return {
        "gpu": describe_gpu(),
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "machine": machine(),
        "steps": steps,
        "epochs": runs,
    }


def _told(row: dict[str, Any]) -> dict[str, Any]:
    """Say that a part is done: all of them take minutes."""
    sys.stderr.write(json.dumps(row) + "\n")
    return row


def main(arguments: Sequence[str]) -> None:
    """Measure, and write what was found as JSON."""
    parser = argparse.ArgumentParser(
        prog="python docs/studies gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=8, help="Rounds of a model (default: 8).")
    parser.add_argument("--epochs", type=int, default=2, help="Epochs of a run (default: 2).")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="What trains.")
    parser.add_argument("--small", action="store_true", help="Leave the large models out.")
    parser.add_argument("--out", type=Path, metavar="FILE", help="File to write to.")
    options = parser.parse_args(arguments)
    if options.rounds < 2 or options.epochs < 1:
        parser.error("give two rounds and one epoch, or more")
    if options.device == "cuda" and not torch.cuda.is_available():
        raise ProctorError("torch sees no CUDA device; --device cpu measures the processor")
    if options.out is not None:
        verify_target(options.out)
    found = measure(
        rounds=options.rounds, epochs=options.epochs, device=options.device, small=options.small
    )
    text = json.dumps(found, indent=1) + "\n"
    if options.out is None:
        sys.stdout.write(text)
    else:
        write_output(options.out, text)
