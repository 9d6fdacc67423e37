"""Media in the window: what a model cannot be shown is never sent, in any spelling, and nothing of it is lost.

Faults 116, 117, 119, 121 of group H, as kinds.
"""

import base64
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from refold.core.canonical import canonical_bytes
from refold.core.media_parts import parts_of
from refold.core.media_rules import rules_of
from refold.core.messages import text_of
from refold.core.policy import Policy
from refold.core.program import run
from refold.core.project import project
from refold.core.turn import Outcome, model_call_gen
from refold.core.validate import PROVIDERS, Provider, all_violations
from refold.errors import ConfigurationError, FilesUnavailableError
from refold.files import MemoryFiles
from refold.testing.samples import PDF, PNG
from refold.testing.world import World

SPELLINGS: Mapping[str, Callable[[str, str], Mapping[str, object]]] = {
    "v1": lambda data, mime: {"type": "image", "base64": data, "mime_type": mime},
    "v0": lambda data, mime: {"type": "image", "source_type": "base64", "data": data, "mime_type": mime},
    "chat": lambda data, mime: {"type": "image_url", "image_url": {"url": f"data:{mime};base64,{data}"}},
    "responses": lambda data, mime: {"type": "input_image", "image_url": f"data:{mime};base64,{data}"},
    "anthropic": lambda data, mime: {
        "type": "image", "source": {"type": "base64", "media_type": mime, "data": data},
    },
    "document": lambda data, mime: {
        "type": "document", "source": {"type": "base64", "media_type": mime, "data": data},
    },
    "chat file": lambda data, mime: {"type": "file", "file": {"file_data": f"data:{mime};base64,{data}"}},
    "responses file": lambda data, mime: {"type": "input_file", "file_data": f"data:{mime};base64,{data}"},
    "gemini": lambda data, mime: {"inline_data": {"mime_type": mime, "data": data}},
    "gemini media": lambda data, mime: {"type": "media", "mime_type": mime, "data": data},
    "converse": lambda data, mime: {"image": {"format": mime.split("/")[1], "source": {"bytes": data}}},
    "wrapped": lambda data, mime: {
        "type": "non_standard", "value": {"type": "image", "source": {"media_type": mime, "data": data}},
    },
}  # fmt: skip
DAMAGES: Mapping[str, tuple[str, str]] = {
    "no base64": ("%%%not base64%%%", "image/png"),
    "empty": ("", "image/png"),
    "cut off": (base64.b64encode(base64.b64decode(PNG)[:-14]).decode(), "image/png"),
    "another type": (PNG, "image/jpeg"),
    "no picture": (base64.b64encode(b"hello, this is text").decode(), "image/png"),
    "no document": (base64.b64encode(b"<html></html>").decode(), "application/pdf"),
}


