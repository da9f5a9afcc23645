"""The filters' programs, run here as the kernel runs them: what they allow on either machine."""

import mmap
import os
import socket
import struct
from collections.abc import Mapping

import pytest

from judge.confinement.seccomp import (
    ARCHITECTURES,
    CANDIDATE,
    SUBMISSION,
    Architecture,
    Filter,
    compile_filter,
)

PID = 4_711
ALLOW, KILL, ERROR = 0x7FFF0000, 0x80000000, 0x00050000
MACHINES = list(ARCHITECTURES)
UNNAMED = {  # calls that neither filter names
    "x86_64": {
        "fanotify_init": 300,
        "io_setup": 206,
        "mq_open": 240,
        "msgget": 68,
        "name_to_handle_at": 303,
        "remap_file_pages": 216,
        "semget": 64,
        "shmget": 29,
    },
    "aarch64": {
        "fanotify_init": 262,
        "io_setup": 0,
        "mq_open": 180,
        "msgget": 186,
        "name_to_handle_at": 264,
        "remap_file_pages": 234,
        "semget": 190,
        "shmget": 194,
    },
}
THREAD = 0x3D0F00  # what the C library starts a thread with
FORK = 0x1200011
NEW_USER = 0x10000000


def decide(program: bytes, number: int, word: int, arguments: tuple[int, ...] = ()) -> int:
    """Interpret a classic BPF program; only what linux/filter.h defines and the filters use."""
    padded = [argument % 2**64 for argument in (*arguments, *([0] * 6))][:6]
    data = struct.pack("=IIQ6Q", number, word, 0, *padded)
    lines = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    assert len(lines) <= 4096  # BPF_MAXINSNS
    accumulator = at = 0
    while True:
        code, if_true, if_false, value = lines[at]
        at += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, value)
            case 0x54:
                accumulator &= value
            case 0x05:
                at += value
            case 0x15:
                at += if_true if accumulator == value else if_false
            case 0x35:
                at += if_true if accumulator >= value else if_false
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(f"instruction {code:#x}")


def verdict(wanted: Filter, machine: str, name: str, *arguments: int) -> str:
    architecture = ARCHITECTURES[machine]
    program = compile_filter(wanted, architecture, pid=PID)
    number = {**architecture.numbers, **UNNAMED[machine]}[name]
    found = decide(program, number, architecture.word, arguments)
    if found in (ALLOW, KILL):
        return "allow" if found == ALLOW else "kill"
    return os.strerror(found - ERROR)


EPERM, ENOSYS, ENOTTY = (os.strerror(number) for number in (1, 38, 25))
SHARED, PRIVATE, ANONYMOUS, GROWSDOWN, HUGE = 1, 2, mmap.MAP_ANONYMOUS, 0x100, 0x40000
POINTER = 0x7FFF_0000_0000  # of which the lower half is 0

