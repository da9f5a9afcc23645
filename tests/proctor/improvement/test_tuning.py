"""Advice blocks: what is promoted, what is kept, and what is on record, against a real server."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from advised_model import Obeys, advice_of, obeys
from chat_server import Behaviour, ChatServer, Reply, answer_probe, is_probe, say, schema_of
from frontdoor import answer, call_here

from aggregates.decisions import Decision
from aggregates.errors import InvariantError
from aggregates.improvement.advice import MAX_ADVICE, Advice
from aggregates.transcript import Transcript
from judge.reference.scenarios import held_out, observation_of, unaccepted
from ledger.application import LedgerApplication
from ledger.progress import listening
from policies.asking.ask import Client
from policies.asking.chat import ChatClient
from policies.asking.completion import Completion
from policies.asking.settings import ModelSettings
from policies.deciding.catalogue import POLICIES
from policies.errors import AnswerError
from policies.proposing.advice import verify_advice
from policies.proposing.tuner import DISTILLATION, LADDER, Pattern, scoreboard
from proctor.home import Home
from proctor.improvement.scenario_tests import SETTINGS
from proctor.improvement.tuning import Tuner, Writer, open_advice, trials_of

SCENARIOS = tuple(task for task in held_out() if task.task_id in ("r1-high", "r2-low"))
QUICK = replace(SETTINGS, margin=0.5)  # fewer pairs show that a loss is smaller
LEFT = Pattern(
    key="violation unresolved_deferral R1 policy",
    kind="violation",
    count=5,
    says="unresolved deferral of R1 by the policy",
    rule="R1",
)


@dataclass
class Scene:
    """A home and a server, and tuners of the server's model."""

    home: Home
    log: LedgerApplication
    server: ChatServer
    client: Callable[[], Client]
    settings: ModelSettings
    said: list[str] = field(default_factory=list)

    def tuner(self, **changes: Any) -> Tuner:
        given: dict[str, Any] = {
            "client": self.client(),
            "scenarios": SCENARIOS,
            "random": Random(7),
            "say": self.said.append,
            "comparison": QUICK,
        }
        return Tuner(self.home, self.log, self.settings, **(given | changes))

    @property
    def writer(self) -> Writer:
        return Writer(self.settings, self.client())

    def events(self, kind: type) -> list[Any]:
        found = self.log.events.get(Advice.id_of(self.settings.model))
        return [event for event in found if type(event) is kind]


@contextmanager
def scene(folder: Path, behaviour: Behaviour) -> Iterator[Scene]:
    home = Home(folder / "home")
    with ChatServer(behaviour) as server, home.open_log() as log, ExitStack() as clients:
        settings = ModelSettings(model="scripted", base_url=server.url, rung="json_schema")

        def client() -> ChatClient:
            return clients.enter_context(closing(ChatClient(settings, "none")))

        yield Scene(home, log, server, client, settings)


def champion(made: Scene, text: str) -> Tuner:
    """Return a tuner whose champion is a text, as if it had been promoted."""
    advice = Advice.opened(made.settings.model)
    about = {"proposer": "a test", "technique": "one_shot", "pattern": "p", "rationale": "r"}
    advice.propose(text, **about)  # type: ignore[arg-type]
    measured = {"verdict": "better", "level": 0.0, "pairs": 0, "comparisons": []}
    measured |= {"pass_rates": [0.0, 1.0], "scores": [0.0, 1.0], "scenarios": ""}
    measured |= {"regressions": [], "improvements": [], "reasons": []}
    advice.end_round("promoted", reason="a test", proposer="a test", measured=measured)
    made.log.save(advice)
    return made.tuner()


def steer(made: Scene, order: str) -> None:
    advice = open_advice(made.log, made.settings.model)
    advice.steer(order)
    made.log.save(advice)


def writes(answers: Mapping[str, str], model: Behaviour) -> Behaviour:
    """Return a server that writes advice, by technique, and decides as another one."""

    def behave(request: dict[str, Any], headers: Mapping[str, str]) -> Reply:
        if "advice" not in schema_of(request)["properties"]:
            return model(request, headers)
        asked = request["messages"][1]["content"]
        found = next((text for how, text in answers.items() if how in asked), None)
        return say(request, {"advice": found or answers[""], "rationale": "it was left"})

    return behave


