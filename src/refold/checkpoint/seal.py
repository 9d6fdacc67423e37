"""From plain bytes to what a row holds, and back: hash, compression, encryption.

A blob's name is BLAKE2b-128 over its type tag and plain bytes, so it never depends on the codec, and two processes that
store the same value store it once. With a cipher the hash is keyed: who can read the database but not the key cannot
confirm a guess at its content. The hash key is random, made with the database and kept in it encrypted by the cipher,
because a `CipherProtocol` does not show its own key.

Codecs (the low four bits of the `codec` column):

    0  as it is
    1  zstd with shipped dictionary 1
    2  zstd with the plain bytes of another blob (`base`) as its dictionary
    3  in a pack: the data is in row `base` of `pack`
    4  zstd with shipped dictionary 1, strong level (packs)

Bit 16: the plain bytes are pieces and references (see `records`). Bit 32: encrypted, the cipher's
name first, and the hash is keyed; of a packed blob it says only the latter. Bit 64: a
template of rows, which compaction leaves alone. Bit 128: a message that needs no validation when it is read (see
`lean`). The four magic bytes that every zstd frame begins with are not stored.
"""

import hashlib
import threading
from collections.abc import Callable
from importlib import resources
from typing import Final, TypeAlias

import zstandard
from langgraph.checkpoint.serde.base import CipherProtocol

from refold.errors import ConfigurationError, CorruptionError

HASH_BYTES: Final = 16
RAW, ZSTD_1, ZSTD_BASE, PACKED, ZSTD_PACK = range(5)
CODEC_MASK: Final = 15
COMPOSITE: Final = 16
ENCRYPTED: Final = 32
TEMPLATE: Final = 64
SETTLED: Final = 128

_MAGIC = b"\x28\xb5\x2f\xfd"
_LEVEL = 6  # bodies: 35 us a message, 6 % smaller than level 3; level 9 saves 1 % more and takes twice as long
_BASE_LEVEL = 3
_PACK_LEVEL = 9
_WORTH_IT = 24  # bytes: below, a frame is larger than what it holds


_Contexts: TypeAlias = tuple[zstandard.ZstdCompressor, zstandard.ZstdCompressor, zstandard.ZstdDecompressor]


class Compressor:
    """zstd contexts with the shipped dictionary. A context serves one thread at a time, so each thread has its own."""

    def __init__(self) -> None:
        shipped = (resources.files("refold.checkpoint") / "dictionaries" / "1.zdict").read_bytes()
        self._dictionary = zstandard.ZstdCompressionDict(shipped)
        self._local = threading.local()

    def compress(self, codec: int, plain: bytes, base: bytes | None = None) -> bytes:
        if codec == ZSTD_BASE:
            raw = zstandard.ZstdCompressionDict(base or b"", dict_type=zstandard.DICT_TYPE_RAWCONTENT)
            return _compressor(_BASE_LEVEL, raw).compress(plain)[4:]
        fast, strong, _ = self._contexts()
        return (strong if codec == ZSTD_PACK else fast).compress(plain)[4:]

    def decompress(self, codec: int, data: bytes, base: bytes | None = None) -> bytes:
        try:
            if codec == ZSTD_BASE:
                raw = zstandard.ZstdCompressionDict(base or b"", dict_type=zstandard.DICT_TYPE_RAWCONTENT)
                return zstandard.ZstdDecompressor(dict_data=raw).decompress(_MAGIC + data)
            return self._contexts()[2].decompress(_MAGIC + data)
        except zstandard.ZstdError as error:
            raise CorruptionError("a stored value cannot be decompressed; restore it from a backup") from error

    def reader(self) -> Callable[[bytes], bytes]:
        """`decompress` for the shipped dictionary, in this thread only."""
        decompress = self._contexts()[2].decompress
        return lambda data: decompress(_MAGIC + data)

    def _contexts(self) -> "_Contexts":
        found: _Contexts | None = vars(self._local).get("contexts")
        if found is None:
            found = (
                _compressor(_LEVEL, self._dictionary),
                _compressor(_PACK_LEVEL, self._dictionary),
                zstandard.ZstdDecompressor(dict_data=self._dictionary),
            )
            self._local.contexts = found
        return found


def _compressor(level: int, dictionary: zstandard.ZstdCompressionDict) -> zstandard.ZstdCompressor:
    return zstandard.ZstdCompressor(level=level, dict_data=dictionary, write_dict_id=False, write_checksum=True)


class Sealer:
    """Hashes, seals and opens plain bytes for one database.

    `hash_key` is empty without a cipher. Threads may share one.
    """

    def __init__(self, compressor: Compressor, *, cipher: CipherProtocol | None, hash_key: bytes) -> None:
        self._compressor = compressor
        self._cipher = cipher
        self._key = hash_key

    @property
    def encrypts(self) -> bool:
        return self._cipher is not None

    def name(self, tag: str, plain: bytes, *, keyed: bool | None = None) -> bytes:
        """The name of a value: 16 bytes. `keyed` is for blobs written before the database had a cipher."""
        use_key = self.encrypts if keyed is None else keyed
        hasher = hashlib.blake2b(tag.encode(), digest_size=HASH_BYTES, key=self._key if use_key else b"")
        hasher.update(b"\x00")
        hasher.update(plain)
        return hasher.digest()

    def seal(self, plain: bytes, *, base: bytes | None = None, strong: bool = False) -> tuple[int, bytes]:
        """(codec, data) for plain bytes; the smaller of raw and compressed."""
        codec, data = RAW, plain
        if len(plain) >= _WORTH_IT:
            wanted = ZSTD_BASE if base is not None else ZSTD_PACK if strong else ZSTD_1
            packed = self._compressor.compress(wanted, plain, base)
            if len(packed) < len(plain):
                codec, data = wanted, packed
        return self.protect(codec, data)

    def protect(self, codec: int, data: bytes) -> tuple[int, bytes]:
        """Encrypt data where the database has a cipher."""
        if self._cipher is None:
            return codec, data
        cipher_name, secret = self._cipher.encrypt(data)
        label = cipher_name.encode()
        return codec | ENCRYPTED, bytes([len(label)]) + label + secret

    def open(self, codec: int, data: bytes, *, base: bytes | None = None) -> bytes:
        """The plain bytes. Raises `CorruptionError` when they cannot be had, `ConfigurationError` without the key."""
        data = self.reveal(codec, data)
        method = codec & CODEC_MASK
        return data if method == RAW else self._compressor.decompress(method, data, base)

    def leaf_reader(self) -> Callable[[bytes], bytes]:
        """What opens data of codec `ZSTD_1`, for this thread: the short way, for thousands of messages. Raises
        `zstandard.ZstdError` for damaged data."""
        return self._compressor.reader()

    def reveal(self, codec: int, data: bytes) -> bytes:
        """Decrypt data that `protect` encrypted."""
        if not codec & ENCRYPTED:
            return data
        if self._cipher is None:
            raise ConfigurationError(
                "the database holds encrypted values: open the saver with serde=EncryptedSerializer(...) and its key"
            )
        end = 1 + data[0] if data else 0
        try:
            return self._cipher.decrypt(data[1:end].decode(), data[end:])
        except (ValueError, AssertionError, IndexError) as error:
            raise CorruptionError(
                "an encrypted value does not open with this key; use the key that wrote it, or restore a backup"
            ) from error
