"""Repair: a broken history is shown whole and valid, a sound one as it is, and no text claims what is not known."""

import json
import sys
from collections.abc import Callable, Sequence
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from refold.core.messages import REFOLD_KEY, calls_of, content_hash
from refold.core.repair import EMPTY_ANSWER, START, Reason, Repaired, drop_bound_reasoning, repair
from refold.core.repair.results import TEXTS
from refold.core.rounds import pair, units_of
from refold.core.validate import PROVIDERS, all_violations, violations
from refold.testing.strategies import FAULTY, applied, damages, edits, histories

USER = HumanMessage("hi", id="u")


def call(call_id: str | None = "a", name: str = "f") -> dict[str, object]:
    return {"type": "tool_call", "id": call_id, "name": name, "args": {"x": 1}}


def calls(*ids: str | None, **fields: object) -> AIMessage:
    return AIMessage(**{"content": "", "id": "ai", "tool_calls": [call(i) for i in ids], **fields})  # type: ignore[arg-type]


def invalid(call_id: str | None = "a", args: str | None = '{"path": "/a', name: str | None = "f") -> dict[str, object]:
    return {"type": "invalid_tool_call", "id": call_id, "name": name, "args": args, "error": None}


def result(call_id: str = "a", text: str = "r") -> ToolMessage:
    return ToolMessage(text, tool_call_id=call_id, id=f"t-{call_id}-{text}")


def kinds(repaired: Repaired) -> list[str]:
    return [done.kind for done in repaired.repairs]


def shown(repaired: Repaired) -> list[str]:
    """The view in short: type, and for results the call id."""
    return [f"tool {m.tool_call_id}" if isinstance(m, ToolMessage) else m.type for m in repaired.messages]


def valid(messages: Sequence[BaseMessage], **options: object) -> Repaired:
    """The repaired view, checked against the four validators."""
    repaired = repair(messages, **options)  # type: ignore[arg-type]
    assert all_violations(repaired.messages) == {}
    return repaired


class TestASoundHistoryIsShownAsItIs:
    """Fault 81: nothing is rewritten where nothing is wrong."""

    @given(histories(without=FAULTY))
    def test_the_very_same_objects(self, history: list[BaseMessage]) -> None:
        """No repairs, and each message is the object given."""
        repaired = repair(history)
        assert repaired.repairs == ()
        assert len(repaired.messages) == len(history)
        assert all(ours is given_ for ours, given_ in zip(repaired.messages, history, strict=True))

    @given(histories())
    def test_sound_messages_of_a_broken_history_are_the_same_objects(self, history: list[BaseMessage]) -> None:
        """Whatever no repair names is not copied."""
        repaired = repair(history)
        touched = {done.index for done in repaired.repairs}
        ids = {id(message) for message in repaired.messages}
        renamed = {done.call_id for done in repaired.repairs if done.kind == "call-id"}
        for index, message in enumerate(history):
            if index not in touched and not isinstance(message, ToolMessage):
                assert id(message) in ids
            elif isinstance(message, ToolMessage) and id(message) not in ids:
                assert index in touched or renamed

    def test_nothing(self) -> None:
        """An empty history stays empty."""
        assert repair([]) == Repaired(messages=(), repairs=(), sources=(), front=START)


