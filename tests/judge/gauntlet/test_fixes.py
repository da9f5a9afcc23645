"""A bug fix with its test: real git, a real ledger, confined processes."""

from collections.abc import Iterator, Mapping

import pytest
from gauntlet_lines import Line, submit

from aggregates.improvement.proposal import Proposal
from judge.gauntlet import reviews
from judge.gauntlet.controller import Controller
from proctor.sample.init import git
from proctor.sample.repository import FILES

WORDS, TEST = "retrieval/words.py", "tests/test_accents.py"
BEFORE = FILES[WORDS]
FIXED = BEFORE.replace("[a-z0-9]+", r"\w+")
SHOWS = """\
from retrieval.words import words_of


def test_accents_are_part_of_a_word():
    assert words_of("Crème brûlée") == ["crème", "brûlée"]


def test_spaces_are_not():
    assert words_of("a b") == ["a", "b"]
"""
CHANCE = """

def test_of_chance():
    assert os.urandom(1)[0] % 8
"""
CASE = "tests.test_accents::test_accents_are_part_of_a_word"


@pytest.fixture
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Line, Controller]]:
    line = Line(tmp_path_factory.mktemp("fixes"), ("late-rows",), files=FILES)
    with line.controller() as controller:
        yield line, controller


def judged(line: Line, controller: Controller, texts: Mapping[str, str]) -> Proposal:
    """Propose these texts of files, approve them, and take them as far as they go."""
    for path, text in texts.items():
        (line.repo / path).write_text(text, encoding="utf-8")
    git(line.repo, "add", "--intent-to-add", *texts)
    diff = git(line.repo, "diff", "main", "--", *texts).encode()
    git(line.repo, "reset", "--quiet")
    git(line.repo, "checkout", "--quiet", "--", ".")
    git(line.repo, "clean", "--quiet", "--force")
    waiting = submit(controller, diff, {path: 1 if path == TEST else 2 for path in texts})
    if TEST in texts:
        assert "tier 1" in str(controller.waits(controller.place.proposal(waiting.id)))
        reviews.record_review(controller.place, line.word(controller, "approve", waiting))
    return controller.carry_on(waiting.id)


def test_fix_is_promoted_for_the_test_that_fails_without_it(
    controller: tuple[Line, Controller],
) -> None:
    alone = judged(*controller, {WORDS: FIXED})
    assert (alone.outcome, alone.verdict, alone.fixes) == ("rejected", "cannot tell", [])
    found = judged(*controller, {WORDS: FIXED, TEST: SHOWS})
    assert (found.outcome, found.verdict, found.fixes) == ("promoted", "better", [CASE])
    assert (found.regressions, found.improvements) == ([], [CASE])
    assert found.reasons == [f"{CASE}: fails without the change, passes with it"]
    assert controller[0].text(TEST).strip() == SHOWS.strip()


@pytest.mark.parametrize(
    ("code", "test", "verdict"),
    [
        # It passes without the change.
        (FIXED, SHOWS.replace("Crème brûlée", "a").replace('"crème", "brûlée"', '"a"'), None),
        # Without the change there is nothing that it could run: it is no test of what there is.
        (
            f"{FIXED}\n\nMOST = 3\n",
            "from retrieval.words import MOST\n\n\ndef test_most():\n    assert MOST == 3\n",
            None,
        ),
        # The change harms what a reference task looks at.
        (FIXED.replace("text.lower()", "text.lower()[:40]"), SHOWS, "worse"),
    ],
    ids=["passes anyway", "new name", "harm"],
)
@pytest.mark.slow
def test_what_is_no_fix_is_not_promoted_as_one(
    controller: tuple[Line, Controller], code: str, test: str, verdict: str | None
) -> None:
    found = judged(*controller, {WORDS: code, TEST: test})
    assert found.verdict == (verdict or "cannot tell")
    assert found.outcome == "rejected"
    assert list(found.fixes) == ([CASE] if verdict else [])


@pytest.mark.slow
def test_case_that_fails_at_random_is_never_a_fix(
    controller: tuple[Line, Controller],
) -> None:
    found = judged(*controller, {WORDS: FIXED, TEST: f"import os\n\n{SHOWS}{CHANCE}"})
    if found.tested is False:  # it may fail with the change, and ends it
        assert "in the added tests" in str(found.problem)
        return
    assert found.fixes in ([CASE], [])  # none where it failed beside the case
    assert found.outcome == ("promoted" if found.fixes else "rejected")
