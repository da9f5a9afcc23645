"""Proofs of entries as a file, for somebody who has nothing else but the public key.

Source: C2SP tlog-proof; docs/reference/ledger-format.md, "Proofs".
Trust: a file is hostile until open_proof() or open_proofs() returns.
I/O: none; write_proofs() reads what it proves and the blocks of 512 entries around it.
Not covered: whether the author's key was in force, which other entries say; who has cosigned
the tree head, which the quorum says of `ProvedEntry.head.note`.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from ledger.entries import join_sized, split_sized
from ledger.errors import ConsistencyError, InclusionError, MalformedError
from ledger.verification.proofs import (
    BLOCK,
    MAX_PROOF,
    Node,
    inclusion_proofs,
    leaf_hash,
    verify_inclusion,
)
from ledger.verification.reader import VerifiedLedger
from ledger.verification.rotations import rotations_up_to, vkeys_along
from ledger.verification.verified_entries import VerifiedEntry, parse_entry
from ledger.verification.verified_notes import (
    TreeHead,
    decode_base64,
    encode_base64,
    open_tree_head,
    parse_tree_head,
)

_TITLE = "c2sp.org/tlog-proof@v1"
_MAX_FILE = 1_000_000  # characters; each rotation takes some 1,000
MOST_ENTRIES = 20_000  # in one text
_FORM = re.compile(
    r"c2sp\.org/tlog-proof@v1\n"
    r"extra (?P<extra>[A-Za-z0-9+/=]+)\n"
    r"index (?P<index>0|[1-9][0-9]{0,18})\n"
    rf"(?P<proof>(?:[A-Za-z0-9+/]{{43}}=\n){{0,{MAX_PROOF}}})"
    r"\n"
    r"(?P<note>[^\n].*)",
    re.DOTALL,
)


@dataclass(frozen=True, kw_only=True)
class ProvedEntry:
    """An entry that is in the ledger, as of a tree head that the ledger's key has signed."""

    entry: VerifiedEntry
    head: TreeHead  # its `note` has all lines, cosignatures too
    rotations: tuple[str, ...]  # notes, oldest first
    path: tuple[bytes, ...]  # from the entry to the root, from its sibling up


def write_proofs(ledger: VerifiedLedger, indexes: Collection[int]) -> str:
    """Return the files that prove these entries, one after the other, all under one tree head.

    That is the newest that witnesses have cosigned, if one covers them, and else the newest.
    Raises InclusionError if there is no such entry, MalformedError for too many.
    """
    wanted = sorted(set(indexes))
    for index in wanted:
        if ledger.head is None or not 0 <= index < ledger.size:
            raise InclusionError(f"entry {index} not found: the ledger has {ledger.size} entries")
    if ledger.head is None or not wanted:
        raise InclusionError("there is nothing to prove")
    note = ledger.head.note
    if not _is_cosigned(note):
        for earlier in ledger.head_notes():
            if _is_cosigned(earlier) and parse_tree_head(earlier).size > wanted[-1]:
                note = earlier
    head = parse_tree_head(note)
    blocks = ledger.blocks[: head.size >> BLOCK]
    try:
        return _written(ledger, note, wanted, blocks)
    except InclusionError:
        if not blocks:
            raise
    return _written(ledger, note, wanted, ())  # they were not this ledger's


