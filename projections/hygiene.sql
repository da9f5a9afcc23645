-- Views on labels, rollbacks and taint: which run was made under which checkpoint, whether that can be
-- believed, and what follows when a checkpoint or an origin is not to be trusted any more. Nothing of
-- it is stored: as of an earlier index these views say what was known then.

CREATE VIEW checkpoint_descent AS
WITH RECURSIVE descent AS (
    SELECT checkpoint_id, checkpoint_id AS ancestor FROM checkpoint_starts
    UNION
    SELECT c.checkpoint_id, d.ancestor
    FROM checkpoint_starts AS c
    JOIN descent AS d ON d.checkpoint_id = c.parent
)

SELECT checkpoint_id, ancestor FROM descent;
COMMENT ON VIEW checkpoint_descent IS 'Each checkpoint with itself and its ancestors';
COMMENT ON COLUMN checkpoint_descent.ancestor IS 'Itself, or one before it in the chain';

-- Whoever descends from what was rolled back is reached, whether it came before the rollback or after.
-- A line begins without a gauntlet and without an operator: one that begins with code that is rolled
-- back on another, and stands nowhere there, is reached with all that descend from it.
CREATE VIEW checkpoint_reach AS
WITH own AS (
    SELECT d.checkpoint_id, r.checkpoint_id AS rolled_back_by, r.idx, r.reason, r.signed_by
    FROM checkpoint_descent AS d
    JOIN checkpoint_rollbacks AS r ON r.checkpoint_id = d.ancestor
),

standing AS (
    SELECT line_id, code FROM checkpoint_starts
    WHERE checkpoint_id NOT IN (SELECT checkpoint_id FROM own)
),

again AS (
    SELECT d.checkpoint_id, o.rolled_back_by, o.idx, o.reason, o.signed_by
    FROM checkpoint_starts AS b
    JOIN checkpoint_starts AS c ON c.code = b.code AND c.line_id <> b.line_id
    JOIN own AS o ON o.checkpoint_id = c.checkpoint_id
    JOIN checkpoint_descent AS d ON d.ancestor = b.checkpoint_id
    ANTI JOIN standing AS s ON s.line_id = c.line_id AND s.code = c.code
    WHERE b.origin = 'opened'
)

SELECT
    checkpoint_id,  -- A checkpoint that is reached
    rolled_back_by,  -- The checkpoint that was rolled back: it, one that it descends from, or one whose code a line begins with
    MIN(idx) AS idx,  -- Ledger index of the rollback
    ARG_MIN(reason, idx) AS reason,
    ARG_MIN({'key': signed_by}, idx)['key'] AS signed_by  -- Key id of the operator who signed it, hexadecimal; NULL if none did
FROM (FROM own UNION ALL FROM again)
GROUP BY checkpoint_id, rolled_back_by;
COMMENT ON VIEW checkpoint_reach IS 'What each rollback affects: the checkpoint, lines that start from its code, and all their descendants';

CREATE VIEW checkpoint_moves AS
SELECT line_id, idx, checkpoint_id FROM checkpoint_starts
UNION ALL
SELECT line_id, idx, to_checkpoint FROM checkpoint_rollbacks;
COMMENT ON VIEW checkpoint_moves IS 'When each checkpoint became the active one of its line';
COMMENT ON COLUMN checkpoint_moves.idx IS 'Ledger index from which on it is active';

CREATE VIEW run_labels AS
WITH known AS (
    SELECT
        s.run_id,
        s.idx,
        s.checkpoint,
        (s.environment ->> '$.code_sha256') AS code,
        c.idx < s.idx AS before,
        c.code AS checkpoint_code,
        m.checkpoint_id AS active
    FROM run_starts AS s
    LEFT JOIN checkpoint_starts AS c ON c.checkpoint_id = s.checkpoint
    ASOF LEFT JOIN checkpoint_moves AS m ON m.line_id = c.line_id AND s.idx > m.idx
)

