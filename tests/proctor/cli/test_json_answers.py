"""The check of --json against its schema, which every other test relies on, finds what drifts."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from frontdoor import call_here
from json_answers import check_json, faults, schema_of

GOLDEN = Path(__file__).resolve().parents[2] / "golden/calibrated_1"


@pytest.fixture(scope="module")
def story() -> Any:
    return json.loads(call_here(["show", "--json"], home=GOLDEN).stdout)


def test_schema_holds_of_the_answer_and_of_a_failure(story: Any) -> None:
    assert not faults(story, schema_of("show"))
    failed = call_here(["show", "nobody", "--json"], home=GOLDEN)
    assert failed.returncode == 2
    assert json.loads(failed.stdout)["error"] == "ProctorError"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("new",), 1),
        (("summary", "new"), None),
        (("summary", "epochs"), "3"),
        (("summary", "epochs"), True),
        (("epochs", 0, "train_loss"), "infinite"),
        (("epochs",), None),
        (("waived", "R7"), 1),
    ],
)
def test_field_that_drifts_is_named(story: Any, path: tuple[Any, ...], value: Any) -> None:
    changed = copy.deepcopy(story)
    *above, last = path
    place = changed
    for key in above:
        place = place[key]
    place[last] = value
    with pytest.raises(AssertionError, match=str(last)):
        check_json(["show", "--json"], json.dumps(changed))


def test_missing_field_is_named(story: Any) -> None:
    del story["rules"]
    with pytest.raises(AssertionError, match="rules is missing"):
        check_json(["show"], json.dumps(story))


def test_schema_of_a_command_is_printed(tmp_path: Path) -> None:
    # Without the arguments of the command.
    one = json.loads(call_here(["keys", "grant", "--json-schema"], home=tmp_path).stdout)
    assert one == {**schema_of("keys grant"), "title": "proctor keys grant --json"}
    assert one["$defs"]["Granted"]["additionalProperties"] is False


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["show", "--nope"], "No such option: --nope"),
        (["log", "--last", "few"], "Invalid value for '--last'"),
        (["show", "a", "b"], "unexpected extra argument"),
        (["sql", "--format"], "requires an argument"),
    ],
)
def test_wrong_usage_is_a_failure_in_json(words: list[str], said: str) -> None:
    done = call_here([*words[:1], "--json", *words[1:]], home=GOLDEN)
    failure = json.loads(done.stdout)
    assert (done.returncode, failure["error"], failure["exit_code"]) == (2, "UsageError", 2)
    assert said in failure["message"]
    assert done.stderr.startswith((f"Usage: proctor {words[0]}", "Error: "))
    assert failure["message"] in done.stderr
    plain = call_here(words, home=GOLDEN)
    assert (plain.returncode, plain.stdout, plain.stderr) == (2, "", done.stderr)
