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
COMMENT ON COLUMN first_claims.idx IS 'Ledger index of the entry that names it';

CREATE VIEW run_claims AS
WITH left_alone AS (
    SELECT b.campaign_id, b.run_id, MIN(b.idx) AS idx
    FROM abandoned_attempts AS b
    SEMI JOIN attempts AS a ON a.campaign_id = b.campaign_id AND a.run_id = b.run_id
    GROUP BY b.campaign_id, b.run_id
),

-- The number of the attempt that comes next after each entry: those before it that count, and one.
numbered AS (
    SELECT
        campaign_id,
        idx,
        1 + SUM(step) OVER (PARTITION BY campaign_id ORDER BY idx) - step AS due
    FROM (
        SELECT campaign_id, idx, 1 AS step FROM attempts
        UNION ALL
        SELECT campaign_id, idx, -1 FROM left_alone
    )
),

closed AS (
    SELECT subject_id, MIN(idx) AS idx
    FROM (
        SELECT campaign_id AS subject_id, idx FROM campaign_ends
        UNION ALL
        SELECT comparison_id, idx FROM comparison_ends
    )
    GROUP BY subject_id
),

told AS (
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
        r.condition,
        r.seed::VARCHAR AS seed,
        LIST_FILTER(
            MAP_KEYS(t.conditions),
            lambda each: JSON_MERGE_PATCH(t.conditions[each], '{{neutral}}')
                = JSON_MERGE_PATCH(t.conditions[r.condition], '{{neutral}}')
        )[1] AS alike,
        NULL AS campaign,
        NULL AS parent_run,
        NULL AS number,
        NULL AS due,
        FALSE AS abandoned
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
        NULL,
        s.config ->> '$.seed',
        NULL,
        a.campaign_id,
        a.parent_run,
        a.number,
        n.due,
        b.run_id IS NOT NULL
    FROM attempts AS a
    JOIN numbered AS n ON n.campaign_id = a.campaign_id AND n.idx = a.idx
    LEFT JOIN left_alone AS b ON b.campaign_id = a.campaign_id AND b.run_id = a.run_id
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
        -- A task's run waives what it is asked to, and the rules with a side that its loop has no
        -- remedy for.
        s.config ->> '$.task' IS NOT NULL AND LIST_SORT(TRY_CAST(s.config -> '$.waived' AS VARCHAR []))
        = LIST_SORT(LIST_DISTINCT(LIST_CONCAT(
            COALESCE(TRY_CAST(a.config -> '$.waived' AS VARCHAR []), []),
            LIST_TRANSFORM(
                LIST_FILTER(
                    [{{answers}}],
                    lambda side: LIST_CONTAINS(
                        COALESCE(TRY_CAST(s.rules -> '$.names' AS VARCHAR []), [{{first_rules}}]),
                        side.rule
                    )
                    AND NOT LIST_HAS_ANY(side.able, TRY_CAST(s.spec -> '$.offers' AS VARCHAR []))
                ),
                lambda side: side.rule
            )
        ))) AS waives_as_a_task,
        TRY_CAST(l.settings AS MAP(VARCHAR, JSON)) AS carried,
        TRY_CAST(q.config AS MAP(VARCHAR, JSON)) AS parent_config,
        a.parent_run IS NULL OR s.spec::VARCHAR = l.spec::VARCHAR AS follows,
        IF(a.parent_run IS NULL, s.spec::VARCHAR, NULL) AS spec,
        s.rules_hash AS rules,
        d.idx AS closed_idx,
        COALESCE(e.reason IN ('completed', 'restart', 'stopped'), FALSE) AS own_end,
        COALESCE(s.data -> '$.fingerprints', s.data -> '$.fingerprint', s.data)::VARCHAR AS data
    FROM asked AS a
    LEFT JOIN claimed AS s ON s.run_id = a.run_id
    LEFT JOIN ends AS e ON e.run_id = a.run_id
    LEFT JOIN (SELECT DISTINCT run_id FROM forks) AS f ON f.run_id = a.run_id
    LEFT JOIN first_claims AS c ON c.run_id = a.run_id
    LEFT JOIN claimed AS q ON q.run_id = a.parent_run
    LEFT JOIN ends AS p ON p.run_id = a.parent_run
    LEFT JOIN left_over AS l ON l.run_id = a.parent_run
    LEFT JOIN closed AS d ON d.subject_id = a.subject_id
),

