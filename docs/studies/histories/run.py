"""Ordinary changes of public packages, and what the gate says of them.

    python docs/studies histories FOLDER [--from CLONES] [--only PACKAGE[/KIND]]

Each change is judged by the commands that anybody has, in a repository and a home of its own: the
package as it was, enrolled with a few tasks that are single calls. Fixes and refactorings are
commits of the package; what is slower and what harms are a speed-up and a fix taken back, which
somebody calls a refactoring. A changed test file is added under a new name, as a proposal may not
change tests. Flaky tests are planted: in a change without effect, and in the suite under a fix.

What was judged stays judged: the same command goes on after a kill. Packages are run, never built.
I/O: FOLDER; clones from github.com, or from CLONES/OWNER+NAME; pip installs each package's `needs`.
"""

import argparse
import json
import re
import resource
import subprocess
import sys
import time
import tomllib
import venv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from proctor.sample.init import git
from studies.evolution.run import OPERATOR, Evolution, say

PACKAGES: Mapping[str, Mapping[str, Any]] = tomllib.loads(
    Path(__file__).with_name("packages.toml").read_text(encoding="utf-8")
)
_CHANCE = "import os\n\n\ndef test_of_chance():\n    assert os.urandom(1)[0] % {of}\n"
_CHANCE_FILE = "test_of_chance.py"


@dataclass(frozen=True)
class Kind:
    """What is proposed, what an operator signs, and which outcome is right."""

    commit: str  # which of the package's commits it is made of
    sign: str
    right: str
    back: bool = False  # whether the commit is taken back


KINDS = {
    "fix": Kind("fix", "approve", "promoted"),
    "refactoring": Kind("refactoring", "refactor", "promoted"),
    "slower": Kind("slower", "refactor", "rejected", back=True),
    "harm": Kind("harm", "refactor", "rejected", back=True),
    "flaky test": Kind("refactoring", "approve", "rejected"),  # fails in half of the runs
    "flaky suite": Kind("fix", "approve", "promoted"),  # fails in a tenth of the runs
}


def plans(only: str = "") -> list[tuple[str, str]]:
    """Return the changes to judge: package and kind."""
    return [
        (name, kind)
        for name, package in PACKAGES.items()
        for kind, of in KINDS.items()
        if of.commit in package and f"{name}/{kind}/".startswith(only and f"{only}/")
    ]


def spread(value: Any) -> Any:
    """Return an argument or a result with the texts that it abbreviates."""
    if isinstance(value, dict):
        return "".join(value["text"].replace("{n}", str(n)) for n in range(value["times"]))
    return [spread(each) for each in value] if isinstance(value, list) else value


def code_of(package: Mapping[str, Any], paths: Sequence[str]) -> list[str]:
    """Return the package's modules among changed paths."""
    return [each for each in paths if each.startswith(package["code"]) and each.endswith(".py")]


def suite_of(package: Mapping[str, Any], paths: Sequence[str]) -> list[str]:
    """Return the test files among changed paths."""
    pattern = re.escape(package["tests"]) + r"test_[^/]*\.py"
    return [each for each in paths if re.fullmatch(pattern, each)]


