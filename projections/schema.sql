-- Tables: one row for each fact that an event states; what follows from them is left to views.sql.
-- Epochs and layer places count from 0, decisions and steps from 1. Every idx is the ledger index
-- of the event that the row comes from; its time stands in events. In JSON, numbers that are not
-- finite are the texts "NaN", "Infinity" and "-Infinity" (a cast to DOUBLE reads them), and bytes
-- are hexadecimal.

-- What columns of a name mean in every table that says nothing else of them.
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

CREATE TABLE position (
    next_idx BIGINT NOT NULL,
    last_hash VARCHAR,
    schema_hash VARCHAR NOT NULL
);
COMMENT ON TABLE position IS 'A single row: the last ledger entry that was applied';
COMMENT ON COLUMN position.next_idx IS 'Index of the next entry to apply';
COMMENT ON COLUMN position.last_hash IS 'Entry hash of the last entry applied, hexadecimal; it fixes all before it';
COMMENT ON COLUMN position.schema_hash IS 'SHA-256 over what these tables were made by; another one means a rebuild';

CREATE TABLE events (
    idx BIGINT NOT NULL,
    time TIMESTAMP NOT NULL,
    stream_id VARCHAR NOT NULL,
    version BIGINT NOT NULL,
    name VARCHAR NOT NULL
);
COMMENT ON TABLE events IS 'Every entry of the ledger, whatever its kind';
COMMENT ON COLUMN events.idx IS 'Ledger index, from 0';
COMMENT ON COLUMN events.time IS 'When the ledger took the entry, UTC, cut to microseconds';
COMMENT ON COLUMN events.stream_id IS 'The run, campaign or audit';
COMMENT ON COLUMN events.version IS 'Position in the stream, from 1';
COMMENT ON COLUMN events.name IS 'Kind of event, such as run.started';

CREATE TABLE unreadable (
    idx BIGINT NOT NULL,
    reason VARCHAR NOT NULL,
    signed_as VARCHAR
);
COMMENT ON TABLE unreadable IS 'Entries that this program cannot read; apart from this table they have a row in events only';
COMMENT ON COLUMN unreadable.idx IS 'Ledger index of the entry';
COMMENT ON COLUMN unreadable.reason IS 'What is wrong with it: an unknown name or version, a malformed body, a value that does not fit its column';
COMMENT ON COLUMN unreadable.signed_as IS 'Role of the author, if there is one';

CREATE TABLE authority_events (
    idx BIGINT NOT NULL,
    name VARCHAR NOT NULL,
    body JSON NOT NULL,
    signed_as VARCHAR,
    signed_by VARCHAR
);
COMMENT ON TABLE authority_events IS 'Events about keys and about the ledger''s clock; proctor keys list shows the keys in force';
COMMENT ON COLUMN authority_events.name IS 'key.granted, key.revoked, key.rotated or clock.jumped';
COMMENT ON COLUMN authority_events.body IS 'As recorded; the fields are in the reference of the ledger format';
COMMENT ON COLUMN authority_events.signed_as IS 'Role of the author, if there is one';
COMMENT ON COLUMN authority_events.signed_by IS 'Key id of the author, hexadecimal';

CREATE TABLE run_starts (
    run_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    config JSON NOT NULL,
    config_hash VARCHAR NOT NULL,
    rules JSON NOT NULL,
    rules_hash VARCHAR NOT NULL,
    spec JSON NOT NULL,
    policy JSON NOT NULL,
    data JSON NOT NULL,
    environment JSON NOT NULL,
    parent_run VARCHAR,
    campaign VARCHAR,
    checkpoint VARCHAR
);
COMMENT ON TABLE run_starts IS 'The start of each run; the view runs is easier to query';
COMMENT ON COLUMN run_starts.config IS 'Configuration as recorded';
COMMENT ON COLUMN run_starts.config_hash IS 'SHA-256 of the configuration, as recorded';
COMMENT ON COLUMN run_starts.rules IS 'Signals, thresholds and windows of the rules';
COMMENT ON COLUMN run_starts.rules_hash IS 'SHA-256 of the rules configuration, as recorded';
COMMENT ON COLUMN run_starts.spec IS 'Model specification at the start';
COMMENT ON COLUMN run_starts.policy IS 'The policy''s own description';
COMMENT ON COLUMN run_starts.data IS 'Dataset, sizes and fingerprints';
COMMENT ON COLUMN run_starts.environment IS 'Versions, machine, threads, identity of the code';
COMMENT ON COLUMN run_starts.parent_run IS 'The run that this one restarts from';
COMMENT ON COLUMN run_starts.campaign IS 'The campaign that this run is an attempt of';
COMMENT ON COLUMN run_starts.checkpoint IS 'Version of the infrastructure that the run was made under';

CREATE TABLE provocations (
    run_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    name VARCHAR NOT NULL,
    seed BIGINT NOT NULL,
    changes JSON NOT NULL,
    expects JSON NOT NULL
);
COMMENT ON TABLE provocations IS 'Faults that were provoked in runs; provocation_outcomes shows their effect';
COMMENT ON COLUMN provocations.name IS 'Which of the catalogue';
COMMENT ON COLUMN provocations.seed IS 'What its severity and its place are drawn from';
COMMENT ON COLUMN provocations.changes IS 'What it did to settings, weights, biases or loss';
COMMENT ON COLUMN provocations.expects IS 'Rules that it is meant to make fire';

CREATE TABLE forks (
    run_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    parent VARCHAR NOT NULL,
    epoch INTEGER NOT NULL,
    digest VARCHAR NOT NULL,
    state VARCHAR NOT NULL,
    orders JSON NOT NULL
);
COMMENT ON TABLE forks IS 'Runs that go on from a recorded epoch of another run';
COMMENT ON COLUMN forks.parent IS 'The run that it goes on from';
COMMENT ON COLUMN forks.epoch IS 'The last epoch that both share; the decisions on it are the fork''s own';
COMMENT ON COLUMN forks.digest IS 'SHA-256 of what both recorded up to then';
COMMENT ON COLUMN forks.state IS 'SHA-256 of the training state after that epoch, a stored file';
COMMENT ON COLUMN forks.orders IS 'Other orders of the examples: seeds by the epoch after which they begin';

CREATE TABLE run_ends (
    run_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    reason VARCHAR NOT NULL,
    detail VARCHAR NOT NULL,
    deliverables JSON NOT NULL,
    entry VARCHAR NOT NULL
);
COMMENT ON TABLE run_ends IS 'The end of each run; an unfinished run has no row';
COMMENT ON COLUMN run_ends.reason IS 'completed, crashed, failed, interrupted, restart or stopped';
COMMENT ON COLUMN run_ends.detail IS 'The reason in words';
COMMENT ON COLUMN run_ends.deliverables IS 'SHA-256 of each submitted file, by name';
COMMENT ON COLUMN run_ends.entry IS 'Hash of the entry, hexadecimal; it covers all entries before it';

CREATE TABLE epochs (
    run_id VARCHAR NOT NULL,
    epoch INTEGER NOT NULL,
    idx BIGINT NOT NULL,
    train_loss DOUBLE,
    train_accuracy DOUBLE,
    val_loss DOUBLE,
    val_accuracy DOUBLE,
    gradients_finite BOOLEAN,
    max_layer_grad_norm DOUBLE,
    min_layer_grad_norm DOUBLE,
    update_ratio DOUBLE,
    epoch_update_ratio DOUBLE,
    signal_to_noise DOUBLE,
    signal_to_noise_low DOUBLE,
    signal_to_noise_high DOUBLE,
    norm_noise_scale DOUBLE,
    noise_scale DOUBLE,
    dead_share DOUBLE,
    sparsity DOUBLE,
    lr DOUBLE,
    batch_size BIGINT,
    accumulation BIGINT,
    clip_norm DOUBLE,
    losses_reported BOOLEAN,
    reported JSON NOT NULL
);
COMMENT ON TABLE epochs IS 'What was measured in each epoch; NaN is a measured value, NULL was not measurable';
COMMENT ON COLUMN epochs.train_loss IS 'Mean over the training examples, nats';
COMMENT ON COLUMN epochs.train_accuracy IS 'Share of training examples';
COMMENT ON COLUMN epochs.val_loss IS 'Mean over the validation examples, nats';
COMMENT ON COLUMN epochs.val_accuracy IS 'Share of validation examples';
COMMENT ON COLUMN epochs.gradients_finite IS 'Whether every gradient of the epoch was finite';
COMMENT ON COLUMN epochs.max_layer_grad_norm IS 'Largest gradient norm of the weight tensors of rank two and more';
COMMENT ON COLUMN epochs.min_layer_grad_norm IS 'Smallest of them';
COMMENT ON COLUMN epochs.update_ratio IS 'Update over parameter norm per step, median over weight tensors';
COMMENT ON COLUMN epochs.epoch_update_ratio IS 'The same over the whole epoch';
COMMENT ON COLUMN epochs.signal_to_noise IS 'Batch size over the gradient noise scale';
COMMENT ON COLUMN epochs.signal_to_noise_low IS 'Lower end of its 90% interval; NULL where the measurement says nothing';
COMMENT ON COLUMN epochs.signal_to_noise_high IS 'Upper end of its 90% interval';
COMMENT ON COLUMN epochs.norm_noise_scale IS 'Mean squared over variance of the total gradient norm between steps';
COMMENT ON COLUMN epochs.noise_scale IS 'Gradient noise scale, examples';
COMMENT ON COLUMN epochs.dead_share IS 'Share of units whose activation has slope zero';
COMMENT ON COLUMN epochs.sparsity IS 'Mean share of activations that are exactly zero';
COMMENT ON COLUMN epochs.lr IS 'Learning rate in force';
COMMENT ON COLUMN epochs.batch_size IS 'Examples';
COMMENT ON COLUMN epochs.accumulation IS 'Batches per optimizer step';
COMMENT ON COLUMN epochs.clip_norm IS 'Bound of the total gradient norm; NULL: no bound';
COMMENT ON COLUMN epochs.losses_reported IS 'Whether losses and accuracies are what a watched loop reported; otherwise they were measured';
COMMENT ON COLUMN epochs.reported IS 'Values reported by the training loop; no rule reads them, unless losses_reported';

