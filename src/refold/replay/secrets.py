"""Secrets in text: found by shape, replaced by their kind.

For what is printed and for reports; never for the log itself, which is kept as it is. `refold convert --redact` writes
a copy for passing on. The shapes are those that the issuers publish (a fixed prefix and length), and values that a name
in front of them calls secret. Nothing finds every secret: a password in a sentence looks like any other word.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final, cast

from refold.replay.jsonl import message_fields, message_from
from refold.replay.transcript import Transcript

_NAMES: Final = (
    r"(?:[A-Za-z0-9]{1,32}[_.-]){0,6}"
    r"(?:password|passwd|passphrase|pwd|secret|secret[_-]?key|api[_-]?key|apikey|access[_-]?key|account[_-]?key"
    r"|access[_-]?token|auth[_-]?token|refresh[_-]?token|token|private[_-]?key|client[_-]?secret|credentials?"
    r"|secretaccesskey|accesstoken|authtoken|clientsecret|privatekey)"
)
_VALUE: Final = r"""(?:\\"[^"\\\n]{4,}\\"|"(?:[^"\\\n]|\\.){4,}"|'(?:[^'\\\n]|\\.){4,}'|[^\s"'`,;&<>(){}\[\]\\]{4,})"""

_PATTERNS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        (
            "private key",
            r"-----BEGIN (?:[A-Z0-9]{1,16} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
            r"(?:[A-Za-z0-9+/=\s:,.]|\\[nr]|(?<=[A-Za-z])-(?=[A-Za-z]))*+"
            r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?",
        ),
        ("JWT", r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{4,}"),
        ("API key", r"\bsk-(?:ant-|proj-|svcacct-|admin-|or-v1-|lf-)?[A-Za-z0-9_-]{20,}"),
        ("API key", r"\b(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}"),
        ("API key", r"\bAIza[\w-]{35,}"),  # what is glued to a key goes with it: nothing behind a key may look new
        ("API key", r"\b(?:gsk_|xai-|tvly-|pplx-|r8_|hf_|nvapi-|lsv2_(?:pt|sk)_|sgp_|dapi|shpat_|dop_v1_)[\w-]{20,}"),
        ("access token", r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|ATATT3[\w=-]{20,})"),
        ("access token", r"\b(?:npm_[A-Za-z0-9]{30,}|pypi-[\w-]{40,}|ya29\.[\w-]{20,}|EAA[A-Za-z0-9]{40,})"),
        ("access token", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
        ("access token", r"\bSG\.[\w-]{16,}\.[\w-]{16,}|\b\d{8,10}:AA[\w-]{33}\b"),
        ("webhook", r"https://hooks\.slack\.com/(?:services|workflows)/[\w/]{20,}"),
        ("AWS key", r"\b(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA)[A-Z0-9]{16}\b"),
    )
)
_URL_PASSWORD: Final = re.compile(
    r"(?P<before>\b[a-zA-Z][a-zA-Z0-9+.-]{1,30}://[^\s/:@\"'<>]{0,100}:)[^\s/@\"'<>\[]{1,200}@"
)
_HEADER: Final = re.compile(
    r"(?P<before>\b(?:bearer|basic|token|apikey)\s+)(?P<value>[A-Za-z0-9+/_.~=-]{16,})", re.IGNORECASE
)
_COOKIE: Final = re.compile(
    r"(?P<before>\b(?:(?:set-)?cookie|(?:proxy-)?authorization|x-api-key|x-auth-token)\b[\"']?\s*[:=]\s*[\"']?)"
    r"(?P<value>(?!(?:bearer|basic|token)\b)[^\s\"'\\\[][^\n\"'\\]{7,})",
    re.IGNORECASE,
)
_ASSIGNMENT: Final = re.compile(
    rf"(?P<before>(?<![\w.-]){_NAMES}(?![\w-])(?:\\?[\"'])?\s{{0,4}}(?:=|:(?!:))\s{{0,4}})(?P<value>{_VALUE})",
    re.IGNORECASE,
)
_OPTION: Final = re.compile(rf"(?P<before>(?<!\S)--?{_NAMES}(?:=|\s+))(?P<value>{_VALUE})", re.IGNORECASE)
_HARMLESS: Final = re.compile(
    r"(?:\\?[\"'])?(?:\[redacted: |\$|%|<|\*{3}|x{4}|\.{3}|(?:none|null|true|false|str|string|optional)\b"
    r"|(?:os|env|process)\.)",
    re.IGNORECASE,
)
"""Values that stand where a secret would: placeholders, types, references to the environment."""
_OPAQUE: Final = frozenset(
    {"base64", "data", "signature", "encrypted_content", "id", "tool_call_id", "thoughtSignature"}
)
"""Fields that hold encoded bytes or identities: no text to read, and changing them would break the message."""


def redact(text: str) -> str:
    """The text with everything that looks like a secret replaced by `[redacted: kind]`.

    Names, structure and line breaks around it stay. Linear in the text; redacting twice changes nothing more.
    """
    for kind, pattern in _PATTERNS:
        text = pattern.sub(f"[redacted: {kind}]", text)
    text = _URL_PASSWORD.sub(r"\g<before>[redacted: password]@", text)
    for kind, named in (("credentials", _COOKIE), ("token", _HEADER), ("secret", _OPTION), ("secret", _ASSIGNMENT)):
        text = named.sub(lambda match, kind=kind: _replaced(match, kind), text)  # type: ignore[misc]
    return text


def redact_transcript(transcript: Transcript) -> Transcript:
    """A copy of a transcript with every text in it redacted; ids, calls and results stay paired."""
    return replace(
        transcript,
        name=redact(transcript.name),
        system=None if transcript.system is None else redact(transcript.system),
        messages=tuple(
            message_from(cast("Mapping[str, object]", _redacted(message_fields(message))))
            for message in transcript.messages
        ),
        compactions=tuple(replace(c, summary=redact(c.summary)) for c in transcript.compactions),
        subagents=tuple(redact_transcript(child) for child in transcript.subagents),
    )


def _replaced(match: re.Match[str], kind: str) -> str:
    value = match["value"]
    if _HARMLESS.match(value):
        return match[0]
    quote = next((mark for mark in ('\\"', '"', "'") if value.startswith(mark) and value.endswith(mark)), "")
    return f"{match['before']}{quote}[redacted: {kind}]{quote}"


def _redacted(value: object, key: str = "") -> object:
    match value:
        case str():
            return value if key in _OPAQUE or value.startswith("data:") else _redact_named(value, key)
        case list():
            return [_redacted(item, key) for item in value]
        case dict():
            return {name: _redacted(item, name) for name, item in value.items()}
        case _:
            return value


def _redact_named(value: str, key: str) -> str:
    """A field's text; a field that is itself called a secret has nothing else in it."""
    if re.fullmatch(_NAMES, key, re.IGNORECASE) and len(value) >= 4 and not _HARMLESS.match(value):
        return "[redacted: secret]"
    return redact(value)
