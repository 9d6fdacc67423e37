"""Measures the estimator on the test part and writes the tables of docs/estimator.md.

    python benchmarks/estimator/evaluate.py labels.jsonl

Bias is the error of the sum over a class, which is what a long history sees; the second number is the mean of the
absolute errors of single texts. Between the markers `<!-- begin: NAME -->` and `<!-- end: NAME -->` of the page nothing
is written by hand.
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from fit import FAMILIES, ODD, Rows, load

from refold.core.estimate import estimate_text

PAGE = Path(__file__).parents[2] / "docs/estimator.md"
SIZES = ((60, 60), (200, 200), (400, 2_000), (20_000, 20_000), (80_000, 80_000))


def main() -> None:
    test = [row for row in load(Path(sys.argv[1])) if row["split"] == "test"]
    for row in test:
        row["estimate"] = {f: estimate_text(row["text"], family=f) for f in ("generic", *FAMILIES)}
        row["upper"] = {f: estimate_text(row["text"], family=f, upper_bound=True) for f in ("generic", *FAMILIES)}
    ordinary = [row for row in test if row["cls"] not in ODD and not row["cls"].startswith("session:")]
    chunks = sized(ordinary, 400, 2_000)
    odd = sized([row for row in test if row["cls"] in ODD], 400, 4_000)
    sessions = [row for row in test if row["cls"].startswith("session:")]
    page = PAGE.read_text(encoding="utf-8")
    for name, table in (
        ("classes", by_class(chunks)),
        ("sessions", by_class(sessions)),
        ("odd", by_class(odd)),
        ("sizes", by_size(ordinary)),
        ("upper", upper(ordinary)),
    ):
        marked = re.compile(rf"(<!-- begin: {name} -->\n).*?(<!-- end: {name} -->)", re.S)
        page, found = marked.subn(lambda match, table=table: f"{match[1]}\n{table}\n\n{match[2]}", page)
        assert found == 1, name
    PAGE.write_text(page, encoding="utf-8")
    worst = max((abs(bias(rows, f)), cls, f) for cls, rows in grouped(chunks) for f in FAMILIES)
    print(f"largest bias of a class: {worst[0]:.1%} ({worst[1]}, {worst[2]})")


def sized(rows: Rows, least: int, most: int) -> Rows:
    return [row for row in rows if least <= len(row["text"]) <= most]


def grouped(rows: Rows) -> Iterable[tuple[str, Rows]]:
    return [(cls, [row for row in rows if row["cls"] == cls]) for cls in sorted({row["cls"] for row in rows})]


def bias(rows: Rows, family: str) -> float:
    return sum(row["estimate"][family] for row in rows) / sum(row["tokens"][family] for row in rows) - 1


def mean_error(rows: Rows, family: str) -> float:
    return sum(abs(row["estimate"][family] / row["tokens"][family] - 1) for row in rows) / len(rows)


def quarter(rows: Rows, family: str) -> float:
    """The bias of characters / 4."""
    return sum(len(row["text"]) / 4 for row in rows) / sum(row["tokens"][family] for row in rows) - 1


def grid(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def by_class(rows: Rows) -> str:
    head = ["class", "texts", *FAMILIES, "chars/4: o200k", "claude48"]
    lines = []
    for cls, members in grouped(rows):
        cells = [f"{bias(members, f) * 100:+.0f} / {mean_error(members, f) * 100:.0f}" for f in FAMILIES]
        simple = [f"{quarter(members, f) * 100:+.0f}" for f in ("o200k", "claude48")]
        lines.append([cls.removeprefix("session:"), str(len(members)), *cells, *simple])
    means = [f"{mean(abs(bias(m, f)) for _, m in grouped(rows)) * 100:.1f}" for f in FAMILIES]
    simple = [f"{mean(abs(quarter(m, f)) for _, m in grouped(rows)) * 100:.0f}" for f in ("o200k", "claude48")]
    return grid(head, [*lines, ["mean of the absolute biases", "", *means, *simple]])


def by_size(rows: Rows) -> str:
    lines = []
    for least, most in SIZES:
        members = sized(rows, least, most)
        lines.append(
            [f"{most:,}", str(len(members)), *[f"{mean_error(members, f) * 100:.1f}" for f in ("generic", *FAMILIES)]]
        )
    return grid(["characters", "texts", "generic", *FAMILIES], lines)


def upper(rows: Rows) -> str:
    """Texts whose upper bound is below the truth, and what the bound costs."""
    lines = []
    for least, most in SIZES:
        members = sized(rows, least, most)
        cells = []
        for family in FAMILIES:
            below = sum(row["upper"][family] < row["tokens"][family] for row in members) / len(members)
            above = mean(row["upper"][family] / row["tokens"][family] - 1 for row in members)
            cells.append(f"{below * 100:.1f} / {above * 100:+.0f}")
        lines.append([f"{most:,}", str(len(members)), *cells])
    return grid(["characters", "texts", *FAMILIES], lines)


def mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


if __name__ == "__main__":
    main()
