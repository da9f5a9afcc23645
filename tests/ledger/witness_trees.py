"""Ledgers as a witness sees them: leaves, signed tree heads, requests; and their forks."""

import base64
import hashlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from signed_notes import sign_note, sign_tree_head

from ledger.notes import public_bytes, vkey
from ledger.verification.proofs import consistency_proof
from ledger.witnessing.client import post
from ledger.witnessing.witness import Witness

NAME = "witness.example/w1"
ORIGIN = "proctor.local/0123456789abcdef0123456789abcdef"


def root_of(leaves: Sequence[bytes]) -> bytes:
    """RFC 6962 section 2.1, as it is written there."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    split = 1 << ((len(leaves) - 1).bit_length() - 1)
    left, right = root_of(leaves[:split]), root_of(leaves[split:])
    return hashlib.sha256(b"\x01" + left + right).digest()


@dataclass(frozen=True)
class Log:
    """A ledger's owner: signs what it likes."""

    leaves: tuple[bytes, ...]
    key: Ed25519PrivateKey
    origin: str = ORIGIN

    @classmethod
    def honest(cls, size: int, *, seed: int = 1) -> Self:
        leaves = tuple(hashlib.sha256(f"leaf {i}".encode()).digest() for i in range(size))
        return cls(leaves, Ed25519PrivateKey.from_private_bytes(seed.to_bytes(32, "big")))

    def forked(self, at: int) -> Self:
        """Return the same ledger with another entry at one place and from there on."""
        other = tuple(hashlib.sha256(b"other" + leaf).digest() for leaf in self.leaves[at:])
        return replace(self, leaves=(*self.leaves[:at], *other))

    def signed_by(self, seed: int) -> Self:
        return replace(self, key=Ed25519PrivateKey.from_private_bytes(seed.to_bytes(32, "big")))

    @property
    def vkey(self) -> str:
        return vkey(self.origin, public_bytes(self.key))

    def head(self, size: int) -> str:
        root = root_of(self.leaves[:size])
        return sign_tree_head(origin=self.origin, size=size, root=root, key=self.key)

    def proof(self, old: int, size: int) -> list[bytes]:
        return consistency_proof(self.leaves[:size], old) if 0 < old < size else []

    def request(self, old: int, size: int) -> bytes:
        return request_of(old, self.proof(old, size), self.head(size))

    def rotation_to(self, successor: "Log") -> str:
        text = f"ledger/rotation/v1\n{self.origin}\n{self.vkey}\n{successor.vkey}\n"
        line = sign_note(text, name=self.origin, key=successor.key).rpartition("\n\n")[2]
        return sign_note(text, name=self.origin, key=self.key) + line


def request_of(old: int | str, proof: Sequence[bytes], note: str) -> bytes:
    lines = "".join(f"{base64.b64encode(each).decode()}\n" for each in proof)
    return f"old {old}\n{lines}\n{note}".encode()


def submit_at_random(folder: Path, *, forked: bool, seed: int) -> list[str]:
    """Submit heads of one of two histories for a while; return the notes that were cosigned."""
    with Witness.open(folder, passphrase=None) as witness:

        def add_checkpoint(request: bytes) -> tuple[int, str]:
            answer = witness.add_checkpoint(request)
            return answer.status, answer.body

        return _submit(add_checkpoint, forked=forked, seed=seed)


_SUBMIT = """
import json, sys
from witness_trees import submit_here
print(json.dumps(submit_here(sys.argv[1], forked=bool(int(sys.argv[2])), seed=int(sys.argv[3]))))
"""


def submit_over_http(url: str, *, forked: bool, seed: int) -> Callable[[], list[str]]:
    """Start a process that does submit_here(); return how to wait for its notes."""
    child = subprocess.Popen(
        [sys.executable, "-c", _SUBMIT, url, str(int(forked)), str(seed)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{Path(__file__).parent}:{Path(__file__).parents[2]}"},
    )
    return lambda: list(json.loads(child.communicate(timeout=60)[0]))


def submit_here(url: str, *, forked: bool, seed: int) -> list[str]:
    """Do as submit_at_random(), of a server."""

    def add_checkpoint(request: bytes) -> tuple[int, str]:
        return post(f"{url}/add-checkpoint", request.decode(), timeout=60)

    return _submit(add_checkpoint, forked=forked, seed=seed)


def _submit(
    add_checkpoint: Callable[[bytes], tuple[int, str]], *, forked: bool, seed: int
) -> list[str]:
    honest = Log.honest(40)
    log = honest.forked(0) if forked else honest
    rng = random.Random(seed)
    cosigned, old = [], 0
    for _ in range(60):
        size = rng.randint(old, min(old + 3, 40))
        status, body = add_checkpoint(log.request(old, size))
        if status == 200:
            cosigned.append(log.head(size).rpartition("\n\n")[0] + "\n\n" + body)
            old = size
        elif status == 409:
            old = int(body)
    return cosigned
