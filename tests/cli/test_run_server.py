"""`refold run --base-url`: against a server that speaks OpenAI's chat protocol on this machine, and needs no key."""

import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from refold.cli.main import run


class Server(ThreadingHTTPServer):
    """Streams answers as llama.cpp's server does, and refuses what is over its context in its words.

    It counts a token per four bytes of messages and tools. Its model reads `/work/big.txt` three times, then answers; a
    request without tools, or with `tool_choice` none, is answered with a short text.
    """

    daemon_threads = True

    def __init__(self, n_ctx: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.n_ctx = n_ctx
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.refused = 0
        self.called = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(body)
        self.server.keys.append(self.headers["Authorization"])
        prompt = len(json.dumps([body["messages"], body.get("tools")])) // 4
        if self.path != "/v1/chat/completions":
            return self._json(404, {"error": {"message": f"no {self.path}"}})
        if prompt > self.server.n_ctx:
            self.server.refused += 1
            return self._json(400, _refusal(prompt, self.server.n_ctx))
        return self._answer(body, prompt)

    def _answer(self, body: Mapping[str, Any], prompt: int) -> None:
        calls = bool(body.get("tools")) and body.get("tool_choice") != "none" and self.server.called < 3
        self.server.called += calls
        usage = {"prompt_tokens": prompt, "completion_tokens": 8, "total_tokens": prompt + 8}
        if not body.get("stream"):
            message = {"role": "assistant", "content": "The file holds numbered lines. /work/big.txt was read."}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return self._json(200, {"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage})
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for delta in _call(self.server.called) if calls else ({"content": word} for word in ("All ", "read.")):
            self._event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
        self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if calls else "stop"}]})
        if (body.get("stream_options") or {}).get("include_usage"):
            self._event({"choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")
        return None

    def _event(self, fields: Mapping[str, object]) -> None:
        chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "small", **fields}
        self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())

    def _json(self, status: int, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _call(number: int) -> Iterator[dict[str, object]]:
    """A tool call in three pieces."""
    start = {"index": 0, "id": f"call_{number}", "type": "function", "function": {"name": "read_file", "arguments": ""}}
    yield {"role": "assistant", "content": None, "tool_calls": [start]}
    for piece in ('{"path": "/work/', 'big.txt", "limit": 120}'):
        yield {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}


def _refusal(prompt: int, n_ctx: int) -> dict[str, object]:
    text = f"request ({prompt} tokens) exceeds the available context size ({n_ctx} tokens), try increasing it"
    error = {
        "code": 400,
        "message": text,
        "type": "exceed_context_size_error",
        "n_prompt_tokens": prompt,
        "n_ctx": n_ctx,
    }
    return {"error": error}


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(n_ctx=4_500) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield running
        finally:
            running.shutdown()
            thread.join()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a file of some size."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
    lines = (f"line {number}: the value of item {number * 7919} is {number * 104729}" for number in range(400))
    (tmp_path / "big.txt").write_text("\n".join(lines))
    return tmp_path


class TestServer:
    def test_a_run_past_the_servers_limit(
        self, server: Server, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Nothing says how much the server takes. It refuses once, in its own words; the run folds to what the refusal
        named, sends again, and ends. Tools and usage come by the stream."""
        code = run(["run", "Read big.txt", "--model", "small", "--base-url", server.url, "--json"])
        events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert code == 0
        assert server.refused >= 1
        assert [event["name"] for event in events if event["event"] == "tool_call"] == ["read_file"] * 3
        assert [event["text"] for event in events if event["event"] == "message"] == ["All read."]
        assert [event["event"] for event in events if event["event"] in ("overflow", "fold")]
        assert events[-1]["budget"] < 4_500
        assert all(body["model"] == "small" for body in server.requests)
        assert set(server.keys) == {"Bearer not-needed"}

    def test_a_server_that_is_not_there(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """One line, exit code 9, and the thread is kept."""
        arguments = ["run", "hello", "--model", "small", "--base-url", "http://127.0.0.1:9/v1", "--thread", "t"]
        assert run(arguments) == 9
        err = capsys.readouterr().err
        assert "ConnectionError: Connection error. The thread is kept" in err
        assert "go on with: refold run --thread t --model small --base-url http://127.0.0.1:9/v1" in err

    def test_a_url_that_is_none(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """A usage error that shows what a URL looks like."""
        assert run(["run", "hello", "--model", "small", "--base-url", "127.0.0.1:8080"]) == 2
        assert "http://127.0.0.1:8080/v1" in capsys.readouterr().err
