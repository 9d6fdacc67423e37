"""Role messages (OpenAI chat, with Anthropic's blocks read too), one dialogue or many, in any wrapping.

Accepted: a message per line or in an array; a dialogue per line or element, as an array or as an object that holds it
under any key, with `tools` beside it; a request log (`body` or `request`, with the answer under `response`); a list of
growing turns (`turns: [{query, ground_truth}]`), of which each is read once, in its longest form.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.messages.ai import UsageMetadata

from refold.replay.fields import Skips, mapping, moment, sequence, string
from refold.replay.importers.assemble import CallIds, Draft, transcript_of
from refold.replay.importers.blocks import (
    BlockDict,
    Content,
    RecordedCall,
    as_text,
    block_of,
    compact_content,
    content_of,
    reply,
    result,
    text_block,
    tools_of,
    usage_of,
)
from refold.replay.importers.nesting import dialogues
from refold.replay.importers.source import Record, Source
from refold.replay.transcript import Transcript

NAME: Final = "openai-chat"
ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool", "function"})


def detect(sample: Sequence[object]) -> bool:
    """Whether messages with a role of the chat API are among the first values."""
    return any(_is_message(value) or next(_dialogues(value), None) is not None for value in sample)


def read(source: Source, skips: Skips) -> Iterator[Transcript]:
    """Every dialogue of the file. Messages on lines of their own make one dialogue."""
    loose: list[Record] = []
    context: Mapping[str, object] = {}
    for record in source.records(skips):
        if _is_message(record.value):
            loose.append(record)
            continue
        found = False
        for messages, holder in _dialogues(record.value):
            found = True
            yield _dialogue(messages, holder, name=source.name, skips=skips, line=record.line)
        if not found and tools_of(mapping(record.value).get("tools")):
            context = mapping(record.value)
        elif not found:
            skips.add("record without messages", record.line)
    if loose:
        yield _dialogue([record.value for record in loose], context, name=source.name, skips=skips, line=None)


def add_message(draft: Draft, value: object, calls: CallIds, skips: Skips, line: int | None = None) -> None:
    """Add one role message to a draft."""
    message = mapping(value)
    role = message.get("role")
    time = moment(message.get("timestamp") or message.get("created_at"))
    name = string(message.get("name"))
    identity = string(message.get("id"))
    match role:
        case "system" | "developer":
            extra = {"__openai_role__": "developer"} if role == "developer" else {}
            content = _langchain(content_of(message.get("content")))
            draft.add(SystemMessage(content=content, id=identity, additional_kwargs=extra), time=time)
        case "user":
            _add_user(draft, message, calls)
        case "assistant":
            draft.add(_assistant(message, calls), time=time)
        case "tool" | "function":
            recorded = message.get("tool_call_id") or next(iter(sequence(message.get("tool_call_ids"))), None)
            call_id = calls.answered(name, recorded)
            content = content_of(message.get("content"))
            draft.add(result(content=content, call_id=call_id, name=name, id=identity), time=time)
        case _:
            skips.add("message of an unknown role" if isinstance(value, dict) else "element that is no message", line)


def _dialogue(
    messages: Sequence[object], holder: Mapping[str, object], *, name: str, skips: Skips, line: int | None
) -> Transcript:
    draft, calls = Draft(), CallIds()
    body = mapping(holder.get("body")) or mapping(holder.get("request")) or holder
    for key in ("system", "instructions"):
        if text := "\n".join(_texts(body.get(key))):
            draft.system.append(text)
    draft.tools = tools_of(body.get("tools") or holder.get("tools")) or tools_of(body.get("functions"))
    draft.model = string(body.get("model")) or string(holder.get("model"))
    for message in messages:
        add_message(draft, message, calls, skips, line)
    if answer := _answer(holder):
        add_message(draft, answer, calls, skips, line)
    return transcript_of(draft, name=name, format=NAME)


def _dialogues(value: object) -> Iterator[tuple[Sequence[object], Mapping[str, object]]]:
    """(messages, the object that holds them) of every dialogue in a value."""
    if turns := sequence(mapping(value).get("turns")):
        yield from ((messages, mapping(value)) for messages in _longest_turns(turns))
    else:
        yield from dialogues(value, _is_message)


def _longest_turns(turns: Sequence[object]) -> Iterator[Sequence[object]]:
    """Turns repeat the dialogue so far; a turn that the next one begins with is not read twice."""
    queries = [sequence(mapping(turn).get("query")) for turn in turns]
    for at, (turn, query) in enumerate(zip(turns, queries, strict=True)):
        following = queries[at + 1] if at + 1 < len(queries) else ()
        if query and following[: len(query)] != query:
            truth = mapping(turn).get("ground_truth")
            yield [*query, truth] if _is_message(truth) else query


def _answer(holder: Mapping[str, object]) -> object:
    """The assistant message of a logged response, with its usage."""
    response = mapping(holder.get("response")) or holder
    body = mapping(response.get("body")) or response
    choice = mapping(next(iter(sequence(body.get("choices"))), None))
    message = choice.get("message") or body.get("message")
    if not _is_message(message):
        return None
    return {"usage": body.get("usage"), "model": body.get("model"), **mapping(message)}


def _is_message(value: object) -> bool:
    message = mapping(value)
    return string(message.get("role")) in ROLES and not message.keys().isdisjoint(
        {"content", "tool_calls", "function_call", "refusal", "audio"}
    )


def _add_user(draft: Draft, message: Mapping[str, object], calls: CallIds) -> None:
    """A user message; Anthropic's result blocks in it become results of their own, before the rest."""
    time = moment(message.get("timestamp") or message.get("created_at"))
    content = content_of(message.get("content"))
    rest: Content = content
    if isinstance(content, list):
        answers = [block for block in content if isinstance(block, dict) and block.get("type") == "tool_result"]
        rest = [block for block in content if block not in answers]
        for block in answers:
            call_id = calls.answered(None, block.get("tool_use_id"))
            failed = block.get("is_error") is True
            draft.add(result(content=content_of(block.get("content")), call_id=call_id, failed=failed), time=time)
        if answers and not rest:
            return
    name, identity = string(message.get("name")), string(message.get("id"))
    draft.add(HumanMessage(content=_langchain(rest), name=name, id=identity), time=time)


