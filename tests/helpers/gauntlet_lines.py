"""Lines to judge proposals on: the sample repository, cut down to what a test needs.

Everything is real: git, the ledger, the confined processes. The tests of the sample are run by a
few lines of its own instead of pytest, which saves half a second each time.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from aggregates.improvement.proposal import Proposal
from aggregates.registry import REGISTRY
from judge.approvals import make_approval, sign
from judge.gauntlet import benchmarking, reviews
from judge.gauntlet.comparison.e_values import ComparisonSettings
from judge.gauntlet.controller import Controller
from judge.gauntlet.errors import GauntletError
from judge.gauntlet.repository.git import Repository
from judge.gauntlet.workplace import Workplace
from ledger.application import LedgerApplication
from ledger.entries import AuthorKey
from ledger.notes import public_bytes, vkey
from ledger.verification.reader import open_verified
from proctor.home import Home
from proctor.improvement.home import line_folder
from proctor.sample.demo import unified
from proctor.sample.init import git, make_sample
from proctor.sample.repository import FILES, THRIFTY, UNSORTED
from proctor.sample.tasks import SHAPES, Shape

NOW = 1_800_000_000  # s
WEEK = 7 * 86_400  # s
SELECTION = "retrieval/selection.py"
SETTINGS = "retrieval/settings.toml"
COMPONENT = "retrieval/component.py"
RUNNER = '''\
"""Runs the functions of this folder's tests; the report is what pytest would write of them."""

import sys
import traceback
from pathlib import Path

cases, failed = [], False
for file in sorted(Path(__file__).parent.glob("test_*.py")):
    found = {}
    exec(compile(file.read_text(), str(file), "exec"), found)
    for name in [name for name in found if name.startswith("test_")]:
        wrong = ""
        try:
            found[name]()
        except Exception:
            traceback.print_exc()
            wrong, failed = '<failure message="it failed"/>', True
        where = f'classname="tests.{file.stem}" name="{name}" time="0"'
        cases.append(f"<testcase {where}>{wrong}</testcase>")
