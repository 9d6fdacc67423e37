"""Which log a piece of code is about: the name that caches and artifact paths go by."""

from collections.abc import Sequence

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig

from refold.core.messages import content_hash


def thread_name(config: RunnableConfig, messages: Sequence[BaseMessage]) -> str:
    """The name of a log: the thread id and, in a nested graph, its namespace.

    Without a checkpointer there is no thread id; the first message names the log then.
    """
    configurable = config.get("configurable", {})
    thread = configurable.get("thread_id")
    namespace = "|".join(str(configurable.get("checkpoint_ns") or "").split("|")[:-1])
    if thread is None:
        thread = f"run-{content_hash(messages[0])[:16]}" if messages else "run"
    return f"{thread}|{namespace}" if namespace else str(thread)


def child_thread_name(config: RunnableConfig, messages: Sequence[BaseMessage]) -> str:
    """The name that the log of a graph goes by in its own nodes, for the node or tool that runs it. `messages` are the
    child's."""
    configurable = config.get("configurable", {})
    inner = f"{configurable.get('checkpoint_ns') or ''}|"  # as in a node of the child, whose own part comes last
    return thread_name({"configurable": {**configurable, "checkpoint_ns": inner}}, messages)
