"""A witness that is made if need be, then cosigns one head after the other and says so.

python witness_session.py FOLDER LAST: prints `made`, then each size when it was answered.
"""

import os
import sys
from pathlib import Path

from witness_trees import NAME, ORIGIN, Log

from ledger.errors import LedgerError
from ledger.verification.verified_notes import parse_tree_head
from ledger.witnessing.store import origin_hash
from ledger.witnessing.witness import Witness


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())  # in one call


def main(folder: Path, last: int) -> None:
    log = Log.honest(last)
    if not (folder / "witness.vkey").exists():
        Witness.create(folder, name=NAME, passphrase=None)
    with Witness.open(folder, passphrase=None) as witness:
        witness.trust(log.vkey)
        say("made")
        latest = witness.checkpoint(origin_hash(ORIGIN))
        old = parse_tree_head(latest.body).size if latest.status == 200 else 0
        for size in range(old + 1, last + 1):
            try:
                answer = witness.add_checkpoint(log.request(size - 1, size))
            except LedgerError:
                os._exit(1)  # and not a word more, nor a file closed
            assert answer.status == 200, answer
            say(str(size))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
