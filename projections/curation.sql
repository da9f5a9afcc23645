-- What may become training data, and what is known of it: origins, forces, states, rewards, pairs.

-- Only those of our policies that have others decide name them: a policy of one's own could name any.
CREATE VIEW decision_authors AS
WITH asked AS (
    SELECT
        t.run_id,
        c.epoch,
        c.number,
        c.model,
        c.request,
        TRY_CAST(c.rules AS VARCHAR []) AS rules
    FROM calls AS c
    JOIN transcripts AS t USING (transcript_id)
    WHERE c.model IS NOT NULL AND c.outcome = 'usable' AND c.action IN ('decide', 'repair')
),

cited AS (
    SELECT run_id, number, LIST(rule) AS cites FROM citations GROUP BY run_id, number
),

answered AS (
    SELECT
        d.run_id,
        d.number,
        MAX(a.number) AS call,
        ARG_MAX(a.model, a.number) AS model,
        ARG_MAX(a.request, a.number) AS request
    FROM decisions AS d
    JOIN cited AS c USING (run_id, number)
    JOIN asked AS a
        ON a.run_id = d.run_id AND a.epoch = d.epoch AND LIST_HAS_ALL(a.rules, c.cites)
    GROUP BY d.run_id, d.number
)

SELECT
    d.run_id,
    d.number,  -- Of the decision, from 1 in each run
    d.epoch,  -- The epoch whose evaluation is answered
    d.source,  -- driver, human or policy
    CASE
        WHEN d.source = 'human' THEN 'human'
        WHEN d.source = 'policy' THEN COALESCE(
            a.model,
            CASE
                WHEN (s.policy ->> '$.name') = 'mixed' THEN s.policy ->> '$.playbook.name'
                WHEN (s.policy ->> '$.name') = 'human' THEN COALESCE(
                    CASE WHEN (s.policy ->> '$.proposer.name') = 'mixed'
                        THEN s.policy ->> '$.proposer.playbook.name' END,
                    s.policy ->> '$.proposer.name',
                    s.policy ->> '$.proposer.model'
                )
            END,
            s.policy ->> '$.name'
        )
    END AS author,  -- human, a model as the policy names it, or a policy without a model; NULL: no decision
    a.call,  -- Number in the transcript of the last usable call about its rules; NULL: no model was asked
    a.model,  -- The model that was asked; a person may have said something else in its place
    a.request  -- SHA-256 of the stored request
FROM decisions AS d
JOIN run_starts AS s USING (run_id)
LEFT JOIN answered AS a USING (run_id, number)
ANTI JOIN forks AS f ON f.run_id = d.run_id AND f.epoch > d.epoch;
COMMENT ON VIEW decision_authors IS 'The author of each decision, and the models that were asked; without those that a fork repeats from its parent';

-- What the checkpoint's own code makes, the label stands for, as long as no operator decides.
CREATE VIEW origin_tags AS
WITH authors AS MATERIALIZED (
    SELECT DISTINCT run_id, source, author, model FROM decision_authors
),

made AS (
    SELECT
        run_id,
        (config ->> '$.dataset') = 'shapes' AS data,
        (policy ->> '$.model') IS NULL
        AND CASE policy ->> '$.name' WHEN 'given' THEN c.after ELSE policy ->> '$.name' END
            IN ({{alone}}) AS policy
    FROM run_starts
    LEFT JOIN (
        SELECT f.run_id, ANY_VALUE(s.after) AS after
        FROM credit_evidence AS f
        JOIN credit_starts AS s USING (credit_id)
        WHERE f.backed
        GROUP BY f.run_id
    ) AS c USING (run_id)
),

named AS (
    SELECT o.run_id, o.kind, o.name, m.policy AS made
    FROM run_origins AS o
    JOIN made AS m USING (run_id)
    WHERE o.kind = 'model'
    UNION ALL
    SELECT
        s.run_id,
        'data',
        COALESCE(s.data ->> '$.fingerprints.train', s.data ->> '$.fingerprint'),
        m.data
    FROM run_starts AS s
    JOIN made AS m USING (run_id)
    UNION ALL
    SELECT a.run_id, 'model', a.author, m.policy AND a.source = 'policy' AND a.model IS NULL
    FROM authors AS a
    JOIN made AS m USING (run_id)
    WHERE a.source <> 'driver'
    UNION ALL
    SELECT run_id, 'model', model, FALSE FROM authors WHERE model IS NOT NULL
)

