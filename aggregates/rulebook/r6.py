"""R6, vanishing gradients: the gradient of some layer is close to zero."""

from aggregates.rulebook.folds import Band
from aggregates.rulebook.rule import Rule, Side, average, outside

_SIGNALS = {
    "min_layer_grad_norm": "smallest gradient norm",
    "grad_norm_ratio": "smallest over largest gradient norm",
}

RULE = Rule(
    title="vanishing gradients",
    kind="stability",
    fold=lambda name, rules: Band(name, rules, rules.r6_signal, rules.r6_low, None),
    sides={
        "low": Side(
            "the gradient of some layer is close to zero",
            ("add_norm", "add_residual", "swap_activation"),
            undone=True,
        )
    },
    limits=lambda rules: (
        f"{average(rules)} of {_SIGNALS[rules.r6_signal]} at least {rules.r6_low:g}, "
        f"{outside(rules)}"
    ),
    measured=lambda said: _SIGNALS.get(str(said.get("r6_signal", "min_layer_grad_norm")), ""),
    band=("r6_low", ""),
)
