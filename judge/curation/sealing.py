"""Draws and seals exports: the same query as of the same entry gives the same bytes.

Source: RFC 6962 section 2.1 for the root over the lines.
I/O: reads blobs.
"""

import hashlib
import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from aggregates.curation.export import Export
from aggregates.situation import describe
from judge.curation.examples import Example, examples
from judge.curation.query import Query
from judge.curation.recall import read_members
from judge.curation.tables import Tables
from judge.errors import CurationError
from ledger.blobs import Blobs
from ledger.verification.proofs import leaf_hash
from ledger.verification.states import State
from monitor.code import hash_files
from projections.projector import schema_hash


@dataclass(frozen=True)
class Drawn:
    """An export, with all that its seal says."""

    query: Query
    as_of: int
    head: str
    code: str
    examples: tuple[Example, ...]

    @property
    def lines(self) -> bytes:
        """The JSON Lines."""
        return b"".join(each.line + b"\n" for each in self.examples)

    @property
    def members(self) -> bytes:
        """The list of examples with their decisions, as JSON Lines in the same order."""
        return b"".join(msgspec.json.encode(each.member) + b"\n" for each in self.examples)

    def seal(self) -> Export:
        """Return the event's stream, still unsaved; the members are for the caller to store."""
        return Export.seal(
            kind=self.query.kind,
            as_of=self.as_of,
            head=self.head,
            query=self.query.to_dict(),
            code=self.code,
            examples=len(self.examples),
            root=merkle_root([each.line for each in self.examples]),
            sha256=hashlib.sha256(self.lines).hexdigest(),
            members=hashlib.sha256(self.members).hexdigest(),
        )


def draw(tables: Tables, query: Query, *, blobs: Blobs) -> Drawn:
    """Return what the query lets through of these tables; raises as examples() does."""
    with tables.settled():
        found = tuple(examples(tables, query, blobs=blobs))
    return Drawn(query, tables.as_of, tables.head, code_sha256(), found)


def find_seal(tables: Tables, drawn: Drawn) -> dict[str, Any] | None:
    """Return the seal that this very question has already, if any.

    Raises CurationError where it is of other bytes: the same code gave something else, once.
    """
    own = drawn.seal()
    rows = tables.ask("SELECT * FROM exports WHERE export_id = ?", [str(own.id)])
    if not rows:
        return None
    for what in ("sha256", "root", "members", "examples"):
        if rows[0][what] != getattr(own, what):
            raise CurationError(
                f"export {own.id} was sealed in entry {rows[0]['idx']} with {what} "
                f"{rows[0][what]}, but the same query now gives {getattr(own, what)}"
            )
    return rows[0]


def verify_file(tables: Tables, content: bytes, *, blobs: Blobs) -> dict[str, Any]:
    """Return the seal of an export's JSON Lines, with whether they were drawn again (`drawn`).

    Anybody can append a seal. So what the same code sealed is drawn again as of then, and has to
    come to these bytes; of other code only what the list of members says is compared. Raises
    CurationError if no seal is of these bytes, or none holds; BlobError as draw() does.
    """
    digest = hashlib.sha256(content).hexdigest()
    rows = tables.ask("SELECT * FROM exports WHERE sha256 = ? ORDER BY idx", [digest])
    fault = CurationError(
        f"no export in the ledger has these bytes (SHA-256 {digest}): the file was changed, "
        "or it was never sealed here"
    )
    for row in rows:
        try:
            return {**row, "drawn": _holds(tables, row, content, blobs)}
        except CurationError as error:
            fault = CurationError(
                f"the seal in entry {row['idx']} was not made by this program: {error}"
            )
    raise fault


def _holds(tables: Tables, row: dict[str, Any], content: bytes, blobs: Blobs) -> bool:
    """Raise CurationError if a seal does not fit what it is of; tell if that was drawn again."""
    lines = content.split(b"\n")[:-1]
    if len(lines) != row["examples"] or merkle_root(lines) != row["root"]:
        raise CurationError("its root or number of examples does not match the bytes that it names")
    members = read_members(blobs.get(row["members"]), examples=row["examples"])
    if [member.id for member in members] != [_id_of(line) for line in lines]:
        raise CurationError("its list of members does not match its examples")
    query = Query.of(row["kind"], json.loads(row["query"]))
    asked = {"kind": row["kind"], "head": row["head"], "query": query.to_dict()}
    if str(Export.id_of(code=row["code"], **asked)) != row["export_id"]:
        raise CurationError("its id does not match its query")
    if row["code"] != code_sha256():
        return False
    then = replace(tables, as_of=row["as_of"], head=row["head"])
    tables.connection.execute(f"SET VARIABLE as_of = {row['as_of']:d}")
    try:
        again = draw(then, query, blobs=blobs)
    finally:
        tables.connection.execute("RESET VARIABLE as_of")
    if (again.lines, again.seal().members) != (content, row["members"]):
        raise CurationError(
            f"its query gives different examples as of entry {row['as_of']}: "
            f"{len(again.examples)} examples"
        )
    return True


def _id_of(line: bytes) -> Any:
    try:
        return json.loads(line)["id"]
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        raise CurationError(f"a line is not an example: {line[:80]!r}") from error


def merkle_root(lines: list[bytes]) -> str:
    """Return the root over lines without their line breaks, hexadecimal."""
    return State().grown([leaf_hash(line) for line in lines]).root.hex()


@cache
def code_sha256() -> str:
    """Return the SHA-256 over all that decides which examples there are: this code, the views."""
    told = Path(describe.__code__.co_filename)
    files = [*Path(__file__).parent.glob("*.py"), told, told.with_name("playbook.py")]
    files += (told.parent / "rulebook").glob("*.py")  # what prompts say of rules
    own = ((path.name, path.read_bytes()) for path in files)
    return hash_files([("schema", schema_hash().encode()), *own])
