"""Examples: admitted answers, each as one line in the format that trainers read.

A line is canonical JSON (sorted keys, no spaces, ASCII). Beside its id it holds what TRL calls a
conversational dataset: `messages`; `prompt`, `chosen` and `rejected`; or, of a proposal, `prompt`,
`completion` and `label`. Both answers of a pair have the same words as their justification: what
was compared is what they do, and their authors' words would tell them apart.

The prompt of a decision without a model call is the situation in which it was made. It is built
from recorded measurements alone and not by the policies' own prompt, which the system may change.
So an export as of an index never changes. It contains no text written by a model or a person, and
no measurement that a policy does not see, such as the validation accuracy.

Source: TRL, "Dataset formats and types"; docs/reference/curation.md.
Trust: requests are what a policy once stored; one that is no list of messages is left out.
I/O: reads blobs.  Units: epochs from 0.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from aggregates.credit import better_of
from aggregates.decisions import Decision, PastDecision
from aggregates.playbook import GO_BACK, RESTORING
from aggregates.rulebook import known_rules
from aggregates.rules import RuleEvaluation
from aggregates.situation import COLUMNS, NEUTRAL, SETTINGS, describe, task
from judge.curation.intervals import chance, false_discovery_rates, interval, level_of
from judge.curation.query import Query
from judge.curation.tables import Tables
from ledger.blobs import Blobs

Message = dict[str, str]

_EPOCH_ROWS = f"""
SELECT {", ".join(COLUMNS)}, {", ".join(SETTINGS)} FROM epochs
WHERE run_id = ? AND epoch <= ? ORDER BY epoch
"""  # noqa: S608 - our own names
_DUE_ROWS = """
SELECT rule, fired, side, value, ema, streak FROM rule_evaluations
WHERE run_id = ? AND epoch = ? AND LIST_CONTAINS(?, rule) ORDER BY precedence
"""
_EARLIER_ROWS = """
SELECT
    d.number, d.epoch, d.direction, d.params::VARCHAR AS params, r.outcome,
    (SELECT LIST(c.rule) FROM citations AS c
     WHERE c.run_id = d.run_id AND c.number = d.number) AS cites
FROM decisions AS d
LEFT JOIN remedies AS r ON r.run_id = d.run_id AND r.decision = d.number
WHERE d.run_id = ? AND d.epoch < ? ORDER BY d.number
"""
_START = """
SELECT s.rules::VARCHAR AS rules, TRY_CAST(s.config ->> '$.epochs' AS BIGINT) AS planned, COALESCE(
    (SELECT ARG_MAX(spec, idx)::VARCHAR FROM remedies
     WHERE run_id = s.run_id AND outcome = 'applied' AND epoch < ?), s.spec::VARCHAR
) AS spec
FROM run_starts AS s WHERE s.run_id = ?
"""
_ROLES = ("assistant", "system", "user")
_ANSWERS = "CREATE OR REPLACE TEMP TABLE answers AS SELECT * FROM curated_answers"
_SFT = """
SELECT a.run_id, a.number, d.idx FROM answers AS a
JOIN run_forces AS f USING (run_id)
JOIN decisions AS d ON d.run_id = a.run_id AND d.number = a.number
WHERE a.let_in{conditions} ORDER BY d.idx
"""
_PREFERENCES = """
SELECT
    p.chosen_run, p.chosen, p.rejected_run, p.rejected, p.difference, p.noise, p.violated
FROM preference_pairs AS p
JOIN answers AS a ON a.run_id = p.chosen_run AND a.number = p.chosen
JOIN run_forces AS f ON f.run_id = p.chosen_run
JOIN answers AS b ON b.run_id = p.rejected_run AND b.number = p.rejected
JOIN run_forces AS g ON g.run_id = p.rejected_run
JOIN decisions AS d ON d.run_id = p.chosen_run AND d.number = p.chosen
JOIN decisions AS e ON e.run_id = p.rejected_run AND e.number = p.rejected
WHERE (p.violated OR p.difference >= ?)
    AND p.difference > CASE WHEN p.violated THEN -p.noise ELSE p.noise END{conditions}
