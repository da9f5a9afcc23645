"""The client against a real server that misbehaves in every way it can; nothing leaks, ever."""

import base64
import gzip
import json
import logging
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from chat_server import ChatServer, Reply, completion, tool_call
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from policies.asking.chat import ChatClient
from policies.asking.completion import Completion
from policies.asking.settings import ModelSettings
from policies.asking.wire import MAX_BODY
from policies.errors import PolicyError

KEY = "sk-canary/0+1=\\x-7f3a99"
GOOD = Reply(completion("good"))
REQUEST = json.dumps({"model": "m", "messages": []}).encode()


def ask(*replies: Reply, key: str | None = KEY, **changes: Any) -> tuple[Completion, ChatServer]:
    """Ask a server that gives these replies in turn, the last one for ever."""
    waiting = list(replies)

    def behave(*_: Any) -> Reply:
        return waiting.pop(0) if len(waiting) > 1 else waiting[0]

    with ChatServer(behave) as server:
        settings = ModelSettings(
            **{"model": "m", "base_url": server.url, "timeout": 5.0, "retries": 1, **changes}
        )
        client = ChatClient(settings, key)
        answer = client.ask(REQUEST)
        client.close()
    return answer, server


def at_once(status: int, **headers: str) -> Reply:
    """An error that may be followed by another try after ten milliseconds."""
    return Reply({"error": {"message": "busy"}}, status, {"retry-after-ms": "10", **headers})


def test_kinds_of_tokens_are_read_and_priced_apart() -> None:
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 60},
        "completion_tokens_details": {"reasoning_tokens": 15},
    }
    reply = Reply({**completion("good"), "usage": usage})
    for cached, cost in ((1.0, 40 * 10 + 60 + 2000), (None, 100 * 10 + 2000)):
        answer, _ = ask(reply, price_in=10.0, price_cached=cached, price_out=100.0)
        assert answer.usage is not None
        assert (answer.usage["cached_tokens"], answer.usage["reasoning_tokens"]) == (60, 15)
        assert answer.cost == pytest.approx(cost / 1e6)


def test_answer_comes_with_message_usage_and_cost() -> None:
    answer, server = ask(GOOD, price_in=1.0, price_out=10.0)
    assert (answer.outcome, answer.status, answer.retries) == (None, 200, ())
    assert answer.message["content"] == "good"
    assert answer.usage == {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    assert answer.cost == pytest.approx(100e-6 + 200e-6)
    assert json.loads(answer.body or b"") == GOOD.body
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


def test_cost_is_unknown_where_a_price_or_the_tokens_are() -> None:
    assert ask(GOOD, price_in=1.0)[0].cost is None
    nameless = {**completion("good"), "usage": {"prompt_tokens": -1, "total_tokens": True}}
    answer, _ = ask(Reply(nameless), price_in=1.0, price_out=1.0)
    assert answer.cost is None
    assert answer.usage == dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"))


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
def test_busy_server_is_asked_again_and_each_status_is_kept(status: int) -> None:
    answer, server = ask(at_once(status), GOOD)
    assert (answer.outcome, answer.status, len(server.requests)) == (None, 200, 2)
    (retry,) = answer.retries
    assert (retry["status"], retry["error"]) == (status, None)
    assert retry["waited"] >= 0.01


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (408, "timeout"),
        (409, "server_error"),
        (429, "rate_limited"),
        (500, "server_error"),
        (503, "server_error"),
    ],
)
def test_server_that_stays_busy_is_given_up_after_the_retries(status: int, outcome: str) -> None:
    answer, server = ask(at_once(status), retries=2)
    assert (answer.outcome, answer.status) == (outcome, status)
    assert [retry["status"] for retry in answer.retries] == [status, status]
    assert len(server.requests) == 3
    assert "busy" in (answer.problem or "")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_rejected_request_is_never_repeated(status: int) -> None:
    answer, server = ask(at_once(status, **{"x-should-retry": "true"}))
    assert (answer.outcome, answer.status, len(server.requests)) == ("rejected", status, 1)


@pytest.mark.parametrize(
    "wait",
    [
        lambda: {"retry-after": "1"},
        lambda: {"retry-after": formatdate(time.time() + 3, usegmt=True)},
    ],
)
def test_retry_after_is_honoured_in_seconds_and_as_a_date(wait: Callable[[], Any]) -> None:
    answer, _ = ask(Reply(b"{}", 429, wait()), GOOD)
    assert answer.outcome is None
    assert answer.retries[0]["waited"] >= 0.8  # the client's own wait is shorter


