"""What each rule of the rulebook says of itself fits what others make of it."""

import pytest

from aggregates.errors import InvariantError
from aggregates.playbook import REMEDIES
from aggregates.rulebook import RULEBOOK, known_rules
from aggregates.rulebook.rule import KINDS
from aggregates.rules import FIRST_RULES, RELATIVE, VERSIONS, RulesConfig

CONFIGURATIONS = [rules for versions in VERSIONS.values() for rules in versions]


@pytest.mark.parametrize("name", RULEBOOK)
def test_rule_names_what_there_is(name: str) -> None:
    rule = RULEBOOK[name]
    assert rule.kind in KINDS
    assert {*rule.silenced_by} <= RULEBOOK.keys()
    able = {each for side in rule.sides.values() for each in (*side.directions, *side.under)}
    assert able <= REMEDIES.keys()
    assert rule.factors or not any(REMEDIES[each].moves for each in able)  # how far, or not at all
    settings = {*RulesConfig.__dataclass_fields__, ""}
    flags = {flag for side in rule.sides.values() for flag in side.under.values()}
    flags |= {side.undone for side in rule.sides.values() if isinstance(side.undone, str)}
    assert {*rule.band, *flags} <= settings
    for rules in CONFIGURATIONS:
        assert rule.limits(rules)
        assert not rule.fold(name, rules).evaluation().fired


@pytest.mark.parametrize(
    "names", [["R1", "R99"], ["R1", "R1"], [], "R1", {"R3": 1}, [5], [["R1"]], 5]
)
def test_run_with_rules_that_are_not_known_is_refused(names: object) -> None:
    recorded = {**RELATIVE.to_dict(), "names": names}
    with pytest.raises(InvariantError, match=r"names must be a list|does not know"):
        known_rules(recorded)
    assert known_rules({**recorded, "names": [*FIRST_RULES]}) == RELATIVE
