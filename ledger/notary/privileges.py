"""Becoming another user for good, and hiding from everybody else.

Source: Linux credentials(7), prctl(2), proc(5).
I/O: this process's own credentials and limits; the system's accounts.
"""

import ctypes
import os
import pwd
import resource
from pathlib import Path

from ledger.errors import PrivilegeError

Account = tuple[int, int]
"""A user id and a group id."""

_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38


def find_account(name: str) -> Account:
    """Return an account by name or number; a number needs no account, and is its own group."""
    try:
        found = pwd.getpwuid(int(name)) if name.isdecimal() else pwd.getpwnam(name)
    except KeyError:
        if not name.isdecimal():
            raise PrivilegeError(f"account {name!r} not found on this machine") from None
        return int(name), int(name)
    return found.pw_uid, found.pw_gid


def give_folder(path: Path, account: Account, *, mode: int) -> None:
    """Make a folder for an account, or see that the one there is its own; raise PrivilegeError."""
    try:
        path.mkdir(mode=mode)
    except FileExistsError:
        found = path.lstat()
        if not path.is_dir() or path.is_symlink() or found.st_uid != account[0]:
            raise PrivilegeError(
                f"{path}: this is not a folder owned by user {account[0]}"
            ) from None
        return
    except OSError as e:
        raise PrivilegeError(f"{path}: the folder cannot be made: {e.strerror}") from e
    os.chown(path, *account, follow_symlinks=False)
    path.chmod(mode)


def become(account: Account) -> None:
    """Give up root for an account, without a way back; raise PrivilegeError."""
    uid, gid = account
    if uid == 0:
        raise PrivilegeError("root can read everything; name another user")
    try:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    except OSError as e:
        raise PrivilegeError(f"this process cannot become user {uid}: {e.strerror}") from e
    if os.getresuid() != (uid,) * 3 or os.getresgid() != (gid,) * 3 or os.getgroups():
        raise PrivilegeError(f"this process did not become user {uid}")


def harden() -> None:
    """Keep others, of the same user too, out of this process's memory; make files private."""
    libc = ctypes.CDLL(None, use_errno=True)
    for option, value in ((_PR_SET_DUMPABLE, 0), (_PR_SET_NO_NEW_PRIVS, 1)):
        if libc.prctl(option, value, 0, 0, 0):
            raise PrivilegeError(f"prctl({option}) failed: {os.strerror(ctypes.get_errno())}")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(0o077)
