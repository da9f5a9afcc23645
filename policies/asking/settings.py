"""The settings for calls to a language model: one frozen, validated dataclass.

Trust: maps are hostile until a ModelSettings exists; every instance holds allowed values.
I/O: none; the key and OPENAI_BASE_URL are read where a client is made.
Units: seconds, tokens, US dollars per million tokens, epochs.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any
from urllib.parse import SplitResult, urlsplit

from policies.errors import PolicyError

RUNGS = ("json_schema", "json_object", "tool", "prompt")
TOKEN_LIMITS = ("max_tokens", "max_completion_tokens")
MAX_NAME = 200  # characters of a model's name
MAX_URL = 450  # characters; a path is added to it


def _number(default: float | None, low: float, high: float) -> Any:
    return field(default=default, metadata={"kind": float, "low": low, "high": high})


def _whole(default: int | None, low: int, high: int) -> Any:
    return field(default=default, metadata={"kind": int, "low": low, "high": high})


def _choice(default: str | None, choices: tuple[str, ...]) -> Any:
    return field(default=default, metadata={"choices": choices})


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Everything about the asking that is no secret."""

    model: str
    base_url: str | None = None  # None: OPENAI_BASE_URL, else the client's default
    key_env: str = "OPENAI_API_KEY"  # the variable that holds the key
    temperature: float | None = _number(0.2, 0.0, 2.0)  # None: not sent
    top_p: float | None = _number(None, 0.0, 1.0)
    seed: int | None = _whole(None, 0, 2**31 - 1)
    max_tokens: int = _whole(1024, 1, 1_000_000)
    token_limit: str = _choice("max_tokens", TOKEN_LIMITS)  # under which name it is sent
    timeout: float = _number(60.0, 0.1, 3600.0)  # of a whole call: retries and waits included
    retries: int = _whole(4, 0, 10)
    repairs: int = _whole(1, 0, 5)  # how often what was not usable is asked again
    votes: int = _whole(1, 1, 15)  # ballots on a stability rule
    cache: bool = False
    rung: str | None = _choice(None, RUNGS)  # None: the probe finds it
    price_in: float | None = _number(None, 0.0, 1e6)
    price_out: float | None = _number(None, 0.0, 1e6)
    history: int = _whole(8, 1, 100)  # epochs shown

    def __post_init__(self) -> None:
        """Refuse a value that is not allowed, by its name."""
        for item in fields(self):
            _check(item.name, getattr(self, item.name), item.metadata, item.default)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "ModelSettings":
        """Build settings; raises PolicyError naming the key and what is allowed."""
        known = {item.name for item in fields(cls)}
        if unknown := sorted(set(map(str, value)) - known):
            raise PolicyError(
                f"unknown key {', '.join(unknown)}; known keys: " + ", ".join(sorted(known))
            )
        if "model" not in value:
            raise PolicyError("model is missing: name the model to use")
        return cls(**value)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as events hold them: without user, password and query."""
        url = None if self.base_url is None else bare_url(self.base_url)
        return {**asdict(self), "base_url": url}

    def parameters(self, seed: int | None) -> dict[str, Any]:
        """Return the sampling parameters of a request, `seed` in place of the settings' own."""
        chosen = {"temperature": self.temperature, "top_p": self.top_p, "seed": seed}
        return {
            **{name: value for name, value in chosen.items() if value is not None},
            self.token_limit: self.max_tokens,
        }


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


def _check(name: str, value: Any, rule: Mapping[str, Any], default: Any) -> None:
    if value is None and default is None:
        return
    if "choices" in rule:
        if not isinstance(value, str) or value not in rule["choices"]:
            raise PolicyError(f"{name} must be one of {', '.join(rule['choices'])}, not {value!r}")
    elif "kind" in rule:
        if not (value is None and name == "temperature"):
            _check_range(name, value, rule)
    elif name == "cache":
        if not isinstance(value, bool):
            raise PolicyError(f"cache must be true or false, not {value!r}")
    elif name == "base_url":
        if not isinstance(value, str):
            raise PolicyError("base_url must be text")
        split_url(value)
    elif (
        not isinstance(value, str)
        or not 0 < len(value) <= MAX_NAME
        or not value.isprintable()
        or (name == "key_env" and not value.isidentifier())
    ):
        raise PolicyError(f"{name} must be a name of 1 to {MAX_NAME} characters")


def _check_range(name: str, value: Any, rule: Mapping[str, Any]) -> None:
    kind, low, high = rule["kind"], rule["low"], rule["high"]
    numeric = (int,) if kind is int else (int, float)
    if (
        isinstance(value, bool)
        or not isinstance(value, numeric)
        or not low <= value <= high  # true for NaN too
    ):
        what = "a whole number" if kind is int else "a number"
        bounds = f"{low:,} to {high:,}" if kind is int else f"{low:g} to {high:g}"
        raise PolicyError(f"{name} must be {what} from {bounds}, not {value!r}")
