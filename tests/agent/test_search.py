"""`search_history`: everything that was said is found, in any script, without reading the log again."""

import base64
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver

from refold.agent.recall import Paging, read_history_gen
from refold.agent.search import HistoryIndex, search_history_gen, search_history_tool
from refold.core.blocks import blocks_of
from refold.core.effects import ReadFile
from refold.core.estimate import estimate_text
from refold.core.log import read_log
from refold.core.messages import REFOLD_KEY
from refold.core.program import Effect, run
from refold.core.terms import query_terms, terms_of
from refold.core.words import words_of
from refold.files import MemoryFiles, answer
from refold.testing import StrictModel

LOG: list[BaseMessage] = [
    HumanMessage("我们把上海办公室的服务器迁移到北京机房，密码轮换周期是九十天。", id="zh"),
    HumanMessage("도쿄 사무실의 서버를 이전합니다", id="ko"),
    HumanMessage("東京オフィスのサーバーを移行する", id="ja"),
    AIMessage("", id="call", tool_calls=[{"name": "read_file", "args": {"path": "/src/readConfigFile.py"}, "id": "1"}]),
    ToolMessage("error E1234 in parse_config: 3.14 GiB", tool_call_id="1", id="result"),
]


def find(index: HistoryIndex, query: str, log: list[BaseMessage], *, limit: int = 3, page: int = 500) -> str:
    files = MemoryFiles()
    return run(search_history_gen(index, query, log, limit=limit, page=page), lambda effect: answer(files, effect))


class TestAnyScriptIsSearchable:
    @pytest.mark.parametrize(
        ("query", "key"),
        [
            ("北京机房", "zh"),
            ("轮换周", "zh"),  # fault 192: three Han characters inside a long sentence
            ("九", "zh"),
            ("서버", "ko"),
            ("サーバー", "ja"),
            ("readConfigFile", "call"),
            ("config file", "call"),
            ("E1234", "result"),
            ("parse_config", "result"),
            ("3.14", "result"),
        ],
    )
    def test_the_message_is_found_first(self, query: str, key: str) -> None:
        """A query in the message's own words names that message first (faults 189, 192)."""
        assert find(HistoryIndex(), query, LOG).startswith(f"- {key} (")

    def test_the_beginning_of_a_word_where_no_word_is_the_same(self) -> None:
        """`migrat` finds `migration`, behind nothing that says it exactly."""
        log = [*LOG, HumanMessage("The migration runs on Friday.", id="en")]
        assert find(HistoryIndex(), "migrat", log).startswith("- en (")
        exact = [*log, HumanMessage("migrat is a name.", id="exact")]
        assert "- en (" not in find(HistoryIndex(), "migrat", exact)

    def test_the_excerpt_is_where_the_rarest_word_stands(self) -> None:
        """In a long text that says one word of the query everywhere, what is shown is the place of the other."""
        lines = "\n".join(f"line {n}: quagga number {n} in the yard" for n in range(900))
        assert "quagga number 777 in" in find(HistoryIndex(), "quagga 777", [HumanMessage(lines, id="m")])

    @given(st.text(max_size=60))
    def test_any_query_is_answered(self, query: str) -> None:
        """No query is an error of the search syntax."""
        assert find(HistoryIndex(), query, LOG)

    @given(st.text(min_size=1, max_size=200))
    def test_what_a_text_is_found_by_covers_its_query(self, text: str) -> None:
        """A text as a query asks for no term that the text is not indexed by."""
        assert set(query_terms(text)) <= set(terms_of(text))


class TestSearchIsIncremental:
    def test_only_new_messages_are_read(self) -> None:
        """A second search reads no artifact again, and finds what came since; what it finds is read to be shown."""
        stub = ToolMessage(
            "stub", tool_call_id="1", id="big",
            additional_kwargs={REFOLD_KEY: {"kind": "ingested", "path": "/results/t/1"}},
        )  # fmt: skip
        files = MemoryFiles()
        files.write("/results/t/1", b"the needle is here", mode="create")
        reads: list[str] = []

        def handle(effect: Effect[object]) -> object:
            assert isinstance(effect, ReadFile)
            reads.append(effect.path)
            return answer(files, effect)

        index = HistoryIndex()
        first = run(search_history_gen(index, "needle", [*LOG, stub], limit=3, page=500), handle)
        log = [*LOG, stub, HumanMessage("a thread and a needle", id="new")]
        second = run(search_history_gen(index, "thread", log, limit=3, page=500), handle)
        assert first.startswith("- big (tool, in /results/t/1 from start=0): ")
        assert second.startswith("- new (human): ")
        assert reads == ["/results/t/1"]
        assert first in run(search_history_gen(index, "needle", log, limit=3, page=500), handle)
        assert reads == ["/results/t/1"] * 2

    def test_what_is_found_and_gone_is_shown_by_its_stub(self) -> None:
        """A stored result that was removed since."""
        stub = ToolMessage(
            "stub of quagga", tool_call_id="1", id="big",
            additional_kwargs={REFOLD_KEY: {"kind": "ingested", "path": "/results/t/1"}},
        )  # fmt: skip
        files, index = MemoryFiles(), HistoryIndex()
        files.write("/results/t/1", b"the needle is here", mode="create")
        run(search_history_gen(index, "needle", [stub], limit=3, page=500), partial(answer, files))
        files.delete("/results/t/1")
        found = run(search_history_gen(index, "needle", [stub], limit=3, page=500), partial(answer, files))
        assert found == "- big (tool): stub of quagga"

    def test_a_log_that_changed_is_read_again(self) -> None:
        """A removed message is no longer found."""
        index = HistoryIndex()
        assert "zh" in find(index, "北京", LOG)
        assert find(index, "北京", LOG[1:]).startswith("Nothing in this conversation matches")


