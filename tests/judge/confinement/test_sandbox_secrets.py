"""A submission that looks for secrets finds none, and could not have them recorded if it did."""

import ctypes
import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from judge_cases import Case, rewrite
from safetensors.torch import save

from aggregates.registry import REGISTRY
from judge.config import JudgeConfig
from judge.confinement import process
from judge.confinement.pipes import MESSAGE
from judge.confinement.sandbox import Examination, Problem, examine
from judge.confinement.worker import SOURCE, describe, load_submitted_model
from judge.declared import read_declared
from ledger.application import LedgerApplication
from ledger.paths import LedgerPaths

CANARY = "canary-5f1c2b7e90"
LIMITS = JudgeConfig(child_memory_bytes=3 * 2**30)
GET_DUMPABLE = 3  # prctl(2)

# Ends the examination with stage load if anything could be read or written, else goes on.
SPY = """
import os, sys
_got = []
for _place in PLACES:
    try:
        with open(_place.format(parent=os.getppid()), 'rb') as _file:
            _got.append(_file.read(65536))
    except OSError:
        pass
for _folder in FOLDERS:
    try: _got.append(repr(os.listdir(_folder.format(parent=os.getppid()))).encode())
    except OSError: pass
    try:
        with open(_folder + '/left-behind', 'wb') as _file:
            _got.append(b'written')
    except OSError:
        pass
for _link in ('cwd', 'exe', 'fd/0'):
    try: _got.append(os.readlink(f'/proc/{os.getppid()}/{_link}').encode())
    except OSError: pass
"""
BLAB = """
print(_got, flush=True)
sys.stderr.write(repr(_got) + CANARY)
if _got: raise AssertionError(_got)
"""


def spying(case: Case, *, extra: str = "") -> str:
    home = case.submission.parent
    places = [
        str(LedgerPaths(case.ledger).key),
        *(str(case.submission / name) for name in ("run_config.json", "notes.txt", "model.py")),
        "/etc/passwd",
        "/etc/hostname",
        *(f"/proc/{{parent}}/{name}" for name in ("environ", "cmdline", "maps", "mem", "status")),
        "/proc/self/environ",
        "/proc/1/cmdline",
        "../request.json",
        "../model.py",
    ]
    folders = [
        str(home),
        str(case.ledger),
        "/",
        "/tmp",
        "/proc/{parent}/fd",
        os.path.expanduser("~"),  # noqa: PTH111 - text for another process
        "..",
    ]
    return f"PLACES = {places!r}\nFOLDERS = {folders!r}\nCANARY = {CANARY!r}\n" + SPY + BLAB + extra


def examined(case: Case, source: str) -> Examination:
    weights = (case.submission / "weights.safetensors").read_bytes()
    batch = torch.zeros(2, 3, 32, 32)
    return examine(source.encode(), weights, batch, config=LIMITS)


@pytest.fixture
def case(tampered: Callable[[], Case]) -> Case:
    case = tampered()
    (case.submission / "notes.txt").write_text(CANARY)
    LedgerPaths(case.ledger).key.with_name("other.pem").write_text(CANARY)
    return case


def test_files_are_hidden_on_this_kernel(case: Case) -> None:
    # Where this fails the kernel has no Landlock (5.13 or newer): submitted code can read files.
    found = examined(case, (case.submission / "model.py").read_text())
    assert (found.stage, found.problem) == ("done", None)
    assert "hidden files" in found.isolation


@pytest.mark.usefixtures("afresh")
def test_submission_that_looks_for_secrets_is_rejected(case: Case) -> None:
    honest = (case.submission / "model.py").read_text()
    found = examined(case, spying(case) + honest)
    assert (found.stage, found.problem) == ("done", None), "something could be read"
    printed = ("[]\n[]" + CANARY).encode()
    assert found.printed == {"bytes": len(printed), "sha256": hashlib.sha256(printed).hexdigest()}
    assert CANARY not in repr(found)
    assert not list(case.submission.parent.rglob("left-behind"))


def test_spying_reads_where_nothing_is_confined(case: Case) -> None:
    # The control: the same code outside finds all that the confined one looked for.
    source = spying(case).replace("/left-behind", "/no/where")
    outside = subprocess.run(
        [sys.executable, "-c", source],
        capture_output=True,
        check=False,
    )
    key = LedgerPaths(case.ledger).key.read_bytes().splitlines()[1]
    assert key in outside.stdout
    assert CANARY.encode() in outside.stdout


EXCEPTIONS = {
    "message": "raise ValueError(CANARY)",
    "exit": "raise SystemExit(CANARY)",
    "type": "raise type(CANARY, (Exception,), {})",
    "return": "import torch\nload_model = lambda: type(CANARY, (str,), {})()",
    "file": "exec(compile('raise OSError', CANARY, 'exec'))",
}
FORGED: list[dict[str, object]] = [
    {"problem": CANARY},
    {"problem": {"phrase": CANARY}},
    {"problem": {"type": CANARY, "line": 1}},
    {"problem": {"type": "OSError", "line": CANARY}},
    {"problem": {"type": "open", "line": 10**30}},
    {"parameters": [CANARY], "modules": []},
    {"parameters": [], "modules": [1]},
    {"parameters": [], CANARY: []},
]


