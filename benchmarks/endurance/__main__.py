"""A day of an agent: 10,000 rounds of mixed tools, pictures, subagents, Chinese and English, in a 32k window.

    python -m benchmarks.endurance [--rounds 10000] [--window 32000] [--bare] [--skip-walk] [--folder DIR]

One `refold.create_agent` over a real SQLite file and a real directory. Its model is `StrictModel`, which refuses every
request that breaks a provider's rules or is over the limit by its own counter. Per tenth of the rounds it prints
medians of a step (from one model call to the next: tools, middleware, LangGraph, saver) in CPU time of the process and
on the clock, memory, sizes, folds and summaries. `--bare` runs the same work without refold's middleware, on a model
that takes any window: what LangGraph and LangChain take with a log of that length. `--skip-walk` leaves out the look at
all messages that LangChain's `create_agent` takes before each model call (for calls that could not be parsed, of which
this work has none): what is left of a step without it. No network. The exit code is 1 if a
request was invalid or over the limit.
"""

import argparse
import sys
import tempfile
from contextlib import nullcontext
from pathlib import Path

from langchain.agents import factory

from benchmarks.endurance.day import Day, Row

HEADS = (
    "rounds", "messages", "CPU ms", "clock ms", "RSS MB", "database MB", "database / raw", "files MB", "folds",
    "summaries", "requests", "invalid", "over limit",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--window", type=int, default=32_000)
    parser.add_argument("--bare", action="store_true")
    parser.add_argument("--skip-walk", action="store_true")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    if options.skip_walk:
        factory._patch_invalid_tool_calls = lambda messages: messages  # type: ignore[assignment, return-value]
    if options.folder:
        options.folder.mkdir(parents=True, exist_ok=True)
    print(f"| {' | '.join(HEADS)} |\n|---|{'---|' * (len(HEADS) - 1)}", flush=True)
    place = nullcontext(str(options.folder)) if options.folder else tempfile.TemporaryDirectory(prefix="refold-day-")
    with place as folder:
        day = Day(folder=Path(folder), window=options.window, managed=not options.bare)
        rows = list(day.rows(options.rounds, tell=tell))
    ratio = rows[-1].cpu / rows[0].cpu
    print(f"step, last tenth / first: {ratio:.2f} (CPU), {rows[-1].clock / rows[0].clock:.2f} (clock)")
    return int(bool(rows[-1].invalid or rows[-1].over_limit))


def tell(row: Row) -> None:
    cells = [
        f"{row.rounds:,}", f"{row.messages:,}", f"{row.cpu:.1f}", f"{row.clock:.1f}", f"{row.rss:.0f}",
        f"{row.database / 1e6:.1f}", f"{row.database / row.raw:.2f}", f"{row.files / 1e6:.1f}", str(row.folds),
        str(row.summaries), f"{row.requests:,}", str(row.invalid), str(row.over_limit),
    ]  # fmt: skip
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
