"""Namespaces of a candidate's own: users, processes, network, shared memory, and a root folder.

The root folder is built of what may be seen, place by place and read-only; what is not put there is
not there, whatever path, socket's file or link leads to it.

Source: Linux user_namespaces(7), pid_namespaces(7), pivot_root(2), mount_setattr(2), netdevice(7).
Trust: runs before anything foreign does, with nothing foreign as input but paths of ours.
I/O: changes the calling process, for good.
"""

import fcntl
import os
import re
import socket
import struct
from collections.abc import Iterable
from pathlib import Path

from judge.confinement.kernel import LIBC, checked

USER = 1_000  # the candidate's user and group inside: not root, whoever is outside
DEVICES = ("/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero")
TEMPORARY = Path("/tmp")  # noqa: S108 - a folder of the candidate's own, and so is the next
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108
TERMINALS = Path("/dev/pts")
SHORT = Path("/own")  # the scratch folder again: the names of sockets have 107 bytes at most
_IN_MEMORY = {TEMPORARY: 64 * 2**20, SHARED_MEMORY: 256 * 2**20}  # bytes
_NEW_NS, _NEW_UTS, _NEW_IPC = 0x0002_0000, 0x0400_0000, 0x0800_0000
_NEW_USER, _NEW_PID, _NEW_NET = 0x1000_0000, 0x2000_0000, 0x4000_0000
_NOSUID, _NODEV, _NOEXEC = 2, 4, 8
_BIND, _REC, _PRIVATE = 4_096, 16_384, 1 << 18
_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_MOUNT_SETATTR, _HERE, _RECURSIVE, _READ_ONLY = 442, -100, 0x8000, 1
_PID_MAX = Path("/proc/sys/kernel/pid_max")
_OWN_PID_MAX, _RESERVED_PIDS = (6, 14), 300  # the kernel's version; numbers that it uses once only
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1  # of a network device


def become_stranger(*, processes: bool = True) -> None:
    """Enter a user namespace as nobody in particular; children may have processes of their own.

    Raises OSError where the kernel refuses.
    """
    user, group = os.geteuid(), os.getegid()
    checked(LIBC.unshare, _NEW_USER | _NEW_PID * processes)
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"{USER} {group} 1", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"{USER} {user} 1", encoding="ascii")


def bound_tasks(most: int) -> None:
    """Let a namespace of processes have about so many processes and threads at once.

    For its first process; raise OSError. The kernel keeps to it at any load and for any user,
    also for root's processes, which RLIMIT_NPROC leaves alone. Before Linux 6.14 nothing is done:
    there the same file sets the limit of the whole machine.
    """
    version = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if version and tuple(map(int, version.groups())) >= _OWN_PID_MAX:
        _PID_MAX.write_text(str(max(most, 2) + _RESERVED_PIDS), encoding="ascii")


def leave_all() -> None:
    """Leave processes, network, mounts, shared memory and name at once; raise OSError.

    For root, or in a user namespace. Only children are in the namespace of processes.
    """
    checked(LIBC.unshare, _NEW_PID | _NEW_NET | _NEW_NS | _NEW_IPC | _NEW_UTS)


def cut_off() -> None:
    """Leave the host's network, mounts, shared memory and name; raise OSError."""
    checked(LIBC.unshare, _NEW_NET | _NEW_NS | _NEW_IPC | _NEW_UTS)
    checked(LIBC.sethostname, b"localhost", 9)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", 0)
        (flags,) = struct.unpack_from("H", fcntl.ioctl(any_socket, _GET_FLAGS, request), 16)
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", flags | _UP))


def move_into(root: Path, *, seen: Iterable[Path], written: Path) -> bool:
    """Make an empty folder the root, with what is seen in it; raise OSError.

    /proc, if there can be one, is of the candidate's own processes; return whether there is.
    """
    _begin(root)
    for folder, size in _IN_MEMORY.items():
        options = f"mode=1777,size={size},nr_inodes=20k"
        _mount("tmpfs", _made(root, folder), flags=_NOSUID | _NODEV, options=options)
    for place in (written, SHORT):
        _bind(written, root, at=place)
    _show((*seen, *map(Path, DEVICES)), root, done=[written, SHORT])
    watched = _show_processes(root)
    _make_devices(root)
    account = f"candidate:x:{USER}:{USER}::{written}:/bin/sh\n"
    (_made(root, Path("/etc")) / "passwd").write_text(account, encoding="utf-8")
    _enter(root)
    return watched


def keep_only(root: Path, *, seen: Iterable[Path]) -> None:
    """Make an empty folder the root, with what is seen in it and nothing to write; raise OSError.

    For the first process of a namespace. It keeps /proc for itself where it can have one.
    """
    _begin(root)
    _show(seen, root, done=[])
    _show_processes(root)
    _enter(root)


def _begin(root: Path) -> None:
    checked(LIBC.mount, None, b"/", None, _REC | _PRIVATE, None)
    _mount("tmpfs", root, flags=_NOSUID | _NODEV, options="mode=755,size=4m")


def _show(places: Iterable[Path], root: Path, *, done: list[Path]) -> None:
    for place in sorted(set(places)):
        if not any(place.is_relative_to(other) for other in done) and place.exists():
            _close(_bind(place, root))
            done.append(place)


def _enter(root: Path) -> None:
    old = _made(root, Path("/.old"))
    pivot = _PIVOT_ROOT.get(os.uname().machine, -1)
    checked(LIBC.syscall, pivot, os.fsencode(root), os.fsencode(old))
    os.chdir("/")
    checked(LIBC.umount2, b"/.old", _DETACH)
    _close(Path("/"), below=False)


def _made(root: Path, folder: Path) -> Path:
    """Make a folder of the new root and return where it is now."""
    place = root / folder.relative_to("/")
    place.mkdir(parents=True, exist_ok=True)
    return place


def _bind(place: Path, root: Path, *, at: Path | None = None) -> Path:
    target = root / (at or place).relative_to("/")
    if place.is_dir():
        _made(root, at or place)
    else:
        _made(root, place.parent)
        target.touch()
    checked(LIBC.mount, os.fsencode(place), os.fsencode(target), None, _BIND | _REC, None)
    return target


def _close(place: Path, *, below: bool = True) -> None:
    """Let nothing be changed of a mount, modes and times included, nor of those below it."""
    attributes = struct.pack("QQQQ", _READ_ONLY, 0, 0, 0)
    name, size = os.fsencode(place), len(attributes)
    checked(LIBC.syscall, _MOUNT_SETATTR, _HERE, name, _RECURSIVE * below, attributes, size)


def _show_processes(root: Path) -> bool:
    """Put /proc there; a container that hides a part of its own does not let us."""
    place = _made(root, Path("/proc"))
    try:
        _mount("proc", place, flags=_NOSUID | _NODEV | _NOEXEC)
    except OSError:
        return False
    return True


def _make_devices(root: Path) -> None:
    terminals = _made(root, TERMINALS)
    _mount("devpts", terminals, flags=_NOSUID | _NOEXEC, options="newinstance,ptmxmode=0666")
    for name, target in (
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ):
        (root / "dev" / name).symlink_to(target)


def _mount(kind: str, target: Path, *, flags: int, options: str = "") -> None:
    checked(LIBC.mount, kind.encode(), os.fsencode(target), kind.encode(), flags, options.encode())
