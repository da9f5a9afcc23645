-- Tables: one row for each fact that an event states; what follows from them is left to views.sql.
-- Epochs and layer places count from 0, decisions and steps from 1. Every idx is the ledger index
-- of the event that the row comes from; its time stands in events. In JSON, numbers that are not
-- finite are the texts "NaN", "Infinity" and "-Infinity" (a cast to DOUBLE reads them), and bytes
-- are hexadecimal.

-- What columns of a name mean in every table and view that says nothing else of them: a comment
-- behind a column's line is about that column, and `proctor sql` shows it.
COMMENT ON COLUMN *.idx IS 'Ledger index';
COMMENT ON COLUMN *.run_id IS 'The run';
COMMENT ON COLUMN *.line_id IS 'The line';
COMMENT ON COLUMN *.proposal_id IS 'The proposal';
COMMENT ON COLUMN *.campaign_id IS 'The campaign';
COMMENT ON COLUMN *.advice_id IS 'The advice to a model';
COMMENT ON COLUMN *.epoch IS 'From 0';
COMMENT ON COLUMN *.audit_id IS 'The audit';
COMMENT ON COLUMN *.comparison_id IS 'The comparison';
COMMENT ON COLUMN *.credit_id IS 'The measurement';
COMMENT ON COLUMN *.rule IS 'R1 to R7';
COMMENT ON COLUMN *.transcript_id IS 'The transcript';
COMMENT ON COLUMN *.bisection_id IS 'The search';
COMMENT ON COLUMN *.checkpoint_id IS 'The checkpoint';
COMMENT ON COLUMN *.envelope IS 'What the operator''s key has signed';
COMMENT ON COLUMN *.evolution_id IS 'The evolution';
COMMENT ON COLUMN *.isolation IS 'What confined the process';
COMMENT ON COLUMN *.reason IS 'Why';
COMMENT ON COLUMN *.round IS 'From 1';
COMMENT ON COLUMN *.checkpoint IS 'Version of the infrastructure that the run was made under';
COMMENT ON COLUMN *.condition IS 'Name of the condition';
COMMENT ON COLUMN *.config IS 'Configuration as recorded';
COMMENT ON COLUMN *.deferred_to IS 'The rule that goes first, where a deferral names one';
COMMENT ON COLUMN *.direction IS 'The remedy asked for, or defer';
COMMENT ON COLUMN *.emitter IS 'driver, harness, human or policy';
COMMENT ON COLUMN *.mode IS 'What kind of improvement it is';
COMMENT ON COLUMN *.parent_run IS 'The run that this one restarts from';
COMMENT ON COLUMN *.policy_name IS 'Who decided';
COMMENT ON COLUMN *.process_score IS 'From 0 to 1; says little unless the axis was exercised';
COMMENT ON COLUMN *.rationale IS 'The proposer''s words';
COMMENT ON COLUMN *.started_at IS 'When the ledger took its start';
COMMENT ON COLUMN *.started_idx IS 'Ledger index of its start';
COMMENT ON COLUMN *.taint_reasons IS 'Explanation';
COMMENT ON COLUMN *.tainted_idx IS 'Ledger index since which it is tainted; NULL: it is not';
COMMENT ON COLUMN *.test_accuracy IS 'On the split that only the judge reads';
COMMENT ON COLUMN *.validation_accuracy IS 'The one that attempts are ranked by';

CREATE TABLE position (
    next_idx BIGINT NOT NULL,  -- Index of the next entry to apply
    last_hash VARCHAR,  -- Entry hash of the last entry applied, hexadecimal; it fixes all before it
    schema_hash VARCHAR NOT NULL  -- SHA-256 over what these tables were made by; another one means a rebuild
);
COMMENT ON TABLE position IS 'A single row: the last ledger entry that was applied';

CREATE TABLE events (
    idx BIGINT NOT NULL,  -- Ledger index, from 0
    time TIMESTAMP NOT NULL,  -- When the ledger took the entry, UTC, cut to microseconds
    stream_id VARCHAR NOT NULL,  -- The run, campaign or audit
    version BIGINT NOT NULL,  -- Position in the stream, from 1
    name VARCHAR NOT NULL  -- Kind of event, such as run.started
);
COMMENT ON TABLE events IS 'Every entry of the ledger, whatever its kind';

CREATE TABLE unreadable (
    idx BIGINT NOT NULL,  -- Ledger index of the entry
    reason VARCHAR NOT NULL,  -- What is wrong with it: an unknown name or version, a malformed body, a value that does not fit its column
    signed_as VARCHAR  -- Role of the author, if there is one
);
COMMENT ON TABLE unreadable IS 'Entries that this program cannot read; apart from this table they have a row in events only';

CREATE TABLE authority_events (
    idx BIGINT NOT NULL,
    name VARCHAR NOT NULL,  -- key.granted, key.revoked, key.rotated or clock.jumped
    body JSON NOT NULL,  -- As recorded; the fields are in the reference of the ledger format
    signed_as VARCHAR,  -- Role of the author, if there is one
    signed_by VARCHAR  -- Key id of the author, hexadecimal
);
COMMENT ON TABLE authority_events IS 'Events about keys and about the ledger''s clock; proctor keys list shows the keys in force';

CREATE TABLE run_starts (
    run_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    config JSON NOT NULL,
    config_hash VARCHAR NOT NULL,  -- SHA-256 of the configuration, as recorded
    rules JSON NOT NULL,  -- Signals, thresholds and windows of the rules
    rules_hash VARCHAR NOT NULL,  -- SHA-256 of the rules configuration, as recorded
    spec JSON NOT NULL,  -- Model specification at the start
    policy JSON NOT NULL,  -- The policy's own description
    data JSON NOT NULL,  -- Dataset, sizes and fingerprints
    environment JSON NOT NULL,  -- Versions, machine, threads, identity of the code
    parent_run VARCHAR,
    campaign VARCHAR,  -- The campaign that this run is an attempt of
    checkpoint VARCHAR
);
COMMENT ON TABLE run_starts IS 'The start of each run; the view runs is easier to query';

