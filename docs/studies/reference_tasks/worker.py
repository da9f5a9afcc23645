"""Answers reference tasks from the tree that it lies in: one JSON line in, one out.

The first line says what kind of task it is and where its input lies; every further line is a
question. What is asked goes to the code that is measured, and what that says is handed on as it
is: nothing is judged here, and nothing is known here of what is expected.

Trust: the code that is measured runs in this process.
I/O: reads its input's folder; standard input and output.
"""

import base64
import json
import sqlite3
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from aggregates.decisions import Decision, Observation
from aggregates.signals import EpochSignals
from judge.reference.observations import decision_from, from_plain

Answerer = Callable[[Mapping[str, Any]], Any]
"""What is done with one question."""


def answerer(opening: Mapping[str, Any]) -> Answerer:
    """Return what answers the questions of a task."""
    return _KINDS[opening["kind"]](Path(opening["input"]))


def _decisions(place: Path) -> Answerer:
    """Decide on each observation of the input by itself."""
    return lambda _: [_decide(from_plain(seen)) for seen in _read(place, "observations.json")]


def _going_back(place: Path) -> Answerer:
    """Let the policy that undoes damage decide on each observation of the input by itself."""

    def answer(_: Mapping[str, Any]) -> Any:
        from policies.deciding.rescue import RescuePolicy  # noqa: PLC0415

        seen = map(from_plain, _read(place, "observations.json"))
        return [[one.to_dict() for one in RescuePolicy().decide(each)] for each in seen]

    return answer


def _numbers(place: Path) -> Answerer:
    """Say what the playbook records of itself with the input's numbers, and what it does."""

    def answer(_: Mapping[str, Any]) -> Any:
        from policies.numbers import PlaybookNumbers  # noqa: PLC0415
        from policies.playbook import PlaybookPolicy  # noqa: PLC0415

        policy = PlaybookPolicy(PlaybookNumbers(**_read(place, "numbers.json")))
        seen = map(from_plain, _read(place, "observations.json"))
        answers = [[[one.direction, one.params] for one in policy.decide(each)] for each in seen]
        return {"said": policy.describe(), "answers": answers}

    return answer


def _rescue(_: Path) -> Answerer:
    """Decide on the observation that the question holds."""
    return lambda question: _decide(from_plain(question["observation"]))


def _network(_: Path) -> Answerer:
    """Let the network policy decide on the observation that the question holds."""

    def answer(question: Mapping[str, Any]) -> Any:
        from policies.deciding.network import NetworkPolicy  # noqa: PLC0415

        decided = NetworkPolicy().decide(from_plain(question["observation"]))
        return [decision.to_dict() for decision in decided]

    return answer


def _default(_: Path) -> Answerer:
    """Let the policy that decides by default decide on the observation that the question holds."""

    def answer(question: Mapping[str, Any]) -> Any:
        from policies.deciding.rescue import RescuePolicy  # noqa: PLC0415

        decided = RescuePolicy().decide(from_plain(question["observation"]))
        return [decision.to_dict() for decision in decided]

    return answer


def _decide(seen: Observation) -> list[dict[str, Any]]:
    from policies.playbook import PlaybookPolicy  # noqa: PLC0415 - each kind imports its own

    return [decision.to_dict() for decision in PlaybookPolicy().decide(seen)]


def _hindsight(place: Path) -> Answerer:
    """Say for each epoch of each run what fired until then, and what remedies did."""

    def answer(_: Mapping[str, Any]) -> Any:
        from policies.hindsight import fired_by_epoch, last_effects  # noqa: PLC0415

        told = []
        same: dict[str, EpochSignals] = {}  # as in a run: an epoch that is shown again is itself
        for plain in _read(place, "observations.json"):
            seen = from_plain(plain)
            history = tuple(same.setdefault(repr(signals), signals) for signals in seen.history)
            seen = replace(seen, history=history)
            effects = last_effects(seen)
            fired = [list(rules) for rules in fired_by_epoch(seen)]
            told.append(
                {
                    "known": fired[:-1],
                    "fired": fired,
                    "again": fired,
                    "effects": {rule: [e.epoch, e.worked] for rule, e in effects.items()},
                }
            )
        return told

    return answer


def _evidence(place: Path) -> Answerer:
    """Choose what is shown of each case's epochs, or of its decisions."""

    def answer(_: Mapping[str, Any]) -> Any:
        from policies import evidence  # noqa: PLC0415

        ways = {"epochs": evidence.epochs_to_show, "decisions": evidence.decisions_to_show}
        return [
            list(
                ways[case["what"]](
                    from_plain(case["observation"]),
                    {int(number): size for number, size in case["sizes"].items()},
                    rows=case["rows"],
                    most=case["most"],
                )
            )
            for case in _read(place, "cases.json")
        ]

    return answer


