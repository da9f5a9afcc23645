"""A watched loop that was killed goes on as if it had never been broken off."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
from frontdoor import answer, call_here
from judge_cases import events_of
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import proctor
from aggregates.decisions import Decision, Observation
from aggregates.forks import shared_digest
from aggregates.registry import REGISTRY
from aggregates.run import Run
from ledger.application import LedgerApplication
from monitor.errors import WatchError
from policies.deciding.rescue import RescuePolicy
from proctor.errors import ProctorError

pytestmark = pytest.mark.usefixtures("one_thread")
ROOT = Path(__file__).parents[3]
EPOCHS, KILLED = 7, 4

LOOP = """
import os, signal, sys
from pathlib import Path
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
import proctor

torch.set_num_threads(1)
home, kept, killed = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=4.0, momentum=0.9)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.9)
x = torch.randn(400, 12, generator=torch.Generator().manual_seed(1))
y = (x[:, :4] + 0.3 * x[:, 4:8]).argmax(dim=1)
saved = torch.load(kept) if kept.exists() else None
if saved:
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    schedule.load_state_dict(saved["schedule"])
with proctor.watch(
    model, optimizer, name="loop", batch_size=50, epochs=7, train_examples=400, classes=4,
    accumulation=2, policy="playbook", home=home, resume=saved and saved["proctor"],
) as run:
    for epoch in run.epochs():
        order = torch.randperm(400, generator=torch.Generator().manual_seed(100 + epoch))
        for number, at in enumerate(order.split(50)):
            loss = cross_entropy(model(x[at]), y[at])
            (loss / 2).backward()
            run.step(loss, update=number % 2 == 1)
        schedule.step()
        with torch.no_grad():
            logits = model(x)
        run.validate(loss=cross_entropy(logits, y), accuracy=(logits.argmax(1) == y).float().mean())
        if epoch == killed:
            os.kill(os.getpid(), signal.SIGKILL)
        states = {"model": model, "optimizer": optimizer, "schedule": schedule, "proctor": run}
        torch.save({name: each.state_dict() for name, each in states.items()}, kept)
