-- What the decisions of a run leave uncovered, over the tables of projections/schema.sql.
-- Each is of all runs. What others build on is a table, so that it is computed once: DuckDB would
-- compute a view again wherever another names it. What lies within so many epochs is found by equal
-- epochs or as the nearest one, so that a long run costs no more for each epoch than a short one.
-- Waived rules are advisory: they oblige nobody and accuse nobody.
-- The windows come from the rules configuration of the run itself, whose hash is checked before.

CREATE OR REPLACE TEMP TABLE coverage_limits AS
SELECT
    run_id,
    CAST(rules ->> '$.action_window' AS INTEGER) AS action_window,
    CAST(rules ->> '$.deferral_limit' AS INTEGER) AS deferral_limit,
    CAST(rules ->> '$.persistence' AS INTEGER) AS persistence,
    -- Whether an average goes on through a remedy, so that a rule may fire after one that worked.
    NOT CAST(rules ->> '$.restart_after_remedy' AS BOOLEAN) AS lags,
    TRY_CAST(rules ->> '$.r1_patience' AS INTEGER) AS r1_patience,
    TRY_CAST(rules ->> '$.r3_patience' AS INTEGER) AS r3_patience,
    TRY_CAST(data ->> '$.sizes.train' AS DOUBLE) AS train_examples,
    TRY_CAST(config ->> '$.max_batch_size' AS DOUBLE) AS max_batch_size,
    reason,
    last_epoch
FROM run_starts
LEFT JOIN run_ends USING (run_id)
LEFT JOIN (SELECT run_id, max(epoch) AS last_epoch FROM rule_evaluations GROUP BY run_id) USING (run_id);

CREATE OR REPLACE TEMP TABLE coverage_waived AS
SELECT run_id, unnest(CAST(config -> '$.waived' AS VARCHAR[])) AS rule
FROM run_starts;

-- One row for each rule in each epoch, without the rules that are waived.
CREATE OR REPLACE TEMP TABLE coverage_rules AS
SELECT run_id, epoch, rule, fired, side, precedence
FROM rule_evaluations
ANTI JOIN coverage_waived USING (run_id, rule);

-- One row for each rule that a decision cites. `acts` is what was asked, `took_effect` what was done.
-- A remedy that changed nothing for the rule took no effect; `why_not` is the reason in words.
CREATE OR REPLACE TEMP TABLE coverage_answers AS
SELECT
    d.run_id,
    d.number,
    d.epoch,
    d.source,
    d.direction,
    c.rule,
    d.event_type <> 'rule_triggered_no_action' AS acts,
    i.number IS NOT NULL AS ineffective,
    i.why AS why_not,
    coalesce(r.outcome IN ('applied', 'restart'), false) AND i.number IS NULL AS took_effect,
    coalesce(r.outcome = 'applied', false) AS applied,
    coalesce(r.outcome = 'restart', false) AS restarts,
    coalesce(r.outcome = 'refused', false) AS refused
FROM decisions d
JOIN citations c USING (run_id, number)
LEFT JOIN remedies r ON r.run_id = d.run_id AND r.decision = d.number
LEFT JOIN coverage_ineffective i
    ON i.run_id = d.run_id AND i.number = d.number AND i.rule = c.rule
ANTI JOIN coverage_waived w ON w.run_id = d.run_id AND w.rule = c.rule;

-- For each rule, the epochs in which a firing lies in the action window, its own epoch included.
CREATE OR REPLACE TEMP TABLE coverage_recent AS
SELECT DISTINCT f.run_id, f.rule, f.epoch + unnest(range(least(l.action_window, l.last_epoch) + 1)) AS epoch
FROM rule_evaluations f
JOIN coverage_limits l USING (run_id)
WHERE f.fired;

-- What answers near an epoch cite a rule: within the action window, before it or after it.
CREATE OR REPLACE TEMP TABLE coverage_near AS
WITH near AS (
    SELECT
        a.run_id,
        a.rule,
        a.epoch + unnest(range(-least(l.action_window, l.last_epoch), least(l.action_window, l.last_epoch) + 1)) AS epoch,
        a.source <> 'driver' AS decided,
        a.acts
    FROM coverage_answers a
    JOIN coverage_limits l USING (run_id)
)
SELECT run_id, rule, epoch, bool_or(decided) AS decided, bool_or(acts) AS acts
FROM near
GROUP BY ALL;

