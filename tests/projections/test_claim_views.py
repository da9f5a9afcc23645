"""Runs that comparisons and campaigns name, against what the runs themselves recorded."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from synthetic import (
    SPEC,
    begun_campaign,
    run_config,
    synthetic_audit,
    synthetic_campaign,
    synthetic_run,
)

from aggregates.campaign import Campaign
from aggregates.comparison import Cell, Comparison
from aggregates.errors import InvariantError
from aggregates.registry import REGISTRY
from aggregates.rules import CALIBRATED, PROFILES
from aggregates.run import Run
from ledger.application import LedgerApplication
from proctor.runs.standings import standings, told_attempts
from projections.identity import read_position
from projections.projector import project, projected
from projections.source import open_source

CONDITION = "default"


class Told:
    """A ledger with its tables."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.log = LedgerApplication.open(directory, REGISTRY)
        self.tables = projected([])

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        start, *_ = read_position(self.tables)
        with open_source(self.directory) as ledger:
            project(self.tables, ledger.entries(start=start), quarantine=True)
        return self.tables.execute(sql).fetchall()


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    found = Told(tmp_path / "ledger")
    with found.log, found.tables:
        yield found


def made(told: Told, run_id: UUID, cell: Cell, **changes: Any) -> Run:
    """Make the run of a cell, or with `changes` another one."""
    config = {**run_config(epochs=1), "seed": cell.seed, **changes.pop("config", {})}
    values: dict[str, Any] = {
        "config": config,
        "rules": CALIBRATED.to_dict(),
        "spec": SPEC.to_dict(),
        "data": {"fingerprint": "00" * 32},
        "environment": {"code_sha256": "c0" * 32},
        "policy": {"name": cell.policy},
        "run_id": run_id,
        **changes,
    }
    end = values.pop("end", "completed")
    run = Run.start(**values)
    told.log.save(run)
    if end is not None:
        run.trigger_event(Run.Ended, reason=end, detail="", deliverables={})
        told.log.save(run)
    synthetic_audit(told.log, run)
    return run


class Compared:
    """A comparison of two policies with two seeds, as an honest program or a forger writes it."""

    def __init__(self, told: Told, *, name: str = "", seeds: int = 2, **policy: Any) -> None:
        self.told = told
        self.comparison = Comparison.start(
            policies=[{"name": "a", **policy}, {"name": "b", **policy}],
            conditions={CONDITION: run_config(epochs=1)},
            seeds=range(seeds),
            name=name,
        )
        told.log.save(self.comparison)
        self.ids = {cell: uuid4() for cell in self.comparison.cells}

    def allot(self) -> "Compared":
        for cell, run in self.ids.items():
            self.comparison.allot(cell, str(run))
        self.told.log.save(self.comparison)
        return self

    def make(self, changes: Callable[[Cell], dict[str, Any]] = lambda _: {}) -> "Compared":
        for cell, run in self.ids.items():
            made(self.told, run, cell, **changes(cell))
        return self

    def finish(self) -> "Compared":
        for cell in self.comparison.cells:
            self.comparison.finish(cell, audit="x", problem=None)
        self.comparison.end()
        self.told.log.save(self.comparison)
        return self

    def faults(self) -> dict[str, str]:
        rows = self.told.ask(
            "SELECT policy || seed, ARRAY_TO_STRING(why_not, '; ') FROM comparison_cells "
            f"WHERE comparison_id = '{self.comparison.id}' AND NOT fits"
        )
        return dict(rows)


FIRST = Cell("a", CONDITION, 0)


def test_cells_fit_when_their_runs_are_what_the_comparison_asked_for(told: Told) -> None:
    found = Compared(told).allot().make().finish()
    assert found.faults() == {}
    assert told.ask(
        "SELECT COUNT(*), COUNT(problem), COUNT(DISTINCT code) FROM comparison_cells"
    ) == [(4, 0, 1)]
    assert told.ask("SELECT COUNT(*) FROM comparison_draws WHERE NOT counted") == [(0,)]


