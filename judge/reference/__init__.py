"""Makes this repository's own reference tasks from seeds, and plants defects to test them."""
