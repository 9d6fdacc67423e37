"""The measurements. Each runs in a process of its own, forked after the imports, so that no cache or heap of one
measurement serves the next; what it returns is plain JSON."""

import json
import multiprocessing
import resource
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from math import inf
from statistics import median
from time import perf_counter
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from benchmarks.checkpoint import agents
from benchmarks.checkpoint.stores import SPANS, Store
from benchmarks.checkpoint.traffic import Traffic

Row = dict[str, Any]
THREAD = "thread"
WINDOW = 20  # steps whose median is "the time of a step" at a place


def in_process(work: Callable[..., Row], *arguments: object) -> Row:
    """Runs `work` in a forked child and returns its result; raises `RuntimeError` with its traceback."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def child() -> None:
        try:
            sender.send((True, json.dumps(work(*arguments))))
        except BaseException:  # noqa: BLE001 - reported to the parent as text, then the process ends
            sender.send((False, traceback.format_exc()))

    process = context.Process(target=child)
    process.start()
    sender.close()
    try:
        ok, payload = receiver.recv()
    except EOFError:
        ok, payload = False, "the process died"
    process.join()
    if not ok:
        raise RuntimeError(payload)
    row: Row = json.loads(payload)
    return row


def raw_bytes(messages: list[BaseMessage]) -> int:
    """The raw log: each message serialised once."""
    serde = JsonPlusSerializer()
    return sum(len(serde.dumps_typed(message)[1]) for message in messages)


@contextmanager
def _agent(
    store: Store, target: str, build: agents.Build, model: agents.ScriptedModel
) -> Iterator[tuple[Any, BaseCheckpointSaver[Any] | None]]:
    with store.open(target) as saver:
        yield build(model, saver), saver


def grow(store: Store, target: str, graph: str, messages: int) -> Row:
    """One long run of `messages` messages: bytes, time of a step near 100 messages and at the end, saver time."""
    traffic = Traffic()
    model = agents.ScriptedModel(traffic=traffic, steps=(messages - 2) // 2)
    traffic.result(messages // 2)
    question = HumanMessage(traffic.question(0), id="question-0")
    with _agent(store, target, agents.GRAPHS[graph], model) as (agent, saver):
        durability = None if saver is None else "sync"
        state = agent.invoke({"messages": [question]}, agents.config_of(THREAD), durability=durability)
    assert len(state["messages"]) == messages, len(state["messages"])
    raw = raw_bytes(state["messages"])
    size = store.size(target)
    at_100 = slice(max(0, 50 - WINDOW // 2), 50 + WINDOW // 2) if len(model.times) > 70 else slice(-WINDOW - 1, None)
    return {
        "messages": messages,
        "raw": raw,
        "bytes": size,
        "ratio": size / raw,
        **_costs(model.times[at_100], "start"),
        **_costs(model.times[-WINDOW - 1 :], "end"),
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _costs(times: list[tuple[float, float]], name: str) -> Row:
    """Over the steps between some model calls: median of a step, and what `put` and `put_writes` took of it on average.

    Calls overlap and wait for each other: `saver` is the time in which at least one ran, `calls` the sum of all.
    CPU time hardly depends on what else the machine does; the clock does.
    """
    count = len(times) - 1
    steps = [(after - before, cpu_after - cpu_before) for (before, cpu_before), (after, cpu_after) in pairwise(times)]
    spans = [span for span in SPANS if times[0][0] < span[0] <= times[-1][0]]
    return {
        f"step_ms_{name}": 1000 * median(took for took, _ in steps),
        f"step_cpu_ms_{name}": 1000 * median(cpu for _, cpu in steps),
        f"saver_ms_{name}": 1000 * _covered((end - took, end) for end, took, _ in spans) / count,
        f"calls_ms_{name}": 1000 * sum(took for _, took, _ in spans) / count,
        f"saver_cpu_ms_{name}": 1000 * sum(cpu for _, _, cpu in spans) / count,
    }


def _covered(intervals: Iterable[tuple[float, float]]) -> float:
    """The length of the union of some intervals."""
    covered, upto = 0.0, -inf
    for start, end in sorted(intervals):
        covered += max(0.0, end - max(start, upto))
        upto = max(upto, end)
    return covered


def read(store: Store, target: str, graph: str) -> Row:
    """Reading back: the latest state and ten steps of history, by a saver just opened and again by the same one."""
    cold, warm, history, history_warm = [], [], [], []
    config = agents.config_of(THREAD)
    for _ in range(5):
        with _agent(store, target, agents.GRAPHS[graph], agents.ScriptedModel(traffic=Traffic(), steps=1)) as (
            agent,
            saver,
        ):
            saver.get_tuple(agents.config_of("none"))  # the connection is open and set up
            cold.append(_clock(lambda agent=agent: agent.get_state(config)))
            warm.append(_clock(lambda agent=agent: agent.get_state(config)))
        with _agent(store, target, agents.GRAPHS[graph], agents.ScriptedModel(traffic=Traffic(), steps=1)) as (
            agent,
            saver,
        ):
            saver.get_tuple(agents.config_of("none"))
            history.append(_clock(lambda agent=agent: list(agent.get_state_history(config, limit=10))))
            history_warm.append(_clock(lambda agent=agent: list(agent.get_state_history(config, limit=10))))
    return {
        "get_state_ms": median(cold),
        "get_state_again_ms": median(warm),
        "history10_ms": median(history),
        "history10_again_ms": median(history_warm),
        "rss_read_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _clock(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return 1000 * (perf_counter() - start)


def fork(store: Store, target: str, graph: str) -> Row:
    """Forks from the middle of the thread on, each adding one short message: bytes of one.

    So many of them that the pages by which a database grows do not count.
    """
    before = store.size(target)
    with _agent(store, target, agents.GRAPHS[graph], agents.ScriptedModel(traffic=Traffic(), steps=1)) as (
        agent,
        saver,
    ):
        listed = list(saver.list({"configurable": {"thread_id": THREAD, "checkpoint_ns": ""}}, limit=400))
        middle = listed[len(listed) // 2 :][:100]
        for at, point in enumerate(middle):
            message = HumanMessage("another way", id=f"fork-{at}")
            agent.update_state(point.config, {"messages": [message]}, as_node="__start__")
    return {"fork_bytes": (store.size(target) - before) / len(middle)}


def copy(store: Store, target: str) -> Row:
    """`copy_thread`: bytes of the copy."""
    before = store.size(target)
    with store.open(target) as saver:
        saver.copy_thread(THREAD, "copy")
    return {"copy_bytes": store.size(target) - before}


def compact(store: Store, target: str) -> Row:
    """`compact`: the size afterwards, and that the state is still there."""
    with store.open(target) as saver:
        before = saver.get_tuple(agents.config_of(THREAD))
        took = _clock(saver.compact)  # type: ignore[attr-defined]
        after = saver.get_tuple(agents.config_of(THREAD))
        assert before is not None
        assert after is not None
        assert before.checkpoint == after.checkpoint
    return {"compact_bytes": store.size(target), "compact_ms": took}


def turn(store: Store, target: str, graph: str, number: int, steps: int) -> Row:
    """One turn of a long conversation in a new process, as a web worker has it."""
    traffic = Traffic()
    first = number * (steps + 1)
    traffic.result(first + steps)
    model = agents.ScriptedModel(traffic=traffic, steps=steps, first=first)
    question = HumanMessage(traffic.question(number), id=f"question-{number}")
    start = perf_counter()
    with _agent(store, target, agents.GRAPHS[graph], model) as (agent, _):
        state = agent.invoke({"messages": [question]}, agents.config_of(THREAD), durability="sync")
    took = 1000 * (perf_counter() - start)
    return {"ms": took, "messages": len(state["messages"]), "raw": raw_bytes(state["messages"])}


def turns(store: Store, target: str, graph: str, count: int, steps: int) -> Row:
    """Many turns, each in a process of its own."""
    rows = [in_process(turn, store, target, graph, number, steps) for number in range(count)]
    size = store.size(target)
    return {
        "turns": count,
        "messages": rows[-1]["messages"],
        "bytes": size,
        "ratio": size / rows[-1]["raw"],
        "first_ms": median(row["ms"] for row in rows[1:4]),
        "last_ms": median(row["ms"] for row in rows[-3:]),
    }


def threads(store: Store, target: str, graph: str, count: int, messages: int) -> Row:
    """Many short threads in one database, as most have: bytes over those of all their messages.

    What a database takes before the first thread, and the pages that one thread does not fill, count once.
    """
    raw = 0
    for number in range(count):
        traffic = Traffic()
        steps, first = (messages - 2) // 2, number * messages // 2
        traffic.result(first + steps)
        model = agents.ScriptedModel(traffic=traffic, steps=steps, first=first)
        question = HumanMessage(traffic.question(number), id=f"question-{number}")
        with _agent(store, target, agents.GRAPHS[graph], model) as (agent, _):
            config = agents.config_of(f"{THREAD}-{number}")
            state = agent.invoke({"messages": [question]}, config, durability="sync")
        raw += raw_bytes(state["messages"])
    size = store.size(target)
    return {"threads": count, "messages": messages, "raw": raw, "bytes": size, "ratio": size / raw}


def subagents(store: Store, target: str, calls: int, steps: int, messages: int) -> Row:
    """A deep agent with forked sub-agents: bytes over those of all distinct messages, the children's included."""
    traffic = Traffic()
    total = (messages - 2) // 2
    delegate = frozenset(total * at // calls + 5 for at in range(calls))
    model = agents.ScriptedModel(traffic=traffic, steps=total, delegate=delegate)
    with store.open(target) as saver:
        agent = agents.forked_subagents(model, saver, steps=steps)
        question = HumanMessage(traffic.question(0), id="question-0")
        agent.invoke({"messages": [question]}, agents.config_of(THREAD), durability="sync")
    with store.open(target) as saver:
        distinct: dict[str, BaseMessage] = {}
        for saved in saver.list({"configurable": {"thread_id": THREAD}}):
            held = [write[2] for write in saved.pending_writes or () if write[1] == "messages"]
            for message in _messages_in([saved.checkpoint["channel_values"].get("messages"), held]):
                distinct[message.id or ""] = message
    size, raw = store.size(target), raw_bytes(list(distinct.values()))
    return {"messages": len(distinct), "raw": raw, "bytes": size, "ratio": size / raw}


def _messages_in(value: object) -> Iterator[BaseMessage]:
    match value:
        case BaseMessage():
            yield value
        case list() | tuple():  # a delta snapshot is a tuple of its list
            for item in value:
                yield from _messages_in(item)
        case _:
            return
