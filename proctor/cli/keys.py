"""`proctor keys`: who may sign what in a ledger, and from when to when.

Every change is an event in the ledger. Without --key the ledger's own key signs it, which from the
first operator on may grant and revoke operators, and grant again what was revoked.
"""

import hashlib
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from ledger.files import create_exclusively
from ledger.keys import load_or_create_key
from ledger.mapper import datetime_to_ns, ns_to_datetime
from ledger.notes import public_bytes
from ledger.notes import vkey as vkey_of
from ledger.recorder import SignedRecorder
from ledger.verification.authority import Authority, KeyRecord
from ledger.verification.memory import Memory, Remembered
from ledger.verification.reader import open_verified
from ledger.verification.verified_notes import parse_vkey
from ledger.wording import counted
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.options import HOME, Argument, HomeOption, SigningKeyOption, VkeyOption
from proctor.errors import ProctorError
from proctor.home import Home, passphrase
from proctor.inputs import open_vkey, operator_key, read_vkey_file
from proctor.output.columns import field, fields
from proctor.output.shape import Answer
from proctor.output.terminal import plain, print_rows
from proctor.remembering import open_remembered, tables
from proctor.state import STATE, memory

app = CommandGroup("keys", "Manage a ledger's keys: list, make, grant, revoke, rotate, accept.")

RoleArgument = Annotated[
    Literal["judge", "operator", "publisher", "witness"], "Role of the key.", Argument("ROLE")
]
VkeyArgument = Annotated[Path, "File with the public key.", Argument("VKEYFILE")]


class Revocation(Answer):
    """A revocation of a key."""

    index: int
    since: str
    reason: str


class Key(Answer, rename={"from_": "from"}):
    """A key with the entries at which it is in force."""

    role: str
    key_id: str
    vkey: str
    from_: int  # first entry at which it was in force
    to: int | None  # None: it is in force
    revocations: list[Revocation]


class NewKey(Answer):
    """A key that was made."""

    key: Path
    vkey_file: Path
    vkey: str


class Granted(Answer):
    """A key that was granted a role."""

    granted: str
    role: str
    index: int


class Revoked(Answer):
    """A key that was revoked."""

    revoked: str
    role: str
    index: int


class Rotated(Answer):
    """The new key of the ledger."""

    rotated: str


class Accepted(Answer):
    """The keys that a place has had, and has; how many entries were seen, and are there."""

    place: Path
    known: list[str]
    now: str
    entries: int
    accepted: bool
    seen: int | None  # of this ledger, by this user; null: it is new to this user


@app.command("list", prints=list[Key])
def list_(home: Home) -> Output:
    """List all keys with the entries at which they were in force, and revocations."""
    with open_remembered(home) as ledger:
        keys = [_told(key) for key in ledger.authority.keys]
    columns = [
        *fields("role", "key id"),
        field("in force from", "from_"),
        field("to", lambda key: "now" if key.to is None else key.to),
        field("revoked", _told_revocations),
    ]
    return Output(keys, lambda: print_rows(columns, keys))


@app.command(prints=NewKey)
def new(
    role: RoleArgument,
    file: Annotated[Path, "New file for the private key.", Argument("FILE")],
    name: Annotated[str | None, "Name of the key; by default its role."] = None,
) -> Output:
    """Make a key: the private key in FILE, the public key in FILE.vkey."""
    name = name or role
    if not re.fullmatch(r"[!-*,-~]+", name):
        raise ProctorError(f"{name!r} cannot be a key's name: it holds blanks, plus, or the like")
    if file.exists():
        raise ProctorError(f"{file} already exists; give a new file for the new key")
    key = load_or_create_key(file, role=role, passphrase=passphrase())
    text = vkey_of(name, public_bytes(key), role=role)
    beside = file.with_name(f"{file.name}.vkey")
    if not create_exclusively(beside, f"{text}\n".encode(), mode=0o644):
        raise ProctorError(f"{beside} is there already, and is another key's")
    return Output(NewKey(key=file, vkey_file=beside, vkey=text), text)


@app.command(prints=Granted)
def grant(
    home: Home,
    role: RoleArgument,
    file: VkeyArgument,
    key: SigningKeyOption = None,
) -> Output:
    """Grant a key a role from now on."""
    text, public_key = open_vkey(file, role)
    with _opened(home) as (recorder, _):
        number = recorder.grant_key(text, role=role, author=operator_key(key))
    return _changed(Granted(granted=_key_id(public_key), role=role, index=number - 1))


@app.command(prints=Revoked)
def revoke(
    home: Home,
    file: VkeyArgument,
    since: Annotated[str, "Time from which the key is not trusted: `now`, or ISO 8601."],
    reason: Annotated[str, "Reason."],
    key: SigningKeyOption = None,
    yes: Annotated[bool, "Allow revoking an expired key or the last operator's key."] = False,
) -> Output:
    """Revoke a key from a given time, which may be in the past."""
    text, public_key = open_vkey(file, None)
    moment = _time_ns(since)
    with _opened(home) as (recorder, authority):
        record = next((each for each in authority.keys if each.vkey == text), None)
        if record is None:
            raise ProctorError(
                f"{file}: this key never stood in the ledger; see `proctor keys list`"
            )
        if not yes:
            _check_meant(record, authority)
        number = recorder.revoke_key(
            text, role=record.role, since=moment, reason=reason, author=operator_key(key)
        )
    return _changed(Revoked(revoked=_key_id(public_key), role=record.role, index=number - 1))


