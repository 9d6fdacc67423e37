"""The report of a replay: what the command prints, and a self-contained HTML page."""

from collections.abc import Sequence
from pathlib import Path

from refold.core.categories import CATEGORIES
from refold.replay.charts import Band, compared, short, stacked
from refold.replay.page import page, table, text, tiles, write_page
from refold.replay.result import Replay

_NAMES = {"human": "user", "ai": "model", "tool": "tool results", "tools": "tool schemas", "system": "system prompt"}


def write_report(replay: Replay, path: Path) -> None:
    """Write the page; it loads nothing from anywhere. Raises `ConfigurationError` when the file cannot be made."""
    write_page(render(replay), path)


def render(replay: Replay) -> str:
    """The page as HTML. Whatever comes from the recording is redacted and escaped."""
    return page(
        f"{replay.transcript.name}: replay",
        _sections(replay),
        footer=f"Tokens: {replay.counter}. Billing is simulated by the published cache rules of the provider; see "
        "docs/replay.md.",
    )


def _sections(replay: Replay) -> str:
    parts = [_head(replay), _tiles(replay)]
    if replay.calls:
        parts += [_occupancy(replay), _categories(replay), _billing(replay), _reuse(replay)]
    parts += [_folds(replay), _numbers(replay), _problems(replay)]
    for child in replay.subagents:
        parts.append(f"<h2>Subagent {text(child.transcript.name)}</h2>{_tiles(child)}")
        if child.calls:
            parts.append(_occupancy(child))
    return "".join(parts)


def _head(replay: Replay) -> str:
    good = replay.holds and not replay.problems
    words = "every request valid and under the limit, nothing lost" if good else f"{len(replay.problems)} problems"
    return (
        f"<h1>{text(replay.transcript.name)}</h1><p>{len(replay.transcript.messages):,} messages "
        f"({text(replay.transcript.format)}), {len(replay.calls):,} model calls, replayed through a LangGraph agent "
        f'inside {replay.limit:,} tokens.</p><span class="verdict {"good" if good else "bad"}">{words}</span>'
    )


def _tiles(replay: Replay) -> str:
    bill = replay.bill
    saved = 1 - bill.managed / bill.without if bill.without else 0.0
    numbers = [
        (
            short(replay.peak),
            f"tokens, the largest request; limit {short(replay.limit)}, without refold {short(replay.peak_without)}",
        ),
        (f"{saved:.0%}", "less billed" if saved >= 0 else "less billed (negative: more)"),
        (f"{len(replay.breaks)}", f"prefix breaks, {len(replay.unexplained)} without a recorded fold"),
        (f"{len(replay.recalled.unreachable)}", f"messages lost of {len(replay.transcript.messages):,}"),
        (f"{short(replay.checkpoint_bytes)}B", f"checkpoints; whole copies {short(replay.whole_copies_bytes)}B"),
    ]
    return tiles(numbers)


def _occupancy(replay: Replay) -> str:
    marks = [i for i, call in enumerate(replay.calls) if call.passes]
    chart = compared(
        [call.without for call in replay.calls],
        [call.request.tokens for call in replay.calls],
        limit=replay.limit,
        marks=marks,
    )
    key = _key([("without refold", "var(--without)"), ("with refold", "var(--with)"), ("fold pass", "var(--good)")])
    return (
        "<h2>Window occupancy</h2><p>Tokens of each request. Without refold, every request above the dashed line would "
        f"have been refused.</p><figure>{chart}{key}</figure>"
    )


def _categories(replay: Replay) -> str:
    bands = [
        Band(
            name=_NAMES.get(category, category),
            colour=f"var(--c-{category})",
            values=[call.request.categories[category] for call in replay.calls],
        )
        for category in CATEGORIES
    ]
    top = max(replay.limit, replay.peak) * 1.05
    key = _key([(band.name, band.colour) for band in bands])
    return (
        "<h2>What fills the window</h2><p>Tokens of each request by what they are, with refold.</p>"
        f"<figure>{stacked(bands, top=top, limit=replay.limit)}{key}</figure>"
    )


def _billing(replay: Replay) -> str:
    bill = replay.bill
    accepted = [request for request in replay.requests if not request.refused]
    read = [billed.read for r, billed in zip(accepted, bill.calls, strict=True) if r.kind == "model"]
    paid = [
        billed.uncached + billed.written for r, billed in zip(accepted, bill.calls, strict=True) if r.kind == "model"
    ]
    bands = [
        Band(name="paid in full or written", colour="var(--c-human)", values=paid),
        Band(name="read from the cache", colour="var(--c-summaries)", values=read),
    ]
    top = max(1, *(a + b for a, b in zip(read, paid, strict=True))) * 1.05
    money = (
        "" if bill.money is None else f" ({bill.money.currency} {bill.money.without:,.2f} to {bill.money.managed:,.2f})"
    )
    return (
        f"<h2>Billed cost</h2><p>{bill.without:,.0f} fresh input tokens without refold, {bill.managed:,.0f} with it"
        f"{text(money)}, summaries included, by {text(bill.rules)} cache rules. Read from the cache: "
        f"{bill.cached_share_without:.0%} without, {bill.cached_share:.0%} with.</p>"
        f"<figure>{stacked(bands, top=top, height=220)}{_key([(b.name, b.colour) for b in bands])}</figure>"
    )