ORDER BY d.idx, e.idx
"""
_MEASURED = """
SELECT p.* FROM measured_pairs AS p
JOIN answers AS a ON a.run_id = p.recorded_run AND a.number = p.recorded
JOIN run_forces AS f ON f.run_id = p.recorded_run
WHERE TRUE{conditions} ORDER BY p.idx
"""
_QUESTIONS = "SELECT COUNT(DISTINCT question) AS number FROM decision_credit WHERE why_not IS NULL"
_ARMS = """
SELECT s.run_id, f.run_id AS fork, c.question FROM credit_forks AS f
JOIN credit_starts AS s USING (credit_id)
JOIN decision_credit AS c USING (credit_id, decision, arm)
"""
_PROPOSALS = """
SELECT
    p.proposal_id, p.accepted, s.base, s.trigger, s.targets::VARCHAR AS targets, s.rationale,
    s.evidence::VARCHAR AS evidence, s.diff, c.outcome, c.stage, c.reason, e.verdict,
    e.regressions::VARCHAR AS regressions, e.improvements::VARCHAR AS improvements
FROM curated_proposals AS p
JOIN infra_submissions AS s USING (proposal_id)
JOIN infra_conclusions AS c USING (proposal_id)
LEFT JOIN infra_evaluations AS e USING (proposal_id)
WHERE p.let_in AND (LEN(?) = 0 OR LIST_CONTAINS(?, p.author)) ORDER BY p.idx
"""
_TASK = (
    "You propose one change of a repository whose checkpoints are compared on reference tasks. The "
    'answer is one JSON object: {"diff", "rationale", "targets"}, with the tier of each target.'
)
_DECISIONS = """
WITH cited AS (
    SELECT run_id, number, LIST(rule ORDER BY rule) AS cites FROM citations
    SEMI JOIN answers USING (run_id) GROUP BY run_id, number
)
SELECT
    d.run_id, d.number, d.event_type, c.cites, d.direction, d.params::VARCHAR AS params,
    d.justification
FROM decisions AS d JOIN cited AS c USING (run_id, number)
"""


class Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The decisions that an example was made of; fields in the order of sorted keys."""

    decisions: Annotated[tuple[tuple[str, int], ...], msgspec.Meta(min_length=1)]  # run and number
    id: str  # RUN/NUMBER, of preferences RUN/NUMBER>RUN/NUMBER, of a proposal PROPOSAL/1
    measured: tuple[str, ...] = ()  # of measured preferences: the runs that were compared
    rejected: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Example:
    """One line of an export, and what the list of members says of it."""

    member: Member
    line: bytes  # without its line break


@dataclass(frozen=True)
class _Answer:
    prompt: list[Message] | None  # None: its request is no list of messages
    said: str
    done: str  # likewise, with NEUTRAL for the words
    decisions: tuple[tuple[str, int], ...]


def examples(tables: Tables, query: Query, *, blobs: Blobs) -> Iterator[Example]:
    """Yield what the query lets through, in the order of the ledger.

    Raises BlobError for a request that is missing: what was drawn once has to come out again.
    """
    if query.kind == "proposals":
        yield from _proposals(tables, query, blobs)
        return
    answers = _Answers(tables, blobs)
    if query.kind == "sft":
        conditions, values = query.conditions("f", "a")
        for row in tables.ask(_SFT.format(conditions=conditions), values):
            answer = answers.get(row["run_id"], row["number"])
            if answer.prompt is not None:
                id_ = f"{row['run_id']}/{row['number']}"
                messages = [*answer.prompt, _assistant(answer.said)]
                line = canonical({"id": id_, "messages": messages})
                yield Example(Member(answer.decisions, id_), line)
        return
    for row in _measured(tables, query) if query.measured else _compared(tables, query):
        chosen = answers.get(row["chosen_run"], row["chosen"])
        rejected = answers.get(row["rejected_run"], row["rejected"])
        asked = chosen if row.get("kept", True) else rejected  # a fork is asked nothing
        if asked.prompt is not None:
            id_ = f"{row['chosen_run']}/{row['chosen']}>{row['rejected_run']}/{row['rejected']}"
            told = {
                "chosen": [_assistant(chosen.done)],
                "evidence": json.dumps(row["evidence"], sort_keys=True),
                "id": id_,
                "prompt": asked.prompt,
                "rejected": [_assistant(rejected.done)],
            }
            runs = tuple(row.get("forks", ()))
            member = Member(chosen.decisions, id_, measured=runs, rejected=rejected.decisions)
            yield Example(member, canonical(told))