SELECT
    run_id,
    ANY_VALUE(idx) AS idx,  -- Ledger index of its start
    ANY_VALUE(checkpoint) AS checkpoint,  -- As recorded at its start; NULL: none
    ANY_VALUE(checkpoint) IS NOT NULL AS labelled,  -- Whether it says one
    COALESCE(BOOL_OR(before), FALSE) AND COUNT(DISTINCT idx) = 1 AS label_known,  -- Whether that checkpoint was on record before the run began, which it did once
    COALESCE(BOOL_AND(COALESCE(checkpoint_code = code, FALSE)), FALSE) AS label_matches,  -- Whether the code that ran is the code that is on record for the checkpoint
    COALESCE(BOOL_OR(before AND active = checkpoint), FALSE) AS label_active  -- Whether it was the active one of its line when the run began; a work tree may lag behind
FROM known
GROUP BY run_id;
COMMENT ON VIEW run_labels IS 'The checkpoint that each run claims, and whether the ledger confirms it';

CREATE VIEW run_origins AS
SELECT run_id, idx, 'data' AS kind, fingerprint AS name
FROM (
    SELECT
        run_id,
        idx,
        COALESCE(data ->> '$.fingerprints.train', data ->> '$.fingerprint') AS fingerprint
    FROM run_starts
)
WHERE fingerprint IS NOT NULL
UNION ALL
SELECT run_id, idx, 'model', COALESCE(policy ->> '$.model', policy ->> '$.name')
FROM run_starts
WHERE COALESCE(policy ->> '$.model', policy ->> '$.name') IS NOT NULL;
COMMENT ON VIEW run_origins IS 'The data each run was trained on, and the authors of its decisions';
COMMENT ON COLUMN run_origins.idx IS 'Ledger index of its start';
COMMENT ON COLUMN run_origins.kind IS 'data or model';
COMMENT ON COLUMN run_origins.name IS 'SHA-256 of the training split; the model that was asked, or else the name of the policy';

-- Anybody may withdraw; only an operator lets in again.
CREATE VIEW origin_standing AS
SELECT
    kind,  -- data or model
    name,  -- As in run_origins
    ARG_MAX(what, idx) AS what,  -- admitted or withdrawn: the latest word that counts
    MAX(idx) AS idx,  -- Ledger index of that word
    ARG_MAX(note, idx) AS note,  -- Why
    ARG_MAX(what, idx) = 'admitted' AS admitted  -- Whether it may enter
FROM corpus_origins AS o
WHERE
    what = 'withdrawn' OR (
        signed_by IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM revoked_keys AS k JOIN events AS t ON t.idx = o.idx
            WHERE k.key_id = o.signed_by AND t.time >= k.since AND o.idx <= k.until_idx
        )
    )
GROUP BY kind, name;
COMMENT ON VIEW origin_standing IS 'Whether each origin may enter training data; an operator never admitted the origins that have no row';

CREATE VIEW run_sources AS
SELECT run_id, parent_run AS source, 'goes on from' AS how
FROM run_starts
WHERE parent_run IS NOT NULL
UNION
SELECT run_id, parent, 'goes on from' FROM forks
UNION
SELECT a.run_id, e.run_id, 'was told of'
FROM feedback AS f
JOIN attempts AS a ON a.campaign_id = f.campaign_id AND a.number = f.number
JOIN judged_attempts AS e ON e.campaign_id = f.campaign_id AND e.number < f.number;
COMMENT ON VIEW run_sources IS 'What each run takes from earlier runs';
COMMENT ON COLUMN run_sources.source IS 'The earlier run';
COMMENT ON COLUMN run_sources.how IS 'goes on from (its restart, as the attempt before it, or as its fork) or was told of (a campaign''s feedback)';

-- Nobody knows what an unreadable entry says, so every run that it may be about is kept out.
CREATE VIEW unread_runs AS
WITH RECURSIVE unread AS MATERIALIZED (
    SELECT DISTINCT e.stream_id FROM unreadable AS u JOIN events AS e USING (idx)
),

