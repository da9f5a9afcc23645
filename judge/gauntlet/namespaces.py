"""Namespaces of a candidate's own: users, processes, network, shared memory, and a root folder.

The root folder is built of what may be seen, place by place; what is not put there is not there,
whatever path, socket file or link leads to it. Where mounting is refused the rest holds without it.

Source: Linux user_namespaces(7), pid_namespaces(7), pivot_root(2), mount(2), netdevice(7).
Trust: runs before anything foreign does, with nothing foreign as input but paths of ours.
I/O: changes the calling process, for good.
"""

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterable
from pathlib import Path

USER = 1_000  # the candidate's user and group inside: not root, whoever is outside
DEVICES = ("/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of the candidate's own
TERMINALS = Path("/dev/pts")
_SHARED_BYTES = 256 * 2**20
_NEW_NS, _NEW_UTS, _NEW_IPC = 0x0002_0000, 0x0400_0000, 0x0800_0000
_NEW_USER, _NEW_PID, _NEW_NET = 0x1000_0000, 0x2000_0000, 0x4000_0000
_NOSUID, _NODEV, _NOEXEC = 2, 4, 8
_BIND, _REC, _PRIVATE = 4_096, 16_384, 1 << 18
_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1  # of a network device

_LIBC = ctypes.CDLL(None, use_errno=True)


def become_stranger() -> None:
    """Enter a user namespace as nobody in particular; children have processes of their own.

    Raises OSError where the kernel refuses.
    """
    user, group = os.geteuid(), os.getegid()
    _do(_LIBC.unshare, _NEW_USER | _NEW_PID)
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"{USER} {group} 1", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"{USER} {user} 1", encoding="ascii")


def cut_off() -> None:
    """Leave the host's network, mounts, shared memory and name; raise OSError."""
    _do(_LIBC.unshare, _NEW_NET | _NEW_NS | _NEW_IPC | _NEW_UTS)
    _do(_LIBC.sethostname, b"localhost", 9)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH14x", b"lo", 0)
        (flags,) = struct.unpack_from("H", fcntl.ioctl(any_socket, _GET_FLAGS, request), 16)
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", flags | _UP))


def move_into(root: Path, *, seen: Iterable[Path], temporary: Path) -> bool:
    """Make an empty folder the root, with these places in it; return whether it is.

    /proc shows the candidate's own processes, /tmp is `temporary`. Where it cannot be done the old
    root stays.
    """
    try:
        _do(_LIBC.mount, None, b"/", None, _REC | _PRIVATE, None)
        _mount("tmpfs", root, flags=_NOSUID | _NODEV, options="mode=755,size=4m")
        done: list[Path] = []
        for place in sorted({*seen, *map(Path, DEVICES)}):
            if not any(place.is_relative_to(other) for other in done) and place.exists():
                _bind(place, root)
                done.append(place)
        (root / "proc").mkdir(exist_ok=True)
        _mount("proc", root / "proc", flags=_NOSUID | _NODEV | _NOEXEC)
        _make_devices(root)
        if not (root / "tmp").exists():
            (root / "tmp").symlink_to(temporary)
        (root / "etc").mkdir(exist_ok=True)
        (root / "etc/passwd").write_text(f"candidate:x:{USER}:{USER}::{temporary}:/bin/sh\n")
        (root / ".old").mkdir()
        pivot = _PIVOT_ROOT[os.uname().machine]
        _do(_LIBC.syscall, pivot, os.fsencode(root), os.fsencode(root / ".old"))
    except (OSError, KeyError):
        return False
    os.chdir("/")
    _do(_LIBC.umount2, b"/.old", _DETACH)
    return True


def _bind(place: Path, root: Path) -> None:
    target = root / place.relative_to("/")
    if place.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    _do(_LIBC.mount, os.fsencode(place), os.fsencode(target), None, _BIND | _REC, None)


def _make_devices(root: Path) -> None:
    for folder, kind, options in (
        (SHARED_MEMORY, "tmpfs", f"mode=1777,size={_SHARED_BYTES}"),
        (TERMINALS, "devpts", "newinstance,ptmxmode=0666,mode=620"),
    ):
        target = root / folder.relative_to("/")
        target.mkdir(parents=True)
        _mount(kind, target, flags=_NOSUID | _NOEXEC, options=options)
    for name, target_name in (
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ):
        (root / "dev" / name).symlink_to(target_name)


def _mount(kind: str, target: Path, *, flags: int, options: str = "") -> None:
    _do(_LIBC.mount, kind.encode(), os.fsencode(target), kind.encode(), flags, options.encode())


def _do(call: "ctypes._NamedFuncPointer", *arguments: object) -> None:
    if call(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
