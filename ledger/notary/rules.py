"""Who may do what at a notary, by user id.

Source: docs/reference/notary.md, "Rules".
Trust: the rules are the administrator's; their file may be written by nobody else.
I/O: the rules file; the system's accounts, for names.
"""

import os
import pwd
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, ValidationError, convert

from ledger.errors import MalformedError, RulesError, StorageError
from ledger.files import open_regular
from ledger.verification.verified_notes import parse_vkey

_NOBODY = 65_534  # what the kernel reports for users of other namespaces, whoever they are
_MAX_FILE = 1_000_000  # bytes
_BLOB_BYTES = 10 << 30  # 10 GiB


class User(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"uid": "user"}):
    """What one user id may do; everybody listed may read."""

    uid: int
    append: tuple[str, ...] = ()  # event names, or beginnings: "run.*"
    roles: tuple[str, ...] = ()  # in which they may sign events as author
    others: bool = False  # may append to streams that another user began
    cosign: bool = False  # may add witnesses' lines to tree heads
    witnesses: tuple[str, ...] = ()  # vkeys of those who need not be granted in the ledger
    blob_bytes: Annotated[int, Meta(ge=0)] = _BLOB_BYTES  # of all their blobs together

    def __post_init__(self) -> None:
        """Raise ValueError for a name or a vkey of another form."""
        for name in (*self.append, *self.roles):
            if not name or "*" in name[:-1]:
                raise ValueError(f"invalid event name {name!r}; a * is allowed only at the end")
        for vkey in self.witnesses:
            try:
                parse_vkey(vkey, role="witness")
            except MalformedError as e:
                raise ValueError(f"witnesses: {vkey!r}: {e}") from e

    def may_append(self, name: str) -> bool:
        """Tell whether this user may append events of this name."""
        return any(
            name.startswith(each[:-1]) if each.endswith("*") else name == each
            for each in self.append
        )


def read_rules(path: Path, *, owners: tuple[int, ...] = (0,)) -> Mapping[int, User]:
    """Return the rules in a file that only one of `owners` can write; raise RulesError."""
    try:
        with open_regular(path) as file:
            status = os.fstat(file.fileno())
            text = file.read(_MAX_FILE).decode()
    except (OSError, StorageError, UnicodeDecodeError) as e:
        raise RulesError(f"{path}: the rules cannot be read: {e}") from e
    if status.st_uid not in owners or status.st_mode & 0o022:
        raise RulesError(
            f"{path}: other users can write this file; make root or the notary's user its owner, "
            "and run chmod go-w on it"
        )
    return parse_rules(text, where=str(path))


def parse_rules(text: str, *, where: str = "rules") -> Mapping[int, User]:
    """Return the rules by user id; raise RulesError naming what is wrong."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise RulesError(f"{where}: this is not TOML: {e}") from e
    listed = document.pop("user", None)
    if document or not isinstance(listed, list) or not listed:
        raise RulesError(
            f"{where}: the file must have at least one [[user]] table and nothing else"
        )
    users: dict[int, User] = {}
    for number, table in enumerate(listed, start=1):
        user = _user(table, where=f"{where}: user {number}")
        if user.uid in users:
            raise RulesError(f"{where}: user {number}: {user.uid} is listed twice")
        users[user.uid] = user
    return users


def _user(table: object, *, where: str) -> User:
    if not isinstance(table, dict):
        raise RulesError(f"{where}: this is not a table")
    uid = _uid(table.get("user"), where=where)
    try:
        return convert({**table, "user": uid}, User)
    except ValidationError as e:
        known = ", ".join(User.__struct_encode_fields__)
        raise RulesError(f"{where}: {e}; known keys: {known}") from e


def _uid(user: object, *, where: str) -> int:
    if isinstance(user, str):
        try:
            user = pwd.getpwnam(user).pw_uid
        except KeyError:
            raise RulesError(f"{where}: account {user!r} not found on this machine") from None
    if type(user) is not int or not 0 <= user < 2**32 - 1:
        raise RulesError(f"{where}: user must be an account name or a user id")
    if user == _NOBODY:
        raise RulesError(
            f"{where}: user id {_NOBODY} is not allowed: it stands for any user of "
            "another namespace"
        )
    return user
