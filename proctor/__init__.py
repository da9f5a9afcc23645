"""The front door: command line, wiring, reports. Imports every other package; imported by none."""

__version__ = "0.1.0"