def _prompt(place: Path) -> Answerer:
    """Write what a model is asked about each observation."""

    def answer(_: Mapping[str, Any]) -> Any:
        from policies.asking.prompt import situation  # noqa: PLC0415

        return [
            situation(from_plain(case["observation"]), case["history"])
            for case in _read(place, "cases.json")
        ]

    return answer


def _answers(place: Path) -> Answerer:
    """Read what models have said: extract it, and make decisions of it where there is a run."""

    def answer(_: Mapping[str, Any]) -> Any:
        return [_read_message(case) for case in _read(place, "cases.json")]

    return answer


def _read_message(case: Mapping[str, Any]) -> dict[str, Any]:
    from policies.answers import read_answer  # noqa: PLC0415
    from policies.errors import AnswerError  # noqa: PLC0415
    from policies.extraction import extract  # noqa: PLC0415

    message = dict(case["message"])
    if "made" in case:
        message["content"] = _MADE[case["made"][0]](case["made"][1])
    try:
        value = extract(case["rung"], message)
        if "observation" not in case:
            return {"value": value if "made" not in case else type(value).__name__}
        decisions, problems = read_answer(value, from_plain(case["observation"]))
    except AnswerError as error:
        return {"refused": str(error)}
    return {"decisions": [decision.to_dict() for decision in decisions], "open": problems}


_MADE: Mapping[str, Callable[[int], str]] = {  # texts that are too large to lie in a file
    "deep": lambda count: "[" * count + "1" + "]" * count,
    "deep_objects": lambda count: '{"a":' * count + "1" + "}" * count,
    "many": lambda count: "[" + ",".join("1" * count) + "]",
    "padded": lambda count: "{}" + " " * (count - 2),
    "braces": lambda count: "{ " * count + '{"a": 1}',
    "digits": lambda count: '{"a": ' + "7" * count + "}",
    "surrogate": lambda count: '{"a": ["' + "\\ud800" * count + '"]}',
    "key": lambda count: '{"' + "\\udc00" * count + '": 1}',
}


def _schema(place: Path) -> Answerer:
    """Give the form that is asked for about each observation."""

    def answer(_: Mapping[str, Any]) -> Any:
        from policies.answers import decision_schema  # noqa: PLC0415

        seen = map(from_plain, _read(place, "observations.json"))
        return [decision_schema(each) for each in seen]

    return answer


def _exported(place: Path) -> Answerer:
    """Give the form of answers about each observation as exports have it."""

    def answer(_: Mapping[str, Any]) -> Any:
        from policies.answers import exported_schema  # noqa: PLC0415

        seen = map(from_plain, _read(place, "observations.json"))
        return [exported_schema(each) for each in seen]

    return answer


def _offers(place: Path) -> Answerer:
    """Say what may be answered to each due rule of each observation."""

    def answer(_: Mapping[str, Any]) -> Any:
        from policies.offers import offers  # noqa: PLC0415

        seen = map(from_plain, _read(place, "observations.json"))
        return [{rule: offers(rule, each) for rule in each.due} for each in seen]

    return answer


def _votes(place: Path) -> Answerer:
    """Put a rule to the vote of voters whose ballots the input holds."""

    def answer(_: Mapping[str, Any]) -> Any:
        from policies.ensemble import VOTED, Ballot, put_to_vote  # noqa: PLC0415

        told = []
        for case in _read(place, "cases.json"):
            seen = from_plain(case["observation"])
            count = _Count()
            asked: list[Any] = []
            ballots: Iterator[Any] = iter(enumerate(case["ballots"], start=1))

            def ask(
                observation: Observation,
                /,
                *,
                agent: str,
                voter: int,
                ballots: Iterator[Any] = ballots,
                asked: list[Any] = asked,
            ) -> Any:
                call, said = next(ballots)
                asked.append([list(observation.due), agent, voter])
                return Ballot(call, _decision(said), None if said else f"problem {call}")

            votes = len(case["ballots"])
            winner = put_to_vote(case["rule"], seen, ask=ask, votes=votes, log=count)  # type: ignore[arg-type]
            told.append(
                {
                    "voted": list(VOTED),
                    "asked": asked,
                    "counted": count.said,
                    "winner": winner.call,
                    "problem": winner.problem,
                    "decision": winner.decision and winner.decision.to_dict(),
                }
            )
        return told

    return answer


class _Count:
    """Keeps the counts that an ensemble records."""

    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []

    def count_votes(self, **said: Any) -> None:
        self.said.append({name: said[name] for name in ("epoch", "rule", "votes", "chosen")})
        self.said[-1]["calls"] = list(said["calls"])


def _decision(said: Mapping[str, Any] | None) -> Decision | None:
    return None if said is None else decision_from(said)


