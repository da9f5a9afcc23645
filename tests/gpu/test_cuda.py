"""Runs on a GPU and their verdicts, and loops that are watched on one: `make test-gpu`.

The loops train a causal transformer of characters. A loop that nobody watches trains the same model
on the same batches, and computes each signal from its own gradients and weights, in float64.
"""

import json
import math
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import torch
from frontdoor import TINY, answer, call, with_settings
from judge_cases import events_of
from torch import Tensor, nn
from torch.nn import functional

import proctor
from aggregates.run import Run
from monitor.config import RunConfig
from monitor.loop import train
from monitor.watching import keep_quiet
from policies.playbook import PlaybookPolicy
from proctor.home import Home

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
]
GPU = torch.device("cuda", 0)
CUDA = with_settings([*TINY, "device=cuda"], "epochs=4")


# Runs of the built-in model, by the command


def trained(home: Path, *settings: str, options: Sequence[str] = ()) -> str:
    """Return the run, or the last of those that its restarts led to."""
    done = call(["run", *with_settings(CUDA, *settings), *options, "--json"], home=home)
    return str(answer(done)["runs"][-1]["run_id"])


def judged(home: Path, run: str = "latest", **variables: str) -> tuple[Any, dict[str, Any]]:
    """Return the verdict, and what training again has shown."""
    done = call(["judge", run, "--json"], home=home, variables=variables)
    verdict = answer(done)
    assert done.returncode == verdict["hard_fail"], done.stderr
    (probe,) = (step for step in verdict["steps"] if step["name"] == "probe")
    return verdict, probe


