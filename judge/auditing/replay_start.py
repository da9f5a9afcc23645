"""The first event of a run, and what follows from its configuration alone.

Trust: the event is hostile, whoever signed it, until start_replay() returns.
I/O: none.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from aggregates.playbook import RATE_DIRECTIONS, RESTORING
from aggregates.rules import RulesConfig, version_of
from aggregates.run import REPEATABLE, REPORTED
from aggregates.spec import ModelSpec, Spec, WatchedModel, spec_of
from judge.auditing.replayed import Replay
from judge.compare import differences
from judge.errors import StepError
from monitor.config import AnyConfig, TaskConfig, WatchConfig, config_of, initial_settings
from monitor.dispatch import PORTABLE, PORTABLE_VARIABLES


def start_replay(started: Any, events: Sequence[Any]) -> Replay:
    """Begin the replay at run.started; raises StepError, or what a hostile body makes it raise."""
    run = started.mutate(None)
    run_config = config_of(started.config)
    if not all(isinstance(part, dict) for part in (started.data, started.environment)):
        raise StepError("run.started has no `data` or no `environment`")
    spec = spec_of(started.spec)
    _check_level(started, run.level, spec)
    _check_restoring(run_config, spec)
    _check_hashes(started, run_config)
    return Replay(
        run=run,
        events=events,
        started=started,
        config=run_config,
        settings=initial_settings(run_config),
        spec=spec,
    )


def _check_level(started: Any, level: str, spec: Spec) -> None:
    """Raise StepError unless the start is one of a run of this level of evidence."""
    if level == REPEATABLE and "task" in started.config:
        if not isinstance(spec, WatchedModel):
            raise StepError("a task's run cannot start from a model of ours")
        if started.parent_run is not None or started.campaign is not None:
            raise StepError("a task's run belongs to no campaign and restarts no run")
        return
    if level == REPEATABLE:
        if not isinstance(spec, ModelSpec):
            raise StepError("a repeatable run cannot start from a watched model")
        return
    if not isinstance(spec, WatchedModel):
        raise StepError(f"a run of the level {level} must start from a watched model")
    if started.parent_run is not None or started.campaign is not None:
        raise StepError(f"a run of the level {level} belongs to no campaign and restarts no run")
    rates = {*RATE_DIRECTIONS} & {*spec.offers}
    if level == REPORTED and (spec.parameters or spec.activations or rates):
        raise StepError("run.started describes a model, but none was watched")
    if level != REPORTED and not spec.parameters:
        raise StepError("run.started describes a watched model that has no parameters")
    if "swap_activation" in spec.offers and not spec.activations:
        raise StepError("run.started offers swap_activation, but names no activation")


def _check_restoring(config: AnyConfig, spec: Spec) -> None:
    """Raise StepError where a task's run offers to go back otherwise than it is configured."""
    if isinstance(config, TaskConfig) and isinstance(spec, WatchedModel):
        offered = {*RESTORING} & {*spec.offers}
        if offered != {*config.restoring}:
            raise StepError(
                f"run.started offers {', '.join(sorted(offered)) or 'no going back'}, but its "
                f"configuration has goes_back = {str(config.goes_back).lower()}"
            )


def _check_hashes(started: Any, config: AnyConfig) -> None:
    if different := next(differences(started.config, config.to_dict()), None):
        raise StepError(f"the recorded configuration is incomplete or differs at {different.place}")
    if started.config_hash != config.hash:
        raise StepError(
            "the configuration does not match its recorded hash",
            recorded=started.config_hash,
            found=config.hash,
        )
    if contradicted := _contradicted(started.environment, config):
        raise StepError(
            "the environment contradicts the configuration: no run with this configuration can "
            f"have the recorded {contradicted}"
        )
    rules = RulesConfig(**started.rules)
    if version_of(rules) is None or config.profile != rules.profile:
        raise StepError(
            f"the rules are not those of the profile {config.profile!r}: a run cannot set its own "
            "thresholds"
        )
    if different := next(differences(started.rules, rules.to_dict()), None):
        raise StepError(f"the recorded rules differ from the profile at {different.place}")
    if started.rules_hash != rules.hash:
        raise StepError(
            "the rules do not match their recorded hash",
            recorded=started.rules_hash,
            found=rules.hash,
        )


def _contradicted(environment: Mapping[str, Any], config: AnyConfig) -> str | None:
    """Return what of a recorded environment the configuration rules out on every machine.

    Without this, it would be one more way to be of another kind of machine than the judge's.
    """
    if isinstance(config, WatchConfig):  # nobody trains a watched run again
        return None
    wanted: dict[str, Any] = {"numerics": config.numerics, "threads": config.threads}
    if config.device == "cpu":
        wanted["device"] = "cpu"
    if config.numerics == PORTABLE:  # the monitor trains with no others
        wanted["variables"] = dict(PORTABLE_VARIABLES)
    wrong = (key for key, value in wanted.items() if environment.get(key, value) != value)
    missing = (key for key in wanted if key not in environment)
    # Versions without portable numerics recorded less.
    return next(wrong, None) or (next(missing, None) if config.numerics == PORTABLE else None)