class TestEveryProviderTakesTheView:
    """The oracle: the validators of all four find nothing."""

    @given(histories())
    def test_histories_with_every_fault(self, history: list[BaseMessage]) -> None:
        """Dangling, late, doubled, orphaned, nameless, malformed, interleaved, empty: all are mended."""
        valid(history)

    @given(histories(without=FAULTY).flatmap(damages))
    def test_results_removed_doubled_and_moved_anywhere(self, history: list[BaseMessage]) -> None:
        """Any damage to the results of a sound history is mended."""
        valid(history)

    @given(st.data())
    def test_histories_that_users_edited(self, data: st.DataObject) -> None:
        """Removals, edits by id and new messages: what they leave is paired again.

        Two breaks are not repair's to mend: AI messages in a row for Gemini, and a system message that lost the message
        before it for Anthropic.
        """
        history = data.draw(histories(without={*FAULTY, "system"}))
        view = repair(applied(history, data.draw(edits(history)))).messages
        left = {v.rule for broken in all_violations(view).values() for v in broken}
        assert left <= {"call-after-model-turn", "no-messages", "missing-thought-signature"}

    @given(histories())
    def test_repair_of_a_repaired_view_changes_nothing(self, history: list[BaseMessage]) -> None:
        """It is idempotent."""
        view = repair(history).messages
        assert repair(view).repairs == ()

    @given(histories())
    def test_the_same_history_gives_the_same_view(self, history: list[BaseMessage]) -> None:
        """Law 2: no randomness; ids are derived, so the same log gives the same bytes after a restart."""
        again = [message.model_copy(deep=True) for message in history]
        assert repair(history).messages == repair(again).messages

    @given(histories(max_turns=2), histories(without=FAULTY, max_turns=2))
    def test_later_messages_leave_the_front_as_it_was(self, front: list[BaseMessage], later: list[BaseMessage]) -> None:
        """Law 5: as long as every call of the front is settled, what follows does not change how it is shown."""
        settled = repair(front).messages
        renamed = [_renumbered(message) for message in later]
        view = repair([*settled, *renamed]).messages
        assert view[: len(settled)] == settled

    @given(histories())
    def test_no_real_result_of_a_call_is_lost(self, history: list[BaseMessage]) -> None:
        """Each result that answers a call is in the view once, with its text and status, behind its own call."""
        pairing = pair(history)
        view = repair(history).messages
        behind = {message.id: owner for owner, message in _with_owner(view) if message.id is not None}
        ids = [message.id for message in history]
        for paired in pairing.calls:
            answer = history[paired.answered_by] if paired.answered_by is not None else None
            maker = history[paired.made_by]
            if isinstance(answer, ToolMessage) and ids.count(answer.id) == 1 and ids.count(maker.id) == 1:
                if answer.id is not None and maker.id is not None:
                    assert behind[answer.id] == maker.id
                assert any(isinstance(m, ToolMessage) and m.content == answer.content for m in view)


def _renumbered(message: BaseMessage) -> BaseMessage:
    """The message with call ids of its own, so that two generated histories can stand in one."""
    text = json.dumps(message.model_dump(mode="json"))
    for old, new in (("call_", "later_"), ("rs_", "rs_9"), ("msg_", "msg_9"), ("fc_", "fc_9"), ("ws_", "ws_9")):
        text = text.replace(f'"{old}', f'"{new}')
    return type(message).model_validate(json.loads(text))


def _with_owner(view: Sequence[BaseMessage]) -> list[tuple[str | None, BaseMessage]]:
    owner: str | None = None
    out = []
    for message in view:
        if not isinstance(message, ToolMessage):
            owner = message.id
        out.append((owner, message))
    return out


class TestPieceByPiece:
    """A long history is repaired in pieces; the pieces are the view of the whole."""

    @given(histories(), st.data())
    def test_the_pieces_together_are_the_whole(self, history: list[BaseMessage], data: st.DataObject) -> None:
        """Law 5, after a restart too: cut behind any unit that nothing leaves open, and the view is the same."""
        stops = [0]
        for unit in units_of(history):
            if unit.open:
                break
            stops.append(unit.stop)
        first, second = sorted(data.draw(st.tuples(st.sampled_from(stops), st.sampled_from(stops))))
        one = repair(history[:first])
        two = repair(history[first:second], front=one.front)
        three = repair(history[second:], front=two.front)
        assert [*one.messages, *two.messages, *three.messages] == list(repair(history).messages)
        assert len(three.front.calls) == len(repair(history).front.calls)

    def test_ids_used_in_the_front_are_known(self) -> None:
        """A server that counts from zero in each round: the second piece renames what the first one used."""
        rounds = [[USER, calls("call_0", id=f"m{n}"), result("call_0", str(n))] for n in range(3)]
        front = repair(rounds[0]).front
        for later in rounds[1:]:
            piece = repair(later, front=front)
            assert kinds(piece) == ["call-id"]
            front = piece.front
        assert len(front.calls) == 3

    def test_a_server_tool_that_still_runs_leaves_its_unit_open(self) -> None:
        """Its result may come in the next message; a human message ends the wait."""
        use: list[str | dict[str, object]] = [{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}]
        assert [unit.open for unit in units_of([USER, AIMessage(use)])] == [False, True]
        assert [unit.open for unit in units_of([USER, AIMessage(use), USER])] == [False, False, False]

    def test_the_opening_is_made_once(self) -> None:
        """A piece behind a front with messages starts with what it starts with; behind system messages it opens."""
        greeting = AIMessage("Hello.", id="g")
        assert kinds(repair([greeting], front=repair([USER]).front)) == []
        assert kinds(repair([greeting], front=repair([SystemMessage("s")]).front)) == ["opened"]


