"""Attacks on the gate, carried out: each is refused for its reason, and an honest change is not."""

import subprocess
import sys
from textwrap import dedent

import gate_attacks_page
import pytest
from gate_attacks import ATTACKS, SECTIONS, Attack, Grounds, put
from gate_attacks_code import filled, thrifty
from gauntlet_lines import COMPONENT, SELECTION, submit

from proctor.improvement.reports import applied


@pytest.fixture(scope="module")
def grounds(tmp_path_factory: pytest.TempPathFactory) -> Grounds:
    return Grounds(tmp_path_factory.mktemp("grounds"))


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(each, id=each.name, marks=[pytest.mark.slow] if each.slow else [])
        for each in ATTACKS
    ],
)
@pytest.mark.sampled(3)
def test_attack_on_the_gate_is_rejected(grounds: Grounds, attack: Attack) -> None:
    ground = grounds.of(attack.ground)
    told = attack.carry_out(grounds)
    assert attack.because in told.reason
    assert told.ends == attack.ends
    assert ground.state() == ground.before


@pytest.mark.parametrize("ground", ["plain", "unfenced", "pytest"])
@pytest.mark.sampled(2)
def test_honest_change_is_promoted_where_attacks_are_not(grounds: Grounds, ground: str) -> None:
    fresh = grounds.fresh(ground)
    found = put(fresh.line, fresh.line.diff(SELECTION, thrifty), {SELECTION: 2})
    assert found.ends == "promoted", found.reason


@pytest.mark.parametrize("attack", [each for each in ATTACKS if each.probe], ids=lambda a: a.name)
@pytest.mark.sampled(3)
def test_probe_finds_what_it_looks_for_where_nothing_confines_it(
    grounds: Grounds, attack: Attack
) -> None:
    ground = grounds.fresh("plain")  # some of them write to it
    probe = filled(ground.line, dedent(str(attack.probe)))
    opening = "opening = {'task': 'late-rows'}\n"
    asked = [sys.executable, "-c", f"{opening}{probe}\nprint(found())"]
    done = subprocess.run(asked, cwd=ground.line.repo, capture_output=True, check=True, text=True)
    assert done.stdout == "True\n"


@pytest.mark.parametrize("mark", ["\u2028", "\x0c", "\x85", "\r"])
def test_operator_is_shown_a_change_that_looks_the_same(grounds: Grounds, mark: str) -> None:
    line = grounds.plain.line
    one, two, three, *_ = line.text(COMPONENT).split("\n")
    hunk = f"@@ -1,3 +1,2 @@\n-{one}\n-{two}\n+{one}{mark}{two}\n {three}\n"
    with line.controller() as controller:
        diff = f"--- a/{COMPONENT}\n+++ b/{COMPONENT}\n{hunk}"
        shown = applied(controller, submit(controller, diff.encode(), {COMPONENT: 1}))
    assert f"\n+{one}{repr(mark)[1:-1]}{two}\n" in shown


def test_page_is_what_is_carried_out() -> None:
    assert gate_attacks_page.PAGE.read_text(encoding="utf-8") == gate_attacks_page.rendered()


def test_attacks_are_named_apart() -> None:
    names = [each.name for each in ATTACKS]
    assert len(set(names)) == len(names)
    assert {each.section for each in ATTACKS} == set(SECTIONS)