-- Remedies that took effect, in each epoch from their own on for as long as anything asks: `age` is
-- the number of epochs since.
CREATE OR REPLACE TEMP TABLE coverage_echoes AS
WITH ages AS (
    SELECT
        a.run_id,
        a.rule,
        a.epoch AS began,
        unnest(range(least(greatest(l.persistence, l.deferral_limit), l.last_epoch) + 1)) AS age
    FROM coverage_answers a
    JOIN coverage_limits l USING (run_id)
    WHERE a.took_effect
)
SELECT run_id, rule, began + age AS epoch, age
FROM ages;

-- Decisions that cite a rule which did not fire, waived ones too: the harness refuses their remedies,
-- and that is nobody's doing but the author's.
CREATE OR REPLACE TEMP TABLE coverage_unfounded AS
SELECT DISTINCT d.run_id, d.number
FROM decisions d
JOIN citations c USING (run_id, number)
ANTI JOIN coverage_recent f ON f.run_id = d.run_id AND f.rule = c.rule AND f.epoch = d.epoch;

-- Remedies that cite a rule which fired, were carried out, and had something to change: behind the
-- last epoch nothing has, unless the training ended because of them.
CREATE OR REPLACE TEMP TABLE coverage_effects AS
SELECT a.run_id, a.number, a.rule
FROM coverage_answers a
JOIN coverage_limits l USING (run_id)
WHERE a.took_effect
    AND (a.epoch < l.last_epoch OR a.restarts OR l.reason = 'stopped')
    AND EXISTS (
        FROM coverage_recent f
        WHERE f.run_id = a.run_id AND f.rule = a.rule AND f.epoch = a.epoch
    );

-- The epochs behind which the model changed or got fresh weights.
CREATE OR REPLACE TEMP TABLE coverage_changes AS
WITH applied AS (
    SELECT
        d.run_id,
        d.number,
        d.epoch,
        r.epoch AS behind,
        d.event_type = 'architecture_change' AS rebuilds,
        CASE d.direction WHEN 'swap_activation' THEN d.params ->> '$.to' END AS swaps_to,
        coalesce(TRY_CAST(d.params ->> '$.reinitialise' AS BOOLEAN), false) AS freshens
    FROM remedies r
    JOIN decisions d ON d.run_id = r.run_id AND d.number = r.decision
    WHERE r.outcome = 'applied'
),
swaps AS (
    SELECT run_id, swaps_to, min(number) AS first
    FROM applied
    GROUP BY ALL
),
bursts AS (
    SELECT DISTINCT c.run_id, c.number, v.epoch
    FROM citations c
    JOIN coverage_rules v ON v.run_id = c.run_id AND v.rule = c.rule AND v.side IN ('high', 'not_finite')
)
SELECT DISTINCT a.run_id, a.behind AS epoch
FROM applied a
ANTI JOIN coverage_ineffective i ON i.run_id = a.run_id AND i.number = a.number
LEFT JOIN swaps s ON s.run_id = a.run_id AND s.swaps_to = a.swaps_to
LEFT JOIN bursts b ON b.run_id = a.run_id AND b.number = a.number AND b.epoch = a.epoch
WHERE CASE
    WHEN a.rebuilds THEN coalesce(s.first >= a.number, true)  -- a swap back is no change
    ELSE a.freshens AND b.run_id IS NOT NULL
END;

