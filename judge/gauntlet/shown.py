"""What an operator is shown of a proposal, and the digest by which an approval names it.

The words of a proposal and the changes that it makes are carried to an operator as files. An
approval names the digest of what was shown, so that nobody on the way can show something else.

Source: docs/reference/gauntlet.md, "Approvals".
I/O: reads the repository and the blobs that are passed in.
"""

import difflib
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from aggregates.errors import WeightsError
from aggregates.improvement.proposal import Proposal
from aggregates.weights import describe_tensors
from judge.gauntlet.errors import GauntletError
from judge.gauntlet.repository.changes import EXECUTABLE, FILE, check_changes
from judge.gauntlet.repository.git import Repository
from judge.gauntlet.repository.lint import check_changed
from judge.gauntlet.repository.manifest import PATH, parse_manifest
from ledger.blobs import Blobs

FACTS = (
    "base",
    "diff",
    "evidence",
    "line",
    "proposal",
    "proposer",
    "rationale",
    "targets",
    "tier",
    "trigger",
)
"""What is shown of a proposal's own words, and never changes."""


def facts(proposal: Proposal) -> dict[str, Any]:
    """Return what a proposal says of itself, by the names in FACTS."""
    own = {"proposal": str(proposal.id), "tier": min(proposal.targets.values())}
    return {name: own[name] if name in own else getattr(proposal, name) for name in FACTS}


def applied(repository: Repository, blobs: Blobs, proposal: Proposal) -> str:
    """Return what a proposal does to the files, whatever its diff looks like; or why nothing.

    It begins with what the lint finds in a change of tier 1, which an approval accepts.
    """
    try:
        manifest = parse_manifest(repository.read(proposal.base, PATH))
        diff = blobs.get(proposal.diff)
        tree = repository.candidate_tree(proposal.base, diff, binary=manifest.is_weights)
    except GauntletError as error:
        return f"the diff cannot be applied: {error}"
    changes = repository.changes(proposal.base_tree, tree)
    try:
        verdict = check_changes(changes, proposal.targets, manifest, repository.paths(tree))
        _, accepted = check_changed(
            repository, proposal.base, tree, changes, verdict, manifest=manifest
        )
    except GauntletError:  # it gets no further, and its stage says why
        accepted = []
    parts = [f"to accept: {each}" for each in accepted]
    for change in changes:
        told = _told_weights if manifest.is_weights(change.path) else _told_text
        before, after = (
            # What is no plain file is told by its mode.
            told(repository.read(at, change.path)) if mode in (FILE, EXECUTABLE) else []
            for at, mode in ((proposal.base_tree, change.old_mode), (tree, change.new_mode))
        )
        lines = difflib.unified_diff(before, after, change.path, change.path, lineterm="")
        parts += [f"{change.kind} {change.path}, mode {change.new_mode}", *lines]
    text = "\n".join(parts)
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def digest_of_shown(told: Mapping[str, Any], *, changes: str) -> str:
    """Return the SHA-256 of a proposal's FACTS and of the changes that applied() tells."""
    whole = {"applied": changes, **{name: told[name] for name in FACTS}}
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()


def _told_weights(data: bytes) -> list[str]:
    """Return what there is to read of a model's parameters: nobody reads the numbers themselves."""
    told = [f"{len(data)} bytes, SHA-256 {hashlib.sha256(data).hexdigest()}"]
    try:
        return told + describe_tensors(data)
    except WeightsError as error:
        return [*told, str(error)]


def _told_text(data: bytes) -> list[str]:
    """Return a file's lines, which end at line feeds only, so that no other mark hides a change."""
    lines = data.decode(errors="replace").split("\n")
    return lines[:-1] if lines[-1] == "" else [*lines[:-1], f"{lines[-1]} (no line feed)"]
