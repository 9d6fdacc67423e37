"""More faults by number, each with the smallest input of its kind (see the other files here for the rest)."""

import base64

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from refold.core.blocks import blocks_of
from refold.core.canonical import Json
from refold.core.meter import Count, EstimatingMeter
from refold.core.passes import ITEM_PASSES, Scope
from refold.core.policy import Policy
from refold.core.validate import all_violations, violations
from refold.errors import ContextOverflowError
from refold.testing.world import World

POLICY = Policy(output_reserve=200, summary_backoff=0.0, result_min=150, clear_min=40, args_min=100, preview=60)


class RefusalError(Exception):
    """A server's plain refusal, as compatible endpoints raise it."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status_code = status


def world(limit: int | None = 4_000, **options: object) -> World:
    return World(**{"limit": limit, "policy": POLICY, **options})  # type: ignore[arg-type]


def human(text: str = "Go on.", key: str = "h0") -> HumanMessage:
    return HumanMessage(text, id=key)


def call(n: int, **args: object) -> AIMessage:
    return AIMessage("", id=f"a{n}", tool_calls=[{"id": f"c{n}", "name": "run", "args": {"step": n, **args}}])


def result(n: int, text: str = "a line of output\n" * 25) -> ToolMessage:
    return ToolMessage(text, tool_call_id=f"c{n}", id=f"t{n}", name="run")


def rounds(count: int, start: int = 1) -> list[BaseMessage]:
    return [m for n in range(start, start + count) for m in (call(n), result(n))]


def tokens(messages: list[BaseMessage] | tuple[BaseMessage, ...]) -> int:
    meter = EstimatingMeter()
    return sum(meter.count(message).tokens for message in messages)


def size(messages: list[BaseMessage] | tuple[BaseMessage, ...]) -> int:
    meter = EstimatingMeter()
    return sum(meter.count(message).bytes for message in messages)


class TestRefusalsInAnyShape:
    def test_fault_7_a_plain_400_about_length_starts_the_fold(self) -> None:
        """An error of no known type whose text says that the request is too long is learnt from."""

        def model(messages: list[BaseMessage]) -> AIMessage:
            if tokens(messages) > 3_000:
                raise RefusalError(400, f"This model's maximum context length is 3000 tokens. However, your messages "
                                        f"resulted in {tokens(messages)} tokens.")  # fmt: skip
            return AIMessage("done")

        place = world(None, model=model)
        assert place.call([human(), *rounds(60)]).response == AIMessage("done")
        assert tokens(place.sent[-1]) <= 3_000

    def test_fault_17_a_body_over_the_limit_is_not_sent_again_as_it_was(self) -> None:
        """HTTP 413: the next request is smaller in bytes, and the run ends with an answer."""
        most = 20_000

        def model(messages: list[BaseMessage]) -> AIMessage:
            if size(messages) > most:
                raise RefusalError(413, "Request Entity Too Large")
            return AIMessage("done")

        place = world(200_000, model=model)
        assert place.call([human(), *rounds(80)]).response == AIMessage("done")
        assert [size(sent) for sent in place.sent] == sorted((size(sent) for sent in place.sent), reverse=True)
        assert len({size(sent) for sent in place.sent}) == len(place.sent)


class TestFixedCosts:
    def test_fault_14_schemas_that_leave_little_room_still_leave_a_session(self) -> None:
        """30k of schemas in a window of 32k: the log is folded into what is left."""
        place = world(32_000, tools=Count(tokens=30_000, bytes=90_000))
        assert isinstance(place.call([human(), *rounds(60)]).response, AIMessage)
        assert tokens(place.sent[-1]) <= 2_000

    def test_fault_14_schemas_that_leave_none_are_a_typed_error(self) -> None:
        """With the numbers, before anything is sent or asked."""
        place = world(32_000, tools=Count(tokens=33_000, bytes=99_000))
        with pytest.raises(ContextOverflowError) as caught:
            place.call([human()])
        assert caught.value.tools == 33_000
        assert place.sent == []
        assert place.summaries == []

    def test_fault_94_a_window_of_64k_triggers_by_its_own_size(self) -> None:
        """No default of a larger window decides: the first fold comes before 64k, and no request is over it."""
        place = world(64_000)
        log: list[BaseMessage] = [human()]
        folds: list[dict[str, Json]] = []
        for n in range(1, 60):
            log += [call(n), result(n, "an ordinary line of some output\n" * 250)]
            outcome = place.call(log, folds)
            folds += [dict(fold) for fold in outcome.folds]
        assert folds
        assert max(tokens(sent) for sent in place.sent) <= 64_000


class TestNoLoops:
    def test_fault_24_files_read_again_after_a_fold_do_not_make_it_loop(self) -> None:
        """Nine tenths of the budget come back after each fold: at most two spans per call, and each is answered."""
        place = world(6_000)
        log: list[BaseMessage] = [human(), *rounds(40)]
        folds: list[dict[str, Json]] = []
        for n in range(100, 108):
            asked = len(place.summaries)
            outcome = place.call(log, folds)
            assert isinstance(outcome.response, AIMessage)
            assert len(place.summaries) - asked <= 2
            folds += [dict(fold) for fold in outcome.folds]
            log += [call(n), result(n, "restored file content, line by line\n" * 650)]


class TestPairing:
    def test_fault_56_a_kept_part_never_begins_with_a_result(self) -> None:
        """human, call, result, human, answer, human, answer: valid everywhere, however it is folded."""
        log: list[BaseMessage] = [
            human(), call(1), result(1, "long output\n" * 200), human("next", "h1"), AIMessage("yes", id="a2"),
            human("and now", "h2"), AIMessage("well", id="a3"), human("last", "h3"),
        ]  # fmt: skip
        place = world(900)
        place.call(log)
        assert all_violations(place.sent[-1]) == {}

    def test_fault_57_a_call_follows_a_user_turn_after_a_fold(self) -> None:
        """Gemini takes a call only after a human message or a result."""
        place = world(3_000)
        place.call([human(), *rounds(50)])
        assert isinstance(place.sent[-1][0], HumanMessage)
        assert violations(place.sent[-1], "gemini") == ()

    def test_fault_64_a_server_tool_use_keeps_its_result(self) -> None:
        """Both blocks stand in one message, and a fold takes or leaves that message whole."""
        served = AIMessage(
            [
                {"type": "server_tool_use", "id": "srv1", "name": "web_search", "input": {"query": "x"}},
                {"type": "web_search_tool_result", "tool_use_id": "srv1", "content": []},
                {"type": "text", "text": "found"},
            ],
            id="srv", response_metadata={"model_provider": "anthropic"},
        )  # fmt: skip
        for before in (3, 20, 45):
            place = world(3_000)
            place.call([human(), *rounds(before), human("more", "h1"), served, human("go", "h2"), *rounds(6, 60)])
            assert violations(place.sent[-1], "anthropic") == ()
            kinds = [block.kind for message in place.sent[-1] for block in blocks_of(message)]
            assert kinds.count("server_call") == kinds.count("server_result")

    def test_fault_67_a_thought_signature_stays_on_its_call(self) -> None:
        """A call whose arguments are withheld keeps what Gemini wants back with it."""
        signatures = {"__gemini_function_call_thought_signatures__": {"c1": "c2lnbmF0dXJl"}}
        message = call(1, body="x = 1\n" * 400).model_copy(update={"additional_kwargs": signatures})
        scope = Scope(thread="t", policy=POLICY, file_reader="read_history", log_reader="read_history")
        proposal = ITEM_PASSES["args"].propose(message, "a1", scope)
        assert proposal is not None
        shown = ITEM_PASSES["args"].show(message, proposal.data)
        assert shown.additional_kwargs == signatures
        assert isinstance(shown, AIMessage)
        assert shown.tool_calls[0]["args"]["body"] != message.tool_calls[0]["args"]["body"]

    def test_fault_74_a_history_folded_for_one_provider_is_valid_for_another(self) -> None:
        """The next call goes to a provider with stricter rules, with the same log and folds."""
        first = world(3_000)
        log: list[BaseMessage] = [human(), *rounds(40)]
        folds = first.call(log).folds
        for provider in ("openai_responses", "anthropic", "gemini"):
            other = world(3_000, provider=provider, files=first.files)
            other.call(log, folds)
            assert violations(other.sent[-1], provider) == ()  # type: ignore[arg-type]


class TestCounting:
    @pytest.mark.parametrize("kind", ["image", "audio", "video", "file"])
    def test_fault_89_payloads_are_not_counted_by_their_base64(self, kind: str) -> None:
        """Ten thousand base64 characters and a hundred thousand cost the same order of tokens, far below text."""
        meter = EstimatingMeter()
        data = base64.b64encode(b"\x00\x01\x02" * 25_000).decode()
        mime = {"image": "image/png", "audio": "audio/wav", "video": "video/mp4", "file": "application/pdf"}[kind]
        block = {"type": kind, "base64": data, "mime_type": mime}
        counted = meter.count(HumanMessage([block])).tokens  # type: ignore[list-item]
        assert 0 < counted < meter.count(HumanMessage(data)).tokens / 4
        assert meter.count(HumanMessage([block])).bytes >= len(data)  # type: ignore[list-item]


class TestAnotherModelForSummaries:
    def test_faults_144_and_197_the_summary_model_has_its_own_route_and_limit(self) -> None:
        """Requests for summaries go to the other model, each within that model's limit."""
        place = world(6_000, live=False, summary_limit=2_000)
        place.call([human(), *rounds(80)])
        assert {asked.route for asked in place.summaries} == {"summary"}
        assert max(tokens(list(asked.messages)) for asked in place.summaries) <= 2_000
