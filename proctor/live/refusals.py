"""What is answered to a request that cannot be answered: one page, or JSON for scripts.

I/O: writes what failed to standard error.
"""

import sys
from collections.abc import Mapping
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from proctor.output.terminal import visible
from proctor.pages.rendering import render
from projections.errors import BusyError, CostlyError

TABLE = "/sql.json"  # for scripts
_ADVICE = {
    401: "The link has a secret token. Each start of proctor serve makes a new one.",
    404: "Addresses change with each start of proctor serve. Open the link that it printed.",
    503: "Load this page again in a moment.",
}


def refused(request: Request, error: Exception) -> Response:
    """Answer a request that cannot be answered."""
    status, reason, headers = 500, str(error), None
    if isinstance(error, HTTPException):
        status, reason, headers = error.status_code, error.detail, error.headers
    elif isinstance(error, BusyError):
        status = 503
    elif isinstance(error, CostlyError):
        status = 413
    else:
        print(f"error: {visible(str(error))}", file=sys.stderr, flush=True)
    return refusal(request.url.path, status, reason, headers)


def failed(request: Request, error: Exception) -> Response:  # noqa: ARG001 - Guard tells it
    """Answer a request after an error that nobody has foreseen."""
    return refusal(request.url.path, 500, "The server failed at this page.")


def refusal(
    path: str, status: int, reason: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Say what is wrong with a request: a page, or JSON for scripts."""
    if path == TABLE:
        return JSONResponse({"error": visible(reason)}, status, headers)
    title = HTTPStatus(status).phrase
    page = render(
        "live/error.html",
        {
            "title": f"{status} {title}",
            "reason": "" if reason == title else reason,
            "advice": _ADVICE.get(status, ""),
        },
    )
    return HTMLResponse(page, status, headers)
