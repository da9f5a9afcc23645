"""The stages from a proposal's submission to its tests: its changes, its branch, the suite.

Each does its work and records it with its evidence. What has been recorded is not done again; what
has not is done from the start, in folders that are gone when the process is.

Source: docs/reference/gauntlet.md, "Stages".
Trust: diffs and whatever they make of the repository are hostile.
I/O: the workplace; processes for tests and tasks.  Units: seconds, bytes.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from aggregates.improvement.proposal import Proposal
from judge.gauntlet.arms import verify_ready
from judge.gauntlet.errors import GauntletError
from judge.gauntlet.records import ProposalIndex
from judge.gauntlet.repository import lint
from judge.gauntlet.repository.changes import PathChange, Verdict, check_changes
from judge.gauntlet.repository.failures import explained, on_one_line
from judge.gauntlet.repository.git import PROPOSALS
from judge.gauntlet.testing.plants import PLANTED
from judge.gauntlet.testing.suite import Suite, SuiteResult
from judge.gauntlet.workplace import Workplace

MOST_PROBLEMS = 20  # of the lint, that are told
_MAX_MESSAGE = 500  # characters of the rationale


@dataclass(frozen=True, kw_only=True)
class Examined:
    """What a proposal really comes to."""

    tree: str
    changes: tuple[PathChange, ...]
    verdict: Verdict
    problems: tuple[str, ...]  # that the lint has found


def examine(place: Workplace, proposal: Proposal) -> Examined:
    """Apply the diff to a tree of its own and look at what it touches.

    Raises DiffError where it does not apply, TierError where it touches what it must not.
    """
    repository, manifest = place.repository, place.manifest(proposal.base)
    tree = repository.candidate_tree(
        proposal.base, place.blobs.get(proposal.diff), binary=manifest.is_weights
    )
    changes = repository.changes(proposal.base_tree, tree)
    verdict = check_changes(changes, proposal.targets, manifest, repository.paths(tree))
    problems, _ = lint.check_changed(
        repository, proposal.base, tree, changes, verdict, manifest=manifest
    )
    return Examined(tree=tree, changes=changes, verdict=verdict, problems=tuple(problems))


def branch(place: Workplace, proposal: Proposal, found: Examined, *, against: str) -> None:
    """Put the candidate on a branch of its own; `against` is the commit that it has to beat."""
    name = f"{PROPOSALS}{proposal.id}"
    commit = place.repository.commit(
        found.tree,
        proposal.base,
        _message(proposal),
        int(proposal.created_on.timestamp()),
    )
    place.repository.set_branch(name, commit)
    record(
        place,
        proposal,
        lambda each: each.record_branch(
            name,
            commit=commit,
            tree=found.tree,
            changes=[asdict(change) for change in found.changes],
            tier=found.verdict.tier,
            configuration_only=found.verdict.configuration_only,
            manifest=place.manifest(proposal.base).sha256,
            reference_set=place.reference_set(proposal.base).sha256,
            against=against,
        ),
    )


def _message(proposal: Proposal) -> str:
    """Return the commit's message: the rationale's words are others', and go to terminals."""
    said = "".join(c if c.isprintable() else " " for c in proposal.rationale.strip())
    return f"{said[:_MAX_MESSAGE]}\n\nProposal: {proposal.id}\n"


def test(place: Workplace, records: ProposalIndex, proposal: Proposal) -> None:
    """Run the base's tests against the candidate: all, or those that the change can reach.

    The base's own outcomes are known if it was tested before, as a base or as a candidate.
    """
    place.tell(str(proposal.id), "testing")
    with _suite(place, proposal) as suite:
        choice = suite.choose(str(proposal.commit))
        left_out = () if choice is None else choice.left_out
        known = records.expected_cases(base=proposal.base)
        if known is None:
            place.tell(str(proposal.id), "testing the line first, whose tests have not run yet")
            known = _put_cases(place, base_cases(suite))
        if choice is not None:
            place.tell(str(proposal.id), f"testing: {choice.reason}")
        run = partial(suite.run, str(proposal.commit), without=left_out)
        found, known = _held_against(place, proposal, known, suite=suite, run=run)
        if "passed" not in found.cases.values():
            verify_ready(place, proposal.base)  # else the environment is to blame
        fixes: tuple[str, ...] = ()
        if found.passed and found.added:
            place.tell(str(proposal.id), "testing what the added tests say without the change")
            fixes = suite.fixes(
                str(proposal.commit),
                against=str(proposal.against),
                added=found.added,
                pairs=place.settings.confirmed,
                random=place.random,
            )
    told = _kept(place, found, {PLANTED: "failed"} if found.planted else {})
    record(
        place,
        proposal,
        lambda each: each.record_tests(
            **told,
            added=found.added,
            expected=known,
            left_out=left_out,
            choice=None if choice is None else choice.reason,
            fixes=fixes,
        ),
    )
    place.tell(str(proposal.id), f"tested: {_said_of(found)}")


