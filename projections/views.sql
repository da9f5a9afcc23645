-- Views: what follows from the tables. Columns that come straight from a table keep their name.

CREATE VIEW runs AS
SELECT
    s.run_id,
    s.idx AS started_idx,
    started.time AS started_at,
    e.idx AS ended_idx,  -- Ledger index of its end
    ended.time AS ended_at,  -- NULL while the run is running, as are all columns about its end
    e.reason AS end_reason,  -- completed, crashed, failed, interrupted, restart or stopped
    COALESCE(s.config ->> '$.level', 'repeatable') AS level,  -- What it is evidence of: repeatable (a judge can train it again), measured (hooks saw the live model in a loop of its owner) or reported (the loop says so)
    COALESCE(s.config ->> '$.dataset', s.config ->> '$.name') AS dataset,  -- By name
    TRY_CAST((s.config ->> '$.seed') AS BIGINT) AS seed,  -- That the training begins from
    TRY_CAST((s.config ->> '$.epochs') AS INTEGER) AS epochs_planned,  -- How many it may have
    s.config,
    s.config_hash,  -- SHA-256 of the configuration, as recorded
    (s.rules ->> '$.profile') AS profile,  -- Profile of the rules
    s.rules,  -- Signals, thresholds and windows of the rules
    s.rules_hash,  -- SHA-256 of the rules configuration, as recorded
    s.spec,  -- Model specification at the start
    s.policy,  -- The policy's own description
    (s.policy ->> '$.name') AS policy_name,
    (s.config ->> '$.edits') AS edits,  -- live, or restart: structural changes are left to a following run
    TRY_CAST((s.config ->> '$.target_accuracy') AS DOUBLE) AS target_accuracy,  -- Target of the run; NULL: none
    COALESCE(s.config ->> '$.metric', 'accuracy') AS metric,  -- What a task says that its runs are compared by; accuracy for any other run
    COALESCE(s.config ->> '$.better', 'higher') AS better,  -- Which values of it are better: higher or lower
    s.parent_run,
    s.campaign,  -- The campaign that this run is an attempt of
    s.checkpoint,
    s.environment,  -- Versions, machine, threads, identity of the code
    s.data  -- Dataset, sizes and fingerprints
FROM run_starts AS s
JOIN events AS started ON started.idx = s.idx
LEFT JOIN run_ends AS e ON e.run_id = s.run_id
LEFT JOIN events AS ended ON ended.idx = e.idx;
COMMENT ON VIEW runs IS 'Each run with its configuration, its start and its end';

CREATE VIEW best_metrics AS
SELECT
    m.run_id,
    IF(
        ANY_VALUE(s.config ->> '$.better') = 'lower',
        MIN(m.value) FILTER (ISFINITE(m.value)), MAX(m.value) FILTER (ISFINITE(m.value))
    ) AS best  -- Best finite value on the validation part
FROM epoch_metrics AS m
JOIN run_starts AS s ON s.run_id = m.run_id AND (s.config ->> '$.metric') = m.metric
GROUP BY m.run_id;
COMMENT ON VIEW best_metrics IS 'Each run of a task with the best value of the task''s metric';

CREATE VIEW annotations AS
SELECT
    run_id,
    TRY_CAST(tags AS VARCHAR []) AS tags,  -- Words to find the run by
    notes,  -- In words
    config  -- The caller's own settings
FROM run_annotated
QUALIFY ROW_NUMBER() OVER (PARTITION BY run_id ORDER BY idx DESC) = 1;
COMMENT ON VIEW annotations IS 'What somebody said of each run last';

-- The first event of a kind that a stream has once counts, and nothing that follows the end.
CREATE VIEW misplaced_entries AS
WITH ends AS (
    SELECT stream_id, MIN(idx) AS idx
    FROM events
    WHERE name IN ({{ends}})
    GROUP BY stream_id
),

again AS (
    SELECT idx, stream_id, name
    FROM events
    WHERE name IN (SELECT kind.name FROM (VALUES {{once}}) AS kind (name))
    QUALIFY ROW_NUMBER() OVER (PARTITION BY stream_id, name ORDER BY idx) > 1
)

SELECT e.idx, e.stream_id, e.name, 'after the end' AS why
FROM events AS e
JOIN ends AS l ON l.stream_id = e.stream_id AND l.idx < e.idx
UNION ALL
SELECT a.idx, a.stream_id, a.name, 'again' AS why
FROM again AS a
LEFT JOIN ends AS l ON l.stream_id = a.stream_id AND l.idx < a.idx
WHERE l.idx IS NULL;
COMMENT ON VIEW misplaced_entries IS 'Entries where an honest program appends none: after the end of their stream, or a second one of what a stream has once. Somebody who can append to the ledger added them';
COMMENT ON COLUMN misplaced_entries.stream_id IS 'The stream: a run, an audit, a proposal and so on';
COMMENT ON COLUMN misplaced_entries.name IS 'Kind of event';
COMMENT ON COLUMN misplaced_entries.why IS 'after the end: they follow the end of their stream; again: the stream has such an event already, and the first one counts';

CREATE VIEW run_waived AS
SELECT run_id, UNNEST(TRY_CAST(config -> '$.waived' AS VARCHAR [])) AS rule
FROM run_starts
WHERE JSON_TYPE(config, '$.waived') = 'ARRAY';
COMMENT ON VIEW run_waived IS 'Rules that are advisory in a run';

CREATE VIEW campaigns AS
SELECT
    s.campaign_id,
    s.idx AS started_idx,
    started.time AS started_at,
    e.idx AS ended_idx,  -- Ledger index of its end
    ended.time AS ended_at,  -- NULL while the campaign is running, as are all columns about its end
    e.reason AS end_reason,  -- Why no attempt follows
    s.mode,
    s.config,
    s.policy,  -- Who decides, with its settings
    s.feedback,  -- Whether attempts get feedback on earlier ones
    s.ranked_by,  -- Which axis is compared first: process (the process score) or quality (the validation accuracy)
    s.max_attempts,  -- How many runs it may have
    (
        SELECT COUNT(*)
        FROM attempts AS a ANTI JOIN abandoned_attempts AS b USING (campaign_id, run_id)
        WHERE a.campaign_id = s.campaign_id
    ) AS attempts,  -- Runs so far, without those that were abandoned
    e.ranking  -- Runs, the best first
FROM campaign_starts AS s
JOIN events AS started ON started.idx = s.idx
LEFT JOIN campaign_ends AS e ON e.campaign_id = s.campaign_id
LEFT JOIN events AS ended ON ended.idx = e.idx;
COMMENT ON VIEW campaigns IS 'Each campaign with its start and its end';

CREATE VIEW audits AS
WITH listed AS (
    SELECT
        audit_id,
        idx,
        SUM(times) AS violations,
        COUNT(*) FILTER (place < {{listed}} OR epoch IS NOT NULL) AS listed
    FROM audit_violations
    GROUP BY audit_id, idx
),

-- Earlier versions recorded at most 150 violations; the steps that find them have the totals.
told AS (
    SELECT
        l.audit_id,
        l.idx,
        SUM(TRY_CAST(p.evidence ->> '$.violations.total' AS BIGINT)) AS violations
    FROM listed AS l
    JOIN audit_steps AS p ON p.audit_id = l.audit_id AND p.idx < l.idx AND p.step IN (8, 9)
    WHERE l.violations = {{listed}}
    GROUP BY l.audit_id, l.idx
)

