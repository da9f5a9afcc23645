"""What a run that follows a restart starts from."""

from synthetic import measured

from aggregates.decisions import Decision, Settings
from aggregates.rules import CALIBRATED
from aggregates.run import Run
from aggregates.spec import Edit, apply_edit
from monitor.config import RunConfig
from proctor.training import following_attempt


def test_restart_carries_what_earlier_remedies_have_set() -> None:
    config = RunConfig(edits="restart", lr=0.1)
    spec = config.spec(10)
    run = Run.start(
        config=config.to_dict(),
        config_hash=config.hash,
        rules=CALIBRATED,
        spec=spec,
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
    run.apply_remedy([], settings=settings.to_dict(), spec=spec)
    run.decide(Decision("architecture_change", ("R7",), "add_block", {}, "deeper"), source="policy")
    deeper = apply_edit(spec, Edit("add_block"))
    run.schedule_restart(deeper)
    run.end("restart")

    following = following_attempt(run)
    assert following is not None
    assert (following.parent, following.spec) == (str(run.id), deeper)
    now = following.config
    assert (now.lr, now.batch_size, now.accumulation, now.clip_norm) == (0.01, 32, 2, 1.0)
