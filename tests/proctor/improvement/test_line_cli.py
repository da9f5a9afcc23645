"""`proctor line`: what people and operators do, from the command line."""

import json
from pathlib import Path
from typing import Any

import pytest
from frontdoor import call_here
from gauntlet_lines import COMPONENT, SELECTION, THRIFTY, UNSORTED, Line

from judge.gauntlet.shown import digest_of_shown
from proctor.sample.init import git

WHY = ["--rationale", "It is better so."]


@pytest.fixture
def line(tmp_path: Path) -> Line:
    """Return a line whose operator's key lies in a file."""
    line = Line(tmp_path, ("late-rows",))
    for what, file in (("new", "operator.pem"), ("grant", "operator.pem.vkey")):
        done = call_here(["keys", what, "operator", tmp_path / file], home=line.home.path)
        assert done.returncode == 0, done.stderr
    return line


def ask(line: Line, *arguments: str | Path, code: int = 0) -> str:
    """Run `proctor line` and return what it says; the exit code has to be this one."""
    place = () if arguments[0] == "init" else ("--repo", line.repo)
    done = call_here(("line", *arguments, *place), home=line.home.path)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def ask_json(line: Line, *arguments: str | Path, code: int = 0) -> Any:
    return json.loads(ask(line, *arguments, "--json", code=code).splitlines()[0])


def written(line: Line, name: str, diff: bytes) -> Path:
    path = line.repo.parent / name
    path.write_bytes(diff)
    return path


def key_of(line: Line) -> list[str | Path]:
    return ["--key", line.repo.parent / "operator.pem"]


def thrifty_component(text: str) -> str:
    scored = "score_documents(documents, query, settings)"
    assert scored in text
    return text.replace(scored, f"[row for row in {scored} if row[0] > 0]")


def test_change_is_proposed_judged_and_shown(line: Line) -> None:
    worse = written(line, "worse.diff", line.diff(SELECTION, UNSORTED))
    ask(line, "propose", worse, *WHY)
    better = written(line, "better.diff", line.diff(SELECTION, THRIFTY))
    (queued,) = ask_json(line, "propose", better, *WHY)
    assert (queued["outcome"], queued["stage"], queued["waits_for"]) == (None, "branch", None)
    done = ask_json(line, "run", code=1)
    assert [each["outcome"] for each in done] == ["rejected", "promoted"]
    status = ask_json(line, "show")
    assert [len(status["checkpoints"]), status["at_checkpoint"], status["queue"]] == [2, True, []]
    shown = ask(line, "show", done[0]["proposal"])
    for part in ("-    ordered = sorted", "proposal.tested", "late-rows", "rejected: worse"):
        assert part in shown
    assert ask_json(line, "show", "latest")["text"] == line_diff(better)
    assert "late-rows" in ask(line, "show", "--list", "anchors")
    assert "next: add medium tasks of category ranking" in ask(line, "show", "--list", "gaps")


def line_diff(path: Path) -> str:
    return path.read_text()


@pytest.mark.slow
def test_refactoring_is_signed_and_promoted(line: Line) -> None:
    for number in range(3):  # both arms' times are compared: what runs beside them may blur that
        tidy = line.text(SELECTION).replace("    ordered", f"    # {number}\n    ordered", 1)
        diff = written(line, "tidy.diff", line.diff(SELECTION, tidy))
        (queued,) = ask_json(line, "propose", diff, *WHY)
        sign = ("sign", "refactor", queued["proposal"], *key_of(line))
        assert "continue with" in ask(line, *sign)
        ran = call_here(["line", "run", "--json", "--repo", line.repo], home=line.home.path)
        (done,) = json.loads(ran.stdout)
        if "does not exclude 25% more" not in ran.stderr:
            break
    assert (done["outcome"], done["verdict"], done["review"]) == (
        "promoted",
        "no worse",
        "refactor",
    )
    assert "as a refactoring: a loss of 0.1" in ask(line, "show", "latest")


