"""Looks for changes of a line and hands them to the gauntlet, unattended."""
