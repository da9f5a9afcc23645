"""`proctor import`: a bundle is taken over."""

from pathlib import Path
from typing import Annotated

from ledger.handover.bundle_check import is_bundle, read_vkey
from ledger.handover.bundle_files import place_of, strangers
from ledger.handover.bundle_import import import_bundle
from ledger.wording import counted
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.options import Argument, MaxBlobBytesOption
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.inputs import read_text
from proctor.output.shape import Answer
from proctor.output.terminal import console, error_console, words
from proctor.remembering import recall

app = CommandGroup()


class Imported(Answer):
    """A bundle that was verified and written into a home."""

    origin: str
    size: int
    new: int
    blobs: int
    left_out: list[str]


@app.command(name="import", prints=Imported)
def import_(
    home: Home,
    bundle: Annotated[str, "Folder of the bundle, or s3://BUCKET/KEY.", Argument("BUNDLE")],
    head: Annotated[Path | None, "Tree head that you kept; see `verify`."] = None,
    max_blob_bytes: MaxBlobBytesOption = None,
) -> Output:
    """Verify a bundle and make a home of it, to show, query and replay; or bring one up to date."""
    place = place_of(bundle)
    if not is_bundle(place):
        raise ProctorError(f"no bundle in {bundle}; `proctor export bundle --out DIR` makes one")
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

    return Output(Imported.of(done, left_out=others), tell)