def _reuse(replay: Replay) -> str:
    kept = [call.kept / max(1, call.request.tokens) * 100 for call in replay.calls]
    band = Band(name="shared prefix, %", colour="var(--c-tool)", values=kept)
    return (
        "<h2>Prefix reuse</h2><p>The part of each request, in per cent, that it shares with the one before, byte for "
        f"byte. It falls only at a recorded fold.</p><figure>{stacked([band], top=100, height=180)}</figure>"
    )


def _folds(replay: Replay) -> str:
    by_pass: dict[str, list[str]] = {}
    numbers: dict[str, tuple[str, int, int]] = {}
    covered: dict[str, int] = {}
    for fold in replay.folds:
        identity = str(fold["pass"])
        by_pass.setdefault(identity, []).append(str(fold["kind"]))
        numbers[identity] = (str(fold["reason"]), int(str(fold["before"])), int(str(fold["after"])))
        covered[identity] = covered.get(identity, 0) + _covers(fold["data"])
    at = {identity: n for n, call in enumerate(replay.calls, 1) for identity in call.passes}
    rows = [
        [
            str(at.get(identity, "")),
            numbers[identity][0],
            ", ".join(
                f"{kinds.count(kind)} {kind}" if kinds.count(kind) > 1 else kind for kind in dict.fromkeys(kinds)
            ),
            f"{covered[identity]:,}",
            f"{numbers[identity][1]:,}",
            f"{numbers[identity][2]:,}",
            f"{numbers[identity][1] - numbers[identity][2]:,}",
        ]
        for identity, kinds in by_pass.items()
    ]
    head = ["call", "why", "kinds", "messages", "before", "after", "saved"]
    return "<h2>Folds</h2><p>Each pass, and the window's tokens around it.</p>" + table(
        head, rows, numeric=(0, 3, 4, 5, 6)
    )


def _covers(data: object) -> int:
    """How many messages a fold stands for."""
    if not isinstance(data, dict):
        return 0
    items, span = data.get("items"), data.get("span")
    return len(items) if isinstance(items, list) else int(span.get("count", 0)) if isinstance(span, dict) else 0


def _numbers(replay: Replay) -> str:
    return "<h2>All numbers</h2>" + table(
        ["", "without refold", "with refold"], [list(row) for row in summary_rows(replay)], numeric=(1, 2)
    )


def _problems(replay: Replay) -> str:
    found = list(replay.problems)
    found += [f"{s.count} records skipped: {s.reason}" for s in replay.transcript.skipped]
    if not found:
        return "<h2>Problems</h2><p>None.</p>"
    return "<h2>Problems</h2>" + table(["what"], [[line] for line in found[:500]])


def _key(entries: Sequence[tuple[str, str]]) -> str:
    marks = "".join(f'<span><i style="background:{colour}"></i>{text(name)}</span>' for name, colour in entries)
    return f"<figcaption>{marks}</figcaption>"


def summary_rows(replay: Replay) -> list[tuple[str, str, str]]:
    """(what, without refold, with refold), for the table and the page."""
    bill = replay.bill
    folds = [str(fold["kind"]) for fold in replay.folds]
    kinds = ", ".join(f"{folds.count(kind)} {kind}" for kind in sorted(set(folds)))
    recalled = replay.recalled
    rows = [
        ("messages", "", f"{len(replay.transcript.messages):,}"),
        ("model calls", f"{len(replay.calls):,}", f"{len(replay.calls):,} + {replay.summaries} for summaries"),
        ("largest request, tokens", f"{replay.peak_without:,}", f"{replay.peak:,} (limit {replay.limit:,})"),
        (
            "requests over the limit",
            f"{sum(call.without > replay.limit for call in replay.calls):,}",
            f"{replay.over_limit}",
        ),
        ("invalid requests", "", f"{sum(replay.invalid.values())}"),
        ("fold passes", "", f"{replay.passes}" + (f" ({kinds})" if kinds else "")),
        ("prefix breaks (unexplained)", "", f"{len(replay.breaks)} ({len(replay.unexplained)})"),
        ("input read from the cache", f"{bill.cached_share_without:.0%}", f"{bill.cached_share:.0%}"),
        (f"billed, input tokens ({bill.rules} rules)", f"{bill.without:,.0f}", f"{bill.managed:,.0f}"),
    ]
    if bill.money is not None:
        rows.append((f"billed, {bill.money.currency}", f"{bill.money.without:,.2f}", f"{bill.money.managed:,.2f}"))
    rows += [
        (
            f"checkpoints, bytes ({replay.raw_bytes:,} raw)",
            f"{replay.whole_copies_bytes:,}",
            f"{replay.checkpoint_bytes:,}",
        ),
        (
            "messages in the window / read back",
            "",
            f"{recalled.in_window} / {recalled.by_path + recalled.by_id}",
        ),
        ("messages lost", "", f"{len(recalled.unreachable)}"),
    ]
    for cls, kept in recalled.facts.items():
        if kept.total:
            share = f"{kept.in_view / kept.total:.0%} / {kept.recallable / kept.total:.0%}"
            rows.append((f"facts: {cls} ({kept.total:,}), in view / recallable", "", share))
    return rows
