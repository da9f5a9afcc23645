"""What a proposal changes: the git repository, diffs, the manifest of tiers, the lint."""
