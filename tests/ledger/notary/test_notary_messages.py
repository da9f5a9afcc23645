"""The headers of requests and answers, byte for byte as docs/reference/notary.md has them."""

import pytest

from ledger.errors import MalformedError
from ledger.notary.messages import (
    AddLine,
    Done,
    GetBlob,
    Greeting,
    Heads,
    HeadsPage,
    Insert,
    Message,
    Newest,
    NewestFound,
    Notifications,
    Page,
    Piece,
    PutBlob,
    Request,
    Stream,
    pack_frame,
    pack_message,
    parse_frame,
    parse_request,
    read_message,
)

REQUESTS = {
    Insert(): {"op": "insert"},
    AddLine(size=1, line="x"): {"op": "add_line", "size": 1, "line": "x"},
    Stream(stream=bytes(16), gt=None, lte=3, desc=True, limit=None): {
        "op": "stream",
        "stream": bytes(16),
        "gt": None,
        "lte": 3,
        "desc": True,
        "limit": None,
    },
    Newest(): {"op": "newest"},
    Heads(after=0, upto=5): {"op": "heads", "after": 0, "upto": 5},
    PutBlob(sha256="0", size=9, offset=0): {
        "op": "put_blob",
        "sha256": "0",
        "size": 9,
        "offset": 0,
    },
    GetBlob(sha256="0", offset=2): {"op": "get_blob", "sha256": "0", "offset": 2},
}
ANSWERS: dict[Message, dict[str, object]] = {
    Greeting(protocol=1, origin="o", vkey="v", uid=3, append=("run.*",), roles=()): {
        "protocol": 1,
        "origin": "o",
        "vkey": "v",
        "uid": 3,
        "append": ["run.*"],
        "roles": [],
    },
    Done(): {},
    Page(more=True): {"more": True},
    HeadsPage(more=False, known=3): {"more": False, "known": 3},
    NewestFound(last=None, head="note"): {"last": None, "head": "note"},
    Piece(size=4): {"size": 4},
}


@pytest.mark.parametrize(("request_", "header"), REQUESTS.items(), ids=str)
def test_request_is_packed_and_parsed(request_: Request, header: dict[str, object]) -> None:
    assert pack_message(request_) == pack_frame(header)
    assert parse_request(pack_frame(header)[4:]) == (request_, b"")


def test_request_for_notifications_is_packed_and_parsed() -> None:
    header = {"op": "notifications", "first": 0, "last": 1, "limit": 5, "topics": ["run.x"]}
    asked = Notifications(first=0, last=1, limit=5, topics=["run.x"])
    assert pack_message(asked) == pack_frame(header)
    assert parse_request(pack_frame(header)[4:]) == (asked, b"")


@pytest.mark.parametrize("limit", [0, -1])
def test_limit_that_sqlite_takes_for_none_is_rejected(limit: int) -> None:
    stream = Stream(stream=bytes(16), gt=None, lte=None, desc=False, limit=limit)
    notifications = Notifications(first=0, last=1, limit=limit, topics=[])
    for request in (stream, notifications):
        data = pack_message(request)[4:]
        if limit:
            with pytest.raises(MalformedError, match=r"`int` >= 0 - at `\$.limit`"):
                parse_request(data)
        else:
            assert parse_request(data) == (request, b"")


@pytest.mark.parametrize(("answer", "header"), ANSWERS.items(), ids=str)
def test_answer_is_packed_and_read(answer: Message, header: dict[str, object]) -> None:
    data = pack_message(answer, b"payload")
    assert data == pack_frame(header, b"payload")
    assert read_message(parse_frame(data[4:]).header, type(answer)) == answer
