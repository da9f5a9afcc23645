"""A handed-over model as a folder: written whole or not at all, and verified offline.

    README.md           how to verify the rest
    claims.jsonl        signature, provenance and verdict: Sigstore bundles, one a line
    events.tlog-proof   the events that the claims rest on, under one tree head
    ledger.pem          the ledger's key that signed provenance and verdict
    ledger.vkey         the ledger's first key, which names it
    model/              the signed files: what the run handed in, and the model card
    model.sig           the first line of claims.jsonl
    publisher.pem       the key that signed model/

Trust: a folder is hostile until check_handover() returns; the vkey is trusted.
I/O: the folder.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aggregates.run import CARD
from ledger.errors import InclusionError, MalformedError, StorageError, VerificationError
from ledger.files import new_name, sync_folders, write_durably
from ledger.handover.bundle_files import Folder
from ledger.handover.envelope import payload_of, public_pem
from ledger.handover.sigstore_bundle import folder_statement, open_bundle, seal_bundle
from ledger.notes import public_bytes
from ledger.schemes import PrivateKey
from ledger.strict_json import read_json
from proctor.errors import ProctorError
from proctor.handover.card import model_card, readme
from proctor.handover.evidence import Evidence, evidence_of
from proctor.handover.names import CLAIMS, PROOFS, SIGNATURE
from proctor.handover.statements import FOLDER, is_earlier, provenance, verdict

README = "README.md"
_PEM, _VKEY, _PUBLISHER = "ledger.pem", "ledger.vkey", "publisher.pem"
_BESIDE = (README, PROOFS, _PEM, _VKEY, _PUBLISHER)  # their digests are in the provenance
_ALL = {*_BESIDE, CLAIMS, SIGNATURE, FOLDER}
_MOST = 64 << 20  # bytes of any file beside the model; 1,000 proofs have some 20 MB


@dataclass(frozen=True)
class Opened:
    """A folder that was verified."""

    evidence: Evidence
    files: dict[str, str]  # of the signed folder, with their SHA-256
    publisher: bytes  # the public key that signed them
    unchecked: tuple[str, ...]  # pages that this version would write otherwise
    cut_list: int | None  # how many violations the claim counts, if its list was cut off


def write_handover(
    out: Path,
    *,
    proofs: str,
    vkey: str,
    publisher: PrivateKey,
    signer: PrivateKey,
    version: str,
    copy: Callable[[str, str, Path], None],
) -> Opened:
    """Write the folder; `copy` puts a file of this name and SHA-256 at a path.

    The provenance names the `version` of the program.

    Raises ProctorError for a folder that is not empty, or a file that cannot be handed over.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ProctorError(f"{out} exists and is not an empty folder; name a new folder")
    evidence = evidence_of(proofs, vkey=vkey)
    public_key = public_bytes(publisher)
    handed_in = evidence.files
    if CARD in handed_in:
        raise ProctorError(f"the run handed in a {CARD}, which is the model card's name")
    if not out.parent.is_dir():
        raise ProctorError(f"{out}: there is no folder {out.parent}; make it first")
    new = new_name(out)
    try:
        new.mkdir()
        (new / FOLDER).mkdir()
        for name, sha256 in handed_in.items():
            _check_name(name)
            copy(name, sha256, new / FOLDER / name)
        card = model_card(evidence).encode()
        write_durably(new / FOLDER / CARD, card)
        files = {**handed_in, CARD: hashlib.sha256(card).hexdigest()}
        beside = {
            README: readme(evidence, files).encode(),
            PROOFS: proofs.encode(),
            _PEM: public_pem(evidence.key).encode(),
            _VKEY: f"{vkey}\n".encode(),
            _PUBLISHER: public_pem(public_key).encode(),
        }
        digests = {name: hashlib.sha256(beside[name]).hexdigest() for name in beside}
        signature = seal_bundle(
            folder_statement(FOLDER, files), key=publisher, public_key=public_key
        )
        claims = [
            provenance(evidence, files, beside=digests, version=version),
            verdict(evidence, files),
        ]
        lines = [seal_bundle(each, key=signer, public_key=evidence.key) for each in claims]
        for name, content in beside.items():
            write_durably(new / name, content)
        write_durably(new / SIGNATURE, signature.encode())
        write_durably(new / CLAIMS, "".join([signature, *lines]).encode())
        opened = check_handover(new, vkey=vkey)  # what is handed out holds
        sync_folders(new)
        new.replace(out)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return opened


def check_handover(folder: Path, *, vkey: str | None) -> Opened:
    """Return what a folder holds; raise VerificationError that names the first bad file.

    Without a `vkey` the folder's own is trusted.
    """
    try:
        return _check(folder, vkey=vkey)
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as e:
        raise MalformedError(f"a claim or an event has another form than it should: {e}") from e


