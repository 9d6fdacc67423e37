"""The simulated prompt cache: what is read, written and paid in full, and what editing a history costs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.errors import ConfigurationError
from refold.replay.cache import (
    Billed,
    CacheRules,
    Part,
    PrefixCache,
    anthropic_rules,
    cost,
    deepseek_rules,
    gemini_rules,
    input_equivalents,
    openai_rules,
)
from refold.replay.prices import Prices

SONNET = anthropic_rules("claude-sonnet-5")
PRESETS = [SONNET, openai_rules("gpt-5"), openai_rules("gpt-5.6"), gemini_rules(), deepseek_rules()]
TEN_TIMES = CacheRules(minimum=0, read_price=0.1)
"""The bare cache of faults 126 and 127: a miss costs ten times a hit, nothing else matters."""

parts = st.lists(st.tuples(st.sampled_from("abcdefg"), st.integers(0, 3_000)), max_size=12)


def history(messages: int, size: int) -> list[Part]:
    """A system prompt, tools and messages of equal size."""
    return [("system", 2_000), ("tools", 6_000), *((f"m{index}", size) for index in range(messages))]


def total(cache: PrefixCache, requests: list[list[Part]], *, start: float = 0.0) -> float:
    """What a run of requests costs in fresh input tokens, one every ten seconds."""
    return sum(
        input_equivalents(cache.observe(request, start + 10.0 * step), cache.rules)
        for step, request in enumerate(requests)
    )


class TestEveryTokenIsBilledOnce:
    @given(st.lists(parts, max_size=8), st.sampled_from(PRESETS))
    def test_the_sum_is_the_prompt(self, requests: list[list[Part]], rules: CacheRules) -> None:
        """Read, written and uncached tokens add up to the prompt, and none is negative."""
        cache = PrefixCache(rules)
        for step, request in enumerate(requests):
            billed = cache.observe(request, at=step)
            assert billed.input == sum(tokens for _, tokens in request)
            assert min(billed.uncached, billed.written, billed.read) >= 0
            assert billed.read % rules.granularity == 0
            assert billed.read == 0 or billed.read >= rules.minimum

    @given(st.lists(st.integers(1, 2_000), min_size=1, max_size=20), st.sampled_from(PRESETS))
    def test_a_growing_history_reads_more_and_more(self, sizes: list[int], rules: CacheRules) -> None:
        """While a history only grows, every request reads at least what the one before it read."""
        cache, request, read = PrefixCache(rules), history(0, 0), 0
        for index, tokens in enumerate(sizes):
            request = [*request, (f"m{index}", tokens)]
            billed = cache.observe(request, at=10 * index)
            assert billed.read >= read
            read = billed.read

    @given(parts, st.sampled_from(PRESETS))
    def test_a_fresh_cache_reads_nothing(self, request: list[Part], rules: CacheRules) -> None:
        """The first request of all is never read."""
        assert PrefixCache(rules).observe(request, at=0).read == 0


class TestAnthropic:
    def test_the_growing_tail_is_written_once(self) -> None:
        """What is new is written at 1.25, what was there is read at 0.1."""
        cache = PrefixCache(SONNET)
        first = cache.observe(history(1, 500), at=0)
        again = cache.observe(history(2, 500), at=20, output=40)
        assert first == Billed(uncached=0, written=8_500, read=0)
        assert again == Billed(uncached=0, written=500, read=8_500, output=40)
        assert input_equivalents(again, SONNET) == pytest.approx(500 * 1.25 + 8_500 * 0.1 + 40 * 5)

    def test_the_time_to_live_starts_anew_with_each_use(self) -> None:
        """Five minutes of silence lose the cache, calls every four minutes keep it; an hour's entry outlives both."""
        cache = PrefixCache(SONNET)
        rates = [cache.observe(history(1, 500), at=at).hit_rate for at in (0, 240, 480, 720, 1_021)]
        assert rates == [0.0, 1.0, 1.0, 1.0, 0.0]
        hour = PrefixCache(anthropic_rules(ttl="1h"))
        assert [hour.observe(history(1, 500), at=at).read for at in (0, 3_600)] == [0, 8_500]
        assert hour.rules.write_price == 2.0

    def test_a_prefix_between_breakpoints_is_not_found(self) -> None:
        """Editing the last message but one falls back to the end of the tools, where a breakpoint stood."""
        cache = PrefixCache(SONNET)
        request = history(30, 500)
        cache.observe(request, at=0)
        request[-2] = ("edited", 100)
        assert cache.observe(request, at=10).read == 8_000

    def test_the_look_back_is_twenty_parts(self) -> None:
        """A step that adds twenty parts behind the last breakpoint does not find it any more."""
        for added, read in ((19, 8_500), (20, 8_000)):
            cache = PrefixCache(SONNET)
            cache.observe(history(1, 500), at=0)
            assert cache.observe(history(1 + added, 500), at=10).read == read

    def test_explicit_breakpoints(self) -> None:
        """Only what ends at a breakpoint is kept; more than four, or one beyond the request, are refused."""
        cache = PrefixCache(SONNET)
        assert cache.observe(history(3, 500), at=0, breakpoints=[0]) == Billed(uncached=7_500, written=2_000, read=0)
        assert cache.observe(history(3, 500), at=1, breakpoints=[0]).read == 2_000
        for breakpoints in ([0, 1, 2, 3, 4], [5], [-1]):
            with pytest.raises(ConfigurationError, match="breakpoints"):
                cache.observe(history(3, 500), at=2, breakpoints=breakpoints)

    @pytest.mark.parametrize(
        ("model", "minimum"),
        [
            ("claude-opus-5", 512), ("claude-fable-5", 512), ("claude-opus-4-8", 1_024), ("claude-sonnet-5", 1_024),
            ("anthropic/claude-opus-4.6", 4_096), ("claude-haiku-4-5-20251001", 4_096), ("claude-opus-4-7", 2_048),
            ("claude-3-5-haiku-latest", 2_048), ("", 1_024),
        ],
    )  # fmt: skip
    def test_the_least_prefix_of_each_model(self, model: str, minimum: int) -> None:
        """Below the model's minimum nothing is written; at it, all is."""
        rules = anthropic_rules(model)
        assert PrefixCache(rules).observe([("system", minimum - 1)], at=0).written == 0
        assert PrefixCache(rules).observe([("system", minimum)], at=0).written == minimum


