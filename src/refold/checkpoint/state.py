"""States of an agent whose messages are stored as a log.

`LogState` is for savers that keep a full copy in every checkpoint. refold's own savers are linear with the plain
`AgentState` too; `GrowingState` spares them, and LangGraph, the look at every message at every step.
"""

from typing import Annotated, Final, Required

from langchain.agents import AgentState
from langchain_core.messages import AnyMessage
from langgraph.channels.delta import DeltaChannel

from refold.checkpoint.add_messages import add_messages
from refold.checkpoint.reducer import reduce_messages

SNAPSHOT_FREQUENCY: Final = 1000
"""Updates of the log between two full copies.

Copies cost about N / 2K times the log after N updates, at one copy every K. At 2,000 messages on LangGraph's
SqliteSaver K = 50 stores 22.8 times the log, K = 1,000 3.9 times, and no copies at all 2.4 times; restoring costs the
same within noise, since decoding the messages dominates (docs/benchmarks-checkpoint.md).
"""


class GrowingState(AgentState):
    """`AgentState` with refold's `add_messages`: `create_agent(..., state_schema=GrowingState)`, with any saver.

    Threads go on from and to the plain `AgentState`. A message is a value once it is in the log; see `add_messages`.
    """

    messages: Required[Annotated[list[AnyMessage], add_messages]]


class LogState(AgentState):
    """`AgentState` with the messages in a delta channel: `create_agent(..., state_schema=LogState)`.

    Each step stores what it wrote, not the whole list. Reads, updates by id, removals and forks behave as with the
    plain channel, by the rules of `reduce_messages`. Threads that began with the plain channel go on: the stored list
    is the seed. The way back needs langgraph 1.2.16, whose plain channel rebuilds the list; before, it reads a delta
    thread as empty (which refold's savers refuse to store). Sub-agents need the schema of their own: deepagents does
    not hand its parent's down.
    """

    messages: Required[
        Annotated[list[AnyMessage], DeltaChannel(reduce_messages, snapshot_frequency=SNAPSHOT_FREQUENCY)]
    ]
