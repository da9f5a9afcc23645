"""`proctor attest`: the model of a run in a folder for others, with signed claims beside it."""

import hashlib
import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from uuid import UUID

import typer
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from aggregates.transcript import Transcript
from ledger.errors import BlobError
from ledger.files import create_exclusively
from ledger.handover.proof_files import open_proofs, write_proofs
from ledger.keys import create_publisher_key, load_publisher_key
from ledger.mapper import readable_body
from ledger.notes import public_bytes, publisher_vkey
from ledger.paths import LedgerPaths
from ledger.recorder import SignedRecorder
from ledger.recording.opening import has_key
from ledger.verification.authority import AUTHORITY_EVENTS, Authority
from ledger.verification.reader import VerifiedLedger
from ledger.verification.rotations import vkeys_along
from ledger.verification.verified_notes import ECDSA, ED25519, parse_vkey
from ledger.wording import counted
from proctor import __version__
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.inputs import passphrase, read_private_key
from proctor.cli.options import RunArgument
from proctor.errors import ProctorError
from proctor.handover.evidence import pick
from proctor.handover.folder import write_handover
from proctor.home import Home, find_run
from proctor.output.terminal import console, words
from proctor.remembering import open_remembered

app = CommandGroup()

_ROLE = "publisher"
_COUNTING = "SELECT idx FROM counting_audits WHERE run_id = ?"


@dataclass(frozen=True)
class _Found:
    """What a ledger says of a run that can be handed over."""

    run: UUID
    audit: UUID  # the one that counts
    scored: int  # index of its scores
    hashes: frozenset[str]  # SHA-256 of the files that the run handed in, or of its weights


@app.command()
def attest(
    home: Home,
    run: RunArgument,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="New folder for model and claims.")
    ],
    key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            help="P-256 key that signs the files; by default ledger/keys/publisher.pem of the "
            "home, which the first call makes and grants.",
        ),
    ] = None,
) -> Output:
    """Hand over the model of a run: sign its files, and claim how it was trained and judged."""
    home.require_ledger()
    home.close_crashed()
    paths = LedgerPaths(home.ledger)
    if not has_key(paths):
        raise ProctorError(
            f"{paths.key} is missing: only who keeps the ledger and its private key can attest"
        )
    # 1. What cannot be handed over is refused before a key is made and granted.
    with open_remembered(home.ledger) as ledger:
        found, authority = _look_up(ledger, run), ledger.authority
    # 2. The key that signs the files is in force.
    publisher, vkey, granted = _publisher(home, paths, authority, key)
    # 3. The proofs come from the ledger as it is with that grant.
    with open_remembered(home.ledger, heads=True) as ledger:
        owner = ledger.vkey
        proofs = write_proofs(ledger, _indexes(ledger, found, vkey))
    signer = read_private_key(paths.key)
    vkeys = vkeys_along(open_proofs(proofs, vkey=owner)[0].rotations, vkey=owner)
    if parse_vkey(vkeys[-1], type=ED25519).public_key != public_bytes(signer):
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
        copy=lambda name, sha256, to: _copy(home, found.run, name, sha256, to),
    )
    evidence = opened.evidence
    told = {
        "run": evidence.run,
        "out": out,
        "verdict": evidence.verdict,
        "reservations": evidence.reservations,
        "evidence_level": evidence.level,
        "files": opened.files,
        "publisher": vkey,
        "granted": granted,
        "size": evidence.head.size,
    }

    def tell() -> None:
        if granted:
            console.print(f"made and granted the publisher's key {words(vkey)}")
        console.print(
            f"[green]attested[/] the model of run {evidence.run} in {words(out)}: "
            f"{counted(len(opened.files), 'signed file')}, verdict {evidence.verdict}, evidence "
            f"level {words(evidence.level)}"
        )

    return Output(told, tell)


def _look_up(ledger: VerifiedLedger, name: str) -> _Found:
    """Return the run that `name` means and the audit that counts; raises ProctorError."""
    from proctor.runs.replay import audited_run, verified_runs  # noqa: PLC0415 - takes long
    from projections.projector import projected  # noqa: PLC0415 - loads DuckDB

    run = find_run(verified_runs(ledger), name)
    audits = {entry.stream_id for entry in ledger.entries() if audited_run(entry) == str(run)}
    streams = {run, Transcript.id_of(run), *audits}
    entries = [
        entry
        for entry in ledger.entries()
        if entry.stream_id in streams or entry.name in AUTHORITY_EVENTS
    ]
    own = [entry for entry in entries if entry.stream_id == run]
    ends = [readable_body(entry.body) or {} for entry in own if entry.name == "run.ended"]
    if not ends:
        raise ProctorError(f"run {run} has not ended; attest it when it has")
    saved = [readable_body(entry.body) or {} for entry in own if entry.name == "run.weights_saved"]
    if not saved:
        raise ProctorError(f"run {run} saved no weights, so there is no model to hand over")
    with closing(projected(entries, quarantine=True, chosen=True)) as tables:
        counting = tables.execute(_COUNTING, [str(run)]).fetchall()
    if not counting:
        raise ProctorError(f"no audit of run {run} counts; `proctor judge {run}` makes one")
    scored = next(entry for entry in entries if entry.index == counting[0][0])
    handed_in = ends[0].get("deliverables") or {}
    hashes = map(str, handed_in.values() if handed_in else [saved[-1].get("sha256")])
    return _Found(run, scored.stream_id, scored.index, frozenset(hashes))


def _indexes(ledger: VerifiedLedger, found: _Found, vkey: str) -> list[int]:
    return pick(
        ledger.entries(),
        origin=ledger.authority.origin,
        run=found.run,
        audit=found.audit,
        scored=found.scored,
        weights=found.hashes,
        publisher=vkey,
    )


def _publisher(
    home: Home, paths: LedgerPaths, authority: Authority, file: Path | None
) -> tuple[EllipticCurvePrivateKey, str, bool]:
    """Return the key that signs, its vkey, and whether it was granted just now."""
    own = paths.key.with_name(f"{_ROLE}.pem")
    path, new = file or own, file is None and not own.exists()
    key = (create_publisher_key if new else load_publisher_key)(path, passphrase=passphrase())
    vkey = publisher_vkey(_ROLE, key.public_key())
    public_key = parse_vkey(vkey, type=ECDSA).public_key
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
            f"{path}: this key is not granted; `proctor keys grant {_ROLE} {beside}{who}` grants it"
        )
    with home.open_log() as log:
        if not isinstance(log.recorder, SignedRecorder):
            raise ProctorError("a notary keeps this ledger; attest there, without PROCTOR_NOTARY")
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
