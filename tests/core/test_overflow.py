"""Recognising that a provider refused a request for its length, in any wording, and reading its numbers."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import anthropic
import openai
import pytest
from google.genai.errors import ClientError
from hypothesis import given
from hypothesis import strategies as st
from langchain_anthropic import ChatAnthropic
from langchain_core.exceptions import ContextOverflowError as LangChainContextOverflowError
from langchain_openai import ChatOpenAI

from refold.core.overflow import Overflow, parse_overflow, parse_overflow_text
from refold.errors import ContextOverflowError
from refold.testing.dialects import DIALECTS, Dialect, OversizedRequest

CASES = json.loads((Path(__file__).parent / "overflow_cases.json").read_text("utf-8"))


def of(case: dict[str, object]) -> Overflow | None:
    return parse_overflow_text(case["text"], status=case.get("status"), code=case.get("code"))


def label(case: dict[str, object]) -> str:
    return str(case["text"])[:60] or f"status {case.get('status')}"


class TestRefusalsAreRecognised:
    @pytest.mark.parametrize("case", CASES["refused"], ids=label)
    def test_the_kind_and_the_numbers(self, case: dict[str, object]) -> None:
        """Each wording is an overflow, and every number that it gives is read for what it is (fault 7)."""
        found = of(case)
        assert found is not None
        assert case["expect"] == {name: asdict(found)[name] for name in case["expect"]}

    @pytest.mark.parametrize("case", CASES["refused"], ids=label)
    def test_a_limit_is_below_what_it_refused(self, case: dict[str, object]) -> None:
        """Where both are read, what was refused is larger than the limit: the prompt, or the prompt with the output."""
        found = of(case)
        assert found is not None
        if found.limit is not None and found.prompt is not None and not found.counts_output:
            assert found.limit < found.prompt
        if found.limit is not None and found.requested is not None:
            assert found.limit < found.requested

    @pytest.mark.parametrize("case", CASES["refused"], ids=label)
    def test_the_wrapping_does_not_matter(self, case: dict[str, object]) -> None:
        """The same text in a JSON body, in capitals or behind a proxy's own words says the same."""
        plain = of(case)
        body = json.dumps({"error": {"message": case["text"], "type": "invalid_request_error"}})
        wrapped = f"litellm.BadRequestError: OpenAIException - {case['text']}. Received Model Group=main"
        for text in (body, wrapped, str(case["text"]).upper()):
            again = parse_overflow_text(text, status=case.get("status"), code=case.get("code"))
            assert again == plain

    @pytest.mark.parametrize("separator", [",", "_", "'", " ", "\u202f", "."])
    def test_thousands_separators(self, separator: str) -> None:
        """A number written in groups is the same number."""
        text = f"maximum context length is {131072:,} tokens. However, your messages resulted in {1200300:,} tokens."
        found = parse_overflow_text(text.replace(",", separator) if separator != "," else text)
        assert found is not None
        assert (found.limit, found.prompt) == (131072, 1200300)


class TestOtherErrorsAreNot:
    @pytest.mark.parametrize("case", CASES["other"], ids=label)
    def test_near_misses(self, case: dict[str, object]) -> None:
        """Rates, quotas, output caps, fields, pictures, sign-in and time are no overflow, whatever they mention."""
        assert of(case) is None

    @pytest.mark.parametrize("case", CASES["other"], ids=label)
    def test_near_misses_in_a_body(self, case: dict[str, object]) -> None:
        """Nor are they inside a JSON body."""
        body = json.dumps({"error": {"message": case["text"], "code": case.get("code")}}, ensure_ascii=True)
        wrapped = f"litellm.BadRequestError: OpenAIException - {case['text']}. Received Model Group=main"
        for text in (body, wrapped):
            assert parse_overflow_text(text, status=case.get("status")) is None

    def test_a_rate_limit_beats_every_word_of_length(self) -> None:
        """A text about tokens per minute is not overflow, even where it advises a shorter prompt."""
        for words in ("input tokens per minute", "TPM", "tokens per day (TPD)"):
            assert parse_overflow_text(f"prompt is too long: 45000 > 30000 {words}; shorten your prompt") is None

    def test_a_picture_in_a_body_of_too_many_tokens(self) -> None:
        """A text that names pictures is overflow when it is their tokens that do not fit."""
        assert parse_overflow_text("Total tokens of image and text exceed max message tokens") is not None
        assert parse_overflow_text("image and text exceed 5 MB") is None