def test_swapped_cells_are_rejected(told: Told) -> None:
    found = Compared(told)
    cells = list(found.ids)
    swapped = {
        Cell("b" if c.policy == "a" else "a", c.condition, c.seed): found.ids[c] for c in cells
    }
    for cell, run in swapped.items():
        found.comparison.allot(cell, str(run))
    told.log.save(found.comparison)
    found.make().finish()
    assert found.faults() == {
        name: f"the policy {'b' if name[0] == 'a' else 'a'} decided"
        for name in ("a0", "a1", "b0", "b1")
    }


def test_swapped_seeds_are_rejected(told: Told) -> None:
    found = Compared(told).allot()
    ids = found.ids
    found.ids = {Cell(c.policy, c.condition, 1 - c.seed): run for c, run in ids.items()}
    found.make().finish()
    assert found.faults()["a0"] == "the run has seed 1"
    assert len(found.faults()) == 4


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"config": {"lr": 3.0, "epochs": 90}}, "its configuration has another epochs, lr"),
        ({"config": {"profile": "literal"}}, "its configuration has another profile"),
        ({"policy": {"name": "b", "seed": 0}}, None),  # a policy may record more of itself
        ({"policy": {"name": "c"}}, "the policy c decided"),
        ({"data": {"fingerprint": "01" * 32}}, "it was trained on other data"),
        ({"campaign": str(UUID(int=7))}, f"the run says that it is of campaign {UUID(int=7)}"),
        ({"parent_run": str(UUID(int=7))}, f"the run says that it goes on from run {UUID(int=7)}"),
        ({"end": "interrupted"}, "the run did not end by itself"),
        ({"end": None}, "the run did not end by itself"),
    ],
)
def test_run_of_something_else_in_a_cell_is_rejected(
    told: Told, changes: dict[str, Any], reason: str | None
) -> None:
    last = Cell("b", CONDITION, 1)
    found = Compared(told).allot().make(lambda cell: changes if cell == last else {}).finish()
    assert found.faults() == ({} if reason is None else {"b1": reason})


def test_other_settings_of_a_model_are_rejected(told: Told) -> None:
    settings: dict[str, Any] = {"model": "small", "temperature": 0.2, "rung": None}
    asked = {"policy": {"name": "a", **settings, "rung": "json"}}
    found = Compared(told, **settings).allot()
    other = {"policy": {"name": "b", **settings, "model": "large", "rung": "json"}}
    found.make(lambda cell: asked if cell.policy == "a" else other).finish()
    assert found.faults() == dict.fromkeys(("b0", "b1"), "its policy had another model")


def test_runs_that_began_before_the_comparison_are_rejected(told: Told) -> None:
    found = Compared(told).make().allot().finish()
    assert found.faults() == dict.fromkeys(
        ("a0", "a1", "b0", "b1"), "the run began before it was given to this place"
    )


def test_run_of_another_comparison_is_rejected_and_stays_with_the_first(told: Told) -> None:
    first, second = Compared(told), Compared(told, name="again")
    second.ids = first.ids
    first.allot()
    second.allot()
    first.make().finish()
    second.finish()
    assert first.faults() == {}
    assert len(second.faults()) == 4
    assert all("names the run for another place" in why for why in second.faults().values())


def test_same_run_in_two_cells_is_rejected(told: Told) -> None:
    found = Compared(told)
    run = str(found.ids[FIRST])
    for cell in found.ids:
        found.comparison.trigger_event(Comparison.RunAllotted, **cell._asdict(), run=run)
    told.log.save(found.comparison)
    made(told, found.ids[FIRST], FIRST)
    found.finish()
    assert set(found.faults()) == {"a1", "b0", "b1"}


def test_run_that_the_cell_was_not_given_is_rejected(told: Told) -> None:
    found = Compared(told).allot().make()
    other = made(told, uuid4(), FIRST)
    found.comparison.runs[FIRST] = str(other.id)
    found.finish()
    assert found.faults() == {"a0": "the comparison had not given the run to this cell"}


