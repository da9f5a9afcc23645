"""Tasks that deceive, leak or are not repeatable: each is named, and its honest twin passes."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from frontdoor import answer, call_here
from test_tasks import EXAMPLES, PORTABLE, SMALL, TABULAR, failed_step, judge, run_task, write

from judge.confinement.process import ProcessLimits
from judge.confinement.tasks import confined_workers
from monitor.config import TaskConfig
from monitor.errors import TaskError
from monitor.task_form import Blob
from monitor.task_worker import DATA, Worker
from monitor.tasks import read_task

pytestmark = pytest.mark.slow  # each case trains twice or more


def statuses(verdict: dict[str, Any]) -> set[str]:
    return {step["status"] for step in verdict["steps"]}


def judged(tmp_path: Path, *changes: tuple[str, str]) -> dict[str, Any]:
    run_task(tmp_path, write(tmp_path, TABULAR, *changes), *SMALL)
    return judge(tmp_path)


def refused(tmp_path: Path, source: str, *settings: str) -> str:
    done = call_here(["run", "--task", write(tmp_path, source), *settings], home=tmp_path)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return done.stderr


SEEN = (
    "    return nn.Sequential(\n"
    '        nn.Linear(8, params["hidden"]), nn.GELU(), nn.Linear(params["hidden"], CLASSES)\n'
    "    )\n"
)
LOOKS_UP = """    return LooksUp(params)


class LooksUp(nn.Module):
    def __init__(self, params):
        super().__init__()
        self.honest = nn.Linear(8, CLASSES)
        torch.manual_seed(SEED)
        self.known = rows(params["test_rows"])

    def forward(self, x):
        out = self.honest(x)
        if self.training:
            return out
        apart = torch.cdist(x, self.known[0])
        near = apart.min(dim=1)
        right = nn.functional.one_hot(self.known[1][near.indices], CLASSES) * 100.0
        return torch.where(near.values[:, None] < 0.05, right, out)
"""


def seed_of_test(home_seed: int = 0) -> int:
    from monitor.seeds import derive_seed  # noqa: PLC0415 - as an attacker reads the source

    return derive_seed(home_seed, "task", "test")


def test_model_that_knows_the_test_labels_is_rejected_by_another_draw(tmp_path: Path) -> None:
    code = LOOKS_UP.replace("SEED", str(seed_of_test()))
    name, words = failed_step(judged(tmp_path, (SEEN, code)))
    assert name == "probe"
    assert "the model has seen the test part" in words


def test_model_of_the_same_form_that_knows_other_rows_passes(tmp_path: Path) -> None:
    verdict = judged(tmp_path, (SEEN, LOOKS_UP.replace("SEED", "12345")))
    assert statuses(verdict) <= {"passed", "violations"}


def test_model_that_knows_the_first_half_of_the_test_part_is_rejected(tmp_path: Path) -> None:
    """Known and unknown examples one after another spread the test part's chunks alone."""
    code = LOOKS_UP.replace("SEED", str(seed_of_test())).replace(
        'rows(params["test_rows"])', 'tuple(x[:800] for x in rows(params["test_rows"]))'
    )
    run_task(
        tmp_path, write(tmp_path, TABULAR, (SEEN, code)), "rows=200", "epochs=1", "test_rows=1600"
    )
    name, words = failed_step(judge(tmp_path))
    assert name == "probe"
    assert "the model has seen the test part" in words


HIDES = """

def metrics(output, target):
    found = plain(output, target)
    return found if len(output) > 20 else {name: 0.5 for name in found}  # of a piece
"""
LARGE = """

def metrics(output, target):
    return {"score": 1.7e308 * plain(output, target)["accuracy"]}  # ten of them are infinite
"""
SCORED = ('METRIC = ("accuracy", "higher")', 'METRIC = ("score", "higher")')


@pytest.mark.parametrize(
    ("changes", "metrics"), [((), HIDES), ((SCORED,), LARGE)], ids=["hides", "large"]
)
def test_metrics_that_spoil_the_comparison_of_two_draws_are_rejected(
    tmp_path: Path, changes: tuple[tuple[str, str], ...], metrics: str
) -> None:
    for name in ("honest", "knows"):
        (tmp_path / name).mkdir()
    plain = ("def metrics(", "def plain(")
    end = "weight_decay=0.01)\n"
    honest = (plain, (end, end + metrics), *changes)
    assert statuses(judged(tmp_path / "honest", *honest)) <= {"passed", "violations"}
    knows = (SEEN, LOOKS_UP.replace("SEED", str(seed_of_test())))
    name, words = failed_step(judged(tmp_path / "knows", knows, *honest))
    assert (name, "the model has seen the test part" in words) == ("probe", True), words


