"""refold on a real model with a real limit: SmolLM2-135M behind llama.cpp's server, about eight calls.

Facts and shapes are asserted, never wording: the model is too small to be right about anything.
"""

import importlib.util
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from refold import LocalFiles, WindowMiddleware
from refold.checkpoint import SqliteSaver

pytestmark = pytest.mark.model

ROOT = Path(__file__).resolve().parent.parent.parent
MODEL = ROOT / ".models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
CONTEXT = 1280
"""Tokens of the server's window: two tool schemas and a short history fit, a longer history is refused at once."""

CONFIG: Any = {"configurable": {"thread_id": "t"}}
WORDS = "The river runs past the mill, and the miller counts the sacks of grain before the rain comes. "


def history() -> Sequence[BaseMessage]:
    """About 1,500 tokens of dialogue, which the server takes no more than 1,280 of, and a question."""
    messages: list[BaseMessage] = []
    for number in range(8):
        said = f"Note {number}: file /srv/data/part{number}.csv has {1000 + number} rows. " + WORDS * 5
        messages += [HumanMessage(said, id=f"h{number}"), AIMessage(f"Noted, {number}. " + WORDS * 2, id=f"a{number}")]
    return [*messages, HumanMessage("Which files did I name?", id="q")]


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One turn of a thread: what the custom stream told, the answer, and the state after it."""

    events: Sequence[Mapping[str, Any]]
    answer: AIMessage
    state: Mapping[str, Any]

    def of(self, event: str) -> list[Mapping[str, Any]]:
        return [told for told in self.events if told["event"] == event]

    @property
    def prompt(self) -> int:
        """Tokens of the request that was answered, exactly, by the server."""
        assert self.answer.usage_metadata is not None
        return self.answer.usage_metadata["input_tokens"]

    @property
    def counted(self) -> int:
        """The same by refold, before the answer came."""
        (window,) = self.of("window")
        return int(window["used"] + window["fixed"])

    @property
    def cached(self) -> int:
        """Tokens of the request that the server had in its cache."""
        usage = self.answer.response_metadata["token_usage"]
        return int(usage["prompt_tokens_details"]["cached_tokens"])


def chat(server: str, *, stream_usage: bool = True) -> ChatOpenAI:
    """The server's model; it ends an answer with its first sentence, since it would not end by itself."""
    return ChatOpenAI(
        model="smollm2", base_url=server, api_key=SecretStr("none"), max_tokens=60, temperature=0, max_retries=0,
        stop_sequences=[".", "!", "\n\n"], stream_usage=stream_usage, timeout=280,
    )  # type: ignore[call-arg]  # fmt: skip


