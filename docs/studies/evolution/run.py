"""An unattended evolution of what decides on trainings, and what came of it on others.

    python docs/studies evolution FOLDER [--promotions 6] [--rounds 80] [--starts 60]
        [--workers 2]

It does everything by the commands that anybody has: a clone of this repository with weak policies
is put under the gauntlet; a program that knows nothing proposes, round after round; what trainings
show to be better is promoted. Half way, people adopt a change that ruins runs. Drift is noticed,
the checkpoint found by bisection and rolled back; its runs are tainted, and left out of the
training data that is exported; evolution goes on. At last each checkpoint decides on trainings that
no proposer and no gate has seen, and the ledger is written as a bundle that the second verifier
holds.

What was done stays done: the same command goes on after a kill.
I/O: FOLDER; a server on loopback.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from proctor.pages.charts.drawing import Chart, on_white
from proctor.pages.charts.rows import intervals
from proctor.runs.standings import paired_interval
from studies.evolution.beginning import RESCUE, git, make_repository

_ROOT = Path(__file__).resolve().parents[3]
_HERE = Path(__file__).parent
# What people adopt half way: it sounds careful, and nothing is saved any more.
RUIN = (
    "        decisions = super().decide(observation)\n",
    """\
        decisions = [
            Decision.of(each.cites, "defer", {}, "More evidence is awaited.") if each.acts else each
            for each in super().decide(observation)
        ]
""",
)
# Settings of people's own runs that need a decision: rates far too high, and one far too low.
SETTINGS = ("lr=4.0", "lr=8.0", "lr=6.0", "lr=0.0001", "lr=5.0")
OPERATOR = "operator.pem"
_RUN = (
    *("epochs=8", "train_examples=400", "val_examples=300", "test_examples=200", "channels=12"),
    *("width=12", "stem_stride=4", "threads=1", "batch_size=32", "profile=relative"),
)


@dataclass(frozen=True)
class Evolution:
    """The folder in which all of it lies."""

    folder: Path

    @property
    def repo(self) -> Path:
        """The repository that evolves."""
        return self.folder / "repo"

    @property
    def home(self) -> Path:
        """The home with the ledger."""
        return self.folder / "home"

    def proctor(self, *words: str, may: Sequence[int] = (0,), own: bool = False) -> str:
        """Run a command and return what it prints; `own`: as the evolving repository has it."""
        code = self.repo if own else _ROOT
        command = (sys.executable, "-m", "proctor", *words)
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("PROCTOR_")},
            "PROCTOR_HOME": str(self.home),
            "PYTHONPATH": str(code),
        }
        told = subprocess.run(
            command,
            check=False,
            cwd=code if own else self.folder,
            env=environment,
            capture_output=True,
            text=True,
        )
        with (self.folder / "log.txt").open("a", encoding="utf-8") as log:
            log.write(f"$ proctor {' '.join(words)}\n{told.stdout}{told.stderr}")
            log.write(f"(exit code {told.returncode})\n")
        if told.returncode not in may:
            raise SystemExit(f"proctor {' '.join(words)}: {told.returncode}\n{told.stderr}")
        return told.stdout

    def line(self, *words: str, may: Sequence[int] = (0,)) -> str:
        """Run a command of the line."""
        return self.proctor("line", *words, "--repo", str(self.repo), may=may)

    def ask(self, question: str) -> dict[str, Any]:
        """Return the only row of an answer in SQL."""
        found: list[dict[str, Any]] = json.loads(self.proctor("sql", question, "--json"))
        return found[0]

    @property
    def checkpoints(self) -> list[dict[str, Any]]:
        """What `line show` says of the checkpoints, the first one first."""
        found: list[dict[str, Any]] = json.loads(self.line("show", "--json"))["checkpoints"]
        return found

    @property
    def promoted(self) -> list[dict[str, Any]]:
        """The checkpoints that the gate promoted and that stand."""
        return [c for c in self.checkpoints if c["proposals"] and c["rolled_back"] is None]

    def done(self, stage: str) -> bool:
        """Whether a stage is over; what it told is in its file."""
        return (self.folder / f"{stage}.txt").exists()

    def finish(self, stage: str, told: str = "") -> None:
        """Put on file what a stage told."""
        (self.folder / f"{stage}.txt").write_text(told, encoding="utf-8")
        say(f"{stage}: done")


def say(what: str) -> None:
    """Tell the terminal."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {what}\n")
    sys.stdout.flush()


