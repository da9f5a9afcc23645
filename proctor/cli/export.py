"""`proctor export`: what is handed over of a ledger, each kind for other tools or other people."""

import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal
from uuid import UUID

from ledger.blobs import BlobStore
from ledger.handover.bundle import export_bundle
from ledger.handover.bundle_files import place_of
from ledger.handover.envelope import IN_TOTO, public_pem, seal, tree_head_statement
from ledger.handover.proof_files import write_proofs
from ledger.notes import public_bytes
from ledger.paths import LedgerPaths
from ledger.verification.reader import VerifiedLedger
from ledger.wording import counted
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.options import Argument, OutOption, RunArgument, Takes, named_runs
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.inputs import read_private_key
from proctor.output.files import verify_target, write_output
from proctor.output.shape import Answer
from proctor.output.terminal import console, words
from proctor.remembering import keep_definitions, open_remembered

app = CommandGroup(
    "export",
    "Export a bundle, proof, model, verdict, curves or training data.",
    lazy={"model": "proctor.cli.export_model", "data": "proctor.cli.export_data"},
)


class ExportedBundle(Answer):
    """A bundle that was written."""

    out: str
    size: int
    earlier_heads: int
    blobs: int


class Proof(Answer):
    """A proof of one event."""

    index: int
    out: Path | None
    proof: str


class ExportedEnvelope(Answer):
    """A verdict or a tree head that was written as a DSSE envelope."""

    out: Path
    size: int
    run: UUID | None  # null: the tree head
    pem: Path | None  # file with the key that signed


class ExportedCurves(Answer):
    """The curves of a run that were written."""

    run: UUID
    format: Literal["tensorboard", "mlflow"]
    out: Path


@app.command(prints=ExportedBundle)
def bundle(
    home: Home,
    out: Annotated[
        str,
        "New folder or s3://BUCKET/KEY, or one with an earlier export to extend.",
        Takes("PLACE"),
    ],
    blobs: Annotated[
        bool, "Include the files that are stored by hash.", Takes(option="--blobs/--no-blobs")
    ] = True,
) -> Output:
    """Write the ledger as a bundle, which anyone can verify, query and replay."""
    if blobs and not isinstance(home.blobs, BlobStore):
        raise ProctorError(
            "a notary keeps the blobs: export where it runs, or leave them out with --no-blobs"
        )
    with open_remembered(home):
        pass  # what is not valid, or is older than what was seen, is not handed over
    done = export_bundle(home.ledger, place_of(out), vkey=home.vkey, blobs=blobs)
    told = ExportedBundle.of(done, out=out, size=done.head.size, earlier_heads=done.earlier)
    entries, files = counted(done.head.size, "entry"), counted(done.blobs, "blob")
    text = f"[green]exported[/] {entries} and {files} to {words(out)}"
    return Output(told, lambda: console.print(text))


@app.command(prints=Proof)
def proof(
    home: Home,
    event: Annotated[str, "Index of an entry, or STREAM/VERSION of an event.", Argument("EVENT")],
    out: Annotated[Path | None, "File to write; by default standard output."] = None,
) -> Output:
    """Write a proof of one event, which the public key alone verifies."""
    with open_remembered(home) as ledger:
        index = _find(ledger, event)
        text = write_proofs(ledger, [index])
    if out is not None:
        write_output(out, text, home=home)

    def tell() -> None:
        if out is None:
            sys.stdout.write(text)
        else:
            console.print(f"wrote the proof of entry {index} to {words(str(out))}")

    return Output(Proof(index=index, out=out, proof=text), tell)


@app.command(prints=ExportedEnvelope)
def verdict(
    home: Home,
    subject: Annotated[
        str,
        "An id, the start of an id, or `latest`; or `head`: the newest tree head in place "
        "of a verdict.",
        Argument("RUN", completed=named_runs),
    ],
    out: OutOption,
    key: Annotated[
        Path | None, "Key that signs the envelope; by default the ledger's private key."
    ] = None,
    pem: Annotated[bool, "Also write the key's public part, to FILE.pem."] = False,
) -> Output:
    """Write the verdict on a run, or the tree head, as a signed DSSE envelope."""
    beside = out.with_name(f"{out.name}.pem") if pem else None
    for path in (out, beside):
        if path is not None:
            verify_target(path, home=home)
    with open_remembered(home) as ledger:
        if ledger.head is None:
            raise ProctorError("an empty ledger has no tree head to export")
        size, run = ledger.head.size, None
        if subject == "head":
            statement = tree_head_statement(ledger.head.note)
        else:
            from proctor.handover.attestation import verdict_statement  # noqa: PLC0415 - with DuckDB
            from proctor.runs.replay import find_verified_run  # noqa: PLC0415 - takes long

            run = find_verified_run(ledger, subject)
            keep_definitions()
            statement = verdict_statement(ledger, run)
    signer = read_private_key(LedgerPaths(home.ledger).key if key is None else key)
    write_output(out, seal(statement, payload_type=IN_TOTO, key=signer), home=home)
    if beside is not None:
        write_output(beside, public_pem(public_bytes(signer)), home=home)
    what = f"tree head {size}" if run is None else f"the verdict on run {run}"
    text = f"[green]exported[/] {what} to {words(out)}"
    told = ExportedEnvelope(out=out, size=size, run=run, pem=beside)
    return Output(told, lambda: console.print(text))


@app.command(prints=ExportedCurves)
def curves(
    home: Home,
    run: RunArgument = "latest",
    *,
    out: Annotated[Path, "Folder of event files, or file store.", Takes("DIR")],
    form: Annotated[
        Literal["tensorboard", "mlflow"], "Tracker that reads the curves.", Takes(option="--format")
    ] = "tensorboard",
) -> Output:
    """Write a run's curves for TensorBoard or MLflow."""
    module = "tensorboardX" if form == "tensorboard" else "mlflow"
    if find_spec(module) is None:  # before anything is written
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)
    from proctor.runs.curves import (  # noqa: PLC0415 - with DuckDB
        read_curves,
        write_mlflow,
        write_tensorboard,
    )

    found = read_curves(home, run)
    place = out
    if form == "tensorboard":
        place = write_tensorboard(found, out)
    else:
        write_mlflow(found, out)
    text = f"[green]exported[/] the curves of run {found.run} to {words(place)}"
    told = ExportedCurves(run=found.run, format=form, out=place)
    return Output(told, lambda: console.print(text))


def _find(ledger: VerifiedLedger, event: str) -> int:
    """Return the index that an index or STREAM/VERSION means."""
    stream, slash, version = event.rpartition("/")
    if not slash:
        if not re.fullmatch("[0-9]{1,19}", event) or int(event) >= ledger.size:
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