CREATE TABLE layer_metrics (
    run_id VARCHAR NOT NULL,
    epoch INTEGER NOT NULL,
    idx BIGINT NOT NULL,
    place INTEGER NOT NULL,
    layer VARCHAR NOT NULL,
    rank INTEGER NOT NULL,
    grad_norm DOUBLE,
    update_ratio DOUBLE,
    epoch_update_ratio DOUBLE
);
COMMENT ON TABLE layer_metrics IS 'Measured values of each parameter tensor';
COMMENT ON COLUMN layer_metrics.place IS 'Order in the model, from 0';
COMMENT ON COLUMN layer_metrics.layer IS 'Name of the tensor';
COMMENT ON COLUMN layer_metrics.rank IS 'Dimensions of the tensor; rules look at two and more';
COMMENT ON COLUMN layer_metrics.grad_norm IS 'L2 norm before clipping, mean over the steps';
COMMENT ON COLUMN layer_metrics.update_ratio IS 'Update over parameter norm per step';
COMMENT ON COLUMN layer_metrics.epoch_update_ratio IS 'The same over the whole epoch';

CREATE TABLE activation_metrics (
    run_id VARCHAR NOT NULL,
    epoch INTEGER NOT NULL,
    idx BIGINT NOT NULL,
    place INTEGER NOT NULL,
    layer VARCHAR NOT NULL,
    units BIGINT NOT NULL,
    dead_units BIGINT NOT NULL,
    sparsity DOUBLE,
    p50 DOUBLE,
    p99 DOUBLE
);
COMMENT ON TABLE activation_metrics IS 'Measured values of each activation module';
COMMENT ON COLUMN activation_metrics.place IS 'Order in the model, from 0';
COMMENT ON COLUMN activation_metrics.layer IS 'Name of the module';
COMMENT ON COLUMN activation_metrics.units IS 'Channels or features';
COMMENT ON COLUMN activation_metrics.dead_units IS 'Units whose largest activation of the epoch was not above zero';
COMMENT ON COLUMN activation_metrics.sparsity IS 'Share of activations that are exactly zero';
COMMENT ON COLUMN activation_metrics.p50 IS 'Median activation of a sample';
COMMENT ON COLUMN activation_metrics.p99 IS '99th percentile of the same sample';

CREATE TABLE rule_evaluations (
    run_id VARCHAR NOT NULL,
    epoch INTEGER NOT NULL,
    idx BIGINT NOT NULL,
    rule VARCHAR NOT NULL,
    fired BOOLEAN NOT NULL,
    side VARCHAR,
    value DOUBLE,
    ema DOUBLE,
    streak INTEGER NOT NULL,
    precedence INTEGER NOT NULL
);
COMMENT ON TABLE rule_evaluations IS 'The result of each of the seven rules in each epoch';
COMMENT ON COLUMN rule_evaluations.fired IS 'Whether the rule wants a decision';
COMMENT ON COLUMN rule_evaluations.side IS 'high, low, guessing, plateau, stalled or not_finite; NULL while silent';
COMMENT ON COLUMN rule_evaluations.value IS 'The signal of the epoch';
COMMENT ON COLUMN rule_evaluations.ema IS 'Moving average, or the best value so far where a rule keeps one';
COMMENT ON COLUMN rule_evaluations.streak IS 'Consecutive epochs in which the condition held';
COMMENT ON COLUMN rule_evaluations.precedence IS 'Among the seven rules; 1 is acted on first';

-- deferred_to is in params too: as a generated column it needs a function that DuckDB does not have
-- yet when it replays the log of a process that was killed.
CREATE TABLE decisions (
    run_id VARCHAR NOT NULL,
    number INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    idx BIGINT NOT NULL,
    source VARCHAR NOT NULL,
    event_type VARCHAR NOT NULL,
    direction VARCHAR NOT NULL,
    params JSON NOT NULL,
    deferred_to VARCHAR,
    justification VARCHAR NOT NULL
);
COMMENT ON TABLE decisions IS 'Answers to fired rules, as the policy gave them';
COMMENT ON COLUMN decisions.number IS 'From 1 in each run';
COMMENT ON COLUMN decisions.epoch IS 'The epoch whose evaluation is answered';
COMMENT ON COLUMN decisions.source IS 'driver, human or policy';
COMMENT ON COLUMN decisions.event_type IS 'hyperparameter_change, architecture_change or rule_triggered_no_action';
COMMENT ON COLUMN decisions.direction IS 'The remedy asked for, or defer';
COMMENT ON COLUMN decisions.params IS 'Arguments of the remedy';
COMMENT ON COLUMN decisions.deferred_to IS 'The rule that goes first, where a deferral names one';
COMMENT ON COLUMN decisions.justification IS 'The author''s words';

CREATE TABLE citations (
    run_id VARCHAR NOT NULL,
    number INTEGER NOT NULL,
    idx BIGINT NOT NULL,
    rule VARCHAR NOT NULL
);
COMMENT ON TABLE citations IS 'The rules that each decision cites';
COMMENT ON COLUMN citations.number IS 'The decision';

CREATE TABLE remedies (
    run_id VARCHAR NOT NULL,
    decision INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    idx BIGINT NOT NULL,
    outcome VARCHAR NOT NULL,
    changes JSON,
    reason VARCHAR,
    settings JSON,
    spec JSON
);
COMMENT ON TABLE remedies IS 'The outcome of each decision that asked for a change';
COMMENT ON COLUMN remedies.decision IS 'Number of the decision';
COMMENT ON COLUMN remedies.epoch IS 'The epoch behind which it took effect';
COMMENT ON COLUMN remedies.outcome IS 'applied, refused or restart';
COMMENT ON COLUMN remedies.changes IS 'Old and new values of an applied remedy';
COMMENT ON COLUMN remedies.reason IS 'Why not; of a refused remedy';
COMMENT ON COLUMN remedies.settings IS 'Hyperparameters in force from then on; of an applied remedy';
COMMENT ON COLUMN remedies.spec IS 'Model specification from then on, or that of the restart; NULL when refused';

CREATE TABLE weights (
    run_id VARCHAR NOT NULL,
    epoch INTEGER NOT NULL,
    idx BIGINT NOT NULL,
    kind VARCHAR NOT NULL,
    sha256 VARCHAR NOT NULL,
    size BIGINT NOT NULL,
    spec JSON NOT NULL,
    probe JSON NOT NULL
);
COMMENT ON TABLE weights IS 'Saved parameters; the newest of each kind counts';
COMMENT ON COLUMN weights.epoch IS 'The epoch behind which they were saved';
COMMENT ON COLUMN weights.kind IS 'best or last';
COMMENT ON COLUMN weights.sha256 IS 'Name of the stored file';
COMMENT ON COLUMN weights.size IS 'Bytes';
COMMENT ON COLUMN weights.spec IS 'Model specification that the weights belong to';
COMMENT ON COLUMN weights.probe IS 'Gradient norms on the fixed probe batch';

CREATE TABLE snapshots (
    run_id VARCHAR NOT NULL,
    epoch INTEGER NOT NULL,
    idx BIGINT NOT NULL,
    sha256 VARCHAR NOT NULL,
    size BIGINT NOT NULL,
    seconds DOUBLE NOT NULL
);
COMMENT ON TABLE snapshots IS 'Saved training states, and what they cost';
COMMENT ON COLUMN snapshots.epoch IS 'The epoch after which it was saved, before its decisions';
COMMENT ON COLUMN snapshots.sha256 IS 'Name of the stored file';
COMMENT ON COLUMN snapshots.size IS 'Bytes';
COMMENT ON COLUMN snapshots.seconds IS 'That saving took';