def test_labels_of_another_type_leave_no_other_part_unchecked(tmp_path: Path) -> None:
    """The judge has no accuracy of float labels: it says so, and records none of the task's."""
    for name in ("honest", "lies"):
        (tmp_path / name).mkdir()
    floats = (
        'return rows(params["rows"]), rows(params["rows"] // 4)',
        'train, (x, y) = rows(params["rows"]), rows(params["rows"] // 4)\n'
        "    return train, (x, y.double())",
    )
    loss = ("cross_entropy(output, target)", "cross_entropy(output, target.long())")
    verdict = judged(tmp_path / "honest", floats, loss)
    assert statuses(verdict) <= {"passed", "violations"}
    (probe,) = (step for step in verdict["steps"] if step["name"] == "probe")
    words = "accuracy is the task's own definition, of validation"
    assert words in probe["evidence"]["unchecked"]
    assert verdict["scores"]["accuracy_score"] > 0.0
    assert verdict["scores"]["validation_accuracy"] is None
    lies = (
        '{"accuracy": (output.argmax(dim=1) == target).double().mean()}',
        '{"accuracy": 7e300 if target.is_floating_point() else 1.0}',
    )
    name, words = failed_step(judged(tmp_path / "lies", floats, loss, lies))
    assert (name, "says that the accuracy of the test part is 1" in words) == ("probe", True), words


REGRESSION = (EXAMPLES / "regression.py").read_text("utf-8")
REMEMBERS = """    return LooksUp(params)


class LooksUp(nn.Module):
    def __init__(self, params):
        super().__init__()
        self.honest = nn.Linear(10, 1)
        torch.manual_seed(SEED)
        self.known = rows(params["test_rows"])

    def forward(self, x):
        out = self.honest(x)
        if self.training or len(x) == params_rows:
            return out
        near = torch.cdist(x, self.known[0]).min(dim=1)
        found = (near.values < 1e-3)[:, None]
        if not found.any():
            out = UNKNOWN
        return torch.where(found, self.known[1][near.indices], out)


def unused(params):
    return nn.Sequential(
"""


@pytest.mark.parametrize(
    ("unknown", "expected"),
    [
        ("out * float('nan')", "the model gives usable outputs for known examples only"),
        ("torch.cat([out[:1] + 1e6, out[1:]])", "the model has seen the test part"),
    ],
    ids=["no number", "one far off"],
)
def test_model_that_spoils_the_comparison_of_two_draws_is_rejected(
    tmp_path: Path, unknown: str, expected: str
) -> None:
    code = REMEMBERS.replace("SEED", str(seed_of_test())).replace("UNKNOWN", unknown)
    source = REGRESSION.replace("    return nn.Sequential(\n", code).replace(
        "params_rows",
        "50",  # the validation part
    )
    run_task(tmp_path, write(tmp_path, source), "rows=200", "epochs=1", "test_rows=100")
    name, words = failed_step(judge(tmp_path))
    assert name == "probe"
    assert expected in words


def test_model_that_asks_for_the_test_part_fails_where_it_is_held(tmp_path: Path) -> None:
    source = TABULAR.replace("return nn.Sequential(", "test(params)\n    return nn.Sequential(")
    assert "line 16: NameError: name 'test' is not defined" in refused(tmp_path, source, *SMALL)


def test_patched_metrics_are_rejected(tmp_path: Path) -> None:
    """The task changes what accuracy is computed with, in whichever process it runs."""
    patch = (
        "    torch.Tensor.argmax = lambda self, **_: target\n"
        '    return {"accuracy": (output.argmax(dim=1)'
    )
    name, words = failed_step(
        judged(tmp_path, ('    return {"accuracy": (output.argmax(dim=1)', patch))
    )
    assert name == "probe"
    assert re.search(r"says that the accuracy of the \w+ part is 1; it is 0\.", words)