@pytest.mark.parametrize(
    "wait",
    ["6", "119", "121", "1e9", "9" * 400, "inf", formatdate(4e9, usegmt=True)],
)
def test_retry_after_beyond_the_timeout_is_not_waited_for(wait: str) -> None:
    answer, server = ask(Reply(b"{}", 429, {"retry-after": wait}), GOOD)
    assert (answer.outcome, len(server.requests)) == ("rate_limited", 1)
    assert answer.seconds < 5
    assert "asks to wait" in (answer.problem or "")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("wait", ["nan", "-5", "0", "soon", "Mon, 99 Foo 1 0", ""])
def test_retry_after_without_sense_is_answered_by_the_clients_own_wait(wait: str) -> None:
    answer, _ = ask(Reply(b"{}", 429, {"retry-after": wait}), GOOD)
    assert answer.outcome is None
    assert answer.retries[0]["waited"] > 0.3


def test_server_that_never_answers_is_left_at_the_timeout() -> None:
    answer, server = ask(Reply(delay=30), timeout=0.4, retries=4)
    assert (answer.outcome, answer.status, len(server.requests)) == ("timeout", None, 1)
    assert 0.3 < answer.seconds < 30


@pytest.mark.parametrize(
    "drip", [Reply(completion("good" * 50), drip=0.05), Reply(drip_headers=True, drip=0.05)]
)
def test_server_that_drips_is_left_at_the_timeout(drip: Reply) -> None:
    answer, server = ask(drip, timeout=0.5, retries=4)
    assert (answer.outcome, len(server.requests)) == ("timeout", 1)
    assert 0.4 < answer.seconds < 20  # of 23 and of endless ones


def test_whole_call_with_all_its_waits_ends_within_the_timeout() -> None:
    answer, server = ask(Reply(b"{}", 500), timeout=1.2, retries=10)
    assert answer.outcome == "server_error"
    assert answer.seconds < 1.2
    assert 1 < len(server.requests) < 4


@pytest.mark.parametrize("drop", [-1, 0, 20])
def test_dropped_connection_is_tried_again(drop: int) -> None:
    answer, _ = ask(Reply(completion("good"), drop=drop), GOOD)
    assert answer.outcome is None
    assert answer.retries[0]["status"] in (None, 200)
    assert "Error" in answer.retries[0]["error"]
    answer, server = ask(Reply(completion("good"), drop=drop))
    assert (answer.outcome, answer.body, len(server.requests)) == ("dropped", None, 2)


def test_no_server_at_all_is_unreachable_at_once() -> None:
    with socket.socket() as reserved:  # bound and deaf: nobody else gets the port
        reserved.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{reserved.getsockname()[1]}/v1"
        answer = ChatClient(ModelSettings(model="m", base_url=url, timeout=9.0), KEY).ask(REQUEST)
    assert (answer.outcome, answer.status, answer.retries) == ("unreachable", None, ())
    assert answer.seconds < 9


@pytest.mark.parametrize("host", [f"{'a' * 64}.example", "a..b"])
def test_name_that_no_host_can_have_is_unreachable(host: str) -> None:
    settings = ModelSettings(model="m", base_url=f"http://{host}/v1", timeout=9.0)
    answer = ChatClient(settings, KEY).ask(REQUEST)
    assert (answer.outcome, answer.retries) == ("unreachable", ())
    assert "label" in (answer.problem or "")


def test_server_that_is_gone_is_waited_for_if_it_was_there_before() -> None:
    with ChatServer(lambda *_: GOOD) as server:
        settings = ModelSettings(model="m", base_url=server.url, timeout=9.0, retries=1)
        client = ChatClient(settings, KEY)
        assert client.ask(REQUEST).outcome is None
    client.close()  # what was connected stays connected
    client = ChatClient(settings, KEY)
    client._transport._reached = True
    answer = client.ask(REQUEST)
    assert (answer.outcome, len(answer.retries)) == ("unreachable", 1)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "no JSON"),
        (b"<html><body>502 Bad Gateway</body></html>", "no JSON"),
        (b"\xff\xfe\x00garbage", "utf-8"),
        (b"null", "no choices"),
        (b"[]", "no choices"),
        (b'{"choices": []}', "no choices"),
        (b'{"choices": {}}', "no choices"),
        (b'{"choices": [null]}', "no choices"),
        (b'{"choices": [{"message": "text"}]}', "no choices"),
        (b'{"choices": [{"message": {}}], "choices": []}', "twice"),
        (b'{"choices": [{"message": {"content": NaN}}]}', "NaN"),
        (b'{"usage": 1e999}', "float"),
        (b'{"usage": ' + b"9" * 5000 + b"}", "no JSON"),
        (b"[" * 100_000, "values"),
        (b"[" * 40_000, "nested"),
        (b'{"a":' * 20_000, "nested"),
        (b'"\\ud800"', "surrogate"),
        (b"[1" + b",1" * 60_000 + b"]", "values"),
    ],
)
def test_body_that_is_no_completion_is_unusable_and_kept(body: bytes, problem: str) -> None:
    answer, _ = ask(Reply(body))
    assert (answer.outcome, answer.status, answer.body) == ("unusable", 200, body)
    assert problem in (answer.problem or "")