class TestUnansweredCalls:
    """They are answered in place, and the text says only what is known."""

    def test_directly_behind_the_real_results(self) -> None:
        """The synthetic result follows the real ones of the same message, before anything else."""
        repaired = valid([USER, calls("a", "b", "c"), result("b"), HumanMessage("go on")])
        assert shown(repaired) == ["human", "ai", "tool b", "tool a", "tool c", "human"]
        assert kinds(repaired) == ["answered", "answered"]

    def test_the_default_claims_nothing(self) -> None:
        """Fault 76: a crashed worker is no cancellation by the user; the status is an error."""
        made = valid([USER, calls("a")]).messages[-1]
        assert isinstance(made, ToolMessage)
        assert made.status == "error"
        assert made.name == "f"
        assert "No result was recorded" in made.text
        assert not any(word in made.text.lower() for word in ("cancel", "user", "reject", "interrupt"))
        assert made.additional_kwargs[REFOLD_KEY] == {"kind": "repair", "reason": "unknown"}

    @pytest.mark.parametrize("reason", TEXTS)
    def test_each_reason_has_its_text(self, reason: Reason) -> None:
        """What the caller knows is what the model reads."""
        made = valid([USER, calls("a")], reasons={"a": reason}).messages[-1]
        assert made.content == TEXTS[reason]

    def test_texts_differ(self) -> None:
        """No two reasons say the same."""
        assert len(set(TEXTS.values())) == len(TEXTS)

    def test_one_of_two_rejected_by_the_human(self) -> None:
        """Fault 82: two parallel calls, one rejected: its dangling id gets the rejection, the other its result."""
        repaired = valid([USER, calls("kept", "refused"), result("kept")], reasons={"refused": "rejected"})
        assert shown(repaired) == ["human", "ai", "tool kept", "tool refused"]
        assert "rejected" in repaired.messages[-1].text

    def test_ids_are_derived_from_message_and_call(self) -> None:
        """The same call always gets the same result id; another message or call another one."""
        first, again, other = (
            repair([USER, calls(call_id, id=message_id)]).messages[-1].id
            for message_id, call_id in (("m1", "a"), ("m1", "a"), ("m2", "a"))
        )
        assert first == again
        assert first != other
        assert repair([USER, calls("a", "b")]).messages[-1].id != repair([USER, calls("a", "b")]).messages[-2].id

    def test_a_call_that_waits_for_a_human_is_left_alone(self) -> None:
        """A pending interrupt: no result is made for it; its siblings are answered."""
        repaired = repair([USER, calls("open", "lost")], waiting=frozenset({"open"}))
        assert shown(repaired) == ["human", "ai", "tool lost"]
        assert repair([USER, calls("open")], waiting=frozenset({"open"})).repairs == ()

    def test_a_streamed_message_stays_a_chunk(self) -> None:
        """Chunks in a log are repaired like messages."""
        chunk = AIMessageChunk("", tool_calls=[call("a")], id="ai")
        repaired = valid([USER, chunk])
        assert repaired.messages[1] is chunk
        assert shown(repaired)[-1] == "tool a"


