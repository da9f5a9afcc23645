"""`proctor prove`, `export` and `import`: what is handed over, and taken over."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from ledger.blobs import BlobStore
from ledger.handover.bundle import export_bundle
from ledger.handover.bundle_check import is_bundle, read_vkey
from ledger.handover.bundle_files import place_of, strangers
from ledger.handover.bundle_import import import_bundle
from ledger.handover.envelope import IN_TOTO, seal, tree_head_statement
from ledger.handover.proof_files import write_proof
from ledger.paths import LedgerPaths
from ledger.verification.reader import VerifiedLedger
from ledger.wording import counted
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.inputs import read_private_key, read_text
from proctor.cli.options import MaxBlobBytesOption
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.output.files import write_output
from proctor.output.terminal import console, error_console, words
from proctor.remembering import open_remembered, recall

app = CommandGroup()


@app.command(prints="ledger.Proof")
def prove(
    home: Home,
    event: Annotated[
        str,
        typer.Argument(metavar="EVENT", help="Index of an entry, or STREAM/VERSION of an event."),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="File to write; by default standard output.")
    ] = None,
) -> Output:
    """Write a proof of one event, which the public key alone verifies."""
    home.require_ledger()
    with open_remembered(home, heads=True) as ledger:
        index = _find(ledger, event)
        proof = write_proof(ledger, index)
    if out is not None:
        write_output(out, proof, home=home)

    def tell() -> None:
        if out is None:
            sys.stdout.write(proof)
        else:
            console.print(f"wrote the proof of entry {index} to {words(str(out))}")

    return Output({"index": index, "out": out, "proof": proof}, tell)


@app.command(prints="ledger.Exported")
def export(
    home: Home,
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN",
            help="Run for --tensorboard and --mlflow: an id, the start of an id, or `latest`; by "
            "default the latest.",
        ),
    ] = None,
    bundle: Annotated[
        str | None,
        typer.Option(
            "--bundle",
            metavar="PLACE",
            help="New folder or s3://BUCKET/KEY, or one with an earlier export to extend.",
        ),
    ] = None,
    blobs: Annotated[
        bool, typer.Option("--blobs/--no-blobs", help="Include the files that are stored by hash.")
    ] = True,
    dsse: Annotated[
        Path | None,
        typer.Option("--dsse", help="Write the newest tree head to this file as a DSSE envelope."),
    ] = None,
    verdict: Annotated[
        str | None,
        typer.Option(
            "--verdict",
            metavar="RUN",
            help="With --dsse: the verdict on this run instead of the tree head.",
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            "--key", help="Key that signs the envelope; by default the ledger's private key."
        ),
    ] = None,
    tensorboard: Annotated[
        Path | None,
        typer.Option("--tensorboard", help="Write a run's curves into this folder of event files."),
    ] = None,
    mlflow: Annotated[
        Path | None,
        typer.Option("--mlflow", help="Write a run's curves into this file store of MLflow."),
    ] = None,
) -> Output:
    """Export the ledger as a bundle, its head as DSSE, or a run's curves for other trackers."""
    curves = tensorboard is not None or mlflow is not None
    if bundle is None and dsse is None and not curves:
        raise ProctorError(
            "nothing to export: give --bundle DIR, --dsse FILE, --tensorboard DIR or --mlflow DIR"
        )
    if run is not None and not curves:
        raise ProctorError(f"RUN {run} needs --tensorboard DIR or --mlflow DIR")
    if verdict is not None and dsse is None:
        raise ProctorError("--verdict needs --dsse FILE, the file to write")
    home.require_ledger()
    if bundle is not None and blobs and not isinstance(home.blobs, BlobStore):
        raise ProctorError(
            "a notary keeps the blobs: export where it runs, or leave them out with --no-blobs"
        )
    directory = home.ledger
    told: dict[str, Any] = {}
    lines = []
    if curves:
        shown = _export_curves(home, run or "latest", tensorboard=tensorboard, mlflow=mlflow)
        told |= shown
        where = words(" and ".join(str(shown[tool]) for tool in shown if tool != "run"))
        lines.append(f"[green]exported[/] the curves of run {shown['run']} to {where}")
        if bundle is None and dsse is None:
            return Output(told, lambda: console.print(*lines, sep="\n"))
    with open_remembered(home) as ledger:
        newest = ledger.head
        judged = None
        if verdict is not None:
            from proctor.runs.attestation import verdict_statement  # noqa: PLC0415 - with DuckDB

            judged = verdict_statement(ledger, verdict)
    if bundle is not None:
        done = export_bundle(directory, place_of(bundle), vkey=home.vkey, blobs=blobs)
        told |= {
            "bundle": bundle,
            "size": done.head.size,
            "earlier_heads": done.earlier,
            "blobs": done.blobs,
        }
        entries, files = counted(done.head.size, "entry"), counted(done.blobs, "blob")
        lines.append(f"[green]exported[/] {entries} and {files} to {words(bundle)}")
    if dsse is not None:
        if newest is None:
            raise ProctorError("an empty ledger has no tree head to export")
        signer = read_private_key(LedgerPaths(directory).key if key is None else key)
        about, statement = judged or (None, tree_head_statement(newest.note))
        write_output(dsse, seal(statement, payload_type=IN_TOTO, key=signer), home=home)
        told |= {"dsse": dsse, "size": newest.size, "run": about or told.get("run")}
        what = f"tree head {newest.size}" if about is None else f"the verdict on run {about}"
        lines.append(f"[green]exported[/] {what} to {words(dsse)}")
    return Output(told, lambda: console.print(*lines, sep="\n"))


