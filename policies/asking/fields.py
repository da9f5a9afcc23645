"""Which optional fields of a request a server takes, as its refusals tell.

A refusal that names a field which was sent is answered with the same request without it; where it
is the limit of tokens, with its other name.

Source: docs/reference/language-models.md, "Fields that a server refuses".
Trust: bodies are hostile; at worst a field is left out.  I/O: none.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from policies.asking.settings import TOKEN_LIMITS, ModelSettings
from policies.errors import AnswerError
from policies.extraction import read_strict

_REFUSED = (400, 422)
_TOLD = ("code", "detail", "error", "loc", "message", "msg", "param", "type")
_ADVICE: Mapping[int | None, str] = {
    None: "check --set base_url=URL, and that the server runs",
    401: "check the key in the environment variable {key_env}; --set key_env=NAME reads another",
    402: "check the account's credit",
    403: "check what the key in the environment variable {key_env} may do",
    404: "check --set model=NAME and --set base_url=URL, which mostly ends in /v1",
    413: "--set history=2 makes the prompt shorter",
    429: "check the account's quota; --set timeout=SECONDS allows longer waits",
}
_LESS = (
    "--set temperature=none leaves that field out, --set max_tokens=N changes the limit of tokens, "
    "--set token_limit=max_completion_tokens its name, and --set rung=prompt asks for no form"
)


def refused_field(
    sent: Mapping[str, Any], status: int | None, body: bytes | None, refused: Collection[str]
) -> str | None:
    """Return the optional field that a server's answer refuses, None if it names none."""
    if status not in _REFUSED or body is None:
        return None
    text = body.decode("utf-8", "replace")
    try:
        words = " ".join(_words(read_strict(text)))
    except AnswerError:
        words = text
    for name, value in sent.items():
        if not re.search(rf"(?<!\w){name}(?!\w)", words):
            continue
        other = next((each for each in TOKEN_LIMITS if name in TOKEN_LIMITS and each != name), None)
        if other is None:
            return name
        # One of both names is sent; a refusal of the number itself is no refusal of the name.
        if other not in refused and (other in words or str(value) not in words):
            return name
    return None


def advice(settings: ModelSettings, status: int | None) -> str:
    """Return what helps where a server refuses requests."""
    if status is not None and status >= 500:
        return "look into the server's log, or ask again later"
    return _ADVICE.get(status, _LESS).format(key_env=settings.key_env)


def _words(value: Any) -> Iterator[str]:
    """Yield what an error says, without the request that it may repeat."""
    if isinstance(value, str):
        yield value[:2_000]
    for part in value if isinstance(value, list) else ():
        yield from _words(part)
    for key, part in value.items() if isinstance(value, dict) else ():
        if key in _TOLD:
            yield from _words(part)
