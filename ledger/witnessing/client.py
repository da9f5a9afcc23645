"""Asking witnesses: requests for them, what they answer, and where a cosignature belongs.

Source: C2SP tlog-witness, "add-checkpoint"; tlog-policy ("submission prefix").
Trust: a witness's answer is hostile until its line has been verified with the witness's vkey.
I/O: post() speaks HTTP; the rest is pure.  Units: sizes in entries; seconds.
"""

import http.client
import re
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from threading import Timer
from typing import Literal
from urllib.parse import urlsplit

from ledger.errors import SignatureError, VerificationError
from ledger.verification.proofs import consistency_proof
from ledger.verification.verified_notes import (
    encode_base64,
    parse_note,
    parse_tree_head,
    parse_vkey,
)
from ledger.witnessing.cosignatures import cosigned_at, open_cosignature

_MAX_ANSWER = 65_536  # bytes
_SIZE = re.compile(r"(0|[1-9][0-9]{0,18})\n")


@dataclass(frozen=True, kw_only=True)
class Cosigned:
    """A verified cosignature line and the tree head that it belongs to."""

    size: int
    seconds: int
    line: str  # with its newline


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What came of asking one witness.

    `behind`: it has cosigned a larger tree head, so entries are missing here. `fork`: what it
    cosigned is not a beginning of this ledger. `refused`: it does not know the ledger or its
    key. `failed`: there was no answer to go by; try again.
    """

    outcome: Literal["cosigned", "behind", "fork", "refused", "failed"]
    detail: str
    cosigned: Cosigned | None = None


def build_request(note: str, *, old_size: int, leaf_hashes: Iterable[bytes]) -> str:
    """Return the request to cosign a tree head, for a witness that has cosigned `old_size`.

    `leaf_hashes` are those of all entries that the tree head covers.
    """
    proof = consistency_proof(leaf_hashes, old_size) if old_size else []
    lines = "".join(f"{encode_base64(each)}\n" for each in proof)
    return f"old {old_size}\n{lines}\n{note}"


def cosigned_size(notes: Iterable[str], *, vkey: str) -> int:
    """Return the largest size of these tree heads at which a witness has cosigned one, or 0."""
    name = parse_vkey(vkey, role="witness").name
    return max(
        (
            parse_tree_head(note).size
            for note in notes
            if f"\n\u2014 {name} " in note and cosigned_at(parse_note(note), vkey=vkey)[0]
        ),
        default=0,
    )


def own_line(answer: str, *, vkey: str) -> str:
    """Return the one line of an answer that bears a witness's name and key id, unverified."""
    key = parse_vkey(vkey, role="witness")
    note = parse_note(f"-\n\n{answer}")
    found = [s for s in note.signatures if (s.name, s.key_id) == (key.name, key.key_id)]
    if len(found) != 1:
        raise SignatureError(
            f"the answer has {len(found)} signature lines by {key.name}, expected one"
        )
    return str(found[0])


def place_line(line: str, notes: Iterable[str], *, vkey: str) -> Cosigned:
    """Find the tree head that a cosignature line belongs to; give the likely ones first.

    Raises SignatureError if it belongs to none of them.
    """
    for note in notes:
        text, _, _ = note.rpartition("\n\n")
        try:
            seconds = open_cosignature(parse_note(f"{text}\n\n{line}"), vkey=vkey)
        except SignatureError:
            continue
        return Cosigned(size=parse_tree_head(note).size, seconds=seconds, line=line)
    raise SignatureError(
        "the cosignature matches no tree head of this ledger; is it for a different ledger?"
    )


def ask_witness(
    url: str,
    *,
    vkey: str,
    note: str,
    old_size: int,
    request: Callable[[int], str],
    rotations: Iterable[str] = (),
    timeout: float,
) -> Asked:
    """Ask a witness at its submission prefix to cosign a tree head.

    `request` builds the request for an old size, `rotations` are the ledger's. Never raises for
    what the witness answers.
    """
    size = parse_tree_head(note).size
    followed = False
    for _ in range(4):  # the size it names may be outdated by others that ask
        try:
            status, body = post(f"{url}/add-checkpoint", request(old_size), timeout=timeout)
            if status == 403 and not followed and (notes := "".join(rotations)):
                followed = True
                post(f"{url}/add-rotations", notes, timeout=timeout)
                continue
        except (OSError, http.client.HTTPException, UnicodeDecodeError, ValueError) as e:
            return Asked(outcome="failed", detail=f"{type(e).__name__}: {e}")
        if status == 200:
            return _accepted(body, note=note, vkey=vkey)
        named = _SIZE.fullmatch(body)
        if status != 409 or named is None:
            break
        old_size = int(named[1])
        if old_size > size:
            return Asked(
                outcome="behind",
                detail=f"the witness has cosigned {old_size} entries, but the ledger has {size}",
            )
    said = body.strip().partition("\n")[0][:200]
    if status == 422:
        return Asked(outcome="fork", detail=said)
    if status in (403, 404):
        return Asked(outcome="refused", detail=said)
    return Asked(outcome="failed", detail=f"status {status}: {said}")


def post(url: str, text: str, *, timeout: float) -> tuple[int, str]:
    """Send a text; return status and body. Redirections are not followed.

    Raises OSError, HTTPException or ValueError; after `timeout` in any case.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("the URL must start with http:// or https:// and a host")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=timeout)
    # The connection's own timeout is for each step. A witness that sends drop by drop takes
    # many steps: then the timer pulls the plug.
    timer = Timer(timeout, _unplug, [connection])
    timer.daemon = True
    timer.start()
    try:
        connection.request(
            "POST",
            parts.path or "/",
            body=text.encode(),
            headers={"Content-Type": "text/plain; charset=utf-8"},
        )
        answer = connection.getresponse()
        body = answer.read(_MAX_ANSWER + 1)
        if len(body) > _MAX_ANSWER:
            raise ValueError(f"the answer is longer than {_MAX_ANSWER} bytes")
        return answer.status, body.decode()
    finally:
        timer.cancel()
        connection.close()


def _accepted(body: str, *, note: str, vkey: str) -> Asked:
    try:
        cosigned = place_line(own_line(body, vkey=vkey), [note], vkey=vkey)
    except VerificationError as e:
        return Asked(outcome="failed", detail=f"the answer is not a valid cosignature: {e}")
    return Asked(outcome="cosigned", detail=f"{cosigned.size} entries", cosigned=cosigned)


def _unplug(connection: http.client.HTTPConnection) -> None:
    if connection.sock is not None:
        with suppress(OSError):  # it may just have been closed
            connection.sock.shutdown(socket.SHUT_RDWR)
