"""Checkpoints that are taken back, in a real repository: the record first, then the branch."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from gauntlet_lines import SETTINGS, Line, digest_of

from aggregates.improvement.line import Line as LineRecord
from judge.gauntlet.controller import Controller
from judge.gauntlet.errors import GauntletError, RepositoryError
from judge.gauntlet.promotion import roll_back
from ledger.entries import AuthorKey
from ledger.errors import AuthorityError
from proctor.sample.init import git


class Chain(Line):
    """A line with two checkpoints after the first, which people committed."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, ("late-rows",))
        self.commits = [self.head()]
        with self.controller() as controller:
            assert controller.line.head.commit == self.head()  # the line begins here
        for cap in (7, 8):
            self.commits.append(self.commit(SETTINGS, f"{self.text(SETTINGS)}\n# {cap}\n"))
            with self.controller() as controller:
                controller.adopt(self.adoption(controller))
        with self.controller() as controller:
            self.ids = list(controller.line.checkpoints)

    @contextmanager
    def working(self) -> Iterator[Controller]:
        with self.controller() as controller, controller.locked():
            yield controller


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Chain(tmp_path)


def test_branch_goes_back_with_its_checkpoint_and_all_that_descend(chain: Chain) -> None:
    _, second, third = chain.ids
    with chain.working() as controller:
        done = roll_back(controller.place, second, "fewer rows")
        assert (done.reached, done.to) == ((second, third), chain.ids[0])
        assert (done.commit, done.branch_at, done.advice) == (*[chain.commits[0]] * 2, None)
        line = controller.line
        assert line.checkpoints[third].rolled_back == "fewer rows"
        version = line.version
        again = roll_back(controller.place, second, "said twice")
        assert (again.reached, again.advice) == (done.reached, None)
        assert controller.line.version == version  # recorded once
    assert chain.head() == chain.commits[0]


def test_descendant_is_marked_in_its_own_name_when_an_ancestor_took_it_along(chain: Chain) -> None:
    _, second, third = chain.ids
    with chain.working() as controller:
        roll_back(controller.place, second, "fewer rows")
        assert controller.line.rollbacks == {second: "fewer rows"}
        done = roll_back(controller.place, third, "slow besides")
        line = controller.line
        assert (done.reached, done.to, line.active) == ((third,), *[chain.ids[0]] * 2)
        assert line.rollbacks == {second: "fewer rows", third: "slow besides"}
        assert line.checkpoints[third].rolled_back == "fewer rows"  # since when it does not stand
        roll_back(controller.place, third, "said twice")
        assert controller.line.version == line.version


def test_branch_stays_where_people_moved_it(chain: Chain) -> None:
    moved = chain.commit(SETTINGS, f"{chain.text(SETTINGS)}\n# by hand\n")
    with chain.working() as controller:
        done = roll_back(controller.place, chain.ids[2], "worse")
        assert done.branch_at == chain.head() == moved
        assert done.advice is not None
        assert "proctor line sign adopt" in done.advice
        assert controller.line.active == chain.ids[1]


def test_branch_that_is_checked_out_follows_when_people_have_let_go_of_it(chain: Chain) -> None:
    git(chain.repo, "switch", "--quiet", "main")
    with chain.working() as controller:
        done = roll_back(controller.place, chain.ids[2], "worse")
        assert done.branch_at == chain.commits[2]
        assert done.advice is not None
        assert "git switch --detach" in done.advice
        assert controller.line.active == chain.ids[1]  # the record stands
    with pytest.raises(RepositoryError, match="git switch --detach"), chain.working():
        pass
    git(chain.repo, "switch", "--quiet", "--detach")
    with chain.working():  # whoever works next brings it after
        assert chain.head() == chain.commits[1]


def test_rollback_that_a_process_did_not_live_to_follow_is_finished(chain: Chain) -> None:
    with chain.controller() as controller:
        line = controller.line
        line.roll_back(chain.ids[1], "worse")
        controller.place.log.save(line)
    assert chain.head() == chain.commits[2]
    with chain.working():
        assert chain.head() == chain.commits[0]


@pytest.mark.slow
def test_older_branch_of_the_chain_is_marked_without_moving_anything(chain: Chain) -> None:
    with chain.working() as controller:
        roll_back(controller.place, chain.ids[2], "worse")
        moved = chain.commit(SETTINGS, f"{chain.text(SETTINGS)}\n# anew\n")
    with chain.controller() as controller:
        controller.adopt(chain.adoption(controller))
        fourth = controller.line.active
    with chain.working() as controller:
        assert controller.line.head.parent == chain.ids[1]
        done = roll_back(controller.place, chain.ids[2], "said again")
        assert (done.to, done.branch_at) == (fourth, moved)


@pytest.mark.slow
def test_valley_ends_when_what_it_leads_over_is_rolled_back(chain: Chain) -> None:
    with chain.working() as controller:
        steps = (digest_of(b"one"), digest_of(b"two"))
        controller.open_valley(chain.valley(controller, *steps))
        roll_back(controller.place, chain.ids[2], "worse")
        assert controller.line.valley is None


def test_what_cannot_be_rolled_back_says_why(chain: Chain) -> None:
    with chain.working() as controller:
        place = controller.place
        for checkpoint, reason, message in (
            (chain.ids[0], "worse", "is the first of the line"),
            ("0" * 36, "worse", "checkpoint 000"),
            (chain.ids[2], " ", "needs a reason"),
        ):
            with pytest.raises(GauntletError, match=message):
                roll_back(place, checkpoint, reason)
        assert controller.line.active == chain.ids[2]


def test_rollback_signed_by_no_operator_is_rejected(chain: Chain) -> None:
    with chain.working() as controller:
        stranger = AuthorKey("operator", chain.stranger)
        with pytest.raises(AuthorityError, match="not in force for that role"):
            roll_back(controller.place, chain.ids[2], "worse", author=stranger)
        assert controller.line.active == chain.ids[2]
        assert chain.head() == chain.commits[2]
        operator = AuthorKey("operator", chain.operator)
        assert roll_back(controller.place, chain.ids[2], "worse", author=operator).advice is None
    with chain.log() as log:
        events = list(log.events.get(chain.id))
    assert isinstance(events[-1], LineRecord.RolledBack)
