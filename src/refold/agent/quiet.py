"""Model calls that the user's streams never see.

A summary is asked for inside a node whose events are streamed. LangGraph and LangChain offer a tag and a metadata key
that their own stream handlers honour, and both are set for everything under the call, so that a fall-back model deeper
in the chain carries them too. `astream_events` honours neither; handlers that feed a stream are therefore left out of
the call's callbacks, while tracers and usage counters stay.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from queue import SimpleQueue
from typing import Protocol, TypeVar, cast, runtime_checkable

from langchain.agents.middleware.internal_call_transformer import internal_call_metadata
from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config, set_config_context
from langgraph.constants import TAG_NOSTREAM

T = TypeVar("T")


@runtime_checkable
class _FeedsStream(Protocol):
    """What LangChain and LangGraph give every handler that turns model events into a stream."""

    def tap_output_iter(self, run_id: object, output: object) -> object: ...
    def tap_output_aiter(self, run_id: object, output: object) -> object: ...


def quiet_config() -> RunnableConfig:
    """The config of the current run, marked as internal and cut off from its streams."""
    config = ensure_config()
    return {
        **config,
        "tags": [*(config.get("tags") or []), TAG_NOSTREAM],
        "metadata": {**(config.get("metadata") or {}), **internal_call_metadata()},
        "callbacks": _without_streams(config.get("callbacks")),
        "run_name": "refold_summary",
    }


def call_quietly(call: Callable[[], T], *, timeout: float) -> T:
    """Run a model call with its events out of every stream, for at most so many seconds.

    Raises `TimeoutError` when time is up. A blocking call cannot be stopped from outside: its thread goes on, detached,
    and what it returns is dropped.
    """
    answers: SimpleQueue[tuple[bool, object]] = SimpleQueue()
    with set_config_context(quiet_config()) as context:

        def work() -> None:
            try:
                answers.put((True, context.run(call)))
            except BaseException as error:  # noqa: BLE001 - raised again in the waiting thread
                answers.put((False, error))

        thread = threading.Thread(target=work, name="refold-summary", daemon=True)
        thread.start()
        thread.join(timeout)
    if thread.is_alive():
        raise TimeoutError(f"the summariser did not answer within {timeout:g} s")
    done, value = answers.get()
    if not done:
        raise cast("BaseException", value)
    return cast("T", value)


async def acall_quietly(call: Callable[[], Awaitable[T]], *, timeout: float) -> T:
    """The same for an awaitable call, which is cancelled when time is up."""
    with set_config_context(quiet_config()) as context:
        task = _start(call, context)
        return await asyncio.wait_for(task, timeout)


def _start(call: Callable[[], Awaitable[T]], context: Context) -> asyncio.Task[T]:
    async def work() -> T:
        return await call()

    coroutine: Coroutine[object, object, T] = work()
    return asyncio.get_running_loop().create_task(coroutine, context=context)


def _without_streams(callbacks: object) -> BaseCallbackManager | list[BaseCallbackHandler] | None:
    if isinstance(callbacks, BaseCallbackManager):
        quiet = callbacks.copy()
        quiet.handlers = [handler for handler in callbacks.handlers if not isinstance(handler, _FeedsStream)]
        quiet.inheritable_handlers = [
            handler for handler in callbacks.inheritable_handlers if not isinstance(handler, _FeedsStream)
        ]
        return quiet
    if isinstance(callbacks, list):
        return [handler for handler in callbacks if not isinstance(handler, _FeedsStream)]
    return None
