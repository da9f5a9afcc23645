"""`proctor serve`: the runs of a home in a browser, while they train."""

import ipaddress
import signal
import socket
import sys
from collections.abc import Iterator
from typing import Annotated

from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.options import Takes
from proctor.errors import EXIT_HELD, ProctorError
from proctor.home import Home
from proctor.output.shape import Listening

app = CommandGroup()
_NAMES = ("localhost", "127.0.0.1", "::1")


@app.command(prints=Listening)
def serve(
    home: Home,
    host: Annotated[
        str, "Address to listen on. Only this machine reaches 127.0.0.1."
    ] = "127.0.0.1",
    port: Annotated[int, "Port; 0 chooses a free port.", Takes(least=0, most=65535)] = 8137,
    allow_host: Annotated[
        list[str] | None, "Another name that browsers may use for this host.", Takes("NAME")
    ] = None,
) -> Iterator[Output]:
    """Show runs in a browser while they train: a local web server that changes nothing.

    Prints a link with a secret token; who has the link can see the pages. New entries of the ledger
    are verified before they are shown. Ctrl-C stops it.
    """
    import uvicorn  # noqa: PLC0415 - in an extra

    from proctor.live.app import live_view  # noqa: PLC0415 - in an extra
    from proctor.live.connections import MOST, Connection  # noqa: PLC0415 - likewise
    from proctor.live.guard import Keys  # noqa: PLC0415 - likewise
    from proctor.live.tables import Tables  # noqa: PLC0415 - loads DuckDB

    home.require_ledger()
    listener = _listening(host, port)
    address = listener.getsockname()[0]
    if not ipaddress.ip_address(address).is_loopback:
        print(
            f"warning: {address} can be reached from other machines, and nothing is encrypted; "
            "`ssh -L` to 127.0.0.1 is safer",
            file=sys.stderr,
        )
    keys = Keys()
    tables = Tables(home)
    view = live_view(home, tables, keys=keys, hosts=(*_NAMES, host, address, *(allow_host or ())))
    # Bounds against requests that never end: another user of this machine can send them, too.
    server = uvicorn.Server(
        uvicorn.Config(
            view,
            access_log=False,  # the log would have the secret path
            log_level="critical",  # the pages and guard.py tell what fails, without a traceback
            lifespan="off",
            server_header=False,
            timeout_keep_alive=10,
            timeout_graceful_shutdown=2,
            http=Connection,
            ws="none",
            limit_concurrency=8 * MOST,  # where so many wait for an answer
        )
    )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_HELD))
    try:
        tables.start()
        shown = f"[{address}]" if ":" in address else address
        link = f"http://{shown}:{listener.getsockname()[1]}/#{keys.token}"
        yield Output(
            Listening(address=link, token=keys.token),
            f"{link}\nOpen this link. Who has it can see this home; Ctrl-C stops the server.",
        )
        server.run(sockets=[listener])
    except KeyboardInterrupt:
        pass  # what Ctrl-C is for
    finally:
        tables.stop()
        listener.close()


def _listening(host: str, port: int) -> socket.socket:
    """Return the socket; raises ProctorError if nothing can listen there."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind)
    except (OSError, UnicodeError) as error:
        raise ProctorError(f"--host {host}: this is no address of this machine") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()  # before the link is printed: whoever opens it at once waits
    except OSError as error:
        listener.close()
        raise ProctorError(
            f"cannot listen on {host}, port {port}: {error.strerror}; --port 0 chooses a free port"
        ) from error
    return listener