CREATE TABLE campaign_starts (
    campaign_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    mode VARCHAR NOT NULL,
    config JSON NOT NULL,
    max_attempts INTEGER NOT NULL,
    policy JSON NOT NULL,
    feedback BOOLEAN NOT NULL,
    ranked_by VARCHAR NOT NULL
);
COMMENT ON TABLE campaign_starts IS 'The start of each campaign; the view campaigns is easier to query';
COMMENT ON COLUMN campaign_starts.mode IS 'What kind of improvement it is';
COMMENT ON COLUMN campaign_starts.config IS 'Configuration as recorded';
COMMENT ON COLUMN campaign_starts.max_attempts IS 'How many runs it may have';
COMMENT ON COLUMN campaign_starts.policy IS 'Who decides, with its settings';
COMMENT ON COLUMN campaign_starts.feedback IS 'Whether attempts get feedback on earlier ones';
COMMENT ON COLUMN campaign_starts.ranked_by IS 'Which axis is compared first: process (the process score) or quality (the validation accuracy)';

CREATE TABLE campaign_ends (
    campaign_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    reason VARCHAR NOT NULL,
    ranking JSON NOT NULL
);
COMMENT ON TABLE campaign_ends IS 'The end of each campaign; an unfinished campaign has no row';
COMMENT ON COLUMN campaign_ends.reason IS 'Why no attempt follows';
COMMENT ON COLUMN campaign_ends.ranking IS 'Runs, the best first';

CREATE TABLE attempts (
    campaign_id VARCHAR NOT NULL,
    number INTEGER NOT NULL,
    idx BIGINT NOT NULL,
    run_id VARCHAR NOT NULL,
    parent_run VARCHAR
);
COMMENT ON TABLE attempts IS 'The runs of each campaign, including abandoned ones';
COMMENT ON COLUMN attempts.number IS 'From 1; the replacement of an abandoned attempt has the same number';
COMMENT ON COLUMN attempts.parent_run IS 'The earlier attempt that it goes on from';

CREATE TABLE abandoned_attempts (
    campaign_id VARCHAR NOT NULL,
    number INTEGER NOT NULL,
    idx BIGINT NOT NULL,
    run_id VARCHAR NOT NULL,
    reason VARCHAR NOT NULL
);
COMMENT ON TABLE abandoned_attempts IS 'Attempts that were interrupted and do not count';
COMMENT ON COLUMN abandoned_attempts.number IS 'The attempt, which is made again';
COMMENT ON COLUMN abandoned_attempts.run_id IS 'The run that does not count';
COMMENT ON COLUMN abandoned_attempts.reason IS 'Explanation';

CREATE TABLE judged_attempts (
    campaign_id VARCHAR NOT NULL,
    number INTEGER NOT NULL,
    idx BIGINT NOT NULL,
    run_id VARCHAR NOT NULL,
    audit_id VARCHAR NOT NULL
);
COMMENT ON TABLE judged_attempts IS 'Which audit of each attempt counts: the campaign''s own';
COMMENT ON COLUMN judged_attempts.number IS 'The attempt';
COMMENT ON COLUMN judged_attempts.run_id IS 'Its run';
COMMENT ON COLUMN judged_attempts.audit_id IS 'The audit that is fed back and ranked by';

CREATE TABLE feedback (
    campaign_id VARCHAR NOT NULL,
    number INTEGER NOT NULL,
    idx BIGINT NOT NULL,
    feedback JSON NOT NULL
);
COMMENT ON TABLE feedback IS 'The feedback that each attempt received on earlier attempts';
COMMENT ON COLUMN feedback.number IS 'The attempt that got the feedback';
COMMENT ON COLUMN feedback.feedback IS 'The feedback';

CREATE TABLE comparison_starts (
    comparison_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    policies JSON NOT NULL,
    conditions JSON NOT NULL,
    seeds JSON NOT NULL
);
COMMENT ON TABLE comparison_starts IS 'The start of each comparison of policies';
COMMENT ON COLUMN comparison_starts.policies IS 'Who decides, each with its settings; the first is what the others are compared with';
COMMENT ON COLUMN comparison_starts.conditions IS 'Configuration of the runs, without the seed, by the condition''s name';
COMMENT ON COLUMN comparison_starts.seeds IS 'Seeds of the runs';

CREATE TABLE comparison_runs (
    comparison_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    policy VARCHAR NOT NULL,
    condition VARCHAR NOT NULL,
    seed BIGINT NOT NULL,
    run_id VARCHAR NOT NULL
);
COMMENT ON TABLE comparison_runs IS 'The runs of each comparison, with those that were cut off; a later run takes the place of an earlier one of the same cell';
COMMENT ON COLUMN comparison_runs.policy IS 'Name of the policy';
COMMENT ON COLUMN comparison_runs.condition IS 'Name of the condition';
COMMENT ON COLUMN comparison_runs.seed IS 'Seed of the run';

CREATE TABLE comparison_results (
    comparison_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    policy VARCHAR NOT NULL,
    condition VARCHAR NOT NULL,
    seed BIGINT NOT NULL,
    run_id VARCHAR NOT NULL,
    audit_id VARCHAR,
    problem VARCHAR
);
COMMENT ON TABLE comparison_results IS 'What became of each cell of a comparison';
COMMENT ON COLUMN comparison_results.policy IS 'Name of the policy';
COMMENT ON COLUMN comparison_results.condition IS 'Name of the condition';
COMMENT ON COLUMN comparison_results.seed IS 'Seed of the run';
COMMENT ON COLUMN comparison_results.audit_id IS 'The audit that the comparison made; NULL: there is none';
COMMENT ON COLUMN comparison_results.problem IS 'Why there is no usable result; NULL: there is one';

CREATE TABLE comparison_ends (
    comparison_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL
);
COMMENT ON TABLE comparison_ends IS 'The end of each comparison; an unfinished one has no row';

CREATE TABLE credit_starts (
    credit_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    run_id VARCHAR NOT NULL,
    after VARCHAR NOT NULL,
    seeds JSON NOT NULL,
    arms JSON NOT NULL
);
COMMENT ON TABLE credit_starts IS 'The start of each measurement of what decisions were worth';
COMMENT ON COLUMN credit_starts.run_id IS 'The run whose decisions are measured';
COMMENT ON COLUMN credit_starts.after IS 'The policy that decides after the measured decision, in all forks';
COMMENT ON COLUMN credit_starts.seeds IS 'Orders of the examples; 0 is the run''s own';
COMMENT ON COLUMN credit_starts.arms IS 'Names of the alternatives, by the decision''s number';

CREATE TABLE credit_forks (
    credit_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    decision INTEGER NOT NULL,
    arm VARCHAR NOT NULL,
    seed BIGINT NOT NULL,
    run_id VARCHAR NOT NULL,
    epochs INTEGER NOT NULL,
    end_reason VARCHAR NOT NULL,
    val_loss DOUBLE NOT NULL,
    val_accuracy DOUBLE NOT NULL,
    obligations INTEGER NOT NULL,
    violations INTEGER NOT NULL
);
COMMENT ON TABLE credit_forks IS 'What each fork of a measurement came to';
COMMENT ON COLUMN credit_forks.decision IS 'Number of the decision in the run that was forked';
COMMENT ON COLUMN credit_forks.arm IS 'chosen: the decision as recorded; else the alternative';
COMMENT ON COLUMN credit_forks.seed IS 'Order of the examples after the fork; 0 is the run''s own';
COMMENT ON COLUMN credit_forks.run_id IS 'The fork';
COMMENT ON COLUMN credit_forks.epochs IS 'That it has, the shared ones included';
COMMENT ON COLUMN credit_forks.end_reason IS 'completed or stopped';
COMMENT ON COLUMN credit_forks.val_loss IS 'Validation loss of its last epoch';
COMMENT ON COLUMN credit_forks.val_accuracy IS 'Validation accuracy of its last epoch';
COMMENT ON COLUMN credit_forks.obligations IS 'Of its process, the shared ones included';
COMMENT ON COLUMN credit_forks.violations IS 'Of them';

CREATE TABLE credit_results (
    credit_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    decision INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    rules JSON NOT NULL,
    arm VARCHAR NOT NULL,
    chosen JSON NOT NULL,
    other JSON NOT NULL,
    pairs INTEGER NOT NULL,
    level DOUBLE NOT NULL,
    loss_difference DOUBLE,
    loss_low DOUBLE,
    loss_high DOUBLE,
    accuracy_difference DOUBLE,
    accuracy_low DOUBLE,
    accuracy_high DOUBLE,
    better VARCHAR
);
COMMENT ON TABLE credit_results IS 'What decisions were worth beside their alternatives; decision_credit has the run too';
COMMENT ON COLUMN credit_results.decision IS 'Number of the decision in its run';
COMMENT ON COLUMN credit_results.epoch IS 'The epoch whose evaluation it answers';
COMMENT ON COLUMN credit_results.rules IS 'That it cites';
COMMENT ON COLUMN credit_results.arm IS 'Name of the alternative; nothing: no action';
COMMENT ON COLUMN credit_results.chosen IS 'The recorded decision';
COMMENT ON COLUMN credit_results.other IS 'The alternative';
COMMENT ON COLUMN credit_results.pairs IS 'Seeds that both were trained with';
COMMENT ON COLUMN credit_results.level IS 'Of the intervals';
COMMENT ON COLUMN credit_results.loss_difference IS 'Mean final validation loss, other minus chosen; NULL: one is not finite';
COMMENT ON COLUMN credit_results.loss_low IS 'Lower end of its interval';
COMMENT ON COLUMN credit_results.loss_high IS 'Upper end of its interval';
COMMENT ON COLUMN credit_results.accuracy_difference IS 'Mean final validation accuracy, chosen minus other';
COMMENT ON COLUMN credit_results.accuracy_low IS 'Lower end of its interval';
COMMENT ON COLUMN credit_results.accuracy_high IS 'Upper end of its interval';
COMMENT ON COLUMN credit_results.better IS 'chosen or other, where an interval excludes zero and the other one does not contradict; NULL: undecided';

