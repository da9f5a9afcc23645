-- Views of drift: what each checkpoint is worth by six measures, how they move along the chain, and
-- which alarms wait for an operator.

CREATE VIEW alarms AS
WITH numbered AS (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY line_id ORDER BY idx) AS number FROM drift_alarms
)

SELECT
    a.line_id,
    a.number,  -- Of the alarm on its line, from 1
    a.idx,
    t.time,  -- When it was raised
    a.checkpoint_id,  -- Active at the time
    a.kind,  -- ratchet, decline, three sigma, circuit breaker, complexity, production, not promoted, worse; velocity is no alarm but a word to the operator
    a.detail,  -- Explanation
    r.idx IS NULL AS open,  -- Whether it waits for an operator
    r.idx AS answered_idx,  -- Ledger index of the answer; NULL: there is none
    r.note  -- What the operator said
FROM numbered AS a
JOIN events AS t ON t.idx = a.idx
LEFT JOIN drift_answers AS r ON r.line_id = a.line_id AND r.alarm = a.number AND r.idx > a.idx;
COMMENT ON VIEW alarms IS 'Each alarm with the operator''s answer';

-- Which audits count is as in counting_audits, but for what came to a run after its audit: an audit
-- that failed, or that gave few points for the process, speaks against a run that goes on, too.
CREATE VIEW production_runs AS
WITH counting AS (
    SELECT
        a.run_id, a.hard_fail, a.exercised, e.process_score, e.validation_accuracy AS accuracy
    FROM audit_strengths AS a
    JOIN audit_scores AS e ON e.audit_id = a.audit_id AND e.idx = a.idx
    WHERE a.valid AND (a.complete OR a.hard_fail OR e.process_score < 0.5)
    QUALIFY
        ROW_NUMBER() OVER (
            PARTITION BY a.run_id
            ORDER BY
                a.signed DESC,
                a.other_files,
                a.all_checks DESC,
                a.reach DESC,
                a.revision DESC,
                a.idx DESC
        ) = 1
),

own AS (SELECT run_id, ARG_MAX(val_accuracy, idx) AS accuracy FROM epochs GROUP BY run_id),

-- Runs of one task have the same configuration and data, whatever their seed. A run has learned
-- something if its accuracy is at least a tenth of the way from chance to 1.
ended AS (
    SELECT
        r.run_id,
        r.checkpoint AS checkpoint_id,
        r.started_idx,
        SHA256(CAST(ROW(JSON_MERGE_PATCH(r.config, '{"seed": null}'), r.data) AS VARCHAR)) AS task,
        COALESCE(l.accuracy, o.accuracy) AS accuracy,
        1.0 / TRY_CAST((r.spec ->> '$.classes') AS INTEGER) AS chance,
        COALESCE(TRY_CAST((r.data ->> '$.sizes.validation') AS BIGINT), 100) AS examples,
        l.process_score,
        l.exercised,
        r.end_reason = 'completed' AND NOT COALESCE(l.hard_fail, FALSE)
        AND COALESCE(l.process_score >= 0.5, TRUE) AS orderly
    FROM runs AS r
    LEFT JOIN counting AS l ON l.run_id = r.run_id
    LEFT JOIN own AS o ON o.run_id = r.run_id
    ANTI JOIN provocations AS p ON p.run_id = r.run_id
    ANTI JOIN forks AS f ON f.run_id = r.run_id
    WHERE r.checkpoint IS NOT NULL AND r.end_reason IS NOT NULL AND r.level = 'repeatable'
        -- whose metric need not be an accuracy
        AND r.config ->> '$.task' IS NULL
),

results AS (
    SELECT
        *,
        orderly AND COALESCE(
            ISFINITE(accuracy) AND accuracy >= chance + 0.1 * (1 - chance), FALSE
        ) AS learned
    FROM ended
),

first_runs AS (
    SELECT task, accuracy, examples
    FROM results
    WHERE learned
    QUALIFY ROW_NUMBER() OVER (PARTITION BY task ORDER BY started_idx) <= 20
),