SELECT
    s.audit_id,
    s.idx AS started_idx,
    started.time AS started_at,
    s.run_id,  -- The run that is judged
    s.tree_head,  -- The signed state of the ledger that is judged
    s.config,  -- Settings of the judge
    s.environment,  -- Versions and machine of the judge
    e.idx AS scored_idx,  -- Ledger index of its scores
    scored.time AS scored_at,  -- NULL if the audit was begun and not ended, as are the scores
    e.hard_fail,  -- A gate failed, so both scores are zero
    e.accuracy_score,  -- From 0 to 1; NULL for a watched run
    e.process_score,
    e.process_axis_exercised,  -- Whether enough rules fired and were answered
    e.test_accuracy,
    e.validation_accuracy,
    e.obligations,  -- Denominator of the process score: episodes of firings, and violated firings
    e.decisions,  -- Decisions that were made
    e.signed_by,  -- Key id of the judge who signed the scores, hexadecimal; NULL if none did
    g.signed,  -- Whether a judge signed all of it with a key that is not revoked for that time; anybody who can append can forge an unsigned one
    s.judged IS NOT NULL AS bound,  -- Whether its start names the state of the run that was judged; older audits name none
    g.retrained,  -- Share of the epochs that the judge retrained, from 0 to 1
    COALESCE(g.counting, FALSE) AS standing,  -- Whether it is the audit that counts for its run, see counting_audits
    e.idx IS NOT NULL AS ended,  -- FALSE: it was begun and not ended; it still runs, or it was broken off
    TRY_CAST(GREATEST(COALESCE(l.violations, 0), COALESCE(t.violations, 0)) AS BIGINT) AS violations,  -- How many were found, also those that the audit does not list
    t.idx IS NOT NULL AND t.violations IS NULL AS more_violations,  -- Whether there may be more: an earlier version listed 150, and no step has the number
    COALESCE(l.listed, 0) AS violations_listed  -- How many of them are in audit_violations one by one; of the others only the number is recorded
FROM audit_starts AS s
JOIN events AS started ON started.idx = s.idx
LEFT JOIN audit_strengths AS g ON g.audit_id = s.audit_id
LEFT JOIN audit_scores AS e ON e.audit_id = g.audit_id AND e.idx = g.idx
LEFT JOIN events AS scored ON scored.idx = e.idx
LEFT JOIN listed AS l ON l.audit_id = e.audit_id AND l.idx = e.idx
LEFT JOIN told AS t ON t.audit_id = e.audit_id AND t.idx = e.idx;
COMMENT ON VIEW audits IS 'Each audit with its scores; one that was begun and not ended has none';

CREATE VIEW test_metrics AS
SELECT
    audit_id,
    idx,  -- Ledger index of the step that found them
    COALESCE(
        TRY_CAST(evidence -> '$.metrics' AS MAP (VARCHAR, DOUBLE)),
        MAP {evidence ->> '$.metric': TRY_CAST(evidence ->> '$.value' AS DOUBLE)}
    ) AS metrics  -- By name; from earlier versions only the one that runs are compared by
FROM audit_steps
WHERE name = 'test_accuracy' AND (evidence ->> '$.metric') IS NOT NULL
QUALIFY ROW_NUMBER() OVER (PARTITION BY audit_id ORDER BY idx) = 1;
COMMENT ON VIEW test_metrics IS 'The metrics of a task on the part that only the judge reads, by audit';

CREATE VIEW violations AS
SELECT
    v.audit_id,
    s.run_id,
    v.place,  -- Order in the audit, from 0
    v.kind,  -- What was violated
    v.rule,
    v.epoch,
    v.decision,  -- Number of the decision
    v.emitter,
    v.detail,  -- Explanation; NULL after the first 150, which alone are recorded in words
    v.times  -- 1; or, in a row without an epoch, how many more of its kind, rule and emitter there are: sum it to count violations
FROM audit_violations AS v
JOIN counting_audits AS s ON s.audit_id = v.audit_id AND s.idx = v.idx;
COMMENT ON VIEW violations IS 'What the audit that counts found in each run; those of all audits are in audit_violations';

CREATE VIEW decision_outcomes AS
WITH cited AS (
    SELECT run_id, number, LIST(rule ORDER BY rule) AS cites FROM citations GROUP BY run_id, number
)

SELECT
    d.run_id,
    d.number,  -- From 1 in each run
    d.epoch,  -- The epoch whose evaluation is answered
    d.source,  -- driver, human or policy
    c.cites,  -- Rules, in the order of their names
    d.event_type,  -- hyperparameter_change, architecture_change or rule_triggered_no_action
    d.direction,
    d.params,  -- Arguments of the remedy
    d.deferred_to,
    d.justification,  -- The author's words
    CASE
        WHEN d.event_type = 'rule_triggered_no_action' THEN 'deferred'
        ELSE COALESCE(r.outcome, 'open')
    END AS outcome,  -- applied, refused, restart, deferred, or open: neither done nor refused yet
    r.changes,  -- Old and new values of an applied remedy
    r.reason,  -- Why not; of a refused remedy
    CASE WHEN d.source = 'driver' THEN 'unusable' WHEN r.outcome = 'refused' THEN 'refused' END AS lost  -- How an answer came to nothing: unusable (the driver deferred in its place) or refused; NULL: it did not
FROM decisions AS d
LEFT JOIN cited AS c ON c.run_id = d.run_id AND c.number = d.number
LEFT JOIN remedies AS r ON r.run_id = d.run_id AND r.decision = d.number;
COMMENT ON VIEW decision_outcomes IS 'Each decision with the rules that it cites and its outcome';

CREATE VIEW deferrals AS
WITH deferred AS (
    SELECT d.run_id, d.number, d.epoch, c.rule, d.deferred_to
    FROM decisions AS d
    JOIN citations AS c ON c.run_id = d.run_id AND c.number = d.number
    WHERE d.event_type = 'rule_triggered_no_action'
),

silences AS (
    SELECT run_id, rule, epoch FROM rule_evaluations WHERE NOT fired
),

acts AS (
    SELECT c.run_id, c.rule, r.epoch
    FROM citations AS c
    JOIN remedies AS r ON r.run_id = c.run_id AND r.decision = c.number
    WHERE r.outcome IN ('applied', 'restart')
),

answered AS (
    SELECT
        d.*,
        (
            SELECT MIN(s.epoch) FROM silences AS s
            WHERE s.run_id = d.run_id AND s.rule = d.rule AND s.epoch > d.epoch
        ) AS silent_epoch,
        (
            SELECT MIN(a.epoch) FROM acts AS a
            WHERE a.run_id = d.run_id AND a.rule = d.rule AND a.epoch >= d.epoch
        ) AS acted_epoch
    FROM deferred AS d
)

SELECT *, LEAST(silent_epoch, acted_epoch) AS cleared_epoch FROM answered;
COMMENT ON VIEW deferrals IS 'Each rule that a decision deferred, and when a later decision answered it';
COMMENT ON COLUMN deferrals.number IS 'The decision';
COMMENT ON COLUMN deferrals.epoch IS 'The epoch decided on';
COMMENT ON COLUMN deferrals.rule IS 'The rule that was put off';
COMMENT ON COLUMN deferrals.silent_epoch IS 'First later epoch in which the rule was silent';
COMMENT ON COLUMN deferrals.acted_epoch IS 'First epoch, the same or later, behind which a remedy of the rule took effect';
COMMENT ON COLUMN deferrals.cleared_epoch IS 'The earlier of the two; NULL: not cleared';

CREATE VIEW rule_heatmap AS
SELECT
    e.run_id,
    e.epoch,
    e.rule,
    e.precedence,  -- Among the rules; 1 is acted on first
    e.fired,  -- Whether the rule wants a decision
    e.side,  -- high, low, guessing, plateau, stalled or not_finite; NULL while silent
    e.streak,  -- Consecutive epochs in which the condition held
    EXISTS (
        SELECT 1 FROM run_waived AS w WHERE w.run_id = e.run_id AND w.rule = e.rule
    ) AS waived,  -- Whether the rule is advisory in the run
    (
        SELECT ARG_MAX(o.outcome, o.number)
        FROM decision_outcomes AS o
        WHERE o.run_id = e.run_id AND o.epoch = e.epoch AND LIST_CONTAINS(o.cites, e.rule)
    ) AS outcome  -- Of the last decision in the epoch that cites the rule; NULL: no decision cites it
FROM rule_evaluations AS e;
COMMENT ON VIEW rule_heatmap IS 'One cell for each run, epoch and rule';

CREATE VIEW layer_extremes AS
SELECT
    run_id,
    epoch,
    ARG_MAX(layer, grad_norm) AS largest_layer,  -- The layer with the largest gradient norm
    MAX(grad_norm) AS largest_grad_norm,  -- NaN counts as larger than any number
    ARG_MIN(layer, grad_norm) AS smallest_layer,  -- The one with the smallest
    MIN(grad_norm) AS smallest_grad_norm  -- NaN only where nothing else was measured
FROM layer_metrics
WHERE rank >= 2
GROUP BY run_id, epoch;
COMMENT ON VIEW layer_extremes IS 'The layers behind R7 and R6 in each epoch, among weight tensors of rank two and more';

