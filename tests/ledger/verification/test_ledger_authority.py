"""Which keys stand: what the authority stream may say, and what each lie in it is refused for."""

import hashlib
from collections.abc import Callable
from typing import Any
from uuid import UUID

import msgpack
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from loose_entries import Entry, encode_entry
from msgspec.structs import replace
from signed_notes import sign_note, sign_rotation

from ledger.entries import Author, AuthorKey
from ledger.errors import MalformedError, SignatureError, VerificationError
from ledger.notes import public_bytes, vkey
from ledger.verification.authority import Authority, authority_stream, parse_rotation, suspects
from ledger.verification.verified_entries import VerifiedEntry, parse_entry
from ledger.witnessing.cosignatures import cosignature_vkey

ORIGIN = "proctor.local/test"
STREAM = authority_stream(ORIGIN)
KEYS = [
    Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"key %d" % number).digest())
    for number in range(7)
]
ROLES = ("operator", "judge", "witness")


def vkey_of(key: Ed25519PrivateKey, role: str = "ledger", name: str = ORIGIN) -> str:
    if role == "witness":
        return cosignature_vkey(name, public_bytes(key))
    return vkey(name, public_bytes(key))


def entry(
    index: int,
    name: str,
    body: dict[str, Any] | bytes,
    author: AuthorKey | Author | None = None,
    *,
    stream: UUID = STREAM,
) -> VerifiedEntry:
    """Return an entry as it would stand in a ledger, signed by its author."""
    data = body if isinstance(body, bytes) else msgpack.packb({"v": 1, **body})
    if isinstance(author, AuthorKey):
        author = author.author(
            origin=ORIGIN, stream_id=stream, stream_version=index + 1, name=name, body=data
        )
    encoded = encode_entry(
        Entry(
            index=index,
            stream_id=stream,
            stream_version=index + 1,
            time_ns=index,
            previous=bytes(32),
            name=name,
            body=data,
            author=author,
        )
    )
    return parse_entry(encoded, index=index)


class Lives(RuleBasedStateMachine):
    """Anything is tried; a model in plain sets says what may be, the authority has to agree."""

    def __init__(self) -> None:
        super().__init__()
        self.authority = Authority(vkey_of(KEYS[0]))
        self.index = 0
        self.ledger = KEYS[0]
        self.met = {("ledger", KEYS[0])}
        self.revoked: set[Ed25519PrivateKey] = set()
        self.operated = False

    def may_sign(self, author: AuthorKey | None) -> bool:
        if author is None:
            return True
        stands = (author.role, author.key) in self.met and author.key not in self.revoked
        return (
            stands
            and author.role != "witness"
            and (author.role != "ledger" or author.key is self.ledger)
        )

    def may_rule(self, author: AuthorKey | None, over: str, *, again: bool = False) -> bool:
        root = not self.operated or over == "operator" or again
        roles = ("operator", "ledger") if root else ("operator",)
        return author is not None and author.role in roles and self.may_sign(author)

    def attempt(
        self, name: str, body: dict[str, Any], author: AuthorKey | None, *, allowed: bool
    ) -> bool:
        before = (self.authority.keys, self.authority.vkey, self.authority.rotations)
        candidate = entry(self.index, name, body, author)
        self.index += 1
        if allowed:
            self.authority.apply(candidate)
            return True
        with pytest.raises((MalformedError, SignatureError)) as caught:
            self.authority.apply(candidate)
        assert caught.value.index == candidate.index
        assert (self.authority.keys, self.authority.vkey, self.authority.rotations) == before
        return False

    keys = st.sampled_from(KEYS)
    authors = st.none() | st.builds(AuthorKey, st.sampled_from(("ledger", *ROLES)), keys)

    @rule(role=st.sampled_from((*ROLES, "ledger")), key=keys, author=authors)
    def grant(self, role: str, key: Ed25519PrivateKey, author: AuthorKey | None) -> None:
        known = {known for _, known in self.met}
        again = author is not None and author.role == "ledger" and (role, key) in self.met
        fresh = key not in known or (again and key in self.revoked)
        allowed = role != "ledger" and fresh and self.may_rule(author, role, again=again)
        body = {"role": role, "vkey": vkey_of(key, role)}
        if self.attempt("key.granted", body, author, allowed=allowed):
            self.met.add((role, key))
            self.revoked.discard(key)
            self.operated = self.operated or role == "operator"

    @rule(role=st.sampled_from((*ROLES, "ledger")), key=keys, author=authors)
    def revoke(self, role: str, key: Ed25519PrivateKey, author: AuthorKey | None) -> None:
        allowed = self.may_rule(author, role) and (role, key) in self.met
        body = {"role": role, "vkey": vkey_of(key, role), "since": 5, "reason": "lost"}
        if self.attempt("key.revoked", body, author, allowed=allowed):
            self.revoked.add(key)

    @rule(old=keys, new=keys, author=st.none() | authors)
    def rotate(
        self, old: Ed25519PrivateKey, new: Ed25519PrivateKey, author: AuthorKey | None
    ) -> None:
        known = {known for _, known in self.met}
        allowed = author is None and old is self.ledger and new not in known
        note = sign_rotation(origin=ORIGIN, old=old, new=new)
        at = self.index
        if self.attempt("key.rotated", {"note": note}, author, allowed=allowed):
            assert self.authority.ledger_vkey_at(at) == vkey_of(old)
            self.ledger = new
            self.met.add(("ledger", new))

    @rule(author=authors)
    def write_elsewhere(self, author: AuthorKey | None) -> None:
        candidate = entry(self.index, "test.event", {}, author, stream=UUID(int=1))
        self.index += 1
        if self.may_sign(author):
            self.authority.apply(candidate)
        else:
            with pytest.raises(SignatureError, match="not in force for that role"):
                self.authority.apply(candidate)

    @invariant()
    def agrees(self) -> None:
        found = {(record.role, record.public_key) for record in self.authority.keys}
        assert found == {(role, public_bytes(key)) for role, key in self.met}
        ended = {
            record.public_key
            for record in self.authority.keys
            if any(revocation.lifted is None for revocation in record.revocations)
        }
        assert ended == {public_bytes(key) for key in self.revoked}
        assert self.authority.vkey == vkey_of(self.ledger)
        assert self.authority.ledger_vkey_at(self.index) == self.authority.vkey


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)

