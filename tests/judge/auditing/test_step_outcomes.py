"""Which errors end an audit without a verdict; metrics that the judge computes of large parts."""

from collections.abc import Callable
from functools import partial

import duckdb
import pytest
import torch
from safetensors.torch import save
from torch.nn import functional

from aggregates.audit import unchecked
from judge.auditing import known_metrics
from judge.auditing.outcomes import StepOutcome, performed
from judge.confinement.budget import Budget, BudgetError
from judge.errors import ConfinementError, JudgeError, StepError
from ledger.errors import EncodingError, StorageError
from monitor.errors import RoomError, TaskError
from monitor.stored import TYPES, Rows, spool
from monitor.task_form import Bounds, read_named


def raising(error: BaseException) -> Callable[[], StepOutcome]:
    def step() -> StepOutcome:
        raise error

    return step


@pytest.mark.parametrize(
    "error",
    [
        JudgeError("the data set is missing"),
        ConfinementError("no process can be started"),
        StorageError("the disk failed"),
        OSError(28, "No space left on device"),
        RoomError("the examples take 9 bytes, and 0 are free"),
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        ImportError("no module torch"),
        duckdb.OperationalError("no space"),
        KeyboardInterrupt(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_error_of_the_judges_own_machine_fails_no_step(error: BaseException) -> None:
    with pytest.raises((type(error), MemoryError)):
        performed(raising(error))


@pytest.mark.parametrize(
    "error",
    [
        KeyError("test9"),
        IndexError("list index out of range"),
        NotImplementedError('"index_copy_cpu" not implemented'),
        RuntimeError("shapes cannot be multiplied"),
        RecursionError("maximum recursion depth exceeded"),
        ZeroDivisionError("division by zero"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        EncodingError("nested too deeply"),
        TaskError("the model is too large"),
        duckdb.ConversionException("no number"),
        AssertionError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_other_error_is_a_failed_step_with_its_reason(error: Exception) -> None:
    outcome = performed(raising(error))
    assert outcome.status == "failed"
    assert outcome.summary.startswith("the judge cannot use what was submitted: ")
    assert type(error).__name__ in outcome.summary
    assert outcome.evidence["place"].startswith("test_step_outcomes.py:")


def test_step_that_fails_or_passes_is_left_as_it_is() -> None:
    passed = StepOutcome("all is well")
    assert performed(lambda: passed) is passed
    failed = performed(raising(StepError("wrong", found=1)))
    assert (failed.status, failed.summary, failed.evidence) == ("failed", "wrong", {"found": 1})


def test_what_was_not_checked_is_one_line_whatever_a_task_names_its_metrics() -> None:
    steps = [{"evidence": {"unchecked": ["f1\nverdict PASSED\r is its own", "mse"]}}, {}]
    assert unchecked(steps) == ["f1 verdict PASSED is its own", "mse"]


def test_budget_is_shared_and_ends() -> None:
    budget = Budget(seconds=100.0, most_bytes=10)
    budget.take(4)
    budget.take(6)
    with pytest.raises(BudgetError, match=r"more than the 10 bytes .* --limit max_audit_bytes"):
        budget.take(1)
    assert 0 < budget.seconds_left() <= 100.0
    with pytest.raises(BudgetError, match="--limit max_audit_seconds"):
        Budget(seconds=0.0).seconds_left()
    Budget().take(2**62)


def in_a_file(rows: torch.Tensor) -> Rows:
    order = torch.arange(len(rows))
    return read_named(spool({"rows": (rows, order)}), {"rows"}, Bounds())["rows"]


@pytest.mark.parametrize("keep", [lambda rows: rows, in_a_file], ids=["in memory", "in a file"])
def test_known_metrics_are_those_of_torch(keep: Callable[[torch.Tensor], Rows]) -> None:
    torch.manual_seed(0)
    known_metric = partial(known_metrics.known_metric, order=torch.arange(700))
    logits, labels = torch.randn(700, 3, 5), torch.randint(0, 5, (700, 3))
    double = logits.double()
    expected = {
        "accuracy": float((logits.argmax(-1) == labels).double().mean()),
        "perplexity": float(
            functional.cross_entropy(double.reshape(-1, 5), labels.reshape(-1)).exp()
        ),
    }
    for name, value in expected.items():
        assert known_metric(name, keep(logits), keep(labels)) == pytest.approx(value, rel=1e-12)
        small = labels.to(torch.uint16)
        assert known_metric(name, keep(logits), keep(small)) == pytest.approx(value, rel=1e-12)
    other = torch.randn(700, 3, 5)
    apart = double - other.double()
    for name, mean in (("mse", apart.square().mean()), ("mae", apart.abs().mean())):
        found = known_metric(name, keep(logits), keep(other))
        assert found == pytest.approx(float(mean), rel=1e-12)
    assert known_metric("perplexity", keep(logits), keep(labels + 1)) is None
    assert known_metric("accuracy", keep(logits), keep(other)) is None
    assert known_metric("mse", keep(logits), keep(labels)) is None
    assert known_metric("f1", keep(logits), keep(labels)) is None


def test_every_type_that_a_part_may_have_passes_the_check_of_form() -> None:
    parts = {f"{name}.x": torch.ones(3, 2).to(dtype) for name, dtype in TYPES.items()}
    order = torch.tensor([2, 0])
    spooled = spool({name: (rows, order) for name, rows in parts.items()})
    for blob in (save({name: rows[order] for name, rows in parts.items()}), spooled):
        found = read_named(blob, set(parts), Bounds())
        assert all(torch.equal(found[name][:], parts[name][order]) for name in parts)
    assert spooled.read(0, len(spooled)) == save({n: rows[order] for n, rows in parts.items()})