SELECT
    run_id,
    kind,  -- data or model
    name,  -- Fingerprint of the training examples, or who decided; NULL: unknown, which no operator can let in
    BOOL_AND(COALESCE(made, FALSE)) AND NOT EXISTS (
        SELECT 1 FROM authority_events
        WHERE name = 'key.granted' AND (body ->> '$.role') = 'operator'
    ) AS own  -- Whether the code of the checkpoint makes it (generated data, policies whose code alone decides, the alternatives of proctor fork) and no operator has a key: then it needs no admission
FROM named
GROUP BY run_id, kind, name;
COMMENT ON VIEW origin_tags IS 'Everything that entered each run: the rows of run_origins, and the authors of its decisions';

CREATE VIEW run_forces AS
WITH sampled AS (
    SELECT
        t.run_id,
        COUNT(*) AS asked,
        MAX(TRY_CAST(c.parameters ->> '$.temperature' AS DOUBLE)) AS temperature,
        COUNT(*) FILTER ((c.parameters ->> '$.temperature') IS NULL) AS unstated,
        LIST(DISTINCT TRY_CAST(c.parameters ->> '$.seed' AS BIGINT))
            FILTER ((c.parameters ->> '$.seed') IS NOT NULL) AS seeds
    FROM calls AS c
    JOIN transcripts AS t USING (transcript_id)
    WHERE c.model IS NOT NULL AND c.action IN ('decide', 'repair')
    GROUP BY t.run_id
),

entered AS (
    SELECT
        o.run_id,
        LIST(o.kind || ':' || COALESCE(o.name, 'unknown') ORDER BY o.kind, o.name) AS origins,
        LIST(o.kind || ':' || COALESCE(o.name, 'unknown') ORDER BY o.kind, o.name)
            FILTER (s.admitted IS NOT TRUE AND NOT (o.own AND s.admitted IS NULL)) AS kept_out,
        BOOL_OR(s.admitted IS FALSE) AS withdrawn
    FROM origin_tags AS o
    LEFT JOIN origin_standing AS s ON s.kind = o.kind AND s.name = o.name
    GROUP BY o.run_id
),

authors AS (
    SELECT run_id, LIST(DISTINCT author ORDER BY author) AS decided_by
    FROM decision_authors
    WHERE author IS NOT NULL
    GROUP BY run_id
)

SELECT
    s.run_id,
    s.checkpoint,
    s.policy ->> '$.name' AS policy_name,  -- Who was asked to decide
    COALESCE(a.decided_by, CAST([] AS VARCHAR [])) AS decided_by,  -- Authors of its decisions
    COALESCE(c.asked, 0) AS asked,  -- Requests to models for decisions
    CASE WHEN c.unstated = 0 THEN c.temperature END AS temperature,  -- The highest value requested; NULL: unknown for some request, or no request
    LIST_SORT(COALESCE(c.seeds, CAST([] AS BIGINT []))) AS sampling_seeds,  -- Seeds that requests named
    TRY_CAST(s.config ->> '$.seed' AS BIGINT) AS training_seed,  -- Of initialisation and data order
    s.config ->> '$.dataset' AS dataset,  -- Name of the dataset
    COALESCE(s.data ->> '$.fingerprints.train', s.data ->> '$.fingerprint') AS data_fingerprint,  -- Of the training examples
    p.name AS provocation,  -- The provoked fault; NULL: none
    e.origins,  -- Tags, each kind:name
    COALESCE(e.kept_out, CAST([] AS VARCHAR [])) AS kept_out,  -- Those that are not admitted now
    e.withdrawn,  -- Whether one of them was admitted or refused before and is now withdrawn
    u.accuracy_score,  -- From 0 to 1, of the audit that counts
    u.process_score,  -- From 0 to 1, likewise
    u.validation_accuracy  -- As the judge measured it in the audit that counts
FROM run_starts AS s
JOIN entered AS e USING (run_id)
LEFT JOIN authors AS a USING (run_id)
LEFT JOIN sampled AS c USING (run_id)
LEFT JOIN provocations AS p USING (run_id)
LEFT JOIN counting_audits AS k USING (run_id)
LEFT JOIN audit_scores AS u ON u.audit_id = k.audit_id AND u.idx = k.idx;
COMMENT ON VIEW run_forces IS 'Properties of each run to select by: author of decisions, sampling, origin';

-- Two runs are in the same state if all that was measured so far is the same, to the last bit. The
-- estimate and its interval stand for the noise probes and the spread, from which they follow.
CREATE VIEW decision_states AS
WITH layers AS (
    SELECT
        run_id,
        epoch,
        LIST(ROW(place, layer, grad_norm, update_ratio, epoch_update_ratio) ORDER BY place) AS parts
    FROM layer_metrics
    GROUP BY run_id, epoch
),

