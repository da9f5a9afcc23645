"""Approvals: what an operator signs, and when it is valid.

An approval is a DSSE envelope over an in-toto Statement: its subjects are the exact digests of what
is approved, its predicate says which word it is, for which line and proposal, and until when. It
travels as a file, and counts only while a key that has signed it is an operator's in force.

Source: DSSE version 1; in-toto Statement version 1; docs/reference/gauntlet.md, "Approvals".
Trust: an envelope is hostile until check_approval() returns; who operates, the caller's word.
I/O: none.  Units: seconds since the POSIX epoch.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from judge.gauntlet.errors import ApprovalError
from ledger.errors import MalformedError, VerificationError
from ledger.handover.envelope import IN_TOTO, envelope_key_id, open_envelope, seal
from ledger.strict_json import JSONError, read_json
from ledger.verification.verified_notes import ED25519, parse_vkey

__all__ = ["MOST_DAYS", "SUBJECTS", "Approval", "check_approval", "make_approval", "sign"]

MOST_DAYS = 366  # that an approval may last
MAX_NOTE = 4_000  # characters
_MAX_SUBJECTS = 100
_STATEMENT = "https://in-toto.io/Statement/v1"
_PREDICATE = "https://proctor.local/approval/v1"  # a name, not a place
_DAY = 86_400  # s
_CHANGE = ("base", "base_tree", "diff", "manifest", "reference_set")
SUBJECTS: Mapping[str, tuple[str, ...]] = {
    "approve": _CHANGE,
    "reject": _CHANGE,
    "revise": _CHANGE,
    "resume": _CHANGE,
    "valley": ("base", "base_tree", "manifest", "reference_set"),  # and its steps' diffs
    "adopt": ("base", "base_tree", "commit", "manifest", "reference_set", "tree"),
    "admit": ("task",),
}
"""Each word with the names of what it is about."""
_ALGORITHMS = {
    "base": "gitCommit",
    "commit": "gitCommit",
    "base_tree": "gitTree",
    "tree": "gitTree",
}
_STEP = "step-"


@dataclass(frozen=True, kw_only=True)
class Approval:
    """What an operator has said of exactly this."""

    kind: str
    line: str
    proposal: str | None
    subjects: Mapping[str, str]  # name -> digest in hexadecimal
    steps: tuple[str, ...]  # SHA-256 of a valley's diffs, in order
    expires: int  # s
    note: str
    key: str  # the vkey that has signed


def make_approval(
    kind: str,
    *,
    line: str,
    subjects: Mapping[str, str],
    expires: int,
    proposal: str | None = None,
    steps: tuple[str, ...] = (),
    note: str = "",
) -> bytes:
    """Return the statement for an operator to sign; raise ApprovalError for what none can say."""
    named = {**subjects, **{f"{_STEP}{number}": step for number, step in enumerate(steps, start=1)}}
    statement = {
        "_type": _STATEMENT,
        "subject": [
            {"name": name, "digest": {_ALGORITHMS.get(name, "sha256"): digest}}
            for name, digest in named.items()
        ],
        "predicateType": _PREDICATE,
        "predicate": {
            "kind": kind,
            "line": line,
            "proposal": proposal,
            "expires": expires,
            "note": note,
        },
    }
    payload = json.dumps(statement, sort_keys=True).encode()
    _parse(payload, key="")
    return payload


def sign(payload: bytes, key: Ed25519PrivateKey) -> str:
    """Return the envelope: this key's holder says that."""
    return seal(payload, payload_type=IN_TOTO, key=key)


def read_approval(envelope: str, *, operators: Iterable[str]) -> Approval:
    """Return what one of these operators has signed, whatever it is; raise ApprovalError.

    What it is about, and whether it has expired, remains to be checked.
    """
    fault = (
        "it is not signed by an operator whose key is in force; `proctor keys list` shows the keys"
    )
    for operator in operators:
        public_key = parse_vkey(operator, type=ED25519).public_key
        try:
            payload_type, payload = open_envelope(envelope, public_key=public_key)
        except MalformedError as e:
            raise ApprovalError(f"this is not an approval: {e}") from e
        except VerificationError as e:
            if envelope_key_id(public_key) in envelope:
                fault = str(e)
            continue
        if payload_type != IN_TOTO:
            raise ApprovalError(f"this is not an approval: the signed type is {payload_type!r}")
        return _parse(payload, key=operator)
    raise ApprovalError(f"this approval is not valid: {fault}")


