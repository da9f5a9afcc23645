"""A ledger that somebody without its key has put in the place of another one."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from frontdoor import answer, call_here
from synthetic import synthetic_audit, synthetic_run
from typer.core import TyperGroup, TyperOption

import proctor
from ledger.errors import ExchangedError, SignatureError
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from proctor.cli.lazy import load
from proctor.cli.main import app
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.remembering import open_remembered
from proctor.reports.notebook import report

# What need not refuse an exchanged ledger, and why.
OTHERS = {
    "keys accept": "shows both keys",
    "notary": "shows nothing; the home of each client refuses",
}
READING = (
    ["log"],
    ["show"],
    ["sql", "SELECT 1"],
    ["replay"],
    ["keys", "list"],
    ["data", "list"],
    ["verify"],
    ["verify", "--new"],
    ["judge"],
)


def commands() -> Iterator[tuple[str, Any]]:
    """Yield all commands by the words that call them."""

    def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        loaded = load(command)
        if isinstance(loaded, TyperGroup):
            for name, each in loaded.commands.items():
                yield from walk(each, (*path, name))
        else:
            yield " ".join(path), loaded

    yield from walk(typer.main.get_command(app), ())


OF_HOMES = {
    name: command
    for name, command in commands()
    if any("--home" in each.opts for each in command.params) and name not in OTHERS
}


few_or_each = pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.slow)])


def call_of(name: str, command: Any) -> list[str]:
    """Return a call of a command with "1" for each value that it requires: a number and a file."""
    words = name.split()
    for each in command.params:
        if each.required:
            value = {
                "mark": "gold",
                "role": "judge",
                "verdict": "approve",
                "before": ".",
                "after": ".",
            }.get(each.name, "1")
            words += [each.opts[0], value] if isinstance(each, TyperOption) else [value]
    return words


@dataclass(frozen=True)
class Scene:
    home: Path
    state: Path
    stranger: Path
    own: str  # the vkey of each
    other: str

    def call(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        return call_here(arguments, home=self.home, state=self.state)

    def exchange(self) -> None:
        shutil.rmtree(self.home / "ledger")
        shutil.copytree(self.stranger / "ledger", self.home / "ledger")


def begin(home: Path) -> str:
    with Home(home).open_log() as log:
        synthetic_audit(log, synthetic_run(log, epochs=2))
        assert isinstance(log.recorder, SignedRecorder)
        return log.recorder.vkey


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A home whose ledger was read, and a stranger's, whom this user does not know."""
    home, state, stranger = (tmp_path / name for name in ("home", "state", "stranger"))
    own, other = begin(home), begin(stranger)
    monkeypatch.setenv("PROCTOR_STATE", str(state))
    scene = Scene(home, state, stranger, own, other)
    done = scene.call("log")
    assert done.returncode == 0
    assert f"the key {own} beside the ledger is trusted from now on" in done.stderr
    assert "trusted from now on" not in scene.call("log").stderr  # said once
    return scene


@few_or_each
def test_exchanged_ledger_is_rejected_by_every_command(scene: Scene, every: int) -> None:
    scene.exchange()
    before = (scene.home / "ledger" / "ledger.sqlite").read_bytes()
    (scene.stranger / "1").write_text("1\n")
    assert len(OF_HOMES) > 40
    with chdir(scene.stranger):
        for name, command in list(OF_HOMES.items())[::every]:
            done = scene.call(*call_of(name, command))
            told = done.stdout + done.stderr
            assert done.returncode == 1, (name, told)
            assert "another ledger is in this place" in " ".join(told.split()), (name, told)
            assert scene.own in told.replace("\n", ""), (name, told)
    assert (scene.home / "ledger" / "ledger.sqlite").read_bytes() == before


@pytest.mark.sampled(4)
@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_honest_ledger_is_read_after_its_exchange_was_undone(
    scene: Scene, arguments: list[str]
) -> None:
    kept = scene.home / "kept"
    shutil.copytree(scene.home / "ledger", kept)
    scene.exchange()
    assert scene.call(*arguments).returncode == 1
    shutil.rmtree(scene.home / "ledger")
    kept.rename(scene.home / "ledger")
    assert scene.call(*arguments).returncode in (0, 1 if arguments == ["judge"] else 0)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_exchanged_database_under_the_old_public_key_is_rejected(
    scene: Scene, arguments: list[str]
) -> None:
    scene.exchange()
    LedgerPaths(scene.home / "ledger").vkey.write_text(scene.own)
    done = scene.call(*arguments)
    assert done.returncode == 1
    assert "public key is not the one given" in " ".join((done.stdout + done.stderr).split())


