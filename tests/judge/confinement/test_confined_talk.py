"""Conversations with a candidate, and what becomes of a command that cannot be confined."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confined_runs import DAEMON, MEMORY, stands_still

from judge.confinement import supervised
from judge.confinement.messages import ResourceLimits
from judge.confinement.supervised import ISOLATION
from judge.errors import ConfinementError
from judge.gauntlet.errors import CandidateError, GauntletError
from judge.gauntlet.tasks.benchmark import Conversation

# Conversations

SERVER = """
import json, os, sys, time
for line in sys.stdin:
    message = json.loads(line)
    answer = json.dumps({"got": message})
    if message == "bad":
        BAD
    print(answer, flush=True)
"""


def conversation(tree: Path, scratch: Path, bad: str = "pass", **settings: Any) -> Conversation:
    (tree / "server.py").write_text(SERVER.replace("BAD", bad))
    return Conversation(
        ["{python}", "server.py"],
        tree=tree,
        scratch=scratch,
        limits=ResourceLimits(**{"seconds": 20, "memory_bytes": MEMORY, **settings}),
    )


def test_conversation_goes_back_and_forth(tree: Path, scratch: Path) -> None:
    with conversation(tree, scratch) as talk:
        for message in ({"a": [1, 2.5, None]}, "bad", "ü" * 100_000):
            assert talk.ask(message) == {"got": message}
        assert talk.isolation == ISOLATION
    assert talk.ended is not None
    assert (talk.ended.words, talk.ended.leftovers) == ("it exited with status 0", 0)


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ("answer = 'hello'", "the answer is malformed: it is not JSON in UTF-8"),
        ("answer = ''", "the answer is malformed: it is not JSON in UTF-8"),
        ("answer = '1 2'", "the answer is malformed: it is not JSON in UTF-8"),
        ("answer = '[NaN]'", "the answer is malformed: NaN and infinity are not allowed"),
        ("answer = '[-Infinity]'", "the answer is malformed: NaN and infinity are not allowed"),
        ("answer = '1e999'", "the answer is malformed: a number is too large for a float"),
        ("answer = '[' * 99 + ']' * 99", "the answer is malformed: it is nested deeper than 32"),
        ("answer = '[' * 90_000", "the answer is malformed: it is nested deeper than 32 levels"),
        ("answer = '[' + '1,' * 300_000 + '1]'", "the answer is malformed: it holds more than"),
        ("answer = '1' * 9_999", "the answer is malformed: it is not JSON in UTF-8"),
        ('answer = \'{"a": 1, "a": 2}\'', "the answer is malformed: a key is repeated"),
        ("answer = '\"\\\\ud800\"'", "the answer is malformed: it is not JSON in UTF-8"),
        ("sys.stdout.buffer.write(bytes([255, 10]))", "the answer is malformed: it is not JSON"),
        ("sys.exit(3)", "there is no answer: it exited with status 3"),
        ("os._exit(0)", "there is no answer: it exited with status 0"),
        ("os.abort()", "there is no answer: it was killed by signal 6"),
        ("time.sleep(60)", "there is no answer: it ran for more than 3 seconds"),
        (
            "sys.stdout.write('half')\n        sys.stdout.flush()\n        time.sleep(60)",
            "no answer",
        ),
        ("answer = 'x' * 6_000_000", "there is no answer: it printed more than 1,048,576 bytes"),
        ("answer += '\\n' + answer", "it printed more than the replies it was asked for"),
    ],
)
@pytest.mark.sampled(3)
def test_bad_answer_is_rejected(tree: Path, scratch: Path, bad: str, problem: str) -> None:
    with (  # noqa: PT012 - the first answer is good
        pytest.raises(CandidateError, match=problem) as caught,
        conversation(tree, scratch, bad, seconds=3) as talk,
    ):
        assert talk.ask("good") == {"got": "good"}
        talk.ask("bad")
        talk.ask("once more")
    assert "half" not in str(caught.value)


def test_answer_before_the_question_is_rejected(tree: Path, scratch: Path) -> None:
    bad = "print(answer)\n        time.sleep(0.2)"
    with (
        pytest.raises(CandidateError, match="it printed more than the replies it was asked for"),
        conversation(tree, scratch, bad) as talk,
    ):
        talk.ask("bad")


def test_process_left_behind_by_a_conversation_is_rejected(tree: Path, scratch: Path) -> None:
    bad = "import subprocess\n        subprocess.Popen(['sleep', '30'])"
    with (
        pytest.raises(CandidateError, match="it left 1 processes behind"),
        conversation(tree, scratch, bad) as talk,
    ):
        talk.ask("bad")


def test_candidate_that_stays_when_nothing_is_asked_is_stopped(tree: Path, scratch: Path) -> None:
    (tree / "server.py").write_text("print(input())\nwhile True: pass")
    with Conversation(
        ["{python}", "-u", "server.py"],
        tree=tree,
        scratch=scratch,
        limits=ResourceLimits(seconds=60, memory_bytes=MEMORY),
    ) as talk:
        assert talk.ask([1]) == [1]
    assert talk.ended is not None
    assert talk.ended.words == "it did not exit when no more requests were sent"


def test_candidate_that_does_not_listen_is_rejected(tree: Path, scratch: Path) -> None:
    (tree / "server.py").write_text("import time; time.sleep(60)")
    talk = Conversation(
        ["{python}", "server.py"],
        tree=tree,
        scratch=scratch,
        limits=ResourceLimits(seconds=2, memory_bytes=MEMORY),
    )
    with pytest.raises(CandidateError, match="it ran for more than 2 seconds"), talk:
        talk.ask("x" * 5_000_000)  # more than a pipe holds


# Where it cannot be done

ASK = """
from pathlib import Path
from judge.confinement.supervised import ResourceLimits, run
from judge.errors import ConfinementError
try:
    ended = run(["{{python}}", "-c", "print('it ran')"], tree=Path({tree!r}),
        scratch=Path({scratch!r}), limits=ResourceLimits(seconds=20, memory_bytes=10**9))
    print(ended.words, *ended.isolation, ended.output)
