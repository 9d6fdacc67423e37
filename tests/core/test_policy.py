"""Policy: a combination that cannot work is refused when it is made, with a value that would do."""

from dataclasses import fields

import pytest

from refold.core.policy import Policy
from refold.errors import ConfigurationError


class TestImpossiblePoliciesAreRefused:
    @pytest.mark.parametrize(
        ("changes", "names"),
        [
            ({"trigger": 0.0}, "trigger"),
            ({"trigger": 1.0}, "trigger"),
            ({"soft": 0.9}, "soft"),
            ({"target": 0.8}, "target"),
            ({"keep": 0.75}, "keep"),
            ({"context_limit": 0}, "context_limit"),
            ({"output_reserve": -1}, "output_reserve"),
            ({"body_limit": 0}, "body_limit"),
            ({"args_min": -1}, "args_min"),
            ({"summary_timeout": -0.1}, "summary_timeout"),
            ({"kinds": frozenset({"args", "magic"})}, "magic"),
        ],
    )
    def test_the_error_names_the_setting(self, changes: dict[str, object], names: str) -> None:
        """The message names the setting that is wrong."""
        with pytest.raises(ConfigurationError, match=names):
            Policy(**changes)  # type: ignore[arg-type]

    def test_the_default_policy_is_valid(self) -> None:
        """And every field of it is documented by its default."""
        policy = Policy()
        assert policy.target < policy.soft < policy.trigger
        assert all(field.default is not None or "None" in str(field.type) for field in fields(policy))

    def test_a_configuration_error_is_a_value_error(self) -> None:
        """Callers that catch ValueError catch it too."""
        with pytest.raises(ValueError):
            Policy(trigger=2)


class TestSetsOfNames:
    """What JSON and people write for a set of names is taken for one."""

    def test_a_list_is_a_set(self) -> None:
        """A list or tuple of names becomes a frozenset; the policy stays hashable."""
        policy = Policy(kinds=["summary", "merge"], exclude_tools=("ls",))  # type: ignore[arg-type]
        assert policy.kinds == frozenset({"summary", "merge"})
        assert policy.exclude_tools == frozenset({"ls"})
        assert hash(policy) == hash(Policy(kinds=frozenset({"summary", "merge"}), exclude_tools=frozenset({"ls"})))

    @pytest.mark.parametrize("name", ["kinds", "exclude_tools", "exclude_args"])
    def test_a_text_is_none(self, name: str) -> None:
        """A single text would be taken apart into letters."""
        with pytest.raises(ConfigurationError, match="set of names"):
            Policy(**{name: "ls"})  # type: ignore[arg-type]
