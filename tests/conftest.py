"""Settings for all tests."""

import os
import signal

import pytest
from hypothesis import settings

os.environ["PROCTOR_STATE"] = "off"  # nothing is remembered between tests, nor for the user

# A suite that was started in the background ignores Ctrl-C, and so would every process it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no finding; and where the checkout is read-only, nothing is kept beside it.
settings.register_profile("suite", deadline=None, database=None)
settings.load_profile("suite")

# What takes longest, first: whole files go to one process, and what comes last leaves the other
# without work. A name that is missing here costs time only.
_DEAR = (
    "test_snippets.py",
    "test_gate_attacks.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the dear files first, and leave all others in their order."""
    place = {name: at for at, name in enumerate(_DEAR)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))
