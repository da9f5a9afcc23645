"""Commands that no other test asks for JSON: each answer is compared with its schema."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from frontdoor import TINY, call_here
from json_answers import check_json
from synthetic import synthetic_run

from aggregates.registry import REGISTRY
from ledger.application import LedgerApplication

pytestmark = pytest.mark.slow
LEDGER = (  # in this order, in a home with one judged run
    "export model latest --out MODEL",
    "verify MODEL",
    "keys new operator OP",
    "keys new judge JUDGE",
    "keys grant operator OP.vkey",
    "keys grant judge JUDGE.vkey --key OP",
    "keys revoke JUDGE.vkey --since now --reason lost --key OP",
    "keys list",
    "keys rotate",
    "data review DECISION gold --key OP",
    "data admit data NAME --key OP --note fine --unseen",
    "data withdraw data NAME --key OP --note wrong",
    "data list",
    "export data --kind sft",
    "verify TEXT",
    "data why latest",
    "data why",
    "verify",
    "export proof 0 --out PROOF",
    "verify PROOF --vkey VKEY",
    "export bundle --out BUNDLE",
    "export verdict head --out DSSE --pem",
    "verify BUNDLE",
    "import BUNDLE --home COPY",
    "sql 'SELECT * FROM runs' --out ROWS.csv",
    "sql --out TABLES.duckdb",
    "sql --list",
    "sql newest-run",
    "replay --event 3",
    "report --out REPORT.html",
    "report --out CHART.svg --chart loss",
    "verify REPORT.html --vkey VKEY",
    "witness trust VKEY --state STATE --name example.org/w",
    "witness ask --old 0 --out REQUEST",
    "witness sign REQUEST --state STATE --out SIGNED",
    "witness ask --answer SIGNED --witness WITNESS",
)
GAUNTLET = (
    "line init REPO",
    "line init REPO --server off",
    "line show --repo REPO",
    "line show --list gaps --repo REPO",
    "line show --list anchors --repo REPO",
    "line show --list waiting --repo REPO",
    "line show --list waiting --out PENDING --repo REPO",
    "line show --list checkpoints",
    "line show active",
    "line run --repo REPO",
    "line evolve --off --repo REPO",
    "line bisect --revealed --repo REPO",
)


def ask(line: str, home: Path) -> Any:
    arguments = shlex.split(line)
    done = call_here([*arguments, "--json"], home=home)
    assert done.returncode in (0, 1), (line, done.stdout, done.stderr)
    assert "error" not in done.stdout[:10], (line, done.stdout)
    return json.loads(done.stdout)


def test_json_of_ledger_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home"
    ask(f"run {' '.join(TINY)} lr=1e-5 warm_up_epochs=0", home)
    ask("judge --no-execute", home)
    vkey = next((home / "ledger").glob("*.vkey"))
    Path("VKEY").write_text(vkey.read_text())
    Path("TEXT").write_text("{}\n")
    entries = ask("log", home)
    decision = next(each["index"] for each in entries if each["event"] == "run.decision_made")
    for line in LEDGER:
        found = ask(line.replace("DECISION", str(decision)), home)
        if line.startswith("witness trust"):
            Path("WITNESS").write_text(found["witness"] + "\n")


def test_server_prints_its_address_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_HOME", str(tmp_path / "home"))
    with LedgerApplication.open(tmp_path / "home/ledger", REGISTRY) as log:
        synthetic_run(log)
    command = ["serve", "--port", "0", "--json"]
    started = [sys.executable, "-P", "-m", "proctor", *command]
    with subprocess.Popen(started, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        printed = process.stdout.readline()
        process.terminate()
    check_json(command, printed)
    assert json.loads(printed)["address"].startswith("http://127.0.0.1:")


def test_json_of_gauntlet_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for line in GAUNTLET:
        ask(line, tmp_path / "home")