ranges AS (
    SELECT
        task,
        MEDIAN(accuracy) - 3 * GREATEST(
            1.4826 * MAD(accuracy), SQRT(MEDIAN(accuracy) * (1 - MEDIAN(accuracy)) / MIN(examples))
        ) AS low
    FROM first_runs
    GROUP BY task
    HAVING COUNT(*) >= 10
)

SELECT
    r.run_id,
    r.checkpoint_id,  -- That it is labelled with
    r.started_idx,
    r.task,  -- Same for runs with the same configuration and data, whatever their seed
    r.accuracy,  -- On the validation set: as the audit that checked most measured it, else of the last epoch; where a judge has a key, of the signed audits
    r.chance,  -- Accuracy of guessing, from the number of classes
    g.low,  -- Lower end of the healthy range of its task: the median accuracy of the first 20 runs of the task that learned, less 3 robust deviations; NULL: there are fewer than 10
    r.process_score,  -- In the same audit; NULL: there is none
    r.exercised,  -- Whether enough rules fired and were answered in it; NULL: there is no audit
    r.learned AND COALESCE(r.accuracy >= g.low, TRUE) AS success  -- Completed, no hard fail and a process score of at least 0.5 in the audit that checked most, an accuracy of at least chance + 0.1 * (1 - chance), and within the healthy range of its task
FROM results AS r
LEFT JOIN ranges AS g USING (task);
COMMENT ON VIEW production_runs IS 'Finished runs under each checkpoint, without watched runs and runs that have a provoked fault';

-- The sum of failures less successes that never falls below zero. It begins again with each
-- checkpoint, and when an operator has answered an alarm of production.
CREATE VIEW production_charts AS
WITH placed AS (
    SELECT
        p.run_id,
        c.line_id,
        p.checkpoint_id,
        p.started_idx,
        p.success,
        (
            SELECT COUNT(*) FROM drift_answers AS a
            WHERE a.line_id = c.line_id AND a.kind = 'production' AND a.idx < p.started_idx
        ) AS answers
    FROM production_runs AS p
    JOIN checkpoint_starts AS c USING (checkpoint_id)
),

walks AS (
    SELECT
        *,
        SUM(CASE WHEN success THEN -1 ELSE 1 END) OVER (
            PARTITION BY line_id, checkpoint_id, answers ORDER BY started_idx
        ) AS walk
    FROM placed
)

SELECT
    run_id,
    line_id,  -- The line of its checkpoint
    checkpoint_id,  -- That it is labelled with
    started_idx,
    answers,  -- Alarms of production on the line that operators had answered by then; each begins the sum again
    CAST(walk - LEAST(0, MIN(walk) OVER (
        PARTITION BY line_id, checkpoint_id, answers ORDER BY started_idx
    )) AS INTEGER) AS deficit  -- Failures less successes since the sum was last zero
FROM walks;
COMMENT ON VIEW production_charts IS 'How far failures outnumber successes after each run of a checkpoint; 8 is an alarm';

-- Each answer is recorded before the next one is asked for. So the time of an answer is that since
-- the event before it in the proposal's stream; a median, because a stopped process leaves a gap.
CREATE VIEW task_use AS
WITH timed AS (
    SELECT
        e.idx,
        EPOCH(e.time - LAG(e.time) OVER (PARTITION BY e.stream_id ORDER BY e.idx)) AS seconds
    FROM events AS e
    WHERE e.name LIKE 'proposal.%'
)

SELECT
    t.proposal_id,
    s.line_id,
    CASE t.arm WHEN 'base' THEN b.against ELSE b.commit END AS commit,  -- That answered
    t.arm,  -- base or candidate
    t.task,  -- The task
    COUNT(*) AS answers,  -- How many
    AVG(CAST(t.success AS INTEGER)) AS success,  -- Share of them that were right
    AVG(CAST(t.validation_failures = 0 AS INTEGER)) AS valid,  -- Share of them without a part that was refused
    MEDIAN(d.seconds) AS seconds,  -- Wall clock of one answer, median
    AVG(TRY_CAST(t.metrics ->> '$.bytes' AS DOUBLE)) AS bytes,  -- Mean size of the prompt that was made; NULL: the task makes none
    AVG(TRY_CAST(t.metrics ->> '$.prompt_tokens' AS DOUBLE)) AS prompt_tokens,  -- Mean tokens that a model was asked with; NULL: the task asks no model, or its server counts none
    AVG(TRY_CAST(t.metrics ->> '$.tokens' AS DOUBLE)) AS tokens,  -- Mean tokens that it answered with; NULL: likewise
    AVG(TRY_CAST(t.metrics ->> '$.budget' AS DOUBLE)) AS budget_utilisation,  -- Mean share of the tokens that it may answer with; NULL: likewise
    AVG(TRY_CAST(t.metrics ->> '$.precision' AS DOUBLE)) AS "precision"  -- Mean precision of the selected rows; NULL: the task does not measure it
