"""Trainings for the judge to look at; each is done once in a session."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from forked import workers_forked
from judge_cases import Case, SilentPolicy, train_case

from judge.auditing.report import AuditReport
from judge.confinement import process
from policies.playbook import PlaybookPolicy


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


_AFRESH = process._start  # as the judge does it, whatever a session of tests puts in its place


@pytest.fixture(scope="session", autouse=True)
def _forked() -> Iterator[None]:
    """Fork what foreign code runs in."""
    with workers_forked():
        yield


@pytest.fixture
def afresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Examine in a fresh interpreter, as the judge does."""
    monkeypatch.setattr(process, "_start", _AFRESH)


@pytest.fixture(scope="session")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return train_case(tmp_path_factory.mktemp("honest"), PlaybookPolicy())


@pytest.fixture(scope="session")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return train_case(tmp_path_factory.mktemp("silent"), SilentPolicy())


@pytest.fixture(scope="session")
def honest_report(honest: Case) -> AuditReport:
    return honest.audit()


@pytest.fixture(scope="session")
def silent_report(silent: Case) -> AuditReport:
    return silent.audit()


@pytest.fixture
def tampered(honest: Case, tmp_path: Path) -> Callable[[], Case]:
    return lambda: honest.copy(tmp_path)