def test_second_result_of_a_cell_is_rejected(told: Told) -> None:
    found = Compared(told).allot().make().finish()
    found.comparison.trigger_event(
        Comparison.RunEnded,
        **FIRST._asdict(),
        run=str(found.ids[FIRST]),
        audit="x",
        problem="it was bad",
    )
    told.log.save(found.comparison)
    assert found.faults() == {"a0": "the cell has an earlier result"}


def test_further_draw_after_a_whole_one_is_rejected(told: Told) -> None:
    found = Compared(told).allot().make()
    again = uuid4()
    found.comparison.allot(FIRST, str(again))
    told.log.save(found.comparison)
    made(told, again, FIRST)
    found.finish()
    assert "an earlier run of this place had ended by itself" in found.faults()["a0"]
    assert len(found.faults()) == 1


def test_fork_in_a_cell_is_rejected(told: Told) -> None:
    found = Compared(told, seeds=1).allot()
    parent = synthetic_run(told.log, epochs=1)
    synthetic_run(told.log, epochs=1, run_id=found.ids[FIRST], fork_of=parent)
    made(told, found.ids[Cell("b", CONDITION, 0)], Cell("b", CONDITION, 0))
    found.finish()
    assert "the run is a fork" in found.faults()["a0"]


def test_cell_that_says_it_failed_counts_when_its_run_was_whole_and_held(told: Told) -> None:
    found = Compared(told, seeds=1).allot().make()
    found.comparison.finish(FIRST, audit=None, problem="the policy broke")
    found.comparison.finish(Cell("b", CONDITION, 0), audit="x", problem=None)
    told.log.save(found.comparison)
    assert told.ask("SELECT problem FROM comparison_cells") == [(None,), (None,)]


def test_cell_whose_run_never_began_is_a_failure_and_fits(told: Told) -> None:
    found = Compared(told, seeds=1).allot()
    for cell in found.ids:
        found.comparison.finish(cell, audit=None, problem="PolicyError: no such server")
    told.log.save(found.comparison)
    assert found.faults() == {}
    assert told.ask("SELECT COUNT(problem) FROM comparison_cells") == [(2,)]


def test_runs_that_were_cut_off_are_counted_as_further_draws(told: Told) -> None:
    found = Compared(told).allot()
    made(told, found.ids[FIRST], FIRST, end="interrupted")
    cut_off = found.ids[FIRST]
    found.ids[FIRST] = uuid4()
    found.comparison.allot(FIRST, str(found.ids[FIRST]))  # as the same command does
    told.log.save(found.comparison)
    found.make().finish()
    assert found.faults() == {}
    rows = told.ask("SELECT run_id, made_by, end_reason FROM comparison_draws WHERE NOT counted")
    assert rows == [(str(cut_off), str(found.comparison.id), "interrupted")]


def test_sister_comparisons_and_single_runs_are_counted_as_further_draws(told: Told) -> None:
    first = Compared(told).allot().make().finish()
    sister = Compared(told, name="once more").allot().make().finish()
    made(told, uuid4(), FIRST)  # as proctor run does
    made(told, uuid4(), Cell("a", CONDITION, 7))  # another seed
    made(told, uuid4(), FIRST, config={"lr": 0.7})  # another training
    asked = (
        "SELECT made_by, COUNT(*) FROM comparison_draws WHERE comparison_id = '{}' "
        "AND NOT counted GROUP BY ALL ORDER BY made_by NULLS LAST"
    )
    for this, other in ((first, sister), (sister, first)):
        assert told.ask(asked.format(this.comparison.id)) == [
            (str(other.comparison.id), 4),
            (None, 1),
        ]


def others(told: Told, of: Compared) -> set[tuple[str, str | None]]:
    """Return the further draws of a comparison: the run, and the comparison that made it."""
    rows = told.ask(
        "SELECT run_id, made_by FROM comparison_draws "
        f"WHERE comparison_id = '{of.comparison.id}' AND NOT counted"
    )
    return set(rows)


