"""`python -m benchmarks.import_time`: importing refold must take at most 1.2 times what `langchain.agents` takes.

refold loads its names when they are first used, so the import of one that needs LangChain is measured as well. Each
import runs in a fresh interpreter, all of them in turns, so that what else the machine does falls on each; the least of
many runs is compared, in CPU time, which is what the import itself costs. Exit status 1 when a ratio is over the limit.
"""

import argparse
import subprocess
import sys

LIMIT = 1.2
_PROBE = "import time; start = time.process_time(); {statement}; print(time.process_time() - start)"


def seconds(statement: str) -> float:
    """CPU seconds of one import in a fresh interpreter, the start of the interpreter itself not counted."""
    done = subprocess.run(
        [sys.executable, "-c", _PROBE.format(statement=statement)], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7, help="imports of each module")
    runs = parser.parse_args().runs
    base, *ours = ("import langchain.agents", "import refold", "from refold import WindowMiddleware")
    times: dict[str, list[float]] = {statement: [] for statement in (base, *ours)}
    for _ in range(runs):
        for statement, taken in times.items():
            taken.append(seconds(statement))
    worst = 0.0
    for statement, taken in times.items():
        ratio = min(taken) / min(times[base])
        worst = max(worst, ratio if statement in ours else 0.0)
        print(f"{statement:<38} {min(taken):.3f} s CPU, median {sorted(taken)[runs // 2]:.3f}, ratio {ratio:.2f}")
    print(f"the largest ratio may be {LIMIT}")
    return 0 if worst <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
