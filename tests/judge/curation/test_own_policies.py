"""Who needs no admission before an operator has a key is who asks nobody and has no weights."""

import re
from pathlib import Path

from policies.deciding.catalogue import POLICIES

SQL = Path(__file__).parents[3] / "projections" / "curation.sql"


def test_built_in_policies_without_weights_need_no_admission() -> None:
    (listed,) = re.findall(r"THEN c\.after .*?IN \((.*?)\) AS policy", SQL.read_text(), re.DOTALL)
    assert {*re.findall(r"'(\w+)'", listed)} == {*POLICIES} - {"network"}
