"""The front door: command line, wiring, reports. Imports every other package; imported by none."""
