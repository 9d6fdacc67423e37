"""The summariser of a replay: it takes sentences out of what it is given. Deterministic, no model, no network.

It stands for a model's summary in length and kind (first sentences, decisions, what was called), so that a replay
shows what a fold costs and saves. A model's own summary would keep more of the sense and about as many of the facts.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from langchain_core.messages import BaseMessage

from refold.core.estimate import estimate_text
from refold.core.messages import calls_of, is_record, role_of, text_of
from refold.core.record import unescape_record

_WORDS: Final = re.compile(r"At most about (\d+) words")
_DEFAULT_WORDS: Final = 400
_TOKENS_PER_WORD: Final = 1.4
_SENTENCE: Final = re.compile(r"[^.!?。！？\n]+(?:[.!?。！？]+|\n|$)")
_DECISION: Final = re.compile(
    r"\b(decid|because|instead|root cause|fixed|the problem|conclu|therefore|we need|must|will use|chose|error)"
    r"|因为|所以|决定|必须|改为|原因|결정|때문|해야",
    re.IGNORECASE,
)
_PIECE: Final = re.compile(r"^\[(human|ai|tool|system|other)(?: [^\]\n]*)?\]$", re.MULTILINE)
_LONGEST: Final = 280


def summarise(messages: Sequence[BaseMessage]) -> str:
    """The summary that a request asks for: of the transcript in its last message, or of the messages before that."""
    asked = text_of(messages[-1]) if messages else ""
    found = _WORDS.search(asked)
    room = round((int(found[1]) if found else _DEFAULT_WORDS) * _TOKENS_PER_WORD)
    source = _pieces_of(asked)
    if not source:
        source = [_piece(message) for message in messages[:-1] if not is_record(message)]
    return _fitted(source, room) or "Nothing of note happened."


def _pieces_of(text: str) -> list[tuple[str, str]]:
    """(role, text) of the pieces of a transcript inside a request."""
    text = unescape_record(text)
    heads = list(_PIECE.finditer(text))
    ends = [head.start() for head in heads[1:]] + ([len(text)] if heads else [])
    return [(head[1], text[head.end() : end].strip()) for head, end in zip(heads, ends, strict=True)]


def _piece(message: BaseMessage) -> tuple[str, str]:
    calls = "\n".join(f"(calls {call.name})" for call in calls_of(message))
    return role_of(message), f"{text_of(message)}\n{calls}".strip()


def _fitted(source: Sequence[tuple[str, str]], room: int) -> str:
    """The best lines of the source in its order: decisions and user words first, then the newest, up to the room."""
    ranked: list[tuple[int, int, str]] = []
    for number, (role, text) in enumerate(source):
        sentences = [" ".join(s.split())[:_LONGEST] for s in _SENTENCE.findall(text[:20_000]) if len(s.strip()) > 3]
        if not sentences or role == "system":
            continue
        decided = [s for s in sentences[1:] if _DECISION.search(s)][:1] if role == "ai" else []
        ranked.append((0 if role == "human" else 2, -number, f"{role}: {sentences[0]}"))
        ranked += [(1, -number, f"{role}: {sentence}") for sentence in decided]
    taken: list[tuple[int, int, str]] = []
    used = 0
    for entry in sorted(ranked):
        cost = estimate_text(entry[2]) + 1
        if used + cost > room:
            break
        taken.append(entry)
        used += cost
    lines = [line for _, _, line in sorted(taken, key=lambda entry: (-entry[1], entry[0]))]
    return "\n".join([*lines[:1], *(line for before, line in pairwise(lines) if line != before)])