FROM infra_task_scores AS t
JOIN infra_branches AS b USING (proposal_id)
JOIN infra_submissions AS s USING (proposal_id)
JOIN timed AS d ON d.idx = t.idx
WHERE NOT t.cached
GROUP BY ALL;
COMMENT ON VIEW task_use IS 'What each arm of a proposal needed for each reference task, and how well it answered';

-- Stages of a run are what models were asked for, and the rest of it; those of a proposal are the
-- gauntlet's, and what its proposer asked for.
CREATE VIEW stage_use AS
WITH asked AS (
    SELECT
        t.run_id AS subject,
        c.action AS stage,
        SUM(c.seconds) AS seconds,
        COUNT(*) AS calls,
        SUM(c.prompt_tokens) AS prompt_tokens,
        SUM(c.completion_tokens) AS completion_tokens,
        AVG(
            c.completion_tokens / TRY_CAST(
                COALESCE(c.parameters ->> '$.max_tokens', c.parameters ->> '$.max_completion_tokens')
                AS DOUBLE
            )
        ) AS budget_utilisation,
        SUM(c.cost) AS cost
    FROM calls AS c
    JOIN transcripts AS t USING (transcript_id)
    GROUP BY ALL
),

trained AS (
    SELECT
        r.run_id AS subject,
        EPOCH(r.ended_at - r.started_at) - COALESCE(a.seconds, 0) AS seconds
    FROM runs AS r
    LEFT JOIN (SELECT subject, SUM(seconds) AS seconds FROM asked GROUP BY subject) AS a
        ON a.subject = r.run_id
    WHERE r.ended_at IS NOT NULL
),

passed AS (
    SELECT
        e.stream_id AS subject,
        CASE e.name
            WHEN 'proposal.branched' THEN 'branch'
            WHEN 'proposal.tested' THEN 'test'
            WHEN 'proposal.task_scored' THEN 'benchmark'
            WHEN 'proposal.evaluated' THEN 'evaluate'
            WHEN 'proposal.rest_tested' THEN 'test the rest'
            WHEN 'proposal.concluded' THEN 'conclude'
        END AS stage,
        EPOCH(e.time - LAG(e.time) OVER (PARTITION BY e.stream_id ORDER BY e.idx)) AS seconds
    FROM events AS e
    WHERE e.name LIKE 'proposal.%'
)

SELECT subject, 'run' AS kind, 'train' AS stage, seconds,
    NULL::BIGINT AS calls, NULL::HUGEINT AS prompt_tokens, NULL::HUGEINT AS completion_tokens,
    NULL::DOUBLE AS budget_utilisation, NULL::DOUBLE AS cost
FROM trained
UNION ALL
SELECT subject, 'proposal', stage, SUM(seconds), NULL, NULL, NULL, NULL, NULL
FROM passed
WHERE stage IS NOT NULL
GROUP BY subject, stage
UNION ALL
SELECT
    a.subject,  -- The run or the proposal
    CASE WHEN r.run_id IS NULL THEN 'proposal' ELSE 'run' END,
    a.* EXCLUDE (subject)
