"""Reading a message in any spelling: text, blocks, media, calls, answers, and its content hash.

Providers and LangChain spell the same thing differently (a call is `tool_calls`, `tool_use`, `function_call`,
`functionCall`; an image is `image`, `image_url`, `input_image`, `inline_data`, ...). This module is the only place that
knows the spellings; everything else works on `Block`, `Call` and `Media`. It reads, and makes changed copies; it never
edits a message.
"""

import base64
import json
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, cast

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from refold.core.canonical import canonical_bytes, digest
from refold.core.per_message import PerMessage

BlockKind: TypeAlias = Literal[
    "text", "reasoning", "media", "call", "answer", "server_call", "server_result", "compaction", "opaque"
]
MediaKind: TypeAlias = Literal["image", "audio", "video", "file"]

REFOLD_KEY: Final = "refold"
"""The key in `additional_kwargs` under which refold marks the messages that it wrote."""

_TEXT = frozenset({"text", "output_text", "input_text", "text-plain", "refusal"})
_REASONING = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content"})
_CALLS = frozenset({"tool_use", "tool_call", "invalid_tool_call", "function_call", "custom_tool_call"})
_NATIVE_CALLS = frozenset({"computer_call", "local_shell_call", "shell_call", "apply_patch_call"})
"""Calls of OpenAI's own client-side tools: the client answers them, but LangChain never lifts them."""
_ANSWERS = frozenset(
    {
        "tool_result",
        "function_call_output",
        "custom_tool_call_output",
        "computer_call_output",
        "local_shell_call_output",
        "shell_call_output",
        "apply_patch_call_output",
    }
)
_MEDIA: Mapping[str, MediaKind] = {
    "image": "image",
    "image_url": "image",
    "input_image": "image",
    "audio": "audio",
    "input_audio": "audio",
    "video": "video",
    "video_url": "video",
    "file": "file",
    "input_file": "file",
    "document": "file",
    "media": "file",
    "inline_data": "file",
}
_SERVER_CALLS = frozenset(
    {
        "server_tool_use",
        "server_tool_call",
        "mcp_tool_use",
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_call",
        "mcp_list_tools",
        "mcp_approval_request",
        "executable_code",
    }
)
_SERVER_RESULTS = frozenset({"server_tool_result", "mcp_tool_result", "code_execution_result"})
_DATA_URL = re.compile(r"data:(?P<mime>[\w.+-]+/[\w.+-]+)?(?:;[\w=.+-]+)*?;base64,", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Media:
    """Inline or referenced media. `data` is base64 text; exactly one of data, url, file_id is usually set."""

    kind: MediaKind
    mime: str | None = None
    data: str | None = None
    url: str | None = None
    file_id: str | None = None

    @property
    def size(self) -> int:
        """Bytes of the decoded payload; 0 for a reference."""
        return 0 if self.data is None else len(self.data) * 3 // 4 - self.data[-2:].count("=")


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """One part of a message's content.

    `index` is its place in the content list (0 for plain string content). `text` is what the model reads of a text or
    reasoning block. `call_id` names the call that a call, answer or server block belongs to.
    """

    kind: BlockKind
    index: int
    type: str
    text: str = ""
    media: Media | None = None
    call_id: str | None = None
    raw: Mapping[str, object] | str


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A tool call that a model made. `args` are the parsed arguments, or the raw text where they do not parse.

    `id` is None where the server gave none (an empty id counts as none), `name` is empty where it gave no name.
    `block` is the index in the content of the block that spells the call too, None where only `tool_calls` has it;
    `lifted` says that `tool_calls` or `invalid_tool_calls` has it. `native` marks OpenAI's own client-side tools
    (computer, shell, patch), which LangChain never lifts.
    """

    id: str | None
    name: str
    args: Mapping[str, object] | str
    valid: bool
    block: int | None = None
    lifted: bool = True
    native: bool = False


def blocks_of(message: BaseMessage) -> tuple[Block, ...]:
    """The content of a message as blocks, in order, whatever the spelling. Read once per message object."""
    content = message.content
    if isinstance(content, str):
        return (Block(kind="text", index=0, type="text", text=content, raw=content),) if content else ()
    return _blocks(message)


_blocks = PerMessage(lambda message: tuple(_block(index, part) for index, part in enumerate(message.content)))


def text_of(message: BaseMessage) -> str:
    """The text of a message: its text blocks joined by newlines, without reasoning, calls or media."""
    if isinstance(message.content, str):
        return message.content
    return "\n".join(block.text for block in blocks_of(message) if block.kind == "text" and block.text)


def calls_of(message: BaseMessage) -> tuple[Call, ...]:
    """Every client-side call of an AI message, valid or not, in whatever spelling, each once.

    `tool_calls` come first, then `invalid_tool_calls`, then calls that stand only in the content (Anthropic
    `tool_use`, Responses `function_call`, Gemini `functionCall`, standard `tool_call`), which LangChain does not always
    lift. The n-th block with an id is the n-th lifted call with that id; more of them are calls of their own, so that
    duplicates show. Read once per message object.
    """
    if not isinstance(message, AIMessage) or (
        isinstance(message.content, str) and not message.tool_calls and not message.invalid_tool_calls
    ):
        return ()
    return _calls(message)


def _read_calls(message: BaseMessage) -> tuple[Call, ...]:
    if not isinstance(message, AIMessage):
        return ()
    calls = [Call(id=c.get("id") or None, name=c["name"], args=c["args"], valid=True) for c in message.tool_calls]
    calls += [
        Call(id=c.get("id") or None, name=c.get("name") or "", args=c.get("args") or "", valid=False)
        for c in message.invalid_tool_calls
    ]
    if isinstance(message.content, str):
        return tuple(calls)
    lifted: dict[str | None, deque[int]] = {}
    for number, call in enumerate(calls):
        lifted.setdefault(call.id, deque()).append(number)
    blocks = blocks_of(message)
    hosted = {block.call_id for block in blocks if block.kind == "answer"}  # run by the provider, answered in place
    for block in blocks:
        if block.kind != "call" or (block.call_id in hosted and block.type in _NATIVE_CALLS):
            continue
        if same := lifted.get(block.call_id):
            number = same.popleft()
            calls[number] = replace(calls[number], block=block.index)
        else:
            calls.append(_call_in_content(block))
    return tuple(calls)


_calls = PerMessage(_read_calls)


def unwrapped(block: Block) -> Mapping[str, object]:
    """The provider's own form of a block: a `non_standard` wrapper is opened, a bare string is a text block."""
    if isinstance(block.raw, str):
        return {"type": "text", "text": block.raw}
    inner = block.raw.get("value")
    if block.raw.get("type") == "non_standard" and isinstance(inner, Mapping):
        return cast("Mapping[str, object]", inner)
    return block.raw


def answers_of(message: BaseMessage) -> tuple[str, ...]:
    """The ids of the calls that a message answers: one for a `ToolMessage`, any number for result blocks of others. A
    result without an id counts as one with the empty id: servers without ids pair by order.

    An AI message answers nothing: results in it are of tools that the provider ran itself.
    """
    if isinstance(message, ToolMessage):
        return (message.tool_call_id,)
    if isinstance(message.content, str) or isinstance(message, AIMessage):
        return ()
    return tuple(b.call_id or "" for b in blocks_of(message) if b.kind == "answer")


def awaits_server_result(message: BaseMessage, block: Block) -> bool:
    """Whether a server-side call has its result in a block of its own, as Anthropic's tools have. OpenAI's carry it."""
    if block.type == "server_tool_call":
        return message.response_metadata.get("model_provider") == "anthropic"
    return block.type in ("server_tool_use", "mcp_tool_use")


def is_record(message: BaseMessage) -> bool:
    """Whether refold wrote the message into a window (a segment or STATE)."""
    return isinstance(message, HumanMessage) and REFOLD_KEY in message.additional_kwargs


def role_of(message: BaseMessage) -> Literal["system", "human", "ai", "tool", "other"]:
    """The role of a message, the same for a message and its streaming chunk."""
    match message:
        case SystemMessage():
            return "system"
        case HumanMessage():
            return "human"
        case AIMessage():
            return "ai"
        case ToolMessage():
            return "tool"
        case _:
            return "other"


def with_content(message: BaseMessage, content: str | Sequence[object]) -> BaseMessage:
    """A copy of a message with other content; every other field is kept."""
    return message.model_copy(update={"content": content if isinstance(content, str) else list(content)})


def content_hash(message: BaseMessage) -> str:
    """The hash of what a model sees of a message: 32 hex characters (BLAKE2b-128).

    Stable under key order; message ids, artifacts, usage and response metadata do not count. Computed once per message
    object.
    """
    return _hashes(message)


_hashes = PerMessage(lambda message: digest(canonical_bytes(_seen(message))))


def _seen(message: BaseMessage) -> Mapping[str, object]:
    seen: dict[str, object] = {
        "role": role_of(message) if role_of(message) != "other" else message.type,
        "content": message.content,
        "name": message.name,
        "extra": message.additional_kwargs,
    }
    if isinstance(message, AIMessage):
        seen["calls"] = [[c.get("id"), c["name"], c["args"]] for c in message.tool_calls]
        seen["invalid"] = [[c.get("id"), c.get("name"), c.get("args")] for c in message.invalid_tool_calls]
    if isinstance(message, ToolMessage):
        seen["answers"] = [message.tool_call_id, message.status]
    return seen


def _block(index: int, part: object) -> Block:
    if isinstance(part, str):
        return Block(kind="text", index=index, type="text", text=part, raw=part)
    raw = cast("Mapping[str, object]", part)
    kind = str(raw.get("type") or _untyped(raw))
    if kind == "non_standard" and isinstance(raw.get("value"), Mapping):
        inner = _block(index, raw["value"])
        return Block(
            kind=inner.kind, index=index, type=inner.type, text=inner.text, media=inner.media,
            call_id=inner.call_id, raw=raw,
        )  # fmt: skip
    if kind in _TEXT:
        return Block(kind="text", index=index, type=kind, text=_string(raw.get("text") or raw.get("refusal")), raw=raw)
    if kind in _REASONING:
        return Block(kind="reasoning", index=index, type=kind, text=_reasoning_text(raw), raw=raw)
    if kind in _MEDIA and (media := _media(kind, raw)) is not None:
        return Block(kind="media", index=index, type=kind, media=media, raw=raw)
    return Block(kind=_kind(kind), index=index, type=kind, call_id=_call_id(raw), raw=raw)


def _kind(kind: str) -> BlockKind:
    if kind in _CALLS or kind in _NATIVE_CALLS or kind == "functionCall":
        return "call"
    if kind in _ANSWERS or kind == "functionResponse":
        return "answer"
    if kind in _SERVER_CALLS:
        return "server_call"
    if kind in _SERVER_RESULTS or kind.endswith("_tool_result"):
        return "server_result"
    return "compaction" if kind.startswith("compaction") else "opaque"


def _untyped(raw: Mapping[str, object]) -> str:
    """Parts of Gemini and of Bedrock's Converse carry no `type`: the one key that they have says what they are."""
    for key in ("functionCall", "functionResponse", "inline_data", "text"):
        if key in raw:
            return key
    for key in ("image", "video", "audio", "document"):
        if isinstance(inner := raw.get(key), Mapping) and isinstance(inner.get("source"), Mapping):
            return key
    return "inline_data" if "inlineData" in raw else "unknown"


def _call_id(raw: Mapping[str, object]) -> str | None:
    inner = raw.get("functionCall") or raw.get("functionResponse")
    source = cast("Mapping[str, object]", inner) if isinstance(inner, Mapping) else raw
    for key in ("call_id", "tool_call_id", "tool_use_id", "id"):
        if isinstance(value := source.get(key), str) and value:
            return value
    return None


def _call_in_content(block: Block) -> Call:
    raw = unwrapped(block)
    source = cast("Mapping[str, object]", raw.get("functionCall") or raw)
    name = _string(source.get("name"))
    args, valid = _arguments(block.type, source)
    return Call(
        id=block.call_id,
        name=name or (block.type if block.type in _NATIVE_CALLS else ""),
        args=args,
        valid=valid,
        block=block.index,
        lifted=False,
        native=block.type in _NATIVE_CALLS,
    )


def _arguments(kind: str, source: Mapping[str, object]) -> tuple[Mapping[str, object] | str, bool]:
    """The arguments of a call in the content, and whether they parse to an object."""
    if kind in _NATIVE_CALLS:
        return {}, True
    args = next((source[key] for key in ("args", "input", "arguments") if source.get(key)), None)
    if args is None:  # a block of a stream that was cut off holds the text so far
        args = source.get("partial_json") or {}
    if kind == "custom_tool_call":  # free text by definition; LangChain's own name for it is `__arg1`
        return {"__arg1": args}, True
    if isinstance(args, Mapping):
        return cast("Mapping[str, object]", args), kind != "invalid_tool_call"
    if isinstance(args, str):
        parsed = _json_object(args)
        return (args, False) if parsed is None else (parsed, kind != "invalid_tool_call")
    return str(args), False


def _json_object(text: str) -> Mapping[str, object] | None:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _reasoning_text(raw: Mapping[str, object]) -> str:
    """The visible part of a reasoning block; encrypted and redacted parts have none."""
    for key in ("thinking", "reasoning", "text", "reasoning_content"):
        value = raw.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, Mapping):
            return _string(value.get("text"))
    summary = raw.get("summary")
    if isinstance(summary, Sequence) and not isinstance(summary, str):
        return "\n".join(_string(item.get("text")) for item in summary if isinstance(item, Mapping))
    return ""


