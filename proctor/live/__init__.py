"""The live view: a local web server that shows the runs of a home while they train."""
