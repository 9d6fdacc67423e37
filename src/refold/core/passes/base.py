"""What the item passes share: their signature, and the wording of references."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from langchain_core.messages import BaseMessage

from refold.core.artifacts import Artifact
from refold.core.blocks import blocks_of
from refold.core.canonical import Json
from refold.core.estimate import estimate_text
from refold.core.policy import Policy

MARK_OPEN = "⟦refold:"
MARK_CLOSE = "⟧"


@dataclass(frozen=True, kw_only=True, slots=True)
class Scope:
    """What a pass may know besides the message: the thread, the policy, and the tools that can read back.

    `file_reader` is the bound tool that reads a path, `log_reader` the bound tool that reads messages of the log by id;
    None means that there is none, and then nothing that depends on it may leave the window.
    """

    thread: str
    policy: Policy
    file_reader: str | None
    log_reader: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """How one message could be shown shorter: the fold item's data, and what must be stored before."""

    data: Mapping[str, Json]
    artifacts: tuple[Artifact, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemPass:
    """One fold kind. `propose(message, key, scope)` returns None where the kind does not apply; `show(message, data)`
    is pure and total: it is given the data that `propose` returned, perhaps in another process, years later."""

    kind: str
    propose: Callable[[BaseMessage, str, Scope], Proposal | None]
    show: Callable[[BaseMessage, Mapping[str, Json]], BaseMessage]


def tokens_of(text: str) -> int:
    """Tokens of a text for the wording of stubs and their budgets: model-independent, so that the bytes of a window
    depend on the log and the folds alone."""
    return estimate_text(text)


def mark(kind: str, **fields: str | int) -> str:
    """A reference that no one writes by hand: `⟦refold:kind name=value ...⟧`."""
    inner = " ".join(f"{name}={_value(value)}" for name, value in fields.items())
    return f"{MARK_OPEN}{kind} {inner}{MARK_CLOSE}"


def is_reference(block: object) -> bool:
    """Whether a content block is a reference that a pass wrote; a later pass on the same message keeps it."""
    if not isinstance(block, Mapping):
        return False
    text = block.get("text")
    return isinstance(text, str) and text.startswith(MARK_OPEN)


def own_text(message: BaseMessage) -> str:
    """The text of a message without the references that a pass wrote into it."""
    return "\n".join(b.text for b in blocks_of(message) if b.kind == "text" and b.text and not is_reference(b.raw))


def beside_text(content: Sequence[object]) -> list[object]:
    """What a message holds besides its own text: media, and references to media that were moved out."""
    texts = ("text", "output_text", "input_text")
    return [
        block
        for block in content
        if is_reference(block) or (isinstance(block, Mapping) and block.get("type") not in texts)
    ]


def _value(value: str | int) -> str:
    text = str(value)
    if text and not any(c.isspace() or c in '"⟦⟧' for c in text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("⟦", "[").replace("⟧", "]") + '"'
