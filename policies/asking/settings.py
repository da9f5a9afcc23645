"""The settings for calls to a language model: one frozen, validated dataclass.

Trust: maps are hostile until a ModelSettings exists; every instance holds allowed values.
I/O: none; the key and OPENAI_BASE_URL are read where a client is made.
Units: seconds, tokens, US dollars per million tokens, epochs.
"""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any
from urllib.parse import SplitResult, urlsplit

from msgspec import Meta

from aggregates.declared import build, check_fields, one_of
from policies.errors import PolicyError

VERSION = 2
"""Of what a request says and of how an answer is read. A run records it; without it, it is 1.

A replay does not make requests of another version again, and reads answers of version 1 as then."""
RUNGS = ("json_schema", "json_object", "tool", "prompt")
FORMS = ("full", "exported")
TOKEN_LIMITS = ("max_tokens", "max_completion_tokens")
MAX_NAME = 200  # characters of a model's name
MAX_URL = 450  # characters; a path is added to it

_ADDED = ("price_cached", "reasoning_effort")  # later on; left out where they are not given

_Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
_Price = Annotated[float, Meta(ge=0.0, le=1e6)]


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Everything about the asking that is no secret."""

    model: _Name
    base_url: str | None = None  # None: OPENAI_BASE_URL, else the client's default
    key_env: _Name = "OPENAI_API_KEY"  # the variable that holds the key
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] | None = 0.2  # None: not sent
    top_p: Annotated[float, Meta(ge=0.0, le=1.0)] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    reasoning_effort: _Name | None = None  # None: not sent
    max_tokens: Annotated[int, Meta(ge=1, le=1_000_000)] = 1024
    # The name under which max_tokens is sent.
    token_limit: Annotated[str, one_of(TOKEN_LIMITS)] = TOKEN_LIMITS[0]
    timeout: Annotated[float, Meta(ge=0.1, le=3600.0)] = 60.0  # of a call with retries and waits
    retries: Annotated[int, Meta(ge=0, le=10)] = 4
    repairs: Annotated[int, Meta(ge=0, le=5)] = 1  # how often what was not usable is asked again
    votes: Annotated[int, Meta(ge=1, le=15)] = 1  # ballots on a stability rule
    cache: bool = False
    rung: Annotated[str, one_of(RUNGS)] | None = None  # None: the probe finds it
    price_in: _Price | None = None
    price_cached: _Price | None = None  # of the prompt's cached tokens; None: as the others
    price_out: _Price | None = None
    history: Annotated[int, Meta(ge=1, le=100)] = 8  # epochs shown
    # How a situation is described: with the playbook, or as in an export of training data.
    form: Annotated[str, one_of(FORMS)] = FORMS[0]

    def __post_init__(self) -> None:
        if self.base_url is not None:
            if not isinstance(self.base_url, str):
                raise PolicyError("base_url must be text")  # without what may be secret
            split_url(self.base_url)
        check_fields(self, PolicyError)
        if not self.model.isprintable():
            raise PolicyError(f"model must be printable, not {self.model!r}")
        if not self.key_env.isidentifier():
            raise PolicyError(f"key_env must be a name of a variable, not {self.key_env!r}")

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "ModelSettings":
        """Build settings; raises PolicyError naming the key and what is allowed."""
        return build(cls, value, error=PolicyError, suggest=True)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as events hold them: without user, password and query."""
        url = None if self.base_url is None else bare_url(self.base_url)
        told = {**asdict(self), "base_url": url}
        return {key: value for key, value in told.items() if value is not None or key not in _ADDED}

    def parameters(
        self, seed: int | None, refused: Collection[str] = frozenset()
    ) -> dict[str, Any]:
        """Return the optional fields of a request, `seed` in place of the settings' own.

        A field that the server has `refused` is left out; the limit of tokens has its other name.
        """
        chosen = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "seed": seed,
            "reasoning_effort": self.reasoning_effort,
        }
        limits = [self.token_limit, *TOKEN_LIMITS]
        limit = next((name for name in limits if name not in refused), self.token_limit)
        found = {
            name: value
            for name, value in chosen.items()
            if value is not None and name not in refused
        }
        return {**found, limit: self.max_tokens}


def split_url(url: str, *, named: str = "base_url") -> SplitResult:
    """Take an endpoint apart; raises PolicyError, which never repeats what may be secret."""
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        sound = False
    if not sound or len(url) > MAX_URL or not url.isascii() or not url.isprintable() or " " in url:
        raise PolicyError(
            f"{named} must be http:// or https:// with a host, for example "
            f"http://127.0.0.1:8080/v1, in at most {MAX_URL} ASCII characters"
        )
    return parts


def bare_url(url: str) -> str:
    """Return scheme, host, port and path of an endpoint."""
    parts = split_url(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{parts.scheme}://{host}:{port}{parts.path.rstrip('/')}"
