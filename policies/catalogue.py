"""The policies that need nothing but their name: no model, no person, no record."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from policies.errors import PolicyError
from policies.nothing import NothingPolicy
from policies.playbook import PlaybookPolicy

POLICIES: Mapping[str, Callable[[], PlaybookPolicy | NothingPolicy]] = MappingProxyType(
    {"nothing": NothingPolicy, "playbook": PlaybookPolicy}
)


def create_policy(name: str) -> PlaybookPolicy | NothingPolicy:
    """Return the policy of that name; raises PolicyError listing those that exist."""
    try:
        return POLICIES[name]()
    except KeyError:
        raise PolicyError(f"no policy {name!r}: there are {', '.join(POLICIES)}") from None
