"""What the decisions of a run were worth: forks with each beside forks with another answer.

Intervals are computed again from the forks, at a level that counts how often the same was measured.

Source: the view decision_worth; docs/how-to/fork-a-run.md.
I/O: none.  Units: losses in nats, accuracies from 0 to 1.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aggregates.credit import Interval, better_of
from judge.curation.intervals import interval, level_of
from ledger.wording import counted
from proctor.output.columns import Column, field, figure, figures
from proctor.runs.standings import told_difference

MEASURED = "SELECT 1 FROM credit_starts WHERE run_id = $1 LIMIT 1"
WORTH = (
    "SELECT decision, epoch, arm, after, looks, loss_saved, accuracy_gained, other_code, why_not "
    "FROM decision_worth WHERE run_id = $1 ORDER BY decision, arm"
)
_BETTER = {"chosen": "the decision", "other": "the alternative", None: "undecided"}


@dataclass(frozen=True)
class Worth:
    """A decision beside one alternative, by the measurement that answers."""

    decision: int  # its number
    epoch: int
    arm: str  # the alternative: nothing, or its name
    after: str | None  # the policy that decided afterwards; None: no measurement answers
    orders: int  # of the examples, with a pair of forks each
    level: float  # of the intervals; above 0.95 if the same was measured several times
    loss: Interval  # saved by the decision
    accuracy: Interval  # gained by the decision
    better: str | None  # chosen or other; None: undecided
    other_code: bool  # another version of the program trained the forks than the run
    why_not: str | None  # why no measurement answers


def worths(rows: Iterable[Mapping[str, Any]]) -> list[Worth]:
    """Return what rows of WORTH say."""
    return [_worth(row) for row in rows]


def _worth(row: Mapping[str, Any]) -> Worth:
    level = level_of(row["looks"] or 1)
    loss, accuracy = (
        interval(gains, level) if gains and None not in gains else Interval(None, None, None)
        for gains in (row["loss_saved"], row["accuracy_gained"])
    )
    return Worth(
        **{name: row[name] for name in ("decision", "epoch", "arm", "after")},
        orders=len(row["loss_saved"] or ()),
        level=level,
        loss=loss,
        accuracy=accuracy,
        better=better_of(loss, accuracy),
        other_code=row["other_code"],
        why_not=row["why_not"],
    )


def _told(found: Interval) -> str:
    told = told_difference(found.difference, found.low, found.high, digits=4)
    return told or "cannot be told"


def _better(row: Worth) -> str:
    return "nothing is decided" if row.why_not else _BETTER[row.better]


COLUMNS: Sequence[Column] = (
    *figures("decision", "epoch"),
    field("instead", "arm"),
    figure("orders"),
    field("accuracy gained", lambda row: None if row.why_not else _told(row.accuracy)),
    field("loss saved", lambda row: None if row.why_not else _told(row.loss)),
    field("better", _better),
)


def told_worth(found: Worth) -> str:
    """Return what a decision was worth beside an alternative, in a sentence."""
    beside = f"beside {found.arm}"
    if found.why_not:
        return f"{beside}: measured, but nothing is decided: {found.why_not}"
    return (
        f"{beside}: accuracy gained {_told(found.accuracy)}, loss saved {_told(found.loss)}; "
        f"{counted(found.orders, 'order')} of the examples, {100 * found.level:.4g}% intervals, "
        f"later decisions by {found.after}; better: {_BETTER[found.better]}"
        + ("; another version of the program trained the forks" if found.other_code else "")
    )


def told_how(found: Iterable[Worth]) -> str:
    """Return what intervals mean, and who decided after the measured decisions."""
    after = ", ".join(sorted({each.after for each in found if each.after})) or "nobody"
    return (
        "Intervals are at 95%, or wider where the same was measured several times. Later decisions "
        f"were made by: {after}."
    )


def carried_out(decisions: Iterable[Mapping[str, Any]]) -> list[int]:
    """Return the numbers of the decisions that changed the run."""
    return [row["number"] for row in decisions if row["outcome"] == "applied"]


def told_unmeasured(
    run: Mapping[str, Any], carried_out: Sequence[int], found: Iterable[Worth]
) -> str:
    """Return which carried-out decisions were not measured, and how to; '' where none can be."""
    known = {each.decision for each in found}
    missing = [number for number in carried_out if number not in known]
    if not missing or run["level"] != "repeatable" or run["state"] == "running":
        return ""
    one = "decision" if len(missing) == 1 else "decisions"
    which = f"the {one}"
    if len(missing) < len(carried_out):
        which = f"{one} {', '.join(map(str, missing))}"
    return (
        f"not measured: the worth of {which}; `proctor fork {run['run_id'][:8]} "
        "--decision all --against nothing --against random` measures it"
    )
