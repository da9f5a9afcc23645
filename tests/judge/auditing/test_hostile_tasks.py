"""Tasks that try to stop their judge: each is a failed step, with its reason, within the limits.

A row has the code that turns hostile in the judge's processes, and what the failed step says. The
hostile block runs in each process as the file is loaded; what it defines takes the place of the
honest function. `say` and `put` write to the pipe on which the judge reads answers.
"""

import json
import re
import time
from pathlib import Path

import pytest
from frontdoor import call
from hostile_tasks import MEASURED, PLAIN, recorded, source_of

SECONDS = 20  # for each process of a task
AUDIT = 60  # for all of them
PATIENCE = 240  # of this test: a busy machine is no failure
MOST_MEMORY = 2 * 2**30
LIMITS = {
    "max_task_seconds": SECONDS,
    "max_audit_seconds": AUDIT,
    "max_task_examples": 100_000,
    "max_audit_bytes": 3 * 2**30,
}

TEST = "def test(params):\n    "
MODEL = """class Linear(nn.Linear):
    def forward(self, inputs):
        honest = super().forward(inputs)
        if torch.is_grad_enabled() or not INFERS:
            return honest
        {}
def model(params):
    return Linear(4, CLASSES)
"""
SCORE = "if SCORES:\n    def metrics(output, target):\n        {}"
RECEIVE = "harness().f_globals.update(receive=lambda *_: time.sleep(1e6))"
STREAM = """class Rows:
    def __len__(self):
        return {}
    def __getitem__(self, number):
        {}
def test(params):
    return Rows()
"""
EPOCH = """if TRAINS:
    import monitor.task_worker
    training = monitor.task_worker._Training
    honest = training.epoch
    def epoch(self, number):
        found = honest(self, number)
        {}
        return found
    training.epoch = epoch
"""
HEADER = TEST + "head = b'{}'\n    say({{}}, len(head).to_bytes(8, 'little') + head + bytes(960))"
PLACE = '"test.{}":{{"dtype":"F32","shape":[60,4],"data_offsets":[0,960]}}'
SECOND = (
    TEST + "found = rows(params['test_rows'])\n"
    "    if torch.initial_seed() == derive_seed(0, 'task', 'test'): return found\n    "
)
RAISES = TEST + "raise type('E', (Exception,), {{'__str__': lambda _: {}}})()"
MALFORMED = "the tensors of the task are malformed"

