-- Runs that a comparison, a campaign or a measurement of credit names as its own, against the runs
-- themselves: what a run was made from is in its own first entry.

-- The entry in which each run was first named. An honest program names a run before it begins, and
-- names it once; a fork of a measurement is named when it has ended.
CREATE VIEW first_claims AS
SELECT run_id, MIN(idx) AS idx
FROM (
    SELECT run_id, idx FROM comparison_runs
    UNION ALL
    SELECT run_id, idx FROM attempts
    UNION ALL
    SELECT run_id, idx FROM credit_forks
)
GROUP BY run_id;
COMMENT ON VIEW first_claims IS 'Where each run was first named by a comparison, a campaign or a measurement of credit; it belongs to that one only';
COMMENT ON COLUMN first_claims.run_id IS 'The run';
COMMENT ON COLUMN first_claims.idx IS 'Ledger index of the entry that names it';

CREATE VIEW run_claims AS
WITH told AS (
    SELECT
        comparison_id,
        idx,
        TRY_CAST(policies AS JSON []) AS policies,
        TRY_CAST(conditions AS MAP(VARCHAR, JSON)) AS conditions,
        TRY_CAST(seeds AS BIGINT []) AS seeds
    FROM comparison_starts
    QUALIFY ROW_NUMBER() OVER (PARTITION BY comparison_id ORDER BY idx) = 1
),

asked AS (
    SELECT
        'comparison' AS kind,
        r.comparison_id AS subject_id,
        r.comparison_id || CHR(10) || r.policy || CHR(10) || r.condition || CHR(10) || r.seed
            AS place,
        r.idx,
        r.run_id,
        t.comparison_id || CHR(10) || r.condition AS of_data,
        t.idx IS NOT NULL AND LIST_CONTAINS(t.seeds, r.seed) AS planned,
        LIST_FILTER(t.policies, lambda each: (each ->> '$.name') = r.policy)[1] AS policy,
        t.conditions[r.condition] AS config,
        r.seed::VARCHAR AS seed,
        NULL AS campaign,
        NULL AS parent_run
    FROM comparison_runs AS r
    LEFT JOIN told AS t ON t.comparison_id = r.comparison_id AND t.idx < r.idx
    UNION ALL
    SELECT
        'campaign',
        a.campaign_id,
        a.campaign_id || CHR(10) || a.number,
        a.idx,
        a.run_id,
        s.campaign_id,
        s.idx IS NOT NULL AND a.number BETWEEN 1 AND s.max_attempts,
        s.policy,
        s.config,
        s.config ->> '$.seed',
        a.campaign_id,
        a.parent_run
    FROM attempts AS a
    LEFT JOIN (
        FROM campaign_starts
        QUALIFY ROW_NUMBER() OVER (PARTITION BY campaign_id ORDER BY idx) = 1
    ) AS s ON s.campaign_id = a.campaign_id AND s.idx < a.idx
),

claimed AS (
    FROM run_starts
    SEMI JOIN asked USING (run_id)
    QUALIFY ROW_NUMBER() OVER (PARTITION BY run_id ORDER BY idx) = 1
),

ends AS (
    SELECT run_id, MIN(idx) AS idx, ARG_MIN(reason, idx) AS reason
    FROM run_ends
    SEMI JOIN asked USING (run_id)
    GROUP BY run_id
),

-- What a run that ended for a restart left to the next one.
left_over AS (
    SELECT
        run_id,
        ARG_MAX(spec, idx) FILTER (outcome = 'restart') AS spec,
        ARG_MAX(settings, idx) FILTER (outcome = 'applied') AS settings
    FROM remedies
    WHERE run_id IN (SELECT parent_run FROM asked)
    GROUP BY run_id
),