def linked_ledger(scene: Scene) -> None:
    """Put a link in the place of the ledger's folder."""
    shutil.rmtree(scene.home / "ledger")
    (scene.home / "ledger").symlink_to(scene.stranger / "ledger")


def linked_home(scene: Scene) -> None:
    shutil.rmtree(scene.home)
    scene.home.symlink_to(scene.stranger)


@pytest.mark.parametrize("link", [linked_ledger, linked_home])
def test_link_to_another_ledger_is_rejected(link: Any, scene: Scene) -> None:
    link(scene)
    for arguments in (["log"], ["verify"], ["sql", "SELECT 1", "--unverified"]):
        done = scene.call(*arguments)
        assert done.returncode == 1
        assert "another ledger is in this place" in " ".join((done.stdout + done.stderr).split())


def test_python_functions_reject_the_exchanged_ledger(scene: Scene) -> None:
    told: Any = {"name": "x", "batch_size": 1, "home": scene.home}
    home, model = Home(scene.home), torch.nn.Linear(1, 1)
    with open_remembered(home) as ledger:
        assert ledger.vkey == scene.own
    scene.exchange()
    for heads in (False, True):
        with pytest.raises(ExchangedError, match="another ledger is in this place"):
            open_remembered(home, heads=heads).__enter__()
    with pytest.raises(ExchangedError):
        report(home=scene.home)
    with pytest.raises(ExchangedError):
        home.open_log().__enter__()
    with pytest.raises(ExchangedError):
        proctor.watch(model, torch.optim.SGD(model.parameters(), lr=0.1), **told).__enter__()


def test_accepted_ledger_is_read_and_the_earlier_one_is_not(scene: Scene) -> None:
    kept = scene.home / "kept"
    shutil.copytree(scene.home / "ledger", kept)
    assert scene.call("keys", "accept").returncode == 0  # nothing to accept
    scene.exchange()
    shown = scene.call("keys", "accept")
    told = shown.stdout.replace("\n", "")
    assert (shown.returncode, scene.own in told, scene.other in told) == (1, True, True)
    assert scene.call("log").returncode == 1  # shown only
    (scene.stranger / "own.vkey").write_text(scene.own)
    wrong = scene.call("keys", "accept", "--yes", "--vkey", scene.stranger / "own.vkey")
    assert wrong.returncode == 1
    assert scene.call("log").returncode == 1
    done = answer(scene.call("keys", "accept", "--yes", "--json"))
    assert (done["known"], done["now"], done["accepted"]) == ([scene.own], scene.other, True)
    assert scene.call("log").returncode == 0
    shutil.rmtree(scene.home / "ledger")
    kept.rename(scene.home / "ledger")
    assert scene.call("log").returncode == 1


def test_rotated_moved_linked_and_copied_ledgers_are_read(scene: Scene, tmp_path: Path) -> None:
    assert scene.call("keys", "rotate").returncode == 0
    assert scene.call("log").returncode == 0
    moved = tmp_path / "moved"
    scene.home.rename(moved)
    done = call_here(["log"], home=moved, state=scene.state)
    assert (done.returncode, "trusted from now on" in done.stderr) == (0, False)
    linked = tmp_path / "linked"
    linked.symlink_to(moved)
    assert call_here(["log"], home=linked, state=scene.state).returncode == 0
    shutil.copytree(moved, scene.home)
    done = scene.call("log")
    assert (done.returncode, "trusted from now on" in done.stderr) == (0, False)


