"""Meters: the tokens and bytes of a message, counted once.

A `Meter` counts what a message costs inside a request: its text, its visible reasoning, its calls as the provider
spells them, its media, and the frame around it. Two kinds exist, with the same rules for everything that is not text:
one estimates text, one counts it with a tokenizer. Counts are kept per message object for as long as the object lives,
so that a model call costs O(new messages); a copy of a message counted before is found by content. A meter scaled by a
learned factor shares those counts.

Encrypted reasoning is not text: it counts as the tokens that the provider reported for it, or by a bounded rule. A call
that stands in `tool_calls` and again in the content is sent once and counted once.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final, Protocol, TypeAlias, cast
from weakref import finalize

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from refold.core.estimate import estimate_text
from refold.core.family import Family, family_of
from refold.core.media import encoded_bytes, media_tokens
from refold.core.messages import Block, Call, blocks_of, calls_of, content_hash
from refold.core.usage import read_usage
from refold.errors import ConfigurationError

Tool: TypeAlias = BaseTool | Mapping[str, object] | Callable[..., object] | type
"""What LangChain's `create_agent` passes on in `ModelRequest.tools`."""

LEAST_FACTOR: Final = 0.5
MOST_FACTOR: Final = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Count:
    """What a message or tool set costs: tokens of the context, bytes of the request body."""

    tokens: int
    bytes: int

    def __add__(self, other: "Count") -> "Count":
        return Count(tokens=self.tokens + other.tokens, bytes=self.bytes + other.bytes)


class Meter(Protocol):
    """Counts the tokens and bytes of messages, tools and text.

    Counting is deterministic and never fails, whatever is in a message. A message that was counted before costs a
    dictionary look-up, as long as its `content` is the same object; whoever edits a content list in place must pass a
    copy. `count_calls` says how many messages were really counted.
    """

    @property
    def count_calls(self) -> int: ...

    def count(self, message: BaseMessage) -> Count:
        """One message with its frame."""
        ...

    def count_tools(self, tools: Sequence[Tool]) -> Count:
        """The schemas of a tool set, counted once per set. `ConfigurationError` for what is no tool."""
        ...

    def count_text(self, text: str) -> int:
        """The tokens of a bare text. Not kept."""
        ...

    def scaled(self, factor: float) -> "Meter":
        """The same meter with tokens times `factor` (0.5 to 5), in place of any factor before; nothing is recounted."""
        ...


@dataclass(frozen=True, kw_only=True)
class _Frame:
    """Tokens around the parts of a message. `raw_arguments`: calls are sent as unescaped values, not as JSON."""

    message: int
    result: int
    call: int
    argument: int = 0
    raw_arguments: bool = False
    tools: int = 0


