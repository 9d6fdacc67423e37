"""Prices and windows: from the catalogue, as published ratios, or not at all."""

import sys
from datetime import UTC, datetime

import pytest

from refold.core.limits import Limits, resolve_limits
from refold.errors import ConfigurationError
from refold.replay.prices import RELATIVE, Prices, catalogue_limits, find_prices, relative_prices

WHEN = datetime(2026, 6, 1, 12, tzinfo=UTC)


class TestTheCatalogue:
    def test_prices_of_known_models(self) -> None:
        """Per million tokens in dollars, with the cache's prices where the catalogue has them."""
        pytest.importorskip("genai_prices")
        opus = find_prices("claude-opus-4-6", at=WHEN)
        assert Prices(input=5, output=25, cache_read=0.5, cache_write=6.25) == opus.value
        assert "genai-prices" in opus.reason
        gpt = find_prices("gpt-5", provider="openai", at=WHEN)
        assert Prices(input=1.25, output=10, cache_read=0.125, cache_write=1.25) == gpt.value

    def test_prices_depend_on_the_day(self) -> None:
        """Opus 4.6 charged more above 200,000 tokens until 13 March 2026."""
        pytest.importorskip("genai_prices")
        before = find_prices("claude-opus-4-6", at=datetime(2026, 3, 1, tzinfo=UTC)).value
        after = find_prices("claude-opus-4-6", at=datetime(2026, 4, 1, tzinfo=UTC)).value
        assert before is not None
        assert after is not None
        assert (before.dearer_above, after.dearer_above) == (200_000, None)

    def test_langchains_provider_names(self) -> None:
        """A provider is found by LangChain's name for it."""
        pytest.importorskip("genai_prices")
        found = find_prices("gemini-2.5-pro", provider="google_genai", at=WHEN).value
        assert found is not None
        assert found == find_prices("gemini-2.5-pro", provider="google", at=WHEN).value

    def test_windows(self) -> None:
        """The catalogue's window is shared by prompt and answer, and stands below the profile."""
        pytest.importorskip("genai_prices")
        found = catalogue_limits("gpt-5", provider="openai").value
        assert found == Limits(input=400_000, source="catalogue")
        assert resolve_limits(profile={"max_input_tokens": 272_000}, catalogue=found).source == "profile"

    @pytest.mark.parametrize(("model", "provider"), [("no-such-model", None), ("gpt-5", "nowhere"), ("", None)])
    def test_an_unknown_model_has_no_price(self, model: str, provider: str | None) -> None:
        """None and the reason, never a guess."""
        pytest.importorskip("genai_prices")
        for found in (find_prices(model, provider=provider), catalogue_limits(model, provider=provider)):
            assert found.value is None
            assert found.reason

    def test_a_model_without_a_window(self) -> None:
        """A price does not mean that the window is known."""
        pytest.importorskip("genai_prices")
        found = catalogue_limits("gemini-2.5-pro", provider="google")
        assert found.value is None
        assert "no window" in found.reason

    def test_without_the_package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where the extra is not installed, the reason says how to install it."""
        monkeypatch.setitem(sys.modules, "genai_prices", None)
        found = find_prices("gpt-5")
        assert found.value is None
        assert "refold[prices]" in found.reason


class TestPublishedRatios:
    @pytest.mark.parametrize(
        ("provider", "model", "read", "write"),
        [
            ("anthropic", "claude-opus-4-8", 0.1, 1.25),
            ("openrouter", "anthropic/claude-sonnet-5", 0.1, 1.25),
            ("openai", "gpt-4o", 0.5, 1),
            ("openai", "gpt-4.1", 0.25, 1),
            ("openai", "o4-mini", 0.25, 1),
            ("azure", "gpt-5-mini", 0.1, 1),
            ("openai", "gpt-5.6-sol", 0.1, 1.25),
            ("google_genai", "gemini-3.6-flash", 0.1, 1),
            ("deepseek", "deepseek-flash", 0.02, 1),
            ("mistralai", "mistral-large-latest", 0.1, 1),
        ],
    )
    def test_of_each_provider(self, provider: str, model: str, read: float, write: float) -> None:
        """A cached token beside a fresh one, as the provider publishes it."""
        found = relative_prices(provider, model).value
        assert found is not None
        assert (1, read, write, RELATIVE, 1) == (
            found.input, found.cache_read, found.cache_write, found.currency, found.per,
        )  # fmt: skip

    def test_of_an_unknown_provider(self) -> None:
        """None and the reason."""
        found = relative_prices("my-server", "llama-3.3-70b")
        assert found.value is None
        assert "my-server" in found.reason

    def test_the_catalogue_agrees(self) -> None:
        """The ratios are those of the catalogue's prices, for models that it knows."""
        pytest.importorskip("genai_prices")
        for provider, model in (("anthropic", "claude-opus-4-6"), ("openai", "gpt-5"), ("openai", "gpt-4.1")):
            money, ratio = find_prices(model, provider=provider, at=WHEN).value, relative_prices(provider, model).value
            assert money is not None
            assert ratio is not None
            assert money.cache_read / money.input == pytest.approx(ratio.cache_read)
            assert money.cache_write / money.input == pytest.approx(ratio.cache_write)
            assert money.output / money.input == pytest.approx(ratio.output)


class TestBadInput:
    @pytest.mark.parametrize("wrong", [{"input": -1.0}, {"per": 0}])
    def test_impossible_prices(self, wrong: dict[str, float]) -> None:
        """A negative price or a price per no token is refused."""
        with pytest.raises(ConfigurationError):
            Prices(**{"input": 1.0, "output": 1.0, "cache_read": 1.0, "cache_write": 1.0, **wrong})
