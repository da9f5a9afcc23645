"""A program that proposes, behind an OpenAI-compatible address: it changes one number at a time.

It knows the syntax of what it is shown, and nothing of what is good: it takes the numbers that
stand at the beginning of lines of the shown files in a shuffled order, and gives each another
value. What it proposed in a round follows from the round and the seed alone.

    python docs/studies/evolution/mutator.py --seed 0

prints its address on the first line.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

_ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(_ROOT / "tests/helpers")]
from chat_server import ChatServer, Reply, answer_probe, is_probe, say, schema_of
from evolving_model import files_of

_NAMED = re.compile(r"(?m)^([A-Z_]+|[a-z_]+)(?:: [^=]+)? = (\d+(?:\.\d+)?)\b")
_LISTED = re.compile(r'"(\w+)": (\d+)\b')
FACTORS = (0.1, 0.3, 3.0, 10.0)
STEPS = (1, 2, -1)
Place = tuple[str, str, int, int, str]
"""Path, name, where the number stands, where it ends, and how it is written."""


def places(files: Mapping[str, str]) -> Iterator[Place]:
    """Give the numbers that may be changed."""
    for path, text in sorted(files.items()):
        for found in _NAMED.finditer(text):
            if not found[1].endswith("_bytes"):
                yield path, found[1], found.start(2), found.end(2), found[2]
        for line in re.finditer(r"(?m)^[A-Z_]+: Mapping\[str, int\] = \{(.*)\}$", text):
            for found in _LISTED.finditer(line[1]):
                at = line.start(1)
                yield path, found[1], at + found.start(2), at + found.end(2), found[2]


def change(files: Mapping[str, str], *, number: int, seed: int) -> tuple[str, str, str] | None:
    """Return the path, the new text and what was done in a round; None where nothing is left."""
    known = list(places(files))
    if not known:
        return None
    lap, turn = divmod(number - 1, len(known))
    order = Random(f"{seed} {lap}")
    order.shuffle(known)
    path, name, start, end, value = known[turn]
    draw = Random(f"{seed} {number}")
    text = files[path]
    if "." in value:
        new = f"{float(value) * draw.choice(FACTORS):.3g}"
        new = new if "." in new or "e" in new else f"{new}.0"
    else:
        new = str(max(0, int(value) + draw.choice(STEPS)))
        new = new if new != value else str(int(value) + 1)
    return path, text[:start] + new + text[end:], f"{name} {value} -> {new}"


def behave(seed: int) -> Any:
    """Return what the server does with a request."""

    def answer(request: dict[str, Any], _: Mapping[str, str]) -> Reply:
        if is_probe(request):
            return answer_probe(request)
        text = request["messages"][1]["content"]
        number = int(re.findall(r"^# Round (\d+)$", text, re.MULTILINE)[0])
        found = change(files_of(text), number=number, seed=seed)
        asked = set(schema_of(request)["properties"]) - {"edits", "files"}
        why = "nothing can be changed" if found is None else found[2]
        words = {name: [why] if name == "steps" else why for name in asked}
        files = [] if found is None else [{"path": found[0], "content": found[1]}]
        return say(request, {**words, "edits": [], "files": files})

    return answer


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser(description="Propose changes of single numbers.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    server = ChatServer(behave(arguments.seed), port=arguments.port)
    sys.stdout.write(f"{server.url}\n")
    sys.stdout.flush()
    with suppress(KeyboardInterrupt):
        server.serve()


if __name__ == "__main__":
    main()
