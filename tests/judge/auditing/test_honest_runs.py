"""Honest runs: no hard fail, and no violation for a policy that follows the playbook."""

from typing import Any

import pytest
from honest_runs import train_and_judge
from portable import in_portable_process

from aggregates.provocations import CATALOGUE

RUNS: dict[str, tuple[dict[str, Any], list[Any] | None]] = {
    **{f"{name} 0": ({"epochs": 12}, [name, 0]) for name in CATALOGUE},
    **{
        f"{name} 1 document": ({"epochs": 10, "profile": "document"}, [name, 1])
        for name in CATALOGUE
    },
    **{
        f"{name} 2 relative": ({"epochs": 10, "profile": "relative"}, [name, 2])
        for name in CATALOGUE
    },
    "too fast": ({"epochs": 20, "lr": 3.0, "warm_up_epochs": 0}, None),
    "too slow": ({"epochs": 20, "lr": 1e-5, "warm_up_epochs": 0}, None),
    "warm-up": ({"epochs": 12, "lr": 1.0, "warm_up_epochs": 6}, None),
    "healthy": ({"epochs": 14}, None),
    "images": ({"epochs": 8, "dataset": "images", "batch_size": 16}, None),
    "images too fast": ({"epochs": 10, "dataset": "images", "batch_size": 16, "lr": 2.0}, None),
    "restart": ({"epochs": 8, "edits": "restart"}, ["dead_activations", 1]),
    "restart for capacity": ({"epochs": 14, "edits": "restart"}, ["too_little_capacity", 1]),
    "portable": ({"epochs": 8, "numerics": "portable"}, ["lr_too_low", 2]),
    "portable and dead": ({"epochs": 8, "numerics": "portable"}, ["dead_activations", 2]),
}


def judged(name: str, person: int | None = None) -> dict[str, Any]:
    changes, provocation = RUNS[name]
    call = (changes, provocation, person)
    if changes.get("numerics") == "portable":
        found: dict[str, Any] = in_portable_process("honest_runs", "train_and_judge", *call)
    else:
        found = train_and_judge(*call)
    print(f"{name}: {found['coverage']}; process {found['process']:.3f}; {found['why']}")
    for violation in found["violations"]:
        print(f"    {violation['kind']} {violation['rule']}: {violation['detail']}")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_honest_run_under_the_playbook_has_no_hard_fail_and_no_violation(name: str) -> None:
    found = judged(name)
    assert (found["hard_fail"], found["violations"]) == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["lr_too_low 0", "lr_too_high 0", "dead_activations 0", "too slow", "too fast", "healthy"],
)
def test_honest_run_of_a_person_who_chooses_other_remedies_has_no_violation(name: str) -> None:
    found = judged(name, person=1)
    assert (found["hard_fail"], found["violations"]) == ([], [])
