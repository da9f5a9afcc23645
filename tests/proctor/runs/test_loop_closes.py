"""What is learned from runs gets into a proposal, is measured, and makes the next runs' checkpoint;
and only what curation lets in is learned from."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from frontdoor import answer, call
from learning_lines import LEFT, PROMPT, LearningLine

from aggregates.improvement.proposal import Proposal
from ledger.paths import LedgerPaths
from projections.cache import catch_up
from projections.reading import query


def evolve(line: LearningLine) -> dict[str, Any]:
    command: list[str | Path] = ["line", "evolve", "--technique", "one_shot", "--json"]
    told = answer(call([*command, "--repo", line.repo], home=line.home.path))
    assert isinstance(told, dict)
    (ended,) = told["ended"]
    return {**ended, "stopped": told["stopped"]}


def ask(line: LearningLine, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
    tables = line.home.path / "projections.duckdb"
    catch_up(tables, line.home.ledger)
    return query(tables, sql, parameters).rows


@pytest.mark.slow
def test_curated_runs_change_a_proposal_and_what_is_withdrawn_taints_it(tmp_path: Path) -> None:
    line = LearningLine(tmp_path)
    stray, learned = (
        line.run(labelled=labelled, group=group, violations=[LEFT])
        for group, labelled in enumerate((False, True))
    )
    line.mark(stray, "gold", "of a run that nobody knows the code of")
    line.mark(learned, "gold", "as it should be")

    # 1. Nothing was admitted: nothing is learned, and the text stays as it is.
    kept_out = evolve(line)
    assert kept_out["outcome"] == "nothing"
    assert "2 runs are not learned from" in kept_out["reason"]

    # 2. An operator lets data and model in: the labelled run's decision gets into the prompt.
    line.admit()
    before = line.text(PROMPT)
    ended = evolve(line)
    assert ended["outcome"] == "promoted", ended
    assert before.rstrip() in line.text(PROMPT)
    assert '"direction": "decrease_lr"' in line.text(PROMPT)
    proposal = proposal_of(line, ended["proposal"])
    assert proposal.verdict == "better"
    named = {run for part in proposal.evidence for run in runs_in(part)}
    assert named == {str(learned.id)}

    # 3. The next run is made under the checkpoint that came of it.
    following = line.run(group=3)
    assert following.checkpoint == proposal.checkpoint
    steps = lineage(line, f"{following.id}/1", tmp_path)
    assert {"checkpoint.promoted", "proposal.evaluated", "export.sealed"} <= steps
    standing = "SELECT tainted, tainted_sources FROM proposal_standing WHERE proposal_id = ?"
    assert ask(line, standing, str(proposal.id)) == [(False, [])]

    # 4. The data is withdrawn: the proposal is known to rest on it, and nothing more is learned.
    line.withdraw()
    assert ask(line, standing, str(proposal.id)) == [(True, [str(learned.id)])]
    uses = "SELECT used_for FROM tainted_uses WHERE run_id = ? ORDER BY 1"
    assert [row[0] for row in ask(line, uses, str(learned.id))] == ["checkpoint", "proposal"]
    assert evolve(line)["outcome"] == "nothing"


def lineage(line: LearningLine, example: str, folder: Path) -> set[str]:
    """Export, and return the events that lead to one example of it."""
    file, proof, home = folder / "sft.jsonl", folder / "one.lineage", line.home.path
    done = call(["export", "data", "--kind", "sft", "--out", file], home=home)
    assert done.returncode == 0, done.stderr
    done = call(["data", "lineage", example, "--export", file, "--out", proof], home=home)
    assert done.returncode == 0, done.stderr
    vkey = LedgerPaths(line.home.ledger).vkey
    held = answer(call(["verify", proof, "--vkey", vkey, "--json"], home=None, cwd=folder))
    return {step["event"] for step in held["steps"]}


def proposal_of(line: LearningLine, name: str) -> Proposal:
    with line.log() as log:
        found: Proposal = log.repository.get(UUID(name))
    return found


def runs_in(part: Mapping[str, Any]) -> list[str]:
    return [*part.get("runs", []), *([part["run"]] if "run" in part else [])]
