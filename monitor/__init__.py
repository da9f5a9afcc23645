"""What is watched and how: models, data, the loop, hooks, the session that appends."""
