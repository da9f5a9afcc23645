"""What the judged party records is bounded, and its paths are not followed, before any work."""

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import numpy as np
import pytest
from judge_cases import CONFIG, Case, SilentPolicy, failed, rewrite, train_case
from PIL import Image

from aggregates.rules import PROFILES
from aggregates.run import Run
from judge.auditing import own_model
from judge.auditing.audit import audit_run
from judge.auditing.events import StreamEvents
from judge.auditing.gates import Redo
from judge.auditing.limits import LIMITED, _demands, verify_limits
from judge.auditing.record import read_record
from judge.auditing.reexecution import reexecute
from judge.auditing.scores import rank
from judge.config import LIMITS, JudgeConfig
from judge.errors import JudgeError, StepError
from monitor import folders
from monitor.config import RunConfig
from policies.playbook import PlaybookPolicy


def _draw(root: Path) -> Path:
    rng = np.random.default_rng(0)
    for part, count in (("train", 60), ("test", 15)):
        for name in ("cat", "dog"):
            folder = root / part / name
            folder.mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 256, (32, 32, 3), np.uint8)
                Image.fromarray(pixels).save(folder / f"{number:02}.png")
    return root


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Case, Path]:
    """Return a run on a folder of images, and the folder."""
    root = _draw(tmp_path_factory.mktemp("drawn") / "images")
    config = replace(
        CONFIG,
        dataset=f"imagefolder:{root}",
        train_examples=None,
        val_examples=None,
        test_examples=None,
        epochs=2,
    )
    return train_case(root.parent, SilentPolicy(), config), root


@pytest.fixture
def images(drawn: tuple[Case, Path], tmp_path: Path) -> tuple[Case, Path]:
    """Return the run with a copy of its folder, which a test may spoil."""
    return drawn[0], _draw(tmp_path / "images")


@pytest.mark.slow  # test_judge_limits_cli.py asks the command
def test_judges_own_copy_is_read_in_place_of_the_recorded_folder(
    images: tuple[Case, Path],
) -> None:
    case, copy = images
    report = case.audit(config=JudgeConfig(data_dir=str(copy)))
    assert failed(report) is None
    assert report.step("probe").evidence["repeated"] == {"train": 0, "validation": 0, "test": 0}
    Image.new("RGB", (32, 32)).save(copy / "train" / "cat" / "00.png")
    assert failed(case.audit(config=JudgeConfig(data_dir=str(copy)))) == "probe"


