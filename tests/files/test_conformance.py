"""Every implementation of `Files` passes the public conformance suite, called and awaited."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from deepagents.backends import FilesystemBackend, StoreBackend
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import PostgresStore
from langgraph.store.sqlite import SqliteStore

from refold.files import (
    CompositeFiles,
    DeepAgentsFiles,
    Files,
    LocalFiles,
    MemoryFiles,
    StateFiles,
    StoreFiles,
    open_files,
)
from refold.testing.files_conformance import UNUSUAL_NAMES, AsyncFilesConformance, FilesConformance


class InMemory:
    def make_files(self) -> Files:
        return MemoryFiles()


class InADirectory:
    @pytest.fixture(autouse=True)
    def _root(self, tmp_path: Path) -> None:
        self.root = tmp_path / "not" / "made" / "yet"

    def make_files(self) -> Files:
        return LocalFiles(self.root)


class TestMemoryFiles(InMemory, FilesConformance):
    """In memory, called."""


class TestMemoryFilesAwaited(InMemory, AsyncFilesConformance):
    """In memory, awaited."""


class TestLocalFiles(InADirectory, FilesConformance):
    """In a directory, called."""


class TestLocalFilesAwaited(InADirectory, AsyncFilesConformance):
    """In a directory, awaited."""


class InObjectMemory:
    def make_files(self) -> Files:
        return open_files("memory://")


class InS3:
    @pytest.fixture(autouse=True)
    def _bucket(self, s3: Any, tmp_path: Path) -> None:
        bucket = s3.make_bucket(f"b{uuid.uuid5(uuid.NAMESPACE_URL, str(tmp_path)).hex}")
        self.url = f"s3://{bucket}/agents/7"
        self.options = s3.options()

    def make_files(self) -> Files:
        return open_files(self.url, options=self.options)


class TestObjectMemory(InObjectMemory, FilesConformance):
    """obstore's memory store, called."""


class TestObjectMemoryAwaited(InObjectMemory, AsyncFilesConformance):
    """obstore's memory store, awaited."""


class TestS3(InS3, FilesConformance):
    """A server of the S3 protocol, called."""


class TestS3Awaited(InS3, AsyncFilesConformance):
    """A server of the S3 protocol, awaited."""


class InStoreMemory:
    def make_files(self) -> Files:
        return StoreFiles(InMemoryStore())


class InStoreSqlite:
    @pytest.fixture(autouse=True)
    def _store(self, tmp_path: Path) -> Iterator[None]:
        with SqliteStore.from_conn_string(str(tmp_path / "store.db")) as store:
            store.setup()
            self.store = store
            yield

    def make_files(self) -> Files:
        return StoreFiles(self.store, namespace=("team", "files"))


@pytest.mark.postgres
class InStorePostgres:
    @pytest.fixture(autouse=True)
    def _store(self, postgres_uri: str, request: pytest.FixtureRequest) -> Iterator[None]:
        with PostgresStore.from_conn_string(postgres_uri) as store:
            store.setup()
            self.store = store
            self.namespace = (str(uuid.uuid5(uuid.NAMESPACE_OID, request.node.nodeid)),)
            yield

    def make_files(self) -> Files:
        return StoreFiles(self.store, namespace=self.namespace)


class InState:
    @pytest.fixture(autouse=True)
    def _session(self) -> Iterator[None]:
        self.files = StateFiles()
        with self.files.session({}):
            yield

    def make_files(self) -> Files:
        return self.files


class OnFsspec:
    @pytest.fixture(autouse=True)
    def _root(self, tmp_path: Path) -> None:
        self.url = f"fsspec+file://{tmp_path}/root"

    def make_files(self) -> Files:
        return open_files(self.url)


class OnFsspecMemory:
    def make_files(self) -> Files:
        memory = fsspec.filesystem("memory")  # one for the process
        memory.store.clear()
        memory.pseudo_dirs[:] = [""]
        return open_files("fsspec+memory://bucket/root")


class OnDeepAgents:
    unusual_names = tuple(name for name in UNUSUAL_NAMES if ".." not in name)  # refused by this backend, with an error

    @pytest.fixture(autouse=True)
    def _root(self, tmp_path: Path) -> None:
        self.backend = FilesystemBackend(root_dir=tmp_path, virtual_mode=True)

    def make_files(self) -> Files:
        return DeepAgentsFiles(self.backend)


class OnDeepAgentsStore:
    def make_files(self) -> Files:
        return DeepAgentsFiles(StoreBackend(store=InMemoryStore(), namespace=lambda _runtime: ("files",)))


class Mounted:
    def make_files(self) -> Files:
        inner = CompositeFiles(MemoryFiles(), {"/f/x": MemoryFiles(), "/odd": open_files("memory://")})
        return CompositeFiles(
            inner, {"/s": MemoryFiles(), "/src/deep": StoreFiles(InMemoryStore()), "/d/b": MemoryFiles()}
        )


class TestStoreMemory(InStoreMemory, FilesConformance):
    """LangGraph's memory store, called."""


class TestStoreMemoryAwaited(InStoreMemory, AsyncFilesConformance):
    """LangGraph's memory store, awaited."""


class TestStoreSqlite(InStoreSqlite, FilesConformance):
    """LangGraph's SQLite store, called."""


class TestStoreSqliteAwaited(InStoreSqlite, AsyncFilesConformance):
    """LangGraph's SQLite store, awaited."""


class TestStorePostgres(InStorePostgres, FilesConformance):
    """LangGraph's Postgres store on a real server, called."""


class TestStorePostgresAwaited(InStorePostgres, AsyncFilesConformance):
    """LangGraph's Postgres store on a real server, awaited."""


class TestState(InState, FilesConformance):
    """Graph state in one session, called."""


class TestStateAwaited(InState, AsyncFilesConformance):
    """Graph state in one session, awaited."""


class TestFsspec(OnFsspec, FilesConformance):
    """fsspec's local file system, called."""


class TestFsspecAwaited(OnFsspec, AsyncFilesConformance):
    """fsspec's local file system, awaited."""


class TestFsspecMemory(OnFsspecMemory, FilesConformance):
    """fsspec's memory file system, called."""


class TestDeepAgents(OnDeepAgents, FilesConformance):
    """Deep Agents' directory backend, called."""


class TestDeepAgentsAwaited(OnDeepAgents, AsyncFilesConformance):
    """Deep Agents' directory backend, awaited."""


class TestDeepAgentsStore(OnDeepAgentsStore, FilesConformance):
    """Deep Agents' store backend, called."""


class TestComposite(Mounted, FilesConformance):
    """Mounts in mounts of several kinds, called."""


class TestCompositeAwaited(Mounted, AsyncFilesConformance):
    """Mounts in mounts of several kinds, awaited."""
