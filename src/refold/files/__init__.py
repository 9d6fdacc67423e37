"""Storage of artifacts and of the agent's own files: one protocol, many places."""

from refold.core.effects import ReadFile, WriteFile, WriteMode
from refold.core.paths import clean_folder, clean_path, is_under, safe_name
from refold.files.base import BaseFiles, ProgramFiles, in_thread
from refold.files.effects import (
    DeleteFile,
    GlobFiles,
    ListFiles,
    ListFolder,
    ReadRange,
    SearchFiles,
    StatFile,
    SwapFile,
    aanswer,
    answer,
)
from refold.files.local import LocalFiles
from refold.files.memory import MemoryFiles
from refold.files.protocol import AsyncFiles, FileInfo, Files, Folder, Hit, Query, SearchResult

__all__ = [
    "AsyncFiles",
    "BaseFiles",
    "DeleteFile",
    "FileInfo",
    "Files",
    "Folder",
    "GlobFiles",
    "Hit",
    "ListFiles",
    "ListFolder",
    "LocalFiles",
    "MemoryFiles",
    "ProgramFiles",
    "Query",
    "ReadFile",
    "ReadRange",
    "SearchFiles",
    "SearchResult",
    "StatFile",
    "SwapFile",
    "WriteFile",
    "WriteMode",
    "aanswer",
    "answer",
    "clean_folder",
    "clean_path",
    "in_thread",
    "is_under",
    "safe_name",
]
