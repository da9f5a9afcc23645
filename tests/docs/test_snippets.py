"""The console blocks of README, tutorial and guides are run, and print what they say they print."""

import doctest
import json
import os
import re
import sys
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest
from advised_model import obeys
from chat_server import ChatServer, Reply, act_on_first, completion, decide
from console_pages import EXAMPLES, PAGES, SLOW, console_lines, copy_example, run_line
from environments import make_environment
from frontdoor import call
from postgres_server import missing, running_server

from judge.reference.situations import observe
from policies.deciding.outside import process_policy

ROOT = Path(__file__).parents[2]


PARAMETERS = [
    # The slow suite runs pages that train for long and show little that others do not.
    pytest.param(page, marks=pytest.mark.slow) if page in SLOW else page
    for page in PAGES
]


def test_program_of_the_guide_decides() -> None:
    program = ROOT / "docs/examples/policy/agent.py"
    said = process_policy([sys.executable, str(program)]).decide(observe(Random(1), {"R1": "high"}))
    assert [(each.source, each.decision.direction) for each in said] == [("policy", "decrease_lr")]


@pytest.mark.slow
def test_policy_of_the_guide_trains_and_is_judged(tmp_path: Path) -> None:
    code = (ROOT / "docs/examples/policy/from_python.py").read_text(encoding="utf-8")
    done = call([], home=None, cwd=tmp_path, code=code)
    assert done.stdout.startswith("completed False "), done.stderr


def make_slugs_environment(folder: Path) -> None:
    """Make the virtual environment of the repository that a page takes from the examples."""
    make_environment(folder / "slugs/.venv")


SERVED = {  # the model of the page
    "docs/how-to/ask-a-model.md": decide(act_on_first),
    "docs/how-to/run-a-campaign.md": obeys(weak=["R1"]),
}
PREPARED = {"docs/how-to/change-the-system.md": make_slugs_environment}
PERSON = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Ada"), ("EMAIL", "ada@example.org"))
}


@pytest.mark.parametrize("page", PARAMETERS)
def test_console_blocks_print_what_they_show(page: str, tmp_path: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PROCTOR_")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    environment["XDG_STATE_HOME"] = str(tmp_path / "state")  # heads are remembered there
    environment |= PERSON | {"CHECKOUT": str(ROOT)}
    with ExitStack() as servers:
        if page in SERVED:
            url = servers.enter_context(ChatServer(SERVED[page])).url
            environment |= {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none"}
        if page == "docs/how-to/use-postgresql.md":
            if reason := missing():
                pytest.skip(reason)
            server = servers.enter_context(running_server())
            environment |= {"PERSISTENCE_MODULE": "ledger.postgres", **server.env()}
        check_blocks(page, text, environment, tmp_path)


def with_params(answer: str, **params: object) -> str:
    """Return an answer with other parameters in place of its own."""
    said = json.loads(answer)
    said["decisions"][0]["params"] = params
    return json.dumps(said)


def test_answer_of_the_guide_is_carried_out_and_a_wrong_one_is_told_with_the_form(
    tmp_path: Path,
) -> None:
    page = "docs/how-to/ask-a-model.md"
    text = (ROOT / page).read_text(encoding="utf-8")
    (answer,) = re.findall(r"```json\n(.+?)\n```", text)
    copy_example(page, tmp_path)
    command = ["run", "--config", "run.toml", "numerics=portable", "epochs=2", "--policy", "openai"]
    command += ["--set", "model=fixed", "--set", "rung=json_object"]
    wrong = with_params(answer, rate=0.5)
    for content, lost in ((answer, False), (wrong, True)):
        with ChatServer(lambda *_, said=content: Reply(completion(said))) as server:
            where = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "none"}
            done = call(command, home=tmp_path / "home", cwd=tmp_path, variables=where)
        shown = call(["show"], home=tmp_path / "home", cwd=tmp_path)
        for out in (done.stdout, shown.stdout):
            told = " ".join(out.split())
            assert ("not carried out: 2 of 2 answers (2 unusable), because: " in told) == lost, out
            assert ("decrease_lr needs ['lr']" in told) == lost
            assert ('"direction": "decrease_lr", "params": {"lr": "number"}' in told) == lost
        assert ("decrease_lr applied" in " ".join(done.stderr.split())) != lost


def check_blocks(page: str, text: str, environment: dict[str, str], tmp_path: Path) -> None:
    if page in PREPARED:
        PREPARED[page](tmp_path)
    if page in EXAMPLES:
        copy_example(page, tmp_path)
    for place, (command, expected) in enumerate(console_lines(text)):
        installed = page == "README.md" and place == 0  # once, as a user starts it
        out, err = run_line(command, cwd=tmp_path, environment=environment, forked=not installed)
        assert "Traceback" not in err, err
        # Columns are as wide as their contents, so white space is not compared; nor are decimals,
        # since another kind of machine trains to other ones, unless the page trains portably.
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        decimals = r"\d+\.\d+" if "numerics=portable" not in text else r"$^"
        shows, prints = (re.sub(decimals, "#.#", each) for each in (expected, out))
        if expected.strip():
            assert doctest.OutputChecker().check_output(shows, prints, flags), (
                f"$ {command}\nshows:\n{expected}\nprints:\n{out}{err}"
            )
