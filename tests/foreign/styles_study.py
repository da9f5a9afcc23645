"""What styles of servers cost: usable answers and process scores, by a revision and now.

    python tests/foreign/styles_study.py [--before REVISION]

Each server runs the script of tests/helpers/chat_server.py that takes the first remedy offered, and
sends it in its own style. A learning rate that is far too low is to be raised over twelve epochs.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "helpers")]

from chat_server import STYLES, ChatServer, act_on_first  # noqa: E402

SHOWN = ("plain", "picky", "fenced", "streamed", "parts")
RUN = (
    *("run", "numerics=portable", "lr=1e-7", "warm_up_epochs=0", "epochs=12", "channels=8"),
    *("width=8", "train_examples=200", "val_examples=100", "test_examples=100"),
    *("--policy", "openai", "--set", "model=scripted", "--set", "retries=0"),
)


def proctor(code: Path, home: Path, url: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the code in a folder."""
    env = {**os.environ, "PYTHONPATH": str(code), "PROCTOR_STATE": "off"}
    env |= {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none"}
    command = [sys.executable, "-m", "proctor", *words, "--home", str(home)]
    return subprocess.run(command, env=env, cwd=code, capture_output=True, text=True, check=False)


def measured(code: Path, home: Path, style: str) -> str:
    """Return usable answers and the process score under one server, or that no run was made."""
    with ChatServer(STYLES[style](act_on_first)) as server:
        if proctor(code, home, server.url, *RUN).returncode > 1:
            return "no run, 400"
        shown = proctor(code, home, server.url, "show", "--transcript", "--json").stdout
        judged = proctor(code, home, server.url, "judge", "--no-execute", "--json").stdout
    summary, scores = json.loads(shown)["summary"], json.loads(judged)["scores"]
    return f"{summary['usable']} of {summary['calls']}, {scores['process_score']:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--before", default="72e4f214", metavar="REVISION")
    revision = parser.parse_args().before
    packed = subprocess.run(
        ["git", "archive", revision], cwd=ROOT, capture_output=True, check=True
    ).stdout
    print(f"| server | {revision} | now |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(place / "code", filter="data")
        for style in SHOWN:
            found = [
                measured(code, place / f"{number}-{style}", style)
                for number, code in enumerate((place / "code", ROOT))
            ]
            print(f"| `{style}` | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
    main()