class TestOpenAI:
    def test_steps_of_128_from_1024_on(self) -> None:
        """A shared prefix is read in whole steps, and none below 1,024 tokens; nothing is billed as a write."""
        cache = PrefixCache(openai_rules("gpt-5"))
        assert cache.observe([("a", 1_000), ("b", 300)], at=0) == Billed(uncached=1_300, written=0, read=0)
        assert cache.observe([("a", 1_000), ("b", 300), ("c", 50)], at=1).read == 1_280
        assert cache.observe([("a", 1_000), ("x", 300)], at=2).read == 0

    def test_from_gpt_5_6_on_writes_are_billed(self) -> None:
        """The newer family keeps prefixes at breakpoints for half an hour and bills their writing at 1.25."""
        rules = openai_rules("gpt-5.6-sol")
        cache = PrefixCache(rules)
        assert cache.observe(history(1, 500), at=0).written == 8_500
        assert cache.observe(history(60, 500), at=1_800).read == 8_500
        assert (rules.write_price, rules.lookback) == (1.25, None)

    def test_reads_by_model(self) -> None:
        """The discount grew with the models."""
        assert [openai_rules(model).read_price for model in ("gpt-4o", "gpt-4.1-mini", "gpt-5", "gpt-5.6")] == [
            0.5,
            0.25,
            0.1,
            0.1,
        ]


class TestOtherProviders:
    def test_gemini_needs_longer_prefixes(self) -> None:
        """2,048 tokens for Gemini 2.5, 4,096 for later ones."""
        assert (gemini_rules("gemini-2.5-pro").minimum, gemini_rules("gemini-3.6-flash").minimum) == (2_048, 4_096)

    def test_deepseek_keeps_for_hours(self) -> None:
        """A pause of an hour costs nothing; steps are of 64 tokens."""
        cache = PrefixCache(deepseek_rules("deepseek-flash"))
        cache.observe([("a", 100)], at=0)
        assert cache.observe([("a", 100), ("b", 10)], at=3_600).read == 64


