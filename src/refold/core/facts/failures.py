"""HTTP statuses, exit codes and errno in text, each in one spelling: `HTTP 404`, `exit code 2`, `errno 13`."""

import re
from collections.abc import Iterator
from typing import Final

# RFC 9110 and its extensions; 499 is nginx's, 520 to 530 are Cloudflare's, 529 is Anthropic's.
_STATUSES: Final = frozenset({*range(300, 309), *range(400, 430), 431, 451, 499, *range(500, 512), *range(520, 531)})
_REASONS: Final = (
    "Bad Request|Unauthorized|Payment Required|Forbidden|Not Found|Method Not Allowed|Request Timeout|Conflict|Gone"
    "|Payload Too Large|Content Too Large|Unprocessable|Too Many Requests|Internal Server Error|Not Implemented"
    "|Bad Gateway|Service Unavailable|Gateway Timeout|Moved Permanently|Found|See Other|Client Error|Server Error"
)
_HTTP: Final = re.compile(
    r"(?<![A-Za-z0-9])HTTP(?:S|/\d(?:\.\d)?)?[ :]{1,3}(?:(?:status|error|code)[ :]{1,2}){0,2}([3-5]\d\d)(?!\d)"
    r"|(?i:(?<![A-Za-z])status(?:[ _\-]?code)?|状态码|ステータスコード|상태 ?코드)"
    r"[\"']?\s{0,2}(?:[:=]|is|of|为|は)?\s{0,2}[\"']?([3-5]\d\d)(?!\d)"
    rf"|(?<![\d.])([3-5]\d\d)[ :]{{1,2}}(?:{_REASONS})"
    r"|(?<![A-Za-z])[Ee]rror(?: code)?[ :]{1,3}([45]\d\d)(?![\d.])"
)
_EXIT: Final = re.compile(
    r"(?i:exit(?:ed)?(?: with)?(?: non-zero)?[ _\-]?(?:exit )?(?:code|status)|returncode|return code|rc)"
    r"[\"']?\s{0,2}(?:[:=]|of|is|was|by)?\s{0,2}(-?\d{1,3})(?!\d)"
    r"|(?:退出码|返回码|退出代码|終了コード|終了ステータス|종료 ?코드)"
    r"\s{0,2}(?:[:=]|为|是|は|는)?\s{0,2}(-?\d{1,3})(?!\d)"
    r"|(?i:exited with) (-?\d{1,3})(?!\d)"
)
_ERRNO: Final = re.compile(r"(?i:\[?errno)[ :=]{1,2}(\d{1,3})(?!\d)")


def failures_in(text: str) -> Iterator[str]:
    """The failures that a prepared text reports by number. Success (exit code 0, HTTP 2xx) is none."""
    for match in _HTTP.finditer(text):
        if (status := int(match[match.lastindex or 0])) in _STATUSES:
            yield f"HTTP {status}"
    for match in _EXIT.finditer(text):
        if int(number := match[match.lastindex or 0]) != 0:
            yield f"exit code {number}"
    for match in _ERRNO.finditer(text):
        yield f"errno {match[1]}"