def png(size: int, seed: int = 0) -> str:
    """A whole picture of about so many bytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 800, 600, 8, 2, 0, 0, 0))
    return base64.b64encode(
        b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", bytes([seed]) * size) + chunk(b"IEND", b"")
    ).decode()


def picture(data: str = PNG, mime: str = "image/png") -> Mapping[str, object]:
    return SPELLINGS["v1"](data, mime)


def thread(block: Mapping[str, object], place: str) -> list[BaseMessage]:
    """A short log with a medium at a place."""
    call = AIMessage("", id="a1", tool_calls=[{"id": "c1", "name": "shot", "args": {}}])
    match place:
        case "human":
            return [HumanMessage([{"type": "text", "text": "look"}, dict(block)], id="h0")]
        case "result":
            return [HumanMessage("go", id="h0"), call, ToolMessage([dict(block)], tool_call_id="c1", id="t1")]
        case _:
            nested = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "x"}, block]}
            return [HumanMessage("go", id="h0"), call, HumanMessage([nested], id="t1")]


def world(**options: object) -> World:
    return World(**{"limit": 200_000, **options})  # type: ignore[arg-type]


def stored_in(here: World, folder: str) -> list[bytes]:
    """What every file under a folder holds."""
    return [here.files.read(info.path) for info in here.files.glob(f"{folder}/**")]


def inline(messages: Sequence[BaseMessage]) -> list[str]:
    return [part.media.data or "" for message in messages for part in parts_of(message) if part.inline]


def asked(here: World, log: Sequence[BaseMessage], profile: Mapping[str, object]) -> Outcome:
    """One call of a model with a profile."""
    turn = replace(here.turn(log), media=rules_of(here.provider, profile))
    return run(model_call_gen(turn), here.answer)


class Broken(MemoryFiles):
    def write(self, path: str, data: bytes, *, mode: str) -> None:  # type: ignore[override]
        raise FilesUnavailableError("the disk is full")


class TestDamagedMediaAreNeverSent:
    @pytest.mark.parametrize("place", ["human", "result", "nested"])
    @pytest.mark.parametrize("damage", DAMAGES)
    def test_fault_116_a_stub_with_the_reason_in_any_place(self, damage: str, place: str) -> None:
        """The request holds no payload but a reason; the log is as it was; what there was can be read back."""
        log = thread(picture(*DAMAGES[damage]), place)
        before = [canonical_bytes(message.content) for message in log]
        here = world()
        outcome = here.call(log)
        assert inline(here.sent[-1]) == []
        assert "why=" in str([m.content for m in here.sent[-1]])
        assert before == [canonical_bytes(message.content) for message in log]
        stored = stored_in(here, "/media")
        assert (DAMAGES[damage][0] != "") is bool(stored)
        assert [fold["kind"] for fold in outcome.folds] == ["media"]

    @pytest.mark.parametrize("spelling", SPELLINGS)
    @pytest.mark.parametrize("damage", ["no base64", "empty", "cut off"])
    def test_fault_116_in_any_spelling(self, spelling: str, damage: str) -> None:
        """Whatever the provider's word for a picture is."""
        here = world()
        here.call(thread(SPELLINGS[spelling](*DAMAGES[damage]), "human"))
        assert inline(here.sent[-1]) == []
        assert "media" in text_of(here.sent[-1][0])

    @pytest.mark.parametrize("spelling", SPELLINGS)
    def test_whole_media_are_sent_as_they_came(self, spelling: str) -> None:
        """No fold, and the very same message."""
        data, mime = (PDF, "application/pdf") if spelling in ("document", "chat file", "responses file") else (
            PNG, "image/png",
        )  # fmt: skip
        log = thread(SPELLINGS[spelling](data, mime), "human")
        here = world()
        assert here.call(log).folds == ()
        assert [data] == inline(here.sent[-1])

    def test_fault_116_five_megabytes_and_one_for_anthropic(self) -> None:
        """5 MB of base64 is sent, more is not; a provider with a larger limit is sent both."""
        most = 5 * 1024 * 1024
        fits, over = png(most * 3 // 4 - 200), png(most * 3 // 4)
        assert len(fits) <= most < len(over)
        sent = {}
        for provider in ("anthropic", "gemini"):
            here = world(provider=provider)
            here.call([HumanMessage([dict(picture(fits)), dict(picture(over))], id="h0")])
            sent[provider] = [len(data) for data in inline(here.sent[-1])]
        assert {"anthropic": [len(fits)], "gemini": [len(fits), len(over)]} == sent

    def test_a_failed_store_leaves_a_marker(self) -> None:
        """No path is named, the reason is; the log holds the original."""
        here = world(files=Broken())
        here.call(thread(picture(*DAMAGES["cut off"]), "human"))
        shown = text_of(here.sent[-1][0])
        assert ("why=" in shown, "path=" in shown) == (True, False)

    def test_one_fold_serves_every_later_call(self) -> None:
        """The next turn makes no fold and extends the request."""
        log = thread(picture(*DAMAGES["empty"]), "human")
        here = world()
        folds = list(here.call(log).folds)
        log += [AIMessage("ok", id="a9"), HumanMessage("on", id="h9")]
        assert here.call(log, folds).folds == ()
        assert list(here.sent[0]) == list(here.sent[1])[: len(here.sent[0])]

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(sorted(SPELLINGS)), st.sampled_from(["whole", *DAMAGES]),
                st.sampled_from(["human", "result", "nested"]),
            ),
            min_size=1, max_size=4,
        ),
        st.sampled_from(PROVIDERS),
        st.booleans(),
    )  # fmt: skip
    def test_no_request_holds_an_invalid_medium(
        self, media: list[tuple[str, str, str]], provider: Provider, reads: bool
    ) -> None:
        """Any media, anywhere, any provider, with a reader or without: what is sent is whole; the log is untouched; the
        view and the stored files cover every payload."""
        log: list[BaseMessage] = []
        payloads: set[str] = set()
        for number, (spelling, damage, place) in enumerate(media):
            data, mime = DAMAGES.get(damage, (PNG, "image/png"))
            payloads.add(data)
            for message in thread(SPELLINGS[spelling](data, mime), place):
                log.append(message.model_copy(update={"id": f"{number}-{message.id}"}))
            log.append(AIMessage("seen", id=f"{number}-done"))
        log.append(HumanMessage("and now?", id="last"))
        before = canonical_bytes([message.model_dump() for message in log])
        here = world(provider=provider, file_reader="read_file" if reads else None)
        folds = here.call(log).folds
        shown = project(log, list(folds)).messages
        assert [part.damage for m in here.sent[-1] for part in parts_of(m) if part.damage is not None] == []
        assert before == canonical_bytes([message.model_dump() for message in log])
        own = {broken.rule for broken in all_violations(log).get(provider, ())}
        assert [broken for broken in all_violations(shown).get(provider, ()) if broken.rule not in own] == []
        if reads:
            stored = stored_in(here, "/media")
            visible = set(inline(shown))
            for data in payloads - visible - {""}:
                raw = data.encode() if "%" in data else base64.b64decode(data)
                assert raw in stored