def test_test_images_that_are_swapped_while_the_run_is_judged_decide_nothing(
    images: tuple[Case, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    case, copy = images
    config = JudgeConfig(data_dir=str(copy))
    compared = own_model.compare_probe

    def swapped(*arguments: Any, **options: Any) -> dict[str, Any]:
        for name in ("cat", "dog"):  # as another process could at any time behind step 7's reading
            for path in (copy / "test" / name).iterdir():
                path.write_bytes((copy / "train" / name / path.name).read_bytes())
        return compared(*arguments, **options)

    monkeypatch.setattr(own_model, "compare_probe", swapped)
    with pytest.raises(JudgeError, match="the test images changed while the run was judged"):
        case.audit(config=config)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("redo", [None, Redo(lambda run: SilentPolicy())])
def test_pipe_in_the_data_fails_the_run_and_nothing_hangs(
    images: tuple[Case, Path], redo: Redo | None
) -> None:
    case, copy = images
    (copy / "test" / "cat" / "00.png").unlink()
    os.mkfifo(copy / "test" / "cat" / "00.png")
    report = case.audit(config=JudgeConfig(data_dir=str(copy)), redo=redo)
    assert failed(report) == "probe"
    assert "test/cat/00.png is not a regular file" in report.step("probe").summary


def test_splits_that_share_an_image_fail_the_run_with_the_names(
    images: tuple[Case, Path],
) -> None:
    case, copy = images
    source, target = copy / "train" / "cat" / "05.png", copy / "test" / "dog" / "05.png"
    target.unlink()
    target.hardlink_to(source)
    report = case.audit(config=JudgeConfig(data_dir=str(copy)))
    assert failed(report) == "probe"
    step = report.step("probe")
    assert "share 1 image" in step.summary
    (pair,) = step.evidence["pairs"]["first"]
    assert pair.endswith(": train/cat/05.png = test: test/dog/05.png")


@pytest.mark.slow
def test_folder_of_another_user_is_read_only_if_the_judge_names_it(
    drawn: tuple[Case, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    case, root = drawn
    assert failed(case.audit()) is None  # the recorded folder, of the judge's own user
    monkeypatch.setattr(os, "geteuid", lambda: root.stat().st_uid + 1)
    monkeypatch.setattr(folders, "_ROOT", root.stat().st_uid + 2)
    with pytest.raises(JudgeError, match="belongs to another user"):
        case.audit()
    with pytest.raises(JudgeError, match="belongs to another user"):
        reexecute(case.events(), SilentPolicy())
    assert failed(case.audit(config=JudgeConfig(data_dir=str(root)))) is None


def test_recorded_download_is_not_followed(
    tmp_path: Path, honest: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("urllib.request.urlopen", lambda *args, **more: asked.append(args))
    place = tmp_path / "made" / "by" / "the judge"
    config = replace(
        CONFIG,
        dataset="cifar10",
        data_dir=str(place),
        download=True,
    )

    def change(event: Any) -> dict[str, Any]:
        if isinstance(event, Run.Started):
            return {"config": config.to_dict(), "config_hash": config.hash}
        return {}

    forged = rewrite(honest.copy(tmp_path / "copy"), change)
    for redo in (None, Redo(lambda run: SilentPolicy())):
        with pytest.raises(JudgeError, match=r"without its data set: folder .* not found"):
            audit_run(
                forged.run_id,
                ledger_dir=forged.ledger,
                submission_dir=forged.submission,
                redo=redo,
            )
    with pytest.raises(JudgeError, match="not found"):
        reexecute(forged.events(), SilentPolicy())
    assert not asked
    assert not (tmp_path / "made").exists()


GREEDY: dict[str, dict[str, Any]] = {
    "max_examples": {"train_examples": 400_000},
    "max_threads": {"threads": 1_024},
}


@pytest.mark.parametrize("limit", GREEDY)
@pytest.mark.parametrize("redo", [None, Redo(lambda run: SilentPolicy())])
def test_greedy_configuration_is_rejected_before_any_work(
    tmp_path: Path,
    honest: Case,
    limit: str,
    redo: Redo | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = replace(CONFIG, **GREEDY[limit])
    monkeypatch.setattr(own_model, "load_splits", lambda *args: pytest.fail("data was read"))

    def change(event: Any) -> dict[str, Any]:
        if not isinstance(event, Run.Started):
            return {}
        environment = {**event.environment, "threads": config.threads}
        told = {"config": config.to_dict(), "config_hash": config.hash}
        return {**told, "environment": environment}

    forged = rewrite(honest.copy(tmp_path), change)
    with pytest.raises(JudgeError, match=rf"above the judge's limits: .*--limit {limit}="):
        forged.audit(redo=redo)
    with pytest.raises(JudgeError, match=rf"--limit {limit}="):
        reexecute(forged.events(), SilentPolicy())


def _set(event: Any, kind: type, **fields: Any) -> dict[str, Any]:
    return fields if isinstance(event, kind) else {}


HUGE_SPEC = {
    "classes": 10,
    "channels": 1024,
    "stem_stride": 1,
    "blocks": [{"width": 1024, "residual": True, "norm": "batch", "activation": "relu"}] * 32,
    "norm": "batch",
    "activation": "relu",
}


@pytest.mark.parametrize("kind", [Run.Started, Run.WeightsSaved])
def test_enormous_specification_is_rejected_before_a_model_is_built(
    tmp_path: Path, honest: Case, kind: type
) -> None:
    forged = rewrite(
        honest.copy(tmp_path), lambda event: _set(event, kind, spec=HUGE_SPEC), checked=False
    )
    with pytest.raises(JudgeError, match=r"604,017,664 parameters, the limit is 64,000,000"):
        forged.audit()


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"max_epochs": 7}, "8 epochs, the limit is 7"),
        ({"max_events": 20}, "events, the limit is 20"),
        ({"max_decisions": 1}, "decisions, the limit is 1"),
        ({"max_examples": 395}, "396 examples, the limit is 395"),
        ({"max_parameters": 100}, "parameters, the limit is 100"),
        ({"max_activation_bytes": 1_000}, "activation bytes, the limit is 1,000"),
        ({"max_image_bytes": 1}, None),
    ],
)
def test_each_limit_is_the_judges_own(
    honest: Case, limits: dict[str, int], said: str | None
) -> None:
    config = JudgeConfig.limited(limits)
    if said is None:
        assert failed(honest.audit(config=config)) is None
        return
    with pytest.raises(JudgeError, match=said):
        honest.audit(config=config)


def test_work_counts_only_where_the_run_is_retrained(honest: Case) -> None:
    config = JudgeConfig.limited({"max_multiply_adds": 1_000})
    assert failed(honest.audit(config=config)) is None
    with pytest.raises(JudgeError, match="multiply adds, the limit is 1,000"):
        honest.audit(config=config, redo=Redo(lambda run: PlaybookPolicy()))


def _cifar(config: dict[str, Any]) -> list[Any]:
    """Return the first events of a run on CIFAR-10 in full, as far as the limits look."""
    run = RunConfig.from_dict({"dataset": "cifar10", "data_dir": "/data", **config})
    started = Run.start(
        config=run.to_dict(),
        rules=PROFILES["calibrated"].to_dict(),
        spec=run.spec(10).to_dict(),
        data={"sizes": {"train": 45_000, "validation": 5_000, "test": 10_000}},
        environment={},
        policy={},
    )
    return list(started.collect_events())


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"epochs": 100, "channels": 64, "width": 64, "blocks": 8, "stem_stride": 1, "threads": 16},
        {"batch_size": 512, "channels": 64, "width": 64, "blocks": 8, "stem_stride": 1},
    ],
)
def test_cifar10_in_full_is_within_the_defaults(config: dict[str, Any], honest: Case) -> None:
    epochs = config.get("epochs", 12)
    (measured, *_) = [e for e in honest.events() if isinstance(e, Run.EpochMeasured)]
    events = [*_cifar(config), *[measured] * epochs]
    default = JudgeConfig()
    for name, found in _demands(events):
        assert found <= getattr(default, name), name


