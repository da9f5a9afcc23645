"""How much a test repeats: EXHAUSTIVE=1 asks for what the documents count."""

import os

EXHAUSTIVE = bool(os.environ.get("EXHAUSTIVE"))