def test_rest(place: Workplace, proposal: Proposal) -> None:
    """Run the tests that were left out; after that the whole suite has run on the candidate."""
    assert proposal.expected is not None
    assert proposal.outcomes is not None
    count = len(proposal.left_out)
    place.tell(str(proposal.id), f"testing the {count} test files that were left out")
    with _suite(place, proposal) as suite:
        run = partial(suite.run_rest, str(proposal.commit), left_out=proposal.left_out)
        found, _ = _held_against(place, proposal, proposal.expected, suite=suite, run=run)
    told = _kept(place, found, json.loads(place.blobs.get(proposal.outcomes)))
    record(place, proposal, lambda each: each.record_rest(**told))
    place.tell(str(proposal.id), f"tested: {_said_of(found)}")


@contextmanager
def _suite(place: Workplace, proposal: Proposal) -> Iterator[Suite]:
    with place.scratch() as scratch:
        yield Suite(
            repository=place.repository,
            base=proposal.base,
            manifest=place.manifest(proposal.base),
            workspace=scratch,
        )


def _kept(place: Workplace, found: SuiteResult, others: Mapping[str, str]) -> dict[str, Any]:
    """Return what is recorded of a run of tests, whose output and outcomes become blobs.

    `others`: the outcomes of other cases.
    """
    return {
        "passed": found.passed,
        "problem": found.problem,
        "cases": len(found.cases),
        "missing": found.missing,
        "seconds": found.seconds,
        "output": place.blobs.put(found.output),
        "isolation": found.isolation,
        "leftovers": found.leftovers,
        "flaky": found.flaky,
        "outcomes": _put_cases(place, {**others, **found.cases}),
    }


def _put_cases(place: Workplace, cases: Mapping[str, str]) -> str:
    return place.blobs.put(json.dumps(cases, sort_keys=True).encode())


def _held_against(
    place: Workplace,
    proposal: Proposal,
    known: str,
    *,
    suite: Suite,
    run: Callable[..., SuiteResult],
) -> tuple[SuiteResult, str]:
    """Run tests against the base's cases, of which `known` is the blob; return also the blob used.

    If nothing but cases is missing, the base runs again: those that it no longer has itself have
    names that change from run to run, and are expected of nobody.
    """
    expected = json.loads(place.blobs.get(known))
    found = run(expected=expected)
    if not found.only_missing:
        return found, known
    place.tell(str(proposal.id), f"{len(found.missing)} cases are missing; testing the line again")
    gone = set(found.missing) - base_cases(suite).keys()
    steady = {case: outcome for case, outcome in expected.items() if case not in gone}
    if not gone:
        return found, known
    return run(expected=steady), _put_cases(place, steady)


def _said_of(found: SuiteResult) -> str:
    if found.problem is not None:
        return found.problem
    flaky = f", {len(found.flaky)} of them only when run again" if found.flaky else ""
    planted = f"{found.planted} planted ones failed as they must"
    return f"{len(found.cases)} cases passed{flaky}, {planted}, in {found.seconds:.0f} s"


def base_cases(suite: Suite) -> Mapping[str, str]:
    """Return how a base's own tests end; raise GauntletError where they do not pass."""
    own = suite.run_on_base()
    if own.problem is not None:
        said = explained(own.output, suite.repository, suite.base, suite.manifest)
        raise GauntletError(
            f"the line's own tests fail at {suite.base}: {own.problem}: {said}. "
            f"Their output ends: {on_one_line(own.output)}"
        )
    return own.cases


def record(place: Workplace, proposal: Proposal, change: Callable[[Proposal], None]) -> Proposal:
    """Record a change of a proposal, and return it as it is then; reviews may come in between."""
    fresh: Proposal | None = None

    def make() -> list[Proposal]:
        nonlocal fresh
        fresh = proposal if fresh is None else place.proposal(proposal.id)
        change(fresh)
        return [fresh]

    place.save(make)
    assert fresh is not None
    return fresh
