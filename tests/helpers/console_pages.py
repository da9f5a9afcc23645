"""The pages whose console blocks are run by tests/docs/test_snippets.py, and how a line is run."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

from forked import start_forked

EXAMPLES = {  # page -> the folder of docs/examples that its commands are given in a copy of
    "docs/examples/cheat/README.md": "cheat",
    "docs/how-to/ask-a-model.md": "language-model",
    "docs/how-to/bisect.md": "bisect",
    "docs/how-to/compare-policies.md": "compare",
    "docs/how-to/own-data.md": "tasks",
    "docs/how-to/verify.md": "audit",
    "docs/how-to/watch-your-own-loop.md": "watch",
}
PAGES = (
    *EXAMPLES,
    "README.md",
    "docs/tutorial/first-run.md",
    "docs/how-to/change-the-system.md",
    "docs/how-to/fork-a-run.md",
    "docs/how-to/hand-over.md",
    "docs/how-to/provoke-a-fault.md",
    "docs/how-to/rotate-a-key.md",
    "docs/how-to/run-a-campaign.md",
    "docs/how-to/use-postgresql.md",
    "docs/how-to/watch-for-drift.md",
    "docs/how-to/witness.md",
)
SLOW = (
    "docs/examples/cheat/README.md",
    "docs/how-to/ask-a-model.md",
    "docs/how-to/bisect.md",
    "docs/how-to/change-the-system.md",
    "docs/how-to/compare-policies.md",
    "docs/how-to/own-data.md",
    "docs/how-to/verify.md",
    "docs/how-to/watch-your-own-loop.md",
    "docs/tutorial/first-run.md",
    "docs/how-to/fork-a-run.md",
    "docs/how-to/hand-over.md",
    "docs/how-to/provoke-a-fault.md",
    "docs/how-to/rotate-a-key.md",
    "docs/how-to/run-a-campaign.md",
    "docs/how-to/use-postgresql.md",
    "docs/how-to/watch-for-drift.md",
)


def console_lines(text: str) -> list[tuple[str, str]]:
    """Return the commands of a page's console blocks, each with what it is shown to print."""
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    shown = re.split(r"^\$ ", "".join(blocks), flags=re.MULTILINE)[1:]
    return [(command, output) for command, _, output in (each.partition("\n") for each in shown)]


def copy_example(page: str, to: Path) -> None:
    """Copy the folder of a page's example, but not what a run in the folder itself has left."""
    ignore = shutil.ignore_patterns(".*", "__pycache__", "*.md")
    folder = Path(__file__).parents[2] / "docs/examples" / EXAMPLES[page]
    shutil.copytree(folder, to, ignore=ignore, dirs_exist_ok=True)


def run_line(
    command: str, *, cwd: Path, environment: dict[str, str], forked: bool
) -> tuple[str, str]:
    """Run a line of a console block; return what was said on standard output and error.

    A shell runs it, which starts the installed command; `forked`, that is spared its imports.
    """
    if forked and command.startswith("proctor "):
        out, err = cwd.with_suffix(".out"), cwd.with_suffix(".err")
        for path in (out, err):
            path.unlink(missing_ok=True)
        _, *arguments = shlex.split(command, comments=True)
        process = start_forked(arguments, environment=environment, out=out, err=err, cwd=cwd)
        process.join(1_800)
        assert process.exitcode is not None, command
        return out.read_text(), err.read_text()
    done = subprocess.run(
        command,
        shell=True,
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        timeout=1_800,
        check=False,
    )
    return done.stdout, done.stderr
