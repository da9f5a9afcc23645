"""The process that forks supervisors: several at once, one that was killed, and its end."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from judge.confinement.messages import ResourceLimits
from judge.confinement.nursery import _OWN
from judge.confinement.supervised import Supervised, run
from judge.errors import ConfinementError

LIMITS = ResourceLimits(seconds=30, memory_bytes=2**30, output_bytes=2**16)


def echoed(folder: Path, words: str) -> bytes:
    (folder / "tree").mkdir(parents=True)
    (folder / "scratch").mkdir()
    found = run(
        ["/bin/echo", words], tree=folder / "tree", scratch=folder / "scratch", limits=LIMITS
    )
    return found.output


def test_commands_of_several_threads_get_their_own_pipes(tmp_path: Path) -> None:
    names = [str(number) for number in range(12)]
    with ThreadPoolExecutor(6) as threads:
        found = [*threads.map(lambda name: echoed(tmp_path / name, name), names)]
    assert found == [f"{name}\n".encode() for name in names]


def test_a_killed_nursery_ends_its_commands_and_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "scratch").mkdir()
    tree, scratch = tmp_path / "tree", tmp_path / "scratch"
    with Supervised(["/bin/sleep", "25"], tree=tree, scratch=scratch, limits=LIMITS) as running:
        assert _OWN.process is not None
        _OWN.process.kill()
        begun = time.monotonic()
        with pytest.raises(ConfinementError, match="was killed"):
            running.end()
        assert time.monotonic() - begun < 20
    assert echoed(tmp_path / "again", "here") == b"here\n"


def test_it_ends_with_the_process_that_began_it(tmp_path: Path) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path
from test_nursery import _OWN, echoed
echoed(Path({str(tmp_path)!r}), "here")
print(_OWN.process.pid)
"""
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert told.stderr == ""
    assert not Path(f"/proc/{told.stdout.strip()}").exists()
