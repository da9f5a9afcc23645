"""The policies' own numbers stay within what the judge accepts."""

from pathlib import Path

import pytest

from policies import numbers
from policies.errors import PolicyError
from policies.numbers import parse_numbers

FILE = Path(numbers.__file__).with_name("numbers.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(("epochs", "accepted"), [(0, True), (6, True), (7, False), (20, False)])
def test_wait_after_a_remedy_is_refused_if_the_judge_would_hold_it_against_the_policy(
    epochs: int, accepted: bool
) -> None:
    data = FILE.replace("lag_patience = 4", f"lag_patience = {epochs}").encode()
    if accepted:
        assert parse_numbers(data).playbook.lag_patience == epochs
        return
    with pytest.raises(PolicyError, match=r"<= 6.*lag_patience"):
        parse_numbers(data)