def check_approval(
    envelope: str,
    *,
    operators: Iterable[str],
    now: int,
    kind: str,
    line: str,
    subjects: Mapping[str, str],
    proposal: str | None = None,
) -> Approval:
    """Return the approval if it is this word, about exactly this, now; raise ApprovalError."""
    approval = read_approval(envelope, operators=operators)
    said = {"kind": approval.kind, "line": approval.line, "proposal": approval.proposal}
    wanted = {"kind": kind, "line": line, "proposal": proposal}
    for name, value in {**wanted, **subjects}.items():
        found = {**said, **approval.subjects}.get(name)
        if found != value:
            raise ApprovalError(
                f"this approval is for a different {name}: {found}, not {value}; have an operator "
                "review the current proposal"
            )
    check_time(approval, now=now)
    return approval


def check_time(approval: Approval, *, now: int) -> None:
    """Raise ApprovalError for an approval that has expired, or that lasts too long."""
    if now >= approval.expires:
        raise ApprovalError(
            f"this approval expired {now - approval.expires} s ago; ask for a new one"
        )
    if approval.expires > now + MOST_DAYS * _DAY:
        raise ApprovalError(
            f"this approval is valid for more than {MOST_DAYS} days; ask for a shorter one"
        )


def _parse(payload: bytes, *, key: str) -> Approval:
    """Return a statement's content; raise ApprovalError for one of another form."""
    try:
        statement = read_json(payload)
    except JSONError as e:
        raise ApprovalError(f"the approval's statement is not strict JSON: {e}") from e
    fields = _fields(statement, "_type", "subject", "predicateType", "predicate")
    if fields["_type"] != _STATEMENT or fields["predicateType"] != _PREDICATE:
        raise ApprovalError("the signed statement is of a different type")
    said = _fields(fields["predicate"], "kind", "line", "proposal", "expires", "note")
    kind, proposal = said["kind"], said["proposal"]
    if not isinstance(kind, str) or kind not in SUBJECTS:
        raise ApprovalError(
            f"the kind of an approval must be one of {', '.join(SUBJECTS)}, not {kind!r}"
        )
    if not isinstance(said["line"], str) or not (proposal is None or isinstance(proposal, str)):
        raise ApprovalError("the approval's line or proposal is not text")
    if type(said["expires"]) is not int or not 0 <= said["expires"] < 2**63:
        raise ApprovalError("the approval's expiry is not a time in seconds")
    if not isinstance(said["note"], str) or len(said["note"]) > MAX_NOTE:
        raise ApprovalError(f"an approval's note must be text of at most {MAX_NOTE} characters")
    subjects = _subjects(fields["subject"])
    names = [name for name in subjects if name.startswith(_STEP)]
    steps = [subjects.pop(name) for name in names]
    in_order = names == [f"{_STEP}{number}" for number in range(1, len(names) + 1)]
    if set(subjects) != set(SUBJECTS[kind]) or bool(steps) != (kind == "valley") or not in_order:
        raise ApprovalError(
            f"an approval of kind {kind!r} must name {', '.join(SUBJECTS[kind])}, not these digests"
        )
    return Approval(
        kind=kind,
        line=said["line"],
        proposal=proposal,
        subjects=subjects,
        steps=tuple(steps),
        expires=said["expires"],
        note=said["note"],
        key=key,
    )


def _subjects(listed: Any) -> dict[str, str]:
    if not isinstance(listed, list) or not 1 <= len(listed) <= _MAX_SUBJECTS:
        raise ApprovalError(f"an approval must have 1 to {_MAX_SUBJECTS} subjects")
    found: dict[str, str] = {}
    for each in listed:
        subject = _fields(each, "name", "digest")
        name = subject["name"]
        if not isinstance(name, str) or name in found:
            raise ApprovalError("the approval's subjects must have different names")
        digest = _fields(subject["digest"], _ALGORITHMS.get(name, "sha256"))
        (value,) = digest.values()
        if not isinstance(value, str):
            raise ApprovalError(f"the approval's digest of {name} is not text")
        found[name] = value
    return found


def _fields(value: Any, *names: str) -> dict[str, Any]:
    if not isinstance(value, dict) or set(value) != set(names):
        raise ApprovalError(
            f"the approval's statement must have exactly the keys {', '.join(names)}"
        )
    return value
