"""The command line on a real home: answers, exit codes, wrong input."""

import hashlib
import json
import os
import re
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import packages_distributions
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from forked import COMMAND, start_forked
from frontdoor import TINY, answer, call, call_here, with_settings
from judge_cases import Case, rewrite

from aggregates.registry import REGISTRY
from aggregates.run import Run
from aggregates.transcript import Transcript
from ledger.application import LedgerApplication
from monitor.submission import FILES, TASK_FILES
from proctor.cli.judging import SUBMITTED
from proctor.home import Home

PACKAGES = ("aggregates", "judge", "ledger", "monitor", "policies", "proctor", "projections")
COMMANDS = ("demo", "judge", "log", "replay", "run", "show", "sql", "verify")


@dataclass(frozen=True)
class Started:
    """The command, which goes on by itself."""

    process: ForkServerProcess
    errors: Path

    def end(self, how: signal.Signals) -> tuple[int | None, str]:
        """Send a signal; return the exit code and what was said on standard error."""
        assert self.process.pid is not None
        os.kill(self.process.pid, how)
        self.process.join(300)
        return self.process.exitcode, self.errors.read_text()


@pytest.fixture
def copy(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "copy"))


def test_every_package_has_exactly_one_owner() -> None:
    owners = packages_distributions()
    assert {name: set(owners[name]) for name in PACKAGES} == {
        name: {"proctor"} for name in PACKAGES
    }


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_home_and_json(command: str) -> None:
    text = call_here([command, "--help"], home=Path()).stdout
    assert "--json" in text
    assert "--home" in text


def test_verify_holds_and_contains_the_kept_head(trained: Path, tmp_path: Path) -> None:
    kept = tmp_path / "head"
    report = answer(call(["verify", "--out", kept, "--json"], home=trained))
    assert report["ok"] is True
    assert report["complete_to"] == report["size"] > 12
    again = call(["verify", "--head", kept], home=trained)
    assert again.returncode == 0
    assert f"complete to tree head {report['size']}" in again.stdout


def test_verify_needs_only_the_public_key(copy: Path) -> None:
    (copy / "ledger" / "keys" / "ledger.pem").unlink()
    assert call(["verify"], home=copy).returncode == 0


def test_edited_event_is_rejected_by_its_index(copy: Path, trained: Path) -> None:
    with sqlite3.connect(copy / "ledger" / "ledger.sqlite") as database:
        (entry,) = database.execute("SELECT entry FROM entries WHERE idx = 5").fetchone()
        changed = bytearray(entry)
        changed[-1] ^= 1
        database.execute("UPDATE entries SET entry = ? WHERE idx = 5", (bytes(changed),))
    done = call(["verify", "--json"], home=copy)
    assert done.returncode == 1
    assert answer(done)["index"] in (5, 6)
    for command in (["show"], ["log"], ["replay"], ["sql", "SELECT 1"]):
        done = call_here(command, home=copy)
        assert (done.returncode, "error:" in done.stderr) == (1, True), command
    assert call_here(["sql", "SELECT 1", "--unverified"], home=copy).returncode == 0
    assert call(["verify"], home=trained).returncode == 0


def test_truncated_ledger_is_rejected_with_a_kept_head(copy: Path, tmp_path: Path) -> None:
    kept = tmp_path / "head"
    call(["verify", "--out", kept], home=copy)
    with sqlite3.connect(copy / "ledger" / "ledger.sqlite") as database:
        (size,) = database.execute("SELECT MAX(size) FROM tree_heads").fetchone()
        (before,) = database.execute(
            "SELECT MAX(size) FROM tree_heads WHERE size < ?", (size,)
        ).fetchone()
        database.execute("DELETE FROM entries WHERE idx >= ?", (before,))
        database.execute("DELETE FROM tree_heads WHERE size > ?", (before,))
    assert call(["verify"], home=copy).returncode == 0  # a chain alone cannot know
    done = call(["verify", "--head", kept], home=copy)
    assert done.returncode == 1
    assert "ContradictionError" in done.stdout


def test_judge_gives_two_scores(trained: Path) -> None:
    report = answer(call(["judge", "--json"], home=trained))
    assert [step["step"] for step in report["steps"]] == list(range(1, 12))
    assert not report["hard_fail"]
    assert 0 < report["scores"]["accuracy_score"] <= 1
    assert report["scores"]["process_score"] == 1.0
    assert report["process_axis_exercised"]