CREATE TABLE credit_ends (
    credit_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL
);
COMMENT ON TABLE credit_ends IS 'The end of each measurement of credit';

CREATE TABLE campaign_advice (
    campaign_id VARCHAR NOT NULL,
    number INTEGER NOT NULL,
    idx BIGINT NOT NULL,
    advice VARCHAR NOT NULL,
    version INTEGER NOT NULL
);
COMMENT ON TABLE campaign_advice IS 'The advice block of each attempt of a campaign that tunes it';
COMMENT ON COLUMN campaign_advice.number IS 'The attempt whose prompts have the block';
COMMENT ON COLUMN campaign_advice.advice IS 'The block; empty: there is none';
COMMENT ON COLUMN campaign_advice.version IS 'Version of the model''s advice; 0: none';

CREATE TABLE audit_starts (
    audit_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    run_id VARCHAR NOT NULL,
    tree_head VARCHAR NOT NULL,
    config JSON NOT NULL,
    environment JSON NOT NULL,
    judged JSON,
    signed_by VARCHAR
);
COMMENT ON TABLE audit_starts IS 'The run and state that each audit judges; the view audits is easier to query';
COMMENT ON COLUMN audit_starts.run_id IS 'The run that is judged';
COMMENT ON COLUMN audit_starts.tree_head IS 'The signed state of the ledger that is judged';
COMMENT ON COLUMN audit_starts.config IS 'Settings of the judge';
COMMENT ON COLUMN audit_starts.environment IS 'Versions and machine of the judge';
COMMENT ON COLUMN audit_starts.judged IS 'The state of the run that is judged: hash and version of its last entry, version of its transcript, hashes of its files; NULL: an older audit, which was not bound to a state';
COMMENT ON COLUMN audit_starts.signed_by IS 'Key id of the judge who signed it, hexadecimal; NULL if none did';

CREATE TABLE audit_steps (
    audit_id VARCHAR NOT NULL,
    step INTEGER NOT NULL,
    idx BIGINT NOT NULL,
    name VARCHAR NOT NULL,
    status VARCHAR NOT NULL,
    summary VARCHAR NOT NULL,
    evidence JSON NOT NULL,
    signed_by VARCHAR
);
COMMENT ON TABLE audit_steps IS 'The eleven steps of each audit';
COMMENT ON COLUMN audit_steps.step IS '1 to 11; the first seven fail hard';
COMMENT ON COLUMN audit_steps.name IS 'What the step looks at';
COMMENT ON COLUMN audit_steps.status IS 'passed, violations, failed, not_run, or not_possible at the level of evidence that the run has';
COMMENT ON COLUMN audit_steps.summary IS 'The outcome in a sentence';
COMMENT ON COLUMN audit_steps.evidence IS 'The evidence for the outcome';
COMMENT ON COLUMN audit_steps.signed_by IS 'Key id of the judge who signed it, hexadecimal; NULL if none did';

CREATE TABLE audit_scores (
    audit_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    hard_fail BOOLEAN NOT NULL,
    accuracy_score DOUBLE,
    process_score DOUBLE NOT NULL,
    process_axis_exercised BOOLEAN NOT NULL,
    test_accuracy DOUBLE,
    validation_accuracy DOUBLE,
    obligations INTEGER NOT NULL,
    decisions INTEGER NOT NULL,
    signed_by VARCHAR
);
COMMENT ON TABLE audit_scores IS 'The result of each audit; an unfinished audit has no row';
COMMENT ON COLUMN audit_scores.hard_fail IS 'A gate failed, so both scores are zero';
COMMENT ON COLUMN audit_scores.accuracy_score IS 'From 0 to 1; NULL: not possible at the level of evidence that the run has';
COMMENT ON COLUMN audit_scores.process_score IS 'From 0 to 1; says little unless the axis was exercised';
COMMENT ON COLUMN audit_scores.process_axis_exercised IS 'Whether enough rules fired and were answered';
COMMENT ON COLUMN audit_scores.test_accuracy IS 'On the split that only the judge reads';
COMMENT ON COLUMN audit_scores.validation_accuracy IS 'The one that attempts are ranked by';
COMMENT ON COLUMN audit_scores.obligations IS 'Denominator of the process score: episodes of firings, and violated firings';
COMMENT ON COLUMN audit_scores.decisions IS 'Decisions that were made';
COMMENT ON COLUMN audit_scores.signed_by IS 'Key id of the judge who signed it, hexadecimal; NULL if none did';

CREATE TABLE audit_violations (
    audit_id VARCHAR NOT NULL,
    place INTEGER NOT NULL,
    idx BIGINT NOT NULL,
    kind VARCHAR NOT NULL,
    rule VARCHAR,
    epoch INTEGER,
    decision INTEGER,
    emitter VARCHAR,
    detail VARCHAR,
    times INTEGER NOT NULL
);
COMMENT ON TABLE audit_violations IS 'What an audit found; the view violations names the run too';
COMMENT ON COLUMN audit_violations.place IS 'Order in the audit, from 0';
COMMENT ON COLUMN audit_violations.kind IS 'What was violated';
COMMENT ON COLUMN audit_violations.decision IS 'Number of the decision';
COMMENT ON COLUMN audit_violations.emitter IS 'driver, harness, human or policy';
COMMENT ON COLUMN audit_violations.detail IS 'Explanation; NULL after the first 150, which alone are recorded in words';
COMMENT ON COLUMN audit_violations.times IS '1; or, in a row without an epoch, how many more of its kind, rule and emitter there are: sum it to count violations';

CREATE TABLE reviews (
    review_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    run_id VARCHAR NOT NULL,
    decision_idx BIGINT NOT NULL,
    entry_hash VARCHAR NOT NULL,
    mark VARCHAR NOT NULL,
    note VARCHAR NOT NULL,
    signed_by VARCHAR
);
COMMENT ON TABLE reviews IS 'Reviews of decisions by people';
COMMENT ON COLUMN reviews.review_id IS 'The review';
COMMENT ON COLUMN reviews.run_id IS 'The run of the decision, as the review states';
COMMENT ON COLUMN reviews.decision_idx IS 'Ledger index of the decision';
COMMENT ON COLUMN reviews.entry_hash IS 'Hash of that entry, hexadecimal, as the reviewer saw it';
COMMENT ON COLUMN reviews.mark IS 'gold or bad';
COMMENT ON COLUMN reviews.note IS 'Explanation';
COMMENT ON COLUMN reviews.signed_by IS 'Key id of the operator who signed it, hexadecimal; NULL if none did';

CREATE TABLE transcripts (
    transcript_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    run_id VARCHAR NOT NULL,
    mode VARCHAR NOT NULL,
    policy JSON NOT NULL
);
COMMENT ON TABLE transcripts IS 'The run or proposal whose calls each transcript contains';
COMMENT ON COLUMN transcripts.run_id IS 'The run or the proposal; the id of the transcript is derived from it';
COMMENT ON COLUMN transcripts.mode IS 'What kind of improvement it is';
COMMENT ON COLUMN transcripts.policy IS 'The policy that calls, with its settings';

