"""The pages whose console blocks are run by tests/docs/test_snippets.py, and how a line is run."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

from forked import start_forked

EXAMPLES = (
    "docs/examples/audit/README.md",
    "docs/examples/bisect/README.md",
    "docs/examples/cheat/README.md",
    "docs/examples/compare/README.md",
    "docs/examples/language-model/README.md",
    "docs/examples/tasks/README.md",
    "docs/examples/watch/README.md",
)
PAGES = (
    *EXAMPLES,
    "README.md",
    "docs/tutorial/first-run.md",
    "docs/how-to/change-the-system.md",
    "docs/how-to/evolve.md",
    "docs/how-to/fork-a-run.md",
    "docs/how-to/hand-over-a-bundle.md",
    "docs/how-to/hand-over-a-model.md",
    "docs/how-to/keep-a-head.md",
    "docs/how-to/prove-an-event.md",
    "docs/how-to/put-a-repository-under-the-gauntlet.md",
    "docs/how-to/provoke-a-fault.md",
    "docs/how-to/roll-back.md",
    "docs/how-to/rotate-a-key.md",
    "docs/how-to/second-verifier.md",
    "docs/how-to/tune-a-prompt.md",
    "docs/how-to/use-postgresql.md",
    "docs/how-to/watch-for-drift.md",
    "docs/how-to/witness.md",
)
SLOW = (
    *EXAMPLES,
    "docs/tutorial/first-run.md",
    "docs/how-to/change-the-system.md",
    "docs/how-to/fork-a-run.md",
    "docs/how-to/hand-over-a-model.md",
    "docs/how-to/keep-a-head.md",
    "docs/how-to/provoke-a-fault.md",
    "docs/how-to/roll-back.md",
    "docs/how-to/rotate-a-key.md",
    "docs/how-to/tune-a-prompt.md",
    "docs/how-to/use-postgresql.md",
    "docs/how-to/watch-for-drift.md",
)


def console_lines(text: str) -> list[tuple[str, str]]:
    """Return the commands of a page's console blocks, each with what it is shown to print."""
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    shown = re.split(r"^\$ ", "".join(blocks), flags=re.MULTILINE)[1:]
    return [(command, output) for command, _, output in (each.partition("\n") for each in shown)]


def copy_example(page: Path, to: Path) -> None:
    """Copy an example's folder, but not what a run in the folder itself has left."""
    ignore = shutil.ignore_patterns(".*", "__pycache__")
    shutil.copytree(page.parent, to, ignore=ignore, dirs_exist_ok=True)


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