@dataclass(frozen=True)
class History:
    """One change of one package, and its folder."""

    folder: Path
    package: Mapping[str, Any]  # its facts, as in packages.toml
    kind: str

    @property
    def front(self) -> Evolution:
        """The front door, with this history's repository and home."""
        return Evolution(self.folder)

    @property
    def commit(self) -> str:
        """The package's commit that the change is made of."""
        return str(self.package[KINDS[self.kind].commit])

    def prepare(self, source: str) -> None:
        """Clone the package as it was, and put it under the gauntlet as the documentation says."""
        front, repo = self.front, self.front.repo
        git(self.folder, "clone", "--quiet", source, str(repo))
        back = KINDS[self.kind].back
        base = self.commit if back else f"{self.commit}^"
        git(repo, "switch", "--quiet", "-C", "main", base)
        if self.kind in self.package.get("unseen", ()):
            self.undo_tests()
        for path, text in self.package.get("written", {}).items():
            self.write(path, text)
        if self.kind == "flaky suite":
            self.write(self.package["tests"] + _CHANCE_FILE, _CHANCE.format(of=10))
        git(repo, "commit", "--quiet", "--allow-empty", "--message", "As it is")
        tasks = [*self.package["tasks"], *self.package.get(f"{self.kind}_tasks", ())]
        functions = dict.fromkeys(each[0] for each in tasks)
        named = [word for each in functions for word in ("--function", each)]
        front.proctor("line", "init", str(repo), *named, "--environment", "../../env")
        if without := self.package.get("without"):
            manifest = repo / "judge/tiers.toml"
            text = manifest.read_text(encoding="utf-8")
            manifest.write_text(text.replace('"-q",', f'"-q", "--deselect={without}",'))
        for number, (function, arguments, result) in enumerate(tasks):
            told = [w for each in arguments for w in ("--argument", json.dumps(spread(each)))]
            expect = ("--expect", json.dumps(spread(result)))
            front.line("task", "new", f"call-{number}", "--function", function, *told, *expect)
        git(repo, "add", "judge")
        git(repo, "commit", "--quiet", "--message", "Put under the gauntlet")
        git(repo, "switch", "--quiet", "--create", "work")
        front.line("show")
        key = str(self.folder / OPERATOR)
        front.proctor("keys", "new", "operator", key)
        front.proctor("keys", "grant", "operator", f"{key}.vkey")

    def write(self, path: str, text: str) -> None:
        """Write a file and stage it, whatever git ignores."""
        (self.front.repo / path).write_text(text, encoding="utf-8")
        git(self.front.repo, "add", "--force", path)

    def undo_tests(self) -> None:
        """Take the commit's tests back, so that the suite does not see what it is about."""
        for path in suite_of(self.package, self.changed()):
            there = git(self.front.repo, "ls-tree", "--name-only", f"{self.commit}^", path)
            restored = ("checkout", f"{self.commit}^", "--", path) if there else ("rm", path)
            git(self.front.repo, *restored)

    def changed(self) -> list[str]:
        """Return the paths that the commit changes."""
        ends = (f"{self.commit}^", self.commit)
        return git(self.front.repo, "diff", "--name-only", *ends).splitlines()

    def diff(self) -> str:
        """Return the proposal: the commit's modules, and its tests in files that are new."""
        repo, commit, kind = self.front.repo, self.commit, KINDS[self.kind]
        ends = (commit, f"{commit}^") if kind.back else (f"{commit}^", commit)
        own = git(repo, "diff", "--binary", *ends, "--", *code_of(self.package, self.changed()))
        added = {}
        if self.kind == "flaky test":
            added[self.package["tests"] + _CHANCE_FILE] = _CHANCE.format(of=2)
        elif kind.commit == "fix":
            for path in suite_of(self.package, self.changed()):
                there = git(repo, "ls-tree", "--name-only", "main", path)
                name = path.replace("test_", "test_after_", 1) if there else path
                added[name] = git(repo, "show", f"{commit}:{path}")
        for path, text in added.items():
            self.write(path, text)
        tests = git(repo, "diff", "--cached")
        git(repo, "reset", "--quiet", "--hard")
        return own + tests

    def judge(self) -> dict[str, Any]:
        """Propose the change, sign it, run it, and return what became of it."""
        front, kind = self.front, KINDS[self.kind]
        proposed = self.folder / "change.diff"
        proposed.write_text(self.diff(), encoding="utf-8")
        began, used = time.monotonic(), _processor_time()
        front.line("propose", str(proposed), "--rationale", f"A {kind.commit}.", may=(0, 1))
        one = json.loads(front.line("show", "latest", "--json"))
        if one["outcome"] is None:
            key = ("--key", str(self.folder / OPERATOR))
            front.line("sign", kind.sign, one["proposal"], *key)
            front.line("run", may=(0, 1, 2))
        asked = "SELECT count(*) n FROM infra_task_scores WHERE NOT cached"
        told = front.ask("SELECT status, reason FROM infra_proposals")
        return {
            "outcome": told["status"],
            "reason": told["reason"],
            "right": told["status"] == kind.right,
            "answers": front.ask(asked)["n"],
            "seconds": round(time.monotonic() - began, 1),
            "processor_seconds": round(_processor_time() - used, 1),
        }


def _processor_time() -> float:
    """Return the processor time of the commands that have ended, in seconds."""
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def source_of(address: str, clones: Path | None) -> str:
    """Return where a package is cloned from."""
    owner, name = PurePosixPath(address).parts[-2:]
    return address if clones is None else str(clones.resolve() / f"{owner}+{name}")


def environment(folder: Path, needs: Sequence[str]) -> None:
    """Make the virtual environment with what a package's tests need, once."""
    done = folder / "env" / "installed"
    if not done.exists():
        venv.create(folder / "env", with_pip=True)
        subprocess.run((folder / "env/bin/pip", "install", "--quiet", *needs), check=True)
        done.touch()


def table(found: Mapping[tuple[str, str], Mapping[str, Any]]) -> Iterator[str]:
    """Give the rows of the page: outcome, seconds, answers; a wrong outcome is bold."""
    yield f"| package | {' | '.join(KINDS)} |"
    yield f"|---|{len(KINDS) * '---|'}"
    for name in dict.fromkeys(name for name, _ in found):
        cells = []
        for kind in KINDS:
            if told := found.get((name, kind)):
                outcome = told["outcome"] if told["right"] else f"**{told['outcome']}**"
                cells.append(f"{outcome}, {told['seconds']:.0f} s, {told['answers']}")
            else:
                cells.append("-")
        yield f"| {name} | {' | '.join(cells)} |"


def main(arguments: Sequence[str]) -> None:
    """Judge what is not judged yet, and print the table."""
    parser = argparse.ArgumentParser(prog="python docs/studies histories", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--from", type=Path, dest="clones", help="Folder of clones named OWNER+NAME."
    )
    parser.add_argument("--only", default="", metavar="PACKAGE[/KIND]", help="Changes to judge.")
    asked = parser.parse_args(arguments)
    found = {}
    for name, kind in plans(asked.only):
        facts, package = PACKAGES[name], asked.folder.resolve() / name
        history = History(package / kind.replace(" ", "-"), facts, kind)
        result = history.folder / "result.json"
        if not result.exists():
            if history.folder.exists():  # what was interrupted begins anew
                history.folder.rename(package / f"interrupted-{time.time_ns()}")
            history.folder.mkdir(parents=True)
            environment(package, facts["needs"])
            history.prepare(source_of(facts["address"], asked.clones))
            result.write_text(json.dumps(history.judge(), indent=1), encoding="utf-8")
        told = json.loads(result.read_text(encoding="utf-8"))
        found[name, kind] = told
        say(f"{name}, {kind}: {told['outcome']}: {str(told['reason'])[:150]}")
    for line in table(found):
        sys.stdout.write(f"{line}\n")
    right, used = (
        sum(told[of] for told in found.values()) for of in ("right", "processor_seconds")
    )
    sys.stdout.write(f"\n{right} of {len(found)} right; {used:.0f} s of processor time\n")
