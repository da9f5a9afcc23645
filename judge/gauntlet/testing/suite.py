"""The gate of tests: the base's whole suite, run against the candidate's code.

The tree that is tested is the candidate's with every path of tier 0 as it is in the base, the
tests among them, so that none can be weakened. Tests that a proposal adds run in a second go, where
they can spoil nothing but themselves. Which cases there have to be is known from a run of the base.
A part of the test files can be left out; they run by themselves before a promotion, in processes
that load nothing of the change.
Beside the tests that have to pass, tests that have to fail are planted, where pytest runs them.

Cases that fail are run again: the files that they stand in twice, then the whole suite. If all of
these runs pass, the cases are recorded as flaky and do not end a proposal. A change that breaks a
case in a share p of the runs gains at most p(1-p)^3 by this, which never exceeds 0.11.

Source: docs/reference/gauntlet.md, "The gate of tests".
Trust: the report is written by the process that is judged, and so does not suffice: the command has
to leave with the right status, in time, with nothing left running, and the report has to say of the
planted tests, and of no others, that they fail.
I/O: processes, and folders below `workspace`.  Units: seconds, bytes.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os.path import isfile
from pathlib import Path
from random import Random

from msgspec.structs import replace as replace_field

from judge.confinement.messages import ResourceLimits
from judge.confinement.supervised import Ended, discard, discarded, run
from judge.gauntlet.errors import CandidateError
from judge.gauntlet.repository.compiled import compile_modules
from judge.gauntlet.repository.git import Repository
from judge.gauntlet.repository.manifest import Manifest, TestCommand
from judge.gauntlet.testing.choice import Choice, choose
from judge.gauntlet.testing.junit import read_report
from judge.gauntlet.testing.plants import (
    PLANTED,
    is_test_file,
    plant,
    runs_pytest,
    uncollected,
    within,
)
from ledger.progress import advanced

MAX_OUTPUT = 4 * 2**20
MAX_DISK = 8 * 2**30  # a suite keeps what each of its tests has written
MAX_LENGTH = 2**43  # of a file; tests make long ones that are empty but for their end
LEAVING = 30.0  # s for what the tests have started: a process with much in it takes its time
_REPORT = "report.xml"
_SHOWN = 5  # cases that a problem names
_FAILED = 1  # pytest's exit status where tests failed
MOST_FLAKY = 10  # cases; where more fail, something is broken
_AGAIN = 2  # runs of the files that hold failed cases, before the whole suite


@dataclass(frozen=True, kw_only=True)
class SuiteResult:
    """How the suite ended; it has passed if there is no problem."""

    problem: str | None
    cases: Mapping[str, str]  # id -> passed, skipped or failed
    missing: tuple[str, ...]  # ids that the base has, and the candidate not
    added: tuple[str, ...]  # test files that the proposal brings
    seconds: float
    output: bytes
    isolation: tuple[str, ...]
    leftovers: int  # processes that had to be ended
    planted: int = 0  # failing tests that were added, and reported as such
    flaky: tuple[str, ...] = ()  # ids of cases that failed at first, and then passed in each run
    only_missing: bool = False  # the missing cases are the only problem

    @property
    def passed(self) -> bool:
        """Tell whether the gate holds."""
        return self.problem is None


@dataclass(frozen=True, kw_only=True)
class Suite:
    """The tests of one commit, the base; raises GauntletError where nothing can be run."""

    repository: Repository
    base: str
    manifest: Manifest
    workspace: Path

    def run_on_base(self) -> SuiteResult:
        """Run them on the base itself; its cases are what a candidate is held against.

        Where its report has the planted tests as well, PLANTED is among the cases.
        """
        files: tuple[str, ...] = ()
        if runs_pytest(self.manifest.tests.command):
            with discarded(self.workspace) as folder:
                self._export(folder / "tree", self.base)
                planted = plant(folder / "tree", self._tests(), {})
                found = _Run(folder, self.manifest, planted=planted).again()
                files = _files_of(_failed(found.cases), folder / "tree")
            if planted and found.passed:
                return replace(found, cases={**found.cases, PLANTED: "failed"})
        with discarded(self.workspace) as folder:  # they fail, or do not bear others beside them
            self._export(folder / "tree", self.base)
            if files:
                alone = _Run(folder, self.manifest).once(files)
                if _failed(alone.cases):  # they fail by themselves, so the rest needs no second run
                    return replace(found, output=found.output + alone.output)
            return _Run(folder, self.manifest).again()

    def run(
        self, commit: str, *, expected: Mapping[str, str], without: Collection[str] = ()
    ) -> SuiteResult:
        """Run them on a candidate, but for the files in `without`, and then what it adds to them.

        `expected` is run_on_base()'s cases.
        """
        before = set(self.repository.paths(self.base))
        paths = (path for path in self.repository.paths(commit) if path not in before)
        added = tuple(filter(self.manifest.may_add, paths))
        with discarded(self.workspace) as folder:
            first = self._run(folder, commit, expected=expected, without=without)
            if not added or first.problem is not None:
                return replace(first, added=added)
            self.repository.export(commit, folder / "tree", keep=lambda path: path in added)
            second = _Run(folder, self.manifest).once(added)
        problem = second.problem and f"in the added tests: {second.problem}"
        return replace(
            first,
            problem=problem,
            cases={**second.cases, **first.cases},
            added=added,
            seconds=first.seconds + second.seconds,
            output=first.output + second.output,
            leftovers=first.leftovers + second.leftovers,
        )

    def fixes(
        self, commit: str, *, against: str, added: Sequence[str], pairs: int, random: Random
    ) -> tuple[str, ...]:
        """Return the cases of added test files that a candidate makes pass."""
        if not runs_pytest(self.manifest.tests.command):
            return ()

        def told(arm: str) -> Mapping[str, str]:
            with discarded(self.workspace) as folder:
                self._export(folder / "tree", arm)
                self.repository.export(commit, folder / "tree", keep=added.__contains__)
                ended = run_files(
                    folder, self.manifest, command=self.manifest.tests, files=added, expected={}
                )
            return ended.cases if arm == against or ended.passed else {}

        return cases_fixed(told, against=against, by=commit, pairs=pairs, random=random)

    def run_rest(
        self, commit: str, *, expected: Mapping[str, str], left_out: Collection[str]
    ) -> SuiteResult:
        """Run on a candidate the test files that were left out, and no others."""
        others = [each for each in self._tests() if is_test_file(each) and each not in left_out]
        with discarded(self.workspace) as folder:
            return self._run(folder, commit, expected=expected, without=others)

    def choose(self, commit: str) -> Choice | None:
        """Choose the tests that a candidate can reach; None if the manifest wants all at once."""
        tests = self.manifest.tests
        if tests.choose == "all" or not runs_pytest(tests.command):
            return None
        changed = self._freed(commit)
        return choose(
            dict(self.repository.contents(self.base, keep=lambda path: path.endswith(".py"))),
            changed,
            paths={*self.repository.paths(self.base), *changed},
            is_test=self.manifest.is_test,
        )

    def _tests(self) -> list[str]:
        return list(filter(self.manifest.is_test, self.repository.paths(self.base)))

    def _freed(self, commit: str) -> list[str]:
        """Return what a candidate changes of tiers 1 and 2."""
        changes = self.repository.changes(*map(self.repository.tree_of, (self.base, commit)))
        return [each.path for each in changes if self.manifest.tier_of(each.path) > 0]

    def _export(self, tree: Path, commit: str) -> None:
        """Write a commit's files to a folder, with those of tier 0 as they are in the base."""
        tier_of = self.manifest.tier_of
        self.repository.export(commit, tree, keep=lambda path: tier_of(path) > 0)
        self.repository.export(self.base, tree, keep=lambda path: tier_of(path) == 0)
        compile_modules(
            tree,
            kept=self.repository.compiled,
            scratch=self.workspace,
            environment=self.manifest.interpreter,
            leave=self.manifest.is_test,
        )

    def _run(
        self, folder: Path, commit: str, *, expected: Mapping[str, str], without: Collection[str]
    ) -> SuiteResult:
        tree = folder / "tree"
        self._export(tree, commit)
        bears_plants = PLANTED in expected
        elsewhere = {PLANTED, *within(expected, without)}
        # What the base does not collect is no test: pytest would obey what it finds in it.
        known = expected.keys() - {PLANTED}
        pytest = runs_pytest(self.manifest.tests.command)
        passed_over = uncollected(self._freed(commit), known) if pytest else []
        passed_over += sorted(without)
        expected = {case: expected[case] for case in expected if case not in elsewhere}
        tests = [path for path in self._tests() if path not in set(without)]
        planted = plant(tree, tests if bears_plants else (), expected)
        return _Run(folder, self.manifest, expected, planted, passed_over).again()


