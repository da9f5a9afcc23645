"""`proctor witness`: be a witness, or get a ledger's newest tree head cosigned by some.

Over HTTP (serve, ask) or by files for machines that are not connected (ask, sign).
"""

import ipaddress
import signal
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Literal

from ledger.errors import MalformedError, SignatureError
from ledger.verification.verified_notes import parse_tree_head
from ledger.witnessing.client import (
    Asked,
    Cosigned,
    cosigned_size,
    own_line,
    place_line,
)
from ledger.witnessing.quorum import read_quorum
from ledger.witnessing.rules import Response, parse_request
from ledger.witnessing.witness import MAX_REQUEST, Witness
from ledger.wording import counted
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.options import MOST, Argument, OutOption, Takes, WitnessesOption, verify_unused
from proctor.errors import EXIT_HELD, ProctorError
from proctor.home import Home, passphrase
from proctor.inputs import open_vkey, read_octets, read_text
from proctor.output.files import write_output
from proctor.output.shape import Answer, Listening
from proctor.output.terminal import console, print_table, words
from proctor.runs.cosigning import (
    ask_witnesses,
    newest_head,
    read_asked,
    requests_for,
    store_lines,
)

app = CommandGroup("witness", "Run a witness, or have a ledger's newest tree head cosigned.")

StateOption = Annotated[Path, "Folder with the witness's key and state."]
NameOption = Annotated[
    str | None,
    "Make the witness first, with this name, such as example.org/witness; it cannot be "
    "changed later.",
]
_MOST_SECONDS = 600
_NEWEST = 10_000  # tree heads among which an answer's is looked for


class Origin(Answer):
    """The origin of a ledger that a witness cosigns from now on."""

    origin: str
    witness: str  # vkey


class CosignedRequest(Answer):
    """A request that was cosigned."""

    cosigned: Literal[True]
    out: Path


class NotCosigned(Answer):
    """A request that contradicts what was cosigned before; exit code 1."""

    cosigned: Literal[False]
    problem: str


class WitnessRequest(Answer):
    """A request file for a witness."""

    out: Path
    size: int
    old: int
    rotations: Path | None


class CosignedHead(Answer):
    """A tree head that bears a cosignature."""

    size: int
    seconds: int


class Witnessed(Answer):
    """What came of asking all witnesses; exit code 1 if the quorum is not met."""

    met: bool
    size: int
    witnesses: dict[str, Asked]


@app.command(prints=Origin)
def trust(
    vkey: Annotated[Path, "First public key of the ledger.", Argument()],
    state: StateOption,
    name: NameOption = None,
) -> Output:
    """Add a ledger for the witness to cosign."""
    with _open(state, name) as witness:
        origin, own = witness.trust(open_vkey(vkey, "ledger")[0]), witness.vkey
    told = Origin(origin=origin, witness=own)
    return Output(told, f"{origin} will be witnessed by {own}")


@app.command(prints=Listening)
def serve(
    state: StateOption,
    listen: Annotated[
        str, "Address to listen on; port 0 chooses a free port.", Takes("ADDRESS:PORT")
    ] = "127.0.0.1:8123",
    name: NameOption = None,
) -> Iterator[Output]:
    """Serve requests over HTTP until the process is stopped."""
    from ledger.witnessing.server import make_server, url_of  # noqa: PLC0415 - in an extra

    host, port = _address(listen)
    with _open(state, name) as witness:
        try:
            server = make_server(witness, host=host, port=port)
        except OSError as error:
            raise ProctorError(f"--listen {listen}: {error.strerror}") from error
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_HELD))
        url = url_of(server)
        yield Output(
            Listening(address=url, name=witness.name, vkey=witness.vkey),
            f"{witness.name} listens on {url}\n{witness.vkey}",
        )
        server.run()


@app.command(prints=CosignedRequest | NotCosigned)
def sign(
    request: Annotated[Path, "File written by `witness ask --out`.", Argument()],
    state: StateOption,
    out: OutOption,
) -> Output:
    """Answer a request file: write the cosignature if the ledger is consistent.

    A file REQUEST.rotations that came with it is read, too.
    """
    rotations = request.with_name(f"{request.name}.rotations")
    with _open(state) as witness:
        if rotations.exists():
            _granted(witness.add_rotations(read_octets(rotations, most=MAX_REQUEST)), rotations)
        octets = read_octets(request, most=MAX_REQUEST)
        answer = witness.add_checkpoint(octets)
    problem = None
    if answer.status == 409:
        problem = _conflict(octets, latest=int(answer.body))
    elif answer.status == 422:
        problem = f"{answer.body.strip()}; see {state}/evidence"
    if problem is not None:
        told = NotCosigned(cosigned=False, problem=problem)
        text = f"[red]not cosigned[/]: {words(problem)}"
        return Output(told, lambda: console.print(text), found=True)
    _granted(answer, request)
    write_output(out, answer.body)
    done = CosignedRequest(cosigned=True, out=out)
    return Output(done, f"cosigned; send {out} back to the ledger's owner")


