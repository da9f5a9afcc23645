"""Removes secrets from server responses, so that no record ever contains a key.

A server is told the key and may repeat it: in an error, in a header that it echoes, in a redirect.
Known spellings are replaced. A text that spells the key in another way, by escapes within escapes,
is withheld as a whole. A server bent on smuggling it (backwards, letter by letter) cannot be
stopped here; it knows the key already.

I/O: none.
"""

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from urllib.parse import quote, quote_plus

from policies.errors import AnswerError

STRUCK = "[secret]"
SHORTEST = 8  # characters; what is shorter is a placeholder and would strike innocent words
_LAYERS = 4  # of escapes within escapes

_JSON_ESCAPE = re.compile(rb"[uU]00([0-7][0-9a-fA-F])")  # its backslashes are gone by then
_URL_ESCAPE = re.compile(rb"%([0-7][0-9a-fA-F])")
_HTML_ESCAPE = re.compile(rb"&#x0*([2-7][0-9a-fA-F]);")


class Secrets:
    """The secrets of one client."""

    def __init__(self) -> None:
        self._plain: set[bytes] = set()  # without backslashes
        self._forms: list[bytes] = []

    def add(self, secret: str | None) -> None:
        """Strike `secret` from now on."""
        if secret is None or len(secret) < SHORTEST:
            return
        raw = secret.encode()
        forms = {
            raw,
            json.dumps(secret)[1:-1].encode(),
            quote(secret).encode(),
            quote(secret, safe="").encode(),
            quote_plus(secret).encode(),
            *_in_base64(raw),
        }
        self._plain.add(raw.replace(b"\\", b""))
        # The longest first: a form may be part of another.
        self._forms = sorted({*self._forms, *forms}, key=lambda form: (-len(form), form))

    def strike(self, content: bytes) -> bytes:
        """Return `content` without secrets; raises AnswerError if it spells one in disguise."""
        for form in self._forms:
            content = content.replace(form, STRUCK.encode())
        spelled = content
        for _ in range(_LAYERS):
            before = spelled = spelled.replace(b"\\", b"")
            if any(secret in spelled for secret in self._plain):
                raise AnswerError("withheld: it spells a secret in disguise")
            for escape in (_JSON_ESCAPE, _URL_ESCAPE, _HTML_ESCAPE):
                spelled = escape.sub(lambda found: bytes([int(found[1], 16)]), spelled)
            if spelled == before:
                break
        return content

    def strike_text(self, text: str) -> str:
        """Return `text` without secrets, or what stands for it."""
        try:
            return self.strike(text.encode("utf-8", "replace")).decode()
        except AnswerError as error:
            return str(error)


def _in_base64(raw: bytes) -> Iterator[bytes]:
    """Yield how `raw` looks within base64, wherever it begins there."""
    for before in range(3):
        first, last = (8 * before + 5) // 6, 8 * (before + len(raw)) // 6
        for encode in (b64encode, urlsafe_b64encode):
            yield encode(bytes(before) + raw)[first:last]