@contextmanager
def proposer(seed: int) -> Iterator[str]:
    """Serve the program that proposes, and give its address."""
    command = (sys.executable, str(_HERE / "mutator.py"), "--seed", str(seed))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def evolve(all_: Evolution, *, promotions: int, rounds: int, seed: int, workers: int) -> None:
    """Go through rounds until so many checkpoints stand that the gate promoted."""
    with proposer(seed) as address:
        while len(standing := all_.promoted) < promotions:
            told = json.loads(
                all_.proctor("sql", "SELECT count(*) n FROM evolution_rounds", "--json")
            )
            if told[0]["n"] >= rounds:
                say(f"{rounds} rounds are over, with {len(standing)} promotions of {promotions}")
                return
            asked = ("--proposals", "1", "--probes", "0", "--workers", str(workers))
            model = ("--set", "model=mutator", "--set", f"base_url={address}")
            all_.line("evolve", *asked, *model, may=(0, 1))
            last = all_.ask("SELECT round FROM evolution_rounds ORDER BY round DESC LIMIT 1")
            one = all_.ask("SELECT * FROM infra_proposals ORDER BY idx DESC LIMIT 1")
            what = one["rationale"].splitlines()[0]
            say(f"round {last['round']}: {what}: {one['status']}: {one['reason'][:90]}")


def begin(all_: Evolution) -> None:
    """Make the repository, the operator's key and the baseline of drift."""
    if not all_.repo.exists():
        make_repository(_ROOT, all_.repo)
    if not all_.done("operator"):
        key = str(all_.folder / OPERATOR)
        all_.line("show")
        all_.proctor("keys", "new", "operator", key)
        all_.finish("operator", all_.proctor("keys", "grant", "operator", f"{key}.vkey"))
    if not all_.done("baseline"):  # of few evaluations: what is noticed here are runs
        all_.finish("baseline", all_.line("watch", "--baseline", "10", may=(0, 1)))


def train_under(all_: Evolution, stage: str, *settings: str) -> None:
    """Train runs with the evolving repository's own code, which labels them with its checkpoint."""
    if all_.done(stage):
        return
    git(all_.repo, "switch", "--quiet", "--detach", "main")
    for number, setting in enumerate(settings):
        asked = (*_RUN, setting, f"seed={number}", "--policy", "rescue")
        all_.proctor("run", *asked, own=True, may=(0, 1))
    all_.finish(stage)


def plant(all_: Evolution) -> None:
    """Have people adopt a change that ruins runs."""
    if all_.done("planted"):
        return
    git(all_.repo, "switch", "--quiet", "main")
    place = all_.repo / RESCUE
    text = place.read_text()
    assert text.count(RUIN[0]) == 1
    place.write_text(text.replace(*RUIN))
    git(all_.repo, "commit", "--quiet", "--all", "--message", "Wait for more evidence")
    git(all_.repo, "switch", "--quiet", "--detach", "main")
    key = ("--key", str(all_.folder / OPERATOR))
    all_.finish("planted", all_.line("sign", "adopt", *key, "--note", "it looks careful"))