def _plan(place: Path) -> Answerer:
    """Name the files of the snapshot that a model is shown whole when the issue is put to it."""

    def answer(_: Mapping[str, Any]) -> Any:
        from policies.proposing.proposer import change_messages  # noqa: PLC0415

        request, files = _issue(place)
        shown = "\n".join(each["content"] for each in change_messages(request))
        return [path for path, text in files.items() if text.strip() and text in shown]

    return answer


def _implement(place: Path) -> Answerer:
    """Ask a model for the change that the issue wants, and make a diff of what it says."""

    def answer(question: Mapping[str, Any]) -> Any:
        from policies.errors import AnswerError  # noqa: PLC0415
        from policies.extraction import extract  # noqa: PLC0415
        from policies.proposing import proposer  # noqa: PLC0415

        request, files = _issue(place)
        problem = None
        if question["ask"] == "read":
            try:
                value = extract(question["rung"], question["message"])
                found = proposer.read_change(value, read=files.get, technique=request.technique)
                return {"diff": proposer.make_diff(found.texts, read=files.get).decode()}
            except AnswerError as error:
                problem = str(error)
        return {
            "messages": proposer.change_messages(request, problem=problem),
            "schema": proposer.change_schema(request.technique),
        }

    return answer


def _issue(place: Path) -> tuple[Any, dict[str, str]]:
    """Return what a model is asked about an issue, and the snapshot's texts by path."""
    from policies.proposing.proposer import Request  # noqa: PLC0415
    from policies.proposing.tuner import BASELINE  # noqa: PLC0415

    files: dict[str, str] = _read(place, "files.json")
    wanted = (place / "issue.md").read_text(encoding="utf-8")
    return Request(round=1, technique=BASELINE, wanted=wanted, files=files), files


def _ledgers(place: Path) -> Answerer:
    """Say of each ledger what the two verifiers make of it: None, or what they found."""

    def answer(_: Mapping[str, Any]) -> Any:
        told = []
        form = _read(place, "form.json")
        for case in _read(place, "cases.json"):
            entries = [(i, _bytes(s), v, name, _bytes(e)) for i, s, v, name, e in case["entries"]]
            heads = [(size, note, _bytes(edge)) for size, note, edge in case["heads"]]
            rows = {"entries": entries, "tree_heads": heads, "meta": case["meta"]}
            told.append([_verify(rows, case), _verify_again(rows, case, form)])
        return told

    return answer


def _verify(rows: Mapping[str, Any], case: Mapping[str, Any]) -> str | None:
    from ledger.errors import LedgerError  # noqa: PLC0415
    from ledger.verification.verify import Verification  # noqa: PLC0415

    try:
        kept_heads = [] if case["kept"] is None else [case["kept"]]
        verification = Verification(vkey=case["vkey"], kept_heads=kept_heads)
        verification.run(rows["entries"], rows["tree_heads"])
    except LedgerError as error:
        return type(error).__name__
    return None


def _verify_again(rows: Mapping[str, Any], case: Mapping[str, Any], form: str) -> str | None:
    from ledger.handover import second_verifier  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as name:
        path, kept = Path(name) / "ledger.sqlite", Path(name) / "kept"
        with closing(sqlite3.connect(path)) as database, database:
            database.executescript(form)
            for table, found in rows.items():
                for row in found:
                    marks = ", ".join("?" * len(row))
                    database.execute(f"INSERT INTO {table} VALUES ({marks})", row)  # noqa: S608 - names are ours
        if case["kept"] is not None:
            kept.write_text(case["kept"], encoding="utf-8")
        head = None if case["kept"] is None else str(kept)
        target = Namespace(
            target=str(path), vkey=case["vkey"], head=head, witness=[], blob_bytes=2**20
        )
        try:
            second_verifier.check(target)
        except (second_verifier.Failed, second_verifier.Usage) as error:
            return type(error).__name__
    return None


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _read(place: Path, name: str) -> Any:
    return json.loads((place / name).read_bytes())


_KINDS: Mapping[str, Callable[[Path], Answerer]] = {
    "answers": _answers,
    "decisions": _decisions,
    "default": _default,
    "evidence": _evidence,
    "exported": _exported,
    "going-back": _going_back,
    "hindsight": _hindsight,
    "implement": _implement,
    "ledgers": _ledgers,
    "network": _network,
    "numbers": _numbers,
    "offers": _offers,
    "plan": _plan,
    "prompt": _prompt,
    "rescue": _rescue,
    "schema": _schema,
    "votes": _votes,
}


def main() -> None:
    """Answer until nobody asks any more."""
    answer: Answerer | None = None
    for line in sys.stdin:
        message = json.loads(line)
        if answer is None:
            answer, reply = answerer(message), {"ready": True}
        else:
            reply = answer(message)
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
