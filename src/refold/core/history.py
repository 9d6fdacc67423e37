"""The archive of a span: every message, verbatim and whole, in Markdown that a reader can page and a program can parse.

    # refold history 1 {"thread": "t1", "sequence": 3, "messages": 2, "first": "m1", "last": "m2"}

    ## 1 human {"id": "m1", "parts": 1}

    ### text {}
    ```
    Fix the build.
    ```

    ## 2 ai {"id": "m2", "parts": 1}

    ### call {"id": "c1", "name": "bash"}
    ```
    {"command": "make"}
    ```

Each part stands between fences that are longer than any run of back-ticks in it, so no content can end it early; lines
end with `\\n` alone, so a `\\r` of the content stays where it is. Headings carry JSON on one line. `parse_history`
gives back exactly what was written. Inline media is a line with type, size and the path of the artifact that holds the
bytes.

An archive may begin with lines that say where older messages are, so that no message is archived twice:

    ## earlier {"path": "/history/t1/0002-9f.md", "first": "m0", "last": "m39", "messages": 40, "level": 0}

A text may hold lone surrogates (JSON can): encode the archive as UTF-8 with `surrogatepass`.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final, TypeAlias, cast

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from refold.core.artifacts import media_artifact
from refold.core.blocks import Block, blocks_of
from refold.core.canonical import Json
from refold.core.media_spellings import Media
from refold.core.messages import calls_of, is_record, role_of
from refold.errors import IntegrityError

HISTORY_VERSION: Final = 1

_TITLE: Final = "# refold history"
_TICKS: Final = re.compile(r"`+")
_TEXT_KEYS: Final = frozenset({"type", "text", "refusal"})
# Signatures and encrypted reasoning say nothing to a reader; the log keeps them for the provider.
_REASONING_KEYS: Final = frozenset(
    {"thinking", "reasoning", "text", "reasoning_content", "summary", "signature", "encrypted_content", "data"}
)
_EARLIER: Final = re.compile(r"## earlier (\{.*\})")
_MESSAGE: Final = re.compile(r"## (\d+) ([a-z]+) (\{.*\})")
_PART: Final = re.compile(r"### ([a-z_]+) (\{.*\})")

Attributes: TypeAlias = "Mapping[str, Json]"


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryPart:
    """One part of a message: `text`, `reasoning`, `call`, `answer`, `media`, `block` or `extra`.

    `text` is verbatim for text and reasoning, JSON for the others (a call's arguments are raw text where they were
    never valid, `attributes["valid"]` says so).
    """

    kind: str
    attributes: Attributes
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryEntry:
    """One message of an archive. `number` counts from 1; `role` is human, ai, tool, system, record or other."""

    number: int
    id: str | None
    role: str
    attributes: Attributes
    parts: tuple[HistoryPart, ...]

    @property
    def body(self) -> str:
        """The text of the message: its text parts, joined by line ends."""
        return "\n".join(part.text for part in self.parts if part.kind == "text")


@dataclass(frozen=True, kw_only=True, slots=True)
class Earlier:
    """Where older messages of a span are: a file, its first and last message, how many it leads to.

    At level 0 the file holds them; above, it is a list of files of the level below.
    """

    path: str
    first: str | None
    last: str | None
    messages: int
    level: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Contents:
    """What an archive says of itself: how many messages it holds, their ends, and where older ones are."""

    messages: int
    first: str | None
    last: str | None
    earlier: tuple[Earlier, ...]


def render_history(messages: Sequence[BaseMessage], *, thread: str, seq: int, earlier: Sequence[Earlier] = ()) -> str:
    """The archive of a span of a thread's log, the `seq`-th of the thread. Equal messages give equal text.

    `earlier` are the archives of the span's older messages, which are not written again.
    """
    ends = (messages[0].id, messages[-1].id) if messages else (None, None)
    title = {"thread": thread, "sequence": seq, "messages": len(messages), "first": ends[0], "last": ends[1]}
    sections = [f"{_TITLE} {HISTORY_VERSION} {_json(title)}\n"]
    sections += [f"## earlier {_json(asdict(one))}\n" for one in earlier]
    for number, message in enumerate(messages, start=1):
        role = "record" if is_record(message) else role_of(message)
        parts = tuple(_parts(message))
        sections.append(f"## {number} {role} {_json({**_heading(message), 'parts': len(parts)})}\n")
        sections += [_section(part) for part in parts]
    return "\n".join(sections)


def parse_history(text: str) -> tuple[HistoryEntry, ...]:
    """The messages of an archive. Raises `IntegrityError` for a text that `render_history` did not write whole."""
    lines = text.split("\n")
    declared = _declared(lines[0])["messages"]
    found: list[tuple[re.Match[str], list[HistoryPart]]] = []
    position = 1
    while position < len(lines):
        line = lines[position]
        if (heading := _MESSAGE.fullmatch(line)) is not None:
            found.append((heading, []))
            position += 1
        elif (heading := _PART.fullmatch(line)) is not None and found:
            body, position = _fenced(lines, position + 1)
            found[-1][1].append(HistoryPart(kind=heading[1], attributes=_attributes(heading[2]), text=body))
        elif line and not (_EARLIER.fullmatch(line) and not found):
            raise IntegrityError(
                f"line {position + 1} of the history is no heading: {line[:80]!r}; it was edited or cut"
            )
        else:
            position += 1
    if len(found) != declared:
        raise IntegrityError(f"the history says that it holds {declared} messages, and holds {len(found)}; it was cut")
    return tuple(_entry(heading, parts) for heading, parts in found)


def parse_contents(text: str) -> Contents:
    """What an archive holds, without its messages. Raises `IntegrityError` for what is no archive."""
    title, *lines = text.split("\n")
    declared = _declared(title)
    earlier: list[Earlier] = []
    for line in lines:
        found = _EARLIER.fullmatch(line)
        if found is not None:
            earlier.append(_earlier(_attributes(found[1])))
        elif line:
            break
    return Contents(
        messages=cast("int", declared["messages"]),
        first=_name(declared.get("first")),
        last=_name(declared.get("last")),
        earlier=tuple(earlier),
    )


def _earlier(raw: Attributes) -> Earlier:
    path, messages, level = raw.get("path"), raw.get("messages"), raw.get("level")
    if not isinstance(path, str) or not isinstance(messages, int) or not isinstance(level, int):
        raise IntegrityError(f"the history names an earlier one in an unknown way: {raw!r}")
    return Earlier(
        path=path, first=_name(raw.get("first")), last=_name(raw.get("last")), messages=messages, level=level
    )


def _name(value: Json) -> str | None:
    return value if isinstance(value, str) else None


def _heading(message: BaseMessage) -> dict[str, Json]:
    heading: dict[str, Json] = {"id": message.id}
    if message.name:
        heading["name"] = message.name
    if isinstance(message, ToolMessage):
        heading |= {"answers": message.tool_call_id, "status": message.status}
    return heading


def _parts(message: BaseMessage) -> Iterator[HistoryPart]:
    for block in blocks_of(message):
        yield from _block(block, lifted=isinstance(message, AIMessage))
    calls = calls_of(message)
    for call in calls:
        attributes: dict[str, Json] = {"id": call.id, "name": call.name}
        if not call.valid:
            attributes["valid"] = False
        arguments = call.args if isinstance(call.args, str) else _json(call.args)
        yield HistoryPart(kind="call", attributes=attributes, text=arguments)
    extra = dict(message.additional_kwargs)
    if isinstance(reasoning := extra.get("reasoning_content"), str):
        yield HistoryPart(kind="reasoning", attributes={"type": "reasoning_content"}, text=reasoning)
        del extra["reasoning_content"]
    if calls:  # the same calls again, as the provider spelled them
        extra.pop("tool_calls", None)
        extra.pop("function_call", None)
    if extra:
        yield HistoryPart(kind="extra", attributes={}, text=_json(extra))


def _block(block: Block, *, lifted: bool) -> Iterator[HistoryPart]:
    """`lifted`: calls of the message are written from `calls_of`, which reads these blocks as well."""
    match block.kind:
        case "text":
            yield HistoryPart(kind="text", attributes=_others(block.raw, _TEXT_KEYS), text=block.text)
        case "reasoning":
            yield HistoryPart(kind="reasoning", attributes=_others(block.raw, _REASONING_KEYS), text=block.text)
        case "media" if block.media is not None:
            yield HistoryPart(
                kind="media", attributes={"type": block.type}, text=_json(_referred(block.raw, block.media))
            )
        case "call" if lifted:
            return
        case _:
            kind = "answer" if block.kind == "answer" else "block"
            attributes: dict[str, Json] = {"type": block.type}
            if block.call_id is not None:
                attributes["call"] = block.call_id
            yield HistoryPart(kind=kind, attributes=attributes, text=_json(block.raw))


def _others(raw: Mapping[str, object] | str, shown: frozenset[str]) -> Attributes:
    """What a block holds besides what its part shows: annotations, citations, an index."""
    if isinstance(raw, str):
        return {}
    return cast("Attributes", {key: value for key, value in raw.items() if key not in shown})


def _referred(value: object, media: Media) -> object:
    """A media block with its payload replaced by where it is stored; everything else stays, and so does a payload that
    is no base64."""
    if isinstance(value, str) and media.data and media.data in value:
        artifact = media_artifact(media)
        return value if artifact is None else f"[{media.mime or media.kind}, {media.size} bytes: {artifact.path}]"
    if isinstance(value, Mapping):
        return {key: _referred(item, media) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_referred(item, media) for item in value]
    return value


def _section(part: HistoryPart) -> str:
    longest = max((len(run[0]) for run in _TICKS.finditer(part.text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"### {part.kind} {_json(part.attributes)}\n{fence}\n{part.text}\n{fence}\n"


def _json(value: object) -> str:
    """One line of JSON; what JSON cannot hold is written as its text."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError):  # keys that are no text, or a value that holds itself
        return json.dumps(str(value), ensure_ascii=False)