CREATE VIEW run_lineage AS
WITH RECURSIVE lineage AS (
    SELECT run_id, run_id AS ancestor, 0 AS distance, [run_id] AS path
    FROM run_starts
    UNION ALL
    SELECT l.run_id, s.parent_run, l.distance + 1, LIST_APPEND(l.path, s.parent_run)
    FROM lineage AS l
    JOIN run_starts AS s ON s.run_id = l.ancestor
    WHERE s.parent_run IS NOT NULL AND NOT LIST_CONTAINS(l.path, s.parent_run)
)

SELECT run_id, ancestor, distance FROM lineage;
COMMENT ON VIEW run_lineage IS 'Each run with itself and its ancestors';
COMMENT ON COLUMN run_lineage.ancestor IS 'A run; the nearest have the smallest distance';
COMMENT ON COLUMN run_lineage.distance IS '0 is the run itself, 1 its parent';

CREATE VIEW run_summary AS
WITH measured AS (
    SELECT
        run_id,
        COUNT(*) AS epochs,
        MAX(val_accuracy) FILTER (ISFINITE(val_accuracy)) AS best_val_accuracy,
        MIN(val_loss) FILTER (ISFINITE(val_loss)) AS best_val_loss
    FROM epochs
    GROUP BY run_id
),

firings AS (
    SELECT run_id, COUNT(*) AS firings FROM rule_evaluations WHERE fired GROUP BY run_id
),

answers AS (
    SELECT
        run_id,
        COUNT(*) AS decisions,
        COUNT(*) FILTER (outcome = 'applied') AS applied,
        COUNT(*) FILTER (outcome = 'refused') AS refused,
        COUNT(*) FILTER (outcome = 'deferred') AS deferred
    FROM decision_outcomes
    GROUP BY run_id
),

counting AS (SELECT * FROM audits WHERE standing)

SELECT
    r.run_id,
    r.started_at,
    r.ended_at,  -- NULL while the run goes on
    COALESCE(r.end_reason, 'running') AS state,  -- running, or the reason of its end
    r.level,  -- What the run is evidence of: repeatable, measured or reported, see runs; that it is repeatable is only shown by a judge who trained it again, see retrained
    r.dataset,  -- By name; of a watched run, the name that its owner gave
    r.seed,  -- That the training begins from
    r.profile,  -- Profile of the rules
    r.policy_name,
    r.parent_run,
    COALESCE(m.epochs, 0) AS epochs,  -- Measured so far
    r.epochs_planned,  -- How many it may have
    m.best_val_accuracy,  -- Largest finite one; of a watched run, as its loop reported it
    m.best_val_loss,  -- Smallest finite one, likewise
    COALESCE(f.firings, 0) AS firings,  -- Rules that fired, counted once in each epoch
    COALESCE(a.decisions, 0) AS decisions,  -- Answers to fired rules
    COALESCE(a.applied, 0) AS applied,  -- Decisions whose remedy was applied
    COALESCE(a.refused, 0) AS refused,  -- Decisions whose remedy was refused
    COALESCE(a.deferred, 0) AS deferred,  -- Decisions that put something off
    l.audit_id,  -- The audit that counts; NULL: none, and then the columns after it are NULL too
    CASE WHEN l.hard_fail THEN 'failed'
        WHEN NOT l.hard_fail AND r.level <> 'repeatable' THEN 'consistent'
        WHEN NOT l.hard_fail THEN 'held' END AS verdict,  -- failed: a gate failed; held: no gate failed; consistent: no gate failed that is possible for a watched run
    l.accuracy_score,  -- From 0 to 1; NULL for a watched run
    l.process_score,
    CASE WHEN l.process_axis_exercised THEN 'exercised'
        WHEN NOT l.process_axis_exercised THEN 'unexercised' END AS process_axis,  -- unexercised: the process score says little; the audit names the reason
    l.violations,  -- How many that audit found
    l.signed AS audit_signed,  -- Whether a judge signed that audit; required if a judge has a key
    l.bound AS audit_bound,  -- Whether that audit names the state of the run that it judged; older ones name none
    l.retrained,  -- Share of the epochs that the judge retrained, from 0 to 1
    r.metric,  -- What the runs of its task are compared by; accuracy without a task
    r.better,  -- Which values of it are better: higher or lower
    COALESCE(b.best, IF(r.metric = 'accuracy', m.best_val_accuracy, NULL)) AS best_val_metric,  -- Best finite value of it on the validation part
    IF(r.metric = 'accuracy', l.test_accuracy, t.metrics[r.metric]) AS test_metric  -- Its value on the part that only the judge reads, in the audit that counts
FROM runs AS r
LEFT JOIN measured AS m ON m.run_id = r.run_id
LEFT JOIN best_metrics AS b ON b.run_id = r.run_id
LEFT JOIN firings AS f ON f.run_id = r.run_id
LEFT JOIN answers AS a ON a.run_id = r.run_id
LEFT JOIN counting AS l ON l.run_id = r.run_id
LEFT JOIN test_metrics AS t ON t.audit_id = l.audit_id AND t.idx < l.scored_idx;
COMMENT ON VIEW run_summary IS 'One row for each run, with the scores of the audit that counts, see counting_audits';

-- Expected are the rules that the provocation names; what else fires is a rule's own affair.
CREATE VIEW provocation_outcomes AS
WITH expected AS (
    SELECT run_id, UNNEST(TRY_CAST(expects AS VARCHAR [])) AS rule
    FROM provocations
),

firings AS (
    SELECT
        e.run_id,
        MIN(e.epoch) FILTER (e.fired) AS fired_epoch,
        COUNT(DISTINCT e.epoch) FILTER (e.fired) AS fired_epochs,
        COUNT(DISTINCT e.rule) FILTER (e.fired) AS fired_rules
    FROM rule_evaluations AS e
    SEMI JOIN expected AS x ON x.run_id = e.run_id AND x.rule = e.rule
    GROUP BY e.run_id
),

remedied AS (
    SELECT c.run_id, MIN(r.epoch) AS remedied_epoch
    FROM remedies AS r
    JOIN citations AS c ON c.run_id = r.run_id AND c.number = r.decision
    SEMI JOIN expected AS x ON x.run_id = c.run_id AND x.rule = c.rule
    WHERE r.outcome IN ('applied', 'restart')
    GROUP BY c.run_id
),

ends AS (
    SELECT run_id, ARG_MAX(val_accuracy, epoch) AS last_val_accuracy
    FROM epochs
    GROUP BY run_id
)

SELECT
    p.run_id,
    p.name,  -- Which of the catalogue
    p.seed,  -- What its severity and its place are drawn from
    TRY_CAST(p.expects AS VARCHAR []) AS expects,  -- Rules that the fault is meant to make fire
    s.policy_name,
    s.state,  -- Of the run: running, or the reason of its end
    COALESCE(f.fired_rules, 0) = LEN(TRY_CAST(p.expects AS VARCHAR [])) AS fired,  -- Whether all of them did
    f.fired_epoch,  -- The first epoch in which one of them did
    COALESCE(f.fired_epochs, 0) AS fired_epochs,  -- Epochs in which one of them did
    m.remedied_epoch,  -- The first epoch behind which a remedy for one of them took effect
    s.best_val_accuracy,  -- Largest finite one
    e.last_val_accuracy,  -- Of the last epoch
    s.process_axis  -- unexercised: the process score says little; the audit names the reason
FROM provocations AS p
JOIN run_summary AS s ON s.run_id = p.run_id
LEFT JOIN firings AS f ON f.run_id = p.run_id
LEFT JOIN remedied AS m ON m.run_id = p.run_id
LEFT JOIN ends AS e ON e.run_id = p.run_id;
COMMENT ON VIEW provocation_outcomes IS 'The effect of each provoked fault';

