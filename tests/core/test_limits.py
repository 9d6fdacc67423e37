"""Limits: which source wins, what a refusal teaches, how a window is divided."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.core.limits import (
    DEFAULT_INPUT,
    LARGEST_RESERVE,
    Budget,
    Learned,
    LearnedLimits,
    Limits,
    ModelKey,
    budget,
    counts_output_of,
    resolve_limits,
)
from refold.core.overflow import Overflow, parse_overflow_text
from refold.errors import ConfigurationError, ContextOverflowError

KEY = ModelKey(base_url="http://localhost:8000/v1", model="local")
PROFILE = {"max_input_tokens": 200_000, "max_output_tokens": 64_000, "tool_calling": True}
CATALOGUE = Limits(input=1_000_000, output=128_000, source="catalogue")

tokens = st.integers(1, 2_000_000)
profiles = st.none() | st.fixed_dictionaries(
    {}, optional={"max_input_tokens": st.integers(-5, 2_000_000) | st.none() | st.text(max_size=4)}
)


def divide(
    limits: Limits, reserve: int | None, system: int, tools: int
) -> Budget | ConfigurationError | ContextOverflowError:
    """The budget, or the error that it ends in."""
    try:
        return budget(limits, reserve=reserve, system=system, tools=tools)
    except (ConfigurationError, ContextOverflowError) as error:
        return error


class TestTheOrderOfSources:
    def test_explicit_first(self) -> None:
        """What the user set stands before profile and catalogue, lower or higher."""
        for limit in (50_000, 900_000):
            found = resolve_limits(explicit=limit, profile=PROFILE, catalogue=CATALOGUE)
            assert (limit, "explicit") == (found.input, found.source)

    def test_profile_then_catalogue_then_default(self) -> None:
        """Without a user's word the profile counts, then the catalogue, then the default."""
        assert resolve_limits(profile=PROFILE, catalogue=CATALOGUE) == Limits(
            input=200_000, output=64_000, source="profile"
        )
        assert resolve_limits(profile={}, catalogue=CATALOGUE) == CATALOGUE
        assert resolve_limits() == Limits(input=DEFAULT_INPUT, source="default")

    @pytest.mark.parametrize("source", [{"explicit": 200_000}, {"profile": PROFILE}, {"catalogue": CATALOGUE}, {}])
    def test_a_refusal_lowers_every_source(self, source: dict[str, object]) -> None:
        """A limit that the server refused cannot be used, whoever named it."""
        found = resolve_limits(learned=Learned(limit=32_768, exact=True), **source)
        assert (found.input, found.source) == (32_768, "learned")

    @given(st.none() | tokens, st.none() | tokens, profiles, st.none() | tokens)
    def test_laws(
        self, explicit: int | None, learned: int | None, profile: dict[str, object] | None, known: int | None
    ) -> None:
        """The result is one of the numbers that were given, never above the user's, and a refusal never raises it."""
        catalogue = Limits(input=known, source="catalogue") if known else None
        without = resolve_limits(explicit=explicit, profile=profile, catalogue=catalogue)
        found = resolve_limits(explicit=explicit, learned=Learned(limit=learned), profile=profile, catalogue=catalogue)
        assert found.input in (explicit, learned, (profile or {}).get("max_input_tokens"), known, DEFAULT_INPUT)
        if explicit is not None:
            assert found.input <= explicit
            assert without.input == explicit
        if without.source != "default":
            assert found.input <= without.input
        if learned is not None:
            assert found.input <= learned

    @pytest.mark.parametrize("value", [0, -1, None, "128000", True, float("nan"), float("inf"), 12.5, [1]])
    def test_nonsense_in_a_profile_is_ignored(self, value: object) -> None:
        """A profile's 0 (as for NVIDIA's models), text or None is as if it were absent."""
        assert resolve_limits(profile={"max_input_tokens": value}).source == "default"

    def test_whole_floats_are_numbers(self) -> None:
        """A profile that went through JSON may hold 128000.0."""
        assert resolve_limits(profile={"max_input_tokens": 128_000.0}).input == 128_000

    @pytest.mark.parametrize("value", [0, -5])
    def test_an_explicit_limit_must_be_positive(self, value: int) -> None:
        """A limit that cannot work is refused with a value that would."""
        with pytest.raises(ConfigurationError, match="128000"):
            resolve_limits(explicit=value)

    def test_the_default_suits_a_model_of_64k(self) -> None:
        """Nothing known of a 64k model: the trigger stays below its window (fault 94)."""
        found = budget(resolve_limits(), reserve=None, system=2_000, tools=6_000)
        assert round(0.8 * found.messages) + 8_000 + found.reserved < 64_000


