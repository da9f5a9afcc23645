-- Views on searches along a chain of checkpoints: what their verdicts say, and what came of them. As
-- of an earlier index these views say what the probes up to it had told.

CREATE VIEW bisection_suspects AS
SELECT bisection_id, 0 AS number, good AS checkpoint_id FROM bisections
UNION ALL
SELECT
    bisection_id,
    UNNEST(RANGE(1, LEN(TRY_CAST(suspects AS VARCHAR[])) + 1)) AS number,  -- From 1 in the order of the chain; 0: the good one before it
    UNNEST(TRY_CAST(suspects AS VARCHAR[])) AS checkpoint_id
FROM bisections;
COMMENT ON VIEW bisection_suspects IS 'The chain of checkpoints that each search covers';

CREATE VIEW bisection_hypotheses AS
WITH verdicts AS (
    SELECT p.bisection_id, s.number, p.verdict
    FROM bisection_probes AS p
    JOIN bisection_suspects AS s USING (bisection_id, checkpoint_id)
    WHERE p.verdict <> 'skip'
)

SELECT
    h.bisection_id,
    h.number,  -- In the chain; 0: it is the good one, or lies before it
    h.checkpoint_id,  -- The first bad checkpoint; NULL: none is bad
    b.error > 0 AND b.error < 0.5 AND b.rules <> 1 AS estimates,  -- The search estimates its error rates (rules 2 and 3)
    COUNT(*) FILTER (v.number IS NOT NULL AND (v.verdict = 'bad') <> (v.number >= h.number)) AS against  -- Verdicts that contradict it
FROM (
    SELECT bisection_id, number, checkpoint_id FROM bisection_suspects
    UNION ALL
    SELECT bisection_id, LEN(TRY_CAST(suspects AS VARCHAR[])) + 1, NULL FROM bisections
) AS h
JOIN bisections AS b USING (bisection_id)
LEFT JOIN verdicts AS v USING (bisection_id)
WHERE NOT b.ends_believed OR (h.number > 0 AND h.checkpoint_id IS NOT NULL)
GROUP BY h.bisection_id, h.number, h.checkpoint_id, b.error, b.rules;
COMMENT ON VIEW bisection_hypotheses IS 'What each search may find, and how many of its verdicts contradict it';

-- Rules 2 and 3: models of how verdicts go wrong, as in judge/bisection/error_models.py. A checkpoint
-- is of one of three kinds, with weights: not sticky, or sticky with a right or a wrong first verdict.
CREATE VIEW bisection_estimates AS
WITH patterns(rules, pattern, sticky, repeats) AS (
    VALUES (2, 0, 0.0, 1.0), (2, 1, 0.25, 1.0), (2, 2, 0.5, 1.0), (2, 3, 1.0, 1.0), (2, 4, 0.5, 0.5),
    (2, 5, 1.0, 0.5), (3, 0, 0.0, 1.0), (3, 1, 0.5, 1.0), (3, 2, 1.0, 1.0), (3, 3, 1.0, 0.5)
),

one_rate AS (
    SELECT UNNEST(CAST([0.005, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45] AS DOUBLE[])) AS rate
),

false_rates AS (
    SELECT UNNEST(CAST([0.001, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4] AS DOUBLE[])) AS false_alarms
),

missed_rates AS (
    SELECT UNNEST(CAST([0.005, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8] AS DOUBLE[])) AS missed
),

rates AS (
    SELECT 2 AS rules, rate AS false_alarms, rate AS missed, 0.0 AS log_prior FROM one_rate
    UNION ALL
    SELECT 3, false_alarms, missed, -LN(COUNT(*) OVER (PARTITION BY false_alarms = 0.001))
    FROM false_rates, missed_rates
    WHERE false_alarms + missed <= 0.9
),

each_rate AS (
    SELECT rules, false_alarms AS rate FROM rates UNION SELECT rules, missed FROM rates
),

kinds AS (
    SELECT rules, pattern, rate, weight, LEAST(GREATEST(wrong, 1e-9), 1 - 1e-9) AS wrong
    FROM (
        SELECT rules, pattern, rate, CAST(1 - sticky AS DOUBLE) AS weight, rate AS wrong
        FROM patterns JOIN each_rate USING (rules)
        UNION ALL
        SELECT rules, pattern, rate, sticky * (1 - rate), (1 - repeats) * rate
        FROM patterns JOIN each_rate USING (rules)
        UNION ALL
        SELECT rules, pattern, rate, sticky * rate, repeats + (1 - repeats) * rate
        FROM patterns JOIN each_rate USING (rules)
    )
    WHERE weight > 0
),