class TestMalformedCalls:
    """Calls whose arguments do not parse are shown as calls that all providers take, and answered."""

    def test_invalid_tool_calls(self) -> None:
        """The view has a valid call that holds what the model wrote, and a result that says what is wrong."""
        repaired = valid([USER, AIMessage("", id="ai", invalid_tool_calls=[invalid()])])
        message = repaired.messages[1]
        assert isinstance(message, AIMessage)
        assert message.tool_calls[0]["args"] == {"unparsed_arguments": '{"path": "/a'}
        assert message.invalid_tool_calls == []
        assert "no valid JSON object" in repaired.messages[2].text
        assert kinds(repaired) == ["call-arguments", "answered"]

    def test_arguments_that_do_parse_are_kept(self) -> None:
        """What LangChain called invalid for another reason (no name) keeps its arguments."""
        message = valid([USER, AIMessage("", invalid_tool_calls=[invalid(args='{"x": 1}', name=None)])]).messages[1]
        assert isinstance(message, AIMessage)
        assert message.tool_calls[0]["args"] == {"x": 1}
        assert message.tool_calls[0]["name"] == "unknown_tool"

    def test_a_function_call_block(self) -> None:
        """Fault 77: a Responses block with malformed arguments and empty `tool_calls` is lifted, mended, answered."""
        block = {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "f", "arguments": '{"x": '}
        repaired = valid([USER, AIMessage([block], id="ai")])
        message = repaired.messages[1]
        assert isinstance(message, AIMessage)
        assert json.loads(message.content[0]["arguments"]) == {"unparsed_arguments": '{"x": '}  # type: ignore[index, call-overload]
        assert message.tool_calls[0]["args"] == {"unparsed_arguments": '{"x": '}
        assert "no valid JSON object" in repaired.messages[2].text

    def test_a_name_that_no_provider_takes(self) -> None:
        """A hallucinated tool with spaces in its name would be refused for ever."""
        message = valid([USER, AIMessage("", tool_calls=[call("a", "run the command!")]), result()]).messages[1]
        assert isinstance(message, AIMessage)
        assert message.tool_calls[0]["name"] == "run_the_command_"

    def test_the_original_is_not_touched(self) -> None:
        """Repair makes copies."""
        original = AIMessage("", id="ai", invalid_tool_calls=[invalid()])
        before = original.model_dump()
        repair([USER, original])
        assert original.model_dump() == before


class TestResultsOutOfPlace:
    """Results go behind their call; those of no call go."""

    def test_interleaved_results_of_two_messages(self) -> None:
        """Fault 54: each run of results is sorted behind its own AI message."""
        history = [USER, calls("a", id="1"), calls("b", "c", id="2"), result("c"), result("a"), result("b")]
        repaired = valid(history)
        assert shown(repaired) == ["human", "ai", "tool a", "ai", "tool c", "tool b"]
        assert kinds(repaired) == ["moved"]
        assert repaired.messages[2] is history[4]

    def test_a_late_answer(self) -> None:
        """Fault 59: ten turns later the answer arrives; the view shows it behind its call."""
        turns: list[BaseMessage] = [HumanMessage("h"), AIMessage("a")] * 10
        repaired = valid([USER, calls("a"), *turns, result("a")])
        assert shown(repaired)[:3] == ["human", "ai", "tool a"]
        assert len(repaired.messages) == 23

    def test_a_message_between_call_and_result(self) -> None:
        """A system or human message that got in between comes after the result."""
        repaired = valid([USER, calls("a"), SystemMessage("s"), result("a"), AIMessage("ok")])
        assert shown(repaired) == ["human", "ai", "tool a", "system", "ai"]

    def test_orphans_and_second_results(self) -> None:
        """Fault 72: a stray result and a second one are not shown; the first is kept."""
        history = [USER, result("gone"), calls("a"), result("a", "first"), result("a", "second"), AIMessage("ok")]
        repaired = valid(history)
        assert [m.content for m in repaired.messages] == ["hi", "", "first", "ok"]
        assert [(done.kind, done.index) for done in repaired.repairs] == [
            ("orphan-dropped", 1),
            ("duplicate-dropped", 4),
        ]

    def test_an_edited_call_id(self) -> None:
        """Fault 84: the result of the old id is an orphan, the new id is answered."""
        repaired = valid([USER, calls("edited"), result("original")])
        assert shown(repaired) == ["human", "ai", "tool edited"]
        assert sorted(kinds(repaired)) == ["answered", "orphan-dropped"]

    def test_results_in_a_human_message(self) -> None:
        """Anthropic's own form becomes tool messages, and the rest of the turn stays a human message."""
        turn = HumanMessage(
            [
                {"type": "tool_result", "tool_use_id": "a", "content": "r", "is_error": True},
                {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "s"}]},
                {"type": "text", "text": "and now?"},
            ],
            id="h",
        )
        repaired = valid([USER, calls("a", "b"), turn])
        assert shown(repaired) == ["human", "ai", "tool a", "tool b", "human"]
        first, second, rest = repaired.messages[2:]
        assert isinstance(first, ToolMessage)
        assert (first.status, first.content) == ("error", "r")
        assert second.content == [{"type": "text", "text": "s"}]
        assert (rest.id, rest.content) == ("h", [{"type": "text", "text": "and now?"}])

    def test_retries_do_not_multiply_repairs(self) -> None:
        """Fault 69: repairing three times over leaves one result for one call."""
        view: Sequence[BaseMessage] = [USER, calls("a")]
        for _ in range(3):
            view = repair(view).messages
        assert len(view) == 3


