"""Making and migrating the tables: a program, so that both drivers do it."""

from refold.checkpoint.effects import Select, Statement, one
from refold.checkpoint.meta import FORMAT, check_format, number_of, read_meta_gen
from refold.checkpoint.sql import migrations, read_sql, script
from refold.core.program import Program


def setup_gen() -> Program[None]:
    """Bring the tables to the current format, in the transaction that it runs in. Changes nothing where they have
    it."""
    yield from Statement(
        text="SELECT pg_advisory_xact_lock(8243122654417846274)"
    )  # two processes set up one after another
    if one((yield from Select(statement="has_tables"))) is None:
        for text in script(read_sql("postgres", "schema.sql")):
            yield from Statement(text=text)
        yield from Select(statement="meta_put", args={"key": "format", "value": str(FORMAT).encode()})
        return
    stored = number_of("format", (yield from read_meta_gen("format")))
    check_format(stored)
    for version, text in migrations("postgres").items():
        if version > stored:
            for statement in script(text):
                yield from Statement(text=statement)
            yield from Select(statement="meta_set", args={"key": "format", "value": str(version).encode()})


def is_current_gen() -> Program[bool]:
    """Whether the tables have the current format. Raises `SchemaVersionError` for a later one, `CorruptionError` where
    they do not say it."""
    if one((yield from Select(statement="has_tables"))) is None:
        return False
    stored = number_of("format", (yield from read_meta_gen("format")))
    check_format(stored)
    return stored == FORMAT