"""
TOLD = """SELECT * EXCLUDE (run_id, idx, reported) FROM epochs WHERE run_id = '{}'
    ORDER BY epoch"""
RULES = """SELECT epoch, rule, fired, side, value, ema, streak FROM rule_evaluations
    WHERE run_id = '{}' ORDER BY epoch, rule"""
DECIDED = """SELECT epoch, cites, direction, params, outcome FROM decision_outcomes
    WHERE run_id = '{}' ORDER BY number"""


def train(folder: Path, *, killed: int = -1) -> int:
    script = folder / "loop.py"
    script.write_text(LOOP, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script), str(folder / "home"), str(folder / "kept.pt"), str(killed)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


def rows(home: Path, question: str, run: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = answer(
        call_here(["sql", question.format(run), "--json"], home=home)
    )
    return found


def test_loop_that_was_killed_goes_on_as_one_that_never_was(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for folder in (whole, broken):
        folder.mkdir()
    assert train(whole) == 0
    assert train(broken, killed=KILLED) == -signal.SIGKILL  # its checkpoint is of the epoch before
    assert train(broken) == 0

    (straight,) = answer(call_here(["runs", "--json"], home=whole / "home"))
    resumed, crashed = answer(call_here(["runs", "--json"], home=broken / "home"))
    assert (crashed["state"], crashed["epochs"]) == ("crashed", KILLED + 1)
    assert (resumed["state"], resumed["epochs"]) == ("completed", EPOCHS)
    assert resumed["name"] == "loop"
    for question in (TOLD, RULES, DECIDED):
        assert rows(broken / "home", question, resumed["run_id"]) == rows(
            whole / "home", question, straight["run_id"]
        )
    assert any(
        each["outcome"] == "applied" for each in rows(whole / "home", DECIDED, straight["run_id"])
    )
    after, before = torch.load(broken / "kept.pt"), torch.load(whole / "kept.pt")
    for name, value in before["model"].items():
        assert torch.equal(after["model"][name], value)

    home = broken / "home"
    told = call_here(["show"], home=home).stdout  # the newest run is the one that goes on
    assert f"goes on from run {crashed['run_id']}, equal to it up to the decisions on epoch 3" in (
        " ".join(told.split())
    )
    out = tmp_path / "run.html"
    reported = answer(call_here(["report", "--out", str(out), "--json"], home=home))
    assert reported["subject"] == resumed["run_id"]
    assert f"It was resumed: it goes on from run {crashed['run_id'][:8]}" in out.read_text()
    for command in (["judge", "loop"], ["judge", crashed["run_id"]], ["verify"]):
        done = call_here(command, home=home)
        assert done.returncode == 0, done.stdout + done.stderr
    assert call_here(["export", "bundle", "--out", str(tmp_path / "b")], home=home).returncode == 0
    assert call_here(["verify", str(tmp_path / "b")], home=home).returncode == 0


X = torch.randn(64, 6, generator=torch.Generator().manual_seed(0))


def epochs(home: Path, count: int, *, kept: Path | None = None, **options: Any) -> dict[str, Any]:
    """Train a small loop, break it off after so many epochs, and return its state."""
    torch.manual_seed(0)
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.pop("lr", 0.01))
    given = {"name": "small", "batch_size": 64, "epochs": 5, "policy": "nothing", **options}
    state: dict[str, Any] = {}
    with (
        suppress(KeyboardInterrupt),
        proctor.watch(model, optimizer, home=home, say=lambda _: None, **given) as run,
    ):
        for epoch in run.epochs():
            if len(state) == count:
                signal.raise_signal(signal.SIGINT)
            loss = cross_entropy(model(X), X.argmax(dim=1) % 3)
            loss.backward()  # type: ignore[no-untyped-call]
            run.step(loss)
            run.validate(loss=loss.item())
            state[f"{epoch}"] = run.state_dict()
            if kept is not None:
                if kept.parent.exists():
                    torch.save(model.state_dict(), kept)
                run.save(kept)
    return state


def states(home: Path) -> list[tuple[str, int]]:
    """Return state and number of epochs of the runs, the oldest first."""
    found = answer(call_here(["runs", "--json"], home=home))
    return [(each["state"], each["epochs"]) for each in reversed(found)]


def test_run_goes_on_by_its_checkpoint_its_name_or_not_at_all(tmp_path: Path) -> None:
    saved = epochs(tmp_path, 3, resume=True)  # there is nothing yet: it begins
    assert [*epochs(tmp_path, 1, resume=saved["1"])] == ["2"]
    assert [*epochs(tmp_path, 9, resume="small")] == ["3", "4"]
    assert [*epochs(tmp_path, 1, resume=True)] == ["0"]  # the newest one is complete
    assert [*epochs(tmp_path, 9, resume=True)] == ["1", "2", "3", "4"]
    assert [*epochs(tmp_path, 1, resume=None)] == ["0"]
    interrupted = [("interrupted", 3), ("interrupted", 3), ("completed", 5)]
    assert states(tmp_path) == [
        *interrupted,
        ("interrupted", 1),
        ("completed", 5),
        ("interrupted", 1),
    ]


REFUSED: list[tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]] = [
    ("other arguments: config.batch_size was 64 and is 32", lambda _: {"batch_size": 32}),
    (
        "other arguments: policy",
        lambda _: {"policy": "playbook"},
    ),
    (
        "has recorded the epochs 0 to 1: it cannot go on after epoch 9",
        lambda s: {"resume": {**s, "epoch": 9}},
    ),
    (
        r"was watched with epochs=5, and watch\(\) has epochs=20 now.* without resume=",
        lambda _: {"epochs": 20},
    ),
    ("resume= takes what run.state_dict", lambda s: {"resume": {**s, "epoch": "1"}}),
    ("resume= takes what run.state_dict", lambda _: {"resume": {"weights": 1}}),
    ("from_zero", lambda s: {"resume": {**s, "from_zero": 3}}),
    (">= 1", lambda s: {"resume": {**s, "steps": -5}}),
    ("no run has the id or name 'other'", lambda _: {"resume": "other"}),
]


@pytest.mark.parametrize(("says", "wrong"), REFUSED)
def test_what_cannot_go_on_is_refused_and_records_nothing(
    tmp_path: Path, says: str, wrong: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    saved = epochs(tmp_path, 2)["1"]
    options = {"resume": saved, **wrong(saved)}
    with pytest.raises((WatchError, ProctorError), match=says):
        epochs(tmp_path, 1, **options)
    assert states(tmp_path) == [("interrupted", 2)]


def test_run_that_another_loop_still_trains_is_not_gone_on_with(tmp_path: Path) -> None:
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    given: dict[str, Any] = {"name": "small", "batch_size": 64, "epochs": 5, "policy": "nothing"}
    with (
        proctor.watch(model, optimizer, home=tmp_path, **given) as run,
        pytest.raises(WatchError, match="still being trained by another process"),
    ):
        epochs(tmp_path, 1, resume=run.id)


def test_forged_past_of_a_resumed_run_is_rejected(tmp_path: Path) -> None:
    saved = epochs(tmp_path, 2)["1"]
    honest = epochs(tmp_path, 9, resume=saved)
    assert [*honest] == ["2", "3", "4"]
    parent = events_of(tmp_path / "ledger", saved["run"])
    with LedgerApplication.open(tmp_path / "ledger", REGISTRY) as log:
        began = parent[0]
        told = {"config", "rules", "spec", "data", "environment", "policy"}
        run = Run.start(**{name: getattr(began, name) for name in told})
        digest = shared_digest(parent, 0, decided=True)
        run.fork(saved["run"], epoch=0, digest=digest, state="", orders=[])
        first = next(each for each in parent if type(each) is Run.EpochMeasured)
        for factor in (0.5, 0.4):
            reported = {**first.reported, "validation": {"loss": factor}}
            run.measure_epoch(first.measured, reported)
            run.evaluate_rules()
        run.end("completed")
        log.save(run)
    done = call_here(["judge", str(run.id)], home=tmp_path)
    assert done.returncode == 1
    assert f"is not what run {saved['run']} recorded before it" in " ".join(done.stdout.split())
    assert call_here(["judge", next(iter(honest.values()))["run"]], home=tmp_path).returncode == 0


def test_checkpoint_of_a_resumed_loop_is_handed_over(tmp_path: Path) -> None:
    home, kept = tmp_path / "home", tmp_path / "kept.pt"
    saved = epochs(home, 3, kept=kept)["1"]
    epochs(home, 9, kept=kept, resume=saved)
    told = " ".join(call_here(["show"], home=home).stdout.split())
    assert f"file of epoch 4: kept.pt, SHA-256 {sha256(kept.read_bytes()).hexdigest()}" in told
    assert call_here(["judge"], home=home).returncode == 0
    out = tmp_path / "out"
    done = call_here(["export", "model", "latest", "--out", str(out)], home=home)
    assert done.returncode == 0, done.stderr
    assert (out / "model" / "kept.pt").read_bytes() == kept.read_bytes()
    verified = call_here(["verify", str(out)], home=tmp_path / "elsewhere")
    assert verified.returncode == 0
    reported = "reported by the training loop, not measured: epoch 4 (kept.pt)"
    card = (out / "model" / "README.md").read_text()
    assert f"| {reported} | train loss 1." in card
    assert f"| goes on from | run {saved['run']}, after epoch 1 |" in card
    assert "| sizes.train | not given to watch() |" in card
    assert f"{reported}: train loss 1." in verified.stdout
    for told in (done.stdout, verified.stdout, card.replace("\\", "")):
        assert "the evidence level is measured, so WARNED is the best verdict" in told
        assert "7 steps not_possible: deliverables, load_model" in told
        assert "step deliverables: " not in told
    (out / "model" / "kept.pt").write_bytes(b"another")
    done = call_here(["verify", str(out)], home=tmp_path / "elsewhere")
    assert (done.returncode, "kept.pt" in done.stdout + done.stderr) == (1, True)


def test_loop_that_saved_no_file_is_told_how_to(tmp_path: Path) -> None:
    epochs(tmp_path, 9)
    done = call_here(["export", "model", "latest", "--out", str(tmp_path / "out")], home=tmp_path)
    assert done.returncode == 2
    assert "in a loop of your own, run.save(FILE) does" in " ".join(done.stderr.split())


def test_file_that_is_not_there_is_named_and_closes_the_run(tmp_path: Path) -> None:
    with pytest.raises(WatchError, match=r"none/kept\.pt cannot be put on record: No such file"):
        epochs(tmp_path, 9, kept=tmp_path / "none" / "kept.pt")


def test_run_that_recorded_nothing_is_begun_anew(tmp_path: Path) -> None:
    assert epochs(tmp_path, 0, resume=True) == {}
    assert [*epochs(tmp_path, 9, resume=True)] == ["0", "1", "2", "3", "4"]
    assert states(tmp_path) == [("interrupted", 0), ("completed", 5)]


class Answering:
    """A loop that answers each firing by itself, in the name of a policy of Proctor."""

    name = "rescue"

    def __init__(self) -> None:
        self.policy = RescuePolicy()

    def describe(self) -> dict[str, Any]:
        return self.policy.describe()

    def decide(self, observation: Observation) -> list[Decision]:
        return [Decision.of((rule,), "defer", {}, "later") for rule in observation.due]


def test_decisions_in_the_name_of_another_policy_stay_violations_when_resumed(
    tmp_path: Path,
) -> None:
    """Who resumes a run answers for what it repeats: nothing is washed off by going on."""
    saved = epochs(tmp_path, 9, policy=Answering(), lr=9.0)
    *_, last = saved.values()
    epochs(tmp_path, 9, policy=Answering(), lr=9.0, resume=last)
    found = answer(call_here(["runs", "--json"], home=tmp_path))
    for each in found:
        call_here(["judge", each["run_id"]], home=tmp_path)
    after, before = answer(call_here(["runs", "--json"], home=tmp_path))
    assert after["process_score"] == before["process_score"] < 1.0


@pytest.mark.parametrize("name", [None, 5, b"kept.pt", "a\0b", "\udcff.pt", "README.md"])
def test_what_is_no_file_to_save_is_one_error(name: Any, tmp_path: Path) -> None:
    model = nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    (tmp_path / "README.md").write_text("no model")
    path = tmp_path / name if name == "README.md" else name
    with (
        pytest.raises(WatchError, match=r"save\(\) takes the path|cannot be put on record"),
        proctor.watch(model, optimizer, name="small", batch_size=8, home=tmp_path / "home") as run,
    ):
        run.save(path)


def test_loop_goes_on_behind_an_epoch_that_it_went_back_from(tmp_path: Path) -> None:
    """The state that a repeated decision put back lies before the epoch that is resumed."""

    def train(home: Path, *, until: int, resume: Any = None) -> tuple[dict[int, Any], Tensor]:
        torch.manual_seed(0)
        model = nn.Linear(6, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if resume is not None:
            model.load_state_dict(resume["model"])
        saved: dict[int, Any] = {}
        with (
            suppress(KeyboardInterrupt),
            proctor.watch(
                model,
                optimizer,
                name="spike",
                batch_size=32,
                epochs=8,
                policy="rescue",
                home=home,
                say=lambda _: None,
                resume=resume and resume["proctor"],
            ) as run,
        ):
            for epoch in run.epochs():
                if epoch == until:
                    signal.raise_signal(signal.SIGINT)
                for number, at in enumerate(torch.arange(64).chunk(4)):
                    loss = cross_entropy(model(X[at]), X[at].argmax(dim=1) % 3)
                    large = loss * (1e9 if (epoch, number) == (3, 2) else 1)
                    large.backward()  # type: ignore[no-untyped-call]
                    run.step(loss)
                told = cross_entropy(model(X), X.argmax(dim=1) % 3)
                run.validate(loss=told.item())
                weights = {name: value.clone() for name, value in model.state_dict().items()}
                saved[epoch] = {"model": weights, "proctor": run.state_dict()}
        return saved, model.weight.detach().clone()

    _, straight = train(tmp_path / "whole", until=9)
    decided = answer(
        call_here(
            ["sql", "SELECT epoch, direction, outcome FROM decision_outcomes", "--json"],
            home=tmp_path / "whole",
        )
    )
    assert {"epoch": 3, "direction": "go_back", "outcome": "applied"} in decided
    broken, _ = train(tmp_path / "again", until=4)
    _, resumed = train(tmp_path / "again", until=9, resume=broken[3])
    assert torch.equal(resumed, straight)
    done = call_here(["judge"], home=tmp_path / "again")
    assert done.returncode == 0, done.stdout
