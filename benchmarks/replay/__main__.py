"""Replays recorded sessions inside a tenth of their peak, and compares with what LangChain ships and with policies.

    python -m benchmarks.replay [FOLDER] [--peers SESSION] [--policies SESSION] [--window 16000]

Without options: the table of docs/replay.md for every session in FOLDER. `--peers` runs one session with LangChain's
SummarizationMiddleware and ContextEditingMiddleware too; `--policies` runs it with other thresholds. No network.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from langchain.agents.middleware import ClearToolUsesEdit, ContextEditingMiddleware, SummarizationMiddleware
from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver

from refold.core.facts import Presence, extract_facts
from refold.core.policy import Policy
from refold.replay import Transcript, read_transcript
from refold.replay.bill import bill
from refold.replay.extract import summarise
from refold.replay.managed import replay
from refold.replay.measure import Request, Scale
from refold.replay.run import play
from refold.replay.tape import Tape, playable

JOINED = ("airline", "mcp-zh")
POLICIES: Mapping[str, Policy] = {
    "default": Policy(),
    "soft off": Policy(soft=0.8),
    "min_gain 0.2": Policy(min_gain=0.2),
    "target 0.2": Policy(target=0.2),
    "target 0.45": Policy(target=0.45),
}


class Extractor(BaseChatModel):
    """The replay's summariser as a model of its own."""

    @property
    def _llm_type(self) -> str:
        return "extractor"

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(summarise(messages)))])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, nargs="?", default=Path(__file__).parents[3] / "shared" / "data")
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--policies", type=Path)
    parser.add_argument("--window", type=int, default=16_000)
    options = parser.parse_args()
    if options.peers is not None:
        peers(read_transcript(options.peers), options.window)
    elif options.policies is not None:
        policies(read_transcript(options.policies), options.window)
    else:
        table(options.folder)


def table(folder: Path) -> None:
    names = "session, messages, calls, limit, peak without, peak, over, invalid, passes, breaks, lost, billed without"
    names += ", billed with, checkpoints / raw, seconds"
    heads = names.split(", ")
    print(f"| {' | '.join(heads)} |\n|---|" + "---|" * (len(heads) - 1))
    for path in sorted(folder.iterdir()):
        if path.suffix == ".md":
            continue
        session = read_transcript(path, join=any(part in path.name for part in JOINED))
        r = replay(session, policy=Policy(), limit=max(8_000, peak(session) // 10))
        cells = [
            path.name, len(r.transcript.messages), len(r.calls), r.limit, r.peak_without, r.peak, r.over_limit,
            sum(r.invalid.values()), r.passes, len(r.breaks), len(r.recalled.unreachable), round(r.bill.without),
            round(r.bill.managed),
        ]  # fmt: skip
        numbers = " | ".join(f"{cell:,}" if isinstance(cell, int) else cell for cell in cells)
        print(f"| {numbers} | {r.checkpoint_bytes / r.raw_bytes:.2f} | {r.seconds:.0f} |", flush=True)


def policies(session: Transcript, limit: int) -> None:
    print("| policy | passes | summaries | anthropic: billed | openai: billed |\n|---|---|---|---|---|")
    for name, policy in POLICIES.items():
        r = replay(session, policy=policy, limit=limit, model="claude-sonnet-4-5")
        openai = bill(r.requests, [], model="gpt-5")
        print(f"| {name} | {r.passes} | {r.summaries} | {r.bill.managed:,.0f} | {openai.managed:,.0f} |", flush=True)


def peers(session: Transcript, limit: int) -> None:
    session = playable(session)
    print("| | over the limit | peak | prefix breaks | billed | facts in the last request |\n|---|---|---|---|---|---|")
    r = replay(session, policy=Policy(), limit=limit)
    kept = r.recalled.facts.values()
    share = sum(k.in_view for k in kept) / max(1, sum(k.total for k in kept))
    print(
        f"| refold | {r.over_limit} | {r.peak:,} | {len(r.breaks)} | {r.bill.managed:,.0f} | {share:.0%} |", flush=True
    )
    for name, middleware in others(limit):
        tape = Tape(transcript=session)
        last: list[Sequence[BaseMessage]] = []
        watch = Watch(last)
        scale = Scale.strict()
        play(tape, [middleware, watch], limit=10**9, model_name="recorded", scale=scale, saver=InMemorySaver())
        requests = [request for request in tape.requests if request.kind == "model"]
        billed = bill(requests, [], model=session.model or "recorded").managed
        presence = Presence("\n".join(f"{m.text}\n{getattr(m, 'tool_calls', '')}" for m in last[0]))
        facts = extract_facts(session.messages)
        seen = sum(presence.has(fact) for fact in facts) / max(1, len(facts))
        over = sum(request.tokens > limit for request in requests)
        most = max(request.tokens for request in requests)
        print(f"| {name} | {over} | {most:,} | {breaks(requests)} | {billed:,.0f} | {seen:.0%} |", flush=True)


class Watch(AgentMiddleware[Any, None, Any]):
    """Keeps the newest request."""

    def __init__(self, last: list[Sequence[BaseMessage]]) -> None:
        super().__init__()
        self._last = last

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        self._last[:] = [list(request.messages)]
        return handler(request)


def others(limit: int) -> Iterator[tuple[str, AgentMiddleware[Any, None, Any]]]:
    trigger, keep = limit * 7 // 10, limit * 15 // 100
    yield (
        "LangChain summarization",
        SummarizationMiddleware(model=Extractor(), trigger=("tokens", trigger), keep=("tokens", keep)),
    )
    yield "LangChain context editing", ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=trigger, keep=3)])


def breaks(requests: Sequence[Request]) -> int:
    pairs = pairwise(requests)
    return sum([p[0] for p in b.parts[: len(a.parts)]] != [p[0] for p in a.parts] for a, b in pairs)


def peak(session: Transcript) -> int:
    scale = Scale.strict()
    parts = scale.parts(None, [schema.as_openai() for schema in session.tools], playable(session).messages)
    return scale.meter.count_text(session.system or "") + sum(tokens for _, tokens in parts)


if __name__ == "__main__":
    main()
