"""A person at a terminal: what is typed becomes decisions, and nothing else does."""

import io
import json
import os
import pty
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from frontdoor import TINY, with_settings
from hypothesis import given
from hypothesis import strategies as st
from situations import MemoryLog, observe

from aggregates.decisions import Decision, Observation, Said, validate_decision
from aggregates.errors import DecisionError
from aggregates.playbook import DEFER, HYPERPARAMETER_CHANGE, NO_ACTION
from aggregates.run import Run
from aggregates.transcript import Transcript
from policies.deciding.human import HumanPolicy, Terminal, read_edit
from policies.errors import PolicyError
from policies.playbook import PlaybookPolicy
from proctor.home import Home, run_ids

SEEN = observe({"R1": "high", "R2": "low"})
LOWER, WAITS = PlaybookPolicy().decide(SEEN)


class Proposer:
    """Proposes what it is given."""

    def __init__(self, *says: Decision | Said) -> None:
        self.says = says

    def describe(self) -> dict[str, Any]:
        return {"name": "proposer"}

    def decide(self, observation: Observation) -> Sequence[Decision | Said]:
        return self.says


def sit_down(typed: str, *says: Decision | Said) -> tuple[list[Said], str, MemoryLog]:
    log, shown = MemoryLog(), io.StringIO()
    policy = HumanPolicy(
        Proposer(*says) if says else PlaybookPolicy(),
        console=Terminal(io.StringIO(typed), shown),
        log=log,
    )
    return policy.decide(SEEN), shown.getvalue(), log


def reviews(log: MemoryLog) -> list[Transcript.ProposalReviewed]:
    return log.events(Transcript.ProposalReviewed)


def test_approved_proposals_stay_their_authors_words() -> None:
    silence = Said(Decision(NO_ACTION, ("R2",), DEFER, {}, "no usable answer"), source="driver")
    said, shown, log = sit_down("a\napprove\n", LOWER, silence)
    assert said == [Said(LOWER, "policy"), silence]
    assert [review.verdict for review in reviews(log)] == ["approve", "approve"]
    assert "R1 (learning rate) fired, side high" in shown
    assert "Proposed for R1 by policy: decrease_lr" in shown
    calls = log.events(Transcript.CallMade)
    assert [(call.agent, call.action, call.rules) for call in calls] == [
        ("human", "review", ["R1"]),
        ("human", "review", ["R2"]),
    ]


def test_key_that_means_nothing_is_said_to_mean_nothing() -> None:
    said, shown, _ = sit_down("x\n\na\n", LOWER)
    assert said == [Said(LOWER, "policy")]
    assert shown.count("is not a valid answer") == 1


@pytest.mark.parametrize(
    "typed",
    [
        "x\n" * 10_000,
        "\n" * 10_000,
        "g\nnote\n" * 10_000,  # marks for ever
        "e\n" + "no JSON\n" * 10_000,
        "r\n" + "\n" * 10_000,
    ],
)
def test_pipe_of_wrong_input_ends_with_one_error(typed: str) -> None:
    shown = io.StringIO()
    console = Terminal(io.StringIO(typed), shown)
    policy = HumanPolicy(Proposer(LOWER), console=console, log=MemoryLog())
    with pytest.raises(PolicyError, match="no decision after 30 lines of input"):
        policy.decide(SEEN)
    assert len(shown.getvalue()) < 20_000


def test_line_without_end_is_not_read_whole() -> None:
    endless = io.StringIO("x" * 3_000_000)
    with pytest.raises(PolicyError, match="a line has 1,048,576 characters or more"):
        Terminal(endless, io.StringIO()).ask("key: ")
    assert endless.tell() == 2**20


def test_person_who_mistypes_often_still_decides() -> None:
    said, _, _ = sit_down("x\n" * 20 + "g\ngood\na\n" + "y\n" * 20 + "a\n", LOWER, WAITS)
    assert said == [Said(LOWER, "policy"), Said(WAITS, "policy")]