def _declared(line: str) -> Attributes:
    """The attributes of the title; `messages` is a number."""
    match = re.fullmatch(rf"{_TITLE} (\d+) (\{{.*\}})", line)
    if match is None:
        raise IntegrityError(f"this is no refold history: it begins with {line[:80]!r}")
    if int(match[1]) != HISTORY_VERSION:
        raise IntegrityError(
            f"the history has format {match[1]}; this refold reads format {HISTORY_VERSION}: upgrade it"
        )
    declared = _attributes(match[2])
    if not isinstance(declared.get("messages"), int):
        raise IntegrityError("the first line of the history does not say how many messages it holds")
    return declared


def _entry(heading: re.Match[str], parts: Sequence[HistoryPart]) -> HistoryEntry:
    attributes = _attributes(heading[3])
    if attributes.get("parts") != len(parts):
        raise IntegrityError(f"message {heading[1]} of the history does not hold the parts that it says; it was cut")
    return HistoryEntry(
        number=int(heading[1]),
        id=_name(attributes.get("id")),
        role=heading[2],
        attributes=attributes,
        parts=tuple(parts),
    )


def _fenced(lines: Sequence[str], position: int) -> tuple[str, int]:
    """The text between the fence at a line and its twin, and the line behind that."""
    fence = lines[position] if position < len(lines) else ""
    if not re.fullmatch("`{3,}", fence):
        raise IntegrityError(f"line {position + 1} of the history should open a part; it was edited or cut")
    for end in range(position + 1, len(lines)):
        if lines[end] == fence:
            return "\n".join(lines[position + 1 : end]), end + 1
    raise IntegrityError(f"the part that begins at line {position + 1} of the history has no end; it was cut")


def _attributes(text: str) -> Attributes:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise IntegrityError(f"a heading of the history is no JSON: {text[:80]!r}") from error
    return cast("Mapping[str, Json]", value)
