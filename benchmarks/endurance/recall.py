"""Every fact that folds took out of view, looked for with the agent's own tools, on recorded sessions.

    python -m benchmarks.endurance.recall FOLDER [--most 50]

One line per session and class: how many facts left the window, how many a search shows, how many are read where the
search or the window says, and how many are missed; then the paths in the window that could not be read back. The exit
code is 1 if anything is missed. `--most` looks for so many of each class. No network.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.endurance.facts import recalled
from refold.replay import Transcript, read_transcript
from refold.replay.importers import read_transcripts

JOINED = ("airline", "mcp-zh")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--most", type=int)
    options = parser.parse_args()
    print("| session | class | removed | by search | by reading | missed |\n|---|---|---|---|---|---|", flush=True)
    missed = 0
    for name, transcript in sessions(options.folder):
        with tempfile.TemporaryDirectory(prefix="refold-recall-") as folder:
            found = recalled(transcript, Path(folder), most=options.most)
        for cls, facts in found.facts.items():
            missed += len(facts.missed)
            cells = (facts.removed, facts.searched, facts.read, len(facts.missed))
            print(f"| {name} | {cls} | {' | '.join(map(str, cells))} |", flush=True)
            for text in facts.missed[:5]:
                print(f"    missed: {text[:120]!r}", flush=True)
        missed += len(found.broken) + len(found.unreachable)
        print(f"| {name} | paths in the window | {found.stubs} | | | {len(found.broken)} |", flush=True)
        for path in found.broken[:5]:
            print(f"    broken: {path}", flush=True)
    print(f"missed in all: {missed}")
    return int(missed > 0)


def sessions(folder: Path) -> Iterator[tuple[str, Transcript]]:
    """Every dialogue of every session in a folder; those of a file whose dialogues are one thread joined."""
    for path in sorted(folder.iterdir()):
        if path.suffix == ".md":
            continue
        if any(part in path.name for part in JOINED):
            yield path.name, read_transcript(path, join=True)
            continue
        for number, transcript in enumerate(read_transcripts(path)):
            yield f"{path.name}#{number}", transcript


if __name__ == "__main__":
    sys.exit(main())