class TestAnswersAreBounded:
    def test_a_page_holds_only_so_many_tokens(self) -> None:
        """More hits than fit are counted, not shown."""
        log: list[BaseMessage] = [HumanMessage(f"needle number {n} " + "x" * 300, id=f"m{n}") for n in range(40)]
        found = find(HistoryIndex(), "needle", log, limit=40, page=300)
        assert " more; ask for fewer" in found
        assert len(found) < 3_000


class TestInAnAgent:
    async def test_sync_and_async_agents_search_their_own_log(self) -> None:
        """The tool works inside a graph, for the thread that it is called in."""
        call = AIMessage("", tool_calls=[{"name": "search_history", "args": {"query": "九十天"}, "id": "s1"}])
        for driver in ("sync", "async"):
            model = StrictModel(script=[call, "found"], limit=8_000)
            tool = search_history_tool(MemoryFiles(), paging=Paging(page=500))
            agent = create_agent(model, [tool], checkpointer=InMemorySaver())
            given_log = {"messages": [HumanMessage("密码轮换周期是九十天", id="h")]}
            config = {"configurable": {"thread_id": driver}}
            state = agent.invoke(given_log, config) if driver == "sync" else await agent.ainvoke(given_log, config)
            assert state["messages"][2].content.startswith("- h (human): ")


CODE: list[BaseMessage] = [
    HumanMessage("std::unordered_map<Key, Value> lives in include/cache/lru_cache.hpp", id="cpp"),
    AIMessage("", id="edit", tool_calls=[{"name": "edit", "args": {"q": "self.maxRetryCount = 3"}, "id": "1"}]),
    ToolMessage("commit 9f8e7d6c5b4a by dev@example.com on fix/issue-4711", tool_call_id="1", id="git"),
    HumanMessage("set FEATURE_NEW_PARSER=1 and run ./scripts/run-checks.sh --fast", id="sh"),
    HumanMessage("XMLHttpRequest fails with ECONNRESET on https://api.example.com/v2/items?id=7", id="web"),
]


def test_a_word_that_begins_a_line_of_an_argument_is_found() -> None:
    """Arguments are indexed as the text that they are, at any depth, not as JSON with its escapes."""
    args = {"path": "/a.py", "edits": [{"old": "x\nfoo_bar = 1", "new": 'say "hello there"\n\tbaz_qux()'}]}
    log: list[BaseMessage] = [
        AIMessage("", id="edit", tool_calls=[{"name": "edit", "args": args, "id": "1"}]),
        HumanMessage("something else", id="h"),
    ]
    for query in ("foo_bar", "baz_qux", 'say "hello there"'):
        found = find(HistoryIndex(), query, log)
        assert found.startswith("- edit (ai)"), query
        assert query in found


class TestCodeIsSearchable:
    @pytest.mark.parametrize(
        ("query", "key"),
        [
            ("unordered_map", "cpp"), ("std::unordered_map", "cpp"), ("lru_cache.hpp", "cpp"), ("LRU cache", "cpp"),
            ("include/cache", "cpp"), ("maxRetryCount", "edit"), ("max_retry_count", "edit"), ("retry", "edit"),
            ("9f8e7d6c5b4a", "git"), ("dev@example.com", "git"), ("issue-4711", "git"), ("4711", "git"),
            ("FEATURE_NEW_PARSER", "sh"), ("run-checks.sh", "sh"), ("./scripts/run-checks.sh", "sh"),
            ("XMLHttpRequest", "web"), ("http request", "web"), ("econnreset", "web"), ("v2/items", "web"),
        ],
    )  # fmt: skip
    def test_identifiers_and_their_parts(self, query: str, key: str) -> None:
        """Names of code, in any of their spellings, name the message that holds them first."""
        assert find(HistoryIndex(), query, CODE).startswith(f"- {key} (")


class TestArtifactsAreSearched:
    def test_a_row_in_the_middle_of_a_stored_result(self) -> None:
        """The hit says where in the file it stands, and reading from there shows it."""
        rows = "\n".join(f"row {n} holds value-{n * 7919}" for n in range(4_000))
        stub = ToolMessage(
            "stub",
            tool_call_id="1",
            id="big",
            additional_kwargs={REFOLD_KEY: {"kind": "ingested", "path": "/results/1"}},
        )
        files = MemoryFiles()
        files.write("/results/1", rows.encode(), mode="create")

        def handle(effect: Effect[object]) -> object:
            return answer(files, effect)

        log = [*LOG, stub]
        found = run(search_history_gen(HistoryIndex(), f"value-{2_000 * 7919}", log, limit=3, page=500), handle)
        assert found.startswith("- big (tool, in /results/1 from start=")
        start = int(found.split("from start=")[1].split(")")[0])
        page = run(read_history_gen("/results/1", start, read_log(log), 200), handle)
        assert f"row 2000 holds value-{2_000 * 7919}" in str(page)