NO_MEDIA = {"image_inputs": False, "pdf_inputs": False, "audio_inputs": False, "video_inputs": False}


class TestModelsThatTakeNoMedia:
    @pytest.mark.parametrize("place", ["human", "result", "nested"])
    @pytest.mark.parametrize("data", [(PNG, "image/png"), (PDF, "application/pdf")])
    def test_fault_121_references_never_data(self, data: tuple[str, str], place: str) -> None:
        """The bytes are stored, and the reference says where and why."""
        here = world()
        asked(here, thread(picture(*data), place), NO_MEDIA)
        assert inline(here.sent[-1]) == []
        stored = stored_in(here, "/media")
        assert [base64.b64decode(data[0])] == stored

    def test_fault_121_an_address_is_no_input_either(self) -> None:
        """A picture by URL is a request that the model refuses too."""
        here = world()
        url = "https://example.com/a.png"
        asked(here, [HumanMessage([{"type": "image_url", "image_url": {"url": url}}], id="h0")], NO_MEDIA)
        assert url in text_of(here.sent[-1][0])
        assert [part for message in here.sent[-1] for part in parts_of(message)] == []

    @pytest.mark.parametrize("profile", [{}, {"max_input_tokens": 9_000}, {"image_inputs": True}])
    def test_what_no_one_declared_is_sent(self, profile: Mapping[str, object]) -> None:
        """Silence is not a denial."""
        here = world()
        assert asked(here, thread(picture(), "human"), profile).folds == ()

    def test_results_may_be_narrower(self) -> None:
        """A model that takes pictures of users but not of tools."""
        here = world()
        log = [*thread(picture(), "human"), *thread(picture(png(300)), "result")]
        asked(here, log, {"image_inputs": True, "image_tool_message": False})
        assert inline(here.sent[-1]) == [PNG]


class Refusing:
    """A provider that refuses any request with one picture."""

    def __init__(self, refused: str) -> None:
        self.refused, self.calls = refused, 0

    def __call__(self, messages: Sequence[BaseMessage]) -> AIMessage:
        self.calls += 1
        if self.refused in inline(messages):
            raise ValueError("Error code: 400 - messages.0.content.0: Could not process image")
        return AIMessage("fine", id=f"r{self.calls}")


class TestRefusedMediaAreFoldedOut:
    def test_fault_117_once_refused_never_sent_again(self) -> None:
        """The new picture goes and the request is sent once more; older ones stay; the next turn is not refused."""
        old, bad = png(400, 1), png(400, 2)
        log = [*thread(picture(old), "human"), AIMessage("a fine picture", id="a0"), HumanMessage(
            [dict(picture(bad))], id="h1"
        )]  # fmt: skip
        model = Refusing(bad)
        here = world(model=model)
        outcome = here.call(log)
        assert (2, [old]) == (model.calls, inline(here.sent[-1]))
        assert "refused" in text_of(here.sent[-1][2])
        log += [AIMessage("fine", id="a1"), HumanMessage("text only", id="h2")]
        here.call(log, list(outcome.folds))
        assert model.calls == 3

    def test_fault_117_an_old_picture_is_found_after_the_new_ones(self) -> None:
        """Another model refuses what the one before took: at last none is sent."""
        bad, new = png(400, 1), png(400, 2)
        log = [*thread(picture(bad), "human"), AIMessage("seen", id="a0"), HumanMessage([dict(picture(new))], id="h1")]
        model = Refusing(bad)
        here = world(model=model)
        here.call(log)
        assert (model.calls, inline(here.sent[-1])) == (3, [])

    def test_a_refusal_without_media_is_the_models_own_error(self) -> None:
        """There is nothing to fold out."""

        def refuse(messages: Sequence[BaseMessage]) -> AIMessage:
            raise ValueError("Could not process image")

        with pytest.raises(ValueError, match="Could not process"):
            world(model=refuse).call([HumanMessage("hi", id="h0")])


