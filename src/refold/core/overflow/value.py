"""What a refusal said."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

Unit: TypeAlias = Literal["tokens", "bytes"]
Remedy: TypeAlias = Literal["shrink", "lower_output"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Overflow:
    """A refusal because the request is too long, with the numbers that the provider gave (None: it gave none).

    All numbers are in `unit`, counted by the provider. `limit` is the most that it takes: of the prompt and the output
    together when `counts_output`, else of the prompt as far as the text says. `prompt` is what the request's input
    came to, tool schemas included; with `prompt_at_least` the provider stopped counting there, so that the true number
    may be larger (vLLM does so). `requested` is prompt and output together, `output` the output that was asked for,
    `over` by how much the request was too long.

    `remedy` is what would have made this request pass: `lower_output` when the prompt alone fits and only the output
    that was asked for did not, else `shrink`. Whether `room` is worth lowering the output to is the caller's decision.
    """

    limit: int | None = None
    prompt: int | None = None
    requested: int | None = None
    output: int | None = None
    over: int | None = None
    unit: Unit = "tokens"
    counts_output: bool = False
    prompt_at_least: bool = False
    remedy: Remedy = "shrink"

    @property
    def room(self) -> int | None:
        """What the limit leaves for output beside this prompt; None where the numbers are not known."""
        if self.limit is None or self.prompt is None or self.prompt_at_least or not self.counts_output:
            return None
        return max(0, self.limit - self.prompt)
