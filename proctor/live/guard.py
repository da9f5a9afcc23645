"""Who may see the pages: the one who has the token that `proctor serve` printed.

The token is in the fragment of the link, which browsers send nowhere. A script posts it once, and
gets a cookie in return. Browsers send cookies to every port of a host, also to a server of another
user on this machine, so the cookie is bound to a path that nobody can guess. A page of another site
cannot read an answer (no CORS), nor make the browser send the cookie (SameSite); a name that was
rebound to this machine is not one of ours (Host).

A script asks for TABLE only, with the token in the Authorization header, which a page of another
site cannot send without being allowed to (no CORS).

Not covered: a process of the same user, and root, who can read the memory of this process anyway.
I/O: none.
"""

import hmac
import re
import secrets
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proctor.live.refusals import TABLE, refusal
from proctor.output.terminal import visible

COOKIE = "proctor"
_MOST_BODY = 4_096  # bytes of the form with the token
_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {  # where a page says nothing else
    "cache-control": "no-store",
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",  # with none, browsers post the token as from "null"
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+)(:[0-9]{1,5})?")


@dataclass(frozen=True)
class Keys:
    """The secrets of one start of the server."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    place: str = field(default_factory=lambda: secrets.token_urlsafe(16), repr=False)

    @property
    def base(self) -> str:
        """The path that all pages are below."""
        return f"/{self.place}"


class Guard:
    """Lets requests pass to the pages, or answers them with an error page."""

    def __init__(self, app: ASGIApp, *, keys: Keys, hosts: Collection[str]) -> None:
        self._app = app
        self._keys = keys
        self._hosts = {host.lower().strip("[]") for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; what is no request of HTTP is not for us."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            self._check(scope)
            is_entry = scope["path"] == "/session"
            answer = await self._admit(Request(scope, receive)) if is_entry else self._app
            await answer(scope, receive, send_guarded)
        except HTTPException as error:
            answer = refusal(scope["path"], error.status_code, error.detail, error.headers)
            await answer(scope, receive, send_guarded)
        except ClientDisconnect:
            pass  # nobody waits for an answer
        except Exception as error:
            what = visible(f"{type(error).__name__}: {error}")
            print(f"error: {what}", file=sys.stderr, flush=True)  # the page was sent already

    def _check(self, scope: Scope) -> None:
        """Raise HTTPException for a request that may not pass."""
        hosts = Headers(scope=scope).getlist("host")
        found = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if found is None or found[1].lower().strip("[]") not in self._hosts:
            raise HTTPException(
                421,
                "This server does not answer to that name. Use the address that proctor serve "
                "printed, or add the name with --allow-host.",
            )
        below = f"{self._keys.base}/"
        if scope["path"].startswith(below) and not self._is_known(scope):
            raise HTTPException(401, "Open the link that proctor serve printed: it has the token.")
        if scope["path"] == TABLE and not self._has_token(scope):
            reason = "Send the token of the link in the header: Authorization: Bearer TOKEN."
            raise HTTPException(401, reason)

    def _has_token(self, scope: Scope) -> bool:
        given = Headers(scope=scope).getlist("authorization")
        expected = f"Bearer {self._keys.token}"
        return len(given) == 1 and _same(given[0], expected)

    def _is_known(self, scope: Scope) -> bool:
        given = Headers(scope=scope).getlist("cookie")
        pairs = [pair.strip().partition("=") for line in given for pair in line.split(";")]
        # Not any(): the time must not tell where the comparison ended.
        return sum(_same(each, self._keys.session) for name, _, each in pairs if name == COOKIE) > 0

    async def _admit(self, request: Request) -> Response:
        """Exchange the token for the cookie; raises HTTPException."""
        if request.method != "POST":
            raise HTTPException(405, "The token is sent with POST.", {"allow": "POST"})
        origin = request.headers.get("origin")
        if origin is not None and origin.partition("://")[2] != request.headers["host"]:
            raise HTTPException(403, "Another site sent this request.")
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > _MOST_BODY:
                raise HTTPException(413, "The form has more than a token.")
        try:
            fields = parse_qs(body.decode("ascii"), max_num_fields=4)
        except ValueError as error:
            raise HTTPException(400, "The form cannot be read.") from error
        token = fields.get("token", [""])[0].strip()
        if not _same(token, self._keys.token):
            raise HTTPException(
                401, "This is not the token of this server. Each start makes a new one."
            )
        response = RedirectResponse(f"{self._keys.base}/", status_code=303)
        response.set_cookie(
            COOKIE, self._keys.session, path=f"{self._keys.base}/", httponly=True, samesite="strict"
        )
        return response


def _same(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode(), secret.encode())