@app.command(prints=Witnessed | WitnessRequest | CosignedHead)
def ask(
    home: Home,
    witnesses: WitnessesOption = None,
    timeout: Annotated[
        float, "Timeout for each request, in seconds.", Takes(least=0.1, most=_MOST_SECONDS)
    ] = 10.0,
    out: Annotated[
        Path | None, "Write the request to this file, for `witness sign` elsewhere."
    ] = None,
    answer: Annotated[Path | None, "Add the cosignature that `witness sign` wrote here."] = None,
    witness: Annotated[Path | None, "With --out or --answer: public key of the witness."] = None,
    old: Annotated[
        int | None,
        "With --out: how many entries the witness has cosigned, if it says so.",
        Takes(least=0, most=MOST),
    ] = None,
) -> Output:
    """Have witnesses cosign the newest tree head; exit code 0 if the quorum is met."""
    if out is not None and answer is not None:
        raise ProctorError("--out writes a request and --answer adds what came back: give one")
    if answer is not None:
        verify_unused("only with --out", old=old is not None)
        return _add(home, answer, _vkeys(witness, witnesses))
    if out is not None:
        return _write_request(home, out, old, () if old is not None else _vkeys(witness, witnesses))
    verify_unused("only with --out or --answer", witness=witness, old=old is not None)
    if witnesses is None:
        raise ProctorError(
            "give --witnesses FILE, which names witnesses and their URLs; or --out FILE, to send "
            "the request as a file"
        )
    return _ask_by_http(home, witnesses, timeout=timeout)


def _vkeys(witness: Path | None, witnesses: Path | None) -> list[str]:
    if witness is not None and witnesses is None:
        return [open_vkey(witness, "witness")[0]]
    if witnesses is not None and witness is None:
        return [each.vkey for each in read_quorum(witnesses).witnesses]
    raise ProctorError("give either --witness VKEYFILE or --witnesses FILE")


def _write_request(home: Home, out: Path, old: int | None, vkeys: Sequence[str]) -> Output:
    """Write a request file for a witness to cosign the newest tree head."""
    if old is None and len(vkeys) != 1:
        raise ProctorError(f"a request is for one witness, not {len(vkeys)}: give --witness VKEY")
    with newest_head(home) as (ledger, note):
        if old is None:
            old = cosigned_size(ledger.head_notes(), vkey=vkeys[0])
        size = parse_tree_head(note).size
        if old > size:
            raise ProctorError(
                f"the ledger has {counted(size, 'entry')}; a witness of {old} has seen others"
            )
        write_output(out, requests_for(ledger, note)(old), home=home)
        text = f"{out}: {counted(size, 'entry')}, of which it has cosigned {old}"
        path = None
        if ledger.authority.rotations:
            path = out.with_name(f"{out.name}.rotations")
            write_output(path, "".join(ledger.authority.rotations), home=home)
            text += f"\nthe ledger's key was rotated: put {path} beside the request"
    return Output(WitnessRequest(out=out, size=size, old=old, rotations=path), text)


def _add(home: Home, answer: Path, vkeys: list[str]) -> Output:
    """Add a witness's cosignature to its tree head."""
    with newest_head(home) as (ledger, _):
        notes = deque(ledger.head_notes(), maxlen=_NEWEST)
    try:
        found = _placed(read_text(answer), vkeys, list(reversed(notes)))
    except MalformedError as error:
        raise ProctorError(f"{answer} is no answer of a witness: {error}") from error
    store_lines(home, [found])
    return Output(
        CosignedHead.of(found),
        f"the tree head of {counted(found.size, 'entry')} bears the cosignature",
    )


def _ask_by_http(home: Home, witnesses: Path, *, timeout: float) -> Output:
    """Ask the witnesses over HTTP."""
    found = ask_witnesses(home, read_asked(witnesses), timeout=timeout)

    def tell() -> None:
        rows = [(name, asked.outcome, asked.detail) for name, asked in found.answers.items()]
        print_table(("witness", "outcome", ""), rows)
        console.print("[green]quorum met[/]" if found.met else "[red]quorum not met[/]")

    told = Witnessed(met=found.met, size=found.size, witnesses=found.answers)
    return Output(told, tell, found=not found.met or found.contradicted)


@contextmanager
def _open(state: Path, name: str | None = None) -> Iterator[Witness]:
    if name is not None:
        Witness.create(state, name=name, passphrase=passphrase())
    with Witness.open(state, passphrase=passphrase()) as witness:
        yield witness


def _placed(answer: str, vkeys: list[str], notes: list[str]) -> Cosigned:
    """Find out whose line an answer holds, and to which tree head it belongs."""
    for vkey in vkeys:
        with suppress(SignatureError):
            return place_line(own_line(answer, vkey=vkey), notes, vkey=vkey)
    names = ", ".join(vkey.partition("+")[0] for vkey in vkeys)
    raise SignatureError(
        f"no line of the answer is by {names} and fits one of the newest {len(notes)} tree heads"
    )


def _granted(answer: Response, source: Path) -> None:
    if answer.status != 200:
        raise ProctorError(f"{source}: not accepted ({answer.status}): {answer.body.strip()}")


def _conflict(request: bytes, *, latest: int) -> str:
    """Explain that the witness is at another size than the request says."""
    size = parse_request(request.decode()).head.size
    if latest > size:
        return (
            f"{latest} entries were cosigned before, and this tree head has {size}: the ledger "
            "was cut off, or the request is an old one"
        )
    raise ProctorError(
        f"{latest} entries were cosigned before; write the request with --old {latest}"
    )


def _address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    try:
        address = ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        number = int(port)
    except ValueError:
        number = -1
    if not 0 <= number < 2**16:
        raise ProctorError(f"--listen {listen}: give an IP address and a port: 127.0.0.1:8123")
    return str(address), number