def find(all_: Evolution) -> None:
    """Notice that runs fail, name the checkpoint by bisection, and roll it back."""
    key = ("--key", str(all_.folder / OPERATOR))
    if not all_.done("noticed"):
        all_.finish("noticed", all_.line("watch", "--show", may=(0, 1)))
    if not all_.done("bisected"):
        good = all_.promoted[-1]["checkpoint"]
        told = all_.line(
            *("bisect", "--good", all_.checkpoints[0]["checkpoint"][:12], "--bad", "active"),
            *("--command", "{python} {files}/oracle.py", "--file", str(_HERE / "oracle.py")),
            *("--seconds", "600"),
            may=(0, 1),
        )
        all_.finish("bisected", f"{told}the last that the gate promoted: {good}\n")
    if not all_.done("rolled back"):
        why = ("--reason", "Runs fail under it, and bisection names it.")
        all_.finish("rolled back", all_.line("rollback", "active", *why, *key))
    if not all_.done("answered"):
        alarms = json.loads(all_.line("show", "--json"))["open_alarms"]
        for alarm in alarms:
            all_.line("sign", "answer", str(alarm["number"]), "--note", "rolled back", *key)
        all_.finish("answered", json.dumps(alarms))


def export_data(all_: Evolution) -> None:
    """Judge each run with the code that it ran with, and export what may become training data."""
    if all_.done("data"):
        return
    rows = all_.proctor("sql", "SELECT run_id, checkpoint FROM run_standing ORDER BY idx", "--json")
    commits = {each["checkpoint"]: each["commit"] for each in all_.checkpoints}
    for each in json.loads(rows):
        git(all_.repo, "switch", "--quiet", "--detach", commits[each["checkpoint"]])
        all_.proctor("judge", each["run_id"], own=True, may=(0, 1))
    key = ("--key", str(all_.folder / OPERATOR), "--note", "drawn and written here")
    for each in json.loads(all_.proctor("data", "list", "--json"))["origins"]:
        if each["runs"]:
            all_.proctor("data", "admit", each["kind"], each["name"], *key)
    out = all_.folder / "data.jsonl"
    out.unlink(missing_ok=True)
    told = all_.proctor("export", "data", "--kind", "sft", "--out", str(out), may=(0, 1))
    asked = "SELECT tainted, count(*) runs, sum(usable::INT) usable FROM run_standing GROUP BY 1"
    all_.finish("data", told + all_.proctor("sql", asked))


def hand_over(all_: Evolution) -> None:
    """List which runs are tainted, and write the ledger as a bundle that is verified."""
    if not all_.done("standing"):
        asked = "SELECT run_id, tainted, taint_reasons FROM run_standing ORDER BY run_id"
        told = all_.proctor("sql", asked)
        all_.finish("standing", told)
    bundle = all_.folder / "evolution.bundle"
    if not all_.done("verified"):
        shutil.rmtree(bundle, ignore_errors=True)
        told = all_.proctor("export", "bundle", "--out", str(bundle))
        verifier = _ROOT / "ledger/handover/second_verifier.py"
        vkey = all_.home / "ledger/ledger.vkey"
        command = (sys.executable, "-I", str(verifier), str(bundle), "--vkey", str(vkey))
        found = subprocess.run(command, check=False, capture_output=True, text=True)
        all_.finish("verified", f"{told}{found.stdout}{found.stderr}exit code {found.returncode}\n")


