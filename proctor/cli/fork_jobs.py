"""`proctor fork`, which trains."""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID, uuid4

from aggregates.decisions import Said, parse_decision
from aggregates.errors import AggregateError
from aggregates.run import Run
from judge.auditing.reexecution import verify_epoch
from ledger.application import LedgerApplication
from ledger.progress import advanced
from proctor.cli.command_group import Output
from proctor.cli.forking import ForkOptions
from proctor.cli.jobs import verify_ready
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.inputs import read_text
from proctor.output.progress import unseen
from proctor.output.terminal import console, print_rows, warn
from proctor.runs.executors import Executor, open_executor, trained
from proctor.runs.forks import Parent, find_origin, read_parent
from proctor.runs.jobs import Job
from proctor.runs.policies import HUMAN, MIXED, OPENAI, PolicyChoice
from proctor.runs.progress import watching
from proctor.runs.run_settings import DEFAULT_POLICY
from proctor.runs.shapes import Forked, ForkRow

P = TypeVar("P")
RECORDED = "recorded"  # the policy that decides as the run's record says


def fork(home: Home, name: str, asked: ForkOptions) -> Output:
    """Train forks of a run and tell what they came to."""
    epoch, decisions, sets = asked.at, asked.files or [], asked.sets or []
    assert epoch is not None  # by its verify()
    policies = asked.policies or ([] if decisions else [DEFAULT_POLICY])
    then = asked.then or DEFAULT_POLICY
    parent = read_parent(home, name)
    verify_epoch(parent.events, epoch)  # before a decision on it is looked at
    names = (*policies, *((then,) if decisions else ()))
    asking = {OPENAI, MIXED, HUMAN}  # those that take settings
    if sets and asking.isdisjoint(names):
        raise ProctorError(f"{' and '.join(names)}: no such policy takes settings; leave out --set")
    chosen = {
        policy: None
        if policy == RECORDED
        else PolicyChoice.read(policy, sets if policy in asking else ())
        for policy in names
    }
    said = {path: read_decisions(path, parent, epoch) for path in decisions}
    for choice in filter(None, chosen.values()):
        verify_ready(home, choice, campaign=False)
    found: dict[int, ForkRow] = {}
    with (
        home.open_log() as log,
        unseen(when=HUMAN in names),
        open_executor(
            asked.executor, home, log, watching=watching(), choices=[*filter(None, chosen.values())]
        ) as opened,
    ):
        warn(f"the state of run {parent.run.id} after epoch {epoch}")
        origin = find_origin(home, parent, epoch, from_start=asked.from_start)
        forks = [(policy, list[Said](), chosen[policy]) for policy in policies]
        forks += [(str(path), said[path], chosen[then]) for path in decisions]
        planned = [(*fork, order) for fork in forks for order in range(asked.orders or 1)]

        def job_of(place: int) -> Job:
            _, given, choice, order = planned[place]
            return origin.job(home, run=str(uuid4()), order=order, said=given, then=choice)

        advanced("forks", 0, len(planned))
        for place, run_id in forked(opened, range(len(planned)), job_of):
            label, _, _, order = planned[place]
            run: Run = log.repository.get(run_id)
            found[place] = ForkRow.of(ending(log, run), decided_by=label, order=order)
            advanced("forks", len(found), len(planned))
    rows = [found[place] for place in sorted(found)]
    told = Forked.of(origin, origin.rebuilt, parent=parent.run.id, forks=rows)

    def tell() -> None:
        print_rows(ForkRow.__struct_fields__, rows)
        console.print(f"forks of run {parent.run.id}, equal to it up to the state of epoch {epoch}")

    return Output(told, tell)


def forked(
    executor: Executor, places: Iterable[P], job_of: Callable[[P], Job], *, hint: str = ""
) -> Iterator[tuple[P, UUID]]:
    """Train a fork for each place, and yield it with its run once that is trained.

    `job_of` makes the job of a place, and another one where its process was lost.
    """
    at: dict[str, P] = {}  # the place of a run

    def make(place: P) -> Job:
        job = job_of(place)
        at[job.run] = place
        return job

    jobs = [make(place) for place in places]
    again = trained(executor, jobs, lambda job: make(at[job.run]), what="a fork", hint=hint)
    with closing(again) as done:
        for job in done:
            yield at[job.run], UUID(job.run)


def ending(log: LedgerApplication, run: Run) -> dict[str, Any]:
    """Return what a run came to, by its last epoch."""
    epochs = (each for each in log.events.get(run.id) if type(each) is Run.EpochMeasured)
    *_, last = epochs
    return {
        "run": str(run.id),
        "end_reason": run.end_reason,
        "epochs": run.epoch + 1,
        "val_loss": last.measured["validation"]["loss"],
        "val_accuracy": last.measured["validation"]["accuracy"],
    }


EXAMPLE = (
    '{"event_type": "hyperparameter_change", "cites": ["R1"], "direction": "stop", "params": {}, '
    '"justification": "why"}'
)


def read_decisions(path: Path, parent: Parent, epoch: int) -> list[Said]:
    """Return the decisions of a JSON file on an epoch; raises ProctorError naming what is wrong."""
    try:
        found = json.loads(read_text(path))
        decisions = [
            parse_decision(each) for each in (found if isinstance(found, list) else [found])
        ]
    except (ValueError, RecursionError) as error:
        raise ProctorError(
            f"{path} is not JSON: {error}. Write a decision into it, or a list of them, such as "
            f"{EXAMPLE}"
        ) from error
    except AggregateError as error:
        raise ProctorError(f"{path}: {error}") from error
    if not decisions:
        raise ProctorError(f"{path}: no decision; give one, or a list of them")
    if any(each in decisions[:place] for place, each in enumerate(decisions)):
        raise ProctorError(f"{path}: the same decision twice; leave one out")
    run = parent.run
    asked = [each for each, rules in enumerate(run.fired_rules) if {*rules} - {*run.waived}]
    if epoch not in asked:
        where = f"one fired in the epochs {', '.join(map(str, asked))}: give one of them as --at"
        raise ProctorError(
            f"{path}: no rule that needs an answer fired in epoch {epoch}, so the fork would not "
            f"ask for a decision; {where if asked else 'none fired in this run: use --policy'}"
        )
    window = range(epoch - parent.run.rules.action_window, epoch + 1)
    fired = {rule for each in window for rule in parent.run.fired(each)}
    for decision in decisions:
        if false := [rule for rule in decision.cites if rule not in fired]:
            raise ProctorError(
                f"{path}: {', '.join(false)} did not fire in epoch {epoch} or shortly before; "
                f"fired: {', '.join(sorted(fired)) or 'none'}"
            )
    return [Said(decision) for decision in decisions]
