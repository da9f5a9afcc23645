"""Write the tree head of a bundle as a DSSE envelope, and verify it with securesystemslib."""

import json
from pathlib import Path

from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey

from ledger.handover.envelope import IN_TOTO, envelope_key_id, seal, tree_head_statement
from ledger.keys import load_key

key = load_key(Path(".proctor/ledger/keys/ledger.pem"), passphrase=None)
note = Path("mine/checkpoint").read_text()
text = seal(tree_head_statement(note), payload_type=IN_TOTO, key=key)

public = key.public_key().public_bytes_raw()
theirs = SSlibKey(envelope_key_id(public), "ed25519", "ed25519", {"public": public.hex()})
Envelope.from_dict(json.loads(text)).verify([theirs], threshold=1)
