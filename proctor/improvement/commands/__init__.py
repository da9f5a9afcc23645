"""The commands of the pack: `proctor line` and `proctor tune`."""
