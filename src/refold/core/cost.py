"""What a message and a tool set cost inside a request, given a way to count text.

A provider does not see LangChain's message: it sees text in a frame, calls in its own spelling, media by its own rules.
This module is those rules; where the tokens of a text come from (an estimate, a tokenizer) is the caller's.

Encrypted reasoning is not text: it counts as the tokens that the provider reported for it, or by a bounded rule. A call
that stands in `tool_calls` and again in the content is sent once and counted once.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias, cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from refold.core.blocks import Block, blocks_of
from refold.core.family import Family
from refold.core.media import encoded_bytes, media_tokens
from refold.core.messages import Call, calls_of
from refold.core.usage import read_usage
from refold.errors import ConfigurationError

Tool: TypeAlias = BaseTool | Mapping[str, object] | Callable[..., object] | type
"""What LangChain's `create_agent` passes on in `ModelRequest.tools`."""

CountText: TypeAlias = Callable[[str], int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Count:
    """What a message or tool set costs: tokens of the context, bytes of the request body."""

    tokens: int
    bytes: int

    def __add__(self, other: "Count") -> "Count":
        return Count(tokens=self.tokens + other.tokens, bytes=self.bytes + other.bytes)


NOTHING: Final = Count(tokens=0, bytes=0)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Frame:
    """Tokens around the parts of a message. `raw_arguments`: calls are read as unescaped values, not as JSON."""

    message: int
    result: int
    call: int
    argument: int = 0
    raw_arguments: bool = False
    tools: int = 0


_OPENAI: Final = _Frame(message=4, result=10, call=10, tools=12)
_CLAUDE: Final = _Frame(message=4, result=12, call=42, argument=10, raw_arguments=True, tools=346)
_CHATML: Final = _Frame(message=5, result=9, call=14, tools=150)
_FRAMES: Final[Mapping[Family, _Frame]] = {
    # Results, and Claude's calls: what was left over in recorded sessions between exact tokenizers and the usage that
    # providers reported (12 per result up to Opus 4.6, 5 after, 10 for OpenAI; 34-52 per call and 6-14 per argument).
    # 346: the prompt for tools that Anthropic documents. 12 and 4: OpenAI's cookbook. The rest: public chat templates.
    "o200k": _OPENAI,
    "cl100k": _OPENAI,
    "claude3": _CLAUDE,
    "claude48": replace(_CLAUDE, result=5),
    "llama3": _CHATML,
    "qwen3": _CHATML,
    "qwen35": _CHATML,
    "deepseek": _CHATML,
    "mistral": _CHATML,
    "gemma": _CHATML,
    "generic": replace(_CHATML, result=10, call=20, argument=4),
}
_MESSAGE_BYTES: Final = 48
_BLOCK_BYTES: Final = 96
_ENCRYPTED: Final = frozenset(
    {"encrypted_content", "signature", "thought_signature", "thoughtSignature", "encrypted_index", "encrypted_stdout"}
)
"""Keys whose strings only the provider can read."""
_MOST_ENCRYPTED: Final = 16_384


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """The rules of one family over one way to count text."""

    family: Family
    text: CountText

    def message(self, message: BaseMessage) -> Count:
        """One message with its frame. Never fails, whatever is in it."""
        frame = _FRAMES[self.family]
        total = Count(tokens=frame.result if message.type == "tool" else frame.message, bytes=_MESSAGE_BYTES)
        total += self._content(blocks_of(message), reported_reasoning(message))
        thought = message.additional_kwargs.get("reasoning_content")
        if isinstance(thought, str):
            total += self._plain(thought)
        for call in calls_of(message):
            total += self._call(call)
        return total

    def tools(self, tools: Sequence[Tool]) -> Count:
        """The schemas of a tool set. Raises `ConfigurationError` for what no model could be given."""
        if not tools:
            return NOTHING
        schemas = [_schema(tool) for tool in tools]
        size = sum(json_bytes(schema) + 1 for schema in schemas)
        typed = self.family in ("o200k", "cl100k")
        tokens = sum(self._typed_tool(schema) if typed else self.text(to_json(schema)) for schema in schemas)
        return Count(tokens=_FRAMES[self.family].tools + tokens, bytes=size)

    # -- parts of a message -------------------------------------------------------------------------------------------

    def _content(self, blocks: Sequence[Block], reasoning: int) -> Count:
        total = NOTHING
        sealed = [block for block in blocks if block.kind == "reasoning" and _seal(block)]
        if reasoning and sealed:  # one number was reported for all of them
            total += Count(tokens=reasoning, bytes=sum(json_bytes(block.raw) for block in sealed))
        for block in blocks:
            if block.kind != "call" and not (reasoning and block in sealed):
                total += self._block(block)
        return total

    def _block(self, block: Block) -> Count:
        match block.kind:
            case "text":
                return self._plain(block.text)
            case "reasoning":
                tokens = self.text(block.text) if block.text else _sealed_tokens(_seal(block))
                return Count(tokens=tokens, bytes=json_bytes(block.raw))
            case "media" if block.media is not None:
                tokens = media_tokens(block.media, family=self.family, low_detail=_low_detail(block.raw))
                return Count(tokens=tokens, bytes=encoded_bytes(block.media))
            case "answer":
                return self._answer(cast("Mapping[str, object]", block.raw))
            case _:
                return self._opaque(block.raw)

    def _plain(self, text: str) -> Count:
        return Count(tokens=self.text(text), bytes=text_bytes(text))

    def _answer(self, raw: Mapping[str, object]) -> Count:
        """A result inside a message: its content is text, or blocks again."""
        frame = Count(tokens=_FRAMES[self.family].result, bytes=_BLOCK_BYTES)
        match next((raw[key] for key in ("content", "output") if key in raw), None):
            case str() as text:
                return frame + self._plain(text)
            case list() as parts:
                usable = [part for part in parts if isinstance(part, str | dict)]
                return frame + self._content(blocks_of(HumanMessage(content=usable)), 0)
            case _:
                return frame + self._opaque(raw)

    def _call(self, call: Call) -> Count:
        frame = _FRAMES[self.family]
        text = call.args if isinstance(call.args, str) else to_json(call.args)
        size = text_bytes(text) + len(call.name) + _BLOCK_BYTES
        if frame.raw_arguments and not isinstance(call.args, str):
            values = self.text("\n".join(_Leaves().read(call.args).texts))
            return Count(tokens=frame.call + frame.argument * len(call.args) + values, bytes=size)
        return Count(tokens=frame.call + self.text(call.name) + self.text(text), bytes=size)

    def _opaque(self, raw: object) -> Count:
        """A block of no known kind, a server tool's call or result: its readable strings, names included."""
        leaves = _Leaves(names=True).read(raw)
        tokens = self.text("\n".join(leaves.texts)) + sum(map(_sealed_tokens, leaves.sealed))
        return Count(tokens=tokens, bytes=json_bytes(raw))

    # -- tools --------------------------------------------------------------------------------------------------------

    def _typed_tool(self, schema: Mapping[str, object]) -> int:
        """OpenAI's cookbook, "How to count tokens with tiktoken": a tool is shown to the model as a typed function.

        7 per function, 3 for its parameters and 3 for each, 3 per enum value less 3. Nested objects count alike.
        """
        function = schema.get("function", schema)
        if not isinstance(function, Mapping) or "name" not in function:
            return self.text(to_json(schema))  # one of the provider's own tools
        parameters = function.get("parameters", function.get("input_schema"))
        line = f"{function['name']}:{function.get('description') or ''}"
        return 7 + self.text(line) + self._properties(parameters, depth=0)

    def _properties(self, schema: object, *, depth: int) -> int:
        if not isinstance(schema, Mapping) or depth > 12:  # deeper: a schema that refers to itself
            return 0
        properties = schema.get("properties")
        if not isinstance(properties, Mapping) or not properties:
            return self._properties(schema.get("items"), depth=depth + 1)
        tokens = 3
        for name, described in properties.items():
            kind = described if isinstance(described, Mapping) else {}
            tokens += 3 + self.text(f"{name}:{kind.get('type') or to_json(kind)}:{kind.get('description') or ''}")
            if isinstance(values := kind.get("enum"), list):
                tokens += sum(3 + self.text(str(value)) for value in values) - 3
            tokens += self._properties(kind, depth=depth + 1)
        return tokens


def reported_reasoning(message: BaseMessage) -> int:
    """The reasoning tokens that came with an answer; 0 when none were reported."""
    if not isinstance(message, AIMessage) or isinstance(message.content, str):
        return 0  # reasoning that is sealed stands in a block
    usage = read_usage(message)
    return usage.reasoning if usage is not None else 0


@dataclass(eq=False)
class _Leaves:
    """The strings and numbers at the leaves of a JSON-like value, apart from those that only the provider can read."""

    names: bool = False
    texts: list[str] = field(default_factory=list)
    sealed: list[str] = field(default_factory=list)

    def read(self, value: object) -> "_Leaves":
        waiting = [value]
        while waiting:  # not recursive: a value may be nested deeper than Python's stack
            match waiting.pop():
                case str() as text:
                    self.texts.append(text)
                case Mapping() as mapping:
                    waiting += self._items(mapping)
                case list() | tuple() as items:
                    waiting += reversed(items)
                case None:
                    pass
                case other:
                    self.texts.append(str(other))
        return self

    def _items(self, mapping: Mapping[object, object]) -> list[object]:
        readable: list[object] = []
        for name, item in mapping.items():
            if name in _ENCRYPTED and isinstance(item, str):
                self.sealed.append(item)
                continue
            if self.names:
                readable.append(str(name))
            readable.append(item)
        return readable[::-1]


def _seal(block: Block) -> str:
    """The payload of a reasoning block that only the provider can read; empty when there is none."""
    raw: object = block.raw
    if isinstance(raw, Mapping) and isinstance(raw.get("value"), Mapping):
        raw = raw["value"]
    if isinstance(raw, Mapping):
        for key in ("encrypted_content", "data"):
            if isinstance(value := raw.get(key), str):
                return value
    return ""


def _sealed_tokens(payload: str) -> int:
    """Encrypted text of unknown length: base64 of about 4 bytes per token, and never more than a long thought."""
    return min(_MOST_ENCRYPTED, len(payload) * 3 // 16)


def _low_detail(raw: Mapping[str, object] | str) -> bool:
    if isinstance(raw, str):
        return False
    nested = raw.get("image_url")
    return "low" in (raw.get("detail"), nested.get("detail") if isinstance(nested, Mapping) else None)


def _schema(tool: Tool) -> Mapping[str, object]:
    if isinstance(tool, Mapping):
        return tool
    try:
        return convert_to_openai_tool(tool)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{tool!r} is no tool that a model could be given; pass a LangChain tool, a function with a docstring, "
            "a pydantic class or a schema"
        ) from error


def to_json(value: object) -> str:
    """JSON as it stands in a request; what JSON cannot hold is written as its type."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):  # keys that are no strings, a cycle, nesting without end
        return str(type(value))


def json_bytes(value: object) -> int:
    """The bytes of a value in a JSON body."""
    if isinstance(value, str):
        return text_bytes(value)
    text = to_json(value)
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def text_bytes(text: str) -> int:
    """The bytes of a string in a JSON body: UTF-8, and one more for each character that is escaped."""
    plain = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return plain + text.count("\n") + text.count('"') + text.count("\\")