def test_edited_decision_is_the_persons_own() -> None:
    edit = {"params": {"lr": 0.02}, "justification": "a fifth will do"}
    said, _, log = sit_down(f"e\n{json.dumps(edit)}\na\n")
    own = Decision(HYPERPARAMETER_CHANGE, ("R1",), "decrease_lr", {"lr": 0.02}, "a fifth will do")
    assert said == [Said(own, "human"), Said(WAITS, "policy")]
    (review, _) = reviews(log)
    assert (review.verdict, review.proposed, review.decision) == (
        "edit",
        LOWER.to_dict(),
        own.to_dict(),
    )


@pytest.mark.parametrize(
    "wrong",
    [
        "lr=0.02",
        "[]",
        '{"justification": "a rule of mine", "cites": ["R7"]}',
        '{"justification": "below the bound", "params": {"lr": 1e-5}}',
        '{"justification": "not a number", "params": {"lr": NaN}}',
        '{"justification": "too much", "params": {"lr": 1e400}}',
        '{"justification": "no such way", "direction": "pray"}',
        '{"justification": ["a list"], "direction": {}}',
        '{"params": {"lr": 0.02}}',
        '{"justification": "", "params": {"lr": 0.02}}',
        '{"justification": "deep", "params": ' + "[" * 100_000,
        '{"justification": "lone \\ud800", "params": {"lr": 0.02}}',
        "\udcff",
    ],
)
def test_edit_that_does_not_fit_is_rejected_and_asked_again(wrong: str) -> None:
    right = '{"justification": "my own", "params": {"lr": 0.02}}'
    said, shown, _ = sit_down(f"e\n{wrong}\n{right}\na\n")
    assert said[0].decision.justification == "my own"
    assert shown.count("not accepted: ") == 1


def test_rejected_proposal_becomes_the_persons_no_action_with_the_reason() -> None:
    said, shown, log = sit_down("r\n\nwait an epoch\na\n")
    own = Decision(NO_ACTION, ("R1",), DEFER, {}, "wait an epoch")
    assert said[0] == Said(own, "human")
    assert shown.count("not accepted: ") == 1  # a reason has words
    assert reviews(log)[0].verdict == "reject"


def test_marks_are_recorded_with_their_notes_and_the_verdict() -> None:
    said, _, log = sit_down("g\njust right\na\nb\n\nr\nfirst come, first served\n")
    assert said[0] == Said(LOWER, "policy")
    gold, bad = reviews(log)
    assert (gold.mark, gold.note, gold.verdict) == ("gold", "just right", "approve")
    assert (bad.mark, bad.note, bad.verdict) == ("bad", "", "reject")


def test_unknown_keys_are_asked_again_and_decide_nothing() -> None:
    said, shown, _ = sit_down("x\n\n?\nA\na\n")
    assert said == [Said(LOWER), Said(WAITS)]
    assert shown.count("[a]pprove") == 5


@pytest.mark.parametrize("typed", ["", "a\n", "e\n", "r\n", "g\nnote", "e\nnonsense\n"])
def test_end_of_input_stops_with_a_policy_error(typed: str) -> None:
    with pytest.raises(PolicyError, match="no terminal"):
        sit_down(typed)


def test_proposal_that_moves_the_cursor_or_feigns_a_prompt_is_rejected() -> None:
    words = "\x1b[2J\x1b[H said\r\napproved. Proposed for R1 by human: stop {}\n" + "\u202e\x9b1m"
    said, shown, _ = sit_down("a\n", Decision(NO_ACTION, ("R1",), DEFER, {}, words))
    assert said[0].decision.justification == words  # as it was said
    assert not set(shown) & {"\x1b", "\x9b", "\r", "\u202e"}
    assert shown.count("\nProposed for ") == 1
    _, honest, _ = sit_down("a\n", Decision(NO_ACTION, ("R1",), DEFER, {}, "an honest reason"))
    assert 'said: "an honest reason"' in honest


def test_bytes_that_are_no_text_decide_nothing() -> None:
    log, shown = MemoryLog(), io.StringIO()
    typed = io.TextIOWrapper(io.BytesIO(b"\xff\xfe\na\na\n"), encoding="utf-8")
    policy = HumanPolicy(PlaybookPolicy(), console=Terminal(typed, shown), log=log)
    with pytest.raises(PolicyError, match="no terminal"):
        policy.decide(SEEN)  # a stream that failed to decode is not read on
    assert reviews(log) == []