def cases_fixed(
    run: Callable[[str], Mapping[str, str]], *, against: str, by: str, pairs: int, random: Random
) -> tuple[str, ...]:
    """Return the cases that fail in one commit and pass in another, in each pair of runs.

    `run` returns each case's outcome in a commit; who of a pair is first is drawn.
    """
    fixed: set[str] | None = None
    for _ in range(pairs):
        told = {arm: run(arm) for arm in random.sample([against, by], k=2)}
        failed = (case for case, outcome in told[against].items() if outcome == "failed")
        cases = {case for case in failed if told[by].get(case) == "passed"}
        fixed = cases if fixed is None else fixed & cases
        if not fixed:
            break
    return tuple(sorted(fixed or ()))


def _failed(cases: Mapping[str, str]) -> list[str]:
    return [case for case, outcome in cases.items() if outcome == "failed"]


def run_files(
    folder: Path,
    manifest: Manifest,
    *,
    command: TestCommand,
    files: Sequence[str],
    expected: Mapping[str, str],
    passed_over: Sequence[str] = (),
) -> SuiteResult:
    """Run these test files on the tree in a folder, confined, with planted tests beside them.

    A file may be followed by `::` and a case in it. `expected` are the cases that there have to
    be, `passed_over` those that do not run, as pytest names them. Nothing is run twice: a caller
    that wants to know how steady a result is asks again.
    """
    planted = plant(folder / "tree", {each.partition("::")[0] for each in files}, expected)
    beside = sorted({f"{case.partition('::')[0].replace('.', '/')}.py" for case in planted})
    only = [*files, *beside, *(f"--deselect={case}" for case in passed_over)]
    return _Run(folder, replace_field(manifest, tests=command), expected, planted).once(only)