LEDGER = AuthorKey("ledger", KEYS[0])
OPERATOR = AuthorKey("operator", KEYS[1])
JUDGE = AuthorKey("judge", KEYS[2])


def standing() -> Authority:
    """Return what stands after an operator and a judge were granted, at index 2."""
    authority = Authority(vkey_of(KEYS[0]))
    for index, (role, key, author) in enumerate(
        [("operator", KEYS[1], LEDGER), ("judge", KEYS[2], OPERATOR)]
    ):
        authority.apply(
            entry(index, "key.granted", {"role": role, "vkey": vkey_of(key, role)}, author)
        )
    return authority


def grant(key: Ed25519PrivateKey, *, role: str = "judge", **other: Any) -> dict[str, Any]:
    return {"role": role, "vkey": vkey_of(key, role), **other}


def revoke(key: Ed25519PrivateKey, *, role: str = "judge", **other: Any) -> dict[str, Any]:
    return {"role": role, "vkey": vkey_of(key, role), "since": 7, "reason": "lost", **other}


def rotation(
    *,
    origin: str = ORIGIN,
    old: Ed25519PrivateKey = KEYS[0],
    new: Ed25519PrivateKey = KEYS[3],
    change: Callable[[str], str] = lambda note: note,
) -> dict[str, Any]:
    return {"note": change(sign_rotation(origin=origin, old=old, new=new))}


def lines(note: str) -> list[str]:
    return note.splitlines(keepends=True)


def signed_by_new_alone(note: str) -> str:
    text = "".join(lines(note)[:4])
    return sign_note(text, name=ORIGIN, key=KEYS[3]) + lines(note)[-1]


