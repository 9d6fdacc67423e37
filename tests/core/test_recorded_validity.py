"""Recorded sessions: what real agents left behind is shown so that every provider takes it."""

from pathlib import Path

import pytest

from refold.core.repair import repair
from refold.core.validate import all_violations
from refold.replay.importers import read_transcripts

pytestmark = pytest.mark.recorded


class TestRecordedSessionsAreRepaired:
    """The recordings hold empty answers, calls without results and ids used twice."""

    def test_nothing_is_left_to_refuse(self, sessions_dir: Path) -> None:
        """After repair no provider's rule is broken, and only sessions that broke a rule are repaired."""
        checked = 0
        for path in sorted(sessions_dir.iterdir()):
            if path.suffix == ".md":
                continue
            for transcript in read_transcripts(path):
                repaired = repair(transcript.messages)
                assert all_violations(repaired.messages) == {}
                assert bool(repaired.repairs) == bool(all_violations(transcript.messages))
                checked += 1
        assert checked > 0
