-- # Runs

-- ## runs: How did each run go?
-- Newest first. If the axis is `unexercised`, the process score means little. Compare one level only.
-- = run_id, level, dataset, policy_name, state, epochs, best_val_accuracy, verdict, accuracy_score, process_score, process_axis
SELECT
    run_id, level, dataset, policy_name, state, epochs, best_val_accuracy, verdict, accuracy_score,
    process_score, process_axis
FROM run_summary
ORDER BY started_at DESC
LIMIT 50;

-- ## running: Which runs are in progress, and how far are they?
-- A run whose process was killed stays in progress until the next command that appends closes it.
-- = run_id, started_at, epochs, epochs_planned, best_val_accuracy
SELECT run_id, started_at, epochs, epochs_planned, best_val_accuracy
FROM run_summary
WHERE state = 'running'
ORDER BY started_at;

-- ## newest-run: What was measured in the newest run?
-- One row for each epoch. NULL was not measurable, NaN was measured.
-- = epoch, train_loss, val_loss, val_accuracy, max_layer_grad_norm, dead_share, lr
SELECT epoch, train_loss, val_loss, val_accuracy, max_layer_grad_norm, dead_share, lr
FROM epochs
WHERE run_id = (SELECT ARG_MAX(run_id, idx) FROM run_starts)
ORDER BY epoch;

-- ## divergence: When did a loss become NaN or infinite?
-- The first epoch of each run whose training loss is NaN or infinite.
-- = run_id, epoch, epochs
SELECT run_id, MIN(epoch) AS epoch, COUNT(*) AS epochs
FROM epochs
WHERE NOT ISFINITE(train_loss)
GROUP BY run_id
ORDER BY epoch
LIMIT 100;

-- ## learning-rates: Which learning rates did best?
-- Reads a value inside a JSON column; one ranking for each level of evidence and data set.
-- = level, dataset, lr, runs, median_accuracy, best_accuracy
SELECT
    r.level,
    r.dataset,
    TRY_CAST(r.config ->> '$.lr' AS DOUBLE) AS lr,
    COUNT(*) AS runs,
    MEDIAN(s.best_val_accuracy) AS median_accuracy,
    MAX(s.best_val_accuracy) AS best_accuracy
FROM runs AS r
JOIN run_summary AS s USING (run_id)
GROUP BY ALL
ORDER BY r.level DESC, r.dataset, median_accuracy DESC;

-- ## policies: Which policy does best?
-- Judged runs only; one ranking for each level of evidence and data set.
-- = level, dataset, policy_name, runs, failed, accuracy_score, process_score
SELECT
    level,
    dataset,
    policy_name,
    COUNT(*) AS runs,
    COUNT(*) FILTER (verdict = 'failed') AS failed,
    AVG(accuracy_score) AS accuracy_score,
    AVG(process_score) FILTER (process_axis = 'exercised') AS process_score
FROM run_summary
WHERE verdict IS NOT NULL
GROUP BY ALL
ORDER BY level DESC, dataset, accuracy_score DESC;

-- ## epoch-times: How long did epochs take?
-- From the times of the ledger's entries, so decisions in between are included.
-- = run_id, epochs, median_s, longest_s
WITH steps AS (
    SELECT
        stream_id AS run_id,
        EPOCH(time - LAG(time) OVER (PARTITION BY stream_id ORDER BY version)) AS seconds
    FROM events
    WHERE name = 'run.epoch_measured'
)

SELECT run_id, COUNT(seconds) AS epochs, MEDIAN(seconds) AS median_s, MAX(seconds) AS longest_s
FROM steps
GROUP BY run_id
ORDER BY median_s DESC
LIMIT 50;

-- ## restarts: Which runs was a run restarted from?
-- Ancestors of every restarted run, nearest first.
-- = run_id, distance, ancestor, best_val_accuracy
SELECT l.run_id, l.distance, l.ancestor, s.best_val_accuracy
FROM run_lineage AS l
JOIN run_summary AS s ON s.run_id = l.ancestor
WHERE l.distance > 0
ORDER BY l.run_id, l.distance
LIMIT 100;

-- # Rules and remedies

-- ## firings: Which rules fire, and when?
-- By groups of ten epochs.
-- = rule, from_epoch, evaluated, fired, share
SELECT
    rule,
    epoch // 10 * 10 AS from_epoch,
    COUNT(*) AS evaluated,
    COUNT(*) FILTER (fired) AS fired,
    AVG(CAST(fired AS INTEGER)) AS share
FROM rule_evaluations
GROUP BY ALL
ORDER BY rule, from_epoch;

