"""`proctor fork --decision`, which trains: forks of a run, in pairs, and what they differ in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid5

from aggregates.credit import CHOSEN, NOTHING, RANDOM, Credit, Interval, Place
from aggregates.decisions import Decision, Observation, PastDecision, Said
from aggregates.playbook import DEFER, FRESH
from aggregates.run import OWN_ENDS, Run
from judge.auditing.process import measure_process
from judge.auditing.replay import replay_run
from judge.curation.intervals import LEVEL, interval, level_of
from ledger.application import LedgerApplication
from ledger.progress import advanced
from ledger.wording import counted
from policies.deciding.chance import RandomPolicy
from proctor.cli.command_group import Output
from proctor.cli.fork_jobs import ending, forked
from proctor.cli.forking import ForkOptions
from proctor.cli.jobs import verify_ready
from proctor.environment.choices import choices_on, fitting
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.output.columns import Shows
from proctor.output.terminal import (
    console,
    print_rows,
    print_table,
    print_words,
    tell_part,
    warn,
)
from proctor.remembering import ask, open_remembered
from proctor.runs.executors import Executor, open_executor
from proctor.runs.forks import Origin, Parent, find_origin, read_parent
from proctor.runs.jobs import Job
from proctor.runs.policies import PolicyChoice
from proctor.runs.replay import read_streams
from proctor.runs.shapes import Credit as Told
from proctor.runs.shapes import CreditFork, CreditRow
from proctor.runs.standings import told_difference

_STANDING = (
    "SELECT decision, arm, backed, better, why_not, measurements, looks, orders FROM "
    "decision_credit "
    "WHERE credit_id = ?"
)


_DRAWS = 100  # of the random policy, until it acts
_WORDS = "In the place of a recorded decision, to measure what that was worth."  # of all arms


@dataclass(frozen=True)
class Question:
    """A decision with what could have been said in its place."""

    past: PastDecision
    arms: Mapping[str, Decision]


def credit(home: Home, name: str, numbers: Sequence[int], asked: ForkOptions) -> Output:
    """Measure the decisions of a run, or show what was measured by the same command before."""
    then = asked.then or "nothing"
    parent = read_parent(home, name)
    questions = find_questions(parent, numbers, asked.against or [])
    choice = PolicyChoice.read(then, ())
    if choice.records_calls or then.startswith("exec:"):
        raise ProctorError(
            f"--then {then}: choose a policy that asks nobody, as nothing or playbook"
        )
    verify_ready(home, choice, campaign=False)
    plan = {str(each.past.number): list(each.arms) for each in questions}
    measured = Credit.start(
        str(parent.run.id), after=then, seeds=range(asked.orders or 5), arms=plan
    )
    with (
        home.alone("measuring", str(measured.id), say=warn),
        home.open_log() as log,
    ):
        measured = log.find(measured.id, Credit) or measured
        if not measured.ended:
            with open_executor(asked.executor, home, log, workers=asked.workers) as opened:
                _measure(
                    *(home, log, opened, parent, measured, questions, choice),
                    from_start=asked.from_start,
                )
        results = [e for e in log.events.get(measured.id) if type(e) is Credit.Measured]
    rows = ask(home, _STANDING, measured.id)
    standing = {(row.pop("decision"), row.pop("arm")): row for row in rows}
    return _output(parent, measured, results, standing)


def find_questions(
    parent: Parent, numbers: Sequence[int], against: Sequence[str]
) -> list[Question]:
    """Return the decisions to be measured with their alternatives; raises ProctorError."""
    run = parent.run
    known = {past.number: past for past in run.decisions}
    if wrong := [number for number in numbers if number not in known]:
        raise ProctorError(
            f"run {run.id} has no decision {wrong[0]}: it has {counted(len(known), 'decision')}, "
            "numbered from 1"
        )
    chosen = [known[number] for number in dict.fromkeys(numbers)]
    everything = not numbers
    if everything:
        acted = [past for past in run.decisions if past.outcome in ("applied", "restart")]
        chosen = [past for past in acted if not _undoes(past)]
        if left := [str(past.number) for past in acted if _undoes(past)]:
            warn(f"not measured: decision {', '.join(left)}, which goes back to an earlier epoch")
    if undone := [past.number for past in chosen if _undoes(past)]:
        raise ProctorError(
            f"decision {undone[0]} goes back to an epoch before its own, of which a fork has no "
            "state: what it was worth cannot be measured by forks; compare policies instead"
        )
    if not chosen:
        raise ProctorError(
            f"run {run.id} has no decision that was carried out and can be measured: name another "
            "with --decision NUMBER"
        )
    if {"task", "level"} & set(run.config):
        raise ProctorError(
            f"run {run.id} is a task's or a watched loop's: only runs of the built-in model can be "
            "forked; train one with `proctor run`"
        )
    replay = replay_run(parent.entries)
    found = []
    for past in chosen:
        arms = alternatives(past, replay.observation(past.epoch))
        unknown = [name for name in against if name not in arms]
        if unknown and not (everything and unknown == [RANDOM]):  # chance has nothing else to say
            raise ProctorError(
                f"{unknown[0]!r} is no alternative to decision {past.number}; choose from "
                f"{', '.join(arms)}"
            )
        asked = against or [name for name in arms if name != RANDOM]
        found.append(Question(past, {name: arms[name] for name in arms if name in asked}))
    return [question for question in found if question.arms]


def alternatives(past: PastDecision, seen: Observation) -> dict[str, Decision]:
    """Return what the playbook allows in a decision's place, nothing and a random answer, by name.

    An alternative that does exactly what the decision did is none.
    """
    rules = [rule for rule in past.decision.cites if rule in seen.due]
    found = {NOTHING: Decision.of(past.decision.cites, DEFER, {}, _WORDS)}
    for rule in rules:
        for name, decision in choices_on(rule, seen).items():
            if decision.acts:
                found.setdefault(name, decision)
    own = past.decision
    found |= _drawn(rules, seen, own)
    return {
        name: replace(decision, justification=_WORDS)
        for name, decision in found.items()
        if (decision.direction, decision.params) != (own.direction, own.params)
        and (decision.acts or own.acts)
    }


def _drawn(rules: Sequence[str], seen: Observation, own: Decision) -> dict[str, Decision]:
    """Return what the random policy draws for these rules: the first act that is another one."""
    for seed in range(_DRAWS):
        for drawn in RandomPolicy(seed).decide(seen):
            other = (drawn.direction, drawn.params) != (own.direction, own.params)
            if drawn.acts and other and set(drawn.cites) <= set(rules) and fitting(drawn, seen):
                return {RANDOM: drawn}
    return {}


def _measure(
    home: Home,
    log: LedgerApplication,
    executor: Executor,
    parent: Parent,
    measured: Credit,
    questions: Sequence[Question],
    choice: PolicyChoice,
    *,
    from_start: bool,
) -> None:
    total = len(measured.seeds) * sum(1 + len(each.arms) for each in questions)
    places: list[tuple[Origin, Question, Place]] = []
    for question in questions:
        past = question.past
        missing = [
            place
            for seed in measured.seeds
            for arm in (CHOSEN, *question.arms)
            if (place := Place(past.number, arm, seed)) not in measured.forks
        ]
        if missing:
            origin = find_origin(home, parent, past.epoch, from_start=from_start)
            places += [(origin, question, place) for place in missing]

    def job_of(fork: tuple[Origin, Question, Place]) -> Job:
        origin, question, place = fork
        past = question.past
        decision = past.decision if place.arm == CHOSEN else question.arms[place.arm]
        run, said = _run_of(log, measured, place), _said(parent, past, decision)
        return origin.job(home, run=run, order=place.seed, said=said, then=choice)

    log.save(measured)
    advanced("forks", len(measured.forks), total)
    hint = "; the same command continues"
    for (_, _, place), run_id in forked(executor, places, job_of, hint=hint):
        run: Run = log.repository.get(run_id)
        measured.record_fork(*place, **{**ending(log, run), **_process(home, run.id)})
        log.save(measured)
        advanced("forks", len(measured.forks), total)
        found = measured.forks[place]
        what = f"decision {place.decision}, {place.arm}, order {place.seed}"
        loss, accuracy = f"{found.val_loss:.4f}", f"{found.val_accuracy:.4f}"
        tell_part(
            "fork", len(measured.forks), total, f"{what}: val loss {loss}, accuracy {accuracy}"
        )
    for question in questions:
        for arm, decision in question.arms.items():
            if (question.past.number, arm) not in measured.measured:
                _compare(measured, question.past, arm, decision)
                log.save(measured)
    measured.end()
    log.save(measured)


def _run_of(log: LedgerApplication, measured: Credit, place: Place) -> str:
    """Return the run of a fork: the one that was trained, or the first that has not begun."""
    number = 0
    while True:
        run_id = uuid5(measured.id, f"{place.decision} {place.arm} {place.seed} {number}")
        run = log.find(run_id, Run)
        if run is None or run.end_reason in OWN_ENDS:
            return str(run_id)
        number += 1  # it was cut off


def _process(home: Home, run: UUID) -> dict[str, int]:
    with open_remembered(home) as ledger:
        found = measure_process(read_streams(ledger, {run})[run])
    return {"obligations": found.obligations, "violations": found.violations}


def _said(parent: Parent, past: PastDecision, decision: Decision) -> list[Said]:
    """Return the answers to the decision's epoch with this one in its place."""
    answers = [each for each in parent.run.decisions if each.epoch == past.epoch]
    return [
        Said(each.decision, each.source) if each.number != past.number else Said(decision)
        for each in answers
    ]


