"""Options that several commands have."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import typer

from proctor.errors import ProctorError, roots


class Takes(NamedTuple):
    """What an option takes, beside its text."""

    name: str | None = None  # of the value, as in `--task FILE`
    least: float | None = None
    most: float | None = None
    option: str | None = None  # where it is not called as its parameter: --file, --on/--off
    folder: bool = False  # the value is a folder, and there is one


class Argument(NamedTuple):
    """What makes a parameter an argument, beside its text."""

    name: str | None = None  # as in `[RUN|EXPORT]`
    least: float | None = None
    most: float | None = None
    completed: Callable[[typer.Context, str], list[str]] | None = None  # by a shell


def named_runs(ctx: typer.Context, begun: str) -> list[str]:
    """Return the names and ids of runs that begin so, for a shell to complete; none on an error."""
    from proctor.home import Home  # noqa: PLC0415 - only a shell that completes needs them
    from proctor.remembering import open_remembered  # noqa: PLC0415
    from proctor.runs.replay import run_names  # noqa: PLC0415

    with suppress(*roots(), OSError), open_remembered(Home(Path(ctx.params["home"]))) as ledger:
        called = run_names(ledger)
        known = ["latest", *called.values(), *(map(str, called) if begun else ())]
        return [each for each in dict.fromkeys(known) if each.startswith(begun)]
    return []


HOME = Path(".proctor")
MOST = 2**63 - 1  # an index has 63 bits
HomeOption = Annotated[
    Path, typer.Option("--home", envvar="PROCTOR_HOME", help="Folder with the ledger and its runs.")
]
JsonOption = Annotated[bool, "Print one JSON document.", Takes(option="--json")]
VkeyOption = Annotated[
    Path | None, "Public key from the owner; by default the key next to the ledger, once trusted."
]
AsOfOption = Annotated[
    int | None, "Show the state after the entry with this index.", Takes(least=0, most=MOST)
]
OperatorKeyOption = Annotated[Path, "Private key of the operator who signs."]
SigningKeyOption = Annotated[
    Path | None, "Private key of the operator; by default the ledger's own key."
]
MaxBlobBytesOption = Annotated[
    int | None,
    "Most bytes of a bundle's blobs together; by default 64 GiB, and 2 GiB for each.",
    Takes(least=1),
]
LimitOption = Annotated[
    list[str] | None,
    "Limit of the judge, as in max_examples=500000; see docs/reference/audit.md.",
    Takes("NAME=VALUE", option="--limit"),
]
DataDirOption = Annotated[
    Path | None,
    "Folder with the judge's own copy of the data, read instead of the recorded folder.",
    Takes(folder=True),
]
RunArgument = Annotated[
    str,
    "An id, the start of one, a run's name, or `latest`: the newest run that is no fork.",
    Argument("RUN", completed=named_runs),
]
FromStartOption = Annotated[bool, "Train again from the start, and use no snapshot."]
WorkersOption = Annotated[
    int | None, "Runs at a time.  [default: all cores]", Takes(least=1, most=1_024)
]
ExecutorOption = Annotated[
    Literal["local", "ray"], "Where runs are trained: this machine, or a Ray cluster (RAY_ADDRESS)."
]
SettingsArgument = Annotated[
    list[str] | None,
    "Configuration, as in lr=0.3 epochs=8 dataset=imagefolder:DIR.",
    Argument("[KEY=VALUE]..."),
]
ConfigOption = Annotated[Path | None, "A TOML file with configuration."]
SetOption = Annotated[
    list[str] | None,
    "A setting of the policy, as in model=NAME.",
    Takes("KEY=VALUE", option="--set"),
]
WriterOption = Annotated[
    list[str] | None,
    "A setting of the model that writes advice; without it, templates are used.",
    Takes("KEY=VALUE"),
]
OutOption = Annotated[Path, "File to write."]
WitnessesOption = Annotated[
    Path | None, "File that names witnesses and a quorum (C2SP tlog-policy)."
]


def verify_unused(why: str, **options: object) -> None:
    """Raise ProctorError naming the options that were given and that mean nothing here."""
    given = [f"--{name.replace('_', '-')}" for name, value in options.items() if value]
    if given:
        raise ProctorError(f"{', '.join(given)}: {why}")
