"""Measures the speed of the estimator on this machine.

    python benchmarks/estimator/speed.py

Time of the process, best of five; megabytes are of UTF-8. Long texts are sampled, so their speed is a matter of length.
"""

import inspect
import json
import time
import typing
from collections.abc import Callable

from langchain_core.messages import BaseMessage, ToolMessage

from refold.core.estimate import SAMPLED_ABOVE, estimate_text
from refold.core.meter import EstimatingMeter

CHINESE = "昨天下午我们去了城市北边的一座老图书馆。馆里的人不多,阳光从高高的窗户照进来,落在木头桌子上。"


def best(work: Callable[[], object], *, seconds: float = 0.2) -> float:
    """Seconds of one call."""
    found = float("inf")
    for _ in range(5):
        calls, start = 0, time.process_time()
        while (spent := time.process_time() - start) < seconds:
            work()
            calls += 1
        found = min(found, spent / calls)
    return found


def main() -> None:
    code = inspect.getsource(typing)
    records = json.dumps([{"id": n, "name": f"user {n}", "value": n / 7} for n in range(2_000)])
    for name, source in (("Python", code), ("JSON", records), ("Chinese", CHINESE * 2_000)):
        for size in (200, 2_000, SAMPLED_ABOVE):
            text = (source * (1 + size // len(source)))[:size]
            took = best(lambda text=text: estimate_text(text))  # type: ignore[misc]
            print(f"{name:8} {size:>10,} chars {took * 1e6:10,.0f} us {len(text.encode()) / took / 1e6:8,.0f} MB/s")
        text = source * (10_000_000 // len(source))
        took = best(lambda text=text: estimate_text(text))  # type: ignore[misc]
        print(f"{name:8} {len(text):>10,} chars {took * 1e6:10,.0f} us (sampled)")
    meter = EstimatingMeter()
    history: list[BaseMessage] = [
        ToolMessage(f"{n} {code[n * 20 : n * 20 + 2_000]}", tool_call_id=str(n)) for n in range(500)
    ]
    start = time.process_time()
    for message in history:
        meter.count(message)
    first = (time.process_time() - start) / len(history)
    again = best(lambda: [meter.count(message) for message in history]) / len(history)
    print(f"a message of 2,000 characters: {first * 1e6:.0f} us, counted before: {again * 1e6:.1f} us")


if __name__ == "__main__":
    main()
