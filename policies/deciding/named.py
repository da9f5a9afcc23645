"""The built-in policy that a run names, so that it can be asked again.

These decide by themselves: shown the same, they say the same. In a fork, the decisions of one epoch
may have been given to the policy (proctor/runs/jobs.py): these are not the policy's.

Trust: what a run says of its policy is hostile.
I/O: reads the policies' own files.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import ValidationError, convert

from policies.deciding.catalogue import POLICIES, Simple
from policies.deciding.chance import RandomPolicy
from policies.numbers import PlaybookNumbers
from policies.playbook import PlaybookPolicy

_GIVEN = "given"
_PARTS = {"human": "proposer", "mixed": "playbook"}  # who decides in their stead, as they describe


@dataclass(frozen=True)
class NamedPolicy:
    """A policy as it was recorded."""

    policy: Simple | None  # None: it cannot be asked again
    given: frozenset[int] = frozenset()  # epochs whose decisions were given
    doubts: tuple[str, ...] = ()  # what of the description is not this version's


def named_policy(described: Mapping[str, Any]) -> NamedPolicy:
    """Return the policy that a run's description names, if it is built in."""
    given: set[int] = set()
    while described.get("name") == _GIVEN and isinstance(described.get("then"), Mapping):
        if type(epoch := described.get("epoch")) is int:
            given.add(epoch)
        described = described["then"]
    policy, doubt = _made(described)
    return NamedPolicy(policy, frozenset(given), () if doubt is None else (doubt,))


def _made(described: Mapping[str, Any]) -> tuple[Simple | None, str | None]:
    name = described.get("name")
    if not isinstance(name, str) or name not in POLICIES:
        return None, _part(described)
    own = POLICIES[name]()
    if dict(described) == own.describe():
        return own, None
    rest = {key: value for key, value in described.items() if key != "name"}
    if isinstance(own, PlaybookPolicy):
        try:
            numbers = convert(rest, PlaybookNumbers)
        except ValidationError:
            return own, None  # no numbers of a playbook: then it has to decide as this one
        return type(own)(numbers), f"the numbers of the policy {name} are not this version's"
    if isinstance(own, RandomPolicy):
        seeded = rest.keys() == {"seed"} and type(rest["seed"]) is int
        return (RandomPolicy(rest["seed"]) if seeded else own), None
    if not rest or name == "nothing":
        return own, None
    return None, f"the weights of the policy {name} are not this version's: it was not asked again"


def _part(described: Mapping[str, Any]) -> str | None:
    """Return what cannot be checked of a policy that lets a built-in one decide in part."""
    name = described.get("name")
    inside: Any = described
    while isinstance(inside, Mapping) and (part := _PARTS.get(str(inside.get("name")))):
        inside = inside.get(part)
    own = str(inside.get("name")) if isinstance(inside, Mapping) else ""
    if own not in POLICIES:
        return None
    return f"what {own} decides as a part of the policy {name}: it was not asked again"
