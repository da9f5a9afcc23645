"""The policies that need only a name: no model, no person, no recorded run."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from policies.deciding.chance import RandomPolicy
from policies.deciding.network import NetworkPolicy
from policies.deciding.nothing import NothingPolicy
from policies.errors import PolicyError
from policies.playbook import PlaybookPolicy

Simple = NetworkPolicy | NothingPolicy | PlaybookPolicy | RandomPolicy
POLICIES: Mapping[str, Callable[[], Simple]] = MappingProxyType(
    {
        "network": NetworkPolicy,
        "nothing": NothingPolicy,
        "playbook": PlaybookPolicy,
        "random": RandomPolicy,
    }
)


def create_policy(name: str) -> Simple:
    """Return the policy of that name; raises PolicyError listing those that exist."""
    try:
        return POLICIES[name]()
    except KeyError:
        raise PolicyError(f"unknown policy {name!r}; choose from {', '.join(POLICIES)}") from None
