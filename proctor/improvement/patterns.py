"""What the ledger's projection says went wrong on a line, and what was tried about it.

Every pattern names the entries that show it. One that something was promoted about is closed until
it is seen again; what the head does not answer rightly is open for as long as it is the head.
Of runs only those are learned from that curation lets in, at least as failures: what is read here
gets into proposals, and from them into the next runs.

I/O: asks the projection, which is brought up to date first.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any
from uuid import UUID

from aggregates.improvement.evolution import MODE, Evolution
from ledger.wording import counted
from policies.asking.prompt import quoted
from policies.proposing.proposer import Earlier
from policies.proposing.tuner import LOST, TIED, WON, Example, Pattern, Trial, marked_bad
from proctor.home import Home
from proctor.improvement.rounds import Round
from proctor.remembering import open_session

MOST_ENTRIES = 20  # named in a pattern's evidence
OPEN_TIER = 2  # whose changes need no approval
_MOST_WORDS = 160  # bytes of others' words in a pattern

_VIOLATIONS = """
SELECT
    v.kind, v.rule, v.emitter, SUM(v.times) AS times,
    v.kind || ' ' || COALESCE(v.rule, '-') || ' ' || COALESCE(v.emitter, '-') AS key,
    CONCAT_WS(' of ', TRIM(REGEXP_REPLACE(LOWER(v.kind), '[^a-z]+', ' ', 'g')), v.rule)
    || ' by ' || COALESCE(v.emitter, 'somebody') AS says,
    LIST(DISTINCT a.scored_idx ORDER BY a.scored_idx) AS entries,
    LIST(DISTINCT r.run_id ORDER BY r.run_id) AS runs
FROM violations AS v
JOIN audits AS a USING (audit_id)
JOIN curated_runs AS r ON r.run_id = a.run_id AND r.usable
GROUP BY ALL ORDER BY times DESC, 1, 2
"""
_ANSWERS = """
SELECT
    outcome,
    REGEXP_REPLACE(COALESCE(problem, ''), '[0-9]+', 'N', 'g') AS said,
    COUNT(*) AS times,
    outcome || ' ' || said AS key,
    'an answer that was ' || outcome || ', reported' AS says,
    LIST(c.idx ORDER BY c.idx) AS entries,
    LIST(DISTINCT r.run_id ORDER BY r.run_id) AS runs
FROM calls AS c
JOIN transcripts USING (transcript_id)
JOIN curated_runs AS r USING (run_id)
WHERE r.usable AND action IN ('decide', 'repair') AND epoch IS NOT NULL AND model IS NOT NULL
    AND outcome IN ('unusable', 'refused', 'truncated')
GROUP BY ALL ORDER BY times DESC, 1, 2
"""
_REJECTIONS = """
SELECT
    c.outcome || ' at ' || c.stage AS ended,
    s.targets::VARCHAR AS targets,
    ended || ' ' || targets AS key,
    'changes of ' || ARRAY_TO_STRING(LIST_TRANSFORM(
        JSON_KEYS(s.targets)[:8], lambda path: REGEXP_REPLACE(path, '[^A-Za-z0-9_./+@-]', '?', 'g')
    ), ', ')
    || ' that were ' || ended || ', the last reported' AS says,
    REGEXP_REPLACE(ARG_MAX(c.reason, c.idx), '[0-9a-f]{8,}|[0-9]+', 'N', 'g') AS said,
    COUNT(*) AS times,
    LIST(c.idx ORDER BY c.idx) AS entries
FROM infra_conclusions AS c
JOIN infra_submissions AS s USING (proposal_id)
WHERE s.line_id = $1 AND c.outcome IN ('rejected', 'halted')
GROUP BY ALL HAVING times > 1 ORDER BY times DESC, 1, 2
"""
# A proposal counts by the share of its answers that failed: it has many of a stochastic task.
_TASKS = """
WITH failing AS (
    SELECT
        t.task,
        AVG(CAST(NOT t.success AS INTEGER)) AS share,
        ARG_MAX(COALESCE(t.problem, ''), t.idx) FILTER (NOT t.success) AS problem,
        LIST(t.idx ORDER BY t.idx) FILTER (NOT t.success) AS idxs
    FROM infra_task_scores AS t
    JOIN infra_branches AS b USING (proposal_id)
    JOIN infra_submissions AS s USING (proposal_id)
    WHERE
        s.line_id = $1 AND NOT t.cached
        AND (CASE t.arm WHEN 'base' THEN b.against ELSE b.commit END) = $2
    GROUP BY t.task, proposal_id
    HAVING share > 0
),

