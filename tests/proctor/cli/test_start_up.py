"""How the command line starts: what is loaded, what is listed, and what ends it early."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import typer

from proctor import __version__
from proctor.cli.lazy import load
from proctor.cli.main import COMMANDS, app
from proctor.errors import EXIT_CLOSED

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests/golden/calibrated_1"
HEAVY = ("httpx2", "openai", "pandas", "plotext", "pyarrow", "scipy", "torch", "waitress")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN, tmp_path / "home"))


def proctor(*arguments: str, home: Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command in a process of its own, into pipes."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PROCTOR_")}
    return subprocess.run(
        [sys.executable, "-m", "proctor", *arguments],
        capture_output=True,
        check=False,
        stdin=subprocess.DEVNULL,
        cwd=home.parent,  # as Python imports from the current folder first
        env={
            **kept,
            "PROCTOR_HOME": str(home),
            "PROCTOR_STATE": "off",
            "PYTHONPATH": str(ROOT),
            **variables,
        },
    )


def loaded(
    arguments: Sequence[str], names: Sequence[str], *, home: Path, **variables: str
) -> set[str]:
    """Return which of these modules a command has imported when it ends."""
    code = (
        "import sys, atexit\n"
        f"atexit.register(lambda: print(*[n for n in {list(names)!r} if n in sys.modules], "
        "file=sys.stderr))\n"
        f"sys.argv = ['proctor', *{list(arguments)!r}]\n"
        "from proctor.cli.main import main\nmain()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PROCTOR_HOME": str(home), "PYTHONPATH": str(ROOT), **variables},
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("option", ["--help", "-h", "--version"])
def test_first_look_loads_no_package_of_ours_but_the_command_line(option: str, home: Path) -> None:
    names = ("aggregates", "duckdb", "eventsourcing", "judge", "ledger", "monitor", "numpy", *HEAVY)
    assert loaded([option], names, home=home) == set()


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        (["verify"], {"numpy"}),
        (["export", "proof", "3"], {"numpy"}),
        (["log"], {"numpy"}),
        (["sql", "SELECT count(*) FROM events"], {"duckdb", "numpy"}),
    ],
)
def test_light_command_loads_nothing_heavy(
    arguments: list[str], allowed: set[str], home: Path
) -> None:
    assert loaded(arguments, ("duckdb", "ledger.notary", "numpy", *HEAVY), home=home) <= allowed


def test_question_without_news_loads_no_declaration(home: Path, tmp_path: Path) -> None:
    names = ("aggregates.registry", "duckdb", "projections.projector")
    found = [
        loaded(["sql", "SELECT 1"], names, home=home, PROCTOR_STATE=str(tmp_path / "state"))
        for _ in range(2)
    ]
    assert found == [{*names}, {"duckdb"}]


@pytest.mark.parametrize("name", COMMANDS)
def test_listed_help_is_the_help_of_the_command(name: str) -> None:
    group = typer.main.get_command(app)
    listed = group.commands[name]  # type: ignore[attr-defined]
    own = load(listed).get_short_help_str(limit=1_000)
    assert listed.get_short_help_str(limit=1_000) == own


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ["exit functions"]),
        (
            "import threading as t\n"
            "def work_on(): t.main_thread().join(); print('thread')\n"
            "t.Thread(target=work_on).start()",
            ["thread", "unloaded"],
        ),
    ],
    ids=["nothing to wait for", "a thread that works on"],
)
def test_python_is_not_taken_apart_where_torch_is_loaded(
    before: str, after: list[str], home: Path
) -> None:
    code = (
        "import atexit, os, sys, types\n"
        "class Torch(types.ModuleType):\n"
        "    def __del__(self, write=os.write): write(1, b'unloaded\\n')\n"
        "sys.modules['torch'] = Torch('torch')\n"
        "atexit.register(print, 'exit functions')\n"
        "sys.argv = ['proctor', '--version']\n"
        f"{before}\n"
        "from proctor.cli.start import main\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout.splitlines()
    assert said[0] == f"proctor {__version__}"
    assert set(after) <= set(said)
    assert ("unloaded" in said) == ("unloaded" in after)


def test_version_is_printed(home: Path) -> None:
    done = proctor("--version", home=home)
    assert (done.returncode, done.stdout) == (0, f"proctor {__version__}\n".encode())


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ({}, "1000 None"),
        ({"GOMP_SPINCOUNT": "7"}, "7 None"),
        ({"OMP_WAIT_POLICY": "active"}, "None active"),
    ],
)
def test_waiting_threads_sleep_unless_the_user_says_otherwise(
    given: dict[str, str], used: str
) -> None:
    code = (
        "import atexit, os, sys\n"
        "names = ('GOMP_SPINCOUNT', 'OMP_WAIT_POLICY')\n"
        "atexit.register(lambda: print(*map(os.environ.get, names)))\n"
        "sys.argv = ['proctor', '--version']\n"
        "from proctor.cli.start import main\nmain()\n"
    )
    ours = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**kept, "PYTHONPATH": str(ROOT), **given},
    )
    assert done.stdout.splitlines()[-1] == used


@pytest.mark.parametrize("command", [[], ["verify"], ["keys"], ["keys", "list"], ["line", "run"]])
@pytest.mark.sampled(3)
def test_short_option_shows_the_same_help(command: list[str], home: Path) -> None:
    done = proctor(*command, "-h", home=home)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == proctor(*command, "--help", home=home).stdout


def test_shell_completes_commands_and_their_options(home: Path) -> None:
    def completed(words: str) -> str:
        return proctor(
            home=home,
            _PROCTOR_COMPLETE="complete_bash",
            COMP_WORDS=words,
            COMP_CWORD=str(words.count(" ")),
        ).stdout.decode()

    assert set(completed("proctor ver").split()) == {"verify"}
    run = json.loads(proctor("runs", "--json", home=home).stdout)[0]
    for command in ("show", "judge"):
        assert set(completed(f"proctor {command} ").split()) >= {"latest", run["name"]}
        assert completed(f"proctor {command} {run['run_id'][:6]}").split() == [run["run_id"]]
    assert completed(f"proctor show --home {home.parent / 'none'} ") == ""
    # The shell is the one that starts the command; `exit` keeps bash from replacing itself.
    shown = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m proctor --show-completion; exit $?"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (shown.returncode, b"complete_bash" in shown.stdout) == (0, True), shown.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "variables",
    [{"PYTHONIOENCODING": "latin-1"}, {"LANG": "C", "LC_ALL": "C"}],
    ids=["latin-1", "C"],
)
@pytest.mark.sampled(2)
def test_no_encoding_ends_in_a_traceback(variables: dict[str, str], home: Path) -> None:
    variables = {**variables, "PROCTOR_STATE": str(home.parent / "state")}  # tables, made once
    for arguments in (["show"], ["replay"]):
        done = proctor(*arguments, home=home, **variables)
        assert done.returncode == 0, done.stderr
        assert b"Traceback" not in done.stderr
    question = ["sql", "SELECT 'α🙂' AS word", "--json"]  # noqa: RUF001 - a Greek letter
    assert b"Traceback" not in proctor(*question, home=home, **variables).stderr


@pytest.mark.slow
def test_json_stays_json_when_the_encoding_lacks_characters(home: Path) -> None:

    done = proctor("sql", "SELECT 'äα🙂' AS w", "--json", home=home, PYTHONIOENCODING="latin-1")
    assert json.loads(done.stdout) == [{"w": "äα🙂"}]


@pytest.mark.parametrize(
    "command", ["log", "replay", "show --json", "--help", "sql 'FROM events'", "keys list --json"]
)
@pytest.mark.sampled(3)
def test_closed_pipe_ends_the_command_in_silence(command: str, home: Path) -> None:
    # `true` reads nothing, and is gone when the command begins to write.
    pipe = f"(sleep 0.1; '{sys.executable}' -m proctor {command}; echo $? >&2) | true"
    done = subprocess.run(
        ["bash", "-c", pipe],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PROCTOR_HOME": str(home),
            "PROCTOR_STATE": "off",
            "PYTHONPATH": str(ROOT),
        },
    )
    assert (done.stdout, done.stderr) == ("", f"{EXIT_CLOSED}\n")


@pytest.mark.parametrize("command", ["log", "--help", "keys list --json"])
@pytest.mark.sampled(2)
def test_output_that_cannot_be_written_is_one_error(command: str, home: Path) -> None:
    known = {"PROCTOR_HOME": str(home), "PROCTOR_STATE": "off", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-c", f"'{sys.executable}' -m proctor {command} > /dev/full"],
        capture_output=True,
        text=True,
        check=False,
        env={key: each for key, each in os.environ.items() if key != "PYTHONUNBUFFERED"} | known,
    )
    assert (done.returncode, done.stderr) == (2, "error: No space left on device\n")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_streams_that_are_closed_from_the_start_are_no_error(closed: str, home: Path) -> None:
    done = subprocess.run(
        ["bash", "-c", f"'{sys.executable}' -m proctor log {closed}"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PROCTOR_HOME": str(home), "PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [["verify"], ["--help"]])
def test_package_of_another_distribution_that_hides_ours_is_named(
    arguments: list[str], home: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other" / "ledger"
    other.mkdir(parents=True)
    (other / "__init__.py").touch()
    shadowed = os.pathsep.join((str(other.parent), str(ROOT)))
    done = proctor(*arguments, home=home, PYTHONPATH=shadowed)
    assert done.returncode == 2
    error = done.stderr.decode()
    assert error.startswith(f"error: the package `ledger` in {other} is not Proctor's")
    assert error.count("\n") == 1


def test_package_that_another_distribution_has_overwritten_is_named(
    home: Path, tmp_path: Path
) -> None:
    for name in ("aggregates", "judge", "ledger", "monitor", "policies", "proctor", "projections"):
        shutil.copytree(ROOT / name, tmp_path / "installed" / name)
    (tmp_path / "installed/ledger/verification/reader.py").unlink()
    done = proctor("verify", home=home, PYTHONPATH=str(tmp_path / "installed"))
    assert done.returncode == 2
    error = done.stderr.decode()
    assert "overwritten Proctor's package `ledger`" in error
    assert str(tmp_path / "installed/ledger") in error
    assert error.count("\n") == 1