activations AS (
    SELECT
        run_id,
        epoch,
        LIST(ROW(place, layer, units, dead_units, sparsity, p50, p99) ORDER BY place) AS parts
    FROM activation_metrics
    GROUP BY run_id, epoch
),

rules AS (
    SELECT run_id, epoch, LIST(ROW(rule, fired, side, value, ema, streak) ORDER BY rule) AS parts
    FROM rule_evaluations
    GROUP BY run_id, epoch
),

prints AS (
    SELECT
        e.run_id,
        e.epoch,
        SHA256(CAST(ROW(
            e.train_loss, e.train_accuracy, e.val_loss, e.val_accuracy, e.gradients_finite,
            e.noise_scale, e.norm_noise_scale,
            e.signal_to_noise, e.signal_to_noise_low, e.signal_to_noise_high,
            e.lr, e.batch_size, e.accumulation, e.clip_norm,
            l.parts, a.parts
        ) AS VARCHAR)) AS print,
        CAST(r.parts AS VARCHAR) AS rules
    FROM epochs AS e
    LEFT JOIN layers AS l USING (run_id, epoch)
    LEFT JOIN activations AS a USING (run_id, epoch)
    LEFT JOIN rules AS r USING (run_id, epoch)
),

chained AS (
    SELECT
        p.run_id,
        p.epoch,
        p.rules,
        SHA256(CAST(ROW(
            s.config_hash,
            s.rules_hash,
            s.spec,
            s.data,
            STRING_AGG(p.print, '') OVER (PARTITION BY p.run_id ORDER BY p.epoch)
        ) AS VARCHAR)) AS measured
    FROM prints AS p
    JOIN run_starts AS s USING (run_id)
)

SELECT run_id, epoch, measured, SHA256(CAST(ROW(measured, rules) AS VARCHAR)) AS state
FROM chained;
COMMENT ON VIEW decision_states IS 'A hash of all measurements up to the end of each epoch; equal only if they are equal bit for bit';
COMMENT ON COLUMN decision_states.measured IS 'SHA-256 over configuration, data, model and all measurements up to the epoch';
COMMENT ON COLUMN decision_states.state IS 'The same with what the rules said of the epoch, which depends on earlier remedies too';

CREATE VIEW decision_marks AS
SELECT
    d.run_id,
    d.number,  -- Of the decision, from 1 in each run
    r.mark,  -- gold or bad
    r.note,  -- Explanation
    r.idx,  -- Ledger index of the statement
    r.signed_by IS NOT NULL AND NOT EXISTS (
        SELECT 1 FROM revoked_keys AS k
        WHERE k.key_id = r.signed_by AND t.time >= k.since AND r.idx <= k.until_idx
    ) AS vouched  -- Signed by an operator, or said when it was approved; without it only bad counts
FROM reviews AS r
JOIN events AS t ON t.idx = r.idx
JOIN decisions AS d ON d.idx = r.decision_idx AND d.run_id = r.run_id
UNION ALL
SELECT d.run_id, d.number, p.mark, p.note, p.idx, TRUE
FROM proposal_reviews AS p
JOIN transcripts AS t USING (transcript_id)
JOIN decisions AS d
    ON d.run_id = t.run_id AND d.epoch = p.epoch
        AND d.direction = (p.decision ->> '$.direction')
        AND d.justification = (p.decision ->> '$.justification')
WHERE p.mark IS NOT NULL AND p.verdict = 'approve';
COMMENT ON VIEW decision_marks IS 'Valid reviews of decisions by people: reviews, and approvals at decision time';

CREATE VIEW decision_rewards AS
WITH counting AS MATERIALIZED (SELECT run_id, audit_id, idx FROM counting_audits),

judged AS (
    SELECT k.run_id, a.validation_accuracy, s.config_hash, s.spec::VARCHAR AS spec,
        s.data::VARCHAR AS data
    FROM counting AS k
    JOIN audit_scores AS a USING (audit_id, idx)
    JOIN run_starts AS s USING (run_id)
),

against AS (
    SELECT
        run_id,
        CASE WHEN COUNT(validation_accuracy) OVER same > 1
            THEN validation_accuracy - AVG(validation_accuracy) OVER same END AS advantage
    FROM judged
    WINDOW same AS (PARTITION BY config_hash, spec, data)
),