def test_restored_backup_of_the_same_ledger_is_only_behind(scene: Scene, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    shutil.copytree(scene.home / "ledger", backup)
    begin(scene.home)  # appends
    assert scene.call("log").returncode == 0
    shutil.rmtree(scene.home / "ledger")
    backup.rename(scene.home / "ledger")
    done = scene.call("log")
    assert done.returncode == 1
    told = " ".join(done.stderr.split())
    assert "it was truncated, or an older copy was put back" in told
    assert "another ledger" not in done.stderr
    shown = scene.call("keys", "accept")
    assert (shown.returncode, "22 entries at its end are missing" in shown.stdout) == (1, True)
    assert scene.call("log").returncode == 1  # shown only
    done = answer(scene.call("keys", "accept", "--yes", "--json"))
    assert (done["known"], done["entries"], done["seen"], done["accepted"]) == ([], 22, 44, True)
    for arguments in READING:
        expected = (0, 1) if arguments == ["judge"] else (0,)
        assert scene.call(*arguments).returncode in expected, arguments
    begin(scene.home)  # it goes on from there
    assert scene.call("sql", "SELECT 1").returncode == 0


def test_older_copy_of_another_ledger_is_shown_with_both_keys(scene: Scene) -> None:
    assert call_here(["log"], home=scene.stranger, state=scene.state).returncode == 0
    older = scene.home / "older"
    shutil.copytree(scene.stranger / "ledger", older)
    begin(scene.stranger)
    assert call_here(["log"], home=scene.stranger, state=scene.state).returncode == 0
    shutil.rmtree(scene.stranger / "ledger")
    older.rename(scene.stranger / "ledger")
    scene.exchange()
    shown = scene.call("keys", "accept").stdout.replace("\n", "")
    assert all(each in shown for each in (scene.own, "22 entries at its end are missing"))


def test_homes_that_were_swapped_are_rejected(scene: Scene, tmp_path: Path) -> None:
    """This user knows both keys, and each in its place."""
    assert call_here(["log"], home=scene.stranger, state=scene.state).returncode == 0
    scene.home.rename(tmp_path / "aside")
    scene.stranger.rename(scene.home)
    (tmp_path / "aside").rename(scene.stranger)
    for home in (scene.home, scene.stranger):
        done = call_here(["log"], home=home, state=scene.state)
        assert done.returncode == 1
        assert "another ledger is in this place" in " ".join(done.stderr.split())


@pytest.mark.parametrize("name", ["home", "x/../home", "/proc/self/cwd/home"])
def test_exchanged_ledger_is_rejected_by_another_name_of_its_place(scene: Scene, name: str) -> None:
    scene.exchange()
    (scene.home.parent / "x").mkdir()
    with chdir(scene.home.parent):
        assert call_here(["log"], home=Path(name), state=scene.state).returncode == 1


def test_new_ledger_with_a_private_key_that_somebody_left_is_rejected(scene: Scene) -> None:
    paths, theirs = (LedgerPaths(each / "ledger") for each in (scene.home, scene.stranger))
    shutil.rmtree(paths.directory)
    paths.key.parent.mkdir(parents=True, mode=0o700)
    shutil.copy2(theirs.key, paths.key)
    with pytest.raises(ProctorError, match="the ledger that you knew in this place is gone"):
        begin(scene.home)
    paths.key.rename(scene.home / "aside.pem")
    assert begin(scene.home).rpartition("+")[2] != scene.other.rpartition("+")[2]
    fresh = LedgerPaths(scene.home.with_name("fresh") / "ledger")  # no place that this user knows
    fresh.key.parent.mkdir(parents=True, mode=0o700)
    shutil.copy2(theirs.key, fresh.key)
    assert begin(fresh.directory.parent).rpartition("+")[2] == scene.other.rpartition("+")[2]


def test_ledger_begun_anew_by_its_user_is_read(scene: Scene) -> None:
    shutil.rmtree(scene.home)
    new = begin(scene.home)
    done = scene.call("log")
    assert (done.returncode, done.stderr) == (0, "")
    assert new != scene.own
    scene.exchange()
    assert scene.call("log").returncode == 1


def test_honest_ledger_is_read_when_one_of_the_same_origin_was_seen_first(scene: Scene) -> None:
    """A stranger takes the origin of a ledger that this user has not seen yet."""
    honest, state = scene.home, scene.state.with_name("fresh")
    paths = LedgerPaths(scene.stranger / "ledger")
    shutil.rmtree(paths.directory)
    forge(paths, origin=scene.own.partition("+")[0])
    done = call_here(["log"], home=scene.stranger, state=state)
    assert done.returncode == 0, done.stderr
    done = call_here(["log"], home=honest, state=state)
    assert done.returncode == 0, done.stderr
    assert "you know another ledger that claims the same origin" in " ".join(done.stderr.split())


def forge(paths: LedgerPaths, *, origin: str) -> None:
    """Begin a ledger of a chosen origin."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("secrets.token_hex", lambda _: origin.rpartition("/")[2])
        begin(paths.directory.parent)


@few_or_each
def test_key_of_another_ledger_is_one_clear_error_of_every_command(
    scene: Scene, every: int
) -> None:
    file = scene.stranger / "1"
    file.write_text(scene.other)
    own = scene.stranger / "own.vkey"
    own.write_text(scene.own)
    with chdir(scene.stranger):
        for name, command in list(OF_HOMES.items())[::every]:
            assert any("--vkey" in each.opts for each in command.params), name
            done = scene.call(*call_of(name, command), "--vkey", file)
            told = " ".join((done.stdout + done.stderr).split())
            assert done.returncode == 1, (name, told)
            assert "ledger's public key is not the one given" in told, (name, told)
    for arguments in READING[::every]:
        done = scene.call(*arguments, "--vkey", own)
        assert "not the one given" not in done.stdout + done.stderr
        assert done.returncode == 0 or arguments == ["judge"], arguments
    with pytest.raises(SignatureError):
        Home(scene.home, vkey=scene.other).open_log().__enter__()
    assert os.environ["PROCTOR_STATE"] == str(scene.state)
