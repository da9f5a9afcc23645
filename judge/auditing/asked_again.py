"""Asks the policy that a run names once more, if it is built in and decides by itself.

Such a policy gives the same decisions whenever it is shown the same. So decisions in its name that
it does not make were made by somebody else. A fork has its parent's up to the epoch of the fork.

Source: docs/reference/audit.md, step 9.
Trust: what the run says of its policy is hostile.
I/O: none.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Protocol

from aggregates.decisions import PastDecision
from aggregates.forks import Fork
from aggregates.run import OWN_ENDS, Run
from judge.auditing.coverage import Violation
from judge.auditing.events import StreamEvents
from judge.auditing.replayed import Replay
from ledger.verification.verified_entries import VerifiedEntry
from ledger.wording import counted
from monitor.answering import Policy, answers_of
from monitor.errors import PolicyError

NOT_THE_POLICY = "not_the_policy"
_DECIDES = ("code_sha256", "libc", "machine", "python")  # what a policy's answers depend on
_Said = tuple[dict[str, Any], str]  # a decision, and by whom


class NamedPolicy(Protocol):
    """A policy as a run describes it."""

    @property
    def policy(self) -> Policy | None:
        """The policy; None if it is not built in, or cannot be asked again."""

    @property
    def given(self) -> AbstractSet[int]:
        """The epochs whose decisions were given to it: of these, a fork's own epoch counts."""

    @property
    def doubts(self) -> Sequence[str]:
        """What of the description cannot be checked."""


Named = Callable[[Mapping[str, Any]], NamedPolicy]
"""Returns the policy that a description names."""


def ask_again(
    replay: Replay,
    named: Named | None,
    *,
    fork: Fork | None,
    parent: Sequence[VerifiedEntry],
    environment: Mapping[str, Any],
) -> tuple[str, list[Violation], dict[str, Any]]:
    """Show a built-in policy what it was shown, and compare what it says with the record.

    Returns what the step's summary adds, the violations and the evidence. `parent` are the entries
    of the run that `fork` goes on from. Where `environment`, which is the judge's, differs from the
    recorded one in what such a policy depends on, other decisions are no violations: they are named
    as not checked.
    """
    if named is None:
        return "", [], {}
    run = replay.run
    found_policy = named(run.policy)
    policy, given, doubts = found_policy.policy, found_policy.given, [*found_policy.doubts]
    if policy is None:
        return "", [], {"unchecked": doubts} if doubts else {}
    name = policy.name
    if fork is not None and not fork.state:  # a resumed loop answers for all that it repeats
        fork = None
    first = 0 if fork is None else fork.epoch
    recorded = _by_epoch(run.decisions)
    asked, differing, repeated = 0, list[Violation](), list[int]()
    for epoch in range(first, replay.epochs):
        if epoch not in run.evaluations:
            continue
        if fork is not None and epoch == first and epoch in given:
            continue
        found = recorded.get(epoch, [])
        said = _says(policy, replay, epoch)
        asked += bool(said or found)
        here = [_said(past) for past in found]
        broken_off = epoch == replay.epochs - 1 and run.end_reason not in OWN_ENDS
        if here == said or (broken_off and here == said[: len(here)]):
            continue
        if fork is not None and here == _parents(parent, run.policy).get(epoch, []):
            repeated.append(epoch)
            continue
        differing += _violations(name, epoch, found, said)
    if repeated and fork is not None:
        doubts.append(
            f"the decisions of {counted(len(repeated), 'epoch')} repeat those that run "
            f"{fork.parent} recorded in the name of {name}; judge that run, too"
        )
    others = [
        key for key in _DECIDES if replay.started.environment.get(key) != environment.get(key)
    ]
    if differing and others:
        epochs = counted(len({each.epoch for each in differing}), "epoch")
        doubts.append(
            f"the policy {name} of this version makes other decisions in {epochs}, and the run was "
            f"made with another {', '.join(others)}: whether {name} made them cannot be told here"
        )
        told = f"; they are not those of this version's policy {name}"
        differing = []
    elif differing:
        told = f"; the policy {name}, asked again, makes other decisions"
    else:
        since = f" from epoch {first} on" if first else ""
        told = f"; the policy {name}, asked again{since}, makes the same"
        told = told if asked > len(repeated) else ""
    evidence = {"asked_again": {"policy": name, "epochs": asked, "same": not differing}}
    return told, differing, {**evidence, **({"unchecked": doubts} if doubts else {})}


def _says(policy: Policy, replay: Replay, epoch: int) -> list[_Said]:
    """Return what a policy answers in an epoch; nothing where it fails, which ends a run."""
    seen = replay.observation(epoch)
    if not seen.due:
        return []
    try:
        return [(each.decision.to_dict(), each.source) for each in answers_of(policy, seen)]
    except PolicyError:
        return []


def _said(past: PastDecision) -> _Said:
    return past.decision.to_dict(), past.source


def _by_epoch(decisions: Sequence[PastDecision]) -> dict[int, list[PastDecision]]:
    found: dict[int, list[PastDecision]] = {}
    for past in decisions:
        found.setdefault(past.epoch, []).append(past)
    return found


def _parents(
    entries: Sequence[VerifiedEntry], described: Mapping[str, Any]
) -> dict[int, list[_Said]]:
    """Return by epoch what a fork's parent recorded in the name of the same policy."""
    keys = ("event_type", "cites", "direction", "params", "justification")
    found: dict[int, list[_Said]] = {}
    for event in StreamEvents(entries):
        if type(event) is Run.Started and event.policy != described:
            return {}
        if type(event) is Run.DecisionMade:
            said = {key: getattr(event, key) for key in keys}
            found.setdefault(event.epoch, []).append((said, event.source))
    return found


def _violations(
    name: str, epoch: int, found: Sequence[PastDecision], said: Sequence[_Said]
) -> list[Violation]:
    """Return one violation for each decision that is not the policy's, and each that is missing."""
    own = [
        Violation(
            kind=NOT_THE_POLICY,
            rule=past.decision.cites[0] if past.decision.cites else None,
            epoch=epoch,
            decision=past.number,
            emitter=past.source,
            detail=f"decision {past.number} is not what the policy {name} says when it is asked "
            "again",
        )
        for past in found
        if _said(past) not in said
    ]
    answered = {rule for past in found for rule in past.decision.cites}
    missing = [
        Violation(
            kind=NOT_THE_POLICY,
            rule=rule,
            epoch=epoch,
            decision=None,
            emitter="policy",
            detail=f"the policy {name} answers {rule} when it is asked again; the run does not",
        )
        for decision, _ in said
        for rule in decision["cites"]
        if rule not in answered
    ]
    return own + missing
