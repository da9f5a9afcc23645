"""Older rules are for runs of older code: a run of the judge's own code has the newest version."""

from dataclasses import replace
from pathlib import Path

import pytest
from judge_cases import CONFIG, Case, SilentPolicy, failed, train_case

from aggregates.rules import CALIBRATED_1, PROFILES
from monitor import environment

SHORT = replace(CONFIG, epochs=1)


@pytest.fixture(scope="module")
def older_rules(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("older_rules")
    return train_case(folder, SilentPolicy(), SHORT, rules=CALIBRATED_1)


def test_older_rules_with_the_judges_own_code_is_rejected(older_rules: Case) -> None:
    report = older_rules.audit()
    assert failed(report) == "ledger"
    summary = report.step("ledger").summary
    assert "run.started records version 1 of the profile calibrated" in summary
    assert "train the run again" in summary


def test_older_rules_are_accepted_when_other_code_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as then:
        then.setattr(environment, "code_sha256", lambda: "00" * 32)
        case = train_case(tmp_path, SilentPolicy(), SHORT, rules=CALIBRATED_1)
    report = case.audit()
    assert failed(report) is None
    assert "its rules are version 1 of the profile calibrated" in report.step("ledger").summary


@pytest.mark.sampled(2)
@pytest.mark.parametrize("profile", PROFILES)
def test_newest_rules_are_accepted(profile: str, tmp_path: Path) -> None:
    case = train_case(tmp_path, SilentPolicy(), replace(SHORT, profile=profile))
    assert failed(case.audit()) is None
