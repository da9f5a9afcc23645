"""Makers of reference tasks about a run so far: evidence, prompts, hindsight.

The same random numbers give the same task, byte for byte.
I/O: none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from aggregates.decisions import Observation, PastDecision
from aggregates.firing import evaluate_rules
from aggregates.rulebook import fired_in_precedence
from aggregates.rules import FIRST_RULES, AppliedRemedy
from aggregates.signals import EpochSignals
from aggregates.strategy import remedy_effects
from judge.reference.observations import to_plain
from judge.reference.rules import REFERENCE_RULES
from judge.reference.situations import digits, healthy, observe
from studies.reference.making import Made, any_side, past_decision


def make_evidence(rng: Random, difficulty: str) -> Made:
    """What is shown of a long run in little room."""
    cases, needed = [], []
    strange = {"R7": "not_finite"}  # fires at once: no epoch before it belongs to its streak
    for what, tight, fired in (
        ("epochs", False, _some(rng, 1)),
        ("decisions", False, _some(rng, 2)),
        ("epochs", True, _some(rng, 1)),
        ("epochs", True, {**_some(rng, 2), **strange}),
        ("epochs", True, strange),
        ("decisions", True, _some(rng, 1)),
        ("decisions", True, _some(rng, 3)),
    ):
        if tight and difficulty != "hard":
            continue
        run = _long_run(rng, fired)
        first, second = run.epochs if what == "epochs" else run.decisions
        if what == "epochs":
            sizes = {signals.epoch: rng.randint(90, 150) for signals in run.seen.history}
        else:
            sizes = {past.number: rng.randint(60, 500) for past in run.seen.decisions}
        wanted = sorted(first if tight else {*first, *second})
        room = {"easy": 1_500, "medium": 200}.get(difficulty, 0)
        cases.append(
            {
                "what": what,
                "observation": to_plain(run.seen),
                "sizes": sizes,
                "rows": len(sizes),
                "most": sum(sizes[each] for each in wanted) + room,
            }
        )
        needed.append(wanted)
    return Made(
        kind="evidence",
        scorer="evidence",
        expected={"needed": needed},
        categories=("evidence", "cap"),
        description="What bears on the due rules is chosen from a long run, within so many bytes",
        outcome="everything that bears on the due rules is shown, and the cap is kept",
        files={"cases.json": cases},
    )


def _some(rng: Random, count: int) -> dict[str, str]:
    """Return so many rules that fire, each on one of its sides, and none at once."""
    chosen = {rule: any_side(rng, rule) for rule in rng.sample(FIRST_RULES, count)}
    return {**chosen, "R7": "high"} if "R7" in chosen else chosen


def make_prompt(rng: Random, difficulty: str) -> Made:
    """What a prompt shows of a run that is longer than there is room for."""
    cases, expected = [], []
    for _ in range(2):
        run = _long_run(rng, _some(rng, {"easy": 1, "medium": 2}.get(difficulty, 3)))
        last = {past.number for past in run.seen.decisions[-8:]}
        cases.append({"observation": to_plain(run.seen), "history": 100})
        words = [f"reason {number} " for number in sorted(run.decisions[0] & last)]
        expected.append({"epochs": sorted(set.union(*run.epochs)), "words": words})
    return Made(
        kind="prompt",
        scorer="prompt",
        expected={"cases": expected},
        categories=("evidence", "prompt"),
        description="A prompt about a long run shows what bears on the due rules",
        outcome="the epochs and decisions that bear on the due rules stand in the prompt",
        files={"cases.json": cases},
    )


@dataclass(frozen=True)
class _LongRun:
    """A run with what bears on the due rules: what comes first, and what comes next."""

    seen: Observation
    epochs: tuple[set[int], set[int]]  # the latest of the streak; those around remedies, the best
    decisions: tuple[set[int], set[int]]  # carried out or refused last; others on due rules


def _long_run(rng: Random, fired: Mapping[str, str]) -> _LongRun:
    epoch = rng.randint(75, 95)
    applied = sorted(rng.sample(range(8, 60), 3))
    told: list[PastDecision] = []

    def tell(when: int, rule: str, outcome: str | None) -> None:
        number = len(told) + 1
        told.append(past_decision(number, when, rule, outcome, f"reason {number} for {rule}"))

    for when in range(3, 70):
        if when in applied or rng.random() < 0.12:
            outcome = "applied" if when in applied else rng.choice((None, "refused"))
            tell(when, rng.choice(FIRST_RULES), outcome)
    for rule in fired:
        tell(70, rule, "refused")
        for _ in range(rng.randint(1, 2)):
            tell(71, rule, None)
    others = [rule for rule in FIRST_RULES if rule not in fired]
    both = told[-1].decision  # on a due rule and on another one
    told[-1] = replace(told[-1], decision=replace(both, cites=(others[0], both.cites[0])))
    for rule in rng.sample(others, 2):
        tell(72, rule, "refused")
        tell(73, rule, None)
    best = rng.choice([each for each in range(20, 60) if each not in applied])
    history = tuple(
        healthy(rng, each, val_loss=0.2 if each == best else digits(0.5 + rng.random()))
        for each in range(epoch + 1)
    )
    seen = observe(rng, fired, epoch=epoch, decisions=tuple(told), history=history)
    streak = min(3, max(seen.evaluations[rule].streak for rule in fired))
    latest = {epoch, *range(epoch - streak + 1, epoch + 1)}
    around = {best, *applied, *(each + 1 for each in applied)}
    about = {past.number for past in told if {*past.decision.cites} & {*fired}}
    last = {past.decision.cites[0]: past.number for past in told if past.outcome}
    settled = {number for rule, number in last.items() if rule in fired}
    return _LongRun(seen, (latest, around), (settled, about))


def make_hindsight(rng: Random, difficulty: str) -> Made:
    """What fired when, and what remedies did: of one run as it goes on, or of several."""
    runs = [_recorded(rng, "calibrated")]
    if difficulty != "easy":
        runs.append(_recorded(rng, "document"))
    seen: list[Observation] = []
    for history, told, profile in runs:
        cuts = sorted(rng.sample(range(4, len(history)), 4))
        seen += [_seen_at(cut, history, told, profile) for cut in cuts]
    if difficulty == "hard":
        seen += _told_otherwise(rng, runs[0])
    known = tuple((rng.choice(FIRST_RULES),) for _ in range(seen[-1].epoch))
    seen.append(replace(seen[-1], fired=known))  # what the run itself has seen is not worked out
    return Made(
        kind="hindsight",
        scorer="exact",
        expected={"answer": [_hindsight_of(each) for each in seen]},
        categories=("hindsight", "boundaries"),
        description="Which rules fired in each epoch and what remedies did, for signals at the "
        "very thresholds",
        outcome="the same as the rules say when they are evaluated epoch by epoch",
        files={"observations.json": [to_plain(each) for each in seen]},
    )


_Recorded = tuple[list[EpochSignals], list[PastDecision], str]


def _recorded(rng: Random, profile: str) -> _Recorded:
    """Return a run whose signals lie at, just above and just below the thresholds."""
    rules = REFERENCE_RULES[profile]
    steps = (0.5, 1 - 1e-6, 1.0, 1.0, 1 + 1e-6, 2.0)
    history, level = [], dict.fromkeys(FIRST_RULES, 1.0)
    for epoch in range(rng.randint(16, 22)):
        if epoch % 4 == 0:
            level = {rule: rng.choice(steps) for rule in FIRST_RULES}
        ratio = rng.choice((rules.r1_low, rules.r1_high)) * level["R1"]
        noise = rng.choice((rules.r2_low, rules.r2_high)) * level["R2"]
        history.append(
            healthy(
                rng,
                epoch,
                train_loss=round(
                    2.0 * 0.9 ** min(epoch, 8), 4
                ),  # it falls, and then it stands still
                train_accuracy=round(0.5 + 0.01 * rng.choice((0, 1, 2)), 3),
                val_loss=rng.choice((1.0, 0.999, 1.2, 0.9)),
                gradients_finite=rng.random() < 0.93,
                max_layer_grad_norm=rules.r7_high * level["R7"],
                min_layer_grad_norm=rules.r6_low * level["R6"],
                dead_share=rules.r5_high * level["R5"],
                sparsity=rules.r5_high * level["R5"],
                update_ratio=ratio,
                epoch_update_ratio=ratio,
                signal_to_noise=noise,
                signal_to_noise_low=None,  # which an observation's JSON does not hold
                signal_to_noise_high=None,
                norm_noise_scale=noise,
            )
        )
    told: list[PastDecision] = []
    for epoch in range(2, len(history)):
        if rng.random() < 0.5:
            outcome = rng.choice(("applied", "applied", "refused", None))
            told.append(past_decision(len(told) + 1, epoch, rng.choice(FIRST_RULES), outcome))
    return history, told, profile


def _told_otherwise(rng: Random, run: _Recorded) -> list[Observation]:
    """Return the end of a run as it was and, after each time, as it would be with another past."""
    history, told, profile = run
    end = len(history) - 1
    early = replace(history[3], max_layer_grad_norm=40.0, update_ratio=0.9)
    lost = replace(history[0], gradients_finite=False)
    fewer = [past for past in told if past.outcome != "applied" or past.epoch > end // 2]
    more = [
        *told,
        past_decision(len(told) + 1, 2, "R1", "applied"),
        past_decision(len(told) + 2, 5, "R7", "applied"),
    ]
    usual = _seen_at(end, history, told, profile)
    others = [
        _seen_at(end, [early if each.epoch == 3 else each for each in history], told, profile),
        _seen_at(end, [lost, *history[1:]], told, profile),
        _seen_at(end, history, fewer, profile),
        _seen_at(end - 2, history, more, profile),
        _seen_at(end, history, told, "document"),
        _seen_at(rng.randint(3, 5), history, told, profile),
    ]
    for rule in FIRST_RULES:  # a remedy in the first epoch in which the rule fires, or none at all
        first = next((n for n in range(end) if rule in _fired_at(n, history, profile)), 2)
        others.append(_seen_at(end, history, [past_decision(1, first, rule, "applied")], profile))
        others.append(_seen_at(end, history, [], profile))
    return [each for other in others for each in (usual, other)]


def _fired_at(epoch: int, history: Sequence[EpochSignals], profile: str) -> tuple[str, ...]:
    return fired_in_precedence(evaluate_rules(history[: epoch + 1], [], REFERENCE_RULES[profile]))


def _seen_at(
    epoch: int, history: Sequence[EpochSignals], told: Sequence[PastDecision], profile: str
) -> Observation:
    before, rules = tuple(past for past in told if past.epoch < epoch), REFERENCE_RULES[profile]
    evaluations = evaluate_rules(history[: epoch + 1], _remedies_of(before), rules)
    due = fired_in_precedence(evaluations)
    seen = observe(Random(0), {}, epoch=epoch, rules=rules)  # noqa: S311 - no secret
    return replace(
        seen,
        due=due,
        evaluations=evaluations,
        history=tuple(history[: epoch + 1]),
        decisions=before,
    )


def _remedies_of(told: Sequence[PastDecision]) -> list[AppliedRemedy]:
    return [
        AppliedRemedy(past.epoch, rule)
        for past in told
        if past.outcome == "applied"
        for rule in past.decision.cites
    ]


def _hindsight_of(seen: Observation) -> dict[str, Any]:
    remedies = _remedies_of(seen.decisions)
    fired = [list(rules) for rules in seen.fired or ()] or [
        list(
            fired_in_precedence(
                evaluate_rules(
                    seen.history[: epoch + 1],
                    [remedy for remedy in remedies if remedy.epoch < epoch],
                    seen.rules,
                )
            )
        )
        for epoch in range(len(seen.history) - 1)
    ]
    fired.append(list(fired_in_precedence(seen.evaluations)))
    effects = {
        effect.rule: [effect.epoch, effect.worked]
        for effect in remedy_effects(fired, seen.decisions)
    }
    return {"known": fired[:-1], "fired": fired, "again": fired, "effects": effects}