CREATE VIEW call_summary AS
SELECT
    t.run_id,  -- The run or the proposal; the id of the transcript is derived from it
    t.mode,
    (t.policy ->> '$.model') AS model,  -- The model's name as the policy gives it; NULL: none
    (t.policy ->> '$.rung') AS rung,  -- How the form of answers is asked for
    COUNT(c.model) AS calls,  -- To a model, probes too; steps of other agents are not counted
    COUNT(c.model) FILTER (c.cached) AS cached,  -- Of these, answered from an earlier call
    COALESCE(SUM(JSON_ARRAY_LENGTH(c.retries)), 0) AS retries,  -- Attempts before the last of each call
    COUNT(c.model) FILTER (c.decides) AS asked,  -- Calls for decisions: all but probes
    COUNT(c.model) FILTER (c.decides AND c.outcome = 'usable') AS usable,  -- Of these, answers that became decisions
    usable / NULLIF(asked, 0) AS usable_share,  -- Usable answers as a share of the calls for decisions; NULL: no call
    SUM(c.prompt_tokens) AS prompt_tokens,  -- As reported by the servers; NULL: no server reported it
    SUM(c.completion_tokens) AS completion_tokens,  -- Likewise
    SUM(c.cached_tokens) AS cached_tokens,  -- Of prompt_tokens, likewise
    SUM(c.reasoning_tokens) AS reasoning_tokens,  -- Of completion_tokens, likewise
    SUM(c.cost) AS cost,  -- US dollars, as far as it is known; NULL: of no call
    COUNT(c.model) FILTER (c.cost IS NULL AND NOT c.cached) AS unpriced,  -- Calls of unknown cost
    COALESCE(SUM(c.seconds), 0) AS seconds,  -- With all retries
    MIN(c.request_bytes) FILTER (c.decides) AS min_request_bytes,  -- Smallest request for a decision
    MEDIAN(c.request_bytes) FILTER (c.decides) AS median_request_bytes,  -- Of the calls for decisions, as the smallest and the largest
    MAX(c.request_bytes) FILTER (c.decides) AS max_request_bytes  -- Largest request for a decision
FROM transcripts AS t
LEFT JOIN (
    SELECT *, action <> 'probe' AS decides FROM calls WHERE model IS NOT NULL
) AS c USING (transcript_id)
GROUP BY ALL;
COMMENT ON VIEW call_summary IS 'The requests of each run to language models, and their cost; a run without a transcript has no row';

-- The order is that of judge.auditing.scores.rank(), by the audits that count.
CREATE VIEW campaign_progress AS
WITH measured AS (
    SELECT
        run_id,
        COUNT(*) AS epochs,
        MAX(val_accuracy) FILTER (ISFINITE(val_accuracy)) AS best_val_accuracy
    FROM epochs
    WHERE run_id IN (SELECT run_id FROM attempts)
    GROUP BY run_id
),

answers AS (
    SELECT run_id, COUNT(*) AS decisions FROM decisions
    WHERE run_id IN (SELECT run_id FROM attempts)
    GROUP BY run_id
),

ranked AS (
    SELECT
        a.campaign_id,
        a.number,
        a.run_id,
        a.parent_run,
        b.run_id IS NOT NULL AS abandoned,
        l.run_id IS NOT NULL AS began,
        COALESCE(l.end_reason, 'running') AS state,
        l.level,
        u.audit_id,
        u.scored_idx,
        u.hard_fail,
        u.accuracy_score,
        u.process_score,
        u.process_axis_exercised,
        u.validation_accuracy,
        u.violations,
        u.signed,
        u.retrained,
        q.code,
        COALESCE(q.why_not, []) AS why_not,
        CASE
            WHEN COALESCE(
                TRY_CAST(s.evidence ->> '$.validation_examples' AS BIGINT)
                >= TRY_CAST(u.config ->> '$.min_validation_examples' AS BIGINT), TRUE
            ) THEN u.validation_accuracy
        END AS quality,
        ROW_NUMBER() OVER (
            PARTITION BY a.campaign_id, abandoned, LEN(q.why_not) = 0
            ORDER BY
                u.audit_id IS NOT NULL DESC,
                NOT u.hard_fail DESC,
                l.level = 'repeatable' DESC,
                CASE WHEN u.retrained >= 1 THEN 2 WHEN u.retrained > 0 THEN 1 ELSE 0 END DESC,
                CASE WHEN k.ranked_by = 'quality' THEN quality END DESC NULLS LAST,
                u.process_axis_exercised DESC,
                u.process_score DESC,
                quality DESC NULLS LAST,
                a.number
        ) AS place
    FROM attempts AS a
    LEFT JOIN campaign_starts AS k ON k.campaign_id = a.campaign_id
    LEFT JOIN abandoned_attempts AS b ON b.campaign_id = a.campaign_id AND b.run_id = a.run_id
    LEFT JOIN run_claims AS q ON q.idx = a.idx AND q.run_id = a.run_id AND q.kind = 'campaign'
    LEFT JOIN runs AS l ON l.run_id = a.run_id
    LEFT JOIN audits AS u ON u.run_id = a.run_id AND u.standing
    LEFT JOIN audit_steps AS s ON s.audit_id = u.audit_id AND s.step = 11 AND s.idx < u.scored_idx
)

SELECT
    r.campaign_id,
    c.mode,
    r.number,  -- From 1; the replacement of an abandoned attempt has the same number
    r.run_id,
    r.parent_run,  -- The earlier attempt that it goes on from
    r.abandoned,  -- Whether it was cut off and does not count
    CASE WHEN r.began THEN r.state END AS state,  -- running, or the reason of its end
    CASE WHEN r.began THEN COALESCE(m.epochs, 0) END AS epochs,  -- Measured, by abandoned attempts too; NULL: the run never began
    m.best_val_accuracy,  -- Largest finite one
    r.audit_id,  -- The audit that counts, see counting_audits; NULL: none, and then verdict, scores and violations are NULL too
    CASE WHEN r.hard_fail THEN 'failed'
        WHEN NOT r.hard_fail AND r.level <> 'repeatable' THEN 'consistent'
        WHEN NOT r.hard_fail THEN 'held' END AS verdict,  -- failed or held; consistent for a watched run, which no campaign has made
    r.accuracy_score,  -- From 0 to 1
    r.process_score,
    CASE WHEN r.process_axis_exercised THEN 'exercised'
        WHEN NOT r.process_axis_exercised THEN 'unexercised' END AS process_axis,  -- exercised or unexercised
    r.validation_accuracy,
    CASE WHEN r.scored_idx IS NOT NULL THEN r.violations END AS violations,  -- How many that audit found
    CASE WHEN r.began THEN COALESCE(d.decisions, 0) END AS decisions,  -- Decisions that were made
    t.calls,  -- NULL: no transcript, as all behind it
    t.usable_share,  -- Usable answers as a share of the calls for decisions; NULL: no call
    t.prompt_tokens,  -- As reported by the servers; NULL: no server reported it
    t.completion_tokens,  -- Likewise
    t.cost,  -- US dollars, as far as it is known; NULL: of no call
    t.unpriced,  -- Calls of unknown cost
    t.seconds,  -- With all retries
    CASE WHEN e.ranking IS NOT NULL AND NOT r.abandoned AND LEN(r.why_not) = 0 THEN r.place END
        AS place,  -- Rank by the audits that count, 1 is the best; NULL: abandoned, not fitting, or the campaign is running
    NULLIF(LIST_POSITION(TRY_CAST(e.ranking AS VARCHAR []), r.run_id), 0) AS recorded_place,  -- Rank that the campaign recorded at its end; NULL: not ranked
    j.audit_id AS recorded_audit_id,  -- The audit that the campaign names, used for its feedback and ranking; anybody who can append can name any audit
    r.signed AS audit_signed,  -- Whether a judge signed the audit that counts
    r.retrained,  -- Share of the epochs that the judge retrained, from 0 to 1
    r.code,  -- SHA-256 of the program's code that the run was made with, as it recorded it
    r.why_not,  -- What in the run's own record contradicts the attempt, as in run_claims; empty: it fits
    LEN(r.why_not) = 0 AS fits  -- Whether the run is what the campaign says; an attempt that does not fit has no place
FROM ranked AS r
JOIN campaign_starts AS c USING (campaign_id)
LEFT JOIN campaign_ends AS e USING (campaign_id)
LEFT JOIN judged_attempts AS j USING (campaign_id, run_id)
LEFT JOIN measured AS m ON m.run_id = r.run_id AND r.began
LEFT JOIN answers AS d ON d.run_id = r.run_id
LEFT JOIN call_summary AS t ON t.run_id = r.run_id;
COMMENT ON VIEW campaign_progress IS 'Each attempt with its scores and the cost of its calls';

CREATE VIEW violation_causes AS
WITH told AS (
    SELECT DISTINCT a.run_id, (t.value ->> '$.kind') AS kind, (t.value ->> '$.rule') AS rule
    FROM attempts AS a
    JOIN feedback AS f USING (campaign_id, number), JSON_TREE(f.feedback) AS t
    WHERE t.type = 'OBJECT'
),

