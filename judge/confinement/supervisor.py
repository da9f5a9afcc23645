"""The processes that a candidate's command runs under:
`python -I -m judge.confinement.supervisor`, which judge/confinement/nursery.py starts.

That one forks a supervisor for each command. Then there are three more: the supervisor enters a
user namespace and waits; its child is the first of the candidate's own processes, watches and ends
them; the grandchild becomes the command. When the first of a namespace ends, the kernel ends every
other, however it has hidden itself.

Its standard input is a socket. With each message come six descriptors: the command's standard
input, output and error, two pipes, and a socket for the answer. On one pipe comes the request; it
stays open for as long as the command is wanted. On the other goes one line when the command starts,
and one when it has ended.

Trust: nothing of the candidate's is read here but the sizes of its files and processes.
I/O: as said; the command has this process's standard input, output and error.
"""

import errno
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import msgspec

from judge.confinement import memory
from judge.confinement.kernel import (
    LIBC,
    NO_NEW_PRIVILEGES,
    PARENT_DEATH_SIGNAL,
    SET_DUMPABLE,
    limit_resources,
    lower_limit,
)
from judge.confinement.landlock import LIST, READ, RUN, USE, WRITE, restrict
from judge.confinement.messages import (
    Failed,
    Finished,
    Measure,
    Request,
    ResourceLimits,
    Started,
    Status,
)
from judge.confinement.namespaces import (
    DEVICES,
    SHARED_MEMORY,
    SHORT,
    TEMPORARY,
    TERMINALS,
    become_stranger,
    bound_tasks,
    cut_off,
    move_into,
)
from judge.confinement.seccomp import CANDIDATE, filter_system_calls

_NOT_FOUND = 127  # as a shell's status for a command that cannot be started
_INTERVAL = 0.2  # s between two looks at what the candidate holds
_MAX_REQUEST = 4 * 2**20
_OPEN_FILES = 1_024
_THREADS = 8  # of each process, on average, before the kernel refuses more of either


