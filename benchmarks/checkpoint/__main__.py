"""Checkpoint savers on the traffic of a long agent: `python -m benchmarks.checkpoint`.

Prints tables and writes them as JSON. Bytes are exact and the same on each run; times are medians, and move with what
else the machine does, so compare only within one run. Peers run in the same run, up to 2,000 messages: there
LangGraph's SqliteSaver writes 3.2 GB.

    python -m benchmarks.checkpoint                      # everything, about 40 minutes
    python -m benchmarks.checkpoint --quick              # up to 500 messages, no Postgres, about 2 minutes
    python -m benchmarks.checkpoint --only grow --store refold-sqlite --graph plain --size 10000
    python -m benchmarks.checkpoint --only grow --store refold-postgres --graph plain --size 500 --round-trip 1
"""

import argparse
import json
import os
import platform
import sqlite3
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from benchmarks.checkpoint import measure
from benchmarks.checkpoint.agents import GRAPHS
from benchmarks.checkpoint.measure import Row, in_process
from benchmarks.checkpoint.stores import Store, postgres_server, stores

PEERS_UP_TO = 2_000
PARTS = ("grow", "threads", "turns", "subagents")
COLUMNS: dict[str, dict[str, str]] = {
    "grow": {
        "graph": "", "store": "", "messages": ",", "bytes": ",", "ratio": ".2f", "step_ms_start": ".1f",
        "step_ms_end": ".1f", "step_cpu_ms_start": ".1f", "step_cpu_ms_end": ".1f", "saver_ms_start": ".1f",
        "saver_ms_end": ".1f", "calls_ms_start": ".1f", "calls_ms_end": ".1f",
        "saver_cpu_ms_start": ".1f", "saver_cpu_ms_end": ".1f", "get_state_ms": ".0f",
        "get_state_again_ms": ".0f", "history10_ms": ".0f", "history10_again_ms": ".0f", "fork_bytes": ",.0f",
        "copy_share": ".1%", "compact_ratio": ".2f",
    },
    "threads": {"graph": "", "store": "", "threads": ",", "messages": ",", "bytes": ",", "ratio": ".2f"},
    "turns": {
        "graph": "", "store": "", "messages": ",", "bytes": ",", "ratio": ".2f", "first_ms": ".0f", "last_ms": ".0f",
    },
    "subagents": {"store": "", "messages": ",", "bytes": ",", "ratio": ".2f"},
}  # fmt: skip


def grow(store: Store, graph: str, size: int, folder: Path) -> Row:
    """One cell of the growth table: a run, then everything that is read or done to its database."""
    with _target(store, folder, f"{graph}-{size}-{store.name}") as target:
        row = {"graph": graph, "store": store.name, **in_process(measure.grow, store, target, graph, size)}
        if store.name == "none":
            return row
        row |= in_process(measure.read, store, target, graph)
        if store.ours:
            row |= in_process(measure.compact, store, target)
            row["compact_ratio"] = row["compact_bytes"] / row["raw"]
            row |= in_process(measure.copy, store, target)
            row["copy_share"] = row["copy_bytes"] / row["bytes"]
        row |= in_process(measure.fork, store, target, graph)
        return row


def threads(store: Store, graph: str, count: int, folder: Path) -> Row:
    with _target(store, folder, f"threads-{graph}-{store.name}") as target:
        row = in_process(measure.threads, store, target, graph, count, 100)
        return {"graph": graph, "store": store.name, **row}


def turns(store: Store, graph: str, count: int, folder: Path) -> Row:
    with _target(store, folder, f"turns-{graph}-{store.name}") as target:
        return {"graph": graph, "store": store.name, **measure.turns(store, target, graph, count, 20)}


def subagents(store: Store, folder: Path, *, messages: int) -> Row:
    with _target(store, folder, f"subagents-{store.name}") as target:
        return {"store": store.name, **in_process(measure.subagents, store, target, 8, 6, messages)}


@contextmanager
def _target(store: Store, folder: Path, name: str) -> Iterator[str]:
    """A new database for one cell, deleted afterwards: those of the peers take gigabytes."""
    target = store.new_target(folder, name)
    try:
        yield target
    finally:
        store.drop(target)


def plan(options: argparse.Namespace, known: dict[str, Store], folder: Path) -> Iterator[tuple[str, Callable[[], Row]]]:
    chosen = [known[name] for name in options.store or known]
    kept = [store for store in chosen if store.name != "none"]
    if "grow" in options.only:
        for graph in options.graph:
            for size in options.size:
                for store in chosen:
                    if store.ours or store.name == "none" or size <= PEERS_UP_TO:
                        yield "grow", lambda s=store, g=graph, n=size: grow(s, g, n, folder)
    if "threads" in options.only:
        for graph in [name for name in options.graph if name in ("plain", "deep")]:
            for store in kept:
                yield "threads", lambda s=store, g=graph: threads(s, g, 20, folder)
    if "turns" in options.only:
        for graph in [name for name in options.graph if name in ("plain", "deep")]:
            for store in kept:
                yield "turns", lambda s=store, g=graph: turns(s, g, options.turns, folder)
    if "subagents" in options.only:
        for store in kept:
            yield "subagents", lambda s=store: subagents(s, folder, messages=320)


def table(kind: str, rows: Sequence[Row]) -> str:
    columns = COLUMNS[kind]
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = [format(row[name], form) if name in row else "" for name, form in columns.items()]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def machine() -> Row:
    names = ("langgraph", "langgraph-checkpoint", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres")
    return {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "sqlite": sqlite3.sqlite_version,
        **{name: version(name) for name in (*names, "langchain", "langchain-core", "deepagents", "zstandard")},
    }


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoint", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="up to 500 messages, SQLite only, 10 turns")
    parser.add_argument("--only", action="append", choices=PARTS)
    parser.add_argument("--store", action="append", help="only these savers, e.g. refold-sqlite")
    parser.add_argument("--graph", action="append", choices=GRAPHS)
    parser.add_argument("--size", action="append", type=int, help="messages of a run; even, at least 4")
    parser.add_argument("--turns", type=int)
    parser.add_argument("--round-trip", type=float, default=0, help="milliseconds to Postgres and back, added")
    parser.add_argument("--no-postgres", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("out/benchmark-checkpoint.json"))
    options = parser.parse_args(arguments)
    options.only = options.only or list(PARTS)
    options.graph = options.graph or list(GRAPHS)
    options.size = options.size or ([100, 500] if options.quick else [100, 500, 2_000, 10_000])
    options.turns = options.turns or (10 if options.quick else 50)
    return options


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    warnings.filterwarnings("ignore", message="The feature `forked subagents` is in beta")
    needs_server = not (options.quick or options.no_postgres) and (
        not options.store or any("postgres" in name for name in options.store)
    )
    results: dict[str, list[Row]] = {part: [] for part in PARTS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if needs_server:
            with postgres_server(folder / "postgres", options.round_trip / 1000) as server:
                _measure(options, stores(server), folder, results)
        else:
            _measure(options, stores(None), folder, results)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"machine": machine(), **results}, indent=1) + "\n", encoding="utf-8")
    for kind, rows in results.items():
        if rows:
            print(f"\n{kind}\n{table(kind, rows)}")
    print(f"\nwritten to {options.out}")
    return 0


def _measure(options: argparse.Namespace, known: dict[str, Store], folder: Path, results: dict[str, list[Row]]) -> None:
    import deepagents  # noqa: F401 - imported once here, so that the forked measurements do not pay for it

    for kind, work in plan(options, known, folder):
        row = work()
        results[kind].append(row)
        print(json.dumps({"part": kind, **{k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}}))
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