measured AS (
    SELECT UNNEST(JSON_KEYS(tasks)) AS task, tasks -> ('$."' || task || '"') AS told, idx
    FROM drift_measurements WHERE line_id = $1 AND commit = $2 AND task_set = 'reference'
)

SELECT
    task,
    CAST(ROUND(SUM(share)) AS BIGINT) AS times,
    task AS key,
    'task ' || task || ', which is not answered rightly' AS says,
    ARG_MAX(problem, idxs[-1]) AS said,
    LIST_SORT(FLATTEN(LIST(idxs))) AS entries
FROM (
    FROM failing
    UNION ALL
    SELECT task, 1.0 AS share, COALESCE(told ->> '$.problem', '') AS problem, [idx] AS idxs
    FROM measured WHERE NOT CAST(told -> '$.success' AS BOOLEAN)
)
GROUP BY task HAVING times > 0 ORDER BY times DESC, 1, 2
"""
_ALARMS = """
SELECT
    kind AS key, COUNT(*) AS times, ARG_MAX(detail, idx) AS said, LIST(idx ORDER BY idx) AS entries,
    'an alarm, ' || TRIM(REGEXP_REPLACE(LOWER(kind), '[^a-z]+', ' ', 'g')) AS says
FROM drift_alarms WHERE line_id = $1 AND commit = $2 GROUP BY ALL ORDER BY times DESC, 1, 2
"""
# Kind -> the question whose rows are patterns of it. `said` is others' words.
_SEEN = {
    "violation": _VIOLATIONS,
    "answer": _ANSWERS,
    "rejection": _REJECTIONS,
    "task": _TASKS,
    "drift": _ALARMS,
}
_MARKS = """
WITH marks AS (
    SELECT
        r.mark, c.rule, d.direction, d.params, d.justification, r.note, r.idx, d.run_id, d.epoch
    FROM reviews AS r
    JOIN decisions AS d ON d.idx = r.decision_idx
    JOIN citations AS c ON c.run_id = d.run_id AND c.number = d.number
    UNION ALL
    SELECT
        p.mark,
        UNNEST(CAST(p.decision -> '$.cites' AS VARCHAR[])),
        (p.decision ->> '$.direction'),
        (p.decision -> '$.params'),
        (p.decision ->> '$.justification'),
        p.note,
        p.idx,
        t.run_id,
        p.epoch
    FROM proposal_reviews AS p
    JOIN transcripts AS t USING (transcript_id)
    WHERE p.mark IS NOT NULL
)

SELECT
    m.mark, m.rule, e.side, m.direction, m.params::VARCHAR AS params, m.justification, m.note,
    m.idx AS entry, m.run_id AS run
FROM marks AS m
JOIN curated_runs AS r
    ON r.run_id = m.run_id AND CASE m.mark WHEN 'bad' THEN r.usable ELSE r.let_in END
LEFT JOIN rule_evaluations AS e
    ON e.run_id = m.run_id AND e.epoch = m.epoch AND e.rule = m.rule
ORDER BY m.idx, m.rule
"""
# Proposals and rounds that came to none, each with its technique, its pattern and how it did.
_TRIED = f"""
WITH parts AS (
    SELECT proposal_id, UNNEST(TRY_CAST(evidence AS JSON [])) AS part
    FROM infra_submissions WHERE line_id = $1
),

named AS (
    SELECT
        proposal_id,
        FIRST(part ->> '$.name') FILTER (part ->> '$.kind' = 'technique') AS technique,
        FIRST(part ->> '$.key') FILTER (part ->> '$.kind' = 'pattern') AS pattern
    FROM parts GROUP BY proposal_id
),

problems AS (
    SELECT proposal_id, task, ARG_MAX(problem, idx) AS problem
    FROM infra_task_scores WHERE arm = 'candidate' AND NOT success GROUP BY proposal_id, task
),