own AS (
    SELECT s.run_id FROM run_starts AS s JOIN unread AS u ON u.stream_id = s.run_id
    UNION
    SELECT a.run_id FROM audit_starts AS a JOIN unread AS u ON u.stream_id = a.audit_id
    UNION
    SELECT t.run_id FROM transcripts AS t JOIN unread AS u ON u.stream_id = t.transcript_id
    UNION
    SELECT r.run_id FROM reviews AS r JOIN unread AS u ON u.stream_id = r.review_id
    UNION
    SELECT a.run_id FROM attempts AS a JOIN unread AS u ON u.stream_id = a.campaign_id
    UNION
    SELECT s.run_id
    FROM run_starts AS s
    JOIN checkpoint_starts AS c ON c.checkpoint_id = s.checkpoint
    JOIN unread AS u ON u.stream_id = c.line_id
    UNION
    SELECT s.run_id FROM run_sources AS s JOIN own AS o ON o.run_id = s.source
)

SELECT DISTINCT run_id FROM own;
COMMENT ON VIEW unread_runs IS 'Runs that an unreadable entry may be about, and runs derived from these';

CREATE VIEW run_taints AS
WITH RECURSIVE own AS (
    SELECT
        s.run_id,
        r.idx,
        r.rolled_back_by AS checkpoint_id,
        FORMAT('checkpoint {} was rolled back: {}', r.rolled_back_by, r.reason) AS reason
    FROM run_starts AS s
    JOIN checkpoint_reach AS r ON r.checkpoint_id = s.checkpoint
    UNION ALL
    SELECT
        o.run_id,
        w.idx,
        NULL,
        FORMAT('{} {} was withdrawn: {}', w.kind, w.name, w.note)
    FROM run_origins AS o
    JOIN origin_standing AS w USING (kind, name)
    WHERE NOT w.admitted
),

reached AS (
    SELECT DISTINCT run_id, run_id AS origin FROM own
    UNION
    SELECT s.run_id, r.origin
    FROM run_sources AS s
    JOIN reached AS r ON r.run_id = s.source
)

SELECT
    r.run_id,
    r.origin,  -- Where the taint comes from: itself, or a run that it has something of
    o.checkpoint_id,  -- The checkpoint that was rolled back; NULL: an origin was withdrawn
    GREATEST(o.idx, s.idx) AS idx,  -- Ledger index since which the run is tainted for this reason
    CASE
        WHEN r.run_id = r.origin THEN o.reason  -- Explanation
        ELSE FORMAT('it derives from run {}, and {}', r.origin, o.reason)
    END AS reason
FROM reached AS r
JOIN own AS o ON o.run_id = r.origin
JOIN run_starts AS s ON s.run_id = r.run_id;
COMMENT ON VIEW run_taints IS 'The reasons why runs are tainted';

CREATE VIEW run_standing AS
WITH RECURSIVE taints AS (
    SELECT
        run_id,
        LIST_SORT(LIST(DISTINCT checkpoint_id) FILTER (checkpoint_id IS NOT NULL)) AS tainted_by,
        LIST_SORT(LIST(DISTINCT reason)) AS taint_reasons,
        MIN(idx) AS tainted_idx
    FROM run_taints
    GROUP BY run_id
),

unlabelled AS (
    SELECT run_id FROM run_labels WHERE NOT (labelled AND label_known AND label_matches)
    UNION
    SELECT s.run_id FROM run_sources AS s JOIN unlabelled AS u ON u.run_id = s.source
),

missing AS (
    SELECT run_id FROM run_sources WHERE source NOT IN (SELECT run_id FROM run_starts)
    UNION ALL
    SELECT s.run_id FROM run_starts AS s
    ANTI JOIN attempts AS a ON a.campaign_id = s.campaign AND a.run_id = s.run_id
    WHERE s.campaign IS NOT NULL
),

