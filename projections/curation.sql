-- What may become training data, and what is known of it: origins, forces, states, rewards, pairs.

-- An admission counts where an operator signed it, a withdrawal always: doubt keeps things out.
CREATE VIEW origin_standing AS
SELECT
    kind,
    name,
    ARG_MAX(what, idx) = 'admitted' AS admitted,
    MAX(idx) AS idx,
    ARG_MAX(note, idx) AS note
FROM corpus_origins
WHERE what = 'withdrawn' OR signed_by IS NOT NULL
GROUP BY kind, name;
COMMENT ON VIEW origin_standing IS 'What operators said last of each origin of training data; what is not listed was never let in';
COMMENT ON COLUMN origin_standing.kind IS 'data or model';
COMMENT ON COLUMN origin_standing.name IS 'Fingerprint of the data, or the model as the policy names it';
COMMENT ON COLUMN origin_standing.admitted IS 'Whether it may enter exports; admissions count only if an operator signed them';
COMMENT ON COLUMN origin_standing.idx IS 'Ledger index of that word';
COMMENT ON COLUMN origin_standing.note IS 'Why';

CREATE VIEW decision_authors AS
WITH asked AS (
    SELECT
        t.run_id,
        c.epoch,
        c.number,
        c.model,
        c.request,
        CAST(c.rules AS VARCHAR []) AS rules
    FROM calls AS c
    JOIN transcripts AS t USING (transcript_id)
    WHERE c.model IS NOT NULL AND c.outcome = 'usable' AND c.action IN ('decide', 'repair')
),

answered AS (
    SELECT
        d.run_id,
        d.number,
        MAX(a.number) AS call,
        ARG_MAX(a.model, a.number) AS model,
        ARG_MAX(a.request, a.number) AS request
    FROM decision_outcomes AS d
    JOIN asked AS a
        ON a.run_id = d.run_id AND a.epoch = d.epoch AND LIST_HAS_ALL(a.rules, d.cites)
    GROUP BY d.run_id, d.number
)

SELECT
    d.run_id,
    d.number,
    d.epoch,
    d.source,
    CASE
        WHEN d.source = 'human' THEN 'human'
        WHEN d.source = 'policy' THEN COALESCE(
            a.model,
            s.policy ->> '$.proposer.playbook.name',
            s.policy ->> '$.playbook.name',
            s.policy ->> '$.proposer.name',
            s.policy ->> '$.proposer.model',
            s.policy ->> '$.name'
        )
    END AS author,
    a.call,
    a.model,
    a.request
FROM decisions AS d
JOIN run_starts AS s USING (run_id)
LEFT JOIN answered AS a USING (run_id, number);
COMMENT ON VIEW decision_authors IS 'Who made each decision, and what was asked of whom';
COMMENT ON COLUMN decision_authors.run_id IS 'The run';
COMMENT ON COLUMN decision_authors.number IS 'Of the decision, from 1 in each run';
COMMENT ON COLUMN decision_authors.epoch IS 'The epoch whose evaluation is answered';
COMMENT ON COLUMN decision_authors.source IS 'driver, human or policy';
COMMENT ON COLUMN decision_authors.author IS 'human, a model as the policy names it, or a policy without one; NULL: nobody decided';
COMMENT ON COLUMN decision_authors.call IS 'Number in the transcript of the last usable call about its rules; NULL: no model was asked';
COMMENT ON COLUMN decision_authors.model IS 'The model that was asked; a person may have said something else in its place';
COMMENT ON COLUMN decision_authors.request IS 'SHA-256 of the stored request';

CREATE VIEW run_origins AS
SELECT
    run_id,
    'data' AS kind,
    COALESCE(data ->> '$.fingerprints.train', data ->> '$.fingerprint') AS name
FROM run_starts
UNION
SELECT run_id, 'model', author
FROM decision_authors
WHERE source <> 'driver'
UNION
SELECT run_id, 'model', model
FROM decision_authors
WHERE model IS NOT NULL;
COMMENT ON VIEW run_origins IS 'Where what is in each run came from: its data, and who decided';
COMMENT ON COLUMN run_origins.run_id IS 'The run';
COMMENT ON COLUMN run_origins.kind IS 'data or model';
COMMENT ON COLUMN run_origins.name IS 'Fingerprint of the training examples, or who decided; NULL: unknown, which no operator can let in';

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
            FILTER (s.admitted IS NOT TRUE) AS kept_out,
        BOOL_OR(s.admitted IS FALSE) AS withdrawn
    FROM run_origins AS o
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
    s.policy ->> '$.name' AS policy_name,
    COALESCE(a.decided_by, CAST([] AS VARCHAR [])) AS decided_by,
    COALESCE(c.asked, 0) AS asked,
    CASE WHEN c.unstated = 0 THEN c.temperature END AS temperature,
    LIST_SORT(COALESCE(c.seeds, CAST([] AS BIGINT []))) AS sampling_seeds,
    TRY_CAST(s.config ->> '$.seed' AS BIGINT) AS training_seed,
    s.config ->> '$.dataset' AS dataset,
    COALESCE(s.data ->> '$.fingerprints.train', s.data ->> '$.fingerprint') AS data_fingerprint,
    p.name AS provocation,
    e.origins,
    COALESCE(e.kept_out, CAST([] AS VARCHAR [])) AS kept_out,
    e.withdrawn,
    u.accuracy_score,
    u.process_score,
    u.validation_accuracy