suite = f'<testsuite name="tests" tests="{len(cases)}">{"".join(cases)}</testsuite>'
Path(sys.argv[1]).write_text(f"<testsuites>{suite}</testsuites>")
sys.exit(failed)
'''
TESTS = """\
from retrieval.component import choose

DOCUMENTS = [
    {"id": "a", "title": "Rivers", "text": "A river carries water to the sea."},
    {"id": "b", "title": "Bridges", "text": "A bridge crosses a river."},
    {"id": "c", "title": "Bread", "text": "Flour, water, salt."},
]


def test_no_more_rows_than_the_cap():
    assert len(choose(DOCUMENTS, "river water", cap=2)) == 2


def test_what_answers_the_query_is_found():
    assert {"a", "b"} <= set(choose(DOCUMENTS, "river", cap=3))
"""
_COMMAND = 'command = ["{python}", "tests/run.py", "{report}"]'
SMALL: Mapping[str, str] = {
    **{path: text for path, text in FILES.items() if not path.startswith("tests/")},
    "judge/tiers.toml": "".join(
        f"{_COMMAND if 'pytest' in line else line}\n"
        for line in FILES["judge/tiers.toml"].splitlines()
    ),
    "tests/run.py": RUNNER,
    "tests/test_component.py": TESTS,
}
QUICK = ComparisonSettings(confirmed=2)  # what 5 pairs show, 2 show in fewer processes
NAMES = ("late-rows", "long-rivals")  # the first the base answers, the other it does not


_OF_THE_RUN = (  # fields of events that differ from run to run, and names of files that do
    *("originator_id", "originator_version", "timestamp", "base", "branch", "checkpoint"),
    *("commit", "expected", "line", "output", "seconds", "cpu_seconds", "against"),
    *("parent", "proposal", "proposals", "root"),
)


class Line:
    """One repository under the gauntlet, with a ledger and two people's keys."""

    def __init__(
        self,
        path: Path,
        names: tuple[str, ...] = NAMES,
        *,
        files: Mapping[str, str | bytes] = SMALL,
        shapes: Sequence[Shape] = SHAPES,
        settings: ComparisonSettings = QUICK,
    ) -> None:
        self.settings = settings
        self.home = Home(path / "home")
        self.repo = path / "repo"
        chosen = [shape for shape in shapes if shape.name in names]
        self.id = make_sample(self.home, self.repo, files=files, shapes=chosen)
        self.now = NOW
        self.operator, self.stranger = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
        with self.log() as log:
            log.recorder.grant_key(_vkey(self.operator), role="operator")  # type: ignore[attr-defined]
        self.repository = Repository(self.repo)

    @contextmanager
    def log(self) -> Iterator[LedgerApplication]:
        log = LedgerApplication.open(self.home.path / "ledger", REGISTRY)
        try:
            yield log
        finally:
            log.close()

    @contextmanager
    def controller(self) -> Iterator[Controller]:
        """Open it as a process does that has just begun."""
        with self.log() as log:
            yield Controller(
                Workplace(
                    log=log,
                    repository=self.repository,
                    blobs=self.home.blobs,
                    folder=(line_folder(self.home, self.id) / "work").resolve(),
                    clock=lambda: self.now,
                    authority=self._authority,
                    settings=self.settings,
                )
            )

    def _authority(self):  # type: ignore[no-untyped-def]
        with open_verified(self.home.path / "ledger") as ledger:
            return ledger.authority

    def revoke_operator(self) -> None:
        with self.log() as log:
            log.recorder.revoke_key(  # type: ignore[attr-defined]
                _vkey(self.operator),
                role="operator",
                since=1,
                reason="lost",
                author=AuthorKey("operator", self.operator),
            )

    def head(self) -> str:
        return self.repository.head("main")

    def text(self, path: str) -> str:
        return git(self.repo, "show", f"main:{path}")

    def diff(self, path: str, change: Callable[[str], str] | str) -> bytes:
        """Return the diff that makes another text of a file of the line."""
        before = self.text(path)
        return unified(path, before, change if isinstance(change, str) else change(before))

    def work_tree(self) -> tuple[str, str, str]:
        """Return what people have before them: branch, commit, and what differs from it."""
        branch = git(self.repo, "rev-parse", "--abbrev-ref", "HEAD")
        return branch, git(self.repo, "rev-parse", "HEAD"), git(self.repo, "status", "--porcelain")

    def commit(self, path: str, text: str) -> str:
        """Commit to the line itself, as people may and nobody else."""
        git(self.repo, "switch", "--quiet", "main")
        (self.repo / path).write_text(text, encoding="utf-8")
        git(self.repo, "commit", "--quiet", "--all", "--message", "By hand")
        git(self.repo, "switch", "--quiet", "work")
        return self.head()

    def word(
        self,
        controller: Controller,
        kind: str,
        proposal: Proposal,
        *,
        key: Ed25519PrivateKey | None = None,
        expires: int | None = None,
        **other: str,
    ) -> str:
        """Return an operator's word on a proposal; `other` subjects replace the right ones."""
        payload = make_approval(
            kind,
            line=str(self.id),
            proposal=str(proposal.id),
            subjects={**controller.place.subjects(proposal), **other},
            expires=expires or self.now + WEEK,
        )
        return sign(payload, key or self.operator)

    def batch(self, controller: Controller, *proposals: Proposal, **other: str) -> str:
        """Return one approval of several proposals."""
        payload = make_approval(
            "batch",
            line=str(self.id),
            subjects={**reviews.batch_subjects(controller.place, proposals), **other},
            expires=self.now + WEEK,
        )
        return sign(payload, self.operator)

    def adoption(self, controller: Controller, **other: str) -> str:
        payload = make_approval(
            "adopt",
            line=str(self.id),
            subjects={**reviews.adoption_subjects(controller.place), **other},
            expires=self.now + WEEK,
        )
        return sign(payload, self.operator)

    def valley(self, controller: Controller, *steps: str, days: int = 7) -> str:
        payload = make_approval(
            "valley",
            line=str(self.id),
            subjects=controller.place.line_subjects(controller.line.head.commit),
            steps=steps,
            expires=self.now + days * 86_400,
        )
        return sign(payload, self.operator)


def facts(event: object) -> dict[str, Any]:
    """Return what an event says, without what differs from run to run."""
    return {name: value for name, value in vars(event).items() if name not in _OF_THE_RUN}


def digest_of(diff: bytes) -> str:
    """Return what a diff goes by in a valley's steps and in approvals."""
    return hashlib.sha256(diff).hexdigest()


def submit(
    controller: Controller,
    diff: bytes,
    declared: Mapping[str, int] | None = None,
    *,
    proposal_id: UUID | None = None,
) -> Proposal:
    return controller.submit(
        diff,
        declared=declared or {SELECTION: 2},
        rationale="It is better so.",
        trigger="operator_request",
        proposer="a test",
        proposal_id=proposal_id,
    )


def to_the_last_step(line: Line, controller: Controller, wanted: Proposal) -> None:
    """Have a proposal evaluated and not promoted: its line is checked out in between."""
    benchmark = benchmarking.benchmark

    def then_check_out(*arguments: Any) -> None:
        benchmark(*arguments)
        git(line.repo, "switch", "--quiet", "main")

    with mock.patch.object(benchmarking, "benchmark", then_check_out), suppress(GauntletError):
        controller.carry_on(wanted.id)
    git(line.repo, "switch", "--quiet", "work")


def judged(
    controller: Controller, diff: bytes, declared: Mapping[str, int] | None = None
) -> Proposal:
    """Submit a change and take it as far as it goes."""
    return controller.carry_on(submit(controller, diff, declared).id)


def _vkey(key: Ed25519PrivateKey) -> str:
    return vkey("operator", public_bytes(key))


def renamed(text: str) -> str:
    """Return code that does the same by another name: neither better nor worse."""
    return text.replace("ordered", "ranked")


__all__ = ["COMPONENT", "SELECTION", "SETTINGS", "THRIFTY", "UNSORTED", "Line", "judged", "submit"]