effects AS (
    SELECT run_id, decision, AVG(CASE WHEN worked THEN 1.0 ELSE -1.0 END) AS effect
    FROM remedy_effects
    WHERE worked IS NOT NULL
    GROUP BY run_id, decision
),

faults AS (
    SELECT k.run_id, v.decision, CAST(SUM(v.times) AS BIGINT) AS violations
    FROM audit_violations AS v
    JOIN counting AS k USING (audit_id, idx)
    WHERE v.decision IS NOT NULL
    GROUP BY k.run_id, v.decision
),

unlisted AS (SELECT run_id FROM audits WHERE standing AND violations > violations_listed),

marks AS (
    SELECT
        run_id,
        number,
        CASE WHEN BOOL_OR(mark = 'bad') THEN 'bad'
            WHEN BOOL_OR(mark = 'gold' AND vouched) THEN 'gold' END AS mark
    FROM decision_marks
    GROUP BY run_id, number
)

SELECT
    d.run_id,
    d.number,  -- Of the decision, from 1 in each run
    d.epoch,  -- The epoch whose evaluation is answered
    d.cites,  -- Rules, in the order of their names
    d.direction,
    d.outcome,  -- applied, refused, restart, deferred or open
    w.author,  -- Author of the decision; NULL: no decision
    g.advantage,  -- Validation accuracy of its run, above the mean of judged runs from the same start; NULL: there is no other
    e.effect,  -- 1: its remedy silenced the cited rules; -1: it did not; NULL: unknown
    CASE WHEN j.run_id IS NOT NULL
        THEN COALESCE(f.violations, CASE WHEN u.run_id IS NULL THEN 0 END) END AS violations,  -- That the audit that counts found in it; NULL: not audited, or the audit does not list all that it found
    m.mark,  -- gold or bad, as people said; NULL: unmarked
    CASE WHEN j.run_id IS NOT NULL THEN
        COALESCE(g.advantage, 0) + 0.1 * COALESCE(e.effect, 0)
        - 0.1 * COALESCE(f.violations, CASE WHEN u.run_id IS NULL THEN 0 END)
        + CASE m.mark WHEN 'gold' THEN 0.1 WHEN 'bad' THEN -0.1 ELSE 0 END
    END AS reward  -- advantage, and a tenth each: plus effect, minus violations, plus gold or minus bad; NULL: its run is not judged, or its violations are not known
FROM decision_outcomes AS d
JOIN decision_authors AS w USING (run_id, number)
LEFT JOIN judged AS j USING (run_id)
LEFT JOIN against AS g USING (run_id)
LEFT JOIN effects AS e ON e.run_id = d.run_id AND e.decision = d.number
LEFT JOIN faults AS f ON f.run_id = d.run_id AND f.decision = d.number
LEFT JOIN unlisted AS u ON u.run_id = d.run_id
LEFT JOIN marks AS m ON m.run_id = d.run_id AND m.number = d.number;
COMMENT ON VIEW decision_rewards IS 'The reward of each decision and its parts, for training by reward';

CREATE VIEW rule_credit AS
WITH sides AS (SELECT run_id, epoch, rule, side FROM rule_evaluations WHERE side IS NOT NULL)

SELECT
    c.rule,
    e.side,  -- On which its signal had left the band
    r.direction,
    r.author,  -- Author of the decision; NULL: no decision
    COUNT(*) AS decisions,  -- How often it was taken
    COUNT(*) FILTER (r.outcome = 'applied') AS applied,  -- How often it was carried out
    COUNT(*) FILTER (r.effect > 0) AS silenced,  -- Of the applied: how many silenced it
    COUNT(*) FILTER (r.effect < 0) AS not_silenced,  -- How many did not; the others are unknown
    COALESCE(SUM(r.violations), 0) AS violations,  -- That audits found in these decisions, as far as they list them
    COUNT(*) FILTER (r.mark = 'gold') AS gold,  -- How often people marked it so
    COUNT(*) FILTER (r.mark = 'bad') AS bad,  -- Likewise
    AVG(r.advantage) AS advantage,  -- Mean over these decisions, as reward; see decision_rewards
    AVG(r.reward) AS reward  -- Mean over these decisions
FROM decision_rewards AS r
JOIN citations AS c USING (run_id, number)
LEFT JOIN sides AS e ON e.run_id = r.run_id AND e.epoch = r.epoch AND e.rule = c.rule
SEMI JOIN (FROM runs WHERE level = 'repeatable') AS l ON l.run_id = r.run_id
GROUP BY ALL;
COMMENT ON VIEW rule_credit IS 'The outcome of each direction taken for each rule, by author, without watched runs';