@app.command(name="import", prints="ledger.Imported")
def import_(
    home: Home,
    bundle: Annotated[
        str, typer.Argument(metavar="BUNDLE", help="Folder of the bundle, or s3://BUCKET/KEY.")
    ],
    head: Annotated[
        Path | None, typer.Option("--head", help="Tree head that you kept; see `verify`.")
    ] = None,
    max_blob_bytes: MaxBlobBytesOption = None,
) -> Output:
    """Verify a bundle and make a home of it, to show, query and replay; or bring one up to date."""
    place = place_of(bundle)
    if not is_bundle(place):
        raise ProctorError(f"no bundle in {bundle}; `proctor export --bundle DIR` makes one")
    recalled = recall(home.vkey or read_vkey(place), given=home.vkey is not None)
    kept_heads = [] if recalled is None else [recalled.note]
    if head is not None:
        kept_heads.append(read_text(head))
    done = import_bundle(
        place,
        home.path / "ledger",
        vkey=home.vkey,
        kept_heads=kept_heads,
        max_blob_bytes=max_blob_bytes,
    )
    home.settle()
    others = strangers(place)

    def tell() -> None:
        console.print(
            f"[green]held[/]: {counted(done.size, 'entry')}, {done.new} of them new, and "
            f"{counted(done.blobs, 'blob')} are in {words(home.path)}, to be read"
        )
        for name in others[:10]:
            error_console.print(f"left out, for it is no part of a bundle: {words(name)}")

    return Output(
        {
            "origin": done.origin,
            "size": done.size,
            "new": done.new,
            "blobs": done.blobs,
            "left_out": others,
        },
        tell,
    )


def _export_curves(
    home: Home, name: str, *, tensorboard: Path | None, mlflow: Path | None
) -> dict[str, Any]:
    for option, module in ((tensorboard, "tensorboardX"), (mlflow, "mlflow")):
        if option is not None and find_spec(module) is None:  # before anything is written
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)
    from proctor.runs.curves import (  # noqa: PLC0415 - with DuckDB
        read_curves,
        write_mlflow,
        write_tensorboard,
    )

    found = read_curves(home, name)
    told: dict[str, Any] = {"run": found.run}
    if tensorboard is not None:
        told["tensorboard"] = write_tensorboard(found, tensorboard)
    if mlflow is not None:
        write_mlflow(found, mlflow)
        told["mlflow"] = mlflow
    return told


def _find(ledger: VerifiedLedger, event: str) -> int:
    """Return the index that an index or STREAM/VERSION means."""
    stream, slash, version = event.rpartition("/")
    if not slash:
        if (
            not event.isdecimal()
            or not event.isascii()
            or len(event) > 19
            or int(event) >= ledger.size
        ):
            raise ProctorError(
                f"there is no event {event}; the ledger has entries 0 to {ledger.size - 1}"
            )
        return int(event)
    for entry in ledger.entries():
        if str(entry.stream_id) == stream.lower() and str(entry.stream_version) == version:
            return entry.index
    raise ProctorError(
        f"there is no event {event}; `proctor log --json` lists streams and versions"
    )