-- Firings that may be deferred without a violation (docs/reference/audit.md, "Violations"):
--   R1 while R7 fires, or where a model only guesses: nothing says which way its rate has to move;
--   R4 while R1's update ratio is outside of its band, or soon after a remedy of R1;
--   a plateau soon after the model changed or got fresh weights;
--   R7 for a loss that is not finite, of a model that is not ours, while all that was measured of
--   gradients and weights is;
--   R7 on its high side soon after its remedy, while the bound on the gradient is in effect;
--   a rule whose remedies are at their limit, or all applied already (R6).
CREATE OR REPLACE TEMP TABLE coverage_excused AS
WITH recorded AS (
    SELECT run_id, -1 AS behind, -1 AS idx, spec FROM run_starts
    UNION ALL
    SELECT run_id, epoch, idx, spec FROM remedies WHERE outcome = 'applied' AND spec IS NOT NULL
),
specs AS MATERIALIZED (
    SELECT
        run_id,
        behind,
        idx,
        {
            'largest': coalesce(
                json_array_length(spec, '$.blocks') >= b.most_blocks
                AND 2 * list_max(TRY_CAST(spec ->> '$.blocks[*].width' AS INTEGER[])) > b.most_width,
                false
            ),
            -- A watched model offers no other remedy of R6 than the swap.
            'watched': coalesce(json_type(spec, '$.offers') = 'ARRAY', false),
            'complete': coalesce(json_type(spec, '$.offers') = 'ARRAY', false) OR coalesce(
                spec ->> '$.norm' <> 'none'
                AND NOT list_contains(spec ->> '$.blocks[*].norm', 'none')
                AND NOT list_contains(spec ->> '$.blocks[*].residual', 'false'),
                false
            )
        } AS model
    FROM recorded
    CROSS JOIN coverage_bounds b
),
latest AS (
    SELECT run_id, behind, arg_max(model, idx) AS model
    FROM specs
    GROUP BY ALL
),
in_force AS (
    SELECT f.run_id, f.epoch, f.rule, f.side, p.model
    FROM (FROM rule_evaluations WHERE fired) f
    ASOF JOIN latest p ON p.run_id = f.run_id AND p.behind < f.epoch
),
swaps AS (
    SELECT run_id, min(epoch) AS first
    FROM coverage_answers
    WHERE rule = 'R6' AND direction = 'swap_activation' AND took_effect
    GROUP BY run_id
),
measured AS (
    SELECT
        run_id,
        epoch,
        bool_or(rule = 'R7' AND fired) AS explodes,
        bool_or(rule = 'R1' AND side IN ('high', 'low')) AS off_band
    FROM coverage_rules
    GROUP BY ALL
),
lately AS (
    SELECT
        o.run_id,
        o.epoch,
        bool_or(o.rule = 'R1' AND o.age <= l.persistence) AS moved,
        bool_or(o.rule = 'R7' AND o.age < l.deferral_limit) AS bounded
    FROM coverage_echoes o
    JOIN coverage_limits l USING (run_id)
    WHERE o.age >= 1
    GROUP BY ALL
)
SELECT DISTINCT s.run_id, s.epoch, s.rule
FROM in_force s
LEFT JOIN epochs e USING (run_id, epoch)
JOIN coverage_limits l USING (run_id)
LEFT JOIN coverage_peaks p USING (run_id, epoch)
LEFT JOIN coverage_factors f USING (rule)
LEFT JOIN measured m USING (run_id, epoch)
LEFT JOIN lately y USING (run_id, epoch)
LEFT JOIN swaps w ON w.run_id = s.run_id
ASOF LEFT JOIN coverage_changes c ON c.run_id = s.run_id AND c.epoch <= s.epoch
CROSS JOIN coverage_bounds b
WHERE (s.rule = 'R1' AND (m.explodes OR s.side = 'guessing'))
OR (s.rule = 'R4' AND (m.off_band OR y.moved))
OR (s.side = 'plateau' AND coalesce(
    c.epoch >= s.epoch - CASE s.rule WHEN 'R1' THEN l.r1_patience ELSE l.r3_patience END, false
))
OR (s.rule = 'R7' AND s.side = 'not_finite' AND s.model.watched AND e.gradients_finite
    AND NOT isnan(coalesce(e.epoch_update_ratio, 0)))
OR (s.rule = 'R7' AND s.side = 'high' AND e.clip_norm < e.max_layer_grad_norm AND y.bounded)
OR CASE s.rule
    WHEN 'R1' THEN
        CASE s.side WHEN 'low' THEN coalesce(p.lr, e.lr) * f.least > b.most_lr ELSE e.lr / f.least < b.least_lr END
    WHEN 'R2' THEN
        CASE s.side WHEN 'high' THEN e.batch_size % 2 = 1
        ELSE f.least * e.batch_size * e.accumulation > l.train_examples
            OR s.model.watched AND f.least * e.batch_size > l.max_batch_size
        END
    WHEN 'R4' THEN s.model.largest
    WHEN 'R6' THEN
        s.model.complete
        AND coalesce(w.first < s.epoch, false)
    WHEN 'R7' THEN e.lr / f.least < b.least_lr
    ELSE false