_OPENAI: Final = _Frame(message=4, result=10, call=10, tools=12)
_CLAUDE: Final = _Frame(message=4, result=12, call=40, argument=10, raw_arguments=True, tools=346)
_CHATML: Final = _Frame(message=5, result=9, call=14, tools=150)
_FRAMES: Final[Mapping[Family, _Frame]] = {
    # Results and Claude's calls: the constants left over in recorded sessions between exact tokenizers and the usage
    # that providers reported (12 per result up to Opus 4.6, 5 after, 10 for OpenAI; 34-52 per call and 6-14 per
    # argument). 346: Anthropic's documented prompt for tools. The rest: the models' public chat templates.
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

_ENCRYPTED: Final = frozenset(
    {"encrypted_content", "signature", "thought_signature", "thoughtSignature", "encrypted_index", "encrypted_stdout"}
)
"""Keys whose strings only the provider can read."""
_MOST_ENCRYPTED: Final = 16_384


@dataclass(frozen=True, kw_only=True)
class _Kept:
    content: object
    calls: object
    count: Count


@dataclass(frozen=True, kw_only=True)
class _ToolSet:
    tools: tuple[Tool, ...]
    count: Count


@dataclass(eq=False)
class _Counts:
    """What a meter has counted. A cache: losing it changes nothing but time."""

    by_object: dict[int, _Kept] = field(default_factory=dict)
    by_content: dict[str, Count] = field(default_factory=dict)
    tool_sets: list[_ToolSet] = field(default_factory=list)
    calls: int = 0

    MOST_CONTENTS: Final = 50_000
    MOST_TOOL_SETS: Final = 8


@dataclass(frozen=True, kw_only=True)
class _TextMeter:
    """Everything but the counting of text."""

    family: Family = "generic"
    factor: float = 1.0
    _counts: _Counts = field(default_factory=_Counts, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not LEAST_FACTOR <= self.factor <= MOST_FACTOR:
            raise ConfigurationError(f"factor is {self.factor}; a factor is between {LEAST_FACTOR} and {MOST_FACTOR}")

    @property
    def count_calls(self) -> int:
        return self._counts.calls

    def count(self, message: BaseMessage) -> Count:
        calls = message.tool_calls if isinstance(message, AIMessage) else None
        kept = self._counts.by_object.get(id(message))
        if kept is None or kept.content is not message.content or kept.calls is not calls:
            if kept is None:
                finalize(message, self._counts.by_object.pop, id(message), None).atexit = False
            kept = _Kept(content=message.content, calls=calls, count=self._by_content(message))
            self._counts.by_object[id(message)] = kept
        return self._scale(kept.count)

    def count_tools(self, tools: Sequence[Tool]) -> Count:
        sets = self._counts.tool_sets
        for known in sets:
            if len(known.tools) == len(tools) and all(a is b for a, b in zip(known.tools, tools, strict=True)):
                return self._scale(known.count)
        count = self._tools(tools)
        sets.append(_ToolSet(tools=tuple(tools), count=count))
        del sets[: -_Counts.MOST_TOOL_SETS]
        return self._scale(count)

    def count_text(self, text: str) -> int:
        return ceil(self._text(text) * self.factor)

    def _text(self, text: str) -> int:
        raise NotImplementedError

    def _scale(self, count: Count) -> Count:
        if self.factor == 1.0:
            return count
        return Count(tokens=ceil(count.tokens * self.factor), bytes=count.bytes)

    def _by_content(self, message: BaseMessage) -> Count:
        usage = read_usage(message)
        key = f"{content_hash(message)}:{usage.reasoning if usage is not None else 0}"
        contents = self._counts.by_content
        if (count := contents.get(key)) is None:
            self._counts.calls += 1
            count = self._message(message, usage.reasoning if usage is not None else 0)
            contents[key] = count
            if len(contents) > _Counts.MOST_CONTENTS:
                del contents[next(iter(contents))]
        return count

    # -- parts of a message -------------------------------------------------------------------------------------------

    def _message(self, message: BaseMessage, reasoning: int) -> Count:
        frame = _FRAMES[self.family]
        total = Count(tokens=frame.result if message.type == "tool" else frame.message, bytes=48)
        blocks = blocks_of(message)
        sealed = [block for block in blocks if block.kind == "reasoning" and _seal(block.raw)]
        for block in blocks:
            if block.kind == "call" or (reasoning and block in sealed):
                continue
            total += self._block(block)
        if reasoning and sealed:
            total += Count(tokens=reasoning, bytes=sum(_json_bytes(block.raw) for block in sealed))
        thought = message.additional_kwargs.get("reasoning_content")
        if isinstance(thought, str):
            total += self._plain(thought)
        for call in calls_of(message):
            total += self._call(call, frame)
        return total

    def _block(self, block: Block) -> Count:
        match block.kind:
            case "text":
                return self._plain(block.text)
            case "reasoning":
                seal = 0 if block.text else _sealed_tokens(_seal(block.raw))
                return Count(tokens=self._text(block.text) + seal, bytes=_json_bytes(block.raw))
            case "media":
                assert block.media is not None
                low = isinstance(block.raw, Mapping) and _low_detail(block.raw)
                tokens = media_tokens(block.media, family=self.family, low_detail=low)
                return Count(tokens=tokens, bytes=encoded_bytes(block.media))
            case "answer":
                return self._answer(block)
            case _:
                return self._opaque(block.raw)

    def _plain(self, text: str) -> Count:
        return Count(tokens=self._text(text), bytes=_text_bytes(text))

    def _answer(self, block: Block) -> Count:
        """A result inside a message: its content is text, or blocks again."""
        raw = cast("Mapping[str, object]", block.raw)
        content = next((raw[key] for key in ("content", "output") if key in raw), None)
        frame = Count(tokens=_FRAMES[self.family].result, bytes=96)
        if isinstance(content, str):
            return frame + self._plain(content)
        if not isinstance(content, list):
            return frame + self._opaque(raw)
        parts: list[str | dict[object, object]] = [part for part in content if isinstance(part, str | dict)]
        for part in blocks_of(HumanMessage(content=cast("list[str | dict[str, object]]", parts))):
            frame += self._block(part)
        return frame

    def _call(self, call: Call, frame: _Frame) -> Count:
        text = call.args if isinstance(call.args, str) else _json(call.args)
        size = _text_bytes(text) + len(call.name) + 96
        if frame.raw_arguments and not isinstance(call.args, str):
            leaves = _Leaves().read(call.args)
            tokens = self._text("\n".join(leaves.texts)) + frame.argument * len(call.args)
            return Count(tokens=frame.call + tokens, bytes=size)
        return Count(tokens=frame.call + self._text(call.name) + self._text(text), bytes=size)

    def _opaque(self, raw: object) -> Count:
        """A block of no known kind, a server tool's call or result: its readable strings, names included."""
        leaves = _Leaves(names=True).read(raw)
        tokens = self._text("\n".join(leaves.texts)) + sum(map(_sealed_tokens, leaves.sealed))
        return Count(tokens=tokens, bytes=_json_bytes(raw))

    # -- tools --------------------------------------------------------------------------------------------------------

    def _tools(self, tools: Sequence[Tool]) -> Count:
        if not tools:
            return Count(tokens=0, bytes=0)
        texts = [_json(_schema(tool)) for tool in tools]
        size = sum(len(text.encode("utf-8", "surrogatepass")) + 1 for text in texts)
        return Count(tokens=_FRAMES[self.family].tools + sum(map(self._text, texts)), bytes=size)


@dataclass(frozen=True, kw_only=True)
class EstimatingMeter(_TextMeter):
    """A meter that estimates text (see `estimate_text`).

    `upper_bound` is for hard limits: then each text is at its upper bound.

    >>> EstimatingMeter(family="claude3").count(HumanMessage("Read the file.")).tokens
    9
    """

    upper_bound: bool = False

    def _text(self, text: str) -> int:
        return estimate_text(text, family=self.family, upper_bound=self.upper_bound)

    def scaled(self, factor: float) -> "EstimatingMeter":
        return replace(self, factor=factor)


@dataclass(frozen=True, kw_only=True)
class ExactMeter(_TextMeter):
    """A meter that counts text with a tokenizer. `encode` returns the number of tokens; `family` decides the rest.

    `encode` gets at most `longest` characters at a time, since some tokenizers refuse long inputs or are quadratic in
    them; texts are cut where a word starts, which costs at most one token per piece.
    """

    encode: Callable[[str], int]
    longest: int = 50_000

    def _text(self, text: str) -> int:
        if len(text) <= self.longest:
            return self.encode(text)
        return sum(self.encode(piece) for piece in _pieces(text, self.longest))

    def scaled(self, factor: float) -> "ExactMeter":
        return replace(self, factor=factor)


def tokenizer_meter(model_name: str) -> Meter:
    """The best meter for a model by name: exact for OpenAI's when `bpe-openai` is installed (the extra `tokenizers`),
    else estimating."""
    family = family_of(model_name)
    if family not in ("o200k", "cl100k"):
        return EstimatingMeter(family=family)
    try:
        import bpe_openai  # type: ignore[import-untyped]
    except ImportError:
        return EstimatingMeter(family=family)
    encoding = bpe_openai.get_encoding(f"{family}_base")
    return ExactMeter(family=family, encode=lambda text: len(encoding.encode_ordinary(text)))


def learned_factor(reported: int, estimated: int) -> float:
    """What an estimate must be multiplied by to give what the provider reported, kept within 0.5 and 5.

    1 when either number is not positive: nothing was learned.
    """
    if reported <= 0 or estimated <= 0:
        return 1.0
    return min(MOST_FACTOR, max(LEAST_FACTOR, reported / estimated))


# -- helpers ----------------------------------------------------------------------------------------------------------


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
                    for name, item in mapping.items():
                        if name in _ENCRYPTED and isinstance(item, str):
                            self.sealed.append(item)
                            continue
                        if self.names:
                            self.texts.append(str(name))
                        waiting.append(item)
                case list() | tuple() as items:
                    waiting.extend(items)
                case None:
                    pass
                case other:
                    self.texts.append(str(other))
        return self


def _seal(raw: Mapping[str, object] | str) -> str:
    """The payload of a reasoning block that only the provider can read; empty when there is none."""
    if isinstance(raw, str):
        return ""
    inner = raw["value"] if isinstance(raw.get("value"), Mapping) else raw
    source = cast("Mapping[str, object]", inner)
    for key in ("encrypted_content", "data"):
        if isinstance(value := source.get(key), str):
            return value
    return ""


def _sealed_tokens(payload: str) -> int:
    """Encrypted text of unknown length: base64 of about 4 bytes per token, and never more than a long thought."""
    return min(_MOST_ENCRYPTED, len(payload) * 3 // 16)


def _low_detail(raw: Mapping[str, object]) -> bool:
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


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):  # keys that are no strings, a cycle, nesting without end
        return str(type(value))


def _json_bytes(value: object) -> int:
    return _text_bytes(value) if isinstance(value, str) else len(_json(value).encode("utf-8", "surrogatepass"))


def _text_bytes(text: str) -> int:
    """The bytes of a string in a JSON body: UTF-8, and one more for each character that is escaped."""
    plain = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return plain + text.count("\n") + text.count('"') + text.count("\\")


def _pieces(text: str, longest: int) -> list[str]:
    pieces: list[str] = []
    start = 0
    while len(text) - start > longest:
        stop = max(
            text.rfind(" ", start + longest // 2, start + longest),
            text.rfind("\n", start + longest // 2, start + longest),
        )
        stop = stop if stop > start else start + longest
        pieces.append(text[start:stop])
        start = stop
    return [*pieces, text[start:]]
