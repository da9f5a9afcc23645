"""Training, judging and asking through a notary that is another user."""

import json
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
from eventsourcing.persistence import StoredEvent
from frontdoor import TINY, call_here
from notaries import (
    JUDGE,
    READER,
    RunningNotary,
    needs_other_users,
    open_folder,
    proctor_as,
    running_notary,
)

from ledger.bodies import encode_body
from ledger.errors import MalformedError, UnknownEventError
from ledger.notary.client import NotaryClient
from ledger.notary.remote import RemoteRecorder
from ledger.verification.reader import check_ledger

RULES = f"""
[[user]]
user = {os.geteuid()}
append = ["run.*", "campaign.*"]

[[user]]
user = {JUDGE}
append = ["audit.*"]
roles = ["judge"]

[[user]]
user = {READER}
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    needs_other_users()
    with open_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def notary(folder: Path) -> Iterator[RunningNotary]:
    with running_notary(folder, RULES, any_events=False) as notary:
        with pytest.MonkeyPatch.context() as patch:  # in this process, which has torch loaded
            patch.setenv("PROCTOR_NOTARY", str(notary.socket))
            run = ["run", *TINY, "--policy", "nothing", "--json"]
            done = call_here(run, home=folder / "honest")
        assert done.returncode == 0, done.stderr
        yield notary


def test_run_of_one_user_is_judged_by_another_through_the_notary(
    notary: RunningNotary, folder: Path
) -> None:
    (submission,) = (folder / "honest" / "runs").glob("*/submission")
    judged = proctor_as(
        JUDGE,
        ["judge", "latest", "--submission", submission, "--json"],
        home=folder / "judge",
        socket=notary.socket,
    )
    assert judged.returncode == 0, judged.stderr + judged.stdout
    assert json.loads(judged.stdout)["hard_fail"] is False
    report = check_ledger(notary.ledger, vkey=notary.vkey)
    assert report.ok
    audits = proctor_as(
        READER,
        ["sql", "SELECT count(*) AS n FROM audits", "--json"],
        home=folder / "reader",
        socket=notary.socket,
    )
    assert json.loads(audits.stdout) == [{"n": 1}]


def test_event_that_no_reader_can_read_is_rejected(notary: RunningNotary) -> None:
    bodies = [b"x", encode_body({}), encode_body({"v": 99}), encode_body({"v": 1})]
    asked = [("run.started", body) for body in bodies]
    asked += [(name, encode_body({"v": 1})) for name in ("run.bogus", "run.../../x", "run.ended")]
    with closing(NotaryClient(notary.socket)) as client:
        for name, body in asked:
            with pytest.raises((MalformedError, UnknownEventError)):
                RemoteRecorder(client).insert_events([StoredEvent(uuid4(), 1, name, body)])


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        (["run", "--attempts", "3", *TINY, "--policy", "playbook"], "audit.started"),
        (["run", *TINY, "edits=restart"], "audit.started"),
        (["run", *TINY, "--policy", "openai", "--set", "model=m"], "transcript.started"),
    ],
)
def test_what_the_notary_would_not_take_in_the_end_is_rejected_before_training(
    notary: RunningNotary,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: list[str],
    missing: str,
) -> None:
    size = check_ledger(notary.ledger, vkey=notary.vkey).size
    monkeypatch.setenv("PROCTOR_NOTARY", str(notary.socket))
    done = call_here(command, home=tmp_path)
    assert (done.returncode, f"the notary takes no {missing}" in done.stderr) == (2, True)
    assert check_ledger(notary.ledger, vkey=notary.vkey).size == size


@pytest.mark.parametrize(
    "command",
    [
        ["show"],
        pytest.param(["verify"], marks=pytest.mark.slow),
        pytest.param(["log", "--count", "3"], marks=pytest.mark.slow),
        pytest.param(["replay"], marks=pytest.mark.slow),
        pytest.param(["replay", "--execute"], marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_command_works_alike_for_a_user_who_may_only_read(
    notary: RunningNotary, folder: Path, command: list[str]
) -> None:
    done = proctor_as(READER, command, home=folder / "reader", socket=notary.socket)
    assert done.returncode == 0, done.stderr + done.stdout


@pytest.mark.slow
def test_reader_is_refused_where_something_would_be_appended(
    notary: RunningNotary, folder: Path
) -> None:
    done = proctor_as(READER, ["run", *TINY], home=folder / "reader", socket=notary.socket)
    assert done.returncode == 2
    assert "the notary takes no run.started from this user" in done.stderr