compared AS (
    SELECT
        *,
        FIRST_VALUE(data IGNORE NULLS) OVER of_first AS first_data,
        FIRST_VALUE(spec IGNORE NULLS) OVER of_first AS first_spec,
        FIRST_VALUE(rules IGNORE NULLS) OVER of_first AS first_rules,
        FIRST_VALUE(own_name IGNORE NULLS) OVER (
            PARTITION BY subject_id, asked_name ORDER BY COALESCE(run_idx < idx, TRUE), run_idx
            ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
        ) AS first_name,
        MAX(IF(abandoned, NULL, COALESCE(end_idx, idx))) OVER before AS busy_until,
        LEAD(idx) OVER (PARTITION BY subject_id ORDER BY idx) IS NOT NULL
        OR closed_idx IS NOT NULL AS settled,
        MIN(end_idx) FILTER (own_end) OVER (
            PARTITION BY place ORDER BY idx ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS passed_over,
        -- The name of a command is recorded as a shell would quote it, and cut off if it is long.
        LAST_VALUE(IF(own_end, run_id, NULL) IGNORE NULLS) OVER before AS run_before,
        LAST_VALUE(IF(own_end, end_reason, NULL) IGNORE NULLS) OVER before AS reason_before,
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
                WHEN key = 'waived' AND waives_as_a_task THEN own_config[key]
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
    ),
    of_first AS (
        PARTITION BY of_data ORDER BY COALESCE(run_idx < idx, TRUE), run_idx
        ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
    )
)

