"""What the page of a run says of its decisions and violations.

Source: docs/explanation/scores.md for what the scores mean.
Trust: what is shown is hostile; the template escapes each value.
I/O: none.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from aggregates.rulebook import RULE_TITLES, RULEBOOK
from ledger.wording import counted, listed
from proctor.output.columns import field, figures, grouped
from proctor.output.firings import (
    answer_form,
    fired_on,
    named,
    remedies,
    unnumbered,
)
from proctor.pages.rendering import number, object_of, spoken
from proctor.reports.tables import CAUSES, Row, table, violations_found
from proctor.runs.tried import told_trials, trials_of
from proctor.runs.worth import Worth, told_worth, worths

_AUTHORS = {
    "driver": "By the driver, which answers where the policy gave no usable answer",
    "harness": "By the harness, which carries out what was decided",
    "human": "By a person",
    "policy": "By the policy",
}
_AVOIDED = {  # of a violation by the policy -> what would have avoided it
    "caveat": "leaving the setting alone until the other rule is quiet",
    "direction": "a remedy of this rule, within its bounds",
    "false_citation": "citing only rules that have fired",
    "missing_decision": "an answer in time",
    "not_the_policy": "what the policy itself decides",
    "padding": "one decision for each rule and epoch",
    "precedence": "acting first on the rule that goes first",
    "unresolved_deferral": "a remedy in time",
}
_ANSWERED = ("direction", "missing_decision", "unresolved_deferral")  # by a remedy of the rule
_MOST_LOST = 8  # rows of the first screen
_LATER = 3  # epochs after which a remedy's effect is looked at, as in the view remedy_effects


def remedies_told(able: Sequence[str]) -> str:
    """Return which remedies there are, in words."""
    verb = "remedy is" if len(able) == 1 else "remedies are"
    return f"{verb} to {' or to '.join(map(_plain, able))}"


def _rules_of(data: Mapping[str, Any]) -> Row:
    return object_of(data["run"][0]["rules"]) if data.get("run") else {}


def measured(rule: str, limits: Row) -> str:
    """Return what a rule compares with its limits, in words; empty if that is unknown."""
    return RULEBOOK[rule].measured(limits) if rule in RULEBOOK else ""


def allowed_range(rule: str, limits: Row) -> str:
    """Return what a rule lets pass, in words."""
    low, high = map(limits.get, RULEBOOK[rule].band if rule in RULEBOOK else ("", ""))
    between = [f"at least {number(low)}"] if low is not None else []
    between += [f"at most {number(high)}"] if high is not None else []
    return f"; allowed: {', '.join(between)}" if between else ""


class _Known:
    """What the decisions of a run are told with, by what it is looked up by, once for all."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.fired: dict[str, list[Row]] = {}
        for each in data["rules"]:  # by epoch
            if each["fired"]:
                self.fired.setdefault(each["rule"], []).append(each)
        self.worth: dict[int, list[Worth]] = {}
        for found in worths(data["worth"]):
            self.worth.setdefault(found.decision, []).append(found)
        self.effects: dict[int, list[Row]] = {}
        for each in data["effects"]:
            self.effects.setdefault(each["decision"], []).append(each)
        self.losses = {each["epoch"]: each["val_loss"] for each in data["epochs"]}
        self.last = max(self.losses, default=None)


def decisions_told(data: Mapping[str, Any], run: Row) -> list[dict[str, Any]]:
    """Return what the page shows of each decision that is in no row of waiting_told()."""
    known, limits = _Known(data), object_of(run["rules"])
    waiting = {row["number"] for rows in _waiting(data) for row in rows}
    shown = (row for row in data["decisions"] if row["number"] not in waiting)
    return [_decision_told(row, known, limits) for row in shown]


_WAITING = [
    field("decisions", lambda rows: listed([row["number"] for row in rows])),
    field("epochs", lambda rows: listed([row["epoch"] for row in rows])),
    field("refused", lambda rows: _refused(rows[0])),
    field("by", lambda rows: rows[0]["source"]),
    field("rules", lambda rows: ", ".join(rows[0]["cites"] or ())),
    field("waits for", lambda rows: rows[0]["deferred_to"]),
    field("why", lambda rows: rows[0]["reason"] or rows[0]["justification"]),
]


def _refused(row: Row) -> str | None:
    return _plain(row["direction"]) if row["outcome"] == "refused" else None