class TestIds:
    """Calls without a fit id get one, in every spelling of the message."""

    @pytest.mark.parametrize("missing", [None, ""])
    def test_no_id(self, missing: str | None) -> None:
        """The call and its result get the same derived id; results pair by order."""
        repaired = valid([USER, calls(missing, missing), result("", "one"), result("", "two")])
        message, one, two = repaired.messages[1:]
        assert isinstance(message, AIMessage)
        assert isinstance(one, ToolMessage)
        assert isinstance(two, ToolMessage)
        assert [c["id"] for c in message.tool_calls] == [one.tool_call_id, two.tool_call_id]
        assert (one.content, two.content) == ("one", "two")

    def test_one_id_twice_in_a_message(self) -> None:
        """The first keeps it; the second and its result get a new one."""
        repaired = valid([USER, calls("a", "a"), result("a", "one"), result("a", "two")])
        message, one, two = repaired.messages[1:]
        assert isinstance(message, AIMessage)
        assert isinstance(two, ToolMessage)
        assert one.content == "one"
        assert [c["id"] for c in message.tool_calls] == ["a", two.tool_call_id]
        assert two.tool_call_id != "a"

    def test_an_id_used_again_in_every_round(self) -> None:
        """Servers that count from zero in each round: later rounds get ids of their own, stable from call to call."""
        rounds = [m for n in range(3) for m in (calls("call_0", id=f"m{n}"), result("call_0", str(n)))]
        short, long = valid([USER, *rounds[:4]]), valid([USER, *rounds])
        assert long.messages[: len(short.messages)] == short.messages
        made = [m.tool_call_id for m in long.messages if isinstance(m, ToolMessage)]
        assert made[0] == "call_0"
        assert len(set(made)) == 3

    @pytest.mark.parametrize(
        ("block", "key"),
        [
            ({"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}, "id"),
            ({"type": "tool_call", "id": "a", "name": "f", "args": {"x": 1}}, "id"),
            ({"type": "function_call", "id": "fc_2", "call_id": "a", "name": "f", "arguments": '{"x": 1}'}, "call_id"),
            ({"type": "custom_tool_call", "id": "ctc_2", "call_id": "a", "name": "f", "input": "x"}, "call_id"),
        ],
    )
    def test_block_and_call_change_together(self, block: dict[str, object], key: str) -> None:
        """A renamed call has one id everywhere, or the provider would see two calls."""
        again = AIMessage([block], tool_calls=[call("a")], id="second")
        repaired = valid([USER, calls("a"), result("a"), again, result("a", "again")])
        message, answer = repaired.messages[3:]
        assert isinstance(message, AIMessage)
        assert isinstance(answer, ToolMessage)
        assert message.content[0][key] == message.tool_calls[0]["id"] == answer.tool_call_id != "a"  # type: ignore[index, call-overload]
        assert len(calls_of(message)) == 1

    def test_a_wrapped_and_a_gemini_block(self) -> None:
        """`non_standard` wrappers and `functionCall` parts are lifted and keep their form."""
        blocks = [
            {"type": "non_standard", "value": {"type": "tool_use", "id": "", "name": "f", "input": {}}},
            {"functionCall": {"name": "g", "args": {"y": 2}}, "thoughtSignature": "c2ln"},
        ]
        message = valid([USER, AIMessage(blocks, id="ai")]).messages[1]
        assert isinstance(message, AIMessage)
        wrapped, part = message.content
        assert wrapped["value"]["id"] == message.tool_calls[0]["id"]  # type: ignore[index, call-overload]
        assert part["functionCall"]["id"] == message.tool_calls[1]["id"]  # type: ignore[index, call-overload]
        assert part["thoughtSignature"] == "c2ln"  # type: ignore[index, call-overload]

    def test_a_thought_signature_follows_its_call(self) -> None:
        """Fault 67: langchain-google-genai finds signatures by call id, so a renamed call takes its own along."""
        key = "__gemini_function_call_thought_signatures__"
        again = calls("a", id="second", additional_kwargs={key: {"a": "c2ln"}})
        first = calls("a", additional_kwargs={key: {"a": "Zmlyc3Q="}})
        message = valid([USER, first, result("a"), again, result("a", "again")]).messages[3]
        assert isinstance(message, AIMessage)
        assert message.additional_kwargs[key][message.tool_calls[0]["id"]] == "c2ln"

    def test_blocks_inside_a_result_follow_too(self) -> None:
        """A result that names its call again inside its content names the new id."""
        inner = ToolMessage(
            [{"type": "custom_tool_call_output", "call_id": "a", "output": "o"}], tool_call_id="a", id="inner"
        )
        answer = valid([USER, calls("a"), result("a"), calls("a", id="second"), inner]).messages[-1]
        assert isinstance(answer, ToolMessage)
        assert answer.content[0]["call_id"] == answer.tool_call_id  # type: ignore[index, call-overload]

    def test_native_calls_are_left_alone(self) -> None:
        """OpenAI's computer tool: its result is no orphan, and no function call is made up for it."""
        block = {"type": "computer_call", "id": "cu_1", "call_id": "c", "action": {"type": "screenshot"}}
        shot = ToolMessage(
            "data:image/png;base64,AA", tool_call_id="c", additional_kwargs={"type": "computer_call_output"}
        )
        history = [USER, AIMessage([block], id="ai"), shot]
        assert repair(history).repairs == ()
        assert violations(history, "openai_responses") == ()


class TestEmptyMessages:
    """Messages that show nothing say so."""

    @pytest.mark.parametrize("content", ["", "  ", [], [{"type": "thinking", "thinking": "x", "signature": "s"}]])
    def test_an_empty_answer(self, content: object) -> None:
        """It keeps its place and id; providers that want turns to alternate get them."""
        repaired = valid([USER, AIMessage(content, id="ai"), HumanMessage("h")])  # type: ignore[arg-type]
        assert (repaired.messages[1].content, repaired.messages[1].id) == (EMPTY_ANSWER, "ai")

    def test_an_empty_human_message(self) -> None:
        """A blank one says that it is empty; an empty text beside a picture is left out."""
        picture = {"type": "image_url", "image_url": {"url": "https://e.com/a.png"}}
        beside = HumanMessage([{"type": "text", "text": ""}, picture])
        repaired = valid([HumanMessage(" "), beside])
        assert [m.content for m in repaired.messages] == ["(empty message)", [picture]]

    def test_a_history_that_starts_with_the_model(self) -> None:
        """A greeting first: Anthropic and Gemini want a human message, so the view opens with a marked one."""
        repaired = valid([SystemMessage("s"), AIMessage("Hello, how can I help?"), USER])
        assert shown(repaired) == ["system", "human", "ai", "human"]
        assert repaired.messages[1].additional_kwargs[REFOLD_KEY] == {"kind": "repair"}


class TestReasoningThatLostItsOtherHalf:
    """Reasoning items, thinking and server tools in pieces."""

    REASONING: ClassVar[dict[str, object]] = {"type": "reasoning", "id": "rs_1", "summary": []}
    TEXT: ClassVar[dict[str, object]] = {"type": "text", "text": "a", "id": "msg_1"}

    def test_trailing_reasoning_is_dropped(self) -> None:
        """A reasoning item without the item after it goes; the text stays."""
        message = valid([USER, AIMessage([self.TEXT, self.REASONING], id="ai")]).messages[1]
        assert message.content == [self.TEXT]

    def test_ids_without_their_reasoning_are_dropped(self) -> None:
        """Fault 62: the stored thread is healed in the view: the text stays, the id that OpenAI refuses goes."""
        usage = {"input_tokens": 1, "output_tokens": 9, "total_tokens": 10, "output_token_details": {"reasoning": 8}}
        message = AIMessage([self.TEXT], id="ai", usage_metadata=usage)  # type: ignore[arg-type]
        assert valid([USER, message]).messages[1].content == [{"type": "text", "text": "a"}]

    def test_a_message_twice(self) -> None:
        """The second copy is shown without item ids."""
        message = AIMessage([self.REASONING, self.TEXT], id="ai")
        repaired = valid([USER, message, HumanMessage("h"), message])
        assert repaired.messages[1] is message
        assert repaired.messages[3].content == [{"type": "text", "text": "a"}]

    def test_unsigned_thinking_is_dropped(self) -> None:
        """What is left of a stream that was cut off is not sent back."""
        blocks = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}]
        message = AIMessage(blocks, id="ai", response_metadata={"model_provider": "anthropic"})
        assert valid([USER, message]).messages[1].content == [{"type": "text", "text": "a"}]

    def test_halves_of_server_tools_are_dropped(self) -> None:
        """Fault 64: a use without result and a result without use go, the rest of the message stays."""
        use = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
        found = {"type": "web_search_tool_result", "tool_use_id": "t", "content": []}
        text = {"type": "text", "text": "a"}
        repaired = valid([USER, AIMessage([use, found, text], id="ai"), HumanMessage("h")])
        assert repaired.messages[1].content == [text]


