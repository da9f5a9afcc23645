"""The rows that say why a run is or is not training data.

I/O: none.
"""

from typing import Annotated, Any

from proctor.output.shape import columns

Why = Annotated[
    dict[str, Any],
    columns(
        "Why",
        "A row of curated_runs with its row of run_forces and its rows of curated_decisions; exit "
        "code 1 unless the run is training data.",
        "SELECT r.*, '' AS says, f AS forces, "
        "[{number: d.number, author: d.author, faults: d.faults}] AS decisions "
        "FROM curated_runs AS r, run_forces AS f, curated_decisions AS d",
    ),
]
