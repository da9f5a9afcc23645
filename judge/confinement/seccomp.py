"""System-call filters: what a process gives up before it runs untrusted code.

A filter lists what is allowed. What it does not name fails with EPERM. A call newer than all that
are named fails as a kernel without it would (ENOSYS), so that the C library falls back. One that
only an attack makes ends the process. Two filters are declared. SUBMISSION is for code that
computes: it may read files and start threads. CANDIDATE is for a process in namespaces of its own:
it may use processes, files and some sockets, and nothing that reaches beyond its namespaces.

Filters exist on Linux on x86-64 and aarch64; elsewhere the caller is told that there is none. The
one for aarch64 was tested as a program only, not on such a machine.

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
from dataclasses import dataclass, field

from judge.confinement.kernel import LIBC, NO_NEW_PRIVILEGES
from judge.confinement.system_calls import AARCH64, X86_64

_WORD = 0xFFFFFFFF
_FOREIGN = 0x40000000  # calls from this number on are of another interface: x32


@dataclass(frozen=True, kw_only=True)
class Test:
    """A condition on one argument: its bits in `mask` are one of the values, or none of them."""

    argument: int  # from 0
    values: tuple[int, ...]
    mask: int = _WORD
    none_of: bool = False
    upper: bool = False  # the argument's upper 32 bits, for a pointer


Rule = tuple[tuple[Test, ...], ...]  # alternatives; all tests of one have to hold


@dataclass(frozen=True, kw_only=True)
class Filter:
    """What of the kernel a process keeps; the rest it gives up for good."""

    allowed: frozenset[str]
    rules: Mapping[str, Rule]  # allowed with some arguments only
    absent: frozenset[str]  # fail as if the kernel did not have them
    fatal: frozenset[str] = frozenset()  # end the process
    itself: tuple[str, ...] = ()  # allowed where the first argument is this process
    # The error of a call whose rule is not met, if it is not EPERM; 0 is success.
    errors: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Architecture:
    """How the kernel names an architecture in a filter's input, and its system calls."""

    word: int
    numbers: Mapping[str, int]


ARCHITECTURES = {
    "x86_64": Architecture(0xC000003E, X86_64),
    "aarch64": Architecture(0xC00000B7, AARCH64),
}

_INPUT_OUTPUT = """
    access cachestat chdir close close_range dup dup2 dup3 epoll_create epoll_create1 epoll_ctl
    epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 faccessat faccessat2 fadvise64 fchdir
    fdatasync fgetxattr file_getattr flistxattr fstat fstatfs fsync ftruncate getcwd getdents
    getdents64 getxattr getxattrat lgetxattr listxattr listxattrat llistxattr lseek lstat newfstatat
    pipe pipe2 poll ppoll pread64 preadv preadv2 pselect6 pwrite64 pwritev pwritev2 read readahead
    readlink readlinkat readv select sendfile signalfd signalfd4 stat statfs statx timerfd_create
    timerfd_gettime timerfd_settime umask write writev
"""
_MEMORY = """
    brk get_mempolicy madvise map_shadow_stack mbind membarrier mincore mlock mlock2 mprotect mremap
    mseal msync munlock munmap pkey_alloc pkey_free pkey_mprotect set_mempolicy
    set_mempolicy_home_node
"""
_TIME_AND_SIGNALS = """
    alarm clock_getres clock_gettime clock_nanosleep getitimer gettimeofday nanosleep pause
    restart_syscall rt_sigaction rt_sigpending rt_sigprocmask rt_sigreturn rt_sigsuspend
    rt_sigtimedwait setitimer sigaltstack time timer_create timer_delete timer_getoverrun
    timer_gettime timer_settime times
"""
_PROCESS_ITSELF = """
    arch_prctl capget exit exit_group futex futex_requeue futex_wait futex_waitv futex_wake
    get_robust_list getcpu getegid geteuid getgid getgroups getpgid getpgrp getpid getppid
    getpriority getrandom getresgid getresuid getrlimit getrusage getsid gettid getuid ioprio_get
    lsm_get_self_attr lsm_list_modules rseq sched_get_priority_max sched_get_priority_min
    sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval
    sched_yield set_robust_list set_tid_address sysinfo uname wait4 waitid
"""
_COMPUTING = frozenset((_INPUT_OUTPUT + _MEMORY + _TIME_AND_SIGNALS + _PROCESS_ITSELF).split())
_FILES = """
    chmod chown copy_file_range creat fallocate fchmod fchmodat fchmodat2 fchown fchownat
    file_setattr flock fremovexattr fsetxattr futimesat inotify_add_watch inotify_init inotify_init1
    inotify_rm_watch lchown link linkat lremovexattr lsetxattr mkdir mkdirat mknod mknodat open
    openat openat2 removexattr removexattrat rename renameat renameat2 rmdir setxattr setxattrat
    splice symlink symlinkat sync_file_range syncfs tee truncate unlink unlinkat utime utimensat
    utimes vmsplice
"""
_PROCESSES = """
    capset execve execveat fork kill landlock_add_rule landlock_create_ruleset
    landlock_restrict_self mlockall munlockall personality pidfd_open pidfd_send_signal
    rt_sigqueueinfo rt_tgsigqueueinfo seccomp setfsgid setfsuid setgid setgroups setpgid setregid
    setresgid setresuid setreuid setrlimit setsid setuid tgkill tkill vfork
"""
_SOCKETS = """
    accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg recvmsg
    sendmmsg sendmsg sendto shutdown
"""
# Out of confinement, into other processes, or into the kernel: no honest computation asks for it.
_ATTACKS = """
    add_key bpf chroot delete_module finit_module fsconfig fsmount fsopen fspick init_module ioperm
    iopl kexec_file_load kexec_load keyctl mount mount_setattr move_mount open_by_handle_at
    open_tree open_tree_attr perf_event_open pidfd_getfd pivot_root process_vm_readv
    process_vm_writev ptrace quotactl quotactl_fd reboot request_key setns swapoff swapon umount2
    unshare userfaultfd
"""

