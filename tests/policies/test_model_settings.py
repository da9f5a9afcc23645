"""Settings of a model: strict about names and ranges, and silent about secrets."""

import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from policies.asking.settings import ModelSettings, bare_url
from policies.errors import PolicyError


def test_settings_come_back_from_their_plain_values() -> None:
    settings = ModelSettings(model="m", base_url="https://models.example/v1/", votes=3, seed=7)
    again = ModelSettings.from_dict(settings.to_dict())
    assert again.to_dict() == settings.to_dict()
    assert settings.to_dict()["base_url"] == "https://models.example:443/v1"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": ""}, "model must be text of 1 to 200 characters"),
        ({"model": None}, "model must be text"),
        ({"model": "line\nbreak"}, "model must be printable"),
        ({"model": "x" * 201}, "model must be text"),
        ({"key_env": "NOT A NAME"}, "key_env must be a name"),
        ({"temperature": 2.5}, "temperature must be a number from 0 to 2"),
        ({"temperature": "0"}, "temperature must be"),
        ({"temperature": float("nan")}, "temperature must be"),
        ({"max_tokens": 0}, "max_tokens must be a whole number"),
        ({"max_tokens": None}, "max_tokens must be"),
        ({"max_tokens": True}, "max_tokens must be"),
        ({"timeout": 0}, "timeout must be"),
        ({"retries": 11}, "retries must be"),
        ({"votes": 2.0}, "votes must be"),
        ({"cache": "yes"}, "cache must be true or false"),
        ({"rung": "grammar"}, "rung must be one of"),
        ({"token_limit": None}, "token_limit must be one of"),
        ({"seed": -1}, "seed must be"),
        ({"price_in": -0.1}, "price_in must be"),
        ({"history": 0}, "history must be"),
        ({"modle": "m"}, "unknown key modle"),
    ],
)
def test_setting_that_is_not_allowed_is_rejected_by_its_name(changes: Any, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        ModelSettings.from_dict({"model": "m", **changes})


def test_page_lists_every_setting_with_its_default() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "language-models.md"
    table = page.read_text(encoding="utf-8").partition("## The ladder")[0]
    shown = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", table, re.M))
    expected = {
        item.name: "required"
        if item.default is MISSING
        else "none"
        if item.default is None
        else f"`{str(item.default).lower() if item.default is False else item.default}`"
        for item in fields(ModelSettings)
    }
    assert shown == expected


def test_settings_without_a_model_are_rejected() -> None:
    with pytest.raises(PolicyError, match="model is missing"):
        ModelSettings.from_dict({})


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "127.0.0.1:8080",
        "http://",
        "http://[::1",
        "http://host:99999/",
        "http://host:0/",
        "http://host/a b",
        "http://höst/",
        "http://user:pass-1234@host:port/",
        "http://host/" + "x" * 500,
    ],
)
def test_address_that_is_no_endpoint_is_rejected_without_being_shown(url: str) -> None:
    with pytest.raises(PolicyError, match="base_url must be http") as caught:
        ModelSettings(model="m", base_url=url)
    assert "1234" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "bare"),
    [
        ("http://host", "http://host:80"),
        ("http://user:pass@host:8080/v1/?a=b#c", "http://host:8080/v1"),
        ("https://[::1]/v1", "https://[::1]:443/v1"),
    ],
)
def test_bare_address_has_neither_user_nor_query(url: str, bare: str) -> None:
    assert bare_url(url) == bare
