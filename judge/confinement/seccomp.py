"""System-call filters: what a process gives up before it runs untrusted code.

Filters exist on Linux on x86-64 only; elsewhere the caller is told that there is none. Two are
declared. SUBMISSION refuses any new process or program, socket, signal to others, opening for
writing and change of the file system. CANDIDATE is for a process in namespaces of its own: it may
use processes, files and some sockets, and nothing that reaches beyond its namespaces.

Source: Linux seccomp(2), linux/filter.h.
Not covered: what the process may read; see judge/confinement/landlock.py.
I/O: changes the calling process.
"""

import ctypes
import os
import platform
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from judge.confinement.kernel import LIBC, NO_NEW_PRIVILEGES

_X86_64 = {
    "vfork": 58,
    "fork": 57,
    "execve": 59,
    "execveat": 322,
    "socket": 41,
    "kill": 62,
    "tkill": 200,
    "tgkill": 234,
    "rt_sigqueueinfo": 129,
    "rt_tgsigqueueinfo": 297,
    "pidfd_open": 434,
    "pidfd_send_signal": 424,
    "ptrace": 101,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "creat": 85,
    "truncate": 76,
    "rename": 82,
    "renameat": 264,
    "renameat2": 316,
    "link": 86,
    "linkat": 265,
    "symlink": 88,
    "symlinkat": 266,
    "unlink": 87,
    "unlinkat": 263,
    "mkdir": 83,
    "mkdirat": 258,
    "rmdir": 84,
    "mknod": 133,
    "mknodat": 259,
    "chmod": 90,
    "fchmod": 91,
    "fchmodat": 268,
    "fchmodat2": 452,
    "chown": 92,
    "fchown": 93,
    "lchown": 94,
    "fchownat": 260,
    "setrlimit": 160,
    "setxattr": 188,
    "lsetxattr": 189,
    "utime": 132,
    "utimes": 235,
    "utimensat": 280,
    "mount": 165,
    "umount2": 166,
    "pivot_root": 155,
    "chroot": 161,
    "unshare": 272,
    "setns": 308,
    "bpf": 321,
    "reboot": 169,
    "init_module": 175,
    "finit_module": 313,
    "settimeofday": 164,
    "clock_settime": 227,
    "io_uring_setup": 425,
    "shmget": 29,
    "add_key": 248,
    "request_key": 249,
    "keyctl": 250,
    "open_by_handle_at": 304,
    "pidfd_getfd": 438,
}
# Out of a namespace, around the limits, or into parts of the kernel that nobody needs for work.
_BEYOND = {
    **{
        name: _X86_64[name]
        for name in (
            "add_key",
            "bpf",
            "chroot",
            "clock_settime",
            "finit_module",
            "init_module",
            "io_uring_setup",
            "keyctl",
            "mount",
            "open_by_handle_at",
            "pivot_root",
            "reboot",
            "request_key",
            "setns",
            "settimeofday",
            "shmget",
            "umount2",
            "unshare",
        )
    },
    "acct": 163,
    "adjtimex": 159,
    "clock_adjtime": 305,
    "delete_module": 176,
    "fanotify_init": 300,
    "fsconfig": 431,
    "fsmount": 432,
    "fsopen": 430,
    "fspick": 433,
    "ioperm": 173,
    "iopl": 172,
    "kexec_file_load": 320,
    "kexec_load": 246,
    "memfd_create": 319,  # memory that no limit counts
    "memfd_secret": 447,
    "mount_setattr": 442,
    "move_mount": 429,
    "open_tree": 428,
    "perf_event_open": 298,
    "quotactl": 179,
    "swapoff": 168,
    "swapon": 167,
    "syslog": 103,
    "userfaultfd": 323,
}
_SOCKET = _X86_64["socket"]
_OPEN, _OPENAT, _CLONE, _CLONE3, _OPENAT2, _PRLIMIT = 2, 257, 56, 435, 437, 302
_SECCOMP = 317
_AUDIT_ARCH_X86_64 = 0xC000003E
_CLONE_THREAD = 0x10000
_CLONE_NEW = 0x7E020000  # mounts, cgroup, names, shared memory, users, processes, network
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF codes
_ALLOW, _KILL, _EPERM, _ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data


