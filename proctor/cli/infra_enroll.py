"""`proctor infra enroll` and `add-task`: put a repository that you have under the gauntlet."""

import json
from typing import Annotated

import typer

from proctor.cli.command_group import CommandGroup, Output
from proctor.errors import ProctorError
from proctor.improvement.enroll import SET, TaskCall, add_task, check_difficulty, enroll
from proctor.improvement.home import BRANCH, HERE, BranchOption, RepoOption

app = CommandGroup()
FunctionOption = Annotated[
    str, typer.Option("--function", metavar="MODULE:NAME", help="Function that the task calls.")
]


@app.command("enroll", prints="improvement.WrittenNames")
def enroll_(
    functions: Annotated[
        list[str],
        typer.Option(
            "--function", metavar="MODULE:NAME", help="Function that reference tasks call."
        ),
    ],
    environment: Annotated[
        str | None,
        typer.Option(
            "--environment",
            metavar="DIR",
            help="Virtual environment with the dependencies, relative to the repository; by "
            "default .venv or venv if it exists, and otherwise Proctor's own.",
        ),
    ] = None,
    repo: RepoOption = HERE,
    branch: BranchOption = BRANCH,
) -> Output:
    """Write a manifest and a worker for your own repository into its work tree."""
    written = enroll(repo, functions=functions, branch=branch, environment=environment)
    lines = [
        *(f"wrote {path}" for path in written),
        "next: read the tiers, add reference tasks with `proctor infra add-task`, and commit all",
    ]
    return Output({"written": [str(path) for path in written]}, "\n".join(lines))


@app.command("add-task", prints="improvement.Folder")
def add_task_(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the task.")],
    function: FunctionOption,
    expect: Annotated[
        str, typer.Option("--expect", metavar="JSON", help="Value that the function must return.")
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Option("--argument", metavar="JSON", help="Argument of the call, in order."),
    ] = None,
    category: Annotated[
        str, typer.Option("--category", help="Category of the task.")
    ] = "behaviour",
    difficulty: Annotated[
        str, typer.Option("--difficulty", help="Difficulty: easy, medium or hard.")
    ] = "medium",
    repo: RepoOption = HERE,
) -> Output:
    """Write a reference task into the work tree: one call, and the value it must return."""
    call = TaskCall(
        name=name,
        function=function,
        arguments=[_read(each, "--argument") for each in arguments or []],
        expected=_read(expect, "--expect"),
        category=category,
        difficulty=check_difficulty(difficulty),
    )
    place = add_task(repo, call)
    return Output({"folder": str(place)}, f"wrote {place}; commit {repo / SET} to the branch")


def _read(text: str, option: str) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProctorError(
            f"{option} {text} must be JSON, as in '\"text\"' or 3: {error}"
        ) from error
    return value
