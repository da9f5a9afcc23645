"""Shapes of the commands that verify a ledger, hand it over and manage its keys.

I/O: none.
"""

from typing import Literal, TypedDict

from proctor.schemas.shared import Entry, TreeHead


class Verification(TypedDict):
    """What a verification of a ledger or bundle found."""

    ok: bool
    size: int  # entries that fit together, up to the fault if there is one
    complete_to: int
    head: TreeHead | None
    error: str | None
    error_type: str | None
    index: int | None
    unread: int  # verified before, and not read this time


class Suspect(TypedDict):
    """Entries that rest on a revoked key."""

    role: str
    vkey: str
    reason: str
    since: str
    witnessed_before: int  # entries
    first: int
    entries: int


class Verified(Verification):
    """A ledger or bundle that is valid; exit code 1 if it is doubtful."""

    witnessed: int | None
    false_lines: list[tuple[int, str]]
    suspect: list[Suspect]


class Invalid(Verification):
    """A ledger or bundle that is not valid; exit code 1."""

    evidence: str | None  # kind of the evidence that was written


class Vouched(TypedDict):
    """Who signed the audit that counts for a run."""

    run: str
    audit: str
    judge: str | None  # vkey; null: no judge signed it
    granted_by: str | None  # vkey of the key that granted the judge's
    granted_as: str | None  # ledger or operator
    as_judged: bool  # the run is proved to be as the judge read it
    trusted: bool  # it is the judge that --judge names


class VerifiedVerdicts(TypedDict):
    """Verdicts that entries prove, and what they leave open."""

    trusted: bool  # every verdict is signed by the judge that --judge names
    verdicts: list[Vouched]
    not_claimed: list[str]
    as_of: str  # the tree head, and what can be left out


class VerifiedModel(VerifiedVerdicts):
    """A model handed over that is valid."""

    ok: Literal[True]
    run: str
    verdict: str
    accuracy_score: float | None
    process_score: float | None
    test_accuracy: float | None
    reservations: list[str]
    violations: int  # that the audit found
    violations_claimed: int  # by the folder's claim
    claim: Literal["exact", "cut_list"]  # cut_list: an earlier version counted the first ones only
    evidence_level: str
    files: dict[str, str]  # name -> SHA-256
    size: int
    origin: str


class VerifiedReport(VerifiedVerdicts):
    """A report, compared with its proved entries; exit code 1 if it was altered."""

    ok: bool
    kind: str
    subject: str
    entries: int
    size: int
    altered: list[str]
    unchecked: str  # why it was not compared


class VerifiedProof(Entry):
    """An entry that a proof proves."""

    ok: Literal[True]
    size: int
    author_verified: Literal[False]


class VerifiedProofs(TypedDict):
    """Entries that the proofs in one file prove, as in a model handed over."""

    ok: Literal[True]
    size: int
    entries: list[Entry]
    author_verified: Literal[False]


class VerifiedEvidence(TypedDict):
    """Evidence of a fork or rollback that is valid."""

    ok: Literal[True]
    kind: str
    vkey: str
    sizes: list[int]
    by: list[str]


class Step(TypedDict):
    """A step of a lineage."""

    index: int
    event: str
    says: str


class LineageSteps(TypedDict):
    """Where an example comes from."""

    example: str
    steps: list[Step]


class VerifiedLineage(LineageSteps, VerifiedVerdicts):
    """A lineage file that is valid."""

    ok: Literal[True]
    size: int


class Lineage(LineageSteps):
    """Where an example comes from; exit code 1 if a run of it is tainted."""

    out: str | None
    bytes: int | None
    remark: str | None
    tainted: list[tuple[str, str]]  # run, reason


class Proof(TypedDict):
    """A proof of one event."""

    index: int
    out: str | None
    proof: str


class ExportedBundle(TypedDict):
    """A bundle that was written."""

    out: str
    size: int
    earlier_heads: int
    blobs: int


class ExportedEnvelope(TypedDict):
    """A verdict or a tree head that was written as a DSSE envelope."""

    out: str
    size: int
    run: str | None  # null: the tree head
    pem: str | None  # file with the key that signed


class ExportedCurves(TypedDict):
    """The curves of a run that were written."""

    run: str
    format: Literal["tensorboard", "mlflow"]
    out: str


class Imported(TypedDict):
    """A bundle that was verified and written into a home."""

    origin: str
    size: int
    new: int
    blobs: int
    left_out: list[str]


class Revocation(TypedDict):
    """A revocation of a key."""

    index: int
    since: str
    reason: str


Key = TypedDict(
    "Key",
    {
        "role": str,
        "key_id": str,
        "vkey": str,
        "from": int,  # first entry at which it was in force
        "to": int | None,  # None: it is in force
        "revocations": list[Revocation],
    },
)


class NewKey(TypedDict):
    """A key that was made."""

    key: str
    vkey_file: str
    vkey: str


class Granted(TypedDict):
    """A key that was granted a role."""

    granted: str
    role: str
    index: int


class Revoked(TypedDict):
    """A key that was revoked."""

    revoked: str
    role: str
    index: int


class Rotated(TypedDict):
    """The new key of the ledger."""

    rotated: str


class Accepted(TypedDict):
    """The keys that a place has had, and has; how many entries were seen, and are there."""

    place: str
    known: list[str]
    now: str
    entries: int
    seen: int | None  # of this ledger, by this user; null: it is new to this user
    accepted: bool


class Rights(TypedDict):
    """What a user of a PostgreSQL server may do to a ledger, beside reading and appending."""

    user: str
    needless: list[str]
    missing: list[str]  # of what reading and appending need


class Origin(TypedDict):
    """The origin of a ledger that a witness cosigns from now on."""

    origin: str
    witness: str  # vkey


class Cosigned(TypedDict):
    """A request that was cosigned."""

    cosigned: Literal[True]
    out: str


class NotCosigned(TypedDict):
    """A request that contradicts what was cosigned before; exit code 1."""

    cosigned: Literal[False]
    problem: str


class WitnessRequest(TypedDict):
    """A request file for a witness."""

    out: str
    size: int
    old: int
    rotations: str | None


class CosignedHead(TypedDict):
    """A tree head that bears a cosignature."""

    size: int
    seconds: int


class CosignedLine(CosignedHead):
    """A cosignature with its line."""

    line: str


class Asked(TypedDict):
    """What came of asking one witness."""

    outcome: Literal["cosigned", "behind", "fork", "refused", "failed"]
    detail: str
    cosigned: CosignedLine | None


class Witnessed(TypedDict):
    """What came of asking all witnesses; exit code 1 if the quorum is not met."""

    met: bool
    size: int
    witnesses: dict[str, Asked]


class Attested(TypedDict):
    """A model that was handed over."""

    run: str
    out: str
    verdict: str
    reservations: list[str]
    evidence_level: str
    files: dict[str, str]
    publisher: str
    granted: bool
    size: int


class Snapshot(TypedDict):
    """A copy of the tables."""

    snapshot: str
    bytes: int


class Written(TypedDict):
    """An answer in a file."""

    out: str
    rows: int


class ReportFiles(TypedDict):
    """A report that was written."""

    kind: str
    subject: str
    files: dict[str, int]  # path -> bytes
    charts: list[str]
    entries: int
    size: int