def _compared(tables: Tables, query: Query) -> list[dict[str, Any]]:
    better, values = query.conditions("f", "a")
    worse, more = query.of_rejected().conditions("g", "b")
    sql = _PREFERENCES.format(conditions=better + worse)
    rows = tables.ask(sql, [query.margin, *values, *more])
    return [
        {
            **row,
            "evidence": {
                "difference": _rounded(row["difference"]),
                "noise": _rounded(row["noise"]),
                "violated": row["violated"],
            },
        }
        for row in rows
    ]


def is_measured(tables: Tables) -> Callable[[Member], bool]:
    """Return what tells whether measurements show a pair now, by these forks or by others."""
    query = Query(kind="preferences", measured=True)
    with tables.settled():
        tables.ask(_ANSWERS)
        shown = {(row["question"], row["kept"]) for row in _measured(tables, query)}
        asked = {(row["run_id"], row["fork"]): row["question"] for row in tables.ask(_ARMS)}

    def is_shown(member: Member) -> bool:
        chosen, rejected = member.decisions[0], member.rejected[0]
        return any(
            (asked.get((recorded[0], fork[0])), kept) in shown
            for recorded, fork, kept in ((chosen, rejected, True), (rejected, chosen, False))
        )

    return is_shown


def _measured(tables: Tables, query: Query) -> Iterator[dict[str, Any]]:
    """Yield the pairs whose forks show, once more, what was measured; filters are on the run's."""
    conditions, values = query.conditions("f", "a")
    rates = _rates(tables)
    for row in tables.ask(_MEASURED.format(conditions=conditions), values):
        rate = rates.get(row["question"])
        if rate is not None and rate <= (query.false_discoveries or math.inf):
            level = level_of(row["looks"])
            loss, accuracy = (
                {name: _rounded(value) for name, value in vars(interval(each, level)).items()}
                for each in _differences(row)
            )
            evidence = {
                "accuracy": accuracy,
                "false_discovery_rate": _rounded(rate),
                "level": _rounded(level),
                "loss": loss,
                "orders": len(row["recorded_losses"]),
            }
            yield {**row, "evidence": evidence}


def _rounded(value: float | None) -> float | None:
    """Return six digits: other machines' functions differ in the last ones, and bytes must not."""
    return None if value is None else float(f"{value:.6g}")


def _rates(tables: Tables) -> dict[str, float]:
    """Return the false discovery rate of each measured pair, by its question.

    A question was asked of two measures, and as often as it was looked at.
    """
    chances = {
        row["question"]: min(1.0, 2 * row["looks"] * min(map(chance, _differences(row))))
        for row in tables.ask("SELECT * FROM measured_pairs")
        if _decides(row)
    }
    asked = tables.ask(_QUESTIONS)[0]["number"]
    return false_discovery_rates(chances, max(asked, len(chances)))


def outnumbered(tables: Tables) -> int:
    """Return how many measurements decide by themselves, and not as one of several of the same."""
    rows = tables.ask("SELECT * FROM measured_pairs WHERE looks > 1")
    return sum(not _decides(row) and _decides({**row, "looks": 1}) for row in rows)


def _decides(row: Mapping[str, Any]) -> bool:
    """Tell whether the forks of a measured pair show what was recorded of it."""
    loss, accuracy = (interval(each, level_of(row["looks"])) for each in _differences(row))
    return bool(better_of(loss, accuracy) == row["better"])


def _differences(row: Mapping[str, Any]) -> list[list[float]]:
    """Return what the recorded answer saved in loss and gained in accuracy, order by order."""
    return [
        [math.nan if x is None or y is None else x - y for x, y in zip(more, less, strict=True)]
        for more, less in (
            (row["other_losses"], row["recorded_losses"]),
            (row["recorded_accuracies"], row["other_accuracies"]),
        )
    ]


