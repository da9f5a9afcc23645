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
from hashlib import sha256
from typing import Annotated

import msgspec
from msgspec import Meta

from judge.declared import read_declared
from judge.errors import ApprovalError
from ledger.errors import MalformedError, VerificationError
from ledger.handover.envelope import IN_TOTO, envelope_key_id, open_envelope, payload_of, seal
from ledger.schemes import PrivateKey
from ledger.strict_json import read_json
from ledger.verification.verified_notes import parse_vkey

MOST_DAYS = 366  # that an approval may last
MAX_NOTE = 4_000  # characters
_MAX_SUBJECTS = 100
_STATEMENT = "https://in-toto.io/Statement/v1"
_PREDICATE = "https://proctor.local/approval/v1"  # a name, not a place
_DAY = 86_400  # s
TEXT_SHOWN = "text_shown"  # digest of what an operator was shown; earlier approvals have none
LEDGER = "ledger"  # digest of the first key of the ledger that it is for; earlier ones have none
BATCH = "batch"  # approves several proposals of tier 1, all on one base
CARRIED = "carried"  # kind of evidence: the proposal that a batch names for this one
OF_EACH = ("diff", TEXT_SHOWN)  # of a batch's proposal; the subject is named WHAT:ID
_LINE = ("base", "base_tree", LEDGER, "manifest", "reference_set")
_CHANGE = ("base", "base_tree", "diff", LEDGER, TEXT_SHOWN, "manifest", "reference_set")
SUBJECTS: Mapping[str, tuple[str, ...]] = {
    "approve": _CHANGE,
    "reject": _CHANGE,
    "revise": _CHANGE,
    "refactor": _CHANGE,
    "resume": _CHANGE,
    "valley": _LINE,  # and its steps' diffs
    BATCH: _LINE,  # and two of each proposal
    "adopt": (*_LINE, "commit", "tree"),
    "admit": (LEDGER, "task"),
    "carry": (LEDGER, "set"),
}
"""Each word with the names of what it is about."""
RECORDED = (
    "checkpoint.adopted",
    "line.resumed",
    "proposal.reviewed",
    "task.admitted",
    "valley.opened",
)
"""Events that hold an approval."""
_ALGORITHMS = {
    "base": "gitCommit",
    "commit": "gitCommit",
    "base_tree": "gitTree",
    "tree": "gitTree",
}
_STEP = "step-"


class _Predicate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: str
    line: str
    proposal: str | None
    expires: Annotated[int, Meta(ge=0, le=2**63 - 1)]  # s
    note: Annotated[str, Meta(max_length=MAX_NOTE)]


class Approval(_Predicate, frozen=True, kw_only=True):
    """What an operator has said of exactly this."""

    subjects: Mapping[str, str]  # name -> digest in hexadecimal
    steps: tuple[str, ...]  # SHA-256 of a valley's diffs, in order
    key: str  # the vkey that has signed


class _Subject(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    digest: dict[str, str]


class _Statement(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    subject: Annotated[list[_Subject], Meta(min_length=1, max_length=_MAX_SUBJECTS)]
    predicate: _Predicate
    type: str = msgspec.field(name="_type")
    predicate_type: str


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
    statement = _Statement(
        type=_STATEMENT,
        subject=[
            _Subject(name, {_ALGORITHMS.get(name, "sha256"): digest})
            for name, digest in named.items()
        ],
        predicate_type=_PREDICATE,
        predicate=_Predicate(kind=kind, line=line, proposal=proposal, expires=expires, note=note),
    )
    payload = json.dumps(msgspec.to_builtins(statement), sort_keys=True).encode()
    _parse(payload, key="")
    return payload


def ledger_digest(vkey: str) -> str:
    """Return the digest that names a ledger in an approval, of the ledger's first vkey."""
    return sha256(vkey.strip().encode()).hexdigest()


def of_proposal(what: str, proposal: str) -> str:
    """Return the name of a batch's subject."""
    return f"{what}:{proposal}"


def sign(payload: bytes, key: PrivateKey) -> str:
    """Return the envelope: this key's holder says that."""
    return seal(payload, payload_type=IN_TOTO, key=key)


def names_of(envelope: str) -> list[str]:
    """Return what an envelope that nobody has verified is about; [] if it is none."""
    try:
        return [str(each["name"]) for each in read_json(payload_of(envelope))["subject"]]
    except (MalformedError, ValueError, KeyError, TypeError):
        return []


def read_approval(envelope: str, *, operators: Iterable[str]) -> Approval:
    """Return what one of these operators has signed, whatever it is; raise ApprovalError.

    What it is about, and whether it has expired, remains to be checked.
    """
    fault = (
        "it is not signed by an operator whose key is in force; `proctor keys list` shows the keys"
    )
    for operator in operators:
        public_key = parse_vkey(operator, role="operator").public_key
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
    if now >= approval.expires:
        raise ApprovalError(
            f"this approval expired {now - approval.expires} s ago; ask for a new one"
        )
    if approval.expires > now + MOST_DAYS * _DAY:
        raise ApprovalError(
            f"this approval is valid for more than {MOST_DAYS} days; ask for a shorter one"
        )
    return approval


def _parse(payload: bytes, *, key: str) -> Approval:
    """Return a statement's content; raise ApprovalError for one of another form."""
    try:
        statement = read_declared(read_json(payload), _Statement)
    except ValueError as e:
        raise ApprovalError(f"the approval's statement is malformed: {e}") from e
    if (statement.type, statement.predicate_type) != (_STATEMENT, _PREDICATE):
        raise ApprovalError("the signed statement is of a different type")
    kind = statement.predicate.kind
    if kind not in SUBJECTS:
        raise ApprovalError(
            f"the kind of an approval must be one of {', '.join(SUBJECTS)}, not {kind!r}"
        )
    subjects = {each.name: each.digest for each in statement.subject}
    if len(subjects) != len(statement.subject):
        raise ApprovalError("the approval's subjects must have different names")
    names = [name for name in subjects if name.startswith(_STEP)]
    in_order = names == [f"{_STEP}{number}" for number in range(1, len(names) + 1)]
    hashed = all(set(d) == {_ALGORITHMS.get(n, "sha256")} for n, d in subjects.items())
    steps = [subjects.pop(name) for name in names]
    lacking = set(SUBJECTS[kind]) ^ set(subjects)
    if kind == BATCH:
        named = {name.partition(":")[2] for name in subjects if ":" in name}
        lacking ^= {of_proposal(what, each) for each in named or {""} for what in OF_EACH}
    complete = lacking <= {TEXT_SHOWN, LEDGER} and bool(steps) == (kind == "valley")
    if not (complete and in_order and hashed):
        raise ApprovalError(
            f"an approval of kind {kind!r} must name {', '.join(SUBJECTS[kind])}, not these digests"
        )
    return Approval(
        **msgspec.structs.asdict(statement.predicate),
        subjects={name: value for name, digest in subjects.items() for value in digest.values()},
        steps=tuple(value for step in steps for value in step.values()),
        key=key,
    )