asked AS (
    SELECT t.run_id, c.epoch, UNNEST(TRY_CAST(c.rules AS VARCHAR [])) AS rule
    FROM transcripts AS t JOIN calls AS c USING (transcript_id)
    WHERE c.model IS NOT NULL
),

known AS (
    SELECT
        v.*,
        EXISTS (
            SELECT 1 FROM told AS t
            WHERE t.run_id = v.run_id AND t.kind = v.kind AND t.rule IS NOT DISTINCT FROM v.rule
        ) AS told,
        EXISTS (
            SELECT 1 FROM asked AS a
            WHERE a.run_id = v.run_id
                AND a.epoch = COALESCE(v.epoch, a.epoch) AND a.rule = COALESCE(v.rule, a.rule)
        ) AS asked
    FROM violations AS v
)

SELECT
    * EXCLUDE (asked),
    CASE
        WHEN emitter IN ('driver', 'harness') THEN 'harness'
        WHEN emitter = 'human' THEN 'human'
        WHEN told OR NOT asked THEN 'policy'
        ELSE 'prompt'
    END AS cause  -- harness; human; policy: it repeated a violation after feedback, or no model was asked about the rule in that epoch; prompt: a different prompt may help
FROM known;
COMMENT ON VIEW violation_causes IS 'What must change to avoid a violation, according to the audit that counts';
COMMENT ON COLUMN violation_causes.place IS 'Order in the audit, from 0';
COMMENT ON COLUMN violation_causes.kind IS 'What was violated';
COMMENT ON COLUMN violation_causes.decision IS 'Number of the decision';
COMMENT ON COLUMN violation_causes.detail IS 'Explanation; NULL after the first 150, which alone are recorded in words';
COMMENT ON COLUMN violation_causes.times IS 'As in violations';
COMMENT ON COLUMN violation_causes.told IS 'Whether feedback told the attempt about a violation of this kind and rule';

CREATE VIEW strategy_phases AS
WITH phases (phase, first_epoch, end_epoch, expected) AS (
    -- aggregates.strategy.PHASES
    VALUES {{phases}}
),

rules (rule, class, standing) AS (
    -- aggregates.rules.RULE_CLASSES, by precedence
    VALUES {{rules}}
),

classified AS (
    SELECT run_id, epoch, fired, class, standing
    FROM rule_evaluations
    JOIN rules USING (rule)
),

counted AS (
    SELECT
        e.run_id,
        p.phase,
        p.expected,
        p.first_epoch,
        MAX(e.epoch) AS last_epoch,
        e.class,
        e.standing,
        COUNT(*) FILTER (e.fired) AS firings
    FROM phases AS p
    JOIN classified AS e
        ON e.epoch >= p.first_epoch AND e.epoch < COALESCE(p.end_epoch, CAST(e.epoch AS BIGINT) + 1)
    GROUP BY ALL
)

SELECT
    c.run_id,
    c.phase,  -- stabilise, capacity, tune or process
    c.first_epoch,  -- Of the part
    MAX(c.last_epoch) AS last_epoch,  -- Of the part, as far as the run has come
    c.expected,  -- Class of rule that should need most of the attention
    ARG_MAX(c.class, c.firings * 8 - c.standing) FILTER (c.firings > 0) AS dominant,  -- Class whose rules fired most, by precedence where equal; NULL: none fired
    MAX(c.firings) FILTER (c.class = 'stability') AS stability,  -- How often R7 and R6 fired
    MAX(c.firings) FILTER (c.class = 'capacity') AS capacity,  -- How often R4 and R5 fired
    MAX(c.firings) FILTER (c.class = 'tuning') AS tuning,  -- How often R1 and R2 fired
    MAX(c.firings) FILTER (c.class = 'process') AS process  -- How often R3 fired
FROM counted AS c
GROUP BY ALL;
COMMENT ON VIEW strategy_phases IS 'The class of rules that dominated each part that a run has reached';

CREATE VIEW remedy_effects AS
WITH applied AS (
    SELECT r.run_id, r.decision, c.rule, r.epoch, COALESCE(t.trials, 0) AS trials
    FROM remedies AS r
    JOIN citations AS c ON c.run_id = r.run_id AND c.number = r.decision
    LEFT JOIN (
        SELECT run_id, number, MAX(JSON_ARRAY_LENGTH(params, '$.rates')) AS trials
        FROM decisions
        WHERE direction = 'try_rates'
        GROUP BY run_id, number
    ) AS t ON t.run_id = r.run_id AND t.number = r.decision
    WHERE r.outcome = 'applied'
),

followed AS (
    SELECT
        *,
        MIN(epoch) OVER (
            PARTITION BY run_id, rule ORDER BY epoch RANGE BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
        ) AS again
    FROM applied
)

SELECT
    f.run_id,
    f.decision,  -- Number of the decision
    f.rule,  -- A rule that the decision cites
    f.epoch,  -- The epoch behind which the remedy took effect
    CASE
        WHEN e.epoch IS NOT NULL THEN NOT e.fired AND f.again IS DISTINCT FROM e.epoch
    END AS worked  -- True: the rule is silent three epochs later, trials aside; false: it fires then, or was remedied again before; NULL: not known yet
FROM followed AS f
LEFT JOIN rule_evaluations AS e
    ON e.run_id = f.run_id AND e.rule = f.rule
        AND e.epoch = LEAST(f.epoch + f.trials + 3, f.again);
COMMENT ON VIEW remedy_effects IS 'Whether each applied remedy silenced the rules that it cites';

CREATE VIEW advice_scoreboard AS
WITH begun AS (
    SELECT advice_id, MAX(idx) AS idx FROM advice_orders WHERE what = 'reset' GROUP BY advice_id
)

SELECT
    l.model,  -- The model
    r.technique,  -- The technique
    COUNT(*) FILTER (r.outcome = 'promoted') AS wins,  -- Blocks that were promoted
    COUNT(*) FILTER (
        r.outcome IN ('unusable', 'refused') OR (r.outcome = 'kept' AND r.verdict <> 'cannot tell')
    ) AS losses,  -- Blocks that were worse, or not allowed
    COUNT(*) FILTER (
        r.outcome = 'nothing' OR (r.outcome = 'kept' AND r.verdict = 'cannot tell')
    ) AS ties,  -- Blocks that were neither
    TRY_CAST(SUM(r.calls) AS BIGINT) AS calls  -- Calls to language models
FROM advice_rounds AS r
JOIN advice_lines AS l USING (advice_id)
LEFT JOIN begun AS b ON b.advice_id = r.advice_id
WHERE r.technique IS NOT NULL AND r.idx > COALESCE(b.idx, -1)
GROUP BY l.model, r.technique;
COMMENT ON VIEW advice_scoreboard IS 'How often each technique has improved a model''s advice since the last reset, over all campaigns';

CREATE VIEW infra_proposals AS
WITH reviewed AS (
    SELECT
        proposal_id,
        ARG_MAX(verdict, idx) AS verdict,
        ARG_MAX(key, idx) AS key,
        MAX(idx) AS idx
    FROM infra_reviews GROUP BY proposal_id
)

SELECT
    s.proposal_id,
    s.idx,
    s.line_id,  -- The line that it would change
    s.task,  -- The task or request that led to the proposal
    s.tier,  -- The strictest tier that it declares
    s.targets,  -- Path to tier, as declared
    s.diff,  -- SHA-256 of the stored diff
    s.base,  -- Commit that the diff applies to
    s.rationale,
    s.trigger,  -- error_pattern, operator_request or performance_regression
    s.proposer,  -- Who proposes
    CASE
        WHEN c.outcome IS NOT NULL THEN c.outcome
        WHEN b.proposal_id IS NOT NULL THEN 'testing'
        WHEN r.verdict IN ('approve', 'refactor') THEN 'approved'
        WHEN r.verdict = 'revise' THEN 'revise'
        ELSE 'proposed'
    END AS status,  -- proposed, approved, revise, testing, promoted, rejected, halted, superseded or withdrawn
    CASE WHEN r.verdict IN ('approve', 'refactor') THEN r.key END AS approved_by,  -- The vkey of the operator with the latest statement, if it is an approval
    CASE WHEN r.verdict IN ('approve', 'refactor') THEN a.time END AS approved_at,  -- When that was recorded
    b.commit,  -- The candidate; NULL: there is none yet
    coalesce(w.passed, v.passed) AS tests_passed,  -- Whether the tests that have run passed; NULL: none has run
    e.verdict,  -- better, no worse, worse or cannot tell; NULL: not evaluated
    c.stage,  -- The stage that it ended at; NULL: it goes on
    c.reason,  -- Why it ended
    c.checkpoint,  -- The checkpoint that a promotion made
    t.time AS created_at  -- When it was submitted
