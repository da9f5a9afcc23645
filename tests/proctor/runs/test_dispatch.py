"""A judge whose variables choose other code paths than the run's: honest runs hold all the same."""

from pathlib import Path
from typing import Any

import pytest
from frontdoor import TINY, answer, call
from portable import DISPATCH, in_portable_process, in_process_with

from monitor.dispatch import (
    PORTABLE_VARIABLES,
    describe_cpu,
    environment_with,
    restorable,
    variables_for,
)

# All of them in `make test-dispatch`; the golden digests are in every suite.
_SETTINGS = [pytest.param(name, marks=pytest.mark.slow) for name in sorted(DISPATCH)]


def judged(home: Path, name: str) -> dict[str, Any]:
    done = call(["judge", "--json"], home=home, variables=DISPATCH[name])
    found: dict[str, Any] = answer(done)
    assert done.returncode == (1 if found["hard_fail"] else 0)
    return found


def probe(report: dict[str, Any]) -> dict[str, Any]:
    (step,) = [step for step in report["steps"] if step["name"] == "probe"]
    return dict(step)


@pytest.fixture(scope="module")
def fast(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("fast") / "home"
    done = call(["run", *TINY, "lr=3.0", "warm_up_epochs=0"], home=home)
    assert done.returncode == 0, done.stderr
    return home


@pytest.fixture(scope="module")
def scores(fast: Path) -> dict[str, Any]:
    """Return the scores that the judge gives where the run was made."""
    return dict(answer(call(["judge", "--json"], home=fast))["scores"])


@pytest.mark.parametrize("name", _SETTINGS)
def test_honest_fast_run_holds_when_the_judge_has_other_variables(
    name: str, fast: Path, scores: dict[str, Any]
) -> None:
    report = judged(fast, name)
    assert not report["hard_fail"]
    assert report["scores"] == scores
    assert report["executed"], probe(report)["summary"]
    assert probe(report)["evidence"]["differs"] == []


@pytest.fixture(scope="module")
def portable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the homes of an honest portable run and of forged ones beside it."""
    folder = tmp_path_factory.mktemp("portable")
    in_portable_process("forged_portable", "make_homes", str(folder))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", _SETTINGS)
def test_forged_measurement_in_a_portable_run_is_rejected(name: str, portable: Path) -> None:
    honest = judged(portable / "honest", name)
    assert not honest["hard_fail"], probe(honest)
    assert honest["executed"]
    forged = judged(portable / "forged", name)
    assert forged["hard_fail"]
    assert probe(forged)["status"] == "failed"
    assert "retrained: 1 of" in probe(forged)["summary"]


@pytest.mark.slow
def test_forged_measurements_in_portable_runs_are_rejected(portable: Path) -> None:
    found = in_portable_process("forged_portable", "judge_forgeries", str(portable), 20)
    assert found == {"honest": None, "forged": ["probe"] * 20}


def test_unknown_variables_of_a_record_are_not_taken_into_a_process() -> None:
    assert restorable({"ATEN_CPU_CAPABILITY": "avx2"}) == {"ATEN_CPU_CAPABILITY": "avx2"}
    for hostile in (
        {"LD_PRELOAD": "evil.so"},
        {"ATEN_CPU_CAPABILITY": "default", "PYTHONPATH": "."},
        {"GLIBC_TUNABLES": "glibc.malloc.check=3"},
        {"MKL_CBWR": ["COMPATIBLE"]},
        {3: "x"},
        "ATEN_CPU_CAPABILITY",
        None,
    ):
        assert restorable(hostile) is None


def test_code_paths_of_another_cpu_are_not_taken_over() -> None:
    here = describe_cpu()
    recorded = {"numerics": "fast", "variables": {"ATEN_CPU_CAPABILITY": "avx512"}}
    assert variables_for({**recorded, "cpu": {**here, "name": "another"}}, here=here) is None
    assert variables_for({**recorded, "cpu": here}, here=here) == recorded["variables"]
    portable = {"numerics": "portable", "cpu": {}, "variables": dict(PORTABLE_VARIABLES)}
    assert variables_for(portable, here=here) == PORTABLE_VARIABLES


@pytest.mark.slow
def test_started_process_has_the_asked_variables_and_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")
    found = environment_with({"MKL_CBWR": "COMPATIBLE"})
    assert found["MKL_CBWR"] == "COMPATIBLE"
    assert "ONEDNN_MAX_CPU_ISA" not in found
    assert in_process_with({}, "forged_portable", "variables") == {}