FROM asked AS a
LEFT JOIN run_starts AS r ON r.run_id = a.subject;
COMMENT ON VIEW stage_use IS 'Time, tokens and use of the budget in each stage of a run and of a proposal';
COMMENT ON COLUMN stage_use.kind IS 'run or proposal';
COMMENT ON COLUMN stage_use.stage IS 'Of a run: train, or what a model was asked for (decide, repair, probe); of a proposal: propose, branch, test, benchmark, evaluate, test the rest, conclude';
COMMENT ON COLUMN stage_use.seconds IS 'Wall clock between events, with the time in which a process was stopped; of calls, with all retries';
COMMENT ON COLUMN stage_use.calls IS 'Requests to models; NULL: the stage makes none';
COMMENT ON COLUMN stage_use.prompt_tokens IS 'Of all of them';
COMMENT ON COLUMN stage_use.completion_tokens IS 'Of all of them';
COMMENT ON COLUMN stage_use.budget_utilisation IS 'Mean share of the tokens that a model may answer with';
COMMENT ON COLUMN stage_use.cost IS 'US dollars; NULL: unknown';

CREATE VIEW checkpoint_metrics AS
WITH evaluated AS (
    SELECT
        checkpoint_id,
        COUNT(*) AS evaluations,
        SUM(right_answers) / SUM(tasks) AS reference_success,
        SUM(valid) / SUM(tasks) AS validation_pass,
        AVG("precision") AS retrieval_precision,
        ARG_MAX(lines, idx) AS lines,
        ARG_MAX(functions, idx) AS functions,
        ARG_MAX(complexity, idx) AS complexity
    FROM checkpoint_evaluations
    WHERE purpose <> 'confirmation'
    GROUP BY checkpoint_id
),

produced AS (
    SELECT
        checkpoint_id,
        COUNT(*) AS runs,
        COUNT(*) FILTER (success) AS good,
        AVG(process_score) FILTER (exercised) AS process_score,
        AVG(CAST(exercised AS INTEGER)) AS exercised
    FROM production_runs
    GROUP BY checkpoint_id
),

charted AS (
    SELECT line_id, checkpoint_id, MAX(deficit) AS deficit
    FROM production_charts AS p
    WHERE answers = (
        SELECT COUNT(*) FROM drift_answers AS a
        WHERE a.line_id = p.line_id AND a.kind = 'production'
    )
    GROUP BY line_id, checkpoint_id
),

asked AS (
    SELECT
        s.checkpoint AS checkpoint_id,
        AVG(
            c.completion_tokens / TRY_CAST(
                COALESCE(c.parameters ->> '$.max_tokens', c.parameters ->> '$.max_completion_tokens')
                AS DOUBLE
            )
        ) AS used
    FROM run_starts AS s
    JOIN transcripts AS t ON t.run_id = s.run_id
    JOIN calls AS c ON c.transcript_id = t.transcript_id
    WHERE s.checkpoint IS NOT NULL AND c.action <> 'probe'
    GROUP BY s.checkpoint
),

benchmarked AS (
    SELECT
        c.checkpoint_id,
        COUNT(*) AS tasks,
        SUM(u.answers) AS answers,
        AVG(u.success) AS success,
        AVG(u.valid) AS valid,
        AVG(u."precision") AS "precision",
        AVG(u.seconds) AS seconds
    FROM (
        SELECT
            line_id,
            commit,
            task,
            SUM(answers) AS answers,
            SUM(success * answers) / SUM(answers) AS success,
            SUM(valid * answers) / SUM(answers) AS valid,
            AVG("precision") AS "precision",
            MEDIAN(seconds) AS seconds
        FROM task_use
        GROUP BY ALL
    ) AS u
    JOIN checkpoint_starts AS c ON c.line_id = u.line_id AND c.commit = u.commit
    GROUP BY c.checkpoint_id
),

proposed AS (
    SELECT
        c.checkpoint_id,
        COUNT(*) AS proposals,
        COUNT(*) FILTER (e.outcome = 'promoted') AS accepted
    FROM checkpoint_starts AS c
    JOIN infra_submissions AS s ON s.line_id = c.line_id AND s.base = c.commit
    JOIN infra_conclusions AS e ON e.proposal_id = s.proposal_id
    WHERE e.outcome IN ('promoted', 'rejected', 'halted')
    GROUP BY c.checkpoint_id
)

