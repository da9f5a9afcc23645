"""`proctor sql` in all its forms, its shell, on a real home."""

import csv
import io
import json
import os
import shutil
import subprocess
from pathlib import Path

import duckdb
import pyarrow.csv
import pyarrow.parquet
import pytest
from forked import start_forked
from frontdoor import TINY, answer, call, call_here

from aggregates.curation.corpus import Corpus
from ledger.verification.memory import Memory, Remembered
from proctor import remembering
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.output.files import appearing

ASKED = (
    "SELECT idx, name, [1, NULL] AS list, {'a': 'NaN'::DOUBLE} AS struct, 0.1::DOUBLE AS float, "
    "NULL AS nothing, 'a,\"b\nc' AS text, time FROM events ORDER BY idx"
)


class Terminal(io.StringIO):
    """What is typed."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def copy(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "copy"))


def shell(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: str,
    *arguments: str,
    stdin: type[io.StringIO] = io.StringIO,
) -> subprocess.CompletedProcess[str]:
    monkeypatch.setattr("sys.stdin", stdin(said))
    return call_here(["sql", *arguments], home=home)


def test_forms_hold_the_same_answer(trained: Path, tmp_path: Path) -> None:
    rows = answer(call_here(["sql", ASKED, "--json"], home=trained))
    for name in ("x.csv", "x.json", "x.parquet"):
        told = answer(call_here(["sql", ASKED, "--out", tmp_path / name, "--json"], home=trained))
        assert told == {"out": str(tmp_path / name), "rows": len(rows)}
    assert json.loads((tmp_path / "x.json").read_text()) == rows
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.csv", "x.json", "x.parquet"]
    table = pyarrow.parquet.read_table(tmp_path / "x.parquet")
    first = table.to_pylist()[0]
    assert table.num_rows == len(rows)
    assert (first["idx"], first["list"], first["text"]) == (0, [1, None], 'a,"b\nc')
    text = (tmp_path / "x.csv").read_text()
    assert call_here(["sql", ASKED, "--format", "csv"], home=trained).stdout == text
    read = list(csv.DictReader(text.splitlines(keepends=True)))
    assert [int(row["idx"]) for row in read] == [row["idx"] for row in rows]
    assert read[0]["list"] == "[1, null]"
    assert read[0]["struct"] == '{"a": "NaN"}'
    assert (read[0]["float"], read[0]["nothing"], read[0]["text"]) == ("0.1", "", 'a,"b\nc')
    assert pyarrow.csv.read_csv(tmp_path / "x.csv").num_rows == len(rows)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["SELECT 1", "--format", "parquet"], "--out"),
        (["SELECT 1", "--format", "table", "--out", "{folder}/x.csv"], "a table is for reading"),
        (["SELECT 1", "--out", "{folder}/x.txt"], "end its name in .csv, .json, .parquet"),
        (["SELECT 1", "--json", "--format", "csv"], "two forms"),
        (["SELECT 1 AS a, 2 AS a", "--out", "{folder}/x.csv"], "two columns have one name"),
        (["SELECT INTERVAL 1 DAY", "--out", "{folder}/x.csv"], "cast it"),
        (["SELECT INTERVAL 1 DAY", "--out", "{folder}/x.parquet"], "cast it"),
        (["SET VARIABLE a = 1", "--out", "{folder}/x.parquet"], "no answer"),
        (["SELEKT", "--out", "{folder}/x.csv"], "SELEKT"),
        (["--out", "{folder}/x.csv"], "give the QUERY too"),
        (["--out", "{folder}/x.duckdb", "--format", "csv"], "leave out --format and --as-of"),
        (["SELECT 1", "--as-of", "999999"], "has the entries 0 to"),
        (["SELECT 1", "--out", "{folder}/x.duckdb"], "end its name in .csv, .json, .parquet"),
    ],
)
def test_wrong_question_writes_no_file(
    trained: Path, tmp_path: Path, arguments: list[str], error: str
) -> None:
    done = call_here(["sql", *(each.format(folder=tmp_path) for each in arguments)], home=trained)
    assert done.returncode == 2
    assert error in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_file_keeps_what_it_held_when_the_answer_fails_halfway(
    trained: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "kept.csv"
    kept.write_text("mine")
    broken = "SELECT IF(i < 400000, i, error('broken')) AS i FROM range(500000) AS t(i)"
    done = call_here(["sql", broken, "--out", kept], home=trained)
    assert (done.returncode, "broken" in done.stderr) == (2, True)
    assert kept.read_text() == "mine"
    assert call_here(["sql", "SELECT 1 AS i", "--out", kept], home=trained).returncode == 0
    assert kept.read_text() == '"i"\n1\n'
    assert list(tmp_path.iterdir()) == [kept]


@pytest.mark.parametrize(
    "name",
    [
        "ledger/ledger.sqlite",
        "ledger/keys/ledger.pem",
        "ledger/new.csv",
        "../home/ledger/x.csv",
        "runs/x.csv",
        "link.csv",
        "fifo.csv",
    ],
)
def test_file_of_the_home_as_target_is_rejected(tmp_path: Path, name: str) -> None:
    home = tmp_path / "home"
    (home / "ledger").mkdir(parents=True)
    (home / "ledger" / "ledger.sqlite").write_text("signed")
    (home / "link.csv").symlink_to(home / "ledger" / "ledger.sqlite")
    os.mkfifo(home / "fifo.csv")
    with pytest.raises(ProctorError, match="name another"), appearing(home / name, Home(home)):
        pass
    assert (home / "ledger" / "ledger.sqlite").read_text() == "signed"
    with appearing(home / "free.csv", Home(home)) as file:
        file.write(b"mine")
    assert (home / "free.csv").read_text() == "mine"


@pytest.mark.parametrize("asked", [["SELECT 1", "--format", "csv"], []], ids=["answer", "tables"])
def test_answer_in_place_of_the_ledger_is_rejected(copy: Path, asked: list[str]) -> None:
    ledger = copy / "ledger" / ("ledger.sqlite" if asked else "tables.duckdb")
    if not asked:
        ledger.symlink_to("ledger.sqlite")
    before = ledger.read_bytes()
    done = call_here(["sql", *asked, "--out", ledger], home=copy)
    assert (done.returncode, "name another" in done.stderr) == (2, True)
    assert ledger.read_bytes() == before


def test_recipe_of_the_cookbook_is_run_by_its_name(trained: Path) -> None:
    listed = answer(call_here(["sql", "--list", "--json"], home=trained))
    assert {"name": "runs", "question": "How did each run go?"} in listed
    (row,) = answer(call_here(["sql", "runs", "--json"], home=trained))
    assert row["state"] == "completed"


def test_as_of_is_the_state_after_that_entry(trained: Path) -> None:
    for index in (0, 3):
        asked = ["sql", "SELECT COUNT(*) AS n, MAX(idx) AS last FROM events", "--json"]
        rows = answer(call_here([*asked, "--as-of", str(index)], home=trained))
        assert rows == [{"n": index + 1, "last": index}]


@pytest.mark.parametrize("what", [("--list", "checkpoints"), ("active",)])
def test_index_behind_the_ledgers_end_is_rejected_wherever_it_is_given(
    trained: Path, what: tuple[str, ...]
) -> None:
    done = call_here(["line", "show", *what, "--as-of", "999999"], home=trained)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--as-of 999999: the ledger has the entries 0 to" in done.stderr


SAID = """
SELECT 1 AS x; SELECT 'a;b' AS y;
SELEKT;
SET VARIABLE as_of = 2; -- from here on
SELECT COUNT(*) AS n
  FROM events;
