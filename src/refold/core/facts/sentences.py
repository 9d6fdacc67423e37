"""What a human demanded, and what is still to do."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast

MAX_SENTENCE: Final = 400
"""Characters of a sentence that is kept whole; a longer one is kept by the clauses that hold the demand."""

_DEMAND: Final = re.compile(
    r"\b(?:must(?:n't)?|never|always|only"
    r"|(?:don'?t|do not)(?! (?:actually |really |even )?(?:have|know|remember|think|see|understand|care|mind|recall))"
    r"|should(?:n'?t| not)|shall not|(?<!\bI )(?:cannot|can'?t)|may not"
    r"|not allowed|required?|requires|forbidden|prohibited"
    r"|avoid|without|at (?:most|least)|no more than|make sure|ensure|instead of|prefer"
    r"|deadline|budget|limit(?:ed)?|exactly|under no circumstances|important"
    r"|nur|niemals|darf nicht|muss|nunca|siempre|debe|jamais|toujours)\b"
    r"|必须|必需|务必|一定要|不要|不能|不得|不可|不许|别再|千万别|禁止|严禁|只能|只要|只用|仅限|不准|应该|需要保证|确保|避免|至少|最多|不超过|切勿|请勿"
    r"|必須|禁止|してはいけない|してはならない|しないで|しなければ|なければなら|必ず|絶対に|のみ|だけ|ないでください|べき|以内|以下|以上"
    r"|반드시|절대|하지\s?마|하지\s?말|금지|해야\s?(?:합|한|해|함|됩|돼|만)|안\s?됩니다|안\s?돼|만\s?사용|이내|이하|이상|꼭",
    re.IGNORECASE,
)
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)\s+|(?<=[。！？!?；])|\n+")
_CLAUSE_END: Final = re.compile(r"(?<=[,;，；、])\s*")
_CHECKBOX: Final = re.compile(
    r"^[ \t>]{0,40}(?:[-*+]|\d{1,4}[.)])?[ \t]{0,8}\[([ xX✓✔~-])\][ \t]{1,8}([^\n]{2,400})", re.MULTILINE
)
_BOX: Final = re.compile(r"^[ \t]{0,40}[☐□◻☑✅✔][ \t]{0,8}([^\n]{2,400})", re.MULTILINE)
_MARKER: Final = re.compile(
    r"(?:^|[\s#/*({\[<!-])((?:TODO|FIXME|XXX|待办|待辦|残タスク|할 ?일)(?:\([\w.@ -]{1,40}\))?"
    r"\s{0,2}[:：][ \t]{0,4}[^\n]{3,300})",
    re.MULTILINE,
)
_TODO_KEYS: Final = ("todos", "todo_list", "plan", "tasks", "items", "newTodos")
_TODO_TOOL: Final = re.compile(r"todo|plan|task_?list|checklist", re.IGNORECASE)
_TITLES: Final = ("content", "step", "title", "task", "text", "description", "name")
_DONE: Final = frozenset({"completed", "complete", "done", "cancelled", "canceled", "closed", "skipped", "deleted"})


def constraints_in(text: str) -> Iterator[str]:
    """The sentences of a human's text that demand or forbid, verbatim but for white space."""
    for sentence in _SENTENCE_END.split(text):
        if not _DEMAND.search(sentence):
            continue
        whole = " ".join(sentence.split())
        if len(whole) <= MAX_SENTENCE:
            if len(whole) > 4 and not whole.endswith((":", "：")):
                yield whole.lstrip("-*•> ")
            continue
        for clause in _CLAUSE_END.split(whole):
            if 4 < len(clause) <= MAX_SENTENCE and _DEMAND.search(clause):
                yield clause


def todos_in(text: str) -> Iterator[tuple[str, bool]]:
    """(item, whether it is open) of every checklist entry and marker in a text, in order."""
    if "]" in text:
        for match in _CHECKBOX.finditer(text):
            yield todo_key(match[2]), match[1] == " "
    for match in _BOX.finditer(text):
        yield todo_key(match[1]), match[0].lstrip()[0] in "☐□◻"
    for match in _MARKER.finditer(text):
        yield todo_key(match[1]), True


def todos_in_call(name: str, args: Mapping[str, object] | str) -> tuple[tuple[str, bool], ...] | None:
    """The items of a todo list that a call writes (the whole list), or None when it writes none."""
    if isinstance(args, str) or not _TODO_TOOL.search(name):
        return None
    for key in _TODO_KEYS:
        value = args.get(key)
        if isinstance(value, Sequence) and not isinstance(value, str | bytes):
            return tuple(item for entry in cast("Sequence[object]", value) if (item := _item(entry)) is not None)
    return None


def todo_key(item: str) -> str:
    """The form by which a todo item is known: without emphasis and trailing comment marks, white space squeezed."""
    return re.sub(r"\s*(?:\*/|-->)$", "", " ".join(item.replace("**", "").split()))


def _item(entry: object) -> tuple[str, bool] | None:
    if isinstance(entry, str):
        return (todo_key(entry), True) if entry.strip() else None
    if not isinstance(entry, Mapping):
        return None
    fields = cast("Mapping[str, object]", entry)
    title = next((value for key in _TITLES if isinstance(value := fields.get(key), str) and value.strip()), None)
    if title is None:
        return None
    return todo_key(title)[:MAX_SENTENCE], str(fields.get("status", "pending")).lower() not in _DONE
