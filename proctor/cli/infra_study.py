"""`proctor infra simulate` and `mutate`: how often the gate errs, and what its tasks would miss."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from judge.gauntlet.comparison.mutation import (
    Equivalent,
    Mutant,
    MutationReport,
    TaskJudge,
    mutate_run,
    parse_equivalents,
)
from judge.gauntlet.comparison.simulation import Scale, simulate
from judge.gauntlet.repository.git import Repository
from judge.gauntlet.repository.manifest import PATH, Manifest, parse_manifest
from judge.gauntlet.tasks import benchmark, reference_set
from judge.gauntlet.tasks.reference_set import Task
from judge.reference.mutations import mutate_all
from judge.reference.scorers import SCORERS
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.failures import require_extra
from proctor.cli.options import MOST
from proctor.errors import ProctorError
from proctor.improvement.home import BRANCH, HERE, BranchOption, RepoOption
from proctor.output.terminal import console, error_console, print_table, words

app = CommandGroup()

OWN = Path(benchmark.__file__).resolve().parents[3]  # where the code that runs here lies
EQUIVALENTS = "equivalents.toml"  # beside the reference set's manifest
SMALL = Scale(
    trials=100, sequences=5, proposals=100, mixed=20, disturbed=20, following=12, exact=10
)
SeedOption = Annotated[
    int, typer.Option("--seed", min=0, max=MOST, help="Seed of the random draws.")
]


@app.command("simulate", prints="list[shared.Table]")
def simulate_(
    seed: SeedOption = 0,
    small: Annotated[
        bool, typer.Option("--small", help="Simulate a tenth or less, in seconds.")
    ] = False,
) -> Output:
    """Simulate the error rates of the gate, and of a plain rule."""
    tables = simulate(replace(SMALL if small else Scale(), seed=seed))

    def tell() -> None:
        for table in tables:
            console.print(words(table.to_markdown()) + "\n")

    return Output(lambda: list(tables), tell)


@app.command(prints="improvement.Mutations")
def mutate(
    most: Annotated[
        int | None,
        typer.Option("--most", min=1, help="Number of defects to plant, drawn by --seed."),
    ] = None,
    seed: SeedOption = 0,
    least: Annotated[
        float,
        typer.Option(
            "--least", min=0.0, max=1.0, help="Exit with code 1 if a smaller share is caught."
        ),
    ] = 0.8,
    repo: RepoOption = HERE,
    branch: BranchOption = BRANCH,
) -> Output:
    """Plant defects into tier 2 code, and list those that the reference set misses.

    The repository that this command was installed from answers in forks of one process, in
    minutes. Any other repository answers each task in a confined process, like a candidate.
    """
    require_extra("train")
    repository = Repository(repo)
    commit = repository.head(branch)
    manifest = parse_manifest(repository.read(commit, PATH)).located(repository.path)
    files = repository.paths(commit)
    paths = [path for path in files if path.endswith(".py") and manifest.tier_of(path) == 2]
    if not paths:
        raise ProctorError(f"{PATH} calls no Python file tier 2, so nothing can be planted")
    listed = f"{manifest.reference_set}/{EQUIVALENTS}"
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        tree = scratch / "tree"
        tree.mkdir()
        benchmark.export(repository, commit, manifest, tree)
        report = _planted(
            paths,
            reference_set.load(
                repository, commit=commit, path=manifest.reference_set, scorers=SCORERS
            ).tasks,
            manifest,
            tree=tree,
            scratch=scratch,
            most=most,
            seed=seed,
            equivalents=(
                parse_equivalents(repository.read(commit, listed)) if listed in files else ()
            ),
            forked=repository.path == OWN,
        )
    return Output(
        {"commit": commit, **report.to_dict()},
        lambda: _tell(report),
        found=not (report.share >= least),
    )


def _planted(
    paths: list[str],
    tasks: tuple[Task, ...],
    manifest: Manifest,
    *,
    tree: Path,
    scratch: Path,
    most: int | None,
    seed: int,
    equivalents: tuple[Equivalent, ...],
    forked: bool,
) -> MutationReport:
    """Run them: our own code in forks of this process, which is quick; another's as candidates."""
    if forked:
        return mutate_all(
            tree,
            tasks,
            paths=paths,
            scratch=scratch,
            most=most,
            seed=seed,
            equivalents=equivalents,
        )
    return mutate_run(
        paths,
        TaskJudge(tasks, manifest, scratch=scratch, scorers=SCORERS),
        tree=tree,
        scratch=scratch,
        most=most,
        seed=seed,
        equivalents=equivalents,
        on_result=_tell_survivor,
    )


def _tell_survivor(mutant: Mutant, by: str | None) -> None:
    """Tell people what was not caught, beside the answer: a run may take hours."""
    if by is None:
        error_console.print(words(f"not caught: {mutant.path}:{mutant.line} {mutant.description}"))


def _tell(report: MutationReport) -> None:
    print_table(
        ("id", "where", "not caught"),
        [
            (mutant.id, f"{mutant.path}:{mutant.line} {mutant.function}", mutant.description)
            for mutant in report.survivors
        ],
    )
    for id_ in report.mistaken:
        console.print(words(f"{id_} is listed as equivalent, and was caught"))
    for id_ in report.unknown:
        console.print(words(f"{id_} is listed as equivalent, and is planted nowhere"))
    count = len(report.caught) + len(report.survivors)
    console.print(
        words(
            f"{len(report.caught)} of {count} planted defects are caught ({report.share:.1%}); "
            f"{len(report.equivalent)} more are listed as equivalent; there are {report.found}"
        )
    )