CREATE TABLE calls (
    transcript_id VARCHAR NOT NULL,
    number INTEGER NOT NULL,
    idx BIGINT NOT NULL,
    epoch INTEGER,
    agent VARCHAR NOT NULL,
    action VARCHAR NOT NULL,
    rules JSON NOT NULL,
    model VARCHAR,
    endpoint VARCHAR,
    rung VARCHAR,
    parameters JSON NOT NULL,
    request VARCHAR,
    request_bytes BIGINT,
    response VARCHAR,
    response_bytes BIGINT,
    status INTEGER,
    finish_reason VARCHAR,
    prompt_tokens BIGINT,
    completion_tokens BIGINT,
    total_tokens BIGINT,
    seconds DOUBLE NOT NULL,
    cost DOUBLE,
    retries JSON NOT NULL,
    outcome VARCHAR NOT NULL,
    problem VARCHAR,
    cached BOOLEAN NOT NULL
);
COMMENT ON TABLE calls IS 'Requests to language models, and steps of other agents';
COMMENT ON COLUMN calls.number IS 'From 1 in each transcript';
COMMENT ON COLUMN calls.epoch IS 'The epoch of the decision; NULL for a probe and for a call that belongs to no run';
COMMENT ON COLUMN calls.agent IS 'Who acted: decider, voter 2, prober, playbook, human';
COMMENT ON COLUMN calls.action IS 'decide, probe, propose, repair or review';
COMMENT ON COLUMN calls.rules IS 'The due rules that were asked about';
COMMENT ON COLUMN calls.model IS 'NULL: the agent is not a model; the columns that describe a model are NULL too';
COMMENT ON COLUMN calls.endpoint IS 'Address that was asked, without user and query';
COMMENT ON COLUMN calls.rung IS 'How the form of the answer was asked for';
COMMENT ON COLUMN calls.parameters IS 'Temperature, seed, bounds';
COMMENT ON COLUMN calls.request IS 'SHA-256 of the stored request';
COMMENT ON COLUMN calls.request_bytes IS 'Its size';
COMMENT ON COLUMN calls.response IS 'SHA-256 of the stored response, secrets removed; NULL: no response';
COMMENT ON COLUMN calls.response_bytes IS 'Its size';
COMMENT ON COLUMN calls.status IS 'HTTP status; NULL: no response';
COMMENT ON COLUMN calls.finish_reason IS 'As the server says';
COMMENT ON COLUMN calls.prompt_tokens IS 'As the server counts';
COMMENT ON COLUMN calls.completion_tokens IS 'Likewise';
COMMENT ON COLUMN calls.total_tokens IS 'Likewise';
COMMENT ON COLUMN calls.seconds IS 'With all retries';
COMMENT ON COLUMN calls.cost IS 'US dollars; NULL: unknown';
COMMENT ON COLUMN calls.retries IS 'Status, error and seconds waited of each attempt before the last';
COMMENT ON COLUMN calls.outcome IS 'usable, or the kind of failure';
COMMENT ON COLUMN calls.problem IS 'Explanation';
COMMENT ON COLUMN calls.cached IS 'Whether an earlier call to the same effect was answered again';

CREATE TABLE votes (
    transcript_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    epoch INTEGER NOT NULL,
    rule VARCHAR NOT NULL,
    votes JSON NOT NULL,
    chosen VARCHAR,
    agreement DOUBLE NOT NULL,
    calls JSON NOT NULL
);
COMMENT ON TABLE votes IS 'The votes of an ensemble''s members on each rule';
COMMENT ON COLUMN votes.epoch IS 'The epoch decided on';
COMMENT ON COLUMN votes.votes IS 'Ballots by direction; unusable counts ballots without a valid vote';
COMMENT ON COLUMN votes.chosen IS 'The direction that was taken; NULL: no vote was usable';
COMMENT ON COLUMN votes.agreement IS 'Share of the ballots that were for it';
COMMENT ON COLUMN votes.calls IS 'Numbers of the calls that brought the ballots';

CREATE TABLE proposal_reviews (
    transcript_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    epoch INTEGER NOT NULL,
    proposed JSON NOT NULL,
    verdict VARCHAR NOT NULL,
    decision JSON NOT NULL,
    mark VARCHAR,
    note VARCHAR NOT NULL
);
COMMENT ON TABLE proposal_reviews IS 'How people approved, edited or rejected proposed decisions';
COMMENT ON COLUMN proposal_reviews.epoch IS 'The epoch decided on';
COMMENT ON COLUMN proposal_reviews.proposed IS 'The decision that was proposed';
COMMENT ON COLUMN proposal_reviews.verdict IS 'approve, edit or reject';
COMMENT ON COLUMN proposal_reviews.decision IS 'The decision that was said';
COMMENT ON COLUMN proposal_reviews.mark IS 'gold or bad; NULL: unmarked';
COMMENT ON COLUMN proposal_reviews.note IS 'Explanation';

CREATE TABLE infra_submissions (
    proposal_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    line_id VARCHAR NOT NULL,
    task VARCHAR,
    tier INTEGER NOT NULL,
    targets JSON NOT NULL,
    diff VARCHAR NOT NULL,
    diff_bytes BIGINT NOT NULL,
    base VARCHAR NOT NULL,
    base_tree VARCHAR NOT NULL,
    rationale VARCHAR NOT NULL,
    trigger VARCHAR NOT NULL,
    proposer VARCHAR NOT NULL,
    evidence JSON NOT NULL
);
COMMENT ON TABLE infra_submissions IS 'Proposed changes, as submitted; the view infra_proposals is easier to query';
COMMENT ON COLUMN infra_submissions.line_id IS 'The line that it would change';
COMMENT ON COLUMN infra_submissions.task IS 'The task or request that led to the proposal';
COMMENT ON COLUMN infra_submissions.tier IS 'The strictest tier that it declares';
COMMENT ON COLUMN infra_submissions.targets IS 'Path to tier, as declared';
COMMENT ON COLUMN infra_submissions.diff IS 'SHA-256 of the stored diff';
COMMENT ON COLUMN infra_submissions.diff_bytes IS 'Its size';
COMMENT ON COLUMN infra_submissions.base IS 'Commit that the diff applies to';
COMMENT ON COLUMN infra_submissions.base_tree IS 'Its tree';
COMMENT ON COLUMN infra_submissions.rationale IS 'The proposer''s words';
COMMENT ON COLUMN infra_submissions.trigger IS 'error_pattern, operator_request or performance_regression';
COMMENT ON COLUMN infra_submissions.proposer IS 'Who proposes';
COMMENT ON COLUMN infra_submissions.evidence IS 'The evidence that the rationale refers to';

CREATE TABLE infra_reviews (
    proposal_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    verdict VARCHAR NOT NULL,
    envelope VARCHAR NOT NULL,
    key VARCHAR NOT NULL,
    expires BIGINT NOT NULL,
    note VARCHAR NOT NULL
);
COMMENT ON TABLE infra_reviews IS 'Operators'' approvals and rejections of proposals';
COMMENT ON COLUMN infra_reviews.verdict IS 'approve, reject or revise';
COMMENT ON COLUMN infra_reviews.key IS 'The operator''s vkey';
COMMENT ON COLUMN infra_reviews.expires IS 'Seconds since 1970';
COMMENT ON COLUMN infra_reviews.note IS 'The operator''s words';

CREATE TABLE infra_branches (
    proposal_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    branch VARCHAR NOT NULL,
    commit VARCHAR NOT NULL,
    tree VARCHAR NOT NULL,
    changes JSON NOT NULL,
    tier INTEGER NOT NULL,
    configuration_only BOOLEAN NOT NULL,
    manifest VARCHAR NOT NULL,
    reference_set VARCHAR NOT NULL,
    against VARCHAR NOT NULL
);
COMMENT ON TABLE infra_branches IS 'The branch of each proposal, and the files that it changes';
COMMENT ON COLUMN infra_branches.branch IS 'Name of the branch';
COMMENT ON COLUMN infra_branches.commit IS 'The candidate';
COMMENT ON COLUMN infra_branches.tree IS 'Its tree';
COMMENT ON COLUMN infra_branches.changes IS 'Paths with the change to each';
COMMENT ON COLUMN infra_branches.tier IS 'The strictest tier that is really touched';
COMMENT ON COLUMN infra_branches.configuration_only IS 'Whether nothing but configuration changes';
COMMENT ON COLUMN infra_branches.manifest IS 'SHA-256 of the manifest in force';
COMMENT ON COLUMN infra_branches.reference_set IS 'SHA-256 of the reference set in force';
COMMENT ON COLUMN infra_branches.against IS 'Commit that it is compared with';

CREATE TABLE infra_validation_results (
    proposal_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    passed BOOLEAN NOT NULL,
    problem VARCHAR,
    cases INTEGER NOT NULL,
    missing JSON NOT NULL,
    added JSON NOT NULL,
    seconds DOUBLE NOT NULL,
    expected VARCHAR,
    output VARCHAR,
    isolation JSON NOT NULL,
    leftovers INTEGER NOT NULL,
    flaky JSON,
    outcomes VARCHAR,
    left_out JSON NOT NULL,
    choice VARCHAR,
    fixes JSON NOT NULL
);
COMMENT ON TABLE infra_validation_results IS 'The result of the tests for each proposal: of all, or of those that its change can reach';
COMMENT ON COLUMN infra_validation_results.passed IS 'Whether every case of the base passed';
COMMENT ON COLUMN infra_validation_results.problem IS 'Why not';
COMMENT ON COLUMN infra_validation_results.cases IS 'How many passed';
COMMENT ON COLUMN infra_validation_results.missing IS 'Cases of the base that did not pass';
COMMENT ON COLUMN infra_validation_results.added IS 'Test files that the proposal brings';
COMMENT ON COLUMN infra_validation_results.seconds IS 'Wall clock';
COMMENT ON COLUMN infra_validation_results.expected IS 'SHA-256 of the base''s cases with their outcomes';
COMMENT ON COLUMN infra_validation_results.output IS 'SHA-256 of what was printed';
COMMENT ON COLUMN infra_validation_results.leftovers IS 'Processes that had to be ended';
COMMENT ON COLUMN infra_validation_results.outcomes IS 'SHA-256 of the candidate''s cases with their outcomes';
COMMENT ON COLUMN infra_validation_results.flaky IS 'Cases that failed at first and then passed in every repeated run; NULL in older records';
COMMENT ON COLUMN infra_validation_results.left_out IS 'Test files that run before the promotion';
COMMENT ON COLUMN infra_validation_results.choice IS 'Why these were left out; NULL if all tests run at once';
COMMENT ON COLUMN infra_validation_results.fixes IS 'Cases of added tests that fail without the change and pass with it';

