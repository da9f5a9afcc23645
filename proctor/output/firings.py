"""What a rule that fired means, in words: its name, the side it fired on, and its remedies.

Source: docs/reference/rules.md.  I/O: none.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from aggregates.decisions import NO_ANSWER
from aggregates.declared import json_type
from aggregates.playbook import DIRECTIONS, PARAMETER_TYPES, REMEDIES, directions
from aggregates.rulebook import PRECEDENCE, RULE_TITLES, RULEBOOK
from aggregates.rules import DOCUMENT
from ledger.wording import counted
from proctor.output.columns import grouped
from proctor.output.terminal import told_level


def side_told(side: str) -> str:
    """Return the side that a rule fired on, in words."""
    return "no better than guessing" if side == "guessing" else side.replace("_", " ")


def named(rule: str, side: str | None = None) -> str:
    """Return a rule with the side that it fired on and its title, as in `R1 high (learning rate)`.

    What is no rule is returned as it is.
    """
    fired = f"{rule} {side_told(side)}" if side else rule
    title = RULE_TITLES.get(rule)
    return fired if title is None else f"{fired} ({title})"


def meant(rule: str, side: str | None) -> str:
    """Return what it means that a rule fired on a side; empty if that is unknown."""
    told = RULEBOOK[rule].sides.get(side or "") if rule in RULEBOOK else None
    return told.meaning if told else ""


def looked_for(rule: str) -> str:
    """Return what a rule looks for: what it means that it fires, by the side."""
    return "; ".join(
        f"{side_told(side)}: {told.meaning}" for side, told in RULEBOOK[rule].sides.items()
    )


def remedies(rule: str, side: str | None, recorded: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the directions of decisions that answer a rule on a side, under recorded rules."""
    rules = replace(
        DOCUMENT,
        kept_states=int(bool(recorded.get("kept_states"))),
        back_sets_batch=bool(recorded.get("back_sets_batch")),
        tries_rates=bool(recorded.get("tries_rates")),
        r1_adds_norm=bool(recorded.get("r1_adds_norm")),
    )
    return directions(rule, side, rules) if rule in DIRECTIONS else ()


def fired_on(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    """Return the firings that count, by rule and side, first the rule with precedence."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["fired"] and not row["waived"] and row["rule"] in PRECEDENCE:
            found.setdefault((row["rule"], row.get("side") or ""), []).append(row)
    return dict(sorted(found.items(), key=lambda each: PRECEDENCE.index(each[0][0])))


def unnumbered(text: object) -> str:
    """Return a text whose numbers are all 0: texts that differ by them alone are alike."""
    return re.sub(r"[-+]?\d[\d.,e+-]*", "0", str(text))


def told_lost(decisions: Sequence[Mapping[str, Any]]) -> str | None:
    """Return how many answers came to nothing, and the most frequent reason; None: none did.

    `decisions` are rows of decision_outcomes.
    """
    lost = [row for row in decisions if row["lost"]]
    if not lost:
        return None
    ways = grouped(lost, lambda row: row["lost"])
    reasons = [str(row["reason"] or row["justification"]).removeprefix(NO_ANSWER) for row in lost]
    often = max(grouped(reasons, unnumbered).values(), key=len)
    which = "because" if len(often) == len(lost) else f"most often ({len(often)} times) because"
    return (
        f"{len(lost)} of {counted(len(decisions), 'answer')} "
        f"({', '.join(f'{len(rows)} {way}' for way, rows in ways.items())}), {which}: {often[0]}"
    )


def answer_form(
    decisions: Iterable[Mapping[str, Any]], rules: Iterable[Mapping[str, Any]]
) -> str | None:
    """Return the form of an answer that a model's server was asked for and did not give.

    `decisions` and `rules` are rows of decision_outcomes and rule_heatmap; None: it gave each.
    """
    sides = {(row["epoch"], row["rule"]): row["side"] for row in rules}
    for row in decisions:
        for rule in row["cites"] if row["lost"] == "unusable" else ():
            side = sides.get((row["epoch"], rule))
            if able := DIRECTIONS.get(rule, {}).get(side or ""):
                params = {
                    name: json_type(PARAMETER_TYPES[name])[0] for name in REMEDIES[able[0]].needs
                }
                decision = {
                    "justification": "string",
                    "cites": [rule],
                    "direction": able[0],
                    "params": params,
                }
                return json.dumps({"decisions": [decision]})
    return None


def nobody_decides(run: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> str | None:
    """Return what became of the rules of a loop that is only observed; None of any other run."""
    if run["level"] == "repeatable" or run["policy_name"] != "none":
        return None
    fired = {row["rule"] for row in rows if row["fired"]}
    asked = [rule for rule in PRECEDENCE if rule in fired]
    return f"watched: nobody decides; {counted(len(asked), 'rule')} asked for a decision" + (
        f": {', '.join(asked)}" if asked else ""
    )


def told_watched(run: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> str | None:
    """Return what a watched run is evidence of, and who decides in it; None of any other run."""
    told = (told_level(run["level"]), nobody_decides(run, rows))
    return "; ".join(filter(None, told)) or None


def violation_told(found: Mapping[str, Any]) -> str:
    """Return a violation in one line, which says its rule and its epoch once."""
    rule, epoch = found["rule"], found["epoch"]
    detail = "without words in the audit" if found["detail"] is None else str(found["detail"])
    about = str(found["kind"])
    if rule and not re.search(rf"\b{re.escape(rule)}\b", detail):
        about += f" {rule}"
    if epoch is None:
        about += " (run)"
    elif not re.search(rf"\bepoch {epoch}\b", detail):
        about += f" (epoch {epoch})"
    return f"{about}, by the {found['emitter']}: {detail}"