-- Let in is only what every condition speaks for. A run that has something of another one needs the
-- other one's origins to be admitted as well.
CREATE VIEW curated_runs AS
WITH RECURSIVE sources AS MATERIALIZED (
    SELECT DISTINCT run_id, source FROM run_sources
),

kept_out AS (
    SELECT
        o.run_id,
        o.kind || ':' || COALESCE(o.name, 'unknown') AS tag,
        s.admitted IS FALSE AS withdrawn
    FROM origin_tags AS o
    LEFT JOIN origin_standing AS s USING (kind, name)
    WHERE s.admitted IS NOT TRUE AND NOT (o.own AND s.admitted IS NULL)
    UNION
    SELECT s.run_id, k.tag, k.withdrawn
    FROM kept_out AS k
    JOIN sources AS s ON s.source = k.run_id
),

kept AS (
    SELECT
        run_id,
        BOOL_OR(withdrawn) AS withdrawn,
        LIST(DISTINCT tag ORDER BY tag) AS tags
    FROM kept_out
    GROUP BY run_id
)

SELECT
    s.run_id,
    s.eligible IS TRUE AND LEN(s.why_not) = 0 AND k.run_id IS NULL AS let_in,  -- Whether it may
    s.usable IS TRUE AND k.run_id IS NULL AS usable,  -- Whether it may be learned from as a failure: as let_in, but exercised or not
    s.tainted OR COALESCE(k.withdrawn, FALSE) AS tainted,  -- As run_standing says, or because an origin that it has something of was withdrawn
    LIST_CONCAT(
        s.why_not,
        CASE WHEN s.eligible IS TRUE OR LEN(s.why_not) > 0 THEN CAST([] AS VARCHAR [])
            ELSE ['not eligible'] END,
        LIST_TRANSFORM(COALESCE(k.tags, []), lambda tag: tag || ' is not admitted')
    ) AS why_not  -- All that speaks against it: what run_standing says, and origins that are not admitted
FROM run_standing AS s
LEFT JOIN kept AS k USING (run_id);
COMMENT ON VIEW curated_runs IS 'Runs that training data may come from: those that meet every condition';

CREATE VIEW curated_decisions AS
WITH reviewed AS (
    SELECT
        run_id,
        number,
        BOOL_OR(mark = 'bad') AS bad,
        BOOL_OR(mark = 'gold' AND vouched) AS gold
    FROM decision_marks
    GROUP BY run_id, number
),

found AS (
    SELECT
        k.run_id,
        v.decision AS number,
        LIST(DISTINCT v.kind ORDER BY v.kind) AS kinds,
        BOOL_OR(COALESCE(v.emitter, '') NOT IN ('driver', 'harness')) AS own
    FROM audit_violations AS v
    JOIN counting_audits AS k USING (audit_id, idx)
    WHERE v.decision IS NOT NULL
    GROUP BY k.run_id, v.decision
),

unlisted AS (SELECT run_id FROM audits WHERE standing AND violations > violations_listed),

judged AS (
    SELECT
        d.*,
        COALESCE(m.gold AND NOT m.bad, FALSE) AS gold,
        COALESCE(v.own, FALSE) AS violated,
        LIST_FILTER([
            CASE WHEN d.author IS NULL THEN 'nobody decided it' END,
            CASE WHEN m.bad THEN 'it is marked bad' END,
            CASE WHEN v.kinds IS NOT NULL
                THEN 'the audit found ' || ARRAY_TO_STRING(v.kinds, ', ')
                WHEN u.run_id IS NOT NULL
                    THEN 'the audit does not list all violations that it found' END,
            CASE WHEN r.outcome = 'refused' THEN 'it could not be carried out' END
        ], lambda reason: reason IS NOT NULL) AS faults
    FROM decision_authors AS d
    LEFT JOIN reviewed AS m ON m.run_id = d.run_id AND m.number = d.number
    LEFT JOIN found AS v ON v.run_id = d.run_id AND v.number = d.number
    LEFT JOIN unlisted AS u ON u.run_id = d.run_id
    LEFT JOIN remedies AS r ON r.run_id = d.run_id AND r.decision = d.number
)

