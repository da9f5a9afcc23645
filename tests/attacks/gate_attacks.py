"""Attacks on the gate that judges changes: a registry, and the lines that they are carried out on.

Every attack goes through the front door: a real repository, a real ledger, the controller that
everybody uses, real processes. Three lines are alike but for one thing each: `plain` is as a line
should be; `unfenced` lets changed code import what it likes, so that what stands behind that fence
is seen to hold; `pytest` is the same with a suite that pytest runs. Each has one reference task,
which the base answers; `plain_two` and `unfenced_two` have a second one, which it does not.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from gauntlet_lines import NAMES, SELECTION, SMALL, Line, judged

from aggregates.errors import InvariantError
from aggregates.improvement.proposal import Proposal
from judge.errors import JudgeError
from judge.gauntlet import reviews
from ledger.errors import LedgerError
from proctor.home import Home
from proctor.sample.repository import FILES
from proctor.sample.repository import SELECTION as CODE

__all__ = ["ATTACKS", "SECTIONS", "Attack", "Ground", "Grounds", "Told", "attack", "proposes"]

SECTIONS = {
    "diff": "Misleading diffs",
    "reach": "Changing what judges",
    "code": "Code that subverts its process, rejected before it runs",
    "test": "Bypassing the tests",
    "benchmark": "Bypassing the reference set",
    "chance": "Passing by chance",
    "word": "Forged or reused approvals",
    "line": "Attacks on the line",
    "remains": "Attacks that are not rejected",
}
_ALL_OF_IT = "imports = [" + ", ".join(
    f'"{name}"'
    for name in (
        "_pytest.*", "atexit", "ctypes", "gc", "json", "judge.*", "os", "pathlib", "signal",
        "socket", "subprocess", "sys", "time", "unittest", "collections", "math", "re",
        "retrieval.*",
    )
) + "]"  # fmt: skip


@dataclass(frozen=True)
class Told:
    """How a proposal, or an operator's word, was answered."""

    ends: str  # a proposal's outcome; or "the line halts", "waits", "refused": nothing recorded
    reason: str


Carried = Callable[["Grounds"], Told]


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One attack: what it is for, and how it is answered."""

    name: str
    section: str
    wants: str
    ends: str
    because: str  # part of the reason that is given
    carry_out: Carried
    ground: str
    slow: bool = False
    probe: str | None = None  # code whose found() is true where nothing confines it
    against: str = ""  # of what remains: what stands against it


ATTACKS: list[Attack] = []


class Ground:
    """A line, and what must be the same after every attack."""

    def __init__(self, line: Line) -> None:
        self.line = line
        with line.controller() as controller:
            assert controller.line.halt is None  # and the line is on record now
        self.before = self.state()

    def state(self) -> tuple[object, ...]:
        """Return the line's head, its checkpoint, the branches, and people's work tree."""
        with self.line.controller() as controller:
            active, halt = controller.line.active, controller.line.halt
        hooks = sorted(path.name for path in (self.line.repo / ".git/hooks").iterdir())
        branches = self.line.repository.branches()
        config = (self.line.repo / ".git/config").read_text()
        return (self.line.head(), active, halt, branches, self.line.work_tree(), hooks, config)

    def copy(self, path: Path) -> "Ground":
        """Return another such line, for what changes one."""
        old = self.line
        shutil.copytree(old.repo.parent, path, symlinks=True)
        line = object.__new__(Line)
        line.home, line.repo, line.id = Home(path / "home"), path / "repo", old.id
        line.now, line.operator, line.stranger = old.now, old.operator, old.stranger
        line.settings = old.settings
        line.repository = type(old.repository)(line.repo)
        return Ground(line)


class Grounds:
    """The lines, each made when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._copies = 0

    @cached_property
    def plain(self) -> Ground:
        return self._made("plain", SMALL)

    @cached_property
    def unfenced(self) -> Ground:
        return self._made("unfenced", {**SMALL, **_unfenced(SMALL)})

    @cached_property
    def plain_two(self) -> Ground:
        return self._made("plain_two", SMALL, NAMES)

    @cached_property
    def unfenced_two(self) -> Ground:
        return self._made("unfenced_two", {**SMALL, **_unfenced(SMALL)}, NAMES)

    @cached_property
    def pytest(self) -> Ground:
        tests = {path: text for path, text in FILES.items() if path.startswith("tests/")}
        found = {path: text for path, text in SMALL.items() if not path.startswith("tests/")}
        kinds = "import pytest\nfrom retrieval.selection import KINDS\n\n\n"
        kinds += '@pytest.mark.parametrize("kind", KINDS)\ndef test_kind(kind):\n    assert kind\n'
        whole = {**found, **tests, **_unfenced(FILES), "tests/test_kinds.py": kinds}
        return self._made("pytest", {**whole, SELECTION: f'{CODE}\n\nKINDS = ("all", "some")\n'})

    def of(self, name: str) -> Ground:
        found: Ground = getattr(self, name)
        return found

    def fresh(self, name: str) -> Ground:
        """Return a line of its own for an attack that changes it."""
        self._copies += 1
        return self.of(name).copy(self.folder / f"{name}-{self._copies}")

    def _made(
        self, name: str, files: Mapping[str, str], tasks: tuple[str, ...] = NAMES[:1]
    ) -> Ground:
        return Ground(Line(self.folder / name, tasks, files={**files, **_wider(files)}))


