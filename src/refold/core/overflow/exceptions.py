"""Reading a refusal off an exception, whatever library raised it, and off what it was raised from."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from langchain_core.exceptions import ContextOverflowError as LangChainContextOverflowError
from langchain_core.exceptions import ModelRateLimitError, ModelTimeoutError

from refold.core.overflow.text import blames_something_else, parse_overflow_text, possible_overflow
from refold.core.overflow.value import Overflow
from refold.errors import ContextOverflowError

_DEEPEST: Final = 12
"""Causes that are followed. Chains of real errors are two to five long; a cycle ends here."""
_LONGEST_BODY: Final = 20_000
_UNREADABLE: Final = (AttributeError, RuntimeError, ValueError, TypeError, LookupError, OSError)
_BUGS: Final = (TypeError, AttributeError, LookupError, NameError, AssertionError, NotImplementedError)
"""Errors of a program's own; what happened to be handled when they arose is not why they arose."""
_ELSEWHERE: Final = (TimeoutError, ConnectionError, ModelRateLimitError, ModelTimeoutError)


def parse_overflow(error: BaseException, *, estimated_over: bool = False) -> Overflow | None:
    """What an exception says of a request that was too long, or None when it failed for another reason.

    Reads the exception, its body, response, code and status, then what it was raised from or while handling, and the
    members of a group. `ContextOverflowError` of LangChain (every provider's subclass, and refold's own) is always an
    overflow, also without numbers. An error in the middle of a stream is read the same way.

    Args:
        error: Any exception. One that ends a task (`CancelledError`, `KeyboardInterrupt`) is never an overflow.
        estimated_over: The caller's own count already said that the request does not fit. Only then are refusals that
            say nothing taken for one: LangChain's `ValueError("No generation chunks were returned")` for a stream that
            ended empty, and a 400 with no body.

    Never raises.
    """
    for link in _chain(error):
        refusal = _refusal(link)
        found = parse_overflow_text(refusal.text, status=refusal.status, code=refusal.code)
        if isinstance(link, ContextOverflowError):
            return Overflow(limit=link.limit, prompt=link.system + link.tools + link.messages)
        if isinstance(link, LangChainContextOverflowError):
            return found or _unnamed(link, refusal.text)
        if isinstance(link, _ELSEWHERE):
            return None
        if found is not None:
            return found
        if estimated_over and possible_overflow(refusal.text):
            return Overflow()
        if blames_something_else(refusal.text, status=refusal.status):
            return None
    return None


def refusals_in(error: BaseException) -> Iterator["Refusal"]:
    """What an exception and its causes say, nearest first. Never raises."""
    return (_refusal(link) for link in _chain(error))


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """The words, the HTTP status and the codes of one exception."""

    text: str
    status: int | None
    code: str | None


def _unnamed(error: BaseException, text: str) -> Overflow:
    """An error whose type says overflow in words that do not: its numbers are read all the same."""
    found = parse_overflow_text(text, code="context_length_exceeded")
    return found if found is not None else Overflow(unit="bytes" if _status(error) == 413 else "tokens")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception, then what caused it, nearest first; members of a group count as causes."""
    waiting: list[BaseException] = [error]
    seen: set[int] = set()
    while waiting and len(seen) < _DEEPEST:
        link = waiting.pop(0)
        if id(link) in seen or not isinstance(link, Exception | BaseExceptionGroup):
            continue
        seen.add(id(link))
        yield link
        if isinstance(link, BaseExceptionGroup):
            waiting.extend(link.exceptions)
        if link.__cause__ is not None:
            waiting.append(link.__cause__)
        elif link.__context__ is not None and not link.__suppress_context__ and not isinstance(link, _BUGS):
            waiting.append(link.__context__)


def _refusal(error: BaseException) -> Refusal:
    bodies = [_read(error, name) for name in ("body", "details", "response_body", "error")]
    response = _read(error, "response")
    bodies += [response] if isinstance(response, Mapping) else [_read(response, "text")]
    lines = [line for body in bodies for line in _lines(body)]
    message = _text(error)
    said = "\n".join(lines)[:_LONGEST_BODY]
    codes = [_read(error, "code"), _read(error, "type"), _read(error, "status"), type(error).__name__]
    return Refusal(
        text=said if message in said else f"{message}\n{said}" if said else message,
        status=_status(error),
        code=" ".join(code for code in codes if isinstance(code, str)) or None,
    )


def _status(error: BaseException) -> int | None:
    """The HTTP status, under any of the names that client libraries give it."""
    response = _read(error, "response")
    candidates = [_read(error, name) for name in ("status_code", "http_status", "code", "status")]
    if isinstance(response, Mapping):  # botocore
        metadata = response.get("ResponseMetadata")
        candidates.append(metadata.get("HTTPStatusCode") if isinstance(metadata, Mapping) else None)
    else:
        candidates.append(_read(response, "status_code"))
    for value in candidates:
        if isinstance(value, int) and not isinstance(value, bool) and 100 <= value <= 599:
            return int(value)
    return None


def _lines(body: object, depth: int = 0) -> Iterator[str]:
    """The texts and numbers of a body as `key: value` lines, so that fields such as `n_ctx` read like words."""
    if depth > 6:
        return
    if isinstance(body, bytes | bytearray):
        body = bytes(body[:_LONGEST_BODY]).decode("utf-8", "replace")
    if isinstance(body, str):
        parsed = _json(body)
        if parsed is None:
            yield body[:_LONGEST_BODY]
        else:
            yield from _lines(parsed, depth + 1)
    elif isinstance(body, Mapping):
        for key, value in list(body.items())[:64]:
            if isinstance(value, str) and _json(value) is None:
                yield f"{key}: {value}" if key != "message" else value
            elif isinstance(value, int) and not isinstance(value, bool):
                yield f"{key}: {value}"
            else:
                yield from _lines(value, depth + 1)
    elif isinstance(body, Sequence):
        for item in list(body)[:64]:
            yield from _lines(item, depth + 1)


def _json(text: str) -> Mapping[str, object] | Sequence[object] | None:
    """The JSON object or list that a text is, if it is one."""
    if text[:1] not in "{[" or len(text) > _LONGEST_BODY:
        return None
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, Mapping | list) else None


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except _UNREADABLE:  # a foreign __str__ may fail; its type and fields still speak
        return ""


def _read(owner: object, name: str) -> object:
    """A field of a foreign exception or response.

    Client libraries share no base class that declares these fields, and refold imports none of them, so they are read
    by name. A property that fails (a streamed response that was not read) is the same as an absent field. Methods are
    not called.
    """
    if owner is None:
        return None
    try:
        value: object = getattr(owner, name, None)
    except _UNREADABLE:
        return None
    return None if callable(value) else value
