"""Settings for all tests."""

import atexit
import gc
import hashlib
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Generator
from functools import cache
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook
from hypothesis import settings
from measured import paused

os.environ["PROCTOR_STATE"] = "off"  # nothing is remembered between tests, nor for the user

# A suite that was started in the background ignores Ctrl-C, and so would every process it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no finding; and where the checkout is read-only, nothing is kept beside it.
settings.register_profile("suite", deadline=None, database=None)
settings.load_profile("suite")

# What takes longest, first: a file goes to one process whole, and a dear one at the end would leave
# the others without work. Where a name is missing here or is too much, that costs time only.
_DEAR = (
    "test_snippets.py",
    "test_gate_attacks.py",
    "test_cli.py",
    "test_selected_entries.py",
    "test_chat.py",
    "test_gauntlet_suite.py",
    "test_gauntlet_controller.py",
    "test_odd_events.py",
    "test_figures.py",
    "test_line_evolve.py",
    "test_judged_states.py",
    "test_measured_pairs.py",
    "test_curate_cli.py",
    "test_lineage.py",
    "test_asked_again.py",
    "test_attest.py",
    "test_projection_cache.py",
    "test_provoked_runs.py",
    "test_files_of_a_home.py",
    "test_compare_cli.py",
    "test_judge_limits_cli.py",
    "test_transcript_replay.py",
    "test_ordinary_repositories.py",
    "test_claim_views.py",
    "test_campaign_cli.py",
    "test_coverage_views.py",
    "test_connections.py",
    "test_fork_cli.py",
    "test_notary_privilege.py",
    "test_drift_cli.py",
    "test_claims_cli.py",
    "test_forged_stories.py",
    "test_confined_limits.py",
    "test_sandbox.py",
    "test_pack.py",
    "test_start_up.py",
    "test_line_patterns.py",
    "test_notary_cli.py",
    "test_hygiene_views.py",
    "test_line_cli.py",
    "test_monitor_loop.py",
    "test_second_verifier.py",
    "test_judged_data_and_limits.py",
    "test_forged_tables.py",
    "test_ledger_vectorized.py",
    "test_five_cheats.py",
    "test_light_install.py",
    "test_reference_tasks.py",
    "test_dispatch.py",
)
_TESTS = Path(__file__).parent
_FOREIGN = {_TESTS / name for name in ("fleet", "foreign", "integrations", "pages", "tools")}
_CHEAP = ("ledger", "policies", "aggregates")  # the other files of these folders are short


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--store",
        choices=("sqlite", "postgres"),
        default="sqlite",
        help="Where tests of the ledger begin ledgers: in files, or on a server of their own.",
    )
    parser.addoption(
        "--drawn-by",
        metavar="TEXT",
        help="Draw the order of the files from this text, such as a commit.",
    )
    parser.addoption(
        "--until",
        type=int,
        metavar="SECONDS",
        help="Skip the tests that have not begun by this POSIX time.",
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave a test for another time if it is late: the order is another one then."""
    until = item.config.getoption("--until")
    if until is not None and time.time() > until:
        pytest.skip("the time of this run is over")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no tests against programs that nobody here wrote where their mark leaves them out."""
    left_out = "not foreign" in config.getoption("markexpr")
    return True if left_out and collection_path in _FOREIGN else None


@pytest.fixture
def one_thread() -> Generator[None]:
    """Let torch compute on one thread: small steps are faster there, and sums have one order."""
    import torch  # noqa: PLC0415 - most tests load none

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pytest_unconfigure() -> None:
    """Release what outlives the interpreter's modules, or DuckDB prints "nanobind: leaked".

    Two objects do: Hypothesis' callback of the garbage collector, which holds the tests it ran, and
    pytest's import hook, which holds the fixtures through its configuration. The hook is emptied
    at exit, since pytest removes it from sys.meta_path only after this function.
    """
    gc.callbacks.clear()
    for finder in sys.meta_path:
        if isinstance(finder, AssertionRewritingHook):
            atexit.register(vars(finder).clear)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Do not measure the lines of a property test: it runs the same lines many times over.

    Before Python 3.12 the tracer makes such a test twice as slow.
    """
    if not getattr(pyfuncitem.obj, "is_hypothesis_test", False):
        return (yield)
    with paused():
        return (yield)


@pytest.hookimpl(tryfirst=True)  # before the marks decide what runs
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave most cases of a sampled test to the slow suite, and order the files.

    The expensive files come first and the cheap folders last; the rest stays in its order. With
    --drawn-by the order of the files follows from a text instead.
    """
    cases: Counter[str] = Counter()
    for item in items:
        if sampled := item.get_closest_marker("sampled"):
            name = item.nodeid.partition("[")[0]
            if cases[name] % sampled.args[0]:
                item.add_marker(pytest.mark.slow)
            cases[name] += 1
    dear = {name: at for at, name in enumerate(_DEAR)}
    cheap = {name: at for at, name in enumerate(_CHEAP, start=len(_DEAR) + 1)}

    @cache
    def place(path: Path) -> int:
        return dear.get(path.name, cheap.get(path.relative_to(_TESTS).parts[0], len(_DEAR)))

    drawn_by = config.getoption("--drawn-by")
    if drawn_by is None:
        items.sort(key=lambda item: place(item.path))
    else:
        items.sort(key=lambda item: hashlib.sha256(f"{drawn_by} {item.path}".encode()).digest())