class TestMediaStayWithinTheirBudget:
    def log(self, count: int, size: int = 3_000) -> list[BaseMessage]:
        log: list[BaseMessage] = [HumanMessage("go", id="h0")]
        for n in range(count):
            log += [
                AIMessage("", id=f"a{n}", tool_calls=[{"id": f"c{n}", "name": "shot", "args": {}}]),
                ToolMessage([dict(picture(png(size, n % 250)))], tool_call_id=f"c{n}", id=f"t{n}", name="shot"),
            ]
        return log

    @pytest.mark.parametrize(
        "limits", [{"media_count": 6}, {"media_bytes": 26_000}, {"media_share": 0.03}]
    )  # fmt: skip
    def test_the_oldest_leave_in_batches(self, limits: Mapping[str, object]) -> None:
        """Far below the trigger, the window never holds more than its count, bytes or tokens of media for long; folds
        are rare; the newest picture is always shown; every one is stored once."""
        policy = Policy(output_reserve=500, body_limit=None, **limits)  # type: ignore[arg-type]
        here = world(policy=policy)
        log = self.log(20)
        folds: list[Mapping[str, object]] = []
        for end in range(3, len(log) + 1, 2):
            made = here.call(log[:end], folds).folds  # type: ignore[arg-type]
            folds += made
            shown = inline(here.sent[-1])
            assert len(shown) <= 8
            assert inline([log[end - 1]])[0] == shown[-1]
        assert 1 < len(folds) <= 10
        assert {"media over their budget"} == {fold["reason"] for fold in folds}

    def test_fault_119_stored_bytes_do_not_grow_with_compactions(self) -> None:
        """Three pictures and ten passes: each is stored once, and neither an archive nor a request to
        a summariser of its own holds its base64."""
        here = world(limit=6_000, live=False, policy=Policy(output_reserve=500, summary_backoff=0.0))
        log = self.log(3)
        folds: list[Mapping[str, object]] = []
        passes: set[object] = set()
        for n in range(120):
            log += [
                AIMessage("", id=f"b{n}", tool_calls=[{"id": f"d{n}", "name": "run", "args": {}}]),
                ToolMessage("a line of output\n" * 60, tool_call_id=f"d{n}", id=f"u{n}", name="run"),
            ]
            folds += here.call(log, folds).folds  # type: ignore[arg-type]
            passes |= {fold["pass"] for fold in folds}
        assert len(passes) >= 10
        assert len(stored_in(here, "/media")) == 3
        archives = stored_in(here, "/history")
        assert archives
        assert not any(data.encode() in text for data in inline(log) for text in archives)
        assert not any(data in str(request.messages) for data in inline(log) for request in here.summaries)

    def test_budgets_are_validated(self) -> None:
        """Each says what is wrong with it."""
        for wrong in ({"media_count": -1}, {"media_share": 0.0}, {"media_bytes": 0}):
            with pytest.raises(ConfigurationError):
                Policy(**wrong)  # type: ignore[arg-type]


class TestLongMessagesOfTheUser:
    def test_any_but_the_newest_is_previewed_at_the_trigger_never_retold(self) -> None:
        """Old or recent, pasted text leaves by preview and path; the newest stays verbatim; all of it reads back."""
        pasted = {n: "\n".join(f"{n}: line {i} of the pasted log" for i in range(700)) for n in range(4)}
        log: list[BaseMessage] = [HumanMessage("the task", id="h0")]
        for n, text in pasted.items():
            log += [HumanMessage(text, id=f"p{n}"), AIMessage(f"read {n}", id=f"a{n}")]
        log[-1:] = []
        here = world(limit=30_000, policy=Policy(output_reserve=500, summary_backoff=0.0))
        folds: list[Mapping[str, object]] = []
        for end in (4, 6, len(log)):
            folds += here.call(log[:end], folds).folds  # type: ignore[arg-type]
        assert "human" in {fold["kind"] for fold in folds}
        assert text_of(here.sent[-1][-1]) == pasted[3]
        kept = {data.decode() for data in stored_in(here, "/inputs")}
        shown = {text_of(message) for message in here.sent[-1]}
        assert [text for text in pasted.values() if text not in kept | shown] == []

    def test_a_summary_request_says_what_a_reference_is(self) -> None:
        """So that a summariser names the path, and does not guess what is there."""
        here = world(limit=6_000, live=False, policy=Policy(output_reserve=500, kinds=frozenset({"summary"})))
        log: list[BaseMessage] = [HumanMessage("go", id="h0")]
        for n in range(100):
            log += [
                AIMessage("", id=f"b{n}", tool_calls=[{"id": f"d{n}", "name": "run", "args": {}}]),
                ToolMessage("short " * 40, tool_call_id=f"d{n}", id=f"u{n}", name="run"),
            ]
        here.call(log)
        assert all("stands for stored content" in str(request.messages[-1].content) for request in here.summaries)
        assert here.summaries
