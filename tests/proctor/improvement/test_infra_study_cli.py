"""`proctor infra simulate` and `mutate`: the figures of the docs, from the command line."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from frontdoor import answer, call_here
from gauntlet_lines import SELECTION, Line

from judge.gauntlet.comparison.e_values import ComparisonSettings
from judge.gauntlet.comparison.mutation import mutants_of
from judge.gauntlet.comparison.simulation import Scale
from proctor.cli import infra_study
from proctor.sample.init import git

OWN = infra_study.OWN
SET = "judge/reference_tasks"
MEASURED = "policies/extraction.py"


def study(*arguments: str | Path, code: int = 0) -> str:
    done = call_here(("infra", *arguments), home=Path("nowhere"))
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done.stdout


def study_json(*arguments: str | Path) -> Any:
    return answer(call_here(("infra", *arguments, "--json"), home=Path("nowhere")))


def test_simulation_tells_its_tables_and_the_same_ones_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tiny = Scale(
        trials=4,
        sequences=2,
        proposals=4,
        mixed=5,
        disturbed=2,
        following=2,
        exact=2,
        settings=ComparisonSettings(most=50),
    )
    monkeypatch.setattr(infra_study, "SMALL", tiny)
    tables = study_json("simulate", "--small", "--seed", "1")
    assert [table["title"].split(":")[0] for table in tables] == [
        "The plain rule",
        "The gate",
        "Smaller and larger effects",
        "2 sequences of 5 proposals, a fifth of each",
        "A machine that changes",
        "Tasks declared deterministic that fail at random",
        "Null proposals",
    ]
    text = study("simulate", "--small", "--seed", "1")
    for table in tables:
        for row in (table["columns"], *table["rows"]):
            assert f"| {' | '.join(row)} |" in text


def test_defects_are_planted_into_tier_two_of_any_repository(tmp_path: Path) -> None:
    line = Line(tmp_path, ("late-rows",))
    before = line.work_tree()
    told = study_json("mutate", "--repo", line.repo, "--most", "3")
    paths = ("scoring", "selection", "words")
    names = [f"retrieval/{name}.py" for name in paths]
    assert told["found"] == sum(len(mutants_of(path, line.text(path))) for path in names)
    assert (told["commit"], told["run"]) == (line.head(), 3)
    assert {each["path"] for each in told["survivors"]} <= set(names)
    assert all(by.startswith("late-rows: ") for by in told["caught"].values())
    assert line.work_tree() == before


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small part of this repository, which passes for the one that the command came from."""
    repo = tmp_path / "repo"
    (repo / SET / "tasks").mkdir(parents=True)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(OWN / "policies", repo / "policies", ignore=ignored)
    shutil.copytree(OWN / SET / "tasks/readings-easy", repo / SET / "tasks/readings-easy")
    shutil.copy(OWN / SET / "worker.py", repo / SET)
    listed = json.loads((OWN / SET / "manifest.json").read_text())
    listed["tasks"] = [each for each in listed["tasks"] if each["task_id"] == "readings-easy"]
    (repo / SET / "manifest.json").write_text(json.dumps(listed))
    tiers = (OWN / "judge/tiers.toml").read_text()
    before, _, after = tiers.partition("\n2 = [")
    rest = after.partition("]\n")[2]
    (repo / "judge/tiers.toml").write_text(f'{before}\n2 = ["{MEASURED}"]\n{rest}')
    git(repo, "init", "--quiet", "--initial-branch=main")
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", "A part")
    monkeypatch.setattr(infra_study, "OWN", repo)
    return repo


@pytest.mark.slow  # a study, which no command of a line rests on
def test_own_defects_are_judged_in_forks_and_those_that_are_none_do_not_count(own: Path) -> None:
    source = (own / MEASURED).read_text()
    told = study_json("mutate", "--repo", own, "--most", "4")
    assert (told["found"], told["run"]) == (len(mutants_of(MEASURED, source)), 4)
    assert told["caught"], "the task reads answers with it"
    assert all(by.startswith(("readings-easy: ", "it hangs")) for by in told["caught"].values())
    caught = next(iter(told["caught"]))
    entries = [("0" * 12, "1 -> 2"), (caught, "1 -> 2")]
    (own / SET / "equivalents.toml").write_text(
        "".join(
            f'[[equivalent]]\nid = "{id_}"\nchange = "{change}"\nreason = "It is not so."\n'
            for id_, change in entries
        )
    )
    git(own, "add", "--all")
    git(own, "commit", "--quiet", "--message", "A list")
    assert told["survivors"], "one task does not see everything"
    text = study("mutate", "--repo", own, "--most", "4", "--least", "1", code=1)
    assert f"{caught} is listed as equivalent, and was caught" in text
    assert "0" * 12 + " is listed as equivalent, and is planted nowhere" in text


def test_repository_without_tier_two_code_is_rejected(tmp_path: Path) -> None:
    line = Line(tmp_path, ("late-rows",))
    assert SELECTION in line.text("judge/tiers.toml")
    tiers = line.text("judge/tiers.toml").replace(".py", ".txt")
    line.commit("judge/tiers.toml", tiers)
    done = call_here(("infra", "mutate", "--repo", line.repo), home=Path("nowhere"))
    assert done.returncode == 2
    assert "calls no Python file tier 2" in done.stderr
