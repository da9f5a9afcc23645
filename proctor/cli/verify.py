"""`proctor verify`: whatever can be verified; the target itself shows what it is.

Exit code 0: what was given holds, and no entry of it is suspect. 1: it does not, or some are.
"""

from pathlib import Path
from typing import Annotated

from ledger.errors import VerificationError
from ledger.handover.bundle_check import is_bundle
from ledger.handover.object_store import Bucket, is_bucket
from ledger.paths import SERVERS, LedgerPaths
from ledger.witnessing.quorum import read_quorum
from proctor.cli.command_group import CommandGroup, Output
from proctor.cli.options import (
    HOME,
    Argument,
    HomeOption,
    MaxBlobBytesOption,
    Takes,
    VkeyOption,
    WitnessesOption,
    verify_unused,
)
from proctor.cli.verify_files import (
    is_export,
    is_handover,
    refused,
    verify_export,
    verify_file,
    verify_handover,
)
from proctor.cli.verify_ledgers import BundleCheck, LedgerCheck, check_rights, verify_ledger
from proctor.errors import ProctorError
from proctor.home import Home
from proctor.inputs import read_text, read_vkey, read_vkey_file

app = CommandGroup()

_STORES = {LedgerPaths(Path()).database.name, *SERVERS}


@app.command(
    prints="proctor.cli.verify_ledgers.Verified | proctor.cli.verify_ledgers.Invalid | "
    "proctor.cli.verify_files.VerifiedModel | proctor.cli.verify_files.VerifiedReport | "
    "proctor.cli.verify_files.VerifiedProof | proctor.cli.verify_files.VerifiedProofs | "
    "proctor.cli.verify_files.VerifiedLineage | proctor.cli.verify_files.VerifiedEvidence | "
    "proctor.cli.verify_files.Refused | proctor.cli.verify_files.SealedFile | "
    "proctor.cli.verify_files.NotSealed | proctor.cli.verify_ledgers.Rights"
)
def verify(
    target: Annotated[
        str | None,
        "Home, bundle (also s3://BUCKET/KEY), exported model, report, proof, lineage, "
        "evidence, or export of training data (which --home has sealed); by default --home.",
        Argument(),
    ] = None,
    vkey: VkeyOption = None,
    judge: Annotated[
        str | None,
        "Public key of the judge that you know, or its file: a verdict that it did not sign "
        "is refused.",
        Takes("VKEY"),
    ] = None,
    head: Annotated[
        Path | None, "Tree head that you kept: detects truncation and rewriting."
    ] = None,
    out: Annotated[Path | None, "Write the newest tree head to this file, to keep it."] = None,
    witnesses: WitnessesOption = None,
    new: Annotated[bool, "Verify only the entries since the last verification."] = False,
    evidence: Annotated[
        Path | None, "Write a proof of a fork or rollback to this file, if one is found."
    ] = None,
    max_blob_bytes: MaxBlobBytesOption = None,
    rights: Annotated[
        bool,
        "Check only what this user of a PostgreSQL server may do to the ledger there; "
        "exit code 1 for a right beyond appending, or a missing one.",
    ] = False,
    home: HomeOption = HOME,
) -> Output:
    """Verify every entry, link, root and signature, offline, with the public key alone.

    The newest tree head of each ledger is remembered: a ledger that is later shown shorter, or
    with another history, fails.
    """
    owner, judged = read_vkey_file(vkey), read_vkey(judge)
    quorum = None if witnesses is None else read_quorum(witnesses)
    ledgers_only = {"head": head, "out": out, "new": new, "evidence": evidence}
    if rights:
        verify_unused(
            "not with --rights, which verifies nothing else",
            **ledgers_only,
            judge=judge,
            witnesses=witnesses,
        )
        server = Home(home if target is None else Path(target), vkey=owner)
        server.verify_key()
        return check_rights(server)
    place: Path | Bucket = home
    if target is not None:
        place = Bucket(target) if is_bucket(target) else Path(target)
    named = place if target is not None and isinstance(place, Path) else None
    if named is not None:
        if not named.exists():
            raise ProctorError(f"{named} does not exist; name a file or a folder")
        if named.name in _STORES:
            place = named = named.parent  # the folder is what is verified
        if not (named.is_file() or named.is_dir()):
            raise ProctorError(f"{named} is neither a regular file nor a folder; name one")
    is_file = isinstance(place, Path) and place.is_file()
    if isinstance(place, Path) and (is_file or (named is not None and is_handover(named))):
        what = "a file and no ledger" if is_file else "a model handed over"
        verify_unused(f"not for {place}, which is {what}", **ledgers_only)
        if is_file and is_export(place):
            verify_unused(
                f"not for {place}, an export of training data", judge=judge, witnesses=witnesses
            )
            return verify_export(place, Home(home, vkey=owner))
        verify_it = verify_file if is_file else verify_handover
        try:
            return verify_it(place, vkey=owner, quorum=quorum, judge=judged)
        except VerificationError as error:
            return refused(error)
    if judge is not None:
        raise ProctorError(
            "--judge applies to a model handed over, a report and a lineage, which show a verdict; "
            "`proctor keys list` shows the judges of a ledger"
        )
    if named is not None:
        _check_one_ledger(named)
    if isinstance(place, Bucket) or (named is not None and is_bundle(named)):
        if new:
            raise ProctorError(f"{place} is a bundle, which is always read whole; leave out --new")
        check: LedgerCheck | BundleCheck = BundleCheck(
            folder=place, vkey=owner, max_blob_bytes=max_blob_bytes
        )
    else:
        if named is None or not LedgerPaths(named).exist:  # it is a home, and no ledger's folder
            within = Home(place)
            within.require_ledger()
            place = within.ledger
        check = LedgerCheck(directory=place, vkey=owner, new=new)
    return verify_ledger(
        check,
        head=None if head is None else read_text(head),
        keep=out,
        quorum=quorum,
        evidence=evidence,
        trusting=owner is None,
    )


def _check_one_ledger(place: Path) -> None:
    """Refuse a folder in which an honest ledger may hide another, which would be used."""
    homes = (place, place / "ledger")
    if is_bundle(place) + sum(LedgerPaths(each).exist for each in homes) > 1:
        raise ProctorError(f"{place} holds more than one ledger; name the one you mean")