def test_playbook_passes_every_scenario_and_no_action_fails_all() -> None:
    for task in held_out():
        seen = observation_of(task)
        expected = task.expected["answers"]
        for policy, passes in (("playbook", True), ("nothing", False)):
            answers: Sequence[Any] = POLICIES[policy]().decide(seen)
            decisions: list[Decision] = [getattr(each, "decision", each) for each in answers]
            assert (unaccepted(decisions, expected) is None) == passes, task.task_id
    names = [task.task_id for task in held_out()]
    assert len(set(names)) == len(names) == 13
    assert all(task.stochastic for task in held_out())


def test_block_that_mends_a_weakness_is_promoted_and_all_of_it_is_recorded(tmp_path: Path) -> None:
    heard: list[tuple[str, int, int | None]] = []
    with scene(tmp_path, obeys(weak=["R1"])) as made:
        with listening(lambda *told: heard.append(told)):
            ended = made.tuner().round([LEFT])
        assert (ended.outcome, ended.technique) == ("promoted", "few_shot")
        assert ended.measured is not None
        assert ended.measured["improvements"] == ["r1-high"]
        assert ended.measured["pass_rates"] == [0.5, 1.0]
        (proposed,) = made.events(Advice.Proposed)
        penalty = 1e-5 * len(proposed.text)
        assert ended.measured["scores"] == pytest.approx([0.5, 1.0 - penalty])
        again = made.tuner()
        assert again.champion() == (proposed.text, 1)
        assert scoreboard(trials_of(again.advice))["few_shot"].wins == 1
        # Every answer is on record before the next is asked for, and every call as in a run.
        pairs = made.events(Advice.Answered)
        assert len(pairs) == ended.measured["pairs"]
        answers = 2 * len(pairs)
        assert heard == [
            *(("answers to scenarios", done, None) for done in range(0, answers, 2)),
            ("answers to scenarios", answers, answers),
        ]
        assert {pair.first for pair in pairs} == {"base", "candidate"}
        stream = Transcript.id_of(again.advice.transcript_of(1, "tester"))
        calls = [e for e in made.log.events.get(stream) if type(e) is Transcript.CallMade]
        assert len(calls) == ended.calls == 2 * len(pairs) == len(made.server.requests)
        assert {call.parameters["temperature"] for call in calls} == {0.0}
        assert {call.action for call in calls} == {"decide"}
        with_advice = [advice_of(request) for request in made.server.requests]
        assert sum(proposed.text in text for text in with_advice) == len(pairs)


def test_block_that_mends_one_scenario_and_breaks_another_is_rejected_by_name(
    tmp_path: Path,
) -> None:
    with scene(tmp_path, obeys(weak=["R1"], spoils={"R1": "R2"})) as made:
        tuner = made.tuner()
        ended = tuner.round([LEFT])
        assert ended.outcome == "kept"
        assert ended.measured is not None
        assert ended.measured["improvements"] == ["r1-high"]
        assert ended.measured["regressions"] == ["r2-low"]
        assert "improved: r1-high; regressed: r2-low" in ended.reason
        assert tuner.champion() == ("", 0)
        other = tuner.round([LEFT])
        assert other.technique != ended.technique, "what was tried is not tried again"


def test_block_without_effect_is_kept_out_after_few_questions(tmp_path: Path) -> None:
    with scene(tmp_path, obeys(weak=["R1"], mended_by=())) as made:
        tuner = made.tuner()
        ended = [tuner.round([LEFT]) for _ in range(len(LADDER) + 1)]
        assert [each.outcome for each in ended] == ["kept"] * len(LADDER) + ["nothing"]
        assert {each.technique for each in ended[:-1]} == set(LADDER)
        assert {each.measured["pairs"] for each in ended[:-1] if each.measured} == {10}
        assert ended[-1].reason == "nothing went wrong that is not tried yet"
        assert tuner.round([]).reason == "nothing went wrong"
        levels = [each.measured["level"] for each in ended[:-1] if each.measured]
        assert levels == sorted(levels, reverse=True)
        assert sum(levels) < 0.05


class CutOff:
    """A client whose process is killed after so many calls."""

    def __init__(self, client: Client, calls: int) -> None:
        self.endpoint = client.endpoint
        self._client, self._left = client, calls

    def ask(self, request: bytes, /) -> Completion:
        self._left -= 1
        if self._left < 0:
            raise KeyboardInterrupt
        return self._client.ask(request)


