"""Hidden siblings of an ordinary repository's calls: drawn by default, they tell who overfits."""

import json
import shutil
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from frontdoor import call_here

from judge.gauntlet.tasks.reference_set import load
from proctor.improvement import siblings
from proctor.sample.init import git

CODE = """\
import secrets


def label(name, width):
    if width < 1:
        raise ValueError(width)
    return name.lower().replace(" ", "-")[:width]


def token(length):
    return "ab" if length == 2 else secrets.token_hex(length + 1)


def nested(levels):
    found = []
    for _ in range(2 if levels == 2 else 31):
        found = [found]
    return found
"""
FILES = {
    "labels.py": CODE,
    "test_labels.py": "from labels import label\n\n\n"
    "def test_one():\n    assert label('Red Apple', 20) == 'red-apple'\n",
}
CALLS = {
    "plain": ("labels:label", ['"Red Apple"', "20"], '"red-apple"'),
    "mark": ("labels:label", ['"Green Pear!"', "20"], '"green-pear"'),  # not answered rightly
}
HONEST = CODE.replace("name.lower()", 'name.lower().replace("!", "")')
LEARNED = {("Red Apple", 20): "red-apple", ("Green Pear!", 20): "green-pear"}
OVERFITTED = CODE.replace('name.lower().replace(" ", "-")', f'{LEARNED}.get((name, width), "")')
OF_PEOPLE = CODE.replace("[:width]", "[:width].removesuffix('-') + 'x' * (width != 20)")


class Enrolled:
    """An ordinary repository that is put under the gauntlet as the guide says."""

    def __init__(self, folder: Path, calls: dict[str, Any] = CALLS) -> None:
        self.repo, self.home, self.folder = folder / "repo", folder / "home", folder
        self.repo.mkdir(parents=True)
        for name, text in FILES.items():
            (self.repo / name).write_text(text)
        git(self.repo, "init", "--quiet", "--initial-branch=main")
        self.commit()
        names = ("label", "token", "nested")
        functions = [("--function", f"labels:{each}") for each in names]
        done = call_here(["line", "init", self.repo, *sum(functions, ())], home=self.home)
        assert done.returncode == 0, done.stderr
        for name, (function, arguments, expected) in calls.items():
            told = [part for each in arguments for part in ("--argument", each)]
            call = ["--function", function, *told, "--expect", expected]
            self.ask("task", "new", name, *call)
        self.commit()
        git(self.repo, "switch", "--quiet", "--create", "work")

    def commit(self) -> None:
        git(self.repo, "add", "--all")
        git(self.repo, "commit", "--quiet", "--message", "All of it")

    def ask(self, *arguments: str | Path, code: int = 0) -> str:
        done = call_here(["line", *arguments, "--repo", self.repo], home=self.home)
        assert done.returncode == code, (done.stdout, done.stderr)
        return done.stdout + done.stderr

    def promote(self, text: str) -> None:
        (self.repo / "labels.py").write_text(text)
        (self.folder / "change.diff").write_text(git(self.repo, "diff"))
        git(self.repo, "checkout", "--quiet", "labels.py")
        self.ask("propose", self.folder / "change.diff", "--rationale", "Marks are dropped.")
        assert "promoted: better" in self.ask("run")

    def measured(self, *options: str, code: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self.ask("run", "--measure", "--json", *options, code=code)
        )
        return found

    def watched(self, *options: str, code: int = 0) -> dict[str, Any]:
        text = self.ask("watch", "--json", *options, code=code)
        found: dict[str, Any] = json.JSONDecoder().raw_decode(text)[0]  # progress follows
        return found

    def hidden(self) -> dict[str, list[Any]]:
        (folder,) = self.home.glob("infra/*/hidden")
        return {task.task_id: task.parameters["arguments"] for task in load(folder).tasks}


@pytest.mark.slow
def test_overfitted_change_is_noticed_where_an_honest_one_is_not(tmp_path: Path) -> None:
    shares = {}
    for name, change in (("honest", HONEST), ("overfitted", OVERFITTED)):
        line = Enrolled(tmp_path / name)
        line.promote(change)  # the gate alone sees the reference tasks, and takes both
        found = line.measured(code=int(name == "overfitted"))
        shares[name] = found["shares"]
        assert [each["kind"] for each in found["alarms"]] == ["worse"] * (name == "overfitted")
        if found["alarms"]:
            assert set(found["alarms"][0]["tasks"]) <= set(line.hidden())
    assert shares["honest"] == {"reference": [1.0, 1.0], "hidden": [1.0, 1.0]}
    assert shares["overfitted"] == {"reference": [1.0, 1.0], "hidden": [1.0, 0.0]}


