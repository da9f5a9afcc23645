"""How much memory a group of processes holds, as their supervisor sees it from outside.

What a process has resident is not all that it holds: pages of shared memory stay when a process
lets go of them, files in memory belong to no process, and the kernel keeps what waits in sockets.
Shared memory is therefore counted in whole, whether it was touched or not.

Source: Linux proc(5), "smaps", "status", "net/unix", "net/tcp".
Not covered: what the kernel keeps besides (pipes, which it bounds for each user, and descriptors).
I/O: reads /proc, in the processes' own namespaces.  Units: bytes.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

_RESIDENT = ("RssAnon:", "VmSwap:", "VmPTE:")
_SHARED_OUT = ("Pss_Anon:", "SwapPss:")  # a page of several processes counts in parts
_ANONYMOUS = ("/dev/zero", "/memfd:", "/SYSV")  # the kernel's names of memory without a file
_QUEUES = ("tcp", "tcp6", "udp", "udp6", "udplite", "udplite6")
_OF_A_BUFFER = 212_992  # of a Unix socket, where net.core.wmem_default cannot be read
_OVERHEAD = 2  # what is queued lies in larger blocks


def private_bytes(processes: Sequence[int], *, enough: int) -> int:
    """Return what the processes hold for themselves, exactly only if it is more than `enough`."""
    held = sum(_sum_of(pid, "status", _RESIDENT) for pid in processes)
    if held <= enough:
        return held
    return sum(
        _sum_of(pid, "smaps_rollup", _SHARED_OUT) + _sum_of(pid, "status", ("VmPTE:",))
        for pid in processes
    )


def shared_bytes(processes: Sequence[int], *, folders: Iterable[Path]) -> int:
    """Return what is held together: mappings, files in these folders in memory, and sockets."""
    mapped: dict[tuple[str, str], int] = {}
    for pid in processes:
        for key, end in _shared_mappings(pid):
            mapped[key] = max(end, mapped.get(key, 0))
    return sum(mapped.values()) + sum(map(_bytes_in, folders)) + _bytes_in_sockets()


def _shared_mappings(pid: int) -> Iterator[tuple[tuple[str, str], int]]:
    """Yield device and inode of each mapping of shared memory, with where it ends in there."""
    for line in _lines(f"/proc/{pid}/maps"):
        fields = line.split(None, 5)
        if len(fields) == 6 and fields[1][3:4] == "s" and fields[5].startswith(_ANONYMOUS):
            first, last = (int(address, 16) for address in fields[0].split("-"))
            yield (fields[3], fields[4]), last - first + int(fields[2], 16)


def _bytes_in(folder: Path) -> int:
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def _bytes_in_sockets() -> int:
    """Return what sockets may hold: of Unix sockets all that they can, of others what is queued."""
    try:
        buffer = int(Path("/proc/sys/net/core/wmem_default").read_text("ascii"))
    except (OSError, ValueError):
        buffer = _OF_A_BUFFER
    unix = max(0, len(_lines("/proc/net/unix")) - 1)
    queued = 0
    for name in _QUEUES:
        for line in _lines(f"/proc/net/{name}")[1:]:
            queued += sum(int(part, 16) for part in line.split()[4].split(":"))
    return unix * buffer + _OVERHEAD * queued


def _sum_of(pid: int, name: str, keys: tuple[str, ...]) -> int:
    """Return the sum of some lines of a process's file, in bytes; 0 for one that has gone."""
    lines = _lines(f"/proc/{pid}/{name}")
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(keys))


def _lines(name: str) -> list[str]:
    try:
        return Path(name).read_text("ascii", "replace").splitlines()
    except OSError:
        return []
