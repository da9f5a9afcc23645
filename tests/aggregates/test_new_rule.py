"""A rule that is added is one file, and changes nothing of what was recorded before it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("aggregates", "judge", "ledger", "monitor", "policies", "proctor", "projections")
RESTING = (
    "tests/golden",
    "tests/projections/test_claim_views.py",
    "tests/proctor/cli/test_compare_cli.py::test_policies_are_compared_on_a_task",
)
RULE = """
from aggregates.rulebook.folds import Band
from aggregates.rulebook.rule import Rule, Side, average, outside

RULE = Rule(
    title="sparse activations",
    kind="tuning",
    factors=(3.0, 10.0),
    fold=lambda name, rules: Band(name, rules, "sparsity", None, 0.5),
    sides={
        "high": Side("too many activations are zero", ("decrease_lr", "stop"), undone=True),
        "low": Side("too few are", ("add_block",)),
    },
    limits=lambda rules: f"{average(rules)} of sparsity at most 0.5, {outside(rules)}",
)
"""
FIRED = """
from dataclasses import replace
from aggregates.rulebook import PRECEDENCE
from aggregates.rules import FIRST_RULES, RELATIVE, RulesConfig
from aggregates.firing import evaluate_rules
from judge.reference.situations import observe
from aggregates.decisions import parse_decision, validate_decision
from policies.deciding.chance import RandomPolicy
from policies.deciding.network import NetworkPolicy
from policies.deciding.rescue import RescuePolicy
from policies.playbook import PlaybookPolicy
import random

assert PRECEDENCE[-2:] == ("R99", "R3")  # the last of its kind
known = RulesConfig(**replace(RELATIVE, names=(*FIRST_RULES, "R99")).to_dict())
seen = observe(random.Random(0), {"R1": "high"})
history = [replace(seen.history[-1], sparsity=0.9)]
assert "R99" not in evaluate_rules(history, [], RELATIVE)
found = evaluate_rules(history, [], known)
assert found["R99"].side == "high", found["R99"]
due = replace(seen, back=(-1,), rules=known, evaluations=found, due=("R99",))
for policy in (PlaybookPolicy(), RescuePolicy(), RandomPolicy(), NetworkPolicy()):
    [decision] = policy.decide(due)
    assert decision.cites == ("R99",), decision
    validate_decision(parse_decision(decision.to_dict()), due)
    assert decision.direction == "stop" or not isinstance(policy, PlaybookPolicy)
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """This program with a rule more."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, symlinks=True)
    for folder in ("docs/examples", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "aggregates" / "rulebook" / "r99.py").write_text(RULE, encoding="utf-8")
    return tmp_path


def test_new_rule_fires_where_a_configuration_names_it(tree: Path) -> None:
    subprocess.run([sys.executable, "-c", FIRED], cwd=tree, check=True)


@pytest.mark.slow
def test_golden_runs_hold_beside_a_new_rule(tree: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "slow or not slow",
    ]
    done = subprocess.run(
        [*command, *RESTING], cwd=tree, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:]
