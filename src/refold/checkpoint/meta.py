"""The facts that a database keeps about itself, and what opening it checks.

format        the format of rows and blobs, an integer as text: this library reads 1 to FORMAT and writes FORMAT
hash_key      the key of keyed hashes, encrypted by the saver's cipher; absent where nothing is encrypted
freed         checkpoints removed since the last collection, as text
collection    the number of the collection that began last, as text
deleted/...   the newest checkpoint id that a deleted thread had, by a hash of its name
"""

import secrets
from typing import Final

from langgraph.checkpoint.serde.base import CipherProtocol

from refold.checkpoint.effects import Select, one
from refold.checkpoint.seal import Compressor, Sealer
from refold.core.program import Program
from refold.errors import ConfigurationError, CorruptionError, SchemaVersionError

FORMAT: Final = 1


def read_meta_gen(key: str) -> Program[bytes | None]:
    row = one((yield from Select(statement="meta_get", args={"key": key})))
    return None if row is None else bytes(row[0]) if isinstance(row[0], bytes | memoryview) else str(row[0]).encode()


def number_of(key: str, value: object) -> int:
    """A fact that is a number. Raises `CorruptionError` for one that is none, or missing."""
    try:
        return int(value if isinstance(value, str | bytes) else "")
    except ValueError as error:
        raise CorruptionError(
            f"the database says {value!r} as its {key!r}, where a number belongs: restore it from a backup"
        ) from error


def check_format(stored: int) -> None:
    """Raises `SchemaVersionError` for a database of a later library, `CorruptionError` for a format there never was."""
    if stored < 1:
        raise CorruptionError(f"the database says format {stored}, which there never was: restore it from a backup")
    if stored > FORMAT:
        raise SchemaVersionError(
            f"the database has format {stored}, this refold reads up to {FORMAT}: upgrade refold; nothing was changed"
        )


def sealer_gen(cipher: CipherProtocol | None, fresh_key: bytes) -> Program[Sealer]:
    """The sealer of a database. Makes its hash key when the first cipher comes. Needs a write transaction then.

    Raises `ConfigurationError` for a database that is encrypted with another key, or opened without one.
    """
    wrapped = yield from read_meta_gen("hash_key")
    if cipher is None:
        if wrapped is not None:
            raise ConfigurationError(
                "the database is encrypted: open the saver with serde=EncryptedSerializer(...) and the key "
                "that it was made with"
            )
        return Sealer(Compressor(), cipher=None, hash_key=b"")
    if wrapped is None:
        name, secret = cipher.encrypt(fresh_key)
        label = name.encode()
        yield from Select(statement="meta_put", args={"key": "hash_key", "value": bytes([len(label)]) + label + secret})
        wrapped = (yield from read_meta_gen("hash_key")) or b""
    return Sealer(Compressor(), cipher=cipher, hash_key=_unwrap(cipher, wrapped))


def new_key() -> bytes:
    """A random key for keyed hashes."""
    return secrets.token_bytes(32)


def _unwrap(cipher: CipherProtocol, wrapped: bytes) -> bytes:
    end = 1 + wrapped[0]
    try:
        return cipher.decrypt(wrapped[1:end].decode(), wrapped[end:])
    except (ValueError, AssertionError, IndexError) as error:
        raise ConfigurationError(
            "the database is encrypted with another key: use the key (LANGGRAPH_AES_KEY, or key=...) that it was made "
            "with"
        ) from error
