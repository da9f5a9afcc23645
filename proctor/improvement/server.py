"""The language model that answers a line's reference tasks, the same for base and candidate.

Its settings lie in the home, beside the line's other files, as infra/LINE/server.json: which
machine serves a model is no property of the repository. Every call is in a transcript in the
ledger, with both bodies as blobs. Both arms are asked at temperature 0 with the pair's seed.

Trust: what the server answers is handed to the candidate as it is.
I/O: the endpoint, the log and the blobs; one file in the home.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from aggregates.canonical import digest
from judge.gauntlet.errors import CandidateError, GauntletError
from judge.gauntlet.tasks.hidden_tests import Said
from ledger.application import LedgerApplication
from ledger.blobs import Blobs
from policies.asking.ask import Asker, find_rung, open_client
from policies.asking.settings import ModelSettings
from policies.errors import PolicyError
from proctor.improvement.proposers import ProposalTranscript

MODE = "reference_tasks"
_SAID = ("usable", "unusable", "refused", "truncated")  # outcomes that are the model's own


@dataclass
class LineServer:
    """Asks the server that is configured for a line; connects when it is first asked."""

    settings: ModelSettings
    line: UUID
    log: LedgerApplication
    blobs: Blobs

    def __post_init__(self) -> None:
        self.seconds = self.settings.timeout

    def ask(self, messages: list[dict[str, str]], schema: dict[str, Any], /, *, seed: int) -> Said:
        """Return the model's answer; CandidateError: the request itself was refused."""
        asker, rung = self._connected
        try:
            asked = asker.ask(
                rung,
                messages,
                schema,
                lambda value: (value, None, True),
                agent="solver",
                action="propose",
                seed=seed,
            )
        except ValueError as error:
            raise CandidateError("the request to the language model cannot be written") from error
        if asked.outcome == "rejected":
            raise CandidateError(
                f"the server refuses the request with status {asked.answer.status}"
            )
        if asked.outcome not in _SAID:
            raise GauntletError(
                f"{asker.endpoint} did not answer a reference task: {asked.problem}; start the "
                "server, then continue with `proctor line run`"
            )
        usage = asked.answer.usage or {}
        return Said(
            rung=rung,
            message=dict(asked.answer.message),
            prompt_tokens=usage.get("prompt_tokens"),
            tokens=usage.get("completion_tokens"),
            limit=self.settings.max_tokens,
        )

    @cached_property
    def _connected(self) -> tuple[Asker, str]:
        said = self.settings.to_dict()
        stream = uuid5(self.line, f"{MODE} {digest(said)}")
        try:
            client = open_client(self.settings)
            log = ProposalTranscript(self.log, stream, policy={"name": MODE, **said}, mode=MODE)
            asker = Asker(self.settings, client=client, log=log, blobs=self.blobs)
            return asker, log.rung or find_rung(asker)
        except PolicyError as error:
            raise GauntletError(
                f"the server of the line's reference tasks does not answer: {error}; see `proctor "
                "line init FOLDER --server KEY=VALUE`"
            ) from error


def read_server(file: Path) -> ModelSettings | None:
    """Return the settings in a line's file; None where no server is configured."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return ModelSettings.from_dict(json.loads(text))


def write_server(file: Path, given: Mapping[str, Any] | None) -> ModelSettings | None:
    """Write the settings into a line's file, or remove it."""
    if given is None:
        file.unlink(missing_ok=True)
        return None
    said = {"temperature": 0.0, **given}
    settings = ModelSettings.from_dict(said)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(said, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return settings