def test_judge_fails_hard_and_appends_nothing_when_the_ledger_is_broken(copy: Path) -> None:
    run = answer(call(["show", "--json"], home=copy))["summary"]["run_id"]
    with sqlite3.connect(copy / "ledger" / "ledger.sqlite") as database:
        database.execute("UPDATE entries SET entry = x'00' WHERE idx = 3")
    done = call(["judge", run, "--json"], home=copy)
    assert done.returncode == 1
    report = answer(done)
    assert {step["name"]: step["status"] for step in report["steps"]}["ledger"] == "failed"
    assert report["audit_id"] is None
    assert call(["judge"], home=copy).returncode == 1  # as everywhere where a ledger is invalid


def test_show_tells_the_story_in_words_and_in_json(trained: Path) -> None:
    told = call(["show"], home=trained).stdout
    assert "go_back" in told
    assert "verdict" in told
    story = answer(call(["show", "--json"], home=trained))
    assert len(story["epochs"]) == 7
    assert {cell["outcome"] for cell in story["rules"] if cell["fired"]} <= {"applied", "deferred"}


def _forge_last_epoch(home: Path) -> UUID:
    """Append a run that no training made: in its last epoch, one value is another."""
    run_id = answer(call(["show", "--json"], home=home))["summary"]["run_id"]
    handed_in = Home(home).submission(UUID(run_id))
    case, forged = Case(run_id, home / "ledger", handed_in), uuid4()
    about = json.loads((handed_in / "run_config.json").read_text())
    files = {path.name: path.read_bytes() for path in handed_in.iterdir()}
    files["run_config.json"] = json.dumps({**about, "run": str(forged)}).encode()
    folder = Home(home).submission(forged)
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}

    def change(event: Any) -> dict[str, Any]:
        if isinstance(event, Run.Ended):
            return {"deliverables": hashes}
        if isinstance(event, Run.EpochMeasured) and event.epoch == 6:
            train = {**event.measured["train"], "loss": event.measured["train"]["loss"] + 1e-9}
            return {"measured": {**event.measured, "train": train}}
        return {}

    rewrite(case, change, run_id=forged)
    return forged


@pytest.mark.slow
def test_weaker_audit_does_not_hide_a_hard_fail(copy: Path) -> None:
    forged = _forge_last_epoch(copy)
    assert call(["judge"], home=copy).returncode == 1
    assert call(["judge", "--no-execute"], home=copy).returncode == 0
    told = call(["show"], home=copy).stdout
    assert "values differ from the recorded ones" in " ".join(told.split())
    assert "does not count: no gate failed" in told
    asked = "SELECT verdict FROM run_summary ORDER BY started_at"
    verdicts = answer(call(["sql", asked, "--json"], home=copy))
    assert verdicts == [{"verdict": "held"}, {"verdict": "failed"}]
    with LedgerApplication.open(copy / "ledger", REGISTRY) as log:  # as the key's holder can
        log.save(Transcript.start(str(forged), policy={}))
    told = " ".join(call(["show"], home=copy).stdout.split())
    assert "no verdict counts: `proctor judge` gives two scores" in told
    assert "does not count: a gate failed" in told
    assert told.count("The run or its transcript is not what it judged") == 2


def test_audit_of_other_files_does_not_speak_against_the_run(copy: Path) -> None:
    (copy / "other").mkdir()
    (copy / "other" / "model.py").write_text("0")
    other: list[str | Path] = ["judge", "--submission", copy / "other"]
    done = call(other, home=copy)
    assert done.returncode == 1
    assert "unsigned: no judge's key signed this verdict" in done.stdout
    assert "hard fail: a gate did not hold; both scores are 0" in done.stdout
    assert "not retrained" not in done.stdout  # nothing recorded was trusted either
    assert "process score" not in done.stdout
    told = call(["show"], home=copy).stdout
    assert "retrained the whole run" in told
    assert "unsigned: no judge's key signed this verdict" in told
    why = "does not count: it judged other files than the run submitted: run_config.json"
    assert why in " ".join(told.split())


