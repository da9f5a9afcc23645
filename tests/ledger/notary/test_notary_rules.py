"""Rules, turns and becoming another user, each by itself."""

import asyncio
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from virtual_time import run_virtually

from ledger.errors import PrivilegeError, RulesError
from ledger.notary.fair_queue import FairQueue
from ledger.notary.messages import MAX_EVENTS, MAX_FRAME
from ledger.notary.privileges import become, find_account, give_folder
from ledger.notary.rules import User, parse_rules, read_rules
from ledger.notary.service import MAX_CONNECTIONS


def test_rules_say_who_may_do_what() -> None:
    rules = parse_rules(
        """
        [[user]]
        user = 1001
        append = ["run.*", "campaign.started"]
        roles = ["judge"]
        others = true
        cosign = true
        witnesses = ["w.example+e25d5acc+BAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB"]
        blob_bytes = 5

        [[user]]
        user = "root"
        """
    )
    assert rules[1001] == User(
        uid=1001,
        append=("run.*", "campaign.started"),
        roles=("judge",),
        others=True,
        cosign=True,
        witnesses=("w.example+e25d5acc+BAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB",),
        blob_bytes=5,
    )
    assert rules[0] == User(uid=0)
    allowed = ("run.started", "run.", "campaign.started")
    refused = ("runs.started", "run", "campaign.started2", "key.granted", "")
    assert all(rules[1001].may_append(name) for name in allowed)
    assert not any(rules[1001].may_append(name) for name in refused)
    assert not rules[0].may_append("run.started")


def test_reference_page_lists_every_key_and_the_limits() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "notary.md").read_text()
    listed = re.findall(r"^\| `(\w+)` \|", page.split("## Rules")[1].split("## Frames")[0], re.M)
    assert listed == list(User.__struct_encode_fields__)
    assert f"| connections of one user | {MAX_CONNECTIONS} |" in page
    assert f"| events in a batch | {MAX_EVENTS:,} |" in page
    assert f"at most {MAX_FRAME >> 20} MiB" in page


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at least one"),
        ("user = 5", "at least one"),
        ("[[user]]\nuser = 5\n[other]\n", "nothing else"),
        ("[[user]]\nuser = 5\n[[user]]\nuser = 5\n", "listed twice"),
        ("[[user]]\nappend = []\n", "an account name or a user id"),
        ("[[user]]\nuser = true\n", "an account name or a user id"),
        ("[[user]]\nuser = -1\n", "an account name or a user id"),
        ("[[user]]\nuser = 'nobody here'\n", "account .* not found"),
        ("[[user]]\nuser = 65534\n", "any user of another namespace"),
        ("[[user]]\nuser = 5\nappends = []\n", "unknown field `appends`"),
        ("[[user]]\nuser = 5\nappend = 'run.*'\n", "Expected `array`, got `str` - at `\\$.append`"),
        ("[[user]]\nuser = 5\nappend = ['*.run']\n", "only at the end"),
        ("[[user]]\nuser = 5\nappend = ['']\n", "invalid event name"),
        ("[[user]]\nuser = 5\nothers = 1\n", "Expected `bool`, got `int` - at `\\$.others`"),
        ("[[user]]\nuser = 5\nwitnesses = ['w']\n", "witnesses: 'w': the vkey is not"),
        ("[[user]]\nuser = 5\nblob_bytes = -1\n", "Expected `int` >= 0 - at `\\$.blob_bytes`"),
        ("[[user", "not TOML"),
    ],
)
def test_rules_of_another_form_are_rejected(text: str, message: str) -> None:
    with pytest.raises(RulesError, match=message):
        parse_rules(text)


def test_rules_that_others_could_write_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text("[[user]]\nuser = 5\n")
    path.chmod(0o644)
    assert set(read_rules(path, owners=(os.geteuid(),))) == {5}
    with pytest.raises(RulesError, match="other users can write"):
        read_rules(path, owners=(54_321,))
    path.chmod(0o664)
    with pytest.raises(RulesError, match="other users can write"):
        read_rules(path, owners=(os.geteuid(),))
    with pytest.raises(RulesError, match="cannot be read"):
        read_rules(tmp_path / "missing")


def calling_lane() -> FairQueue[Callable[[], int | None], int | None]:
    return FairQueue("test", lambda jobs: [job() for job in jobs])


def test_user_with_small_requests_waits_for_one_large_one_at_most_at_a_time() -> None:
    async def measure(spend: Callable[[float], None]) -> tuple[float, int]:
        lane = calling_lane()
        worker = asyncio.create_task(lane.run())
        large = 0

        async def flood() -> None:
            nonlocal large
            while True:
                await lane.do(1, lambda: spend(0.02))
                large += 1

        floods = [asyncio.create_task(flood()) for _ in range(8)]
        await asyncio.sleep(0.1)
        time = asyncio.get_running_loop().time
        started, before = time(), large
        for _ in range(100):
            await lane.do(2, lambda: spend(0.001))
        seconds, served = time() - started, large - before
        for task in [worker, *floods]:
            task.cancel()
        lane.close()
        return seconds, served

    seconds, served = run_virtually(measure)
    assert 0.02 * (served - 2) <= seconds / 2  # half of the time, but for one at either end
    assert seconds < 0.5  # of 2.1, with one before each of the hundred


def test_user_who_is_alone_never_rests() -> None:
    async def measure(spend: Callable[[float], None]) -> float:
        lane = calling_lane()
        worker = asyncio.create_task(lane.run())
        for _ in range(20):
            await lane.do(1, lambda: spend(0.01))
        worker.cancel()
        lane.close()
        return asyncio.get_running_loop().time()

    assert run_virtually(measure) == pytest.approx(0.2)  # with rests it would be 0.4 s


def test_error_of_one_request_is_its_own() -> None:
    def fail() -> int:
        raise ValueError("mine")

    async def ask() -> int | None:
        lane = calling_lane()
        worker = asyncio.create_task(lane.run())
        with pytest.raises(ValueError, match="mine"):
            await lane.do(1, fail)
        answer = await lane.do(1, lambda: 5)
        worker.cancel()
        lane.close()
        return answer

    assert asyncio.run(ask()) == 5


def test_account_is_found_by_name_and_by_number() -> None:
    assert find_account("root") == (0, 0)
    assert find_account("54321") == (54_321, 54_321)
    with pytest.raises(PrivilegeError, match=r"account .* not found"):
        find_account("nobody here")
    with pytest.raises(PrivilegeError, match="name another user"):
        become((0, 0))


def test_folder_of_somebody_else_or_behind_a_symlink_is_rejected(tmp_path: Path) -> None:
    own = (os.geteuid(), os.getegid())
    give_folder(tmp_path / "new", own, mode=0o700)
    give_folder(tmp_path / "new", own, mode=0o700)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    with pytest.raises(PrivilegeError, match="not a folder owned by user"):
        give_folder(tmp_path / "new", (54_321, 54_321), mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "new")
    with pytest.raises(PrivilegeError, match="not a folder owned by user"):
        give_folder(tmp_path / "link", own, mode=0o700)
    with pytest.raises(PrivilegeError, match="cannot be made"):
        give_folder(tmp_path / "none" / "below", own, mode=0o700)
