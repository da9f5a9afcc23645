"""A portable run and its bundle, made by an earlier version: still trained again bit for bit."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from frontdoor import call, call_here
from judge_cases import events_of

from aggregates.rules import VERSIONS
from proctor.home import Home

HERE = Path(__file__).parent
RUN = "4a09a141-f5cb-445d-a098-1f7983aeb980"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a copy, since opening a ledger leaves files beside it."""
    return shutil.copytree(HERE / "calibrated_2", tmp_path / "home")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return shutil.copytree(HERE / "calibrated_2_bundle", tmp_path / "bundle")


def test_old_portable_run_names_the_rules_of_its_time(home: Path) -> None:
    started = events_of(Home(home).ledger, RUN)[0]
    assert started.rules == VERSIONS["calibrated"][1].to_dict()
    assert started.config["numerics"] == "portable"


def test_old_portable_run_is_shown_replayed_and_queried(home: Path) -> None:
    for command in ("show", "replay"):
        done = call_here([command, RUN], home=home)
        assert (done.returncode, "epoch" in done.stdout) == (0, True), done.stderr
    done = call_here(["sql", "SELECT process_score FROM audit_scores"], home=home)
    assert (done.returncode, done.stdout.split()[-1]) == (0, "1"), done.stderr


@pytest.mark.slow  # test_golden_portable.py trains one in the quick suite
def test_old_portable_run_is_trained_again_to_the_same_bits(home: Path) -> None:
    done = call(["replay", RUN, "--execute"], home=home)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same, bit for bit" in done.stdout


def test_old_bundle_verifies_and_becomes_a_home(bundle: Path, tmp_path: Path) -> None:
    done = call_here(["verify", bundle], home=tmp_path / "none")
    assert (done.returncode, "32 entries" in done.stdout) == (0, True), done.stderr
    done = call_here(["import", bundle], home=tmp_path / "imported")
    assert done.returncode == 0, done.stderr
    done = call_here(["verify"], home=tmp_path / "imported")
    assert (done.returncode, "32 entries" in done.stdout) == (0, True), done.stderr


def test_old_bundle_is_verified_by_the_verifier_inside_it_and_by_today_s(bundle: Path) -> None:
    for verifier in (
        bundle / "verify.py",
        HERE.parent.parent / "ledger" / "handover" / "second_verifier.py",
    ):
        done = subprocess.run(
            [sys.executable, verifier, "--vkey", bundle / "ledger.vkey", bundle],
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
