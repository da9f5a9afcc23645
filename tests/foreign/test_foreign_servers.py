"""Policies that ask servers that nobody here wrote, over models that nobody trained.

What comes back is noise, errors and canned words. Whatever it is: the run completes, its ledger
holds, every call stands in the transcript, and the run can be done again without any server. What
was measured is left in .venv-foreign/measured.md; docs/studies/agents.md has a copy.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from foreign_servers import (
    FOREIGN,
    KEY,
    LITELLM,
    LLAMA_CPP_PYTHON,
    LLAMA_SERVER,
    TRANSFORMERS,
    Server,
    serving,
)
from frontdoor import TINY, answer, call, with_settings
from situations import MemoryLog, observe
from tiny_training import MemoryBlobs

from aggregates.decisions import validate_decision
from aggregates.transcript import Transcript
from policies.asking.ask import Asker
from policies.asking.chat import ChatClient
from policies.asking.settings import ModelSettings
from policies.deciding.language_model import LanguageModelPolicy
from policies.errors import AnswerError
from policies.extraction import extract
from proctor.home import Home

pytestmark = pytest.mark.foreign

# Steps that are far too large, under the thresholds that fire soonest: much to be asked about.
TRAINING = with_settings(TINY, "epochs=6", "lr=3.0", "warm_up_epochs=0", "profile=document")
# One seed: the same noise at every call of this suite, as far as a server honours it.
ASKING = ("seed=2", "temperature=1.0", "max_tokens=256", "repairs=2", "retries=1", "history=2")


@dataclass(frozen=True)
class Case:
    """A server, the model that is asked there, and the rungs that may come of it."""

    server: Server
    rungs: tuple[str, ...]  # those that the server honours, and the last, which needs no honouring
    model: str | None = None
    asking: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.server.name + (f" ({self.model})" if self.model else "")


CASES = (
    Case(LLAMA_SERVER, ("json_schema", "prompt")),
    Case(LLAMA_CPP_PYTHON, ("tool", "prompt")),
    Case(TRANSFORMERS, ("prompt",)),
    Case(LITELLM, ("prompt",), "canned"),
    Case(LITELLM, ("prompt",), "overloaded", ("retries=4",)),
    Case(LITELLM, ("prompt",), "rate-limited", ("rung=prompt",)),
    Case(LITELLM, ("prompt",), "timed-out", ("rung=prompt",)),
)


RUNS = (
    "| server (model) | rung | calls | JSON | usable | outcomes | tried again "
    "| bytes asked (median) | seconds (median) | decisions |"
)
ANSWERS = "| server | rung | answers | JSON | usable | outcomes | seconds (median) |"


@pytest.fixture(scope="module")
def measured() -> Iterator[dict[str, list[str]]]:
    """Rows by table, written down when the last test is done."""
    tables: dict[str, list[str]] = {}
    yield tables
    pages = [
        "\n".join([head, "|---" * (head.count("|") - 1) + "|", *rows])
        for head, rows in tables.items()
    ]
    (FOREIGN / "measured.md").write_text("\n\n".join(pages) + "\n", encoding="utf-8")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_run_completes_and_can_be_done_again_whatever_a_server_answers(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured: dict[str, list[str]]
) -> None:
    home = tmp_path / "home"
    with serving(case.server, tmp_path / "server.log") as url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        done = call([*run_of(case), "--json"], home=home)
        (run,) = answer(done)["runs"]
    monkeypatch.delenv("OPENAI_API_KEY")  # from here on nobody can be asked

    assert run["state"] == "completed"
    verified = call(["verify"], home=home)
    assert verified.returncode == 0, verified.stdout
    told = answer(call(["show", "--transcript", "--json"], home=home))
    decided = question(home, "SELECT source, number FROM decisions")
    assert told["policy"]["rung"] in case.rungs
    asked = [one for one in told["calls"] if one["action"] != "probe"]
    usable = [one for one in asked if one["outcome"] == "usable"]
    gone = asked[-1]["outcome"] in ("rejected", "rate_limited", "unreachable")  # to the end
    assert done.returncode == gone, done.stderr
    sources = Counter(one["source"] for one in decided)
    assert len(asked) >= 4
    assert (sources["policy"] > 0) == (len(usable) > 0)
    due = question(home, "SELECT rule FROM rule_evaluations WHERE fired")
    assert len(decided) == len(due)  # under these thresholds nothing is waived or on hold
    assert found_in(home, '"messages"')  # what was sent is there, and the key is not
    assert not found_in(home, KEY)
    assert KEY not in done.stdout + done.stderr

    again = call(["replay", "--execute"], home=home)
    assert again.returncode == 0, again.stdout + again.stderr
    store = Home(home).blobs
    in_form = sum(is_json(one["rung"], one["response"], store.get) for one in asked)
    measured.setdefault(RUNS, []).append(
        row(
            case.name,
            f"`{told['policy']['rung']}`" + (" (given)" if "rung=prompt" in case.asking else ""),
            len(asked),
            in_form,
            len(usable),
            tally(one["outcome"] for one in asked),
            sum(len(one["retries"]) for one in asked),
            f"{median(one['request_bytes'] for one in asked):.0f}",
            f"{median(one['seconds'] for one in asked):.2f}",
            tally(one["source"] for one in decided),
        )
    )


@pytest.mark.parametrize(
    ("server", "rung", "answers"),
    [
        (LLAMA_SERVER, "json_schema", 100),
        (LLAMA_SERVER, "json_object", 50),
        (LLAMA_CPP_PYTHON, "json_object", 50),
        (LLAMA_CPP_PYTHON, "tool", 100),
        (TRANSFORMERS, "prompt", 20),  # the slowest
    ],
    ids=lambda part: part.name if isinstance(part, Server) else None,
)
def test_nothing_but_valid_decisions_is_said_in_the_name_of_noise(
    server: Server, rung: str, answers: int, tmp_path: Path, measured: dict[str, list[str]]
) -> None:
    observation = observe({"R1": "high"})
    log, blobs, said = MemoryLog(), MemoryBlobs(), Counter[str]()
    with serving(server, tmp_path / "server.log") as url:
        for seed in range(answers):
            settings = ModelSettings(
                model=server.model,
                base_url=url,
                seed=seed,
                temperature=1.0,
                max_tokens=256,
                repairs=0,
                retries=0,
                history=2,
            )
            asker = Asker(settings, client=ChatClient(settings, KEY), log=log, blobs=blobs)
            policy = LanguageModelPolicy(asker, rung=rung)
            (one,) = policy.decide(observation)
            validate_decision(one.decision, observation)
            said[one.source] += 1
    calls = log.events(Transcript.CallMade)
    assert len(calls) == answers
    assert said["policy"] == sum(one.outcome == "usable" for one in calls)
    measured.setdefault(ANSWERS, []).append(
        row(
            server.name,
            f"`{rung}`",
            len(calls),
            sum(is_json(rung, one.response, blobs.get) for one in calls),
            said["policy"],
            tally(one.outcome for one in calls),
            f"{median(one.seconds for one in calls):.2f}",
        )
    )


def test_run_is_not_opened_where_no_probe_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    with serving(LITELLM, tmp_path / "server.log") as url:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        for model in ("rate-limited", "timed-out", "nobody-knows-it"):
            done = call(run_of(Case(LITELLM, (), model)), home=home)
            assert done.returncode == 2
            assert "did not answer any request" in done.stderr
            assert "Traceback" not in done.stderr
            assert KEY not in done.stdout + done.stderr
    assert not question(home, "SELECT run_id FROM runs")
    assert not found_in(home, KEY)


def run_of(case: Case) -> list[str]:
    asking = (f"model={case.model or case.server.model}", *with_settings(ASKING, *case.asking))
    return ["run", *TRAINING, "--policy", "openai", *(f"--set={setting}" for setting in asking)]


def question(home: Path, sql: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = answer(call(["sql", sql, "--json"], home=home))
    return found


def found_in(home: Path, text: str) -> list[Path]:
    files = (path for path in home.rglob("*") if path.is_file())
    return [path for path in files if text.encode() in path.read_bytes()]


def is_json(rung: str, digest: str | None, stored: Callable[[str], bytes]) -> bool:
    """Return whether an answer's message is JSON in the place where the rung has it."""
    if digest is None:
        return False
    try:
        extract(rung, json.loads(stored(digest))["choices"][0]["message"])
    except (AnswerError, KeyError, ValueError):
        return False
    return True


def tally(kinds: Iterable[str]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in Counter(kinds).most_common())


def row(*cells: object) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"