found AS (
    SELECT
        l.run_id,
        l.idx,
        l.checkpoint,
        l.labelled,
        l.label_known,
        l.label_matches,
        l.label_active,
        l.run_id IN (SELECT run_id FROM unlabelled)
        OR l.run_id IN (SELECT run_id FROM missing) AS unlabelled_source,
        a.audit_id,
        a.audit_id IS NOT NULL AS judged,
        COALESCE(a.held, FALSE) AS held,
        COALESCE(a.signed, FALSE) AS audit_signed,
        COALESCE(a.exercised, FALSE) AS exercised,
        l.run_id IN (SELECT run_id FROM unread_runs) AS unread,
        l.run_id IN (SELECT run_id FROM provocations) AS provoked,
        l.run_id IN (SELECT run_id FROM runs WHERE level <> 'repeatable') AS watched,
        t.tainted_idx IS NOT NULL AS tainted,
        COALESCE(t.tainted_by, []) AS tainted_by,
        COALESCE(t.taint_reasons, []) AS taint_reasons,
        t.tainted_idx
    FROM run_labels AS l
    LEFT JOIN counting_audits AS a USING (run_id)
    LEFT JOIN taints AS t USING (run_id)
),

reasoned AS (
    SELECT
        *,
        LIST_FILTER(
            [
                CASE WHEN watched THEN 'not repeatable' END,
                CASE WHEN NOT labelled THEN 'no label' END,
                CASE WHEN labelled AND NOT label_known THEN 'label unknown' END,
                CASE WHEN label_known AND NOT label_matches THEN 'label of other code' END,
                CASE
                    WHEN label_known AND label_matches AND unlabelled_source
                        THEN 'derived from an unlabelled run'
                END,
                CASE WHEN NOT judged THEN 'not judged' END,
                CASE WHEN judged AND NOT held AND NOT watched THEN 'did not hold' END,
                CASE WHEN judged AND NOT exercised THEN 'not exercised' END,
                CASE WHEN tainted THEN 'tainted' END,
                CASE WHEN unread THEN 'entry unreadable' END
            ],
            lambda reason: reason IS NOT NULL
        ) AS why_not
    FROM found
)

SELECT
    run_id,
    idx,  -- Ledger index of its start
    checkpoint,  -- Its label: the checkpoint that its start names; NULL: none
    labelled,  -- Whether its start names one
    label_known,  -- Whether that checkpoint was on record before the run began
    label_matches,  -- Whether the code that ran is the code that is on record for the checkpoint
    label_active,  -- Whether it was the active one of its line when the run started; information only, excludes nothing
    audit_id,  -- The audit that counts, see counting_audits; NULL: there is none
    judged,  -- Whether there is one
    held,  -- Whether all its gates passed, with every check in force
    audit_signed,  -- Whether a judge signed it; demanded wherever a judge has a key
    exercised,  -- Whether enough rules fired and were answered
    provoked,  -- Whether a fault was provoked; information only, excludes nothing
    tainted,  -- Whether it descends from a checkpoint that was rolled back or from an origin that was withdrawn
    tainted_by,  -- The checkpoints whose rollback taints it; empty where only an origin does
    taint_reasons,
    tainted_idx,
    LEN(why_not) = 0 AS eligible,  -- Whether it may enter training data, as far as the run itself goes
    LEN(LIST_FILTER(why_not, lambda reason: reason <> 'not exercised')) = 0 AS usable,  -- Whether it may be learned from as a failure: as eligible, but exercised or not
    why_not  -- What excludes it: not repeatable (a watched run), no label, label unknown, label of other code, derived from an unlabelled run, not judged, did not hold, not exercised, tainted, entry unreadable
FROM reasoned;
COMMENT ON VIEW run_standing IS 'Whether each run may enter training data, and why not';

-- Evidence points to entries of the ledger, or names runs and proposals as they are.
CREATE VIEW proposal_sources AS
WITH streams AS (
    SELECT run_id AS stream_id, run_id AS source FROM run_starts
    UNION ALL
    SELECT proposal_id, proposal_id FROM infra_submissions
    UNION ALL
    SELECT audit_id, run_id FROM audit_starts
    UNION ALL
    SELECT transcript_id, run_id FROM transcripts
    UNION ALL
    SELECT review_id, run_id FROM reviews
    UNION ALL
    SELECT campaign_id, run_id FROM attempts
),

