"""Decisions that witnesses have cosigned before their effect was known."""

import time
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from frontdoor import answer, call_here
from synthetic import synthetic_run

from aggregates.run import Run
from ledger.application import LedgerApplication
from ledger.recorder import SignedRecorder
from ledger.verification.reader import open_verified
from ledger.verification.verified_notes import parse_tree_head
from ledger.witnessing.cosignatures import cosignature_vkey, sign_cosignature
from proctor.home import Home

WITNESS = Ed25519PrivateKey.generate()


def cosign(log: LedgerApplication, note: str) -> int:
    """Have the witness cosign a tree head now; return its size."""
    text, size = note.rpartition("\n\n")[0] + "\n", parse_tree_head(note).size
    line = sign_cosignature(text, name="w.example", key=WITNESS, seconds=int(time.time()))
    assert isinstance(log.recorder, SignedRecorder)
    log.recorder.add_signature_line(size, line)
    return size


class Witnessed:
    """A log of which the witness cosigns the newest tree head after the first decision."""

    def __init__(self, home: Home, log: LedgerApplication) -> None:
        self._home, self._log = home, log
        self.sizes: list[int] = []
        self.after: dict[int, str] = {}  # the tree head after each decision

    def save(self, *saved: Any) -> None:
        self._log.save(*saved)
        (run,) = saved
        if isinstance(run, Run) and run.decisions and len(run.decisions) not in self.after:
            with open_verified(self._home.ledger) as ledger:
                assert ledger.head is not None
                self.after[len(run.decisions)] = ledger.head.note
            if not self.sizes:
                self.sizes.append(cosign(self._log, self.after[1]))
                time.sleep(1.1)  # a witness tells whole seconds


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, int]:
    """A home with two decisions: one cosigned in time, one when its run had ended."""
    home = Home(tmp_path_factory.mktemp("fixed"))
    with home.open_log() as log:
        witnessed = Witnessed(home, log)
        run = synthetic_run(witnessed, exploding=[1, 3], epochs=6)
        assert len(run.decisions) == 2
        time.sleep(1.1)
        late = cosign(log, witnessed.after[2])
    return home.path, witnessed.sizes[0], late


def policy(folder: Path, key: Ed25519PrivateKey = WITNESS) -> Path:
    path = folder / "policy.txt"
    vkey = cosignature_vkey("w.example", key.public_key().public_bytes_raw())
    path.write_text(f"witness ours {vkey}\nquorum ours\n")
    return path


def test_decision_that_was_cosigned_in_time_is_fixed_and_a_later_cosignature_is_rejected(
    made: tuple[Path, int, int], tmp_path: Path
) -> None:
    home, size, late = made
    told: list[str | Path] = ["show", "--witnesses", policy(tmp_path)]
    first, second = answer(call_here([*told, "--json"], home=home))["fixed"]
    assert (first["decision"], first["size"], first["witnesses"]) == (1, size, ["ours"])
    assert second == {"decision": 2, "size": None, "witnesses": [], "at": None}
    assert late > size  # the line is there, and it is too late
    text = " ".join(call_here(told, home=home).stdout.split())
    assert "decision 1 was fixed before its effect was known: cosigned by ours at 2" in text
    assert "not fixed before its effect was known: decision 2;" in text


def test_witness_that_the_policy_does_not_trust_fixes_nothing(
    made: tuple[Path, int, int], tmp_path: Path
) -> None:
    home, _, _ = made
    other = policy(tmp_path, Ed25519PrivateKey.generate())
    found = answer(call_here(["show", "--witnesses", other, "--json"], home=home))["fixed"]
    assert [each["size"] for each in found] == [None, None]
    assert answer(call_here(["show", "--json"], home=home))["fixed"] is None
    wrong = call_here(["show", "--witnesses", other, "--transcript"], home=home)
    assert (wrong.returncode, "--witnesses" in wrong.stderr) == (2, True)
