"""Tokenizer families: which models split text alike.

A family is what the estimator has coefficients for, and what decides a provider's rules for frames and media. It is
found from a model's name alone, with any provider prefix, since gateways and local servers give nothing better.
"""

import re
from typing import Final, Literal, TypeAlias

Family: TypeAlias = Literal[
    "generic",
    "o200k",
    "cl100k",
    "llama3",
    "qwen3",
    "qwen35",
    "deepseek",
    "mistral",
    "gemma",
    "claude3",
    "claude48",
]
"""`generic` is the mean of the others, for models whose vocabulary is not public.

o200k: GPT-4o and later, gpt-oss. cl100k: GPT-4, GPT-3.5. qwen3: Qwen 2 to 3. qwen35: Qwen 3.5 and later. gemma: Gemma
3, and Gemini as its close relative. claude3: Claude 3 to Opus 4.6. claude48: Opus 4.7 and later, Sonnet 5, Opus 5.
"""

_DISTILLED = re.compile(r"distill?-(qwen|llama)")
_CLAUDE = re.compile(r"claude\D*(\d+)(?:[-_.](\d{1,2}))?(?!\d)")
_QWEN = re.compile(r"qwen[-_]?(\d+)(?:[.p](\d+))?")
_GPT = re.compile(r"gpt[-_]?(\d+)(?:\.(\d+))?")
_O_SERIES = re.compile(r"(?:^|[/:._ -])o[1-9](?:$|[/:._@ -])")
_NAMED: Final[tuple[tuple[re.Pattern[str], Family], ...]] = (
    (re.compile(r"chatgpt|gpt-?oss|codex|davinci-00|computer-use"), "o200k"),
    (re.compile(r"text-embedding|ada-002"), "cl100k"),
    (re.compile(r"gemini|gemma|learnlm"), "gemma"),
    (re.compile(r"qwen|qwq|qvq|tongyi"), "qwen3"),
    (re.compile(r"deepseek"), "deepseek"),
    (re.compile(r"mistral|mixtral|ministral|codestral|devstral|magistral|pixtral|voxtral"), "mistral"),
    (re.compile(r"llama[-_. ]?(?:v?[34]|guard|nemotron)"), "llama3"),
)


def family_of(model_name: str) -> Family:
    """The family of a model by its name, in any spelling and behind any provider prefix; `generic` when unknown.

    Kimi, GLM, Grok, MiniMax, Nova, Command and others have no public vocabulary on the package index: generic. A name
    without a version (`claude-latest`) counts as the newest of its kind when that is the finer tokenizer.

    >>> family_of("openrouter/anthropic/claude-opus-4.8")
    'claude48'
    """
    name = model_name.lower()
    if (distilled := _DISTILLED.search(name)) is not None:
        return "qwen3" if distilled[1] == "qwen" else "llama3"
    if "claude" in name:
        return _claude(name)
    if (qwen := _QWEN.search(name)) is not None:
        return "qwen35" if (int(qwen[1]), int(qwen[2] or 0)) >= (3, 5) else "qwen3"
    if (gpt := _GPT.search(name)) is not None and "oss" not in name:
        return _gpt(int(gpt[1]), gpt[2], name)
    for pattern, family in _NAMED:
        if pattern.search(name) is not None:
            return family
    return "o200k" if _O_SERIES.search(name) is not None else "generic"


def _claude(name: str) -> Family:
    version = _CLAUDE.search(name)
    if version is None:
        return "claude48"
    return "claude48" if (int(version[1]), int(version[2] or 0)) >= (4, 7) else "claude3"


def _gpt(major: int, minor: str | None, name: str) -> Family:
    if major == 4:
        return "o200k" if minor is not None or "4o" in name else "cl100k"
    return "o200k" if 5 <= major < 30 else "cl100k"
