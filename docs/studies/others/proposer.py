"""The program that proposes, behind an OpenAI-compatible address: it changes one number at a time.

What it proposes in its n-th call follows from n, a seed and the program that it is shown, whoever
asks. It reads the prompts of all three and answers in the form that each of them asks for.

I/O: a server on loopback.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[3] / "tests/helpers"))
from chat_server import (
    ChatServer,
    Reply,
    answer_probe,
    completion,
    is_probe,
    say,
    schema_of,
)
from evolving_model import files_of

from studies.others.problem import changed

_OPENEVOLVE = re.compile(r"^# Current Program\n```\w*\n(.*?)\n```$", re.DOTALL | re.MULTILINE)
_GEPA = re.compile(r"^## Current Component\n.*?^```\n(.*?)\n```$", re.DOTALL | re.MULTILINE)


class Proposer:
    """Answers, and counts the calls that asked for a proposal."""

    def __init__(self, seed: int) -> None:
        self._seed, self._lock, self._numbers = seed, Lock(), count(1)
        self.calls = 0

    def __call__(self, request: dict[str, Any], _: Mapping[str, str], /) -> Reply:
        """Answer a request."""
        text = str(request["messages"][-1]["content"])
        if found := _OPENEVOLVE.search(text):
            old, new, _all = self._change(found[1])
            edit = f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE"
            return Reply(completion(f"{new} may be better.\n\n{edit}\n"))
        if found := _GEPA.search(text):
            return Reply(completion(f"```\n{self._change(found[1])[2]}\n```"))
        if is_probe(request):
            return answer_probe(request)
        ((path, shown),) = files_of(str(request["messages"][1]["content"])).items()
        old, new, _all = self._change(shown)
        asked = set(schema_of(request)["properties"]) - {"edits", "files"}
        words: dict[str, Any] = {name: [new] if name == "steps" else new for name in asked}
        edits = [{"path": path, "find": old, "replace": new}]
        return say(request, {**words, "edits": edits, "files": []})

    def _change(self, text: str) -> tuple[str, str, str]:
        with self._lock:
            self.calls = next(self._numbers)
            return changed(text, seed=self._seed, call=self.calls)


@contextmanager
def proposing(seed: int) -> Iterator[tuple[Proposer, str]]:
    """Serve, and give the proposer and its address."""
    proposer = Proposer(seed)
    with ChatServer(proposer) as server:
        yield proposer, server.url