CREATE TABLE provocations (
    run_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    name VARCHAR NOT NULL,  -- Which of the catalogue
    seed BIGINT NOT NULL,  -- What its severity and its place are drawn from
    changes JSON NOT NULL,  -- What it did to settings, weights, biases or loss
    expects JSON NOT NULL  -- Rules that it is meant to make fire
);
COMMENT ON TABLE provocations IS 'Faults that were provoked in runs; provocation_outcomes shows their effect';

CREATE TABLE forks (
    run_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    parent VARCHAR NOT NULL,  -- The run that it goes on from
    epoch INTEGER NOT NULL,  -- The last epoch that both share; the decisions on it are the fork's own
    digest VARCHAR NOT NULL,  -- SHA-256 of what both recorded up to then
    state VARCHAR NOT NULL,  -- SHA-256 of the training state after that epoch, a stored file
    orders JSON NOT NULL  -- Other orders of the examples: seeds by the epoch after which they begin
);
COMMENT ON TABLE forks IS 'Runs that go on from a recorded epoch of another run';

CREATE TABLE run_ends (
    run_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    reason VARCHAR NOT NULL,  -- completed, crashed, failed, interrupted, restart or stopped
    detail VARCHAR NOT NULL,  -- The reason in words
    deliverables JSON NOT NULL,  -- SHA-256 of each submitted file, by name
    entry VARCHAR NOT NULL  -- Hash of the entry, hexadecimal; it covers all entries before it
);
COMMENT ON TABLE run_ends IS 'The end of each run; an unfinished run has no row';

CREATE TABLE epochs (
    run_id VARCHAR NOT NULL,
    epoch INTEGER NOT NULL,
    idx BIGINT NOT NULL,
    train_loss DOUBLE,  -- Mean over the training examples, nats
    train_accuracy DOUBLE,  -- Share of training examples
    val_loss DOUBLE,  -- Mean over the validation examples, nats
    val_accuracy DOUBLE,  -- Share of validation examples
    gradients_finite BOOLEAN,  -- Whether every gradient of the epoch was finite
    max_layer_grad_norm DOUBLE,  -- Largest gradient norm of the weight tensors of rank two and more
    min_layer_grad_norm DOUBLE,  -- Smallest of them
    update_ratio DOUBLE,  -- Update over parameter norm per step, median over weight tensors
    epoch_update_ratio DOUBLE,  -- The same over the whole epoch
    signal_to_noise DOUBLE,  -- Batch size over the gradient noise scale
    signal_to_noise_low DOUBLE,  -- Lower end of its 90% interval; NULL where the measurement says nothing
    signal_to_noise_high DOUBLE,  -- Upper end of its 90% interval
    norm_noise_scale DOUBLE,  -- Mean squared over variance of the total gradient norm between steps
    noise_scale DOUBLE,  -- Gradient noise scale, examples
    dead_share DOUBLE,  -- Share of units whose activation has slope zero
    sparsity DOUBLE,  -- Mean share of activations that are exactly zero
    lr DOUBLE,  -- Learning rate in force
    batch_size BIGINT,  -- Examples
    accumulation BIGINT,  -- Batches per optimizer step
    clip_norm DOUBLE,  -- Bound of the total gradient norm; NULL: no bound
    losses_reported BOOLEAN,  -- Whether losses and accuracies are what a watched loop reported; otherwise they were measured
    reported JSON NOT NULL  -- Values reported by the training loop; no rule reads them, unless losses_reported
);
COMMENT ON TABLE epochs IS 'What was measured in each epoch; NaN is a measured value, NULL was not measurable';

CREATE TABLE layer_metrics (
    run_id VARCHAR NOT NULL,
    epoch INTEGER NOT NULL,
    idx BIGINT NOT NULL,
    place INTEGER NOT NULL,  -- Order in the model, from 0
    layer VARCHAR NOT NULL,  -- Name of the tensor
    rank INTEGER NOT NULL,  -- Dimensions of the tensor; rules look at two and more
    grad_norm DOUBLE,  -- L2 norm before clipping, mean over the steps
    update_ratio DOUBLE,  -- Update over parameter norm per step
    epoch_update_ratio DOUBLE  -- The same over the whole epoch
);
COMMENT ON TABLE layer_metrics IS 'Measured values of each parameter tensor';

CREATE TABLE activation_metrics (
    run_id VARCHAR NOT NULL,
    epoch INTEGER NOT NULL,
    idx BIGINT NOT NULL,
    place INTEGER NOT NULL,  -- Order in the model, from 0
    layer VARCHAR NOT NULL,  -- Name of the module
    units BIGINT NOT NULL,  -- Channels or features
    dead_units BIGINT NOT NULL,  -- Units whose largest activation of the epoch was not above zero
    sparsity DOUBLE,  -- Share of activations that are exactly zero
    p50 DOUBLE,  -- Median activation of a sample
    p99 DOUBLE  -- 99th percentile of the same sample
);
COMMENT ON TABLE activation_metrics IS 'Measured values of each activation module';

CREATE TABLE rule_evaluations (
    run_id VARCHAR NOT NULL,
    epoch INTEGER NOT NULL,
    idx BIGINT NOT NULL,
    rule VARCHAR NOT NULL,
    fired BOOLEAN NOT NULL,  -- Whether the rule wants a decision
    side VARCHAR,  -- high, low, guessing, plateau, stalled or not_finite; NULL while silent
    value DOUBLE,  -- The signal of the epoch
    ema DOUBLE,  -- Moving average, or the best value so far where a rule keeps one
    streak INTEGER NOT NULL,  -- Consecutive epochs in which the condition held
    precedence INTEGER NOT NULL  -- Among the seven rules; 1 is acted on first
);
COMMENT ON TABLE rule_evaluations IS 'The result of each of the seven rules in each epoch';

-- deferred_to is in params too: as a generated column it needs a function that DuckDB does not have
-- yet when it replays the log of a process that was killed.
CREATE TABLE decisions (
    run_id VARCHAR NOT NULL,
    number INTEGER NOT NULL,  -- From 1 in each run
    epoch INTEGER NOT NULL,  -- The epoch whose evaluation is answered
    idx BIGINT NOT NULL,
    source VARCHAR NOT NULL,  -- driver, human or policy
    event_type VARCHAR NOT NULL,  -- hyperparameter_change, architecture_change or rule_triggered_no_action
    direction VARCHAR NOT NULL,
    params JSON NOT NULL,  -- Arguments of the remedy
    deferred_to VARCHAR,
    justification VARCHAR NOT NULL  -- The author's words
);
COMMENT ON TABLE decisions IS 'Answers to fired rules, as the policy gave them';