known AS (
    SELECT
        a.*,
        s.idx AS run_idx,
        e.reason AS end_reason,
        e.idx AS end_idx,
        s.environment ->> '$.code_sha256' AS code,
        a.policy ->> '$.name' AS asked_name,
        s.policy ->> '$.name' AS own_name,
        s.campaign AS own_campaign,
        s.parent_run AS own_parent,
        f.run_id IS NOT NULL AS forked,
        c.idx AS first_idx,
        p.reason AS parent_reason,
        TRY_CAST(a.policy AS MAP(VARCHAR, JSON)) AS asked_policy,
        TRY_CAST(s.policy AS MAP(VARCHAR, JSON)) AS own_policy,
        TRY_CAST(s.policy -> '$.proposer' AS MAP(VARCHAR, JSON)) AS own_proposer,
        TRY_CAST(a.config AS MAP(VARCHAR, JSON)) AS asked_config,
        TRY_CAST(s.config AS MAP(VARCHAR, JSON)) AS own_config,
        TRY_CAST(l.settings AS MAP(VARCHAR, JSON)) AS carried,
        TRY_CAST(q.config AS MAP(VARCHAR, JSON)) AS parent_config,
        a.parent_run IS NULL OR s.spec::VARCHAR = l.spec::VARCHAR AS same_spec,
        COALESCE(s.data -> '$.fingerprints', s.data -> '$.fingerprint', s.data)::VARCHAR AS data
    FROM asked AS a
    LEFT JOIN claimed AS s ON s.run_id = a.run_id
    LEFT JOIN ends AS e ON e.run_id = a.run_id
    LEFT JOIN (SELECT DISTINCT run_id FROM forks) AS f ON f.run_id = a.run_id
    LEFT JOIN first_claims AS c ON c.run_id = a.run_id
    LEFT JOIN claimed AS q ON q.run_id = a.parent_run
    LEFT JOIN ends AS p ON p.run_id = a.parent_run
    LEFT JOIN left_over AS l ON l.run_id = a.parent_run
),

