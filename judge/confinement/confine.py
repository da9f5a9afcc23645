"""Permanently drops the rights of a process before it runs untrusted code.

Limits hold everywhere. On Linux on x86-64 a system-call filter is added: no new process or program,
no socket, no signal to others, nothing opened for writing, no change of the file system. A second
filter is for whoever has namespaces of its own: it leaves processes, files and some sockets, and
takes what reaches beyond. Elsewhere the limits stand alone, and the caller is told so.

Source: Linux seccomp(2), setrlimit(2), linux/filter.h.
Not covered: what the process may read; see judge/confinement/landlock.py.
I/O: changes the calling process.  Units: bytes, seconds.
"""

import ctypes
import os
import platform
import resource
import struct
from collections.abc import Iterable

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
        _, hard = resource.getrlimit(what)
        bound = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
        resource.setrlimit(what, (bound, bound))


def filter_system_calls() -> bool:
    """Install the filter on all threads; return whether it is in force."""
    return _install(_program())


def filter_beyond(families: Iterable[int]) -> bool:
    """Install the filter for a process in namespaces of its own; return whether it is in force.

    Sockets are of these address families only; their kinds and addresses are not looked at.
    """
    return _install(_program_beyond(tuple(families)))


def _install(program: bytes) -> bool:
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    code = ctypes.create_string_buffer(program)
    # struct sock_fprog: a length in instructions, padding, a pointer.
    header = ctypes.create_string_buffer(
        struct.pack("@HxxxxxxQ", len(program) // 8, ctypes.addressof(code))
    )
    # PR_SET_NO_NEW_PRIVS is 38; SECCOMP_SET_MODE_FILTER and SECCOMP_FILTER_FLAG_TSYNC are 1.
    return not (libc.prctl(38, 1, 0, 0, 0) or libc.syscall(_SECCOMP, 1, 1, header))


def _program_beyond(families: tuple[int, ...]) -> bytes:
    lines = [*_beginning(), _line(_EQUAL, _CLONE3, 0, 1), _line(_RETURN, _ENOSYS)]
    for number in _BEYOND.values():
        lines += [_line(_EQUAL, number, 0, 1), _line(_RETURN, _EPERM)]
    lines += [
        _line(_EQUAL, _CLONE, 0, 4),
        _line(_LOAD, _ARGUMENTS),
        _line(_ANY_BIT, _CLONE_NEW, 0, 1),
        _line(_RETURN, _EPERM),
        _line(_RETURN, _ALLOW),
        _line(_EQUAL, _SOCKET, 0, 2 + 2 * len(families)),
        _line(_LOAD, _ARGUMENTS),
    ]
    for family in families:
        lines += [_line(_EQUAL, family, 0, 1), _line(_RETURN, _ALLOW)]
    lines += [_line(_RETURN, _EPERM), _line(_RETURN, _ALLOW)]
    return b"".join(lines)


def _beginning() -> list[bytes]:
    return [
        _line(_LOAD, _ARCH),
        _line(_EQUAL, _AUDIT_ARCH_X86_64, 1, 0),
        _line(_RETURN, _KILL),
        _line(_LOAD, _NUMBER),
        _line(_AT_LEAST, 0x40000000, 0, 1),  # the x32 interface, with numbers of its own
        _line(_RETURN, _EPERM),
    ]


def _program() -> bytes:
    lines = _beginning()
    for number in (_CLONE3, _OPENAT2):  # their flags lie in memory: the callers fall back
        lines += [_line(_EQUAL, number, 0, 1), _line(_RETURN, _ENOSYS)]
    for number in _X86_64.values():
        lines += [_line(_EQUAL, number, 0, 1), _line(_RETURN, _EPERM)]
    for number, argument in ((_OPEN, 1), (_OPENAT, 2)):
        lines += [
            _line(_EQUAL, number, 0, 4),
            _line(_LOAD, _ARGUMENTS + 8 * argument),
            _line(_ANY_BIT, _WRITING, 0, 1),
            _line(_RETURN, _EPERM),
            _line(_RETURN, _ALLOW),
        ]
    lines += [
        _line(_EQUAL, _CLONE, 0, 4),
        _line(_LOAD, _ARGUMENTS),
        _line(_ANY_BIT, _CLONE_THREAD, 1, 0),
        _line(_RETURN, _EPERM),
        _line(_RETURN, _ALLOW),
        _line(_EQUAL, _PRLIMIT, 0, 5),  # reading limits is fine, setting them is not
        _line(_LOAD, _ARGUMENTS + 16),
        _line(_EQUAL, 0, 0, 2),
        _line(_LOAD, _ARGUMENTS + 20),
        _line(_EQUAL, 0, 1, 0),
        _line(_RETURN, _EPERM),
        _line(_RETURN, _ALLOW),
    ]
    return b"".join(lines)


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