CREATE TABLE citations (
    run_id VARCHAR NOT NULL,
    number INTEGER NOT NULL,  -- The decision
    idx BIGINT NOT NULL,
    rule VARCHAR NOT NULL
);
COMMENT ON TABLE citations IS 'The rules that each decision cites';

CREATE TABLE remedies (
    run_id VARCHAR NOT NULL,
    decision INTEGER NOT NULL,  -- Number of the decision
    epoch INTEGER NOT NULL,  -- The epoch behind which it took effect
    idx BIGINT NOT NULL,
    outcome VARCHAR NOT NULL,  -- applied, refused or restart
    changes JSON,  -- Old and new values of an applied remedy
    reason VARCHAR,  -- Why not; of a refused remedy
    settings JSON,  -- Hyperparameters in force from then on; of an applied remedy
    spec JSON  -- Model specification from then on, or that of the restart; NULL when refused
);
COMMENT ON TABLE remedies IS 'The outcome of each decision that asked for a change';

CREATE TABLE weights (
    run_id VARCHAR NOT NULL,
    epoch INTEGER NOT NULL,  -- The epoch behind which they were saved
    idx BIGINT NOT NULL,
    kind VARCHAR NOT NULL,  -- best or last
    sha256 VARCHAR NOT NULL,  -- Name of the stored file
    size BIGINT NOT NULL,  -- Bytes
    spec JSON NOT NULL,  -- Model specification that the weights belong to
    probe JSON NOT NULL  -- Gradient norms on the fixed probe batch
);
COMMENT ON TABLE weights IS 'Saved parameters; the newest of each kind counts';

CREATE TABLE snapshots (
    run_id VARCHAR NOT NULL,
    epoch INTEGER NOT NULL,  -- The epoch after which it was saved, before its decisions
    idx BIGINT NOT NULL,
    sha256 VARCHAR NOT NULL,  -- Name of the stored file
    size BIGINT NOT NULL,  -- Bytes
    seconds DOUBLE NOT NULL  -- That saving took
);
COMMENT ON TABLE snapshots IS 'Saved training states, and what they cost';

CREATE TABLE campaign_starts (
    campaign_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    mode VARCHAR NOT NULL,
    config JSON NOT NULL,
    max_attempts INTEGER NOT NULL,  -- How many runs it may have
    policy JSON NOT NULL,  -- Who decides, with its settings
    feedback BOOLEAN NOT NULL,  -- Whether attempts get feedback on earlier ones
    ranked_by VARCHAR NOT NULL  -- Which axis is compared first: process (the process score) or quality (the validation accuracy)
);
COMMENT ON TABLE campaign_starts IS 'The start of each campaign; the view campaigns is easier to query';

CREATE TABLE campaign_ends (
    campaign_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    reason VARCHAR NOT NULL,  -- Why no attempt follows
    ranking JSON NOT NULL  -- Runs, the best first
);
COMMENT ON TABLE campaign_ends IS 'The end of each campaign; an unfinished campaign has no row';

CREATE TABLE attempts (
    campaign_id VARCHAR NOT NULL,
    number INTEGER NOT NULL,  -- From 1; the replacement of an abandoned attempt has the same number
    idx BIGINT NOT NULL,
    run_id VARCHAR NOT NULL,
    parent_run VARCHAR  -- The earlier attempt that it goes on from
);
COMMENT ON TABLE attempts IS 'The runs of each campaign, including abandoned ones';

CREATE TABLE abandoned_attempts (
    campaign_id VARCHAR NOT NULL,
    number INTEGER NOT NULL,  -- The attempt, which is made again
    idx BIGINT NOT NULL,
    run_id VARCHAR NOT NULL,  -- The run that does not count
    reason VARCHAR NOT NULL  -- Explanation
);
COMMENT ON TABLE abandoned_attempts IS 'Attempts that were interrupted and do not count';

CREATE TABLE judged_attempts (
    campaign_id VARCHAR NOT NULL,
    number INTEGER NOT NULL,  -- The attempt
    idx BIGINT NOT NULL,
    run_id VARCHAR NOT NULL,  -- Its run
    audit_id VARCHAR NOT NULL  -- The audit that is fed back and ranked by
);
COMMENT ON TABLE judged_attempts IS 'Which audit of each attempt counts: the campaign''s own';

CREATE TABLE feedback (
    campaign_id VARCHAR NOT NULL,
    number INTEGER NOT NULL,  -- The attempt that got the feedback
    idx BIGINT NOT NULL,
    feedback JSON NOT NULL  -- The feedback
);
COMMENT ON TABLE feedback IS 'The feedback that each attempt received on earlier attempts';

CREATE TABLE comparison_starts (
    comparison_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    policies JSON NOT NULL,  -- Who decides, each with its settings; the first is what the others are compared with
    conditions JSON NOT NULL,  -- Configuration of the runs, without the seed, by the condition's name
    seeds JSON NOT NULL  -- Seeds of the runs
);
COMMENT ON TABLE comparison_starts IS 'The start of each comparison of policies';

CREATE TABLE comparison_runs (
    comparison_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    policy VARCHAR NOT NULL,  -- Name of the policy
    condition VARCHAR NOT NULL,
    seed BIGINT NOT NULL,  -- Seed of the run
    run_id VARCHAR NOT NULL
);
COMMENT ON TABLE comparison_runs IS 'The runs of each comparison, with those that were cut off; a later run takes the place of an earlier one of the same cell';

CREATE TABLE comparison_results (
    comparison_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    policy VARCHAR NOT NULL,  -- Name of the policy
    condition VARCHAR NOT NULL,
    seed BIGINT NOT NULL,  -- Seed of the run
    run_id VARCHAR NOT NULL,
    audit_id VARCHAR,  -- The audit that the comparison made; NULL: there is none
    problem VARCHAR  -- Why there is no usable result; NULL: there is one
);
COMMENT ON TABLE comparison_results IS 'What became of each cell of a comparison';

