"""Encryption keys: whether a source opens with the one that is given, asked before a target is made."""

from collections.abc import Sequence

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from refold.errors import ConfigurationError

_HOW = "set LANGGRAPH_AES_KEY to the key that wrote them (from Python: serde=EncryptedSerializer...)"


def check_key(samples: Sequence[tuple[str, bytes]], serde: SerializerProtocol | None) -> None:
    """Tries some encrypted values, given as tag and bytes: one that does not open may be damaged. Raises
    `ConfigurationError` when none does. A serializer of an application's own is left alone."""
    if not samples or not (serde is None or isinstance(serde, EncryptedSerializer | JsonPlusSerializer)):
        return
    if not isinstance(serde, EncryptedSerializer):
        raise ConfigurationError(f"the source holds encrypted values, and there is no key: {_HOW}")
    for tag, data in samples:
        try:
            serde.cipher.decrypt(tag.partition("+")[2], bytes(data))
        except (ValueError, AssertionError, KeyError):
            continue
        return
    raise ConfigurationError(f"the source holds encrypted values that do not open with this key: {_HOW}")


def without_cipher(serde: SerializerProtocol | None) -> SerializerProtocol | None:
    """The serializer inside an encrypting one. A database of refold's that was made without a key is read with it: a
    saver that is given one makes the database encrypted from then on."""
    return serde.serde if isinstance(serde, EncryptedSerializer) else serde