def _assistant(message: Mapping[str, object], ids: CallIds) -> AIMessage:
    blocks: list[BlockDict] = [
        *(block_of(block) for block in sequence(message.get("thinking_blocks"))),
        *_blocks(message.get("content")),
    ]
    if (refusal := string(message.get("refusal"))) is not None:
        blocks.append({"type": "refusal", "refusal": refusal})
    calls = [
        RecordedCall(id=ids.made(call.name, call.id), name=call.name, args=call.args)
        for call in [*recorded_calls(message), *(_block_call(b) for b in blocks if b.get("type") == "tool_use")]
    ]
    thoughts = string(message.get("reasoning_content")) or string(message.get("reasoning"))
    extra = {"reasoning_content": thoughts} if thoughts else {}
    return reply(
        content=compact_content([block for block in blocks if block.get("type") != "tool_use"]),
        calls=calls,
        id=string(message.get("id")),
        name=string(message.get("name")),
        usage=_usage(mapping(message.get("usage"))),
        model=string(message.get("model")),
        extra={**extra, **({"audio": audio} if (audio := mapping(message.get("audio"))) else {})},
    )


def recorded_calls(message: Mapping[str, object]) -> Iterator[RecordedCall]:
    """The calls of an assistant message: `tool_calls` in OpenAI's or LangChain's form, or the older `function_call`."""
    for value in sequence(message.get("tool_calls")):
        call = mapping(value)
        function = mapping(call.get("function")) or mapping(call.get("custom")) or call
        name = string(function.get("name")) or "unknown"
        args = next((function[key] for key in ("arguments", "args", "input") if key in function), None)
        if call.get("type") == "custom":
            args = {"input": args}
        yield RecordedCall(id=string(call.get("id")) or "", name=name, args=args)
    if legacy := mapping(message.get("function_call")):
        yield RecordedCall(id="", name=string(legacy.get("name")) or "unknown", args=legacy.get("arguments"))


def _block_call(block: BlockDict) -> RecordedCall:
    return RecordedCall(
        id=string(block.get("id")) or "", name=string(block.get("name")) or "unknown", args=block.get("input")
    )


def _usage(usage: Mapping[str, object]) -> UsageMetadata | None:
    prompt = mapping(usage.get("prompt_tokens_details"))
    completion = mapping(usage.get("completion_tokens_details"))
    return usage_of(
        input_tokens=usage.get("prompt_tokens"),
        output_tokens=usage.get("completion_tokens"),
        cache_read=prompt.get("cached_tokens"),
        reasoning=completion.get("reasoning_tokens"),
    )


def _blocks(value: object) -> list[BlockDict]:
    content = content_of(value)
    if isinstance(content, str):
        return [text_block(content)] if content else []
    return [text_block(part) if isinstance(part, str) else part for part in content]


def _texts(value: object) -> Iterator[str]:
    for block in _blocks(value):
        yield as_text(block.get("text") or "")


def _langchain(content: Content) -> str | list[str | dict[str, object]]:
    return content