except ConfinementError as error:
    print(error)
"""


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("limit", "missing"),
    [
        ("user", "user namespaces"),
        ("pid", "user namespaces"),
        ("net", "a network and a root of its own"),
        ("mnt", "a network and a root of its own"),
    ],
)
def test_nothing_is_run_where_namespaces_are_missing(
    tree: Path, scratch: Path, limit: str, missing: str
) -> None:
    script = f'echo 0 > /proc/sys/user/max_{limit}_namespaces && exec "$@"'
    code = ASK.format(tree=str(tree), scratch=str(scratch))
    command = ["unshare", "--user", "--map-root-user", "sh", "-c", script, "sh"]
    done = subprocess.run(
        [*command, sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(f"a candidate cannot be confined here; missing: {missing}")
    assert "sysctl user.max_user_namespaces" in done.stdout
    honest = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert "it exited with status 0" in honest.stdout
    assert "it ran" in honest.stdout


def test_supervisor_that_is_ended_is_nobodys_answer(tree: Path, scratch: Path) -> None:
    def end_it() -> None:
        alive = scratch / "alive"
        while not alive.exists():
            time.sleep(0.02)
        for place in Path("/proc").glob("[0-9]*/cmdline"):
            parent = (place.parent / "status").read_text().split("PPid:\t")[1].split("\n")[0]
            if parent == str(os.getpid()) and b"judge.confinement.supervisor" in place.read_bytes():
                os.kill(int(place.parent.name), signal.SIGKILL)

    killer = threading.Thread(target=end_it, daemon=True)
    killer.start()
    with pytest.raises(ConfinementError, match="was killed"):
        supervised.run(
            ["{python}", "-c", textwrap.dedent(DAEMON + "    time.sleep(60)")],
            tree=tree,
            scratch=scratch,
            limits=ResourceLimits(seconds=60, memory_bytes=MEMORY),
        )
    killer.join()
    assert stands_still(scratch / "alive")


def test_command_that_cannot_be_started_is_the_candidates_problem(
    tree: Path, scratch: Path
) -> None:
    ended = supervised.run(
        ["no-such-command"],
        tree=tree,
        scratch=scratch,
        limits=ResourceLimits(seconds=5, memory_bytes=MEMORY),
    )
    assert ended.words == "it exited with status 127"
    assert ended.errors == b"the command cannot be started: No such file or directory\n"


def test_message_that_is_too_long_is_our_error(tree: Path, scratch: Path) -> None:
    with (
        pytest.raises(GauntletError, match="too long to be sent"),
        conversation(tree, scratch) as talk,
    ):
        talk.ask("x" * 10_000_000)
