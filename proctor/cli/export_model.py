"""`proctor export model`: the model of a run for others, with signed claims beside it."""

import hashlib
import shutil
from pathlib import Path
from typing import Annotated
from uuid import UUID

from ledger.errors import BlobError
from ledger.files import create_exclusively
from ledger.handover.proof_files import MOST_ENTRIES, write_proofs
from ledger.handover.selection import read_selection
from ledger.keys import load_key, load_or_create_key
from ledger.notes import public_bytes
from ledger.notes import vkey as vkey_of
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording.opening import has_key
from ledger.schemes import PrivateKey
from ledger.verification.authority import Authority
from ledger.verification.reader import VerifiedLedger
from ledger.verification.verified_notes import parse_vkey
from ledger.wording import counted
from proctor import __version__
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.options import RunArgument, Takes
from proctor.errors import ProctorError
from proctor.home import Home, passphrase
from proctor.inputs import read_private_key
from proctor.output.files import verify_outside
from proctor.output.shape import Answer
from proctor.output.terminal import console, words
from proctor.remembering import keep_definitions, open_remembered

app = CommandGroup()

_ROLE = "publisher"


class Attested(Answer):
    """A model that was handed over."""

    run: UUID
    out: Path
    verdict: str
    reservations: list[str]
    evidence_level: str
    files: dict[str, str]
    publisher: str
    granted: bool
    size: int


@app.command(prints=Attested)
def model(
    home: Home,
    run: RunArgument,
    out: Annotated[Path, "New folder for model and claims.", Takes("DIR")],
    key: Annotated[
        Path | None,
        "P-256 key that signs the files; by default ledger/keys/publisher.pem of the "
        "home, which the first call makes and grants.",
    ] = None,
) -> Output:
    """Hand over the model of a run: sign its files, and claim how it was trained and judged."""
    from proctor.handover.evidence import events_of  # noqa: PLC0415 - loads DuckDB
    from proctor.handover.folder import write_handover  # noqa: PLC0415 - loads DuckDB

    home.require_ledger()
    verify_outside(out, home)
    paths = LedgerPaths(home.ledger)
    if not has_key(paths):
        raise ProctorError(
            f"{paths.key} is missing: only who has the ledger's private key can do this"
        )
    # 1. What cannot be handed over is refused before a key is made and granted.
    with open_remembered(home) as ledger:
        named, authority = _look_up(ledger, run), ledger.authority
    # 2. The key that signs the files is in force.
    publisher, vkey, granted = _publisher(home, paths, authority, key)
    # 3. The proofs come from the ledger as it is with that grant.
    with open_remembered(home) as ledger:
        owner = ledger.vkey
        chosen = events_of(ledger, named)
        if len(chosen) > MOST_ENTRIES:
            raise ProctorError(
                f"the folder would rest on {len(chosen)} entries; the most is {MOST_ENTRIES}: hand "
                "over the whole ledger with `proctor export bundle`"
            )
        proofs = write_proofs(ledger, [entry.index for entry in chosen])
    signer = read_private_key(paths.key)
    vkeys = read_selection(proofs, vkey=owner).vkeys
    if parse_vkey(vkeys[-1]).public_key != public_bytes(signer):
        raise ProctorError(
            "the newest tree head that witnesses have cosigned is older than the rotation of the "
            "ledger's key; have the newest cosigned with `proctor witness ask`"
        )
    opened = write_handover(
        out,
        proofs=proofs,
        vkey=owner,
        publisher=publisher,
        signer=signer,
        version=__version__,
        copy=lambda name, sha256, to: _copy(home, named, name, sha256, to),
    )
    evidence = opened.evidence
    told = Attested.of(
        evidence,
        out=out,
        evidence_level=evidence.level,
        files=opened.files,
        publisher=vkey,
        granted=granted,
        size=evidence.head.size,
    )

    def tell() -> None:
        if granted:
            console.print(f"made and granted the publisher's key {words(vkey)}")
        console.print(
            f"[green]attested[/] the model of run {evidence.run} in {words(out)}: "
            f"{counted(len(opened.files), 'signed file')}, verdict {evidence.verdict}, evidence "
            f"level {words(evidence.level)}"
        )
        for each in evidence.warnings if evidence.verdict == "WARNED" else ():
            console.print(f"warned: {words(each)}")

    return Output(told, tell)


def _look_up(ledger: VerifiedLedger, name: str) -> UUID:
    """Return the run that `name` means; raises ProctorError if it cannot be handed over."""
    from proctor.handover.evidence import events_of  # noqa: PLC0415 - loads DuckDB
    from proctor.runs.replay import find_verified_run  # noqa: PLC0415 - takes long
    from projections.counting import counting_audits  # noqa: PLC0415 - loads DuckDB

    run = find_verified_run(ledger, name)
    entries = events_of(ledger, run)
    own = {entry.name for entry in entries if entry.stream_id == run}
    if "run.ended" not in own:
        raise ProctorError(f"run {run} has not ended; export its model when it has")
    if not own & {"run.weights_saved", "run.file_saved"}:
        raise ProctorError(
            f"run {run} saved no weights, so there is no model to hand over; in a loop of your "
            "own, run.save(FILE) does"
        )
    keep_definitions()
    if str(run) not in counting_audits(entries, authority=ledger.authority.stream_id):
        raise ProctorError(f"no audit of run {run} counts; `proctor judge {run}` makes one")
    return run


def _publisher(
    home: Home, paths: LedgerPaths, authority: Authority, file: Path | None
) -> tuple[PrivateKey, str, bool]:
    """Return the key that signs, its vkey, and whether it was granted just now."""
    own = paths.key.with_name(f"{_ROLE}.pem")
    path, new = file or own, file is None and not own.exists()
    key = (load_or_create_key if new else load_key)(path, role=_ROLE, passphrase=passphrase())
    public_key = public_bytes(key)
    vkey = vkey_of(_ROLE, public_key, role=_ROLE)
    beside = path.with_name(f"{path.name}.vkey")
    if new:
        create_exclusively(beside, f"{vkey}\n".encode(), mode=0o644)
    known = next((each for each in authority.keys if each.public_key == public_key), None)
    if known is not None and authority.in_force(_ROLE, public_key):
        return key, known.vkey, False
    if known is not None:
        raise ProctorError(
            f"{path}: this key was revoked; move it away, and the next call makes another"
            if file is None
            else f"{path}: this key is not in force as a publisher's; see `proctor keys list`"
        )
    if file is not None or authority.operated:
        who = " --key OPERATOR.pem" if authority.operated else ""
        raise ProctorError(
            f"{path}: this key is not granted; `proctor keys grant publisher {beside}{who}` "
            "grants it"
        )
    with home.open_log() as log:
        if not isinstance(log.recorder, SignedRecorder):
            raise ProctorError("a notary keeps this ledger; export there, without PROCTOR_NOTARY")
        log.recorder.grant_key(vkey, role=_ROLE)
    return key, vkey, True


def _copy(home: Home, run: UUID, name: str, sha256: str, to: Path) -> None:
    """Copy a file that a run handed in, from its folder or from the blobs."""
    source = home.submission(run) / name
    if source.is_file() and not source.is_symlink():
        with source.open("rb") as file:
            same = hashlib.file_digest(file, "sha256").hexdigest() == sha256
        if same:
            shutil.copyfile(source, to)
            return
    try:
        to.write_bytes(home.blobs.get(sha256))
    except BlobError:
        raise ProctorError(
            f"{source} is not the file that the run handed in, which has the SHA-256 {sha256}; "
            "put that file back"
        ) from None