@pytest.mark.slow
def test_operator_signs_what_was_carried_away(line: Line, tmp_path: Path) -> None:
    diff = written(line, "component.diff", line.diff(COMPONENT, thrifty_component))
    (queued,) = ask_json(line, "propose", diff, *WHY)
    (run,) = ask_json(line, "run")
    assert "an operator must approve it" in run["waits_for"]
    assert "row[0] > 0" in ask(line, "show", "--list", "waiting")
    stick = tmp_path / "stick"
    ask(line, "show", "--list", "waiting", "--out", stick)
    carried = stick / queued["proposal"] / "change.diff"
    text = carried.read_text()
    carried.write_text(text.replace("row[0] > 0", "row[0] > 1"))
    assert "is not the diff that proposal.json names" in sign(line, stick, code=2)
    carried.write_text(text)
    for name, old, new in (
        ("applied.diff", "row[0] > 0", "row[0] >= 0"),  # another change is shown
        ("proposal.json", '"rationale": "', '"rationale": "Reviewed. '),  # or other words
        ("proposal.json", f'"text_shown": "{shown(stick)}"', '"text_shown": "00"'),
    ):
        carried = stick / queued["proposal"] / name
        text = carried.read_text()
        assert old in text
        carried.write_text(text.replace(old, new))
        assert "does not show what the digest text_shown" in sign(line, stick, code=2)
        carried.write_text(text)
    forged(stick)
    assert "carry it back" in sign(line, stick)
    assert "is for a different text_shown" in ask(line, "sign", "import", stick, code=1)
    ask(line, "show", "--list", "waiting", "--out", stick)
    assert "carry it back" in sign(line, stick)
    assert "approve" in ask(line, "sign", "import", stick)
    (done,) = ask_json(line, "run")
    assert (done["outcome"], done["review"]) == ("promoted", "approve")


def shown(stick: Path) -> str:
    (file,) = stick.glob("*/proposal.json")
    return str(json.loads(file.read_text())["subjects"]["text_shown"])


def forged(stick: Path) -> None:
    """Show another change, and the digest that belongs to it."""
    (file,) = stick.glob("*/proposal.json")
    other = file.with_name("applied.diff")
    other.write_text(other.read_text().replace("row[0] > 0", "row[0] >= 0"))
    told = json.loads(file.read_text())
    told["subjects"]["text_shown"] = digest_of_shown(told, changes=other.read_text()[:-1])
    file.write_text(json.dumps(told))


def sign(line: Line, stick: Path, *, code: int = 0) -> str:
    """Approve in a folder, as on a machine that has neither ledger nor repository."""
    nowhere = line.repo.parent / "nowhere"
    done = call_here(("line", "sign", "approve", *key_of(line), "--pending", stick), home=nowhere)
    assert done.returncode == code, done.stderr
    assert not nowhere.exists()
    return done.stdout + done.stderr


def test_review_that_was_signed_by_nobody_is_rejected(line: Line, tmp_path: Path) -> None:
    diff = written(line, "component.diff", line.diff(COMPONENT, thrifty_component))
    ask(line, "propose", diff, *WHY)
    stick = tmp_path / "stick"
    ask(line, "show", "--list", "waiting", "--out", stick)
    call_here(["keys", "new", "operator", tmp_path / "other.pem"], home=line.home.path)
    theirs = ("line", "sign", "approve", "--key", tmp_path / "other.pem", "--pending", stick)
    assert call_here(theirs, home=line.home.path).returncode == 0
    assert "not signed by an operator whose key is in force" in ask(
        line, "sign", "import", stick, code=1
    )
    assert ask_json(line, "show")["queue"][0]["review"] is None


@pytest.mark.slow
def test_operator_signs_several_proposals_at_once(line: Line, tmp_path: Path) -> None:
    named = [f"# {word}.\n" for word in ("One", "Two")]
    for number, words in enumerate(named):
        diff = written(line, f"{number}.diff", line.diff(COMPONENT, lambda t, w=words: t + w))  # type: ignore[misc]
        ask(line, "propose", diff, *WHY)
    stick, nowhere = tmp_path / "stick", tmp_path / "nowhere"
    ask(line, "show", "--list", "waiting", "--out", stick)
    batch = ("line", "sign", "approve", *key_of(line), "--pending", stick)
    shown = next(stick.glob("*/applied.diff"))
    text = shown.read_text()
    shown.write_text(text + "+more\n")
    assert "does not show what the digest" in call_here(batch, home=nowhere).stderr
    shown.write_text(text)
    assert "signed approve for 2 proposals" in call_here(batch, home=nowhere).stdout
    assert "approve" in ask(line, "sign", "import", stick)
    queue = ask_json(line, "show")["queue"]
    assert [(each["review"], each["waits_for"]) for each in queue] == [("approve", None)] * 2
    again = ask(line, "sign", "approve", *(each["proposal"][:8] for each in queue), *key_of(line))
    assert again.count("approved; continue with") == 2
    assert "that you have read" in ask(line, "sign", "approve", *key_of(line), code=2)


@pytest.mark.slow
def test_operator_ends_a_proposal_or_asks_for_another(line: Line) -> None:
    diff = written(line, "better.diff", line.diff(SELECTION, THRIFTY))
    for word, outcome in (("reject", "rejected"), ("revise", "withdrawn")):
        (read,) = ask_json(line, "propose", diff, *WHY)
        for none in ((), ("latest",)):  # another one may have come since
            assert "the proposals that you have read" in ask(
                line, "sign", word, *none, *key_of(line), code=2
            )
        assert outcome in ask(
            line, "sign", word, read["proposal"][:8], *key_of(line), "--note", "Not so."
        )
    assert "Not so." in ask(line, "show", "latest")


