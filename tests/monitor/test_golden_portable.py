"""Portable runs come out the same, to the last bit, on every x86-64 CPU.

A change of the training, the diagnostics or the rules changes the digests: then `python
tests/golden_portable.py` prints the new ones, and the change goes into CHANGELOG.md.
"""

import shutil

import pytest
from portable import in_portable_process, in_process_with

from monitor.dispatch import PORTABLE_VARIABLES

GOLDEN = {
    "learning rate": "4f989c1602b93e38fea6dec0c6102e360f445caefffbb9632b5f7ca75280745b",
    "batch size and gelu": "21dc5a3ac41f7f78d78a1b69b121ff8c77ce30e4071c858675aac58b47cba5d2",
    "prelu and momentum": "8bf422192c17f315f0bf2e1ec4256c7d74dbe175ab70a0a0f04cdadf1edbeced",
}
_EMULATOR = "qemu-x86_64"


def test_golden_portable_digests_are_the_same_on_this_cpu() -> None:
    assert in_portable_process("golden_portable", "digests") == GOLDEN


@pytest.mark.slow
@pytest.mark.parametrize("cpu", ["EPYC", "Nehalem"])  # the second has neither AVX nor FMA
def test_golden_portable_digests_are_the_same_on_an_emulated_cpu(cpu: str) -> None:
    if shutil.which(_EMULATOR) is None:
        pytest.skip(f"{_EMULATOR} is not installed: apt-get install qemu-user")
    emulator = (_EMULATOR, "-cpu", cpu)
    assert in_portable_process("golden_portable", "digests", emulator=emulator) == GOLDEN


def test_portable_training_is_rejected_in_a_process_that_was_not_started_for_it() -> None:
    words = in_process_with({}, "golden_portable", "refusal")
    assert "needs a process that was started for it" in words
    assert all(f"{name}={value}" in words for name, value in PORTABLE_VARIABLES.items())
