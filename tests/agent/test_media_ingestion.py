"""Media and long results on their way into the log, in a real agent: what is too large, damaged or said twice."""

import base64
import json
from collections.abc import Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver

from refold.agent.offload import OffloadMiddleware, Thresholds
from refold.agent.window import WindowMiddleware
from refold.core.artifacts import media_path
from refold.core.media_parts import parts_of
from refold.core.messages import text_of
from refold.core.policy import Policy
from refold.errors import ConfigurationError, FilesUnavailableError
from refold.files import Files, MemoryFiles
from refold.testing import StrictModel
from refold.testing.samples import PNG

PICTURE = base64.b64decode(PNG) + bytes(600_000)
"""600 kB that decode as a picture: bytes after its end do no harm."""
ROWS = {"rows": [{"id": n, "name": f"item {n}", "size": n * 17} for n in range(30)]}


def block(data: bytes = PICTURE) -> dict[str, object]:
    return {"type": "image", "base64": base64.b64encode(data).decode(), "mime_type": "image/png"}


@tool
def shot() -> list[dict[str, object]]:
    """Take a picture of 600 kB."""
    return [{"type": "text", "text": "the page"}, block()]


@tool
def broken() -> list[dict[str, object]]:
    """A picture that ends too early."""
    return [{"type": "text", "text": "the page"}, block(PICTURE[:40])]


@tool(response_format="content_and_artifact")
def mcp() -> tuple[list[dict[str, object]], object]:
    """As MCP adapters answer: the text, the structured content as text again, and as an artifact."""
    text = json.dumps(ROWS, indent=1)
    return [{"type": "text", "text": text}, {"type": "text", "text": json.dumps(ROWS)}], {"structured_content": ROWS}


class SmallItems(InMemorySaver):
    """A checkpointer whose items hold 400 kB, as DynamoDB's."""

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        for value in checkpoint["channel_values"].values():
            self._check(value)
        return super().put(config, checkpoint, metadata, new_versions)

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        for _, value in writes:
            self._check(value)
        super().put_writes(config, writes, task_id, task_path)

    def _check(self, value: object) -> None:
        size = len(self.serde.dumps_typed(value)[1])
        if size > 400_000:
            raise ValueError(f"item size {size} exceeds the maximum of 400000")


class Broken(MemoryFiles):
    def write(self, path: str, data: bytes, *, mode: str) -> None:  # type: ignore[override]
        raise FilesUnavailableError("the disk is full")


def log_of(
    name: str, *, files: Files | None = None, saver: InMemorySaver | None = None, **thresholds: Any
) -> Sequence[BaseMessage]:
    """The log of an agent that calls one tool and answers."""
    tools: list[BaseTool] = [shot, broken, mcp]
    model = StrictModel(script=[AIMessage("", tool_calls=[{"name": name, "args": {}, "id": "c1"}]), "done"])
    window = WindowMiddleware(files=files or MemoryFiles(), policy=Policy(context_limit=200_000, output_reserve=1_000))
    agent = create_agent(
        model, tools, checkpointer=saver or InMemorySaver(),
        middleware=[window, OffloadMiddleware(window, thresholds=Thresholds(**thresholds))],
    )  # fmt: skip
    state = agent.invoke({"messages": [HumanMessage("go")]}, {"configurable": {"thread_id": "t"}})
    return list(state["messages"])


def result_in(log: Sequence[BaseMessage]) -> ToolMessage:
    return next(message for message in log if isinstance(message, ToolMessage))


class TestLargeMediaEnterAsReferences:
    def test_fault_122_a_store_of_400_kb_survives_a_picture_of_600(self) -> None:
        """The log gets a reference, the files the bytes."""
        files = MemoryFiles()
        result = result_in(log_of("shot", files=files, saver=SmallItems(), media_bytes=300_000))
        path = media_path(PICTURE, "image/png")
        assert parts_of(result) == ()
        assert path in text_of(result)
        assert "the page" in text_of(result)
        assert files.read(path) == PICTURE

    def test_fault_122_without_a_bound_the_store_does_refuse_it(self) -> None:
        """What the bound is for."""
        with pytest.raises(ValueError, match="exceeds the maximum"):
            log_of("shot", saver=SmallItems())

    def test_a_picture_that_every_provider_takes_enters_whole(self) -> None:
        """The model is to see it."""
        assert [base64.b64decode(p.media.data or "") for p in parts_of(result_in(log_of("shot")))] == [PICTURE]

    def test_fault_116_a_damaged_picture_does_not_enter_the_log(self) -> None:
        """Its stub says why, and its bytes can be read."""
        files = MemoryFiles()
        result = result_in(log_of("broken", files=files))
        assert parts_of(result) == ()
        assert "why=" in text_of(result)
        assert files.read(media_path(PICTURE[:40], "image/png")) == PICTURE[:40]

    def test_a_store_that_fails_keeps_the_original_in_the_log(self) -> None:
        """Never silence: what is whole is shown, what is damaged is kept from the model by the window."""
        for name, data in (("shot", PICTURE), ("broken", PICTURE[:40])):
            parts = parts_of(result_in(log_of(name, files=Broken(), media_bytes=300_000)))
            assert [data] == [base64.b64decode(part.media.data or "") for part in parts]

    def test_bounds_are_validated(self) -> None:
        """With what to do instead."""
        for wrong in ({"media_bytes": 0}, {"slack": -0.1}):
            with pytest.raises(ConfigurationError, match="offload"):
                Thresholds(**wrong)  # type: ignore[arg-type]