def test_draw_that_a_made_up_comparison_or_campaign_names_is_counted(told: Told) -> None:
    """A draw is what its own record asks, whoever claims it."""
    decoy = Comparison.start(
        policies=[{"name": "z"}], conditions={"x": run_config(epochs=9)}, seeds=[0]
    )
    campaign, (told_first, told_later) = begun_campaign(told.log, 2, epochs=1)
    hidden = uuid4()
    decoy.allot(decoy.cells[0], str(hidden))
    told.log.save(decoy)
    made(told, hidden, FIRST)
    made(told, told_later, FIRST)
    made(told, told_first, FIRST)
    found = Compared(told).allot().make().finish()
    assert others(told, found) == {
        (str(hidden), str(decoy.id)),
        (str(told_first), None),
        (str(told_later), None),
    }
    after = made(told, uuid4(), FIRST, campaign=str(campaign.id))  # says so: no draw of the same
    campaign.trigger_event(
        type(campaign).AttemptStarted, number=2, run=str(after.id), parent_run=None
    )
    told.log.save(campaign)
    assert (str(after.id), None) in others(told, found)  # it began before that was said


class Asked:
    """A comparison of one policy in one cell, and its run."""

    def __init__(self, told: Told, policy: dict[str, Any], own: dict[str, Any], **config: Any):
        conditions = {CONDITION: {**run_config(epochs=1), **config}}
        self.comparison = Comparison.start(policies=[policy], conditions=conditions, seeds=[0])
        told.log.save(self.comparison)
        (self.cell,) = self.comparison.cells
        self.run = uuid4()
        self.comparison.allot(self.cell, str(self.run))
        told.log.save(self.comparison)
        made(told, self.run, self.cell, policy=own, config=config)
        self.comparison.finish(self.cell, audit="x", problem=None)
        self.comparison.end()
        told.log.save(self.comparison)


MODEL = {"name": "openai", "model": "small", "temperature": 0.2, "rung": None, "timeout": 60.0}
AGENT = {"name": "exec:python 'my agent.py'", "command": ["python", "my agent.py"]}


@pytest.mark.parametrize(
    ("asked", "own"),
    [
        ([{"name": name} for name in ("exec:python 'my agent.py'", 'exec:python "my agent.py"')],
         [AGENT, AGENT]),
        ([MODEL, MODEL | {"timeout": 61.0}, MODEL | {"rung": "json_schema"}],
         [MODEL | {"rung": "json_schema"}, MODEL | {"timeout": 61.0, "rung": "json_schema"}] * 2),
        ([{"name": "mine"}, {"name": "pkg.mine:Mine"}],
         [{"name": "pkg.mine:Mine", "class": "pkg.mine:Mine", "sha256": "5a" * 32}] * 2),
    ],
    ids=["quotation marks", "settings of requests", "name of an installed policy"],
)  # fmt: skip
def test_same_policy_in_other_words_is_a_further_draw(
    told: Told, asked: list[dict[str, Any]], own: list[dict[str, Any]]
) -> None:
    found = [Asked(told, *each) for each in zip(asked, own, strict=False)]
    assert told.ask("SELECT DISTINCT fits FROM comparison_cells") == [(True,)]
    rows = told.ask(
        "SELECT comparison_id, COUNT(*) FROM comparison_draws WHERE NOT counted GROUP BY ALL"
    )
    assert dict(rows) == {str(each.comparison.id): len(found) - 1 for each in found}


def test_same_training_on_another_machine_or_folder_is_a_further_draw(told: Told) -> None:
    a, lr = {"name": "a"}, {"lr": 0.7}
    how: tuple[dict[str, Any], ...] = (
        {},
        {"snapshots": "every:1"},
        {"threads": 7},
        {"data_dir": "x", "download": True},
    )
    for each in (*how, lr):
        Asked(told, a, a, **each)
    rows = told.ask(
        "SELECT COUNT(*) FROM comparison_draws WHERE NOT counted GROUP BY comparison_id"
    )
    assert rows == [(3,)] * 4  # and none of another learning rate


