"""What submitted code runs as, where the kernel allows all of it and where it does not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from submitted_code import HONEST, SPEC, judged

from judge.confinement.process import ISOLATION
from monitor.model import ResidualCNN
from monitor.weights import dump_weights

OWN = """
import os, pathlib
assert 0 not in os.getresuid() + os.getresgid() and not os.getgroups()
for _place in ("/etc/passwd", "/usr/bin/env", "/var", os.getcwd() + "/../model.py"):
    assert not os.path.exists(_place), _place  # its name, size and times cannot be asked for
"""


@pytest.mark.usefixtures("afresh")
def test_submission_is_examined_as_nobody_in_namespaces_of_its_own() -> None:
    # Where this fails, the kernel or whoever runs this one has taken something away.
    assert os.path.exists("/etc/passwd")  # noqa: PTH110 - as above
    found = judged(OWN + "assert os.getpid() == 1\n" + HONEST)
    assert (found.stage, found.problem) == ("done", None)
    assert found.isolation == ", ".join(ISOLATION)


EXAMINE = """
import sys, torch
from judge.config import JudgeConfig
from judge.confinement.sandbox import examine
model, weights = (open(f"{sys.argv[1]}/{name}", "rb").read() for name in ("model.py", "weights"))
found = examine(model, weights, torch.zeros(2, 3, 32, 32),
    config=JudgeConfig(child_memory_bytes=3 * 2**30))
print(found.stage, found.problem, found.isolation, sep="|")
"""


@pytest.mark.parametrize("kind", ["user", "pid"])
@pytest.mark.slow  # test_confined_talk.py asks the same of candidates
def test_examination_names_what_is_missing_where_there_are_no_namespaces(
    tmp_path: Path, kind: str
) -> None:
    (tmp_path / "model.py").write_text(HONEST)
    (tmp_path / "weights").write_bytes(dump_weights(ResidualCNN(SPEC, seed=8)))
    script = f'echo 0 > /proc/sys/user/max_{kind}_namespaces && exec "$@"'
    inside = ["unshare", "--user", "--map-root-user", "sh", "-c", script, "sh"]
    drop = ["setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]
    examination = [sys.executable, "-c", EXAMINE, str(tmp_path)]
    done = subprocess.run(
        [*inside, *drop, *examination], capture_output=True, text=True, check=True
    )
    assert done.stdout == "done|None|limits, hidden files, system-call filter\n"