SELECT
    c.line_id,
    c.checkpoint_id,
    c.idx,  -- Ledger index at which it began
    ROW_NUMBER() OVER (PARTITION BY c.line_id ORDER BY c.idx) - 1 AS place,  -- On its line, from 0; rolled-back ones are counted
    EXISTS (
        SELECT 1 FROM checkpoint_reach AS b WHERE b.checkpoint_id = c.checkpoint_id
    ) AS rolled_back,  -- Whether it, or one that it descends from, was rolled back
    COALESCE(e.evaluations, 0) AS evaluations,  -- Without confirmations
    COALESCE(b.answers, 0) AS benchmark_answers,  -- To reference tasks, in the comparisons of the proposals that it came from or that would change it
    COALESCE(b.tasks, 0) AS benchmark_tasks,  -- That these answers are to
    b.success AS benchmark_success,  -- Share that was right, the mean over the tasks
    b.seconds AS benchmark_seconds,  -- Wall clock of one answer: the mean over the tasks of their medians
    COALESCE(e.reference_success, b.success) AS reference_success,  -- Share of reference tasks that were answered rightly in its evaluations; if there is none, in its benchmarks, as in the next two measures of tasks
    a.used AS budget_utilisation,  -- Mean share of the tokens that a model may answer with, over the calls of its runs
    COALESCE(e.retrieval_precision, b."precision") AS retrieval_precision,  -- Mean precision of the selected rows, over the reference tasks that measure it
    COALESCE(p.runs, 0) AS production_runs,  -- Runs that have ended under it; those with a fault on purpose are left out
    COALESCE(p.good, 0) AS production_good,  -- Of these, successes (production_runs)
    p.good / p.runs AS production_success,  -- Their share
    p.process_score AS production_process,  -- Mean process score of those that exercised it
    p.exercised AS production_exercised,  -- Share of the judged ones that exercised the process
    COALESCE(d.deficit, 0) AS production_deficit,  -- The largest deficit since the last answer to an alarm (production_charts)
    COALESCE(d.deficit >= 8, FALSE) AS production_alarm,  -- Whether it has reached 8: more runs fail than chance allows
    COALESCE(e.validation_pass, b.valid) AS validation_pass,  -- Share of reference tasks without an answer that was refused
    COALESCE(q.proposals, 0) AS proposals,  -- Changes to it that were judged
    COALESCE(q.accepted, 0) AS accepted,  -- Of these, promoted
    q.accepted / q.proposals AS proposal_acceptance,  -- Their share
    e.lines,  -- Of the code of tiers 1 and 2, when it was last weighed
    e.functions,  -- Likewise
    e.complexity  -- Likewise, cyclomatic
FROM checkpoint_starts AS c
LEFT JOIN evaluated AS e ON e.checkpoint_id = c.checkpoint_id
LEFT JOIN benchmarked AS b ON b.checkpoint_id = c.checkpoint_id
LEFT JOIN produced AS p ON p.checkpoint_id = c.checkpoint_id
LEFT JOIN charted AS d ON d.checkpoint_id = c.checkpoint_id AND d.line_id = c.line_id
LEFT JOIN asked AS a ON a.checkpoint_id = c.checkpoint_id
LEFT JOIN proposed AS q ON q.checkpoint_id = c.checkpoint_id;
COMMENT ON VIEW checkpoint_metrics IS 'Six measures of each checkpoint, and the size of its code; NULL: nothing was measured';

CREATE VIEW metric_trends AS
WITH measured AS (
    SELECT line_id, place, metric, value
    FROM checkpoint_metrics UNPIVOT (
        value FOR metric IN (
            reference_success,
            budget_utilisation,
            retrieval_precision,
            production_success,
            validation_pass,
            proposal_acceptance
        )
    )
    WHERE NOT rolled_back
)

SELECT
    line_id,
    metric,  -- Column of checkpoint_metrics
    COUNT(*) AS checkpoints,  -- That have a value
    ARG_MIN(value, place) AS first,  -- Value of the first of them
    ARG_MAX(value, place) AS last,  -- Value of the last of them
    CASE WHEN COUNT(*) > 1 THEN REGR_SLOPE(value, place) END AS slope  -- Gain per checkpoint, least squares; NULL: there is only one
FROM measured
GROUP BY line_id, metric;
COMMENT ON VIEW metric_trends IS 'The trend of each of the six measures over the valid checkpoints of each line';