def test_another_model_of_the_same_name_or_temperature_is_no_further_draw(told: Told) -> None:
    for change in ({}, {"model": "large"}, {"temperature": 0.7}):
        Asked(told, MODEL | change, MODEL | change | {"rung": "json_schema"})
    assert told.ask("SELECT COUNT(*) FROM comparison_draws WHERE NOT counted") == [(0,)]


def test_other_class_in_a_cell_of_an_installed_policy_is_rejected(told: Told) -> None:
    """The name does not say which class it means; all runs have to have the same."""
    found = Compared(told).allot()
    mine, other = ({"name": each, "class": each} for each in ("pkg:Mine", "pkg:Other"))
    found.make(lambda cell: {"policy": other if cell == Cell("a", CONDITION, 1) else mine})
    found.finish()
    assert found.faults() == {"a1": "the policy pkg:Other decided"}


@pytest.mark.parametrize("name", ["nothing", "playbook", "openai"])
def test_class_in_a_cell_of_a_policy_of_proctor_is_rejected(told: Told, name: str) -> None:
    Asked(told, {"name": name}, {"name": "pkg:Mine", "class": "pkg:Mine"})
    ((why,),) = told.ask("SELECT why_not FROM comparison_cells")
    assert why == ["the policy pkg:Mine decided"]


WIDE = replace(SPEC, channels=64)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"spec": WIDE.to_dict()}, "it began with another model"),
        (
            {"rules": replace(PROFILES["document"], profile=CALIBRATED.profile).to_dict()},
            "its rules have other thresholds",
        ),
    ],
)
def test_run_with_other_parts_than_its_configuration_makes_is_rejected(
    told: Told, changes: dict[str, Any], reason: str
) -> None:
    last = Cell("b", CONDITION, 1)
    found = Compared(told).allot().make(lambda cell: changes if cell == last else {}).finish()
    assert found.faults() == {"b1": reason}


def test_condition_with_the_settings_of_another_is_rejected(told: Told) -> None:
    """The same runs would count once for each name: a narrow interval from a few of them."""
    same = {"hot": run_config(epochs=1), "warm": {**run_config(epochs=1), "snapshots": "every:1"}}
    told_: dict[str, Any] = {"policies": [{"name": "a"}], "seeds": [0]}
    with pytest.raises(InvariantError, match="hot and warm have the same settings"):
        Comparison.start(conditions=same, **told_)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("aggregates.comparison.same_conditions", lambda _: None)
        forged = Comparison.start(conditions=same, **told_)
    runs = {cell: uuid4() for cell in forged.cells}
    for cell, run in runs.items():
        forged.allot(cell, str(run))
    told.log.save(forged)
    for cell, run in runs.items():
        made(told, run, cell, config={"snapshots": "every:1"} if cell.condition == "warm" else {})
        forged.finish(cell, audit="x", problem=None)
    told.log.save(forged)
    assert told.ask("SELECT condition, why_not FROM comparison_cells ORDER BY condition") == [
        ("hot", []),
        ("warm", ["the condition asks the same as hot"]),
    ]


def test_run_that_a_comparison_names_behind_its_end_is_rejected(told: Told) -> None:
    found = Compared(told).allot().make().finish()
    late = uuid4()
    found.comparison.trigger_event(Comparison.RunAllotted, **FIRST._asdict(), run=str(late))
    told.log.save(found.comparison)
    made(told, late, FIRST)
    ((why,),) = told.ask(f"SELECT why_not FROM run_claims WHERE run_id = '{late}'")
    assert any("the comparison had ended in entry" in each for each in why)


def test_no_figure_contains_a_cell_that_does_not_fit() -> None:
    row = {"condition": "c", "test_accuracy": 0.5, "process_score": 1.0, "firings": 0}
    row |= {"exercised": True, "problem": None, "fits": True}
    rows = [{**row, "policy": p, "seed": s} for p in ("a", "b") for s in (0, 1)]
    forged = [{**each, "test_accuracy": 1.0} for each in rows if each["policy"] == "b"]
    rows += [{**each, "fits": False, "seed": 7} for each in forged]
    assert standings(rows, ["a", "b"])[1].gain == 0.0


