"""Recorded sessions, each inside a tenth of what it needs: the main job, on real input."""

from pathlib import Path

import pytest

from refold.core.policy import Policy
from refold.replay import read_transcript
from refold.replay.managed import replay
from refold.replay.measure import Scale
from refold.replay.result import Replay
from refold.replay.tape import playable
from refold.replay.transcript import Transcript

SESSIONS: list[tuple[str, int | None]] = [
    ("claude-code-771.jsonl", 0),
    ("codex-rollout-581.jsonl", 0),
    ("gemini-cli.json", 0),
    ("langgraph-thread-en.json", 0),
    ("langgraph-thread-zh.json", 0),
    ("openai-messages-airline.json", None),
    # one at a time: the tools of all dialogues together would fill the window before the first message
    *(("openai-messages-ko.jsonl", number) for number in range(6)),
    ("openai-messages-mcp-zh.json", None),
    ("openai-messages-zh-images.json", 0),
    ("swe-agent-marshmallow.traj", 0),
]
"""Files, and which dialogue of each; None joins all of them."""
LEAST = 8_000


def peak_of(transcript: Transcript) -> int:
    """Tokens of the largest request without refold."""
    scale = Scale.strict()
    parts = scale.parts(None, [schema.as_openai() for schema in transcript.tools], playable(transcript).messages)
    system = scale.meter.count_text(transcript.system or "")
    return system + sum(tokens for _, tokens in parts)


@pytest.fixture(scope="module", params=SESSIONS, ids=lambda session: f"{session[0]}#{session[1]}")
def result(request: pytest.FixtureRequest, sessions_dir: Path) -> Replay:
    """A session, replayed once for all the claims about it."""
    name, index = request.param
    path = sessions_dir / name
    if not path.exists():
        pytest.skip(f"no {name} here")
    transcript = read_transcript(path, join=index is None, index=index or 0)
    return replay(transcript, policy=Policy(), limit=max(LEAST, peak_of(transcript) // 10))


@pytest.mark.recorded
@pytest.mark.timeout(600)
class TestARecordedSession:
    """`replay` itself fails unless the run's log is the recorded one."""

    def test_every_request_is_valid_and_fits(self, result: Replay) -> None:
        """For all four providers, by the strict counter; refused requests would count."""
        assert result.over_limit == 0
        assert dict(result.invalid) == dict.fromkeys(result.invalid, 0)
        assert result.holds

    def test_nothing_is_lost(self, result: Replay) -> None:
        """Each message is in the window, or was read back from a named file or by id; so is every fact."""
        assert result.recalled.unreachable == ()
        assert all(kept.recallable == kept.total for kept in result.recalled.facts.values())

    def test_the_prefix_breaks_only_at_recorded_folds(self, result: Replay) -> None:
        """At most one break per pass, and none without."""
        assert result.unexplained == ()
        assert len(result.breaks) <= result.passes

    def test_user_words_stand(self, result: Replay) -> None:
        """The first human message verbatim, the newest verbatim and last, in every request."""
        assert result.problems == ()

    def test_no_fold_is_void(self, result: Replay) -> None:
        """The log only grew, so every fold still fits it."""
        assert result.void == 0