class TestFault189:
    def test_a_fact_of_long_ago_is_found_and_read(self) -> None:
        """Fault 189: said once in message 3, summarised away, asked for after 200 messages: search finds it, reading
        shows it word for word."""
        fact = "The staging password rotates every 90 days; ask for ticket OPS-20471."
        log: list[BaseMessage] = [HumanMessage("start", id="m1"), AIMessage("ok", id="m2"), HumanMessage(fact, id="m3")]
        for n in range(100):
            log += [AIMessage(f"step {n} done", id=f"a{n}"), HumanMessage(f"continue with step {n + 1}", id=f"h{n}")]
        found = find(HistoryIndex(), "when does the staging password rotate", log)
        assert found.startswith("- m3 (human): ")
        assert find(HistoryIndex(), "OPS-20471", log).startswith("- m3 ")
        read = run(read_history_gen("m3", 0, read_log(log), 200), lambda effect: answer(MemoryFiles(), effect))
        assert str(read).endswith(fact)


class TestAnAnswerFitsTheFreeRoom:
    def test_less_room_less_text(self) -> None:
        """The tool's page is that of the free room, not only the policy's."""
        log: list[BaseMessage] = [HumanMessage(f"needle {n} " + "x " * 150, id=f"m{n}") for n in range(30)]
        sizes: list[int] = []
        for used in (0, 9_300):
            call = AIMessage(
                "", tool_calls=[{"name": "search_history", "args": {"query": "needle", "limit": 30}, "id": "s"}]
            )
            paging = Paging(page=1_500, occupancy=lambda thread, messages, used=used: (used, 10_000))  # type: ignore[misc]
            model = StrictModel(script=[call, "found"], limit=30_000)
            agent = create_agent(model, [search_history_tool(MemoryFiles(), paging=paging)])
            state = agent.invoke({"messages": log})
            sizes.append(estimate_text(str(state["messages"][-2].content)))
        assert 1_000 < sizes[0] <= 1_550
        assert sizes[1] <= 400


STRUCTURED: tuple[dict[str, object], ...] = (
    {"type": "json", "json": {"rows": [{"path": "/srv/zebra.py", "value": "quagga77"}]}},
    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "the quagga77 of the notes"}},
    {"type": "document", "source": {"type": "text", "data": "quagga77"}},
    {"type": "file", "base64": base64.b64encode(b"a text with quagga77\n").decode(), "mime_type": "text/plain"},
    {"type": "file", "file": {"file_data": "data:text/csv;base64," + base64.b64encode(b"a,quagga77").decode()}},
    {"type": "search_result", "source": "https://x.y/z", "content": [{"type": "text", "text": "It says quagga77."}]},
    {"type": "non_standard", "value": {"type": "thing", "note": "quagga77"}},
    {"type": "resource", "resource": {"uri": "file:///a", "text": "quagga77"}},
    {"type": "web_search_tool_result", "content": [{"type": "web_search_result", "title": "quagga77"}]},
    {"type": "image_url", "image_url": {"url": "https://example.com/quagga77.png"}},
)


class TestEveryKindOfBlockIsSearchableAndReadable:
    @pytest.mark.parametrize("block", STRUCTURED, ids=lambda block: str(block["type"]))
    @pytest.mark.parametrize("role", ["human", "tool"])
    def test_what_a_block_says_is_found_and_read(self, block: dict[str, object], role: str) -> None:
        """Structured results, text files and blocks of unknown kinds hold facts too; a fold hides them like texts."""
        message: BaseMessage = HumanMessage([block], id="m")
        if role == "tool":
            message = ToolMessage([block], tool_call_id="1", id="m")
        assert find(HistoryIndex(), "quagga77", [*LOG, message]).startswith(f"- m ({role})")
        files = MemoryFiles()
        shown = run(read_history_gen("m", 0, read_log([*LOG, message]), 500), lambda effect: answer(files, effect))
        assert isinstance(shown, str)
        assert "quagga77" in shown

    def test_payloads_and_signatures_are_no_words(self) -> None:
        """An index does not grow by pictures, and no query finds one by its base64."""
        payload = base64.b64encode(b"\x89PNG" + bytes(range(256)) * 4).decode()
        blocks: list[dict[str, object]] = [
            {"type": "image", "base64": payload, "mime_type": "image/png"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{payload}"}},
            {"type": "tool_result", "content": [{"type": "image", "source": {"type": "base64", "data": payload}}]},
            {"type": "web_search_tool_result", "encrypted_content": payload},
            {"type": "media", "mime_type": "image/png", "data": b"\x89PNG"},
        ]
        for block in blocks:
            (read,) = blocks_of(HumanMessage([block]))
            assert len(words_of(read)) < 120
