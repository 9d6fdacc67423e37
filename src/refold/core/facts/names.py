"""Identifiers and error names in text: what a reader could search the code or the tracker for."""

import re
from collections.abc import Iterator
from typing import Final

from refold.core.facts.model import FactClass, Hit
from refold.core.facts.words import words

_UUID: Final = re.compile(r"(?<![0-9a-fA-F-])[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?![0-9a-fA-F-])")
_HEX: Final = re.compile(r"(?<![A-Za-z0-9_.\-])(?=[a-f]*+[0-9])(?=[0-9]*+[a-f])[0-9a-f]{7,64}+(?![A-Za-z0-9_])")
_TICKET: Final = re.compile(
    r"(?<![A-Za-z0-9_\-])(?:CVE-\d{4}-\d{4,7}|(?!(?:UTF|SHA|ISO|GPT|AES|RSA|COVID|TLS|UTC|GMT|RFC|HTTP|ORA)-)"
    r"[A-Z][A-Z0-9]{1,9}-\d{1,7})(?![A-Za-z0-9_\-])"
)
_CODE: Final = re.compile(r"(?<![A-Za-z0-9_\-.#])(?=[A-Z]*+\d)(?=\d*+[A-Z])[A-Z0-9]{5,12}+(?![A-Za-z0-9_\-])")
_REFERENCE: Final = re.compile(r"(?<![A-Za-z0-9_&#])#\d{1,7}(?![A-Za-z0-9_])")
_EMAIL: Final = re.compile(
    r"(?<![A-Za-z0-9_.+\-])[A-Za-z0-9_.+\-]{1,64}+@[A-Za-z0-9\-]{1,63}(?:\.[A-Za-z0-9\-]{1,63}){1,5}"
)
_IP: Final = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?(?![\w.])", re.ASCII)
_WORD: Final = re.compile(r"(?<![A-Za-z0-9_])[A-Za-z_][A-Za-z0-9_]*+(?:(?:\.|::)[A-Za-z_][A-Za-z0-9_]*+)*+")
_ERROR_CODE: Final = re.compile(
    r"(?<![A-Za-z0-9_\-])(?:(?:E|TS|CS|LNK|MSB|ORA-|SQL|PG|TF|NU)\d{4,5}|ERR_[A-Z0-9_]{2,60}|0x[89A-Fa-fcC][0-9A-Fa-f]{7}"
    r"|SIG(?:KILL|SEGV|TERM|ABRT|INT|PIPE|BUS|FPE|ILL|HUP|QUIT))(?![A-Za-z0-9_])"
)
_ERRNO_NAMES: Final = words(
    """
    EACCES EADDRINUSE EADDRNOTAVAIL EAGAIN EBADF EBUSY ECONNABORTED ECONNREFUSED ECONNRESET EEXIST EHOSTUNREACH EINTR
    EINVAL EIO EISDIR ELOOP EMFILE ENAMETOOLONG ENETUNREACH ENFILE ENOENT ENOMEM ENOSPC ENOTDIR ENOTEMPTY ENOTFOUND
    EPERM EPIPE EROFS ESRCH ETIMEDOUT EXDEV
    """
)
_ERROR_NAME: Final = re.compile(
    r"[A-Z][A-Za-z0-9]*(?:Error|Exception|Warning|Fault|Failure|NotFound|Timeout|Interrupt)"
)
_HUMPS: Final = re.compile(r"[a-z0-9][A-Z]")
_TICKED: Final = re.compile(r"`([A-Za-z_@][A-Za-z0-9_.:@\-]{2,60})(?:\(\))?`")
_CALLED: Final = re.compile(r"(?<![A-Za-z0-9_.])[A-Za-z_][A-Za-z0-9_]{2,60}(?=\(\))")
# Spellings of products and formats, not names of code.
_PRODUCTS: Final = words(
    """
    GitHub GitLab JavaScript TypeScript OpenAI YouTube LinkedIn PyPI macOS iOS iPhone iPad MongoDB PostgreSQL MySQL
    NumPy SciPy PyTorch TensorFlow LangChain LangGraph LaTeX WordPress DevOps PowerPoint PowerShell WhatsApp TikTok
    WeChat DeepSeek ChatGPT BitBucket StackOverflow DataFrame PayPal eBay NoSQL GraphQL VSCode WebSocket OAuth FastAPI
    """
)
_TOP_LEVEL: Final = words("com org net io dev ai app cn jp kr uk de fr eu us gov edu co")


def names_in(token: str) -> Iterator[Hit]:
    """The identifiers and error names of a token without its paths."""
    for pattern in (_UUID, _EMAIL if "@" in token else None, _IP):
        if pattern is None:
            continue
        for match in pattern.finditer(token):
            yield Hit(cls=FactClass.IDENTIFIER, text=match[0].rstrip(".-"))
        token = pattern.sub(" ", token)
    for match in _ERROR_CODE.finditer(token):
        yield Hit(cls=FactClass.ERROR, text=match[0])
    token = _ERROR_CODE.sub(" ", token)
    for pattern in (_TICKET, _REFERENCE, _HEX, _CODE):
        for match in pattern.finditer(token):
            yield Hit(cls=FactClass.IDENTIFIER, text=match[0])
    for match in _WORD.finditer(token):
        yield from _word(match[0])


def quoted_names(text: str) -> Iterator[str]:
    """Names that the writer marked as code: in back-ticks, or followed by an empty pair of brackets."""
    for match in _TICKED.finditer(text):
        if not match[1].endswith((".", ":", "-")):
            yield match[1]
    for match in _CALLED.finditer(text):
        yield match[0]


def _word(word: str) -> Iterator[Hit]:
    if not 3 < len(word) <= 160:
        return
    parts = re.split(r"\.|::", word)
    if _ERROR_NAME.fullmatch(parts[-1]) or word in _ERRNO_NAMES:
        yield Hit(cls=FactClass.ERROR, text=parts[-1])
        if len(parts) == 1:
            return
        parts = parts[:-1]
        word = ".".join(parts)
    if _is_identifier(word, parts):
        yield Hit(cls=FactClass.IDENTIFIER, text=word)


def _is_identifier(word: str, parts: list[str]) -> bool:
    if len(parts) == 1:
        return _is_code_name(word)
    if all(len(part) == 1 for part in parts) or "" in parts:
        return False
    if parts[-1] in _TOP_LEVEL and len(parts) > 1:
        return True
    if any(_is_code_name(part) for part in parts) or "::" in word:
        return True
    return len(parts) > 2 and all(len(part) > 1 and part[0].islower() for part in parts)


def _is_code_name(part: str) -> bool:
    core = part.strip("_")
    if "_" in core:
        pieces = [piece for piece in core.split("_") if piece]
        return len(pieces) > 1 and any(char.isalpha() for char in pieces[0]) and len(core) > 4
    if part.startswith("__") and part.endswith("__") and len(core) > 2:
        return True
    if not 5 < len(core) <= 60 or core in _PRODUCTS:
        return False
    humps = len(_HUMPS.findall(core))
    return 0 < humps <= len(core) / 4 and not core.isupper()
