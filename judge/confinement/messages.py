"""What a process asks of the supervisor of a confined command, and what it is told.

Trust: both ends are ours; the command has neither pipe.
I/O: none.  Units: seconds, bytes.
"""

from typing import Literal

from msgspec import Struct

Measure = Literal[
    "limits",  # of each process: memory, size of a file, open files
    "limits together",  # of all processes: memory, number, what is written
    "hidden files",  # what may not be read is not there, and what may be is not to be changed
    "no network",
    "no processes left",
    "system-call filter",
]
Status = Literal["exited", "signal", "timeout", "output", "memory", "processes", "disk", "stopped"]


class ResourceLimits(Struct, frozen=True, kw_only=True):
    """How much a command may use."""

    seconds: float
    memory_bytes: int  # of each process, and of all together
    output_bytes: int = 2**20
    disk_bytes: int = 2 * 2**30  # of all files together, as they lie on the disk
    file_bytes: int = 2 * 2**30  # of one file, holes included
    leaving: float = 1.0  # s for what the command has started, when it has ended
    processes: int = 256
    files: int = 200_000


class Request(Struct, frozen=True, kw_only=True):
    """One command, and what it may see and use."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    root: str  # an empty folder, which becomes the root
    scratch: str  # what it writes
    tree: str  # where it starts
    readable: tuple[str, ...]
    listed: tuple[str, ...]  # folders of which only some parts are readable
    needed: tuple[Measure, ...]  # without which nothing is run
    limits: ResourceLimits


class Started(Struct, kw_only=True, tag=True):
    """The first line of a report: the command runs."""

    isolation: list[Measure]  # what is in force


class Finished(Struct, kw_only=True, tag=True):
    """The second line of a report."""

    status: Status
    code: int  # exit status, or the signal's number
    leftovers: int  # processes that had to be ended
    cpu_seconds: float  # of all that the command has started, in user space and in the kernel


class Failed(Struct, kw_only=True, tag=True):
    """Either line, where it cannot be done."""

    problem: str