class TestDropBoundReasoning:
    """After a fold, kept messages must not point at context that is gone."""

    RESPONSES: ClassVar[list[str | dict[str, object]]] = [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "text", "text": "a", "id": "msg_1"},
        {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"},
    ]

    def test_responses_items_go_with_their_ids(self) -> None:
        """Fault 62: no reasoning, no id that needs it, no server call bound to it; text and calls stay."""
        message = AIMessage(list(self.RESPONSES), id="ai", tool_calls=[call("c")])
        dropped = drop_bound_reasoning(message)
        assert dropped.content == [
            {"type": "text", "text": "a"},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        ]
        assert all_violations([USER, dropped, result("c")]) == {}
        assert message.content == self.RESPONSES

    def test_standard_blocks_of_responses(self) -> None:
        """LangChain's v1 spelling: the item id of a call is in its extras."""
        blocks: list[str | dict[str, object]] = [
            {"type": "reasoning", "id": "rs_1", "reasoning": "x"},
            {"type": "tool_call", "id": "c", "name": "f", "args": {}, "extras": {"item_id": "fc_1", "status": "done"}},
        ]
        dropped = drop_bound_reasoning(AIMessage(blocks, tool_calls=[call("c")]))
        assert dropped.content == [
            {"type": "tool_call", "id": "c", "name": "f", "args": {}, "extras": {"status": "done"}}
        ]

    def test_the_legacy_format_of_langchain_openai(self) -> None:
        """Reasoning and ids in `additional_kwargs`, the message's id being the item's."""
        message = AIMessage(
            [{"type": "text", "text": "a"}],
            id="msg_1",
            additional_kwargs={
                "reasoning": {"id": "rs_1", "summary": []},
                "__openai_function_call_ids__": {"c": "fc_1"},
            },
            response_metadata={"id": "resp_1", "model_name": "m"},
        )
        dropped = drop_bound_reasoning(message)
        assert (dropped.additional_kwargs, dropped.response_metadata) == ({}, {"model_name": "m"})
        assert (dropped.id, dropped.content) == ("msg_1", [{"type": "text", "text": "a"}])

    def test_signed_thinking_goes_whole(self) -> None:
        """Fault 66: never a shortened text under an old signature."""
        blocks: list[str | dict[str, object]] = [
            {"type": "thinking", "thinking": "long " * 100, "signature": "s"},
            {"type": "redacted_thinking", "data": "x"},
            {"type": "text", "text": "a"},
            {"type": "tool_use", "id": "c", "name": "f", "input": {}},
        ]
        dropped = drop_bound_reasoning(AIMessage(blocks, tool_calls=[call("c")]))
        assert dropped.content == blocks[2:]

    def test_thought_signatures_of_calls_stay(self) -> None:
        """Fault 67: Gemini refuses a call that lost its signature."""
        key = "__gemini_function_call_thought_signatures__"
        message = calls("a", additional_kwargs={key: {"a": "c2ln"}})
        assert drop_bound_reasoning(message) is message
        sidecar = calls("a", content=[{"type": "function_call_signature", "signature": "c2ln", "index": 0}])
        assert drop_bound_reasoning(sidecar) is sidecar

    def test_reasoning_alone_leaves_an_empty_answer(self) -> None:
        """A message of reasoning only stays valid."""
        dropped = drop_bound_reasoning(AIMessage([{"type": "thinking", "thinking": "x", "signature": "s"}]))
        assert dropped.content == EMPTY_ANSWER

    @pytest.mark.parametrize("message", [USER, result(), AIMessage("plain"), SystemMessage("s")])
    def test_other_messages_are_the_same_object(self, message: BaseMessage) -> None:
        """Where nothing is bound, nothing is copied."""
        assert drop_bound_reasoning(message) is message

    @given(histories(without=FAULTY))
    def test_a_sound_history_stays_valid_and_keeps_text_and_calls(self, history: list[BaseMessage]) -> None:
        """Dropped everywhere, the window is valid for all, and calls are the same."""
        dropped = [drop_bound_reasoning(message) for message in history]
        assert all_violations(dropped) == {}
        for before, after in zip(history, dropped, strict=True):
            assert [(c.id, c.name, c.args) for c in calls_of(before)] == [
                (c.id, c.name, c.args) for c in calls_of(after)
            ]
            assert drop_bound_reasoning(after) is after
            if before is not after:
                assert content_hash(before) != content_hash(after)


