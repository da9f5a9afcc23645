"""Planted defects that a line's reference set would miss: `python docs/studies mutate`.

The repository that this program lies in answers in forks of one process, in minutes. Any other
repository answers each task in a confined process, like a candidate.

I/O: reads a commit; processes; a temporary folder; prints a table.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from judge.gauntlet.repository.git import Repository
from judge.gauntlet.repository.manifest import PATH, parse_manifest
from judge.gauntlet.tasks import benchmark, reference_set
from proctor.errors import EXIT_FOUND, EXIT_HELD, ProctorError
from studies.gate.mutation import (
    Mutant,
    MutationReport,
    TaskJudge,
    mutate_run,
    parse_equivalents,
)
from studies.gate.own import mutate_all
from studies.reference.scorers import SCORERS
from studies.statistics import print_table

__all__ = ["main", "plant"]

OWN = Path(__file__).resolve().parents[2]  # the repository that this program lies in
EQUIVALENTS = "equivalents.toml"  # beside the reference set's manifest


def plant(
    repo: Path, *, branch: str = "main", most: int | None = None, seed: int = 0
) -> MutationReport:
    """Plant defects into the tier 2 code of a branch, and ask its reference set."""
    repository = Repository(repo)
    commit = repository.head(branch)
    manifest = parse_manifest(repository.read(commit, PATH)).located(repository.path)
    files = repository.paths(commit)
    paths = [path for path in files if path.endswith(".py") and manifest.tier_of(path) == 2]
    if not paths:
        raise ProctorError(f"{PATH} has no Python file in tier 2; only those get defects")
    listed = f"{manifest.reference_set}/{EQUIVALENTS}"
    known = parse_equivalents(repository.read(commit, listed)) if listed in files else ()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        tree = scratch / "tree"
        tree.mkdir()
        benchmark.export(repository, commit, manifest, tree)
        tasks = reference_set.load(
            repository, commit=commit, path=manifest.reference_set, scorers=SCORERS
        ).tasks
        if repository.path == OWN:
            return mutate_all(
                tree,
                tasks,
                paths=paths,
                scratch=scratch,
                most=most,
                seed=seed,
                equivalents=known,
            )
        return mutate_run(
            paths,
            TaskJudge(tasks, manifest, scratch=scratch, scorers=SCORERS),
            tree=tree,
            scratch=scratch,
            most=most,
            seed=seed,
            equivalents=known,
            on_result=_tell_survivor,
        )


def _tell_survivor(mutant: Mutant, by: str | None) -> None:
    """Tell people what was not caught, beside the answer: a run may take hours."""
    if by is None:
        sys.stderr.write(f"not caught: {mutant.path}:{mutant.line} {mutant.description}\n")


def _print(report: MutationReport) -> None:
    print_table(
        ("id", "where", "not caught"),
        [
            (mutant.id, f"{mutant.path}:{mutant.line} {mutant.function}", mutant.description)
            for mutant in report.survivors
        ],
    )
    print_table(
        ("file", "caught", "of", "share"),
        [(path, *counts, counts[0] / counts[1]) for path, counts in sorted(report.files.items())],
    )
    lines = [f"{id_} is listed as equivalent, and was caught" for id_ in report.mistaken]
    lines += [f"{id_} is listed as equivalent, and is planted nowhere" for id_ in report.unknown]
    count = len(report.caught) + len(report.survivors)
    lines.append(
        f"{len(report.caught)} of {count} planted defects are caught ({report.share:.1%}); "
        f"{len(report.equivalent)} more are listed as equivalent; there are {report.found}"
    )
    sys.stdout.write("\n".join(lines) + "\n")


def main(arguments: Sequence[str]) -> None:
    """Plant defects into tier 2 code, and list those that the reference set misses."""
    parser = argparse.ArgumentParser(prog="python docs/studies mutate", description=main.__doc__)
    parser.add_argument("--repo", type=Path, default=Path(), help="Repository; by default here.")
    parser.add_argument("--line", default="main", help="Branch; by default main.")
    parser.add_argument("--most", type=int, metavar="N", help="Plant N defects; --seed draws them.")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="Draws defects, and problems of tasks."
    )
    parser.add_argument(
        "--least", type=float, default=0.8, help="Exit with code 1 if tasks detect a smaller share."
    )
    options = parser.parse_args(arguments)
    if options.most is not None and options.most < 1:
        parser.error(f"--most must be 1 or more, not {options.most}")
    report = plant(options.repo, branch=options.line, most=options.most, seed=options.seed)
    _print(report)
    sys.exit(EXIT_HELD if report.share >= options.least else EXIT_FOUND)