END;

-- The obligations: each firing of a rule, and whether a decision near it answers. A firing in the
-- last epoch obliges too, since its policy is asked; but whatever is said there costs nothing, so
-- it does not put the run to the test. Neither does what the driver says where nobody decided. A
-- firing is idle if it may be deferred and nobody acted on it. An idle firing with an answer is not
-- an obligation.
CREATE OR REPLACE TEMP TABLE coverage_firings AS
SELECT
    f.run_id,
    f.epoch,
    f.rule,
    f.precedence,
    n.run_id IS NOT NULL AS answered,
    f.epoch < l.last_epoch AND coalesce(n.decided, false) AS tests,
    x.run_id IS NOT NULL AND NOT coalesce(n.acts, false) AS idle
FROM coverage_rules f
JOIN coverage_limits l USING (run_id)
LEFT JOIN coverage_near n ON n.run_id = f.run_id AND n.epoch = f.epoch AND n.rule = f.rule
LEFT JOIN coverage_excused x ON x.run_id = f.run_id AND x.epoch = f.epoch AND x.rule = f.rule
WHERE f.fired;

-- The firings that oblige. Those of a rule at most a deferral's limit apart belong to one episode: a
-- remedy within the playbook's bounds may have to be repeated, and repeating it adds no obligation.
CREATE OR REPLACE TEMP TABLE coverage_obliging AS
WITH obliging AS (
    FROM coverage_firings WHERE NOT (idle AND answered)
)
SELECT
    o.*,
    coalesce(
        lag(o.epoch) OVER (PARTITION BY o.run_id, o.rule ORDER BY o.epoch) < o.epoch - l.deferral_limit - 1,
        true
    ) AS begins
FROM obliging o
JOIN coverage_limits l USING (run_id);

-- A firing that no decision answers. Behind a scheduled restart nothing can be said any more, so
-- rules that rank lower than the one that was acted on are not missing there.
CREATE OR REPLACE TEMP VIEW coverage_missing_decision AS
SELECT
    f.run_id,
    'missing_decision' AS kind,
    f.rule,
    f.epoch,
    CAST(NULL AS INTEGER) AS decision,
    CASE
        WHEN coalesce(l.reason, 'crashed') IN ('crashed', 'failed', 'interrupted')
            AND f.epoch = l.last_epoch
            AND NOT EXISTS (
                FROM decisions d WHERE d.run_id = f.run_id AND d.epoch = f.epoch
            ) THEN 'harness'
        ELSE 'policy'
    END AS emitter,
    f.rule || ' fired in epoch ' || f.epoch || ' and no decision within '
    || l.action_window || ' epochs cites it' AS detail
FROM coverage_firings f
JOIN coverage_limits l USING (run_id)
WHERE NOT f.answered
    AND NOT EXISTS (
        FROM coverage_answers a
        JOIN coverage_rules h
            ON h.run_id = a.run_id AND h.epoch = a.epoch AND h.rule = a.rule AND h.fired
        WHERE a.run_id = f.run_id AND a.epoch = f.epoch
            AND a.restarts AND h.precedence < f.precedence
    );

-- A decision that cites what did not fire.
CREATE OR REPLACE TEMP VIEW coverage_false_citation AS
SELECT
    a.run_id,
    'false_citation' AS kind,
    a.rule,
    a.epoch,
    a.number AS decision,
    a.source AS emitter,
    'decision ' || a.number || ' cites ' || a.rule || ', which did not fire in the '
    || l.action_window || ' epochs up to ' || a.epoch AS detail
FROM coverage_answers a
JOIN coverage_limits l USING (run_id)
ANTI JOIN coverage_recent f ON f.run_id = a.run_id AND f.rule = a.rule AND f.epoch = a.epoch;

-- The last epoch in which a rule had its turn: it fired, may not be left alone, and no other rule's
-- remedy lies in the action window before it. `before_last` is the last but for the run's last epoch.
CREATE OR REPLACE TEMP TABLE coverage_turns AS
SELECT
    t.run_id,
    t.rule,
    max(t.epoch) AS latest,
    max(t.epoch) FILTER (t.epoch < l.last_epoch) AS before_last