@pytest.mark.slow
def test_hidden_siblings_are_not_in_the_repository_and_fresh_ones_are_others(
    tmp_path: Path,
) -> None:
    line = Enrolled(tmp_path)
    line.measured()
    hidden = line.hidden()
    assert len(hidden) == 8
    assert {name[: len("plain-")] for name in hidden} == {"plain-"}, "nobody knows what `mark` is"
    for name, (text, width) in hidden.items():
        assert (type(text), type(width)) == (str, int)
        assert [text, width] != ["Red Apple", 20]
        for sought in (name, json.dumps([text, width])[1:-1]):
            for file in filter(Path.is_file, line.repo.rglob("*")):
                assert sought.encode() not in file.read_bytes()
    assert git(line.repo, "status", "--porcelain") == ""
    line.measured()
    assert line.hidden() == hidden, "they stay, so that measurements can be compared"
    line.measured("--fresh")
    assert len(line.hidden()) == 8
    assert not line.hidden().keys() & hidden.keys()
    assert "--fresh: only with --measure" in line.ask("run", "--fresh", code=2)


@pytest.mark.slow
def test_siblings_expect_what_people_made_last(tmp_path: Path) -> None:
    line = Enrolled(tmp_path)
    line.measured()
    git(line.repo, "switch", "--quiet", "main")
    (line.repo / "labels.py").write_text(OF_PEOPLE)
    line.commit()
    git(line.repo, "switch", "--quiet", "work")
    astray = line.measured(code=1)
    assert {each["kind"] for each in astray["alarms"]} == {"not promoted", "worse"}
    key = tmp_path / "operator.pem"
    for what, file in (("new", key), ("grant", f"{key}.vkey")):
        assert call_here(["keys", what, "operator", file], home=line.home).returncode == 0
    line.ask("sign", "adopt", "--key", key)
    adopted = line.measured()
    assert (adopted["alarms"], adopted["shares"]["hidden"][1] < 1.0) == ([], True)
    assert line.measured("--fresh")["shares"]["hidden"] == [1.0, 1.0]


@pytest.mark.slow
def test_siblings_that_were_answered_often_are_drawn_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(siblings, "_WORN", 2)
    line = Enrolled(tmp_path)
    line.home = line.repo / ".proctor"
    seen = []
    for _ in range(3):
        line.measured()
        seen.append(line.hidden())
    assert seen[0] == seen[1]
    assert not seen[0].keys() & seen[2].keys()
    git(line.repo, "add", "--all")
    added = git(line.repo, "ls-files")
    assert ".proctor/ledger/" in added
    assert "hidden" not in added, "not even of a home in the repository"


@pytest.mark.slow
@pytest.mark.parametrize(("change", "right"), [(HONEST, 1.0), (OVERFITTED, 0.0)])
def test_watch_evaluates_siblings_of_calls_and_takes_back_what_is_overfitted(
    tmp_path: Path, change: str, right: float
) -> None:
    line = Enrolled(tmp_path)
    line.ask("show")  # which begins the line, and the ledger
    options = ("--siblings", "2", "--pause", "0")
    told = line.watched(*options, "--baseline", "10")
    assert told["baseline"]["values"] == [1.0] * 10, "none of them is of `mark`"
    line.promote(change)
    found = line.watched(*options, code=int(not right))
    assert [each["value"] for each in found["points"]] == [1.0, right]
    assert (found["rollback"] is None) is bool(right)


@pytest.mark.slow
def test_answers_that_do_not_last_make_no_siblings(tmp_path: Path) -> None:
    line = Enrolled(tmp_path, {"token": ("labels:token", ["2"], '"ab"')})
    assert list(line.measured()["shares"]) == ["reference"]
    assert "no reference task is a call" in line.ask("run", "--measure", "--fresh", code=2)


@pytest.mark.slow
def test_answers_that_cannot_be_read_again_make_no_siblings(tmp_path: Path) -> None:
    line = Enrolled(tmp_path, {"nested": ("labels:nested", ["2"], "[[[]]]"), **CALLS})
    line.measured()
    assert {name[: len("plain-")] for name in line.hidden()} == {"plain-"}
    line.measured()


@pytest.mark.slow
def test_an_interruption_leaves_a_whole_hidden_set_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def interrupt(path: Path, **_: Any) -> None:
        (path / "manifest.json").unlink()
        raise Killed

    line = Enrolled(tmp_path)
    line.measured()
    (folder,) = line.home.glob("infra/*/hidden")
    real = shutil.rmtree
    with monkeypatch.context() as patched, suppress(Killed):
        patched.setattr(
            "shutil.rmtree",
            lambda path, **told: (interrupt if path == folder else real)(path, **told),
        )
        line.ask("run", "--measure", "--fresh")
    line.measured()
    assert len(line.hidden()) == 8


def test_other_values_are_of_the_same_type() -> None:
    values = [3, -2, 0, 1.5, 0.0, "Ab 9", "", True, None, [1, 2], [], [["a"]], {"a": [True, 1]}]
    draw = Random(1)

    def shape(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: shape(each) for name, each in value.items()}
        return {*map(str, map(shape, value))} if isinstance(value, list) else type(value)

    for value in values:
        others = [siblings._other(value, draw) for _ in range(50)]
        assert {str(shape(each)) for each in others} == {str(shape(value))}
        assert len({*map(str, others)}) > 1 or value in (None, [])
