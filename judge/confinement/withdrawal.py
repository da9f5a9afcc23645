"""What a process that runs submitted code gives up: its user, the host's namespaces, files, calls.

Each step is taken where the kernel and the installation allow it. Where they do not, the process
goes on without it and says so: a submission is judged in containers that allow none of this, too.

Source: Linux user_namespaces(7), pid_namespaces(7), capabilities(7).
Trust: runs before anything foreign does.
I/O: changes the calling process, which may be another one afterwards.
"""

import os
import platform
import pwd
import resource
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from judge.confinement.kernel import (
    LIBC,
    PARENT_DEATH_SIGNAL,
    SET_DUMPABLE,
    drop_capabilities,
    lower_limit,
)
from judge.confinement.landlock import hide_files
from judge.confinement.namespaces import become_stranger, bound_tasks, keep_only, leave_all
from judge.confinement.seccomp import SUBMISSION, filter_system_calls

Step = Literal["unprivileged user", "own namespaces"]
# The numbers that systemd gives to users that live as long as their service. All are below 65,536:
# a container may have no others.
_FREE_USERS = range(61_184, 65_520)
THREADS = 256  # more than the user has when the process begins


def give_up(
    readable: Sequence[Path], *, root: Path, memory_bytes: int, threads: int | None = THREADS
) -> list[str]:
    """Leave all that can be left, for good and in this order; return what holds from now on.

    Limits of the process itself come before: kernel.limit_resources(). `root` is an empty folder,
    `memory_bytes` what may be mapped besides, `threads` what the user may have besides, if that is
    limited. Open files stay open.
    """
    in_force: list[str] = []
    if platform.system() == "Linux":
        others = None if threads is None else count_tasks()
        in_force += withdraw(readable, root=root)
        limit_address_space(memory_bytes)
        if threads is not None and others is not None:
            lower_limit(resource.RLIMIT_NPROC, others + threads)  # of the user on the machine
    if hide_files(readable):
        in_force.append("hidden files")
    if filter_system_calls(SUBMISSION):
        in_force.append("system-call filter")
    return in_force


def withdraw(readable: Sequence[Path], *, root: Path) -> list[Step]:
    """Leave what can be left; return what was. `root` is an empty folder.

    The caller goes on in a new process if that could have processes of its own. The old process
    stays until the new one ends, and ends alike. Nothing of `readable` is given up: root stays
    root, without its capabilities, where another user could not read that.
    """
    done: list[Step] = []
    separate = _leave_namespaces(readable, root, users=os.geteuid() != 0)
    if os.geteuid() != 0 or _leave_root(readable):
        done.append("unprivileged user")
    # In a container, root may be allowed no namespaces but those of a user of its own.
    if separate or (separate := _leave_namespaces(readable, root, users=True)):
        done.append("own namespaces")
    drop_capabilities()
    LIBC.prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL * separate, 0, 0, 0)
    return done


def limit_address_space(memory_bytes: int) -> None:
    """Let this process map as much again, of whatever kind, and no more."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    lower_limit(resource.RLIMIT_AS, pages * resource.getpagesize() + memory_bytes)


def count_tasks() -> int:
    """Return how many threads this user has on the machine, as far as can be seen."""
    own, found = str(os.getuid()), 0
    for process in (path for path in Path("/proc").iterdir() if path.name.isdigit()):
        with suppress(OSError):
            lines = (process / "status").read_text("ascii", "replace").splitlines()
            told = {key: rest.split() for key, _, rest in (line.partition(":") for line in lines)}
            if told.get("Uid", [""])[0] == own:
                found += int(told.get("Threads", ["0"])[0])
    return found


def _leave_root(readable: Sequence[Path]) -> bool:
    """Become a user whom nothing belongs to; return whether that was possible."""
    user = _free_user()
    there = [place for place in readable if os.access(place, os.R_OK)]
    try:
        os.setgroups([])
        os.setresgid(user, user, 0)
        os.setresuid(user, user, 0)
    except OSError:  # a container of fewer users, or root without its capabilities
        return False
    seen = all(os.access(place, os.R_OK) for place in there)
    if not seen:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
        return False
    os.setresuid(-1, 0, -1)
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    LIBC.prctl(SET_DUMPABLE, 1, 0, 0, 0)  # else its own files in /proc would be root's
    return True


def _free_user() -> int:
    taken = {account.pw_uid for account in pwd.getpwall()}
    free = [user for user in _FREE_USERS if user not in taken] or list(_FREE_USERS)
    return free[os.getpid() % len(free)]


def _leave_namespaces(readable: Sequence[Path], root: Path, *, users: bool) -> bool:
    try:
        if users:
            become_stranger(processes=False)
        leave_all()
    except OSError:
        return False
    _fork()
    with suppress(OSError):  # the user's limit is there too
        bound_tasks(THREADS)
    with suppress(OSError):  # Landlock hides files, too
        keep_only(root, seen=readable)
    return True


def _fork() -> None:
    """Go on in a child, the first of its own processes; wait for its end, and end alike."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    child = os.fork()
    if child == 0:
        return
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        with suppress(OSError):  # of those that cannot be handled
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
