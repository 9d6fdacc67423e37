"""Small integers as small bytes: unsigned LEB128, zigzag for signed ones, and runs of increasing ids as differences."""

from collections.abc import Iterable, Sequence

from refold.errors import CorruptionError


def put_uint(out: bytearray, value: int) -> None:
    """Append a non-negative integer: seven bits a byte, low ones first."""
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def get_uint(data: bytes, at: int) -> tuple[int, int]:
    """The integer at a position, and the position behind it. Raises `CorruptionError` at the end of the data."""
    value = shift = 0
    try:
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
            shift += 7
    except IndexError:
        raise CorruptionError("a stored row ends in the middle of a number; restore it from a backup") from None


def zigzag(value: int) -> int:
    """Signed to unsigned, small magnitudes first."""
    return value << 1 if value >= 0 else ((-value) << 1) - 1


def unzigzag(value: int) -> int:
    return value >> 1 if value & 1 == 0 else -((value + 1) >> 1)


def put_int(out: bytearray, value: int) -> None:
    put_uint(out, zigzag(value))


def get_int(data: bytes, at: int) -> tuple[int, int]:
    value, at = get_uint(data, at)
    return unzigzag(value), at


def pack_ids(ids: Iterable[int]) -> bytes:
    """Ids as differences to the one before: neighbours take one byte each."""
    out = bytearray()
    before = 0
    for value in ids:
        put_int(out, value - before)
        before = value
    return bytes(out)


def unpack_ids(data: bytes, at: int, count: int) -> tuple[Sequence[int], int]:
    ids: list[int] = []
    value = 0
    for _ in range(count):
        step, at = get_int(data, at)
        value += step
        ids.append(value)
    return ids, at
