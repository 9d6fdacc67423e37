"""Effects that core programs ask for: what a model call, a compaction or an ingestion needs of the world."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from refold.core.program import Effect

WriteMode: TypeAlias = Literal["create", "replace", "append"]
"""How a write meets what is there: see `refold.files.Files.write`."""


@dataclass(frozen=True, kw_only=True)
class ReadFile(Effect[bytes]):
    """The bytes of a file. Raises `FileMissingError` into the program when nothing is stored there."""

    path: str


@dataclass(frozen=True, kw_only=True)
class WriteFile(Effect[None]):
    """Store bytes under a path; the modes and errors are those of `refold.files.Files.write`."""

    path: str
    data: bytes
    mode: WriteMode
