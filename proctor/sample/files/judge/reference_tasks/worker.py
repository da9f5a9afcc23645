"""Answers reference tasks with the component: one JSON line in, one out."""

import json
import sys
from pathlib import Path

from retrieval.component import choose

opening = json.loads(sys.stdin.readline())
documents = json.loads(Path(opening["input"], "documents.json").read_text(encoding="utf-8"))
print(json.dumps({"ready": True}), flush=True)
for _ in sys.stdin:
    told = opening["parameters"]
    print(json.dumps(choose(documents, told["query"], cap=told["cap"])), flush=True)