@dataclass(frozen=True)
class _Run:
    """Runs of the manifest's command on the tree in a folder."""

    folder: Path
    manifest: Manifest
    expected: Mapping[str, str] = field(default_factory=dict)
    planted: frozenset[str] = frozenset()
    passed_over: Sequence[str] = ()

    def again(self) -> SuiteResult:
        """Run the suite; run what fails again, to tell a flaky case from a broken one.

        The planted tests are in the first and in the last run, which are of the whole suite.
        """
        first = self.once()
        failed = _failed(first.cases)
        files = _files_of(failed, self.folder / "tree")
        if first.missing or first.leftovers or not files or len(failed) > MOST_FLAKY:
            return first
        seconds, output = first.seconds, first.output
        last = first
        for number in range(_AGAIN + 1):
            alone = _Run(self.folder, self.manifest)
            last = self.once() if number == _AGAIN else alone.once(files)
            seconds, output = seconds + last.seconds, output + last.output
            if last.problem is not None or any(last.cases.get(case) != "passed" for case in failed):
                return replace(first, seconds=seconds, output=output, leftovers=last.leftovers)
        return replace(last, seconds=seconds, output=output, flaky=tuple(sorted(failed)))

    def once(self, only: Sequence[str] = ()) -> SuiteResult:
        """Run the command; hold what comes out against the expected cases."""
        scratch = self.folder / "scratch"
        scratch.mkdir()
        tests = self.manifest.tests
        options = [f"--ignore={path}" for path in self.passed_over]
        if self.planted:
            options.append("--maxfail=0")  # planted failures end no run
        advanced("running tests", 0)
        try:
            ended = run(
                [
                    *(part.replace("{report}", str(scratch / _REPORT)) for part in tests.command),
                    *options,
                    *only,
                ],
                tree=self.folder / "tree",
                scratch=scratch,
                limits=ResourceLimits(
                    seconds=tests.seconds,
                    memory_bytes=tests.memory_bytes,
                    output_bytes=MAX_OUTPUT,
                    disk_bytes=MAX_DISK,
                    file_bytes=MAX_LENGTH,
                    leaving=LEAVING,
                ),
                environment=self.manifest.interpreter,
            )
            told, unread = {}, None
            try:
                told = dict(read_report(scratch / _REPORT))
            except CandidateError as error:
                unread = str(error)
        finally:
            advanced("running tests", 1, 1)
            discard(scratch)
        cases = {case: outcome for case, outcome in told.items() if case not in self.planted}
        missing = tuple(sorted(self.expected.keys() - cases.keys()))
        problem = self._problem_of(ended, cases) or unread
        if problem is None and self.planted:
            problem = _problem_of_plants(ended, {case: told.get(case) for case in self.planted})
        return SuiteResult(
            problem=problem or self._problem_in(cases, missing),
            cases=cases,
            missing=missing,
            added=(),
            seconds=ended.seconds,
            output=ended.output + ended.errors,
            isolation=ended.isolation,
            leftovers=ended.leftovers,
            planted=len(self.planted),
            only_missing=problem is None and bool(missing),
        )

    def _problem_of(self, ended: Ended, cases: Mapping[str, str]) -> str | None:
        failed = _failed(cases)
        told = f"; {_listed(failed)} failed" if failed else ""
        expected = self.planted and ended.code == _FAILED and cases and not failed
        if ended.status != "exited" or (ended.code and not expected):
            return f"the tests do not pass: {ended.words}{told}"
        if ended.leftovers:
            return f"the tests leave {ended.leftovers} processes behind"
        return None

    def _problem_in(self, cases: Mapping[str, str], missing: Sequence[str]) -> str | None:
        if missing:
            return f"{_listed(missing)} of the base were not run"
        if failed := _failed(cases):
            return f"{_listed(failed)} failed, although the command exited with status 0"
        passed = [case for case, outcome in self.expected.items() if outcome == "passed"]
        if skipped := [case for case in passed if cases[case] == "skipped"]:
            return f"{_listed(skipped)} passed in the base and were skipped"
        return None


