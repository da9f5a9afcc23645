"""`proctor show --transcript`: what a policy asked, what was answered, and how it was used.

Trust: what is told comes from a ledger that was just verified, each field of the type that its
event declares; bodies are held against their hashes when they are read, and shown without control
characters.
"""

import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from msgspec.structs import asdict

from aggregates.registry import REGISTRY
from aggregates.transcript import TOKEN_KINDS, Transcript
from proctor.cli.command_group import Output
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.output.columns import Shows
from proctor.output.terminal import (
    as_json,
    console,
    print_rows,
    print_table,
    print_words,
    readable,
)
from proctor.remembering import open_remembered, tell_aside
from proctor.runs.replay import find_verified_run
from proctor.runs.shapes import CallTotals, TranscriptCall
from proctor.runs.shapes import Transcript as Told

_KINDS = {of.removesuffix("_details"): part for part, (of, _) in TOKEN_KINDS.items()}


def _spent(kind: str, call: Mapping[str, Any]) -> str | None:
    used, part = call["usage"] or {}, _KINDS[kind]
    more = f" ({used[part]} {part.partition('_')[0]})" if used.get(part) else ""
    return None if used.get(kind) is None else f"{used[kind]}{more}"


_COLUMNS: Mapping[str, Shows] = {
    "call": "number",
    **{name: name for name in ("epoch", "agent", "action")},
    "rules": lambda call: " ".join(call["rules"]) or None,
    "rung": "rung",
    "outcome": lambda call: f"{call['outcome']}{' (cached)' * bool(call['cached'])}",
    "status": "status",
    "retries": lambda call: len(call["retries"]) or None,
    "bytes": "request_bytes",
    "tokens in": partial(_spent, "prompt_tokens"),
    "out": partial(_spent, "completion_tokens"),
    **{name: name for name in ("seconds", "cost")},
}


def transcript(home: Home, run: str, call: int | None) -> Output:
    """Return what a run asked of language models, people and the playbook; or one call."""
    told = _tell(*_read(home, run))
    if call is None:
        return Output(told, lambda: _print(told))
    calls = told.calls
    if call > len(calls):
        raise ProctorError(f"the transcript has calls 1 to {len(calls)}; there is no {call}")
    chosen = calls[call - 1]
    texts = _texts(home, chosen)
    whole = TranscriptCall.of({f"{what}_text": text for what, text in texts.items()}, call=chosen)
    return Output(whole, lambda: _print_call(chosen, texts))


def _read(home: Home, name: str) -> tuple[UUID, list[tuple[str, Mapping[str, Any]]]]:
    with open_remembered(home) as ledger:
        run = find_verified_run(ledger, name)
        stream = Transcript.id_of(run)
        entries = list(ledger.select(streams=[stream]))
    if not entries:
        raise ProctorError(f"run {run} has no transcript: its policy asks nobody")
    said: list[tuple[str, Mapping[str, Any]]] = []
    aside: list[int] = []
    for entry in entries:
        body = REGISTRY.readable(entry.name, entry.body)
        if body is None:
            aside.append(entry.index)
        else:
            said.append((entry.name, body))
    tell_aside(aside)
    if not said or said[0][0] != "transcript.started":
        raise ProctorError(f"the transcript of run {run} cannot be read: it has no start")
    return run, said


def _tell(run: UUID, bodies: Sequence[tuple[str, Mapping[str, Any]]]) -> Told:
    def named(name: str) -> list[dict[str, Any]]:
        return [dict(body) for kind, body in bodies if kind == name]

    started = bodies[0][1]
    calls = named("transcript.call_made")
    return Told(
        run=run,
        mode=started["mode"],
        policy=started["policy"],
        summary=_summary([call for call in calls if call["model"] is not None]),
        calls=calls,
        votes=named("transcript.vote_counted"),
        reviews=named("transcript.proposal_reviewed"),
    )


def _summary(calls: Sequence[Mapping[str, Any]]) -> CallTotals:
    """Return what the calls to a model have come to; sizes are those of decisions, in bytes."""
    costs = [call["cost"] for call in calls if call["cost"] is not None]
    of_epochs = (call["request_bytes"] for call in calls if call["epoch"] is not None)
    sizes = [size for size in of_epochs if size is not None]
    usable = sum(call["outcome"] == "usable" for call in calls)
    return CallTotals(
        calls=len(calls),
        usable=usable,
        usable_share=usable / len(calls) if calls else None,
        cached=sum(call["cached"] for call in calls),
        tokens=_tokens(calls, "total_tokens") or 0,
        **{kind: _tokens(calls, kind) for pair in _KINDS.items() for kind in pair},
        seconds=sum(call["seconds"] for call in calls),
        cost=sum(costs) if costs else None,
        request_bytes=[min(sizes), statistics.median(sizes), max(sizes)] if sizes else None,
    )


def _tokens(calls: Sequence[Mapping[str, Any]], kind: str) -> int | None:
    counts = [(call["usage"] or {}).get(kind) for call in calls]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _print(told: Told) -> None:
    print_words(f"run {told.run}: {told.mode}, policy {as_json(told.policy)}")
    print_rows(_COLUMNS, told.calls)
    for line in (*map(_vote_line, told.votes), *map(_review_line, told.reviews)):
        print_words(line)
    print_table(("", ""), asdict(told.summary).items(), title="\ncalls to a model")


def _vote_line(vote: Mapping[str, Any]) -> str:
    counts = ", ".join(f"{way} {count}" for way, count in vote["votes"].items())
    return (
        f"vote in epoch {vote['epoch']} on {vote['rule']}: {counts}; chosen "
        f"{vote['chosen']}, agreement {vote['agreement']:.2f}"
    )


def _review_line(review: Mapping[str, Any]) -> str:
    return (
        f"review in epoch {review['epoch']}: {review['verdict']} of "
        f"{review['proposed'].get('direction')}; said {review['decision'].get('direction')}"
        + (f"; marked {review['mark']}" if review["mark"] else "")
        + (f": {review['note']}" if review["note"] else "")
    )


def _texts(home: Home, call: Mapping[str, Any]) -> dict[str, str | None]:
    """Return request and response as they were sent, None where there was none."""
    return {
        what: None if call[what] is None else home.blobs.get(call[what]).decode("utf-8", "replace")
        for what in ("request", "response")
    }


def _print_call(call: Mapping[str, Any], texts: Mapping[str, str | None]) -> None:
    print_table(("", ""), call.items(), title=f"call {call['number']}")
    for what, text in texts.items():
        console.print(f"\n[bold]{what}[/]")
        console.print("none" if text is None else readable(text), markup=False)