FROM coverage_rules t
JOIN coverage_limits l USING (run_id)
ANTI JOIN coverage_excused y ON y.run_id = t.run_id AND y.epoch = t.epoch AND y.rule = t.rule
WHERE t.fired
    AND NOT EXISTS (
        FROM coverage_answers o
        WHERE o.run_id = t.run_id AND o.rule <> t.rule AND o.took_effect
            AND o.epoch BETWEEN t.epoch - l.action_window AND t.epoch
    )
    AND NOT EXISTS (
        FROM coverage_answers lag
        WHERE l.lags AND lag.run_id = t.run_id AND lag.rule = t.rule AND lag.took_effect
            AND lag.epoch BETWEEN t.epoch - l.deferral_limit AND t.epoch - 1
    )
GROUP BY t.run_id, t.rule;

-- A deferral with no later remedy, or a remedy that was refused or changed nothing: it answers
-- nothing. (A refusal without a reason has failed the audit before this.) It clears when the rule
-- falls silent, when a remedy for it takes effect, or when the training is stopped or restarted, all
-- of it within the limit. A rule is not silent where only a remedy that changed nothing silenced it.
-- A rule with nothing left to do, in that epoch or in all epochs up to the limit, is deferred for
-- good reason. Where the run ends before the limit, or
-- the rule is acted on in the last epoch, it is held against the policy only if the rule fired in an
-- epoch between with no other rule's remedy in the action window before it, and still was not acted
-- on. Where a moving average goes on through a remedy, a rule that was remedied within the limit may
-- still fire because its average lags, and need not be remedied again so soon.
CREATE OR REPLACE TEMP VIEW coverage_unresolved_deferral AS
WITH silent AS (
    FROM coverage_rules s
    ANTI JOIN coverage_false_silence w USING (run_id, epoch, rule)
    WHERE NOT s.fired
),
remedied AS (
    FROM coverage_answers a
    JOIN coverage_limits l USING (run_id)
    WHERE a.took_effect AND a.epoch < l.last_epoch
),
unexcused AS (
    FROM coverage_rules s
    ANTI JOIN coverage_excused y USING (run_id, epoch, rule)
)
SELECT
    d.run_id,
    'unresolved_deferral' AS kind,
    d.rule,
    d.epoch,
    d.number AS decision,
    CASE
        WHEN EXISTS (
            FROM coverage_answers a
            ANTI JOIN coverage_unfounded USING (run_id, number)
            WHERE a.run_id = d.run_id AND a.rule = d.rule AND a.refused
                AND a.epoch BETWEEN d.epoch AND d.epoch + l.deferral_limit
        ) THEN 'harness'
        ELSE d.source
    END AS emitter,
    d.rule
    || CASE
        WHEN d.refused THEN ', whose remedy was refused in'
        WHEN d.ineffective THEN ', not remedied by'
        ELSE ', deferred by'
    END
    || ' decision ' || d.number || ' in epoch ' || d.epoch
    || CASE WHEN d.ineffective THEN ' (' || d.why_not || ')' ELSE '' END
    || ', was still firing and not remedied by epoch '
    || least(l.last_epoch, d.epoch + l.deferral_limit) AS detail
FROM coverage_answers d
JOIN coverage_limits l USING (run_id)
CROSS JOIN LATERAL (
    SELECT EXISTS (
        FROM coverage_answers a
        WHERE a.run_id = d.run_id AND a.rule = d.rule AND a.took_effect
            AND a.epoch = l.last_epoch AND a.epoch <= d.epoch + l.deferral_limit
    ) AS acted_last
)
LEFT JOIN coverage_turns u ON u.run_id = d.run_id AND u.rule = d.rule
ASOF LEFT JOIN silent s ON s.run_id = d.run_id AND s.rule = d.rule AND s.epoch > d.epoch
ASOF LEFT JOIN remedied r ON r.run_id = d.run_id AND r.rule = d.rule AND r.epoch >= d.epoch
ASOF LEFT JOIN unexcused y ON y.run_id = d.run_id AND y.rule = d.rule AND y.epoch > d.epoch
ANTI JOIN coverage_excused x ON x.run_id = d.run_id AND x.epoch = d.epoch AND x.rule = d.rule
WHERE (d.refused OR d.ineffective OR NOT d.acts)
    AND NOT coalesce(s.epoch <= d.epoch + l.deferral_limit, false)
    AND NOT coalesce(r.epoch <= d.epoch + l.deferral_limit, false)
    AND NOT (
        coalesce(l.reason, '') IN ('restart', 'stopped')
        AND l.last_epoch <= d.epoch + l.deferral_limit
    )
    AND (
        (l.last_epoch >= d.epoch + l.deferral_limit AND NOT acted_last
            AND coalesce(y.epoch <= d.epoch + l.deferral_limit, false))
        OR d.epoch < CASE WHEN acted_last THEN u.before_last ELSE u.latest END
    );