class TestSharedWindows:
    def test_an_output_as_large_as_the_input(self) -> None:
        """A profile with max_input 8192 and max_output 8192 is one window, and leaves room (fault 27)."""
        limits = resolve_limits(profile={"max_input_tokens": 8_192, "max_output_tokens": 8_192}, counts_output=False)
        assert limits.shared
        assert Budget(limit=8_192, reserved=1_024, system=500, tools=500, messages=6_168) == budget(
            limits, reserve=None, system=500, tools=500
        )

    def test_providers_that_count_input_alone(self) -> None:
        """Gemini and DashScope declare the input by itself: nothing is reserved there."""
        for provider in ("google_genai", "google_vertexai", "dashscope"):
            limits = resolve_limits(profile=PROFILE, counts_output=counts_output_of(provider))
            assert not limits.shared
            assert budget(limits, reserve=64_000, system=0, tools=0).reserved == 0
        for provider in ("openai", "anthropic", "ollama", None):
            assert counts_output_of(provider) is None
            assert resolve_limits(profile=PROFILE, counts_output=counts_output_of(provider)).shared

    def test_a_refusal_that_counted_the_output_shows_a_shared_window(self) -> None:
        """What the server did stands before what was declared."""
        assert resolve_limits(profile=PROFILE, learned=Learned(shared=True), counts_output=False).shared