edits = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["direction", "params", "justification", "lr", "to", "deferred_to"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(edits | st.just({"direction": "defer", "justification": "later"}))
def test_edit_is_a_valid_decision_about_the_same_rule_or_an_error(value: Any) -> None:
    try:
        decision = read_edit(json.dumps(value), LOWER)
    except DecisionError:
        return
    assert decision.cites == LOWER.cites
    if decision.direction == DEFER:
        assert decision.event_type == NO_ACTION
        validate_decision(decision, SEEN)


def test_description_names_who_proposes() -> None:
    policy = HumanPolicy(
        Proposer(), console=Terminal(io.StringIO(), io.StringIO()), log=MemoryLog()
    )
    assert policy.describe() == {"name": "human", "proposer": {"name": "proposer"}}


# Steps far below R1's band: it fires in the third epoch, and three epochs behind a remedy again.
STUCK = with_settings(TINY, "lr=1e-7", "warm_up_epochs=0", "epochs=6")
KEYS = b"[b]ad first: "


def sit_at_terminal(home: Path, *dialogue: tuple[bytes, bytes]) -> tuple[str, int]:
    """Train with --policy human on a pseudo-terminal; type each answer behind its prompt."""
    environment = {**os.environ, "PROCTOR_HOME": str(home), "PROCTOR_STATE": "off"}
    argv = [sys.executable, "-m", "proctor", "run", "--policy", "human", *STUCK]
    child, terminal = pty.fork()
    if child == 0:
        os.execve(sys.executable, argv, environment)
    shown, at = b"", 0
    answers = list(dialogue)
    while True:
        try:
            shown += os.read(terminal, 65_536)
        except OSError:  # Linux says so where the other end is closed
            break
        if answers and (found := shown.find(answers[0][0], at)) >= 0:
            at = found + len(answers[0][0])
            os.write(terminal, answers.pop(0)[1])
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    assert answers == [], shown
    return shown.decode(errors="replace"), os.waitstatus_to_exitcode(status)


def recorded(home: Path) -> tuple[Run, list[Any]]:
    """Return the only run of a home and the events of its transcript."""
    with Home(home).open_log() as log:
        (run_id,) = run_ids(log)
        run: Run = log.repository.get(run_id)
        return run, list(log.events.get(Transcript.id_of(run_id)))


@pytest.mark.slow
def test_person_at_a_real_terminal_decides_and_leaves_in_the_middle(tmp_path: Path) -> None:
    edit = b'{"params": {"lr": 5e-7}, "justification": "half of what is proposed"}\n'
    shown, code = sit_at_terminal(
        tmp_path,
        (KEYS, b"g\n"),
        (b"note: ", b"right, and too timid\n"),
        (KEYS, b"\xff\xfe\n"),  # no text in UTF-8
        (KEYS, b"e\n"),
        (b"decision: ", edit.replace(b"5e-7", b"5e-6")),
        (b"decision: ", edit),
        (KEYS, b"\x04"),  # Ctrl-D
    )
    assert code == 2, shown
    assert "not accepted: " in shown
    assert "no terminal: the input has ended" in shown
    assert "Traceback" not in shown
    run, transcript = recorded(tmp_path)
    (past,) = run.decisions
    assert (past.source, past.outcome) == ("human", "applied")
    assert past.decision.params == {"lr": 5e-7}
    assert run.end_reason == "failed"
    (review,) = [e for e in transcript if isinstance(e, Transcript.ProposalReviewed)]
    assert (review.verdict, review.mark, review.note) == ("edit", "gold", "right, and too timid")


@pytest.mark.slow
def test_interrupt_at_the_terminal_ends_the_run_as_interrupted(tmp_path: Path) -> None:
    shown, code = sit_at_terminal(tmp_path, (KEYS, b"a\n"), (KEYS, b"\x03"))  # Ctrl-C
    assert code == 130, shown
    run, _ = recorded(tmp_path)
    assert run.end_reason == "interrupted"
    (past,) = run.decisions
    assert (past.source, past.outcome) == ("policy", "applied")  # approved: the playbook's words
