"""The replay itself: odd recordings come out as they went in, and what it measures is so."""

from collections.abc import Sequence

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver as LangGraphSqliteSaver

from refold.core.policy import Policy
from refold.errors import ContextOverflowError, ReplayMismatchError
from refold.replay.extract import summarise
from refold.replay.ledger import Ledger
from refold.replay.managed import replay
from refold.replay.measure import Scale
from refold.replay.report import render
from refold.replay.result import Replay, to_json
from refold.replay.run import check_log, play
from refold.replay.tape import Tape
from refold.replay.transcript import ToolSchema, Transcript, with_ids


def call(*ids: str, name: str = "bash", text: str = "") -> AIMessage:
    return AIMessage(text, tool_calls=[{"id": i, "name": name, "args": {"command": f"run {i}"}} for i in ids])


def result(call_id: str, text: str = "done") -> ToolMessage:
    return ToolMessage(text, tool_call_id=call_id)


def transcript(*messages: BaseMessage, **fields: object) -> Transcript:
    return Transcript(name="t", format="test", messages=with_ids(messages), **fields)  # type: ignore[arg-type]


def long_session(rounds: int) -> Transcript:
    messages: list[BaseMessage] = [HumanMessage("Fix /srv/app/main.py; never touch /etc/passwd.")]
    for n in range(rounds):
        body = "\n".join(f"line {i} of /srv/app/module_{n}.py holds value {i * n}" for i in range(60))
        messages += [call(f"c{n}", text=f"I read module {n} because it may hold the error."), result(f"c{n}", body)]
        if n % 10 == 9:
            messages += [AIMessage(f"Part {n} is done."), HumanMessage(f"Go on with part {n + 1}.")]
    return transcript(*messages, AIMessage("All done."), system="You are careful.")


ODD: dict[str, Sequence[BaseMessage]] = {
    "plain": [HumanMessage("hi"), call("a"), result("a"), AIMessage("bye")],
    "parallel": [HumanMessage("hi"), call("a", "b", "c"), result("a"), result("b"), result("c"), AIMessage("bye")],
    "out of order": [HumanMessage("hi"), call("a", "b"), result("b"), result("a"), AIMessage("bye")],
    "one of two answered": [HumanMessage("hi"), call("a", "b"), result("a"), HumanMessage("stop"), AIMessage("ok")],
    "unanswered": [HumanMessage("hi"), call("a"), HumanMessage("no"), AIMessage("ok")],
    "unanswered at the end": [HumanMessage("hi"), call("a")],
    "ends with a result": [HumanMessage("hi"), call("a"), result("a")],
    "ends with a human": [HumanMessage("hi"), AIMessage("yes?"), HumanMessage("nothing")],
    "human after results": [HumanMessage("hi"), call("a"), result("a"), HumanMessage("wait"), AIMessage("ok")],
    "late result": [HumanMessage("hi"), call("a"), HumanMessage("and?"), result("a"), AIMessage("ok")],
    "orphan result": [HumanMessage("hi"), result("zz"), AIMessage("ok")],
    "replies in a row": [HumanMessage("hi"), AIMessage("one"), AIMessage("two"), HumanMessage("x"), AIMessage("y")],
    "begins with a reply": [AIMessage("welcome"), HumanMessage("hi"), AIMessage("ok")],
    "system inside": [HumanMessage("hi"), SystemMessage("rule"), AIMessage("ok")],
    "same id twice": [HumanMessage("hi"), call("a", "a"), result("a"), result("a"), AIMessage("ok")],
    "same id every round": [HumanMessage("hi"), call("a"), result("a", "1"), call("a"), result("a", "2")],
    "error status": [
        HumanMessage("hi"), call("a"), ToolMessage("no such file", tool_call_id="a", status="error"), AIMessage("x"),
    ],
    "broken arguments": [
        HumanMessage("hi"),
        AIMessage("", invalid_tool_calls=[{"id": "a", "name": "f", "args": "{oops", "error": "no JSON"}]),
        result("a", "invalid"),
        AIMessage("ok"),
    ],
}  # fmt: skip