# Campaigns.


def test_attempts_fit_when_the_campaign_made_them(told: Told) -> None:
    begun, ids = begun_campaign(told.log, 2, abandoned=1, epochs=1)
    ends = ("interrupted", "completed", "completed")
    runs = [
        synthetic_run(told.log, epochs=1, run_id=each, campaign=str(begun.id), end=end)
        for each, end in zip(ids, ends, strict=True)
    ]
    synthetic_campaign(
        told.log, runs[1:], audits=[synthetic_audit(told.log, r) for r in runs[1:]], begun=begun
    )
    assert told.ask("SELECT fits, place FROM campaign_progress ORDER BY place NULLS LAST") == [
        (True, 1),
        (True, 2),
        (True, None),
    ]


def test_adopted_runs_are_rejected_as_attempts(told: Told) -> None:
    runs = [synthetic_run(told.log, epochs=5) for _ in range(2)]
    audits = [synthetic_audit(told.log, run) for run in runs]
    synthetic_campaign(told.log, runs, audits=audits)
    rows = told.ask("SELECT fits, place, why_not FROM campaign_progress")
    assert (
        rows
        == [
            (
                False,
                None,
                [
                    "the run began before it was given to this place",
                    "the run says that it is of no campaign",
                ],
            )
        ]
        * 2
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"seed": 3}, "the run has seed 3"),
        ({"edits": "restart"}, "its configuration has another edits"),
        ({"campaign": str(UUID(int=9))}, f"the run says that it is of campaign {UUID(int=9)}"),
        ({"provoke": "dead_activations"}, "its configuration has another"),
    ],
)
def test_run_of_something_else_as_an_attempt_is_rejected(
    told: Told, changes: dict[str, Any], reason: str
) -> None:
    begun, ids = begun_campaign(told.log, 1, epochs=1)
    given: dict[str, Any] = {"campaign": str(begun.id), **changes}
    run = synthetic_run(told.log, epochs=1, run_id=ids[0], **given)
    synthetic_campaign(told.log, [run], audits=[synthetic_audit(told.log, run)], begun=begun)
    ((fits, place, why),) = told.ask("SELECT fits, place, why_not FROM campaign_progress")
    assert (fits, place) == (False, None)
    assert reason in why[0]


def attempt(log: LedgerApplication, campaign: Campaign, number: int, **run: Any) -> str:
    """Start an attempt of any number, and make and judge its run."""
    run_id = uuid4()
    named = {"number": number, "run": str(run_id), "parent_run": None}
    campaign.trigger_event(Campaign.AttemptStarted, **named)
    log.save(campaign)
    synthetic_audit(
        log, synthetic_run(log, epochs=1, run_id=run_id, campaign=str(campaign.id), **run)
    )
    return str(run_id)


@pytest.mark.parametrize(
    ("numbers", "faults"),
    [
        ((1, 2, 3), []),
        ((3, 1, 2), ["attempt 1 was", "attempt 2 was", "attempt 3 was"]),
        ((3,), ["attempt 1 was"]),
        ((2, 3), ["attempt 1 was", "attempt 2 was"]),
        ((1, 1), ["attempt 2 was"]),
    ],
)
def test_attempts_left_out_or_out_of_order_are_rejected(
    told: Told, numbers: tuple[int, ...], faults: list[str]
) -> None:
    begun, _ = begun_campaign(told.log, 0, attempts=3, epochs=1)
    for number in numbers:
        attempt(told.log, begun, number)
    found = [why for (why,) in told.ask("SELECT why_not FROM campaign_progress") if why]
    assert sorted(why[0].partition(" the next")[0] for why in found) == faults