@pytest.mark.parametrize("files", [[], ["notes.txt"]])
def test_folder_without_a_submission_is_refused(copy: Path, files: list[str]) -> None:
    (copy / "nothing").mkdir()
    for name in files:
        (copy / "nothing" / name).touch()
    size = len(answer(call_here(["log", "--json"], home=copy)))
    done = call_here(["judge", "--submission", copy / "nothing"], home=copy)
    said = " ".join(done.stderr.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert str(copy / "nothing") in done.stderr.replace("\n", "")
    assert "holds no file of a submission: model.py, " in said
    assert {*SUBMITTED} == {*FILES, *TASK_FILES}
    assert "leave out --submission to judge the run's own" in said
    assert len(answer(call_here(["log", "--json"], home=copy))) == size


def test_sample_says_how_certain_it_is(copy: Path) -> None:
    done = call(["judge", "--sample"], home=copy)
    assert (done.returncode, "a sample notices" in " ".join(done.stdout.split())) == (0, True)
    both = call(["judge", "--sample", "--no-execute"], home=copy)
    assert (both.returncode, "exclude each other" in both.stderr) == (2, True)


def test_replay_tells_events_and_the_state_after_each(trained: Path) -> None:
    events = answer(call(["replay", "--json"], home=trained))
    assert events[0]["event"] == "run.started"
    assert events[-1]["event"] == "run.ended"
    state = answer(call(["replay", "--event", "3", "--json"], home=trained))
    assert (state["events"], state["epoch"], state["ended"]) == (3, 0, None)
    last = answer(call(["replay", "--event", str(len(events)), "--json"], home=trained))
    assert last["ended"] == "completed"


@pytest.mark.parametrize(
    "arguments",
    [
        ["replay", "--event", "999"],
        ["replay", "--at", "999"],
        ["fork", "--at", "999"],
        ["fork"],
        ["fork", "--decision", "99"],
        ["replay", ""],
        ["show", "nothing"],
        ["log", "--entry", "99999"],
        ["log", "--entry", "9" * 30],
        ["log", "--start", "-1"],
        ["sql", "SELECT 1; SELECT 2"],
        ["sql", "SELECT 1 AS a, 2 AS a", "--json"],
        ["verify", "--head", "/nowhere"],
        ["verify", "--head", "/dev/null"],
        ["verify", "--vkey", "/dev/null"],
        ["judge", "--submission", "/nowhere"],
        ["nonsense"],
        ["run", "--nonsense"],
    ],
)
def test_wrong_question_gets_one_clear_error(trained: Path, arguments: list[str]) -> None:
    done = call_here(arguments, home=trained)
    assert done.returncode == 2, done.stdout
    assert "Traceback" not in done.stderr
    assert "rror" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["log", "--last", "0"], "Invalid value for '--last'"),
        (["tune", "show", "nobody"], "no advice to a model named 'nobody' is recorded"),
        (
            ["tune", "use", "", "on"],
            "MODEL must be a model's name of 1 to 200 printable characters",
        ),
        (
            ["run", "--attempts", "3", "--policy", "openai", "--tune"],
            "the policy openai needs a model: give --set model=NAME",
        ),
        (["sql", "selec 1"], 'syntax error at or near "selec"'),
        (["run", "lr=abc"], "lr must be a number from 1e-08 to 10, not 'abc'"),
    ],
)
def test_newcomers_mistake_is_told_with_its_place(
    trained: Path, arguments: list[str], words: str
) -> None:
    done = call_here(arguments, home=trained)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert words in done.stderr.replace("\n", " ")


def test_replay_execute_gives_the_same_run_bit_for_bit(trained: Path) -> None:
    found = answer(call(["replay", "--execute", "--json"], home=trained))
    assert found["same"]
    assert found["epochs"] == 7
    assert found["values"] > 500


def test_sql_reads_and_cannot_write_or_leave_the_file(trained: Path, tmp_path: Path) -> None:
    rows = answer(call_here(["sql", "SELECT count(*) AS n FROM epochs", "--json"], home=trained))
    assert rows == [{"n": 7}]
    for statement in (
        "DELETE FROM epochs",
        f"COPY epochs TO '{tmp_path}/out.csv'",
        "SELECT * FROM read_text('/etc/hostname')",
        "SELEKT",
    ):
        done = call_here(["sql", statement], home=trained)
        assert done.returncode == 2, statement
        assert "error:" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "value", ["'[/red]'", "'[bold]x'", "INTERVAL 1 DAY", "TIME '12:00'", "1.5::DECIMAL(4, 2)"]
)
def test_sql_prints_whatever_the_answer_holds(trained: Path, value: str) -> None:
    for form in ([], ["--json"]):
        done = call_here(["sql", f"SELECT {value} AS v", *form], home=trained)
        assert (done.returncode, done.stderr) == (0, "")


def test_answer_cannot_reach_the_terminal(trained: Path) -> None:
    done = call_here(["sql", "SELECT chr(27) || '[2J' AS v"], home=trained)
    assert "\x1b" not in done.stdout
    assert r"\x1b[2J" in done.stdout