def test_limits_ask_for_no_field_that_is_left_unread(honest: Case) -> None:
    entries = read_record(honest.ledger, UUID(honest.run_id)).entries
    read = list(StreamEvents(entries, fields=LIMITED))
    assert dict(_demands(read)) == dict(_demands(honest.events()))
    assert {type(each) for each in read if not vars(each)} >= {Run.RulesEvaluated, Run.Ended}
    unknown = [entries[0], msgspec.structs.replace(entries[1], name="run.teleported")]
    with pytest.raises(StepError, match=r"run\.teleported"):
        list(StreamEvents(unknown, fields=LIMITED))


def test_work_of_parents_counts_with_that_of_the_run(honest: Case) -> None:
    events = honest.events()
    work = dict(_demands(events))["max_multiply_adds"]
    config = JudgeConfig(max_multiply_adds=2 * work)
    verify_limits(events, config, retrained=True, also=[events])
    verify_limits(events, config, retrained=False, also=[events, events])
    with pytest.raises(JudgeError, match="multiply adds"):
        verify_limits(events, config, retrained=True, also=[events, events])


def test_limit_that_is_none_is_rejected() -> None:
    with pytest.raises(JudgeError, match="unknown limit disabled; choose from"):
        JudgeConfig.limited({"disabled": 1})
    for value in (0, -1, True, 2.5, "many"):
        with pytest.raises(JudgeError, match="max_epochs must be a whole number above 0"):
            JudgeConfig.limited({"max_epochs": value})
    assert {"max_examples", "child_memory_bytes", "min_validation_examples"} <= set(LIMITS)
    assert not {"disabled", "probe_tolerance", "data_dir", "min_firings"} & set(LIMITS)


def test_few_validation_examples_rank_no_attempt(honest: Case) -> None:
    """Two attempts that differ by validation accuracy alone keep their order."""
    report = honest.audit()
    better = replace(report, scores=replace(report.scores, validation_accuracy=1.0))
    assert "validation accuracy on 96 examples (too few to rank" in report.step("scores").summary
    assert rank([report, better]) == [report, better]
    asked = honest.audit(config=JudgeConfig(min_validation_examples=96))
    better = replace(asked, scores=replace(asked.scores, validation_accuracy=1.0))
    assert "too few to rank" not in asked.step("scores").summary
    assert rank([asked, better]) == [better, asked]
    earlier = replace(report, config={})  # by a version that asked for no number
    better = replace(earlier, scores=replace(earlier.scores, validation_accuracy=1.0))
    assert rank([earlier, better]) == [better, earlier]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("redo", [None, Redo(lambda run: PlaybookPolicy())])
def test_weights_that_are_not_canonical_are_rejected_with_and_without_retraining(
    honest: Case, tmp_path: Path, redo: Redo | None
) -> None:
    case = honest.copy(tmp_path)
    path = case.submission / "weights.safetensors"
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    padded = start.to_bytes(8, "little") + data[8:start] + b" " * 8 + data[start:]
    path.write_bytes(padded)
    digest = hashlib.sha256(padded).hexdigest()

    def change(event: Any) -> dict[str, Any]:
        if isinstance(event, Run.WeightsSaved):
            return {"sha256": digest, "size": len(padded)}
        return {}

    report = rewrite(case, change).audit(redo=redo)
    assert failed(report) == "weights"
    assert "in the canonical form" in report.step("weights").summary
