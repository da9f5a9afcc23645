"""Policies as they are chosen at the command line: a name, and KEY=VALUE settings for it.

Settings are a language model's (docs/reference/language-models.md). The key is read from the
environment when a policy is made; it is no setting and is recorded nowhere.

I/O: make_policy() reads the environment; the policies that it makes ask servers, or a person at the
terminal.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from aggregates.comparison import OWN_POLICIES
from ledger.application import LedgerApplication
from ledger.blobs import Blobs
from policies.asking.ask import Asker, Client, find_rung, open_client
from policies.asking.settings import VERSION, ModelSettings
from policies.calls import Answers, CallLog
from policies.deciding.catalogue import create_policy, is_simple
from policies.deciding.human import HumanPolicy, Terminal
from policies.deciding.language_model import LanguageModelPolicy
from policies.deciding.mixed import MixedPolicy
from policies.deciding.outside import known_entry_points
from policies.errors import PolicyError
from proctor.runs.run_settings import read_pairs
from proctor.runs.training import Prepared, Told
from proctor.runs.transcript_log import RecordedAnswers, TranscriptLog

OPENAI, MIXED, HUMAN = "openai", "mixed", "human"


@dataclass(frozen=True)
class PolicyChoice:
    """Which policy decides, with the settings of the model that it asks, if it asks one."""

    name: str
    settings: ModelSettings | None = None

    @classmethod
    def read(cls, name: str, settings: Sequence[str]) -> "PolicyChoice":
        """Return what was chosen; raises PolicyError or ProctorError for what cannot be."""
        given = read_pairs(settings)
        if name in (OPENAI, MIXED) or (name == HUMAN and given):
            if "model" not in given:
                ModelSettings.from_dict({**given, "model": "any"})  # raises for a misspelt name
                raise PolicyError(f"the policy {name} needs a model: give --set model=NAME")
            return cls(name, ModelSettings.from_dict(given))
        if name != HUMAN and not is_simple(name):
            known = ", ".join(sorted((*OWN_POLICIES, *known_entry_points())))
            raise PolicyError(
                f"unknown policy {name!r}; choose from {known}, or give MODULE:CLASS or "
                "exec:COMMAND"
            )
        if given:
            raise PolicyError(
                f"the policy {name} takes no settings; leave out --set {', '.join(sorted(given))}"
            )
        return cls(name)

    @property
    def goes_back(self) -> bool:
        """Whether the policy needs rules that keep states."""
        return self.name in OWN_POLICIES and OWN_POLICIES[self.name].goes_back

    @property
    def records_calls(self) -> bool:
        """Whether the policy has a transcript."""
        return not is_simple(self.name)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as campaign.started holds them: nothing secret."""
        return {"name": self.name, **(self.settings.to_dict() if self.settings else {})}


def make_policy(
    choice: PolicyChoice,
    log: LedgerApplication,
    blobs: Blobs,
    run_id: UUID,
    told: Told = Told(),  # noqa: B008 - frozen
) -> Prepared:
    """Make a fresh policy for a run; a model is probed, and PolicyError raised if it cannot be."""
    if is_simple(choice.name):
        return Prepared(create_policy(choice.name))
    transcript = TranscriptLog(log, run_id)
    model = None
    if (settings := choice.settings) is not None:
        client = open_client(settings)
        answers = RecordedAnswers(log, client.endpoint)
        model = model_policy(
            settings, client=client, log=transcript, blobs=blobs, answers=answers, told=told
        )
    if choice.name == HUMAN:
        terminal = Terminal(sys.stdin, sys.stderr)  # standard output is the command's answer
        proposer = model or create_policy("playbook")
        return Prepared(HumanPolicy(proposer, console=terminal, log=transcript), transcript)
    assert model is not None, "read() has seen to it"
    if choice.name == MIXED:
        return Prepared(MixedPolicy(model, log=transcript), transcript)
    return Prepared(model, transcript)


def model_policy(
    settings: ModelSettings,
    *,
    client: Client,
    log: CallLog,
    blobs: Blobs,
    answers: Answers | None,
    told: Told,
    version: int = VERSION,
) -> LanguageModelPolicy:
    """Return the policy that asks a model, on the rung that a probe finds."""
    asker = Asker(settings, client=client, log=log, blobs=blobs, answers=answers, version=version)
    return LanguageModelPolicy(
        asker, rung=find_rung(asker), feedback=told.feedback, advice=told.advice
    )
