"""What the commands on checkpoint databases share: opening them, ages, sizes and output."""

import dataclasses
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from refold.errors import ConfigurationError

if TYPE_CHECKING:
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from refold.checkpoint.migrate.databases import Database, Kind
    from refold.checkpoint.saver import SyncSaver

KEY_VARIABLE = "LANGGRAPH_AES_KEY"
"""Where LangGraph's encryption has its key, too."""
HELP = "A SQLite file or a postgresql:// URL."

_KEY_BYTES = (16, 24, 32)
_AGE = re.compile(r"(?P<count>\d+(?:\.\d+)?)(?P<unit>[smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


TARGET_KEY_VARIABLE = "REFOLD_TARGET_AES_KEY"
"""Where a migration has the key of its target, if it is to have another one."""


def serde_of_environment(variable: str = KEY_VARIABLE) -> "SerializerProtocol | None":
    """The encrypting serializer, where the environment has a key. It reads values that are not encrypted, too."""
    key = os.environ.get(variable)
    if not key:
        return None
    from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

    if len(key.encode()) not in _KEY_BYTES:
        raise ConfigurationError(
            f"{variable} cannot be used: a key has 16, 24 or 32 bytes, this has {len(key.encode())}"
        )
    try:
        return EncryptedSerializer.from_pycryptodome_aes(key=key.encode())
    except (ImportError, ValueError) as error:
        raise ConfigurationError(f"{variable} cannot be used: {error}") from error


def existing(url: str) -> "Database":
    """A database that is there. Raises `ConfigurationError` for one that has no checkpoints of any kind."""
    from refold.checkpoint.migrate.databases import look_into

    database = look_into(url)
    if not database.is_postgres and not os.path.exists(url):
        raise ConfigurationError(f"there is no file {database.name}")
    if not database.kinds:
        raise ConfigurationError(f"{database.name} holds no checkpoints; is it the right database?")
    return database


@contextmanager
def saver_of(url: str) -> Iterator["SyncSaver"]:
    """The saver of a database of refold's. Raises `ConfigurationError` for any other, and creates none.

    No command makes a database encrypted that is not: its application could not open it any more.
    """
    from refold.checkpoint.migrate.keys import without_cipher
    from refold.checkpoint.migrate.lossless import lossless
    from refold.checkpoint.migrate.ours import open_saver

    database = existing(url)
    if "refold" not in database.kinds:
        raise ConfigurationError(
            f"{database.name} holds checkpoints of LangGraph's saver; "
            f"move them first: refold migrate {database.name} TARGET"
        )
    serde = serde_of_environment()
    with open_saver(url, lossless(serde if database.encrypted else without_cipher(serde))) as saver:
        yield saver


def kind_of(database: "Database", *, wanted: "Kind | None") -> "Kind":
    """Which of a database's kinds is meant: the wanted one, or the only one."""
    if wanted is not None and wanted not in database.kinds:
        raise ConfigurationError(f"{database.name} holds no checkpoints of {wanted}")
    if wanted is None and len(database.kinds) > 1:
        raise ConfigurationError(f"{database.name} holds checkpoints of both kinds; say which: --from langgraph")
    return wanted if wanted is not None else next(iter(database.kinds))


def kind_to_read(database: "Database", *, langgraph: bool) -> "Kind":
    """The kind of a database that a command reads: refold's where it has both, unless LangGraph's is asked for."""
    wanted: Kind | None = "langgraph" if langgraph else "refold" if "refold" in database.kinds else None
    return kind_of(database, wanted=wanted)


def moment(age: str, *, now: datetime | None = None) -> datetime:
    """The moment that is `age` ago: 90m, 36h, 30d, 8w."""
    found = _AGE.fullmatch(age.strip())
    if found is None:
        raise ConfigurationError(f"{age!r} is no age; write a number and s, m, h, d or w, for example 30d")
    try:
        return (now or datetime.now(UTC)) - timedelta(**{_UNITS[found["unit"]]: float(found["count"])})
    except OverflowError as error:
        raise ConfigurationError(f"{age!r} is longer ago than a calendar reaches; write less") from error


def size(count: int) -> str:
    """Bytes for people."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= factor:
            return f"{count / factor:.2f} {unit}"
    return f"{count} B"


def say(title: str, rows: Mapping[str, object], *, as_json: bool) -> None:
    """A result: a small table, or one JSON object."""
    if as_json:
        typer.echo(json.dumps(dict(rows), default=str))
        return
    table = Table(box=box.SIMPLE_HEAD, show_header=False, padding=(0, 1, 0, 0))
    table.add_column("name")
    table.add_column("value", overflow="fold")
    for name, value in rows.items():
        table.add_row(name.replace("_", " "), Text(_shown(name, value)))
    console = Console()
    console.print(Text(title, style="bold"), soft_wrap=True)
    console.print(table)


def fields_of(value: object) -> dict[str, object]:
    """A result of the library as rows."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        raise TypeError(f"{type(value).__name__} is no dataclass value")
    return dataclasses.asdict(value)


def _shown(name: str, value: object) -> str:
    match value:
        case int() if name.endswith("bytes"):
            return size(value)
        case int():
            return f"{value:,}"
        case Sequence() if not isinstance(value, str):
            return ", ".join(map(str, value)) or "none"
        case _:
            return str(value)
