"""`python docs/studies rates` and `mutate`: the figures of the docs, from the command line."""

import json
import shutil
from pathlib import Path

import pytest
from gauntlet_lines import SELECTION, Line
from studies import mutate, rates
from studies.__main__ import main
from studies.gate.mutation import mutants_of
from studies.gate.simulation import Scale

from judge.gauntlet.comparison.e_values import ComparisonSettings
from proctor.sample.init import git

OWN = mutate.OWN
SET = "docs/studies/reference_tasks"
MEASURED = "policies/extraction.py"


def test_simulation_tells_its_tables_and_the_same_ones_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = Scale(
        trials=4,
        sequences=2,
        proposals=4,
        mixed=5,
        disturbed=2,
        following=2,
        exact=2,
        timed=1,
        settings=ComparisonSettings(most=50),
    )
    monkeypatch.setattr(rates, "SMALL", tiny)
    main(["rates", "gate", "--small", "--seed", "1"])
    told = capsys.readouterr().out
    assert [line.split(":")[0] for line in told.splitlines() if line.endswith(":")] == [
        "The plain rule",
        "The gate",
        "Smaller and larger effects",
        "2 sequences of 5 proposals, a fifth of each",
        "A machine that changes",
        "Tasks declared deterministic that fail at random",
        "Fixes, refactorings and times",
        "Null proposals",
    ]
    main(["rates", "gate", "--small", "--seed", "1"])
    assert capsys.readouterr().out == told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["drift"], "--sd"),
        (["drift", "--sd", "2"], "must be between 0.0001 and 0.5, not 2"),
        (["gate", "--seed", "x"], "not x"),
    ],
)
def test_wrong_numbers_are_named(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["rates", *words])
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_defects_are_planted_into_tier_two_of_any_repository(tmp_path: Path) -> None:
    line = Line(tmp_path, ("late-rows",))
    before = line.work_tree()
    told = mutate.plant(line.repo, most=3)
    paths = ("scoring", "selection", "words")
    names = [f"retrieval/{name}.py" for name in paths]
    assert told.found == sum(len(mutants_of(path, line.text(path))) for path in names)
    assert len(told.caught) + len(told.survivors) == 3
    assert {each.path for each in told.survivors} <= set(names)
    assert [sum(each) for each in zip(*told.files.values(), strict=True)] == [len(told.caught), 3]
    assert all(by.startswith("late-rows: ") for by in told.caught.values())
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
    (repo / "judge").mkdir()
    (repo / "judge/tiers.toml").write_text(f'{before}\n2 = ["{MEASURED}"]\n{rest}')
    git(repo, "init", "--quiet", "--initial-branch=main")
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", "A part")
    monkeypatch.setattr(mutate, "OWN", repo)
    return repo


@pytest.mark.slow  # a study, which no command of a line rests on
def test_own_defects_are_judged_in_forks_and_those_that_are_none_do_not_count(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = (own / MEASURED).read_text()
    told = mutate.plant(own, most=4)
    assert told.found == len(mutants_of(MEASURED, source))
    assert len(told.caught) + len(told.survivors) == 4
    assert told.caught, "the task reads answers with it"
    assert all(by.startswith(("readings-easy: ", "it hangs")) for by in told.caught.values())
    caught = next(iter(told.caught))
    entries = [("0" * 12, "1 -> 2"), (caught, "1 -> 2")]
    (own / SET / "equivalents.toml").write_text(
        "".join(
            f'[[equivalent]]\nid = "{id_}"\nchange = "{change}"\nreason = "It is not so."\n'
            for id_, change in entries
        )
    )
    git(own, "add", "--all")
    git(own, "commit", "--quiet", "--message", "A list")
    assert told.survivors, "one task does not see everything"
    with pytest.raises(SystemExit) as ended:
        main(["mutate", "--repo", str(own), "--most", "4", "--least", "1"])
    assert ended.value.code == 1
    text = capsys.readouterr().out
    assert f"{caught} is listed as equivalent, and was caught" in text
    share = len(told.caught) / 4
    assert f"| {MEASURED} | {len(told.caught)} | 4 | {share:.3f} |" in text
    assert "0" * 12 + " is listed as equivalent, and is planted nowhere" in text


def test_repository_without_tier_two_code_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = Line(tmp_path, ("late-rows",))
    assert SELECTION in line.text("judge/tiers.toml")
    tiers = line.text("judge/tiers.toml").replace(".py", ".txt")
    line.commit("judge/tiers.toml", tiers)
    with pytest.raises(SystemExit) as ended:
        main(["mutate", "--repo", str(line.repo)])
    assert ended.value.code == 2
    assert "has no Python file in tier 2" in capsys.readouterr().err