CREATE TABLE comparison_ends (
    comparison_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL
);
COMMENT ON TABLE comparison_ends IS 'The end of each comparison; an unfinished one has no row';

CREATE TABLE credit_starts (
    credit_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    run_id VARCHAR NOT NULL,  -- The run whose decisions are measured
    after VARCHAR NOT NULL,  -- The policy that decides after the measured decision, in all forks
    seeds JSON NOT NULL,  -- Orders of the examples; 0 is the run's own
    arms JSON NOT NULL  -- Names of the alternatives, by the decision's number
);
COMMENT ON TABLE credit_starts IS 'The start of each measurement of what decisions were worth';

CREATE TABLE credit_forks (
    credit_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    decision INTEGER NOT NULL,  -- Number of the decision in the run that was forked
    arm VARCHAR NOT NULL,  -- chosen: the decision as recorded; else the alternative
    seed BIGINT NOT NULL,  -- Order of the examples after the fork; 0 is the run's own
    run_id VARCHAR NOT NULL,  -- The fork
    epochs INTEGER NOT NULL,  -- That it has, the shared ones included
    end_reason VARCHAR NOT NULL,  -- completed or stopped
    val_loss DOUBLE NOT NULL,  -- Validation loss of its last epoch
    val_accuracy DOUBLE NOT NULL,  -- Validation accuracy of its last epoch
    obligations INTEGER NOT NULL,  -- Of its process, the shared ones included
    violations INTEGER NOT NULL  -- Of them
);
COMMENT ON TABLE credit_forks IS 'What each fork of a measurement came to';

CREATE TABLE credit_results (
    credit_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    decision INTEGER NOT NULL,  -- Number of the decision in its run
    epoch INTEGER NOT NULL,  -- The epoch whose evaluation it answers
    rules JSON NOT NULL,  -- That it cites
    arm VARCHAR NOT NULL,  -- Name of the alternative; nothing: no action
    chosen JSON NOT NULL,  -- The recorded decision
    other JSON NOT NULL,  -- The alternative
    pairs INTEGER NOT NULL,  -- Seeds that both were trained with
    level DOUBLE NOT NULL,  -- Of the intervals
    loss_difference DOUBLE,  -- Mean final validation loss, other minus chosen; NULL: one is not finite
    loss_low DOUBLE,  -- Lower end of its interval
    loss_high DOUBLE,  -- Upper end of its interval
    accuracy_difference DOUBLE,  -- Mean final validation accuracy, chosen minus other
    accuracy_low DOUBLE,  -- Lower end of its interval
    accuracy_high DOUBLE,  -- Upper end of its interval
    better VARCHAR  -- chosen or other, where an interval excludes zero and the other one does not contradict; NULL: undecided
);
COMMENT ON TABLE credit_results IS 'What decisions were worth beside their alternatives; decision_credit has the run too';

CREATE TABLE credit_ends (
    credit_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL
);
COMMENT ON TABLE credit_ends IS 'The end of each measurement of credit';

CREATE TABLE campaign_advice (
    campaign_id VARCHAR NOT NULL,
    number INTEGER NOT NULL,  -- The attempt whose prompts have the block
    idx BIGINT NOT NULL,
    advice VARCHAR NOT NULL,  -- The block; empty: there is none
    version INTEGER NOT NULL  -- Version of the model's advice; 0: none
);
COMMENT ON TABLE campaign_advice IS 'The advice block of each attempt of a campaign that tunes it';

CREATE TABLE audit_starts (
    audit_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    run_id VARCHAR NOT NULL,  -- The run that is judged
    tree_head VARCHAR NOT NULL,  -- The signed state of the ledger that is judged
    config JSON NOT NULL,  -- Settings of the judge
    environment JSON NOT NULL,  -- Versions and machine of the judge
    judged JSON,  -- The state of the run that is judged: hash and version of its last entry, version of its transcript, hashes of its files; NULL: an older audit, which was not bound to a state
    signed_by VARCHAR  -- Key id of the judge who signed it, hexadecimal; NULL if none did
);
COMMENT ON TABLE audit_starts IS 'The run and state that each audit judges; the view audits is easier to query';

CREATE TABLE audit_steps (
    audit_id VARCHAR NOT NULL,
    step INTEGER NOT NULL,  -- 1 to 11; the first seven fail hard
    idx BIGINT NOT NULL,
    name VARCHAR NOT NULL,  -- What the step looks at
    status VARCHAR NOT NULL,  -- passed, violations, failed, not_run, or not_possible at the level of evidence that the run has
    summary VARCHAR NOT NULL,  -- The outcome in a sentence
    evidence JSON NOT NULL,  -- The evidence for the outcome
    signed_by VARCHAR  -- Key id of the judge who signed it, hexadecimal; NULL if none did
);
COMMENT ON TABLE audit_steps IS 'The eleven steps of each audit';

CREATE TABLE audit_scores (
    audit_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    hard_fail BOOLEAN NOT NULL,  -- A gate failed, so both scores are zero
    accuracy_score DOUBLE,  -- From 0 to 1; NULL: not possible at the level of evidence that the run has
    process_score DOUBLE NOT NULL,
    process_axis_exercised BOOLEAN NOT NULL,  -- Whether enough rules fired and were answered
    test_accuracy DOUBLE,
    validation_accuracy DOUBLE,
    obligations INTEGER NOT NULL,  -- Denominator of the process score: episodes of firings, and violated firings
    decisions INTEGER NOT NULL,  -- Decisions that were made
    signed_by VARCHAR  -- Key id of the judge who signed it, hexadecimal; NULL if none did
);
COMMENT ON TABLE audit_scores IS 'The result of each audit; an unfinished audit has no row';

CREATE TABLE audit_violations (
    audit_id VARCHAR NOT NULL,
    place INTEGER NOT NULL,  -- Order in the audit, from 0
    idx BIGINT NOT NULL,
    kind VARCHAR NOT NULL,  -- What was violated
    rule VARCHAR,
    epoch INTEGER,
    decision INTEGER,  -- Number of the decision
    emitter VARCHAR,
    detail VARCHAR,  -- Explanation; NULL after the first 150, which alone are recorded in words
    times INTEGER NOT NULL  -- 1; or, in a row without an epoch, how many more of its kind, rule and emitter there are: sum it to count violations
);
COMMENT ON TABLE audit_violations IS 'What an audit found; the view violations names the run too';