told AS (
    SELECT
        s.proposal_id,
        UNNEST(TRY_CAST(s.evidence AS JSON [])) AS part
    FROM infra_submissions AS s
    WHERE JSON_TYPE(s.evidence) = 'ARRAY'
),

named AS (
    SELECT t.proposal_id, e.stream_id
    FROM told AS t
    JOIN events AS e ON e.idx = TRY_CAST(t.part ->> '$.index' AS BIGINT)
    UNION
    SELECT s.proposal_id, UNNEST(REGEXP_EXTRACT_ALL(
        LOWER(CAST(s.evidence AS VARCHAR)),
        '[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}'
    ))
    FROM infra_submissions AS s
)

SELECT DISTINCT n.proposal_id, s.source
FROM named AS n
JOIN streams AS s ON s.stream_id = n.stream_id
WHERE s.source <> n.proposal_id;
COMMENT ON VIEW proposal_sources IS 'The runs and earlier proposals that the evidence of each proposal cites';
COMMENT ON COLUMN proposal_sources.source IS 'A run or a proposal';

CREATE VIEW proposal_standing AS
WITH RECURSIVE own AS (
    SELECT p.proposal_id, t.run_id AS source, t.checkpoint_id, t.idx, t.reason
    FROM proposal_sources AS p
    JOIN run_taints AS t ON t.run_id = p.source
    UNION ALL
    SELECT s.proposal_id, c.checkpoint_id, r.rolled_back_by, r.idx,
        FORMAT('it changes checkpoint {}, and checkpoint {} was rolled back: {}',
            c.checkpoint_id, r.rolled_back_by, r.reason)
    FROM infra_submissions AS s
    JOIN checkpoint_starts AS c ON c.line_id = s.line_id AND c.commit = s.base
    JOIN checkpoint_reach AS r ON r.checkpoint_id = c.checkpoint_id
),

reached AS (
    SELECT DISTINCT proposal_id, proposal_id AS origin FROM own
    UNION
    SELECT p.proposal_id, r.origin
    FROM proposal_sources AS p
    JOIN reached AS r ON r.proposal_id = p.source
),

taints AS (
    SELECT
        r.proposal_id,
        LIST_SORT(LIST(DISTINCT o.source)) AS tainted_sources,
        LIST_SORT(LIST(DISTINCT o.checkpoint_id) FILTER (o.checkpoint_id IS NOT NULL)) AS tainted_by,
        LIST_SORT(LIST(DISTINCT o.reason)) AS taint_reasons,
        MIN(o.idx) AS idx
    FROM reached AS r
    JOIN own AS o ON o.proposal_id = r.origin
    GROUP BY r.proposal_id
)

SELECT
    s.proposal_id,
    s.idx,  -- Ledger index of its submission
    s.line_id,  -- The line that it would change
    s.base,  -- Commit that it changes
    (
        SELECT LIST(c.checkpoint_id ORDER BY c.checkpoint_id) FROM checkpoint_proposals AS c
        WHERE c.proposal_id = s.proposal_id
    ) AS checkpoints,  -- The checkpoints that contain it; NULL: none
    t.idx IS NOT NULL AS tainted,  -- Whether something that it rests on is
    COALESCE(t.tainted_sources, []) AS tainted_sources,  -- The tainted runs, or the checkpoint that it changes
    COALESCE(t.tainted_by, []) AS tainted_by,  -- The checkpoints whose rollback taints it
    COALESCE(t.taint_reasons, []) AS taint_reasons,
    CASE WHEN t.idx IS NOT NULL THEN GREATEST(t.idx, s.idx) END AS tainted_idx