def test_compressed_body_is_not_asked_for_and_not_unpacked() -> None:
    bomb = gzip.compress(b"\0" * 100_000_000)
    answer, server = ask(Reply(bomb, headers={"content-encoding": "gzip"}))
    assert server.headers[0]["accept-encoding"] == "identity"
    assert (answer.outcome, answer.body) == ("unusable", bomb)


def test_body_up_to_the_bound_is_read_and_no_further() -> None:
    text = "x" * 10_000_000
    assert ask(Reply(completion(text)))[0].message["content"] == text
    answer, server = ask(Reply(b"x" * (MAX_BODY + 1)))
    assert (answer.outcome, answer.body, len(server.requests)) == ("too_large", None, 1)


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        (completion(None, refusal="I cannot help with that."), "refused"),
        (completion("", finish_reason="content_filter"), "refused"),
        (completion('{"decisions": [', finish_reason="length"), "truncated"),
        (completion("text", refusal=""), None),
        (completion("text", refusal=7, finish_reason="odd"), None),
        (tool_call("{broken"), None),
    ],
)
def test_what_the_model_did_is_told_from_what_it_said(body: Any, outcome: str | None) -> None:
    answer, _ = ask(Reply(body))
    assert (answer.outcome, answer.status) == (outcome, 200)


def test_redirect_is_not_followed() -> None:
    with ChatServer(lambda *_: GOOD) as other:
        answer, _ = ask(Reply(b"", 307, {"location": other.url + f"/chat/completions?k={KEY}"}))
        assert other.requests == []
    assert (answer.outcome, answer.status) == ("rejected", 307)
    assert "not followed" in (answer.problem or "")
    assert KEY not in (answer.problem or "")


def spell(form: str) -> Iterator[bytes]:
    """Give ways in which a server can repeat a secret."""
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in form)
    yield form.encode()
    yield json.dumps(form).encode()
    yield json.dumps(json.dumps({"nested": json.dumps(form)})).encode()
    yield quote(form, safe="").encode()
    yield "".join(f"%{ord(letter):02X}" for letter in form).encode()
    yield base64.b64encode(form.encode())
    yield base64.b64encode(b"Bearer " + form.encode() + b"; and more")
    yield base64.b64encode(b"bearer: " + form.encode())
    yield escaped.encode()
    yield json.dumps(escaped).encode()
    yield "".join(f"&#x{ord(letter):x};" for letter in form).encode()
    yield form.encode().replace(b"/", b"\\/")


@pytest.mark.parametrize("status", [200, 401, 500])
@pytest.mark.parametrize("spelled", list(spell(KEY)))
@pytest.mark.sampled(3)
def test_key_that_a_server_repeats_leaves_the_client_in_no_spelling(
    status: int, spelled: bytes
) -> None:
    words = b'{"error": {"message": "bad header Authorization: Bearer ' + spelled + b'"}}'
    answer, _ = ask(Reply(words, status, {"retry-after-ms": "1"}), retries=0)
    found = repr(answer).encode() + b" " + (answer.body or b"")
    for form in spell(KEY):
        assert form not in found
    assert b"0+1" not in found.replace(b"\\", b"")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("before", [0, 20, 100, 190, 1_840, 1_990, 2_100])
def test_key_where_a_text_is_cut_leaves_no_part_of_itself(before: int) -> None:
    key = "sk-proj-" + "".join(f"{number:04x}" for number in range(7_000, 7_039))  # 164 letters
    echo = b" " * before + key.encode()
    location = "http://x/" + "a" * before + key
    for reply in (Reply(echo, 400), Reply(echo, 500), Reply(echo, 307, {"location": location})):
        answer, _ = ask(reply, key=key, retries=0)
        assert key[:20] not in repr(answer)
        assert key[-20:] not in repr(answer)


def test_answers_text_is_left_alone_where_it_holds_no_secret() -> None:
    text = 'a \\u0041 100%25 &#x41; "quoted" sk-canary \\\\ EMPTY'
    assert ask(Reply(completion(text)))[0].message["content"] == text