def _media(kind: str, raw: Mapping[str, object]) -> Media | None:
    raw = _flat(kind, raw)
    mime = _string(raw.get("mime_type") or raw.get("media_type") or raw.get("mimeType")) or None
    nested = raw.get("image_url") or raw.get("source") or raw.get("input_audio") or raw.get("file")
    nested = nested or raw.get("video_url") or raw.get("inline_data") or raw.get("inlineData") or raw.get("file_data")
    fields: dict[str, object] = {**raw}
    if isinstance(nested, Mapping):
        fields = {**fields, **nested}
    elif isinstance(nested, str):
        fields["url"] = nested
    mime = mime or _string(fields.get("mime_type") or fields.get("media_type") or fields.get("mimeType")) or None
    data = next((payload for k in _PAYLOADS if (payload := _payload(fields.get(k)))), None)
    url = next((v for k in ("url", "file_url", "file_uri") if isinstance(v := fields.get(k), str) and v), None)
    file_id = _string(fields.get("file_id")) or None
    for value in (data, url):
        if value is not None and (match := _DATA_URL.match(value)) is not None:
            mime, data, url = match["mime"] or mime, value[match.end() :], None
            break
    if data is None and url is None and file_id is None:
        return None
    if mime is None and isinstance(audio := fields.get("format"), str):
        mime = f"audio/{audio}"
    return Media(kind=_media_kind(kind, mime), mime=mime, data=data, url=url, file_id=file_id)


