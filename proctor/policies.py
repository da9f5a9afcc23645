"""Policies as they are chosen at the command line: a name, and KEY=VALUE settings for it.

Settings are a language model's (docs/reference/language-models.md); the key is read from the
environment when a policy is made, and is no setting.

I/O: make_policies() reads the environment; what it returns asks servers.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from ledger.application import LedgerApplication
from policies.calls import Blobs
from policies.catalogue import POLICIES, create_policy
from policies.errors import PolicyError
from proctor.errors import ProctorError
from proctor.training import MakePolicy, Prepared


@dataclass(frozen=True)
class PolicyChoice:
    """Which policy decides, with its settings."""

    name: str

    @classmethod
    def read(cls, name: str, settings: Sequence[str]) -> "PolicyChoice":
        """Return what was chosen; raises PolicyError or ProctorError for what cannot be."""
        given = read_pairs(settings)
        if name in POLICIES:
            if given:
                raise PolicyError(f"the policy {name} takes no settings, not {sorted(given)}")
            return cls(name)
        create_policy(name)
        raise AssertionError

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as campaign.started holds them: nothing secret."""
        return {"name": self.name}


def make_policies(choice: PolicyChoice, log: LedgerApplication, blobs: Blobs) -> MakePolicy:
    """Return what makes a fresh policy for each run."""

    def make(run_id: UUID, feedback: Mapping[str, Any] | None) -> Prepared:
        return Prepared(create_policy(choice.name))

    return make


def read_pairs(pairs: Sequence[str]) -> dict[str, Any]:
    """Return KEY=VALUE settings; a value is read as TOML, and else taken as text."""
    read: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise ProctorError(f"{pair!r} is not KEY=VALUE, as in lr=0.3")
        read[key] = _read_value(text)
    return read


def _read_value(text: str) -> Any:
    try:
        found = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return found["value"] if set(found) == {"value"} else text
