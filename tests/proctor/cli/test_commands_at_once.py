"""Several commands in one home at the same time: none fails because of another."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from frontdoor import TINY, answer, call, with_settings

SETTINGS = with_settings(TINY, "epochs=1")
COUNT = "SELECT COUNT(*) AS epochs FROM epochs"


@pytest.mark.slow
@pytest.mark.parametrize("remembered", ["in one place", "by each", "by nobody"])
def test_no_command_fails_because_of_others_in_the_same_home(
    tmp_path: Path, remembered: str
) -> None:
    """The tables lie with what a verifier remembers, so each of these is another case."""
    home = tmp_path / "home"

    def asked(arguments: Sequence[str], place: int) -> list[str]:
        states = {"in one place": tmp_path / "state", "by each": tmp_path / f"state{place}"}
        done = call(arguments, home=home, state=states.get(remembered))
        return [] if done.returncode == 0 else [f"{arguments}: {done.returncode} {done.stderr}"]

    assert asked(["run", *SETTINGS], 0) == []
    (run,) = answer(call(["sql", "SELECT run_id FROM runs", "--json"], home=home))
    each = [
        ["sql", COUNT],
        ["run", *SETTINGS],
        ["show", run["run_id"]],
        ["judge", run["run_id"]],
        ["sql", COUNT, "--json"],
        ["sql", "--out", str(tmp_path / "copy-{}.duckdb")],
        ["log", "--json"],
    ]

    def all_of(place: int) -> list[str]:
        turned = each[place:] + each[:place]
        return [
            problem
            for words in turned
            for problem in asked([word.format(place) for word in words], place)
        ]

    with ThreadPoolExecutor(len(each)) as pool:
        assert [problem for found in pool.map(all_of, range(len(each))) for problem in found] == []
    (row,) = answer(call(["sql", COUNT, "--json"], home=home))
    assert row["epochs"] == len(each) + 1
