"""Tools that nobody here wrote verify a handed-over model, and refuse it once a file is altered."""

import shutil
import subprocess
from pathlib import Path

import pytest
from frontdoor import TINY, call

pytestmark = pytest.mark.foreign
HERE = Path(__file__).parent
TOOLS = HERE.parents[1] / ".venv-tools"


@pytest.fixture(scope="module")
def handed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that was trained, judged and handed over; the ledger's key was rotated before."""
    place = tmp_path_factory.mktemp("handed")
    start = ["lr=3.0", "warm_up_epochs=0", "epochs=3"]
    commands: tuple[list[str | Path], ...] = (
        ["run", *TINY[:-2], "threads=1", *start],
        ["judge"],
        ["keys", "rotate"],
        ["export", "model", "latest", "--out", place / "model"],
    )
    for arguments in commands:
        done = call(arguments, home=place / "home")
        assert done.returncode == 0, done.stdout + done.stderr
    return place / "model"


def model_signing(folder: Path) -> list[str | Path]:
    python = TOOLS / "bin" / "python"
    command: list[str | Path] = [python, "-m", "model_signing", "verify", "key", folder / "model"]
    options: list[str | Path] = [
        "--signature",
        folder / "model.sig",
        "--public_key",
        folder / "publisher.pem",
    ]
    return [*command, *options]


def securesystemslib(folder: Path) -> list[str | Path]:
    return [TOOLS / "bin" / "python", HERE / "verify_claims.py", folder]


def sigstore(folder: Path) -> list[str | Path]:
    return ["node", HERE / "verify_bundles.mjs", TOOLS, folder]


# Which tool has to refuse which altered file. No tool alone sees all of the folder.
SEEN = {
    model_signing: (
        "model.sig",
        "model/README.md",
        "model/model.py",
        "model/run_config.json",
        "model/weights.safetensors",
        "publisher.pem",
    ),
    securesystemslib: (
        "README.md",
        "claims.jsonl",
        "events.tlog-proof",
        "ledger.pem",
        "ledger.vkey",
        "model/README.md",
        "model/model.py",
        "model/run_config.json",
        "model/weights.safetensors",
        "publisher.pem",
    ),
    sigstore: ("claims.jsonl", "ledger.pem", "publisher.pem"),
}


def held(command: list[str | Path]) -> bool:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    said = f"{done.stdout}{done.stderr}".lower()
    assert done.returncode == 0 or "no module" not in said, said
    assert done.returncode != 0 or "verified" in said or "succeeded" in said, said
    return done.returncode == 0


@pytest.mark.parametrize("tool", SEEN, ids=lambda tool: tool.__name__)
def test_tool_verifies_the_folder_and_refuses_each_altered_file(
    handed: Path, tmp_path: Path, tool: object
) -> None:
    assert callable(tool)
    folder = Path(shutil.copytree(handed, tmp_path / "model"))
    assert held(tool(folder))
    for name in SEEN[tool]:
        honest = (folder / name).read_bytes()
        at = len(honest) // 2
        (folder / name).write_bytes(honest[:at] + bytes([honest[at] ^ 1]) + honest[at + 1 :])
        assert not held(tool(folder)), name
        (folder / name).write_bytes(honest)
    assert held(tool(folder))


def test_every_file_of_the_folder_is_seen_by_one_of_the_tools(handed: Path) -> None:
    files = {each.relative_to(handed).as_posix() for each in handed.rglob("*") if each.is_file()}
    assert files == {name for names in SEEN.values() for name in names}


def test_model_signing_refuses_a_file_that_nobody_signed(handed: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(handed, tmp_path / "model"))
    (folder / "model" / "more.txt").write_text("more")
    assert not held(model_signing(folder))
