"""Every fact that folds take out of view is found again, on recorded sessions.

A sample of each session's facts; `python -m benchmarks.endurance.recall` looks for all of them.
"""

import sys
from pathlib import Path

import pytest

from refold.replay import read_transcript

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.endurance.facts import Recalled, recalled

SESSIONS = [
    ("langgraph-thread-en.json", False),
    ("langgraph-thread-zh.json", False),
    ("openai-messages-ko.jsonl", False),
    ("openai-messages-airline.json", True),
    ("swe-agent-marshmallow.traj", False),
]
"""Files, and whether their dialogues are joined; the longest ones are the benchmark's."""
MOST = 20


@pytest.fixture(scope="module", params=SESSIONS, ids=lambda session: session[0])
def found(request: pytest.FixtureRequest, sessions_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Recalled:
    """A session in a window of a tenth of its peak, and what became of its facts."""
    path = sessions_dir / request.param[0]
    if not path.exists():
        pytest.skip(f"no {path.name} here")
    return recalled(read_transcript(path, join=request.param[1]), tmp_path_factory.mktemp("recall"), most=MOST)


@pytest.mark.recorded
class TestARecordedSessionIsRecalled:
    """With the agent's own `search_history` and `read_history`, on the real files."""

    def test_every_removed_fact_is_found(self, found: Recalled) -> None:
        """Paths, commands, URLs, numbers and identifiers: none is missed."""
        assert dict.fromkeys(found.facts, ()) == {cls: facts.missed for cls, facts in found.facts.items()}

    def test_every_path_in_the_window_gives_back_what_it_names(self, found: Recalled) -> None:
        """By the hash in its name; an archive message by message."""
        assert found.broken == ()
        assert found.unreachable == ()
