"""The policy that tries before it decides: several rates, where nothing measured tells which.

Where rescue would guess, each rate trains an epoch from the same state, and the one with the
smallest validation loss goes on (aggregates/trials.py). The trials are part of the run's epochs. A
rule gets trials once; everything else is answered as rescue does, and so are rules for which too
few epochs are left.
I/O: none.
"""

from aggregates.decisions import Observation
from aggregates.playbook import FRESH, GO_BACK, MAX_LR, MIN_LR, TRY_RATES
from aggregates.rules import RuleEvaluation
from policies.deciding.rescue import LOST, RescuePolicy, best_state
from policies.playbook import Chosen

# By what the present rate is divided (or multiplied, where it is too low), the likely ones first:
# steps that are bounded from now on may be as long as they were.
UNBOUNDED, BOUNDED = (1, 10, 100), (10, 100, 3)
SHARE = 4  # one trial for so many epochs that are left, two at least


class TrialsPolicy(RescuePolicy):
    """Tries rates where rescue would guess one."""

    name = "trials"

    def remedy(self, rule: str, seen: Observation, evaluation: RuleEvaluation) -> Chosen | None:
        """Return what answers a rule that fired, None if nothing is left."""
        usual = super().remedy(rule, seen, evaluation)
        why = self._unknown(rule, seen, evaluation)
        if why is None or TRY_RATES not in seen.directions(rule):
            return usual
        lr, bounded = seen.settings.lr, seen.settings.clip_norm is not None
        low = evaluation.side == "low"
        factors = BOUNDED if bounded or low else UNBOUNDED
        most = min(seen.tries, max(2, seen.tries // SHARE))
        rates = [lr * each if low else lr / each for each in factors]
        rates = [each for each in rates if MIN_LR <= each <= MAX_LR][:most]
        if len(rates) < 2:
            return usual
        lost = evaluation.side == "guessing" or (evaluation.value or 0.0) > LOST
        params = {"epoch": FRESH if lost else best_state(seen), "rates": rates}
        if not bounded and not low:
            params["clip_norm"] = self.numbers.clip_norm
        return Chosen(TRY_RATES, params, f"{why}, so each of {len(rates)} rates gets an epoch")

    def _unknown(self, rule: str, seen: Observation, evaluation: RuleEvaluation) -> str | None:
        """Return why no rate is known to answer a rule; None: one is, or trials were made."""
        answers = [past.decision.direction for past in seen.applied if rule in past.decision.cites]
        if TRY_RATES in answers:
            return None
        if evaluation.side == "guessing":
            return "the model only guesses"
        if GO_BACK in answers:
            return "going back was no help"
        lost = rule == "R1" and evaluation.side == "high" and (evaluation.value or 0.0) > LOST
        return "nothing is left of the weights" if lost else None
