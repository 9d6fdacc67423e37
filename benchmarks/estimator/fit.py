"""Fits the coefficients of refold.core.estimate and writes them as a module.

    python benchmarks/estimator/fit.py labels.jsonl

For each family: ridge regression of tokens on the features, in relative error, every class of text with the same
weight (made-up classes less), on the training part only. The penalty was chosen by three-fold cross-validation over
source documents. `generic` is fitted to the mean of all families. The margins of the upper bound come from the test
part without odd texts: the cheapest (share, spread) for which `estimate * (1 + share) + spread * sqrt(estimate)` covers
99.3 % of the texts of every size.
"""

import json
import sys
import textwrap
from collections import Counter
from math import sqrt
from pathlib import Path

import numpy as np

from refold.core.estimate import FEATURES, features

FAMILIES = ("o200k", "cl100k", "llama3", "qwen3", "qwen35", "deepseek", "mistral", "gemma", "claude3", "claude48")
MADE_UP = {"emoji_text", "emoji_pure", "server_log", "ansi", "boxes", "md_table", "math", "runs"}
ODD = {"binary", "emoji_pure", "long_words", "periodic", "repeats", "symbols"}
"""Texts unlike language: they decide what nothing else decides, and must not pull at what ordinary texts decide."""
PENALTY = 1e-5
COVERED = 0.993
TARGET = Path(__file__).parents[2] / "src/refold/core/_coefficients.py"

Rows = list[dict[str, object]]


def load(path: Path) -> Rows:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        row["tokens"]["generic"] = sum(row["tokens"][family] for family in FAMILIES) / len(FAMILIES)
    return rows


def ridge(counts: np.ndarray, tokens: np.ndarray, weights: np.ndarray) -> np.ndarray:
    scaled = counts / tokens[:, None] * np.sqrt(weights)[:, None]
    goal = np.sqrt(weights)
    norm = np.sqrt((scaled**2).sum(axis=0)) + 1e-9
    scaled = scaled / norm
    gram = scaled.T @ scaled + PENALTY * np.eye(len(norm))
    return np.linalg.solve(gram, scaled.T @ goal) / norm


def weight(cls: str) -> float:
    return 0.3 if cls in MADE_UP else 0.03 if cls in ODD else 1.0


def margins(family: str, test: Rows, weights: np.ndarray) -> tuple[float, float]:
    """The cheapest margin that covers every size."""
    from refold.core import estimate as module

    module.MARGINS = {family: (0.0, 0.0)}  # the raw upper estimate, with the spread of the windows
    module.COEFFICIENTS = {family: tuple(weights)}
    sizes: dict[int, list[tuple[float, float]]] = {}
    for row in test:
        size = min((60, 200, 2_000, 20_000, 80_000), key=lambda s: abs(s - len(row["text"])))
        raw = module.estimate_text(row["text"], family=family, upper_bound=True)
        sizes.setdefault(size, []).append((raw, row["tokens"][family]))
    best = (9.0, 9.0)
    for share in np.arange(0.0, 0.3, 0.005):
        needed = 0.0
        for pairs in sizes.values():
            short = sorted((real - raw * (1 + share)) / sqrt(raw) for raw, real in pairs)
            needed = max(needed, short[min(len(short) - 1, int(len(short) * COVERED))])
        if price(float(share), needed) < price(*best):
            best = (float(share), needed)
    return best


def price(share: float, spread: float) -> float:
    """The margin relative to the estimate, over texts of a line, a paragraph, a page and a file."""
    return sum(share + spread / sqrt(tokens) for tokens in (20, 60, 500, 5_000))


def main() -> None:
    rows = load(Path(sys.argv[1]))
    train = [row for row in rows if row["split"] == "train"]
    counts = np.array([features(row["text"]) for row in train], dtype=float)
    members = Counter(row["cls"] for row in train)
    weights = np.array([weight(row["cls"]) / members[row["cls"]] for row in train])
    weights /= weights.sum()
    test = [row for row in rows if row["split"] == "test" and row["cls"] not in ODD]
    lines = [
        '"""Coefficients of refold.core.estimate, written by benchmarks/estimator/fit.py. Do not edit."""',
        "",
        "from collections.abc import Mapping",
        "from typing import Final",
        "",
        "# fmt: off",
        "COEFFICIENTS: Final[Mapping[str, tuple[float, ...]]] = {",
    ]
    found = []
    for family in ("generic", *FAMILIES):
        tokens = np.array([row["tokens"][family] for row in train], dtype=float)
        fitted = np.round(ridge(counts, tokens, weights), 4)
        lines.append(f'    "{family}": (')
        lines += textwrap.wrap(
            ", ".join(f"{value:g}" for value in fitted) + ",", 110, initial_indent=" " * 8, subsequent_indent=" " * 8
        )
        lines.append("    ),")
        share, spread = margins(family, test, fitted)
        found.append(f'    "{family}": ({share:.3f}, {spread:.2f}),')
        print(family, share, spread, flush=True)
    lines += ["}", '"""Tokens per feature, in the order of `FEATURES`."""', ""]
    lines += ["MARGINS: Final[Mapping[str, tuple[float, float]]] = {", *found, "}"]
    lines += ['"""The margin of the upper bound: a share of the estimate, and a multiple of its square root."""', ""]
    assert len(FEATURES) == counts.shape[1]
    TARGET.write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
