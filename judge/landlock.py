"""Reading a few folders only: what a process that runs foreign code may still open.

The rest of the file system is closed to it, /proc with the secrets of other processes included, and
so are the memory of processes outside and, with newer kernels, TCP and signals to them.

Source: Linux landlock(7), linux/landlock.h.
Not covered: names, sizes and times of files can still be asked for.
I/O: changes the calling thread and the threads that it starts, for good.
"""

import ctypes
import os
import platform
import stat
import struct
import sys
import sysconfig
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # on every architecture
_NO_NEW_PRIVS = 38
_PATH_BENEATH = 1
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
# By the version of the interface that brought them; a kernel refuses what it does not know.
_FILE_RIGHTS = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
_NET_RIGHTS = {4: 0b11}  # bind and connect
_SCOPES = {6: 0b11}  # abstract sockets and signals
_PACKAGES = (
    "aggregates",
    "judge",
    "monitor",
)  # what an honest model.py imports, and what that does
_SYSTEM = (
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/etc/ld.so.cache",
    "/dev/null",
    "/dev/urandom",
    "/proc/cpuinfo",  # torch asks which instructions there are
    "/sys/devices/system/cpu",
)


def readable_places() -> tuple[Path, ...]:
    """Return what Python, torch and our own packages are read from."""
    places = [Path(place) for place in _SYSTEM]
    places += [Path(base) / "lib" for base in (sys.prefix, sys.base_prefix)]
    places += [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]
    # The packages one by one: where they are installed in place, a ledger may lie beside them.
    for name in _PACKAGES:
        spec = find_spec(name)
        places += [Path(place) for place in (spec and spec.submodule_search_locations) or ()]
    return tuple(dict.fromkeys(places))


def hide_files(readable: Iterable[Path]) -> bool:
    """Leave nothing but `readable` to be opened, and that for reading; return whether it holds.

    Files that are open stay open. Other threads that run already are not bound by it, so it only
    holds in a process of one thread.
    """
    if platform.system() != "Linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, 0, 1)
    if version < 1:
        return False
    handled = struct.pack(
        "=QQQ", *(_known(rights, version) for rights in (_FILE_RIGHTS, _NET_RIGHTS, _SCOPES))
    )
    ruleset = libc.syscall(_CREATE_RULESET, handled, len(handled), 0)
    if ruleset < 0:
        return False
    alone = len(list(Path("/proc/self/task").iterdir())) == 1
    try:
        for place in readable:
            _allow_reading(libc, ruleset, place)
        refused = libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.syscall(_RESTRICT_SELF, ruleset, 0)
        return alone and not refused
    finally:
        os.close(ruleset)


def _known(rights: dict[int, int], version: int) -> int:
    return sum(bits for since, bits in rights.items() if since <= version)


def _allow_reading(libc: ctypes.CDLL, ruleset: int, place: Path) -> None:
    try:
        descriptor = os.open(place, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # not on this machine: nothing to allow
        return
    try:
        folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        rights = _READ_FILE | (_READ_DIR if folder else 0)
        # A rule that fails allows nothing, which is the safe side.
        libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, descriptor), 0)
    finally:
        os.close(descriptor)
