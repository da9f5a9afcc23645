"""The client: sends one request to a chat endpoint, with retries, and always returns a result.

What comes back has its secrets struck out before anybody sees it. Redirects are not followed.

Source: docs/reference/language-models.md, "What a server does".
Trust: everything that comes back is hostile; ask() raises nothing for it.
I/O: the endpoint; OPENAI_BASE_URL, OPENAI_ORG_ID, OPENAI_PROJECT_ID and OPENAI_CUSTOM_HEADERS.
Units: seconds, bytes, US dollars.
"""

import logging
import os
import random
import time
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from policies.asking.completion import Completion, read_body
from policies.asking.secrets import Secrets
from policies.asking.settings import ModelSettings, bare_url, split_url
from policies.asking.wire import Exchange, Wire
from policies.errors import AnswerError, PolicyError

MAX_PROBLEM = 500  # characters
_PATH = "/chat/completions"
_DEFAULT_URL = "https://api.openai.com/v1"
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 8.0  # of our own, less up to a quarter by chance
_LONGEST_ASKED = 120.0  # that a server may ask for


class ChatClient:
    """Asks one endpoint. Not for several threads at a time."""

    def __init__(self, settings: ModelSettings, key: str | None) -> None:
        if key is not None and not (key.isascii() and key.isprintable() and key == key.strip()):
            raise PolicyError(
                f"the key in the environment variable {settings.key_env} is not a valid "
                "header value; remove white space"
            )
        url = settings.base_url or os.environ.get("OPENAI_BASE_URL") or _DEFAULT_URL
        parts = split_url(url, named="base_url" if settings.base_url else "OPENAI_BASE_URL")
        if not key and parts.hostname == urlsplit(_DEFAULT_URL).hostname:
            raise PolicyError(f"API key not found: set the environment variable {settings.key_env}")
        self.endpoint = bare_url(url) + _PATH
        self._settings = settings
        logging.getLogger("httpcore2").setLevel(logging.WARNING)  # it repeats a server's headers
        own = {"authorization": f"Bearer {key or 'none'}", **_environment_headers()}
        secrets = [key, *(value for _, value in parse_qsl(parts.query))]
        if parts.username is not None:
            password = unquote(parts.password or "")
            pair = f"{unquote(parts.username)}:{password}"
            secrets += [password, pair]
            own["authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        self._secrets = Secrets()
        for secret in (*secrets, *own.values(), *(each.partition(" ")[2] for each in own.values())):
            self._secrets.add(secret)
        headers = {
            "accept": "application/json",
            "accept-encoding": "identity",
            "content-type": "application/json",
            "user-agent": "proctor",
        }
        query = f"?{parts.query}" if parts.query else ""
        self._wire = Wire(self.endpoint + query, {**headers, **own})

    def ask(self, request: bytes) -> Completion:
        """Send a request's body and return what came of it."""
        wire, started = self._wire, time.monotonic()
        wire.begin(self._settings.timeout)
        attempts = [wire.send(request)]
        while (wait := self._wait(attempts)) is not None:
            time.sleep(wait)
            attempts.append(wire.send(request))
        last = attempts[-1]
        answer = Completion(last.failed, last.error) if last.failed else self._answer(last)
        return replace(
            answer,
            problem=self._clean(answer.problem, MAX_PROBLEM),
            retries=tuple(self._retries(attempts)),
            seconds=time.monotonic() - started,
            cost=_cost(self._settings, answer.usage),
        )

    def close(self) -> None:
        """Close the connections."""
        self._wire.close()

    def _wait(self, attempts: Sequence[Exchange]) -> float | None:
        """Return the seconds to wait before another attempt; None: none may follow."""
        last, wait = attempts[-1], attempts[-1].asked_wait
        gone = last.failed == "unreachable" and self._wire.reached  # or nobody was ever there
        again = last.busy or gone or last.failed == "dropped"
        if not again or len(attempts) > self._settings.retries:
            return None
        if wait is not None:
            return wait if self._has_time(wait) else None
        wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** (len(attempts) - 1))
        return wait * random.uniform(0.75, 1.0) if self._has_time(wait) else None  # noqa: S311

    def _has_time(self, wait: float) -> bool:
        return wait < min(self._wire.left(), _LONGEST_ASKED)

    def _answer(self, last: Exchange) -> Completion:
        """Return what a server has answered, secrets struck out."""
        outcome, problem = self._status_outcome(last)
        try:
            body = self._secrets.strike(last.body)
        except AnswerError as error:
            return Completion(outcome or "unusable", f"the body is {error}", last.status)
        answer = read_body(body, status=last.status, outcome=outcome)
        return replace(answer, problem=problem or answer.problem)

    def _status_outcome(self, last: Exchange) -> tuple[str | None, str | None]:
        status, wait = last.status or 0, last.asked_wait
        if 200 <= status < 300:
            return None, None
        # Struck out before it is cut: half a key is one that nobody would know again.
        said = self._secrets.strike_text(last.body.decode("utf-8", "replace"))
        problem = f"the server answered {status}: {' '.join(said[:2_000].split())}"
        if 300 <= status < 400:
            where = self._secrets.strike_text(f"{last.headers.get('location')}")[:200]
            problem = f"the server redirects ({status}) to {where}: redirects are not followed"
        elif last.busy and wait is not None and not self._has_time(wait):
            problem = f"the server asks to wait {wait:g} s, which the timeout does not allow"
        kinds = {408: "timeout", 409: "server_error", 429: "rate_limited"}
        return kinds.get(status, "server_error" if status >= 500 else "rejected"), problem

    def _retries(self, attempts: Sequence[Exchange]) -> Iterator[dict[str, Any]]:
        for failed, following in pairwise(attempts):
            yield {
                "status": failed.status,
                "error": self._clean(failed.error, 200),
                "waited": round(max(0.0, following.started - failed.ended), 3),
            }

    def _clean(self, text: str | None, most: int) -> str | None:
        return None if text is None else self._secrets.strike_text(text)[:most]


def _environment_headers() -> dict[str, str]:
    """Return the headers that OpenAI's own client takes from the environment."""
    lines = [
        f"openai-organization: {os.environ.get('OPENAI_ORG_ID', '')}",
        f"openai-project: {os.environ.get('OPENAI_PROJECT_ID', '')}",
        *os.environ.get("OPENAI_CUSTOM_HEADERS", "").splitlines(),
    ]
    pairs = (line.partition(":") for line in lines)
    return {name.strip().lower(): value.strip() for name, _, value in pairs if value.strip()}


def _cost(settings: ModelSettings, usage: Mapping[str, int | None] | None) -> float | None:
    pairs = (
        (settings.price_in, (usage or {}).get("prompt_tokens")),
        (settings.price_out, (usage or {}).get("completion_tokens")),
    )
    total = 0.0
    for price, count in pairs:
        if price is None or count is None:
            return None
        total += price * count / 1e6
    return total
