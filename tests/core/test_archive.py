"""Archives: every message once, a few files away, however long the thread."""

import json
from collections import Counter
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from refold.core.archive import grouped
from refold.core.canonical import Json
from refold.core.history import Earlier, parse_contents, parse_history
from refold.core.policy import Policy
from refold.core.project import project
from refold.testing.world import World


def leaf(number: int) -> Earlier:
    return Earlier(path=f"/history/t/{number:04d}-x.md", first=f"a{number}", last=f"b{number}", messages=2, level=0)


def leaves(earlier: list[Earlier], files: dict[str, str]) -> list[str]:
    """The archives that a list leads to, in order."""
    found: list[str] = []
    for one in earlier:
        found += leaves(list(parse_contents(files[one.path]).earlier), files) if one.level else [one.path]
    return found


class TestListsStayShort:
    @settings(max_examples=25)
    @given(st.lists(st.integers(1, 9), max_size=400))
    def test_whatever_is_added(self, sizes: list[int]) -> None:
        """Archives come in any numbers: a list never has more than 32 of a level, is a few levels deep, and leads to
        every archive once, in order."""
        files: dict[str, str] = {}
        kept: list[Earlier] = []
        added: list[str] = []
        for sequence, size in enumerate(sizes):
            new = [leaf(len(added) + n) for n in range(size)]
            added += [one.path for one in new]
            lists, kept = grouped([*kept, *new], thread="t", sequence=sequence)
            files |= {one.path: one.data.decode() for one in lists}
            assert max(Counter(one.level for one in kept).values()) <= 32
            assert max(one.level for one in kept) <= 2
        assert added == leaves(kept, files)
        assert sum(one.messages for one in kept) == 2 * len(added)


def rounds(count: int) -> list[BaseMessage]:
    """A request and rounds of work, each with words of its own."""
    log: list[BaseMessage] = [HumanMessage("Read every file and note what is wrong.", id="h0")]
    for number in range(count):
        call = {"name": "read", "args": {"path": f"/src/m{number}.py"}, "id": f"c{number}"}
        words = f"module {number} holds value {number * 7919} " * 12
        log += [
            AIMessage(f"Now file {number}.", id=f"a{number}", tool_calls=[call]),
            ToolMessage(words, id=f"t{number}", tool_call_id=f"c{number}", name="read"),
        ]
    return log


class TestAThread:
    def test_its_archives_hold_each_message_once_and_lead_to_all(self) -> None:
        """After hundreds of rounds in a tiny window the archives are about as large as the log, and following the paths
        of the segments finds every message that they stand for once, word for word."""
        log, here = rounds(360), World(limit=3_000, policy=Policy(summary_backoff=0.0, output_reserve=200))
        folds: list[Mapping[str, Json]] = []
        for stop in range(3, len(log) + 1, 2):
            folds += here.call(log[:stop], folds).folds
        assert sum(fold["kind"] == "merge" for fold in folds) > 20
        stored = sum(info.size for info in here.files.list("/history"))
        assert stored < 2.2 * sum(len(json.dumps(message.model_dump(), default=str)) for message in log)
        texts: dict[str, str] = {}
        segments = project(log, folds).segments
        waiting = [str(segment.fold.data["path"]) for segment in segments]
        while waiting:
            path = waiting.pop()
            texts[path] = here.files.read(path).decode()
            waiting += [one.path for one in parse_contents(texts[path]).earlier if one.path not in texts]
        found = Counter(entry.id for text in texts.values() for entry in parse_history(text))
        expected = [message.id for message in log[1 : segments[-1].stop]]
        assert Counter(expected) == found
        bodies = {entry.id: entry.body for text in texts.values() for entry in parse_history(text)}
        assert [message.text for message in log[1 : len(expected) + 1]] == [bodies[identity] for identity in expected]
