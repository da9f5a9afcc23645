"""Starts and stops servers that nobody here wrote, on loopback.

Each is started as its documentation says, over the random models of foreign/random_models.py, in
the environment that foreign/install.sh builds.
"""

import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
FOREIGN = Path(__file__).parents[2] / ".venv-foreign"
BIN = FOREIGN / "bin"
LLAMA = FOREIGN / "llama" / "bin"
MODELS = FOREIGN / "models"  # every server is started there

KEY = "sk-foreign-canary-0d1f"
STARTING = 120  # seconds that a server has to come up in
STOPPING = 10  # seconds that it has to go down in

OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OMP_NUM_THREADS": "1",
}


@dataclass(frozen=True)
class Server:
    """How one server is started."""

    name: str
    command: tuple[str, ...]  # "{port}" stands for the port
    ready: str  # this path answers 200 when it is up
    model: str  # what its clients ask for
    environment: dict[str, str] = field(default_factory=dict)


LLAMA_SERVER = Server(
    name="llama-server",
    command=(
        *(str(LLAMA / "llama-server"), "--model", "random.gguf", "--alias", "random"),
        *("--host", "127.0.0.1", "--port", "{port}", "--api-key", KEY, "--offline"),
        *("--ctx-size", "32768", "--parallel", "1", "--threads", "1"),
    ),
    ready="/health",
    model="random",
)
LLAMA_CPP_PYTHON = Server(
    name="llama_cpp.server",
    command=(
        *(str(BIN / "python"), "-m", "llama_cpp.server", "--model", "random.gguf"),
        *("--model_alias", "random", "--host", "127.0.0.1", "--port", "{port}"),
        *("--api_key", KEY, "--n_ctx", "32768", "--n_threads", "1", "--n_threads_batch", "1"),
    ),
    ready="/docs",  # the model list wants the key
    model="random",
    environment={"LLAMA_CPP_LIB_PATH": str(LLAMA)},
)
TRANSFORMERS = Server(
    name="transformers serve",
    command=(str(BIN / "transformers"), "serve", "--host", "127.0.0.1", "--port", "{port}"),
    ready="/health",
    model="random",
)
LITELLM = Server(
    name="litellm",
    command=(
        *(str(BIN / "litellm"), "--config", str(HERE / "litellm.yaml")),
        *("--host", "127.0.0.1", "--port", "{port}"),
    ),
    ready="/health/liveliness",
    model="canned",
    environment={"LITELLM_MASTER_KEY": KEY},
)


@contextmanager
def serving(server: Server, log: Path) -> Iterator[str]:
    """Yield the base URL of the running server; its own words are in `log`."""
    port = _free_port()
    with log.open("wb") as words:
        process = subprocess.Popen(
            [part.format(port=port) for part in server.command],
            stdout=words,
            stderr=subprocess.STDOUT,
            cwd=MODELS,
            env={**os.environ, **OFFLINE, **server.environment},
        )
        try:
            _wait_until_ready(process, f"http://127.0.0.1:{port}{server.ready}", log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
            try:
                process.wait(STOPPING)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + STARTING
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise AssertionError(f"it went down while starting: {_last_words(log)}")
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.3)
    raise AssertionError(f"{url} did not answer in {STARTING} seconds: {_last_words(log)}")


def _last_words(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]
