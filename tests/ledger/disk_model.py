"""What of a process's writes survives a power loss, worked out from a trace of its system calls.

strace records every call that changes a file; Disk replays them and remembers what was synced.
crash() then gives a disk image in which each unsynced write, and each unsynced name in a folder,
may be there or not; a write may also be torn at a sector. That is harsher than any one file
system. After a sync that failed, what it should have written is lost for good, though the
running machine still reads it: as Linux does it.
"""

import os
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

CHANGING = "write,pwrite64,fsync,fdatasync,ftruncate,link,rename,unlink,mkdir,openat"  # and close
_SECTOR = 512  # bytes that a disk writes whole
_CALL = re.compile(r"^\d+ +(\w+)\((.*)\) += (-?\d+)")
_HEX = re.compile(r"\\x([0-9a-f]{2})")


@dataclass(frozen=True)
class Call:
    """One system call and what it returned, negative for an error."""

    name: str
    arguments: tuple[str, ...]
    result: int

    def text(self, at: int) -> str:
        return self.data(at).decode()

    def data(self, at: int) -> bytes:
        return bytes.fromhex("".join(_HEX.findall(self.arguments[at])))


def traced(
    command: Sequence[str], *, log: Path, calls: str = CHANGING, options: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a Python command under strace, with a log of these calls; measure no coverage in it."""
    environment = {name: v for name, v in os.environ.items() if not name.startswith("COVERAGE_")}
    kills = any("signal=" in option for option in options)
    quickly = () if kills else ("--seccomp-bpf",)  # with which strace 6.1 sends no signal
    return subprocess.run(
        [
            *("strace", "-f", *quickly, "-qq", "-o", str(log), "-e", f"trace={calls}"),
            *("-e", "signal=none", *options, sys.executable, "-B", *command),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=environment,
    )


def recorded(
    command: Sequence[str], *, log: Path, options: Sequence[str] = ()
) -> tuple[list[Call], subprocess.CompletedProcess[str]]:
    """Run a command and return every call that changed a file, with its data."""
    done = traced(
        command, log=log, calls=f"{CHANGING},close", options=("-xx", "-s", "1000000", *options)
    )
    calls = []
    for line in log.read_text().splitlines():
        match = _CALL.match(line)
        if match:
            calls.append(Call(match[1], tuple(match[2].split(", ")), int(match[3])))
    return calls, done


@dataclass
class _File:
    live: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)  # None: cut at the offset

    def change(self, at: int, data: bytes | None) -> None:
        _change(self.live, at, data)
        self.pending.append((at, data))

    def sync(self) -> None:
        for at, data in self.pending:  # and not what an earlier sync has failed to write
            _change(self.durable, at, data)
        self.pending.clear()

    def survivor(self, rng: random.Random) -> bytes:
        content = bytearray(self.durable)
        chance = rng.choice((0.0, 0.3, 0.7, 1.0))
        for at, data in self.pending:
            if rng.random() < chance:
                torn = rng.random() < 0.1 and data is not None and len(data) > _SECTOR
                cut = _SECTOR * rng.randrange(len(data) // _SECTOR) if torn and data else None
                _change(content, at, data[:cut] if data is not None else None)
        return bytes(content)


def _change(content: bytearray, at: int, data: bytes | None) -> None:
    end = at + len(data or b"")
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    if data is None:
        del content[at:]
    else:
        content[at:end] = data


Names = dict[str, "_File | None"]  # None: a folder


class Disk:
    """The files below one folder: as the machine sees them, and as a power loss leaves them."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._live: Names = {self._root: None}
        self._durable: Names = {self._root: None}
        self._pending: list[tuple[str, _File | None, bool]] = []  # name, file, appears or goes
        self._open: dict[str, tuple[str, _File | None]] = {}
        self._position: dict[str, int] = {}
        self.said = b""  # on standard output

    def start_process(self) -> None:
        """Forget the descriptors of the process before."""
        self._open.clear()

    def apply(self, call: Call) -> None:
        """Replay one call."""
        if call.name in ("fsync", "fdatasync"):
            self._sync(call)
        elif call.result >= 0:
            getattr(self, f"_{call.name}")(call)

    def crash(self, target: Path, rng: random.Random) -> None:
        """Write what a power loss leaves at this moment."""
        names = dict(self._durable)
        stuck: set[str] = set()  # of each folder, a first part of its changes survives
        chance = rng.choice((0.0, 0.5, 0.9, 1.0))
        for name, file, appears in self._pending:
            folder = str(Path(name).parent)
            if folder in stuck or rng.random() > chance:
                stuck.add(folder)
            elif appears:
                names[name] = file
            else:
                names.pop(name, None)
        for name in sorted(names):
            path = target / Path(name).relative_to(self._root)
            file = names[name]
            if not path.parent.exists() or name.endswith("-shm"):
                continue  # a name in a lost folder; shared memory
            if file is None:
                path.mkdir(exist_ok=True)
            else:
                path.write_bytes(file.survivor(rng))
                path.chmod(0o600)

    def _sync(self, call: Call) -> None:
        name, file = self._open.get(call.arguments[0], ("", None))
        if file is not None:
            if call.result == 0:
                file.sync()
            else:
                file.pending.clear()
        elif call.result == 0:
            for child, each, appears in self._pending:
                if str(Path(child).parent) == name:
                    self._durable.pop(child, None)
                    if appears:
                        self._durable[child] = each
            self._pending = [p for p in self._pending if str(Path(p[0]).parent) != name]

    def _openat(self, call: Call) -> None:
        name, descriptor = call.text(1).rstrip("/"), str(call.result)
        self._open.pop(descriptor, None)
        if not name.startswith(f"{self._root}/") and name != self._root:
            return
        if name not in self._live:
            assert "O_CREAT" in call.arguments[2], name
            self._name(name, _File())
        file = self._live[name]
        if file is not None and "O_TRUNC" in call.arguments[2]:
            file.change(0, None)
        self._open[descriptor] = (name, file)
        self._position[descriptor] = 0

    def _close(self, call: Call) -> None:
        self._open.pop(call.arguments[0], None)

    def _write(self, call: Call) -> None:
        descriptor, data = call.arguments[0], call.data(1)[: call.result]
        if descriptor == "1":
            self.said += data
        elif descriptor in self._open:
            self._change(descriptor, self._position[descriptor], data)
            self._position[descriptor] += len(data)

    def _pwrite64(self, call: Call) -> None:
        self._change(call.arguments[0], int(call.arguments[3]), call.data(1)[: call.result])

    def _ftruncate(self, call: Call) -> None:
        _, file = self._open.get(call.arguments[0], ("", None))
        size = int(call.arguments[1])
        if file is not None and size < len(file.live):
            file.change(size, None)
        elif file is not None:
            file.change(len(file.live), bytes(size - len(file.live)))

    def _change(self, descriptor: str, at: int, data: bytes) -> None:
        _, file = self._open.get(descriptor, ("", None))
        if file is not None:
            file.change(at, data)

    def _mkdir(self, call: Call) -> None:
        if call.text(0).startswith(f"{self._root}/"):
            self._name(call.text(0), None)

    def _link(self, call: Call) -> None:
        self._name(call.text(1), self._live[call.text(0)])

    def _rename(self, call: Call) -> None:
        file = self._live[call.text(0)]
        self._name(call.text(1), file)
        self._forget(call.text(0))

    def _unlink(self, call: Call) -> None:
        if call.text(0) in self._live:
            self._forget(call.text(0))

    def _name(self, name: str, file: _File | None) -> None:
        self._live[name] = file
        self._pending.append((name, file, True))

    def _forget(self, name: str) -> None:
        file = self._live.pop(name)
        self._pending.append((name, file, False))
