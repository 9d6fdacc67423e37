"""How content parts are spelled: which `type` of which provider stands for what.

The same thing has many spellings (a call is `tool_use`, `function_call`, `functionCall`; an image is `image`,
`image_url`, `input_image`, `inline_data`, ...). They are listed here; `refold.core.media_spellings` and
`refold.core.blocks` read what a part in a spelling holds, `refold.core.messages` reads a whole message. No other module
knows the spellings: everything else works on `Block`, `Call` and `Media`.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

BlockKind: TypeAlias = Literal[
    "text", "reasoning", "media", "call", "answer", "server_call", "server_result", "compaction", "opaque"
]
MediaKind: TypeAlias = Literal["image", "audio", "video", "file"]

_TEXT: Final = frozenset({"text", "output_text", "input_text", "text-plain", "refusal"})
_REASONING: Final = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content"})
_CALLS: Final = frozenset({"tool_use", "tool_call", "invalid_tool_call", "function_call", "custom_tool_call"})
NATIVE_CALLS: Final = frozenset({"computer_call", "local_shell_call", "shell_call", "apply_patch_call"})
"""Calls of OpenAI's own client-side tools: the client answers them, but LangChain never lifts them."""
_ANSWERS: Final = frozenset(
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
MEDIA: Final[Mapping[str, MediaKind]] = {
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
_SERVER_CALLS: Final = frozenset(
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
_SERVER_RESULTS: Final = frozenset({"server_tool_result", "mcp_tool_result", "code_execution_result"})


def spelling_of(raw: Mapping[str, object]) -> str:
    """The spelling of a part: the `type` that it declares, or the key that says as much."""
    return str(raw.get("type") or _untyped(raw))


def kind_of(spelling: str) -> BlockKind:
    """What a part in that spelling is."""
    if spelling in _TEXT:
        return "text"
    if spelling in _REASONING:
        return "reasoning"
    if spelling in MEDIA:
        return "media"
    if spelling in _CALLS or spelling in NATIVE_CALLS or spelling == "functionCall":
        return "call"
    if spelling in _ANSWERS or spelling == "functionResponse":
        return "answer"
    if spelling in _SERVER_CALLS:
        return "server_call"
    if spelling in _SERVER_RESULTS or spelling.endswith("_tool_result"):
        return "server_result"
    return "compaction" if spelling.startswith("compaction") else "opaque"


def string_of(value: object) -> str:
    """A field that should be a string; empty where it is none."""
    return value if isinstance(value, str) else ""


def _untyped(raw: Mapping[str, object]) -> str:
    """Parts of Gemini and of Bedrock's Converse carry no `type`: the one key that they have says what they are."""
    for key in ("functionCall", "functionResponse", "inline_data", "text"):
        if key in raw:
            return key
    for key in ("image", "video", "audio", "document"):
        if isinstance(inner := raw.get(key), Mapping) and isinstance(inner.get("source"), Mapping):
            return key
    return "inline_data" if "inlineData" in raw else "unknown"