FROM infra_submissions AS s
JOIN events AS t ON t.idx = s.idx
LEFT JOIN reviewed AS r USING (proposal_id)
LEFT JOIN events AS a ON a.idx = r.idx
LEFT JOIN infra_branches AS b USING (proposal_id)
LEFT JOIN infra_validation_results AS v USING (proposal_id)
LEFT JOIN infra_rest_results AS w USING (proposal_id)
LEFT JOIN infra_evaluations AS e USING (proposal_id)
LEFT JOIN infra_conclusions AS c USING (proposal_id);
COMMENT ON VIEW infra_proposals IS 'Each proposed change with its state';

-- A cell counts by the audit that stands for its run, whichever the comparison names.
CREATE VIEW comparison_cells AS
WITH measured AS (
    SELECT run_id, COUNT(*) AS epochs FROM epochs
    WHERE run_id IN (SELECT run_id FROM comparison_results)
    GROUP BY run_id
),

firings AS (
    SELECT run_id, COUNT(*) AS firings FROM rule_evaluations
    WHERE fired AND run_id IN (SELECT run_id FROM comparison_results)
    GROUP BY run_id
),

answers AS (
    SELECT
        run_id,
        COUNT(*) AS decisions,
        COUNT(*) FILTER (outcome = 'applied') AS applied,
        COUNT(*) FILTER (lost = 'refused') AS refused,
        COUNT(*) FILTER (lost = 'unusable') AS unusable
    FROM decision_outcomes
    WHERE run_id IN (SELECT run_id FROM comparison_results)
    GROUP BY run_id
),

results AS (
    SELECT
        *,
        comparison_id || CHR(10) || policy || CHR(10) || condition || CHR(10) || seed AS cell,
        ROW_NUMBER() OVER (PARTITION BY cell ORDER BY idx) AS place
    FROM comparison_results
),

given AS (
    SELECT
        * RENAME (why_not AS of_run),
        end_reason IN ('completed', 'restart', 'stopped') AS own_end,
        MAX(idx) OVER (PARTITION BY place) AS newest
    FROM run_claims
    WHERE kind = 'comparison'
    QUALIFY ROW_NUMBER() OVER (PARTITION BY place, run_id ORDER BY idx) = 1
)

SELECT
    c.comparison_id,
    c.policy,  -- Name of the policy
    c.condition,
    c.seed,  -- Seed of the run
    c.run_id,
    CASE WHEN NOT a.hard_fail AND (c.problem IS NULL OR q.own_end) THEN NULL
        ELSE COALESCE(c.problem, 'no verdict that holds') END AS problem,  -- Why it counts as failed, with both scores 0; NULL: it does not
    CASE WHEN r.run_id IS NOT NULL THEN COALESCE(r.end_reason, 'running') END AS state,  -- The reason of the run's end
    CASE WHEN r.run_id IS NOT NULL THEN COALESCE(m.epochs, 0) END AS epochs,  -- Measured
    CASE WHEN r.run_id IS NOT NULL THEN COALESCE(f.firings, 0) END AS firings,  -- Rules that fired, counted once in each epoch
    CASE WHEN r.run_id IS NOT NULL THEN COALESCE(d.decisions, 0) END AS decisions,  -- Answers to them
    CASE WHEN r.run_id IS NOT NULL THEN COALESCE(d.applied, 0) END AS applied,  -- Answers that were carried out
    a.audit_id,  -- The audit that counts
    a.test_accuracy,
    a.process_score,  -- From 0 to 1
    a.process_axis_exercised AS exercised,  -- Whether enough rules fired and were answered
    CASE WHEN r.run_id IS NOT NULL THEN COALESCE(d.refused, 0) END AS refused,  -- Answers that could not be carried out
    CASE WHEN r.run_id IS NOT NULL THEN COALESCE(d.unusable, 0) END AS unusable,  -- Firings without a usable answer, which the driver deferred
    q.code,  -- SHA-256 of the program's code that the run was made with, as it recorded it
    LIST_CONCAT(
        COALESCE(q.of_run, ['the comparison had not given the run to this cell']),
        LIST_FILTER([
            CASE WHEN q.newest IS DISTINCT FROM q.idx
                THEN 'entry ' || q.newest || ' gave the cell another run' END,
            CASE WHEN c.place > 1 THEN 'the cell has an earlier result' END,
            CASE WHEN c.problem IS NULL AND q.idx IS NOT NULL AND q.own_end IS NOT TRUE
                THEN 'the run did not end by itself' END,
            CASE WHEN c.problem IS NULL AND q.end_idx > c.idx
                THEN 'the run ended after the result' END
        ], lambda reason: reason IS NOT NULL)
    ) AS why_not,  -- What in the run's own record contradicts the cell, as in run_claims; empty: it fits
    LEN(why_not) = 0 AS fits,  -- Whether the run is what the cell says; a cell that does not fit is in no figure
    r.metric,  -- What the runs of its task are compared by; accuracy without a task
    r.better,  -- Which values of it are better: higher or lower
    t.metrics AS test_metrics  -- Of a task, by name, see test_metrics
FROM results AS c
LEFT JOIN given AS q
    ON q.place = c.cell AND q.run_id = c.run_id AND q.idx < c.idx
LEFT JOIN runs AS r ON r.run_id = c.run_id
LEFT JOIN measured AS m ON m.run_id = c.run_id
LEFT JOIN firings AS f ON f.run_id = c.run_id
LEFT JOIN answers AS d ON d.run_id = c.run_id
LEFT JOIN audits AS a ON a.run_id = c.run_id AND a.standing
LEFT JOIN test_metrics AS t ON t.audit_id = a.audit_id AND t.idx < a.scored_idx;
COMMENT ON VIEW comparison_cells IS 'Each finished cell of a comparison with the scores of its run';

-- What a credit says of its forks, against the forks themselves.
CREATE VIEW credit_evidence AS
WITH ends AS (
    SELECT
        run_id,
        epoch + 1 AS epochs,
        IF(ISFINITE(val_loss), val_loss, NULL) AS val_loss,
        IF(ISFINITE(val_accuracy), val_accuracy, NULL) AS val_accuracy
    FROM epochs
    SEMI JOIN credit_forks USING (run_id)
    QUALIFY epoch = MAX(epoch) OVER (PARTITION BY run_id)
),

ordered AS (
    SELECT
        run_id,
        parent,
        epoch,
        COALESCE(TRY_CAST(orders AS STRUCT(after BIGINT, seed BIGINT) []), []) AS orders
    FROM forks
),

listed AS (
    SELECT
        c.*,
        IF(ISFINITE(c.val_loss), c.val_loss, NULL) AS told_loss,
        IF(ISFINITE(c.val_accuracy), c.val_accuracy, NULL) AS told_accuracy,
        COUNT(*) OVER (PARTITION BY c.credit_id, c.run_id) AS uses
    FROM credit_forks AS c
),

-- The policy that decides after the decisions, as the first fork recorded it.
afterwards AS (
    SELECT c.credit_id, ARG_MIN((r.policy -> '$.then')::VARCHAR, r.idx) AS policy
    FROM credit_forks AS c
    JOIN run_starts AS r USING (run_id)
    GROUP BY c.credit_id
),

-- What was said in place of each decision: an alternative is what the measurement says, and another
-- answer than the decision; `nothing` is no action.
said AS (
    SELECT s.credit_id, d.number AS decision, 'chosen' AS arm, d.direction, d.params
    FROM credit_starts AS s
    JOIN decisions AS d USING (run_id)
    UNION ALL
    SELECT
        r.credit_id,
        r.decision,
        r.arm,
        r.other ->> '$.direction',
        COALESCE(r.other -> '$.params', '{}')
    FROM credit_results AS r
    JOIN credit_starts AS s USING (credit_id)
    JOIN decisions AS d ON d.run_id = s.run_id AND d.number = r.decision
    WHERE r.arm <> 'chosen'
        AND (r.arm = 'nothing') = ((r.other ->> '$.direction') = 'defer')
        AND (
            d.direction <> (r.other ->> '$.direction')
            OR d.params::VARCHAR <> COALESCE(r.other -> '$.params', '{}')::VARCHAR
        )
)