class TestResultsAreShownOnce:
    def test_fault_111_text_and_structured_content(self) -> None:
        """The same value once; the artifact, which no model is sent, stays."""
        result = result_in(log_of("mcp"))
        assert json.dumps(ROWS, indent=1) == text_of(result)
        assert result.artifact == {"structured_content": ROWS}


class TestASecondToolGetsWhatWasMoved:
    def test_fault_112_by_reference(self) -> None:
        """The stub's path, given to another tool, is the whole result: nothing is cut for it."""
        big = "\n".join(f"line {n} of the payload" for n in range(8_000))

        @tool
        def produce() -> str:
            """Produce a large payload."""
            return big

        files = MemoryFiles()
        seen: list[str] = []

        @tool
        def consume(path: str) -> str:
            """Consume a stored payload by its path."""
            seen.append(files.read(path).decode())
            return "consumed"

        def steps(messages: Sequence[BaseMessage]) -> AIMessage:
            if len(messages) == 1:
                return AIMessage("", tool_calls=[{"name": "produce", "args": {}, "id": "c1"}])
            if len(messages) > 3:
                return AIMessage("done")
            path = next(word[5:] for word in text_of(messages[-1]).split() if word.startswith("path="))
            return AIMessage("", tool_calls=[{"name": "consume", "args": {"path": path}, "id": "c2"}])

        model = StrictModel(script=steps)
        window = WindowMiddleware(files=files, policy=Policy(context_limit=50_000, output_reserve=1_000))
        agent = create_agent(model, [produce, consume], middleware=[window, OffloadMiddleware(window)])
        agent.invoke({"messages": [HumanMessage("go")]})
        assert seen == [big]


class TestWhatIsNearTheLimitEntersWhole:
    def test_fault_114_slightly_over_its_share_is_not_moved(self) -> None:
        """With room to spare a result a little over its share enters whole; far over it, or without room, it does not;
        a fixed threshold of a tool is kept to the token."""
        share = 10_000
        roomy = Thresholds(per_tool={"exact": 500}).of("any", used=0, budget=100_000, together=1)
        tight = Thresholds().of("any", used=96_000, budget=100_000, together=1)
        exact = Thresholds(per_tool={"exact": 500}).of("exact", used=0, budget=100_000, together=1)
        assert [share * 1.2 <= roomy, share * 1.5 <= roomy] == [True, False]
        assert (tight, exact) == (2_000, 500)


class TestAPictureThatTheProviderRefuses:
    @pytest.mark.parametrize("asynchronous", [False, True])
    async def test_fault_117_costs_one_refusal_in_the_life_of_a_thread(self, asynchronous: bool) -> None:
        """Recorded with the answer: the next turn, text only, is not refused; the log keeps the picture."""
        refused: list[int] = []

        def steps(messages: Sequence[BaseMessage]) -> AIMessage:
            if any(part.inline for message in messages for part in parts_of(message)):
                refused.append(len(messages))
                raise ValueError("Error code: 400 - messages.0.content.1: Could not process image")
            return AIMessage("fine")

        agent = create_agent(
            StrictModel(script=steps), [], checkpointer=InMemorySaver(),
            middleware=[WindowMiddleware(files=MemoryFiles(), policy=Policy(context_limit=50_000))],
        )  # fmt: skip
        config = {"configurable": {"thread_id": "t"}}
        turns = [HumanMessage([{"type": "text", "text": "look"}, block(PICTURE[:2_000])]), HumanMessage("and now?")]
        for turn in turns:
            if asynchronous:
                await agent.ainvoke({"messages": [turn]}, config)  # type: ignore[arg-type]
            else:
                agent.invoke({"messages": [turn]}, config)  # type: ignore[arg-type]
        state = agent.get_state(config).values  # type: ignore[arg-type]
        assert len(refused) == 1
        assert [fold["reason"] for fold in state["folds"]] == ["media refused"]
        assert len(parts_of(state["messages"][0])) == 1