CREATE TABLE reviews (
    review_id VARCHAR NOT NULL,  -- The review
    idx BIGINT NOT NULL,
    run_id VARCHAR NOT NULL,  -- The run of the decision, as the review states
    decision_idx BIGINT NOT NULL,  -- Ledger index of the decision
    entry_hash VARCHAR NOT NULL,  -- Hash of that entry, hexadecimal, as the reviewer saw it
    mark VARCHAR NOT NULL,  -- gold or bad
    note VARCHAR NOT NULL,  -- Explanation
    signed_by VARCHAR  -- Key id of the operator who signed it, hexadecimal; NULL if none did
);
COMMENT ON TABLE reviews IS 'Reviews of decisions by people';

CREATE TABLE transcripts (
    transcript_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    run_id VARCHAR NOT NULL,  -- The run or the proposal; the id of the transcript is derived from it
    mode VARCHAR NOT NULL,
    policy JSON NOT NULL  -- The policy that calls, with its settings
);
COMMENT ON TABLE transcripts IS 'The run or proposal whose calls each transcript contains';

CREATE TABLE calls (
    transcript_id VARCHAR NOT NULL,
    number INTEGER NOT NULL,  -- From 1 in each transcript
    idx BIGINT NOT NULL,
    epoch INTEGER,  -- The epoch of the decision; NULL for a probe and for a call that belongs to no run
    agent VARCHAR NOT NULL,  -- Who acted: decider, voter 2, prober, playbook, human
    action VARCHAR NOT NULL,  -- decide, probe, propose, repair or review
    rules JSON NOT NULL,  -- The due rules that were asked about
    model VARCHAR,  -- NULL: the agent is not a model; the columns that describe a model are NULL too
    endpoint VARCHAR,  -- Address that was asked, without user and query
    rung VARCHAR,  -- How the form of the answer was asked for
    parameters JSON NOT NULL,  -- Temperature, seed, bounds
    request VARCHAR,  -- SHA-256 of the stored request
    request_bytes BIGINT,  -- Its size
    response VARCHAR,  -- SHA-256 of the stored response, secrets removed; NULL: no response
    response_bytes BIGINT,  -- Its size
    status INTEGER,  -- HTTP status; NULL: no response
    finish_reason VARCHAR,  -- As the server says
    prompt_tokens BIGINT,  -- As the server counts
    completion_tokens BIGINT,  -- Likewise
    total_tokens BIGINT,  -- Likewise
    seconds DOUBLE NOT NULL,  -- With all retries
    cost DOUBLE,  -- US dollars; NULL: unknown
    retries JSON NOT NULL,  -- Status, error and seconds waited of each attempt before the last
    outcome VARCHAR NOT NULL,  -- usable, or the kind of failure
    problem VARCHAR,  -- Explanation
    cached BOOLEAN NOT NULL  -- Whether an earlier call to the same effect was answered again
);
COMMENT ON TABLE calls IS 'Requests to language models, and steps of other agents';

CREATE TABLE votes (
    transcript_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    epoch INTEGER NOT NULL,  -- The epoch decided on
    rule VARCHAR NOT NULL,
    votes JSON NOT NULL,  -- Ballots by direction; unusable counts ballots without a valid vote
    chosen VARCHAR,  -- The direction that was taken; NULL: no vote was usable
    agreement DOUBLE NOT NULL,  -- Share of the ballots that were for it
    calls JSON NOT NULL  -- Numbers of the calls that brought the ballots
);
COMMENT ON TABLE votes IS 'The votes of an ensemble''s members on each rule';

CREATE TABLE proposal_reviews (
    transcript_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    epoch INTEGER NOT NULL,  -- The epoch decided on
    proposed JSON NOT NULL,  -- The decision that was proposed
    verdict VARCHAR NOT NULL,  -- approve, edit or reject
    decision JSON NOT NULL,  -- The decision that was said
    mark VARCHAR,  -- gold or bad; NULL: unmarked
    note VARCHAR NOT NULL  -- Explanation
);
COMMENT ON TABLE proposal_reviews IS 'How people approved, edited or rejected proposed decisions';

CREATE TABLE infra_submissions (
    proposal_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    line_id VARCHAR NOT NULL,  -- The line that it would change
    task VARCHAR,  -- The task or request that led to the proposal
    tier INTEGER NOT NULL,  -- The strictest tier that it declares
    targets JSON NOT NULL,  -- Path to tier, as declared
    diff VARCHAR NOT NULL,  -- SHA-256 of the stored diff
    diff_bytes BIGINT NOT NULL,  -- Its size
    base VARCHAR NOT NULL,  -- Commit that the diff applies to
    base_tree VARCHAR NOT NULL,  -- Its tree
    rationale VARCHAR NOT NULL,
    trigger VARCHAR NOT NULL,  -- error_pattern, operator_request or performance_regression
    proposer VARCHAR NOT NULL,  -- Who proposes
    evidence JSON NOT NULL  -- The evidence that the rationale refers to
);
COMMENT ON TABLE infra_submissions IS 'Proposed changes, as submitted; the view infra_proposals is easier to query';

CREATE TABLE infra_reviews (
    proposal_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    verdict VARCHAR NOT NULL,  -- approve, reject or revise
    envelope VARCHAR NOT NULL,
    key VARCHAR NOT NULL,  -- The operator's vkey
    expires BIGINT NOT NULL,  -- Seconds since 1970
    note VARCHAR NOT NULL  -- The operator's words
);
COMMENT ON TABLE infra_reviews IS 'Operators'' approvals and rejections of proposals';

CREATE TABLE infra_branches (
    proposal_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    branch VARCHAR NOT NULL,  -- Name of the branch
    commit VARCHAR NOT NULL,  -- The candidate
    tree VARCHAR NOT NULL,  -- Its tree
    changes JSON NOT NULL,  -- Paths with the change to each
    tier INTEGER NOT NULL,  -- The strictest tier that is really touched
    configuration_only BOOLEAN NOT NULL,  -- Whether nothing but configuration changes
    manifest VARCHAR NOT NULL,  -- SHA-256 of the manifest in force
    reference_set VARCHAR NOT NULL,  -- SHA-256 of the reference set in force
    against VARCHAR NOT NULL  -- Commit that it is compared with
);
COMMENT ON TABLE infra_branches IS 'The branch of each proposal, and the files that it changes';

