"""The path of docs/studies/agents.md in small: runs, export, training, server.

Forty steps teach a model the form of an answer at best. What it says is recorded either way, and
under a grammar some of it is usable or the driver answers.
"""

import json
import subprocess
from pathlib import Path

import pytest
from decider_runs import proctor, provoked
from decider_study import ASKING, served
from foreign_servers import BIN, HERE, KEY, serving

pytestmark = pytest.mark.foreign


def test_model_trained_on_an_export_decides_behind_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, examples = tmp_path / "learnt", tmp_path / "sft.jsonl"
    for seed in (100, 101):
        proctor(provoked("lr_too_low", seed), home=home)
        proctor(["judge"], home=home)
    proctor(["export", "data", "--kind", "sft", "--out", examples], home=home)
    training = [str(BIN / "python"), str(HERE / "train_decider.py"), str(tmp_path), str(examples)]
    done = subprocess.run([*training, "--steps", "40"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "decider" / "model.safetensors").is_file()

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    decided = tmp_path / "decided"
    with serving(served(tmp_path / "decider.gguf"), tmp_path / "server.log") as url:
        # The probe would ask this model for a word that it has not learnt.
        settings = (*ASKING, "rung=json_schema", "model=decider", f"base_url={url}")
        policy = ("--policy", "openai", *(part for one in settings for part in ("--set", one)))
        proctor(provoked("lr_too_low", 0, *policy), home=decided)
    proctor(["verify"], home=decided)
    told = json.loads(proctor(["show", "--transcript", "--json"], home=decided))
    asked = [one for one in told["calls"] if one["action"] == "decide"]
    assert asked
    query = "SELECT source FROM decisions"
    sources = {one["source"] for one in json.loads(proctor(["sql", query, "--json"], home=decided))}
    assert sources <= {"policy", "driver"}
    assert ("policy" in sources) == any(one["outcome"] == "usable" for one in asked)
