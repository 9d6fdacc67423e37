"""The facts of a span of messages."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from langchain_core.messages import BaseMessage

from refold.core.blocks import blocks_of
from refold.core.facts.commands import command_key, commands_in_call
from refold.core.facts.index import index_hits
from refold.core.facts.model import Fact, FactClass, Hit, Origin
from refold.core.facts.scan import Scanner, key_of
from refold.core.facts.sentences import todos_in, todos_in_call
from refold.core.facts.words import words
from refold.core.messages import calls_of, is_record, role_of
from refold.core.record import unescape_record

_UNREAD_KEYS: Final = frozenset(
    {"type", "id", "tool_use_id", "tool_call_id", "call_id", "status", "mime_type", "media_type"}
)
MAX_LEAVES: Final = 100_000
"""Values read of one call's arguments or one structured block; more are data, not facts."""

_PATH_KEYS: Final = words(
    """
    path file_path filepath file filename file_name dir directory cwd workdir working_directory root target_file
    target_path notebook_path source destination src dst output_path input_path absolute_path relative_path folder
    """
)


@dataclass(kw_only=True, slots=True)
class _Seen:
    """What is known of one fact while a span is read."""

    text: str
    context: str
    ids: list[str] = field(default_factory=list)
    count: int = 0
    last_index: int = -1
    open: bool = True


def extract_facts(messages: Sequence[BaseMessage]) -> tuple[Fact, ...]:
    """The facts of a span, each once, in order of first appearance; linear in the size of the span.

    Read are texts, tool results in any block, and the arguments of tool calls at any depth. Reasoning is not: what it
    holds is either said again or was not meant to be kept. A todo item counts while the last list or checklist that
    names it leaves it open. Records that refold wrote give back the facts of their indexes, except constraints: a model
    wrote the text around them and could forge one, so demands are taken from the human's own messages alone.
    """
    seen: dict[tuple[FactClass, str], _Seen] = {}
    listed: set[str] = set()
    scanner = Scanner()
    for index, message in enumerate(messages):
        message_id = message.id or f"#{index}"
        for hit in _hits_of(message, scanner):
            _note(seen, hit, index=index, message_id=message_id)
        for items, is_whole_list in _todos_of(message):
            for item, is_open in items:
                entry = _note(seen, Hit(cls=FactClass.TODO, text=item), index=index, message_id=message_id)
                entry.open = is_open
            if is_whole_list:
                now = {key_of(FactClass.TODO, item) for item, _ in items}
                for gone in listed - now:
                    seen[FactClass.TODO, gone].open = False
                listed = now
    return tuple(
        Fact(
            cls=cls,
            text=entry.text,
            message_ids=tuple(entry.ids),
            count=entry.count,
            last_index=entry.last_index,
            context=entry.context,
        )
        for (cls, _), entry in seen.items()
        if entry.open
    )


def _note(seen: dict[tuple[FactClass, str], _Seen], hit: Hit, *, index: int, message_id: str) -> _Seen:
    key = (hit.cls, key_of(hit.cls, hit.text))
    entry = seen.get(key)
    if entry is None:
        entry = seen[key] = _Seen(text=hit.text, context=hit.context)
    entry.count += 1
    if entry.last_index != index:
        entry.last_index = index
        entry.ids.append(message_id)
    if not entry.context:
        entry.context = hit.context
    return entry


def _hits_of(message: BaseMessage, scanner: Scanner) -> Iterator[Hit]:
    origin = _origin(message)
    for text, of_tool in _texts(message):
        if is_record(message):
            plain = unescape_record(text)
            yield from (hit for hit in index_hits(plain) if hit.cls is not FactClass.CONSTRAINT)
            yield from scanner.hits(plain, "ai")
        else:
            yield from scanner.hits(text, "tool" if of_tool else origin)
    for call in calls_of(message):
        for command in commands_in_call(call.name, call.args):
            yield Hit(cls=FactClass.COMMAND, text=command_key(command))
        for key, leaf in _leaves(call.args):
            if key in _PATH_KEYS and _is_whole_path(leaf):
                yield Hit(cls=FactClass.PATH, text=leaf.strip())
            else:
                yield from scanner.hits(leaf, "ai")


def _todos_of(message: BaseMessage) -> Iterator[tuple[Sequence[tuple[str, bool]], bool]]:
    """(items, whether they are the whole list) of each list that a message holds."""
    for text, _ in _texts(message):
        if items := tuple(todos_in(text)):
            yield items, False
    for call in calls_of(message):
        if (whole := todos_in_call(call.name, call.args)) is not None:
            yield whole, True


def _origin(message: BaseMessage) -> Origin:
    match role_of(message):
        case "human":
            return "human"
        case "tool":
            return "tool"
        case "ai" | "system" | "other":
            return "ai"


def _texts(message: BaseMessage) -> Iterator[tuple[str, bool]]:
    """(text, whether a tool wrote it although the message is not a tool's)."""
    for block in blocks_of(message):
        match block.kind:
            case "text":
                yield block.text, False
            case "answer" | "server_result":
                for key, leaf in _leaves(block.raw):
                    if key not in _UNREAD_KEYS:
                        yield leaf, True
            case "server_call":
                for key, leaf in _leaves(block.raw):
                    if key not in _UNREAD_KEYS:
                        yield leaf, False
            case "reasoning" | "media" | "call" | "compaction" | "opaque":
                pass


def _leaves(value: object) -> Iterator[tuple[str, str]]:
    """(nearest key, text) of every text inside a value, in order, without recursion."""
    stack: list[tuple[str, object]] = [("", value)]
    for _ in range(MAX_LEAVES):
        if not stack:
            return
        key, item = stack.pop()
        if isinstance(item, str):
            yield key, item
        elif isinstance(item, Mapping):
            fields = cast("Mapping[str, object]", item)
            stack.extend((str(name), fields[name]) for name in reversed(list(fields)))
        elif isinstance(item, Sequence) and not isinstance(item, bytes | bytearray):
            stack.extend((key, part) for part in reversed(cast("Sequence[object]", item)))


def _is_whole_path(leaf: str) -> bool:
    text = leaf.strip()
    return 1 < len(text) <= 400 and "\n" not in text and "://" not in text and any(char in text for char in "/\\.")