def _flat(kind: str, raw: Mapping[str, object]) -> Mapping[str, object]:
    """A part of Bedrock's Converse as the others spell it; any other part as it is.

    `{"image": {"format": "png", "source": {"bytes": ...}}}`, where a source in S3 has a `uri` of its own.
    """
    inner = raw.get(kind)
    source = inner.get("source") if isinstance(inner, Mapping) else None
    if not isinstance(inner, Mapping) or not isinstance(source, Mapping):
        return raw
    form = _string(inner.get("format"))
    family = "application" if kind == "document" else kind
    mime = _CONVERSE_TEXT.get(form) or (f"{family}/{form}" if form else None)
    flat: dict[str, object] = {"type": kind, "mime_type": mime}
    if "bytes" in source:
        flat["data"] = source["bytes"]
    if isinstance(stored := source.get("s3Location"), Mapping):
        flat["url"] = stored.get("uri")
    return flat


_CONVERSE_TEXT: Final = {"txt": "text/plain", "md": "text/markdown", "csv": "text/csv", "html": "text/html"}


def medium_of(part: object) -> Media | None:
    """The medium that one part of a content is, in any spelling; None for anything else.

    Unlike `blocks_of` it also knows a medium whose payload is missing: its `data` is empty then.
    """
    if not isinstance(part, Mapping):
        return None
    raw = cast("Mapping[str, object]", part)
    kind = str(raw.get("type") or _untyped(raw))
    raw = _flat(kind, raw)
    source = raw.get("source")
    fields = {**raw, **source} if isinstance(source, Mapping) else raw
    if kind not in _MEDIA or fields.get("type") in ("text", "content"):
        return None  # Anthropic's documents of plain text and of blocks
    if (media := _media(kind, raw)) is not None:
        return media
    names = (*_PAYLOADS, "url", kind)
    empty = any(name in fields and not fields[name] for name in names) or any(
        isinstance(inner := raw.get(name), Mapping) and any(key in inner and not inner[key] for key in names)
        for name in ("image_url", "input_audio", "file", "video_url", "inline_data", "inlineData")
    )
    mime = _string(fields.get("mime_type") or fields.get("media_type")) or None
    return Media(kind=_media_kind(kind, mime), mime=mime, data="") if empty else None


_PAYLOADS: Final = ("base64", "data", "file_data")


def _payload(value: object) -> str:
    """A payload as base64 text; langchain-google-genai takes it as bytes too."""
    return base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else _string(value)


def _media_kind(kind: str, mime: str | None) -> MediaKind:
    declared = _MEDIA[kind]
    if declared == "file" and mime is not None:
        families: tuple[MediaKind, ...] = ("image", "audio", "video")
        for family in families:
            if mime.startswith(f"{family}/"):
                return family
    return declared


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""