ATTACKS: dict[str, tuple[str, str]] = {
    # Types and values
    "float8": (TEST + "test_part(torch.zeros(9, 4).to(torch.float8_e4m3fn))", MALFORMED),
    "uint16 outputs": (
        MODEL.format("return honest.to(torch.uint16)"),
        "RuntimeError|NotImplementedError|differ|records|cannot be scored",
    ),
    "complex": (TEST + "test_part(torch.zeros(9, 4, dtype=torch.complex64))", MALFORMED),
    "bool outputs": (
        MODEL.format("return honest > 0"),
        "cannot be scored|validation loss|RuntimeError",
    ),
    "labels out of range": (
        TEST + "test_part(torch.ones(9, 4), torch.full((9,), 2**62))",
        "cannot be scored|does not give the data",
    ),
    "no number": (
        MODEL.format("return honest * float('nan')"),
        "accuracy of the|validation loss|validation accuracy",
    ),
    "infinite": (
        MODEL.format("return honest + float('inf')"),
        "accuracy of the|validation loss|validation accuracy",
    ),
    "half of a text": (TEST + 'say(b\'{"streams": {"test": "\\\\ud800"}}\')', "malformed"),
    "large whole number": (
        TEST + "say(b'{\"streams\": {\"test\": ' + b'9' * 5000 + b'}}')",
        "malformed",
    ),
    # Shapes and sizes
    "another shape": (MODEL.format("return honest[:, :1]"), "cannot be scored|validation"),
    "two shapes": (
        MODEL.format("return honest if len(inputs) == 20 else honest.new_zeros(len(inputs), 3, 3)"),
        "cannot be scored|validation|IndexError",
    ),
    "no dimension": (TEST + "test_part(torch.zeros(9, 4), torch.tensor(1))", "of shape"),
    "no example": (TEST + "test_part(torch.zeros(0, 4))", r"of shape \[0"),
    "examples of nothing": (
        TEST + "test_part(torch.zeros(2**30, 0), torch.zeros(2**30, 0))",
        "at least one number",
    ),
    "endless examples of nothing": (
        STREAM.format("2**39", "return torch.zeros(0), torch.zeros(0)"),
        "the limit is 100,000",
    ),
    "many examples": (
        TEST + "test_part(torch.zeros(4_000_000, 1, dtype=torch.uint8))",
        "gave 4,000,000 examples, the limit is 100,000",
    ),
    "negative number of examples": (TEST + "say({'streams': {'test': -5}})", "has -5 examples"),
    "other lengths": (
        TEST + "test_part(torch.zeros(9, 4), torch.zeros(8, dtype=torch.long))",
        "have different lengths",
    ),
    "large example": (
        TEST + "test_part(torch.zeros(2, 20_000_000))",
        "80,000,000 bytes for each example",
    ),
    "header of any size": (TEST + "say({}, b'\\xff' * 64)", MALFORMED),
    "tensors beyond the end": (
        TEST + "say({}, save({'test.inputs': torch.ones(9, 4)})[:-8])",
        MALFORMED,
    ),
    "other tensors": (TEST + "say({}, save({'x': torch.ones(9, 4)}))", "gave other tensors than"),
    "large test part": (
        MODEL.format("return honest").replace(".forward(inputs)", ".forward(inputs[:, :4])")
        + TEST
        + "test_part(torch.rand(80, 1_250_000))",  # 400 MB, and as many of another draw
        "does not give the data|seconds",  # or stopped by a limit
    ),
    "large outputs": (
        MODEL.format("return honest.repeat(1, 800_000)"),  # 380 MB
        "validation loss|seconds|exited|killed",  # or stopped by a limit
    ),
    "large claims": (TEST + "say({}, sizes=(2**60, 2**60))", "its answer is too large"),
    "large JSON": (TEST + "say(b'[' + b'[],' * 4_000_000 + b'[]]')", "malformed"),
    "deep JSON": (TEST + "say(b'[' * 900 + b']' * 900)", "malformed"),
    # Pipes
    "answers without end": (
        TEST + "say({}, sizes=(2, 2**32 - 1))\n    while True: put(bytes(2**20))",
        "sent more than the 3,221,225,472 bytes of its audit",
    ),
    "garbage": (TEST + "put(bytes(range(256)) * 9)", "too large"),
    "closes the pipe": (
        TEST + "os.close(harness().f_locals['answers']); time.sleep(1e6)",
        f"closed the pipe|exited|killed|ran for more than {SECONDS} seconds",
    ),
    "never reads": ("if TRAINS: " + RECEIVE, f"ran for more than {SECONDS} seconds"),
    "never answers": (SCORE.format("time.sleep(1e6)"), f"ran for more than {SECONDS} seconds"),
    "one byte at a time": (
        TEST + "say({}, sizes=(2**20, 0))\n    while True: put(b' '); time.sleep(0.5)",
        f"ran for more than {SECONDS} seconds",
    ),
    "ends at once": ("if SCORES: os._exit(0)", "exited with status 0"),
    "starts processes": (
        TEST + "os.fork()",
        "PermissionError|OSError|BlockingIOError|killed",
    ),
    "answers twice": (
        TEST + "say({}, b''); say({}, b'')\n    return rows(60)",
        MALFORMED,
    ),
    "prints without end": ("if INFERS:\n    while True: print('x' * 9_999)", "printed more than"),
    # Second draws
    "second draw of another shape": (
        TEST + "found = rows(params['test_rows'])\n    return found if torch.initial_seed() == "
        "derive_seed(0, 'task', 'test') else (found[0][:, :3], found[1])",
        "outputs cannot be computed",
    ),
    "second draw of another type": (
        TEST + "found = rows(params['test_rows'])\n    return found if torch.initial_seed() == "
        "derive_seed(0, 'task', 'test') else (found[0], found[1].double())",
        "outputs cannot be scored",
    ),
    "examples that grow": (
        STREAM.format(
            "60",
            "many = {'inputs': torch.zeros(60, 2_000_000), 'targets': torch.zeros(60)}\n"
            "        say({}, save(many)) if number else None\n"
            "        return torch.zeros(4), 0",
        ),
        "examples of another shape or type",
    ),
    # Code
    "recursion": (MODEL.format("return self(inputs)"), "RecursionError|exited|killed"),
    "metrics without names": (SCORE.format("return {1: 0.5}"), "cannot be scored"),
    "metrics that are texts": (
        SCORE.format(
            'say({p: {"loss": 0.5, "metrics": {"accuracy": "0.9"}} for p in ("validation",)})'
        ),
        "scores of the validation part are malformed",
    ),
    "sparse tensors": (TEST + "return rows(60)[0].to_sparse(), rows(60)[1]", "cannot be made"),
    "tensors without memory": (
        TEST + "return torch.zeros(60, 4, device='meta'), rows(60)[1]",
        "cannot be made",
    ),
    "one memory for two": (
        MODEL.format("pass\n        return honest").replace(
            "return Linear(4, CLASSES)",
            "found = Linear(4, CLASSES); found.again = found.weight\n    return found",
        ),
        "another model|cannot be computed|differ",
    ),
    "other weights": (
        "def model(params):\n    return nn.Linear(5, CLASSES)",
        "gives another model than the run records|cannot be computed",
    ),
    "many modules": (
        "def model(params):\n"
        "    return nn.Sequential(*[nn.Linear(4, 4) for _ in range(3000)], nn.Linear(4, 2))",
        "gives another model than the run records|cannot be computed",
    ),
    "deep attribute": (
        "x = lambda: torch" + ".a" * 80 + "\ntest = None",
        "cannot be made: task.py: test raised",
    ),
    "hostile text": (
        "def test(params):\n    raise type('A\\nB' * 40, (Exception,), {})('\\x1b[31m' * 999)",
        "raised an exception",
    ),
    "quantized": (
        TEST + "return torch.quantize_per_tensor(rows(60)[0], .1, 0, torch.qint8), rows(60)[1]",
        "test raised NotImplementedError",
    ),
    "nested": (
        TEST + "return torch.nested.nested_tensor([torch.zeros(4)] * 60), rows(60)[1]",
        "cannot be made",
    ),
    "outputs of a class of its own": (
        "class Odd(torch.Tensor):\n"
        "    @classmethod\n"
        "    def __torch_function__(cls, *_): raise RuntimeError\n"
        + MODEL.format("return honest.as_subclass(Odd)"),
        "outputs raised RuntimeError",
    ),
    "nine dimensions": (
        MODEL.format("return honest.reshape(len(honest), 1, 1, 1, 1, 1, 1, 1, 1, 1, 2)"),
        MALFORMED,
    ),
    "keys that are no texts": (
        SCORE.format(
            "return {type('S', (str,), {'__str__': lambda _: 'a' * 10**8})('accuracy'): 0.5}"
        ),
        "lack accuracy",
    ),
    "metric of 400 digits": (SCORE.format("return {'accuracy': 10**400}"), "raised OverflowError"),
    "one tensor twice": (
        HEADER.format("{" + ",".join([PLACE.format("inputs")] * 2) + "}"),
        "repeated",
    ),
    "two tensors in one place": (
        HEADER.format("{" + ",".join(map(PLACE.format, ("inputs", "targets"))) + "}"),
        MALFORMED,
    ),
    "header of 2^63 bytes": (
        TEST + "say({}, (2**63).to_bytes(8, 'little') + bytes(64))",
        MALFORMED,
    ),
    "second draw of another shape of targets": (
        SECOND + "return found[0], found[1][:, None].repeat(1, 2)",
        "cannot be scored",
    ),
    "second draw that exits": (SECOND + "raise SystemExit(0)", "test raised SystemExit"),
    "half closed pipe": (
        "if SCORES:\n    os.close(harness().f_locals['requests']); time.sleep(1e6)",
        f"ran for more than {SECONDS} seconds",
    ),
    "answers before it is asked": (
        "if INFERS:\n    [say({'spec': None}) for _ in range(4)]; time.sleep(1e6)",
        "gives another model than the run records",
    ),
    "slow in each process": (
        f"time.sleep({0.7 * SECONDS:g})",
        f"has used the {AUDIT} seconds of its audit",
    ),
    "answers of a thread": (
        "import threading\n"
        "def answer(pipe):\n    while True: os.write(pipe, b'x')\n"
        "if INFERS:\n"
        "    pipe = harness().f_locals['answers']\n"
        "    threading.Thread(target=answer, args=(pipe,), daemon=True).start()\n"
        "    time.sleep(1)",
        "too large",
    ),
    "threads without end": (
        TEST + "import threading\n"
        "    sleep = dict(target=time.sleep, args=(1e6,), daemon=True)\n"
        "    for _ in range(10**5): threading.Thread(**sleep).start()",
        "test raised RuntimeError",
    ),
    "stops its parent": (TEST + "os.kill(os.getppid(), 19)", "raised PermissionError"),
    "kills all": (TEST + "os.kill(-1, 9)", "raised PermissionError"),
    "signals by a pipe": (
        TEST + "import fcntl; fcntl.fcntl(harness().f_locals['answers'], 8, os.getppid())",
        "raised PermissionError",
    ),
    "slows its parent": (TEST + "os.setpriority(0, os.getppid(), 19)", "raised PermissionError"),
    "sets the clock": (TEST + "time.clock_settime(0, 0)", "raised PermissionError"),
    "words that raise": (RAISES.format("1 / 0"), "test raised E"),
    "words of 100 MB": (RAISES.format("'x' * 10**8"), "test raised E"),
    "words that are half a letter": (RAISES.format("'\\ud800'"), "test raised E"),
    "specification that is a list": (
        "if INFERS:\n"
        "    import monitor.task_worker\n"
        "    spec = type('S', (), {'to_dict': lambda _: [[1]] * 1000})()\n"
        "    monitor.task_worker._model = lambda *_: (None, spec)",
        "gives another model than the run records",
    ),
    "epoch with 80 kB of its own": (
        EPOCH.format("found['measured']['more'] = {9 * str(n): 'x' * 199 for n in range(400)}"),
        r"1 of \d+ values differ",
    ),
    "epoch with many metrics": (
        EPOCH.format(
            "more = dict.fromkeys(map(str, range(99_999)), 0.5)\n"
            "        found['measured']['validation']['metrics'] |= more"
        ),
        "values differ|seconds",
    ),
    "epoch that is a list": (EPOCH.format("found = {'measured': []}"), "was measured wrongly"),
    "epoch with a text": (
        EPOCH.format("found['measured']['validation']['metrics']['accuracy'] = 'inf'"),
        r"1 of \d+ values differ",
    ),
    "weights of 255 MB": (
        "if TRAINS:\n"
        "    import monitor.task_worker\n"
        "    monitor.task_worker.dump_weights = lambda _: bytes(255 * 2**20)",
        "weights cannot be saved|seconds",
    ),
    "patched encoder": (
        "class Empty:\n    def encode(self, _): return '{}'\n"
        "if SCORES: harness().f_globals['ENCODER'] = Empty()",
        "malformed",
    ),
    "validation of another kind": (
        "if not (TRAINS or INFERS or SCORES):\n"
        "    def data(params): return rows(40), (rows(20)[0], rows(20)[1].float() + 0.5)",
        "does not give the data",
    ),
}
QUICK = (
    "float8",
    "answers without end",
    "second draw of another type",
    "deep JSON",
    "words that raise",
)