def _files_of(cases: Sequence[str], tree: Path) -> tuple[str, ...]:
    """Return the files that the cases stand in; none where one of them cannot be found."""
    found = set()
    for case in cases:
        parts = case.partition("::")[0].split(".")
        names = ["/".join(parts[:count]) + ".py" for count in range(len(parts), 0, -1)]
        file = next((name for name in names if isfile(tree / name)), None)  # noqa: PTH113 - of any length
        if file is None:
            return ()
        found.add(file)
    return tuple(sorted(found))


def _problem_of_plants(ended: Ended, told: Mapping[str, str | None]) -> str | None:
    """Return why a report on planted tests cannot be trusted."""
    if wrong := [outcome or "missing" for outcome in told.values() if outcome != "failed"]:
        return (
            f"the report is not trusted: of {len(told)} planted tests, which cannot pass, "
            f"{len(wrong)} are reported as {' or '.join(sorted(set(wrong)))}"
        )
    if not ended.code:
        return "the report is not trusted: the command exited with status 0 although tests failed"
    return None


def _listed(cases: Sequence[str]) -> str:
    shown = ", ".join(sorted(cases)[:_SHOWN])
    more = f" and {len(cases) - _SHOWN} more" if len(cases) > _SHOWN else ""
    return f"{len(cases)} cases ({shown}{more})"
