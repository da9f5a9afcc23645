"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

HOME = Path(".proctor")
MOST = 2**63 - 1  # an index has 63 bits
HomeOption = Annotated[
    Path,
    typer.Option(
        "--home", envvar="PROCTOR_HOME", help="Folder with the ledger and all that belongs to it."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
VkeyOption = Annotated[
    Path | None,
    typer.Option(
        "--vkey",
        help="The owner's public key, as you had it from the owner. Without it the one that lies "
        "beside is believed: damage is found, but not who made all of it.",
    ),
]
AsOfOption = Annotated[
    int | None,
    typer.Option("--as-of", min=0, max=MOST, help="As after the entry with this index."),
]
OperatorKeyOption = Annotated[
    Path, typer.Option("--key", help="An operator's private key, which signs it.")
]
SigningKeyOption = Annotated[
    Path | None,
    typer.Option("--key", help="An operator's private key; by default the ledger's own signs."),
]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="An id, the beginning of one, or `latest`.")
]