-- ## unanswered: Which firings were not answered?
-- Rules that are advisory in their run are omitted.
-- = run_id, rule, firings, first_epoch
SELECT run_id, rule, COUNT(*) AS firings, MIN(epoch) AS first_epoch
FROM rule_heatmap
WHERE fired AND NOT waived AND outcome IS NULL
GROUP BY run_id, rule
ORDER BY firings DESC
LIMIT 100;

-- ## exploding-layer: Which layer has the exploding gradients?
-- Over all epochs in which R7 fired.
-- = layer, epochs, largest
WITH behind AS (
    SELECT ARG_MAX(layer, grad_norm) AS layer, MAX(grad_norm) AS largest
    FROM layer_metrics
    SEMI JOIN (FROM rule_evaluations WHERE rule = 'R7' AND fired) USING (run_id, epoch)
    WHERE rank >= 2
    GROUP BY run_id, epoch
)

SELECT layer, COUNT(*) AS epochs, MAX(largest) AS largest
FROM behind
GROUP BY layer
ORDER BY epochs DESC
LIMIT 20;

-- ## silencing: Which remedies silence the rule that they are for?
-- Measured three epochs after the remedy; remedies without that measurement are not counted.
-- = rule, direction, told, worked, share
SELECT
    f.rule,
    d.direction,
    COUNT(f.worked) AS told,
    COUNT(*) FILTER (f.worked) AS worked,
    AVG(CAST(f.worked AS INTEGER)) AS share
FROM remedy_effects AS f
JOIN decisions AS d ON d.run_id = f.run_id AND d.number = f.decision
GROUP BY ALL
ORDER BY f.rule, told DESC;

-- ## after-remedies: What did the loss do after each kind of remedy?
-- Measured validation loss in the epoch of the remedy and three epochs later, if both are finite.
-- = direction, remedies, change, better
SELECT
    d.direction,
    COUNT(*) AS remedies,
    AVG(later.val_loss - before.val_loss) AS change,
    COUNT(*) FILTER (later.val_loss < before.val_loss) AS better
FROM remedies AS r
JOIN decisions AS d ON d.run_id = r.run_id AND d.number = r.decision
JOIN epochs AS before ON before.run_id = r.run_id AND before.epoch = r.epoch
JOIN epochs AS later ON later.run_id = r.run_id AND later.epoch = r.epoch + 3
WHERE
    r.outcome = 'applied' AND NOT before.losses_reported
    AND ISFINITE(before.val_loss) AND ISFINITE(later.val_loss)
GROUP BY d.direction
ORDER BY change;

-- ## deferrals: Which deferrals never cleared?
-- Neither a silent rule nor a remedy has cleared them.
-- = run_id, epoch, rule, deferred_to
SELECT run_id, epoch, rule, deferred_to
FROM deferrals
WHERE cleared_epoch IS NULL
ORDER BY run_id, epoch
LIMIT 100;

-- ## provoked: Which provoked faults are detected and remedied?
-- Faults that were put into runs on purpose.
-- = name, runs, noticed, remedied, last_val_accuracy
SELECT
    name,
    COUNT(*) AS runs,
    COUNT(*) FILTER (fired) AS noticed,
    COUNT(remedied_epoch) AS remedied,
    AVG(last_val_accuracy) AS last_val_accuracy
FROM provocation_outcomes
GROUP BY name
ORDER BY name;

-- # Decisions and deciders

-- ## decisions: What was decided in the newest run, and why?
-- With the author's justification and the outcome.
-- = epoch, source, cites, direction, params, outcome, reason, justification
SELECT epoch, source, cites, direction, params, outcome, reason, justification
FROM decision_outcomes
WHERE run_id = (SELECT ARG_MAX(run_id, idx) FROM decisions)
ORDER BY number;

-- ## costs: What does a usable answer of each model cost?
-- The cost covers only calls with a known price.
-- = model, runs, asked, usable_share, cost_of_usable, seconds_a_call
SELECT
    model,
    COUNT(*) AS runs,
    TRY_CAST(SUM(asked) AS BIGINT) AS asked,
    SUM(usable) / SUM(asked) AS usable_share,
    SUM(cost) / SUM(usable) AS cost_of_usable,
    SUM(seconds) / SUM(calls) AS seconds_a_call
FROM call_summary
WHERE asked > 0
GROUP BY model
ORDER BY usable_share DESC;

-- ## unusable: Why could answers not be used?
-- With an example of each problem.
-- = model, outcome, problem, times, example
SELECT model, outcome, problem, COUNT(*) AS times, ANY_VALUE(response) AS example
FROM calls
WHERE model IS NOT NULL AND problem IS NOT NULL
GROUP BY model, outcome, problem
ORDER BY times DESC
LIMIT 50;

