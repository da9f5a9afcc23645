"""The search for the checkpoint that made a line worse."""