HONEST: list[tuple[str, dict[str, Any], AuthorKey | None]] = [
    ("key.granted", grant(KEYS[3]), OPERATOR),
    ("key.granted", grant(KEYS[3], role="witness"), OPERATOR),
    ("key.revoked", revoke(KEYS[2]), OPERATOR),
    ("key.revoked", revoke(KEYS[1], role="operator"), OPERATOR),
    ("key.revoked", revoke(KEYS[0], role="ledger"), OPERATOR),
    ("key.granted", grant(KEYS[3], role="operator"), LEDGER),
    ("key.revoked", revoke(KEYS[1], role="operator"), LEDGER),
    ("key.rotated", rotation(), None),
    ("clock.jumped", {"by": -(10**12), "clock": 5}, None),
    ("test.other", {"anything": 1}, None),
    ("test.other", {"anything": 1}, JUDGE),
    ("test.other", {"anything": 1}, LEDGER),
]
LIES: list[tuple[str, dict[str, Any] | bytes, AuthorKey | None, type[Exception], str]] = [
    ("key.granted", grant(KEYS[3]), None, MalformedError, "has the author None"),
    ("key.granted", grant(KEYS[3]), JUDGE, MalformedError, "has the author judge"),
    (
        "key.granted",
        grant(KEYS[3]),
        LEDGER,
        MalformedError,
        "author ledger, but must be signed by operator",
    ),
    ("key.granted", grant(KEYS[2]), LEDGER, MalformedError, "already used in this ledger"),
    (
        "key.granted",
        grant(KEYS[2], role="operator"),
        LEDGER,
        MalformedError,
        "already used in this ledger",
    ),
    (
        "key.revoked",
        revoke(KEYS[2]),
        LEDGER,
        MalformedError,
        "author ledger, but must be signed by operator",
    ),
    ("key.granted", grant(KEYS[2]), OPERATOR, MalformedError, "already used in this ledger"),
    (
        "key.granted",
        grant(KEYS[2], role="operator"),
        OPERATOR,
        MalformedError,
        "already used in this ledger",
    ),
    (
        "key.granted",
        grant(KEYS[2], role="witness"),
        OPERATOR,
        MalformedError,
        "already used in this ledger",
    ),
    ("key.granted", grant(KEYS[0]), OPERATOR, MalformedError, "already used in this ledger"),
    (
        "key.granted",
        {"role": "judge", "vkey": vkey_of(KEYS[2], name="another/name")},
        OPERATOR,
        MalformedError,
        "already used in this ledger",
    ),
    ("key.granted", grant(KEYS[3], role="ledger"), OPERATOR, MalformedError, "cannot be granted"),
    ("key.granted", grant(KEYS[3], role="owner"), OPERATOR, MalformedError, "cannot be granted"),
    (
        "key.granted",
        {"role": "witness", "vkey": vkey_of(KEYS[3])},
        OPERATOR,
        MalformedError,
        "verifier key for cosignatures",
    ),
    (
        "key.granted",
        {"role": "judge", "vkey": f"{vkey_of(KEYS[3])}\n"},
        OPERATOR,
        MalformedError,
        "white space around it",
    ),
    ("key.granted", grant(KEYS[3], more=1), OPERATOR, MalformedError, "is not `v` 1 and"),
    ("key.granted", grant(KEYS[3], v=2), OPERATOR, MalformedError, "is not `v` 1 and"),
    ("key.granted", grant(KEYS[3], v=True), OPERATOR, MalformedError, "is not `v` 1 and"),
    ("key.granted", {"role": "judge"}, OPERATOR, MalformedError, "is not `v` 1 and"),
    ("key.granted", b"\xc1", OPERATOR, MalformedError, "is malformed"),
    ("key.granted", b"\x90", OPERATOR, MalformedError, "is malformed"),
    (
        "clock.jumped",
        b"\x83\xa1v\x01\xa2by\xd1\x00\x05\xa5clock\x05",  # 5 in two bytes
        None,
        MalformedError,
        "is malformed",
    ),
    (
        "clock.jumped",
        {"by": 5, "clock": 2**63},
        None,
        MalformedError,
        "the clock values are not possible",
    ),
    ("clock.jumped", {"by": 5, "clock": 5}, OPERATOR, MalformedError, "has an author, but must no"),
    ("key.revoked", revoke(KEYS[3]), OPERATOR, MalformedError, "was never in force as 'judge'"),
    ("key.revoked", revoke(KEYS[2], role="operator"), OPERATOR, MalformedError, "was never in for"),
    ("key.revoked", revoke(KEYS[3], role="ledger"), OPERATOR, MalformedError, "was never in force"),
    (
        "key.revoked",
        revoke(KEYS[2], since=-1),
        OPERATOR,
        MalformedError,
        "-1, which is not a valid t",
    ),
    ("key.revoked", revoke(KEYS[2], since=2**63), OPERATOR, MalformedError, "not a valid time"),
    ("key.revoked", revoke(KEYS[2], reason=5), OPERATOR, MalformedError, "is not `v` 1 and"),
    ("key.revoked", revoke(KEYS[2]), LEDGER, MalformedError, "must be signed by operator"),
    ("key.rotated", rotation(), OPERATOR, MalformedError, "has an author, but must not"),
    ("key.rotated", rotation(new=KEYS[2]), None, MalformedError, "already used in this ledger"),
    ("key.rotated", rotation(new=KEYS[0]), None, MalformedError, "from a key to itself"),
    ("key.rotated", rotation(old=KEYS[3], new=KEYS[4]), None, MalformedError, "not the ledger's"),
    ("key.rotated", rotation(origin="proctor.local/x"), None, MalformedError, "not a rotation of"),
    (
        "key.rotated",
        rotation(change=lambda note: "".join(lines(note)[:-1])),
        None,
        MalformedError,
        "1 signatures, expected two",
    ),
    (
        "key.rotated",
        rotation(change=lambda note: note + lines(note)[-1]),
        None,
        MalformedError,
        "3 signatures, expected two",
    ),
    ("key.rotated", rotation(change=signed_by_new_alone), None, SignatureError, "0 signatures by"),
    (
        "key.rotated",
        rotation(change=lambda note: note.replace("/v1", "/v2", 1)),
        None,
        MalformedError,
        "not a rotation of",
    ),
    ("test.other", {}, AuthorKey("judge", KEYS[1]), SignatureError, "not in force for that role"),
    ("test.other", {}, AuthorKey("judge", KEYS[5]), SignatureError, "not in force for that role"),
    ("test.other", {}, AuthorKey("owner", KEYS[1]), SignatureError, "not in force for that role"),
]