def measure(all_: Evolution, starts: int) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Return what each checkpoint is worth on unseen trainings; what is on file is kept."""
    found = []
    for each in all_.checkpoints:
        place = all_.folder / f"unseen-{each['commit'][:12]}.jsonl"
        if not place.exists():
            tree = all_.folder / "tree"
            shutil.rmtree(tree, ignore_errors=True)
            tree.mkdir()
            archive = ("git", "-C", str(all_.repo), "archive", each["commit"])
            with subprocess.Popen(archive, stdout=subprocess.PIPE) as packed:
                subprocess.run(("tar", "-x", "-C", str(tree)), stdin=packed.stdout, check=True)
            command = (sys.executable, str(_HERE / "unseen.py"), str(starts))
            environment = {**os.environ, "PYTHONPATH": str(tree)}
            told = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment)
            draft = place.with_suffix(".draft")
            draft.write_bytes(told.stdout)
            draft.rename(place)
            say(f"measured {each['commit'][:12]} on unseen trainings")
        found.append((each, [json.loads(line) for line in place.read_text().splitlines()]))
    return found


def share(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float, float]:
    """Return what was recovered of all that the faults cost, with its 95% interval."""
    lost = fmean(each["healthy"] - each["nothing"] for each in rows)
    gains = [(each["own"] - each["nothing"]) / lost for each in rows]
    return fmean(gains), *paired_interval(gains)


def table(found: Sequence[tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]]) -> Iterator[str]:
    """Give the rows of the page: what each checkpoint recovers, and against its parent."""
    own = {each["checkpoint"]: rows for each, rows in found}
    yield "| checkpoint | of | recovered | more than its parent | state |"
    yield "|---|---|---|---|---|"
    for number, (each, rows) in enumerate(found):
        mean, low, high = share(rows)
        more = ""
        if each["parent"] is not None:
            lost = fmean(row["healthy"] - row["nothing"] for row in rows)
            pairs = zip(rows, own[each["parent"]], strict=True)
            steps = [(row["own"] - before["own"]) / lost for row, before in pairs]
            below, above = paired_interval(steps)
            more = f"{fmean(steps):+.2f} ({below:+.2f} to {above:+.2f})"
        state = "active" if each["active"] else "rolled back" if each["rolled_back"] else ""
        own_share = f"{mean:.2f} ({low:.2f} to {high:.2f})"
        yield f"| {number} | {who(each)} | {own_share} | {more} | {state} |"
    first, last = found[0][1], next(rows for each, rows in found if each["active"])
    lost = fmean(row["healthy"] - row["nothing"] for row in first)
    pairs = zip(last, first, strict=True)
    gains = [(row["own"] - before["own"]) / lost for row, before in pairs]
    below, above = paired_interval(gains)
    yield ""
    yield f"From the first to the active one: {fmean(gains):+.2f} ({below:+.2f} to {above:+.2f})"


def picture(found: Sequence[tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]]) -> Chart:
    """Chart what each checkpoint recovers, with its interval."""
    names = [
        f"{number}, {'rolled back' if each['rolled_back'] else who(each)}"
        for number, (each, _) in enumerate(found)
    ]
    return intervals(
        "evolution",
        "Recovered on unseen trainings, by checkpoint",
        rows=[(name, *share(rows)) for name, (_, rows) in zip(names, found, strict=True)],
        unit="share of what the faults cost; 95% intervals",
        caption="0: no better than doing nothing; 1: as good as without a fault.",
    )


def who(checkpoint: Mapping[str, Any]) -> str:
    """Return who made a checkpoint."""
    if checkpoint["parent"] is None:
        return "the first"
    return "the gate" if checkpoint["proposals"] else "people"


def main(arguments: Sequence[str]) -> None:
    """Do what is left of it."""
    parser = argparse.ArgumentParser(prog="python docs/studies evolution", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--promotions",
        type=int,
        default=6,
        help="Number of promotions after which it stops (default: 6).",
    )
    parser.add_argument(
        "--rounds", type=int, default=80, help="Maximum number of rounds (default: 80)."
    )
    parser.add_argument(
        "--starts",
        type=int,
        default=60,
        help="Number of unseen trainings for each checkpoint (default: 60).",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="Seed of the program that proposes (default: 0)."
    )
    parser.add_argument(
        "--workers", type=int, default=2, help="Processes that ask at once (default: 2)."
    )
    asked = parser.parse_args(arguments)
    asked.folder.mkdir(parents=True, exist_ok=True)
    all_ = Evolution(asked.folder.resolve())
    begin(all_)
    limits = {"rounds": asked.rounds, "seed": asked.seed, "workers": asked.workers}
    if not all_.done("planted"):
        evolve(all_, promotions=asked.promotions // 2, **limits)
        train_under(all_, "runs before", *SETTINGS)
    plant(all_)
    train_under(all_, "runs under it", *SETTINGS, *SETTINGS)
    find(all_)
    evolve(all_, promotions=asked.promotions, **limits)
    train_under(all_, "runs after", *SETTINGS)
    export_data(all_)
    hand_over(all_)
    found = measure(all_, asked.starts)
    (all_.folder / "evolution.svg").write_text(on_white(picture(found)), encoding="utf-8")
    for line in table(found):
        sys.stdout.write(f"{line}\n")