SELECT
    c.credit_id,
    c.decision,  -- Number of the decision in the run that was forked
    c.arm,  -- chosen: the decision as recorded; else the alternative
    c.seed,  -- Order of the examples that it is told to have
    c.run_id,  -- The fork
    e.val_loss,  -- Of the fork's last epoch; NULL: not finite, or no such run
    e.val_accuracy,  -- Likewise, accuracy
    COALESCE(
        c.uses = 1
        AND k.idx = c.idx
        AND r.idx > s.idx
        AND g.direction = w.direction
        AND g.params::VARCHAR = w.params::VARCHAR
        AND f.parent = s.run_id
        AND f.epoch = d.epoch
        AND (r.policy ->> '$.then.name') = s.after
        AND (r.policy -> '$.then')::VARCHAR = y.policy
        AND f.orders = IF(
            c.seed = 0,
            LIST_FILTER(COALESCE(a.orders, []), lambda o: o.after <= f.epoch),
            LIST_APPEND(
                LIST_FILTER(COALESCE(a.orders, []), lambda o: o.after < f.epoch),
                {after: f.epoch::BIGINT, seed: c.seed::BIGINT}
            )
        )
        AND x.reason = c.end_reason
        AND e.epochs = c.epochs
        AND e.val_loss IS NOT DISTINCT FROM c.told_loss
        AND e.val_accuracy IS NOT DISTINCT FROM c.told_accuracy,
        FALSE
    ) AS backed  -- Whether the ledger has this fork, once, of that run, epoch, order and policy, with this answer and this end, begun for this measurement
FROM listed AS c
JOIN credit_starts AS s USING (credit_id)
LEFT JOIN ordered AS f ON f.run_id = c.run_id
LEFT JOIN ordered AS a ON a.run_id = f.parent
LEFT JOIN run_starts AS r ON r.run_id = c.run_id
LEFT JOIN decisions AS d ON d.run_id = s.run_id AND d.number = c.decision
LEFT JOIN run_ends AS x ON x.run_id = c.run_id
LEFT JOIN ends AS e ON e.run_id = c.run_id
LEFT JOIN first_claims AS k ON k.run_id = c.run_id
LEFT JOIN afterwards AS y ON y.credit_id = c.credit_id
LEFT JOIN decisions AS g
    ON g.run_id = c.run_id AND g.number = c.decision AND g.epoch = d.epoch
LEFT JOIN said AS w
    ON w.credit_id = c.credit_id AND w.decision = c.decision AND w.arm = c.arm;
COMMENT ON VIEW credit_evidence IS 'Each fork that a measurement names, and whether the ledger holds it as told';

CREATE VIEW decision_credit AS
WITH arms AS (
    SELECT
        credit_id,
        decision,
        arm,
        COUNT(*) AS number,
        BOOL_AND(backed) AS shown,
        AVG(val_loss) AS loss,
        BOOL_AND(val_loss IS NOT NULL) AS finite,
        AVG(val_accuracy) AS accuracy
    FROM credit_evidence
    GROUP BY credit_id, decision, arm
),

-- Forks can be compared if they go on from one state and were trained by one version of the program.
origins AS (
    SELECT
        c.credit_id,
        c.decision,
        COUNT(DISTINCT ROW(f.digest, f.state)) AS states,
        COUNT(DISTINCT r.environment ->> '$.code_sha256') AS versions
    FROM credit_forks AS c
    JOIN forks AS f ON f.run_id = c.run_id
    JOIN run_starts AS r ON r.run_id = c.run_id
    GROUP BY c.credit_id, c.decision
),

asked AS (
    SELECT
        credit_id,
        run_id,
        after,
        TRY_CAST(key AS INTEGER) AS decision,
        UNNEST(TRY_CAST(value AS VARCHAR [])) AS arm,
        TRY_CAST(seeds AS BIGINT []) AS seeds
    FROM (
        SELECT
            * EXCLUDE (arms),
            UNNEST(MAP_ENTRIES(TRY_CAST(arms AS MAP(VARCHAR, JSON))), recursive := TRUE)
        FROM credit_starts
    )
),

-- What had been trained when a decision was made, and the decision. A run that was trained once more
-- has the same, and so has a fork of it.
situations AS (
    SELECT
        d.run_id,
        d.number AS decision,
        MD5(CAST(ROW(
            ANY_VALUE(JSON_MERGE_PATCH(s.config, '{{neutral}}')::VARCHAR),
            ANY_VALUE(s.rules_hash),
            ANY_VALUE(s.spec::VARCHAR),
            ANY_VALUE(COALESCE(s.data -> '$.fingerprints', s.data)::VARCHAR),
            LIST(ROW(e.train_loss, e.val_loss, e.val_accuracy) ORDER BY e.epoch),
            ANY_VALUE(d.direction),
            ANY_VALUE(d.params::VARCHAR)
        ) AS VARCHAR)) AS situation
    FROM decisions AS d
    SEMI JOIN asked AS a ON a.run_id = d.run_id AND a.decision = d.number
    JOIN run_starts AS s ON s.run_id = d.run_id
    JOIN epochs AS e ON e.run_id = d.run_id AND e.epoch <= d.epoch
    GROUP BY d.run_id, d.number
),

-- What an alternative is, whatever its name: as the result says, and as its forks decided.
answers AS (
    SELECT credit_id, decision, arm,
        (other ->> '$.direction') || ' ' || COALESCE(other -> '$.params', '{}')::VARCHAR AS said
    FROM credit_results
    UNION
    SELECT c.credit_id, c.decision, c.arm, g.direction || ' ' || g.params::VARCHAR
    FROM credit_forks AS c
    JOIN decisions AS g ON g.run_id = c.run_id AND g.number = c.decision
    WHERE c.arm <> 'chosen'
),

-- A question is a decision in its situation beside one alternative. All measurements of it together
-- give one answer: the one that has every order of the examples gives it.
posed AS (
    SELECT a.*, s.situation, w.said
    FROM asked AS a
    JOIN situations AS s ON s.run_id = a.run_id AND s.decision = a.decision
    LEFT JOIN answers AS w
        ON w.credit_id = a.credit_id AND w.decision = a.decision AND w.arm = a.arm
),

seen AS (
    SELECT
        s.run_id,
        s.after,
        e.decision,
        e.arm,
        e.seed,
        MIN(e.val_loss) IS DISTINCT FROM MAX(e.val_loss)
        OR MIN(e.val_accuracy) IS DISTINCT FROM MAX(e.val_accuracy)
        OR COUNT(e.val_loss) NOT IN (0, COUNT(*)) AS differs
    FROM credit_evidence AS e
    JOIN credit_starts AS s USING (credit_id)
    WHERE e.backed
    GROUP BY ALL
),

questions AS (
    SELECT
        r.credit_id,
        r.decision,
        r.arm,
        MD5(ANY_VALUE(o.situation) || ' ' || ANY_VALUE(
            (r.other ->> '$.direction') || ' ' || COALESCE(r.other -> '$.params', '{}')::VARCHAR
        )) AS question,
        COUNT(DISTINCT a.credit_id) AS measurements,
        COUNT(DISTINCT ROW(a.after, a.seeds)) AS looks,
        COUNT(DISTINCT a.credit_id) FILTER (x.credit_id IS NULL) AS unfinished,
        MAX(LEN(a.seeds)) AS orders
    FROM credit_results AS r
    JOIN credit_starts AS s ON s.credit_id = r.credit_id
    JOIN situations AS o ON o.run_id = s.run_id AND o.decision = r.decision
    JOIN posed AS a ON a.situation = o.situation AND COALESCE(
        a.said = (r.other ->> '$.direction') || ' '
        || COALESCE(r.other -> '$.params', '{}')::VARCHAR,
        a.arm = r.arm
    )
    LEFT JOIN credit_results AS x
        ON x.credit_id = a.credit_id AND x.decision = a.decision AND x.arm = a.arm
    GROUP BY r.credit_id, r.decision, r.arm
),

repeated AS (
    SELECT q.run_id, q.after, q.decision, q.arm, BOOL_OR(x.differs) AS differs
    FROM (SELECT DISTINCT run_id, after, decision, arm FROM asked) AS q
    JOIN seen AS x
        ON x.run_id = q.run_id AND x.after = q.after AND x.decision = q.decision
            AND x.arm IN (q.arm, 'chosen')
    GROUP BY q.run_id, q.after, q.decision, q.arm
),

