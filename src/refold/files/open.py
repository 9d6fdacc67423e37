"""Storage by URL or path."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from refold.errors import ConfigurationError
from refold.files.base import BaseFiles
from refold.files.local import LocalFiles
from refold.files.objects import ObjectFiles, store_from_url

_OBJECT_SCHEMES = frozenset({"s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss", "memory"})


def open_files(location: str | Path, *, options: Mapping[str, str] | None = None) -> BaseFiles:
    """Files at a directory's path or a URL.

    A path, or `file:///srv/agents`: `LocalFiles`. `s3://bucket/prefix`, `gs://bucket/prefix`,
    `az://container/prefix` and `memory://`: `ObjectFiles` through obstore, whose options these are (`region`,
    `endpoint`, `access_key_id`, …). `fsspec+sftp://host/folder`: `FsspecFiles`, with the options of that file system.

    Raises `ConfigurationError` for a scheme that nothing answers to, a missing optional package, or an option that the
    store does not know. Nothing is read or written yet.
    """
    if isinstance(location, Path) or "://" not in location:
        _no_options(location, options)
        return LocalFiles(location)
    scheme, rest = location.split("://", 1)
    if scheme == "file":
        _no_options(location, options)
        return LocalFiles(_local_path(location))
    if scheme in _OBJECT_SCHEMES:
        return ObjectFiles(store_from_url(location, dict(options or {})))
    if scheme.startswith("fsspec+"):
        from refold.files.fsspec import fsspec_files  # an extra

        return fsspec_files(f"{scheme.removeprefix('fsspec+')}://{rest}", dict(options or {}))
    raise ConfigurationError(
        f"no storage answers to {scheme}://: use a path, file://, s3://, gs://, az://, memory://, or fsspec+{scheme}://"
    )


def _local_path(url: str) -> Path:
    parts = urlsplit(url)
    if parts.netloc not in {"", "localhost"} or not parts.path:
        raise ConfigurationError(f"{url} names no local directory: write file:///absolute/path")
    return Path(unquote(parts.path))


def _no_options(location: str | Path, options: Mapping[str, str] | None) -> None:
    if options:
        raise ConfigurationError(f"a local directory ({location}) takes no options, not {sorted(options)}")
