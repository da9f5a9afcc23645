"""The policies that need only a name: no model, no person, no recorded run.

A name is one of POLICIES, of which OWN_POLICIES says more (aggregates/comparison.py), or means a
policy that somebody else wrote: see outside.py.
"""

from collections.abc import Callable, Mapping

from policies.deciding.chance import RandomPolicy
from policies.deciding.network import NetworkPolicy
from policies.deciding.nothing import FreshOnNanPolicy, NothingPolicy
from policies.deciding.outside import OutsidePolicy, known_entry_points, outside_policy
from policies.deciding.rescue import RescuePolicy
from policies.deciding.trials import TrialsPolicy
from policies.errors import PolicyError
from policies.playbook import PlaybookPolicy

Simple = NetworkPolicy | NothingPolicy | OutsidePolicy | PlaybookPolicy | RandomPolicy
POLICIES: Mapping[str, Callable[[], Simple]] = {
    each.name: each
    for each in (
        PlaybookPolicy,
        RescuePolicy,
        TrialsPolicy,
        NetworkPolicy,
        FreshOnNanPolicy,
        NothingPolicy,
        RandomPolicy,
    )
}


def create_policy(name: str) -> Simple:
    """Return the policy of that name; raises PolicyError listing those that exist."""
    if name in POLICIES:
        return POLICIES[name]()
    if (found := outside_policy(name)) is not None:
        return found
    known = ", ".join((*POLICIES, *known_entry_points()))
    raise PolicyError(
        f"unknown policy {name!r}; choose from {known}, or give MODULE:CLASS or exec:COMMAND"
    )


def is_simple(name: str) -> bool:
    """Return whether create_policy() is who makes the policy of that name."""
    return name in POLICIES or ":" in name or name in known_entry_points()
