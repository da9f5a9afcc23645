-- A made-up projection of getvariable('runs') runs; see cookbook.py.

CREATE TEMP MACRO id_of(kind, n) AS MD5(kind || n)[1:8] || '-0000-4000-8000-' || PRINTF('%012d', n);
CREATE TEMP MACRO chance(n, e, what) AS HASH(n, e, what) % 1000 / 1000.0;
CREATE TEMP TABLE made AS
SELECT
    n,
    id_of('run', n) AS run_id,
    id_of('audit', n) AS audit_id,
    id_of('transcript', n) AS transcript_id,
    id_of('campaign', n // 10) AS campaign_id,
    100 + n * 120 AS first  -- its index; a run has 120 entries at most
FROM RANGE(getvariable('runs')) AS t(n);
CREATE TEMP TABLE parts AS SELECT e, first + 1 + 2 * e AS idx, m.* FROM made AS m, RANGE(40) AS t(e);
CREATE TEMP TABLE said AS
SELECT
    m.*,
    k,
    5 * k AS e,
    first + 79 + 2 * k AS idx,
    'R' || 1 + (n + k) % 7 AS rule,
    ['decrease_lr', 'increase_lr', 'add_norm', 'swap_activation', 'add_residual'][1 + (n + k) % 5] AS way
FROM made AS m, RANGE(1, 7) AS t(k);

INSERT INTO log.events BY NAME
SELECT
    first + o AS idx,
    TIMESTAMP '2026-01-01' + TO_SECONDS(first + o) AS time,
    CASE WHEN o < 96 THEN run_id WHEN o < 103 THEN transcript_id ELSE audit_id END AS stream_id,
    CASE WHEN o < 96 THEN o + 1 WHEN o < 103 THEN o - 95 ELSE o - 102 END AS version,
    CASE
        WHEN o = 0 THEN 'run.started'
        WHEN o < 81 THEN ['run.rules_evaluated', 'run.epoch_measured'][1 + o % 2]
        WHEN o < 93 THEN ['run.remedy_applied', 'run.decision_made'][1 + o % 2]
        WHEN o < 95 THEN 'run.weights_saved'
        WHEN o = 95 THEN 'run.ended'
        WHEN o = 96 THEN 'transcript.opened'
        WHEN o < 103 THEN 'transcript.call_made'
        WHEN o = 103 THEN 'audit.started'
        WHEN o < 115 THEN 'audit.step_completed'
        ELSE 'audit.scored'
    END AS name
FROM made, RANGE(116) AS t(o)
UNION ALL
SELECT o, TIMESTAMP '2026-01-01' + TO_SECONDS(o), id_of('line', 0), o + 1, 'checkpoint.promoted'
FROM RANGE(100) AS t(o)
UNION ALL
SELECT MAX(first) + 200, TIMESTAMP '2026-03-01', id_of('line', 0), 101, 'checkpoint.rolled_back'
FROM made;

INSERT INTO log.line_starts BY NAME
SELECT id_of('line', 0) AS line_id, 0 AS idx, 'root' AS root, 'main' AS branch;

INSERT INTO log.checkpoint_starts BY NAME
SELECT id_of('line', 0) AS line_id, id_of('checkpoint', c) AS checkpoint_id, c AS idx,
    CASE WHEN c > 0 THEN id_of('checkpoint', c - 1) END AS parent, 'c' || c AS commit,
    't' || c AS tree, 'm' AS manifest, 'r' AS reference_set, 'code' || c AS code,
    CASE WHEN c > 0 THEN 'promoted' ELSE 'opened' END AS origin
FROM RANGE(32) AS t(c);

INSERT INTO log.checkpoint_rollbacks BY NAME
SELECT id_of('line', 0) AS line_id, id_of('checkpoint', 31) AS checkpoint_id,
    MAX(first) + 200 AS idx, id_of('checkpoint', 30) AS to_checkpoint, 'worse' AS reason
FROM made;

INSERT INTO log.corpus_origins BY NAME
SELECT 40 + o AS idx, 'admitted' AS what, ['data', 'model'][1 + o % 2] AS kind,
    ['fp', 'model'][1 + o % 2] || o // 2 AS name, '' AS note, 'ab' AS signed_by
FROM RANGE(8) AS t(o);

INSERT INTO log.exports BY NAME
SELECT id_of('export', n) AS export_id, first + 119 AS idx, 'sft' AS kind,
    first + 118 AS as_of, 'h' AS head, '{}' AS query, 'c' AS code, 1000 AS examples,
    'r' AS root, 's' AS sha256, 'm' AS members
FROM made WHERE n % 1000 = 999;

INSERT INTO log.run_starts BY NAME
SELECT run_id, first AS idx, JSON_OBJECT('dataset', 'data' || n % 4, 'seed', n, 'epochs', 40,
        'lr', [0.001, 0.01, 0.1, 1.0][1 + n % 4], 'edits', 'live', 'waived', ['R3'],
        'target_accuracy', 0.8) AS config,
    'h' AS config_hash, JSON_OBJECT('profile', 'calibrated') AS rules, 'h' AS rules_hash,
    '{"classes": 10}' AS spec,
    JSON_OBJECT('name', 'policy' || n % 3, 'model', 'model' || n % 5) AS policy,
    JSON_OBJECT('fingerprint', 'fp' || n % 4) AS data,
    JSON_OBJECT('threads', 1, 'code_sha256', 'code' || n % 32) AS environment,
    CASE WHEN n % 10 = 9 THEN id_of('run', n - 1) END AS parent_run, campaign_id AS campaign,
    CASE WHEN n % 5 < 4 THEN id_of('checkpoint', n % 32) END AS checkpoint
FROM made;

INSERT INTO log.run_ends BY NAME
SELECT run_id, first + 95 AS idx, 'completed' AS reason, '' AS detail, '{}' AS deliverables,
    SHA256(run_id) AS entry
FROM made WHERE n % 100 < 99;

INSERT INTO log.provocations BY NAME
SELECT run_id, first AS idx, 'fault' || n % 6 AS name, n AS seed, '{}' AS changes,
    JSON_ARRAY('R' || 1 + n % 7) AS expects
FROM made WHERE n % 50 = 0;

INSERT INTO log.epochs BY NAME
SELECT run_id, e AS epoch, idx,
    IF(n % 30 = 0 AND e > 20, 'nan'::DOUBLE, 2 * POW(0.95, e)) AS train_loss,
    1 - POW(0.95, e) AS train_accuracy, 2.1 * POW(0.95, e) + chance(n, e, 1) AS val_loss,
    0.9 - POW(0.95, e) * 0.8 + chance(n, e, 2) / 10 AS val_accuracy,
    TRUE AS gradients_finite, chance(n, e, 3) * 5 AS max_layer_grad_norm,
    chance(n, e, 4) AS min_layer_grad_norm, 0.001 AS update_ratio, 0.001 AS
    epoch_update_ratio, 1.5 AS signal_to_noise, 300.0 AS norm_noise_scale, 40.0 AS noise_scale,
    chance(n, e, 5) AS dead_share, 0.5 AS sparsity, 0.1 AS lr, 64 AS batch_size,
    1 AS accumulation, '{}' AS reported
FROM parts;

INSERT INTO log.layer_metrics BY NAME
SELECT run_id, e AS epoch, idx, p AS place, 'blocks.' || p || '.weight' AS layer,
    IF(p = 9, 1, 4) AS rank, chance(n, e, p) * 5 AS grad_norm, 0.001 AS update_ratio,
    0.001 AS epoch_update_ratio
FROM parts, RANGE(10) AS t(p);

INSERT INTO log.activation_metrics BY NAME
SELECT run_id, e AS epoch, idx, p AS place, 'blocks.' || p || '.act' AS layer, 64 AS units,
    HASH(n, e, p) % 64 AS dead_units, 0.5 AS sparsity, 0.0 AS p50, chance(n, e, p) AS p99
FROM parts, RANGE(3) AS t(p);

INSERT INTO log.rule_evaluations BY NAME
SELECT run_id, e AS epoch, idx + 1 AS idx, 'R' || p AS rule, chance(n, e, p) < 0.05 AS fired,
    IF(fired, 'high', NULL) AS side, chance(n, e, p) AS value, 0.5 AS ema,
    IF(fired, 3, 0) AS streak, 8 - p AS precedence
FROM parts, RANGE(1, 8) AS t(p);

INSERT INTO log.decisions BY NAME
SELECT run_id, k AS number, e AS epoch, idx, 'policy' AS source,
    IF(k = 6, 'rule_triggered_no_action', 'hyperparameter_change') AS event_type,
    IF(k = 6, 'defer', way) AS direction, '{"lr": 0.01}' AS params,
    IF(k = 6, 'R7', NULL) AS deferred_to, 'the rule wants it' AS justification
FROM said;

INSERT INTO log.citations BY NAME
SELECT run_id, k AS number, idx, rule FROM said
UNION ALL
SELECT run_id, k, idx, 'R' || 1 + (n + k + 1) % 7 FROM said WHERE k < 3;

INSERT INTO log.remedies BY NAME
SELECT run_id, k AS decision, e AS epoch, idx + 1 AS idx,
    IF(k = 5, 'refused', 'applied') AS outcome, '[]' AS changes,
    IF(k = 5, 'not here', NULL) AS reason, '{"lr": 0.01}' AS settings,
    '{"classes": 10}' AS spec
FROM said WHERE k < 6;

INSERT INTO log.weights BY NAME
SELECT run_id, 39 AS epoch, first + 93 + w AS idx, ['best', 'last'][1 + w] AS kind,
    MD5(run_id || w) AS sha256, 100000 AS size, '{"classes": 10}' AS spec, '{}' AS probe
FROM made, RANGE(2) AS t(w);

INSERT INTO log.audit_starts BY NAME
SELECT audit_id, first + 103 AS idx, run_id, 'note' AS tree_head, '{"disabled": []}' AS config,
    '{}' AS environment
FROM made;

INSERT INTO log.audit_steps BY NAME
SELECT audit_id, s AS step, first + 103 + s AS idx, 'step ' || s AS name,
    IF(s = 7 AND n % 20 = 0, 'failed', IF(s > 7 AND n % 3 = 0, 'violations', 'passed')) AS status,
    '' AS summary, '{}' AS evidence
FROM made, RANGE(1, 12) AS t(s);

INSERT INTO log.audit_scores BY NAME
SELECT audit_id, first + 115 AS idx, n % 20 = 0 AS hard_fail, chance(n, 0, 1) AS accuracy_score,
    chance(n, 0, 2) AS process_score, n % 4 > 0 AS process_axis_exercised,
    0.8 AS test_accuracy, 0.7 + chance(n, 0, 3) / 5 AS validation_accuracy,
    10 AS obligations, 6 AS decisions
FROM made;

INSERT INTO log.audit_violations BY NAME
SELECT audit_id, p AS place, first + 115 AS idx, 'kind' || n % 7 AS kind, 'R' || 1 + n % 7 AS rule,
    5 * p AS epoch, p AS decision, ['policy', 'harness'][1 + n % 2] AS emitter, '' AS detail,
    1 AS times
FROM made, RANGE(1, 4) AS t(p) WHERE n % 3 = 0;

INSERT INTO log.campaign_starts BY NAME
SELECT campaign_id, MIN(first) AS idx, 'iterative_self_refine' AS mode, '{}' AS config,
    10 AS max_attempts, '{"name": "policy"}' AS policy, TRUE AS feedback, 'process' AS ranked_by
FROM made GROUP BY campaign_id;

INSERT INTO log.attempts BY NAME
SELECT campaign_id, n % 10 + 1 AS number, first AS idx, run_id,
    CASE WHEN n % 10 = 9 THEN id_of('run', n - 1) END AS parent_run
FROM made;

INSERT INTO log.judged_attempts BY NAME
SELECT campaign_id, n % 10 + 1 AS number, first + 115 AS idx, run_id, audit_id FROM made;

INSERT INTO log.campaign_ends BY NAME
SELECT campaign_id, MAX(first) + 117 AS idx, 'finished' AS reason,
    TO_JSON(LIST(run_id ORDER BY n)) AS ranking
FROM made GROUP BY campaign_id;

INSERT INTO log.feedback BY NAME
SELECT campaign_id, n % 10 + 1 AS number, first AS idx,
    JSON_OBJECT('kind', 'kind' || n % 7, 'rule', 'R' || 1 + n % 7) AS feedback
FROM made WHERE n % 10 > 0;

INSERT INTO log.transcripts BY NAME
SELECT transcript_id, first + 96 AS idx, run_id, 'iterative_self_refine' AS mode,
    JSON_OBJECT('model', 'model' || n % 5, 'rung', 'json_schema') AS policy
FROM made;

INSERT INTO log.calls BY NAME
SELECT transcript_id, k AS number, first + 96 + k AS idx, e AS epoch, 'decider' AS agent,
    'decide' AS action, JSON_ARRAY(rule) AS rules, 'model' || n % 5 AS model, 'e' AS endpoint,
    'json_schema' AS rung, '{"temperature": 0.2, "seed": null}' AS parameters,
    MD5(run_id || k) AS request, 1000 AS request_bytes, MD5(run_id || -k) AS response,
    200 AS response_bytes, 200 AS status, 'stop' AS finish_reason, 300 AS prompt_tokens,
    40 AS completion_tokens, 340 AS total_tokens, chance(n, k, 9) AS seconds, 0.001 AS cost,
    '[]' AS retries, IF((n + k) % 9 = 0, 'unusable', 'usable') AS outcome,
    IF((n + k) % 9 = 0, 'no JSON', NULL) AS problem, FALSE AS cached
FROM said;

INSERT INTO log.votes BY NAME
SELECT transcript_id, idx, e AS epoch, rule, '{"add_norm": 2, "defer": 1}' AS votes,
    'add_norm' AS chosen, chance(n, k, 8) AS agreement, '[1, 2, 3]' AS calls
FROM said WHERE k = 1;