-- ## votes: Where did votes disagree?
-- Decisions with the least agreement first.
-- = run_id, epoch, rule, agreement, chosen, votes
SELECT t.run_id, v.epoch, v.rule, v.agreement, v.chosen, v.votes
FROM votes AS v
JOIN transcripts AS t USING (transcript_id)
ORDER BY v.agreement, v.idx
LIMIT 50;

-- # Audits

-- ## failed-gates: Which steps of the audit do runs fail?
-- Over all finished audits. `not_run` follows a step that failed.
-- = step, name, status, audits
SELECT step, name, status, COUNT(*) AS audits
FROM audit_steps
GROUP BY ALL
ORDER BY step, audits DESC;

-- ## violations: What must change so that a violation does not recur?
-- The prompt, the policy (it was told and did it again, or no model was asked), the harness, or a person.
-- = cause, kind, rule, times
SELECT cause, kind, rule, SUM(times) AS times
FROM violation_causes
GROUP BY ALL
ORDER BY times DESC;

-- ## unaudited: Which runs were never audited?
-- Ended runs only.
-- = run_id, ended_at, state, best_val_accuracy
SELECT run_id, ended_at, state, best_val_accuracy
FROM run_summary
WHERE audit_id IS NULL AND state <> 'running'
ORDER BY ended_at DESC
LIMIT 50;

-- # Campaigns

-- ## campaigns: Did a campaign improve from one attempt to the next?
-- Abandoned attempts are omitted.
-- = campaign_id, number, validation_accuracy, process_score, gained, violations, cost, place
SELECT
    campaign_id,
    number,
    validation_accuracy,
    process_score,
    process_score - LAG(process_score) OVER (PARTITION BY campaign_id ORDER BY number) AS gained,
    violations,
    cost,
    place
FROM campaign_progress
WHERE NOT abandoned
ORDER BY campaign_id, number
LIMIT 100;

-- # Training data

-- ## excluded: Why are runs excluded from training data?
-- A run can have several reasons. By default nothing is admitted.
-- = reason, runs
WITH reasons AS (SELECT run_id, UNNEST(why_not) AS reason FROM curated_runs)

SELECT reason, COUNT(*) AS runs
FROM reasons
GROUP BY reason
ORDER BY runs DESC;

-- ## tainted: Which runs are tainted, since when, and by what?
-- `tainted_idx` is the index of the entry from which the taint follows.
-- = run_id, checkpoint, tainted_idx, tainted_by, taint_reasons
SELECT run_id, checkpoint, tainted_idx, tainted_by, taint_reasons
FROM run_standing
WHERE tainted
ORDER BY tainted_idx
LIMIT 100;

-- ## tainted-uses: What were tainted runs used for?
-- Later runs, prompts, proposals and checkpoints. For exports use `proctor data why`.
-- = used_for, what, run_id, detail
SELECT used_for, what, run_id, detail
FROM tainted_uses
ORDER BY idx
LIMIT 100;

-- ## tainted-exports: Was it tainted already when I exported it?
-- Runs that existed when an export was made and were tainted later.
-- = export_id, as_of, run_id, tainted_idx
SELECT e.export_id, e.as_of, s.run_id, s.tainted_idx
FROM exports AS e
JOIN run_standing AS s ON s.idx <= e.as_of
WHERE s.tainted AND s.tainted_idx > e.as_of
ORDER BY e.idx, s.idx
LIMIT 100;

-- ## admitted: Which data and models may enter training data?
-- The latest admission or withdrawal of each. An admission counts only with an operator's signature.
-- = kind, name, admitted, note, runs
SELECT o.kind, o.name, o.admitted, o.note, COUNT(r.run_id) AS runs
FROM origin_standing AS o
LEFT JOIN run_origins AS r USING (kind, name)
GROUP BY ALL
ORDER BY o.kind, o.name;

-- ## decision-credit: What was each answer to a rule worth?
-- By rule, side and remedy, over all runs but watched ones.
-- = rule, side, direction, decisions, silenced, not_silenced, violations, advantage, reward
SELECT rule, side, direction, decisions, silenced, not_silenced, violations, advantage, reward
FROM rule_credit
ORDER BY decisions DESC
LIMIT 50;

-- # The system that changes itself

-- ## checkpoints: What is the state of each checkpoint?
-- In the order of the chain. A rollback includes all descendants.
-- = line_id, place, checkpoint_id, origin, active, rolled_back, rollback_reason, runs, eligible_runs
SELECT
    line_id, place, checkpoint_id, origin, active, rolled_back, rollback_reason, runs, eligible_runs
