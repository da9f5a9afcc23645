"""The checks of coverage, as they are and as they were plainly written, agree on random histories.

plain_coverage.sql says of each check what it looks for, with a range of epochs for each; the checks
that the judge performs find the same by equal or nearest epochs, for long runs.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from random import Random

import duckdb
import pytest

from aggregates.playbook import DIRECTIONS, REMEDIES
from aggregates.rulebook import PRECEDENCE
from aggregates.rules import CALIBRATED, DOCUMENT
from judge.auditing import coverage as coverage_module
from judge.auditing.coverage import (
    Coverage,
    add_effects,
    create_inputs,
    create_tables,
    measure_coverage,
)
from judge.auditing.effects import Ineffective
from projections.mapping import TABLES

PLAIN = Path(__file__).with_name("plain_coverage.sql")
COLUMNS = {  # that the checks read
    "run_starts": "run_id config rules spec data",
    "run_ends": "run_id reason",
    "epochs": (
        "run_id epoch lr batch_size accumulation clip_norm max_layer_grad_norm "
        "gradients_finite epoch_update_ratio"
    ),
    "rule_evaluations": "run_id epoch rule fired side precedence",
    "decisions": "run_id number epoch source event_type direction params",
    "citations": "run_id number rule",
    "remedies": "run_id decision epoch idx outcome spec",
}
BLOCK = {"width": 8, "norm": "batch", "residual": True}
SPECS = [
    {"norm": "batch", "blocks": [BLOCK]},
    {"norm": "none", "blocks": [{**BLOCK, "residual": False}]},
    {"norm": "batch", "blocks": [{**BLOCK, "width": 512}] * 8},
    {"offers": ["decrease_lr", "swap_activation"]},
]
WORDS = [*REMEDIES]


def tell(connection: duckdb.DuckDBPyConnection, run: str, draw: Random) -> None:
    """Fill in a run in which about anything happens, the impossible too."""
    epochs, rules = draw.randint(0, 30), draw.choice((CALIBRATED, DOCUMENT))
    waived = draw.sample(PRECEDENCE, draw.choice((0, 0, 0, 1)))
    config = {"waived": waived, "max_batch_size": 64}
    data = {"sizes": {"train": draw.choice((100, 1_000))}}
    start = [run, config, asdict(rules), draw.choice(SPECS), data]
    add(connection, "run_starts", [start])
    if draw.random() < 0.9:
        reason = draw.choice(("completed", "stopped", "restart", "crashed"))
        add(connection, "run_ends", [[run, reason]])
    busy = {rule: draw.choice((0.05, 0.5, 0.95)) for rule in PRECEDENCE}
    found, settings = [], []
    for epoch in range(epochs):
        rates = draw.choice((0.1, 1e-8, 5.0)), draw.choice((8, 7, 64, 512)), draw.choice((1, 2))
        norms = draw.choice((None, 0.5, 2.0)), draw.choice((None, 1.0, float("nan")))
        lost = draw.random() < 0.8, draw.choice((None, 0.1, float("nan")))
        settings.append([run, epoch, *rates, *norms, *lost])
        for place, rule in enumerate(PRECEDENCE, start=1):
            fired = draw.random() < busy[rule]
            side = draw.choice((*DIRECTIONS[rule], "plateau", "guessing")) if fired else None
            found.append([run, epoch, rule, fired, side, place])
    add(connection, "epochs", settings)
    add(connection, "rule_evaluations", found)
    decisions, citations, remedies = [], [], []
    ineffective, silent = [], []
    number = 0
    for epoch in range(epochs):
        for _ in range(draw.choice((0, 0, 1, 1, 2))):
            number += 1
            cited = draw.sample(PRECEDENCE, draw.choice((1, 1, 2)))
            way = draw.choice((*WORDS, "swap_activation", "decrease_lr", "defer", "defer"))
            params = {"to": draw.choice("ab"), "reinitialise": draw.choice((True, False))}
            source = draw.choice(("policy", "human", "driver"))
            kind = REMEDIES[way].event_type
            decisions.append([run, number, epoch, source, kind, way, params])
            citations += [[run, number, rule] for rule in cited]
            if way != "defer":
                outcome = draw.choice(("applied", "applied", "applied", "refused", "restart"))
                spec = None if outcome == "refused" else draw.choice(SPECS)
                remedies.append([run, number, epoch, number, outcome, spec])
                if draw.random() < 0.3:
                    ineffective.append(Ineffective(number, cited[0], "nothing moved"))
        if draw.random() < 0.1:
            silent.append((epoch, draw.choice(PRECEDENCE)))
    for table, rows in (
        ("decisions", decisions),
        ("citations", citations),
        ("remedies", remedies),
    ):
        add(connection, table, rows)
    peaks = {epoch: draw.choice((0.1, 5.0)) for epoch in range(epochs) if draw.random() < 0.9}
    add_effects(connection, run, ineffective, silent, peaks)


def add(
    connection: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Sequence[object]]
) -> None:
    if rows:
        plain = [[json.dumps(v) if isinstance(v, dict) else v for v in row] for row in rows]
        marks = ", ".join(f"unnest(?::{kind}[])" for kind in kinds_of(table))
        connection.execute(
            f"INSERT INTO {table} ({', '.join(COLUMNS[table].split())}) SELECT {marks}",
            list(map(list, zip(*plain, strict=True))),
        )


def kinds_of(table: str) -> list[str]:
    return [TABLES[table][column][0] for column in COLUMNS[table].split()]


def measured(seed: int, sql: Path, monkeypatch: pytest.MonkeyPatch) -> list[Coverage]:
    monkeypatch.setattr(coverage_module, "_CHECKS", sql)
    with duckdb.connect(":memory:") as connection:
        create_tables(connection)
        create_inputs(connection)
        draw = Random(seed)
        for run in ("one", "two"):
            tell(connection, run, draw)
        return [measure_coverage(connection, run) for run in ("one", "two", "none")]


def compare(seed: int, monkeypatch: pytest.MonkeyPatch) -> int:
    own = coverage_module._CHECKS
    found = measured(seed, own, monkeypatch)
    assert found == measured(seed, PLAIN, monkeypatch)
    return sum(len(each.violations) for each in found)


def test_checks_find_what_their_plain_definition_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sum(compare(seed, monkeypatch) for seed in range(2)) > 50


@pytest.mark.slow
def test_checks_find_what_their_plain_definition_finds_in_many_histories(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for seed in range(2, 20):
        with monkeypatch.context() as patched:
            compare(seed, patched)
