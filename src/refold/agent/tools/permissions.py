"""What the agent's file tools may do: allow, deny or ask, by operation and glob.

    Permissions(
        Rule(effect="deny", paths=("/secrets/**", "*.pem")),
        Rule(effect="ask", paths=("/**",), operations=("delete",)),
        Rule(effect="allow", paths=("/work/**",)),
        otherwise="deny",
    )

The first rule that matches the operation and the path decides; no rule: `otherwise`. `deny` and `ask` rules compare
names as case-insensitive storage does, so `/Secrets/key` does not slip past `/secrets/**`; `allow` rules compare
exactly. What may not be read is not listed, found or searched either. These rules bind the tools, not Python code: a
tool of yours that runs a shell in the same directory knows nothing of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from refold.core.program import Effect
from refold.errors import ConfigurationError
from refold.files.patterns import compile_glob
from refold.files.retention import ARTIFACT_FOLDERS

Operation: TypeAlias = Literal["read", "write", "delete"]
Decision: TypeAlias = Literal["allow", "deny", "ask"]

OPERATIONS: Final[tuple[Operation, ...]] = ("read", "write", "delete")


def _check_decision(name: str, value: Decision) -> None:
    if value not in get_args(Decision):
        raise ConfigurationError(f"{name} is {value!r}: write one of {', '.join(get_args(Decision))}")


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One line: `effect` for these operations on paths that match one of the globs.

    Raises `PathError` for a bad glob, and `ConfigurationError` for an effect or operation that there is not: such a
    rule would allow in silence what it was to forbid. `reason` is told to the model when it is refused, and to the
    human who is asked.
    """

    effect: Decision
    paths: Sequence[str]
    operations: Sequence[Operation] = OPERATIONS
    reason: str = ""

    def __post_init__(self) -> None:
        _check_decision("the effect of a rule", self.effect)
        if isinstance(self.paths, str) or isinstance(self.operations, str):
            raise ConfigurationError("a rule takes lists: paths=('/secrets/**',), operations=('write',)")
        unknown = [operation for operation in self.operations if operation not in OPERATIONS]
        if unknown:
            raise ConfigurationError(f"no operation of a rule is called {unknown[0]!r}: {', '.join(OPERATIONS)}")
        for pattern in self.paths:
            compile_glob(pattern)

    def covers(self, operation: Operation, path: str) -> bool:
        """Whether the rule is about this operation on this path."""
        fold_case = self.effect != "allow"
        return operation in self.operations and any(
            compile_glob(pattern).matches(path, fold_case=fold_case) for pattern in self.paths
        )


PROTECT_ARTIFACTS: Final = Rule(
    effect="deny",
    paths=tuple(f"{folder}/**" for folder in ARTIFACT_FOLDERS),
    operations=("write", "delete"),
    reason="what left the conversation is kept there, and must stay readable as it is",
)
"""The default: what refold stored can be read by the tools, and not changed."""


@dataclass(frozen=True, init=False)
class Permissions:
    """Rules in order, and what holds where none matches."""

    rules: tuple[Rule, ...]
    otherwise: Decision

    def __init__(self, *rules: Rule, otherwise: Decision = "allow") -> None:
        _check_decision("otherwise", otherwise)
        object.__setattr__(self, "rules", rules)
        object.__setattr__(self, "otherwise", otherwise)

    def decide(self, operation: Operation, path: str) -> Decision:
        """What holds for an operation on a path."""
        rule = self.rule_for(operation, path)
        return self.otherwise if rule is None else rule.effect

    def rule_for(self, operation: Operation, path: str) -> Rule | None:
        """The rule that decides, if one does."""
        return next((rule for rule in self.rules if rule.covers(operation, path)), None)

    @property
    def reads_artifacts(self) -> bool:
        """Whether surely every stored original may be read without asking; False where a rule could touch one."""
        return self.otherwise == "allow" and all(
            rule.effect == "allow" or "read" not in rule.operations for rule in self.rules
        )

    def shows(self, path: str) -> bool:
        """Whether a path may appear in listings: everything that may be read, if need be after asking."""
        return self.decide("read", path) != "deny"

    def reads_freely(self, path: str) -> bool:
        """Whether content may be read without asking, as a search does."""
        return self.decide("read", path) == "allow"


@dataclass(frozen=True, kw_only=True)
class Permit(Effect[None]):
    """Ask whether operations on paths are allowed. `PermissionRefusedError` is thrown into the program if not.

    All are asked before anything is changed: a run that was interrupted for a human begins the call again.
    """

    operations: Sequence[Operation]
    paths: Sequence[str]
