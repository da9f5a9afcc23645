"""Somebody with a ledger's key who writes, leaves out and hands over whichever entries he likes.

His files are made with the project's own functions, without their own checks. He has no judge's and
no operator's key.
"""

import base64
import hashlib
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from edge_trees import Tree
from msgspec.structs import replace
from synthetic import SPEC, measured

from aggregates.rules import CALIBRATED
from aggregates.run import Run
from ledger.application import LedgerApplication
from ledger.bodies import decode_body, encode_body
from ledger.entries import NO_PREVIOUS, Author, AuthorKey, encode_entries, join_sized
from ledger.handover.envelope import public_pem
from ledger.handover.proof_files import format_proof, open_proofs
from ledger.handover.selection import Selection
from ledger.handover.sigstore_bundle import folder_statement, seal_bundle
from ledger.keys import load_key
from ledger.notes import NoteKey, public_bytes
from ledger.schemes import PrivateKey
from ledger.verification.authority import Authority
from ledger.verification.proofs import inclusion_proofs, leaf_hash
from ledger.verification.reader import open_verified
from ledger.verification.rotations import vkeys_along
from ledger.verification.verified_entries import VerifiedEntry
from proctor.handover.card import model_card, readme
from proctor.handover.evidence import Evidence
from proctor.handover.statements import provenance, verdict
from proctor.reports.files import Source, made_by
from proctor.reports.pages import page_of
from proctor.reports.subjects import Subject
from projections.counting import CountingAudit

__all__ = ["CONTENT", "KeyHolder", "started"]

CONTENT = {"model.py": b"model = 1\n", "weights.safetensors": b"weights"}


def started(
    log: LedgerApplication,
    *,
    level: str | None = None,
    weights: bool = True,
    end: bool = True,
    parent_run: str | None = None,
) -> Run:
    """Save a run whose files exist, in a few events."""
    config = {"dataset": "shapes", "seed": 0, "epochs": 1, "profile": CALIBRATED.profile}
    run = Run.start(
        config=config | ({} if level is None else {"level": level}),
        rules=CALIBRATED.to_dict(),
        spec=SPEC.to_dict(),
        data={"dataset": "shapes <b>|x", "fingerprint": "00" * 32},
        environment={"python": "3.11"},
        policy={"name": "synthetic"},
        parent_run=parent_run,
    )
    run.measure_epoch(measured(0), {} if level is None else measured(0))
    run.evaluate_rules()
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENT.items()}
    if weights:
        run.save_weights(
            "last",
            sha256=hashes["weights.safetensors"],
            size=7,
            spec=SPEC.to_dict(),
            probe={"mode": "eval"},
        )
    if end:
        run.end("completed", deliverables=hashes if weights else {})
    log.save(run)
    return run


