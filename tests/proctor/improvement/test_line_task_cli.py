"""`proctor line task`: tasks are drafted, carried, examined and admitted, and a model answers."""

import json
from pathlib import Path

import pytest
from chat_server import ChatServer, Reply, decide
from frontdoor import call_here
from gauntlet_lines import SELECTION, Line

import proctor
from judge.gauntlet.errors import CandidateError, GauntletError
from judge.gauntlet.tasks.reference_set import load
from policies.errors import PolicyError
from proctor.improvement.server import LineServer, read_server, write_server
from proctor.sample.init import git

CAP_TEST = """\
from retrieval.component import choose

DOCUMENTS = [{"id": name, "title": "Rivers", "text": "A river."} for name in "abc"]


def test_cap_below_zero_chooses_nothing():
    assert choose(DOCUMENTS, "river", cap=-1) == []
"""


@pytest.fixture
def line(tmp_path: Path) -> Line:
    line = Line(tmp_path, ("late-rows",))
    for what, file in (("new", "operator.pem"), ("grant", "operator.pem.vkey")):
        done = call_here(["keys", what, "operator", tmp_path / file], home=line.home.path)
        assert done.returncode == 0, done.stderr
    return line


def task(line: Line, *arguments: str | Path, code: int = 0) -> str:
    """Run `proctor line task` and return what it says; the exit code has to be this one."""
    done = call_here(("line", "task", *arguments, "--repo", line.repo), home=line.home.path)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def key_of(line: Line) -> list[str | Path]:
    return ["--key", line.repo.parent / "operator.pem"]


def test_plan_is_drafted_from_a_commit_carried_and_refused_unsigned(
    line: Line, tmp_path: Path
) -> None:
    (line.repo / "tests/test_more.py").write_text(
        "from retrieval.selection import *\n\n\ndef test_it():\n    assert 1\n"
    )
    text = (line.repo / SELECTION).read_text()
    (line.repo / SELECTION).write_text(f"{text}\n\nMORE = 1\n")
    git(line.repo, "add", "--all")
    git(line.repo, "commit", "--quiet", "--message", "Have more\n\nThere must be more.")
    plan = ("new", "more", "--commit", "work", "--kind", "plan")
    told = json.loads(task(line, *plan, "--json").splitlines()[0])
    folder = Path(told["drafts"])
    (drafted,) = load(folder).tasks
    assert drafted.expected["needed"] == [SELECTION]
    assert drafted.files["issue.md"] == b"Have more\n\nThere must be more.\n"
    assert drafted.entry.source == f"commit {git(line.repo, 'rev-parse', 'work').strip()}"
    assert "already exists; choose another name" in task(line, *plan, code=2)
    assert "has 0 parents" in task(line, "new", "x", "--commit", "main", code=2)
    assert "'nowhere' not found" in task(line, "new", "x", "--commit", "nowhere", code=2)

    stick = tmp_path / "stick"
    assert "1 task signed" in task(line, "admit", "--carry", "--out", stick, *key_of(line))
    into = ("--out", line.repo / "judge/reference_tasks", *key_of(line))
    admit = ("admit", "more", "--drafts", stick, "--signed", *into)
    file = stick / "tasks/more/expected.json"
    file.write_text(file.read_text().replace(SELECTION, "retrieval/settings.toml"))
    assert "this approval is for a different set" in task(line, *admit, code=2)
    assert "no draft and found no regression" in task(line, "admit", "other", *into, code=2)


def test_every_call_for_a_task_is_recorded_and_a_silent_server_is_nobodys_loss(
    line: Line, tmp_path: Path
) -> None:
    off: list[str | Path] = ["line", "init", line.repo, "--server", "off"]
    assert call_here(off, home=line.home.path).stdout.strip() == "no server"
    file = tmp_path / "server.json"
    messages, schema = [{"role": "user", "content": "?"}], {"type": "object", "properties": {}}
    with ChatServer(decide(lambda _: {"said": 1})) as server:
        given = {"model": "m", "base_url": server.url, "rung": "prompt", "retries": 0}
        settings = write_server(file, given)
        assert settings is not None
        assert (settings.temperature, read_server(file)) == (0.0, settings)
        with line.log() as log:
            asked = LineServer(settings, line=line.id, log=log, blobs=line.home.blobs)
            said = asked.ask(messages, schema, seed=5)
            assert (said.rung, said.message["content"]) == ("prompt", '{"said": 1}')
            assert (said.prompt_tokens, said.tokens, said.limit) == (100, 20, 1024)
            assert (server.requests[0]["seed"], server.requests[0]["temperature"]) == (5, 0.0)
            server.behaviour = lambda *_: Reply({}, 400)
            with pytest.raises(CandidateError, match="refuses the request with status 400"):
                asked.ask(messages, schema, seed=5)
    with line.log() as log:
        asked = LineServer(settings, line=line.id, log=log, blobs=line.home.blobs)
        with pytest.raises(GauntletError, match="did not answer a reference task") as caught:
            asked.ask(messages, schema, seed=5)
        assert not isinstance(caught.value, CandidateError)
        calls = log.notifications("transcript.call_made")
        outcomes = [log.mapper.to_domain_event(each).outcome for each in calls]  # type: ignore[attr-defined]
    assert outcomes == ["usable", "rejected", "unreachable"]
    with pytest.raises(PolicyError, match="modell"):
        write_server(file, {"modell": "m"})
    assert write_server(file, None) is read_server(file) is None