class TestBudgets:
    @given(tokens, st.none() | tokens, st.integers(0, 200_000), st.integers(0, 200_000), st.booleans())
    def test_the_parts_add_up_or_the_error_says_why(
        self, limit: int, reserve: int | None, system: int, tools: int, shared: bool
    ) -> None:
        """Every window is divided without remainder and with room for messages, or refused with a typed error."""
        found = divide(Limits(input=limit, shared=shared, source="profile"), reserve, system, tools)
        match found:
            case ContextOverflowError():
                assert (limit, system, tools, 0) == (found.limit, found.system, found.tools, found.messages)
                assert limit - system - tools < 2 * max(1, limit // 64)
            case ConfigurationError():
                assert str(limit) in str(found)
                assert shared
                assert reserve is not None
            case Budget():
                assert limit == found.reserved + found.system + found.tools + found.messages
                assert found.messages >= max(1, limit // 64)
                assert found.reserved == (reserve if reserve is not None else found.reserved) * shared

    def test_the_reserve_of_an_unknown_answer(self) -> None:
        """An eighth of the window, at most 16,384 tokens and the model's largest answer."""

        def reserved(limit: int, output: int | None = None) -> int:
            limits = Limits(input=limit, output=output, source="profile")
            return budget(limits, reserve=None, system=0, tools=0).reserved

        assert (reserved(32_768), reserved(1_000_000), reserved(128_000, 1_000)) == (4_096, LARGEST_RESERVE, 1_000)

    def test_a_server_that_adds_its_own_cap(self) -> None:
        """The answer that a refusal counted is reserved, unless the model names its own."""
        limits = Limits(input=100_000, source="learned")
        assert budget(limits, reserve=None, system=0, tools=0, learned_output=40_000).reserved == 40_000
        assert budget(limits, reserve=1_000, system=0, tools=0, learned_output=40_000).reserved == 1_000

    def test_schemas_that_nearly_fill_the_window(self) -> None:
        """30k tokens of schemas in a 32k window leave room for a first message and an answer (fault 14)."""
        found = budget(Limits(input=32_000, source="profile"), reserve=None, system=0, tools=30_000)
        assert (found.reserved, found.messages) == (1_000, 1_000)

    @pytest.mark.parametrize(("limit", "system", "tools"), [(32_000, 3_000, 30_000), (4_096, 4_000, 90), (100, 60, 60)])
    def test_a_prefix_that_fills_the_window_ends_typed(self, limit: int, system: int, tools: int) -> None:
        """A fixed prefix as large as the window is a terminal error with the numbers (faults 14, 29, 202)."""
        with pytest.raises(ContextOverflowError, match="fewer tools") as error:
            budget(Limits(input=limit, source="profile"), reserve=None, system=system, tools=tools)
        assert (limit, system, tools, 0) == (
            error.value.limit,
            error.value.system,
            error.value.tools,
            error.value.messages,
        )

    def test_a_reserve_that_fills_the_window(self) -> None:
        """A max_tokens as large as the window names itself, the window and a value that would do."""
        with pytest.raises(ConfigurationError, match=r"max_tokens=8192 .* 8192 tokens .*at most 3596"):
            budget(Limits(input=8_192, source="profile"), reserve=8_192, system=500, tools=500)

    def test_a_guess_never_refuses_work(self) -> None:
        """Where nothing is known of the model, a large prefix is no error: the guess was too small."""
        found = budget(resolve_limits(), reserve=32_000, system=10_000, tools=60_000)
        assert (found.limit, found.reserved, found.messages) == (204_000, 32_000, 102_000)

    def test_negative_sizes_are_refused(self) -> None:
        """A negative size is a fault of the caller and says so."""
        with pytest.raises(ConfigurationError, match="tools is -1"):
            budget(Limits(input=8_192, source="profile"), reserve=None, system=0, tools=-1)


class TestWhatARefusalTeaches:
    def test_the_number_that_the_provider_named(self) -> None:
        """The limit is kept exactly, and the true prompt corrects the estimate (fault 86)."""
        overflow = Overflow(limit=128_000, prompt=130_000, over=2_000)
        learned = LearnedLimits().learn(KEY, overflow, estimated=60_000).of(KEY)
        assert learned == Learned(limit=128_000, exact=True, factor=130_000 / 60_000)
        assert learned.ceiling() == 59_076
        assert learned.ceiling(scale=2.2) == 128_000

    def test_no_number(self) -> None:
        """A refusal without numbers bounds by what was sent, and again, until the server takes it."""
        learned = LearnedLimits()
        sent: list[int] = []
        size = 200_000
        for _ in range(4):
            learned = learned.learn(KEY, Overflow(), estimated=size)
            size = learned.of(KEY).limit
            sent.append(size)
        assert sent == [150_000, 112_500, 84_375, 63_281]

    def test_an_excess_alone(self) -> None:
        """Ollama says by how much the prompt was over: that much less is the bound."""
        overflow = parse_overflow_text("prompt too long; exceeded max context length by 1523 tokens")
        assert overflow is not None
        assert LearnedLimits().learn(KEY, overflow, estimated=10_000).of(KEY).limit == 8_477

    def test_a_named_number_replaces_a_bound_and_the_smallest_named_one_stays(self) -> None:
        """A bound from below was a guess; two named limits are both true, so the smaller one counts."""
        learned = LearnedLimits().learn(KEY, Overflow(), estimated=100_000)
        learned = learned.learn(KEY, Overflow(limit=90_000, prompt=95_000), estimated=95_000)
        assert learned.of(KEY).limit == 90_000
        for limit in (80_000, 85_000):
            learned = learned.learn(KEY, Overflow(limit=limit, prompt=95_000), estimated=95_000)
        assert learned.of(KEY).limit == 80_000

    def test_the_output_that_was_counted(self) -> None:
        """A refusal of prompt and output together teaches the shared window and the output that it counted."""
        overflow = Overflow(limit=4_096, prompt=2_104, output=2_000, counts_output=True, remedy="lower_output")
        learned = LearnedLimits().learn(KEY, overflow, estimated=2_104).of(KEY)
        assert (learned.limit, learned.shared, learned.output) == (4_096, True, 2_000)

    def test_bytes_teach_bytes(self) -> None:
        """A body that was too large says nothing of tokens (fault 96)."""
        named = LearnedLimits().learn(KEY, Overflow(unit="bytes", limit=5_000), estimated=100, estimated_bytes=6_000)
        blind = LearnedLimits().learn(KEY, Overflow(unit="bytes"), estimated=100, estimated_bytes=8_000)
        nothing = LearnedLimits().learn(KEY, Overflow(unit="bytes"), estimated=100)
        assert [Learned(body_limit=5_000), Learned(body_limit=6_000), Learned()] == [
            each.of(KEY) for each in (named, blind, nothing)
        ]

    def test_models_are_kept_apart_and_values_do_not_change(self) -> None:
        """The same name behind another address is another model; learning returns a new value."""
        before = LearnedLimits()
        after = before.learn(KEY, Overflow(limit=4_096, prompt=5_000), estimated=5_000)
        assert before.of(KEY) is None
        assert after.of(ModelKey(model="local")) is None
        assert after.of(KEY).limit == 4_096

    @given(st.data())
    def test_the_next_request_is_smaller(self, data: st.DataObject) -> None:
        """Whatever a refusal says, what may be sent next is below what was sent, at any scale."""
        limit = data.draw(st.none() | st.integers(16, 1_000_000))
        output = data.draw(st.none() | st.integers(1, 200_000))
        over = data.draw(st.none() | st.integers(1, 100_000))
        least = 1 if limit is None else max(1, limit + 1 - (output or 0))
        prompt = data.draw(st.none() | st.integers(least, 2_000_000))
        overflow = Overflow(limit=limit, prompt=prompt, output=output, over=over, counts_output=output is not None)
        sent, scale = data.draw(st.integers(2, 2_000_000)), data.draw(st.floats(0.5, 4))
        learned = LearnedLimits().learn(KEY, overflow, estimated=sent, scale=scale).of(KEY)
        kept = learned.output or 0 if learned.shared else 0
        assert learned.ceiling(scale) - kept < sent
        if limit is not None:
            assert learned.limit <= limit
