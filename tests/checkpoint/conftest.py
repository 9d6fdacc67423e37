"""Fixtures of the checkpoint tests. The helper modules beside the tests are imported by name.

Postgres is the server of `tests/conftest.py`; each test has a database of its own.
"""

import itertools
import sys
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


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """The connection string of a new, empty database."""
    import psycopg
    from psycopg.conninfo import make_conninfo

    name = f"test_{next(_names)}"
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
    return make_conninfo(postgres_server, dbname=name)