SELECT
    d.run_id,
    d.number,  -- Of the decision, from 1 in each run
    d.epoch,  -- The epoch whose evaluation is answered
    d.author,  -- Author of the decision; NULL: no decision
    d.call,  -- Number in the transcript; NULL: no model was asked
    d.request,  -- SHA-256 of the stored request; NULL: no model was asked
    d.gold,  -- Marked gold by a valid reviewer, and marked bad by none
    d.violated,  -- Whether the audit that counts names it in a violation that is not the harness's or the driver's
    COALESCE(c.let_in, FALSE) AS run_let_in,  -- Whether its run is let in
    COALESCE(c.usable, FALSE) AS run_usable,  -- Whether its run may be learned from as a failure
    d.faults,  -- What speaks against the decision itself
    run_let_in AND LEN(d.faults) = 0 AS let_in,  -- Its run is let in, and nothing speaks against it
    LIST_CONCAT(COALESCE(c.why_not, ['its run is unknown']), d.faults) AS why_not  -- What speaks against its run, then what against it
FROM judged AS d
LEFT JOIN curated_runs AS c USING (run_id);
COMMENT ON VIEW curated_decisions IS 'Decisions that may be training examples';

CREATE VIEW curated_answers AS
WITH grouped AS (
    SELECT
        d.run_id,
        d.epoch,
        d.call,
        MIN(o.number) AS number,
        LIST(o.number ORDER BY o.number) AS numbers,
        LIST_SORT(FLATTEN(LIST(o.cites))) AS rules,
        LIST(DISTINCT d.author ORDER BY d.author) AS authors,
        ANY_VALUE(d.request) AS request,
        LIST(
            CAST(ROW(o.cites, o.direction, o.params) AS VARCHAR)
            ORDER BY CAST(ROW(o.cites, o.direction, o.params) AS VARCHAR)
        ) AS does,
        BOOL_OR(d.gold) AS gold,
        BOOL_OR(d.violated) AS violated,
        BOOL_AND(d.run_usable AND d.author IS NOT NULL) AS open_to_use,
        BOOL_AND(d.run_usable AND LEN(d.faults) = 0) AS faultless,
        BOOL_AND(d.let_in) AS let_in
    FROM curated_decisions AS d
    JOIN decision_outcomes AS o USING (run_id, number)
    GROUP BY d.run_id, d.epoch, d.call
),

asked AS (
    SELECT t.run_id, c.number AS call, LIST_SORT(TRY_CAST(c.rules AS VARCHAR [])) AS rules
    FROM calls AS c
    JOIN transcripts AS t USING (transcript_id)
)

SELECT
    g.* EXCLUDE (open_to_use, faultless, let_in),
    a.rules IS NULL OR a.rules = g.rules AS whole,  -- Whether they answer each rule that was asked about, and no other
    g.open_to_use AND whole AS usable,  -- Whole, and their run may be learned from as a failure: may be shown as what not to do
    g.faultless AND whole AS sound,  -- As let_in, but its run exercised or not: may be shown as what to do where something else shows that it was right
    g.let_in AND whole AS let_in  -- Whole, and each is let in: may be shown as what to do
FROM grouped AS g
LEFT JOIN asked AS a ON a.run_id = g.run_id AND a.call = g.call;
COMMENT ON VIEW curated_answers IS 'Decisions that answer the same question; an example is made of one group';
COMMENT ON COLUMN curated_answers.epoch IS 'The epoch decided on';
COMMENT ON COLUMN curated_answers.call IS 'Number of the call in the transcript; NULL: no model was asked';
COMMENT ON COLUMN curated_answers.number IS 'Of the first of its decisions; with the run it names the example';
COMMENT ON COLUMN curated_answers.numbers IS 'Of all of them';
COMMENT ON COLUMN curated_answers.rules IS 'That they cite, in the order of their names';
COMMENT ON COLUMN curated_answers.authors IS 'Who made them';
COMMENT ON COLUMN curated_answers.request IS 'SHA-256 of the stored request; NULL: no model was asked';
COMMENT ON COLUMN curated_answers.does IS 'The remedies and their arguments, without the justifications';
COMMENT ON COLUMN curated_answers.gold IS 'Whether one of them is marked so';
COMMENT ON COLUMN curated_answers.violated IS 'Whether the audit that counts names one of them in a violation of its author';

CREATE VIEW preference_pairs AS
WITH answers AS MATERIALIZED (
    SELECT
        a.*,
        s.state,
        n.measured AS followed,
        f.validation_accuracy AS accuracy,
        TRY_CAST(r.data ->> '$.sizes.validation' AS BIGINT) AS examples
    FROM curated_answers AS a
    JOIN decision_states AS s ON s.run_id = a.run_id AND s.epoch = a.epoch
    LEFT JOIN decision_states AS n ON n.run_id = a.run_id AND n.epoch = CAST(a.epoch AS BIGINT) + 1
    JOIN counting_audits AS k ON k.run_id = a.run_id
    JOIN audit_scores AS f USING (audit_id, idx)
    JOIN run_starts AS r ON r.run_id = a.run_id
    WHERE a.usable
)

