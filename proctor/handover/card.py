"""The model card, and the page that says how to verify a handed-over model.

Both are written from the proved events. Texts of policies and people stand in tables and cannot
begin other Markdown.
I/O: none.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aggregates.run import MEASURED, REPEATABLE, REPORTED
from ledger.mapper import ns_to_datetime
from proctor.handover.evidence import NO_OUTCOME, Evidence, says
from proctor.output.terminal import dotted

_LEVELS = {
    REPEATABLE: "Anybody with the same data can train this run again and compare every value.",
    MEASURED: "Proctor measured this run inside a training loop that it does not control: "
    "the measurements can be checked against each other, but the run cannot be trained again.",
    REPORTED: "A training loop reported these values. Proctor recorded them and measured none.",
}
_VERDICTS = {
    "FAILED": "The judge found that a gate does not hold. Do not rely on the scores.",
    "PASSED": "All steps of the audit passed.",
    "WARNED": "All gates hold, with these reservations:",
}
_MARKS = re.compile(r"([\\`*_{}\[\]<>#|!&~])")


def model_card(evidence: Evidence) -> str:
    """Return the model card, in Markdown with the header that model hubs read."""
    start = says(evidence.started)
    data, spec = (
        {**found} if isinstance(found := start.get(name), dict) else {} for name in ("data", "spec")
    )
    reservations = evidence.warnings if evidence.verdict == "WARNED" else []
    if not data.get("classes"):  # a task and a watched loop name none, but may say how many
        data["classes"] = spec.get("classes")
    if evidence.level != REPEATABLE and data.get("sizes") == {"train": 0}:
        data["sizes"] = {"train": "not given to watch()"}
    return "\n".join(
        [
            "---",
            "library_name: pytorch",
            "tags:",
            "- proctor",
            "---",
            f"# Model of run {evidence.run}",
            "",
            f"Verdict: **{evidence.verdict}**. Evidence level: **{_text(evidence.level)}**.",
            "",
            _LEVELS.get(evidence.level, "This version of Proctor does not know this level."),
            "",
            f"{_VERDICTS[evidence.verdict]}",
            *(f"- {_text(each)}" for each in reservations),
            "",
            *_section("Training", _training(evidence, start)),
            *_section("Model at the start", [*dotted(spec)]),
            *_section("Data", [*dotted(data)]),
            *_section("Scores", _scores(evidence)),
            "## Decisions",
            "",
            *_decisions(evidence),
            "",
            "## Audit",
            "",
            *_table(
                ("step", "status", "found"),
                [(s.get("name"), s.get("status"), s.get("summary")) for s in evidence.steps],
            ),
            "",
            *_section("Configuration", [*dotted(start.get("config"))]),
            *_section("Environment", [*dotted(start.get("environment"))]),
            "This card was generated from a signed ledger. The folder around this one has the "
            "claims and says how to verify them.",
            "",
        ]
    )


_README = """\
# A model with its claims

Model of run {run}. Verdict: **{verdict}**. Evidence level: **{level}**.

| file | content |
| --- | --- |
| `model/` | the signed files: {names} |
| `model.sig` | their signature, in the OpenSSF Model Signing format |
| `claims.jsonl` | three Sigstore bundles: that signature, how the model was trained (SLSA \
provenance), the verdict (in-toto test result) |
| `events.tlog-proof` | the events that the claims rest on, proved to be in the ledger |
| `publisher.pem` | the key that signed the files; the ledger grants it |
| `ledger.pem`, `ledger.vkey` | the key that signed the other claims; the first key of the ledger, \
which is its name |

## Verify it, offline

Get the ledger's vkey from its owner, and the judge's from the judge, by another channel than this
folder. Then:

```sh
proctor verify . --vkey ../owner.vkey --judge ../judge.vkey
model_signing verify key model --signature model.sig --public_key publisher.pem
```

The first command checks every file, that the ledger grants the publisher's key, that the claims
say what the proved events say, and who signed the verdict. Leave out `--judge` if
you know no judge. The second checks the files in `model/` with a tool that is not Proctor's.

The claims stand under this tree head: origin `{origin}`, {size} entries, root `{root}`.

## What is not claimed

{not_claimed}