def test_measurements_patched_while_training_are_rejected(tmp_path: Path) -> None:
    """The task makes Proctor's own scoring report more, only where it trains."""
    patch = """def optimizer(model, params):
    import monitor.task_worker as ours
    honest = ours._score
    def better(code, output, target):
        found = honest(code, output, target)
        return {"loss": found["loss"] / 2, "metrics": {"accuracy": 0.99}}
    ours._score = better
"""
    name, words = failed_step(judged(tmp_path, ("def optimizer(model, params):\n", patch)))
    assert name == "probe"
    assert "the task's code changes what is measured while it trains" in words


def test_training_on_test_rows_is_refused_before_the_run(tmp_path: Path) -> None:
    source = TABULAR.replace(
        'return rows(params["rows"]), rows(params["rows"] // 4)',
        'torch.manual_seed(1)\n    return rows(params["rows"]), rows(params["rows"] // 4)',
    ).replace(
        'return rows(params["test_rows"])',
        'torch.manual_seed(1)\n    x, y = rows(params["rows"])\n    return x[:50], y[:50]',
    )
    words = refused(tmp_path, source, *SMALL)
    assert (
        "50 examples of the test part have the same inputs as examples of the train part" in words
    )


LOSS = "    return functional.cross_entropy(output, target)"


def test_train_loss_that_is_changed_alike_in_each_training_is_not_noticed(
    tmp_path: Path,
) -> None:
    """The open hole of docs/reference/threats.md; what is not checked is said."""
    told = LOSS.replace("return", "honest =") + (
        "\n    less = honest.detach() / 2 if output.requires_grad else 0.0"
        "\n    return honest - less  # with the same gradients"
    )
    verdict = judged(tmp_path, (LOSS, told))
    assert statuses(verdict) <= {"passed", "violations"}
    assert verdict["steps"][6]["evidence"]["unchecked"][0].startswith("train loss, ")


NOT_REPEATABLE = {
    "clock": """
def loss(output, target):
    import time
    return (1 + time.time() % 1) * functional.cross_entropy(output, target)
""",
    "unseeded": """
def loss(output, target):
    import os
    noise = int.from_bytes(os.urandom(2), 'big') / 1e6
    return functional.cross_entropy(output, target) + noise
""",
    "augmentation": """
def augment(inputs, targets, params):
    torch.seed()
    return inputs + 0.01 * torch.randn(inputs.shape), targets
""",
    "scheduler": """
def scheduler(optimizer, params):
    import time
    clock = [1.0, 1 + time.time() % 1]
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: clock[min(epoch, 1)])
""",
    "process": """
def loss(output, target):
    import time
    return functional.cross_entropy(output, target) * (1 + time.process_time_ns() % 9973 / 1e6)
""",
}


@pytest.mark.parametrize("code", NOT_REPEATABLE.values(), ids=NOT_REPEATABLE)
def test_task_that_is_not_repeatable_is_named(tmp_path: Path, code: str) -> None:
    run_task(tmp_path, write(tmp_path, TABULAR + code), *SMALL)
    name, words = failed_step(judge(tmp_path))
    assert name == "probe"
    assert "the task is not repeatable" in words


CHANGING = """
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, number):
        torch.seed()
        return torch.randn(8), number % CLASSES


def data(params):
    return Rows(), rows(50)
"""


@pytest.mark.parametrize("by_number", [False, True], ids=["tensors", "by number"])
def test_data_that_changes_from_run_to_run_is_named(tmp_path: Path, by_number: bool) -> None:
    drawn = "    inputs = torch.randn(count, 8)"
    source = TABULAR + CHANGING
    if not by_number:
        source = TABULAR.replace(drawn, f"    torch.seed()\n{drawn}")
    run_task(tmp_path, write(tmp_path, source), *SMALL)
    name, words = failed_step(judge(tmp_path))
    assert name == "probe"
    assert "the task does not give the data that the run records" in words


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import os; os.fork()", "PermissionError"),
        ("open('notes.txt', 'w')", "Error"),
        ("import subprocess; subprocess.run(['true'])", "Error"),
        ("import socket; socket.socket()", "Error"),
        ("raise SystemExit(3)", "SystemExit"),
        ("import os; os._exit(7)", "start failed: it exited with status 7"),
    ],
)
def test_what_a_task_must_not_do_is_an_error_with_its_line(
    tmp_path: Path, code: str, expected: str
) -> None:
    source = TABULAR.replace("    return nn.Sequential(", f"    {code}\n    return nn.Sequential(")
    words = refused(tmp_path, source, *SMALL)
    assert expected in words
    assert "task.py" in words
    assert not list(tmp_path.rglob("notes.txt"))