FROM infra_submissions AS s
LEFT JOIN taints AS t USING (proposal_id);
COMMENT ON VIEW proposal_standing IS 'Whether the evidence or the base of each proposal is tainted';

CREATE VIEW checkpoint_standing AS
WITH reached AS (
    SELECT
        checkpoint_id,
        MIN(idx) AS idx,
        ARG_MIN(rolled_back_by, idx) AS rolled_back_by,
        ARG_MIN(reason, idx) AS reason,
        ARG_MIN({'key': signed_by}, idx)['key'] AS signed_by
    FROM checkpoint_reach
    GROUP BY checkpoint_id
),

active AS (
    SELECT line_id, ARG_MAX(checkpoint_id, idx) AS checkpoint_id
    FROM checkpoint_moves GROUP BY line_id
),

used AS (
    SELECT
        checkpoint AS checkpoint_id,
        COUNT(*) AS runs,
        COUNT(*) FILTER (NOT (label_known AND label_matches)) AS false_labels,
        COUNT(*) FILTER (eligible) AS eligible_runs
    FROM run_standing
    WHERE checkpoint IS NOT NULL
    GROUP BY checkpoint
)

SELECT
    c.checkpoint_id,
    c.line_id,
    c.idx,  -- Ledger index at which it was recorded
    (
        SELECT COUNT(*) - 1 FROM checkpoint_descent AS d WHERE d.checkpoint_id = c.checkpoint_id
    ) AS place,  -- In the chain; 0: the original baseline
    c.parent,  -- The checkpoint before it
    c.commit,  -- Its commit in the repository
    c.tree,  -- Its tree
    c.code,  -- SHA-256 over the files in it that decide a run; NULL: recorded before this existed
    c.origin,  -- opened, promoted or adopted (committed by people)
    (
        SELECT LIST(p.proposal_id ORDER BY p.proposal_id) FROM checkpoint_proposals AS p
        WHERE p.checkpoint_id = c.checkpoint_id
    ) AS proposals,  -- The proposals that it contains; NULL: none
    COALESCE(a.checkpoint_id = c.checkpoint_id, FALSE) AS active,  -- Whether it is the active one of its line
    r.idx IS NOT NULL AS rolled_back,  -- Whether it, or one that it descends from, was rolled back
    r.idx AS rolled_back_idx,  -- Ledger index of that rollback, the first if there were several
    r.rolled_back_by,  -- The checkpoint that was rolled back: it, or one that it descends from
    r.reason AS rollback_reason,  -- Why
    r.signed_by AS rollback_signed_by,  -- Key id of the operator who signed the rollback, hexadecimal; NULL if none did
    EXISTS (
        SELECT 1 FROM checkpoint_proposals AS p
        JOIN proposal_standing AS s USING (proposal_id)
        WHERE p.checkpoint_id = c.checkpoint_id AND s.tainted
    ) AS tainted_evidence,  -- Whether a proposal that it came with rests on tainted runs; it passed the gauntlet all the same, so this excludes nothing by itself
    COALESCE(u.runs, 0) AS runs,  -- Runs that name it as theirs
    COALESCE(u.false_labels, 0) AS false_labels,  -- Of these, runs that it cannot have been: it was not on record yet, or other code ran
    COALESCE(u.eligible_runs, 0) AS eligible_runs  -- Of these, runs that may be learned from
FROM checkpoint_starts AS c
LEFT JOIN reached AS r USING (checkpoint_id)
LEFT JOIN active AS a ON a.line_id = c.line_id
LEFT JOIN used AS u ON u.checkpoint_id = c.checkpoint_id;
COMMENT ON VIEW checkpoint_standing IS 'Whether each checkpoint is trusted, and what was made under it';

CREATE VIEW infra_checkpoints AS
SELECT
    c.checkpoint_id,
    c.line_id,
    c.idx,
    c.parent,  -- The checkpoint before it; NULL: the line began here
    c.commit,  -- Its commit in the repository
    c.origin,  -- opened, promoted or adopted (committed by people)
    c.proposals,  -- That it came with; NULL for where the line began and for what people committed
    t.time AS created_at,  -- When it was recorded
    c.rolled_back,  -- Whether it, or one that it descends from, was rolled back
    w.time AS rolled_back_at,  -- When that was recorded
    c.rollback_reason  -- Why