FROM checkpoint_standing
ORDER BY line_id, idx;

-- ## proposals: What became of proposals, and who approved them?
-- Newest first.
-- = created_at, proposer, trigger, tier, status, verdict, approved_by, reason, rationale
SELECT created_at, proposer, trigger, tier, status, verdict, approved_by, reason, rationale
FROM infra_proposals
ORDER BY idx DESC
LIMIT 50;

-- ## failed-tasks: Which tasks do candidates fail?
-- Tasks of the reference set, over all proposals.
-- = task, asked, failed, problem
SELECT task, COUNT(*) AS asked, COUNT(*) FILTER (NOT success) AS failed, ANY_VALUE(problem) AS problem
FROM infra_task_scores
WHERE arm = 'candidate'
GROUP BY task
ORDER BY failed DESC, task;

-- ## techniques: Which evolution technique finds improvements?
-- Rounds by technique, with the outcome of their proposals.
-- = technique, rounds, proposals, promoted, calls
SELECT
    r.technique,
    COUNT(*) AS rounds,
    COUNT(r.proposal_id) AS proposals,
    COUNT(*) FILTER (c.outcome = 'promoted') AS promoted,
    TRY_CAST(SUM(r.calls) AS BIGINT) AS calls
FROM evolution_rounds AS r
LEFT JOIN infra_conclusions AS c USING (proposal_id)
GROUP BY r.technique
ORDER BY promoted DESC;

-- ## drift: Does a line become worse although each change passed?
-- Six metrics and the code's size for each checkpoint.
-- = line_id, place, checkpoint_id, reference_success, budget_utilisation, retrieval_precision, production_success, validation_pass, proposal_acceptance, complexity
SELECT
    line_id,
    place,
    checkpoint_id,
    reference_success,
    budget_utilisation,
    retrieval_precision,
    production_success,
    validation_pass,
    proposal_acceptance,
    complexity
FROM checkpoint_metrics
ORDER BY line_id, place;

-- ## alarms: Which alarms has no operator answered?
-- Oldest first.
-- = time, line_id, number, kind, checkpoint_id, detail
SELECT time, line_id, number, kind, checkpoint_id, detail
FROM alarms
WHERE open
ORDER BY idx;

-- ## culprit: Which checkpoint made it worse, and how sure is that?
-- Every bisection, with its result so far.
-- = bisection_id, suspects, probes, likeliest, probability, ended, culprit, rolled_back, reason
SELECT bisection_id, suspects, probes, likeliest, probability, ended, culprit, rolled_back, reason
FROM bisection_standing
ORDER BY idx;

-- ## suspects: How probable is each suspect?
-- With an earlier `as_of`: after an earlier probe.
-- = bisection_id, number, checkpoint_id, against, probability
SELECT bisection_id, number, checkpoint_id, against, probability
FROM bisection_posterior
ORDER BY bisection_id, probability DESC, number;

-- ## salvaged: What was salvaged after a culprit?
-- Changes that were rolled back with a culprit and proposed again without it.
-- = culprit, original, proposal_id, status
SELECT s.culprit, s.original, s.proposal_id, p.status
FROM salvages AS s
JOIN infra_proposals AS p USING (proposal_id)
ORDER BY s.idx;

-- # The ledger itself

-- ## newest-entries: What are the newest entries?
-- Use these indexes with `proctor log --entry`, `proctor export proof` and `--as-of`.
-- = idx, time, name, stream_id, version
SELECT idx, time, name, stream_id, version
FROM events
ORDER BY idx DESC
LIMIT 20;

-- ## entry-kinds: How many entries of each kind are there?
-- With the time of the first and the last one.
-- = name, entries, first, last
SELECT name, COUNT(*) AS entries, MIN(time) AS first, MAX(time) AS last
FROM events
GROUP BY name
ORDER BY entries DESC;

-- ## days: How much happened on each day?
-- A stream is a run, an audit, a campaign, a proposal and so on.
-- = day, entries, streams, runs
SELECT
    CAST(time AS DATE) AS day,
    COUNT(*) AS entries,
    COUNT(DISTINCT stream_id) AS streams,
    COUNT(*) FILTER (name = 'run.started') AS runs
FROM events
GROUP BY day
ORDER BY day DESC
LIMIT 100;

-- ## keys: Which keys were granted or revoked?
-- `proctor keys list` shows which keys are in force.
-- = idx, name, role, vkey, signed_as, signed_by
SELECT idx, name, (body ->> '$.role') AS role, (body ->> '$.vkey') AS vkey, signed_as, signed_by
FROM authority_events
ORDER BY idx;
