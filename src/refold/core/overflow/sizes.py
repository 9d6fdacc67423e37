"""Reading the sizes of a refused body, in bytes."""

import re
from typing import Final

_UNITS: Final = {
    "": 1,
    "b": 1,
    "byte": 1,
    "bytes": 1,
    "kb": 1_000,
    "mb": 1_000_000,
    "gb": 10**9,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
}
_SMALLEST: Final = 1_000
_LARGEST: Final = 10**12
"""No server takes bodies as small or as large as that; such numbers are codes and ids."""

_SIZE = re.compile(r"(?<![a-z0-9_.-])(?P<n>\d{1,12}(?:\.\d{1,6})?) ?(?P<unit>bytes?|[kmg]i?b|b)?(?![a-z0-9_-])")
_BYTE_LIMIT_LEFT = re.compile(
    r"(?:max\w*|limit\w*|exceed\w*|allow\w*|up to|at most|equal to|than|vs\.?|>"
    r"|over)[^\n\d]{0,48}$"
)


def byte_sizes(text: str) -> tuple[int | None, int | None]:
    """(limit, size) in bytes of a text that refuses a body. A size without a unit is bytes; KB and MB are decimal.

    Decimal, because the smaller reading is the safe one where a server means 1024.
    """
    found: list[tuple[bool, int]] = []
    for match in _SIZE.finditer(text):
        value = int(float(match["n"]) * _UNITS[match["unit"] or ""])
        if _SMALLEST <= value <= _LARGEST:
            found.append((_BYTE_LIMIT_LEFT.search(text[max(0, match.start() - 60) : match.start()]) is not None, value))
    values = sorted({value for _, value in found})
    if len(values) >= 2:
        limit = next((value for named, value in found if named and value < values[-1]), values[0])
        return limit, values[-1]
    return (values[0], None) if values and found[0][0] else (None, None)