def test_headers_of_a_server_choose_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Neither how its body is unpacked and decoded, nor what is sent back or written to a log."""
    caplog.set_level(logging.DEBUG)
    headers = {
        "content-type": "application/json; charset=zlib",
        "content-encoding": "br",
        "set-cookie": "choices=decisions",
        "x-echo": KEY,
        "location": "http://[::1",
    }
    bomb = zlib.compress(b" " * 200_000_000)
    answer, server = ask(Reply(bomb, 503, {**headers, "retry-after-ms": "1"}), GOOD)
    assert (answer.outcome, len(server.requests)) == (None, 2)
    assert "cookie" not in server.headers[1]
    answer, _ = ask(Reply(completion("good"), 302, headers))
    assert (answer.outcome, answer.usage is not None) == ("rejected", True)
    assert "sk-canary" not in caplog.text


@pytest.mark.parametrize("escape", [b"\\", b"\\u0041", b"%41"])
def test_body_made_of_escapes_is_looked_through_in_little_time(escape: bytes) -> None:
    started = time.process_time()
    assert ask(Reply(escape * (MAX_BODY // 8 // len(escape))))[0].outcome == "unusable"
    assert time.process_time() - started < 20  # a run of escapes squared would take hours


def test_placeholder_for_a_key_is_no_secret() -> None:
    answer, _ = ask(Reply(completion("EMPTY")), key="EMPTY")
    assert answer.message["content"] == "EMPTY"


def test_user_query_and_other_headers_of_the_environment_are_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Tenant: tenant-secret-1")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-secret-1")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "admin-secret-1")
    seen: list[Any] = []

    def echo(_: Any, headers: Any) -> Reply:
        seen.append(headers)
        return Reply(completion(json.dumps(dict(headers))))

    with ChatServer(echo) as server:
        url = server.url.replace("//", "//user%40home:pass-secret-1@") + "?code=query-secret-1"
        settings = ModelSettings(model="m", base_url=url)
        client = ChatClient(settings, None)
        answer = client.ask(REQUEST)
    basic = base64.b64encode(b"user@home:pass-secret-1").decode()
    assert seen[0]["authorization"] == f"Basic {basic}"
    assert server.headers[0][":path"] == "/v1/chat/completions?code=query-secret-1"
    assert seen[0]["x-tenant"] == "tenant-secret-1"
    told = repr(answer) + repr(settings.to_dict()) + client.endpoint
    assert "secret-1" not in told
    assert basic not in told
    assert client.endpoint == server.url + "/chat/completions"


@pytest.mark.parametrize("key", ["line\nbreak-123", " blank-1234", "umlaut-ä-1234"])
def test_key_that_cannot_be_sent_is_rejected_without_being_shown(key: str) -> None:
    with pytest.raises(PolicyError, match="OPENAI_API_KEY") as caught:
        ChatClient(ModelSettings(model="m", base_url="http://127.0.0.1:1/v1"), key)
    assert key not in str(caught.value)


def test_hosted_endpoint_without_a_key_is_refused_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(PolicyError, match="set the environment variable OTHER_KEY"):
        ChatClient(ModelSettings(model="m", key_env="OTHER_KEY"), None)


def test_base_url_comes_from_the_environment_where_none_is_configured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://user:pass-1234@127.0.0.1:9/base/?q=1")
    client = ChatClient(ModelSettings(model="m"), None)
    assert client.endpoint == "http://127.0.0.1:9/base/chat/completions"


def certify(folder: Path) -> ssl.SSLContext:
    """Write a certificate for 127.0.0.1 that no authority has signed; return it for a server."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loopback")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return context


def test_key_goes_over_tls_to_a_server_that_is_trusted_and_to_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = certify(tmp_path)
    server = ChatServer(lambda *_: GOOD)
    listener = server._server.socket
    server._server.socket = context.wrap_socket(listener, server_side=True)
    settings = ModelSettings(model="m", base_url=server.url.replace("http:", "https:"), retries=0)
    with server:
        stranger = ChatClient(settings, KEY).ask(REQUEST)
        assert (stranger.outcome, server.requests) == ("unreachable", [])
        assert "certificate" in (stranger.problem or "")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
        assert ChatClient(settings, KEY).ask(REQUEST).message["content"] == "good"


def test_server_that_is_silent_within_tls_is_left_at_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"https://127.0.0.1:{deaf.getsockname()[1]}/v1"
        settings = ModelSettings(model="m", base_url=url, timeout=0.4)
        answer = ChatClient(settings, KEY).ask(REQUEST)
    assert answer.outcome == "timeout"


def test_bytes_that_are_no_http_at_all_are_a_dropped_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for _ in range(2):
                connection, _address = listener.accept()
                with connection:
                    connection.recv(65_536)
                    connection.sendall(b"\x16\x03\x01 " + KEY.encode() + b"\r\n\r\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        settings = ModelSettings(model="m", base_url=url, retries=1)
        answer = ChatClient(settings, KEY).ask(REQUEST)
        thread.join(60)
    assert (answer.outcome, len(answer.retries)) == ("dropped", 1)
    assert KEY not in repr(answer)
