"""Empty tables of the tests, for a process that would take a second to make its own."""

from projections.projector import create_schema
from projections.template import template

TAKEN = """
import os
from pathlib import Path
from projections import projector, template
template._MADE[projector.create_schema] = Path(os.environ["EMPTY_TABLES"])
"""
"""What that process runs."""


def empty_tables() -> dict[str, str]:
    """Return what it needs in its environment."""
    return {"EMPTY_TABLES": str(template(create_schema))}
