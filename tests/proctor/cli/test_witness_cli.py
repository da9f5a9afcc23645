"""`proctor witness`, from both sides: files for machines apart, HTTP for connected ones."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Barrier, Thread
from uuid import UUID

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from eventsourcing.persistence import StoredEvent
from frontdoor import answer, call_here
from json_answers import check_json

from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording.opening import open_ledger
from ledger.verification.reader import open_verified
from ledger.witnessing.client import post
from ledger.witnessing.cosignatures import sign_cosignature
from ledger.witnessing.evidence import open_evidence
from proctor.home import Home
from proctor.runs.cosigning import ask_witnesses, cosigned_meanwhile, read_asked


@contextmanager
def recorder_of(home: Path) -> Iterator[SignedRecorder]:
    database, signer = open_ledger(LedgerPaths(home / "ledger"), passphrase=None)
    with closing(database):
        yield SignedRecorder(database, signer=signer)


def append(home: Path, *, first: int, last: int, state: bytes = b"\x80") -> None:
    """Append the events of these versions to one stream, each a batch of its own."""
    home.mkdir(exist_ok=True)
    with recorder_of(home) as recorder:
        for version in range(first, last + 1):
            event = StoredEvent(
                originator_id=UUID(int=1),
                originator_version=version,
                topic="test.happened",
                state=state,
            )
            recorder.insert_events([event])


def rotate(home: Path) -> None:
    with recorder_of(home) as recorder:
        recorder.rotate_key()


def newest_note(home: Path) -> str:
    with open_verified(home / "ledger") as ledger:
        assert ledger.head is not None
        return ledger.head.note


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with five entries, and a witness that trusts its ledger."""
    folder = tmp_path_factory.mktemp("made")
    append(folder / "home", first=1, last=5)
    make_witness(folder, "w")
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "place"))


@pytest.fixture
def home(place: Path) -> Path:
    return place / "home"


def make_witness(place: Path, name: str) -> None:
    """Make a witness that trusts the ledger."""
    done = trust_ledger(place, name, "--name", f"{name}.example", "--json")
    assert answer(done)["witness"] == (place / name / "witness.vkey").read_text().strip()


def trust_ledger(place: Path, name: str, *more: str) -> subprocess.CompletedProcess[str]:
    vkey = place / "home/ledger/ledger.vkey"
    return call_here(["witness", "trust", vkey, "--state", place / name, *more], home=place)


def request(place: Path, *more: str) -> subprocess.CompletedProcess[str]:
    where: list[str | Path] = ["--witness", place / "w/witness.vkey"]
    if "--old" in more:
        where = []
    return call_here(["witness", "ask", "--out", place / "q", *where, *more], home=place / "home")


def sign(place: Path, *more: str | Path) -> subprocess.CompletedProcess[str]:
    where: list[str | Path] = ["--state", place / "w", "--out", place / "a"]
    return call_here(["witness", "sign", place / "q", *where, *more], home=place)


def add(place: Path) -> subprocess.CompletedProcess[str]:
    where: list[str | Path] = ["--witness", place / "w/witness.vkey"]
    return call_here(["witness", "ask", "--answer", place / "a", *where], home=place / "home")


def by_files(place: Path) -> None:
    for step in (request, sign, add):
        done = step(place)
        assert done.returncode == 0, done.stderr


def test_cosignature_comes_home_by_files(place: Path, home: Path) -> None:
    by_files(place)
    first = newest_note(home)
    assert first.count("\n\u2014 ") == 2
    append(home, first=6, last=9)
    assert "9 entries, of which it has cosigned 5" in request(place).stdout
    assert sign(place).returncode == 0
    append(home, first=10, last=11)  # while the answer is on its way
    assert add(place).returncode == 0
    assert add(place).returncode == 0  # again changes nothing
    with open_verified(home / "ledger", signatures="all") as ledger:
        notes = {note.split("\n")[1]: note.count("\n\u2014 ") for note in ledger.head_notes()}
    assert notes == {str(n): 2 if n in (5, 9) else 1 for n in range(1, 12)}
    assert call_here(["verify"], home=home).returncode == 0


