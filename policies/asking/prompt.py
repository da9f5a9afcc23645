"""The prompt for a language model, as a pure function of the observation.

Trust: justifications, feedback and what was wrong with an answer are others' words. They reach the
prompt cut, on one line, as a JSON string, so that no text can end its quotation or begin a line.
The size depends on the settings and on the model's shape, never on the number of the epoch. There
is no name and no time in it: the same situation gives the same bytes.
I/O: its own package's texts.  Units: epochs from 0; sizes in bytes of UTF-8.
"""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import TYPE_CHECKING, Any

from aggregates.decisions import Observation, PastDecision
from aggregates.rulebook import (
    PRECEDENCE,
    RULE_TITLES,
    RULEBOOK,
    RULES,
    fired_in_precedence,
    told_rules,
)
from aggregates.rules import RulesConfig
from aggregates.situation import describe_observation, task
from aggregates.spec import SWAPPED_IN, WatchedModel
from aggregates.strategy import Effect, phases, remedy_effects
from policies.evidence import decisions_to_show, epochs_to_show
from policies.hindsight import fired_by_epoch
from policies.numbers import load_numbers
from policies.offers import offers

if TYPE_CHECKING:
    from policies.asking.settings import ModelSettings

ADVICE_TITLE = "# Advice"
FEEDBACK_TITLE = "# Feedback on earlier attempts"
MOST_DECISIONS = 8  # earlier ones that are shown
MOST_WORDS = 160  # bytes of each justification
MOST_PROBLEM = 600  # bytes
MOST_FEEDBACK = 4_000  # characters
_SCORES = ("process_score", "validation_accuracy")  # the test set selects and teaches nothing

_COLUMNS: Mapping[str, str] = {
    "epoch": "epoch",
    "train loss": "train_loss",
    "train accuracy": "train_accuracy",
    "validation loss": "val_loss",
    "largest gradient norm": "max_layer_grad_norm",
    "smallest gradient norm": "min_layer_grad_norm",
    "update ratio": "update_ratio",
    "epoch update ratio": "epoch_update_ratio",
    "signal to noise": "signal_to_noise",
    "norm noise scale": "norm_noise_scale",
    "dead share": "dead_share",
    "sparsity": "sparsity",
}


def messages(
    observation: Observation,
    *,
    settings: "ModelSettings",
    feedback: Mapping[str, Any] | None = None,
    advice: str = "",
    problem: str | None = None,
) -> list[dict[str, str]]:
    """Return the messages for one decision: the rules of the game, then the situation.

    `advice` is the model's advice block. `problem` says what was wrong with the answer that was
    given before.
    """
    if settings.form == "full":
        head = _game(observation.rules)
        asked = situation(observation, settings.history)
    else:
        head, asked = [task(observation.rules.names)], describe_observation(observation)
    asked += _again(problem) if problem else ""
    return [
        {"role": "system", "content": _system(head, observation, feedback, advice)},
        {"role": "user", "content": asked},
    ]


def situation(seen: Observation, history: int) -> str:
    """Return what is asked about and what bears on it, with the last `history` epochs."""
    fired = fired_by_epoch(seen)
    parts = [
        f"# Epoch {seen.epoch}\n\n{_follow(seen.left)}",
        "## Due rules, the one to act on first in front\n\n"
        + "\n".join(_due(rule, seen, fired) for rule in seen.due),
        *_advisory(seen),
        f"## Settings in force\n\n{_settings(seen)}",
        f"## Model\n\n{_model(seen)}",
        f"## The last epochs, the latest below\n\n{_table(seen, history)}",
        f"## Strategy\n\n{_strategy(fired)}",
    ]
    if seen.decisions:
        told = "\n".join(_earlier(seen, fired))
        parts.append(f"## The last decisions, the latest below\n\n{told}")
    return "\n\n".join(parts)


def feedback_text(feedback: Mapping[str, Any]) -> str:
    """Return what earlier attempts got wrong in at most MOST_FEEDBACK characters, the latest first.

    `feedback` holds attempts [{number, scores {name: number}, violations [{kind, rule, emitter,
    epochs, count}], deferred_too_long [rule]}]. What is missing there is left out here, and so is
    whatever was found on the test set.
    """
    lines: list[str] = []
    for attempt in reversed(_list(feedback.get("attempts"))):
        lines.append(f"## Attempt {_number(attempt.get('number'))}")
        scores = attempt.get("scores")
        if isinstance(scores, Mapping):
            lines.append(", ".join(f"{name} {_number(scores.get(name))}" for name in _SCORES))
        late = [rule for rule in _list(attempt.get("deferred_too_long"), str) if rule in RULES]
        if late:
            lines.append(f"Deferred too long: {', '.join(late)}. Act on these when they are due.")
        lines += [_violation(violation) for violation in _list(attempt.get("violations"))]
    text = ""
    for line in lines:
        if len(text) + len(line) + 1 > MOST_FEEDBACK:
            break
        text += line + "\n"
    return text.rstrip("\n")


