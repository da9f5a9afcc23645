"""The C library, the flags of prctl(2), and the limits of a process.

I/O: changes the calling process.  Units: bytes, seconds.
"""

import ctypes
import os
import resource
import struct

PARENT_DEATH_SIGNAL = 1
GET_DUMPABLE, SET_DUMPABLE = 3, 4
NO_NEW_PRIVILEGES = 38
_CAPABILITIES_3 = 0x20080522  # the version of capset(2)'s structures
LIBC = ctypes.CDLL(None, use_errno=True)


def checked(call: "ctypes._NamedFuncPointer", *arguments: object) -> None:
    """Call a function of the C library; raise OSError where it returns anything but 0."""
    if call(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def drop_capabilities() -> None:
    """Give up all capabilities; without executing a program, nothing gives them back."""
    header = struct.pack("=Ii", _CAPABILITIES_3, 0)
    checked(LIBC.capset, header, bytes(24))  # none effective, permitted or inheritable


def limit_resources(
    *, cpu_seconds: int, memory_bytes: int, file_bytes: int, open_files: int = 256
) -> None:
    """Lower this process's limits; none of them can be raised again without privilege."""
    for what, amount in (
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_DATA, memory_bytes),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_NOFILE, open_files),
        (resource.RLIMIT_CORE, 0),
    ):
        lower_limit(what, amount)


def lower_limit(what: int, amount: int) -> None:
    """Lower one limit of this process, for good, unless it is lower."""
    _, hard = resource.getrlimit(what)
    bound = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
    resource.setrlimit(what, (bound, bound))
