"""The session that the project ships, and the script that records it."""

import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from refold.core.blocks import blocks_of
from refold.core.messages import text_of
from refold.core.policy import Policy
from refold.replay import Transcript, read_transcript
from refold.replay.bill import bill
from refold.replay.managed import replay

REPOSITORY = Path(__file__).resolve().parent.parent.parent
SESSION = REPOSITORY / "sessions" / "repository-tour.jsonl"
HAN = re.compile(r"[\u4e00-\u9fff]")


@pytest.fixture(scope="module")
def shipped() -> Transcript:
    return read_transcript(SESSION)


class TestShippedSession:
    """Long, real, in two languages, and whole."""

    def test_it_is_long_and_undamaged(self, shipped: Transcript) -> None:
        """At least 400 messages, between 0.6 and 1.2 MB, nothing skipped."""
        assert len(shipped.messages) >= 400
        assert 600_000 <= SESSION.stat().st_size <= 1_200_000
        assert shipped.skipped == ()

    def test_every_call_has_its_result(self, shipped: Transcript) -> None:
        """Calls and results are paired, and every reply's results stand right behind it."""
        pairing = shipped.pairing()
        assert pairing.unanswered() == ()
        assert pairing.orphans == ()
        for paired in pairing.calls:
            assert paired.answered_by is not None
            between = shipped.messages[paired.made_by + 1 : paired.answered_by]
            assert all(isinstance(message, ToolMessage) for message in between)

    def test_chinese_and_english(self, shipped: Transcript) -> None:
        """Questions, answers and notes are in both languages."""
        for kind in (HumanMessage, AIMessage):
            texts = [text_of(m) for m in shipped.messages if isinstance(m, kind) and text_of(m)]
            assert any(HAN.search(text) for text in texts)
            assert any(not HAN.search(text) for text in texts)
        notes = [
            c["args"]["text"]
            for m in shipped.messages
            if isinstance(m, AIMessage)
            for c in m.tool_calls
            if c["name"] == "write_note"
        ]
        assert sum(len(HAN.findall(note)) for note in notes) > 1000

    def test_what_makes_it_worth_folding(self, shipped: Transcript) -> None:
        """Several turns, a long paste, long results, long arguments, parallel calls, reasoning, errors, a todo list."""
        humans = [text_of(m) for m in shipped.messages if isinstance(m, HumanMessage)]
        replies = [m for m in shipped.messages if isinstance(m, AIMessage)]
        results = [m for m in shipped.messages if isinstance(m, ToolMessage)]
        assert len(humans) >= 5
        assert max(map(len, humans)) > 5000
        assert sum(len(text_of(m)) > 3000 for m in results) > 50
        assert any(len(str(call["args"])) > 5000 for m in replies for call in m.tool_calls)
        assert any(len(m.tool_calls) > 2 for m in replies)
        assert any(block.kind == "reasoning" for m in replies for block in blocks_of(m))
        assert any(m.status == "error" for m in results)
        called = {call["name"] for m in replies for call in m.tool_calls}
        assert called == {tool.name for tool in shipped.tools}

    def test_no_path_of_a_machine(self) -> None:
        """The agent sees `/repo`; neither this checkout nor a temporary folder is in the file."""
        text = SESSION.read_text(encoding="utf-8")
        for path in (str(REPOSITORY), str(Path.home()) + "/", tempfile.gettempdir() + "/repository-tour-", sys.prefix):
            assert path not in text


class TestRecording:
    """The script makes the same session from the same files."""

    def test_recording_twice_gives_the_same_bytes(self, tmp_path: Path) -> None:
        """Over a small tree: the tools really run, and nothing of the machine or the moment gets in."""
        tree = tmp_path / "tree"
        (tree / "src" / "pack").mkdir(parents=True)
        (tree / "LICENSE").write_text("MIT License\n")
        (tree / "pyproject.toml").write_text('requires-python = ">=3.11"\n')
        (tree / "src" / "pack" / "one.py").write_text(
            '"""One."""\n\n\nclass OneError(Exception):\n    pass\n\n\ndef f() -> None:\n    raise OneError\n'
        )
        recorded = []
        for name in ("a", "b"):
            out = tmp_path / name
            script = REPOSITORY / "scripts" / "record_session.py"
            subprocess.run(
                [sys.executable, str(script), "--source", str(tree), "--out", str(out)],
                check=True,
                capture_output=True,
                timeout=100,
            )
            recorded.append(out.read_bytes())
        assert recorded[0] == recorded[1]
        assert str(tree) not in recorded[0].decode()
        transcript = read_transcript(tmp_path / "a")
        results = [text_of(m) for m in transcript.messages if isinstance(m, ToolMessage)]
        assert "/repo/src/pack/one.py:9: raise OneError" in results
        assert any("ZeroDivisionError" in result and result.endswith("[exit code 1]") for result in results)


class TestFault129:
    """A price gate is kept only while replayed sessions show that it decides something."""

    def test_the_soft_zone_pays_for_itself(self, shipped: Transcript) -> None:
        """With the zone where cheap folds are made only if they pay, a part of the session makes no more summaries and
        costs no more, by two providers' prices, than without it."""
        part = replace(shipped, messages=shipped.messages[:240])
        gated, plain = (replay(part, policy=Policy(soft=soft), limit=16_000) for soft in (0.5, 0.8))
        assert gated.summaries <= plain.summaries
        for model in ("claude-sonnet-4-5", "gpt-5"):
            with_gate, without = (bill(one.requests, [], model=model).managed for one in (gated, plain))
            assert with_gate <= without