CREATE TABLE infra_rest_results (
    proposal_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    passed BOOLEAN NOT NULL,
    problem VARCHAR,
    cases INTEGER NOT NULL,
    missing JSON NOT NULL,
    seconds DOUBLE NOT NULL,
    output VARCHAR NOT NULL,
    isolation JSON NOT NULL,
    leftovers INTEGER NOT NULL,
    flaky JSON NOT NULL,
    outcomes VARCHAR NOT NULL
);
COMMENT ON TABLE infra_rest_results IS 'The result of the tests that were left out at first, for each proposal that was better';
COMMENT ON COLUMN infra_rest_results.passed IS 'Whether every case of the base in these files passed';
COMMENT ON COLUMN infra_rest_results.problem IS 'Why not';
COMMENT ON COLUMN infra_rest_results.cases IS 'How many passed';
COMMENT ON COLUMN infra_rest_results.missing IS 'Cases of the base in these files that did not pass';
COMMENT ON COLUMN infra_rest_results.seconds IS 'Wall clock';
COMMENT ON COLUMN infra_rest_results.output IS 'SHA-256 of what was printed';
COMMENT ON COLUMN infra_rest_results.leftovers IS 'Processes that had to be ended';
COMMENT ON COLUMN infra_rest_results.flaky IS 'Cases that failed at first and then passed in every repeated run';
COMMENT ON COLUMN infra_rest_results.outcomes IS 'SHA-256 of all cases of the candidate, from both runs, with their outcomes';

CREATE TABLE infra_task_scores (
    proposal_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    arm VARCHAR NOT NULL,
    task VARCHAR NOT NULL,
    repeat INTEGER NOT NULL,
    seed BIGINT NOT NULL,
    success BOOLEAN NOT NULL,
    validation_failures INTEGER NOT NULL,
    metrics JSON NOT NULL,
    problem VARCHAR,
    cached BOOLEAN NOT NULL,
    isolation JSON NOT NULL,
    missing BOOLEAN,
    seconds DOUBLE,
    cpu_seconds DOUBLE
);
COMMENT ON TABLE infra_task_scores IS 'The answer of one arm to one reference task';
COMMENT ON COLUMN infra_task_scores.arm IS 'base or candidate';
COMMENT ON COLUMN infra_task_scores.task IS 'The task';
COMMENT ON COLUMN infra_task_scores.repeat IS 'From 0';
COMMENT ON COLUMN infra_task_scores.seed IS 'Of this repeat';
COMMENT ON COLUMN infra_task_scores.success IS 'Whether the answer was right';
COMMENT ON COLUMN infra_task_scores.validation_failures IS 'Parts of the answer that were no answer';
COMMENT ON COLUMN infra_task_scores.metrics IS 'What else was counted';
COMMENT ON COLUMN infra_task_scores.problem IS 'What was wrong';
COMMENT ON COLUMN infra_task_scores.cached IS 'Whether the answer was reused from an earlier proposal; only in older records';
COMMENT ON COLUMN infra_task_scores.missing IS 'Whether there was no answer at all; NULL in older records';
COMMENT ON COLUMN infra_task_scores.seconds IS 'Until the answer came, from the start of the process; NULL in older records, and where there is none';
COMMENT ON COLUMN infra_task_scores.cpu_seconds IS 'Processor time of the whole answer; NULL in older records, and where there is none';

CREATE TABLE infra_evaluations (
    proposal_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    verdict VARCHAR NOT NULL,
    level DOUBLE NOT NULL,
    regressions JSON NOT NULL,
    improvements JSON NOT NULL,
    reasons JSON NOT NULL,
    comparisons JSON NOT NULL
);
COMMENT ON TABLE infra_evaluations IS 'Comparisons of candidate and base';
COMMENT ON COLUMN infra_evaluations.verdict IS 'better, no worse, worse or cannot tell';
COMMENT ON COLUMN infra_evaluations.level IS 'Error that was spent on it';
COMMENT ON COLUMN infra_evaluations.regressions IS 'Tasks that became worse';
COMMENT ON COLUMN infra_evaluations.improvements IS 'What became better';
COMMENT ON COLUMN infra_evaluations.reasons IS 'Why the verdict is what it is';
COMMENT ON COLUMN infra_evaluations.comparisons IS 'Task by task';

CREATE TABLE infra_conclusions (
    proposal_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    outcome VARCHAR NOT NULL,
    stage VARCHAR NOT NULL,
    reason VARCHAR NOT NULL,
    checkpoint VARCHAR,
    valley VARCHAR
);
COMMENT ON TABLE infra_conclusions IS 'How each proposal ended';
COMMENT ON COLUMN infra_conclusions.outcome IS 'promoted, rejected, halted, superseded or withdrawn';
COMMENT ON COLUMN infra_conclusions.stage IS 'The stage that it ended at';
COMMENT ON COLUMN infra_conclusions.checkpoint IS 'The checkpoint that a promotion made';
COMMENT ON COLUMN infra_conclusions.valley IS 'The valley that let it through although it is not better';

CREATE TABLE line_starts (
    line_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    root VARCHAR NOT NULL,
    branch VARCHAR NOT NULL
);
COMMENT ON TABLE line_starts IS 'Branches that the gauntlet manages';
COMMENT ON COLUMN line_starts.root IS 'The repository''s first commit';
COMMENT ON COLUMN line_starts.branch IS 'The branch';

CREATE TABLE checkpoint_starts (
    line_id VARCHAR NOT NULL,
    checkpoint_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    parent VARCHAR,
    commit VARCHAR NOT NULL,
    tree VARCHAR NOT NULL,
    manifest VARCHAR NOT NULL,
    reference_set VARCHAR NOT NULL,
    code VARCHAR,
    origin VARCHAR NOT NULL
);
COMMENT ON TABLE checkpoint_starts IS 'Versions of the infrastructure; the view checkpoint_standing is easier to query';
COMMENT ON COLUMN checkpoint_starts.parent IS 'The checkpoint before it; NULL: the line began here';
COMMENT ON COLUMN checkpoint_starts.commit IS 'Its commit in the repository';
COMMENT ON COLUMN checkpoint_starts.tree IS 'Its tree';
COMMENT ON COLUMN checkpoint_starts.manifest IS 'SHA-256 of its manifest';
COMMENT ON COLUMN checkpoint_starts.reference_set IS 'SHA-256 of its reference set';
COMMENT ON COLUMN checkpoint_starts.code IS 'SHA-256 over the files in it that decide a run; NULL: recorded before this existed';
COMMENT ON COLUMN checkpoint_starts.origin IS 'opened, promoted or adopted (committed by people)';

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
    to_checkpoint VARCHAR NOT NULL,
    reason VARCHAR NOT NULL,
    signed_by VARCHAR
);
COMMENT ON TABLE checkpoint_rollbacks IS 'Checkpoints that were rolled back, each with its descendants';
COMMENT ON COLUMN checkpoint_rollbacks.to_checkpoint IS 'Active from then on';
COMMENT ON COLUMN checkpoint_rollbacks.signed_by IS 'Key id of the operator who signed it, hexadecimal; NULL if none did';

CREATE TABLE line_halts (
    line_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    what VARCHAR NOT NULL,
    proposal_id VARCHAR NOT NULL,
    reason VARCHAR,
    envelope VARCHAR
);
COMMENT ON TABLE line_halts IS 'Proposals that tried to change the controller, and the operators'' answers';
COMMENT ON COLUMN line_halts.what IS 'halted or resumed';
COMMENT ON COLUMN line_halts.reason IS 'Of a halt';
COMMENT ON COLUMN line_halts.envelope IS 'Of an answer: what the operator''s key has signed';

CREATE TABLE valleys (
    line_id VARCHAR NOT NULL,
    valley_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    what VARCHAR NOT NULL,
    steps JSON,
    expires BIGINT,
    envelope VARCHAR,
    reason VARCHAR
);
COMMENT ON TABLE valleys IS 'Stretches in which an operator suspended the gate';
COMMENT ON COLUMN valleys.valley_id IS 'The valley';
COMMENT ON COLUMN valleys.what IS 'opened or closed';
COMMENT ON COLUMN valleys.steps IS 'SHA-256 of the diffs that are let through, in order';
COMMENT ON COLUMN valleys.expires IS 'Seconds since 1970';
COMMENT ON COLUMN valleys.reason IS 'Why it was closed';

CREATE TABLE admitted_tasks (
    line_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    task VARCHAR NOT NULL,
    sha256 VARCHAR NOT NULL,
    envelope VARCHAR NOT NULL
);
COMMENT ON TABLE admitted_tasks IS 'Tasks that an operator added to the reference set';
COMMENT ON COLUMN admitted_tasks.task IS 'The task';
COMMENT ON COLUMN admitted_tasks.sha256 IS 'Of its content';