@pytest.mark.parametrize(("name", "body", "author"), HONEST)
def test_authority_takes_in_what_the_format_allows(
    name: str, body: dict[str, Any], author: AuthorKey | None
) -> None:
    standing().apply(entry(2, name, body, author))


@pytest.mark.parametrize(("name", "body", "author", "error", "match"), LIES)
def test_false_authority_event_is_rejected(
    name: str,
    body: dict[str, Any] | bytes,
    author: AuthorKey | None,
    error: type[VerificationError],
    match: str,
) -> None:
    authority = standing()
    before = authority.keys
    with pytest.raises(error, match=match) as caught:
        authority.apply(entry(2, name, body, author))
    assert caught.value.index == 2
    assert authority.keys == before


def test_false_authority_event_in_another_stream_means_nothing() -> None:
    authority = standing()
    authority.apply(entry(2, "key.granted", grant(KEYS[3]), JUDGE, stream=UUID(int=1)))
    assert len(authority.keys) == 3


def test_author_of_another_event_is_rejected() -> None:
    authority = standing()
    signed = entry(2, "test.event", {"a": 1}, JUDGE)
    assert signed.author is not None
    author = Author(signed.author.role, signed.author.key_id, signed.author.signature)
    authority.apply(entry(2, "test.event", {"a": 1}, author))
    for moved in (
        entry(2, "test.event", {"a": 2}, author),
        entry(2, "test.other", {"a": 1}, author),
        entry(3, "test.event", {"a": 1}, author),
        entry(2, "test.event", {"a": 1}, author, stream=UUID(int=1)),
    ):
        with pytest.raises(SignatureError, match=": the author's signature is invalid"):
            authority.apply(moved)


def test_revoked_key_is_in_force_up_to_its_revocation_and_rejected_after() -> None:
    authority = standing()
    authority.apply(entry(2, "test.event", {}, JUDGE))
    authority.apply(entry(3, "key.revoked", revoke(KEYS[1], role="operator"), OPERATOR))
    authority.apply(entry(4, "test.event", {}, JUDGE))
    with pytest.raises(SignatureError, match="entry 5 is signed as 'operator' by a key that is no"):
        authority.apply(entry(5, "test.event", {}, OPERATOR))
    with pytest.raises(MalformedError, match="signed by operator"):  # the ledger's key stays out
        authority.apply(entry(5, "key.granted", grant(KEYS[3]), LEDGER))
    (operator,) = [key for key in authority.keys if key.role == "operator"]
    assert (operator.granted, operator.ended) == (0, 3)


def test_stolen_operator_is_dislodged_and_what_it_revoked_is_granted_again() -> None:
    authority = standing()
    authority.apply(entry(2, "key.revoked", revoke(KEYS[2]), OPERATOR))  # by the thief
    authority.apply(entry(3, "key.granted", grant(KEYS[4]), OPERATOR))
    authority.apply(entry(4, "key.revoked", revoke(KEYS[1], role="operator"), LEDGER))
    with pytest.raises(SignatureError, match="not in force"):
        authority.apply(entry(5, "key.granted", grant(KEYS[3]), OPERATOR))
    with pytest.raises(SignatureError, match="not in force"):
        authority.apply(entry(5, "test.event", {}, JUDGE))
    other = AuthorKey("operator", KEYS[3])
    authority.apply(entry(5, "key.granted", grant(KEYS[3], role="operator"), LEDGER))
    with pytest.raises(
        MalformedError, match="already used in this ledger"
    ):  # this only the root may
        authority.apply(entry(6, "key.granted", grant(KEYS[2]), other))
    authority.apply(entry(6, "key.granted", grant(KEYS[2]), LEDGER))
    authority.apply(entry(7, "test.event", {}, JUDGE))
    authority.apply(entry(8, "key.revoked", revoke(KEYS[4]), other))
    doubts = {each.key.vkey: each for each in suspects(authority, sizes=[9])}
    assert doubts[vkey_of(KEYS[2])].includes(entry(1, "test.event", {}, JUDGE))
    assert not doubts[vkey_of(KEYS[2])].includes(entry(7, "test.event", {}, JUDGE))
    assert doubts[vkey_of(KEYS[1])].includes(entry(2, "test.event", {}, OPERATOR))