def last_weights(home: Path, run: str) -> str:
    events = events_of(home / "ledger", run)
    return next(e.sha256 for e in events if isinstance(e, Run.WeightsSaved) and e.kind == "last")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with one run, which has a snapshot of its second epoch."""
    folder = tmp_path_factory.mktemp("gpu")
    trained(folder, "snapshots=at:1")
    return folder


def test_run_is_judged_by_training_it_again_on_the_same_gpu_bit_for_bit(home: Path) -> None:
    verdict, probe = judged(home)
    assert not verdict["hard_fail"], verdict
    executed = probe["evidence"]["executed"]
    assert (executed["done"], executed["differ"]) == (True, 0)
    assert executed["values"] > 300
    assert probe["evidence"]["same_kind_of_machine"]
    assert torch.cuda.get_device_name() in verdict["environment"]["device"]
    print(json.dumps({"judged": probe["evidence"]}))  # for a page


@pytest.mark.parametrize("policy", ["random", "rescue"])
@pytest.mark.parametrize("fault", ["lr_too_high", "no_norm_at_depth", "dead_activations"])
def test_run_with_decisions_that_go_back_or_edit_the_model_is_judged_bit_for_bit(
    tmp_path: Path, fault: str, policy: str
) -> None:
    options = ["--provoke", fault, "--policy", policy]
    run = trained(tmp_path, "epochs=6", options=options)
    verdict, probe = judged(tmp_path, run)
    assert not verdict["hard_fail"], verdict
    assert probe["evidence"]["executed"]["differ"] == 0


class Liar:
    """A log that changes one measured value on its way into the ledger, by one part in 10^12."""

    def __init__(self, log: Any, factor: float) -> None:
        self._log, self._factor = log, factor

    def save(self, run: Run) -> None:
        for event in run.pending_events:
            if isinstance(event, Run.EpochMeasured) and event.epoch == 1:
                event.measured["train"]["loss"] *= self._factor
        self._log.save(run)


@pytest.mark.parametrize(("factor", "forged"), [(1.0, False), (1 + 1e-12, True)])
def test_forged_measurement_is_named(tmp_path: Path, factor: float, forged: bool) -> None:
    place = Home(tmp_path)
    pairs = (setting.split("=") for setting in CUDA)
    values = {key: value if key == "device" else int(value) for key, value in pairs}
    run_id = uuid4()
    with place.open_log() as log:
        saving: Any = Liar(log, factor)
        train(
            RunConfig.from_dict(values),
            PlaybookPolicy(),
            log=saving,
            blobs=place.blobs,
            run_id=run_id,
            submission_dir=place.submission(run_id),
        )
    verdict, probe = judged(tmp_path, str(run_id))
    assert verdict["hard_fail"] is forged
    executed = probe["evidence"]["executed"]
    assert executed["differ"] == forged
    if forged:
        assert "retrained: 1 of " in probe["summary"]
        assert executed["first"]["place"].endswith("measured.train.loss")


@pytest.mark.parametrize("options", [[], ["--from-start"]])
def test_fork_goes_on_to_the_same_weights(home: Path, options: list[str]) -> None:
    made = answer(
        call(["fork", "--at", "1", "--policy", "recorded", *options, "--json"], home=home)
    )
    (fork,) = (each["run"] for each in made["forks"])
    assert last_weights(home, fork) == last_weights(home, made["parent"])
    verdict, probe = judged(home, fork)
    assert not verdict["hard_fail"], verdict
    assert probe["evidence"]["executed"]["differ"] == 0


def test_fork_of_an_interrupted_run_ends_as_if_there_had_been_no_interruption(
    tmp_path: Path,
) -> None:
    settings = with_settings(CUDA, "epochs=20", "train_examples=2000")
    whole = trained(tmp_path, *settings)
    command = [sys.executable, "-m", "proctor", "run", *settings, "--home", f"{tmp_path}/broken"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    database = tmp_path / "broken" / "ledger" / "ledger.sqlite"
    while process.poll() is None and entries_in(database) < 12:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in errors) == (130, False), errors
    home = tmp_path / "broken"
    shown = answer(call(["show", "--json"], home=home))["summary"]
    assert shown["state"] == "interrupted"
    again = call(["replay", "--execute", "--json"], home=home)
    assert answer(again)["total"] == 0  # nothing was handed in, so there is no verdict
    made = answer(call(["fork", "--at", "2", "--policy", "recorded", "--json"], home=home))
    (fork,) = (each["run"] for each in made["forks"])
    assert last_weights(home, fork) == last_weights(tmp_path, whole)


def entries_in(database: Path) -> int:
    try:
        with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
            (count,) = connection.execute("SELECT COUNT(*) FROM entries").fetchone()
    except sqlite3.OperationalError:
        return 0
    return int(count)


def test_judge_without_a_gpu_says_that_it_did_not_train_the_run_again(home: Path) -> None:
    verdict, probe = judged(home, CUDA_VISIBLE_DEVICES="")
    assert not verdict["hard_fail"], verdict
    executed = probe["evidence"]["executed"]
    assert not executed["done"]
    assert "device; the run needs a CUDA device, and this machine has none" in executed["summary"]
    assert torch.cuda.get_device_name() in executed["summary"]
    done = call(
        ["fork", "--at", "2", "--policy", "nothing"],
        home=home,
        variables={"CUDA_VISIBLE_DEVICES": ""},
    )
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "no CUDA device was found: use a machine that has one" in " ".join(done.stderr.split())
    print(json.dumps({"judged without": probe["evidence"]}))  # for a page


def test_gpu_without_free_memory_is_named(tmp_path: Path) -> None:
    code = (
        "import torch; torch.cuda.set_per_process_memory_fraction(1e-6)\n"
        "from proctor.cli.main import main; main()"
    )
    done = call(["run", *CUDA], home=tmp_path, code=code)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert "out of memory" in done.stderr


def test_run_on_the_cpu_leaves_the_gpu_alone(tmp_path: Path) -> None:
    code = (
        "import torch\n"
        "from proctor.cli.main import main\n"
        "try:\n    main()\n"
        "finally:\n    print('started', torch.cuda.is_initialized())"
    )
    done = call(["run", *TINY], home=tmp_path, code=code)
    assert done.returncode == 0, done.stderr
    assert "started False" in done.stdout


# Loops under watch


class CharTransformer(nn.Module):
    """Predicts the next character: causal attention, GELU, layer norms first."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(128, width)
        self.place = nn.Parameter(torch.randn(32, width) * 0.02)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 128)

    def forward(self, text: Tensor) -> Tensor:
        """Return the mean cross-entropy of the characters (B, T + 1), each after those before."""
        before, target = text[:, :-1], text[:, 1:]
        embedded = self.tokens(before.to(self.tokens.weight.device)).to(self.place.device)
        x = embedded + self.place  # (B, T, width)
        for layer in self.layers:
            x = layer(x)
        logits = self.head(self.norm(x))  # (B, T, 128)
        return functional.cross_entropy(logits.flatten(0, 1), target.flatten())


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.attention(self.first(x)).unflatten(2, (3, 4, -1))  # (B, T, 3, heads, size)
        query, key, value = (part.transpose(1, 2) for part in parts.unbind(2))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        changed: Tensor = x + self.down(functional.gelu(self.up(self.second(x))))
        return changed


