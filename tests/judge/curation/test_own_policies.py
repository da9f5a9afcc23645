"""Who needs no admission before an operator has a key is who asks nobody and has no weights."""

from aggregates.comparison import OWN_POLICIES
from policies.deciding.catalogue import POLICIES


def test_built_in_policies_without_weights_need_no_admission() -> None:
    assert {name for name, alone in OWN_POLICIES.items() if alone} == {*POLICIES} - {"network"}