compared AS (
    SELECT
        *,
        FIRST_VALUE(data IGNORE NULLS) OVER (
            PARTITION BY of_data ORDER BY COALESCE(run_idx < idx, TRUE), run_idx
            ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
        ) AS first_data,
        MIN(end_idx) FILTER (end_reason IN ('completed', 'restart', 'stopped')) OVER (
            PARTITION BY place ORDER BY idx ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS passed_over,
        -- The name of a command is recorded as a shell would quote it, and cut off if it is long.
        LAST_VALUE(IF(end_reason IN ('completed', 'restart', 'stopped'), run_id, NULL) IGNORE NULLS)
            OVER before AS run_before,
        LAST_VALUE(
            CASE WHEN end_reason IN ('completed', 'restart', 'stopped') THEN end_reason END
            IGNORE NULLS
        ) OVER before AS reason_before,
        REGEXP_REPLACE(asked_name, '[\s''"\\]', '', 'g') AS asked_words,
        REGEXP_REPLACE(own_name, '[\s''"\\]', '', 'g') AS own_words,
        LIST_FILTER(
            MAP_KEYS(asked_policy),
            lambda key: key <> 'name'
                AND asked_policy[key] IS DISTINCT FROM COALESCE(own_policy[key], own_proposer[key])
                AND NOT (key = 'rung' AND asked_policy[key] IS NULL)
        ) AS other_settings,
        LIST_FILTER(
            LIST_SORT(LIST_DISTINCT(LIST_CONCAT(MAP_KEYS(asked_config), MAP_KEYS(own_config)))),
            lambda key: key <> 'seed' AND own_config[key] IS DISTINCT FROM CASE
                WHEN parent_run IS NULL THEN asked_config[key]
                WHEN key IN ('provocation', 'provocation_seed') THEN NULL
                WHEN key IN ('accumulation', 'batch_size', 'clip_norm', 'lr') THEN COALESCE(carried[key], parent_config[key])
                WHEN key IN ('activation', 'norm', 'residual', 'width') THEN own_config[key]
                ELSE asked_config[key]
            END
        ) AS other_config
    FROM known
    WINDOW before AS (
        PARTITION BY subject_id ORDER BY idx ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
)

SELECT
    kind,
    subject_id,
    place,
    idx,
    run_id,
    end_idx,
    end_reason,
    code,
    CASE WHEN run_idx IS NULL THEN CAST([] AS VARCHAR []) ELSE LIST_FILTER([
        CASE WHEN planned IS NOT TRUE OR policy IS NULL OR asked_config IS NULL
            THEN 'the ' || kind || ' has no such place' END,
        CASE WHEN run_idx < idx THEN 'the run began before it was given to this place' END,
        CASE WHEN first_idx < idx THEN 'entry ' || first_idx || ' names the run for another place' END,
        CASE WHEN forked THEN 'the run is a fork' END,
        CASE WHEN passed_over < idx
            THEN 'an earlier run of this place had ended by itself in entry ' || passed_over END,
        CASE WHEN own_campaign IS DISTINCT FROM campaign THEN
            'the run says that it ' || COALESCE('is of campaign ' || own_campaign, 'is of no campaign')
        END,
        CASE WHEN own_parent IS DISTINCT FROM parent_run
            OR (parent_run IS NOT NULL AND parent_reason IS DISTINCT FROM 'restart')
            THEN 'the run says that it goes on from ' || COALESCE('run ' || own_parent, 'no run') END,
        CASE WHEN kind = 'campaign' AND reason_before = 'restart'
            AND parent_run IS DISTINCT FROM run_before
            THEN 'the attempt before ended for a restart, which this one is not' END,
        CASE WHEN (
            own_name = asked_name OR (
                STARTS_WITH(asked_name, 'exec:')
                AND IF(LENGTH(own_name) < 200, own_words = asked_words,
                    STARTS_WITH(asked_words, own_words))
            )
        ) IS NOT TRUE THEN 'the policy ' || COALESCE(own_name, 'of no name') || ' decided' END,
        CASE WHEN LEN(other_settings) > 0 OR asked_policy IS NULL
            THEN 'its policy had another ' || ARRAY_TO_STRING(other_settings, ', ') END,
        CASE WHEN own_config['seed']::VARCHAR IS DISTINCT FROM seed
            THEN 'the run has seed ' || COALESCE(own_config['seed']::VARCHAR, 'none') END,
        CASE WHEN LEN(other_config) > 0
            THEN 'its configuration has another ' || ARRAY_TO_STRING(other_config, ', ') END,
        CASE WHEN same_spec IS NOT TRUE THEN 'it began with another model' END,
        CASE WHEN data IS DISTINCT FROM first_data THEN 'it was trained on other data' END
    ], lambda reason: reason IS NOT NULL) END AS why_not
FROM compared;
COMMENT ON VIEW run_claims IS 'Each run that a comparison or a campaign gave to one of its places, and what in the run''s own record contradicts that';
COMMENT ON COLUMN run_claims.kind IS 'comparison or campaign';
COMMENT ON COLUMN run_claims.subject_id IS 'The comparison or campaign';
COMMENT ON COLUMN run_claims.place IS 'The subject with the policy, condition and seed, or with the attempt''s number, a line each';
COMMENT ON COLUMN run_claims.idx IS 'Ledger index of the entry that gave the run to the place';
COMMENT ON COLUMN run_claims.run_id IS 'The run';
COMMENT ON COLUMN run_claims.end_idx IS 'Ledger index of the run''s end; NULL: it has none';
COMMENT ON COLUMN run_claims.end_reason IS 'Why the run ended';
COMMENT ON COLUMN run_claims.code IS 'SHA-256 of the program''s code, as the run recorded it; NULL: there is no such run';
COMMENT ON COLUMN run_claims.why_not IS 'What does not fit: policy, settings, seed, configuration, model, data, order of entries, another owner; empty: it fits, or never began';

-- A policy is asked once with each seed on each condition. Every further run that asks the same is a
-- further draw: one that was cut off, one of another comparison, one that no comparison has made.
CREATE VIEW comparison_draws AS
WITH told AS (
    SELECT
        s.comparison_id,
        UNNEST(TRY_CAST(s.policies AS JSON [])) AS policy,
        s.conditions
    FROM comparison_starts AS s
),

asked AS (
    SELECT
        r.comparison_id,
        r.policy,
        r.condition,
        r.seed,
        r.run_id,
        r.idx,
        TRY_CAST(t.policy AS MAP(VARCHAR, JSON)) AS settings,
        JSON_MERGE_PATCH(
            TRY_CAST(t.conditions AS MAP(VARCHAR, JSON))[r.condition], '{"seed": null}'
        )::VARCHAR AS config
    FROM comparison_runs AS r
    JOIN told AS t ON t.comparison_id = r.comparison_id AND (t.policy ->> '$.name') = r.policy
),

begun AS (
    SELECT
        s.run_id,
        s.idx,
        s.policy ->> '$.name' AS policy,
        TRY_CAST(s.policy AS MAP(VARCHAR, JSON)) AS settings,
        TRY_CAST(s.config ->> '$.seed' AS BIGINT) AS seed,
        JSON_MERGE_PATCH(s.config, '{"seed": null}')::VARCHAR AS config
    FROM run_starts AS s
    ANTI JOIN comparison_runs AS r ON r.run_id = s.run_id
    ANTI JOIN forks AS f ON f.run_id = s.run_id
    ANTI JOIN (FROM attempts JOIN feedback USING (campaign_id, number)) AS a ON a.run_id = s.run_id
    WHERE s.parent_run IS NULL AND EXISTS (FROM comparison_starts)
),

cells AS (
    SELECT DISTINCT comparison_id, policy, condition, seed, settings, config FROM asked
),

found AS (
    SELECT c.* EXCLUDE (settings, config), a.run_id, a.idx, a.comparison_id AS made_by
    FROM cells AS c
    JOIN asked AS a
        ON a.config = c.config AND a.seed = c.seed AND a.policy = c.policy
            AND a.settings = c.settings
    UNION ALL
    SELECT c.* EXCLUDE (settings, config), b.run_id, b.idx, NULL
    FROM cells AS c
    JOIN begun AS b ON b.config = c.config AND b.seed = c.seed AND b.policy = c.policy
    WHERE LEN(LIST_FILTER(
        MAP_KEYS(c.settings),
        lambda key: c.settings[key] IS NOT NULL AND c.settings[key] IS DISTINCT FROM b.settings[key]
    )) = 0
)

SELECT
    f.comparison_id,
    f.policy,
    f.condition,
    f.seed,
    f.run_id,
    f.idx,
    f.made_by,
    r.run_id IS NOT NULL AS counted,
    e.reason AS end_reason,
    COALESCE(m.epochs, 0) AS epochs,
    m.best_val_accuracy
FROM found AS f
LEFT JOIN (
    SELECT DISTINCT comparison_id, policy, condition, seed, run_id FROM comparison_results
) AS r USING (comparison_id, policy, condition, seed, run_id)
LEFT JOIN run_ends AS e ON e.run_id = f.run_id
LEFT JOIN (
    SELECT
        run_id,
        MAX(epoch) + 1 AS epochs,
        MAX(val_accuracy) FILTER (ISFINITE(val_accuracy)) AS best_val_accuracy
    FROM epochs
    WHERE run_id IN (SELECT run_id FROM found)
    GROUP BY run_id
) AS m ON m.run_id = f.run_id;
COMMENT ON VIEW comparison_draws IS 'Every run of the ledger that asks what a cell of a comparison asks: the same policy, condition and seed';
COMMENT ON COLUMN comparison_draws.comparison_id IS 'The comparison';
COMMENT ON COLUMN comparison_draws.policy IS 'Name of the policy';
COMMENT ON COLUMN comparison_draws.condition IS 'Name of the condition';
COMMENT ON COLUMN comparison_draws.seed IS 'Seed of the run';
COMMENT ON COLUMN comparison_draws.run_id IS 'A run that asks the same';
COMMENT ON COLUMN comparison_draws.idx IS 'Ledger index of the entry that gave it to a cell, or of its own first entry';
COMMENT ON COLUMN comparison_draws.made_by IS 'The comparison that had it made, this one or another one; NULL: none';
COMMENT ON COLUMN comparison_draws.counted IS 'Whether it is the result of the cell';
COMMENT ON COLUMN comparison_draws.end_reason IS 'Why it ended; NULL: it never began, or has no end';
COMMENT ON COLUMN comparison_draws.epochs IS 'That it has measured';
COMMENT ON COLUMN comparison_draws.best_val_accuracy IS 'Its largest finite validation accuracy';