CREATE TABLE infra_validation_results (
    proposal_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    passed BOOLEAN NOT NULL,  -- Whether every case of the base passed
    problem VARCHAR,  -- Why not
    cases INTEGER NOT NULL,  -- How many passed
    missing JSON NOT NULL,  -- Cases of the base that did not pass
    added JSON NOT NULL,  -- Test files that the proposal brings
    seconds DOUBLE NOT NULL,  -- Wall clock
    expected VARCHAR,  -- SHA-256 of the base's cases with their outcomes
    output VARCHAR,  -- SHA-256 of what was printed
    isolation JSON NOT NULL,
    leftovers INTEGER NOT NULL,  -- Processes that had to be ended
    flaky JSON,  -- Cases that failed at first and then passed in every repeated run; NULL in older records
    outcomes VARCHAR,  -- SHA-256 of the candidate's cases with their outcomes
    left_out JSON NOT NULL,  -- Test files that run before the promotion
    choice VARCHAR,  -- Why these were left out; NULL if all tests run at once
    fixes JSON NOT NULL  -- Cases of added tests that fail without the change and pass with it
);
COMMENT ON TABLE infra_validation_results IS 'The result of the tests for each proposal: of all, or of those that its change can reach';

CREATE TABLE infra_rest_results (
    proposal_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    passed BOOLEAN NOT NULL,  -- Whether every case of the base in these files passed
    problem VARCHAR,  -- Why not
    cases INTEGER NOT NULL,  -- How many passed
    missing JSON NOT NULL,  -- Cases of the base in these files that did not pass
    seconds DOUBLE NOT NULL,  -- Wall clock
    output VARCHAR NOT NULL,  -- SHA-256 of what was printed
    isolation JSON NOT NULL,
    leftovers INTEGER NOT NULL,  -- Processes that had to be ended
    flaky JSON NOT NULL,  -- Cases that failed at first and then passed in every repeated run
    outcomes VARCHAR NOT NULL  -- SHA-256 of all cases of the candidate, from both runs, with their outcomes
);
COMMENT ON TABLE infra_rest_results IS 'The result of the tests that were left out at first, for each proposal that was better';

CREATE TABLE infra_task_scores (
    proposal_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    arm VARCHAR NOT NULL,  -- base or candidate
    task VARCHAR NOT NULL,  -- The task
    repeat INTEGER NOT NULL,  -- From 0
    seed BIGINT NOT NULL,  -- Of this repeat
    success BOOLEAN NOT NULL,  -- Whether the answer was right
    validation_failures INTEGER NOT NULL,  -- Parts of the answer that were no answer
    metrics JSON NOT NULL,  -- What else was counted
    problem VARCHAR,  -- What was wrong
    cached BOOLEAN NOT NULL,  -- Whether the answer was reused from an earlier proposal; only in older records
    isolation JSON NOT NULL,
    missing BOOLEAN,  -- Whether there was no answer at all; NULL in older records
    seconds DOUBLE,  -- Until the answer came, from the start of the process; NULL in older records, and where there is none
    cpu_seconds DOUBLE  -- Processor time of the whole answer; NULL in older records, and where there is none
);
COMMENT ON TABLE infra_task_scores IS 'The answer of one arm to one reference task';

CREATE TABLE infra_evaluations (
    proposal_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    verdict VARCHAR NOT NULL,  -- better, no worse, worse or cannot tell
    level DOUBLE NOT NULL,  -- Error that was spent on it
    regressions JSON NOT NULL,  -- Tasks that became worse
    improvements JSON NOT NULL,  -- What became better
    reasons JSON NOT NULL,  -- Why the verdict is what it is
    comparisons JSON NOT NULL  -- Task by task
);
COMMENT ON TABLE infra_evaluations IS 'Comparisons of candidate and base';

CREATE TABLE infra_conclusions (
    proposal_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    outcome VARCHAR NOT NULL,  -- promoted, rejected, halted, superseded or withdrawn
    stage VARCHAR NOT NULL,  -- The stage that it ended at
    reason VARCHAR NOT NULL,
    checkpoint VARCHAR,  -- The checkpoint that a promotion made
    valley VARCHAR  -- The valley that let it through although it is not better
);
COMMENT ON TABLE infra_conclusions IS 'How each proposal ended';

CREATE TABLE line_starts (
    line_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    root VARCHAR NOT NULL,  -- The repository's first commit
    branch VARCHAR NOT NULL  -- The branch
);
COMMENT ON TABLE line_starts IS 'Branches that the gauntlet manages';

CREATE TABLE checkpoint_starts (
    line_id VARCHAR NOT NULL,
    checkpoint_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    parent VARCHAR,  -- The checkpoint before it; NULL: the line began here
    commit VARCHAR NOT NULL,  -- Its commit in the repository
    tree VARCHAR NOT NULL,  -- Its tree
    manifest VARCHAR NOT NULL,  -- SHA-256 of its manifest
    reference_set VARCHAR NOT NULL,  -- SHA-256 of its reference set
    code VARCHAR,  -- SHA-256 over the files in it that decide a run; NULL: recorded before this existed
    origin VARCHAR NOT NULL  -- opened, promoted or adopted (committed by people)
);
COMMENT ON TABLE checkpoint_starts IS 'Versions of the infrastructure; the view checkpoint_standing is easier to query';

CREATE TABLE checkpoint_proposals (
    checkpoint_id VARCHAR NOT NULL,
    proposal_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL
);
COMMENT ON TABLE checkpoint_proposals IS 'The proposals that each checkpoint contains';

CREATE TABLE checkpoint_rollbacks (
    line_id VARCHAR NOT NULL,
    checkpoint_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    to_checkpoint VARCHAR NOT NULL,  -- Active from then on
    reason VARCHAR NOT NULL,
    signed_by VARCHAR  -- Key id of the operator who signed it, hexadecimal; NULL if none did
);
COMMENT ON TABLE checkpoint_rollbacks IS 'Checkpoints that were rolled back, each with its descendants';