CREATE TABLE drift_measurements (
    line_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    checkpoint_id VARCHAR NOT NULL,
    commit VARCHAR NOT NULL,
    task_set VARCHAR NOT NULL,
    sha256 VARCHAR NOT NULL,
    success DOUBLE NOT NULL,
    tasks JSON NOT NULL
);
COMMENT ON TABLE drift_measurements IS 'Measurements of the line outside proposals';
COMMENT ON COLUMN drift_measurements.checkpoint_id IS 'Active when it was measured';
COMMENT ON COLUMN drift_measurements.commit IS 'What was measured';
COMMENT ON COLUMN drift_measurements.task_set IS 'reference or hidden';
COMMENT ON COLUMN drift_measurements.sha256 IS 'Of the set';
COMMENT ON COLUMN drift_measurements.success IS 'Share of tasks';
COMMENT ON COLUMN drift_measurements.tasks IS 'Task by task';

CREATE TABLE drift_alarms (
    line_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    checkpoint_id VARCHAR NOT NULL,
    commit VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    detail VARCHAR NOT NULL,
    tasks JSON NOT NULL
);
COMMENT ON TABLE drift_alarms IS 'Alarms: the line scored worse than the promoted commit, or was another commit';
COMMENT ON COLUMN drift_alarms.checkpoint_id IS 'Active at the time';
COMMENT ON COLUMN drift_alarms.commit IS 'What was found';
COMMENT ON COLUMN drift_alarms.kind IS 'What kind of alarm';
COMMENT ON COLUMN drift_alarms.detail IS 'Explanation';
COMMENT ON COLUMN drift_alarms.tasks IS 'Tasks that speak for it';

CREATE TABLE drift_answers (
    line_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    alarm INTEGER NOT NULL,
    kind VARCHAR NOT NULL,
    note VARCHAR NOT NULL
);
COMMENT ON TABLE drift_answers IS 'Operators'' answers to alarms; the view alarms is easier to query';
COMMENT ON COLUMN drift_answers.alarm IS 'Number of the alarm on its line, from 1';
COMMENT ON COLUMN drift_answers.kind IS 'Of the alarm';
COMMENT ON COLUMN drift_answers.note IS 'Text of the statement';

CREATE TABLE checkpoint_evaluations (
    line_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    checkpoint_id VARCHAR NOT NULL,
    commit VARCHAR NOT NULL,
    purpose VARCHAR NOT NULL,
    number INTEGER NOT NULL,
    seed VARCHAR,
    sha256 VARCHAR NOT NULL,
    tasks INTEGER NOT NULL,
    right_answers INTEGER NOT NULL,
    valid INTEGER NOT NULL,
    "precision" DOUBLE,
    wrong JSON NOT NULL,
    files INTEGER,
    lines INTEGER,
    functions INTEGER,
    complexity INTEGER
);
COMMENT ON TABLE checkpoint_evaluations IS 'Evaluations of checkpoints on generated tasks';
COMMENT ON COLUMN checkpoint_evaluations.checkpoint_id IS 'What was evaluated';
COMMENT ON COLUMN checkpoint_evaluations.commit IS 'Of the checkpoint';
COMMENT ON COLUMN checkpoint_evaluations.purpose IS 'baseline, drift or confirmation';
COMMENT ON COLUMN checkpoint_evaluations.number IS 'Of that purpose for that checkpoint, from 1';
COMMENT ON COLUMN checkpoint_evaluations.seed IS 'What the tasks were made from; NULL: the set in the repository';
COMMENT ON COLUMN checkpoint_evaluations.sha256 IS 'Of the set';
COMMENT ON COLUMN checkpoint_evaluations.tasks IS 'How many';
COMMENT ON COLUMN checkpoint_evaluations.right_answers IS 'How many were answered rightly';
COMMENT ON COLUMN checkpoint_evaluations.valid IS 'How many without an answer that was refused';
COMMENT ON COLUMN checkpoint_evaluations."precision" IS 'Mean precision of the chosen rows; NULL: no task measures it';
COMMENT ON COLUMN checkpoint_evaluations.wrong IS 'Tasks that were answered wrongly';
COMMENT ON COLUMN checkpoint_evaluations.files IS 'Of tiers 1 and 2; NULL: not weighed, as the next three';
COMMENT ON COLUMN checkpoint_evaluations.lines IS 'Of their code, without comments and blank lines';
COMMENT ON COLUMN checkpoint_evaluations.functions IS 'In them';
COMMENT ON COLUMN checkpoint_evaluations.complexity IS 'Cyclomatic, of all functions together';

CREATE TABLE evolutions (
    evolution_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    line_id VARCHAR NOT NULL
);
COMMENT ON TABLE evolutions IS 'The line of each evolution';

CREATE TABLE evolution_orders (
    evolution_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    what VARCHAR NOT NULL,
    rounds INTEGER,
    proposer JSON,
    technique VARCHAR
);
COMMENT ON TABLE evolution_orders IS 'Commands to evolutions: begin, on, off or reset';
COMMENT ON COLUMN evolution_orders.what IS 'begin, on, off or reset';
COMMENT ON COLUMN evolution_orders.rounds IS 'How many rounds to run; NULL: none';
COMMENT ON COLUMN evolution_orders.proposer IS 'Who proposes, with settings; nothing secret';
COMMENT ON COLUMN evolution_orders.technique IS 'The technique that was ordered; NULL: chosen by experience';

CREATE TABLE evolution_rounds (
    evolution_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    round INTEGER NOT NULL,
    outcome VARCHAR NOT NULL,
    proposal_id VARCHAR,
    proposer VARCHAR NOT NULL,
    technique VARCHAR,
    pattern VARCHAR,
    calls INTEGER NOT NULL,
    reason VARCHAR NOT NULL
);
COMMENT ON TABLE evolution_rounds IS 'Rounds that searched for an improvement, and the outcome of each';
COMMENT ON COLUMN evolution_rounds.outcome IS 'proposed, nothing, unusable, unanswered or refused';
COMMENT ON COLUMN evolution_rounds.proposal_id IS 'The proposal; NULL: there is none';
COMMENT ON COLUMN evolution_rounds.proposer IS 'Who looked';
COMMENT ON COLUMN evolution_rounds.technique IS 'How; NULL: it did not come to that';
COMMENT ON COLUMN evolution_rounds.pattern IS 'The error pattern that it was about';
COMMENT ON COLUMN evolution_rounds.calls IS 'To a language model; they are in its transcript';
COMMENT ON COLUMN evolution_rounds.reason IS 'Why there is no proposal, or what else there is to say';

CREATE TABLE advice_lines (
    advice_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    model VARCHAR NOT NULL
);
COMMENT ON TABLE advice_lines IS 'The model of each advice block';
COMMENT ON COLUMN advice_lines.advice_id IS 'The advice to the model';
COMMENT ON COLUMN advice_lines.model IS 'The model''s name';

CREATE TABLE advice_proposals (
    advice_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    round INTEGER NOT NULL,
    version INTEGER NOT NULL,
    parent INTEGER NOT NULL,
    campaign_id VARCHAR,
    attempt INTEGER,
    proposer VARCHAR NOT NULL,
    technique VARCHAR NOT NULL,
    pattern VARCHAR NOT NULL,
    rationale VARCHAR NOT NULL,
    text VARCHAR NOT NULL,
    evidence JSON NOT NULL
);
COMMENT ON TABLE advice_proposals IS 'Advice blocks that were proposed';
COMMENT ON COLUMN advice_proposals.version IS 'From 1; version 0 is the empty block';
COMMENT ON COLUMN advice_proposals.parent IS 'The version that it is to replace';
COMMENT ON COLUMN advice_proposals.campaign_id IS 'The campaign; NULL: outside of one';
COMMENT ON COLUMN advice_proposals.attempt IS 'The attempt after which it was proposed';
COMMENT ON COLUMN advice_proposals.proposer IS 'template, or the model that wrote it';
COMMENT ON COLUMN advice_proposals.technique IS 'How it was written';
COMMENT ON COLUMN advice_proposals.pattern IS 'The error pattern that it is about';
COMMENT ON COLUMN advice_proposals.rationale IS 'The proposer''s words';
COMMENT ON COLUMN advice_proposals.text IS 'The whole block';
COMMENT ON COLUMN advice_proposals.evidence IS 'What shows the pattern';

