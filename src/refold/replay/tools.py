"""The recorded steps of an agent: tools with the recorded schemas and results, and where the graph has to stop.

`RecordedSteps` is the outermost middleware of a replay. It answers every tool call with the recorded result, whatever
the tool's name, and interrupts the graph where the recorded agent did not go on by itself: a human spoke before the
model did, a call was never answered, results came in another order.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from langchain.agents.middleware.types import AgentMiddleware, ModelRequest, ModelResponse, ToolCallRequest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.types import Command, interrupt

from refold.errors import ReplayMismatchError
from refold.replay.tape import Tape
from refold.replay.transcript import ToolSchema

_STOP = "the recording goes on otherwise"


class RecordedTool(BaseTool):
    """A tool as the recorded agent's model saw it. It is bound, never run: `RecordedSteps` answers its calls."""

    def _run(self, *args: object, **kwargs: object) -> str:
        raise ReplayMismatchError(f"the tool {self.name!r} ran outside of a replay")


def recorded_tool(schema: ToolSchema) -> BaseTool:
    """A bindable tool of a recorded schema."""
    parameters = dict(schema.parameters)
    parameters.setdefault("type", "object")
    parameters.setdefault("properties", {})
    return RecordedTool(name=schema.name, description=schema.description, args_schema=parameters)


class RecordedSteps(AgentMiddleware[Any, None, Any]):
    """Plays the tape's results, and interrupts where the tape has to be fed."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._tape = tape

    def wrap_model_call(
        self, request: ModelRequest[None], handler: Callable[[ModelRequest[None]], ModelResponse[object]]
    ) -> ModelResponse[object]:
        """Go on only where the recorded model did."""
        if not self._tape.calls_model:
            interrupt(_STOP)
        return handler(request)

    async def awrap_model_call(
        self, request: ModelRequest[None], handler: Callable[[ModelRequest[None]], Awaitable[ModelResponse[object]]]
    ) -> ModelResponse[object]:
        """Go on only where the recorded model did."""
        if not self._tape.calls_model:
            interrupt(_STOP)
        return await handler(request)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[object]]
    ) -> ToolMessage | Command[object]:
        """The recorded result."""
        return self._result(request.tool_call)

    async def awrap_tool_call(
        self,
        request: ToolCallRequest,
        handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[object]]],
    ) -> ToolMessage | Command[object]:
        """The recorded result."""
        return self._result(request.tool_call)

    def _result(self, call: Mapping[str, Any]) -> ToolMessage:
        result = self._tape.result(call["id"])
        if result is None:
            interrupt(_STOP)
            raise ReplayMismatchError("an interrupt of a replay was resumed")
        return result