def _written(
    ledger: VerifiedLedger, note: str, wanted: Sequence[int], blocks: Sequence[bytes]
) -> str:
    size, found = parse_tree_head(note).size, dict[int, bytes]()
    needed = {index >> BLOCK for index in wanted} | {*range(len(blocks), (size >> BLOCK) + 1)}
    read = [range(each << BLOCK, min(size, (each + 1) << BLOCK)) for each in sorted(needed)]
    entries = ledger.raw_chosen([*chain(*read)]) if blocks else ledger.raw_entries()

    def nodes() -> Iterator[Node]:
        due = {*wanted}
        for number in range((size >> BLOCK) + 1):
            if number not in needed:
                yield 1 << BLOCK, blocks[number]
                continue
            for at in range(number << BLOCK, min(size, (number + 1) << BLOCK)):
                raw = next(entries)
                if at in due:
                    found[at] = raw
                yield leaf_hash(raw)

    proofs = inclusion_proofs(nodes(), wanted)
    rotations = rotations_up_to(size, authority=ledger.authority, vkey=ledger.vkey)
    tail = [each.encode() for each in rotations]
    text = "".join(
        format_proof(note, index=index, proof=proof, extra=join_sized([found[index], *tail]))
        for index, proof in zip(wanted, proofs, strict=True)
    )
    open_proofs(text, vkey=ledger.vkey)  # what is handed out holds
    return text


def format_proof(note: str, *, index: int, proof: Sequence[bytes], extra: bytes) -> str:
    """Return a tlog-proof file."""
    hashes = "".join(f"{encode_base64(each)}\n" for each in proof)
    return f"{_TITLE}\nextra {encode_base64(extra)}\nindex {index}\n{hashes}\n{note}"


def open_proof(text: str, *, vkey: str) -> ProvedEntry:
    """Return the entry that a file proves to be in the ledger with this vkey.

    Raises VerificationError: MalformedError for what is no such file, SignatureError for a tree
    head or rotation of another key, InclusionError for an entry that is not in the tree.
    """
    match = _FORM.fullmatch(text) if len(text) <= _MAX_FILE else None
    if match is None:
        raise MalformedError("the file is not a tlog-proof with extra data, index and tree head")
    index = int(match["index"])
    parts = split_sized(decode_base64(match["extra"], what="the extra data"), limit=_MAX_FILE)
    if not parts:
        raise MalformedError("the extra data in the file is empty")
    data, *notes = parts
    # 1. The leaf: the entry, which bears its own index too.
    entry = parse_entry(data, index=index)
    if entry.index != index:
        raise InclusionError(f"the entry states index {entry.index}, not {index}")
    # 2. The tree head, signed by the key to which the rotations lead.
    try:
        rotations = tuple(note.decode() for note in notes)
    except UnicodeDecodeError as e:
        raise MalformedError("a rotation in the file is not text") from e
    head = open_tree_head(match["note"], vkey=vkeys_along(rotations, vkey=vkey)[-1])
    # 3. Cosignatures are the caller's to ask for. 4. The entry is under the tree head's root.
    path = tuple(decode_base64(line) for line in match["proof"].splitlines())
    verify_inclusion(entry.entry_hash, index=index, size=head.size, root=head.root, proof=path)
    return ProvedEntry(entry=entry, head=head, rotations=rotations, path=path)


def open_proofs(text: str, *, vkey: str) -> tuple[ProvedEntry, ...]:
    """Return the entries that several files, one after the other, prove to be in one tree.

    They are in ascending order, each once. Raises what open_proof() does, and ConsistencyError
    for entries that are out of order, or under several tree heads.
    """
    start = f"{_TITLE}\n"
    parts = text.split(f"\n{start}", MOST_ENTRIES)
    if not text.startswith(start) or len(parts) > MOST_ENTRIES:
        raise MalformedError(f"the file must hold 1 to {MOST_ENTRIES} tlog-proofs")
    files = [parts[0], *(start + part for part in parts[1:])]
    files = [f"{file}\n" for file in files[:-1]] + files[-1:]
    proved = tuple(open_proof(file, vkey=vkey) for file in files)
    for before, after in pairwise(proved):
        index = after.entry.index
        if before.entry.index >= index:
            raise ConsistencyError(f"entry {index} is out of order", index=index)
        if (before.head.note, before.rotations) != (after.head.note, after.rotations):
            raise ConsistencyError(
                f"entry {index} is proved under a different tree head", index=index
            )
    return proved


def _is_cosigned(note: str) -> bool:
    return note.count("\n\u2014 ") > 1