@dataclass(frozen=True, kw_only=True)
class Filter:
    """What of the kernel a process keeps; the rest it gives up for good."""

    refused: Mapping[str, int]  # system calls, by name: number
    unknown: tuple[int, ...]  # their flags lie in memory, so that their callers fall back
    writing: bool  # files may be opened for writing
    processes: bool  # may be started, in the namespaces that there are
    limits: bool  # may be set
    families: tuple[int, ...]  # of sockets; their kinds and addresses are not looked at


SUBMISSION = Filter(
    refused=_X86_64,
    unknown=(_CLONE3, _OPENAT2),
    writing=False,
    processes=False,
    limits=False,
    families=(),
)
CANDIDATE = Filter(  # is in namespaces of its own
    refused=_BEYOND,
    unknown=(_CLONE3,),
    writing=True,
    processes=True,
    limits=True,
    families=(socket.AF_UNIX, socket.AF_INET, socket.AF_INET6),
)


def filter_system_calls(wanted: Filter) -> bool:
    """Install a filter on all threads; return whether it is in force."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    program = b"".join(_program(wanted))
    code = ctypes.create_string_buffer(program)
    # struct sock_fprog: a length in instructions, padding, a pointer.
    header = ctypes.create_string_buffer(
        struct.pack("@HxxxxxxQ", len(program) // 8, ctypes.addressof(code))
    )
    # SECCOMP_SET_MODE_FILTER and SECCOMP_FILTER_FLAG_TSYNC are 1.
    return not (LIBC.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) or LIBC.syscall(_SECCOMP, 1, 1, header))


def _program(wanted: Filter) -> Iterator[bytes]:
    yield _line(_LOAD, _ARCH)
    yield _line(_EQUAL, _AUDIT_ARCH_X86_64, 1, 0)
    yield _line(_RETURN, _KILL)
    yield _line(_LOAD, _NUMBER)
    yield _line(_AT_LEAST, 0x40000000, 0, 1)  # the x32 interface, with numbers of its own
    yield _line(_RETURN, _EPERM)
    for number in wanted.unknown:
        yield from (_line(_EQUAL, number, 0, 1), _line(_RETURN, _ENOSYS))
    for number in wanted.refused.values():
        yield from (_line(_EQUAL, number, 0, 1), _line(_RETURN, _EPERM))
    if not wanted.writing:
        yield from _unless(_OPEN, 1, _line(_ANY_BIT, _WRITING, 0, 1))
        yield from _unless(_OPENAT, 2, _line(_ANY_BIT, _WRITING, 0, 1))
    if wanted.processes:
        yield from _unless(_CLONE, 0, _line(_ANY_BIT, _CLONE_NEW, 0, 1))
    else:
        yield from _unless(_CLONE, 0, _line(_ANY_BIT, _CLONE_THREAD, 1, 0))
    if not wanted.limits:  # reading limits is fine, setting them is not
        yield _line(_EQUAL, _PRLIMIT, 0, 6)
        yield _line(_LOAD, _ARGUMENTS + 16)
        yield _line(_EQUAL, 0, 0, 2)
        yield _line(_LOAD, _ARGUMENTS + 20)
        yield _line(_EQUAL, 0, 1, 0)
        yield from (_line(_RETURN, _EPERM), _line(_RETURN, _ALLOW))
    if wanted.families:
        yield _line(_EQUAL, _SOCKET, 0, 2 + 2 * len(wanted.families))
        yield _line(_LOAD, _ARGUMENTS)
        for family in wanted.families:
            yield from (_line(_EQUAL, family, 0, 1), _line(_RETURN, _ALLOW))
        yield _line(_RETURN, _EPERM)
    yield _line(_RETURN, _ALLOW)


def _unless(number: int, argument: int, test: bytes) -> Iterator[bytes]:
    """Refuse a call whose argument meets the test, and allow any other."""
    yield _line(_EQUAL, number, 0, 4)
    yield _line(_LOAD, _ARGUMENTS + 8 * argument)
    yield from (test, _line(_RETURN, _EPERM), _line(_RETURN, _ALLOW))


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
