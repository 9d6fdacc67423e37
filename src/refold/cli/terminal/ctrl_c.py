"""Ctrl-C: the first one stops the run, a second one leaves at once; where nothing runs it is Python's own.

Leaving at once is safe. What was finished is stored by then, and a tool that a thread is still in cannot be stopped
from outside; waiting for it is what the second Ctrl-C refuses.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Final, Self, TypeVar

T = TypeVar("T")

INTERRUPTED: Final = 130
_LOOK_AGAIN: Final = 0.1
"""Seconds between two looks for a signal while a line is awaited."""


@contextmanager
def heard() -> Iterator[None]:
    """While a line is awaited, Ctrl-C is heard at once.

    Reading a line looks for signals when a signal interrupts its wait. One that came between the prompt and the wait,
    or to another thread, would be looked for after the next key only; a timer that interrupts the wait again and again
    bounds that. Windows has no such timer, and reads lines otherwise.
    """
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGALRM, lambda *_: None)
    timer = signal.setitimer(signal.ITIMER_REAL, _LOOK_AGAIN, _LOOK_AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)


class CtrlC:
    """Owns the signal while the context is open. In other threads than the main one, which get no signals, idle."""

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._running = False
        self._pressed = False
        self._main = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Self:
        """Take the signal over."""
        if self._main:
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Give it back."""
        if self._main:
            signal.signal(signal.SIGINT, self._previous)

    def run(self, runner: asyncio.Runner, work: Callable[[], Coroutine[object, object, T]]) -> T:
        """Run work to its end. Raises `KeyboardInterrupt` once the first Ctrl-C has stopped it, wherever it was."""
        self._running, self._pressed = True, False
        try:
            return runner.run(self._stoppable(work))
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            self._running, self._pressed = False, False

    def leave(self) -> None:
        """Nothing is left to be stopped: the next Ctrl-C leaves at once."""
        self._running = self._pressed = True

    async def _stoppable(self, work: Callable[[], Coroutine[object, object, T]]) -> T:
        if self._pressed:  # before there was a task to cancel
            raise asyncio.CancelledError
        self._task = asyncio.current_task()
        try:
            return await work()
        finally:
            self._task = None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._running:
            raise KeyboardInterrupt
        if self._pressed:
            os.write(2, b"\n")
            os._exit(INTERRUPTED)
        self._pressed = True
        if self._task is not None:
            self._task.get_loop().call_soon_threadsafe(self._task.cancel)
