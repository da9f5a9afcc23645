"""A built-in policy is asked again: who decides in its name says what it says."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from frontdoor import TINY, call, call_here, with_settings
from judge_cases import CONFIG, Case, train_case
from torch import nn
from torch.nn.functional import cross_entropy

import proctor
from aggregates.decisions import Decision, Observation
from aggregates.playbook import DEFER
from aggregates.provocations import apply_to_config
from judge.auditing.asked_again import NOT_THE_POLICY
from judge.auditing.report import AuditReport
from monitor.answering import Policy
from monitor.config import RunConfig
from monitor.environment import describe_environment
from policies.deciding.chance import RandomPolicy
from policies.deciding.named import named_policy
from policies.deciding.network import NetworkPolicy
from policies.deciding.nothing import NothingPolicy
from policies.numbers import load_numbers
from policies.playbook import PlaybookPolicy

FAST = replace(CONFIG, epochs=6)


class Patched:
    """A policy that is patched in the process that trains, under the name of another."""

    def __init__(
        self,
        change: Callable[[Observation, list[Decision]], Sequence[Decision]],
        *,
        own: Policy | None = None,
        described: Mapping[str, Any] | None = None,
    ) -> None:
        self._change, self._own = change, own or PlaybookPolicy()
        self._described = described or self._own.describe()
        self.name = str(self._described["name"])

    def describe(self) -> dict[str, Any]:
        return dict(self._described)

    def decide(self, observation: Observation) -> Sequence[Decision]:
        return self._change(observation, list(self._own.decide(observation)))  # type: ignore[arg-type]


def changed(decision: Decision, **changes: Any) -> Decision:
    return Decision.of(
        decision.cites,
        changes.get("direction", decision.direction),
        {**decision.params, **changes.get("params", {})},
        changes.get("words", decision.justification),
    )


def faster(seen: Observation, said: list[Decision]) -> list[Decision]:
    """A fifth less far than the playbook, which its bounds allow."""
    return [
        changed(each, params={"lr": each.params["lr"] * 0.8}) if "lr" in each.params else each
        for each in said
    ]


def lazy(seen: Observation, said: list[Decision]) -> list[Decision]:
    return [Decision.of((rule,), DEFER, {}, f"{rule} can wait.") for rule in seen.due]


def worded(seen: Observation, said: list[Decision]) -> list[Decision]:
    return [changed(each, words="Because I say so.") for each in said]


def once(seen: Observation, said: list[Decision]) -> list[Decision]:
    return worded(seen, said) if not seen.decisions else said


def mute(seen: Observation, said: list[Decision]) -> list[Decision]:
    return [] if seen.decisions else said


def honest(seen: Observation, said: list[Decision]) -> list[Decision]:
    return said


def bit(seen: Observation, said: list[Decision]) -> list[Decision]:
    return [
        changed(each, params={"lr": math.nextafter(each.params["lr"], 1.0)})
        if "lr" in each.params
        else each
        for each in said
    ]


def clipped(seen: Observation, said: list[Decision]) -> list[Decision]:
    """A setting that the playbook never offered with a rate."""
    return [changed(each, params={"clip_norm": 0.9}) for each in said if "lr" in each.params]


def given(described: Mapping[str, Any], epochs: int) -> Mapping[str, Any]:
    """Describe decisions that were given in each epoch, as those of a fork's own epoch can be."""
    for epoch in range(epochs):
        described = {"name": "given", "epoch": epoch, "then": described}
    return described


PLAYBOOK, CHANCE = PlaybookPolicy().describe(), RandomPolicy().describe()
CHEATS: dict[str, Policy] = {
    "given in every epoch of what is no fork": Patched(lazy, described=given(PLAYBOOK, 6)),
    "another rate": Patched(faster),
    "deferrals in the playbook's name": Patched(lazy),
    "other words": Patched(worded),
    "one decision": Patched(once),
    "silence after the first decision": Patched(mute),
    "random in the playbook's name": Patched(honest, own=RandomPolicy(), described=PLAYBOOK),
    "playbook in the name of random": Patched(honest, described=CHANCE),
    "random with another seed": Patched(honest, own=RandomPolicy(3), described=CHANCE),
    "playbook in the name of nothing": Patched(honest, described=NothingPolicy().describe()),
    "playbook in the network's name": Patched(honest, described=NetworkPolicy().describe()),
    "playbook's name without its numbers": Patched(lazy, described={"name": "playbook"}),
    "playbook's name with odd numbers": Patched(
        lazy, described={**PLAYBOOK, "most_lr_factor": 1e9}
    ),
}
MORE_CHEATS: dict[str, Policy] = {  # of kinds that are above
    "a rate that is one bit higher": Patched(bit),
    "a setting that was never offered": Patched(clipped),
    "no decisions": Patched(lambda seen, said: []),
    "playbook's name with another key": Patched(lazy, described={**PLAYBOOK, "note": "mine"}),
    "playbook's name with numbers that are none": Patched(
        lazy, described={**PLAYBOOK, **dict.fromkeys(PLAYBOOK.keys() - {"name"}, math.nan)}
    ),
    "random with a seed that is true": Patched(lazy, described={**CHANCE, "seed": True}),
}


