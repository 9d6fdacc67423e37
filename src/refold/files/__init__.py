"""Storage of artifacts and of the agent's own files: one protocol, many places."""

from refold.core.effects import ReadFile, WriteFile, WriteMode
from refold.core.paths import clean_folder, clean_path, is_under, safe_name
from refold.files.base import BaseFiles, ProgramFiles, in_thread
from refold.files.composite import CompositeFiles
from refold.files.deepagents import DeepAgentsFiles
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
from refold.files.fsspec import FsspecFiles
from refold.files.local import LocalFiles
from refold.files.memory import MemoryFiles
from refold.files.objects import ObjectFiles
from refold.files.open import open_files
from refold.files.protocol import AsyncFiles, FileInfo, Files, Folder, Hit, Query, SearchResult
from refold.files.retention import Collected, Retention, acollect, collect, referenced_paths
from refold.files.state import FilesState, StateFiles, files_session, reduce_files
from refold.files.store import StoreFiles

__all__ = [
    "AsyncFiles",
    "BaseFiles",
    "Collected",
    "CompositeFiles",
    "DeepAgentsFiles",
    "DeleteFile",
    "FileInfo",
    "Files",
    "FilesState",
    "Folder",
    "FsspecFiles",
    "GlobFiles",
    "Hit",
    "ListFiles",
    "ListFolder",
    "LocalFiles",
    "MemoryFiles",
    "ObjectFiles",
    "ProgramFiles",
    "Query",
    "ReadFile",
    "ReadRange",
    "Retention",
    "SearchFiles",
    "SearchResult",
    "StatFile",
    "StateFiles",
    "StoreFiles",
    "SwapFile",
    "WriteFile",
    "WriteMode",
    "aanswer",
    "acollect",
    "answer",
    "clean_folder",
    "clean_path",
    "collect",
    "files_session",
    "in_thread",
    "is_under",
    "open_files",
    "reduce_files",
    "referenced_paths",
    "safe_name",
]
