"""A chat endpoint on loopback that answers what a test tells it to, and fails how it is told to.

It speaks HTTP/1.1, /v1/chat/completions and /v1/models. As a process:

    python tests/helpers/chat_server.py --port 0 --script defer-r1

prints its base URL on the first line and serves until it is ended.
"""

import argparse
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from types import TracebackType
from typing import Any, ClassVar

FEEDBACK_TITLE = "# Feedback on earlier attempts"  # as the prompt has it
ARCHITECTURE = ("add_block", "add_norm", "add_residual", "swap_activation", "widen")


@dataclass(frozen=True)
class Reply:
    """What the server does with one request."""

    body: Any = b""  # bytes as they are; anything else as JSON
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0.0  # seconds before the first byte
    drop: int | None = None  # cut the connection after so many bytes of the body; -1: before all
    drip: float = 0.0  # seconds between single bytes of the body
    drip_headers: bool = False  # headers without end, instead of an answer

    @property
    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


Behaviour = Callable[[dict[str, Any], Mapping[str, str]], Reply]


class ChatServer:
    """Serves in threads of this process while it is entered."""

    def __init__(self, behaviour: Behaviour, *, port: int = 0) -> None:
        self.behaviour = behaviour
        self.requests: list[dict[str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self.closing = threading.Event()
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.chat = self
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"

    def serve(self) -> None:
        self._server.serve_forever(poll_interval=0.05)

    def __enter__(self) -> "ChatServer":
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    chat: ChatServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that hang up."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server
    disable_nagle_algorithm: ClassVar[bool] = True

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - its name
        """Stay silent."""

    def do_GET(self) -> None:
        if self.path.partition("?")[0] == "/v1/models":
            self._send(Reply({"object": "list", "data": [{"id": "scripted", "object": "model"}]}))
        else:
            self._send(Reply({"error": {"message": "no such page"}}, 404))

    def do_POST(self) -> None:
        chat = self.server.chat
        content = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path.partition("?")[0] != "/v1/chat/completions":
            self._send(Reply({"error": {"message": "no such page"}}, 404))
            return
        request = json.loads(content)
        headers = {name.lower(): value for name, value in self.headers.items()}
        chat.requests.append(request)
        chat.headers.append(headers | {":path": self.path})
        self._send(chat.behaviour(request, headers))

    def _send(self, reply: Reply) -> None:
        if self.server.chat.closing.wait(reply.delay) or reply.drop == -1:
            self._cut()
            return
        if reply.drip_headers:
            self.wfile.write(b"HTTP/1.1 200 OK\r\n")
            while not self.server.chat.closing.wait(reply.drip or 0.05):
                self.wfile.write(b"x-more: 1\r\n")
            return
        content = reply.content
        self.send_response(reply.status)
        headers = {"content-type": "application/json", "content-length": str(len(content))}
        for name, value in {**headers, **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if reply.drop is not None:
            self.wfile.write(content[: min(reply.drop, len(content) - 1)])
            self._cut()
        elif reply.drip:
            for number in range(len(content)):
                self.wfile.write(content[number : number + 1])
                if self.server.chat.closing.wait(reply.drip):
                    break
        else:
            self.wfile.write(content)

    def _cut(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


def completion(content: Any, *, finish_reason: str = "stop", **message: Any) -> dict[str, Any]:
    """Return the body of an answer; `content` that is no text is written as JSON."""
    text = content if isinstance(content, str | None) else json.dumps(content)
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "scripted",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish_reason,
                "message": {"role": "assistant", "content": text, **message},
            }
        ],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }


def tool_call(value: Any, name: str = "answer") -> dict[str, Any]:
    """Return the body of an answer that calls a tool; text is taken as the arguments."""
    arguments = value if isinstance(value, str) else json.dumps(value)
    call = {
        "id": "call-1",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }
    return completion(None, finish_reason="tool_calls", tool_calls=[call])


def schema_of(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema that a request asks an answer to follow, however it asks."""
    form = request.get("response_format") or {}
    found: dict[str, Any]
    if form.get("type") == "json_schema":
        found = form["json_schema"]["schema"]
    elif request.get("tools"):
        found = request["tools"][0]["function"]["parameters"]
    else:
        found = json.loads(request["messages"][-1]["content"].rpartition("schema:\n")[2])
    return found


def is_probe(request: Mapping[str, Any]) -> bool:
    """Return whether a request is the probe."""
    return "words" in schema_of(request)["properties"]


def say(request: Mapping[str, Any], value: Any) -> Reply:
    """Answer with `value`, as a tool call where one is forced."""
    return Reply(tool_call(value) if request.get("tools") else completion(value))


def answer_probe(request: Mapping[str, Any]) -> Reply:
    """Answer the probe as a server does that honours the form."""
    word = schema_of(request)["properties"]["words"]["items"]["properties"]["word"]["enum"][0]
    return say(request, {"words": [{"word": word, "size": None}], "certain": True})


def due_rules(request: Mapping[str, Any]) -> list[str]:
    """Return the rules that a request asks about."""
    item = schema_of(request)["properties"]["decisions"]["items"]
    found: list[str] = item["properties"]["cites"]["items"]["enum"]
    return found


def _as_asked(request: Mapping[str, Any], value: Any) -> Any:
    """Leave out the event type where the form has no place for it."""
    item = schema_of(request)["properties"].get("decisions", {}).get("items", {})
    if not isinstance(value, dict) or "event_type" in item.get("properties", {"event_type": 0}):
        return value
    return {
        "decisions": [
            {name: said[name] for name in said if name != "event_type"}
            for said in value["decisions"]
        ]
    }


def decide(answer: Callable[[dict[str, Any]], Any]) -> Behaviour:
    """Return a behaviour that honours the form: `answer` gives the value for a request."""

    def behave(request: dict[str, Any], _: Mapping[str, str]) -> Reply:
        if is_probe(request):
            return answer_probe(request)
        return say(request, _as_asked(request, answer(request)))

    return behave


def defer(rule: str, why: str = "the script waits") -> dict[str, Any]:
    """Return a deferral."""
    return {
        "event_type": "rule_triggered_no_action",
        "cites": [rule],
        "direction": "defer",
        "params": {},
        "justification": why,
    }


def defer_all(request: Mapping[str, Any]) -> dict[str, Any]:
    """Defer every due rule."""
    return {"decisions": [defer(rule) for rule in due_rules(request)]}


def act(request: Mapping[str, Any], rule: str) -> dict[str, Any]:
    """Return the first remedy that the prompt offers for `rule`, or a deferral if there is none."""
    text = request["messages"][1]["content"]
    section = re.split(r"\n- |\n\n", text.partition(f"\n- {rule} (")[2])[0]
    for direction, offer in re.findall(r"\n  - ([a-z_]+): (.*)", section):
        if direction in ("limits",) or "at its limit" in offer:
            continue
        params: dict[str, Any] = {}
        for part in offer.split("; "):
            if found := re.match(r"(\w+) (?:exactly|from|a whole number from) ([0-9.e+-]+)", part):
                params[found[1]] = json.loads(found[2])
            elif found := re.match(r"to (\w+)", part):
                params["to"] = found[1]
            elif "reinitialise true" in part:
                params["reinitialise"] = True
            elif part == "lr_min below it":
                params["lr_min"] = params["lr_max"] / 10
        kind = "architecture_change" if direction in ARCHITECTURE else "hyperparameter_change"
        return {
            "event_type": kind,
            "cites": [rule],
            "direction": direction,
            "params": params,
            "justification": f"{rule} fired: the script acts on it",
        }
    return defer(rule, "no remedy is open")


def act_on_first(request: Mapping[str, Any]) -> dict[str, Any]:
    """Act on the first due rule and defer the others to it."""
    first, *others = due_rules(request)
    waiting = [{**defer(rule), "params": {"deferred_to": first}} for rule in others]
    return {"decisions": [act(request, first), *waiting]}


def defer_r1(request: Mapping[str, Any]) -> dict[str, Any]:
    """Act on everything but R1, which waits for ever unless the feedback names it."""
    feedback = request["messages"][0]["content"].partition(FEEDBACK_TITLE)[2]
    named = re.search(r"\bR1\b", feedback)
    rules = due_rules(request)
    if "R1" in rules and named:
        return act_on_first(request)
    return {
        "decisions": [
            defer(rule) if rule == "R1" or rule != rules[0] else act(request, rule)
            for rule in rules
        ]
    }


def picky(answer: Callable[[dict[str, Any]], Any]) -> Behaviour:
    """Refuse what newer models refuse: the old name of the limit, and a temperature."""

    def behave(request: dict[str, Any], headers: Mapping[str, str]) -> Reply:
        for name, other in (("max_tokens", "max_completion_tokens"), ("temperature", "1")):
            if name in request:
                message = f"Unsupported parameter: '{name}' is not supported; use {other}."
                return Reply({"error": {"message": message, "param": name}}, 400)
        return decide(answer)(request, headers)

    return behave


def fenced(answer: Callable[[dict[str, Any]], Any]) -> Behaviour:
    """Pass the probe with a JSON schema, and then think aloud and answer in a fence."""

    def behave(request: dict[str, Any], _: Mapping[str, str]) -> Reply:
        if is_probe(request):
            return answer_probe(request)
        value = json.dumps(_as_asked(request, answer(request)))
        return Reply(completion(f"<think>{{so}} it is</think>\n```json\n{value}\n```"))

    return behave


def streamed(answer: Callable[[dict[str, Any]], Any]) -> Behaviour:
    """Send a text/event-stream that nobody asked for, a few characters at a time."""

    def behave(request: dict[str, Any], headers: Mapping[str, str]) -> Reply:
        whole = decide(answer)(request, headers).body
        (choice,) = whole["choices"]
        text = choice["message"]["content"]
        deltas = [{"content": text[at : at + 7]} for at in range(0, len(text or ""), 7)]
        for name, call in enumerate(choice["message"].get("tool_calls", ())):
            deltas.append({"tool_calls": [{"index": name, **call}]})
        chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
        chunks.append({"choices": [{"delta": {}, "finish_reason": choice["finish_reason"]}]})
        chunks.append({"choices": [], "usage": whole["usage"]})
        events = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
        body = f": hello\n\n{events}data: [DONE]\n\n".encode()
        return Reply(body, headers={"content-type": "text/event-stream"})

    return behave


def in_parts(answer: Callable[[dict[str, Any]], Any]) -> Behaviour:
    """Answer with a list of parts: what was thought, and text."""

    def behave(request: dict[str, Any], headers: Mapping[str, str]) -> Reply:
        whole = decide(answer)(request, headers).body
        message = whole["choices"][0]["message"]
        thought = {"type": "thinking", "thinking": [{"type": "text", "text": "{}"}]}
        text = message["content"] or ""
        halves = [{"type": "text", "text": half} for half in (text[:9], text[9:])]
        message["content"] = [thought, *halves]
        return Reply(whole)

    return behave


def revoked(answer: Callable[[dict[str, Any]], Any], *, after: int = 2) -> Behaviour:
    """Answer the first requests, and then refuse the key."""
    seen = count(1)

    def behave(request: dict[str, Any], headers: Mapping[str, str]) -> Reply:
        if next(seen) > after:
            return Reply({"error": {"message": "the key was revoked"}}, 401)
        return decide(answer)(request, headers)

    return behave


STYLES: Mapping[str, Callable[[Callable[[dict[str, Any]], Any]], Behaviour]] = {
    "plain": decide,
    "picky": picky,
    "fenced": fenced,
    "streamed": streamed,
    "parts": in_parts,
    "revoked": revoked,
}
SCRIPTS: Mapping[str, Callable[[dict[str, Any]], Any]] = {
    "act": act_on_first,
    "defer": defer_all,
    "defer-r1": defer_r1,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve scripted chat completions on loopback.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--script", choices=sorted(SCRIPTS), default="defer")
    parser.add_argument("--style", choices=sorted(STYLES), default="plain")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each answer")
    arguments = parser.parse_args()
    answer = STYLES[arguments.style](SCRIPTS[arguments.script])

    def behave(request: dict[str, Any], headers: Mapping[str, str]) -> Reply:
        time.sleep(arguments.delay)
        return answer(request, headers)

    server = ChatServer(behave, port=arguments.port)
    sys.stdout.write(server.url + "\n")
    sys.stdout.flush()
    with suppress(KeyboardInterrupt):
        server.serve()


if __name__ == "__main__":
    main()