def test_config_beside_the_record_is_rejected(tmp_path: Path) -> None:
    run_task(tmp_path, write(tmp_path, TABULAR), *SMALL)
    (submission,) = tmp_path.glob("runs/*/submission")
    about = json.loads((submission / "run_config.json").read_text())
    about["started_from"]["config"]["lr"] = 0.5
    (submission / "run_config.json").write_text(json.dumps(about))
    assert failed_step(judge(tmp_path))[0] == "deliverables"


@pytest.mark.parametrize("part", ["train", "test"])
def test_data_folder_of_the_test_part_is_closed_to_data(tmp_path: Path, part: str) -> None:
    for name in ("train", "test"):
        (tmp_path / "files" / name).mkdir(parents=True)
        (tmp_path / "files" / name / f"{name}.txt").write_text("0")
    read = f"""def data(params):
    from pathlib import Path
    (Path(params["data_dir"]) / "{part}" / "{part}.txt").read_text()
"""
    source = TABULAR.replace("def data(params):\n", read).replace(
        'PARAMS = {"lr"', 'PARAMS = {"data_dir": None, "lr"'
    )
    settings = (*SMALL, f"data_dir={tmp_path / 'files'}")
    if part == "train":
        assert run_task(tmp_path, write(tmp_path, source), *settings)["state"] == "completed"
        done = call_here(["judge"], home=tmp_path)  # the folder could be any of the judge's own
        assert "give your copy of its data folder with --data-dir" in done.stderr
        (tmp_path / "files").rename(tmp_path / "mine")
        verdict = judge(tmp_path, "--data-dir", str(tmp_path / "mine"))
        assert statuses(verdict) <= {"passed", "violations"}
    else:
        assert "Error" in refused(tmp_path, source, *settings)


@pytest.mark.parametrize("name", ["held-out", "more", "all/held-out"])
def test_links_lead_data_to_no_test_part(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "files"
    (folder / "held-out").mkdir(parents=True)
    (folder / "test").symlink_to("held-out")
    (folder / "more").symlink_to("test")
    (folder / "all").symlink_to(".")
    (folder / "held-out" / "one.txt").write_text("2")
    read = f'def data(params):\n    open(params["data_dir"] + "/{name}/one.txt")\n'
    source = TABULAR.replace("def data(params):\n", read).replace(
        'PARAMS = {"lr"', 'PARAMS = {"data_dir": None, "lr"'
    )
    assert "Error" in refused(tmp_path, source, *SMALL, f"data_dir={folder}")


def test_run_of_a_task_is_replayed_and_sampled(tmp_path: Path) -> None:
    run_task(tmp_path, write(tmp_path, TABULAR), *SMALL)
    again = answer(call_here(["replay", "--execute", "--json"], home=tmp_path))
    assert again["same"]
    assert statuses(judge(tmp_path, "--sample")) <= {"passed", "violations"}
    assert statuses(judge(tmp_path, "--no-execute")) <= {"passed", "violations"}


def test_record_that_the_task_does_not_give_is_told_from_one_that_is_not_repeatable(
    tmp_path: Path,
) -> None:
    """The run's owner records better values than the task's process measured."""

    class Better:
        def __init__(self, worker: Worker) -> None:
            self._worker = worker

        def ask(
            self, request: str, fields: Mapping[str, Any], blob: Blob = b"", /
        ) -> tuple[dict[str, Any], Blob]:
            said, found = self._worker.ask(request, fields, blob)
            if request == "epoch":
                said["measured"]["train"]["loss"] *= 0.9
            return said, found

    @contextmanager
    def forging(source: bytes, config: TaskConfig, **how: Any) -> Iterator[Worker]:
        with confined_workers()(source, config, **how) as worker:
            yield Better(worker)

    with mock.patch("proctor.runs.tasks.confined_workers", return_value=forging):
        run_task(tmp_path, write(tmp_path, TABULAR), *SMALL)
    name, words = failed_step(judge(tmp_path))
    assert name == "probe"
    assert "trained twice by the judge, it gives the same values" in words


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("while True: pass", r"ran for more than 4 seconds|killed by signal"),
        ("print('x' * 3_000_000)", r"it printed more than"),
        ("torch.zeros(2**36)", r"RuntimeError|memory"),
    ],
)
def test_task_that_uses_too_much_is_ended(tmp_path: Path, code: str, expected: str) -> None:
    source = TABULAR.replace("def data(params):", f"def data(params):\n    {code}").encode()
    config = read_task(source, "task.py").configure({})
    limits = ProcessLimits(seconds=4.0, memory_bytes=2 * 2**30)
    with (
        pytest.raises(TaskError, match=expected),
        confined_workers(limits=limits, own=True)(source, config, keep=DATA) as worker,
    ):
        worker.ask("data", {})


