"""The pages that are written from the code: `python docs/studies pages`."""

from collections.abc import Callable, Mapping

from studies.pages.cli import cli_page
from studies.pages.events import events_page, events_tables
from studies.pages.json import json_page
from studies.pages.python import python_page
from studies.pages.tables import tables_page

__all__ = ["PAGES"]

PAGES: Mapping[str, Callable[[], str]] = {  # path below docs -> its text
    "../projections/events.sql": events_tables,  # first: the other pages follow from it
    "reference/events.md": events_page,
    "reference/cli.md": cli_page,
    "reference/json.md": json_page,
    "reference/python.md": python_page,
    "reference/tables.md": tables_page,
}