SELECT
    c.state,  -- As in decision_states
    c.epoch,  -- The last in which both runs were the same
    c.rules,  -- That both answer
    c.run_id AS chosen_run,  -- The run whose answer was better
    c.number AS chosen,  -- Number of the first decision of its answer
    r.run_id AS rejected_run,  -- The run whose answer was worse
    r.number AS rejected,  -- Number of the first decision of its answer
    c.accuracy - r.accuracy AS difference,  -- In validation accuracy, as the judge measured both
    TRY(
        2 * SQRT((c.accuracy * (1 - c.accuracy) + r.accuracy * (1 - r.accuracy)) / c.examples)
    ) AS noise,  -- Two standard errors of that difference, from the size of the validation set; NULL: unknown, and no export takes it
    r.violated  -- Whether the rejected answer broke the process, which the chosen one did not; such a pair needs no higher accuracy, but none that is lower by more than the noise
FROM answers AS c
JOIN answers AS r ON r.state = c.state AND r.rules = c.rules
WHERE
    c.let_in AND c.does <> r.does AND c.followed IS DISTINCT FROM r.followed
    AND (c.accuracy > r.accuracy OR (r.violated AND difference >= -noise));
COMMENT ON VIEW preference_pairs IS 'Two answers to the same state, after which two runs diverged; an export requires a difference above the noise, or a violation by the rejected answer alone';

-- What `proctor fork --decision` measured, in the forks' own audited records instead of its own words. The
-- recorded answer is that of the run, the other one that of the fork in the run's own order.
CREATE VIEW measured_pairs AS
WITH answers AS MATERIALIZED (
    FROM curated_answers
),

ends AS (
    SELECT run_id, val_loss AS loss, val_accuracy AS accuracy
    FROM epochs
    SEMI JOIN credit_forks USING (run_id)
    QUALIFY epoch = MAX(epoch) OVER (PARTITION BY run_id)
),

arms AS (
    SELECT
        c.credit_id,
        c.decision,
        c.arm,
        f.parent,
        f.epoch,
        ARG_MIN(c.run_id, c.seed) AS run_id,
        LIST(c.seed ORDER BY c.seed) AS seeds,
        LIST(c.run_id ORDER BY c.seed) AS runs,
        LIST(e.loss ORDER BY c.seed) AS losses,
        LIST(e.accuracy ORDER BY c.seed) AS accuracies,
        ANY_VALUE(a.number) AS number,
        ANY_VALUE(a.rules) AS rules,
        ANY_VALUE(a.does) AS does,
        BOOL_AND(a.sound) AS sound
    FROM credit_forks AS c
    JOIN forks AS f USING (run_id)
    JOIN ends AS e USING (run_id)
    JOIN curated_runs AS r USING (run_id)
    JOIN answers AS a ON a.run_id = c.run_id AND a.epoch = f.epoch
    GROUP BY c.credit_id, c.decision, c.arm, f.parent, f.epoch
    HAVING BOOL_AND(r.usable AND a.usable) AND COUNT(DISTINCT a.does) = 1
),

-- One question has one answer, and so one pair: of equal measurements, the first.
settled AS (
    SELECT credit_id, decision, arm, question, looks FROM decision_credit
    JOIN credit_starts USING (credit_id)
    WHERE why_not IS NULL AND better IS NOT NULL
    QUALIFY ROW_NUMBER() OVER (PARTITION BY question ORDER BY idx) = 1
)

SELECT
    m.credit_id,
    m.idx,  -- Ledger index of its result
    m.arm,  -- Name of the alternative
    m.better,  -- chosen or other, as the measurement says
    b.question,  -- As in decision_credit
    b.looks,  -- As in decision_credit
    a.run_id AS recorded_run,  -- The run whose decision was measured
    a.number AS recorded,  -- Number of the first decision of its answer
    o.run_id AS other_run,  -- The fork with the alternative, in the run's own order of the examples
    o.number AS other,  -- Number of the first decision of its answer
    m.better = 'chosen' AS kept,  -- Whether the recorded answer is the better one
    IF(kept, a.run_id, o.run_id) AS chosen_run,  -- The run of the better answer
    IF(kept, a.number, o.number) AS chosen,  -- Number of the first decision of the better answer
    IF(kept, o.run_id, a.run_id) AS rejected_run,  -- The run of the worse answer
    IF(kept, o.number, a.number) AS rejected,  -- Number of the first decision of the worse answer
    LIST_CONCAT(w.runs, o.runs) AS forks,  -- All runs that the measurement rests on; each was judged, and none is tainted
    w.losses AS recorded_losses,  -- Last validation losses of the forks with the recorded answer, by order of the examples
    o.losses AS other_losses,  -- Of those with the alternative
    w.accuracies AS recorded_accuracies,  -- Likewise, accuracies
    o.accuracies AS other_accuracies  -- Likewise, of those with the alternative