CREATE TABLE line_halts (
    line_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    what VARCHAR NOT NULL,  -- halted or resumed
    proposal_id VARCHAR NOT NULL,
    reason VARCHAR,  -- Of a halt
    envelope VARCHAR  -- Of an answer: what the operator's key has signed
);
COMMENT ON TABLE line_halts IS 'Proposals that tried to change the controller, and the operators'' answers';

CREATE TABLE valleys (
    line_id VARCHAR NOT NULL,
    valley_id VARCHAR NOT NULL,  -- The valley
    idx BIGINT NOT NULL,
    what VARCHAR NOT NULL,  -- opened or closed
    steps JSON,  -- SHA-256 of the diffs that are let through, in order
    expires BIGINT,  -- Seconds since 1970
    envelope VARCHAR,
    reason VARCHAR  -- Why it was closed
);
COMMENT ON TABLE valleys IS 'Stretches in which an operator suspended the gate';

CREATE TABLE admitted_tasks (
    line_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    task VARCHAR NOT NULL,  -- The task
    sha256 VARCHAR NOT NULL,  -- Of its content
    envelope VARCHAR NOT NULL
);
COMMENT ON TABLE admitted_tasks IS 'Tasks that an operator added to the reference set';

CREATE TABLE drift_measurements (
    line_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    checkpoint_id VARCHAR NOT NULL,  -- Active when it was measured
    commit VARCHAR NOT NULL,  -- What was measured
    task_set VARCHAR NOT NULL,  -- reference or hidden
    sha256 VARCHAR NOT NULL,  -- Of the set
    success DOUBLE NOT NULL,  -- Share of tasks
    tasks JSON NOT NULL  -- Task by task
);
COMMENT ON TABLE drift_measurements IS 'Measurements of the line outside proposals';

CREATE TABLE drift_alarms (
    line_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    checkpoint_id VARCHAR NOT NULL,  -- Active at the time
    commit VARCHAR NOT NULL,  -- What was found
    kind VARCHAR NOT NULL,  -- What kind of alarm
    detail VARCHAR NOT NULL,  -- Explanation
    tasks JSON NOT NULL  -- Tasks that speak for it
);
COMMENT ON TABLE drift_alarms IS 'Alarms: the line scored worse than the promoted commit, or was another commit';

CREATE TABLE drift_answers (
    line_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    alarm INTEGER NOT NULL,  -- Number of the alarm on its line, from 1
    kind VARCHAR NOT NULL,  -- Of the alarm
    note VARCHAR NOT NULL  -- Text of the statement
);
COMMENT ON TABLE drift_answers IS 'Operators'' answers to alarms; the view alarms is easier to query';

CREATE TABLE checkpoint_evaluations (
    line_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    checkpoint_id VARCHAR NOT NULL,  -- What was evaluated
    commit VARCHAR NOT NULL,  -- Of the checkpoint
    purpose VARCHAR NOT NULL,  -- baseline, drift or confirmation
    number INTEGER NOT NULL,  -- Of that purpose for that checkpoint, from 1
    seed VARCHAR,  -- What the tasks were made from; NULL: the set in the repository
    sha256 VARCHAR NOT NULL,  -- Of the set
    tasks INTEGER NOT NULL,  -- How many
    right_answers INTEGER NOT NULL,  -- How many were answered rightly
    valid INTEGER NOT NULL,  -- How many without an answer that was refused
    "precision" DOUBLE,  -- Mean precision of the chosen rows; NULL: no task measures it
    wrong JSON NOT NULL,  -- Tasks that were answered wrongly
    files INTEGER,  -- Of tiers 1 and 2; NULL: not weighed, as the next three
    lines INTEGER,  -- Of their code, without comments and blank lines
    functions INTEGER,  -- In them
    complexity INTEGER  -- Cyclomatic, of all functions together
);
COMMENT ON TABLE checkpoint_evaluations IS 'Evaluations of checkpoints on generated tasks';

CREATE TABLE evolutions (
    evolution_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    line_id VARCHAR NOT NULL
);
COMMENT ON TABLE evolutions IS 'The line of each evolution';

CREATE TABLE evolution_orders (
    evolution_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    what VARCHAR NOT NULL,  -- begin, on, off or reset
    rounds INTEGER,  -- How many rounds to run; NULL: none
    proposer JSON,  -- Who proposes, with settings; nothing secret
    technique VARCHAR  -- The technique that was ordered; NULL: chosen by experience
);
COMMENT ON TABLE evolution_orders IS 'Commands to evolutions: begin, on, off or reset';

CREATE TABLE evolution_rounds (
    evolution_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    round INTEGER NOT NULL,
    outcome VARCHAR NOT NULL,  -- proposed, nothing, unusable, unanswered or refused
    proposal_id VARCHAR,  -- The proposal; NULL: there is none
    proposer VARCHAR NOT NULL,  -- Who looked
    technique VARCHAR,  -- How; NULL: it did not come to that
    pattern VARCHAR,  -- The error pattern that it was about
    calls INTEGER NOT NULL,  -- To a language model; they are in its transcript
    reason VARCHAR NOT NULL  -- Why there is no proposal, or what else there is to say
);
COMMENT ON TABLE evolution_rounds IS 'Rounds that searched for an improvement, and the outcome of each';

CREATE TABLE advice_lines (
    advice_id VARCHAR NOT NULL,  -- The advice to the model
    idx BIGINT NOT NULL,
    model VARCHAR NOT NULL  -- The model's name
);
COMMENT ON TABLE advice_lines IS 'The model of each advice block';

CREATE TABLE advice_proposals (
    advice_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    round INTEGER NOT NULL,
    version INTEGER NOT NULL,  -- From 1; version 0 is the empty block
    parent INTEGER NOT NULL,  -- The version that it is to replace
    campaign_id VARCHAR,  -- The campaign; NULL: outside of one
    attempt INTEGER,  -- The attempt after which it was proposed
    proposer VARCHAR NOT NULL,  -- template, or the model that wrote it
    technique VARCHAR NOT NULL,  -- How it was written
    pattern VARCHAR NOT NULL,  -- The error pattern that it is about
    rationale VARCHAR NOT NULL,
    text VARCHAR NOT NULL,  -- The whole block
    evidence JSON NOT NULL  -- What shows the pattern
);
COMMENT ON TABLE advice_proposals IS 'Advice blocks that were proposed';