@dataclass
class KeyHolder:
    """The ledger's and the publisher's private keys, and the entries that he makes his from."""

    home: Path
    entries: list[VerifiedEntry]
    vkey: str

    @classmethod
    def of(cls, home: Path) -> "KeyHolder":
        with open_verified(home / "ledger") as ledger:
            return cls(home, list(ledger.entries()), ledger.vkey)

    @property
    def origin(self) -> str:
        return self.vkey.partition("+")[0]

    @property
    def authority(self) -> UUID:
        return Authority(self.vkey).stream_id

    def key(self) -> PrivateKey:
        return load_key(self.home / "ledger" / "keys" / "ledger.pem", passphrase=None)

    def find(self, name: str, stream: UUID | None = None, **fields: Any) -> VerifiedEntry:
        """Return the last such entry."""
        return [
            each
            for each in self.entries
            if each.name == name
            and stream in (None, each.stream_id)
            and fields.items() <= decode_body(each.body).items()
        ][-1]

    def add(
        self,
        stream: UUID,
        name: str,
        body: Mapping[str, Any] | bytes,
        *,
        by: AuthorKey | None = None,
        author: Author | None = None,
        version: int | None = None,
        before: VerifiedEntry | None = None,
    ) -> VerifiedEntry:
        """Put in an event, at the end or before another, past every rule of the recorder."""
        if version is None:
            version = 1 + max(
                (each.stream_version for each in self.entries if each.stream_id == stream),
                default=0,
            )
        data = body if isinstance(body, bytes) else encode_body(dict(body))
        if by is not None:
            author = by.author(
                origin=self.origin, stream_id=stream, stream_version=version, name=name, body=data
            )
        made = VerifiedEntry(
            index=0,
            time_ns=(before or self.entries[-1]).time_ns,
            stream_id=stream,
            stream_version=version,
            name=name,
            body=data,
            author=author,
            previous=b"",
            entry_hash=b"",
        )
        at = len(self.entries) if before is None else self.entries.index(before)
        self.entries.insert(at, made)
        return made

    def grant(self, role: str, vkey: str, *, by: AuthorKey) -> VerifiedEntry:
        body = {"v": 1, "role": role, "vkey": vkey}
        return self.add(self.authority, "key.granted", body, by=by)

    def copy_stream(
        self, stream: UUID, into: UUID, *, by: AuthorKey | None = None, **changed: Any
    ) -> None:
        """Say again what a stream says, in another stream; its first event is `changed`."""
        for each in [each for each in self.entries if each.stream_id == stream]:
            more = changed if each.stream_version == 1 else {}
            self.add(into, each.name, {**decode_body(each.body), **more}, by=by)

    def edit_before(
        self, ended: VerifiedEntry, spare: VerifiedEntry, name: str, **changed: Any
    ) -> int:
        """Change an event of a run before its judged end, and return the end's index.

        The end stays, byte by byte, with the hash of the entry that was before it. In that place is
        `spare` now, of another stream, which nobody is shown.
        """
        at = self.entries.index(ended)
        own = [each for each in self.entries[:at] if each.stream_id == ended.stream_id]
        edited = [
            replace(each, body=encode_body({**decode_body(each.body), **changed}))
            if each.name == name
            else each
            for each in own
        ]
        rest = [each for each in self.entries[:at] if each not in (*own, spare)]
        self.entries[:at] = [*rest, *edited, spare]
        return at

    def proofs(
        self,
        *,
        chosen: Callable[[VerifiedEntry], bool],
        key: Ed25519PrivateKey | None = None,
        twice: bool = False,
        kept: int | None = None,
    ) -> str:
        """Link, sign and prove the entries; hand over those that are `chosen`.

        Those from index `kept` on stay as they are, byte by byte.
        """
        raws: list[bytes] = []
        previous = NO_PREVIOUS
        for index, each in enumerate(self.entries):
            event = (each.stream_id.bytes, each.stream_version, each.name, each.body, each.author)
            if index == kept:
                previous = each.previous
            rows, hashes = encode_entries(
                [event], index=index, previous=previous, time_ns=each.time_ns
            )
            raws.append(rows[0][4])
            previous = hashes[0]
        tree = Tree()
        for raw in raws:
            tree.append(leaf_hash(raw))
        note = NoteKey(self.origin, key or self.key()).tree_head(size=len(raws), root=tree.root())
        rotations = [
            str(decode_body(each.body)["note"])
            for each in self.entries
            if each.name == "key.rotated"
        ]
        wanted = [at for at, each in enumerate(self.entries) if chosen(each)]
        paths = inclusion_proofs(map(leaf_hash, raws), wanted)
        tail = [each.encode() for each in rotations]
        files = [
            format_proof(note, index=index, proof=path, extra=join_sized([raws[index], *tail]))
            for index, path in zip(wanted, paths, strict=True)
        ]
        return "".join([*files, *files[-1:]] if twice else files)

    def unchecked(self, proofs: str) -> Selection:
        """Open proofs as a verifier that checks nothing would."""
        proved = open_proofs(proofs, vkey=self.vkey)
        return Selection(
            head=proved[0].head,
            rotations=proved[0].rotations,
            vkeys=tuple(vkeys_along(proved[0].rotations, vkey=self.vkey)),
            authority=Authority(self.vkey),
            entries=tuple(each.entry for each in proved),
            paths=tuple(each.path for each in proved),
        )

    def folder(
        self,
        out: Path,
        proofs: str,
        *,
        run: UUID,
        audit: UUID,
        content: Mapping[str, bytes] = CONTENT,
        earlier: bool = False,
        card: bytes = b"",
    ) -> Path:
        """Hand over files as those of a run, under an audit that is said to count."""
        selection = self.unchecked(proofs)
        scored = [
            each.index
            for each in selection.entries
            if each.stream_id == audit and each.name == "audit.scored"
        ]
        counting = CountingAudit(str(run), audit, scored[-1], held=True, signed=True)
        evidence = Evidence(selection, run, counting, earlier)
        key = self.key()
        publisher = load_key(
            self.home / "ledger" / "keys" / "publisher.pem", role="publisher", passphrase=None
        )
        public = public_bytes(publisher)
        (out / "model").mkdir(parents=True)
        texts = {**content, "README.md": card or model_card(evidence).encode()}
        for name, data in texts.items():
            (out / "model" / name).write_bytes(data)
        files = {name: hashlib.sha256(data).hexdigest() for name, data in texts.items()}
        beside = {
            "README.md": readme(evidence, files).encode(),
            "events.tlog-proof": proofs.encode(),
            "ledger.pem": public_pem(public_bytes(key)).encode(),
            "ledger.vkey": f"{self.vkey}\n".encode(),
            "publisher.pem": public_pem(public).encode(),
        }
        digests = {name: hashlib.sha256(data).hexdigest() for name, data in beside.items()}
        for name, data in beside.items():
            (out / name).write_bytes(data)
        signature = seal_bundle(folder_statement("model", files), key=publisher, public_key=public)
        claims = [
            provenance(evidence, files, beside=digests, version="1"),
            verdict(evidence, files),
        ]
        lines = [seal_bundle(each, key=key, public_key=public_bytes(key)) for each in claims]
        (out / "model.sig").write_text(signature)
        (out / "claims.jsonl").write_text("".join([signature, *lines]))
        return out

    def report(self, out: Path, proofs: str, *, run: UUID) -> Path:
        """Write a page about a run."""
        packed = self.packed(proofs)
        subject = Subject("run", str(run))
        diffs: dict[str, str] = {}
        source = Source(subject, self.unchecked(proofs), packed, self.vkey, made_by(), diffs.get)
        out.write_text(page_of(source))
        return out

    @staticmethod
    def packed(proofs: str) -> str:
        """Return proofs as a page holds them."""
        return base64.b64encode(zlib.compress(proofs.encode(), 9)).decode()