class TestTheLogIsReproduced:
    """`replay` raises unless the log of the run is the recorded one; here it must come through."""

    @pytest.mark.parametrize("name", ODD)
    def test_odd_recordings(self, name: str) -> None:
        """Whatever is odd about a recording, each message comes out as it went in, and every reply to something was
        asked for."""
        given = transcript(*ODD[name])
        played = replay(given, policy=Policy(), limit=16_000)
        assert len(played.calls) == sum(isinstance(message, AIMessage) for message in given.messages[1:])
        assert played.recalled.in_window + played.recalled.by_id == len(given.messages)
        assert played.recalled.unreachable == ()

    @pytest.mark.parametrize("system", ["", "You are careful."])
    @pytest.mark.parametrize("first", [AIMessage("welcome"), call("a"), SystemMessage("rule")])
    def test_a_recording_that_lost_its_beginning(self, first: BaseMessage, system: str) -> None:
        """A reply before anything was asked answers no request; none is made up for it, and the run holds."""
        answered = [result("a")] if first.type == "ai" and first.tool_calls else []  # type: ignore[attr-defined]
        recorded = transcript(first, *answered, AIMessage("so"), HumanMessage("hi"), AIMessage("ok"), system=system)
        outcome = replay(recorded, policy=Policy(), limit=8_000)
        assert outcome.problems == ()
        assert all(request.tokens for request in outcome.requests)

    def test_recorded_tools_are_bound_and_any_other_is_answered(self) -> None:
        """Schemas count as tokens of each request; a call of a tool without one gets its recorded result."""
        schema = ToolSchema(name="bash", description="Run a command.", parameters={"type": "object", "properties": {}})
        given = transcript(*ODD["plain"], call("q", name="unheard_of"), result("q"), tools=(schema,))
        bare = replay(transcript(*given.messages), policy=Policy(), limit=16_000)
        with_tools = replay(given, policy=Policy(), limit=16_000)
        assert with_tools.calls[0].request.categories["tools"] > bare.calls[0].request.categories["tools"]

    def test_a_difference_is_an_error(self) -> None:
        """Another text, another id, one message less."""
        log = transcript(*ODD["plain"]).messages
        changed = [*log[:-1], log[-1].model_copy(update={"content": "other"})]
        renamed = [*log[:-1], log[-1].model_copy(update={"id": "other"})]
        for other in (changed, renamed, log[:-1]):
            with pytest.raises(ReplayMismatchError):
                check_log(other, log)

    def test_subagents_are_runs_of_their_own(self) -> None:
        """Each is replayed and reported, and counts for the verdict."""
        child = long_session(3)
        given = transcript(*ODD["plain"], subagents=(child,))
        played = replay(given, policy=Policy(), limit=16_000)
        assert [len(sub.calls) for sub in played.subagents] == [len(played.subagents[0].calls)]
        assert len(played.subagents[0].transcript.messages) == len(child.messages)


@pytest.fixture(scope="module")
def squeezed() -> Replay:
    return replay(long_session(40), policy=Policy(), limit=8_000)


class TestALongSessionInASmallWindow:
    """40 rounds that need eight times the window."""

    def test_it_holds(self, squeezed: Replay) -> None:
        """Everything fits, is valid, and can be reached."""
        assert squeezed.problems == ()
        assert squeezed.holds
        assert squeezed.peak <= 8_000 < squeezed.peak_without / 4

    def test_the_json_has_every_key_of_the_contract(self, squeezed: Replay) -> None:
        """Keys and kinds as docs/cli-json.md says; it is the same object on a second run but for the clock."""
        value = to_json(squeezed)
        assert {
            "session", "messages", "calls", "limit", "peak_without", "peak", "over_limit", "invalid", "folds",
            "summaries", "prefix_breaks", "unexplained_breaks", "unreachable", "billed", "cached_share", "raw_bytes",
            "checkpoint_bytes", "facts", "skipped_records",
        } <= set(value)  # fmt: skip
        assert value["messages"] == 90
        assert value["invalid"] == dict.fromkeys(("openai_chat", "openai_responses", "anthropic", "gemini"), 0)
        again = to_json(replay(long_session(40), policy=Policy(), limit=8_000))
        clock = {"seconds", "checkpoint_bytes"}  # a database file has the random tail of its ids
        assert {k: v for k, v in again.items() if k not in clock} == {k: v for k, v in value.items() if k not in clock}

    def test_breaks_belong_to_passes(self, squeezed: Replay) -> None:
        """Folding happened, and each break has its pass."""
        assert 0 < len(squeezed.breaks) <= squeezed.passes
        assert squeezed.unexplained == ()

    def test_facts_are_recallable(self, squeezed: Replay) -> None:
        """All of them; and the user's constraint is in view."""
        kept = {str(cls): counts for cls, counts in squeezed.recalled.facts.items()}
        assert all(counts.recallable == counts.total for counts in kept.values())
        assert kept["constraint"].in_view == kept["constraint"].total > 0

    def test_the_report_stands_alone(self, squeezed: Replay) -> None:
        """One page, no script, nothing loaded from anywhere, every section there."""
        page = render(squeezed)
        assert "<script" not in page
        assert "http" not in page.replace("http-equiv", "")
        assert page.count("<svg") == 4
        for title in ("Window occupancy", "Billed cost", "Prefix reuse", "Folds", "All numbers"):
            assert f"<h2>{title}</h2>" in page

    def test_a_window_that_cannot_do_is_a_typed_error(self) -> None:
        """The numbers say why."""
        huge = transcript(HumanMessage("word " * 4_000), AIMessage("ok"), system="rule " * 3_000)
        with pytest.raises(ContextOverflowError) as caught:
            replay(huge, policy=Policy(), limit=2_000)
        assert caught.value.limit == 2_000