def _proposals(tables: Tables, query: Query, blobs: Blobs) -> Iterator[Example]:
    """Yield each proposal that was judged with its outcome; one whose diff is no text is left out.

    The prompt shows what the proposal was about, and nothing of how it ended.
    """
    authors = sorted(set(query.decided_by))
    for row in tables.ask(_PROPOSALS, [authors, authors]):
        try:
            diff = blobs.get(row["diff"]).decode()
        except UnicodeDecodeError:
            continue
        about = [
            each
            for each in json.loads(row["evidence"])
            if isinstance(each, dict) and each.get("kind") in ("pattern", "technique")
        ]
        asked = f"Commit {row['base']}. Trigger: {row['trigger']}.\n\n" + "\n".join(
            json.dumps(each, sort_keys=True) for each in about
        )
        said = {
            "diff": diff,
            "rationale": row["rationale"],
            "targets": json.loads(row["targets"]),
        }
        came_to = {key: row[key] for key in ("outcome", "stage", "reason", "verdict")}
        for key in ("regressions", "improvements"):
            came_to[key] = None if row[key] is None else json.loads(row[key])
        id_ = f"{row['proposal_id']}/1"
        told = {
            "completion": [_assistant(json.dumps(said, ensure_ascii=False, sort_keys=True))],
            "evidence": json.dumps(came_to, ensure_ascii=False, sort_keys=True),
            "id": id_,
            "label": row["accepted"],
            "prompt": [
                {"content": _TASK, "role": "system"},
                {"content": asked.rstrip(), "role": "user"},
            ],
        }
        yield Example(Member(((row["proposal_id"], 1),), id_), canonical(told))


def canonical(value: Any) -> bytes:
    """Return JSON with sorted keys, without spaces, in ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


class _Answers:
    """All answers of these tables, put together when they are asked for."""

    def __init__(self, tables: Tables, blobs: Blobs) -> None:
        tables.ask(_ANSWERS)  # once: the view stands on many others
        self._tables = tables
        self._blobs = blobs
        self._found = {
            (row["run_id"], row["number"]): row for row in tables.ask("SELECT * FROM answers")
        }
        self._decisions = {(row["run_id"], row["number"]): row for row in tables.ask(_DECISIONS)}
        self._made: dict[tuple[str, int], _Answer] = {}

    def get(self, run: str, number: int) -> _Answer:
        """Return an answer in its author's words."""
        if (run, number) not in self._made:
            self._made[run, number] = self._make(run, self._found[run, number])
        return self._made[run, number]

    def _make(self, run: str, found: Mapping[str, Any]) -> _Answer:
        said = [
            {
                "event_type": row["event_type"],
                "cites": row["cites"],
                "direction": row["direction"],
                "params": json.loads(row["params"]),
                "justification": row["justification"],
            }
            for row in (self._decisions[run, number] for number in found["numbers"])
        ]
        prompt = (
            situation(self._tables, run=run, epoch=found["epoch"], rules=found["rules"])
            if found["request"] is None
            else _messages(self._blobs.get(found["request"]))
        )
        done = [{**each, "justification": NEUTRAL} for each in said]
        return _Answer(
            prompt,
            json.dumps({"decisions": said}, ensure_ascii=False),
            json.dumps({"decisions": done}, ensure_ascii=False),
            tuple((run, number) for number in found["numbers"]),
        )


def _messages(request: bytes) -> list[Message] | None:
    """Return the messages of a stored request, or None if it holds no list of them."""
    try:
        messages = json.loads(request)["messages"]
        texts = [(each["role"], each["content"]) for each in messages]
        for role, content in texts:
            content.encode("utf-8")  # no half of a surrogate pair
            if role not in _ROLES:
                return None
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None
    return [{"content": content, "role": role} for role, content in texts] or None


def _assistant(said: str) -> Message:
    return {"content": said, "role": "assistant"}


def situation(tables: Tables, *, run: str, epoch: int, rules: Sequence[str]) -> list[Message]:
    """Return the messages that ask about these rules in this epoch of a run."""
    epochs = tables.ask(_EPOCH_ROWS, [run, epoch])
    start = tables.ask(_START, [epoch, run])[0]
    followed = known_rules(json.loads(start["rules"]))
    asked = describe(
        due=[RuleEvaluation(**row) for row in tables.ask(_DUE_ROWS, [run, epoch, list(rules)])],
        settings=epochs[-1],
        spec=json.loads(start["spec"]),
        epochs=epochs,
        earlier=[
            _decided(**{**row, "params": json.loads(row["params"])})
            for row in tables.ask(_EARLIER_ROWS, [run, epoch])
        ],
        rules=followed,
        restoring=RESTORING if (start["planned"] or 0) - epoch > 3 else (GO_BACK,),  # Run.tries()
    )
    told = task(followed.names)
    return [{"role": "system", "content": told}, {"role": "user", "content": asked}]


def _decided(*, number: int, epoch: int, outcome: str | None, **said: Any) -> PastDecision:
    """Return a decision as far as it is told; what was recorded may be none of the playbook's."""
    return PastDecision(number, epoch, "", Decision("", **said, justification=""), outcome)