judged AS (
SELECT
    s.credit_id,
    s.run_id,
    r.decision,
    r.epoch,
    r.rules,
    r.arm,
    s.after,
    r.chosen,
    r.other,
    r.pairs,
    r.loss_difference,
    r.loss_low,
    r.loss_high,
    r.accuracy_difference,
    r.accuracy_low,
    r.accuracy_high,
    COALESCE(
        w.shown AND o.shown AND r.level = 0.95
        AND w.number = r.pairs AND o.number = r.pairs AND r.pairs = JSON_ARRAY_LENGTH(s.seeds)
        AND IF(
            w.finite AND o.finite,
            ABS(r.loss_difference - (o.loss - w.loss)) < 1e-6 * (1 + ABS(o.loss) + ABS(w.loss)),
            r.loss_difference IS NULL
        )
        AND ABS(r.accuracy_difference - (w.accuracy - o.accuracy)) < 1e-6,
        FALSE
    ) AS backed,
    q.question,
    q.measurements,
    q.looks,
    q.orders,
    CASE
        WHEN NOT backed THEN 'the forks in the ledger contradict it'
        WHEN y.states > 1 THEN 'its forks go on from different states'
        WHEN y.versions > 1 THEN 'its forks were trained by different versions of the program'
        WHEN LIST_SORT(TRY_CAST(s.seeds AS BIGINT [])) IS DISTINCT FROM RANGE(r.pairs::BIGINT)
            THEN 'its orders are not the first ones: 0, 1 and so on'
        WHEN q.unfinished > 0 THEN 'a measurement of the same was begun and has not ended'
        WHEN q.orders > r.pairs THEN q.orders || ' orders were measured, and it has ' || r.pairs
        WHEN t.differs THEN 'an order that was measured twice came to another end'
    END AS why_not,
    IF(why_not IS NULL, r.better, NULL) AS own
FROM credit_results AS r
JOIN credit_starts AS s USING (credit_id)
LEFT JOIN arms AS w
    ON w.credit_id = r.credit_id AND w.decision = r.decision AND w.arm = 'chosen'
LEFT JOIN arms AS o
    ON o.credit_id = r.credit_id AND o.decision = r.decision AND o.arm = r.arm
LEFT JOIN questions AS q
    ON q.credit_id = r.credit_id AND q.decision = r.decision AND q.arm = r.arm
LEFT JOIN repeated AS t
    ON t.run_id = s.run_id AND t.after = s.after AND t.decision = r.decision AND t.arm = r.arm
LEFT JOIN origins AS y ON y.credit_id = r.credit_id AND y.decision = r.decision
)

SELECT
    * EXCLUDE (why_not, own),
    COALESCE(
        why_not,
        CASE WHEN COUNT(DISTINCT own) OVER (PARTITION BY question) > 1
            THEN 'with another policy after the decision, the opposite was measured' END
    ) AS why_not,  -- Why it decides nothing: it is not backed, not whole, not the largest, or contradicted, or its forks differ in more than the answer; NULL: it is the answer
    IF(why_not IS NULL AND COUNT(DISTINCT own) OVER (PARTITION BY question) = 1,
        own, NULL) AS better  -- chosen or other; NULL: undecided, or it decides nothing
FROM judged;
COMMENT ON VIEW decision_credit IS 'What recorded decisions were worth beside their alternatives, measured with forks';
COMMENT ON COLUMN decision_credit.decision IS 'Number of the decision, from 1 in each run';
COMMENT ON COLUMN decision_credit.epoch IS 'The epoch whose evaluation is answered';
COMMENT ON COLUMN decision_credit.rules IS 'That the decision cites';
COMMENT ON COLUMN decision_credit.arm IS 'Name of the alternative; nothing: no action';
COMMENT ON COLUMN decision_credit.after IS 'The policy that decides after it, in all forks';
COMMENT ON COLUMN decision_credit.chosen IS 'The recorded decision';
COMMENT ON COLUMN decision_credit.other IS 'The alternative';
COMMENT ON COLUMN decision_credit.pairs IS 'Seeds that both were trained with';
COMMENT ON COLUMN decision_credit.loss_difference IS 'Mean final validation loss, other minus chosen; NULL: one is not finite';
COMMENT ON COLUMN decision_credit.loss_low IS 'Lower end of its 95% interval';
COMMENT ON COLUMN decision_credit.loss_high IS 'Upper end of its 95% interval';
COMMENT ON COLUMN decision_credit.accuracy_difference IS 'Mean final validation accuracy, chosen minus other';
COMMENT ON COLUMN decision_credit.accuracy_low IS 'Lower end of its 95% interval';
COMMENT ON COLUMN decision_credit.accuracy_high IS 'Upper end of its 95% interval';
COMMENT ON COLUMN decision_credit.backed IS 'Whether the forks in the ledger have these means; the forks themselves are judged like any run';
COMMENT ON COLUMN decision_credit.question IS 'Equal for measurements of the same: this decision in this situation, in whichever run, and this alternative, under whichever name';
COMMENT ON COLUMN decision_credit.measurements IS 'How many measurements of the same the ledger has, with whichever policy after it';
COMMENT ON COLUMN decision_credit.looks IS 'How many of them differ in that policy or in the orders; an export corrects its interval for so many';
COMMENT ON COLUMN decision_credit.orders IS 'Orders of the examples in the largest of them';

-- The answer to the question about each measured decision and alternative, in the forks' own records.
CREATE VIEW decision_worth AS
WITH credit AS MATERIALIZED (
    FROM decision_credit
),

-- Of equal measurements, the first.
answers AS (
    SELECT c.question, c.credit_id, c.decision, c.arm, c.after, c.looks
    FROM credit AS c
    JOIN credit_starts AS s USING (credit_id)
    WHERE c.why_not IS NULL
    QUALIFY ROW_NUMBER() OVER (PARTITION BY c.question ORDER BY s.idx) = 1
),

gains AS (
    SELECT
        w.credit_id,
        w.decision,
        o.arm,
        LIST(o.val_loss - w.val_loss ORDER BY w.seed) AS loss_saved,
        LIST(w.val_accuracy - o.val_accuracy ORDER BY w.seed) AS accuracy_gained,
        BOOL_OR(
            (f.environment ->> '$.code_sha256') <> (r.environment ->> '$.code_sha256')
        ) AS other_code
    FROM credit_evidence AS w
    JOIN credit_evidence AS o USING (credit_id, decision, seed)
    JOIN credit_starts AS s USING (credit_id)
    JOIN run_starts AS r ON r.run_id = s.run_id
    JOIN run_starts AS f ON f.run_id = w.run_id
    WHERE w.arm = 'chosen' AND o.arm <> 'chosen'
    GROUP BY w.credit_id, w.decision, o.arm
)

SELECT
    c.run_id,
    c.decision,  -- Number of the decision, from 1 in each run
    c.epoch,  -- The epoch whose evaluation is answered
    c.arm,  -- Name of the alternative; nothing: no action
    c.other,  -- The alternative
    a.credit_id,  -- The measurement that answers; NULL: none does
    a.after,  -- The policy that decides after the decision, in all forks
    a.looks,  -- As in decision_credit
    LEN(g.loss_saved) AS orders,  -- Orders of the examples that it has
    g.loss_saved,  -- Final validation loss of the fork with the alternative minus that with the decision, for each order; NULL: one is not finite
    g.accuracy_gained,  -- Likewise, final validation accuracy: decision minus alternative
    COALESCE(g.other_code, FALSE) AS other_code,  -- Whether another version of the program trained the forks than the run
    IF(a.credit_id IS NULL, c.why_not, NULL) AS why_not  -- Why no measurement answers; NULL: one does
FROM credit AS c
LEFT JOIN answers AS a ON a.question = c.question
LEFT JOIN gains AS g
    ON g.credit_id = a.credit_id AND g.decision = a.decision AND g.arm = a.arm
QUALIFY ROW_NUMBER() OVER (PARTITION BY c.run_id, c.decision, c.arm ORDER BY c.credit_id) = 1;
COMMENT ON VIEW decision_worth IS 'What each measured decision was worth beside each alternative: the answer to their question, which may have been measured with the same run trained once more';