def _check(folder: Path, *, vkey: str | None) -> Opened:
    # 1. All files are there, and no others.
    here = {path.name for path in folder.iterdir()}
    for name in sorted(_ALL ^ here):
        if name in here:
            raise MalformedError(f"{name} is not part of a handed-over model")
        raise MalformedError(f"{name} is missing")
    place = Folder(folder)
    texts = {name: _read(place, name) for name in sorted(_ALL - {FOLDER})}
    # 2. The ledger's key, and the events that it covers.
    said, earlier = _said_by_claims(texts)
    with _naming(_VKEY):
        own = texts[_VKEY].removesuffix("\n")
        if vkey is not None and vkey.strip() != own:
            raise MalformedError("this is not the ledger's public key that was given")
        if said.get(_VKEY, _digest(texts[_VKEY])) != _digest(texts[_VKEY]) and vkey is None:
            raise MalformedError("this is not the key under which the model was handed over")
    with _naming(PROOFS):
        evidence = evidence_of(texts[PROOFS], vkey=own, earlier=earlier)
    # 3. The keys of the claims are those that the events grant.
    granted = {public_pem(each): each for each in evidence.publishers}
    for name, known in ((_PEM, [public_pem(evidence.key)]), (_PUBLISHER, [*granted])):
        if texts[name] not in known:
            raise MalformedError(f"{name} is not a key that the proved events lead to")
    publisher = granted[texts[_PUBLISHER]]
    # 4. The claims are signed by them, and nothing is between.
    with _naming(CLAIMS):
        *lines, rest = _lines(texts)
        if len(lines) != 3 or rest:
            raise MalformedError("there are not three claims, each on a line")
        signed = open_bundle(lines[0], public_key=publisher)
        trained, judged = (open_bundle(line, public_key=evidence.key) for line in lines[1:])
    if texts[SIGNATURE] != lines[0]:
        raise MalformedError(f"{SIGNATURE} is not the first line of {CLAIMS}")
    # 5. The files are those that were signed, and those that the run handed in.
    files = {str(one["name"]): str(one["digest"]) for one in signed["predicate"]["resources"]}
    _check_files(place, files, sizes=evidence.sizes)
    if {name: files[name] for name in files if name != CARD} != evidence.files:
        raise MalformedError(f"{FOLDER} does not have the files that the run handed in")
    # 6. The other files are those that the provenance names.
    digests = _byproducts(trained)
    for name in _BESIDE:
        if digests.get(name) != _digest(texts[name]):
            raise MalformedError(f"{name} is not the file that was handed over")
    # 7. The claims say what the events and the digests say. Earlier versions counted the violations
    #    that the audit lists, which are the first 150: such a claim is false, the evidence is not.
    version = str(trained["predicate"]["runDetails"]["builder"]["version"]["proctor"])
    claimed = evidence
    if earlier and judged != json.loads(verdict(evidence, files)):
        claimed = replace(evidence, only_listed=True)
    wanted = (
        folder_statement(FOLDER, files),
        provenance(evidence, files, beside=digests, version=version),
        verdict(claimed, files),
    )
    for number, (claim, made) in enumerate(zip((signed, trained, judged), wanted, strict=True), 1):
        if claim != json.loads(made):
            raise MalformedError(
                f"{CLAIMS}: claim {number} does not say what the proved events say"
            )
    # 8. Its pages are those that follow from the events. Another version words them otherwise.
    card = place.read(f"{FOLDER}/{CARD}", limit=_MOST)
    if hashlib.sha256(card).hexdigest() != files[CARD]:
        raise MalformedError(f"{FOLDER}/{CARD} was changed meanwhile")
    pages = {
        README: (texts[README], readme(evidence, files)),
        f"{FOLDER}/{CARD}": (card.decode(errors="replace"), model_card(evidence)),
    }
    unchecked = tuple(name for name, (here, due) in pages.items() if here != due)
    cut_list = claimed.violations if claimed.only_listed else None
    return Opened(evidence, files, publisher, unchecked, cut_list)


def _check_name(name: str) -> None:
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise ProctorError(f"the run handed in {name!r}, which is not the name of a file")


def _check_files(place: Folder, files: Mapping[str, str], *, sizes: Mapping[Any, Any]) -> None:
    """Raise MalformedError unless a folder has exactly these files.

    `sizes`, by SHA-256, are those that the run recorded: not more is read, however large it is.
    """
    here = place.names(FOLDER)
    for name in sorted({*here} ^ set(files)):
        where = "is not a signed file" if name in here else "is missing"
        raise MalformedError(f"{FOLDER}/{name} {where}")
    for name in sorted(files):
        left, digest = sizes.get(files[name]) or _MOST, hashlib.sha256()
        for chunk in place.chunks(f"{FOLDER}/{name}"):
            digest.update(chunk)
            left -= len(chunk)
            if left < 0:
                break
        if digest.hexdigest() != files[name]:
            raise InclusionError(f"{FOLDER}/{name} is not the file that was signed")


def _read(place: Folder, name: str) -> str:
    try:
        return place.read(name, limit=_MOST).decode()
    except (UnicodeDecodeError, StorageError) as e:
        raise MalformedError(f"{name}: it cannot be read: {e}") from e


def _said_by_claims(texts: Mapping[str, str]) -> tuple[dict[str, str], bool]:
    """Return the digests that the claims name, and whether the claims are of the first form.

    Nothing is verified yet: this is to blame the right file, and to know which claims are due.
    """
    try:
        line = read_json(_lines(texts)[1])
        trained = read_json(payload_of(json.dumps(line["dsseEnvelope"])))
        return _byproducts(trained), is_earlier(trained)
    except (IndexError, KeyError, TypeError, ValueError, VerificationError):
        return {}, False


def _lines(texts: Mapping[str, str]) -> list[str]:
    """Return the first claims, each with its end of line, and what follows them."""
    *lines, rest = texts[CLAIMS].split("\n", 3)
    return [*(f"{line}\n" for line in lines), rest]


def _byproducts(statement: Mapping[str, Any]) -> dict[str, str]:
    """Return the digests in the provenance of the files beside the signed folder."""
    found = statement["predicate"]["runDetails"]["byproducts"]
    return {str(one["name"]): str(one["digest"]["sha256"]) for one in found}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Put a file's name before what is wrong with it."""
    try:
        yield
    except VerificationError as e:
        raise type(e)(f"{name}: {e}") from e