class TestTheRemedy:
    @pytest.mark.parametrize(
        ("prompt", "output", "remedy", "room"),
        [
            (150_000, 60_000, "lower_output", 50_000),
            (200_001, 8_000, "shrink", 0),
            (199_000, 8_000, "lower_output", 1_000),
        ],
    )
    def test_lower_output_only_where_the_prompt_fits(self, prompt: int, output: int, remedy: str, room: int) -> None:
        """A prompt that fits by itself needs less output; one that does not must shrink (fault 12)."""
        text = f"input length and `max_tokens` exceed context limit: {prompt} + {output} > 200000"
        found = parse_overflow_text(text, status=400)
        assert found is not None
        assert (remedy, room, prompt + output - 200_000) == (found.remedy, found.room, found.over)

    def test_a_lower_bound_is_not_a_prompt_that_fits(self) -> None:
        """vLLM stops counting at the limit; what it counted so far does not show that less output would do."""
        found = parse_overflow_text(
            "This model's maximum context length is 4096 tokens. However, you requested 1024 output tokens and your "
            "prompt contains at least 3073 input tokens, for a total of at least 4097 tokens."
        )
        assert found is not None
        assert (found.remedy, found.prompt_at_least, found.room, found.output) == ("shrink", True, None, 1024)


class TestNothingRaises:
    @given(st.text(max_size=400), st.none() | st.integers(0, 999), st.none() | st.text(max_size=40))
    def test_any_text(self, text: str, status: int | None, code: str | None) -> None:
        """The parser answers any text, status and code."""
        found = parse_overflow_text(text, status=status, code=code)
        assert found is None or isinstance(found, Overflow)

    @given(st.data())
    def test_any_mixture_of_the_vocabulary(self, data: st.DataObject) -> None:
        """Words of refusals in any order give a result whose numbers do not contradict a refusal."""
        words = re.findall(r"\S+", " ".join(str(case["text"]) for case in CASES["refused"]))
        found = parse_overflow_text(" ".join(data.draw(st.lists(st.sampled_from(words), max_size=30))))
        if found is not None and found.limit is not None and found.prompt is not None and not found.counts_output:
            assert found.limit < found.prompt

    @pytest.mark.parametrize(
        "piece", ["prompt is too long ", "9", "1,", "{", "exceed context ", "超过", "max_tokens + ", "\\u4e0a"]
    )
    def test_a_megabyte(self, piece: str) -> None:
        """A text of a megabyte is looked at only at its ends, and answered."""
        parse_overflow_text(piece * (1_000_000 // len(piece)))

    def test_what_is_beyond_the_quoted_prompt_is_read(self) -> None:
        """A refusal that quotes the prompt before it says what is wrong is recognised by its end."""
        found = parse_overflow_text(
            "bad request: " + "lorem ipsum " * 90_000 + "prompt is too long: 9000 tokens > 8192 maximum"
        )
        assert found is not None
        assert (found.limit, found.prompt) == (8192, 9000)


class Refused(Exception):
    """A client library's error with whatever fields it likes."""

    def __init__(self, message: str = "", **fields: object) -> None:
        super().__init__(message)
        self.__dict__.update(fields)


class Unreadable(Exception):
    """An error that cannot even be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    @property
    def response(self) -> object:
        raise RuntimeError("the stream was not read")


def while_handling(first: Exception, later: Exception) -> Exception:
    """The later error as Python leaves it when it is raised while the first is handled."""
    later.__context__ = first
    return later


TOO_LONG = "request (9000 tokens) exceeds the available context size (4096 tokens), try increasing it"
RATE = "Rate limit reached on tokens per min (TPM): Limit 30000, Requested 45000"


class TestExceptionsAreRead:
    @pytest.mark.parametrize(
        "error",
        [
            Refused(TOO_LONG),
            Refused(
                "Bad Request",
                status_code=400,
                body={"error": {"message": TOO_LONG, "type": "exceed_context_size_error"}},
            ),
            Refused(
                "Bad Request",
                body=json.dumps(
                    {"error": {"n_prompt_tokens": 9000, "n_ctx": 4096, "type": "exceed_context_size_error"}}
                ),
            ),
            Refused("Bad Request", response={"Error": {"Code": "ValidationException", "Message": TOO_LONG}}),
            Refused("Bad Request", response=Refused(text=TOO_LONG, status_code=400)),
            Refused("error", details=[{"message": TOO_LONG}]),
            Refused("", error=TOO_LONG, status_code=500),
            Refused(
                "Provider returned error", body={"metadata": {"raw": json.dumps({"error": {"message": TOO_LONG}})}}
            ),
            Refused("refused", body=TOO_LONG.encode()),
        ],
    )
    def test_wherever_the_text_is(self, error: Exception) -> None:
        """The body, the response, its details, JSON inside JSON: the numbers are found."""
        found = parse_overflow(error)
        assert found is not None
        assert (found.limit, found.prompt, found.unit) == (4096, 9000, "tokens")

    def test_a_code_alone(self) -> None:
        """A code that means overflow is enough."""
        assert parse_overflow(Refused("Error", code="context_length_exceeded")) == Overflow()

    def test_a_status_alone(self) -> None:
        """413 with nothing said is a body too large; with a rate limit in it, it is not (fault 17)."""
        assert parse_overflow(Refused("", status_code=413)) == Overflow(unit="bytes")
        assert parse_overflow(Refused(RATE, status_code=413)) is None

    @pytest.mark.parametrize("status", [400, 404, 413, 422, 429, 500, 502, 503])
    def test_any_status(self, status: int) -> None:
        """Gateways pass a refusal on with statuses of their own; what it says is what counts."""
        for text in (TOO_LONG, "prompt is too long: 9000 tokens > 4096 maximum"):
            found = parse_overflow(Refused(text, status_code=status))
            assert found is not None
            assert (found.limit, found.prompt) == (4096, 9000)

    def test_langchains_own_type_always_counts(self) -> None:
        """Every subclass of LangChain's ContextOverflowError is an overflow, with the numbers that its text has."""

        class Theirs(LangChainContextOverflowError):
            pass

        assert parse_overflow(Theirs("nope")) == Overflow()
        found = parse_overflow(Theirs("300 tokens were sent, 256 is the limit"))
        assert found is not None
        assert (found.limit, found.prompt) == (256, 300)

    def test_our_own_type(self) -> None:
        """refold's error carries its numbers as they are."""
        error = ContextOverflowError("full", limit=100, reserved=10, system=20, tools=30, messages=70)
        assert parse_overflow(error) == Overflow(limit=100, prompt=120)

    def test_an_unreadable_error(self) -> None:
        """An error whose text and response cannot be read is no overflow, and nothing raises."""
        assert parse_overflow(Unreadable()) is None


class TestTheChainOfCauses:
    def test_cause_context_and_group(self) -> None:
        """A wrapper around the refusal does not hide it, however it wraps."""
        caused = RuntimeError("model call failed")
        caused.__cause__ = Refused(TOO_LONG)
        handled = while_handling(Refused(TOO_LONG), RuntimeError("model call failed"))
        for error in (caused, handled, ExceptionGroup("tasks", [ValueError("x"), Refused(TOO_LONG)])):
            found = parse_overflow(error)
            assert found is not None
            assert found.limit == 4096

    def test_what_hides_it(self) -> None:
        """`from None` hides it; a later failure of another kind, or a bug of the program, is what it says itself."""
        for later in (Refused(RATE, status_code=429), TimeoutError("timed out"), KeyError("messages")):
            assert parse_overflow(while_handling(Refused(TOO_LONG), later)) is None
        hidden = while_handling(Refused(TOO_LONG), RuntimeError("failed"))
        hidden.__suppress_context__ = True
        assert parse_overflow(hidden) is None

    def test_a_cycle_ends(self) -> None:
        """Errors that cause each other are read once each."""
        one, two = RuntimeError("one"), RuntimeError("two")
        one.__cause__, two.__cause__ = two, one
        assert parse_overflow(one) is None

    def test_the_end_of_a_task_is_never_overflow(self) -> None:
        """A cancelled task is cancelled, whatever caused it."""
        error = asyncio.CancelledError(TOO_LONG)
        error.__cause__ = Refused(TOO_LONG)
        assert parse_overflow(error) is None
        assert parse_overflow(KeyboardInterrupt(TOO_LONG)) is None


class TestRefusalsThatSayNothing:
    @pytest.mark.parametrize(
        "error",
        [ValueError("No generation chunks were returned"), Refused("400 status code (no body)", status_code=400)],
    )
    def test_only_for_a_caller_who_expected_one(self, error: Exception) -> None:
        """An empty stream or an empty 400 is an overflow only where the count already said so."""
        assert parse_overflow(error) is None
        assert parse_overflow(error, estimated_over=True) == Overflow()

    @pytest.mark.parametrize("error", [ValueError("no"), Refused(RATE, status_code=429), KeyError("x")])
    def test_the_hint_alone_proves_nothing(self, error: Exception) -> None:
        """The hint does not turn other failures into overflow."""
        assert parse_overflow(error, estimated_over=True) is None


@contextmanager
def server(status: int, body: str, content_type: str = "application/json") -> Iterator[str]:
    """A provider on the loopback that answers everything alike."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            data = body.encode()
            self.send_response(status)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            return

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_address[1]}"
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


def raised_by(call: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as error:
        call()
    return error.value


class TestTheStrictModelsDialects:
    @pytest.mark.parametrize("dialect", [name for name in DIALECTS if name != "ollama"])
    @pytest.mark.parametrize(
        ("limit", "prompt", "output"), [(1_000, 1_200, 100), (128_000, 150_000, 4_000), (200, 260, 16)]
    )
    def test_every_server_of_the_strict_model(self, dialect: Dialect, limit: int, prompt: int, output: int) -> None:
        """Each refusal of the public test model is recognised; a number that is read is the right one (fault 7)."""
        found = parse_overflow(OversizedRequest(limit=limit, prompt=prompt, output=output).error(dialect))
        assert found is not None
        assert found.limit in (None, limit)
        assert found.prompt in (None, prompt)


class TestRealClients:
    @pytest.mark.parametrize("status", [400, 413, 422, 500])
    def test_an_openai_compatible_server(self, status: int) -> None:
        """What langchain-openai raises for a server whose words it does not know is read all the same (fault 7)."""
        body = {
            "error": {"message": TOO_LONG, "type": "exceed_context_size_error", "n_prompt_tokens": 9000, "n_ctx": 4096}
        }
        with server(status, json.dumps(body)) as url:
            model = ChatOpenAI(model="local", base_url=f"{url}/v1", api_key="none", max_retries=0)
            error = raised_by(lambda: model.invoke("hi"))
        assert isinstance(error, openai.APIStatusError)
        found = parse_overflow(error)
        assert found is not None
        assert (found.limit, found.prompt, found.unit) == (4096, 9000, "tokens")

    def test_in_the_middle_of_a_stream(self) -> None:
        """An error event after the first tokens is read the same way (fault 9)."""
        chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "local"}
        first = chunk | {
            "choices": [{"index": 0, "delta": {"role": "assistant", "content": "a"}, "finish_reason": None}]
        }
        events = [first, {"error": {"message": "Context size has been exceeded.", "type": "server_error", "code": 500}}]
        body = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
        with server(200, body, "text/event-stream") as url:
            model = ChatOpenAI(model="local", base_url=f"{url}/v1", api_key="none", max_retries=0)
            seen: list[object] = []
            error = raised_by(lambda: seen.extend(model.stream("hi")))
        assert seen
        assert parse_overflow(error) is not None

    def test_anthropic_output_and_body(self) -> None:
        """What langchain-anthropic does not map: input and output together, and a body that is too large (fault 17)."""
        texts = {
            400: "input length and `max_tokens` exceed context limit: 150000 + 60000 > 200000",
            413: "Request exceeds the maximum size",
        }
        found: list[Overflow | None] = []
        for status, text in texts.items():
            kind = "request_too_large" if status == 413 else "invalid_request_error"
            body = {"type": "error", "error": {"type": kind, "message": text}}
            with server(status, json.dumps(body)) as url:
                model = ChatAnthropic(model="claude-opus-4-8", base_url=url, api_key="none", max_retries=0)
                error = raised_by(lambda model=model: model.invoke("hi"))
            assert isinstance(error, anthropic.APIStatusError)
            found.append(parse_overflow(error))
        assert [(f.remedy, f.unit) for f in found if f] == [("lower_output", "tokens"), ("shrink", "bytes")]

    def test_google(self) -> None:
        """google-genai's error carries its status as `code` and its body as `details`."""
        text = (
            "Unable to submit request because the input token count is 1200000 but model only supports up to 1048576."
        )
        found = parse_overflow(
            ClientError(400, {"error": {"code": 400, "message": text, "status": "INVALID_ARGUMENT"}})
        )
        assert found is not None
        assert (found.limit, found.prompt) == (1048576, 1200000)