def waiting_told(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table of decisions that were deferred, and of equal ones that were refused."""
    found = _waiting(data)
    many = counted(sum(map(len, found)), "decision")
    caption = f"{many} changed nothing; of several that are alike, the words of the first"
    if data.get("calls") and (form := answer_form(data["decisions"], data["rules"])):
        caption += f". Form of an answer, with types in place of values: {form}"
    return table(caption, _WAITING, found)


def _waiting(data: Mapping[str, Any]) -> list[list[Row]]:
    """Return these decisions: those that differ by numbers together."""
    found = grouped(
        (row for row in data["decisions"] if row["outcome"] in ("deferred", "refused")),
        lambda row: (
            *(row[name] for name in ("outcome", "source", "direction", "deferred_to")),
            tuple(row["cites"] or ()),
            unnumbered(row["reason"] or row["justification"]),
        ),
    )
    return [rows for key, rows in found.items() if key[0] == "deferred" or len(rows) > 1]


def _decision_told(row: Row, known: _Known, limits: Row) -> dict[str, Any]:
    cites = [str(rule) for rule in row["cites"] or ()]
    applied = row["outcome"] == "applied"
    return {
        **row,
        "title": _plain(row["direction"]),
        "cited": ", ".join(f"{rule} ({RULE_TITLES.get(rule, 'unknown')})" for rule in cites),
        "evidence": list(_evidence(row, cites, known, limits)),
        "asked": _told(object_of(row["params"])),
        "changed": list(_changes(row["changes"])),
        "trials": told_trials(row, known.losses) if applied else "",
        "effects": list(_effects(row, known)) if applied else [],
        "worth": [told_worth(each) for each in known.worth.get(row["number"], ())],
    }


def _plain(name: Any) -> str:
    """Return a name of the records in words."""
    return " ".join("learning rate" if word == "lr" else word for word in spoken(name).split())


def _told(value: Any) -> str:
    """Return a value of a decision or of a change."""
    if isinstance(value, dict):
        return ", ".join(f"{_plain(name)} {_told(each)}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(_told, value))
    return "none" if value is None else number(value)


def _evidence(row: Row, cites: Sequence[str], known: _Known, limits: Row) -> Iterator[str]:
    """Yield what each cited rule had measured when it last fired before the decision."""
    named = dict.fromkeys(cites)
    for rule in named:
        if rule not in RULE_TITLES:
            continue
        fired = known.fired.get(rule, [])
        place = bisect_right(fired, row["epoch"], key=lambda each: each["epoch"])
        if not place:
            yield f"{rule} had not fired"
            continue
        last = fired[place - 1]
        text = f"{rule} fired in epoch {last['epoch']}"
        if last.get("value") is not None:  # charts of the live view do without it
            side = {"low": "too low", "high": "too high"}.get(last["side"], spoken(last["side"]))
            text += f": {measured(rule, limits) or 'value'} {number(last['value'])}, {side}"
        yield f"{text}{allowed_range(rule, limits)}, {counted(last['streak'], 'epoch')} in a row"

    if strange := sum(rule not in RULE_TITLES for rule in named):
        yield f"{counted(strange, 'cited name')} of no rule"


def _changes(text: Any) -> Iterator[str]:
    changes = object_of(text)
    for each in changes if isinstance(changes, list) else ():
        if isinstance(each, dict):
            before, after = _told(each.get("from")), _told(each.get("to"))
            yield f"{_plain(each.get('what'))}: {before} to {after}"


def _effects(row: Row, known: _Known) -> Iterator[str]:
    for effect in known.effects.get(row["number"], ()):
        rule = effect["rule"]
        yield {
            True: f"it worked: {rule} did not fire {_LATER} epochs later",
            False: f"it did not work: {rule} fired again within {_LATER} epochs",
        }.get(effect["worked"], f"not known for {rule}: fewer than {_LATER} epochs followed")
    trials = trials_of(row)
    wait = _LATER + (0 if trials is None else len(trials.rates))
    later = min(row["epoch"] + wait, row["epoch"] if known.last is None else known.last)
    before, after = known.losses.get(row["epoch"]), known.losses.get(later)
    if before is not None and after is not None and later > row["epoch"]:
        yield (
            f"validation loss {number(before)} in epoch {row['epoch']}, {number(after)} in epoch "
            f"{later}"
        )


def violations_told(data: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the violations by who caused them and by what would have avoided them."""
    asked = bool(data["calls"])
    sides, limits = fired_on(data["rules"]), _rules_of(data)
    causes = grouped(data["causes"], lambda row: (str(row["emitter"]), str(row["cause"])))
    for (emitter, cause), counts in sorted(causes.items()):
        found = sum(row["violations"] for row in counts)
        about = {row["rule"] for row in counts}
        able = [
            f"The {remedies_told(remedies(*each, limits))} where {named(*each)} fires."
            for each in sides
            if each[0] in about and remedies(*each, limits)
        ]
        author = _AUTHORS.get(emitter, "By an unknown author")
        yield {
            "title": f"{author}: {counted(found, 'violation')}",
            "text": " ".join([cause_told(cause, asked=asked), *able]),
            "table": table(
                "Violations, those of one kind and rule together",
                _VIOLATIONS,
                [
                    lost
                    for lost in _lost(data)
                    if (lost["emitter"], lost["cause"]) == (emitter, cause)
                ],
            ),
        }


def lost_epochs(data: Mapping[str, Any]) -> set[int]:
    """Return the epochs in which a run lost points, as far as the audit recorded them."""
    return {row["epoch"] for row in data["violations"] if row["epoch"] is not None}


def lost_told(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table of what lost points: by which rule, when, and what would have avoided it.

    If it would be long, rules are together, and what lost most is first.
    """
    rows = [*_lost(data)]
    if len(rows) > _MOST_LOST:
        rows = sorted(_lost(data, by_rule=False), key=lambda row: -row["violations"])
    return table("Where points were lost", _LOST, rows)


def violated_told(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table of all violations, those of one kind and rule together."""
    return table("Violations, those of one kind and rule together", _VIOLATIONS, _lost(data))


def _lost(data: Mapping[str, Any], *, by_rule: bool = True) -> Iterator[dict[str, Any]]:
    """Yield violations of one kind and cause, and of one rule and author, as one row."""
    sides, limits = fired_on(data["rules"]), _rules_of(data)
    made = {row["number"]: _plain(row["direction"]) for row in data.get("decisions", ())}
    kind = itemgetter("cause", "kind", *(["rule", "emitter"] if by_rule else []))
    alike = grouped(data["violations"], kind)
    for key, several in grouped(data["causes"], kind).items():
        own = alike.get(key, [])
        many = sum(counts["violations"] for counts in several)
        rules = sorted({counts["rule"] for counts in several} - {None})
        on = [each for each in sides if each[0] in rules]
        numbers = [row["decision"] for row in own if row["decision"] is not None]
        what = dict.fromkeys(made[number] for number in numbers if number in made)
        more = " and others" if len(own) < many else ""
        told = ", ".join(named(*each) for each in on) or (named(rules[0]) if rules else None)
        decisions = _those(own, "decision", more)
        yield {
            **several[0],
            "violations": many,
            "what": spoken(several[0]["kind"]),
            "fired": told if len(rules) < 2 else f"{len(rules)} rules",
            "epochs": _those(own, "epoch", more),
            "decisions": decisions and f"{decisions}: {', '.join(what)}" if what else decisions,
            "avoided": _avoided(several[0], on if len(rules) < 2 else (), limits),
            "detail": own[0]["detail"] if own else "none is recorded in words",
        }


def _avoided(lost: Row, on: Iterable[tuple[str, str]], limits: Row) -> str:
    """Return what would have avoided violations of a kind, of a rule that fired on these sides."""
    cause, kind = str(lost["cause"]), str(lost["kind"])
    instead = CAUSES.get(cause, (cause,))[0]
    if cause not in ("policy", "prompt") or kind not in _AVOIDED:
        return instead
    able = dict.fromkeys(_plain(one) for each in on for one in remedies(*each, limits))
    told = _AVOIDED[kind] + (f": {' or '.join(able)}" if able and kind in _ANSWERED else "")
    return told if cause == "policy" else f"{told} ({instead})"


def _those(rows: Sequence[Row], name: str, more: str) -> str | None:
    numbers = [row[name] for row in rows if row[name] is not None]
    return f"{listed(numbers)}{more}" if numbers else None


_LOST = [
    field("rule", lambda row: row["fired"] or "none"),
    field("what", "what"),
    *figures("violations"),
    field("epoch", "epochs"),
    field("decision", "decisions"),
    field("what would have avoided it", "avoided"),
]
_VIOLATIONS = [
    field("kind", "what"),
    field("rule"),
    *figures("violations"),
    field("epoch", "epochs"),
    field("decision", "decisions"),
    field("the first, in words", "detail"),
]


def uncounted_told(data: Mapping[str, Any]) -> str:
    """Return which violations of the audit are in no group, as an earlier version left them out."""
    known = sum(row["violations"] for row in data["causes"])
    if all(row["violations"] <= known and not row["more_violations"] for row in data["verdict"]):
        return ""
    found = violations_found(data["verdict"])
    return (
        f"The audit found {found} violations. It was made by a version that recorded the first "
        f"{known}; only these are counted below."
    )


def cause_told(cause: str, *, asked: bool) -> str:
    """Return what would have avoided a violation; `asked`: a language model was asked."""
    avoided, why = CAUSES.get(cause, (cause, ""))
    if cause == "policy":
        if asked:
            avoided = "another policy, or a better model"
        else:
            avoided, why = "a policy that carries out a remedy in time", ""
    return f"What would have avoided them: {avoided}. {why}".strip()
