"""The bench measures what it says it measures, and leaves nothing behind."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from studies.bench import app, main
from studies.speed.ledger import BODY, _canonical, _json_body, verify_chain, write_chain
from studies.speed.reading import FLAT, ONCE, ReadingBench, growth_chart
from studies.speed.timing import asked
from studies.speed.whole import measure
from synthetic import synthetic_run
from typer.testing import CliRunner

from proctor.errors import ProctorError
from proctor.home import Home
from proctor.pages.charts.drawing import svg

STUDIES = Path(__file__).parents[2] / "docs" / "studies"


@pytest.mark.slow  # it measures
def test_bench_asks_ledgers_of_each_size_and_leaves_nothing(tmp_path: Path) -> None:
    home, folder = tmp_path / "home", tmp_path / "folder"
    folder.mkdir()
    with Home(home).open_log() as log:
        synthetic_run(log)
    asked = ["--growth", "--events", "20000", "--rounds", "1", "--folder", str(folder), "--json"]
    result = CliRunner().invoke(app, ["all", *asked, "--like", str(home / "ledger")])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert set(found["seconds"]) == {*FLAT, *ONCE}
    assert set(found["peak_mib"]) == {*FLAT, *ONCE} - {"append 1,000 events"}
    for by in (*found["seconds"].values(), *found["peak_mib"].values()):
        assert list(by) == ["10,000", "20,000"]
        assert all(value > 0 for value in by.values())
    assert not list(folder.iterdir())


def test_chain_of_json_lines_is_verified(tmp_path: Path) -> None:
    assert len(_canonical(_json_body())) == BODY
    path = tmp_path / "chain.jsonl"
    write_chain(path, events=20)
    verify_chain(path)
    text = path.read_text()
    for old, new in (("1.0625", "1.0626"), ('"index":7', '"index":8'), ("run.event_3", "run.")):
        path.write_text(text.replace(old, new, 1))
        with pytest.raises(ProctorError, match="of the chain does not fit"):
            verify_chain(path)


@pytest.mark.slow  # it measures
def test_bench_of_all_prints_one_table(tmp_path: Path) -> None:
    size = ["--events", "500", "--rounds", "1", "--part", "append", "--folder", str(tmp_path)]
    result = CliRunner().invoke(app, ["all", *size, "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [row["beside"] for row in found["rows"]] == [
        *["unsigned recorder"] * 3,
        "JSON lines",
        "a tree head for each",
    ]
    assert all(row["ratio"]["least"] == row["ratio"]["most"] > 0 for row in found["rows"])
    assert "append single events" in CliRunner().invoke(app, ["all", *size]).stdout
    refused = CliRunner().invoke(app, ["all", "--part", "nothing"])
    assert isinstance(refused.exception, ProctorError)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow  # it measures
def test_every_row_of_the_table_is_measured(tmp_path: Path) -> None:
    found = measure(tmp_path, events=2_000, rounds=1)
    assert all(row.own > 0 and row.other > 0 for row in found.rows)
    assert len(found.rows) + len(found.left_out) == 16
    assert all(rate > 0 for rate in found.limits.values())
    assert not list(tmp_path.iterdir())


@pytest.mark.slow  # it measures
def test_growth_is_shown_by_size_and_asked_again_of_kept_ledgers(tmp_path: Path) -> None:
    homes, chart = tmp_path / "homes", tmp_path / "growth.svg"
    size = ["--growth", "--events", "10000", "--rounds", "1", "--folder", str(tmp_path)]
    asked = [*size, "--homes", str(homes), "--chart", str(chart)]
    result = CliRunner().invoke(app, ["all", *asked, "--json"])
    assert result.exit_code == 0, result.output
    assert all(list(by) == ["10,000"] for by in json.loads(result.stdout)["seconds"].values())
    assert "append 1,000 events" in chart.read_text()
    written = (homes / "10000" / "ledger" / "ledger.vkey").read_text()
    (homes / "100.new").mkdir()  # of a measurement that was killed
    result = CliRunner().invoke(app, ["all", *asked, "--format", "markdown"])
    assert result.exit_code == 0, result.output
    assert (homes / "10000" / "ledger" / "ledger.vkey").read_text() != written  # it had 12,000
    assert "| show | " in result.stdout
    assert set(tmp_path.iterdir()) == {homes, chart}


def test_kept_ledgers_and_a_chart_belong_to_growth(tmp_path: Path) -> None:
    for option in ("--like", "--homes", "--chart"):
        refused = CliRunner().invoke(app, ["all", option, str(tmp_path / "x")])
        assert isinstance(refused.exception, ProctorError)


def test_growth_is_drawn_over_the_sizes() -> None:
    costs = {"10,000": 0.5, "100,000": 0.6, "1,000,000": 0.5}
    found = ReadingBench(
        machine="", rounds=1, load=[], seconds=dict.fromkeys(FLAT, costs), peak_mib={}, disk_mib={}
    )
    drawn = svg(growth_chart(found))
    assert all(f">{size}</text>" in drawn for size in costs)
    assert "10,000 to 1,000,000" in drawn


def test_a_command_is_measured_alone() -> None:
    small = asked(("-c", "pass"), dict(os.environ))
    large = asked(("-c", "x = b'x' * 200_000_000"), dict(os.environ))
    assert 0 < small.processor < 10
    assert small.peak_mib < 60  # of the command alone, not of this process
    assert large.peak_mib > 150
    with pytest.raises(ProctorError, match="no such thing"):
        asked(("-c", "raise SystemExit('no such thing')"), dict(os.environ))


@pytest.mark.slow
def test_terminated_bench_leaves_no_folder_and_no_process(tmp_path: Path) -> None:
    command = [sys.executable, str(STUDIES), "bench", "all", "--folder", str(tmp_path)]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE) as bench:
        assert _waited(lambda: any(tmp_path.iterdir()))
        bench.terminate()
        assert (bench.wait(10), list(tmp_path.iterdir())) == (143, [])
        with pytest.raises(ProcessLookupError):
            os.killpg(bench.pid, 0)


@pytest.mark.slow
def test_notary_ends_with_the_bench_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time, pathlib\n"
        "from studies.speed.notary import _serving\n"
        f"with _serving(pathlib.Path({str(tmp_path)!r}), small=0):\n"
        "    print(flush=True)\n    time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(STUDIES.parent)},
        start_new_session=True,
        stdout=subprocess.PIPE,
    ) as bench:
        assert bench.stdout is not None
        assert bench.stdout.readline()
        assert (tmp_path / "socket").exists()
        bench.kill()
    assert _waited(lambda: not (tmp_path / "socket").exists())


def _waited(until: Callable[[], bool], seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not until() and time.monotonic() < end:
        time.sleep(0.02)
    return until()


@pytest.mark.parametrize("words", [["befor"], ["before", "--entrie", "3", "HEAD"]])
def test_wrong_words_get_a_sentence(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "Possible options" in (told := capsys.readouterr().err) or "Did you mean" in told