-- A remedy for one rule while a rule that goes first was left alone. Here too a moving average that
-- goes on through a remedy may lag behind it, within the limit.
CREATE OR REPLACE TEMP VIEW coverage_precedence AS
WITH acting AS (
    SELECT a.run_id, a.number, a.epoch, a.source, min(r.precedence) AS precedence
    FROM coverage_answers a
    JOIN coverage_rules r USING (run_id, epoch, rule)
    WHERE a.acts
    GROUP BY ALL
)
SELECT
    a.run_id,
    'precedence' AS kind,
    arg_min(h.rule, h.precedence) AS rule,
    a.epoch,
    a.number AS decision,
    a.source AS emitter,
    'decision ' || a.number || ' acts in epoch ' || a.epoch || ' although '
    || arg_min(h.rule, h.precedence) || ', which has precedence, fired and was not acted on' AS detail
FROM acting a
JOIN coverage_limits l USING (run_id)
JOIN coverage_rules h
    ON h.run_id = a.run_id AND h.epoch = a.epoch AND h.fired AND h.precedence < a.precedence
ANTI JOIN coverage_excused x ON x.run_id = h.run_id AND x.epoch = h.epoch AND x.rule = h.rule
WHERE NOT EXISTS (
    FROM coverage_answers o
    WHERE o.run_id = a.run_id AND o.rule = h.rule
        AND (
            (o.acts AND NOT o.ineffective AND o.epoch = a.epoch)
            OR (l.lags AND o.took_effect AND o.epoch BETWEEN a.epoch - l.deferral_limit AND a.epoch - 1)
        )
)
GROUP BY a.run_id, a.number, a.epoch, a.source;

-- The playbook's caveats: the learning rate is left alone for R1 while gradients are unstable, and
-- the batch size waits an epoch behind a change of the learning rate.
CREATE OR REPLACE TEMP VIEW coverage_caveat AS
SELECT
    a.run_id,
    'caveat' AS kind,
    a.rule,
    a.epoch,
    a.number AS decision,
    a.source AS emitter,
    'decision ' || a.number || ' changes the learning rate for R1 in epoch ' || a.epoch
    || ' while gradients explode or vanish (R7, R6)' AS detail
FROM coverage_answers a
WHERE a.rule = 'R1'
    AND a.direction IN (FROM coverage_rates)
    AND EXISTS (
        FROM coverage_rules s
        ANTI JOIN coverage_excused x
            ON x.run_id = s.run_id AND x.epoch = s.epoch AND x.rule = s.rule AND x.rule = 'R6'
        WHERE s.run_id = a.run_id AND s.epoch = a.epoch AND s.rule IN ('R6', 'R7') AND s.fired
            AND NOT EXISTS (
                FROM coverage_answers own
                WHERE own.run_id = a.run_id AND own.number = a.number AND own.rule = s.rule
            )
    )
UNION ALL
SELECT
    a.run_id,
    'caveat' AS kind,
    a.rule,
    a.epoch,
    a.number AS decision,
    a.source AS emitter,
    'decision ' || a.number || ' acts on R2 in epoch ' || a.epoch
    || ', too soon after a remedy for R1' AS detail
FROM coverage_answers a
WHERE a.rule = 'R2' AND a.acts
    AND EXISTS (
        FROM coverage_answers o
        WHERE o.run_id = a.run_id AND o.rule = 'R1' AND o.applied AND o.number <> a.number
            AND o.epoch BETWEEN a.epoch - 1 AND a.epoch
    );

CREATE OR REPLACE TEMP VIEW coverage_violations AS
FROM coverage_missing_decision
UNION ALL FROM coverage_false_citation
UNION ALL FROM coverage_unresolved_deferral
UNION ALL FROM coverage_precedence
UNION ALL FROM coverage_caveat;
