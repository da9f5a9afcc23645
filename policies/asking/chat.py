"""The client: sends one request to a chat endpoint, with retries, and always returns a result.

The requests and their retries are those of the official `openai` client, bounded by the transport
(policies/asking/wire.py). What comes back has its secrets struck out before anybody sees it.
Redirects are not followed and the environment's proxies are not used.

Source: docs/reference/language-models.md, "What a server does".
Trust: everything that comes back is hostile; ask() raises nothing for it.
I/O: the endpoint; OPENAI_BASE_URL is read where none is configured.
Units: seconds, bytes, US dollars.
"""

import logging
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import httpx2
import openai

from policies.asking.completion import Completion, read_body
from policies.asking.secrets import Secrets
from policies.asking.settings import ModelSettings, bare_url, split_url
from policies.asking.wire import CallEnded, Transport, failure
from policies.errors import AnswerError, PolicyError

MAX_PROBLEM = 500  # characters
_PATH = "/chat/completions"
_DEFAULT_URL = "https://api.openai.com/v1"


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
        for library in ("httpcore2", "httpx2", "openai"):  # their logs repeat a server's headers
            logging.getLogger(library).setLevel(logging.WARNING)
        self._secrets = Secrets()
        self._secrets.add(key)
        for _, value in parse_qsl(parts.query):
            self._secrets.add(value)
        user = None
        if parts.username is not None:
            user = (unquote(parts.username), unquote(parts.password or ""))
            self._secrets.add(user[1])
            self._secrets.add(":".join(user))
        self._transport = Transport(self._secrets, parts.query)
        self._openai = openai.OpenAI(
            api_key=key or "none",
            base_url=bare_url(url),
            max_retries=settings.retries,
            timeout=settings.timeout,
            http_client=httpx2.Client(
                transport=self._transport, auth=user, follow_redirects=False, trust_env=False
            ),
        )

    def ask(self, request: bytes) -> Completion:
        """Send a request's body and return what came of it."""
        transport = self._transport
        transport.begin(self._settings.timeout)
        started = time.monotonic()
        status: int | None = None
        body: bytes | None = None
        outcome: str | None = None
        problem: str | None = None
        try:
            response = self._openai.post(
                _PATH,
                content=request,
                cast_to=httpx2.Response,
                options={"headers": {"Accept-Encoding": "identity"}},
            )
            status, body = response.status_code, response.content
        except openai.APIStatusError as error:
            status, body = error.status_code, error.response.content
            outcome, problem = self._status_outcome(error.response)
        except CallEnded as ended:
            outcome, problem = ended.outcome, str(ended)
        except openai.APIConnectionError as error:
            outcome, problem = failure(error.__cause__ or error)
        except (openai.OpenAIError, httpx2.HTTPError, httpx2.StreamError) as error:
            outcome, problem = "dropped", f"{type(error).__name__}: {error}"
        seconds = time.monotonic() - started
        if body is not None:
            try:
                body = self._secrets.strike(body)
            except AnswerError as error:
                body, outcome, problem = None, outcome or "unusable", f"the body is {error}"
        answer = Completion(outcome, status=status)
        if body is not None:
            answer = read_body(body, status=status, outcome=outcome)
        return replace(
            answer,
            problem=self._clean(problem or answer.problem, MAX_PROBLEM),
            retries=tuple(self._retries()),
            seconds=seconds,
            cost=_cost(self._settings, answer.usage),
        )

    def close(self) -> None:
        """Close the connections."""
        self._openai.close()

    def _status_outcome(self, response: httpx2.Response) -> tuple[str, str]:
        status = response.status_code
        # Struck out before it is cut: half a key is one that nobody would know again.
        said = self._secrets.strike_text(response.content.decode("utf-8", "replace"))
        problem = f"the server answered {status}: {' '.join(said[:2_000].split())}"
        if 300 <= status < 400:
            where = self._secrets.strike_text(f"{self._transport.location}")[:200]
            problem = f"the server redirects ({status}) to {where}: redirects are not followed"
        elif (wait := self._transport.refused_wait) is not None:
            problem = f"the server asks to wait {wait:g} s, which the timeout does not allow"
        kinds = {408: "timeout", 409: "server_error", 429: "rate_limited"}
        return kinds.get(status, "server_error" if status >= 500 else "rejected"), problem

    def _retries(self) -> Iterator[dict[str, Any]]:
        attempts = self._transport.attempts
        for failed, following in pairwise(attempts):
            yield {
                "status": failed.status,
                "error": self._clean(failed.error, 200),
                "waited": round(max(0.0, following.started - failed.ended), 3),
            }

    def _clean(self, text: str | None, most: int) -> str | None:
        return None if text is None else self._secrets.strike_text(text)[:most]


def _cost(settings: ModelSettings, usage: Mapping[str, int | None] | None) -> float | None:
    told = usage or {}
    prompt, cached = told.get("prompt_tokens"), told.get("cached_tokens") or 0
    dear = settings.price_in
    pairs = (
        (dear, None if prompt is None else max(0, prompt - cached)),
        (dear if settings.price_cached is None else settings.price_cached, cached),
        (settings.price_out, told.get("completion_tokens")),
    )
    total = 0.0
    for price, count in pairs:
        if price is None or count is None:
            return None
        total += price * count / 1e6
    return total