@dataclass(frozen=True)
class Way:
    """How a loop computes."""

    width: int = 64  # 2 layers: 120,000 parameters; with 256, 1.7 million, which no watch copies
    half: torch.dtype | None = None  # of autocast
    scaled: bool = False  # by a GradScaler that overflows in the first steps
    fused: bool = False
    compiled: str | None = None  # mode of torch.compile
    embedding: str = "cuda"  # where it lies
    steps: int = 12  # of an epoch; below 16, each step has its update ratio


WAYS = {
    "fp32": Way(),
    "fp32-large": Way(width=256),
    "fp32-fused": Way(fused=True),
    "bf16": Way(half=torch.bfloat16),
    "bf16-large-fused": Way(width=256, half=torch.bfloat16, fused=True),
    "fp16": Way(half=torch.float16, scaled=True),
    "fp16-fused": Way(half=torch.float16, scaled=True, fused=True),
    "embedding-on-the-cpu": Way(embedding="cpu"),
    "compiled": Way(compiled="default"),
    "compiled-bf16-cuda-graphs": Way(compiled="reduce-overhead", half=torch.bfloat16),
}
EPOCHS = 3


@dataclass
class Trained:
    """What a loop has come to."""

    model: CharTransformer
    losses: list[float] = field(default_factory=list)  # of all steps
    epochs: list[dict[str, Any]] = field(default_factory=list)  # signals of each
    skipped: int = 0


@pytest.fixture(autouse=True)
def deterministic(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a user sets whose training is to be repeated."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(before)


def texts(count: int) -> list[Tensor]:
    """Return batches (16, 33) of this file's own text."""
    data = Path(__file__).read_bytes()[:8_000]
    text = torch.tensor([min(each, 127) for each in data])
    draws = torch.Generator().manual_seed(0)
    starts = torch.randint(0, len(text) - 33, (count, 16), generator=draws)
    return [torch.stack([text[at : at + 33] for at in row]).to(GPU) for row in starts.tolist()]


def build(way: Way) -> tuple[CharTransformer, Any, torch.optim.Optimizer, Any]:
    """Return the model, what is called, the optimizer and the scaler."""
    torch.manual_seed(1)
    model = CharTransformer(way.width, 2).to(GPU)
    model.tokens.to(way.embedding)
    called: Any = model
    if way.compiled is not None:
        torch.compiler.reset()
        called = torch.compile(model, mode=way.compiled)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=way.fused or None)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**20) if way.scaled else None
    return model, called, optimizer, scaler


def backward(way: Way, called: Any, text: Tensor, scaler: Any) -> Tensor:
    torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]  # has no types
    context: Any = torch.autocast("cuda", dtype=way.half) if way.half else nullcontext()
    with context:
        loss: Tensor = called(text)
    torch.autograd.backward(loss if scaler is None else scaler.scale(loss))
    return loss


