"""The repository that evolves: a clone of this one, whose policies begin weak.

The policy `rescue` begins without going back, with a fifth of its aim; the playbook's numbers
begin at their ends. What decides may change (tier 2): numbers and code. All else is people's. The
tests ask that whatever decides gives valid decisions, and nothing of what is right: that is for the
reference set to say, whose tasks are real trainings.

I/O: clones a repository, and commits to the clone.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path

from studies.reference.seeds import Planned, write_set

RESCUE, NUMBERS = "policies/deciding/rescue.py", "policies/numbers.toml"
DECIDING = (NUMBERS, RESCUE)
SET, TESTS = "evolving/reference_tasks", "evolving/tests"
WEAK: dict[str, dict[str, str]] = {  # name -> what it begins as
    RESCUE: {"TARGET": "0.0015"},
    NUMBERS: {"most_lr_factor": "3.0", "clip_norm": "100.0", "lag_patience": "6"},
}
_MANIFEST = f"""# What decides may change, by what trainings show; all else is people's.
version = 1
line = "main"
reference_set = "{SET}"

[tiers]
0 = [".gitignore", "evolving/**", "docs/**", "judge/**"]
1 = []
2 = {json.dumps(DECIDING)}

[controller]
paths = ["judge/**"]

[config]
paths = []

[tests]
command = [
    "{{python}}", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml={{report}}",
    "{TESTS}",
]
paths = ["{TESTS}/**"]
additions = []
seconds = 600
memory_bytes = 8_000_000_000

[benchmark]
command = ["{{python}}", "docs/studies/reference_tasks/worker.py"]
seconds = 120
memory_bytes = 8_000_000_000
representative = []

[code]
imports = [
    "aggregates.*", "policies.*", "collections.abc", "dataclasses", "math", "statistics",
    "typing.Any",
]
"""
_TESTS = '''"""Whatever decides gives valid decisions: what is right, the trainings say."""

import sys
from pathlib import Path
from random import Random

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
from studies.reference.making import going_back, observe_several

from aggregates.decisions import validate_decision
from policies.deciding.rescue import RescuePolicy
from policies.playbook import PlaybookPolicy


@pytest.mark.parametrize("policy", [PlaybookPolicy, RescuePolicy])
@pytest.mark.parametrize("seed", range(20))
def test_decisions_are_valid_and_one_for_each_due_rule(policy, seed):
    rng = Random(seed)
    for seen in (*going_back(rng), *(observe_several(rng, n) for n in (1, 2, 3, 5))):
        decisions = policy().decide(seen)
        assert sorted(rule for each in decisions for rule in each.cites) == sorted(seen.due)
        for each in decisions:
            validate_decision(each, seen)
'''


def git(folder: Path, *words: str) -> str:
    """Run git and return what it says."""
    identity = ("-c", "user.name=People", "-c", "user.email=people@example.org")
    command = ("git", "-C", str(folder), *identity, *words)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def make_repository(source: Path, into: Path) -> None:
    """Clone, weaken, commit, and leave the branch; a half-made one is made anew."""
    draft = into.with_name(f"{into.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    git(source, "clone", "--quiet", "--no-hardlinks", "--single-branch", str(source), str(draft))
    git(draft, "switch", "--quiet", "-C", "main")
    for path, changes in WEAK.items():
        place = draft / path
        place.write_text(weakened(place.read_text(), changes))
    place = draft / RESCUE
    place.write_text(re.sub(r'("R\d"): \d', r"\1: 0", place.read_text()))
    write_set(draft / SET, [], drawn=[Planned("worth", "medium")])
    (draft / TESTS).mkdir(parents=True)
    (draft / TESTS / "test_decides.py").write_text(_TESTS)
    (draft / "judge/tiers.toml").write_text(_MANIFEST)
    git(draft, "add", "--all", "--force", "evolving")
    git(draft, "commit", "--quiet", "--all", "--message", "A weak beginning")
    git(draft, "switch", "--quiet", "--create", "work")
    draft.rename(into)


def weakened(text: str, changes: dict[str, str]) -> str:
    """Return a text with other values for these names."""
    for name, value in changes.items():
        text, found = re.subn(rf"(?m)^({name} = )\S+", rf"\g<1>{value}", text)
        if found != 1:
            raise ValueError(f"{name} is set {found} times; it must be set once")
    return text
