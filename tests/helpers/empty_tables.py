"""Empty tables of the tests, for a process that would take a second to make its own."""

import json

from projections.projector import create_documented, create_schema
from projections.template import template

TAKEN = """
import json, os
from pathlib import Path
from projections import projector, template
for name, path in json.loads(os.environ["EMPTY_TABLES"]).items():
    template._MADE[getattr(projector, name)] = Path(path)
"""
"""What that process runs."""


def empty_tables() -> dict[str, str]:
    """Return what it needs in its environment."""
    made = {each.__name__: str(template(each)) for each in (create_documented, create_schema)}
    return {"EMPTY_TABLES": json.dumps(made)}