class TestSecrets:
    """Nothing that looks like a secret is shown."""

    def test_the_page_hides_them(self) -> None:
        """A name and a tool's name with a key in it."""
        key = "ghp_" + "AbCd1234EfGh5678IjKlMnOp9012QrSt3456"
        given = Transcript(name=f"session {key}", format="test", messages=transcript(*ODD["plain"]).messages)
        page = render(replay(given, policy=Policy(), limit=16_000))
        assert key not in page
        assert "[redacted" in page

    def test_markup_is_text(self) -> None:
        """A name with tags in it is shown, not run."""
        given = Transcript(name="<script>alert(1)</script>", format="test", messages=transcript(*ODD["plain"]).messages)
        page = render(replay(given, policy=Policy(), limit=16_000))
        assert "<script" not in page


class TestCheckpoints:
    """The ledger counts what LangGraph's saver would really write."""

    def test_whole_copies_are_as_large_as_counted(self, tmp_path: object, squeezed: Replay) -> None:
        """Within 15 % of the file that LangGraph's own SQLite saver makes of the same run."""
        given = long_session(12)
        path = f"{tmp_path}/lg.db"
        with LangGraphSqliteSaver.from_conn_string(path) as saver:
            tape = Tape(transcript=given)
            play(tape, [], limit=10**9, model_name="m", scale=Scale.strict(), saver=saver)
            size = saver.conn.execute(
                "select sum(length(checkpoint)) + sum(length(metadata)) from checkpoints"
            ).fetchone()[0]
            size += saver.conn.execute("select sum(length(value)) from writes").fetchone()[0]
        counted = replay(given, policy=Policy(), limit=100_000).whole_copies_bytes
        assert abs(counted - size) < 0.15 * size

    def test_ours_is_far_smaller(self, squeezed: Replay) -> None:
        """Each message once."""
        assert squeezed.checkpoint_bytes < squeezed.whole_copies_bytes / 5

    def test_the_ledger_measures_values_once(self) -> None:
        """A message costs the same in every copy."""
        ledger = Ledger()
        message = HumanMessage("hello", id="m1")
        ledger.writes([("messages", [message])])
        first = ledger.whole_copies
        ledger.writes([("messages", [message])])
        assert ledger.whole_copies == 2 * first


class TestTheSummariser:
    """Deterministic, extractive, about as long as asked."""

    def test_it_takes_what_is_there(self) -> None:
        """User words and decisions come first; nothing is made up."""
        window = [
            HumanMessage("Use port 8080."),
            AIMessage("I look. The problem is the port because it is taken."),
            HumanMessage("Write a record. At most about 60 words."),
        ]
        text = summarise(window)
        assert text == summarise(window)
        assert "Use port 8080." in text
        assert "because it is taken" in text

    def test_it_keeps_to_the_length(self) -> None:
        """Twice the words, at most."""
        window = [
            *(AIMessage(f"I did step {n}. It worked.") for n in range(500)),
            HumanMessage("At most about 80 words."),
        ]
        assert len(summarise(window).split()) < 160


class TestMiddlewareAtWill:
    """`play` takes any middleware, so that others can be measured on the same tape."""

    def test_none_at_all(self) -> None:
        """Without any, the requests are the whole log."""
        given = long_session(5)
        tape = Tape(transcript=given)
        play(tape, [], limit=10**9, model_name="m", scale=Scale.strict(), saver=InMemorySaver())
        assert [len(request.parts) - 2 for request in tape.requests] == [request.position for request in tape.requests]