def serve(channel: socket.socket) -> None:
    """Fork a supervisor for each message, and answer with its descriptor, until there is no more.

    Where none can be forked, the answer has no descriptor.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    while True:
        message, given, _, _ = socket.recv_fds(channel, 1, 6)
        if not message:
            return
        forked: list[int] = []
        with socket.socket(fileno=given.pop()) as answer, suppress(OSError):
            with suppress(OSError):
                child = os.fork()
                if child == 0:
                    answer.close()
                    channel.close()
                    _be_supervisor(*given)
                forked.append(os.pidfd_open(child))  # it waits for its request: it is there
            socket.send_fds(answer, [b"+"], forked)
        for descriptor in (*given, *forked):
            os.close(descriptor)


def _be_supervisor(*descriptors: int) -> NoReturn:
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        *standard, control, report = descriptors
        for place, descriptor in enumerate(standard):
            os.dup2(descriptor, place)
            os.close(descriptor)
        supervise(control, report)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def supervise(control: int, report: int) -> None:
    """Run what the request says; leave when it and all that it started are gone."""
    for descriptor in (control, report):
        os.set_inheritable(descriptor, False)
    LIBC.prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    request = _read_request(control)
    try:
        become_stranger()
    except OSError as error:
        _say(report, Failed(problem=_missing(["user namespaces"], error)))
        return
    child = os.fork()
    if child == 0:
        _be_first(request, control, report)
    _be_silent()
    os.close(control)
    os.close(report)
    os.waitpid(child, 0)


def _read_request(control: int) -> Request:
    data = b""
    while not data.endswith(b"\n"):
        chunk = os.read(control, 65_536)
        if not chunk or len(data) > _MAX_REQUEST:
            raise ValueError("the request is incomplete or too long")
        data += chunk
    return msgspec.json.decode(data, type=Request)


def _be_first(request: Request, control: int, report: int) -> NoReturn:
    """Start the command, see to its end, and tell."""
    try:
        LIBC.prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        scratch = Path(request.scratch)
        seen = [Path(place) for place in (*request.readable, request.tree)]
        try:
            cut_off()
            tasks = request.limits.processes * _THREADS
            lower_limit(resource.RLIMIT_NPROC, tasks)
            bound_tasks(tasks)
            together = move_into(Path(request.root), seen=seen, written=scratch)
        except OSError as error:
            problem = _missing(["a network and a root of its own"], error)
            _say(report, Failed(problem=problem))
            os._exit(1)
        command = os.fork()
        if command == 0:
            _be_command(request, report, together=together)
        LIBC.prctl(SET_DUMPABLE, 0, 0, 0, 0)  # the candidate is of the same user
        # The first of a namespace gets no signal from in there that it has no handler for.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _be_silent()
        watch = _Watch(request.limits, scratch=scratch, together=together)
        said = watch.until_over(command, control)
        with suppress(BrokenPipeError):
            _say(report, said)
    except Exception as error:
        problem = f"the supervisor of a candidate failed: {error!r}"
        _say(report, Failed(problem=problem))
        raise
    finally:
        os._exit(0)


def _be_command(request: Request, report: int, *, together: bool) -> NoReturn:
    """Give up what is not needed, and become the command."""
    try:
        os.setsid()
        limits = request.limits
        limit_resources(
            cpu_seconds=int(limits.seconds) * 64 + 1,  # of many threads; the clock comes first
            memory_bytes=limits.memory_bytes,
            file_bytes=limits.file_bytes,
            open_files=_OPEN_FILES,
        )
        os.nice(5)
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
        os.umask(0o077)
        os.chdir(request.tree)
        in_force: list[Measure] = ["limits", "no processes left"]
        if together:
            in_force.append("limits together")
        LIBC.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        if restrict(_rights(request), tcp=True):
            in_force.append("hidden files")
        if filter_system_calls(CANDIDATE):
            in_force += ["system-call filter", "no network"]
        missing = sorted(set(request.needed) - set(in_force))
        if missing:
            _say(report, Failed(problem=_missing(missing)))
        else:
            _say(report, Started(isolation=in_force))
        if not missing:
            for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):  # Python's are not its
                signal.signal(number, signal.SIG_DFL)
            os.execvpe(request.argv[0], request.argv, request.environment)  # noqa: S606 - the candidate's
    except OSError as error:
        os.write(2, f"the command cannot be started: {error.strerror}\n".encode())
    finally:
        os._exit(_NOT_FOUND)


def _rights(request: Request) -> dict[Path, int]:
    return {
        Path("/proc"): READ,
        Path("/etc/passwd"): READ,
        **{Path(folder): LIST for folder in request.listed},
        **{Path(place): RUN for place in (*request.readable, request.tree)},
        **dict.fromkeys(map(Path, DEVICES), USE),
        **dict.fromkeys((TEMPORARY, SHARED_MEMORY, SHORT, Path(request.scratch)), WRITE),
        TERMINALS: USE,
    }


class _Watch:
    """Looks at what a candidate's processes hold, and ends them all."""

    def __init__(self, limits: ResourceLimits, *, scratch: Path, together: bool) -> None:
        self._limits, self._scratch, self._together = limits, scratch, together
        self._status: int | None = None  # of the command
        self._next_walk = 0.0

    def until_over(self, command: int, control: int) -> Finished:
        """Return how the command ended, when nothing of it is left."""
        deadline = time.monotonic() + self._limits.seconds
        poll = select.poll()
        ended = os.pidfd_open(command)
        poll.register(ended, select.POLLIN)
        poll.register(control, select.POLLIN)
        why: Status | None = None
        while why is None:
            left = max(0.0, min(_INTERVAL, deadline - time.monotonic()))
            ready = [descriptor for descriptor, _ in poll.poll(left * 1_000)]
            self._reap(command)
            if self._status is not None:
                break
            if control in ready:
                why = "stopped"
            elif time.monotonic() >= deadline:
                why = "timeout"
            else:
                why = self._excess(everything=False)
        alone = why is not None or self._wait_until_alone(command)
        if why is None:
            why = self._excess(everything=True)
        leftovers = self._end_all(command)
        code = os.waitstatus_to_exitcode(self._status) if self._status is not None else 0
        if why is None:
            why = "signal" if code < 0 else "exited"
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return Finished(
            status=why,
            code=abs(code),
            leftovers=0 if alone else leftovers,
            cpu_seconds=used.ru_utime + used.ru_stime,
        )

    def _reap(self, command: int) -> int:
        """Take leave of the dead; return how many were ended by force, the command not counted."""
        killed = 0
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == command:
                    self._status = status
                elif os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
                    killed += 1
        return killed

    def _wait_until_alone(self, command: int) -> bool:
        deadline = time.monotonic() + self._limits.leaving
        while time.monotonic() < deadline:
            self._reap(command)
            if not _has_children():
                return True
            time.sleep(0.01)
        return False

    def _end_all(self, command: int) -> int:
        killed = 0
        while _has_children():
            with suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)  # of a namespace's first: all others in it
            killed += self._reap(command)
            time.sleep(0.001)
        return killed

    def _excess(self, *, everything: bool) -> Status | None:
        """Return what the candidate holds too much of."""
        if self._together:
            processes = [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208
            if len(processes) > self._limits.processes:
                return "processes"
            if self._fills_memory(processes):
                return "memory"
        if everything or time.monotonic() >= self._next_walk:
            begun = time.monotonic()
            if self._fills_disk():
                return "disk"
            now = time.monotonic()
            self._next_walk = now + 20 * (now - begun)  # at most a twentieth of the time
        return None

    def _fills_memory(self, processes: list[int]) -> bool:
        most = self._limits.memory_bytes
        shared = memory.shared_bytes(processes, folders=(TEMPORARY, SHARED_MEMORY))
        return shared + memory.private_bytes(processes, enough=most - shared) > most

    def _fills_disk(self) -> bool:
        size = files = 0
        for found in _walk(self._scratch):
            size, files = size + found, files + 1
            if size > self._limits.disk_bytes or files > self._limits.files:
                return True
        return False


def _walk(folder: Path) -> Iterator[int]:
    """Yield the bytes that each file and folder takes up; what has no name is past all bounds."""
    waiting = [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    yield entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError as error:  # most are of files that have gone meanwhile
            if error.errno == errno.ENAMETOOLONG:
                yield sys.maxsize


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _be_silent() -> None:
    """Leave the command's standard input, output and error to the command."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)


def _missing(what: Sequence[str], error: OSError | None = None) -> str:
    why = f" ({error.strerror})" if error is not None else ""
    return (
        f"a candidate cannot be confined here; missing: {', '.join(what)}{why}. Linux 5.13 or "
        "newer on x86-64 is needed, with Landlock among its security modules and user namespaces "
        "allowed (sysctl user.max_user_namespaces)"
    )


def _say(report: int, message: Started | Finished | Failed) -> None:
    os.write(report, msgspec.json.encode(message) + b"\n")


if __name__ == "__main__":
    serve(socket.socket(fileno=0))