BOTH: Mapping[tuple[object, ...], str] = {
    ("read", 3): "allow",
    ("futex", 1): "allow",
    ("clone", THREAD): "allow",
    ("clone", THREAD | NEW_USER): EPERM,
    ("clone3",): ENOSYS,
    ("mmap", 0, 4096, 3, PRIVATE | ANONYMOUS): "allow",
    ("mmap", 0, 4096, 1, SHARED): "allow",
    ("mmap", 0, 4096, 3, PRIVATE | ANONYMOUS | GROWSDOWN): EPERM,
    ("mmap", 0, 4096, 3, SHARED | ANONYMOUS | HUGE): EPERM,
    ("prlimit64", 0, 7, 0): "allow",
    ("prlimit64", 1, 7, POINTER): EPERM,
    ("prctl", 15): "allow",
    ("prctl", 35): EPERM,  # PR_SET_MM
    ("fcntl", 3, 1): "allow",
    ("fcntl", 3, 1024): EPERM,  # a lease
    ("ioctl", 0, 0x5401): "allow",
    ("sched_setaffinity", 1): EPERM,
    ("sched_setscheduler", 1): EPERM,
    ("setpriority", 0, 1): EPERM,
    ("setpriority", 2, 0): EPERM,  # all processes of the user
    ("ioprio_set", 3, 0): EPERM,
    ("shmget",): EPERM,
    ("msgget",): EPERM,
    ("semget",): EPERM,
    ("mq_open",): EPERM,
    ("io_setup",): EPERM,
    ("remap_file_pages",): EPERM,
    ("socket", socket.AF_VSOCK): EPERM,
    ("fanotify_init",): EPERM,
    ("name_to_handle_at",): EPERM,
}
OF_SUBMISSIONS: Mapping[tuple[object, ...], str] = {
    ("openat", -100, 0, os.O_RDONLY | os.O_CLOEXEC): "allow",
    ("openat", -100, 0, os.O_RDWR): EPERM,
    ("openat", -100, 0, os.O_CREAT): EPERM,
    ("openat2",): ENOSYS,
    ("mmap", 0, 4096, 3, SHARED | ANONYMOUS): EPERM,
    ("memfd_create",): ENOSYS,
    ("clone", FORK): EPERM,
    ("execve",): EPERM,
    ("kill", PID): "allow",
    ("kill", -PID): EPERM,
    ("kill", 0): EPERM,
    ("tgkill", PID): "allow",
    ("tgkill", 1): EPERM,
    ("tkill", PID): EPERM,
    ("prctl", 1): EPERM,  # its death with its parent
    ("prctl", 4): EPERM,  # to be dumped
    ("fcntl", 3, 8): EPERM,  # the owner of signals
    ("fcntl", 3, 6): EPERM,  # a lock
    ("fcntl", 3, 1031): EPERM,  # a larger pipe
    ("ioctl", 0, 0x5412): ENOTTY,
    ("prlimit64", 0, 7, 1): EPERM,
    ("prlimit64", 0, 7, POINTER): EPERM,
    ("sched_setaffinity", 0): EPERM,
    ("setpriority", 0, 0): EPERM,
    ("socket", socket.AF_UNIX): EPERM,
    ("socketpair",): ENOSYS,
    ("ptrace",): "kill",
    ("unshare",): "kill",
    ("mount",): "kill",
    ("bpf",): "kill",
    ("io_uring_setup",): ENOSYS,
    ("inotify_init1",): EPERM,
    ("flock",): EPERM,
}
OF_CANDIDATES: Mapping[tuple[object, ...], str] = {
    ("openat", -100, 0, os.O_RDWR | os.O_CREAT): "allow",
    ("mmap", 0, 4096, 3, SHARED | ANONYMOUS): "allow",  # the supervisor counts it
    ("memfd_create",): EPERM,
    ("clone", FORK): "allow",
    ("execve",): "allow",
    ("kill", 17): "allow",
    ("prlimit64", 0, 7, POINTER): "allow",
    ("sched_setaffinity", 0): "allow",
    ("sched_setaffinity", 17): "allow",
    ("setpriority", 0, 0): "allow",
    ("ioprio_set", 1, 0): "allow",
    ("socket", socket.AF_INET6): "allow",
    ("fcntl", 3, 6): "allow",
    ("ioctl", 0, 0x5412): EPERM,  # words for a terminal
    ("ptrace",): EPERM,
    ("unshare",): EPERM,
    ("mount",): EPERM,
    ("io_uring_setup",): EPERM,
}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param(SUBMISSION, {**BOTH, **OF_SUBMISSIONS}, id="submission"),
        pytest.param(CANDIDATE, {**BOTH, **OF_CANDIDATES}, id="candidate"),
    ],
)
def test_filter_decides_by_name_and_arguments(
    machine: str, wanted: Filter, expected: Mapping[tuple[object, ...], str]
) -> None:
    found = {
        call: verdict(wanted, machine, str(call[0]), *(int(str(each)) for each in call[1:]))
        for call in expected
    }
    assert found == expected


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("wanted", [SUBMISSION, CANDIDATE], ids=["submission", "candidate"])
def test_calls_of_another_interface_are_rejected(machine: str, wanted: Filter) -> None:
    here: Architecture = ARCHITECTURES[machine]
    program = compile_filter(wanted, here, pid=PID)
    read = here.numbers["read"]
    assert decide(program, read, here.word) == ALLOW
    for word in (0x40000003, *(other.word for other in ARCHITECTURES.values())):  # i386 first
        if word != here.word:
            assert decide(program, read, word) == KILL
    assert decide(program, 0x40000000 | read, here.word) == KILL  # x32
    assert decide(program, 0xFFFFFFFF, here.word) == KILL
    assert decide(program, 9_999, here.word) == ERROR | 38  # of a later kernel


def test_calls_of_the_filters_are_in_the_table() -> None:
    # A name that is misspelt would allow nothing.
    known = {name for architecture in ARCHITECTURES.values() for name in architecture.numbers}
    for wanted in (SUBMISSION, CANDIDATE):
        for names in (wanted.allowed, wanted.rules.keys(), wanted.absent, wanted.fatal):
            assert names <= known
            assert not names & UNNAMED["x86_64"].keys()
        assert not wanted.allowed & (wanted.rules.keys() | wanted.absent | wanted.fatal)
