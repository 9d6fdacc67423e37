"""Measures facts in view after a fold without a model's help: the worst case, an empty summary and its index.

    python -m benchmarks.facts [FOLDER] [--budget 2000 4000] [--spans]

FOLDER holds recorded sessions (see `refold.replay`). A session of more than `SPAN` tokens is cut into spans of about
that size at safe places, as the planner would fold it; short dialogues are joined. Tokens are those of `o200k_base`.
Nothing is downloaded.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import bpe_openai
from langchain_core.messages import BaseMessage

from refold.core.facts import Audit, CountText, FactClass, audit
from refold.core.messages import calls_of, text_of
from refold.core.rounds import units_of
from refold.replay import read_transcripts

SPAN = 60_000
"""Tokens of a span: about what a window of 128k folds at the default trigger and target."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, nargs="?", default=Path(__file__).parents[3] / "shared" / "data")
    parser.add_argument("--budget", type=int, nargs="+", default=[2000, 3000, 4000])
    parser.add_argument("--spans", action="store_true", help="a line for each span")
    options = parser.parse_args()
    encoding = bpe_openai.get_encoding("o200k_base")

    def count(text: str) -> int:
        return len(encoding.encode_ordinary(text))

    spans = [(name, span, size) for name, span, size in all_spans(options.folder, count) if size > 2_000]
    for budget in options.budget:
        print(f"\n## {budget} tokens of index\n")
        print("| span | tokens | " + " | ".join(cls.value for cls in FactClass) + " | index tokens | seconds |")
        print("|---|---|" + "---|" * (len(FactClass) + 2))
        rows: dict[str, list[tuple[int, Audit, int, float]]] = {}
        for name, span, size in spans:
            start = time.perf_counter()
            result = audit(span, "", budget=budget, count=count)
            spent = time.perf_counter() - start
            used = count(result.appendix)
            assert used <= budget
            rows.setdefault(name, []).append((size, result, used, spent))
            if options.spans:
                print(row(name, [(size, result, used, spent)]))
        for name, found in rows.items():
            print(row(f"**{name}** ({len(found)})", found))
        print(row("**all**", [entry for found in rows.values() for entry in found]))


def row(name: str, found: Sequence[tuple[int, Audit, int, float]]) -> str:
    cells = [name, f"{sum(entry[0] for entry in found):,}"]
    for cls in FactClass:
        total = sum(entry[1].survival[cls].total for entry in found)
        kept = sum(entry[1].survival[cls].in_appendix for entry in found)
        cells.append(f"{kept / total:.0%} of {total}" if total else "–")
    cells += [f"{sum(entry[2] for entry in found):,}", f"{sum(entry[3] for entry in found):.2f}"]
    return "| " + " | ".join(cells) + " |"


def all_spans(folder: Path, count: CountText) -> Iterator[tuple[str, list[BaseMessage], int]]:
    """(file, span, its tokens) of every session in a folder."""
    for path in sorted(folder.iterdir()):
        if path.name == "README.md":
            continue
        messages: list[BaseMessage] = []
        for transcript in read_transcripts(path):
            messages += transcript.messages
        span: list[BaseMessage] = []
        size = 0
        for unit in units_of(messages):
            part = messages[unit.start : unit.stop]
            span += part
            size += sum(tokens_of(message, count) for message in part)
            if size >= SPAN:
                yield path.name, span, size
                span, size = [], 0
        if span:
            yield path.name, span, size


def tokens_of(message: BaseMessage, count: CountText) -> int:
    return count(text_of(message)) + sum(count(str(call.args)) for call in calls_of(message))


main()