tried AS (
    SELECT
        s.idx, s.proposal_id, s.diff, n.technique, n.pattern, s.rationale,
        s.targets::VARCHAR AS targets,
        c.outcome, c.reason, c.idx AS concluded, e.comparisons::VARCHAR AS comparisons, p.problem,
        CASE
            WHEN c.outcome = 'promoted' THEN '{WON}'
            WHEN c.outcome NOT IN ('rejected', 'halted') THEN NULL
            WHEN e.verdict = 'cannot tell' THEN '{TIED}'
            ELSE '{LOST}'
        END AS result
    FROM infra_submissions AS s
    LEFT JOIN named AS n USING (proposal_id)
    LEFT JOIN infra_conclusions AS c USING (proposal_id)
    LEFT JOIN infra_evaluations AS e USING (proposal_id)
    LEFT JOIN problems AS p ON p.proposal_id = s.proposal_id AND 'task ' || p.task = n.pattern
    WHERE s.line_id = $1
    UNION ALL BY NAME
    SELECT
        idx, technique, pattern, outcome, reason,
        IF(outcome = 'nothing', '{TIED}', '{LOST}') AS result
    FROM evolution_rounds
    WHERE evolution_id = $2 AND outcome IN ('nothing', 'refused', 'unusable')
)

SELECT * EXCLUDE (idx) FROM tried
WHERE idx > COALESCE(
    (SELECT MAX(idx) FROM evolution_rounds WHERE evolution_id = $2 AND round <= $3), -1
)
ORDER BY idx
"""  # noqa: S608 - the words are our own
_ANSWERED = """
SELECT t.task
FROM infra_task_scores AS t
JOIN infra_branches AS b USING (proposal_id)
JOIN infra_submissions AS s USING (proposal_id)
WHERE s.line_id = $1 AND (CASE t.arm WHEN 'base' THEN b.against ELSE b.commit END) = $2
UNION
SELECT UNNEST(JSON_KEYS(tasks))
FROM drift_measurements WHERE line_id = $1 AND commit = $2 AND task_set = 'reference'
"""
_ROUNDS = """
SELECT r.round, COALESCE(c.outcome, r.outcome)
FROM evolution_rounds AS r
LEFT JOIN infra_conclusions AS c USING (proposal_id)
WHERE r.evolution_id = $1 AND r.round > $2
ORDER BY r.round
"""
_CALLS = """
SELECT
    t.run_id,
    ARG_MAX(c.model, c.number) AS model,
    COUNT(*) AS calls,
    CAST(SUM(COALESCE(c.total_tokens, c.prompt_tokens + c.completion_tokens)) AS BIGINT) AS tokens,
    SUM(c.cost) AS cost
