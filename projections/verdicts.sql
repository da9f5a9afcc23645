-- What each audit checked, and which audit counts for its run. Nothing of this is stored, so as of an
-- earlier index these views show the verdict that counted then.

CREATE VIEW revoked_keys AS
SELECT
    idx,  -- Ledger index of the revocation
    (body ->> '$.role') AS role,  -- Role of the key
    TRY(SHA256(ARRAY_SLICE(
        FROM_BASE64(REGEXP_EXTRACT(body ->> '$.vkey', '^[^+]+[+][0-9a-f]{8}[+](.*)$', 1)), 2, 92
    ))) AS key_id,  -- SHA-256 of the raw public key, hexadecimal, as in signed_by
    MAKE_TIMESTAMP(TRY_CAST(body ->> '$.since' AS BIGINT) // 1000) AS since,  -- UTC; signatures from this time on do not count
    COALESCE(
        MIN(idx) FILTER (name = 'key.granted') OVER (
            PARTITION BY body ->> '$.role', body ->> '$.vkey'
            ORDER BY idx ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING
        ),
        9223372036854775807
    ) AS until_idx  -- Ledger index of the entry that granted the key again, after which signatures count; the largest number if none did
FROM authority_events
WHERE name IN ('key.granted', 'key.revoked')
QUALIFY name = 'key.revoked';
COMMENT ON VIEW revoked_keys IS 'Keys that are not trusted from a given time on, which may be before their revocation';

-- An audit counts if it has all steps and judged the complete run, as it is. Its start names the state
-- of the run that was judged: the hash of the run's last entry, which covers all entries before it,
-- the version of that entry and of the transcript. So an audit that is repeated over other entries
-- does not count, and neither does one of a run that went on. An older start names no state; then
-- only the size in its tree head says what was judged. A run that goes on after its end fails step 5,
-- so for one whose last entry is not its end the hash, which the tables lack, is asked for only where
-- the audit did not fail. Audits after the first grant of a
-- judge's key count only if such a key signed the whole audit: the start, which names the run, the steps and
-- the scores. A signature covers one event, so signed scores could otherwise be put after another
-- start. An audit judged the run that its first event names, as of the tree head in that event: events
-- added later to the run or to its transcript were not judged. Events added to an audit after its
-- scores are ignored.
CREATE VIEW audit_strengths AS
WITH begun AS (
    SELECT
        *,
        LEAST(idx, TRY_CAST(SPLIT_PART(tree_head, CHR(10), 2) AS BIGINT)) AS seen,
        judged IS NOT NULL AS bound,
        TRY_CAST(judged ->> '$.version' AS BIGINT) AS version,
        TRY_CAST(judged ->> '$.transcript' AS BIGINT) AS transcript,
        (judged ->> '$.entry') AS entry
    FROM audit_starts
),

-- Scores that no judge signed: the key is revoked, or a step has another or none. No subquery is
-- correlated: DuckDB takes longer to plan one than to answer it.
unsigned AS (
    SELECT e.idx FROM audit_scores AS e
    JOIN events AS t ON t.idx = e.idx
    JOIN revoked_keys AS k
        ON k.key_id = e.signed_by AND t.time >= k.since AND e.idx <= k.until_idx
    UNION ALL
    SELECT e.idx FROM audit_scores AS e
    JOIN audit_steps AS p
        ON p.audit_id = e.audit_id AND p.idx < e.idx AND p.signed_by IS DISTINCT FROM e.signed_by
),

scored AS (
    SELECT
        e.*,
        e.signed_by IS NOT NULL AND COALESCE(b.signed_by = e.signed_by, FALSE)
        AND e.idx NOT IN (FROM unsigned) AS signed
    FROM audit_scores AS e
    LEFT JOIN begun AS b ON b.audit_id = e.audit_id
    QUALIFY ROW_NUMBER() OVER (PARTITION BY e.audit_id ORDER BY signed DESC, e.idx) = 1
),

streams AS (
    SELECT run_id AS stream_id, run_id, TRUE AS own FROM run_starts
    UNION
    SELECT transcript_id, run_id, FALSE FROM transcripts
),

last AS (
    SELECT
        s.run_id,
        MAX(e.idx) AS idx,
        MAX(e.version) FILTER (s.own) AS version,
        COALESCE(MAX(e.version) FILTER (NOT s.own), 0) AS transcript,
        MAX(e.idx) FILTER (s.own) AS last_idx
    FROM events AS e
    JOIN streams AS s USING (stream_id)
    GROUP BY s.run_id
),

-- Of each run, the hash of its last entry; NULL if that is not its end.
state AS (
    SELECT l.*, x.entry
    FROM last AS l
    LEFT JOIN run_ends AS x ON x.run_id = l.run_id AND x.idx = l.last_idx
),

granted AS (
    SELECT MIN(idx) AS idx FROM authority_events
    WHERE name = 'key.granted' AND (body ->> '$.role') = 'judge'
),

steps AS (
    SELECT
        s.audit_id,
        COUNT(*) = 11 AND COUNT(DISTINCT s.step) = 11 AS whole,
        COUNT(DISTINCT s.step) FILTER (s.step <= 7) = 7
        AND BOOL_AND(s.status = 'passed') FILTER (s.step <= 7) AS passed,
        BOOL_OR((s.evidence ->> '$.other_files') = 'true')
            FILTER (s.step = 1 AND s.status = 'failed') AS other_files,
        MAX(TRY_CAST(s.evidence ->> '$.retrains' AS DOUBLE)) FILTER (s.step = 5) AS asked,
        MAX(TRY_CAST(s.evidence ->> '$.epochs' AS DOUBLE)) FILTER (s.step = 5) AS epochs,
        MAX(
            CASE
                WHEN (s.evidence ->> '$.executed.done') = 'true'
                    THEN TRY_CAST(s.evidence ->> '$.executed.epochs' AS DOUBLE)
            END
        ) FILTER (s.step = 7) AS retrained
    FROM audit_steps AS s
    JOIN scored AS e ON e.audit_id = s.audit_id AND s.idx < e.idx
    GROUP BY s.audit_id
),

found AS (
    SELECT
        s.run_id,
        s.audit_id,
        e.idx,
        e.hard_fail,
        COALESCE(g.passed, FALSE) AS passed,
        COALESCE(g.other_files, FALSE) AS other_files,
        COALESCE(JSON_ARRAY_LENGTH(s.config, '$.disabled') = 0, FALSE) AS all_checks,
        COALESCE(g.asked, TRY_CAST(s.config ->> '$.retrains' AS DOUBLE)) AS asked,
        CASE WHEN g.retrained <= g.epochs THEN g.retrained / g.epochs END AS retrained,
        LEAST(COALESCE(TRY_CAST(s.config ->> '$.revision' AS BIGINT), 1), {{revision}})
            AS revision,
        e.process_axis_exercised AS exercised,
        e.signed,
        (e.signed OR n.idx IS NULL) AND COALESCE(g.whole, FALSE) AS valid,
        s.bound,
        COALESCE(l.idx < s.seen, TRUE)
        AND (
            NOT s.bound
            OR (
                COALESCE(l.version = s.version, FALSE)
                AND COALESCE(l.transcript = s.transcript, FALSE)
                AND COALESCE(l.entry = s.entry, l.entry IS NULL AND e.hard_fail)
            )
        ) AS complete
    FROM begun AS s
    JOIN scored AS e USING (audit_id)
    LEFT JOIN steps AS g USING (audit_id)
    LEFT JOIN granted AS n ON n.idx < e.idx
    LEFT JOIN state AS l ON l.run_id = s.run_id
),

told AS (
    SELECT
        run_id,
        audit_id,
        idx,
        hard_fail,
        NOT hard_fail AND passed AND all_checks AS held,
        exercised,
        signed,
        other_files,
        all_checks,
        COALESCE(retrained, 0.0) AS retrained,
        CASE WHEN passed THEN COALESCE(retrained, 0.0) ELSE COALESCE(retrained, asked, 1.0) END
            AS reach,
        revision,
        valid,
        bound,
        complete
    FROM found
)

SELECT
    *,
    valid AND complete AND ROW_NUMBER() OVER (
        PARTITION BY run_id, valid AND complete
        ORDER BY
            signed DESC, other_files, all_checks DESC, reach DESC, revision DESC, idx DESC
    ) = 1 AS counting  -- Whether it is the audit that counts for its run, see counting_audits
FROM told;
COMMENT ON VIEW audit_strengths IS 'What each finished audit checked; this decides which audit counts';
COMMENT ON COLUMN audit_strengths.idx IS 'Ledger index of its scores';
COMMENT ON COLUMN audit_strengths.hard_fail IS 'A gate failed';
COMMENT ON COLUMN audit_strengths.held IS 'Whether all seven gates passed, with every check in force';
COMMENT ON COLUMN audit_strengths.exercised IS 'Whether enough rules fired and were answered for the process score to mean something';
COMMENT ON COLUMN audit_strengths.signed IS 'Whether a judge signed all of it with a key that is not revoked for that time';
COMMENT ON COLUMN audit_strengths.other_files IS 'Whether it failed because it was given other files than the run submitted; such an audit says nothing about the run';
COMMENT ON COLUMN audit_strengths.all_checks IS 'Whether no check was switched off';
COMMENT ON COLUMN audit_strengths.retrained IS 'Share of the epochs that the judge retrained, from 0 to 1';
COMMENT ON COLUMN audit_strengths.reach IS 'As retrained, but for a hard fail before the retraining the share that the judge was going to retrain; the audit with the largest share counts';
COMMENT ON COLUMN audit_strengths.revision IS 'Revision of the judge''s checks; audits that recorded none have 1';
COMMENT ON COLUMN audit_strengths.valid IS 'Whether it has all eleven steps and, where a judge has a key, is signed';
COMMENT ON COLUMN audit_strengths.bound IS 'Whether its start names the state of the run that was judged; older audits name none';
COMMENT ON COLUMN audit_strengths.complete IS 'Whether it judged the complete run, as it is: of a bound audit, with this last entry and this transcript';

CREATE VIEW counting_audits AS
SELECT run_id, audit_id, idx, held, exercised, signed, bound, retrained
FROM audit_strengths
WHERE counting;
COMMENT ON VIEW counting_audits IS 'The audit that counts for each run: of the audits of the complete run, the one that checked most; of equal ones the latest; if a judge has a key, only signed ones';
COMMENT ON COLUMN counting_audits.idx IS 'Ledger index of its scores';
COMMENT ON COLUMN counting_audits.held IS 'Whether all seven gates passed, with every check in force';
COMMENT ON COLUMN counting_audits.exercised IS 'Whether enough rules fired and were answered for the process score to mean something';
COMMENT ON COLUMN counting_audits.signed IS 'Whether a judge signed all of it with a key that is not revoked for that time';
COMMENT ON COLUMN counting_audits.bound IS 'Whether its start names the state of the run that was judged; older audits name none';
COMMENT ON COLUMN counting_audits.retrained IS 'Share of the epochs that the judge retrained, from 0 to 1';