@pytest.mark.slow
def test_task_from_a_commit_is_examined_admitted_and_asked(line: Line) -> None:
    text = (line.repo / SELECTION).read_text()
    (line.repo / SELECTION).write_text(text.replace("[:cap]", "[: max(0, cap)]"))
    (line.repo / "tests/test_cap.py").write_text(CAP_TEST)
    git(line.repo, "add", "--all")
    git(line.repo, "commit", "--quiet", "--message", "A cap below zero chooses nothing")
    commit = git(line.repo, "rev-parse", "work").strip()
    task(line, "new", "cap", "--commit", commit)
    into = ("--out", line.repo / "judge/reference_tasks", *key_of(line))
    assert "all of 10 runs without the change fail" in task(line, "admit", "cap", *into)
    assert "has this task already" not in task(line, "admit", "late-rows", *into, code=2)
    with line.log() as log:
        (admitted,) = log.notifications("task.admitted")
        assert log.mapper.to_domain_event(admitted).task == "cap"  # type: ignore[attr-defined]
    whole = load(line.repo / "judge/reference_tasks")
    assert [each.task_id for each in whole.tasks] == ["late-rows", "cap"]


@pytest.mark.slow
def test_tasks_from_folders_and_from_a_run_are_admitted_and_carried(
    line: Line, tmp_path: Path
) -> None:
    for folder, body in (("before", "x"), ("after", "2 * x")):
        (tmp_path / folder / "pkg").mkdir(parents=True)
        (tmp_path / folder / "pkg/__init__.py").touch()
        (tmp_path / folder / "pkg/m.py").write_text(f"def twice(x):\n    return {body}\n")
    (tmp_path / "after/tests").mkdir()
    (tmp_path / "after/tests/test_m.py").write_text(
        "from pkg.m import twice\n\n\ndef test_it():\n    assert twice(3) == 6\n"
    )
    (tmp_path / "issue.md").write_text("twice() must double its number.\n")
    folders = ("--before", tmp_path / "before", "--after", tmp_path / "after")
    new = ("new", "twice", *folders, "--issue", tmp_path / "issue.md")
    assert "1 hidden case fails without the change" in task(line, *new)

    home = line.home.path
    seen = ("new", "moments", "--run", "latest")
    with proctor.watch(None, None, name="own loop", batch_size=1, home=home) as run:
        for _ in run.epochs(1):
            run.step(1.0)
            run.validate(loss=1.0)
    assert "trained a model of its owner" in task(line, *seen, code=2)
    small = ["train_examples=200", "val_examples=100", "test_examples=100", "channels=8", "width=8"]
    done = call_here(["run", "lr=3.0", "warm_up_epochs=0", "epochs=2", *small], home=home)
    assert done.returncode == 0, done.stderr
    assert "is not verified" in task(line, *seen, code=2)
    assert call_here(["judge"], home=home).returncode == 0
    assert "drafted moments" in task(line, *seen)

    into = ("--out", line.repo / "judge/reference_tasks", *key_of(line))
    assert "all of 10 runs without the change fail" in task(line, "admit", "twice", *into)
    assert "2 tasks signed" in task(
        line, "admit", "--carry", "--out", tmp_path / "stick", *key_of(line)
    )
    signed = ("admit", "moments", "--drafts", tmp_path / "stick", "--signed", *into)
    assert "moments is written" in task(line, *signed)
    added = {path.name for path in (line.repo / "judge/reference_tasks/tasks").iterdir()}
    assert {"twice", "moments"} <= added