def quoted(text: str, most: int) -> str:
    """Return others' text as a JSON string on one line, cut to `most` bytes before quoting."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text[:most])
    data = printable.encode()
    if len(data) > most or len(text) > most:
        printable = data[: most - len("…".encode())].decode(errors="ignore") + "…"
    return json.dumps(printable, ensure_ascii=False)


def _system(
    head: list[str], seen: Observation, feedback: Mapping[str, Any] | None, advice: str
) -> str:
    parts = [*head]
    if advice:
        parts.append(
            f"{ADVICE_TITLE}\n\nTests on recorded situations have shown that this advice helps. It "
            f"adds to the playbook; where the two differ, follow the playbook.\n\n{advice}"
        )
    if seen.waived:
        parts.append(
            f"# Waived rules\n\n{', '.join(seen.waived)}: advisory in this run. What they say is "
            "true and worth weighing; they want no answer and nobody is held to them."
        )
    if feedback and (told := feedback_text(feedback)):
        parts.append(
            f"{FEEDBACK_TITLE}\n\nThe judge found these violations in earlier attempts at this "
            f"very task. Do not repeat them.\n\n{told}"
        )
    return "\n\n".join(parts)


def _again(problem: str) -> str:
    return (
        "\n\n## Your last answer could not be used\n\n"
        f"reported: {quoted(problem, MOST_PROBLEM)}\n"
        "Answer again, every due rule, in the form that was asked for."
    )


def _due(rule: str, seen: Observation, fired: Sequence[Collection[str]]) -> str:
    found = seen.evaluations[rule]
    numbers = f"value {_number(found.value)}, average {_number(found.ema)}, streak {found.streak}"
    lines = [f"- {rule} ({RULE_TITLES[rule]}) fired, side {found.side}: {numbers}"]
    lines.append(f"  - limits: {RULEBOOK[rule].limits(seen.rules)}")
    if waits := _waiting(rule, seen, fired):
        lines.append(f"  - {waits}")
    for direction, params in offers(rule, seen).items():
        at = "at its limit, not open now" if params is None else params or "no parameters"
        lines.append(f"  - {direction}: {at}")
    return "\n".join(lines)


def _waiting(rule: str, seen: Observation, fired: Sequence[Collection[str]]) -> str | None:
    """Return since when the rule has been left to wait, if it has: silence ends the waiting."""
    limit = seen.rules.deferral_limit
    since = max((epoch for epoch, rules in enumerate(fired) if rule not in rules), default=-1)
    waits: list[int] = []
    for past in seen.decisions:
        if rule in past.decision.cites and past.epoch > since:
            if past.outcome == "applied":
                waits.clear()
            else:
                waits.append(past.epoch)
    if not waits:
        return None
    return (
        f"left without a remedy {len(waits)} times since epoch {waits[0]}: by epoch "
        f"{waits[0] + limit} it has to be silent or acted on"
    )


def _follow(left: int | None) -> str:
    if left is None:
        return "how many epochs follow is not known"
    return f"epochs that follow: {left}" + ("; nothing is trained any more" if left < 1 else "")


def _settings(seen: Observation) -> str:
    now = seen.settings
    schedule = json.dumps({key: _rounded(value) for key, value in now.schedule.items()})
    return (
        f"lr {now.lr!r}, batch_size {now.batch_size}, accumulation {now.accumulation}, "
        f"clip_norm {_number(now.clip_norm)}, schedule {schedule}\n"
        f"batches of at most {seen.max_batch_size} examples fit into memory; "
        f"{seen.train_examples} training examples\n"
        + (
            "changes of the architecture are made on the live model"
            if seen.edits == "live"
            else "a change of the architecture ends this run; the next attempt starts from it"
        )
    )


def _model(seen: Observation) -> str:
    spec = seen.spec
    if isinstance(spec, WatchedModel):
        return _watched_model(spec)
    lines = [
        f"{spec.classes} classes, {spec.channels} channels, stem stride {spec.stem_stride}, "
        f"head norm {spec.norm}, head activation {spec.activation}"
    ]
    for block, same in groupby(enumerate(spec.blocks), key=lambda pair: pair[1]):
        numbers = [number for number, _ in same]
        lines.append(
            f"blocks {numbers[0]} to {numbers[-1]}: width {block.width}, "
            f"norm {block.norm}, activation {block.activation}, "
            + ("with a shortcut" if block.residual else "without a shortcut")
        )
    return "\n".join(lines)


def _watched_model(spec: WatchedModel) -> str:
    """Describe a model that somebody else built, by what may be changed in it."""
    lines = [
        f"a model of class {spec.model} with {spec.parameters} parameters, trained by its owner's "
        "loop",
        f"only these remedies can be carried out: {', '.join(spec.offers)}; "
        f"swap_activation takes {', '.join(SWAPPED_IN)}",
        "reinitialise only after a gradient or a weight was measured as not finite",
    ]
    lines += [
        f"block {number}: activation {each.kind} at {each.name}"
        for number, each in enumerate(spec.activations)
    ]
    return "\n".join(lines)


def _table(seen: Observation, history: int) -> str:
    rows = {
        signals.epoch: " | ".join(_number(getattr(signals, key)) for key in _COLUMNS.values())
        for signals in seen.history[-history:]
    }
    sizes = {epoch: len(row) + 1 for epoch, row in rows.items()}  # ASCII, with the line's end
    most = load_numbers().evidence.epoch_bytes
    shown = epochs_to_show(seen, sizes, rows=history, most=most)
    return "\n".join([" | ".join(_COLUMNS), *(rows[epoch] for epoch in shown)])


def _advisory(seen: Observation) -> list[str]:
    """Return what fired besides: waived rules, and rules that are decided on elsewhere."""
    others = [rule for rule in fired_in_precedence(seen.evaluations) if rule not in seen.due]
    if not others:
        return []
    told = [
        f"- {rule} ({RULE_TITLES[rule]}), side {seen.evaluations[rule].side}"
        + (", waived" if rule in seen.waived else ", decided on separately")
        for rule in others
    ]
    return ["## Fired as well, and wants no answer from you\n\n" + "\n".join(told)]


def _strategy(fired: Sequence[Collection[str]]) -> str:
    """Return which class of rules each part of the run was about."""
    lines = []
    for phase in phases(fired):
        counts = ", ".join(f"{kind} {count}" for kind, count in phase.firings.items())
        lines.append(
            f"- {phase.name}, epochs {phase.first} to {phase.last}: expected {phase.expected}, "
            f"firings {counts or 'none'}"
        )
    return "\n".join(lines)


def _earlier(seen: Observation, fired: Sequence[Collection[str]]) -> list[str]:
    """Return a line for each of the last decisions that there is room for."""
    effects = remedy_effects(fired, seen.decisions[-MOST_DECISIONS:])
    lines = {past.number: _past(past, effects) for past in seen.decisions[-MOST_DECISIONS:]}
    sizes = {number: len(line.encode()) + 1 for number, line in lines.items()}
    most = load_numbers().evidence.decision_bytes
    shown = decisions_to_show(seen, sizes, rows=MOST_DECISIONS, most=most)
    return [lines[number] for number in shown]


def _past(past: PastDecision, effects: Sequence[Effect]) -> str:
    decision, outcome = past.decision, past.outcome or "waits"
    words = {True: "has silenced", False: "has not silenced", None: "too early to tell for"}
    outcome += "".join(
        f", {words[effect.worked]} {effect.rule}"
        for effect in effects
        if effect.decision == past.number
    )
    params = json.dumps({key: _rounded(value) for key, value in decision.params.items()})
    return (
        f"- epoch {past.epoch}, {past.source}: {', '.join(decision.cites)} {decision.direction} "
        f"{params}, {outcome}; said: {quoted(decision.justification, MOST_WORDS)}"
    )


def _violation(found: Mapping[str, Any]) -> str:
    rule = found.get("rule")
    epochs = ", ".join(_number(epoch) for epoch in _list(found.get("epochs"), int)[:8])
    return (
        f"- {_name(found.get('kind'))}"
        + (f" of {rule}" if rule in RULES else "")
        + f" by {_name(found.get('emitter'))}"
        + (f", {_number(found['count'])} times" if "count" in found else "")
        + (f", epochs {epochs}" if epochs else "")
    )


def _name(value: Any) -> str:
    """Return a name made of letters and underscores; anything else is no name of ours."""
    text = str(value)[:40]
    return text if text.replace("_", "").isalpha() and text.isascii() else "unnamed"


def _number(value: Any) -> str:
    """Return a number in four digits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "none"
    if isinstance(value, int):
        return str(value) if abs(value) < 10**9 else "out of range"
    return f"{value:.4g}"


def _rounded(value: Any) -> Any:
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.4g}")
    return value


def _list(value: Any, kind: Any = Mapping) -> list[Any]:
    return [item for item in value if isinstance(item, kind)] if isinstance(value, list) else []


@cache
def _game(rules: RulesConfig) -> list[str]:
    """Return the contract and the playbook, of the rules that a run has."""
    contract = _text("contract.md")
    for word, told in (
        ("RULES", told_rules(rules.names)),
        ("ORDER", ", ".join(rule for rule in PRECEDENCE if rule in rules.names)),
        ("WINDOW", f"{rules.action_window}"),
        ("LIMIT", f"{rules.deferral_limit}"),
    ):
        contract = contract.replace(word, told)
    sections = _text("playbook.md").split("\n## ")
    known = [part for part in sections if not (rule := _of_rule(part)) or rule in rules.names]
    return [contract, "\n## ".join(known)]


def _of_rule(section: str) -> str | None:
    """Return the rule that a section of the playbook is about."""
    name = section.partition(":")[0]
    return name if name in RULES else None


@cache
def _text(name: str) -> str:
    return files("policies.prompts").joinpath(name).read_text(encoding="utf-8").rstrip()