def train_plain(way: Way) -> Trained:
    """Train in a loop of one's own, and compute what a watch measures."""
    model, called, optimizer, scaler = build(way)
    parameters, found = dict(model.named_parameters()), Trained(model)
    batches = texts(way.steps)
    for _ in range(EPOCHS):
        losses, totals = [], []
        norms: dict[str, list[float]] = {name: [] for name in parameters}
        ratios: dict[str, list[float]] = {name: [] for name in parameters}
        zero = {name for name, each in parameters.items() if not each.any()}
        for text in batches:
            losses.append(float(backward(way, called, text, scaler).detach()))
            if scaler is not None:
                scaler.unscale_(optimizer)
            squares = {n: float(p.grad.double().square().sum()) for n, p in parameters.items()}  # type: ignore[union-attr]
            before = {name: each.detach().clone() for name, each in parameters.items()}
            if scaler is None:
                optimizer.step()
                taken = True
            else:
                scale = scaler.get_scale()
                scaler.step(optimizer)
                scaler.update()
                taken = scaler.get_scale() >= scale
            optimizer.zero_grad(set_to_none=True)
            if not taken:
                found.skipped += 1
                continue
            totals.append(math.sqrt(sum(squares.values())))
            for name, each in parameters.items():
                norms[name].append(math.sqrt(squares[name]))
                change = (each.detach().double() - before[name].double()).norm()
                ratios[name].append(float(change / before[name].double().norm()))
        found.losses += losses
        found.epochs.append(
            {
                "loss": sum(losses) / len(losses),
                "total": sum(totals) / len(totals),
                "norms": {name: sum(each) / len(each) for name, each in norms.items()},
                "ratios": {
                    name: sum(each) / len(each)
                    for name, each in ratios.items()
                    if name not in zero  # to what would its update be related
                },
            }
        )
    return found


def train_watched(way: Way, home: Path) -> tuple[Trained, str]:
    """Train the same under watch; return the run's id as well."""
    model, called, optimizer, scaler = build(way)
    found, batches = Trained(model), texts(way.steps)
    losses: list[Tensor] = []
    watching = partial(proctor.watch, called, optimizer, batch_size=16, home=home, say=keep_quiet)
    with watching(name="characters", epochs=EPOCHS) as run:
        for _ in run.epochs():
            for text in batches:
                loss = backward(way, called, text, scaler)
                losses.append(loss.detach().clone())
                run.step(loss, scaler=scaler)
            run.validate(loss=1.0)
    found.losses = torch.stack(losses).tolist()
    for event in events_of(home / "ledger", run.id):
        if isinstance(event, Run.EpochMeasured):
            layers = event.measured["layers"]
            found.skipped += event.measured["train"]["skipped"]
            found.epochs.append(
                {
                    "loss": event.reported["train"]["loss"],
                    "total": event.measured["gradients"]["total_norm_mean"],
                    "norms": {layer["name"]: layer["grad_norm"] for layer in layers},
                    "ratios": {
                        layer["name"]: layer["update_ratio"]
                        for layer in layers
                        if layer["update_ratio"] is not None
                    },
                    "finite": event.measured["gradients"]["finite"],
                    "activations": event.measured["activations"],
                }
            )
    return found, run.id


@pytest.mark.parametrize("name", WAYS)
def test_watched_loop_trains_as_the_plain_one_and_its_signals_are_true(
    name: str, tmp_path: Path
) -> None:
    way = WAYS[name]
    plain = train_plain(way)
    watched, run = train_watched(way, tmp_path)
    assert watched.losses == plain.losses
    assert plain.losses[-1] < plain.losses[0]
    for (which, one), other in zip(
        plain.model.named_parameters(), watched.model.parameters(), strict=True
    ):
        assert torch.equal(one, other), which
    assert watched.skipped == plain.skipped
    assert bool(plain.skipped) is way.scaled
    for epoch, (own, seen) in enumerate(zip(plain.epochs, watched.epochs, strict=True)):
        assert seen["finite"]
        for key in ("loss", "total"):
            assert seen[key] == pytest.approx(own[key], rel=1e-4), (epoch, key)
        for key in ("norms", "ratios"):
            # A tensor that began at zero has no ratio while it grows.
            assert {*plain.epochs[0][key]} <= {*seen[key]}, (epoch, key)
            expected = {name: value for name, value in own[key].items() if name in seen[key]}
            found = {name: seen[key][name] for name in expected}
            assert found == pytest.approx(expected, rel=1e-3), (epoch, key)
        assert bool(seen["activations"]) is (way.compiled is None)
    started = events_of(tmp_path / "ledger", run)[0]
    assert "cuda:0 (" + torch.cuda.get_device_name() in started.environment["device"]
    assert not answer(call(["judge", run, "--json"], home=tmp_path))["hard_fail"]


