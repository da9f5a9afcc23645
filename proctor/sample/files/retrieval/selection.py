"""Takes rows from scored documents."""


def select(scored: list[tuple[float, str]], *, cap: int) -> list[str]:
    """Return the ids of the best documents, at most `cap`."""
    ordered = sorted(scored, key=lambda row: (-row[0], row[1]))
    return [name for _, name in ordered[:cap]]
