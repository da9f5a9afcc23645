"""Planted defects: the reference set sees them, and does not see what is as it was."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import studies.gate.own
from exhaustive import EXHAUSTIVE
from studies.gate.mutation import mutants_of, parse_equivalents
from studies.gate.own import EQUIVALENTS, PATHS, SET, mutate_all
from studies.reference.scorers import SCORERS

from judge.gauntlet.tasks.reference_set import load

ROOT = Path(studies.gate.own.__file__).parents[3]
# What is appended to a module hides what stands above: whole parts that do not work any more.
DEFECTS = {
    "policies/answers.py": "def read_answer(value, observation):\n    return [], {}\n",
    "policies/deciding/rescue.py": "RescuePolicy.remedy = PlaybookPolicy.remedy\n",
    "policies/ensemble.py": "def elect(ballots):\n    return ballots[-1]\n",
    "policies/evidence.py": "def within_cap(pieces, most):\n    return ()\n",
    "policies/extraction.py": "def extract(rung, message):\n    return message.get('content')\n",
    "policies/hindsight.py": "def last_effects(seen, hindsight=None):\n    return {}\n",
    "policies/offers.py": "def offers(rule, seen):\n    return {}\n",
    "policies/playbook.py": "PlaybookPolicy.decide = lambda self, observation: []\n",
}
# In a process of its own: it forks, and what is loaded here is none of its business.
_ASK = """
import json, sys
from pathlib import Path
from judge.gauntlet.tasks.reference_set import load
from studies.gate.own import SET, ForkedJudge
from studies.reference.scorers import SCORERS

tree, defects = Path(sys.argv[1]), json.loads(sys.stdin.read())
asked = ForkedJudge(load(tree / SET, scorers=SCORERS).tasks)
told = {"": asked(tree), "again": asked(tree)}
for path, text in defects.items():
    whole = (tree / path).read_text()
    (tree / path).write_text(whole + "\\n\\n" + text)
    told[path] = asked(tree)
    (tree / path).write_text(whole)
print(json.dumps(told))
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what the tasks ask."""
    for name in ("policies", SET):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / "tree" / name, ignore=ignored)
    return tmp_path / "tree"


@pytest.mark.slow
def test_reference_set_catches_a_broken_part_of_every_module(tree: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ASK, str(tree)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "docs")},
        input=json.dumps(DEFECTS),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told.pop("") is None
    assert told.pop("again") is None, "the unchanged tree is no worse than itself"
    assert told.keys() == DEFECTS.keys()
    assert all(told.values()), told


def test_every_equivalent_defect_is_given_with_its_reason() -> None:
    listed = parse_equivalents((ROOT / EQUIVALENTS).read_bytes())
    assert all(len(each.reason.split()) >= 4 for each in listed)
    assert len({each.id for each in listed}) == len(listed)


@pytest.mark.slow
def test_reference_set_catches_four_of_five_planted_defects(tree: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        most = None if EXHAUSTIVE else 120
        tasks = load(tree / SET, scorers=SCORERS).tasks
        report = mutate_all(tree, tasks, scratch=Path(scratch), most=most)
    found = sum(len(mutants_of(path, (tree / path).read_text())) for path in PATHS)
    assert report.found == found
    assert report.share >= 0.8, [mutant.to_dict() for mutant in report.survivors]