SELECT
    kind,  -- comparison or campaign
    subject_id,  -- The comparison or campaign
    place,  -- The subject with the policy, condition and seed, or with the attempt's number, a line each
    idx,  -- Ledger index of the entry that gave the run to the place
    run_id,
    end_idx,  -- Ledger index of the run's end; NULL: it has none
    end_reason,  -- Why the run ended
    code,  -- SHA-256 of the program's code, as the run recorded it; NULL: there is no such run
    CASE WHEN run_idx IS NULL THEN CAST([] AS VARCHAR []) ELSE LIST_FILTER([
        CASE WHEN planned IS NOT TRUE OR policy IS NULL OR asked_config IS NULL
            THEN 'the ' || kind || ' has no such place' END,
        CASE WHEN alike <> condition THEN 'the condition asks the same as ' || alike END,
        CASE WHEN run_idx < idx THEN 'the run began before it was given to this place' END,
        CASE WHEN first_idx < idx THEN 'entry ' || first_idx || ' names the run for another place' END,
        CASE WHEN closed_idx < idx THEN 'the ' || kind || ' had ended in entry ' || closed_idx END,
        CASE WHEN number <> due THEN 'attempt ' || due || ' was the next one, not this' END,
        CASE WHEN kind = 'campaign' AND run_idx < busy_until
            THEN 'the run began before the attempt before it had ended' END,
        CASE WHEN kind = 'campaign' AND settled AND NOT abandoned AND NOT own_end
            THEN 'the run did not end by itself' END,
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
            own_name = asked_name
            -- An installed policy is chosen by a name of its own, and recorded as its class.
            OR (
                (own_policy['class'] ->> '$') = own_name AND own_name = first_name
                AND NOT CONTAINS(asked_name, ':') AND asked_name NOT IN ({{policies}})
            )
            OR (
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
        CASE WHEN follows IS NOT TRUE OR spec IS DISTINCT FROM IF(spec IS NULL, NULL, first_spec)
            THEN 'it began with another model' END,
        CASE WHEN rules IS DISTINCT FROM first_rules THEN 'its rules have other thresholds' END,
        CASE WHEN data IS DISTINCT FROM first_data THEN 'it was trained on other data' END
    ], lambda reason: reason IS NOT NULL) END AS why_not  -- What does not fit: policy, settings, seed, configuration, model, rules, data, order of entries or attempts, another owner; empty: it fits, or never began
FROM compared;
COMMENT ON VIEW run_claims IS 'Each run that a comparison or a campaign gave to one of its places, and what in the run''s own record contradicts that';

-- What a run asks, by its own first entry: which policy, in which training, with which seed. How and
-- where it was computed is no part of that, nor how often a server is asked again and what it costs.
CREATE VIEW run_questions AS
SELECT
    s.run_id,
    s.idx,  -- Ledger index of its first entry
    s.policy ->> '$.name' AS policy,  -- Name of the policy, as the run recorded it
    REGEXP_REPLACE(s.policy ->> '$.name', '[\s''"\\]', '', 'g') AS words,  -- The same without spaces and quotation marks
    MAP_CONCAT(
        COALESCE(TRY_CAST(s.policy -> '$.proposer' AS MAP(VARCHAR, JSON)), MAP {}),
        TRY_CAST(s.policy AS MAP(VARCHAR, JSON))
    ) AS settings,  -- What else the run recorded of its policy, by name
    LIST_SORT(LIST_FILTER(
        MAP_ENTRIES(TRY_CAST(s.config AS MAP(VARCHAR, JSON))),
        lambda each: NOT LIST_CONTAINS([{{computed}}], each.key)
    ))::VARCHAR AS training,  -- Its configuration without seed, machine, folders and snapshots
    TRY_CAST(s.config ->> '$.seed' AS BIGINT) AS seed,  -- Its seed
    s.campaign,  -- The campaign that it says it is of
    f.idx IS NOT NULL AS after_feedback  -- Whether its policy was told of earlier attempts of that campaign
FROM run_starts AS s
ANTI JOIN forks AS k ON k.run_id = s.run_id
LEFT JOIN (
    SELECT a.campaign_id, a.run_id, MIN(a.idx) AS idx
    FROM attempts AS a
    JOIN feedback AS b ON b.campaign_id = a.campaign_id AND b.number = a.number AND b.idx < a.idx
    GROUP BY a.campaign_id, a.run_id
) AS f ON f.run_id = s.run_id AND f.campaign_id = s.campaign AND f.idx < s.idx
WHERE s.parent_run IS NULL
QUALIFY ROW_NUMBER() OVER (PARTITION BY s.run_id ORDER BY s.idx) = 1;
COMMENT ON VIEW run_questions IS 'What each run asks that is no fork and goes on from no other run: a policy, in a training, with a seed';

-- A policy is asked once with each seed on each condition. Every further run that asks the same is a
-- further draw, whoever names it: one that was cut off, one of another comparison, one that no
-- comparison has made. A run that never began asks what the comparison says.
CREATE VIEW comparison_draws AS
WITH told AS (
    SELECT comparison_id, UNNEST(TRY_CAST(policies AS JSON [])) AS policy, conditions
    FROM (
        FROM comparison_starts
        QUALIFY ROW_NUMBER() OVER (PARTITION BY comparison_id ORDER BY idx) = 1
    )
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
        LIST_SORT(LIST_FILTER(
            MAP_ENTRIES(TRY_CAST(
                TRY_CAST(t.conditions AS MAP(VARCHAR, JSON))[r.condition] AS MAP(VARCHAR, JSON)
            )),
            lambda each: NOT LIST_CONTAINS([{{computed}}], each.key)
        ))::VARCHAR AS training,
        REGEXP_REPLACE(r.policy, '[\s''"\\]', '', 'g') AS words
    FROM comparison_runs AS r
    JOIN told AS t ON t.comparison_id = r.comparison_id AND (t.policy ->> '$.name') = r.policy
),

-- A policy has the name that was asked for, and that which the cell's own run recorded.
cells AS (
    SELECT DISTINCT
        a.comparison_id, a.policy, a.condition, a.seed, a.settings, a.training,
        UNNEST([a.words, COALESCE(q.words, a.words)]) AS words
    FROM asked AS a
    LEFT JOIN run_claims AS c
        ON c.idx = a.idx AND c.run_id = a.run_id AND c.kind = 'comparison' AND LEN(c.why_not) = 0
    LEFT JOIN run_questions AS q ON q.run_id = c.run_id
),

named AS (
    SELECT run_id, ARG_MIN(comparison_id, idx) AS made_by, MIN(idx) AS idx
    FROM comparison_runs
    GROUP BY run_id
),

begun AS (
    SELECT
        q.run_id, COALESCE(n.idx, q.idx) AS idx, n.made_by, q.words, q.settings, q.training, q.seed
    FROM run_questions AS q
    LEFT JOIN named AS n ON n.run_id = q.run_id
    WHERE NOT q.after_feedback AND EXISTS (FROM comparison_starts)
    UNION ALL
    SELECT a.run_id, a.idx, a.comparison_id, a.words, a.settings, a.training, a.seed
    FROM asked AS a
    ANTI JOIN run_starts AS s ON s.run_id = a.run_id
),

found AS (
    SELECT DISTINCT
        c.comparison_id, c.policy, c.condition, c.seed, b.run_id, b.idx, b.made_by
    FROM cells AS c
    JOIN begun AS b ON b.training = c.training AND b.seed = c.seed AND (
        b.words = c.words OR (
            STARTS_WITH(b.words, 'exec:') AND LENGTH(b.settings['name'] ->> '$') >= 200
            AND STARTS_WITH(c.words, b.words)
        )
    )
    WHERE LEN(LIST_FILTER(
        MAP_KEYS(c.settings),
        lambda key: NOT LIST_CONTAINS([{{asking}}], key)
            AND NULLIF(c.settings[key]::VARCHAR, 'null') IS NOT NULL
            AND NULLIF((b.settings[key])::VARCHAR, 'null') IS NOT NULL
            AND c.settings[key] IS DISTINCT FROM b.settings[key]
    )) = 0
)

SELECT
    f.comparison_id,
    f.policy,  -- Name of the policy
    f.condition,
    f.seed,  -- Seed of the run
    f.run_id,  -- A run that asks the same
    f.idx,  -- Ledger index of the entry that gave it to a cell, or of its own first entry
    f.made_by,  -- The comparison that had it made, this one or another one; NULL: none
    r.run_id IS NOT NULL AS counted,  -- Whether it is the result of the cell
    e.reason AS end_reason,  -- Why it ended; NULL: it never began, or has no end
    COALESCE(m.epochs, 0) AS epochs,  -- That it has measured
    m.best_val_accuracy  -- Its largest finite validation accuracy
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

-- A campaign asks its policy as often as it says. Other campaigns and runs that ask the same are
-- further draws, and so is a run that says it is of the campaign without being one of its attempts.
CREATE VIEW campaign_draws AS
WITH asked AS (
    SELECT
        campaign_id,
        TRY_CAST(policy AS MAP(VARCHAR, JSON)) AS settings,
        LIST_SORT(LIST_FILTER(
            MAP_ENTRIES(TRY_CAST(config AS MAP(VARCHAR, JSON))),
            lambda each: NOT LIST_CONTAINS([{{computed}}], each.key)
        ))::VARCHAR AS training,
        TRY_CAST(config ->> '$.seed' AS BIGINT) AS seed,
        REGEXP_REPLACE(policy ->> '$.name', '[\s''"\\]', '', 'g') AS words
    FROM campaign_starts
    QUALIFY ROW_NUMBER() OVER (PARTITION BY campaign_id ORDER BY idx) = 1
),

named AS (
    SELECT run_id, ARG_MIN(campaign_id, idx) AS made_by FROM attempts GROUP BY run_id
),

found AS (
    SELECT a.campaign_id, q.run_id
    FROM asked AS a
    JOIN run_questions AS q ON q.training = a.training AND q.seed = a.seed AND q.words = a.words
    WHERE LEN(LIST_FILTER(
        MAP_KEYS(a.settings),
        lambda key: NOT LIST_CONTAINS([{{asking}}], key)
            AND NULLIF(a.settings[key]::VARCHAR, 'null') IS NOT NULL
            AND NULLIF((q.settings[key])::VARCHAR, 'null') IS NOT NULL
            AND a.settings[key] IS DISTINCT FROM q.settings[key]
    )) = 0
    UNION
    SELECT campaign, run_id FROM run_starts
    WHERE campaign IN (SELECT campaign_id FROM campaign_starts)
)

SELECT
    f.campaign_id,
    f.run_id,  -- A run with the same policy, configuration and seed
    s.idx,  -- Ledger index of its first entry
    n.made_by,  -- The campaign that has it as an attempt; NULL: none
    s.campaign IS NOT DISTINCT FROM f.campaign_id AS says_so,  -- Whether the run says that it is of this campaign
    e.reason AS end_reason  -- Why it ended; NULL: it has no end
FROM found AS f
ANTI JOIN attempts AS a ON a.campaign_id = f.campaign_id AND a.run_id = f.run_id
JOIN run_starts AS s ON s.run_id = f.run_id
LEFT JOIN named AS n ON n.run_id = f.run_id
LEFT JOIN run_ends AS e ON e.run_id = f.run_id;
COMMENT ON VIEW campaign_draws IS 'Every run that asks what a campaign asks, or says that it is of the campaign, and is none of its attempts';