CREATE TABLE advice_answers (
    advice_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    round INTEGER NOT NULL,  -- The round
    scenario VARCHAR NOT NULL,  -- The scenario
    repeat INTEGER NOT NULL,  -- Number of the pair, from 0
    seed BIGINT NOT NULL,  -- Drawn for the pair
    first VARCHAR NOT NULL,  -- The arm that was asked first
    arm VARCHAR NOT NULL,  -- base or candidate
    success BOOLEAN NOT NULL,  -- Whether every due rule got an acceptable answer
    valid BOOLEAN NOT NULL,  -- Whether every due rule got a usable answer
    missing BOOLEAN NOT NULL,  -- Whether there was no answer at all
    problem VARCHAR  -- What is not acceptable; NULL: nothing
);
COMMENT ON TABLE advice_answers IS 'Answers to scenarios with the champion (base) and with the proposed block (candidate)';

CREATE TABLE advice_rounds (
    advice_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    round INTEGER NOT NULL,
    campaign_id VARCHAR,  -- The campaign; NULL: outside of one
    attempt INTEGER,  -- The attempt after which it took place
    proposer VARCHAR NOT NULL,  -- template, or the model that writes
    technique VARCHAR,  -- How; NULL: it did not come to that
    pattern VARCHAR,  -- The error pattern that it was about
    version INTEGER,  -- The block that was tested; NULL: none
    outcome VARCHAR NOT NULL,  -- promoted, kept, nothing, unusable, unanswered, refused or abandoned
    reason VARCHAR NOT NULL,
    calls INTEGER NOT NULL,  -- To language models; they are in transcripts
    verdict VARCHAR,  -- better, worse or cannot tell; NULL: not compared, as all that follows
    level DOUBLE,  -- Of error that was spent on it
    pairs INTEGER,  -- Pairs of answers
    pass_rate_before DOUBLE,  -- Mean over scenarios, with the champion
    pass_rate_after DOUBLE,  -- Likewise, with the proposed block
    score_before DOUBLE,  -- Pass rate less 1e-5 for each character of the block
    score_after DOUBLE,  -- Likewise, with the proposed block
    regressions JSON,  -- Scenarios that are answered worse
    improvements JSON  -- Scenarios that are answered better
);
COMMENT ON TABLE advice_rounds IS 'Rounds of tuning an advice block, and the outcome of each';

CREATE TABLE advice_orders (
    advice_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    what VARCHAR NOT NULL  -- on, off or reset
);
COMMENT ON TABLE advice_orders IS 'Commands to the tuning of an advice block';

CREATE TABLE advice_scenarios (
    advice_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    name VARCHAR NOT NULL,  -- The scenario
    admitted BOOLEAN NOT NULL,  -- Whether it counts from here on; false: a candidate
    origin VARCHAR,  -- Where it comes from; NULL: admitted later, as the next two
    observation JSON,  -- The situation
    expected JSON  -- Acceptable acts for each due rule; none: it has to wait
);
COMMENT ON TABLE advice_scenarios IS 'Scenarios that were recorded in this ledger, and those that were admitted later';

CREATE TABLE bisections (
    bisection_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    line_id VARCHAR NOT NULL,
    good VARCHAR NOT NULL,  -- The checkpoint before the first suspect
    suspects JSON NOT NULL,  -- Checkpoints in the order of the chain
    oracle JSON NOT NULL,  -- How a checkpoint is probed
    error DOUBLE NOT NULL,  -- Given share of wrong verdicts; 0: verdicts are certain
    confidence DOUBLE NOT NULL,  -- At which the search ends
    ends_believed BOOLEAN NOT NULL,  -- The endpoints were assumed, not tested
    rules INTEGER NOT NULL  -- 1: the given share is the true one; 2: it is estimated; 3: two shares, of false alarms and of missed faults, are estimated
);
COMMENT ON TABLE bisections IS 'Searches for the checkpoint that made a line worse';

CREATE TABLE bisection_probes (
    bisection_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    number INTEGER NOT NULL,  -- From 1 in each search
    checkpoint_id VARCHAR NOT NULL,  -- What was probed
    verdict VARCHAR NOT NULL,  -- bad, good or skip
    evidence JSON NOT NULL  -- What the verdict rests on
);
COMMENT ON TABLE bisection_probes IS 'Checkpoints that a search tested';

CREATE TABLE bisection_ends (
    bisection_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    culprit VARCHAR,  -- The checkpoint; NULL: none was found
    candidates JSON NOT NULL,  -- Checkpoints among which the culprit is
    posterior DOUBLE NOT NULL,  -- Probability that the culprit is among them
    reason VARCHAR NOT NULL  -- Explanation
);
COMMENT ON TABLE bisection_ends IS 'The outcome of each search';

CREATE TABLE corpus_origins (
    idx BIGINT NOT NULL,
    what VARCHAR NOT NULL,  -- admitted or withdrawn
    kind VARCHAR NOT NULL,  -- data or model
    name VARCHAR NOT NULL,  -- Fingerprint of the data, or the model as the policy names it
    note VARCHAR NOT NULL,  -- Why
    signed_by VARCHAR  -- Key id of the operator who signed it, hexadecimal; NULL if none did
);
COMMENT ON TABLE corpus_origins IS 'Data and models that an operator admitted to training data, or withdrew';

CREATE TABLE exports (
    export_id VARCHAR NOT NULL,  -- The export
    idx BIGINT NOT NULL,  -- Ledger index of its seal
    kind VARCHAR NOT NULL,  -- preferences or sft
    as_of BIGINT NOT NULL,  -- Index of the last entry that was looked at
    head VARCHAR NOT NULL,  -- Hash of that entry, hexadecimal
    query JSON NOT NULL,  -- What the examples had to meet
    code VARCHAR NOT NULL,  -- SHA-256 over the code that selected the examples
    examples BIGINT NOT NULL,  -- How many
    root VARCHAR NOT NULL,  -- Merkle root over the lines, hexadecimal
    sha256 VARCHAR NOT NULL,  -- Of the JSON Lines
    members VARCHAR NOT NULL  -- SHA-256 of the stored list of examples
);
COMMENT ON TABLE exports IS 'Exports of training data';
