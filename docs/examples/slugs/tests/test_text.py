import random

from slugs.text import slugify


def test_words_are_joined():
    assert slugify("Hello, World!") == "hello-world"


def test_that_is_flaky():
    assert random.random() > 0.02  # noqa: S311 - it fails now and then
