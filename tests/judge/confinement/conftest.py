"""A candidate's tree, its scratch folder, and running something there."""

import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confined_runs import MEMORY, Run

from judge.confinement import supervised
from judge.confinement.messages import ResourceLimits
from judge.confinement.supervised import Ended, discard


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    (tree / "judge").mkdir(parents=True)
    (tree / "judge/__init__.py").write_text("WHOSE = 'the candidate'\n")
    return tree


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    yield scratch
    discard(scratch)


@pytest.fixture
def run(tree: Path, scratch: Path) -> Run:
    def run(
        source: str, *, stdin: bytes = b"", readable: Iterable[Path] = (), **settings: Any
    ) -> Ended:
        return supervised.run(
            ["{python}", "-c", textwrap.dedent(source)],
            tree=tree,
            scratch=scratch,
            stdin=stdin,
            readable=readable,
            limits=ResourceLimits(**{"seconds": 20, "memory_bytes": MEMORY, **settings}),
        )

    return run