@app.command(prints=Rotated)
def rotate(home: Home) -> Output:
    """Replace the ledger's private key; both keys sign, and the old one is deleted."""
    with _opened(home) as (recorder, _):
        text = recorder.rotate_key()
    return _changed(Rotated(rotated=_key_id(parse_vkey(text).public_key)))


@app.command(prints=Accepted)
def accept(
    place: HomeOption = HOME,
    vkey: VkeyOption = None,
    yes: Annotated[bool, "Trust the key that the ledger has now."] = False,
) -> Output:
    """Trust another ledger, or an older copy, in the place of one that you know.

    Shows both; with --yes it is done. The ledger is verified first. With --vkey it must be that of
    this key.
    """
    home = Home(place, vkey=read_vkey_file(vkey))
    home.require_ledger()
    known, directory = memory(), home.ledger
    if known is None:
        raise ProctorError(f"{STATE} is off: no keys of ledgers are remembered")
    with open_verified(directory, vkey=home.vkey) as ledger:
        now, size = ledger.vkey, ledger.size
    others, recalled = known.places.others(directory, now), known.recall(now)
    told = Accepted(
        place=directory,
        known=others,
        now=now,
        entries=size,
        accepted=yes,
        seen=None if recalled is None else recalled.state.size,
    )
    if recalled is not None and recalled.state.size > size:
        return _accept_older(home, known, told, recalled)
    if not others:
        return Output(told, f"{directory} has no other key than the one that you know: {now}")
    if yes:
        known.places.keep(directory, now)
    lines = [
        f"{directory}: another ledger is in this place, of {counted(size, 'entry')}",
        *(f"  the key that you know: {each}" for each in others),
        f"  its key now:           {now}",
        "A rotation keeps the key that names a ledger: this is not the same ledger. Nothing shows "
        "that its entries have to do with those that you read here before.",
        f"accepted: {now} is trusted in this place from now on"
        if yes
        else "nothing was changed: ask its owner for the key, then give --yes to trust it",
    ]
    return Output(told, "\n".join(lines), found=not yes)


def _accept_older(home: Home, known: Memory, told: Accepted, seen: Remembered) -> Output:
    """Show that a ledger is behind what was seen of it, or forget what was seen."""
    if told.accepted:
        known.forget(seen.vkey)
        known.places.keep(home.ledger, seen.vkey)
        for unverified in (False, True):
            tables(home, unverified=unverified).unlink(missing_ok=True)
    lost = counted(seen.state.size - told.entries, "entry")
    lines = [
        f"{home.ledger}: you have seen {counted(seen.state.size, 'entry')} of this ledger, and "
        f"{told.entries} are here: {lost} at its end are missing",
        *(f"  and another ledger was in this place, with the key {each}" for each in told.known),
        "A copy that is older, and a ledger that somebody has cut off, look the same. Whoever has "
        "seen the later entries will refuse what is appended now.",
        "accepted: the older state is trusted from now on"
        if told.accepted
        else "nothing was changed: if you put the older copy back, give --yes",
    ]
    return Output(told, "\n".join(lines), found=not told.accepted)


@contextmanager
def _opened(home: Home) -> Iterator[tuple[SignedRecorder, Authority]]:
    """Give the recorder, in this process: a notary's ledger is its own user's to rule."""
    with open_remembered(home) as ledger:
        authority = ledger.authority
    with home.open_log() as log:
        if not isinstance(log.recorder, SignedRecorder):
            raise ProctorError(
                "a notary keeps this ledger; let its own user do this, without PROCTOR_NOTARY"
            )
        yield log.recorder, authority


def _check_meant(record: KeyRecord, authority: Authority) -> None:
    """Refuse a revocation that may be a slip; none can be taken back."""
    if record.revocations:
        raise ProctorError(
            f"this key was revoked in entry {record.ended}; to revoke it once more, give --yes"
        )
    if record.ended is not None:
        raise ProctorError(
            f"this key was rotated out in entry {record.ended} and signs nothing any more; in "
            f"force is {authority.vkey}. To put what it signed in doubt all the same, give --yes"
        )
    operators = [key for key in authority.keys if key.role == "operator" and key.ended is None]
    if operators == [record]:
        raise ProctorError(
            "this is the last operator: none would be left to grant and revoke judges and "
            "witnesses. Grant another first, or give --yes"
        )


def _key_id(public_key: bytes) -> str:
    return hashlib.sha256(public_key).hexdigest()


def _time_ns(text: str) -> int:
    now = time.time_ns()
    if text == "now":
        return now
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ProctorError(f"--since {text}: give now, or a time like 2026-11-21T04:30Z") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = datetime_to_ns(moment)
    if since > now:
        raise ProctorError(f"--since {text} is yet to come; a time without a zone is taken as UTC")
    return since


def _told(key: KeyRecord) -> Key:
    return Key.of(
        key,
        key_id=key.key_id.hex(),
        from_=0 if key.granted is None else key.granted + 1,
        to=key.ended,
        revocations=[
            Revocation.of(each, since=f"{ns_to_datetime(each.since):%Y-%m-%dT%H:%M:%SZ}")
            for each in key.revocations
        ],
    )


def _told_revocations(key: Key) -> str:
    return "; ".join(f"since {each.since}: {each.reason}" for each in key.revocations)


def _changed(done: Granted | Revoked | Rotated) -> Output:
    return Output(done, ", ".join(f"{what} {value}" for what, value in plain(done).items()))