CREATE TABLE advice_answers (
    advice_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    round INTEGER NOT NULL,
    scenario VARCHAR NOT NULL,
    repeat INTEGER NOT NULL,
    seed BIGINT NOT NULL,
    first VARCHAR NOT NULL,
    arm VARCHAR NOT NULL,
    success BOOLEAN NOT NULL,
    valid BOOLEAN NOT NULL,
    missing BOOLEAN NOT NULL,
    problem VARCHAR
);
COMMENT ON TABLE advice_answers IS 'Answers to scenarios with the champion (base) and with the proposed block (candidate)';
COMMENT ON COLUMN advice_answers.round IS 'The round';
COMMENT ON COLUMN advice_answers.scenario IS 'The scenario';
COMMENT ON COLUMN advice_answers.repeat IS 'Number of the pair, from 0';
COMMENT ON COLUMN advice_answers.seed IS 'Drawn for the pair';
COMMENT ON COLUMN advice_answers.first IS 'The arm that was asked first';
COMMENT ON COLUMN advice_answers.arm IS 'base or candidate';
COMMENT ON COLUMN advice_answers.success IS 'Whether every due rule got an acceptable answer';
COMMENT ON COLUMN advice_answers.valid IS 'Whether every due rule got a usable answer';
COMMENT ON COLUMN advice_answers.missing IS 'Whether there was no answer at all';
COMMENT ON COLUMN advice_answers.problem IS 'What is not acceptable; NULL: nothing';

CREATE TABLE advice_rounds (
    advice_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    round INTEGER NOT NULL,
    campaign_id VARCHAR,
    attempt INTEGER,
    proposer VARCHAR NOT NULL,
    technique VARCHAR,
    pattern VARCHAR,
    version INTEGER,
    outcome VARCHAR NOT NULL,
    reason VARCHAR NOT NULL,
    calls INTEGER NOT NULL,
    verdict VARCHAR,
    level DOUBLE,
    pairs INTEGER,
    pass_rate_before DOUBLE,
    pass_rate_after DOUBLE,
    score_before DOUBLE,
    score_after DOUBLE,
    regressions JSON,
    improvements JSON
);
COMMENT ON TABLE advice_rounds IS 'Rounds of tuning an advice block, and the outcome of each';
COMMENT ON COLUMN advice_rounds.campaign_id IS 'The campaign; NULL: outside of one';
COMMENT ON COLUMN advice_rounds.attempt IS 'The attempt after which it took place';
COMMENT ON COLUMN advice_rounds.proposer IS 'template, or the model that writes';
COMMENT ON COLUMN advice_rounds.technique IS 'How; NULL: it did not come to that';
COMMENT ON COLUMN advice_rounds.pattern IS 'The error pattern that it was about';
COMMENT ON COLUMN advice_rounds.version IS 'The block that was tested; NULL: none';
COMMENT ON COLUMN advice_rounds.outcome IS 'promoted, kept, nothing, unusable, unanswered, refused or abandoned';
COMMENT ON COLUMN advice_rounds.calls IS 'To language models; they are in transcripts';
COMMENT ON COLUMN advice_rounds.verdict IS 'better, worse or cannot tell; NULL: not compared, as all that follows';
COMMENT ON COLUMN advice_rounds.level IS 'Of error that was spent on it';
COMMENT ON COLUMN advice_rounds.pairs IS 'Pairs of answers';
COMMENT ON COLUMN advice_rounds.pass_rate_before IS 'Mean over scenarios, with the champion';
COMMENT ON COLUMN advice_rounds.pass_rate_after IS 'Likewise, with the proposed block';
COMMENT ON COLUMN advice_rounds.score_before IS 'Pass rate less 1e-5 for each character of the block';
COMMENT ON COLUMN advice_rounds.score_after IS 'Likewise, with the proposed block';
COMMENT ON COLUMN advice_rounds.regressions IS 'Scenarios that are answered worse';
COMMENT ON COLUMN advice_rounds.improvements IS 'Scenarios that are answered better';

CREATE TABLE advice_orders (
    advice_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    what VARCHAR NOT NULL
);
COMMENT ON TABLE advice_orders IS 'Commands to the tuning of an advice block';
COMMENT ON COLUMN advice_orders.what IS 'on, off or reset';

CREATE TABLE advice_scenarios (
    advice_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    name VARCHAR NOT NULL,
    admitted BOOLEAN NOT NULL,
    origin VARCHAR,
    observation JSON,
    expected JSON
);
COMMENT ON TABLE advice_scenarios IS 'Scenarios that were recorded in this ledger, and those that were admitted later';
COMMENT ON COLUMN advice_scenarios.name IS 'The scenario';
COMMENT ON COLUMN advice_scenarios.admitted IS 'Whether it counts from here on; false: a candidate';
COMMENT ON COLUMN advice_scenarios.origin IS 'Where it comes from; NULL: admitted later, as the next two';
COMMENT ON COLUMN advice_scenarios.observation IS 'The situation';
COMMENT ON COLUMN advice_scenarios.expected IS 'Acceptable acts for each due rule; none: it has to wait';

CREATE TABLE bisections (
    bisection_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    line_id VARCHAR NOT NULL,
    good VARCHAR NOT NULL,
    suspects JSON NOT NULL,
    oracle JSON NOT NULL,
    error DOUBLE NOT NULL,
    confidence DOUBLE NOT NULL,
    ends_believed BOOLEAN NOT NULL,
    rules INTEGER NOT NULL
);
COMMENT ON TABLE bisections IS 'Searches for the checkpoint that made a line worse';
COMMENT ON COLUMN bisections.good IS 'The checkpoint before the first suspect';
COMMENT ON COLUMN bisections.suspects IS 'Checkpoints in the order of the chain';
COMMENT ON COLUMN bisections.oracle IS 'How a checkpoint is probed';
COMMENT ON COLUMN bisections.error IS 'Given share of wrong verdicts; 0: verdicts are certain';
COMMENT ON COLUMN bisections.confidence IS 'At which the search ends';
COMMENT ON COLUMN bisections.ends_believed IS 'The endpoints were assumed, not tested';
COMMENT ON COLUMN bisections.rules IS '1: the given share is the true one; 2: it is estimated; 3: two shares, of false alarms and of missed faults, are estimated';

CREATE TABLE bisection_probes (
    bisection_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    number INTEGER NOT NULL,
    checkpoint_id VARCHAR NOT NULL,
    verdict VARCHAR NOT NULL,
    evidence JSON NOT NULL
);
COMMENT ON TABLE bisection_probes IS 'Checkpoints that a search tested';
COMMENT ON COLUMN bisection_probes.number IS 'From 1 in each search';
COMMENT ON COLUMN bisection_probes.checkpoint_id IS 'What was probed';
COMMENT ON COLUMN bisection_probes.verdict IS 'bad, good or skip';
COMMENT ON COLUMN bisection_probes.evidence IS 'What the verdict rests on';

CREATE TABLE bisection_ends (
    bisection_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    culprit VARCHAR,
    candidates JSON NOT NULL,
    posterior DOUBLE NOT NULL,
    reason VARCHAR NOT NULL
);
COMMENT ON TABLE bisection_ends IS 'The outcome of each search';
COMMENT ON COLUMN bisection_ends.culprit IS 'The checkpoint; NULL: none was found';
COMMENT ON COLUMN bisection_ends.candidates IS 'Checkpoints among which the culprit is';
COMMENT ON COLUMN bisection_ends.posterior IS 'Probability that the culprit is among them';
COMMENT ON COLUMN bisection_ends.reason IS 'Explanation';

CREATE TABLE corpus_origins (
    idx BIGINT NOT NULL,
    what VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    name VARCHAR NOT NULL,
    note VARCHAR NOT NULL,
    signed_by VARCHAR
);
COMMENT ON TABLE corpus_origins IS 'Data and models that an operator admitted to training data, or withdrew';
COMMENT ON COLUMN corpus_origins.what IS 'admitted or withdrawn';
COMMENT ON COLUMN corpus_origins.kind IS 'data or model';
COMMENT ON COLUMN corpus_origins.name IS 'Fingerprint of the data, or the model as the policy names it';
COMMENT ON COLUMN corpus_origins.note IS 'Why';
COMMENT ON COLUMN corpus_origins.signed_by IS 'Key id of the operator who signed it, hexadecimal; NULL if none did';

CREATE TABLE exports (
    export_id VARCHAR NOT NULL,
    idx BIGINT NOT NULL,
    kind VARCHAR NOT NULL,
    as_of BIGINT NOT NULL,
    head VARCHAR NOT NULL,
    query JSON NOT NULL,
    code VARCHAR NOT NULL,
    examples BIGINT NOT NULL,
    root VARCHAR NOT NULL,
    sha256 VARCHAR NOT NULL,
    members VARCHAR NOT NULL
);
COMMENT ON TABLE exports IS 'Exports of training data';
COMMENT ON COLUMN exports.export_id IS 'The export';
COMMENT ON COLUMN exports.idx IS 'Ledger index of its seal';
COMMENT ON COLUMN exports.kind IS 'preferences or sft';
COMMENT ON COLUMN exports.as_of IS 'Index of the last entry that was looked at';
COMMENT ON COLUMN exports.head IS 'Hash of that entry, hexadecimal';
COMMENT ON COLUMN exports.query IS 'What the examples had to meet';
COMMENT ON COLUMN exports.code IS 'SHA-256 over the code that selected the examples';
COMMENT ON COLUMN exports.examples IS 'How many';
COMMENT ON COLUMN exports.root IS 'Merkle root over the lines, hexadecimal';
COMMENT ON COLUMN exports.sha256 IS 'Of the JSON Lines';
COMMENT ON COLUMN exports.members IS 'SHA-256 of the stored list of examples';
