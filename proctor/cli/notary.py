"""`proctor notary`: the recorder as a process and a user of its own."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from aggregates.registry import REGISTRY
from ledger.notary.desk import Desk
from ledger.notary.privileges import Account, become, find_account, give_folder, harden
from ledger.notary.rules import read_rules
from ledger.notary.service import Notary, listening, only_notary
from ledger.paths import LedgerPaths
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.options import HOME, HomeOption
from proctor.errors import ProctorError
from proctor.home import PASSPHRASE, Home
from proctor.output.shape import Listening

app = CommandGroup()


@app.command(prints=Listening)
def notary(
    socket: Annotated[Path, "Unix socket to listen on."],
    rules: Annotated[Path, "TOML file that says which user may append what."],
    user: Annotated[str | None, "Run as this user; needs root."] = None,
    any_events: Annotated[
        bool, "Take events of every name and body: the ledger of another program."
    ] = False,
    place: HomeOption = HOME,
) -> Iterator[Output]:
    """Serve a ledger to other users, who cannot read its key or change its files."""
    home = Home(place)  # nothing is compared with what root, who may start this, remembers
    account = _account(user)
    users = read_rules(rules, owners=(0, account[0]))
    if os.geteuid() == 0:
        give_folder(home.path, account, mode=0o700)
        if not socket.parent.exists():
            give_folder(socket.parent, account, mode=0o755)
        become(account)
    harden()
    passphrase = os.environ.pop(PASSPHRASE, None)
    paths = LedgerPaths(home.path / "ledger")
    paths.directory.mkdir(parents=True, exist_ok=True)
    paths.directory.chmod(0o700)  # it may be older than the notary
    with only_notary(paths.directory):
        secret = passphrase.encode(errors="surrogateescape") if passphrase else None
        desk = Desk(paths, passphrase=secret, registry=None if any_events else REGISTRY)
        try:
            with listening(socket) as listener:
                yield Output(
                    Listening(address=str(socket), vkey=desk.vkey, user=account[0]),
                    f"{desk.vkey}\nlistening at {socket} as user {account[0]}",
                )
                asyncio.run(Notary(desk, users=users).serve(listener))
        finally:
            desk.close()


def _account(user: str | None) -> Account:
    if user is None:
        if os.geteuid() == 0:
            raise ProctorError("started by root, a notary wants --user: whose user it should be")
        return os.geteuid(), os.getegid()
    account = find_account(user)
    if os.geteuid() not in (0, account[0]):
        raise ProctorError(f"only root can start a notary as user {account[0]}")
    return account