def test_log_lists_entries_and_shows_one(trained: Path) -> None:
    entries = answer(call(["log", "--json"], home=trained))
    assert [entry["index"] for entry in entries] == list(range(len(entries)))
    whole = answer(call(["log", "--entry", "1", "--json"], home=trained))
    assert whole["body"]["config"]["lr"] == 1e-5  # entry 0 is the genesis


def test_campaign_that_is_interrupted_is_closed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    started = _start(home, "epochs=5000", "edits=restart")
    _wait_for_epoch(home, least=6)
    code, errors = started.end(signal.SIGINT)
    assert (code, "interrupted" in errors) == (130, True)
    ends = answer(call(["sql", "SELECT end_reason FROM campaigns", "--json"], home=home))
    assert ends == [{"end_reason": "interrupted"}]


def test_judge_needs_no_private_key_and_then_records_nothing(copy: Path) -> None:
    before = answer(call(["verify", "--json"], home=copy))["size"]
    (copy / "ledger" / "keys" / "ledger.pem").unlink()
    done = call(["judge", "--json"], home=copy)
    assert (done.returncode, answer(done)["audit_id"]) == (0, None)
    assert "not recorded" in done.stderr
    assert answer(call(["verify", "--json"], home=copy))["size"] == before


def test_restart_mode_makes_a_following_run_with_its_parent(tmp_path: Path) -> None:
    dead = ["epochs=4", "edits=restart", "--provoke", "dead_activations", "--policy", "playbook"]
    runs = answer(call(["run", *TINY[:5], *dead, "threads=1", "--json"], home=tmp_path / "home"))[
        "runs"
    ]
    assert len(runs) >= 2
    lineage = "SELECT run_id, parent_run, end_reason FROM runs ORDER BY started_idx"
    first, second, *_ = answer(call(["sql", lineage, "--json"], home=tmp_path / "home"))
    assert (first["end_reason"], second["parent_run"]) == ("restart", first["run_id"])
    campaigns = answer(
        call(
            ["sql", "SELECT mode, attempts, ranking FROM campaigns", "--json"],
            home=tmp_path / "home",
        )
    )
    assert campaigns[0]["mode"] == "iterative_self_refine"
    assert campaigns[0]["attempts"] == len(runs)


def _folder(tmp_path: Path) -> Path:
    return tmp_path / "home"


def _file(tmp_path: Path) -> Path:
    (tmp_path / "home").write_text("I am a file")
    return tmp_path / "home"


WRONG_RUNS: list[tuple[list[str], Callable[[Path], Path], str]] = [
    (["dataset=imagenet"], _folder, "dataset must be one of"),
    (["dataset=imagefolder:/nowhere/at/all"], _folder, "/nowhere/at/all"),
    (["dataset=cifar10"], _folder, "cifar10"),
    (["colour=red"], _folder, "unknown key colour"),
    (["lr=nan"], _folder, "lr must be"),
    (["lr=-0.1"], _folder, "lr must be"),
    (["epochs=0"], _folder, "epochs must be"),
    (["epochs=3.5"], _folder, "epochs must be"),
    (["lr"], _folder, "KEY=VALUE"),
    (["lr=0.1\nepochs=3"], _folder, "lr must be"),
    (["dataset=imagefolder:/nowhere[/b]"], _folder, "/nowhere[/b]"),
    (["device=cuda"], _folder, "cuda"),
    (["batch_size=300"], _folder, "batch_size 300"),
    (['waived=["R9"]'], _folder, "waived"),
    (
        ["--policy", "oracle"],
        _folder,
        "unknown policy 'oracle'; choose from fresh_on_nan, human, mixed",
    ),
    (["--config", "/nowhere.toml"], _folder, "/nowhere.toml"),
    ([], _file, "is a file"),
]


@pytest.mark.parametrize(("arguments", "home", "message"), WRONG_RUNS)
def test_wrong_input_gets_one_clear_error_and_leaves_nothing(
    tmp_path: Path, arguments: list[str], home: Callable[[Path], Path], message: str
) -> None:
    place = home(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    done = call_here(["run", *with_settings(TINY, *arguments)], home=place)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert message in done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_error_is_one_json_document_when_json_is_asked_for(tmp_path: Path) -> None:
    done = call(["verify", "--json"], home=tmp_path / "none")
    assert done.returncode == 2
    assert answer(done)["exit_code"] == 2
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(b"I am no database" * 100),
        lambda file: file.write_bytes(file.read_bytes()[:5000]),
    ],
    ids=["empty", "foreign", "truncated"],
)
def test_damaged_ledger_is_rejected_and_not_written_to(
    copy: Path, damage: Callable[[Path], Any]
) -> None:
    file = copy / "ledger" / "ledger.sqlite"
    for beside in copy.glob("ledger/ledger.sqlite-*"):
        beside.unlink()
    damage(file)
    before = file.read_bytes()
    for arguments in (["verify"], ["run", *TINY], ["log"]):
        done = call_here(arguments, home=copy)
        assert done.returncode in (1, 2), arguments
        assert "Traceback" not in done.stderr
        assert "error:" in done.stderr or "failed" in done.stdout
    assert file.read_bytes() == before


