"""Faults of groups I, J, L, P and R, by number, in a small world."""

from collections.abc import Mapping, Sequence

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from refold.core.canonical import Json, canonical_bytes
from refold.core.ingest import INGESTED, Ingestion, ingest_gen
from refold.core.messages import text_of
from refold.core.passes import Scope
from refold.core.passes.args import has_reference
from refold.core.policy import Policy
from refold.core.program import run
from refold.core.project import project
from refold.errors import ContextOverflowError, FilesUnavailableError
from refold.files import MemoryFiles, answer
from refold.testing.threads import Thread
from refold.testing.world import World

POLICY = Policy(output_reserve=200, summary_backoff=0.0, result_min=150, clear_min=40, args_min=100, preview=60)


def world(limit: int | None = 4_000, **options: object) -> World:
    return World(**{"limit": limit, "policy": POLICY, **options})  # type: ignore[arg-type]


def rounds(count: int, start: int = 1) -> list[BaseMessage]:
    return [
        m
        for n in range(start, start + count)
        for m in (
            AIMessage("", id=f"a{n}", tool_calls=[{"id": f"c{n}", "name": "run", "args": {"step": n}}]),
            ToolMessage("a line of output\n" * 25, tool_call_id=f"c{n}", id=f"t{n}", name="run"),
        )
    ]


TASK = HumanMessage("Go on.", id="h0")


def sent(messages: Sequence[BaseMessage]) -> list[bytes]:
    return [canonical_bytes([m.type, m.content, getattr(m, "tool_calls", None)]) for m in messages]


class TestGroupI:
    """Prompt cache and cost."""

    def test_fault_126_127_few_breaks_of_the_prefix(self) -> None:
        """200 rounds: the prefix breaks only at recorded passes, and by the cache's prices it costs less than doing
        nothing would in a window that were large enough."""
        thread = Thread(world=world(20_000))
        log: list[BaseMessage] = [TASK]
        before: list[bytes] = []
        breaks, passes, paid, plain, total = 0, 0, 0.0, 0.0, 0
        for n in range(1, 201):
            log += rounds(1, n)
            call = thread.call(log)
            now = sent(call.sent)
            broke = now[: len(before)] != before
            assert not broke or call.outcome.folds
            breaks += broke
            passes += bool(call.outcome.folds)
            shared = next(
                (i for i, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), min(len(before), len(now))
            )
            gauge = call.outcome.gauge
            paid += 0.1 * gauge.sums[shared] + 1.25 * (gauge.sums[-1] - gauge.sums[shared])
            new = sum(thread.world.meter.count(m).tokens for m in log[-2:])
            plain += 0.1 * total + 1.25 * new
            total += new
            before = now
        assert breaks <= passes
        assert passes <= 12
        assert paid < plain


class TestGroupJ:
    """Shortened arguments that the model copies."""

    def test_fault_131_132_whole_values_or_a_reference(self) -> None:
        """A long argument becomes a reference that no one writes by hand; a path of 210 characters stays whole."""
        path = "/src/" + "deep/" * 41 + "file.py"
        content = "print('hello world')\n" * 900
        log: list[BaseMessage] = [TASK]
        for n in range(12):
            args = {"path": path, "content": content + str(n)}
            log += [
                AIMessage("", id=f"a{n}", tool_calls=[{"id": f"c{n}", "name": "write_file", "args": args}]),
                ToolMessage("ok", tool_call_id=f"c{n}", id=f"t{n}", name="write_file"),
            ]
        here = world(30_000)
        outcome = here.call(log)
        assert "args" in {fold["kind"] for fold in outcome.folds}
        for message in here.sent[-1]:
            for call in getattr(message, "tool_calls", []):
                assert call["args"]["path"] == path
                value = call["args"]["content"]
                assert value.startswith("print(") == (len(value) > 10_000)
                assert (has_reference(call["args"]) == "content") == (not value.startswith("print("))

    @pytest.mark.parametrize(
        "mark", ["withheld a=b", "result path=/x", "cleared path=/x", "media path=/x", "input path=/x"]
    )
    def test_fault_131_any_reference_is_recognised(self, mark: str) -> None:
        """References to results, inputs and media are no content either; other text with the signs is."""
        assert has_reference({"deep": [{"text": f"before ⟦refold:{mark}⟧"}]}) == "deep[0].text"
        assert has_reference({"text": "the sign ⟦refold:⟧ and `refold:withheld`"}) is None


