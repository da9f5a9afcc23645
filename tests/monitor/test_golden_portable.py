"""Portable runs come out the same, to the last bit, on every x86-64 CPU.

A change of the training, the diagnostics or the rules changes the digests: then `python
tests/helpers/golden_portable.py` prints the new ones, and the change goes into CHANGELOG.md.
"""

import shutil

import pytest
from golden_portable import refusal
from portable import in_portable_process

from monitor.dispatch import PORTABLE_VARIABLES

GOLDEN = {
    "learning rate": "e0e2b5ca304b86660efdd82425e82fc06da8aae02e2c98f54f2a5e605e0b988b",
    "batch size and gelu": "e7263da0f60495b65017aa7fcdbfd39b96f2fbc9877b58f287a6551082401313",
    "prelu and momentum": "a2b3fd2bb374c3c0aab9c7b2344a644ab615f8c52f6e26f497779fcb7a5f5532",
    "going back": "f0d08af6c22b9ac837afd7bd663db16d5d5d9742ffd0e3413d7a6a822b143cd7",
}
_EMULATOR = "qemu-x86_64"


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.sampled(3)
def test_golden_portable_digests_are_the_same_on_this_cpu(name: str) -> None:
    assert in_portable_process("golden_portable", "digests", name) == {name: GOLDEN[name]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cpu", "kernels"),
    [("EPYC", "Zen"), ("Nehalem", "Nehalem")],  # the second has neither AVX nor FMA
)
def test_golden_portable_digests_are_the_same_on_an_emulated_cpu(cpu: str, kernels: str) -> None:
    if shutil.which(_EMULATOR) is None:
        pytest.skip(f"{_EMULATOR} is not installed: apt-get install qemu-user")
    # numpy's OpenBLAS asks an emulated CPU in vain and may start kernels that it lacks
    emulator = (_EMULATOR, "-E", f"OPENBLAS_CORETYPE={kernels}", "-cpu", cpu)
    assert in_portable_process("golden_portable", "digests", emulator=emulator) == GOLDEN


def test_portable_training_is_rejected_in_a_process_that_was_not_started_for_it() -> None:
    words = refusal()
    assert "needs a process that was started for it" in words
    assert all(f"{name}={value}" in words for name, value in PORTABLE_VARIABLES.items())
