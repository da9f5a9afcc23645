"""The homes on which the commands of docs/reference/requirements.md run.

`PYTHONPATH=tests/helpers python tests/helpers/requirement_homes.py` makes them in this folder:
`record`, a ledger with every kind of event, which were not measured; `trained`, a real campaign of
a scripted model; `line`, what `proctor line init sample --demo` leaves behind.
"""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from unittest import mock

from chat_server import ChatServer, decide, defer_r1
from frontdoor import TINY, call_here, with_settings
from full_ledger import add_what_can_go_wrong, write_some_of_everything

CAMPAIGN = [
    "run",
    "--policy",
    "openai",
    *with_settings(TINY, "epochs=6", "lr=3.0", "warm_up_epochs=0"),
    *("--attempts", "2", "--set", "model=scripted"),
    *("--set", "price_in=1.0", "--set", "price_out=2.0"),
]


def make_record(home: Path) -> None:
    """Write every kind of event."""
    write_some_of_everything(home / "ledger")
    add_what_can_go_wrong(home / "ledger")


def make_trained(home: Path) -> None:
    """Have a model decide that defers R1 until the feedback names it; judge by training again."""
    with ChatServer(decide(defer_r1)) as server:
        told = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "none"}
        with mock.patch.dict(os.environ, told):
            _call(CAMPAIGN, home)
    _call(["judge"], home)


def make_line(home: Path) -> None:
    """Take a harmful, a good and a bypassing change through the gauntlet."""
    _call(["line", "init", home / "sample", "--demo"], home)


HOMES: Mapping[str, Callable[[Path], None]] = {
    "record": make_record,
    "trained": make_trained,
    "line": make_line,
}


def _call(arguments: Sequence[str | Path], home: Path) -> None:
    done = call_here(arguments, home=home)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, arguments))}: {done.stdout}{done.stderr}")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    for name, make in HOMES.items():
        make(Path(name))