def test_halted_line_goes_on_with_an_operators_answer(line: Line) -> None:
    diff = written(line, "tiers.diff", line.diff("judge/tiers.toml", lambda text: text + "\n"))
    (found,) = ask_json(line, "propose", diff, *WHY, code=1)
    assert found["outcome"] == "halted"
    assert "HALTED by" in ask(line, "show")
    ask(line, "sign", "resume", *key_of(line), "--note", "Looked at.")
    assert ask_json(line, "show")["halted"] is None
    assert "the line is not halted" in ask(line, "sign", "resume", *key_of(line), code=2)


def test_run_says_that_the_line_is_halted(line: Line) -> None:
    assert ask(line, "run") == "nothing to do: no proposal is queued\n"
    diff = written(line, "tiers.diff", line.diff("judge/tiers.toml", lambda text: text + "\n"))
    (found,) = ask_json(line, "propose", diff, *WHY, code=1)
    told = ask(line, "run", code=1)
    for part in (found["proposal"], found["reason"], "`proctor line sign resume --key KEY --repo"):
        assert part in told
    assert ask_json(line, "run", code=1) == []
    better = written(line, "better.diff", line.diff(SELECTION, THRIFTY))
    ask(line, "propose", better, *WHY)
    assert f"halted by proposal {found['proposal']}" in ask(line, "run", code=1)


@pytest.mark.parametrize("state", ["promoting", "halted", "astray"])
def test_diff_that_does_not_apply_is_rejected(line: Line, state: str) -> None:
    checkpoint = line.head()
    if state == "halted":
        tier0 = written(line, "tiers.diff", line.diff("judge/tiers.toml", lambda text: text + "\n"))
        ask(line, "propose", tier0, *WHY, code=1)
    elif state == "astray":
        ask(line, "show")  # which puts the line on record where it is
        line.commit(SELECTION, UNSORTED)
    stale = line.diff(SELECTION, THRIFTY).replace(b"\n-    ", b"\n-    not so: ")
    proposals = ask_json(line, "show")["queue"]
    told = ask(line, "propose", written(line, "stale.diff", stale), *WHY, code=2)
    assert f"'main' at {checkpoint[:12]}: " in told
    assert ("make it a checkpoint with `proctor line sign adopt " in told) == (state == "astray")
    assert ask_json(line, "show")["queue"] == proposals == []
    code = 0 if state == "halted" else 2
    assert ("tiers.toml" in ask(line, "show", "latest", code=code)) == (state == "halted")


@pytest.mark.slow  # test_gauntlet_controller.py asks the line itself
def test_what_people_commit_is_an_alarm_until_it_is_taken_over(line: Line) -> None:
    assert ask_json(line, "run", "--measure")["alarms"] == []
    commit = line.commit(SELECTION, UNSORTED)
    found = ask_json(line, "run", "--measure", code=1)
    assert [alarm["kind"] for alarm in found["alarms"]] == ["not promoted", "worse", "worse"]
    assert (found["commit"], found["shares"]["hidden"]) == (commit, [1.0, 0.0])
    listed = ask_json(line, "show", "--list", "anchors")
    assert [(each["task"], each["in_set"]) for each in listed] == [
        ("late-rows", True),
        ("late-rows-hidden", False),
    ]
    ask(line, "sign", "adopt", *key_of(line))
    assert ask_json(line, "show")["at_checkpoint"] is True
    into = line.repo / "judge/reference_tasks"
    ask(line, "task", "admit", "late-rows-hidden", "--out", into, *key_of(line))
    assert [each["admitted"] for each in ask_json(line, "show", "--list", "anchors")] == [
        False,
        True,
    ]
    git(line.repo, "add", "--all")
    git(line.repo, "commit", "--quiet", "--message", "An anchor")
    git(line.repo, "update-ref", "refs/heads/main", "work")
    ask(line, "sign", "adopt", *key_of(line))
    assert "late-rows-hidden" in git(line.repo, "show", "main:judge/reference_tasks/manifest.json")
    assert [each["in_set"] for each in ask_json(line, "show", "--list", "anchors")] == [True, True]


def test_valley_is_opened_for_listed_diffs(line: Line) -> None:
    steps = [written(line, "1.diff", line.diff(SELECTION, UNSORTED))]
    steps.append(written(line, "2.diff", b"--- a/x\n+++ b/x\n"))
    ask(line, "sign", "valley", *steps, *key_of(line))
    assert "0 of 2 steps" in ask(line, "show")


def test_next_commands_quote_the_folder(line: Line) -> None:
    folder = line.repo.parent / "my sample"
    assert f"`git -C '{folder}' diff > change.diff`" in ask(line, "init", folder)


def test_sample_is_not_written_over_anything(line: Line) -> None:
    assert "already exists" in ask(line, "init", line.repo, code=2)