FROM transcripts AS t
JOIN calls AS c USING (transcript_id)
WHERE t.mode = $1 AND c.model IS NOT NULL
GROUP BY t.run_id
"""
_KEPT_OUT = "SELECT COUNT(*) FROM curated_runs WHERE NOT usable"


@dataclass(frozen=True, kw_only=True)
class GivenUp:
    """A change that was neither shown to be better nor worse."""

    proposal: str
    diff: str  # digest
    rationale: str
    measured: str
    gains: Mapping[str, float]  # task -> by how much more often its answers were right


class LineHistory:
    """The line as its projection tells it, at one moment."""

    def __init__(self, home: Home, line: UUID, *, since: int = 0) -> None:
        """Read what there is; rounds up to `since` are history, and their proposals with them."""
        self._session = open_session(home)
        self._line = str(line)
        self._evolution = Evolution.open(self._line)
        self._since = since
        asked = (self._line, str(self._evolution.id), since)
        self._tried = self._session.query(_TRIED, asked).records

    def trials(self) -> list[Trial]:
        """Return what techniques were tried on what, as far as it is decided, oldest first.

        A round that came to no proposal counts as one that was lost, or was a tie if there was
        nothing to be said.
        """
        return [
            Trial(technique=one["technique"], pattern=one["pattern"], result=one["result"])
            for one in self._tried
            if one["technique"] is not None and one["result"] is not None
        ]

    def earlier(self) -> list[Earlier]:
        """Return every proposal on the line that is not history, oldest first, refused ones too."""
        return [
            Earlier(
                technique=one["technique"],
                rationale=one["rationale"] or "",
                targets=list(json.loads(one["targets"] or "[]")),
                outcome=one["outcome"] or "open",
                reason=one["reason"] or "",
                pattern=one["pattern"],
                measured="; ".join(_measured(one)),
            )
            for one in self._tried
            if one["rationale"] is not None or one["outcome"] == "refused"
        ]

    def given_up(self) -> list[GivenUp]:
        """Return the changes without approval that were rejected undecided, oldest first."""
        return [
            GivenUp(
                proposal=str(one["proposal_id"]),
                diff=one["diff"],
                rationale=one["rationale"],
                measured="; ".join(_measured(one)),
                gains={
                    told["task_id"]: told["success"][1] - told["success"][0]
                    for told in json.loads(one["comparisons"])
                    if told.get("success") and None not in told["success"]
                },
            )
            for one in self._tried
            if one["result"] == TIED
            and one["comparisons"]
            and set(json.loads(one["targets"]).values()) == {OPEN_TIER}
        ]

    def rounds(self) -> list[Round]:
        """Return the rounds that are not history, the one that has not ended at the end."""
        asked = (str(self._evolution.id), self._since)
        ended = dict(self._session.query(_ROUNDS, asked).rows)
        calls = {told.pop("run_id"): told for told in self._session.query(_CALLS, (MODE,)).records}
        following = max(ended, default=self._since) + 1
        return [
            Round(
                number=number,
                outcome=ended.get(number),
                **calls.get(str(self._evolution.proposal_id(number)), {}),
            )
            for number in (*ended, following)
        ]

    def patterns(self, head: str) -> list[Pattern]:
        """Return what is wrong and open; `head` is the commit that the line is at."""
        with self._session.held():
            bad = [replace(p, entries=_last(p.entries)) for p in marked_bad(self.examples())]
            violations, answers, rejections, *now = (list(self._seen(kind, head)) for kind in _SEEN)
        won = {one["pattern"]: one["concluded"] for one in self._tried if one["result"] == WON}
        found = (*violations, *answers, *bad, *rejections)
        still = [_since(each, won[each.key]) if each.key in won else each for each in found]
        return [each for each in (*still, *chain(*now)) if each is not None]

    def answered(self, head: str) -> set[str]:
        """Return the reference tasks that this commit has answered, on record."""
        return {task for (task,) in self._session.query(_ANSWERED, (self._line, head)).rows}

    def kept_out(self) -> int:
        """Return how many runs there are that nothing is learned from."""
        return int(self._session.query(_KEPT_OUT).rows[0][0])

    def examples(self) -> list[Example]:
        """Return the decisions that people have marked, oldest mark first."""
        rows = self._session.query(_MARKS).records
        return [Example(**{**row, "params": json.loads(row["params"])}) for row in rows]

    def _seen(self, kind: str, head: str) -> Iterator[Pattern]:
        """Give what a question finds, as seen at the head."""
        sql = _SEEN[kind]
        given = [value for name, value in (("$1", self._line), ("$2", head)) if name in sql]
        for row in self._session.query(sql, given).records:
            reported = f": {quoted(row['said'] or '', _MOST_WORDS)}" if "said" in row else ""
            yield Pattern(
                key=f"{kind} {row['key']}"[:200],
                kind=kind,
                count=row["times"],
                says=row["says"] + reported,
                rule=row.get("rule"),
                entries=_last(row["entries"]),
                runs=tuple(row.get("runs", ())),
            )


def _measured(one: Mapping[str, Any]) -> Iterator[str]:
    """Give how often the task that a proposal was about, and each that changed, came out right."""
    for told in json.loads(one["comparisons"] or "[]"):
        before, after = told.get("success") or (None, None)
        own = one["pattern"] == f"task {told['task_id']}"
        if None not in (before, after) and (own or before != after):
            last = f", at last: {one['problem']}" if own and one["problem"] else ""
            pairs = counted(told["pairs"], "pair")
            yield f"{told['task_id']}: right {before:.0%} -> {after:.0%} in {pairs}{last}"


def _since(pattern: Pattern, won: int) -> Pattern | None:
    """Return a pattern as it was seen after something was promoted about it, if it was."""
    later = tuple(index for index in pattern.entries if index > won)
    return replace(pattern, entries=later, count=max(len(later), 1)) if later else None


def _last(entries: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(entries)[-MOST_ENTRIES:])
