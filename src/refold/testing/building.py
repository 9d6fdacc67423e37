"""How a generated history is put together: turns, rounds, and one provider's spelling of them."""

import base64
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias, TypeVar

from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from refold.core.validate.shape import GEMINI_SIGNATURES
from refold.testing.samples import ASCII_TEXTS, HUMAN_MEDIA, RESULT_MEDIA, TEXTS

Style: TypeAlias = Literal["plain", "anthropic", "responses", "gemini", "standard", "reasoning_content"]
"""How AI messages are spelled: plain OpenAI chat, the native blocks of a provider, LangChain's standard blocks, or chat
with the reasoning beside the content (DeepSeek, Qwen, Kimi)."""

T = TypeVar("T")

_below = cache(lambda bound: st.integers(0, bound - 1))
"""Strategies by bound: building one costs more than drawing from it."""

Part: TypeAlias = str | dict[str, object]

_PROVIDERS: Mapping[Style, str] = {
    "plain": "openai",
    "anthropic": "anthropic",
    "responses": "openai",
    "gemini": "google_genai",
    "standard": "openai",
    "reasoning_content": "deepseek",
}


@dataclass(kw_only=True)
class MadeCall:
    """A call about to be written: its item number, id, tool, arguments, or the text that did not parse."""

    number: int
    id: str | None
    name: str
    args: dict[str, object]
    broken: str | None = None