def count_steps(function: Callable[[], object]) -> int:
    """Function calls made, Python and C: a measure of work that does not depend on the machine."""
    steps = 0

    def count(frame: object, event: str, arg: object) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return steps


class TestWorkIsLinear:
    """Four times the history, four times the work."""

    def test_a_history_where_everything_is_wrong(self) -> None:
        """One id for all, no message ids, results in a heap at the end: the worst that pairing can meet."""

        def history(size: int) -> list[BaseMessage]:
            made: list[BaseMessage] = [AIMessage("", tool_calls=[call("a"), call(None)]) for _ in range(size)]
            return [USER, *made, *[ToolMessage("r", tool_call_id="a") for _ in range(size)], *[result("z")] * size]

        small, large = (count_steps(lambda n=n: repair(history(n))) for n in (50, 200))  # type: ignore[misc]
        assert large <= 4.2 * small

    def test_the_worst_history_is_valid_too(self) -> None:
        """And what comes out is valid for all four."""
        made: list[BaseMessage] = [AIMessage("", tool_calls=[call("a"), call(None)]) for _ in range(5)]
        view = valid([USER, *made, *[ToolMessage(str(n), tool_call_id="a") for n in range(9)]]).messages
        assert sum(isinstance(m, ToolMessage) for m in view) == 10
        assert set(PROVIDERS) == {"openai_chat", "openai_responses", "anthropic", "gemini"}
