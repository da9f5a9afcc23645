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