FROM run_starts AS s
JOIN entered AS e USING (run_id)
LEFT JOIN authors AS a USING (run_id)
LEFT JOIN sampled AS c USING (run_id)
LEFT JOIN provocations AS p USING (run_id)
LEFT JOIN (
    SELECT * FROM audits
    WHERE scored_idx IS NOT NULL
    QUALIFY ROW_NUMBER() OVER (PARTITION BY run_id ORDER BY scored_idx DESC) = 1
) AS u USING (run_id);
COMMENT ON VIEW run_forces IS 'What shaped each run, for choosing among runs: who decided, how it was sampled, where it came from';
COMMENT ON COLUMN run_forces.run_id IS 'The run';
COMMENT ON COLUMN run_forces.checkpoint IS 'Version of the infrastructure that the run was made under';
COMMENT ON COLUMN run_forces.policy_name IS 'Who was asked to decide';
COMMENT ON COLUMN run_forces.decided_by IS 'Authors of its decisions';
COMMENT ON COLUMN run_forces.asked IS 'Requests to models for decisions';
COMMENT ON COLUMN run_forces.temperature IS 'The highest that was asked for; NULL: of some request it is not known, or none was made';
COMMENT ON COLUMN run_forces.sampling_seeds IS 'Seeds that requests named';
COMMENT ON COLUMN run_forces.training_seed IS 'Of initialisation and data order';
COMMENT ON COLUMN run_forces.dataset IS 'Name of the dataset';
COMMENT ON COLUMN run_forces.data_fingerprint IS 'Of the training examples';
COMMENT ON COLUMN run_forces.provocation IS 'The fault that was put in on purpose; NULL: none';
COMMENT ON COLUMN run_forces.origins IS 'Tags, each kind:name';
COMMENT ON COLUMN run_forces.kept_out IS 'Those that are not admitted now';
COMMENT ON COLUMN run_forces.withdrawn IS 'Whether one of them was admitted or refused once, and stands withdrawn';
COMMENT ON COLUMN run_forces.accuracy_score IS 'From 0 to 1, of the latest finished audit';
COMMENT ON COLUMN run_forces.process_score IS 'From 0 to 1, likewise';
COMMENT ON COLUMN run_forces.validation_accuracy IS 'As the judge measured it in the latest finished audit, as the scores';

-- Two runs are in the same state if all that was measured so far is the same, to the last bit.
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
            e.noise_scale, e.norm_noise_scale, e.signal_to_noise,
            e.lr, e.batch_size, e.accumulation, e.clip_norm,
            l.parts, a.parts, r.parts
        ) AS VARCHAR)) AS print
    FROM epochs AS e
    LEFT JOIN layers AS l USING (run_id, epoch)
    LEFT JOIN activations AS a USING (run_id, epoch)
    LEFT JOIN rules AS r USING (run_id, epoch)
)

SELECT
    p.run_id,
    p.epoch,
    SHA256(CAST(ROW(
        s.config_hash,
        s.rules_hash,
        s.spec,
        s.data,
        STRING_AGG(p.print, '') OVER (PARTITION BY p.run_id ORDER BY p.epoch)
    ) AS VARCHAR)) AS state
FROM prints AS p
JOIN run_starts AS s USING (run_id);
COMMENT ON VIEW decision_states IS 'What had been seen at the end of each epoch, as a hash: equal where everything measured is equal to the last bit';
COMMENT ON COLUMN decision_states.run_id IS 'The run';
COMMENT ON COLUMN decision_states.epoch IS 'From 0';
COMMENT ON COLUMN decision_states.state IS 'SHA-256 over configuration, data, model and all measurements up to the epoch';

CREATE VIEW decision_marks AS
SELECT d.run_id, d.number, r.mark, r.note, r.idx, r.signed_by IS NOT NULL AS vouched
FROM reviews AS r
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
COMMENT ON VIEW decision_marks IS 'What people said of decisions that stand: in reviews, and when they approved them';
COMMENT ON COLUMN decision_marks.run_id IS 'The run';
COMMENT ON COLUMN decision_marks.number IS 'Of the decision, from 1 in each run';
COMMENT ON COLUMN decision_marks.mark IS 'gold or bad';
COMMENT ON COLUMN decision_marks.note IS 'In words';
COMMENT ON COLUMN decision_marks.idx IS 'Ledger index of the word';
COMMENT ON COLUMN decision_marks.vouched IS 'Signed by an operator, or said when it was approved; without it only bad counts';