def _undoes(past: PastDecision) -> bool:
    """Return whether a decision goes back to a state that a fork at its epoch does not have."""
    return past.decision.back not in (None, FRESH, past.epoch)


def _compare(measured: Credit, past: PastDecision, arm: str, decision: Decision) -> None:
    pairs = [
        [measured.forks[Place(past.number, each, seed)] for each in (CHOSEN, arm)]
        for seed in measured.seeds
    ]
    measured.measure(
        past.number,
        arm,
        epoch=past.epoch,
        chosen=past.decision.to_dict(),
        other=decision.to_dict(),
        level=LEVEL,
        loss=vars(interval([other.val_loss - chosen.val_loss for chosen, other in pairs])),
        accuracy=vars(
            interval([chosen.val_accuracy - other.val_accuracy for chosen, other in pairs])
        ),
    )


def _output(
    parent: Parent,
    measured: Credit,
    results: Sequence[Any],
    standing: Mapping[tuple[int, str], Mapping[str, Any]],
) -> Output:
    forks = [CreditFork.of(place, found) for place, found in measured.forks.items()]
    rows = [
        CreditRow.of(
            standing[each.decision, each.arm],
            each,
            loss=Interval(**each.loss),
            accuracy=Interval(**each.accuracy),
        )
        for each in results
    ]
    found = Told(
        credit=measured.id,
        run=parent.run.id,
        then=measured.after,
        seeds=measured.seeds,
        decisions=rows,
        forks=forks,
    )

    def tell() -> None:
        print_rows(_COLUMNS, rows, title=f"credit of run {parent.run.id}")
        for row in rows:
            if row.backed and row.why_not is not None:
                print_words(
                    f"decision {row.decision} beside {row.arm} decides nothing here: {row.why_not}"
                )
            elif row.looks > 1:
                print_words(
                    f"decision {row.decision} beside {row.arm}: one of "
                    f"{row.looks} measurements of the same, with other orders or another "
                    "policy after it; `proctor export data --measured` uses intervals of "
                    f"{level_of(row.looks):.1%} in place of {LEVEL:.0%}"
                )
        violations = {
            arm: sum(each.violations for each in forks if each.arm == arm)
            for arm in dict.fromkeys(each.arm for each in forks)
        }
        console.print()
        print_table(("arm", "violations of the process"), violations.items())
        console.print(
            "\nvalidation loss and accuracy of the last epoch, over "
            f"{counted(len(measured.seeds), 'order')} of the examples; 95% intervals, each by "
            f"itself; the policy `{measured.after}` decides after the decision\n"
            "better: the interval of loss or of accuracy excludes 0, and the other one does not "
            "exclude it on the other side"
        )

    unbacked = sum(not row.backed for row in rows)
    note = (
        f"not backed: {counted(unbacked, 'row')} that the ledger's forks contradict; somebody "
        "with the ledger's key has recorded what no training came to"
    )
    return Output(found, tell, found=bool(unbacked), note=note if unbacked else "")


def _told(found: Interval) -> str:
    told = told_difference(found.difference, found.low, found.high, digits=4)
    return told or "not finite"


_COLUMNS: Mapping[str, Shows] = {
    "decision": "decision",
    "epoch": "epoch",
    "chosen": lambda row: row.chosen["direction"],
    "instead": "arm",
    "accuracy gained": lambda row: _told(row.accuracy),
    "loss saved": lambda row: _told(row.loss),
    "better": lambda row: (row.better or "undecided") if row.backed else "not backed",
}
