"""Files in object stores, beyond the conformance suite."""

import asyncio
from typing import Any

import obstore
import pytest
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from refold.errors import ConfigurationError, FileMissingError, FilesUnavailableError
from refold.files import FsspecFiles, LocalFiles, ObjectFiles, open_files
from refold.files.objects import GetObject, _answer_to, store_from_url


class TestFailures:
    """Every failure of the service is a typed error, never a missing file."""

    def test_no_such_bucket(self, s3: Any) -> None:
        """Writing and listing say that the storage failed."""
        files = open_files("s3://no-such-bucket/x", options=s3.options())
        for mode in ("create", "replace", "append"):
            with pytest.raises((FilesUnavailableError, FileMissingError)):
                files.write("/a", b"x", mode=mode)
        with pytest.raises(FilesUnavailableError) as caught:
            files.list("/")
        assert caught.value.__cause__ is not None

    def test_nobody_listens(self) -> None:
        """A refused connection is `FilesUnavailableError`, called and awaited."""
        store = S3Store(
            "b",
            config={"endpoint": "http://127.0.0.1:9", "access_key_id": "x", "secret_access_key": "y", "region": "r"},
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )
        files = ObjectFiles(store)
        with pytest.raises(FilesUnavailableError):
            files.read("/a")
        with pytest.raises(FilesUnavailableError):
            asyncio.run(files.asynchronous().write("/a", b"", mode="create"))

    def test_errors_show_no_signatures(self) -> None:
        """A signed URL in an error of the service does not reach the message, which a model may read."""
        error = OSError("Error performing GET https://me.blob.core.windows.net/c/a?sv=2024&sig=SECRET in 3ms\nmore")
        with pytest.raises(FilesUnavailableError) as caught:
            _answer_to(error, GetObject(key="a"))
        assert "SECRET" not in str(caught.value)
        assert "me.blob.core.windows.net/c/a" in str(caught.value)


class TestKeys:
    """Where objects lie."""

    def test_keys_are_the_paths_below_the_prefix(self, s3: Any) -> None:
        """A path is its key, under the prefix of the URL."""
        bucket = s3.make_bucket("keys")
        open_files(f"s3://{bucket}/team/7", options=s3.options()).write("/notes/a.md", b"x", mode="create")
        whole = store_from_url(f"s3://{bucket}", s3.options())
        assert [meta["path"] for batch in obstore.list(whole) for meta in batch] == ["team/7/notes/a.md"]

    def test_keys_of_others_that_are_no_paths_are_not_listed(self) -> None:
        """What another program put there under a strange name does not break a listing."""
        store = MemoryStore()
        for key in ("ok", "nul", "trailing."):
            obstore.put(store, key, b"x")
        files = ObjectFiles(store)
        assert [info.path for info in files.list("/")] == ["/ok"]
        assert [info.path for info in files.folder("/").files] == ["/ok"]

    def test_a_range_is_one_range_request(self, s3: Any) -> None:
        """The middle of a large object does not load the rest."""
        files = open_files(f"s3://{s3.make_bucket('ranges')}", options=s3.options())
        files.write("/big", bytes(range(256)) * 20_000, mode="create")
        assert files.read("/big", start=256 * 10_000 + 3, length=4) == b"\x03\x04\x05\x06"


class TestByUrl:
    """`open_files` finds the storage of a URL."""

    def test_each_scheme(self, tmp_path: Any) -> None:
        """Directories, object stores of three providers, memory and fsspec; nothing is read or written."""
        assert isinstance(open_files(tmp_path / "x"), LocalFiles)
        assert isinstance(open_files(str(tmp_path / "x")), LocalFiles)
        local = open_files(f"file://{tmp_path}/with%20space")
        assert isinstance(local, LocalFiles)
        assert local.root == tmp_path / "with space"
        assert isinstance(open_files("memory://"), ObjectFiles)
        assert isinstance(open_files(f"fsspec+file://{tmp_path}/x"), FsspecFiles)
        keys = {"access_key_id": "x", "secret_access_key": "y"}
        assert isinstance(store_from_url("s3://bucket/p", {**keys, "region": "eu-west-1"}), S3Store)
        assert isinstance(store_from_url("gs://bucket/p", {"skip_signature": "true"}), GCSStore)
        azure = {"account_name": "me", "account_key": "a2V5"}
        assert isinstance(store_from_url("az://container/p", azure), AzureStore)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("location", "options"),
        [
            ("ftp://host/x", {}),
            ("file://host/x", {}),
            ("file://", {}),
            ("s3://bucket", {"no_such_option": "x"}),
            ("fsspec+nosuchprotocol://x", {}),
            ("/a/path", {"region": "x"}),
        ],
    )
    def test_mistakes(self, location: str, options: dict[str, str]) -> None:
        """Unknown schemes, hosts and options are configuration errors that say so."""
        with pytest.raises(ConfigurationError):
            open_files(location, options=options)

    @pytest.mark.parametrize(("url", "extra"), [("s3://b", "objects"), ("fsspec+sftp://h/x", "fsspec")])
    def test_a_missing_package_is_named(self, url: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without the optional package the error says which extra to install."""
        import sys

        for name in ("obstore.exceptions", "obstore.store", "fsspec.core"):
            monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ConfigurationError, match=rf"refold\[{extra}\]"):
            open_files(url)