class TestGroupG:
    """Large results on their way into the log."""

    def ingested(self, message: ToolMessage, *, files: MemoryFiles | None = None, threshold: int = 500) -> BaseMessage:
        scope = Scope(thread="t", policy=POLICY, file_reader="read_history", log_reader=None)
        store = files if files is not None else MemoryFiles()

        def handle(effect: object) -> object:
            return None if type(effect).__name__ == "Report" else answer(store, effect)  # type: ignore[arg-type]

        return run(ingest_gen(Ingestion(message=message, scope=scope, threshold=threshold)), handle)

    @pytest.mark.parametrize("call_id", ["", "c1", "x" * 1_400, "../../etc/passwd", "名前\0"])
    def test_fault_102_109_any_id_and_blocks(self, call_id: str) -> None:
        """Stored under a safe name, read back whole, and the stub names it; a list of text blocks too."""
        files = MemoryFiles()
        text = "row of a table\n" * 900
        stub = self.ingested(ToolMessage([{"type": "text", "text": text}], tool_call_id=call_id, id="t"), files=files)
        mark = stub.additional_kwargs["refold"]
        assert mark["kind"] == INGESTED
        assert files.read(mark["path"]).decode() == text
        assert mark["path"] in text_of(stub)
        assert self.ingested(stub) is stub  # type: ignore[arg-type]

    def test_fault_99_107_readers_and_broken_storage(self) -> None:
        """A reader's result enters whole, and so does any where storage fails."""

        class Broken(MemoryFiles):
            def write(self, path: str, data: bytes, *, mode: object) -> None:
                raise FilesUnavailableError("full")

        big = "row of a table\n" * 900
        reader = ToolMessage(big, tool_call_id="c", id="t", name="read_file")
        assert self.ingested(reader) is reader
        other = ToolMessage(big, tool_call_id="c", id="t", name="run")
        assert self.ingested(other, files=Broken()) is other


class TestGroupsLAndP:
    """Transactions and persistence."""

    def test_fault_139_184_187_the_log_is_never_written_to(self) -> None:
        """Through passes of every kind the log keeps its objects; the window is made from it and the folds alone."""
        log: list[BaseMessage] = [TASK, *rounds(60)]
        dumped = [m.model_dump() for m in log]
        thread = Thread(world=world())
        for stop in range(3, len(log) + 1, 10):
            thread.call(log[:stop])
        assert [m.model_dump() for m in log] == dumped
        assert sent(project(log, thread.folds).messages) == sent(
            project([m.model_copy(deep=True) for m in log], thread.folds).messages
        )

    def test_fault_186_folds_of_a_newer_refold_are_kept_and_told(self) -> None:
        """An unknown kind is ignored with a warning, not dropped and not an error."""
        here = world()
        strange: Mapping[str, Json] = {"v": 1, "id": "n", "kind": "teleport", "pass": "p", "reason": "r"}
        here.call([TASK], [strange])
        assert [name for name, _ in here.events] == ["fold_ignored"]

    def test_void_folds_are_told_once(self) -> None:
        """A fold that the log outgrew is reported when it is found, and not at every call."""
        here = world()
        thread = Thread(world=here)
        log = [TASK, *rounds(30)]
        thread.call(log)
        changed = [TASK, *rounds(30)[2:], HumanMessage("on", id="h1")]
        here.events.clear()
        first = thread.call(changed)
        assert any(name == "fold_void" for name, _ in here.events)
        here.events.clear()
        thread.call([*changed, AIMessage("ok", id="ok"), HumanMessage("and on", id="h2")])
        assert first.outcome.folds or not any(name == "fold_void" for name, _ in here.events)


class TestGroupR:
    """Control and visibility."""

    def test_fault_196_197_every_threshold_is_public(self) -> None:
        """Another trigger moves the first pass."""

        def first_pass(trigger: float) -> int:
            changed = {n: getattr(POLICY, n) for n in POLICY.__dataclass_fields__} | {
                "trigger": trigger,
                "soft": trigger,
            }
            thread = Thread(world=world(policy=Policy(**changed)))
            log: list[BaseMessage] = [TASK]
            for n in range(1, 60):
                log += rounds(1, n)
                if thread.call(log).outcome.folds:
                    return n
            return 0

        assert 0 < first_pass(0.4) < first_pass(0.9)

    def test_fault_202_an_overflow_error_carries_counts(self) -> None:
        """Limit, reserve, system, tools, messages and the largest ones are attributes."""
        with pytest.raises(ContextOverflowError) as raised:
            world(600, file_reader=None, log_reader=None).call([TASK, *rounds(20)])
        error = raised.value
        assert (error.limit, error.reserved) == (600, 200)
        assert error.messages > 400
        assert error.largest[0].message_id.startswith("t")

    def test_fault_206_a_providers_compaction_item_stays(self) -> None:
        """An opaque item survives every pass, in place."""
        item = AIMessage([{"type": "compaction", "encrypted_content": "x"}], id="cmp")
        here = world()
        here.call([TASK, *rounds(3), item, HumanMessage("on", id="h1"), *rounds(30, 10)])
        assert item in here.sent[-1]
