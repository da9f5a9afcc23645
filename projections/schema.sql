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
COMMENT ON COLUMN *.epoch IS 'From 0';
COMMENT ON COLUMN *.advice_id IS 'The advice to a model';
COMMENT ON COLUMN *.audit_id IS 'The audit';
COMMENT ON COLUMN *.comparison_id IS 'The comparison';
COMMENT ON COLUMN *.credit_id IS 'The measurement';
COMMENT ON COLUMN *.rule IS 'The rule';
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
COMMENT ON COLUMN *.cases IS 'Cases that passed';
COMMENT ON COLUMN *.detail IS 'In words';
COMMENT ON COLUMN *.diff_bytes IS 'Size of the diff';
COMMENT ON COLUMN *.evidence IS 'What it rests on';
COMMENT ON COLUMN *.model IS 'Name of the model';
COMMENT ON COLUMN *.note IS 'In words';
COMMENT ON COLUMN *.policy IS 'Name of the policy';
COMMENT ON COLUMN *.problem IS 'Why not; NULL: nothing is wrong';
COMMENT ON COLUMN *.proposer IS 'Who proposes';
COMMENT ON COLUMN *.seconds IS 'Wall-clock time';
COMMENT ON COLUMN *.seed IS 'Seed of the run';
COMMENT ON COLUMN *.sha256 IS 'SHA-256 of the content';
COMMENT ON COLUMN *.signed_by IS 'Key id of who signed it in the role that it needs, hexadecimal; NULL: nobody did';
COMMENT ON COLUMN *.size IS 'Bytes';
COMMENT ON COLUMN *.task IS 'The task';
COMMENT ON COLUMN *.tree IS 'Tree of the commit';

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

CREATE TABLE epoch_metrics (
    run_id VARCHAR NOT NULL,
    epoch INTEGER NOT NULL,
    idx BIGINT NOT NULL,
    place INTEGER NOT NULL,  -- Order in the epoch, from 0
    metric VARCHAR NOT NULL,  -- Its name
    value DOUBLE  -- On the validation part
);
COMMENT ON TABLE epoch_metrics IS 'Metrics of each epoch that a task computes, or that a watched loop reported beside loss and accuracy';

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
    precedence INTEGER NOT NULL  -- Among the rules; 1 is acted on first
);
COMMENT ON TABLE rule_evaluations IS 'The result of each rule in each epoch';

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
    cached_tokens BIGINT,  -- Of prompt_tokens; NULL: the server does not tell
    reasoning_tokens BIGINT,  -- Of completion_tokens; likewise
    seconds DOUBLE NOT NULL,  -- With all retries
    cost DOUBLE,  -- US dollars; NULL: unknown
    retries JSON NOT NULL,  -- Status, error and seconds waited of each attempt before the last
    outcome VARCHAR NOT NULL,  -- usable, or the kind of failure
    problem VARCHAR,  -- Explanation
    cached BOOLEAN NOT NULL  -- Whether an earlier call to the same effect was answered again
);
COMMENT ON TABLE calls IS 'Requests to language models, and steps of other agents';

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

CREATE TABLE evolution_orders (
    evolution_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    what VARCHAR NOT NULL,  -- begin, on, off or reset
    rounds INTEGER,  -- How many rounds to run; NULL: none
    proposer JSON,  -- Who proposes, with settings; nothing secret
    technique VARCHAR  -- The technique that was ordered; NULL: chosen by experience
);
COMMENT ON TABLE evolution_orders IS 'Commands to evolutions: begin, on, off or reset';

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

CREATE TABLE corpus_origins (
    idx BIGINT NOT NULL,
    what VARCHAR NOT NULL,  -- admitted or withdrawn
    kind VARCHAR NOT NULL,  -- data or model
    name VARCHAR NOT NULL,  -- Fingerprint of the data, or the model as the policy names it
    note VARCHAR NOT NULL,  -- Why
    signed_by VARCHAR  -- Key id of the operator who signed it, hexadecimal; NULL if none did
);
COMMENT ON TABLE corpus_origins IS 'Data and models that an operator admitted to training data, or withdrew';
