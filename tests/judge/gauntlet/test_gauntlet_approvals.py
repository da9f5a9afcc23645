"""What an operator's word says, and what makes it count."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from judge.approvals import MOST_DAYS, SUBJECTS, check_approval, make_approval, sign
from judge.errors import ApprovalError
from ledger.handover.envelope import seal
from ledger.notes import public_bytes, vkey

KEY, OTHER = (Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (1, 2))
OPERATOR, COLLEAGUE = (vkey("operator", public_bytes(key)) for key in (KEY, OTHER))
NOW, LATER = 1_000, 2_000  # s
DIGESTS = {name: f"{number:040x}" for number, name in enumerate(SUBJECTS["approve"])}


def statement(kind: str = "approve", **changes: Any) -> bytes:
    chosen = {name: f"{number:040x}" for number, name in enumerate(SUBJECTS[kind])}
    fields = {"line": "L", "proposal": "P", "subjects": chosen, "expires": LATER, **changes}
    return make_approval(kind, **fields)


def check(envelope: str, **changes: Any) -> str:
    wanted = {
        "operators": [COLLEAGUE, OPERATOR],
        "now": NOW,
        "kind": "approve",
        "line": "L",
        "proposal": "P",
        "subjects": DIGESTS,
    }
    return check_approval(envelope, **{**wanted, **changes}).key


def resigned(change: Callable[[Any], None]) -> str:
    """Return an envelope whose statement was changed before it was signed."""
    whole = json.loads(statement())
    change(whole)
    return seal(json.dumps(whole).encode(), payload_type="application/vnd.in-toto+json", key=KEY)


def test_approval_of_exactly_this_counts() -> None:
    assert check(sign(statement(), KEY)) == OPERATOR


@pytest.mark.parametrize("name", [*DIGESTS, "kind", "line", "proposal"])
def test_approval_of_something_else_is_rejected(name: str) -> None:
    envelope = sign(statement(), KEY)
    changed: dict[str, Any]
    if name in DIGESTS:
        changed = {"subjects": {**DIGESTS, name: "f" * 40}}
    else:
        changed = {name: "reject" if name == "kind" else "another"}
    with pytest.raises(ApprovalError, match=f"this approval is for a different {name}"):
        check(envelope, **changed)
    assert check(envelope) == OPERATOR


@pytest.mark.parametrize("now", [LATER, LATER + 1])
def test_expired_approval_is_rejected(now: int) -> None:
    envelope = sign(statement(), KEY)
    with pytest.raises(ApprovalError, match="this approval expired"):
        check(envelope, now=now)
    assert check(envelope, now=LATER - 1) == OPERATOR


def test_approval_without_an_end_is_rejected() -> None:
    longest = NOW + MOST_DAYS * 86_400
    with pytest.raises(ApprovalError, match="is valid for more than 366 days"):
        check(sign(statement(expires=longest + 1), KEY))
    assert check(sign(statement(expires=longest), KEY)) == OPERATOR


def test_word_of_somebody_who_is_no_operator_is_rejected() -> None:
    envelope = sign(statement(), KEY)
    with pytest.raises(ApprovalError, match="not signed by an operator whose key is in force"):
        check(envelope, operators=[COLLEAGUE])
    with pytest.raises(ApprovalError, match="not signed by an operator whose key is in force"):
        check(envelope, operators=[])
    assert check(envelope, operators=[OPERATOR]) == OPERATOR


def test_statement_changed_after_it_was_signed_is_rejected() -> None:
    envelope = json.loads(sign(statement(), KEY))
    for changes in ({"line": "M"}, {"expires": LATER + 1}, {"note": "and more"}):
        envelope["payload"] = base64.b64encode(statement(**changes)).decode()
        with pytest.raises(ApprovalError, match="signature is invalid"):
            check(json.dumps(envelope))


def test_envelope_of_another_kind_of_statement_is_rejected() -> None:
    plain = seal(statement(), payload_type="text/plain", key=KEY)
    with pytest.raises(ApprovalError, match="the signed type is 'text/plain'"):
        check(plain)
    for change in (
        lambda whole: whole.update(predicateType="https://proctor.local/tree-head/v1"),
        lambda whole: whole.update(_type="https://in-toto.io/Statement/v0.1"),
    ):
        with pytest.raises(ApprovalError, match="is of a different type"):
            check(resigned(change))


def test_statement_of_another_form_is_rejected() -> None:
    changes: dict[str, Callable[[Any], object]] = {
        "contains unknown field `more`": lambda whole: whole.update(more=1),
        "predicate: Object missing": lambda whole: whole["predicate"].pop("note"),
        "the kind of an approval": lambda whole: whole["predicate"].update(kind="bless"),
        "predicate.expires: Expected `int`": lambda whole: whole["predicate"].update(expires=True),
        "note: Expected `str` of length": lambda whole: whole["predicate"].update(note="n" * 5_000),
        "predicate.line: Expected `str`": lambda whole: whole["predicate"].update(line=1),
        "must have different names": lambda whole: whole["subject"].append(whole["subject"][0]),
        "not these digests": lambda whole: whole["subject"].pop(),
        "digest.*: Expected `str`": lambda whole: whole["subject"][0]["digest"].update(gitCommit=7),
        "subject: Expected `array` of length >= 1": lambda whole: whole.update(subject=[]),
    }
    for problem, change in changes.items():
        with pytest.raises(ApprovalError, match=problem):
            check(resigned(change))  # type: ignore[arg-type]
    assert check(resigned(lambda whole: None)) == OPERATOR


@pytest.mark.parametrize("text", ["", "{}", "[]", "no JSON", '{"payload": 1}', "[" * 100_000])
def test_what_is_no_envelope_is_rejected(text: str) -> None:
    with pytest.raises(ApprovalError, match="this is not an approval"):
        check(text)


def test_steps_of_a_valley_keep_their_order() -> None:
    subjects = {name: f"{number:040x}" for number, name in enumerate(SUBJECTS["valley"])}
    steps = tuple(f"{number:064x}" for number in range(12))
    payload = statement("valley", proposal=None, steps=steps)
    found = check_approval(
        sign(payload, KEY),
        operators=[OPERATOR],
        now=NOW,
        kind="valley",
        line="L",
        subjects=subjects,
    )
    assert found.steps == steps


def test_steps_of_a_valley_out_of_order_are_rejected() -> None:
    whole = json.loads(statement("valley", proposal=None, steps=("a" * 64, "b" * 64)))
    names = [subject["name"] for subject in whole["subject"]]
    one, two = names.index("step-1"), names.index("step-2")
    whole["subject"][one], whole["subject"][two] = whole["subject"][two], whole["subject"][one]
    envelope = seal(
        json.dumps(whole).encode(), payload_type="application/vnd.in-toto+json", key=KEY
    )
    with pytest.raises(ApprovalError, match="not these digests"):
        check(envelope, kind="valley")


def test_word_that_nobody_can_say_is_refused_when_it_is_made() -> None:
    with pytest.raises(ApprovalError, match="the kind of an approval"):
        make_approval("bless", line="L", subjects=DIGESTS, expires=LATER)
    with pytest.raises(ApprovalError, match="not these digests"):
        make_approval("approve", line="L", subjects={}, expires=LATER, steps=("a" * 64,))