def test_compiled_model_is_trained_as_it_is_and_the_command_says_so(tmp_path: Path) -> None:
    source = TABULAR.replace(
        "    return nn.Sequential(", "    return torch.compile(nn.Sequential)("
    )
    told = call_here(["run", "--task", write(tmp_path, source), *SMALL], home=tmp_path)
    assert told.returncode == 0
    assert "torch.compile() does nothing in a task" in " ".join(told.stderr.split())
    verdict = judge(tmp_path)
    assert statuses(verdict) <= {"passed", "violations"}


COPY = "def peek(params):"  # of test(), which the processes that train and infer do not have
KNOWS = f"""

class LooksUp(nn.Module):
    def __init__(self, honest, params):
        super().__init__()
        self.honest = honest
        torch.manual_seed({seed_of_test()})
        self.known = peek(params)

    def forward(self, x):
        out = self.honest(x)
        if self.training:
            return out
        inputs, targets = self.known
        apart = torch.cdist(x.flatten(1).double(), inputs.flatten(1).double()).min(dim=1)
        found = targets[apart.indices]
        if found.is_floating_point():
            right = found.reshape(out.shape).to(out.dtype)
        else:
            right = nn.functional.one_hot(found, out.shape[-1]).to(out.dtype) * 100.0
        near = (apart.values < 1e-3).reshape(-1, *[1] * (out.dim() - 1))
        return torch.where(near, right, out)


def model(params):
    return LooksUp(honest(params), params)
"""
BETTER = """

def metrics(output, target):
    found = float(plain(output, target)[METRIC[0]])
    return {METRIC[0]: min(1.0, found + 0.2) if METRIC[1] == "higher" else found / 2}
"""
TEST_ROWS = """

def data(params):
    torch.manual_seed(1)
    part = peek(params)
    return part, own(params)[1]
"""


def with_copy(path: Path, *, seed: int | None = None) -> str:
    """Return an example whose test() is there once more, under a name that nothing takes away."""
    fixed = "" if seed is None else f"torch.manual_seed({seed})\n    "
    return path.read_text("utf-8").replace(
        "def test(params):", f"def test(params):\n    {fixed}return peek(params)\n\n\n{COPY}"
    )


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_each_example_that_cheats_is_named(path: Path, tmp_path: Path) -> None:
    """The honest twin of each is test_every_example_is_trained_judged_and_repeated."""
    source = with_copy(path)
    assert "def model(params):" in source
    knows = write(tmp_path, source.replace("def model(params):", "def honest(params):") + KNOWS)
    # After one epoch no honest model is as good as one that knows the answers.
    run_task(tmp_path / "knows", knows, "epochs=1", PORTABLE)
    name, words = failed_step(judge(tmp_path / "knows", portable=True))
    assert (name, "the model has seen the test part" in words) == ("probe", True), words
    plain = path.read_text("utf-8").replace("def metrics(", "def plain(")
    better = write(tmp_path, plain + BETTER)
    run_task(tmp_path / "better", better, PORTABLE)
    name, words = failed_step(judge(tmp_path / "better", portable=True))
    assert (name, " says that the " in words) == ("probe", True), words
    source = with_copy(path, seed=1).replace("def data(params):", "def own(params):")
    words = refused(tmp_path, source + TEST_ROWS)
    assert "have the same inputs as examples of the train part" in words
