-- Written by `python docs/studies pages` from the declarations in aggregates/: a table for each
-- event that becomes one row of a table of its own.

CREATE TABLE run_starts (
    run_id VARCHAR NOT NULL,  -- The run
    idx BIGINT NOT NULL,
    config JSON NOT NULL,  -- The whole configuration
    config_hash VARCHAR NOT NULL,  -- SHA-256 of config as canonical JSON (sorted keys, no spaces)
    rules JSON NOT NULL,  -- The rules' configuration: profile, signals, thresholds, windows; names, if not R1 to R7
    rules_hash VARCHAR NOT NULL,  -- SHA-256 of rules, likewise
    spec JSON NOT NULL,  -- The initial model specification
    data JSON NOT NULL,  -- Dataset, sizes and SHA-256 fingerprints of the splits
    environment JSON NOT NULL,  -- Versions, machine, thread count, SHA-256 of the files that decide a run: code, prompts and numbers
    policy JSON NOT NULL,  -- The policy's name and its own numbers
    parent_run VARCHAR,  -- The run that scheduled this one as its restart, or null
    campaign VARCHAR,  -- The campaign of which it is an attempt, or null
    checkpoint VARCHAR  -- The label: the checkpoint whose code it ran, or null
);
COMMENT ON TABLE run_starts IS 'The start of a run: everything that goes into it before its first step. The view runs is easier to query (event run.started)';

CREATE TABLE provocations (
    run_id VARCHAR NOT NULL,  -- The run
    idx BIGINT NOT NULL,
    name VARCHAR NOT NULL,  -- Name in the catalogue
    seed BIGINT NOT NULL,  -- What its severity and its place are drawn from
    changes JSON NOT NULL,  -- What it did to settings, weights, biases or loss
    expects JSON NOT NULL  -- Rules that it should make fire
);
COMMENT ON TABLE provocations IS 'A fault that was put into a run on purpose. It is recorded before the first epoch if, and only if, config names one. The view provocation_outcomes shows its effect (event run.provoked)';

