import pytest

from retrieval.component import choose, read_settings
from retrieval.words import words_of

DOCUMENTS = [
    {"id": "a", "title": "Rivers", "text": "A river carries water to the sea."},
    {"id": "b", "title": "Bridges", "text": "A bridge crosses a river."},
    {"id": "c", "title": "Bread", "text": "Flour, water, salt."},
]


def test_no_more_rows_than_the_cap():
    assert len(choose(DOCUMENTS, "river water", cap=2)) == 2


def test_rows_are_documents_and_none_comes_twice():
    rows = choose(DOCUMENTS, "river", cap=3)
    assert set(rows) <= {"a", "b", "c"}
    assert len(set(rows)) == len(rows)


def test_what_answers_the_query_is_found_where_the_cap_leaves_room():
    assert {"a", "b"} <= set(choose(DOCUMENTS, "river", cap=3))


def test_words_are_small_letters():
    assert words_of("Sea, sea; SEA-7") == ["sea", "sea", "sea", "7"]


def test_settings_out_of_bounds_are_refused():
    with pytest.raises(ValueError, match="title_weight"):
        read_settings("length_penalty = 0.0\ntitle_weight = 11.0")
