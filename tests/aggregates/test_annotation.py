"""What people say of a run is bounded, and read back as it was said."""

import pytest

from aggregates.annotation import MAX_CONFIG, MAX_NOTES, MAX_TAG, MAX_TAGS, Annotation
from aggregates.errors import InvariantError
from aggregates.registry import REGISTRY
from ledger.application import LedgerApplication

RUN = "00000000-0000-0000-0000-000000000001"


def test_annotation_is_read_back_as_it_was_said() -> None:
    log = LedgerApplication.in_memory(REGISTRY)
    said = Annotation.give(RUN, tags=("slow", "b"), notes="\ud800" * MAX_NOTES, config={"k": [1]})
    log.save(said)
    found: Annotation = log.repository.get(said.id)
    assert (found.run, found.tags, found.config) == (RUN, ["slow", "b"], {"k": [1]})
    assert found.notes == "?" * MAX_NOTES


@pytest.mark.parametrize("tags", [[""], ["x" * (MAX_TAG + 1)], [3], ["a"] * (MAX_TAGS + 1)])
def test_tags_are_bounded(tags: list[str]) -> None:
    with pytest.raises(InvariantError, match="at most 100 words of 1 to 100 characters"):
        Annotation.give(RUN, tags=tags, config={})
    Annotation.give(RUN, tags=["x" * MAX_TAG] * MAX_TAGS, config={})


@pytest.mark.parametrize(
    ("config", "said"),
    [({"a": object()}, "only plain values"), ({"a": "x" * MAX_CONFIG}, "the maximum is 100,000")],
)
def test_configuration_is_plain_and_bounded(config: dict[str, object], said: str) -> None:
    with pytest.raises(InvariantError, match=said):
        Annotation.give(RUN, config=config)
    Annotation.give(RUN, config={"a": "x" * (MAX_CONFIG - 100)})


@pytest.mark.parametrize("said", [{"tags": "abc"}, {"tags": 5}, {"notes": None}, {"config": 5}])
def test_wrong_types_are_refused(said: dict[str, object]) -> None:
    with pytest.raises(InvariantError, match="must be"):
        Annotation.give(RUN, **{"config": {}, **said})  # type: ignore[arg-type]
    with pytest.raises(InvariantError, match="a run's id"):
        Annotation.give("nonsense", config={})