def test_request_with_the_wrong_old_size_says_the_right_one(place: Path) -> None:
    by_files(place)
    assert request(place, "--old", "3").returncode == 0
    done = sign(place)
    assert done.returncode == 2
    assert "write the request with --old 5" in done.stderr
    assert request(place, "--old", "6").returncode == 2


def test_ledger_put_back_is_not_cosigned_and_leaves_evidence(place: Path, home: Path) -> None:
    shutil.copytree(home, place / "before")
    append(home, first=6, last=9)
    by_files(place)
    shutil.rmtree(home)
    (place / "before").rename(home)
    assert request(place, "--old", "0").returncode == 0
    done = sign(place)
    assert done.returncode == 1
    assert "9 entries were cosigned before, and this tree head has 5" in done.stdout
    (evidence,) = (place / "w/evidence").glob("rollback-*.txt")
    assert open_evidence(evidence.read_text()).kind == "rollback"


def test_forked_ledger_is_not_cosigned_and_leaves_evidence(place: Path, home: Path) -> None:
    shutil.copytree(home, place / "before")
    append(home, first=6, last=7)
    by_files(place)
    shutil.rmtree(home)
    (place / "before").rename(home)
    append(home, first=6, last=9, state=b"\x81\xa1v\x01")
    assert request(place, "--old", "7").returncode == 0
    done = sign(place)
    assert done.returncode == 1
    assert "a fork" in done.stdout
    (evidence,) = (place / "w/evidence").glob("fork-*.txt")
    assert open_evidence(evidence.read_text()).kind == "fork"


def test_rotated_ledger_is_cosigned_when_its_rotations_come_along(place: Path, home: Path) -> None:
    by_files(place)
    rotate(home)
    append(home, first=6, last=7)
    rotate(home)
    assert f"put {place / 'q.rotations'} beside the request" in request(place).stdout
    (place / "q.rotations").rename(place / "aside")
    assert sign(place).returncode == 2
    (place / "aside").rename(place / "q.rotations")
    assert sign(place).returncode == 0
    assert add(place).returncode == 0
    assert newest_note(home).count("\n\u2014 ") == 2


def test_answer_of_another_witness_is_rejected(place: Path, home: Path) -> None:
    make_witness(place, "other")
    assert request(place).returncode == 0
    assert sign(place, "--state", place / "other").returncode == 0
    done = add(place)
    assert done.returncode == 1
    assert "no line of the answer is by w.example" in done.stderr
    assert newest_note(home).count("\n\u2014 ") == 1


def test_answer_for_another_ledger_is_rejected(place: Path, home: Path) -> None:
    assert request(place).returncode == 0
    assert sign(place).returncode == 0
    shutil.rmtree(home)
    append(home, first=1, last=5)
    assert add(place).returncode == 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["ask"], "give --witnesses FILE, which names witnesses"),
        (["ask", "--out", "q"], "give either --witness VKEYFILE or --witnesses FILE"),
        (["ask", "--answer", "q"], "give either --witness VKEYFILE or --witnesses FILE"),
        (["ask", "--answer", "q", "--out", "r"], "give one"),
        (["ask", "--answer", "q", "--old", "1"], "--old: only with --out"),
        (
            ["ask", "--answer", "w/witness.vkey", "--witness", "w/witness.vkey"],
            "is no answer of a witness",
        ),
        (["sign", "missing", "--state", "w", "--out", "a"], "missing cannot be read"),
        (["serve", "--state", "w", "--listen", "localhost"], "give an IP address and a port"),
        (["serve", "--state", "w", "--listen", "127.0.0.1:99999"], "give an IP address and a"),
        (["serve", "--state", "w", "--listen", "192.0.2.1:0"], "--listen 192.0.2.1:0: Cannot"),
        (["serve", "--state", "none"], "witness not found"),
        (["trust", "w/witness.vkey", "--state", "w"], "this is a witness's key"),
        (["ask", "--witnesses", "w/witness.vkey"], "line 1: "),
        (["serve", "--state", "x", "--name", "a b"], "cannot be a witness name"),
    ],
)
def test_wrong_usage_is_explained(
    place: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], error: str
) -> None:
    monkeypatch.chdir(place)
    done = call_here(["witness", *arguments], home=place / "home")
    assert (done.returncode, done.stdout) == (2, "")
    assert error in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@contextmanager