def message(said: dict[str, object]) -> bytes:
    text = json.dumps(said).encode()
    return MESSAGE.pack(len(text), 0) + text


@pytest.mark.parametrize(
    "channel",
    [
        "print(CANARY)",
        EXCEPTIONS["message"],
        *(
            pytest.param(EXCEPTIONS[name], marks=pytest.mark.slow)
            for name in ("exit", "type", "return", "file")
        ),
    ],
    ids=["print", *EXCEPTIONS],
)
def test_words_of_a_submission_are_not_recorded(case: Case, channel: str) -> None:
    found = examined(case, f"CANARY = {CANARY!r}\n{channel}\n")
    assert found.stage == "load"
    assert CANARY not in repr(found)


@pytest.mark.parametrize("channel", EXCEPTIONS.values(), ids=EXCEPTIONS)
def test_exception_is_described_without_a_word_of_the_submission(channel: str) -> None:
    with pytest.raises(BaseException) as raised:  # noqa: PT011 - of every kind
        load_submitted_model(f"CANARY = {CANARY!r}\n{channel}\n".encode())
    assert CANARY not in str(read_declared(describe(raised.value, SOURCE), Problem))


@pytest.mark.parametrize(
    "said", [FORGED[0], *(pytest.param(said, marks=pytest.mark.slow) for said in FORGED[1:])]
)
def test_report_that_a_submission_forges_is_rejected(case: Case, said: dict[str, object]) -> None:
    forge = (
        "import os\nfor fd in range(3, 12):\n"
        "    try: os.write(fd, SAID)\n"
        "    except OSError: pass\n"
        "os._exit(0)\n"
    )
    found = examined(case, f"SAID = {message(said)!r}\n{forge}")
    assert found.stage == "load"
    assert found.problem is not None
    assert CANARY not in repr(found)


@pytest.mark.parametrize("said", FORGED)
def test_forged_answer_is_rejected_whatever_it_says(
    monkeypatch: pytest.MonkeyPatch, said: dict[str, object]
) -> None:
    told = message({"ready": [CANARY, "limits"]}) + message(said)
    forge = [sys.executable, "-c", f"import sys; sys.stdout.buffer.write({told!r})"]
    pipes: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)

    def start(*_: object) -> Any:
        return subprocess.Popen(forge, bufsize=0, start_new_session=True, **pipes)

    monkeypatch.setattr(process, "_start", start)
    found = examine(b"", b"", torch.zeros(1, 3, 32, 32), config=LIMITS)
    assert (found.stage, found.isolation) == ("load", "limits")
    assert found.problem is not None
    assert CANARY not in repr(found)


@pytest.mark.slow
def test_answer_with_a_secret_in_its_header_is_rejected(case: Case) -> None:
    forged = save({CANARY: torch.zeros(1)}).replace(b'"F32"', b'"' + CANARY[:3].encode() + b'"')
    honest = (case.submission / "model.py").read_text()
    write = f"import os, safetensors.torch\nsafetensors.torch.save = lambda tensors: {forged!r}\n"
    found = examined(case, write + honest)
    assert found.stage == "load"
    assert found.problem == "the answer fresh is malformed (WeightsError)"


@pytest.mark.slow
@pytest.mark.usefixtures("afresh")
def test_ledger_and_report_hold_no_secret_that_a_submission_sought(case: Case) -> None:
    path = case.submission / "model.py"
    path.write_text(spying(case, extra=f"raise ValueError({CANARY!r})\n") + path.read_text())
    told = rewrite(case, lambda _: {})  # which hands that in
    with LedgerApplication.open(case.ledger, REGISTRY) as log:
        report = told.audit(config=JudgeConfig(child_memory_bytes=3 * 2**30), log=log)
    assert report.audit_id is not None
    step = report.steps[1]
    assert (step.name, step.status) == ("load_model", "failed")
    assert "ValueError in line" in step.summary
    key = LedgerPaths(case.ledger).key.read_text().splitlines()[1]
    for where in (repr(report).encode(), LedgerPaths(case.ledger).database.read_bytes()):
        assert CANARY.encode() not in where
        assert key.encode() not in where


def test_process_is_closed_to_others_only_while_a_submission_runs(case: Case) -> None:
    libc = ctypes.CDLL(None)
    before = libc.prctl(GET_DUMPABLE, 0, 0, 0, 0)
    seen, over = set(), threading.Event()

    def watch() -> None:
        while not over.wait(0.01):
            seen.add(libc.prctl(GET_DUMPABLE, 0, 0, 0, 0))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        found = examined(case, (case.submission / "model.py").read_text())
    finally:
        over.set()
        watcher.join()
    assert found.stage == "done"
    assert 0 in seen
    assert libc.prctl(GET_DUMPABLE, 0, 0, 0, 0) == before == 1
