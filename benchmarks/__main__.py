"""Runs benchmarks: `python -m benchmarks` for all of them, `python -m benchmarks NAME ...` for some.

A benchmark is a package in this folder with a `__main__`; what follows `--` goes to it (`python -m benchmarks.NAME
--help` shows what it takes). The exit code is 1 if any of them failed.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main(arguments: list[str]) -> int:
    names, options = arguments, []
    if "--" in arguments:
        at = arguments.index("--")
        names, options = arguments[:at], arguments[at + 1 :]
    known = sorted(path.parent.name for path in HERE.glob("*/__main__.py"))
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no benchmark is called {', '.join(unknown)}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    failed = []
    for name in names or known:
        print(f"== {name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *options], cwd=HERE.parent).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