@dataclass(kw_only=True)
class Builder:
    """One history under construction. `kinds` are the oddities that it may have."""

    draw: st.DrawFn
    kinds: Collection[str]
    style: Style
    messages: int = 0
    calls: int = 0

    def some(self, kind: str, numerator: int, denominator: int) -> bool:
        """Whether an oddity that is switched on occurs here; drawn towards no."""
        return kind in self.kinds and self.below(denominator) >= denominator - numerator

    def at(self, items: Sequence[object]) -> int:
        """A place in a sequence that is not empty."""
        return self.below(len(items))

    def below(self, bound: int) -> int:
        """A number from 0 to `bound` - 1."""
        return self.draw(_below(bound))

    def one_of(self, items: Sequence[T]) -> T:
        """One of some items, drawn towards the first."""
        return items[self.at(items)]

    def text(self) -> str:
        """A text in some script, long now and then."""
        text = self.one_of(TEXTS if "scripts" in self.kinds else ASCII_TEXTS)
        return "\n".join([text] * self.one_of((20, 100))) if self.some("long", 1, 8) else text

    def message_id(self) -> str | None:
        """A new message id, or none."""
        self.messages += 1
        return None if self.some("missing_message_ids", 1, 6) else f"m{self.messages - 1}"

    def turn(self, *, last: bool) -> list[BaseMessage]:
        """A human message, rounds, and an answer, which the last turn may still lack."""
        out: list[BaseMessage] = [self.human()]
        if self.some("system", 1, 8):
            out.append(SystemMessage(self.text(), id=self.message_id()))
        for _ in range(self.below(4)):
            out += self.rounds()
        open_end = last and len(out) > 1 and self.draw(st.booleans())
        if not open_end:
            out.append(self.answer([], empty=self.some("empty", 1, 8)))
        return out

    def human(self) -> HumanMessage:
        """A human message, with pictures or files now and then."""
        if self.some("empty", 1, 12):
            return HumanMessage(self.one_of(("", "  \n")), id=self.message_id())
        if not self.some("media", 1, 5):
            return HumanMessage(self.text(), id=self.message_id())
        parts: list[Part] = [{"type": "text", "text": self.text()}, dict(self.one_of(HUMAN_MEDIA))]
        if self.some("empty", 1, 4):
            parts.append({"type": "text", "text": ""})
        return HumanMessage(list(parts), id=self.message_id())

    def rounds(self) -> list[BaseMessage]:
        """An AI message with calls and its results; with `interleaved`, two of them with their results mixed."""
        first, results = self.round()
        if not self.some("interleaved", 1, 8):
            if self.some("human_results", 1, 10):
                return [first, _as_human(results, self.message_id())]
            return [first, *results]
        second, more = self.round()
        return [first, second, *self.draw(st.permutations([*results, *more]))]

    def round(self) -> tuple[AIMessage, list[ToolMessage]]:
        """An AI message with one to four parallel calls, and their results in some order."""
        calls = [self.call() for _ in range(1 + self.below(4))]
        if len(calls) > 1 and self.some("duplicate_call_ids", 1, 8):
            calls[-1].id = calls[0].id
        message = self.answer(calls)
        results = [self.result(call) for call in calls if call.broken is None]
        return message, self.draw(st.permutations(results)) if len(results) > 1 else results

    def call(self) -> MadeCall:
        """A call of a file, shell, search or todo tool."""
        self.calls += 1
        call_id: str | None = f"call_{self.calls - 1}"
        if self.style != "gemini" and self.some("missing_call_ids", 1, 10):
            call_id = self.one_of(("", None))
        elif self.calls > 1 and self.some("reused_call_ids", 1, 6):
            call_id = f"call_{self.below(self.calls - 1)}"
        name, args = self.one_of(self.tools())
        broken = '{"path": "/a' if self.some("invalid_calls", 1, 10) else None
        return MadeCall(number=self.calls - 1, id=call_id, name=name, args=args, broken=broken)

    def tools(self) -> list[tuple[str, dict[str, object]]]:
        """The calls to choose from."""
        tools: list[tuple[str, dict[str, object]]] = [
            ("read_file", {"path": f"/src/module_{self.calls}.py", "limit": 100}),
            ("write_file", {"path": f"/notes/{self.calls}.md", "content": self.text()}),
            ("execute", {"command": f"pytest -q tests/test_{self.calls}.py"}),
            ("search", {"query": {"all": ["build", self.text()[:40]], "since": None}}),
        ]
        if "todos" in self.kinds:
            steps = [
                {"content": f"step {n}", "status": s} for n, s in enumerate(("completed", "in_progress", "pending"))
            ]
            tools.append(("write_todos", {"todos": steps}))
        return tools

    def result(self, call: MadeCall) -> ToolMessage:
        """A result: text, blocks, a picture, or an error."""
        content: str | list[Part] = self.text()
        if self.some("media", 1, 10):
            content = [{"type": "text", "text": "the page"}, dict(self.one_of(RESULT_MEDIA))]
        elif self.below(8) == 7:
            content = [{"type": "text", "text": content}]
        status = self.one_of(("success", "success", "success", "error"))
        return ToolMessage(
            list(content) if isinstance(content, list) else content,
            tool_call_id=call.id or "",
            name=call.name,
            status="error" if status == "error" else "success",
            id=self.message_id(),
        )

    def answer(self, calls: Sequence[MadeCall], *, empty: bool = False) -> AIMessage:
        """An AI message in the history's style: reasoning, a server tool, text, calls."""
        text = "" if empty or (calls and self.draw(st.booleans())) else self.text()
        reasons = not empty and self.some("reasoning", 1, 2)
        parts: list[Part] = []
        if reasons and self.style in ("anthropic", "responses", "gemini", "standard"):
            parts.append(self.thought())
        if not empty and self.some("server_tools", 1, 8):
            parts += self.server_tool()
        message = self._message(parts, text, calls)
        if reasons and self.style == "reasoning_content":
            message.additional_kwargs["reasoning_content"] = self.text()
        if self.style == "gemini" and calls:
            message.additional_kwargs[GEMINI_SIGNATURES] = {calls[0].id: _opaque(self.calls)}
        return message

    def thought(self) -> Part:
        """A reasoning block in the history's style."""
        number = self.messages
        match self.style:
            case "anthropic":
                if self.below(6) == 5:
                    return {"type": "redacted_thinking", "data": _opaque(number)}
                return {"type": "thinking", "thinking": self.text(), "signature": _opaque(number)}
            case "responses":
                return {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": _opaque(number)}
            case "gemini":
                return {"type": "thinking", "thinking": self.text(), "signature": _opaque(number)}
            case _:
                return {"type": "reasoning", "reasoning": self.text()}

    def server_tool(self) -> list[Part]:
        """A tool that the provider ran itself, with its result; nothing in styles without any."""
        number = self.messages
        if self.style == "anthropic":
            found = [
                {
                    "type": "web_search_result",
                    "url": "https://example.com",
                    "title": "t",
                    "encrypted_content": _opaque(0),
                }
            ]
            return [
                {"type": "server_tool_use", "id": f"srvtoolu_{number}", "name": "web_search", "input": {"query": "q"}},
                {"type": "web_search_tool_result", "tool_use_id": f"srvtoolu_{number}", "content": found},
            ]
        if self.style == "responses":
            search = {"type": "search", "query": "q"}
            return [{"type": "web_search_call", "id": f"ws_{number}", "status": "completed", "action": search}]
        return []

    def _message(self, parts: list[Part], text: str, calls: Sequence[MadeCall]) -> AIMessage:
        blocks = self.style in ("anthropic", "responses", "standard") and (parts or self.draw(st.booleans()))
        content: str | list[Part] = text
        if blocks or parts:
            content = [*parts]
            if text or (not calls and not parts):
                marked = {"id": f"msg_{self.messages}"} if self.style == "responses" else {}
                content.append({"type": "text", "text": text, **marked})
            elif not calls and parts:
                content.append({"type": "text", "text": "Done."})
            content += [self._block(call) for call in calls if call.broken is None] if blocks else []
        return AIMessage(
            content=list(content) if isinstance(content, list) else content,
            id=self.message_id(),
            tool_calls=[
                {"type": "tool_call", "id": c.id, "name": c.name, "args": c.args} for c in calls if c.broken is None
            ],
            invalid_tool_calls=[
                {"type": "invalid_tool_call", "id": c.id, "name": c.name, "args": c.broken, "error": "not JSON"}
                for c in calls
                if c.broken is not None
            ],
            response_metadata={"model_provider": _PROVIDERS[self.style], "stop_reason": "end_turn"},
        )

    def _block(self, call: MadeCall) -> Part:
        match self.style:
            case "anthropic":
                return {"type": "tool_use", "id": call.id, "name": call.name, "input": call.args}
            case "responses":
                arguments = json.dumps(call.args, ensure_ascii=False)
                item = {"type": "function_call", "id": f"fc_{call.number}", "call_id": call.id, "name": call.name}
                return {**item, "arguments": arguments, "status": "completed"}
            case _:
                return {"type": "tool_call", "id": call.id, "name": call.name, "args": call.args}


def _opaque(number: int) -> str:
    """Base64 that stands for a signature or an encrypted text."""
    return base64.b64encode(f"opaque {number}".encode()).decode()


def _as_human(results: Sequence[ToolMessage], identity: str | None) -> HumanMessage:
    """Results in a user turn, as Anthropic's own format has them."""
    return HumanMessage(
        [{"type": "tool_result", "tool_use_id": r.tool_call_id, "content": r.text} for r in results]
        or [{"type": "text", "text": "go on"}],
        id=identity,
    )
