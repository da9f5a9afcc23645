"""What a task's file must have, said without running it; and remedies that a task has not."""

import pytest
from task_runs import TABULAR, train
from tiny_training import ScriptedPolicy

from aggregates.errors import AggregateError
from monitor.errors import ConfigurationError, MonitorError, TaskError
from monitor.tasks import read_task


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("def loss(", "def cost(", "defines no function loss()"),
        ("def test(params)", "def test(params, more)", "test() must take 1 arguments, not 2"),
        ("METRIC = (", "METRICS = (", "must define METRIC"),
        ('"higher"', '"larger"', "must define METRIC"),
        ('METRIC = ("accuracy"', 'METRIC = ("\u0430ccuracy"', "METRIC must name a metric with"),
        ('METRIC = ("accuracy"', 'METRIC = ("accuracy "', "METRIC must name a metric with"),
        ('"lr": 0.01', '"rate": 0.01', "lr is missing"),
        ('"lr": 0.01', '"lr": float("0.01")', "line 12: PARAMS must be written out"),
        ('"lr": 0.01', '"seed": 1, "lr": 0.01', "PARAMS must not hold seed"),
        ("import torch\n", "import torch from\n", "line 6: this is not Python"),
        ('"lr": 0.01', '1: 2, "lr": 0.01', "the keys of PARAMS must be texts, not 1"),
        ('"lr": 0.01', '"x": [1], "lr": 0.01', "x in PARAMS must be a number, a text or None"),
    ],
)
def test_missing_part_of_the_protocol_is_named(old: str, new: str, says: str) -> None:
    assert old in TABULAR
    with pytest.raises(TaskError) as caught:
        read_task(TABULAR.replace(old, new).encode(), "task.py")
    assert says in str(caught.value)


def test_call_of_the_compiler_is_seen_without_running_the_file() -> None:
    call = TABULAR.replace("nn.Sequential(", "torch.compile(nn.Sequential)(")
    found = [read_task(source.encode(), "task.py").compiles for source in (TABULAR, call)]
    assert found == [False, True]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("x = torch" + ".a" * 20_000, "nested too deeply"),
        ("x = " + "-" * 50_000 + "1", "nested too deeply"),
        ("x = " + "(" * 300 + ")" * 300, "this is not Python: too many nested parentheses"),
        ("a\n" * 200_000, "it has 400,4[0-9]{2} words, signs and lines, the limit is 200,000"),
        ("x = [" + "[]," * 300_000 + "]", "words, signs and lines, the limit"),
        ('x = f"' + "{a}" * 60_000 + " " * 500_000 + '"', "less for a file of f-strings"),
        ("x = " + "9" * 5_000, "this is not Python: Exceeds the limit"),
        ("x = '\0'", "this is not Python"),
        ("x = 1" + " " * 2**20, "the limit is 1,048,576"),
    ],
    ids=["chain", "signs", "brackets", "lines", "lists", "f-string", "digits", "null", "bytes"],
)
def test_source_that_would_keep_its_reader_busy_is_rejected(more: str, says: str) -> None:
    with pytest.raises(TaskError, match=says):
        read_task(f"{TABULAR}\n{more}\n".encode(), "task.py")


@pytest.mark.parametrize(
    "more",
    ["x = torch" + ".a" * 400, ("x = torch" + ".a" * 90 + "\n") * 440, 'x = "\\d"\n' * 9],
    ids=["deep", "many attributes", "warnings"],
)
def test_unusual_source_is_read_without_a_word(more: str, recwarn: pytest.WarningsRecorder) -> None:
    assert not read_task(f"{TABULAR}\n{more}\n".encode(), "task.py").compiles
    assert not recwarn.list


def test_parameter_that_the_task_lacks_is_named() -> None:
    with pytest.raises(ConfigurationError, match="has no parameter hiden; known"):
        read_task(TABULAR.encode(), "task.py").configure({"hiden": 4})


def test_remedies_that_a_task_has_not_are_refused_and_recorded() -> None:
    policy = ScriptedPolicy([("add_block", {}), ("swap_activation", {"to": "relu"})])
    run, _ = train(TABULAR, policy)
    assert [past.outcome for past in run.decisions][:2] == ["refused", "applied"]
    assert run.spec.activation == "relu"
    assert "R4" in run.waived  # all its remedies change the model's size
    assert run.level == "repeatable"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "functional.cross_entropy(output, target)",
            'functional.cross_entropy(output, target, reduction="none")',
            r"loss\(\) must return a scalar tensor, not \[50\]",
        ),
        (
            'params["hidden"], CLASSES)\n',
            'params["hidden"], CLASSES), nn.Flatten(0)\n',
            r"one output for each of 50 inputs, not \[150\]",
        ),
        ('{"accuracy": (', '{"precision": (', "metrics() must return 'accuracy'"),
    ],
)
def test_wrong_shape_or_name_is_an_error(old: str, new: str, says: str) -> None:
    assert old in TABULAR
    with pytest.raises((MonitorError, AggregateError), match=says.replace("s()", r"s\(\)")):
        train(TABULAR.replace(old, new), ScriptedPolicy())
