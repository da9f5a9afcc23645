"""`proctor ledger`: check how a ledger on a PostgreSQL server is kept."""

from ledger.paths import LedgerPaths
from proctor.cli.command_group import CommandGroup, Output
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.output.terminal import print_table

app = CommandGroup("ledger", "Check the rights to a ledger on a PostgreSQL server.")


@app.command("check-rights", prints="ledger.Rights")
def check_rights(home: Home) -> Output:
    """List the rights of this database user beyond appending; exit code 1 if there are any.

    Also listed are rights that are missing. The user is POSTGRES_USER, or that of the file
    ledger.postgres.
    """
    home.require_ledger()
    paths = LedgerPaths(home.ledger)
    if not paths.server.exists():
        raise ProctorError(
            f"{paths.database}: this ledger is in a file; whoever may write the file may do all "
            "to it. Rights are checked for a ledger on a PostgreSQL server"
        )
    from ledger.postgres_rights import read_rights  # noqa: PLC0415 - psycopg is an extra

    rights = read_rights(paths.server)
    rows = [
        *(("needless", text) for text in rights.extra),
        *(("missing", text) for text in rights.missing),
    ]
    value = {"user": rights.user, "needless": rights.extra, "missing": rights.missing}
    if not rows:
        return Output(value, f"user {rights.user}: may read, append and no more")
    return Output(
        value,
        lambda: print_table((f"user {rights.user}", "right"), rows),
        found=True,
        note="docs/how-to/use-postgresql.md lists the rights that a producer needs",
    )