def audited(case: Case, **options: Any) -> AuditReport:
    return case.audit(named=named_policy, **options)


def kinds(report: AuditReport) -> set[str]:
    return {violation.kind for violation in report.violations}


def unchecked(report: AuditReport) -> list[str]:
    return list(report.step("defensibility").evidence.get("unchecked", []))


@pytest.mark.sampled(7)
@pytest.mark.parametrize("cheat", [*CHEATS, *MORE_CHEATS])
def test_decisions_in_the_name_of_a_built_in_policy_are_rejected(
    tmp_path: Path, cheat: str
) -> None:
    report = audited(train_case(tmp_path, {**CHEATS, **MORE_CHEATS}[cheat], FAST))
    assert not report.hard_fail
    assert NOT_THE_POLICY in kinds(report)
    assert report.scores.process_score < 1.0
    assert report.step("defensibility").status == "violations"
    assert "makes other decisions" in report.step("defensibility").summary


HONEST: dict[str, tuple[Policy, RunConfig]] = {
    "playbook": (PlaybookPolicy(), FAST),
    "playbook, too fast": (PlaybookPolicy(), replace(FAST, lr=3.0)),
    "nothing": (NothingPolicy(), FAST),
    "random": (RandomPolicy(), FAST),
    "random with a seed": (RandomPolicy(7), replace(FAST, lr=3.0)),
    "network": (NetworkPolicy(), FAST),
    "restart": (
        PlaybookPolicy(),
        RunConfig.from_dict(
            apply_to_config({**FAST.to_dict(), "edits": "restart"}, "dead_activations", 1)
        ),
    ),
    "provoked": (
        PlaybookPolicy(),
        RunConfig.from_dict(apply_to_config(replace(FAST, lr=0.1).to_dict(), "lr_too_high", 0)),
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", HONEST)
def test_built_in_policy_that_decided_itself_is_held(tmp_path: Path, name: str) -> None:
    policy, config = HONEST[name]
    report = audited(train_case(tmp_path, policy, config))
    assert NOT_THE_POLICY not in kinds(report)
    assert unchecked(report) == []
    assert report.step("defensibility").evidence["asked_again"]["same"] is True


def test_policy_of_ones_own_is_not_asked(tmp_path: Path) -> None:
    report = audited(train_case(tmp_path, Patched(lazy, described={"name": "my-agent"}), FAST))
    assert NOT_THE_POLICY not in kinds(report)
    assert unchecked(report) == []


@pytest.mark.parametrize(
    "described",
    [
        {"name": "mixed", "playbook": PLAYBOOK},
        {"name": "human", "proposer": PLAYBOOK},
        {"name": "human", "proposer": {"name": "mixed", "playbook": PLAYBOOK}},
    ],
    ids=["mixed", "human", "both"],
)
def test_built_in_policy_that_decides_in_part_is_told_as_not_checked(
    described: Mapping[str, Any],
) -> None:
    name = described["name"]
    assert named_policy(described).policy is None
    assert named_policy(described).doubts == (
        f"what playbook decides as a part of the policy {name}: it was not asked again",
    )
    for own in ({**described, "name": "mine"}, {"name": "human"}, {"name": "mixed", "playbook": 1}):
        assert named_policy(own).doubts == ()


@pytest.mark.slow
def test_playbook_with_other_numbers_is_asked_with_them_and_told(tmp_path: Path) -> None:
    numbers = load_numbers().playbook
    other = PlaybookPolicy(type(numbers)(**{**_plain(numbers), "lag_patience": 1}))
    report = audited(train_case(tmp_path, other, FAST))
    assert NOT_THE_POLICY not in kinds(report)
    assert unchecked(report) == ["the numbers of the policy playbook are not this version's"]


def _plain(numbers: Any) -> dict[str, Any]:
    return {field: getattr(numbers, field) for field in numbers.__struct_fields__}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("key", ["code_sha256", "libc", "machine", "python"])
def test_claim_of_another_version_is_told_as_not_checked(
    tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed = {**describe_environment(FAST), key: "0" * 64}
    monkeypatch.setattr("monitor.loop.describe_environment", lambda _: claimed)
    report = audited(train_case(tmp_path, CHEATS["another rate"], FAST))
    assert NOT_THE_POLICY not in kinds(report)
    (told,) = unchecked(report)
    assert "the policy playbook of this version makes other decisions" in told
    assert f"another {key}" in told
    assert "not those of this version's policy" in report.step("defensibility").summary


@pytest.mark.slow
def test_network_of_ones_own_is_told_as_not_checked(tmp_path: Path) -> None:
    described = {"name": "network", "weights": "0" * 64}
    report = audited(train_case(tmp_path, Patched(lazy, described=described), FAST))
    (told,) = unchecked(report)
    assert "the weights of the policy network are not this version's" in told


def watched(home: Path, policy: Policy | str, *, broken_off: bool = False) -> Case:
    """Watch a loop that learns next to nothing."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    x = torch.randn(64, 6)
    y = x.argmax(dim=1) % 3
    with (
        suppress(KeyboardInterrupt),
        proctor.watch(model, optimizer, name="own", batch_size=64, policy=policy, home=home) as run,
    ):
        for epoch in run.epochs(10):
            loss = cross_entropy(model(x), y)
            loss.backward()  # type: ignore[no-untyped-call]  # has no types
            run.step(loss)
            if broken_off and epoch == 9:
                raise KeyboardInterrupt
            run.validate(loss=float(loss.detach()))
    return Case(run.id, home / "ledger", home)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("broken_off", [False, True])
def test_watched_run_of_the_playbook_is_held(tmp_path: Path, broken_off: bool) -> None:
    report = audited(watched(tmp_path, "playbook", broken_off=broken_off))
    assert not report.hard_fail
    assert report.scores.decisions
    assert NOT_THE_POLICY not in kinds(report)
    assert report.step("defensibility").evidence["asked_again"]["same"] is True


def test_watched_run_in_the_playbooks_name_is_rejected(tmp_path: Path) -> None:
    report = audited(watched(tmp_path, CHEATS["other words"]))
    assert NOT_THE_POLICY in kinds(report)


# Through the front door: the process that trains is patched, and the judge's is not.

PATCH = """
from aggregates.decisions import Decision
from policies.playbook import PlaybookPolicy

own = PlaybookPolicy.decide

def decide(self, seen):
    return [
        Decision.of(d.cites, d.direction, {**d.params, "lr": d.params["lr"] * 2.5}, d.justification)
        if "lr" in d.params
        else d
        for d in own(self, seen)
    ]

PlaybookPolicy.decide = decide
from proctor.cli.main import main
main()
"""
EXPLODES = with_settings(TINY, "lr=3.0", "warm_up_epochs=0", "epochs=4")


def judged(home: Path, run: str = "latest") -> Any:
    return json.loads(call_here(["judge", run, "--no-execute", "--json"], home=home).stdout)


@pytest.mark.slow  # the same through the front door, where it trains twice
def test_process_that_decides_two_and_a_half_times_its_rate_is_rejected(tmp_path: Path) -> None:
    done = call(["run", *EXPLODES], home=tmp_path / "patched", code=PATCH)
    assert done.returncode == 0, done.stderr
    report = judged(tmp_path / "patched")
    assert NOT_THE_POLICY in {violation["kind"] for violation in report["violations"]}
    control = call(["run", *EXPLODES], home=tmp_path / "honest")
    assert control.returncode == 0, control.stderr
    assert judged(tmp_path / "honest")["violations"] == []


@pytest.mark.slow
def test_forks_with_the_parents_or_with_given_decisions_are_held(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert call_here(["run", *EXPLODES], home=home).returncode == 0
    first = json.loads(call_here(["show", "--json"], home=home).stdout)["decisions"][0]
    at = str(first["epoch"])
    (rule,) = first["cites"]
    given = tmp_path / "given.json"
    given.write_text(json.dumps(Decision.of((rule,), DEFER, {}, f"{rule} can wait.").to_dict()))
    forked = call_here(
        ["fork", "--at", at, "--policy", "recorded", "--policy", "playbook"],
        home=home,
    )
    assert forked.returncode == 0, forked.stderr
    forked = call_here(["fork", "--at", at, "--decide", given], home=home)
    assert forked.returncode == 0, forked.stderr
    runs = json.loads(call_here(["sql", "--json", "SELECT run_id FROM forks"], home=home).stdout)
    assert len(runs) == 3
    for each in runs:
        report = judged(home, each["run_id"])
        assert NOT_THE_POLICY not in {violation["kind"] for violation in report["violations"]}