FROM checkpoint_standing AS c
JOIN events AS t ON t.idx = c.idx
LEFT JOIN events AS w ON w.idx = c.rolled_back_idx;
COMMENT ON VIEW infra_checkpoints IS 'A summary of each checkpoint, with times; checkpoint_standing has more columns';

-- A text is about what went wrong in runs, and is a change of the champion's text.
CREATE VIEW advice_sources AS
WITH streams AS (
    SELECT run_id AS stream_id, run_id FROM run_starts
    UNION ALL
    SELECT audit_id, run_id FROM audit_starts
    UNION ALL
    SELECT transcript_id, run_id FROM transcripts
    UNION ALL
    SELECT review_id, run_id FROM reviews
),

told AS (
    SELECT advice_id, version, UNNEST(TRY_CAST(evidence AS JSON [])) AS part
    FROM advice_proposals
    WHERE JSON_TYPE(evidence) = 'ARRAY'
),

named AS (
    SELECT t.advice_id, t.version, e.stream_id
    FROM told AS t
    JOIN events AS e ON e.idx = TRY_CAST(t.part ->> '$.index' AS BIGINT)
    UNION
    SELECT advice_id, version, UNNEST(REGEXP_EXTRACT_ALL(
        LOWER(CAST(evidence AS VARCHAR)),
        '[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}'
    ))
    FROM advice_proposals
)

SELECT n.advice_id, n.version, s.run_id
FROM named AS n
JOIN streams AS s USING (stream_id)
UNION
SELECT p.advice_id, p.version, a.run_id
FROM advice_proposals AS p
JOIN attempts AS a ON a.campaign_id = p.campaign_id AND a.number = p.attempt;
COMMENT ON VIEW advice_sources IS 'The runs that each advice block was proposed about';
COMMENT ON COLUMN advice_sources.version IS 'The block';
COMMENT ON COLUMN advice_sources.run_id IS 'The attempt after which it was proposed, or a run that its evidence cites';

CREATE VIEW advice_standing AS
WITH RECURSIVE own AS (
    SELECT s.advice_id, s.version, t.run_id, t.checkpoint_id, t.idx, t.reason
    FROM advice_sources AS s
    JOIN run_taints AS t USING (run_id)
),

reached AS (
    SELECT DISTINCT advice_id, version, version AS origin FROM own
    UNION
    SELECT p.advice_id, p.version, r.origin
    FROM advice_proposals AS p
    JOIN reached AS r ON r.advice_id = p.advice_id AND r.version = p.parent
),

taints AS (
    SELECT
        r.advice_id,
        r.version,
        LIST_SORT(LIST(DISTINCT o.run_id)) AS tainted_sources,
        LIST_SORT(LIST(DISTINCT o.checkpoint_id) FILTER (o.checkpoint_id IS NOT NULL)) AS tainted_by,
        LIST_SORT(LIST(DISTINCT CASE
            WHEN r.version = r.origin THEN FORMAT('run {}: {}', o.run_id, o.reason)
            ELSE FORMAT('it changes version {}, and run {}: {}', r.origin, o.run_id, o.reason)
        END)) AS taint_reasons,
        MIN(o.idx) AS idx
    FROM reached AS r
    JOIN own AS o ON o.advice_id = r.advice_id AND o.version = r.origin
    GROUP BY r.advice_id, r.version
),

changes AS (
    SELECT advice_id, idx, version FROM advice_rounds WHERE outcome = 'promoted'
    UNION ALL
    SELECT advice_id, idx, 0 FROM advice_orders WHERE what = 'reset'
),

champions AS (
    SELECT advice_id, ARG_MAX(version, idx) AS version FROM changes GROUP BY advice_id
)