_CLONE_THREAD = 0x10000
_CLONE_NEW = 0x7E020000  # mounts, cgroup, names, shared memory, users, processes, network
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_MAP_SHARED, _MAP_PRIVATE, _MAP_TYPE = 1, 2, 0xF
_MAP_ANONYMOUS, _MAP_GROWSDOWN, _MAP_HUGETLB = 0x20, 0x100, 0x40000
_UNCOUNTED = _MAP_GROWSDOWN | _MAP_HUGETLB  # by the limit of data, by the resident memory
_FIRST = 1  # the supervisor, in the namespace of processes that it made
_OF_A_PROCESS = 0  # setpriority(2)
_IO_OF_A_PROCESS = 1  # ioprio_set(2)
# fcntl(2): F_DUPFD, the flags of descriptors and files, F_GETLK, F_DUPFD_CLOEXEC, F_GETPIPE_SZ and
# F_GET_SEALS. No owner of signals, no lease, no lock, no larger pipe.
_FCNTL = (0, 1, 2, 3, 4, 5, 1030, 1032, 1034)
_SETLEASE, _NOTIFY = 1024, 1026
# ioctl(2): TCGETS in both forms (is it a terminal?), TIOCGWINSZ, FIONREAD, FIONBIO, FIOCLEX and
# FIONCLEX.
_IOCTL = (0x5401, 0x802C542A, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # put words into the mouth of who uses a terminal
# prctl(2): reading; and names, timer slack, vectors, tags and naming memory. No filter: it would be
# memory of the kernel, which no limit counts, and so would be a ruleset of Landlock.
_PRCTL_READ = (2, 3, 16, 21, 23, 27, 30, 34, 37, 39, 40, 42, 51, 53, 56, 66, 0x41555856)
_PRCTL = (*_PRCTL_READ, 15, 29, 38, 50, 54, 55, 65, 0x53564D41)
# Also filters, its death with its parent, being dumped and traced, capabilities, and adopting
# orphans.
_PRCTL_PROCESSES = (*_PRCTL, 22, 1, 4, 7, 8, 24, 28, 36, 41, 47, 52, 0x59616D61)
_BUFFERS = (7, 8, 32, 33)  # setsockopt(2): SO_SNDBUF, SO_RCVBUF, and both by force
_ENOTTY = 25


def _if(*tests: Test) -> Rule:
    return (tests,)


_NOT_THE_FIRST = Test(argument=0, values=(_FIRST,), none_of=True)
_READS_LIMITS = (
    Test(argument=2, values=(0,)),  # a null pointer: no new limit
    Test(argument=2, values=(0,), upper=True),
)
SUBMISSION = Filter(
    allowed=_COMPUTING,
    rules={
        # Shared memory without a file is counted by no limit, and neither is a stack that grows.
        "mmap": (
            (Test(argument=3, mask=_MAP_TYPE | _UNCOUNTED, values=(_MAP_PRIVATE,)),),
            (
                Test(
                    argument=3, mask=_MAP_TYPE | _UNCOUNTED | _MAP_ANONYMOUS, values=(_MAP_SHARED,)
                ),
            ),
        ),
        "open": _if(Test(argument=1, mask=_WRITING, values=(0,))),
        "openat": _if(Test(argument=2, mask=_WRITING, values=(0,))),
        "clone": _if(Test(argument=0, mask=_CLONE_THREAD | _CLONE_NEW, values=(_CLONE_THREAD,))),
        "fcntl": _if(Test(argument=1, values=_FCNTL)),
        "ioctl": _if(Test(argument=1, values=_IOCTL)),
        "prctl": _if(Test(argument=0, values=_PRCTL)),
        "prlimit64": _if(*_READS_LIMITS),
    },
    absent=frozenset(("clone3", "openat2", "memfd_create", "io_uring_setup", "socketpair")),
    fatal=frozenset(_ATTACKS.split()),
    itself=("kill", "tgkill"),
    errors={"ioctl": _ENOTTY},
)
CANDIDATE = Filter(  # is in namespaces of its own
    allowed=_COMPUTING | frozenset((_FILES + _PROCESSES + _SOCKETS + "sync").split()),
    rules={
        "mmap": _if(Test(argument=3, mask=_UNCOUNTED, values=(0,))),
        "clone": _if(Test(argument=0, mask=_CLONE_NEW, values=(0,))),
        "fcntl": _if(Test(argument=1, values=(_SETLEASE, _NOTIFY), none_of=True)),
        "ioctl": _if(Test(argument=1, values=(_TIOCSTI, _TIOCLINUX), none_of=True)),
        "prctl": _if(Test(argument=0, values=_PRCTL_PROCESSES)),
        # What is set of a process can be set of the supervisor, too: it has the same user.
        "prlimit64": (_READS_LIMITS, (_NOT_THE_FIRST,)),
        "setpriority": _if(
            Test(argument=0, values=(_OF_A_PROCESS,)),
            Test(argument=1, values=(_FIRST,), none_of=True),
        ),
        "ioprio_set": _if(
            Test(argument=0, values=(_IO_OF_A_PROCESS,)),
            Test(argument=1, values=(_FIRST,), none_of=True),
        ),
        **dict.fromkeys(
            ("sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler"),
            _if(_NOT_THE_FIRST),
        ),
        **dict.fromkeys(
            ("socket", "socketpair"),
            _if(Test(argument=0, values=(socket.AF_UNIX, socket.AF_INET, socket.AF_INET6))),
        ),
        # A wish for larger buffers is not granted, and not refused: they are memory of the kernel.
        "setsockopt": (
            (Test(argument=1, values=(socket.SOL_SOCKET,), none_of=True),),
            (Test(argument=2, values=_BUFFERS, none_of=True),),
        ),
    },
    absent=frozenset(("clone3",)),
    errors={"setsockopt": 0},
)

_LOAD, _AND, _EQUAL, _AT_LEAST, _JUMP, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x05, 0x06  # BPF codes
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_EPERM, _ENOSYS = _ERROR | 1, _ERROR | 38
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_SECCOMP = "seccomp"
_MODE_FILTER, _ALL_THREADS = 1, 1


def filter_system_calls(wanted: Filter) -> bool:
    """Install a filter on all threads; return whether it is in force."""
    architecture = ARCHITECTURES.get(platform.machine())
    if platform.system() != "Linux" or architecture is None:
        return False
    program = compile_filter(wanted, architecture, pid=os.getpid())
    code = ctypes.create_string_buffer(program)
    # struct sock_fprog: a length in instructions, padding, a pointer.
    header = ctypes.create_string_buffer(
        struct.pack("@HxxxxxxQ", len(program) // 8, ctypes.addressof(code))
    )
    number = architecture.numbers[_SECCOMP]
    return not (
        LIBC.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        or LIBC.syscall(number, _MODE_FILTER, _ALL_THREADS, header)
    )


def compile_filter(wanted: Filter, architecture: Architecture, *, pid: int) -> bytes:
    """Return the filter as the kernel's program, for a process of this number."""
    numbers = architecture.numbers
    lines = [
        _line(_LOAD, _ARCH),
        _line(_EQUAL, architecture.word, 1, 0),
        _line(_RETURN, _KILL),
        _line(_LOAD, _NUMBER),
        _line(_AT_LEAST, _FOREIGN, 0, 1),
        _line(_RETURN, _KILL),
    ]
    for name in sorted(wanted.allowed & numbers.keys()):
        lines += [_line(_EQUAL, numbers[name], 0, 1), _line(_RETURN, _ALLOW)]
    itself = dict.fromkeys(wanted.itself, _if(Test(argument=0, values=(pid,))))
    for name, rule in {**wanted.rules, **itself}.items():
        if name in numbers:
            refusal = _ERROR | wanted.errors[name] if name in wanted.errors else _EPERM
            block = [*_rule(rule), _line(_RETURN, refusal)]
            lines += [_line(_EQUAL, numbers[name], 1, 0), _line(_JUMP, len(block)), *block]
    for names, answer in ((wanted.absent, _ENOSYS), (wanted.fatal, _KILL)):
        for name in sorted(names & numbers.keys()):
            lines += [_line(_EQUAL, numbers[name], 0, 1), _line(_RETURN, answer)]
    lines += [
        _line(_AT_LEAST, max(numbers.values()) + 1, 0, 1),  # newer than this table
        _line(_RETURN, _ENOSYS),
        _line(_RETURN, _EPERM),
    ]
    return b"".join(lines)


def _rule(rule: Rule) -> Iterator[bytes]:
    for alternative in rule:
        body = [_line(_RETURN, _ALLOW)]
        for test in reversed(alternative):
            body = [*_test(test, missed=len(body)), *body]
        yield from body


def _test(test: Test, *, missed: int) -> Iterator[bytes]:
    """Go on if the test holds, else jump over `missed` lines."""
    yield _line(_LOAD, _ARGUMENTS + 8 * test.argument + 4 * test.upper)
    if test.mask != _WORD:
        yield _line(_AND, test.mask)
    count = len(test.values)
    for position, value in enumerate(test.values):
        yield _line(_EQUAL, value, count - position, 0)
    if test.none_of:
        yield _line(_JUMP, 1)  # over the next one, which is where an equal value leads
    yield _line(_JUMP, missed)


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
