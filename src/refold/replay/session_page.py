"""The report of a live thread as a self-contained HTML page."""

from pathlib import Path

from refold.agent.report import PassReport, SessionReport
from refold.replay.charts import short
from refold.replay.page import page, table, text, tiles, write_page


def write_session_page(report: SessionReport, thread: str, path: Path) -> None:
    """Write the page. Raises `ConfigurationError` when the file cannot be made."""
    write_page(render_session(report, thread), path)


def render_session(report: SessionReport, thread: str) -> str:
    """The page as HTML."""
    lost = len(report.unreachable)
    words = f"{lost} messages cannot be reached" if lost else "every message can be reached"
    where = "" if report.stored else "; stored originals were not looked into"
    head = (
        f"<h1>{text(thread)}</h1><p>{report.messages:,} messages, {report.calls:,} model calls, from the thread's "
        f'newest checkpoint.</p><span class="verdict {"bad" if lost else "good"}">{text(words + where)}</span>'
    )
    numbers = [
        (short(report.used), f"tokens in the window, of {short(report.log_tokens)} in the log"),
        (f"{len(report.passes)}", f"fold passes, {report.prefix_breaks} broke the cached prefix"),
        (f"{len(report.hidden):,}", "messages behind summaries"),
    ]
    if report.occupancy is not None:
        numbers.insert(0, (f"{report.occupancy:.0%}", f"of the limit of {short(report.limit or 0)} tokens"))
    passes = table(
        ["call", "why", "kinds", "messages", "before", "after", "saved"],
        [_row(one) for one in report.passes],
        numeric=(0, 3, 4, 5, 6),
    )
    body = (
        f"{head}{tiles(numbers)}<h2>Folds</h2><p>Each pass, and the window's tokens around it.</p>{passes}"
        f"<h2>All numbers</h2>{table(['', ''], report.rows(), numeric=(1,))}"
    )
    if lost:
        body += f"<h2>Messages that cannot be reached</h2>{table(['id'], [[key] for key in report.unreachable[:500]])}"
    return page(f"{thread}: session", body, footer="Tokens: estimates, but where they are called reported.")


def _row(one: PassReport) -> list[str]:
    kinds = ", ".join(f"{count} {kind}" if count > 1 else kind for kind, count in one.kinds.items())
    why = f"{one.reason} (undone)" if one.undone else one.reason
    return [str(one.call), why, kinds, f"{one.covered:,}", f"{one.before:,}", f"{one.after:,}", f"{one.saved:,}"]