SELECT
    p.advice_id,
    l.model,  -- The model
    p.version,  -- The block
    p.idx,  -- Ledger index of its proposal
    p.version IN (
        SELECT c.version FROM changes AS c WHERE c.advice_id = p.advice_id
    ) AS promoted,  -- Whether it was promoted
    COALESCE(c.version = p.version, FALSE) AS champion,  -- Whether it is the block that is in force
    t.idx IS NOT NULL AS tainted,  -- Whether a run that it is about, or the block that it changes, is tainted
    COALESCE(t.tainted_sources, []) AS tainted_sources,  -- The tainted runs
    COALESCE(t.tainted_by, []) AS tainted_by,  -- The checkpoints whose rollback taints it
    COALESCE(t.taint_reasons, []) AS taint_reasons,
    CASE WHEN t.idx IS NOT NULL THEN GREATEST(t.idx, p.idx) END AS tainted_idx
FROM advice_proposals AS p
JOIN advice_lines AS l USING (advice_id)
LEFT JOIN champions AS c ON c.advice_id = p.advice_id
LEFT JOIN taints AS t ON t.advice_id = p.advice_id AND t.version = p.version;
COMMENT ON VIEW advice_standing IS 'Whether the runs that each advice block was proposed about are tainted; it passed its scenarios all the same, so this excludes nothing by itself';

CREATE VIEW tainted_uses AS
SELECT s.source AS run_id, 'run' AS used_for, s.run_id AS what, r.idx, s.how AS detail
FROM run_sources AS s
JOIN run_starts AS r ON r.run_id = s.run_id
WHERE s.source IN (SELECT run_id FROM run_taints)
UNION ALL
SELECT t.run_id, 'prompt', FORMAT('{} {}', t.transcript_id, c.number), c.idx, c.request
FROM transcripts AS t
JOIN calls AS c USING (transcript_id)
WHERE c.model IS NOT NULL AND t.run_id IN (SELECT run_id FROM run_taints)
UNION ALL
SELECT p.source, 'prompt', FORMAT('{} {}', t.transcript_id, c.number), c.idx, c.request
FROM proposal_sources AS p
JOIN transcripts AS t ON t.run_id = p.proposal_id
JOIN calls AS c USING (transcript_id)
WHERE c.model IS NOT NULL AND p.source IN (SELECT run_id FROM run_taints)
UNION ALL
SELECT p.source, 'proposal', p.proposal_id, s.idx, s.rationale
FROM proposal_sources AS p
JOIN infra_submissions AS s USING (proposal_id)
WHERE p.source IN (SELECT run_id FROM run_taints)
UNION ALL
SELECT p.source, 'checkpoint', c.checkpoint_id, c.idx, k.proposal_id
FROM proposal_sources AS p
JOIN checkpoint_proposals AS k USING (proposal_id)
JOIN checkpoint_starts AS c USING (checkpoint_id)
WHERE p.source IN (SELECT run_id FROM run_taints)
UNION ALL
SELECT UNNEST(a.tainted_sources), 'advice', FORMAT('{} {}', a.model, a.version), a.idx, p.pattern
FROM advice_standing AS a
JOIN advice_proposals AS p USING (advice_id, version);
COMMENT ON VIEW tainted_uses IS 'What each tainted run was used for; exports are in the views on curation';
COMMENT ON COLUMN tainted_uses.run_id IS 'The tainted run';
COMMENT ON COLUMN tainted_uses.used_for IS 'run (a later one that has something of it), prompt (what a model was asked in it, or was shown of it), proposal, checkpoint, or advice';
COMMENT ON COLUMN tainted_uses.what IS 'The later run, the transcript with the number of the call, the proposal, the checkpoint, or the model with the version of its advice';
COMMENT ON COLUMN tainted_uses.idx IS 'Ledger index of that use';
COMMENT ON COLUMN tainted_uses.detail IS 'How a run has of it; SHA-256 of a prompt; the rationale of a proposal; the proposal of a checkpoint; the error pattern of an advice block';
