"""What a run that follows a restart starts from."""

import pytest
from synthetic import measured

from aggregates.decisions import Decision, Settings
from aggregates.rules import CALIBRATED
from aggregates.run import Run
from aggregates.spec import Edit, ModelSpec, apply_edit
from monitor.config import RunConfig
from proctor.runs.training import following_attempt


def restarted(config: RunConfig, spec: ModelSpec, then: ModelSpec) -> Run:
    """Return a run from `spec` that ends for a restart from `then`."""
    run = Run.start(
        config=config.to_dict(),
        rules=CALIBRATED.to_dict(),
        spec=spec.to_dict(),
        data={},
        environment={},
        policy={"name": "test"},
    )
    exploded = {**measured(0), "gradients": {**measured(0)["gradients"], "finite": False}}
    run.measure_epoch(exploded, {})
    run.evaluate_rules()
    lower = Decision("hyperparameter_change", ("R7",), "decrease_lr", {"lr": 0.01}, "too steep")
    run.decide(lower, source="policy")
    settings = Settings(lr=0.01, batch_size=32, accumulation=2, clip_norm=1.0)
    run.apply_remedy([], settings=settings.to_dict(), spec=spec.to_dict())
    run.decide(Decision("architecture_change", ("R7",), "add_block", {}, "deeper"), source="policy")
    run.schedule_restart(then.to_dict())
    run.end("restart")
    return run


def test_restart_carries_what_earlier_remedies_have_set() -> None:
    config = RunConfig(edits="restart", lr=0.1)
    spec = config.spec(10)
    deeper = apply_edit(spec, Edit("add_block"))
    run = restarted(config, spec, deeper)

    following = following_attempt(run)
    assert following is not None
    assert (following.parent, following.spec) == (str(run.id), deeper)
    now = following.config
    assert (now.lr, now.batch_size, now.accumulation, now.clip_norm) == (0.01, 32, 2, 1.0)


@pytest.mark.parametrize(
    ("edits", "fields"),
    [
        ([Edit("swap_activation", to="leaky_relu")], {"activation": "leaky_relu"}),
        ([Edit("add_block")], {"blocks": 3}),
        ([Edit("widen", factor=2)], {"width": 64}),
        ([Edit("add_norm"), Edit("add_residual")], {"norm": "batch", "residual": True}),
    ],
)
def test_configuration_after_a_restart_describes_the_model_that_it_starts_from(
    edits: list[Edit], fields: dict[str, object]
) -> None:
    bare = bool({"norm", "residual"} & set(fields))
    config = RunConfig(
        edits="restart", norm="none" if bare else "batch", residual=not bare, activation="relu"
    )
    spec = then = config.spec(10)
    for edit in edits:
        then = apply_edit(then, edit)
    following = following_attempt(restarted(config, spec, then))
    assert following is not None
    assert following.config.spec(10) == then
    before, after = config.to_dict(), following.config.to_dict()
    changed = {name for name, value in after.items() if value != before[name]}
    assert changed == {*fields, "lr", "batch_size", "accumulation", "clip_norm"}
    assert {name: after[name] for name in fields} == fields


def test_configuration_after_a_restart_keeps_what_it_cannot_describe() -> None:
    config = RunConfig(edits="restart")
    spec = config.spec(10)
    mixed = apply_edit(spec, Edit("widen", block=1, factor=2))
    mixed = apply_edit(mixed, Edit("swap_activation", block=0, to="gelu"))
    following = following_attempt(restarted(config, spec, mixed))
    assert following is not None
    assert (following.config.width, following.config.activation) == (32, "relu")
    assert following.spec == mixed