CREATE VIEW decision_rewards AS
WITH judged AS (
    SELECT a.run_id, a.validation_accuracy, s.config_hash, s.spec::VARCHAR AS spec,
        s.data::VARCHAR AS data
    FROM audits AS a
    JOIN run_starts AS s USING (run_id)
    WHERE a.scored_idx IS NOT NULL
    QUALIFY ROW_NUMBER() OVER (PARTITION BY a.run_id ORDER BY a.scored_idx DESC) = 1
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
    SELECT run_id, decision, COUNT(*) AS violations
    FROM violations
    WHERE decision IS NOT NULL
    GROUP BY run_id, decision
),

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
    d.number,
    d.epoch,
    d.cites,
    d.direction,
    d.outcome,
    w.author,
    g.advantage,
    e.effect,
    CASE WHEN j.run_id IS NOT NULL THEN COALESCE(f.violations, 0) END AS violations,
    m.mark,
    CASE WHEN j.run_id IS NOT NULL THEN
        COALESCE(g.advantage, 0) + 0.1 * COALESCE(e.effect, 0)
        - 0.1 * COALESCE(f.violations, 0)
        + CASE m.mark WHEN 'gold' THEN 0.1 WHEN 'bad' THEN -0.1 ELSE 0 END
    END AS reward
FROM decision_outcomes AS d
JOIN decision_authors AS w USING (run_id, number)
LEFT JOIN judged AS j USING (run_id)
LEFT JOIN against AS g USING (run_id)
LEFT JOIN effects AS e ON e.run_id = d.run_id AND e.decision = d.number
LEFT JOIN faults AS f ON f.run_id = d.run_id AND f.decision = d.number
LEFT JOIN marks AS m ON m.run_id = d.run_id AND m.number = d.number;
COMMENT ON VIEW decision_rewards IS 'What each decision is worth, and the parts of it; a model that is trained by reward takes it from here';
COMMENT ON COLUMN decision_rewards.run_id IS 'The run';
COMMENT ON COLUMN decision_rewards.number IS 'Of the decision, from 1 in each run';
COMMENT ON COLUMN decision_rewards.epoch IS 'The epoch whose evaluation is answered';
COMMENT ON COLUMN decision_rewards.cites IS 'Rules, in the order of their names';
COMMENT ON COLUMN decision_rewards.direction IS 'The remedy asked for, or defer';
COMMENT ON COLUMN decision_rewards.outcome IS 'applied, refused, restart, deferred or open';
COMMENT ON COLUMN decision_rewards.author IS 'Who decided; NULL: nobody did';
COMMENT ON COLUMN decision_rewards.advantage IS 'Validation accuracy of its run, above the mean of judged runs from the same start; NULL: there is no other';
COMMENT ON COLUMN decision_rewards.effect IS '1: its remedy silenced the rules that it cites; -1: it did not; NULL: cannot be told';
COMMENT ON COLUMN decision_rewards.violations IS 'That the latest audit found in it; NULL: not audited';
COMMENT ON COLUMN decision_rewards.mark IS 'gold or bad, as people said; NULL: unmarked';
COMMENT ON COLUMN decision_rewards.reward IS 'advantage, and a tenth each: plus effect, minus violations, plus gold or minus bad; NULL: its run is not judged';

CREATE VIEW rule_credit AS
SELECT
    c.rule,
    e.side,
    r.direction,
    r.author,
    COUNT(*) AS decisions,
    COUNT(*) FILTER (r.outcome = 'applied') AS applied,
    COUNT(*) FILTER (r.effect > 0) AS silenced,
    COUNT(*) FILTER (r.effect < 0) AS not_silenced,
    COALESCE(SUM(r.violations), 0) AS violations,
    COUNT(*) FILTER (r.mark = 'gold') AS gold,
    COUNT(*) FILTER (r.mark = 'bad') AS bad,
    AVG(r.advantage) AS advantage,
    AVG(r.reward) AS reward
FROM decision_rewards AS r
JOIN citations AS c USING (run_id, number)
LEFT JOIN rule_evaluations AS e ON e.run_id = r.run_id AND e.epoch = r.epoch AND e.rule = c.rule
GROUP BY ALL;
COMMENT ON VIEW rule_credit IS 'What came of each direction that was taken for each rule, by who took it';
COMMENT ON COLUMN rule_credit.rule IS 'R1 to R7';
COMMENT ON COLUMN rule_credit.side IS 'On which its signal had left the band';
COMMENT ON COLUMN rule_credit.direction IS 'The remedy asked for, or defer';
COMMENT ON COLUMN rule_credit.author IS 'Who decided; NULL: nobody did';
COMMENT ON COLUMN rule_credit.decisions IS 'How often it was taken';
COMMENT ON COLUMN rule_credit.applied IS 'How often it was carried out';
COMMENT ON COLUMN rule_credit.silenced IS 'Of the applied: how many silenced it';
COMMENT ON COLUMN rule_credit.not_silenced IS 'How many did not; of the rest it cannot be told';
COMMENT ON COLUMN rule_credit.violations IS 'That audits found in these decisions';
COMMENT ON COLUMN rule_credit.gold IS 'How often people marked it so';
COMMENT ON COLUMN rule_credit.bad IS 'Likewise';
COMMENT ON COLUMN rule_credit.advantage IS 'Mean over these decisions, as reward; see decision_rewards';
COMMENT ON COLUMN rule_credit.reward IS 'Mean over these decisions';