def turn(folder: Path, model: ChatOpenAI, messages: Sequence[BaseMessage]) -> Turn:
    """One turn with everything made anew: agent, middleware, files and database connection."""
    window = WindowMiddleware(files=LocalFiles(folder / "files"))
    with SqliteSaver.from_conn_string(str(folder / "threads.db")) as saver:
        agent: Any = create_agent(
            model, [], middleware=[window], checkpointer=saver, system_prompt="You are a helpful assistant."
        )
        events = [part["refold"] for part in agent.stream({"messages": list(messages)}, CONFIG, stream_mode="custom")]
        state = agent.get_state(CONFIG).values
    return Turn(events=events, answer=state["messages"][-1], state=state)


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of llama.cpp's server with SmolLM2-135M, in a process of its own, on this machine alone."""
    if "model" not in request.config.option.markexpr:
        pytest.skip("the real model runs in make test-model")
    if importlib.util.find_spec("xllamacpp") is None or not MODEL.is_file():
        pytest.skip("no local model here: make test-model fetches it")
    command = [sys.executable, str(ROOT / "scripts" / "serve_model.py"), str(MODEL), "--context", str(CONTEXT)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        address = running.stdout.readline().strip()
        yield f"{address}/v1"
        running.stdin.close()
        try:
            running.wait(30)
        except subprocess.TimeoutExpired:
            running.kill()


@pytest.fixture(scope="module")
def turns(server: str, tmp_path_factory: pytest.TempPathFactory) -> Sequence[Turn]:
    """Three turns of one thread; the first one is too long for the server."""
    folder = tmp_path_factory.mktemp("thread")
    asked = (history(), [HumanMessage("And which was the first?")], [HumanMessage("Say one word.")])
    return [turn(folder, chat(server), messages) for messages in asked]


class TestRealLimit:
    def test_the_limit_is_learnt_from_the_refusal(self, turns: Sequence[Turn]) -> None:
        """Nobody said how much the server takes: its refusal did, exactly, and the turn was answered."""
        first = turns[0]
        assert [event["limit"] for event in first.of("overflow")] == [CONTEXT]
        assert first.of("window")[0]["limit"] == CONTEXT
        assert first.prompt <= CONTEXT
        assert first.answer.text

    def test_the_summary_is_the_models(self, turns: Sequence[Turn]) -> None:
        """The model itself summarised the refused history (no floor, no strike), to less than half the tokens."""
        first = turns[0]
        assert first.of("summary_strike") == []
        (committed,) = first.of("fold")
        assert "summary" in committed["kinds"]
        assert committed["after"] < committed["before"] / 2
        assert [fold["reason"] for fold in first.state["folds"] if fold["kind"] == "summary"] == ["overflow"]

    def test_the_log_is_whole(self, turns: Sequence[Turn]) -> None:
        """The log still has every message as it was."""
        log = turns[-1].state["messages"]
        assert [message.text for message in log[:17]] == [message.text for message in history()]
        assert len(log) == 17 + 5


class TestRealCounts:
    @pytest.mark.parametrize("number", [1, 2])
    def test_anchored_counting(self, turns: Sequence[Turn], number: int) -> None:
        """With the last reported usage as its base, a request's count is within 3 % of what the server then counted."""
        assert turns[number].counted == pytest.approx(turns[number].prompt, rel=0.03)

    @pytest.mark.parametrize("number", [1, 2])
    def test_the_prefix_is_served_from_the_cache(self, turns: Sequence[Turn], number: int) -> None:
        """Between two folds, and over a new agent and a reopened database, the server finds at least 95 % of the last
        request at the start of the next one."""
        assert turns[number].of("fold") == []
        assert turns[number].cached >= 0.95 * turns[number - 1].prompt

    def test_a_resumed_thread_knows_its_window(self, turns: Sequence[Turn]) -> None:
        """A new agent on the thread sends the fold that is in the state: nothing is refused or summarised again."""
        assert [turn.of("overflow") for turn in turns[1:]] == [[], []]
        assert turns[1].prompt < CONTEXT / 2 + 200


class TestStreamWithoutUsage:
    def test_the_window_is_estimated(self, server: str, tmp_path: Path) -> None:
        """A stream that reports no usage: tokens come, and the window is counted by estimate, never as zero."""
        window = WindowMiddleware(files=LocalFiles(tmp_path))
        agent: Any = create_agent(chat(server, stream_usage=False), [], middleware=[window])
        given = {"messages": [HumanMessage("Name a colour of the sky.", id="h")]}
        parts = list(agent.stream(given, CONFIG, stream_mode=["messages", "custom"]))
        pieces = [part[0] for mode, part in parts if mode == "messages"]
        (event,) = [part["refold"] for mode, part in parts if mode == "custom"]
        assert len(pieces) > 1
        assert all(isinstance(piece, AIMessageChunk) and piece.usage_metadata is None for piece in pieces)
        form = {"messages": [{"role": "user", "content": "Name a colour of the sky."}]}
        exact = httpx.post(f"{server}/chat/completions/input_tokens", json=form, timeout=60).json()["input_tokens"]
        assert 0 < event["used"] <= exact
