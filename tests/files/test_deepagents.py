"""Files on Deep Agents backends, beyond the conformance suite."""

from typing import Any

import pytest
from deepagents.backends import FilesystemBackend, StateBackend
from deepagents.backends.protocol import BackendProtocol, FileDownloadResponse, FileUploadResponse, LsResult
from deepagents.middleware.filesystem import FilesystemState
from langgraph.graph import END, START, StateGraph

from refold.errors import FilesUnavailableError
from refold.files import DeepAgentsFiles


class Refusing(BackendProtocol):
    """A backend whose every write fails."""

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return [FileUploadResponse(path=path, error="permission_denied") for path, _ in files]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return [FileDownloadResponse(path=path, error="file_not_found") for path in paths]

    def ls(self, path: str) -> LsResult:
        return LsResult(entries=[])


class Raising(Refusing):
    """A backend that raises."""

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        raise TimeoutError("the sandbox is gone")


class TestFailures:
    """What a backend reports as a value, or raises, is a typed error."""

    def test_a_root_that_cannot_be_written(self) -> None:
        """Fault 107: every mode of writing raises, so whoever folds keeps the original."""
        files = DeepAgentsFiles(Refusing())
        for mode in ("create", "replace", "append"):
            with pytest.raises(FilesUnavailableError, match="permission_denied"):
                files.write("/a", b"x", mode=mode)

    def test_a_backend_that_raises(self) -> None:
        """With the backend's own error as the cause."""
        with pytest.raises(FilesUnavailableError, match="sandbox") as caught:
            DeepAgentsFiles(Raising()).read("/a")
        assert isinstance(caught.value.__cause__, TimeoutError)

    def test_a_delete_never_takes_a_folder(self, tmp_path: Any) -> None:
        """The backend's delete is recursive; ours is not."""
        files = DeepAgentsFiles(FilesystemBackend(root_dir=tmp_path, virtual_mode=True))
        files.write("/d/a", b"x", mode="create")
        files.delete("/d")
        assert files.read("/d/a") == b"x"


class TestInAGraph:
    """A backend in graph state works inside of a run."""

    def test_state_backend(self) -> None:
        """Written in one step with exact sizes, read in the same step and in the next."""
        files = DeepAgentsFiles(StateBackend())
        seen: list[object] = []

        def write(_state: FilesystemState) -> None:
            files.write("/results/a", b"\x00\xff" * 10, mode="create")
            files.write("/results/a", b"\x00\xff" * 10, mode="create")
            seen.append([(info.path, info.size) for info in files.list("/")])

        def read(_state: FilesystemState) -> None:
            seen.append(files.read("/results/a"))

        graph = StateGraph(FilesystemState)
        graph.add_node("write", write)
        graph.add_node("read", read)
        graph.add_edge(START, "write")
        graph.add_edge("write", "read")
        graph.add_edge("read", END)
        graph.compile().invoke({"messages": []})
        assert seen == [[("/results/a", 20)], b"\x00\xff" * 10]
