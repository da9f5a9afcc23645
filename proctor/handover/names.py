"""The names by which a folder is known to be a model handed over.

They are apart so that a reader of anything else loads nothing for the question.
"""

from pathlib import Path

CLAIMS = "claims.jsonl"
PROOFS = "events.tlog-proof"
SIGNATURE = "model.sig"


def is_handover(folder: Path) -> bool:
    """Tell whether a folder claims to be a handed-over model."""
    return any((folder / name).is_file() for name in (CLAIMS, PROOFS, SIGNATURE))
