"""What the HTML pages share: the frame, tiles and tables.

A page loads nothing from anywhere; every value is redacted and escaped.
"""

from collections.abc import Sequence
from html import escape
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from refold.errors import ConfigurationError
from refold.replay.secrets import redact


def write_page(html: str, path: Path) -> None:
    """Write a page. Raises `ConfigurationError` when the file cannot be made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(html, "utf-8")
    except OSError as error:
        raise ConfigurationError(f"--out {path}: cannot be written ({error.strerror or error})") from error


def page(title: str, body: str, *, footer: str) -> str:
    """A whole page. `title` and `footer` are text, `body` is HTML."""
    css = files("refold.replay").joinpath("templates/report.css").read_text("utf-8")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" '
        f'content="light dark"><title>{text(title)}</title><style>{css}</style></head><body><main>'
        f"{body}<footer>refold {text(version('refold'))}. {text(footer)}</footer></main></body></html>"
    )


def tiles(entries: Sequence[tuple[str, str]]) -> str:
    """Large numbers, each with its words."""
    cells = "".join(
        f'<div class="tile"><b>{text(number)}</b><span>{text(words)}</span></div>' for number, words in entries
    )
    return f'<div class="tiles">{cells}</div>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, numeric: Sequence[int] = ()) -> str:
    """A table; the columns in `numeric` stand to the right."""

    def cells(tag: str, row: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=n' if place in numeric else ''}>{text(cell)}</{tag}>" for place, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f'<div class="scroll"><table><tr>{cells("th", head)}</tr>{body}</table></div>'


def text(value: str) -> str:
    """A value from outside, as HTML."""
    return escape(redact(value))
