"""Settings for all tests."""

import os
import signal

from hypothesis import settings

os.environ["PROCTOR_STATE"] = "off"  # nothing is remembered between tests, nor for the user

# A suite that was started in the background ignores Ctrl-C, and so would every process it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no finding; and where the checkout is read-only, nothing is kept beside it.
settings.register_profile("suite", deadline=None, database=None)
settings.load_profile("suite")
