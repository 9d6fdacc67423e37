"""`repair="state"`: the repair of the log as an update of the state, in plain messages.

Most are removals and messages by id, or results at the end. Only where something must come into the middle is the log
written whole, behind one `RemoveMessage` for all: LangGraph's reducer and refold's both know it, and unlike `Overwrite`
it is a message, so it survives every JSON boundary (fault 79). A log without faults gives no update (fault 81).
"""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from langchain_core.messages import BaseMessage, RemoveMessage
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from refold.core.canonical import Json
from refold.core.project import project
from refold.core.repair.logged import CheckedLog, accepted_log, check_log, repaired_log

_MOST_THREADS: Final = 64


@dataclass(kw_only=True)
class LogRepair:
    """Repairs logs, and remembers up to where each thread's was without faults. Safe from several threads."""

    _checked: "OrderedDict[str, CheckedLog]" = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def update(
        self, thread: str, messages: Sequence[BaseMessage], folds: Sequence[Mapping[str, Json]]
    ) -> list[BaseMessage]:
        """What is to be written to `messages`; empty for a log without faults. The cost of that is of what is new."""
        with self._lock:
            known = self._checked.pop(thread, None)
        checked = check_log(messages, known=known)
        if checked is None:
            start = max((segment.stop for segment in project(messages, folds).segments), default=0)
            if update := log_update(messages, repaired_log(messages, start=start)):
                return update
            checked = accepted_log(messages)
        with self._lock:
            self._checked[thread] = checked
            while len(self._checked) > _MOST_THREADS:
                self._checked.popitem(last=False)
        return []


def log_update(before: Sequence[BaseMessage], after: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Messages that turn one log into another, in LangGraph's `add_messages` and in refold's reducer alike."""
    if list(before) == list(after):
        return []
    ids = [message.id for message in before]
    kept = {message.id for message in after}
    there = set(ids)
    new_ids = [message.id for message in after]
    plain = None not in there | kept and len(there) == len(ids) and len(kept) == len(new_ids)
    stay = [identity for identity in ids if identity in kept]
    if not plain or new_ids[: len(stay)] != stay:
        return [RemoveMessage(id=REMOVE_ALL_MESSAGES), *after]
    was = {message.id: message for message in before}
    gone: list[BaseMessage] = [RemoveMessage(id=str(identity)) for identity in ids if identity not in kept]
    return [*gone, *(message for message in after if was.get(message.id) != message)]
