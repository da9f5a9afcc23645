"""Rankings name both axes, and say which goes first: a recorded setting of each campaign."""

from pathlib import Path

import pytest
from frontdoor import answer, call_here
from synthetic import begun_campaign, synthetic_audit, synthetic_campaign, synthetic_run

from aggregates.campaign import Campaign
from aggregates.errors import InvariantError
from proctor.home import Home

TASK = ["train_examples=200", "val_examples=100", "test_examples=100", "channels=8", "width=8"]
RUN = ["run", *TASK, "epochs=2", "threads=1", "--attempts", "1"]


@pytest.mark.parametrize(
    ("ranked_by", "first", "order", "better"),
    [
        (
            "process",
            1,
            "process score, then by validation accuracy",
            "Attempt 2 has a higher validation accuracy (0.900) than attempt 1 in the first place "
            "(0.200).",
        ),
        (
            "quality",
            2,
            "validation accuracy, then by process score",
            "Attempt 1 has a higher process score (1.000) than attempt 2 in the first place "
            "(0.500).",
        ),
    ],
)
def test_recorded_axis_goes_first_and_the_better_on_the_other_is_named(
    tmp_path: Path, ranked_by: str, first: int, order: str, better: str
) -> None:
    with Home(tmp_path).open_log() as log:
        begun, ids = begun_campaign(log, 2, ranked_by=ranked_by)
        runs, audits = [], []
        for run_id, score, accuracy in zip(ids, (1.0, 0.5), (0.2, 0.9), strict=True):
            runs.append(synthetic_run(log, run_id=run_id, campaign=str(begun.id), exploding=[1, 2]))
            audits.append(synthetic_audit(log, runs[-1], score=score, accuracy=accuracy))
        synthetic_campaign(log, runs, audits=audits, begun=begun)
    sql = (
        "SELECT number, place, ranked_by FROM campaign_progress JOIN campaigns USING (campaign_id)"
    )
    rows = answer(call_here(["sql", f"{sql} ORDER BY place", "--json"], home=tmp_path))
    assert [row["number"] for row in rows] == [first, 3 - first]
    assert {row["ranked_by"] for row in rows} == {ranked_by}
    page = tmp_path / "campaign.html"
    done = call_here(["report", str(begun.id), "--out", page], home=tmp_path)
    assert done.returncode == 0, done.stderr
    for text in (f"they are ranked by {order};", better):
        assert text in page.read_text()


@pytest.mark.slow
def test_campaign_ranked_by_quality_is_another_campaign_and_says_so(tmp_path: Path) -> None:
    told = {}
    for ranked_by in ("process", "quality"):
        option = [] if ranked_by == "process" else ["--rank-by", ranked_by]
        found = answer(call_here([*RUN, *option, "--json"], home=tmp_path))
        assert found["ranked_by"] == ranked_by
        told[found["campaign"]] = call_here([*RUN, *option], home=tmp_path).stdout
    assert len(told) == 2
    by_process, by_quality = told.values()
    assert "ranked by process score, then by validation accuracy (on 100 examples)" in by_process
    assert "ranked by validation accuracy (on 100 examples), then by process score" in by_quality
    wrong = call_here(["run", *TASK, "--rank-by", "quality"], home=tmp_path)
    assert (wrong.returncode, "--attempts N" in wrong.stderr) == (2, True)


def test_ranking_by_anything_else_is_rejected() -> None:
    with pytest.raises(InvariantError, match="ranked by"):
        Campaign.start(config={}, attempts=1, policy={"name": "x"}, ranked_by="luck")