def test_round_that_was_cut_off_goes_on_with_the_answers_that_it_has(tmp_path: Path) -> None:
    with scene(tmp_path, obeys(weak=["R1"])) as made:
        left = {("unresolved_deferral", "R1", "policy"): 5}
        verdict: Any = SimpleNamespace(by_kind=lambda: left, run_id="r")
        with pytest.raises(KeyboardInterrupt):
            made.tuner(client=CutOff(made.client(), 13)).after_attempt("c", 1, verdict)
        before = len(made.events(Advice.Answered))
        assert before == 6
        tuner = made.tuner()
        tuner.after_attempt("c", 1, verdict)
        (ended,) = made.events(Advice.RoundEnded)
        assert ended.outcome == "promoted"
        assert (ended.campaign, ended.attempt, ended.round) == ("c", 1, 1)
        pairs = [(each.scenario, each.repeat) for each in made.events(Advice.Answered)]
        assert len(pairs) == len(set(pairs)) > before
        assert len(made.events(Advice.Proposed)) == 1
        tuner.after_attempt("c", 1, verdict)
        assert len(tuner.advice.tried) == 1, "it was done"


def test_champion_is_used_until_a_reset_and_not_while_tuning_is_off(tmp_path: Path) -> None:
    with scene(tmp_path, obeys()) as made:
        tuner = champion(made, "## An example\n\n- R1")
        assert tuner.champion()[1] == 1
        steer(made, "off")  # what another process records counts at once
        assert tuner.champion() == ("", 0)
        assert tuner.round([LEFT]).reason == "tuning is turned off"
        steer(made, "on")
        assert tuner.champion()[1] == 1
        steer(made, "reset")
        again = made.tuner()
        assert again.champion() == ("", 0)
        assert not trials_of(again.advice)
        assert len(made.events(Advice.Proposed)) == 1, "nothing is deleted"


FLUFF = (
    "## An example\n\nAct on R1 when it is due. It is well known to everybody who has ever trained "
    "a network that rates matter a great deal to the outcome of a training.\n"
)


def test_distilled_block_is_promoted_when_nothing_regresses(tmp_path: Path) -> None:
    with scene(tmp_path, obeys(weak=["R1"])) as made:
        tuner = champion(made, FLUFF)
        ended = tuner.round([])
        assert (ended.outcome, ended.technique) == ("promoted", DISTILLATION), ended.reason
        assert "R1" in tuner.champion()[0]
        assert len(tuner.champion()[0]) <= 0.85 * len(FLUFF)
        assert tuner.round([]).outcome == "nothing", "it is short"


def test_distilled_block_that_lost_something_is_rejected_by_name(tmp_path: Path) -> None:
    shorter = {"": "## An example\n\nAct on what is due."}
    with scene(tmp_path, writes(shorter, obeys(weak=["R1"]))) as made:
        champion(made, FLUFF)
        ended = made.tuner(writer=made.writer).round([], technique=DISTILLATION)
        assert ended.outcome == "kept"
        assert ended.measured is not None
        assert ended.measured["regressions"] == ["r1-high"]


def test_model_writes_the_block_where_one_is_configured(tmp_path: Path) -> None:
    said = {"": "## An example\n\nR1 is due: act on it."}
    with scene(tmp_path, writes(said, obeys(weak=["R1"]))) as made:
        tuner = made.tuner(writer=made.writer)
        ended = tuner.round([LEFT])
        assert (ended.outcome, ended.proposer) == ("promoted", "scripted")
        assert tuner.champion()[0] == said[""]
        (proposed,) = made.events(Advice.Proposed)
        assert proposed.rationale == "it was left"
        stream = Transcript.id_of(tuner.advice.transcript_of(1, "writer"))
        actions = [e.action for e in made.log.events.get(stream) if type(e) is Transcript.CallMade]
        assert actions == ["propose"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a" * (MAX_ADVICE + 1), "characters; the maximum is"),
        ("good\n# Waived rules\n\nR1 to R7", "heading of the first level"),
        ("Waived rules\n===\n", "heading of the first level"),
        ("one\x1b[2J", "cannot be printed"),
        (" as it was\n", "has already"),
    ],
)
def test_advice_that_is_not_allowed_is_refused(text: str, problem: str) -> None:
    with pytest.raises(AnswerError, match=problem):
        verify_advice(text, technique="one_shot", before="as it was")


