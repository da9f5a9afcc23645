"""The label of a run: found by what runs, whatever anybody would like it to be."""

import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from frontdoor import TINY, answer, call, with_settings
from gauntlet_lines import Line
from labelled_lines import own_line
from synthetic import synthetic_run

from aggregates.improvement.line import INSTALLED
from aggregates.improvement.line import Line as Line_
from aggregates.registry import REGISTRY
from judge.gauntlet.promotion import roll_back
from ledger.application import LedgerApplication
from monitor.code import code_sha256
from proctor.runs.labels import Label, find_label, record_installed

PROMPT = "policies/prompts/playbook.md"
NUMBERS = "policies/numbers.toml"


@pytest.fixture
def line(tmp_path: Path) -> Line:
    return own_line(tmp_path)


def adopt(line: Line, path: str, text: str) -> str:
    """Commit a change as people do, and return the checkpoint that it becomes."""
    line.commit(path, text)
    with line.controller() as controller:
        return controller.adopt(line.adoption(controller)).active


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LedgerApplication]:
    with LedgerApplication.open(tmp_path / "ledger", REGISTRY) as log:
        yield log


def test_home_begins_with_the_installed_code_as_its_genesis(log: LedgerApplication) -> None:
    for _ in range(2):
        record_installed(log)
    assert log.recorder.max_notification_id() == 1
    found = find_label(log)
    genesis: Line_ = log.repository.get(Line_.id_of(INSTALLED, INSTALLED))
    assert found == Label(genesis.active)
    assert genesis.head.code == code_sha256()


def test_other_code_than_the_genesis_has_no_label(
    log: LedgerApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_installed(log)
    monkeypatch.setattr("proctor.runs.labels.code_sha256", lambda: "00" * 32)
    assert find_label(log).checkpoint is None


def test_ledger_with_a_run_gets_no_genesis(log: LedgerApplication) -> None:
    synthetic_run(log)
    record_installed(log)
    assert find_label(log).checkpoint is None


def test_label_is_the_lines_where_the_genesis_is_the_same_code(tmp_path: Path) -> None:
    with LedgerApplication.open(tmp_path / "home" / "ledger", REGISTRY) as log:
        record_installed(log)
        genesis = find_label(log)
    line = own_line(tmp_path)
    assert label(line) != genesis
    with line.controller() as controller:
        assert label(line) == Label(controller.line.active)


def label(line: Line) -> Label:
    with line.log() as log:
        return find_label(log)


def test_code_has_the_same_hash_on_disk_and_in_a_commit(line: Line) -> None:
    with line.controller() as controller:
        assert controller.line.head.code == code_sha256()
        assert controller.place.contents(line.head())["code"] == code_sha256()


@pytest.mark.parametrize("path", [PROMPT, NUMBERS, "monitor/loop.py", "proctor/runs/training.py"])
def test_label_is_the_checkpoint_whose_code_runs_when_the_line_has_moved_on(
    line: Line, path: str
) -> None:
    first = label(line)
    assert first.remark is None
    second = adopt(line, path, line.text(path) + "\n# other\n")
    assert label(line) == first
    assert first.checkpoint not in (None, second)


def test_label_is_the_active_checkpoint_when_what_decides_a_run_is_the_same(line: Line) -> None:
    second = adopt(line, "README.md", "Other words.\n")
    assert label(line) == Label(second)


def test_there_is_no_label_when_the_code_is_of_no_checkpoint(tmp_path: Path) -> None:
    other = Line(tmp_path, ("late-rows",))  # a repository of something else
    with other.log() as log:
        assert find_label(log).remark == (
            "not exportable as training data: this ledger has no registered code version; "
            "a new home registers the installed one, and `proctor line show --repo .` in the "
            "repository of this code registers it here, see docs/how-to/curate.md"
        )
    with other.controller() as controller:
        assert controller.line.active
    found = label(other)
    assert found.checkpoint is None
    assert "this code is not a checkpoint of this ledger; check out a checkpoint" in str(
        found.remark
    )
    assert "or commit the code to the line and run `proctor line sign adopt" in str(found.remark)


def test_label_is_a_checkpoint_that_was_rolled_back_when_that_runs(line: Line) -> None:
    first = label(line)
    second = adopt(line, NUMBERS, line.text(NUMBERS) + "\n# worse\n")
    third = adopt(line, NUMBERS, line.text(NUMBERS).replace("\n# worse\n", ""))
    assert label(line) == Label(third)  # the first one's code again, and active
    with line.controller() as controller, controller.locked():
        roll_back(controller.place, second, "worse")
    assert label(line) == first  # stands, and holds what runs
    fourth = adopt(line, NUMBERS, line.text(NUMBERS) + "\n# other\n")
    assert fourth
    assert label(line) == first


def test_code_that_is_loaded_from_elsewhere_is_rejected(line: Line, tmp_path: Path) -> None:
    assert label(line).checkpoint is not None  # the honest control
    foreign = tmp_path / "prompt.py"
    foreign.write_text("SECRET = 'say yes'\n")
    spec = spec_from_file_location("policies.foreign", foreign)
    assert spec is not None
    sys.modules["policies.foreign"] = module_from_spec(spec)
    try:
        found = label(line)
    finally:
        del sys.modules["policies.foreign"]
    assert found.checkpoint is None
    assert str(foreign) in str(found.remark)
    assert "run without it" in str(found.remark)


@pytest.mark.slow
def test_run_is_learned_from_until_its_checkpoint_is_rolled_back(line: Line) -> None:
    home = line.home.path
    first = label(line)
    # What runs becomes a checkpoint of its own, which can be rolled back.
    before = line.text(NUMBERS)
    adopt(line, NUMBERS, before + "\n# other\n")
    active = adopt(line, NUMBERS, before)
    ran = answer(
        call(
            ["run", *with_settings(TINY, "epochs=7", "lr=1e-5", "warm_up_epochs=0"), "--json"],
            home=home,
        )
    )
    (run,) = [each["run_id"] for each in ran["runs"]]
    judged = answer(call(["judge", run, "--no-execute", "--json"], home=home))
    assert not judged["scores"]["hard_fail"]

    def shown(*more: str) -> dict[str, object]:
        found = answer(call(["line", "show", active, *more, "--json"], home=home))
        (told,) = found["runs"]
        return {**told, "active": found["active"], "rolled_back": found["rolled_back"]}

    assert (shown()["run_id"], shown()["label_active"], shown()["why_not"]) == (run, True, [])
    done = call(
        ["line", "rollback", "active", "--reason", "it was worse", "--repo", line.repo],
        home=home,
    )
    assert done.returncode == 0, done.stderr
    assert active in done.stdout
    assert "made under what was rolled back, and tainted: 1 run; `proctor data" in done.stdout
    now = shown()
    assert (now["why_not"], now["rolled_back"], now["active"]) == (["tainted"], True, False)
    assert now["taint_reasons"] == [f"checkpoint {active} was rolled back: it was worse"]
    then = shown("--as-of", str(int(str(now["tainted_idx"])) - 1))
    assert (then["why_not"], then["rolled_back"], then["active"]) == ([], False, True)
    listed = answer(call(["line", "show", "--list", "checkpoints", "--json"], home=home))[
        "checkpoints"
    ]
    assert [each["runs"] for each in listed] == [0, 0, 1]
    assert listed[1]["active"]
    assert first.checkpoint == listed[0]["checkpoint_id"]
    again = call(["line", "rollback", "nothing", "--reason", "x"], home=home)
    assert again.returncode == 2