def judged(home: Path, hostile: str, *settings: str) -> tuple[str, str]:
    """Judge through the command; return the failed step, none for a refusal, and its words."""
    recorded(home, source_of(hostile), *settings)
    limits = [word for name, value in LIMITS.items() for word in ("--limit", f"{name}={value}")]
    began = time.monotonic()
    done = call(
        ["judge", "--json", *limits],
        home=home,
        code=MEASURED,
        variables={"PEAK": str(home / "peak")},
        seconds=PATIENCE,
    )
    assert time.monotonic() - began < PATIENCE
    assert "Traceback" not in done.stderr + done.stdout, done.stderr
    assert 1024 * int((home / "peak").read_text()) < MOST_MEMORY
    verdict = json.loads(done.stdout)
    if "error" in verdict:
        return "", verdict["message"]
    failed = [
        (each["name"], each["summary"]) for each in verdict["steps"] if each["status"] == "failed"
    ]
    return failed[0] if failed else ("passed", "")


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=() if each in QUICK else pytest.mark.slow) for each in ATTACKS],
)
def test_task_that_attacks_its_judge_is_rejected(name: str, tmp_path: Path) -> None:
    hostile, says = ATTACKS[name]
    many = ("rows=9000",) if name == "never reads" else ()
    step, words = judged(tmp_path, hostile, *many)
    assert step not in ("", "passed"), words
    assert re.search(says, words), words


@pytest.mark.sampled(2)
@pytest.mark.parametrize("settings", [(), ("rows=9000",)], ids=["small", "larger than a pipe"])
def test_honest_task_passes_within_the_same_limits(
    tmp_path: Path, settings: tuple[str, ...]
) -> None:
    assert judged(tmp_path, PLAIN, *settings) == ("passed", "")