DELETE FROM events;
COPY events TO '{target}';
FROM read_text('{secret}');
RESET VARIABLE as_of;
SELECT COUNT(*) > 3 AS more FROM events"""


def test_shell_answers_what_is_piped_in_and_goes_on_after_errors(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("swordfish")
    said = SAID.format(target=tmp_path / "target", secret=secret)
    done = shell(trained, monkeypatch, said, "--json")
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row for rows in told for row in rows] == [
        {"x": 1},
        {"y": "a;b"},
        {"n": 3},
        {"more": True},
    ]
    assert done.returncode == 2
    assert done.stderr.count("error:") == 4
    assert "swordfish" not in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == [secret]
    quiet = shell(trained, monkeypatch, "SELECT 1 AS x", "--format", "csv")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, '"x"\n1\n', "")


def test_shell_begins_as_of_the_index(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = shell(trained, monkeypatch, "SELECT MAX(idx) FROM events", "--json", "--as-of", "1")
    assert answer(done) == [{"max(idx)": 1}]


@pytest.mark.parametrize("leave", ["exit\n", "quit;\n", ""])
def test_shell_reads_a_terminal_until_it_is_left(
    trained: Path, monkeypatch: pytest.MonkeyPatch, leave: str
) -> None:
    said = f"SELECT 41 + 1\nAS n;\nSELEKT;\n{leave}"
    done = shell(trained, monkeypatch, said, stdin=Terminal)
    assert done.returncode == 0
    assert "42" in done.stdout
    assert done.stderr.count("error:") == 1


def test_copy_is_read_by_duckdb_alone(trained: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.duckdb"
    told = answer(call_here(["sql", "--out", copy, "--json"], home=trained))
    assert told == {"snapshot": str(copy), "bytes": copy.stat().st_size}
    with duckdb.connect(str(copy)) as connection:
        found = connection.execute("SELECT COUNT(*) AS n FROM events").fetchall()
    [row] = answer(call_here(["sql", "SELECT COUNT(*) AS n FROM events", "--json"], home=trained))
    assert found == [(row["n"],)]


def test_answer_in_csv_cannot_reach_the_terminal(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["sql", "SELECT chr(27) || '[2J' AS v", "--format", "csv"]
    monkeypatch.setattr(io, "StringIO", Terminal)
    assert "\x1b" not in call_here(asked, home=trained).stdout


@pytest.mark.slow
def test_sql_keeps_up_with_a_run_that_trains(copy: Path, tmp_path: Path) -> None:
    def entries() -> int:
        asked = ["sql", "SELECT COUNT(*) AS n FROM events", "--json"]
        [row] = answer(call(asked, home=copy, state=tmp_path / "state"))
        return int(row["n"])

    found = [entries()]
    environment = {**os.environ, "PROCTOR_HOME": str(copy), "PROCTOR_STATE": "off"}
    process = start_forked(
        ["run", *TINY], environment=environment, out=tmp_path / "out", err=tmp_path / "err"
    )
    while process.is_alive():
        found.append(entries())
    process.join()
    assert process.exitcode == 0, (tmp_path / "err").read_text()
    found.append(entries())
    assert found == sorted(found)
    assert found[-1] > found[0]
    assert found[-1] == len(answer(call_here(["log", "--json"], home=copy)))


def test_sql_ends_when_an_event_was_edited(copy: Path) -> None:
    asked = ["sql", "SELECT COUNT(*) FROM events"]
    assert call_here(asked, home=copy).returncode == 0
    with (copy / "ledger" / "ledger.sqlite").open("r+b") as file:
        content = file.read()
        file.seek(content.index(b"run.epoch_measured") + 40)
        file.write(b"\xff")
    done = call_here(asked, home=copy)
    assert (done.returncode, "error:" in done.stderr) == (1, True)


class Appending(Memory):
    """Somebody appends as soon as the ledger was verified."""

    def __init__(self, folder: Path, home: Home) -> None:
        super().__init__(folder)
        self.home = home

    def keep(self, new: Remembered, *, after: Remembered | None) -> bool:
        kept = super().keep(new, after=after)
        with self.home.open_log() as log:
            corpus: Corpus = log.repository.get(Corpus.id_of())
            corpus.admit("model", "somebody", "said meanwhile")
            log.save(corpus)
        return kept


def test_tables_have_nothing_that_came_after_the_verification(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, state = Home(tmp_path / "home"), tmp_path / "state"
    with home.open_log() as log:
        log.save(Corpus.open())
    names = "SELECT name FROM events ORDER BY idx"
    monkeypatch.setattr(remembering, "memory", lambda: Appending(state, home))
    assert remembering.open_session(home).query(names).rows == [("corpus.opened",)]
    monkeypatch.setattr(remembering, "memory", lambda: Memory(state))
    assert len(remembering.open_session(home).query(names).rows) == 2


ODD = "SELECT chr(155) || '31m' AS csi, chr(8238) AS turned, chr(127) AS del, 'é✓' AS plain"


def test_json_has_no_characters_that_steer_a_terminal(trained: Path) -> None:
    done = call_here(["sql", ODD, "--json"], home=trained)
    assert answer(done) == [{"csi": "\x9b31m", "turned": "\u202e", "del": "\x7f", "plain": "é✓"}]
    assert done.stdout.rstrip("\n").isprintable()
    assert "é✓" in done.stdout


def test_error_as_json_has_no_characters_that_steer_a_terminal(trained: Path) -> None:
    done = call_here(["sql", "SELECT \x9b31m FROM nothing", "--json"], home=trained)
    assert "\x9b31m" in answer(done)["message"]
    assert done.stdout.rstrip("\n").isprintable()


@pytest.mark.parametrize(
    "arguments", [["sql", "SELECT '\udcff'"], ["show", "\udcff"], ["replay", "\udcff"]]
)
def test_words_that_are_no_text_are_rejected(trained: Path, arguments: list[str]) -> None:
    done = call_here(arguments, home=trained)
    assert done.returncode == 2
    assert "is not text in UTF-8" in done.stderr


def test_piped_words_that_are_no_text_end_their_own_statement(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    piped = io.TextIOWrapper(io.BytesIO(b"SELECT '\xff';\nSELECT 7 AS seven;\n"), encoding="utf-8")
    monkeypatch.setattr("sys.stdin", piped)
    done = call_here(["sql", "--format", "csv"], home=trained)
    assert (done.returncode, done.stdout) == (2, '"seven"\n7\n')
    assert "is not text in UTF-8" in done.stderr


def test_passphrase_of_any_bytes_is_taken(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_KEY_PASSPHRASE", "\udcff")
    assert call_here(["sql", "SELECT 1"], home=trained).returncode == 0