def test_attempts_that_ran_side_by_side_are_rejected(told: Told) -> None:
    begun, ids = begun_campaign(told.log, 2, epochs=1)
    for each in reversed(ids):  # the second one was told nothing of the first
        synthetic_run(told.log, epochs=1, run_id=each, campaign=str(begun.id))
    rows = told.ask("SELECT number, why_not FROM campaign_progress ORDER BY number")
    assert rows == [(1, []), (2, ["the run began before the attempt before it had ended"])]


def test_attempt_behind_the_end_of_its_campaign_is_rejected(told: Told) -> None:
    begun, _ = begun_campaign(told.log, 0, attempts=2, epochs=1)
    first = attempt(told.log, begun, 1)
    begun.trigger_event(Campaign.Ended, reason="completed", ranking=[first])
    attempt(told.log, begun, 2)
    rows = told.ask("SELECT number, why_not FROM campaign_progress ORDER BY number")
    assert rows[0] == (1, [])
    assert "the campaign had ended" in rows[1][1][0]


def test_attempt_that_was_cut_off_and_not_abandoned_has_no_place(told: Told) -> None:
    begun, _ = begun_campaign(told.log, 0, attempts=2, epochs=1)
    attempt(told.log, begun, 1, end="interrupted")
    assert told.ask("SELECT fits FROM campaign_progress") == [(True,)]  # it goes on, perhaps
    attempt(told.log, begun, 2)
    rows = told.ask("SELECT number, why_not FROM campaign_progress ORDER BY number")
    assert rows == [(1, ["the run did not end by itself"]), (2, [])]


def test_attempts_of_another_model_or_rules_are_rejected(told: Told) -> None:
    begun, _ = begun_campaign(told.log, 0, attempts=2, epochs=1)
    attempt(told.log, begun, 1)
    other = replace(PROFILES["document"], profile=CALIBRATED.profile)
    attempt(told.log, begun, 2, rules=other)
    rows = told.ask("SELECT number, why_not FROM campaign_progress ORDER BY number")
    assert rows == [(1, []), (2, ["its rules have other thresholds"])]


def test_further_runs_of_what_a_campaign_asks_are_counted(told: Told) -> None:
    first, _ = begun_campaign(told.log, 0, attempts=1, epochs=1)
    attempt(told.log, first, 1)
    asked = f"SELECT run_id, made_by, says_so FROM campaign_draws WHERE campaign_id = '{first.id}'"
    assert told.ask(asked) == []
    sister, _ = begun_campaign(told.log, 0, attempts=2, epochs=1)
    rows: set[tuple[str, str | None, bool]]
    rows = {(attempt(told.log, sister, 1), str(sister.id), False)}
    left_out = synthetic_run(told.log, epochs=1, campaign=str(first.id), dead=range(1))
    rows |= {(str(left_out.id), None, True)}
    rows |= {(str(synthetic_run(told.log, epochs=1).id), None, False)}
    for other in ({"seed": 1}, {"policy": "another"}, {"edits": "restart"}):
        synthetic_run(told.log, epochs=1, **other)
    assert set(told.ask(asked)) == rows
    said = told_attempts(
        [dict(zip(("run_id", "made_by", "says_so"), row, strict=True)) for row in rows],
        str(first.id),
    )
    assert "1 run of 1 other campaign; 1 run outside campaigns; 1 run recorded as of this" in said


def test_run_of_a_comparison_as_an_attempt_is_rejected(told: Told) -> None:
    compared = Compared(told).allot()
    begun, ids = begun_campaign(told.log, 1, epochs=1)
    begun.runs[0] = str(compared.ids[FIRST])
    begun.trigger_event(type(begun).AttemptAbandoned, number=1, run=begun.runs[0], reason="x")
    begun.trigger_event(
        type(begun).AttemptStarted, number=1, run=str(compared.ids[FIRST]), parent_run=None
    )
    told.log.save(begun)
    compared.make().finish()
    assert compared.faults() == {}
    rows = told.ask(f"SELECT why_not FROM campaign_progress WHERE run_id <> '{ids[0]}'")
    assert "names the run for another place" in rows[0][0][0]