def test_key_that_others_can_read_is_rejected(copy: Path) -> None:
    key = copy / "ledger" / "keys" / "ledger.pem"
    key.chmod(0o644)
    done = call(["run", *TINY], home=copy)
    assert done.returncode == 2
    assert "ledger.pem" in done.stderr
    key.chmod(0o600)
    assert call(["run", *TINY], home=copy).returncode == 0


def _start(home: Path, *arguments: str) -> Started:
    errors = home.with_suffix(".err")
    process = start_forked(
        ["run", *TINY[:-2], "threads=1", *arguments],
        environment={**os.environ, "PROCTOR_HOME": str(home)},
        out=home.with_suffix(".out"),
        err=errors,
    )
    return Started(process, errors)


def _wait_for_epoch(home: Path, least: int = 4) -> None:
    """Wait until some events are committed: the run is then in the middle of an epoch."""
    database = home / "ledger" / "ledger.sqlite"
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if database.exists():
            try:
                with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
                    (count,) = connection.execute("SELECT COUNT(*) FROM entries").fetchone()
                if count >= least:
                    return
            except sqlite3.OperationalError:
                pass
        time.sleep(0.02)
    pytest.fail("the run never got going")


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("how", "code", "reason"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "interrupted"),
        (signal.SIGKILL, -9, "crashed"),
    ],
)
def test_run_that_is_broken_off_is_closed_for_what_it_was(
    tmp_path: Path, how: signal.Signals, code: int, reason: str
) -> None:
    home = tmp_path / "home"
    started = _start(home, "epochs=5000")
    _wait_for_epoch(home)
    ended, errors = started.end(how)
    gone = datetime.now(UTC).isoformat()
    assert ended == code
    assert "Traceback" not in errors
    assert call(["verify"], home=home).returncode == 0
    if how == signal.SIGKILL:  # it could not say so; whoever reads derives it, and appends nothing
        before = answer(call(["log", "--json"], home=home))
        shown = call(["show", "--json"], home=home)
        assert answer(shown)["summary"]["state"] == "running"
        assert "its process is gone" in shown.stderr
        asked = call(["sql", "SELECT 1"], home=home)
        assert "1 run with the state running, whose process is gone" in asked.stderr
        after = answer(call(["log", "--json"], home=home))
        # SQLite may show the entry that was being committed at the kill only to a later reader.
        assert after[: len(before)] == before
        assert all(each["time"] < gone for each in after)
        assert call(["judge"], home=home).returncode == 1  # appends
        assert "the judge retrained no epoch: a gate failed" in call(["show"], home=home).stdout
    assert answer(call(["show", "--json"], home=home))["summary"]["state"] == reason
    assert call(["verify"], home=home).returncode == 0


def test_running_run_is_left_alone_by_other_commands(tmp_path: Path) -> None:
    home = tmp_path / "home"
    started = _start(home, "epochs=5000")
    try:
        _wait_for_epoch(home)
        assert answer(call(["show", "--json"], home=home))["summary"]["state"] == "running"
        assert started.process.is_alive()
    finally:
        started.end(signal.SIGKILL)


LIMIT_FILE_SIZE = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
"""


def test_full_disk_is_one_clear_error_and_the_ledger_still_holds(tmp_path: Path) -> None:
    home = tmp_path / "home"
    done = call(
        ["run", *TINY[:-2], "threads=1", "epochs=500"],
        home=home,
        code=f"{LIMIT_FILE_SIZE}{COMMAND}",
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert re.search(r"error: .*(disk|full|large|written|I/O)", done.stderr), done.stderr
    assert call(["verify"], home=home).returncode == 0
    run = answer(call(["show", "--json"], home=home))["summary"]["run_id"]
    assert call(["run", *TINY], home=home).returncode == 0
    state = answer(call(["show", run, "--json"], home=home))["summary"]["state"]
    assert state in ("crashed", "failed")
