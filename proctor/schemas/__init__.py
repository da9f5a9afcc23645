"""What each command prints with `--json`: typed shapes, and the JSON Schemas made of them."""
