"""Settings for all tests."""

import os

os.environ["PROCTOR_STATE"] = "off"  # nothing is remembered between tests, nor for the user
