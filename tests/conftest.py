"""Fixtures that every test folder shares."""

import os
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
