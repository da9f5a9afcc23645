"""When the rules fire: pure functions of the measured history, evaluated in one place only.

Two parties call evaluate_rules(): the monitor while a run goes on, and the judge again, from
verified bytes. It never sees what the training loop reports.

Source: docs/reference/rules.md.  I/O: none.  Units: epochs from 0; see EpochSignals.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from aggregates.rulebook import RULEBOOK
from aggregates.rules import AppliedRemedy, RuleEvaluation, RulesConfig
from aggregates.signals import EpochSignals
from aggregates.trials import chosen_trial


def evaluate_rules(
    history: Sequence[EpochSignals], remedies: Sequence[AppliedRemedy], config: RulesConfig
) -> dict[str, RuleEvaluation]:
    """Evaluate all rules for the latest epoch of `history`, which must not be empty."""
    return RuleMemory(config).evaluate(history, remedies)


def evaluate_epochs(
    history: Sequence[EpochSignals],
    remedies: Sequence[AppliedRemedy],
    config: RulesConfig,
    *,
    first: int = 0,
) -> Iterator[dict[str, RuleEvaluation]]:
    """Yield the evaluation of each epoch from `first` on, with the remedies applied before it."""
    memory, due = RuleMemory(config), sorted(remedies, key=lambda remedy: remedy.epoch)
    for place in range(first, len(history)):
        known = bisect_left(due, history[place].epoch, key=lambda remedy: remedy.epoch)
        yield memory.evaluate(history, due[:known] if known else (), end=place + 1)


class RuleMemory:
    """What the rules know of a run, so that the next epoch costs no more than the first.

    What a rule says of an epoch follows from the epochs after its last remedy. Of trials, which no
    rule judges, only the one that goes on counts afterwards. Both sequences that are passed may
    only have grown since the last time.
    """

    def __init__(self, config: RulesConfig) -> None:
        self._config = config
        self._read = 0  # remedies
        self._since = dict.fromkeys(config.names, -1)  # epoch of the last remedy
        self._trials = range(0)  # the latest epochs that are trials
        self._left: Collection[int] | None = ()  # of these, those that did not go on
        self._folds = {rule: RULEBOOK[rule].fold(rule, config) for rule in config.names}

    def __repr__(self) -> str:
        """Return the same text always: it spares time and changes nothing."""
        return "RuleMemory()"

    def evaluate(
        self,
        history: Sequence[EpochSignals],
        remedies: Sequence[AppliedRemedy],
        *,
        end: int | None = None,
    ) -> dict[str, RuleEvaluation]:
        """Evaluate all rules for the latest epoch, the last before `end` if it is given."""
        config, end = self._config, len(history) if end is None else end
        for remedy in remedies[self._read :] if config.restart_after_remedy else ():
            if remedy.epoch > self._since.get(remedy.rule, remedy.epoch):
                self._since[remedy.rule] = remedy.epoch
                self._folds[remedy.rule] = RULEBOOK[remedy.rule].fold(remedy.rule, config)
            if remedy.trials:
                self._trials = range(remedy.epoch + 1, remedy.epoch + 1 + remedy.trials)
                self._left = None
        self._read = len(remedies)
        if history[end - 1].epoch in self._trials:
            return {rule: fold.evaluation() for rule, fold in self._folds.items()}
        if self._left is None:
            tried = [signals for signals in history[:end] if signals.epoch in self._trials]
            best = chosen_trial([signals.val_loss for signals in tried])
            self._left = {each.epoch for place, each in enumerate(tried) if place != best}
        for rule, fold in self._folds.items():
            fold.go_on(history, end, since=self._since[rule], without=self._left)
        found = {rule: fold.evaluation() for rule, fold in self._folds.items()}
        for rule in config.names:
            if at_once := RULEBOOK[rule].at_once:
                found[rule] = at_once(found[rule], history[end - 1], config)
        fired = {rule for rule, evaluation in found.items() if evaluation.fired}
        for rule in fired:
            if fired.intersection(RULEBOOK[rule].silenced_by):
                found[rule] = replace(found[rule], fired=False, side=None)
        return found
