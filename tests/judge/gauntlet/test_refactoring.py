"""What an operator calls a refactoring: promoted if it is no worse and no slower."""

from collections.abc import Iterator

import pytest
from gauntlet_lines import SELECTION, SMALL, Line, submit

from aggregates.improvement.proposal import Proposal
from judge.gauntlet import reviews
from judge.gauntlet.controller import Controller
from ledger.verification.reader import open_verified
from proctor.sample.repository import NO_SORT, SORT

TIDY = ("    ordered = sorted(scored", "    # The best first.\n    ordered = sorted(scored")
SLOW = (TIDY[0], "    _ = [sum(range(1_000)) for _ in range(40_000)]\n    ordered = sorted(scored")
SLEEP = (TIDY[0], "    from time import sleep\n\n    sleep(0.5)\n    ordered = sorted(scored")
HARM = (SORT, NO_SORT)


@pytest.fixture
def controller(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Line, Controller]]:
    manifest = SMALL["judge/tiers.toml"].replace("imports = [", 'imports = ["time", ')
    line = Line(
        tmp_path_factory.mktemp("refactoring"), files={**SMALL, "judge/tiers.toml": manifest}
    )
    with line.controller() as controller:
        yield line, controller


def judged(line: Line, controller: Controller, change: tuple[str, str], word: str) -> Proposal:
    text = line.text(SELECTION)
    assert change[0] in text
    proposal = submit(controller, line.diff(SELECTION, text.replace(*change)), {SELECTION: 2})
    if word:
        reviews.record_review(controller.place, line.word(controller, word, proposal))
    return controller.carry_on(proposal.id)


def test_refactoring_is_promoted_on_an_operators_word(
    controller: tuple[Line, Controller],
) -> None:
    alone = judged(*controller, TIDY, "")
    assert (alone.outcome, alone.verdict) == ("rejected", "cannot tell")
    found = judged(*controller, (TIDY[0], TIDY[1].replace("best", "largest")), "refactor")
    assert (found.outcome, found.verdict) == ("promoted", "no worse")
    assert (found.regressions, found.improvements) == ([], [])
    assert found.reasons[0].startswith("as a refactoring: a loss of 0.1 or 25% more time")
    line = controller[0]
    with open_verified(line.home.path / "ledger"):
        pass


@pytest.mark.parametrize(
    ("change", "verdict", "because"),
    [
        (SLOW, "worse", "times the processor time"),
        (SLEEP, "worse", "times the time"),
        (HARM, "worse", "late-rows: "),
        (TIDY, "cannot tell", "no task is shown to be better"),
    ],
    ids=["slower", "waits", "harm", "approved only"],
)
def test_what_is_no_refactoring_is_not_promoted_as_one(
    controller: tuple[Line, Controller], change: tuple[str, str], verdict: str, because: str
) -> None:
    word = "approve" if change is TIDY else "refactor"
    found = judged(*controller, change, word)
    assert (found.outcome, found.verdict) == ("rejected", verdict)
    assert because in str(found.reason)


def test_refactoring_waits_while_the_key_that_signed_it_is_not_in_force(
    controller: tuple[Line, Controller], monkeypatch: pytest.MonkeyPatch
) -> None:
    line, one = controller
    text = line.text(SELECTION)
    proposal = submit(one, line.diff(SELECTION, text.replace(*TIDY)), {SELECTION: 2})
    reviews.record_review(one.place, line.word(one, "refactor", proposal))
    line.revoke_operator()
    found = one.carry_on(proposal.id)
    assert (found.outcome, found.verdict) == (None, "no worse")
    assert "tier 2" in str(one.waits(found))
