"""Pages from templates, in which every value is shown as text.

Trust: what a page shows is hostile. jinja2 escapes each value; only charts, which this package
draws, are markup. The policy in a page that stands alone allows no script and no request.
I/O: reads its own templates.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup, escape

from ledger.wording import counted
from proctor.output.terminal import plain, told_score, visible

_LONG = 1e12  # from here on, numbers have an exponent
_FOLDER = Path(__file__).parent
STATIC = _FOLDER / "static"


def render(template: str, values: Mapping[str, Any]) -> str:
    """Return the page that a template of `templates/` makes of these values."""
    return _environment().get_template(template).render(values)


@cache
def stylesheet() -> str:
    """Return the stylesheet of all pages."""
    return (STATIC / "style.css").read_text(encoding="utf-8")


@cache
def page_policy() -> str:
    """Return the Content-Security-Policy of a page that stands alone: its own style only."""
    digest = hashlib.sha256(f"\n{stylesheet()}".encode()).digest()
    style = base64.b64encode(digest).decode()
    return f"default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'"


def embedded_json(value: Any) -> Markup:
    """Return JSON that can stand within a script element: nothing in it ends the element."""
    form: dict[str, Any] = {"ensure_ascii": False, "separators": (",", ":"), "sort_keys": True}
    return htmlsafe_json_dumps(plain(value), **form)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_printable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "coded": coded,
        "counted": counted,
        "indented": indented,
        "number": number,
        "object": object_of,
        "percent": percent,
        "score": told_score,
        "seen": seen,
        "spoken": spoken,
        "when": when,
    }
    return made


def _printable(value: Any) -> Any:
    """Return each value of a page as text without control characters; markup is our own."""
    return value if isinstance(value, Markup) else visible(str(value))


def seen(value: Any) -> str:
    """Return a value as text in which control characters are written out; a dash for none."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "—" if value is None else visible(str(value))


def coded(value: Any) -> Markup:
    """Return a text, in which commands stand between backticks, as markup."""
    told = str(escape(seen(value)))
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", told))  # noqa: S704 - escaped before


def number(value: Any, digits: int = 4) -> str:
    """Return a number in some significant digits; a dash for none."""
    if isinstance(value, float):
        shown = f"{value:.{digits}g}".replace("e+", "e")
        return f"{value:,.0f}" if "e" in shown and 1e-3 <= abs(value) < _LONG else shown
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return seen(value)


def percent(value: Any) -> str:
    """Return a share in percent; a dash for what is no number."""
    return f"{value:.1%}" if isinstance(value, int | float) else "—"


def object_of(text: Any) -> Any:
    """Return the object or the list in a column of JSON; an empty object where there is none."""
    try:
        value = json.loads(text)
    except (RecursionError, TypeError, ValueError):
        return {}
    return value if isinstance(value, dict | list) else {}


def indented(text: Any) -> str:
    """Return JSON for people."""
    return json.dumps(object_of(text), indent=2, sort_keys=True, ensure_ascii=False)


def spoken(value: Any) -> str:
    """Return a name of the records in words: decrease_lr becomes decrease lr."""
    return seen(value).replace("_", " ")


def when(value: Any) -> str:
    """Return a moment in UTC to the second; a dash for none."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    return "—" if value is None else f"{value:%Y-%m-%d %H:%M:%S} UTC"