CREATE TABLE forks (
    run_id VARCHAR NOT NULL,  -- The run
    idx BIGINT NOT NULL,
    parent VARCHAR NOT NULL,  -- The run that it goes on from
    epoch INTEGER NOT NULL,  -- The last epoch that both share
    digest VARCHAR NOT NULL,  -- SHA-256 of what both recorded up to then
    state VARCHAR NOT NULL,  -- SHA-256 of the training state after that epoch, which is a blob; empty where a watched loop was resumed from a checkpoint of its own, which the decisions on that epoch precede
    orders JSON NOT NULL  -- Other orders of the examples, each with after (an epoch) and seed (0: the run's own order); those of the parent come first
);
COMMENT ON TABLE forks IS 'A run that goes on from a recorded epoch of another run. Its stream repeats what the parent recorded up to the state after that epoch; the decisions on that epoch are its own (event run.forked)';

CREATE TABLE weights (
    run_id VARCHAR NOT NULL,  -- The run
    idx BIGINT NOT NULL,
    epoch INTEGER NOT NULL,  -- The epoch behind which they were saved
    kind VARCHAR NOT NULL,  -- best or last
    sha256 VARCHAR NOT NULL,  -- SHA-256 of the safetensors file, which is a blob
    size BIGINT NOT NULL,
    spec JSON NOT NULL,  -- Model specification that the weights belong to
    probe JSON NOT NULL  -- mode (of BatchNorm), batch_sha256, layer_norms on the fixed probe batch
);
COMMENT ON TABLE weights IS 'Saved parameters of the latest epoch; the newest of each kind counts (event run.weights_saved)';

CREATE TABLE snapshots (
    run_id VARCHAR NOT NULL,  -- The run
    idx BIGINT NOT NULL,
    epoch INTEGER NOT NULL,  -- The epoch after which it was saved, before its decisions
    sha256 VARCHAR NOT NULL,  -- Name of the stored file
    size BIGINT NOT NULL,
    seconds DOUBLE NOT NULL  -- That saving took
);
COMMENT ON TABLE snapshots IS 'The training state after an epoch and before its decisions. It is saved where config asks for it with snapshots (event run.snapshot_saved)';

CREATE TABLE run_file_saved (
    run_id VARCHAR NOT NULL,  -- The run
    idx BIGINT NOT NULL,
    epoch INTEGER NOT NULL,  -- The latest measured epoch
    name VARCHAR NOT NULL,  -- File name, without a folder
    sha256 VARCHAR NOT NULL,  -- SHA-256 of the file
    size BIGINT NOT NULL  -- In bytes
);
COMMENT ON TABLE run_file_saved IS 'A file that a watched loop saved, such as its own checkpoint; its form is the loop''s. The newest of each name is handed in with the run''s end (event run.file_saved)';

CREATE TABLE run_ends (
    run_id VARCHAR NOT NULL,  -- The run
    idx BIGINT NOT NULL,
    reason VARCHAR NOT NULL,  -- completed, stopped (by a decision), restart, interrupted, failed or crashed
    detail VARCHAR NOT NULL,  -- One line
    deliverables JSON NOT NULL,  -- File name to SHA-256 of the submitted files
    entry VARCHAR NOT NULL  -- Hash of the entry, hexadecimal; it covers all entries before it
);
COMMENT ON TABLE run_ends IS 'The end of a run; an unfinished run has none (event run.ended)';

CREATE TABLE campaign_starts (
    campaign_id VARCHAR NOT NULL,  -- The campaign
    idx BIGINT NOT NULL,
    mode VARCHAR NOT NULL,  -- Always iterative_self_refine: no weights of a language model change
    config JSON NOT NULL,
    max_attempts INTEGER NOT NULL,  -- Maximum number of attempts
    policy JSON NOT NULL,  -- The policy with its settings, without secrets
    feedback BOOLEAN NOT NULL,  -- Whether attempts get feedback on earlier ones
    ranked_by VARCHAR NOT NULL  -- Which axis is compared first, process or quality (version 1 has none: process)
);
COMMENT ON TABLE campaign_starts IS 'The start of a campaign: what is attempted, and how often. The view campaigns is easier to query (event campaign.started)';

CREATE TABLE attempts (
    campaign_id VARCHAR NOT NULL,  -- The campaign
    idx BIGINT NOT NULL,
    number INTEGER NOT NULL,  -- From 1; the replacement of an abandoned attempt has the same number
    run_id VARCHAR NOT NULL,
    parent_run VARCHAR  -- The run that it restarts, or null
);
COMMENT ON TABLE attempts IS 'An attempt of a campaign is given its run (event campaign.attempt_started)';

CREATE TABLE abandoned_attempts (
    campaign_id VARCHAR NOT NULL,  -- The campaign
    idx BIGINT NOT NULL,
    number INTEGER NOT NULL,  -- The attempt, which is made again
    run_id VARCHAR NOT NULL,
    reason VARCHAR NOT NULL
);
COMMENT ON TABLE abandoned_attempts IS 'The latest attempt was cut off with its process. It does not count, and its number is used again (event campaign.attempt_abandoned)';

CREATE TABLE judged_attempts (
    campaign_id VARCHAR NOT NULL,  -- The campaign
    idx BIGINT NOT NULL,
    number INTEGER NOT NULL,  -- The attempt
    run_id VARCHAR NOT NULL,
    audit_id VARCHAR NOT NULL  -- The audit that is fed back and ranked by
);
COMMENT ON TABLE judged_attempts IS 'Which audit of an attempt counts: the campaign''s own. The campaign makes it after the run''s end, of the submitted files. Other audits of the same run change nothing (event campaign.attempt_judged)';

CREATE TABLE feedback (
    campaign_id VARCHAR NOT NULL,  -- The campaign
    idx BIGINT NOT NULL,
    number INTEGER NOT NULL,  -- The attempt that gets the feedback
    feedback JSON NOT NULL  -- Feedback on earlier attempts; each violation in it is an object with kind and rule
);
COMMENT ON TABLE feedback IS 'The feedback that an attempt receives on earlier attempts. It is recorded once, before the attempt starts. If the attempt is abandoned, its replacement gets the same feedback (event campaign.feedback_given)';

CREATE TABLE campaign_advice (
    campaign_id VARCHAR NOT NULL,  -- The campaign
    idx BIGINT NOT NULL,
    number INTEGER NOT NULL,  -- The attempt
    advice VARCHAR NOT NULL,  -- The text of the block; empty: there is none
    version INTEGER NOT NULL  -- Its version in the stream advice of the model; 0: the empty block
);
COMMENT ON TABLE campaign_advice IS 'The advice block of an attempt''s prompts. Only a campaign that tunes the block records it, before each attempt (event campaign.advised)';

CREATE TABLE campaign_ends (
    campaign_id VARCHAR NOT NULL,  -- The campaign
    idx BIGINT NOT NULL,
    reason VARCHAR NOT NULL,  -- Why no attempt follows
    ranking JSON NOT NULL  -- Runs, the best first
);
COMMENT ON TABLE campaign_ends IS 'The end of a campaign; an unfinished campaign has none (event campaign.ended)';

CREATE TABLE comparison_starts (
    comparison_id VARCHAR NOT NULL,  -- The comparison
    idx BIGINT NOT NULL,
    policies JSON NOT NULL,  -- The policies with their settings, without secrets; the first is what the others are compared with
    conditions JSON NOT NULL,  -- Configuration of the runs without the seed, by the condition's name
    seeds JSON NOT NULL,  -- Seeds of the runs
    metric VARCHAR,  -- The metric of a task that the runs were to be compared by; null: the one of the task
    better VARCHAR  -- Which values of that metric are better: higher or lower
);
COMMENT ON TABLE comparison_starts IS 'The start of a comparison of policies (event comparison.started)';

CREATE TABLE comparison_runs (
    comparison_id VARCHAR NOT NULL,  -- The comparison
    idx BIGINT NOT NULL,
    policy VARCHAR NOT NULL,
    condition VARCHAR NOT NULL,
    seed BIGINT NOT NULL,
    run_id VARCHAR NOT NULL
);
COMMENT ON TABLE comparison_runs IS 'A cell of a comparison is given its run. This is recorded before the run starts. A run that was cut off is replaced by another of the same cell (event comparison.run_allotted)';

CREATE TABLE comparison_results (
    comparison_id VARCHAR NOT NULL,  -- The comparison
    idx BIGINT NOT NULL,
    policy VARCHAR NOT NULL,
    condition VARCHAR NOT NULL,
    seed BIGINT NOT NULL,
    run_id VARCHAR NOT NULL,
    audit_id VARCHAR,  -- The audit that the comparison made; null: there is none
    problem VARCHAR  -- Why there is no usable result, or null
);
COMMENT ON TABLE comparison_results IS 'What became of a cell of a comparison (event comparison.run_ended)';

CREATE TABLE comparison_ends (
    comparison_id VARCHAR NOT NULL,  -- The comparison
    idx BIGINT NOT NULL
);
COMMENT ON TABLE comparison_ends IS 'Every cell of a comparison is done (event comparison.ended)';

CREATE TABLE credit_starts (
    credit_id VARCHAR NOT NULL,  -- The measurement
    idx BIGINT NOT NULL,
    run_id VARCHAR NOT NULL,  -- The run whose decisions are measured
    after VARCHAR NOT NULL,  -- The policy that decides after the measured decision, in all forks
    seeds JSON NOT NULL,  -- Orders of the examples after the fork; 0 is the run's own
    arms JSON NOT NULL  -- Names of the alternatives, by the decision's number
);
COMMENT ON TABLE credit_starts IS 'The start of a measurement of what decisions were worth. The stream''s id follows from these fields: the same question is measured once (event credit.started)';

CREATE TABLE credit_forks (
    credit_id VARCHAR NOT NULL,  -- The measurement
    idx BIGINT NOT NULL,
    decision INTEGER NOT NULL,  -- Number of the decision in the run that was forked
    arm VARCHAR NOT NULL,  -- chosen (the decision as recorded), or the name of the alternative
    seed BIGINT NOT NULL,  -- Order of the examples
    run_id VARCHAR NOT NULL,  -- The fork
    epochs INTEGER NOT NULL,  -- Epochs that it has, the shared ones included
    end_reason VARCHAR NOT NULL,  -- completed or stopped
    val_loss DOUBLE NOT NULL,  -- Validation loss of its last epoch
    val_accuracy DOUBLE NOT NULL,  -- Validation accuracy of its last epoch
    obligations INTEGER NOT NULL,  -- Obligations of its process, the shared ones included
    violations INTEGER NOT NULL  -- Violations of them
);
COMMENT ON TABLE credit_forks IS 'What a fork of a measurement came to (event credit.fork_ended)';

CREATE TABLE credit_ends (
    credit_id VARCHAR NOT NULL,  -- The measurement
    idx BIGINT NOT NULL
);
COMMENT ON TABLE credit_ends IS 'Everything of a measurement is measured (event credit.ended)';

CREATE TABLE audit_starts (
    audit_id VARCHAR NOT NULL,  -- The audit
    idx BIGINT NOT NULL,
    run_id VARCHAR NOT NULL,  -- The judged run
    tree_head VARCHAR NOT NULL,  -- The signed tree head that the judged entries were verified against
    config JSON NOT NULL,  -- The judge's settings, with disabled: checks that an earlier version left out
    environment JSON NOT NULL,  -- Versions and machine of the judge
    judged JSON,  -- The state of the run that is judged: hash and version of its last entry, version of its transcript, hashes of its files; null: an older audit, which was not bound to a state
    signed_by VARCHAR
);
COMMENT ON TABLE audit_starts IS 'The run and the state that an audit judges. It is appended before the first step, the other events of the audit together after the last one. The view audits is easier to query (event audit.started)';

CREATE TABLE audit_steps (
    audit_id VARCHAR NOT NULL,  -- The audit
    idx BIGINT NOT NULL,
    step INTEGER NOT NULL,  -- 1 to 11; the first seven fail hard
    name VARCHAR NOT NULL,  -- The step's name
    status VARCHAR NOT NULL,  -- failed, not_possible, not_run, passed or violations
    summary VARCHAR NOT NULL,  -- One line
    evidence JSON NOT NULL,
    signed_by VARCHAR
);
COMMENT ON TABLE audit_steps IS 'The outcome of one of the eleven steps of an audit (event audit.step_completed)';

CREATE TABLE reviews (
    review_id VARCHAR NOT NULL,  -- The review
    idx BIGINT NOT NULL,
    decision_idx BIGINT NOT NULL,  -- Ledger index of the decision
    entry_hash VARCHAR NOT NULL,  -- Hash of that entry, hexadecimal
    run_id VARCHAR NOT NULL,  -- The run of the decision
    mark VARCHAR NOT NULL,  -- bad or gold
    note VARCHAR NOT NULL,
    signed_by VARCHAR
);
COMMENT ON TABLE reviews IS 'What an operator says of a decision. It counts if an operator''s key in force signed it (proctor data review) (event decision.reviewed)';

CREATE TABLE transcripts (
    transcript_id VARCHAR NOT NULL,  -- The transcript
    idx BIGINT NOT NULL,
    run_id VARCHAR NOT NULL,  -- The run, or the proposal
    mode VARCHAR NOT NULL,  -- iterative_self_refine; for a proposal gauntlet_evolution
    policy JSON NOT NULL  -- The policy's settings and how it asks, without secrets
);
COMMENT ON TABLE transcripts IS 'Whose calls a transcript has, of a run or a proposal, and the policy that makes them (event transcript.started)';

CREATE TABLE votes (
    transcript_id VARCHAR NOT NULL,  -- The transcript
    idx BIGINT NOT NULL,
    epoch INTEGER NOT NULL,  -- The epoch decided on
    rule VARCHAR NOT NULL,
    votes JSON NOT NULL,  -- Number of ballots by direction; unusable counts ballots without a vote
    chosen VARCHAR,  -- The chosen direction; null if no vote was usable
    agreement DOUBLE NOT NULL,  -- Share of all ballots for it
    calls JSON NOT NULL  -- Numbers of the calls that returned the ballots
);
COMMENT ON TABLE votes IS 'The ballots of an ensemble for one rule, and the share that agreed. A ballot that holds no vote counts as unusable: it agrees with nothing (event transcript.vote_counted)';

CREATE TABLE proposal_reviews (
    transcript_id VARCHAR NOT NULL,  -- The transcript
    idx BIGINT NOT NULL,
    epoch INTEGER NOT NULL,  -- The epoch decided on
    proposed JSON NOT NULL,  -- The decision that was proposed
    verdict VARCHAR NOT NULL,  -- approve, edit or reject
    decision JSON NOT NULL,  -- The resulting decision
    mark VARCHAR,  -- gold, bad or null
    note VARCHAR NOT NULL  -- The person's note, at most 500 characters
);
COMMENT ON TABLE proposal_reviews IS 'A person''s verdict on a proposed decision. The resulting decision is run.decision_made (event transcript.proposal_reviewed)';

CREATE TABLE run_annotated (
    annotation_id VARCHAR NOT NULL,  -- The annotation
    idx BIGINT NOT NULL,
    run_id VARCHAR NOT NULL,
    tags JSON NOT NULL,  -- Words to find the run by
    notes VARCHAR NOT NULL,  -- In words
    config JSON NOT NULL  -- The caller's own settings, which no rule reads
);
COMMENT ON TABLE run_annotated IS 'What somebody says of a run; the latest annotation of a run counts (event run.annotated)';

CREATE TABLE infra_submissions (
    proposal_id VARCHAR NOT NULL,  -- The proposal
    idx BIGINT NOT NULL,
    line_id VARCHAR NOT NULL,  -- Id of the line's stream
    task VARCHAR,  -- The task that led to it, or null
    tier INTEGER NOT NULL,  -- Strictest declared tier of its targets
    targets JSON NOT NULL,  -- Declared path to tier
    diff VARCHAR NOT NULL,  -- Blob of the diff
    diff_bytes BIGINT NOT NULL,
    base VARCHAR NOT NULL,  -- Commit that the diff applies to
    base_tree VARCHAR NOT NULL,  -- The tree of that commit
    rationale VARCHAR NOT NULL,  -- The proposer's reason, at most 4,000 characters
    trigger VARCHAR NOT NULL,  -- error_pattern, operator_request or performance_regression
    proposer VARCHAR NOT NULL,
    evidence JSON NOT NULL  -- The evidence that the rationale refers to
);
COMMENT ON TABLE infra_submissions IS 'A proposed change: what is to change, against which commit, and why (event proposal.submitted)';

CREATE TABLE infra_reviews (
    proposal_id VARCHAR NOT NULL,  -- The proposal
    idx BIGINT NOT NULL,
    verdict VARCHAR NOT NULL,  -- approve, reject, revise or refactor
    envelope VARCHAR NOT NULL,
    key VARCHAR NOT NULL,  -- Of the operator
    expires BIGINT NOT NULL,  -- In seconds since 1970
    note VARCHAR NOT NULL  -- The operator's words
);
COMMENT ON TABLE infra_reviews IS 'An operator''s review of a proposal. Whoever records it has checked the envelope (event proposal.reviewed)';

CREATE TABLE infra_branches (
    proposal_id VARCHAR NOT NULL,  -- The proposal
    idx BIGINT NOT NULL,
    branch VARCHAR NOT NULL,  -- Name of the branch that holds the candidate
    commit VARCHAR NOT NULL,  -- The candidate's commit
    tree VARCHAR NOT NULL,
    changes JSON NOT NULL,  -- Paths with the change to each
    tier INTEGER NOT NULL,  -- Strictest tier actually changed
    configuration_only BOOLEAN NOT NULL,  -- Whether only configuration changes
    manifest VARCHAR NOT NULL,  -- SHA-256 of the base's manifest of tiers
    reference_set VARCHAR NOT NULL,  -- SHA-256 of the base's reference set
    against VARCHAR NOT NULL  -- Commit that the candidate is compared with: the base, or the start of a valley
);
COMMENT ON TABLE infra_branches IS 'The branch that a proposal''s diff was applied to, and what it really changes (event proposal.branched)';

CREATE TABLE infra_validation_results (
    proposal_id VARCHAR NOT NULL,  -- The proposal
    idx BIGINT NOT NULL,
    passed BOOLEAN NOT NULL,  -- Whether every case of the base passed
    problem VARCHAR,
    cases INTEGER NOT NULL,
    missing JSON NOT NULL,  -- Cases of the base that did not pass
    added JSON NOT NULL,  -- Test files that the proposal adds
    seconds DOUBLE NOT NULL,
    expected VARCHAR,  -- SHA-256 of the base's cases with their outcomes
    output VARCHAR,  -- Blob of the output, or null
    isolation JSON NOT NULL,
    leftovers INTEGER NOT NULL,  -- Processes that had to be ended
    flaky JSON,  -- Failed, and then passed
    outcomes VARCHAR,  -- Blob of the candidate's cases with their outcomes; null in version 1
    left_out JSON NOT NULL,  -- Test files that have not run yet; empty in versions 1 and 2
    choice VARCHAR,  -- Why these were left out; null if the manifest lets all tests run at once, and in versions 1 and 2
    fixes JSON NOT NULL  -- Cases of added tests that fail without the change and pass with it; empty in versions 1 to 3
);
COMMENT ON TABLE infra_validation_results IS 'The result of the base''s tests on the candidate. All of them run, or those that the change can reach (event proposal.tested)';

CREATE TABLE infra_rest_results (
    proposal_id VARCHAR NOT NULL,  -- The proposal
    idx BIGINT NOT NULL,
    passed BOOLEAN NOT NULL,  -- Whether every case of the base in these files passed
    problem VARCHAR,
    cases INTEGER NOT NULL,
    missing JSON NOT NULL,  -- Cases of the base in these files that did not pass
    seconds DOUBLE NOT NULL,
    output VARCHAR NOT NULL,  -- SHA-256 of what was printed
    isolation JSON NOT NULL,
    leftovers INTEGER NOT NULL,  -- Processes that had to be ended
    flaky JSON NOT NULL,  -- Cases that failed at first and then passed in every repeated run
    outcomes VARCHAR NOT NULL  -- SHA-256 of the blob that holds all cases of the candidate, from both runs, with their outcomes
);
COMMENT ON TABLE infra_rest_results IS 'The result of the tests that were left out, on a candidate that is to be promoted (event proposal.rest_tested)';

CREATE TABLE infra_task_scores (
    proposal_id VARCHAR NOT NULL,  -- The proposal
    idx BIGINT NOT NULL,
    arm VARCHAR NOT NULL,  -- base or candidate
    task VARCHAR NOT NULL,  -- The reference task
    repeat INTEGER NOT NULL,  -- From 0
    seed BIGINT NOT NULL,  -- Seed of this repeat, the same in both arms
    success BOOLEAN NOT NULL,  -- Whether the answer was right
    validation_failures INTEGER NOT NULL,  -- Number of invalid parts of the answer
    metrics JSON NOT NULL,  -- Other metrics
    problem VARCHAR,
    cached BOOLEAN NOT NULL,  -- Whether the result comes from an earlier proposal; only in records of older versions, and such results decide nothing
    isolation JSON NOT NULL,
    missing BOOLEAN,  -- Whether there was no answer at all; null: nobody recorded it
    seconds DOUBLE,  -- Until the answer came, from the start of the process
    cpu_seconds DOUBLE  -- Processor time of all its processes; both null in versions 1 and 2, and where there is none
);
COMMENT ON TABLE infra_task_scores IS 'The answer of one arm to one reference task (event proposal.task_scored)';

CREATE TABLE infra_evaluations (
    proposal_id VARCHAR NOT NULL,  -- The proposal
    idx BIGINT NOT NULL,
    verdict VARCHAR NOT NULL,  -- better, no worse, cannot tell or worse
    level DOUBLE NOT NULL,  -- Error level used for this comparison
    regressions JSON NOT NULL,  -- Tasks that became worse
    improvements JSON NOT NULL,  -- What improved
    reasons JSON NOT NULL,  -- Reasons of the verdict
    comparisons JSON NOT NULL  -- Comparison of each task
);
COMMENT ON TABLE infra_evaluations IS 'The comparison of candidate and base, task by task (event proposal.evaluated)';

CREATE TABLE infra_conclusions (
    proposal_id VARCHAR NOT NULL,  -- The proposal
    idx BIGINT NOT NULL,
    outcome VARCHAR NOT NULL,  -- promoted, rejected, halted, superseded (the line has moved on) or withdrawn
    stage VARCHAR NOT NULL,  -- propose, branch, test, benchmark, evaluate or conclude
    reason VARCHAR NOT NULL,
    checkpoint VARCHAR,  -- The checkpoint that a promotion made
    valley VARCHAR  -- The valley that allowed it without an improvement, else null
);
COMMENT ON TABLE infra_conclusions IS 'How a proposal ended, and at which stage (event proposal.concluded)';

CREATE TABLE checkpoint_rollbacks (
    line_id VARCHAR NOT NULL,  -- The line
    idx BIGINT NOT NULL,
    checkpoint_id VARCHAR NOT NULL,  -- The checkpoint that is rolled back, with all its descendants
    to_checkpoint VARCHAR NOT NULL,  -- The checkpoint that becomes active
    reason VARCHAR NOT NULL,
    signed_by VARCHAR
);
COMMENT ON TABLE checkpoint_rollbacks IS 'A checkpoint that was rolled back, with all that descend from it. One that was marked with an ancestor can be rolled back by name: it is not to come back (event checkpoint.rolled_back)';

CREATE TABLE admitted_tasks (
    line_id VARCHAR NOT NULL,  -- The line
    idx BIGINT NOT NULL,
    task VARCHAR NOT NULL,
    sha256 VARCHAR NOT NULL,  -- Of its content
    envelope VARCHAR NOT NULL
);
COMMENT ON TABLE admitted_tasks IS 'A task, with this content, that an operator added to the reference set (event task.admitted)';

CREATE TABLE drift_measurements (
    line_id VARCHAR NOT NULL,  -- The line
    idx BIGINT NOT NULL,
    checkpoint_id VARCHAR NOT NULL,  -- Active checkpoint at the time
    commit VARCHAR NOT NULL,  -- The measured commit
    task_set VARCHAR NOT NULL,  -- reference, or hidden for tasks outside the repository
    sha256 VARCHAR NOT NULL,
    tasks JSON NOT NULL,  -- Task to success and metrics
    success DOUBLE NOT NULL  -- Share of tasks that succeeded
);
COMMENT ON TABLE drift_measurements IS 'A measurement of a commit of the line, outside of any proposal (event drift.measured)';

CREATE TABLE drift_alarms (
    line_id VARCHAR NOT NULL,  -- The line
    idx BIGINT NOT NULL,
    checkpoint_id VARCHAR NOT NULL,  -- Active checkpoint at the time
    commit VARCHAR NOT NULL,  -- Commit that raised the alarm
    kind VARCHAR NOT NULL,  -- What kind of alarm
    detail VARCHAR NOT NULL,
    tasks JSON NOT NULL  -- Tasks that raised it
);
COMMENT ON TABLE drift_alarms IS 'An alarm: the line scored worse than the promoted commit, or is another commit (event drift.alarmed)';

CREATE TABLE drift_answers (
    line_id VARCHAR NOT NULL,  -- The line
    idx BIGINT NOT NULL,
    alarm INTEGER NOT NULL,  -- Number of the alarm on its line, from 1
    kind VARCHAR NOT NULL,  -- Of the alarm
    note VARCHAR NOT NULL  -- The operator's answer
);
COMMENT ON TABLE drift_answers IS 'An operator''s answer to an alarm; sums that led to it begin again. The view alarms is easier to query (event drift.answered)';

CREATE TABLE evolutions (
    evolution_id VARCHAR NOT NULL,  -- The evolution
    idx BIGINT NOT NULL,
    line_id VARCHAR NOT NULL
);
COMMENT ON TABLE evolutions IS 'The line of an evolution (event evolution.opened)';

CREATE TABLE evolution_rounds (
    evolution_id VARCHAR NOT NULL,  -- The evolution
    idx BIGINT NOT NULL,
    round INTEGER NOT NULL,
    outcome VARCHAR NOT NULL,  -- proposed, nothing, unusable, unanswered or refused
    proposal_id VARCHAR,  -- The proposal, else null
    proposer VARCHAR NOT NULL,  -- Who looked
    technique VARCHAR,  -- How; null: it did not come to that
    pattern VARCHAR,  -- The error pattern, else null
    calls INTEGER NOT NULL,  -- Number of calls to a language model
    reason VARCHAR NOT NULL  -- Why there is no proposal, or a remark
);
COMMENT ON TABLE evolution_rounds IS 'A round that searched for an improvement, and its outcome (event evolution.round_ended)';

CREATE TABLE advice_lines (
    advice_id VARCHAR NOT NULL,  -- The advice to a model
    idx BIGINT NOT NULL,
    model VARCHAR NOT NULL
);
COMMENT ON TABLE advice_lines IS 'The model that an advice block is for (event advice.opened)';

CREATE TABLE advice_proposals (
    advice_id VARCHAR NOT NULL,  -- The advice to a model
    idx BIGINT NOT NULL,
    round INTEGER NOT NULL,
    version INTEGER NOT NULL,  -- From 1; version 0 is the empty block
    parent INTEGER NOT NULL,  -- The version that it is to replace
    campaign_id VARCHAR,  -- The campaign; null: outside of one
    attempt INTEGER,  -- The attempt after which it was proposed, or null
    proposer VARCHAR NOT NULL,  -- template, or the model that wrote the text
    technique VARCHAR NOT NULL,  -- How it was written
    pattern VARCHAR NOT NULL,  -- The error pattern that it is about
    rationale VARCHAR NOT NULL,
    text VARCHAR NOT NULL,  -- The whole block, at most 4,000 characters
    evidence JSON NOT NULL  -- What shows the pattern
);
COMMENT ON TABLE advice_proposals IS 'An advice block that is to be tested against the champion (event advice.proposed)';

CREATE TABLE advice_orders (
    advice_id VARCHAR NOT NULL,  -- The advice to a model
    idx BIGINT NOT NULL,
    what VARCHAR NOT NULL  -- on, off or reset (the block is empty again, and earlier rounds no longer count)
);
COMMENT ON TABLE advice_orders IS 'An order to turn the tuning on or off, or to begin anew; nothing is deleted (event advice.steered)';

CREATE TABLE bisections (
    bisection_id VARCHAR NOT NULL,  -- The search
    idx BIGINT NOT NULL,
    line_id VARCHAR NOT NULL,
    good VARCHAR NOT NULL,  -- The checkpoint before the first suspect
    suspects JSON NOT NULL,  -- Checkpoints in the order of the chain
    oracle JSON NOT NULL,  -- How checkpoints are probed; revealed_by: the proposal or alarm that showed an older fault
    error DOUBLE NOT NULL,  -- Given share of wrong verdicts; 0: verdicts are certain
    confidence DOUBLE NOT NULL,  -- Confidence at which the search ends
    ends_believed BOOLEAN NOT NULL,  -- Whether good is assumed good and the last suspect bad, without probes
    rules INTEGER NOT NULL  -- How verdicts are weighed. 1: the given share is the true one, and errors are independent. 2: one share is estimated. 3: two are, of false alarms and of missed faults
);
COMMENT ON TABLE bisections IS 'A search for the checkpoint that made a line worse (event bisection.opened)';

CREATE TABLE bisection_probes (
    bisection_id VARCHAR NOT NULL,  -- The search
    idx BIGINT NOT NULL,
    number INTEGER NOT NULL,  -- From 1
    checkpoint_id VARCHAR NOT NULL,  -- What was probed
    verdict VARCHAR NOT NULL,  -- bad, good or skip
    evidence JSON NOT NULL
);
COMMENT ON TABLE bisection_probes IS 'One test of one checkpoint by a search (event bisection.probed)';

CREATE TABLE bisection_ends (
    bisection_id VARCHAR NOT NULL,  -- The search
    idx BIGINT NOT NULL,
    culprit VARCHAR,  -- The first bad checkpoint, or null
    candidates JSON NOT NULL,  -- Remaining candidates; only the culprit if there is one
    posterior DOUBLE NOT NULL,  -- Probability that the culprit is among them; from rules 2 on, at least
    reason VARCHAR NOT NULL
);
COMMENT ON TABLE bisection_ends IS 'The outcome of a search (event bisection.ended)';

CREATE TABLE exports (
    export_id VARCHAR NOT NULL,  -- The export
    idx BIGINT NOT NULL,
    kind VARCHAR NOT NULL,  -- preferences, proposals or sft
    as_of BIGINT NOT NULL,  -- Index of the last entry used
    head VARCHAR NOT NULL,  -- That entry's hash
    query JSON NOT NULL,  -- Conditions for the examples
    code VARCHAR NOT NULL,  -- SHA-256 of the code that selects the examples
    examples BIGINT NOT NULL,  -- Number of examples
    root VARCHAR NOT NULL,  -- Merkle root (RFC 6962) over the lines, without line breaks
    sha256 VARCHAR NOT NULL,  -- SHA-256 of the JSON Lines file
    members VARCHAR NOT NULL  -- SHA-256 of the stored list of examples
);
COMMENT ON TABLE exports IS 'An export of training data: what was asked, of which ledger, and what came out (event export.sealed)';