def test_rotated_key_signs_from_the_head_that_covers_the_rotation() -> None:
    authority = standing()
    authority.apply(entry(2, "key.rotated", rotation(), None))
    assert [authority.ledger_vkey_at(size) for size in (0, 2, 3, 9)] == [
        *[vkey_of(KEYS[0])] * 2,
        *[vkey_of(KEYS[3])] * 2,
    ]
    (note,) = authority.rotations
    assert parse_rotation(note, origin=ORIGIN).new == vkey_of(KEYS[3])
    with pytest.raises(SignatureError, match="not in force"):
        authority.apply(entry(3, "test.event", {}, LEDGER))
    authority.apply(entry(3, "test.event", {}, AuthorKey("ledger", KEYS[3])))
    with pytest.raises(MalformedError, match="already used in this ledger"):  # no way back
        authority.apply(entry(4, "key.rotated", rotation(old=KEYS[3], new=KEYS[0]), None))


def test_copy_of_an_authority_lives_on_by_itself() -> None:
    authority = standing()
    other = authority.copy()
    other.apply(entry(2, "key.rotated", rotation(), None))
    other.apply(entry(3, "key.revoked", revoke(KEYS[2]), OPERATOR))
    assert authority.vkey == vkey_of(KEYS[0])
    assert not any(key.revocations for key in authority.keys)


SECOND = 10**9


@pytest.mark.parametrize(
    ("witnessed", "first_suspect"),
    [
        ([], 0),
        ([(4, 99)], 4),  # (99 + 1) s <= since
        ([(4, 100)], 0),  # it may have been after it, within that second
        ([(4, 20), (6, 90), (9, 101)], 6),
    ],
)
def test_entries_are_suspect_from_the_last_head_that_was_witnessed_before(
    witnessed: list[tuple[int, int]], first_suspect: int
) -> None:
    authority = standing()
    written = [entry(index, "test.event", {}, JUDGE) for index in range(2, 8)]
    for each in written:
        authority.apply(each)
    authority.apply(entry(8, "key.revoked", revoke(KEYS[2], since=100 * SECOND), OPERATOR))
    (suspicion,) = suspects(authority, witnessed=witnessed, sizes=[1, 8, 9])
    found = [each.index for each in written if suspicion.includes(each)]
    assert found == [index for index in range(2, 8) if index >= first_suspect]
    assert not suspicion.includes(entry(6, "test.event", {}, None))
    assert not suspicion.includes(entry(6, "test.event", {}, OPERATOR))


def test_entries_are_suspect_if_a_revoked_ledger_key_signed_their_first_head() -> None:
    authority = standing()
    authority.apply(entry(5, "key.rotated", rotation(), None))
    authority.apply(entry(9, "key.revoked", revoke(KEYS[0], role="ledger", since=SECOND), OPERATOR))
    # Entries 4 and 5 are in one batch: the head that covers them first is the new key's.
    (suspicion,) = suspects(authority, sizes=[2, 4, 6, 10])
    plain = [entry(index, "test.event", {}, None) for index in range(10)]
    assert [e.index for e in plain if suspicion.includes(e)] == [0, 1, 2, 3]
    (suspicion,) = suspects(authority, witnessed=[(2, 0)], sizes=[2, 4, 6, 10])
    assert [e.index for e in plain if suspicion.includes(e)] == [2, 3]
    authority.apply(entry(10, "key.revoked", revoke(KEYS[3], role="ledger"), OPERATOR))
    _, suspicion = suspects(authority, sizes=[2, 4, 6, 11, 12])
    later = [*plain, *(replace(plain[9], index=index) for index in (10, 11))]
    assert [e.index for e in later if suspicion.includes(e)] == list(range(4, 12))