@pytest.mark.parametrize("name", ["fp32", "fp32-large", "fp32-fused", "bf16"])
def test_watched_step_never_waits_for_the_gpu(name: str, tmp_path: Path) -> None:
    way = WAYS[name]
    _, called, optimizer, _ = build(way)
    batches = texts(40)
    watching = partial(proctor.watch, called, optimizer, batch_size=16, home=tmp_path)
    with watching(name="no waiting", say=keep_quiet, clip_norm=1.0) as run:
        for epoch in run.epochs(2):
            for at, text in enumerate(batches):
                if at == 1 or epoch:  # what is made once may wait once
                    torch.cuda.set_sync_debug_mode("error")
                run.step(backward(way, called, text, None))
            torch.cuda.set_sync_debug_mode("default")
            run.validate(loss=1.0)


def test_loss_as_a_number_is_taken_beside_one_on_the_gpu(tmp_path: Path) -> None:
    way = WAYS["fp32"]
    _, called, optimizer, _ = build(way)
    watching = partial(proctor.watch, called, optimizer, batch_size=16, home=tmp_path)
    with watching(name="numbers", say=keep_quiet) as run:
        for _ in run.epochs(1):
            for number, text in enumerate(texts(4)):
                loss = backward(way, called, text, None)
                run.step(float(number) if number % 2 else loss * 0 + number)
            run.validate(loss=torch.tensor(1.0, device=GPU))  # type: ignore[arg-type]
    event = events_of(tmp_path / "ledger", run.id)
    (measured,) = (each for each in event if isinstance(each, Run.EpochMeasured))
    assert measured.reported["train"]["loss"] == 1.5


@pytest.mark.parametrize("name", ["fp32-fused", "bf16"])
def test_hot_transformer_goes_back_to_its_first_weights_bit_for_bit(
    name: str, tmp_path: Path
) -> None:
    """AdamW's default rate times 1,000, under the policy rescue and under none."""
    ends = {}
    for policy in ("nothing", "rescue"):
        way = WAYS[name]
        model, called, optimizer, _ = build(way)
        for group in optimizer.param_groups:
            group["lr"] = 1.0
        first = [each.detach().clone() for each in model.parameters()]
        batches, states = texts(60), []
        watching = partial(proctor.watch, called, optimizer, batch_size=16, home=tmp_path)
        with watching(name=policy, policy=policy, say=keep_quiet, epochs=5) as run:
            for _ in run.epochs():
                for text in batches[:50]:
                    run.step(backward(way, called, text, None))
                with torch.no_grad():
                    told = torch.stack([called(text) for text in batches[50:]]).mean()
                run.validate(loss=float(told))
                states.append([each.detach().clone() for each in model.parameters()])
        ends[policy] = float(told)
        back = [
            event.epoch
            for event in events_of(tmp_path / "ledger", run.id)
            if isinstance(event, Run.RemedyApplied)
        ]
        assert bool(back) is (policy == "rescue")
        if back:
            assert all(map(torch.equal, states[back[0]], first))
        assert not answer(call(["judge", run.id, "--json"], home=tmp_path))["hard_fail"]
    print(json.dumps({"hot": ends}))  # for a page
    assert ends["rescue"] < ends["nothing"]
