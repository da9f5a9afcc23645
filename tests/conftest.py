"""Settings for all tests."""

import os
import signal

os.environ["PROCTOR_STATE"] = "off"  # nothing is remembered between tests, nor for the user

# A suite that was started in the background ignores Ctrl-C, and so would every process it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
