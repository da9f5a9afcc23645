"""Measured preference pairs, from a run to a step of TRL's own trainer."""

import json
import re
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from agent_episodes import done, rows

pytestmark = pytest.mark.foreign
trl = pytest.importorskip("trl")
from datasets import Dataset, load_dataset  # noqa: E402 - after the skip
from random_models import learn_tokens, random_model, write_transformers  # noqa: E402

ROOT = Path(__file__).parents[2]
# R1 is low in the third epoch; the playbook raises the learning rate, which every order rewards.
SLOW = (
    *("train_examples=192", "val_examples=64", "test_examples=64", "epochs=6", "lr=1e-4"),
    *("batch_size=32", "warm_up_epochs=0", "channels=8", "blocks=1", "width=8"),
    *("stem_stride=4", "threads=1"),
)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The exported file of a home whose run was measured, with each fork judged."""
    home = tmp_path_factory.mktemp("measured")
    done("run", *SLOW, home=home)
    credit = done("fork", "--decision", "1", "--against", "nothing", "--orders", "3", home=home)
    assert re.search(r" nothing .* chosen$", credit, re.MULTILINE)
    out = home / "pairs.jsonl"
    export = ("export", "data", "--kind", "preferences", "--measured", "--out", str(out))
    *others, last = rows(home, "SELECT run_id FROM run_starts ORDER BY idx")
    for each in others:
        done("judge", each["run_id"], home=home)
    done(*export, home=home, code=1)  # a fork is not judged
    assert not out.exists()
    done("judge", last["run_id"], home=home)
    done(*export, home=home)
    done("verify", str(out), home=home)
    return out


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    with chdir(tmp_path):
        yield tmp_path


def test_pairs_are_what_trl_reads(pairs: Path, offline: Path) -> None:
    (example,) = load_dataset("json", data_files=str(pairs), split="train", cache_dir="cache")
    assert trl.data_utils.is_conversational(example)
    assert [each["role"] for each in example["prompt"]] == ["system", "user"]
    said = [json.loads(example[side][0]["content"]) for side in ("chosen", "rejected")]
    assert [each["decisions"][0]["direction"] for each in said] == ["go_back", "defer"]


def test_trainer_of_the_guide_makes_a_step(pairs: Path, offline: Path) -> None:
    tokens = learn_tokens(ROOT / "docs")
    write_transformers(offline / "model", tokens, random_model(tokens))
    (offline / "pairs.jsonl").write_bytes(pairs.read_bytes())
    guide = (ROOT / "docs/how-to/curate.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n([^`]*DPOTrainer.*?)```", guide, re.DOTALL)
    code = code.replace("Qwen/Qwen3-0.6B", "model").replace(
        'output_dir="preferring"', 'output_dir="preferring", max_steps=1, use_cpu=True'
    )
    told: dict[str, Any] = {}
    exec(code, told)  # the guide's own words
    trainer = told["trainer"]
    assert trainer.state.global_step == 1
    assert isinstance(trainer.train_dataset, Dataset)
    assert len(trainer.train_dataset) == 1  # nothing was dropped
    (loss,) = [each["train_loss"] for each in trainer.state.log_history if "train_loss" in each]
    assert 0 < loss < 1  # log 2: the model prefers neither yet