{as_of}
"""
NOT_CLAIMED = (
    "any level of SLSA: the builder is whoever holds the ledger's key",
    "that the model is good or safe for any use: the scores are on the data that the model card "
    "names",
)


def readme(evidence: Evidence, files: Iterable[str]) -> str:
    """Return the page beside the signed folder."""
    head = evidence.head
    return _README.format(
        run=evidence.run,
        verdict=evidence.verdict,
        level=_text(evidence.level),
        names=", ".join(f"`{name}`" for name in sorted(files)),
        origin=head.origin,
        size=head.size,
        root=head.root.hex(),
        not_claimed="\n".join(f"- {each}" for each in NOT_CLAIMED),
        as_of=evidence.selection.as_of,
    )


def _section(title: str, rows: Sequence[tuple[object, object]]) -> list[str]:
    return [f"## {title}", "", *_table(("", ""), rows), ""] if rows else []


def _training(evidence: Evidence, start: Mapping[str, Any]) -> list[tuple[object, object]]:
    policy = start.get("policy")
    begun, ended = (each.time_ns for each in (evidence.started, evidence.ended))
    rows: list[tuple[object, object]] = [
        ("run", evidence.run),
        ("started", f"{ns_to_datetime(begun):%Y-%m-%d %H:%M:%S} UTC"),
        ("ended", f"{ns_to_datetime(ended):%Y-%m-%d %H:%M:%S} UTC"),
        ("ended as", says(evidence.ended).get("reason")),
        *([] if (parent := evidence.parent) is None else [("goes on from", parent)]),
        ("decided by", policy.get("name") if isinstance(policy, dict) else None),
        ("rules", (start.get("rules") or {}).get("profile")),
        *(
            (
                "weights",
                f"{saved.get('kind')}, epoch {saved.get('epoch')}, "
                f"{saved.get('size')} bytes, SHA-256 {saved.get('sha256')}",
            )
            for saved in evidence.weights
        ),
        *(
            (name, start[name])
            for name in ("parent_run", "campaign", "checkpoint")
            if start.get(name)
        ),
    ]
    return rows


def _scores(evidence: Evidence) -> list[tuple[object, object]]:
    scored = says(evidence.scored)
    done, epochs = evidence.retrained
    exercised = "" if scored.get("process_axis_exercised") else f" ({evidence.unexercised})"
    return [
        *(
            (
                f"reported by the training loop, not measured: {where}",
                {name: f"{value:.4g}" for name, value in values.items()},
            )
            for where, values in evidence.reported.items()
        ),
        *_metric(evidence),
        ("test accuracy", _number(scored.get("test_accuracy"))),
        ("validation accuracy", _number(scored.get("validation_accuracy"))),
        ("accuracy score", _number(scored.get("accuracy_score"))),
        ("process score", _number(scored.get("process_score")) + exercised),
        ("epochs that the judge trained again", f"{done} of {epochs}"),
        ("audit signed by a judge's key", "yes" if evidence.counting.signed else "no"),
    ]


def _metric(evidence: Evidence) -> list[tuple[object, object]]:
    """Return a task's own metric on the test part, unless it is the accuracy."""
    told = (s.get("evidence") for s in evidence.steps if s.get("name") == "test_accuracy")
    found = next((each for each in told if isinstance(each, dict)), {})
    name = found.get("metric", "accuracy")
    return [] if name == "accuracy" else [(f"test {name}", _number(found.get("value")))]


def _decisions(evidence: Evidence) -> list[str]:
    shown, made = evidence.decisions, says(evidence.scored).get("decisions")
    if not shown:
        return ["No rule wanted a decision."]
    rows = [
        [
            said.get("epoch"),
            said.get("source"),
            " ".join(map(str, said.get("cites") or ())),
            said.get("direction"),
            outcome,
            said.get("justification"),
        ]
        for said, outcome in shown
    ]
    more: list[str] = []
    if isinstance(made, int) and made > len(shown):
        more = ["", f"These are the first {len(shown)} of {made} decisions; the ledger has all."]
        if rows[-1][4] == NO_OUTCOME:  # its outcome may be the first event that is left out
            rows[-1][4] = "in the ledger"
    return _table(("epoch", "by", "cites", "decision", "outcome", "reason"), rows) + more


def _table(columns: Sequence[object], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = [columns, ["---"] * len(columns)]
    return [
        *("| " + " | ".join(map(str, line)) + " |" for line in lines),
        *("| " + " | ".join(map(_text, row)) + " |" for row in rows),
    ]


def _number(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, int | float) else "not measured"


def _text(value: object) -> str:
    """Return a value as text on one line, in which no character is Markdown's."""
    if value is None:
        return "none"
    return _MARKS.sub(r"\\\1", " ".join(_said(value).split()))


def _said(value: object) -> str:
    """Return a value in words; parts of a list that have several values are set apart by `;`."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_said(inner)}" for name, inner in value.items()) or "none"
    if isinstance(value, list | tuple):
        nested = any(isinstance(each, Mapping | list | tuple) for each in value)
        return ("; " if nested else ", ").join(map(_said, value)) or "none"
    return str(value)