FROM credit_results AS m
JOIN credit_starts AS s USING (credit_id)
JOIN settled AS b
    ON b.credit_id = m.credit_id AND b.decision = m.decision AND b.arm = m.arm
JOIN answers AS a ON a.run_id = s.run_id AND LIST_CONTAINS(a.numbers, m.decision)
JOIN arms AS w
    ON w.credit_id = m.credit_id AND w.decision = m.decision AND w.arm = 'chosen'
        AND w.parent = s.run_id AND w.epoch = a.epoch AND w.does = a.does
JOIN arms AS o
    ON o.credit_id = m.credit_id AND o.decision = m.decision AND o.arm = m.arm
        AND o.parent = s.run_id AND o.epoch = a.epoch AND o.rules = a.rules AND o.does <> a.does
WHERE
    m.better IS NOT NULL AND w.seeds = o.seeds
    AND w.seeds = LIST_SORT(TRY_CAST(s.seeds AS BIGINT []))
    AND IF(kept, a.sound, a.usable AND o.sound);
COMMENT ON VIEW measured_pairs IS 'Two answers to one situation, of which measured credit says which is better; an export computes the intervals again';

-- A proposal shows what a change came to. One that nobody may learn from any more, or whose author no
-- operator has admitted, is kept out like a run.
CREATE VIEW curated_proposals AS
WITH asked AS (
    SELECT t.run_id AS proposal_id, ARG_MAX(c.model, c.idx) AS model
    FROM calls AS c
    JOIN transcripts AS t USING (transcript_id)
    WHERE c.model IS NOT NULL
    GROUP BY t.run_id
),

unread AS (
    SELECT DISTINCT e.stream_id FROM unreadable AS u JOIN events AS e USING (idx)
),

found AS (
    SELECT
        p.proposal_id,
        p.idx,
        COALESCE(a.model, s.proposer) AS author,
        c.outcome = 'promoted' AS accepted,
        p.tainted,
        c.outcome,
        EXISTS (
            SELECT 1 FROM checkpoint_reach AS r WHERE r.checkpoint_id = c.checkpoint
        ) AS rolled_back,
        p.proposal_id IN (SELECT stream_id FROM unread)
        OR p.line_id IN (SELECT stream_id FROM unread) AS unread
    FROM proposal_standing AS p
    JOIN infra_submissions AS s USING (proposal_id)
    LEFT JOIN infra_conclusions AS c USING (proposal_id)
    LEFT JOIN asked AS a USING (proposal_id)
),

reasoned AS (
    SELECT
        f.*,
        LIST_FILTER([
            CASE WHEN f.outcome IS NULL OR f.outcome NOT IN ('promoted', 'rejected', 'halted')
                THEN 'not judged' END,
            CASE WHEN f.tainted OR f.rolled_back THEN 'tainted' END,
            CASE WHEN f.unread THEN 'entry unreadable' END,
            CASE WHEN o.admitted IS NOT TRUE
                THEN 'model:' || f.author || ' is not admitted' END
        ], lambda reason: reason IS NOT NULL) AS why_not,
        o.admitted IS FALSE AS withdrawn
    FROM found AS f
    LEFT JOIN origin_standing AS o ON o.kind = 'model' AND o.name = f.author
)

SELECT
    proposal_id,
    idx,  -- Ledger index of its submission
    author,  -- The model that was asked for it, or else who proposed
    accepted,  -- Whether it was promoted; NULL: it has not ended
    LEN(why_not) = 0 AS let_in,  -- Whether it may
    tainted OR rolled_back OR COALESCE(withdrawn, FALSE) AS tainted,  -- As proposal_standing says, or because its checkpoint was rolled back or its author withdrawn
    why_not  -- What excludes it: not judged, tainted, entry unreadable, its author is not admitted
FROM reasoned;
COMMENT ON VIEW curated_proposals IS 'Proposals that may be training examples, rejected ones too';