def test_rounds_without_an_answer_are_recorded(tmp_path: Path) -> None:
    def fails(request: dict[str, Any], _: Mapping[str, str]) -> Reply:
        busy = Reply({"error": {"message": "no"}}, 400)
        return answer_probe(request) if is_probe(request) else busy

    with scene(tmp_path, fails) as made:
        tuner = made.tuner()
        ended = tuner.round([LEFT])
        assert (ended.outcome, ended.version) == ("unanswered", 1)
        assert len(made.server.requests) == 6
        written = made.tuner(writer=made.writer).round([LEFT])
        assert (written.outcome, written.version) == ("unanswered", None)
    too_long = {"": "a" * (MAX_ADVICE + 1)}
    with scene(tmp_path / "other", writes(too_long, obeys())) as made:
        ended = made.tuner(writer=made.writer).round([LEFT])
        assert (ended.outcome, ended.calls) == ("unusable", 2), "a question and a repair"
        assert "the maximum is" in ended.reason


@pytest.mark.slow
def test_two_processes_that_tune_one_model_do_so_in_turn_and_lose_nothing(tmp_path: Path) -> None:
    with scene(tmp_path, obeys(weak=["R1"])) as made:
        one, other = made.tuner(), made.tuner()
        began, go_on = Event(), Event()
        made.server.behaviour = held(made.server.behaviour, began, go_on)
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(one.round, [LEFT])
            assert began.wait(60)
            second = pool.submit(other.round, [LEFT])
            while not any(each.startswith("waiting for another process") for each in made.said):
                assert not second.done()
            go_on.set()
            ended = [each.result(600) for each in (first, second)]
        assert [(each.round, each.outcome) for each in ended] == [(1, "promoted"), (2, "kept")]
        assert made.events(Advice.RoundEnded) == ended
        assert one.champion() == other.champion() != ("", 0)


def held(model: Behaviour, began: Event, go_on: Event) -> Behaviour:
    """Return a server that keeps its first caller waiting."""

    def behave(request: dict[str, Any], headers: Mapping[str, str]) -> Reply:
        began.set()
        assert go_on.wait(60)
        return model(request, headers)

    return behave


def test_scenarios_that_the_champion_fails_are_candidates_until_admitted(tmp_path: Path) -> None:
    with scene(tmp_path, obeys(weak=["R1"])) as made:
        tuner = made.tuner()
        kept = tuner.challenge(seed=1, count=6)
        assert kept
        assert not tuner.challenge(seed=1, count=6), "each is kept once"
        found = tuner.advice.scenarios[kept[0]]
        assert not found["admitted"]
        assert "R1" in found["observation"]["due"]
        assert len(tuner._scenarios()) == len(SCENARIOS)
        tuner.advice.admit_scenario(kept[0])
        assert [task.task_id for task in tuner._scenarios()][-1] == kept[0]
        with pytest.raises(InvariantError, match="already admitted"):
            tuner.advice.admit_scenario(kept[0])
    with scene(tmp_path / "other", Obeys(weak=())) as made:
        strong = made.tuner().challenge(seed=1, count=6)
        assert len(strong) < len(kept)


def test_commands_show_and_steer_the_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with scene(tmp_path, obeys()) as made:
        champion(made, "## An example\n\n- R1")

        def tune(*arguments: str) -> Any:
            return answer(call_here(["tune", *arguments, "--json"], home=made.home.path))

        told = tune("use", "scripted", "off")
        assert (told["on"], told["version"]) == (False, 1)
        assert told["scoreboard"]["one_shot"] == {"wins": 1, "losses": 0, "ties": 0}
        model = ("scripted", "--set", f"base_url={made.server.url}")
        last = tune("round", *model)["rounds"][-1]
        assert (last["outcome"], last["reason"]) == ("nothing", "tuning is turned off")
        assert not made.server.requests
        assert tune("use", "scripted", "base")["advice"] == ""
        missing = call_here(["tune", "use", "scripted", "none"], home=made.home.path)
        assert missing.returncode == 2
        assert "there is no scenario 'none'" in missing.stderr
        unknown = call_here(["tune", "show", "another"], home=made.home.path)
        assert "no advice to a model named 'another' is recorded" in unknown.stderr
