"""A small repository under the gauntlet, in real git, for tests."""

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from judge.gauntlet.repository.changes import Verdict, check_changes, tier_of_change
from judge.gauntlet.repository.git import Repository
from judge.gauntlet.repository.manifest import PATH, parse_manifest

MANIFEST = """\
version = 1
line = "main"
reference_set = "judge/reference_tasks"
[tiers]
0 = ["judge/**", "tests/**", "sample/core.py"]
1 = ["prompts/system.md", "sample/order.py"]
2 = ["bin/**", "notes/**", "prompts/**", "sample/**"]
[controller]
paths = ["sample/gate.py"]
[config]
paths = ["sample/*.toml"]
[tests]
command = ["{python}", "-m", "pytest", "--junitxml={report}"]
paths = ["tests/**"]
additions = ["tests/test_*.py"]
seconds = 60
memory_bytes = 2_000_000_000
[benchmark]
command = ["{python}", "judge/reference_tasks/worker.py"]
seconds = 10
memory_bytes = 2_000_000_000
representative = ["one", "two"]
[code]
imports = ["collections.abc", "dataclasses", "math", "sample.*"]
[lint.max]
file_lines = 20
[weights]
paths = ["notes/*.safetensors"]
max_bytes = 20_000
"""
FILES = {
    PATH: MANIFEST,
    "judge/reference_tasks/manifest.json": '{"version": 1, "tasks": []}\n',
    "notes/Übung 2.txt": "Eins\n",
    "notes/windows.txt": "one\r\ntwo\r\nthree\r\n",
    "prompts/system.md": "Be exact.\n",
    "prompts/task.md": "Choose well.\n",
    "sample/__init__.py": "",
    "sample/core.py": "LIMIT = 3\n",
    "sample/gate.py": "OPEN = False\n",
    "sample/numbers.toml": "most = 3\n",
    "sample/order.py": "STAGES = (1, 2)\n",
    "sample/select.py": "def select(rows):\n    return sorted(rows)[:3]\n",
    "tests/test_core.py": "def test_core():\n    assert True\n",
}
OWN = Path(__file__).parents[3]
Edit = Callable[[Path], object]


class Scene:
    """A repository whose line is `main`, with a work tree that stands aside from it."""

    def __init__(self, path: Path, files: Mapping[str, str] = FILES) -> None:
        self.path = path
        path.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")
        for name, content in files.items():
            self.write(name, content)
        (path / "bin").mkdir()
        (path / "bin/run").write_text("echo\n")
        (path / "bin/run").chmod(0o755)
        (path / "latest").symlink_to("sample/core.py")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message=the first commit")
        self.git("switch", "--quiet", "--detach")
        self.repository = Repository(path)
        self.base = self.repository.head("main")

    def git(self, *arguments: str, given: bytes = b"", **environment: str) -> bytes:
        """Run git as a user would, without this machine's configuration."""
        people = {
            f"GIT_{who}_{what}": value
            for who in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", "Ada"), ("EMAIL", "ada@example.org"))
        }
        settings = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        clean = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        return subprocess.run(
            ["git", "-c", "protocol.file.allow=always", *arguments],
            cwd=self.path,
            input=given,
            env={**clean, **people, **settings, **environment},
            check=True,
            capture_output=True,
        ).stdout

    def write(self, name: str, content: str) -> None:
        place = self.path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode())

    def diff(self, *edits: Edit) -> bytes:
        """Return the diff of some edits, as git makes it; the work tree is as before."""
        for edit in edits:
            edit(self.path)
        self.git("add", "--all")
        diff = self.git("diff", "--cached", "--binary", "HEAD")
        self.git("reset", "--quiet", "--hard", "HEAD")
        return diff

    def check(self, diff: bytes, declared: Mapping[str, int] | None = None) -> Verdict:
        """Do what the controller does with a diff; declared is what it touches, or `declared`."""
        manifest = parse_manifest(self.repository.read(self.base, PATH))
        tree = self.repository.candidate_tree(self.base, diff, binary=manifest.is_weights)
        changes = self.repository.changes(self.base, tree)
        if declared is None:
            declared = {change.path: tier_of_change(change, manifest) for change in changes}
        return check_changes(changes, declared, manifest, self.repository.paths(tree))


def own_paths() -> list[str]:
    """Return the paths of the repository that these tests belong to, or of an export of it."""
    if not (OWN / ".git").exists():
        return [str(path.relative_to(OWN)) for path in OWN.rglob("*") if path.is_file()]
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=OWN, check=True, capture_output=True)
    return listed.stdout.decode().split("\0")[:-1]


def writes(name: str, content: str) -> Edit:
    """Return the edit that writes a file."""

    def edit(top: Path) -> None:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(content.encode())

    return edit


HONEST = writes("sample/select.py", "def select(rows):\n    return sorted(rows, key=abs)[:3]\n")
