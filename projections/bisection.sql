-- Views on searches along a chain of checkpoints: what their verdicts say, and what came of them. As
-- of an earlier index these views say what the probes up to it had told.

CREATE VIEW bisection_suspects AS
SELECT bisection_id, 0 AS number, good AS checkpoint_id FROM bisections
UNION ALL
SELECT
    bisection_id,
    UNNEST(RANGE(1, LEN(TRY_CAST(suspects AS VARCHAR[])) + 1)) AS number,
    UNNEST(TRY_CAST(suspects AS VARCHAR[])) AS checkpoint_id
FROM bisections;
COMMENT ON VIEW bisection_suspects IS 'The chain of checkpoints that each search covers';
COMMENT ON COLUMN bisection_suspects.bisection_id IS 'The search';
COMMENT ON COLUMN bisection_suspects.number IS 'From 1 in the order of the chain; 0: the good one before it';
COMMENT ON COLUMN bisection_suspects.checkpoint_id IS 'The checkpoint';

-- Each verdict is wrong with the same probability, by itself: what is left of a hypothesis follows
-- from how many verdicts speak against it. Where a probability is NULL sure verdicts contradict.
CREATE VIEW bisection_posterior AS
WITH hypotheses AS (
    SELECT bisection_id, number, checkpoint_id FROM bisection_suspects
    UNION ALL
    SELECT bisection_id, LEN(TRY_CAST(suspects AS VARCHAR[])) + 1, NULL FROM bisections
),

verdicts AS (
    SELECT p.bisection_id, s.number, p.verdict
    FROM bisection_probes AS p
    JOIN bisection_suspects AS s USING (bisection_id, checkpoint_id)
    WHERE p.verdict <> 'skip'
),

counted AS (
    SELECT
        h.bisection_id,
        h.number,
        h.checkpoint_id,
        b.error,
        COUNT(*) FILTER (v.number IS NOT NULL AND (v.verdict = 'bad') <> (v.number >= h.number)) AS against
    FROM hypotheses AS h
    JOIN bisections AS b USING (bisection_id)
    LEFT JOIN verdicts AS v USING (bisection_id)
    WHERE NOT b.ends_believed OR (h.number > 0 AND h.checkpoint_id IS NOT NULL)
    GROUP BY h.bisection_id, h.number, h.checkpoint_id, b.error
),

weighed AS (
    SELECT
        *,
        CASE
            WHEN error = 0 THEN CAST(against = 0 AS DOUBLE)
            ELSE POW(error / (1 - error), against - MIN(against) OVER (PARTITION BY bisection_id))
        END AS weight
    FROM counted
)

SELECT
    bisection_id,
    number,
    checkpoint_id,
    against,
    weight / NULLIF(SUM(weight) OVER (PARTITION BY bisection_id), 0) AS probability
FROM weighed;
COMMENT ON VIEW bisection_posterior IS 'The probability of each checkpoint of a search to be the first bad one';
COMMENT ON COLUMN bisection_posterior.bisection_id IS 'The search';
COMMENT ON COLUMN bisection_posterior.number IS 'In the chain; 0: it is the good one, or lies before it';
COMMENT ON COLUMN bisection_posterior.checkpoint_id IS 'The checkpoint; NULL: none is bad';
COMMENT ON COLUMN bisection_posterior.against IS 'Verdicts that speak against it';
COMMENT ON COLUMN bisection_posterior.probability IS 'By all verdicts; NULL: sure verdicts contradict each other';

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
    b.idx,
    b.line_id,
    LEN(TRY_CAST(b.suspects AS VARCHAR[])) AS suspects,
    b.error,
    COALESCE(p.probes, 0) AS probes,
    COALESCE(p.known, 0) AS known,
    COALESCE(p.skipped, 0) AS skipped,
    l.likeliest,
    l.probability,
    e.idx IS NOT NULL AS ended,
    e.culprit,
    TRY_CAST(e.candidates AS VARCHAR[]) AS candidates,
    (
        SELECT LIST(c.proposal_id ORDER BY c.proposal_id)
        FROM checkpoint_proposals AS c WHERE c.checkpoint_id = e.culprit
    ) AS proposals,
    EXISTS(SELECT 1 FROM checkpoint_rollbacks AS r WHERE r.checkpoint_id = e.culprit) AS rolled_back,
    e.reason
FROM bisections AS b
JOIN likeliest AS l USING (bisection_id)
LEFT JOIN probed AS p USING (bisection_id)
LEFT JOIN bisection_ends AS e USING (bisection_id);
COMMENT ON VIEW bisection_standing IS 'Each search for the checkpoint that made a line worse, and its progress';
COMMENT ON COLUMN bisection_standing.bisection_id IS 'The search';
COMMENT ON COLUMN bisection_standing.idx IS 'Ledger index of its opening';
COMMENT ON COLUMN bisection_standing.line_id IS 'The line';
COMMENT ON COLUMN bisection_standing.suspects IS 'Number of checkpoints that it began with';
COMMENT ON COLUMN bisection_standing.error IS 'Assumed share of wrong verdicts';
COMMENT ON COLUMN bisection_standing.probes IS 'Probes so far';
COMMENT ON COLUMN bisection_standing.known IS 'Of these, known from another search with the same oracle';
COMMENT ON COLUMN bisection_standing.skipped IS 'Of these, checkpoints that cannot be tested';
COMMENT ON COLUMN bisection_standing.likeliest IS 'The checkpoint that is most probably the first bad one; NULL: none is bad';
COMMENT ON COLUMN bisection_standing.probability IS 'With which it is';
COMMENT ON COLUMN bisection_standing.ended IS 'There is nothing more to ask';
COMMENT ON COLUMN bisection_standing.culprit IS 'What was found; NULL: nothing, or not yet';
COMMENT ON COLUMN bisection_standing.candidates IS 'Checkpoints that cannot be told apart, at the end';
COMMENT ON COLUMN bisection_standing.proposals IS 'Which the culprit came with';
COMMENT ON COLUMN bisection_standing.rolled_back IS 'The culprit was rolled back by name';
COMMENT ON COLUMN bisection_standing.reason IS 'Explanation';

CREATE VIEW salvages AS
SELECT
    proposal_id,
    idx,
    (told ->> '$.culprit') AS culprit,
    (told ->> '$.checkpoint') AS checkpoint_id,
    (told ->> '$.proposal') AS original
FROM (
    SELECT proposal_id, idx, UNNEST(CAST(evidence AS JSON[])) AS told
    FROM infra_submissions
    WHERE proposer = 'salvage' AND JSON_TYPE(evidence) = 'ARRAY'
)
WHERE (told ->> '$.kind') = 'salvage';
COMMENT ON VIEW salvages IS 'Changes that were rolled back with a culprit, and proposed again without it';
COMMENT ON COLUMN salvages.proposal_id IS 'The new proposal';
COMMENT ON COLUMN salvages.idx IS 'Ledger index of its submission';
COMMENT ON COLUMN salvages.culprit IS 'Checkpoint that it went back with';
COMMENT ON COLUMN salvages.checkpoint_id IS 'Checkpoint that the change had made';
COMMENT ON COLUMN salvages.original IS 'The proposal of before';
