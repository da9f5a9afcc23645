"""Restricts a process that runs untrusted code to a few folders.

The rest of the file system is closed to it, /proc with the secrets of other processes included, and
so are the memory of processes outside and, with newer kernels, TCP and signals to them.

Source: Linux landlock(7), linux/landlock.h.
Not covered: names, sizes and times of files can still be asked for.
I/O: changes the calling thread and the threads that it starts, for good.
"""

import os
import platform
import stat
import struct
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path

from judge.confinement.kernel import LIBC, NO_NEW_PRIVILEGES

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # on every architecture
_PATH_BENEATH = 1
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_OF_FILES = 0b111 | 1 << 14 | 1 << 15  # the rights that a rule for a file can give
LIST = _READ_DIR
READ = _READ_FILE | _READ_DIR
RUN = READ | 1  # programs, too
WRITE = RUN | 1 << 1 | 0b1_1111_1111 << 4 & ~(1 << 6 | 1 << 11) | 0b11 << 13  # no devices are made
USE = READ | 1 << 1 | 1 << 15  # of devices: to write to them and to set them
# By the version of the interface that brought them; a kernel refuses what it does not know.
_FILE_RIGHTS = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
_NET_RIGHTS = {4: 0b11}  # bind and connect
_SCOPES = {6: 0b11}  # abstract sockets and signals
_PACKAGES = (
    "aggregates",
    "judge",
    "monitor",
)  # what an honest model.py imports, and what that does
PROGRAM_PLACES = (
    Path("/bin"),
    Path("/etc/host.conf"),
    Path("/etc/hosts"),
    Path("/etc/localtime"),
    Path("/etc/nsswitch.conf"),
    Path("/usr/bin"),
    Path("/usr/libexec"),
    Path("/usr/share"),
)
"""What the system's programs, and looking up a name or the time, are read from."""
SYSTEM_PLACES = (
    Path("/lib"),
    Path("/lib64"),
    Path("/usr/lib"),
    Path("/usr/lib64"),
    Path("/usr/local/lib"),
    Path("/etc/ld.so.cache"),
    Path("/dev/null"),
    Path("/dev/urandom"),
    Path("/proc/cpuinfo"),  # torch asks which instructions there are
    Path("/sys/devices/system/cpu"),
)
"""What programs of any kind are read from."""


def readable_places(*, ours: bool = True) -> tuple[Path, ...]:
    """Return what Python, torch and, if asked for, our own packages are read from."""
    places = [*SYSTEM_PLACES]
    places += [Path(base) / "lib" for base in (sys.prefix, sys.base_prefix)]
    places += [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]
    places += package_folders()
    # The packages one by one: where they are installed in place, a ledger may lie beside them.
    for name in _PACKAGES if ours else ():
        spec = find_spec(name)
        places += [Path(place) for place in (spec and spec.submodule_search_locations) or ()]
    return tuple(dict.fromkeys(places))


def package_folders() -> tuple[Path, ...]:
    """Return the folders that this interpreter finds third-party packages in."""
    names = ("site-packages", "dist-packages")
    return tuple(path for path in map(Path, sys.path) if path.name in names and path.is_dir())


def hide_files(readable: Iterable[Path]) -> bool:
    """Leave nothing but `readable` to be opened, and that for reading; return whether it holds.

    Files that are open stay open. Other threads that run already are not bound by it, so it only
    holds in a process of one thread.
    """
    if platform.system() != "Linux":
        return False
    alone = len(list(Path("/proc/self/task").iterdir())) == 1
    return restrict(dict.fromkeys(readable, READ)) and alone


def restrict(allowed: Mapping[Path, int], *, tcp: bool = False) -> bool:
    """Leave these places to this thread, each for its rights; return whether it holds.

    Rights are LIST, READ, RUN, WRITE and USE. With `tcp`, TCP is left as it is: for a process in a
    network of its own.
    """
    if platform.system() != "Linux":
        return False
    version = LIBC.syscall(_CREATE_RULESET, None, 0, 1)
    if version < 1:
        return False
    files, net = _known(_FILE_RIGHTS, version), 0 if tcp else _known(_NET_RIGHTS, version)
    handled = struct.pack("=QQQ", files, net, _known(_SCOPES, version))
    ruleset = LIBC.syscall(_CREATE_RULESET, handled, len(handled), 0)
    if ruleset < 0:
        return False
    try:
        for place, rights in allowed.items():
            _allow(ruleset, place, rights & files)
        return not (
            LIBC.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) or LIBC.syscall(_RESTRICT_SELF, ruleset, 0)
        )
    finally:
        os.close(ruleset)


def _known(rights: dict[int, int], version: int) -> int:
    return sum(bits for since, bits in rights.items() if since <= version)


def _allow(ruleset: int, place: Path, rights: int) -> None:
    try:
        descriptor = os.open(place, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # not on this machine: nothing to allow
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _OF_FILES
        # A rule that fails allows nothing, which is the safe side.
        LIBC.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, descriptor), 0)
    finally:
        os.close(descriptor)