class TestEditingTheHistoryCosts:
    def test_fault_127_one_early_edit(self) -> None:
        """Shrinking the message at index 3 of 100 halves the prompt but takes the hits from 98 % to 6 %: the request
        costs more than the whole one, and the run stays dearer for its first eight calls (fault 127)."""

        def conversation(early: int, last: int) -> list[Part]:
            sizes = [early if index == 3 else 600 for index in range(last)]
            return [("system", 2_000), *((f"m{index}:{size}", size) for index, size in enumerate(sizes))]

        before, kept, edited = (conversation(60_000, 99), conversation(60_000, 103), conversation(100, 103))
        whole, cut = PrefixCache(TEN_TIMES), PrefixCache(TEN_TIMES)
        for cache in (whole, cut):
            cache.observe(before, at=0)
        kept_bill, edited_bill = whole.observe(kept, at=10), cut.observe(edited, at=10)
        assert edited_bill.input < 0.55 * kept_bill.input
        assert (round(kept_bill.hit_rate, 2), round(edited_bill.hit_rate, 2)) == (0.98, 0.06)
        assert input_equivalents(edited_bill, TEN_TIMES) > 3 * input_equivalents(kept_bill, TEN_TIMES)
        later = range(104, 119)
        keeping = [input_equivalents(kept_bill, TEN_TIMES)]
        cutting = [input_equivalents(edited_bill, TEN_TIMES)]
        for step, last in enumerate(later):
            keeping.append(input_equivalents(whole.observe(conversation(60_000, last), 20 + step), TEN_TIMES))
            cutting.append(input_equivalents(cut.observe(conversation(100, last), 20 + step), TEN_TIMES))
        dearer = [calls for calls in range(1, len(keeping) + 1) if sum(cutting[:calls]) > sum(keeping[:calls])]
        assert dearer == list(range(1, 9))

    def test_fault_126_five_small_edits_and_one_batch(self) -> None:
        """Ageing out five old results in five calls re-bills the prompt each time; all five at once costs one
        rewrite, and pays within the session. Nothing is saved by the five (fault 126)."""
        calls = 60

        def sizes(cleared: int) -> list[Part]:
            """A history of 137k tokens in which the first results, 6k each, are cleared one by one."""
            head = [(f"r{i}:{'cleared' if i < cleared else 'whole'}", 20 if i < cleared else 6_000) for i in range(5)]
            return [("system", 2_000), ("tools", 5_000), *head, *((f"m{i}", 1_000) for i in range(100))]

        def run(cleared: list[int]) -> float:
            cache = PrefixCache(TEN_TIMES)
            cache.observe(sizes(0), at=0)
            requests = [[*sizes(n), *((f"n{i}", 500) for i in range(step))] for step, n in enumerate(cleared)]
            return total(cache, requests, start=10)

        never = run([0] * calls)
        one_by_one = run([1, 2, 3, 4, 5] + [5] * (calls - 5))
        at_once = run([5] * calls)
        assert at_once < never < one_by_one
        assert one_by_one - at_once > 3 * 100_000 * (1 - 0.1)

    def test_a_lapsed_cache_makes_edits_free(self) -> None:
        """After the time to live has passed, the shorter prompt is cheaper at once."""
        kept, cut = PrefixCache(SONNET), PrefixCache(SONNET)
        for cache in (kept, cut):
            cache.observe(history(60, 1_000), at=0)
        shorter = [("system", 2_000), ("tools", 6_000), ("segment", 3_000), *history(10, 1_000)[2:]]
        assert total(cut, [shorter], start=400) < total(kept, [history(60, 1_000)], start=400)


class TestPricesAndInput:
    def test_cost_in_money(self) -> None:
        """Each kind of token at its price."""
        prices = Prices(input=3, output=15, cache_read=0.3, cache_write=3.75)
        billed = Billed(uncached=1_000_000, written=2_000_000, read=10_000_000, output=100_000)
        assert cost(billed, prices) == pytest.approx(3 + 7.5 + 3 + 1.5)

    def test_an_empty_prompt(self) -> None:
        """An empty request is billed nothing."""
        assert PrefixCache(SONNET).observe([], at=0) == Billed(uncached=0, written=0, read=0)
        assert Billed(uncached=0, written=0, read=0).hit_rate == 0.0

    def test_bad_input_is_refused(self) -> None:
        """Time that runs backwards, negative tokens and impossible rules say what is wrong."""
        cache = PrefixCache(SONNET)
        cache.observe(history(1, 1), at=10)
        for at, request in ((5.0, history(1, 1)), (float("nan"), []), (20.0, [("a", -1)])):
            with pytest.raises(ConfigurationError):
                cache.observe(request, at=at)
        for rules in ({"minimum": -1}, {"minimum": 0, "granularity": 0}, {"minimum": 0, "breakpoints": 0}):
            with pytest.raises(ConfigurationError):
                CacheRules(**rules)