counts AS (
    SELECT
        p.bisection_id,
        s.number,
        COUNT(*) FILTER (p.verdict = 'bad') AS bad,
        COUNT(*) FILTER (p.verdict = 'good') AS good
    FROM bisection_probes AS p
    JOIN bisection_suspects AS s USING (bisection_id, checkpoint_id)
    GROUP BY p.bisection_id, s.number
),

cases AS (
    SELECT bisection_id, number, FALSE AS is_bad, bad AS wrong, good AS right_ones FROM counts
    UNION ALL
    SELECT bisection_id, number, TRUE, good, bad FROM counts
),

terms AS (
    SELECT
        c.bisection_id,
        c.number,
        c.is_bad,
        k.pattern,
        k.rate,
        LN(k.weight) + c.wrong * LN(k.wrong) + c.right_ones * LN(1 - k.wrong) AS term
    FROM cases AS c
    JOIN bisections AS b USING (bisection_id)
    JOIN kinds AS k USING (rules)
),

scaled AS (
    SELECT *, MAX(term) OVER (PARTITION BY bisection_id, number, is_bad, pattern, rate) AS most FROM terms
),

likelihoods AS (
    SELECT bisection_id, number, is_bad, pattern, rate, most + LN(SUM(EXP(term - most))) AS log_likelihood
    FROM scaled
    GROUP BY bisection_id, number, is_bad, pattern, rate, most
),

summed AS (
    SELECT
        h.bisection_id,
        h.number,
        b.rules,
        b.confidence,
        m.pattern,
        COALESCE(SUM(l.log_likelihood), 0) + m.log_prior - CASE
            WHEN b.rules = 2 THEN POW(
                LN(m.missed / (1 - m.missed)) - LN(GREATEST(b.error, 0.02) / (1 - GREATEST(b.error, 0.02))), 2
            ) / 2
            ELSE 0
        END AS log_weight
    FROM bisection_hypotheses AS h
    JOIN bisections AS b USING (bisection_id)
    JOIN (SELECT * FROM patterns JOIN rates USING (rules)) AS m USING (rules)
    LEFT JOIN likelihoods AS l
        ON l.bisection_id = h.bisection_id AND l.pattern = m.pattern
        AND l.is_bad = (l.number >= h.number)
        AND l.rate = CASE WHEN l.is_bad THEN m.missed ELSE m.false_alarms END
    WHERE h.estimates
    GROUP BY
        h.bisection_id, h.number, b.rules, b.confidence, b.error, m.pattern, m.false_alarms, m.missed,
        m.log_prior
),

weighed AS (
    SELECT *, EXP(log_weight - MAX(log_weight) OVER (PARTITION BY bisection_id)) AS weight FROM summed
),

shares AS (
    SELECT bisection_id, number, rules, confidence, pattern, SUM(weight) AS weight
    FROM weighed
    GROUP BY bisection_id, number, rules, confidence, pattern
),

judged AS (
    SELECT
        *,
        SUM(weight) OVER (PARTITION BY bisection_id, pattern) AS evidence,
        SUM(weight) OVER (PARTITION BY bisection_id) AS total
    FROM shares
),

ranked AS (
    SELECT *, MAX(evidence) OVER (PARTITION BY bisection_id) AS best FROM judged
)

SELECT
    bisection_id,
    number,  -- In the chain; 0: it is the good one, or lies before it
    CASE
        WHEN rules = 2 THEN MIN(weight / evidence) FILTER (evidence >= 2 * (1 - confidence) * best)
        ELSE SUM(weight) / total
    END AS probability  -- By all models of errors; rules 2: the least by a pattern of errors that is not refuted
FROM ranked
GROUP BY bisection_id, number, rules, total;
COMMENT ON VIEW bisection_estimates IS 'The probabilities of what searches may find that estimate their error rates (rules 2 and 3)';

