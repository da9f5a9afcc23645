"""Metrics of epochs beside loss and accuracy: those of a task, or that a watched loop reported.

Source: the table epoch_metrics.
Trust: names are hostile.
I/O: none.
"""

from collections.abc import Mapping, Sequence
from typing import Any

CHARTED = 8  # metrics that get a chart
Rows = Sequence[Mapping[str, Any]]
EPOCHS = """
SELECT e.* EXCLUDE (reported), m.metrics FROM epochs AS e LEFT JOIN (
    SELECT run_id, epoch, idx, MAP(LIST(metric ORDER BY place), LIST(value ORDER BY place))
        AS metrics FROM epoch_metrics WHERE run_id = $1 GROUP BY ALL
) AS m USING (run_id, epoch, idx) WHERE e.run_id = $1 ORDER BY epoch"""  # $1 is the run


def metric_names(rows: Rows, *, first: str = "") -> list[str]:
    """Return the metrics of rows of EPOCHS that have no column; `first` is in front."""
    found = dict.fromkeys(name for row in rows for name in row["metrics"] or ())
    return sorted((name for name in found if f"val_{name}" not in rows[0]), key=first.__ne__)


def with_columns(rows: Rows) -> list[dict[str, Any]]:
    """Return rows of EPOCHS with a column val_NAME for each metric."""
    names = metric_names(rows)
    return [
        {
            **{column: value for column, value in row.items() if column != "metrics"},
            **{f"val_{name}": (row["metrics"] or {}).get(name) for name in names},
        }
        for row in rows
    ]