def _wider(files: Mapping[str, str]) -> dict[str, str]:
    """Return the manifest with all of the package in tier 2 that is not in tier 0 or 1."""
    text = files["judge/tiers.toml"]
    named = '    "retrieval/scoring.py",\n'
    assert named in text
    text = text.replace(named, f'    "retrieval/**",\n{named}')
    return {"judge/tiers.toml": text}


def _unfenced(files: Mapping[str, str]) -> dict[str, str]:
    lines = files["judge/tiers.toml"].splitlines()
    changed = [_ALL_OF_IT if line.startswith("imports =") else line for line in lines]
    return {"judge/tiers.toml": "\n".join(changed)}


def attack(
    name: str,
    section: str,
    *,
    wants: str,
    ends: str,
    because: str,
    ground: str = "plain",
    slow: bool = False,
    probe: str | None = None,
    against: str = "",
) -> Callable[[Carried], Carried]:
    """Register an attack."""

    def register(carry_out: Carried) -> Carried:
        ATTACKS.append(
            Attack(
                name=name,
                section=section,
                wants=wants,
                ends=ends,
                because=because,
                carry_out=carry_out,
                ground=ground,
                slow=slow,
                probe=probe,
                against=against,
            )
        )
        return carry_out

    return register


def proposes(
    name: str,
    section: str,
    diff: Callable[[Line], bytes],
    declared: Mapping[str, int] | None = None,
    *,
    wants: str,
    ends: str,
    because: str,
    ground: str = "plain",
    slow: bool = False,
    probe: str | None = None,
) -> None:
    """Register a proposal that is refused, whoever makes it."""

    @attack(
        name,
        section,
        wants=wants,
        ends=ends,
        because=because,
        ground=ground,
        slow=slow,
        probe=probe,
    )
    def carry_out(grounds: Grounds) -> Told:
        line = grounds.of(ground).line
        return put(line, diff(line), declared or {SELECTION: 2})


def put(line: Line, diff: bytes, declared: Mapping[str, int]) -> Told:
    """Propose a change, take it as far as it goes, and let a halted line go on."""
    with line.controller() as controller:
        try:
            found = judged(controller, diff, declared)
        except (JudgeError, InvariantError, LedgerError) as error:
            return Told("refused", str(error))
        told = answer(controller.waits(found), found)
        if controller.line.halt is not None:
            assert controller.line.halted_by == str(found.id)
            reviews.resume(controller.place, line.word(controller, "resume", found))
            return Told("the line halts", told.reason)
        return told


def answer(waits: str | None, found: Proposal) -> Told:
    """Return how a proposal ended, or what it waits for."""
    if found.outcome is None:
        return Told("waits", str(waits))
    return Told(found.outcome, str(found.reason))