-- Rules 1: each verdict is wrong with the same probability, independently, so the probability of a
-- hypothesis follows from how many verdicts contradict it. NULL: certain verdicts contradict.
CREATE VIEW bisection_posterior AS
WITH weighed AS (
    SELECT
        h.*,
        CASE
            WHEN b.error = 0 THEN CAST(h.against = 0 AS DOUBLE)
            ELSE POW(b.error / (1 - b.error), h.against - MIN(h.against) OVER (PARTITION BY h.bisection_id))
        END AS weight
    FROM bisection_hypotheses AS h
    JOIN bisections AS b USING (bisection_id)
)

SELECT
    w.bisection_id,
    w.number,  -- In the chain; 0: it is the good one, or lies before it
    w.checkpoint_id,  -- The checkpoint; NULL: none is bad
    w.against,  -- Verdicts that speak against it
    CASE
        WHEN w.estimates THEN e.probability  -- By all verdicts, rules 2: at least; NULL: sure verdicts contradict each other
        ELSE w.weight / NULLIF(SUM(w.weight) OVER (PARTITION BY w.bisection_id), 0)
    END AS probability
FROM weighed AS w
LEFT JOIN bisection_estimates AS e USING (bisection_id, number);
COMMENT ON VIEW bisection_posterior IS 'The probability of each checkpoint of a search to be the first bad one';

CREATE VIEW bisection_standing AS
WITH probed AS (
    SELECT
        bisection_id,
        COUNT(*) AS probes,
        COUNT(*) FILTER (verdict = 'skip') AS skipped,
        COUNT(*) FILTER ((evidence ->> '$.from') IS NOT NULL) AS known
    FROM bisection_probes
    GROUP BY bisection_id
),

likeliest AS (
    SELECT
        bisection_id,
        FIRST(checkpoint_id ORDER BY probability DESC NULLS LAST, number) AS likeliest,
        MAX(probability) AS probability
    FROM bisection_posterior
    GROUP BY bisection_id
)

SELECT
    b.bisection_id,
    b.idx,  -- Ledger index of its opening
    b.line_id,
    LEN(TRY_CAST(b.suspects AS VARCHAR[])) AS suspects,  -- Number of checkpoints that it began with
    b.error,  -- Given share of wrong verdicts
    COALESCE(p.probes, 0) AS probes,  -- Probes so far
    COALESCE(p.known, 0) AS known,  -- Of these, known from another search with the same oracle
    COALESCE(p.skipped, 0) AS skipped,  -- Of these, checkpoints that cannot be tested
    l.likeliest,  -- The checkpoint that is most probably the first bad one; NULL: none is bad
    l.probability,  -- With which it is; rules 2: at least
    e.idx IS NOT NULL AS ended,  -- There is nothing more to ask
    e.culprit,  -- What was found; NULL: nothing, or not yet
    TRY_CAST(e.candidates AS VARCHAR[]) AS candidates,  -- Checkpoints among which the culprit is, at the end
    (
        SELECT LIST(c.proposal_id ORDER BY c.proposal_id)
        FROM checkpoint_proposals AS c WHERE c.checkpoint_id = e.culprit
    ) AS proposals,  -- Which the culprit came with
    EXISTS(SELECT 1 FROM checkpoint_rollbacks AS r WHERE r.checkpoint_id = e.culprit) AS rolled_back,  -- The culprit was rolled back by name
    e.reason  -- Explanation
FROM bisections AS b
JOIN likeliest AS l USING (bisection_id)
LEFT JOIN probed AS p USING (bisection_id)
LEFT JOIN bisection_ends AS e USING (bisection_id);
COMMENT ON VIEW bisection_standing IS 'Each search for the checkpoint that made a line worse, and its progress';

CREATE VIEW salvages AS
SELECT
    proposal_id,  -- The new proposal
    idx,  -- Ledger index of its submission
    (told ->> '$.culprit') AS culprit,  -- Checkpoint that it went back with
    (told ->> '$.checkpoint') AS checkpoint_id,  -- Checkpoint that the change had made
    (told ->> '$.proposal') AS original  -- The proposal of before
FROM (
    SELECT proposal_id, idx, UNNEST(TRY_CAST(evidence AS JSON[])) AS told
    FROM infra_submissions
    WHERE proposer = 'salvage' AND JSON_TYPE(evidence) = 'ARRAY'
)
WHERE (told ->> '$.kind') = 'salvage';
COMMENT ON VIEW salvages IS 'Changes that were rolled back with a culprit, and proposed again without it';