def serving(state: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = ["witness", "serve", "--state", str(state), "--listen", "127.0.0.1:0", "--json"]
    child = subprocess.Popen(
        [sys.executable, "-m", "proctor", *command], stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        line = child.stdout.readline()
        check_json(command, line)
        yield json.loads(line)["address"], child
    finally:
        child.kill()
        child.communicate()


def policy_of(place: Path, urls: dict[str, str], rule: str) -> Path:
    lines = [
        f"witness {name} {(place / name / 'witness.vkey').read_text().strip()} {url}\n"
        for name, url in urls.items()
    ]
    path = place / "policy"
    path.write_text(f"{''.join(lines)}group g {rule} {' '.join(urls)}\nquorum g\n")
    return path


def ask(place: Path, policy: Path) -> tuple[int, dict[str, str], bool]:
    arguments: list[str | Path] = ["witness", "ask", "--witnesses", policy, "--timeout", "5"]
    done = call_here([*arguments, "--json"], home=place / "home")
    said = answer(done)
    outcomes = {name: asked["outcome"] for name, asked in said["witnesses"].items()}
    return done.returncode, outcomes, said["met"]


def test_witnesses_are_asked_over_http(place: Path, home: Path) -> None:
    make_witness(place, "v")
    with ExitStack() as stack:
        urls = {name: stack.enter_context(serving(place / name))[0] for name in ("w", "v")}
        policy = policy_of(place, urls, "all")
        assert ask(place, policy) == (0, {"w": "cosigned", "v": "cosigned"}, True)
        assert ask(place, policy) == (0, {"w": "cosigned", "v": "cosigned"}, True)
        assert newest_note(home).count("\n\u2014 ") == 3  # asked once, stored once
        append(home, first=6, last=9)
        rotate(home)
        assert ask(place, policy) == (0, {"w": "cosigned", "v": "cosigned"}, True)
        append(home, first=10, last=10)
        policy = policy_of(place, {**urls, "v": "http://127.0.0.1:1"}, "all")
        assert ask(place, policy) == (1, {"w": "cosigned", "v": "failed"}, False)
        policy = policy_of(place, {**urls, "v": "http://127.0.0.1:1"}, "any")
        assert ask(place, policy) == (0, {"w": "cosigned", "v": "failed"}, True)
    assert call_here(["verify"], home=home).returncode == 0


@contextmanager
def slowed(url: str, wait: Callable[[], object]) -> Iterator[str]:
    """Serve a witness that waits before it answers; gives its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            wait()
            text = self.rfile.read(int(self.headers["Content-Length"])).decode()
            status, body = post(f"{url}{self.path}", text, timeout=60)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_witnesses_are_asked_side_by_side_and_stored_in_order(place: Path, home: Path) -> None:
    make_witness(place, "v")
    asked = Barrier(2)  # nobody answers before both are asked
    with ExitStack() as stack:
        urls = {}
        for name in ("w", "v"):
            own, _ = stack.enter_context(serving(place / name))
            urls[name] = stack.enter_context(slowed(own, lambda: asked.wait(60)))
        policy = policy_of(place, urls, "all")
        found = ask_witnesses(Home(home), read_asked(policy), timeout=60)
    assert [(name, each.outcome) for name, each in found.answers.items()] == [
        ("w", "cosigned"),
        ("v", "cosigned"),
    ]
    lines = newest_note(home).splitlines()[-2:]
    assert [line.split()[1] for line in lines] == ["w.example", "v.example"]


def test_new_tree_heads_are_cosigned_while_a_block_runs(
    place: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def is_cosigned() -> bool:
        return newest_note(home).count("\n\u2014 ") == 2

    with serving(place / "w") as (url, _):
        policy = policy_of(place, {"w": url}, "any")
        with cosigned_meanwhile(Home(home), policy):
            for last in (6, 7):
                append(home, first=last, last=last)
                end = time.monotonic() + 120
                while not is_cosigned() and time.monotonic() < end:
                    time.sleep(0.05)
                assert is_cosigned()
            append(home, first=8, last=8)
        assert is_cosigned()  # the last one, at the block's end
    assert "the tree head of 8 entries meets the quorum (w: cosigned)" in capsys.readouterr().err


def test_run_goes_on_without_its_witnesses(place: Path, home: Path) -> None:
    policy = policy_of(place, {"w": "http://127.0.0.1:1"}, "any")
    settings = ["epochs=1", "train_examples=100", "channels=4", "width=4"]
    done = call_here(["run", *settings, "--witnesses", policy], home=home)
    assert done.returncode == 0
    assert "does not meet the quorum (w: failed)" in done.stderr
    done = call_here(["run", *settings, "--witnesses", place / "none"], home=home)
    assert (done.returncode, done.stdout) == (2, "")
    assert "No such file" in done.stderr


def test_ledger_put_back_or_forked_is_found_when_witnesses_are_asked(
    place: Path, home: Path
) -> None:
    with serving(place / "w") as (url, _):
        policy = policy_of(place, {"w": url}, "any")
        shutil.copytree(home, place / "before")
        append(home, first=6, last=7)
        assert ask(place, policy) == (0, {"w": "cosigned"}, True)
        shutil.rmtree(home)
        (place / "before").rename(home)
        assert ask(place, policy) == (1, {"w": "behind"}, False)
        append(home, first=6, last=9, state=b"\x81\xa1v\x01")
        assert ask(place, policy) == (1, {"w": "fork"}, False)


def test_tree_head_takes_no_more_lines_than_a_note_may_have(place: Path, home: Path) -> None:
    note = newest_note(home)
    with recorder_of(home) as recorder:
        for number in range(14):
            key = Ed25519PrivateKey.generate()
            text = note.rpartition("\n\n")[0] + "\n"
            line = sign_cosignature(text, name=f"n{number}.example", key=key, seconds=1)
            recorder.add_signature_line(5, line)
    make_witness(place, "v")
    with serving(place / "w") as (w, _), serving(place / "v") as (v, _):
        policy = policy_of(place, {"w": w, "v": v}, "all")
        assert ask(place, policy) == (1, {"w": "cosigned", "v": "failed"}, False)
    assert newest_note(home).count("\n\u2014 ") == 16


def test_policy_for_another_ledger_is_rejected_before_anybody_is_asked(
    place: Path, tmp_path: Path
) -> None:
    append(tmp_path / "other", first=1, last=1)
    policy = policy_of(place, {"w": "http://127.0.0.1:1"}, "any")
    other = (tmp_path / "other/ledger/ledger.vkey").read_text()
    policy.write_text(f"log {other}{policy.read_text()}")
    done = call_here(["witness", "ask", "--witnesses", policy], home=place / "home")
    assert done.returncode == 1
    assert "the policy has no log line for the ledger" in done.stderr


def test_server_ends_cleanly_when_it_is_told_to(place: Path) -> None:
    with serving(place / "w") as (_, child):
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=120) == 0


def test_witness_key_can_have_a_passphrase(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_KEY_PASSPHRASE", "correct horse")
    make_witness(place, "s")
    monkeypatch.delenv("PROCTOR_KEY_PASSPHRASE")
    done = trust_ledger(place, "s")
    assert done.returncode == 2
    assert "needs a passphrase" in done.stderr
