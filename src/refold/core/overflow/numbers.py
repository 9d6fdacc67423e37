"""Labelling the numbers of a refusal: which is the limit, the prompt, the output, the total, the excess.

A number is labelled by the words next to it, those after it first ("512 tokens in the completion", "8192 maximum"),
then those before it ("maximum context length is", "you requested"). Comparisons written with signs say it by themselves
("P + O > L", "O > L - P", "P > L"). What is then still without a label is decided by what a refusal means: of two
counts, the smaller is the limit.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Label: TypeAlias = Literal["limit", "prompt", "tools", "output", "requested", "over", "unknown"]

SMALLEST: Final = 16
"""No model has a smaller window; smaller numbers of a refusal are versions, ranges and indexes."""
LARGEST: Final = 100_000_000
"""Ten times the largest window sold (10 million tokens, Llama 4 Scout); larger numbers are times and request ids."""

_RANGE = re.compile(r"[\[(] ?[01] ?(?:,|-|~|\.\.) ?(?P<limit>\d{2,12}) ?[\])]|between [01] and (?P<upto>\d{2,12})")
_NUMBER = re.compile(r"(?<![a-z0-9_.-])(?P<n>\d{1,12})(?![a-z0-9_]|-(?!tokens?\b)|\.\d|%)")
_SUM = re.compile(
    r"(?P<a>\d{2,12})(?: tokens?)?[^\n\d+]{0,30}\+[^\n\d+]{0,30}?(?P<b>\d{1,12})(?: tokens?)?[^\n\d>]{0,30}"
    r"(?:= ?\d{2,12}[^\n\d>]{0,20})?"
    r"(?:>=?|≥|exceeds?|is (?:greater|larger|more) than)[^\n\d]{0,40}?(?P<limit>\d{2,12})"
)
_OUT_OF = re.compile(
    r"(?P<prompt>\d{2,12})(?: tokens?)? ?(?:/|of|out of) ?(?P<limit>\d{2,12})"
    r"(?= ?(?:-?tokens?|available|allowed|max|context|[.,;:)\]}'\"\n]|$))"
)
_DIFFERENCE = re.compile(r"(?P<output>\d{1,12})(?: tokens?)? ?> ?(?P<limit>\d{2,12}) ?- ?(?P<prompt>\d{1,12})")
_GREATER = re.compile(
    r"(?P<prompt>\d{2,12})(?: tokens?)?\)? ?(?:>=?"
    r"|≥|vs\.?|versus) ?(?:[a-z_ ]{1,24}[:=]? ?)?(?P<limit>\d{2,12})(?! ?[-+] ?\d)"
)
_LESS = re.compile(
    r"(?P<limit>\d{2,12})(?: tokens?)?\)? ?(?:<=?"
    r"|≤|vs\.?|versus) ?(?:[a-z_ ]{1,24}[:=]? ?)?(?P<prompt>\d{2,12})(?! ?[-+] ?\d)"
)

_CAP = r"'?(?:max_(?:new_|output_|completion_|gen_)?tokens|max_new_tokens|maxoutputtokens|num_predict)'?\"?"
_RIGHT: Sequence[tuple[Label, re.Pattern[str]]] = (
    (
        "output",
        re.compile(
            rf"[ )]*(?:tokens? )?(?:{_CAP}|(?:of |in |for |from |as )?(?:the |your |requested )?"
            r"(?:completions?|outputs?|responses?|generat\w+|new tokens|答复|输出|回复|补全))"
        ),
    ),
    (
        "tools",
        re.compile(
            r"[ )]*(?:tokens? )?(?:of |in |for |from )?(?:the |your )?(?:tools?|functions?"
            r"|tool schemas?)\b"
        ),
    ),
    (
        "prompt",
        re.compile(
            r"[ )]*(?:tokens? )?(?:of |in |for |from )?(?:the |your |text )?'?(?:messages?|prompts?|inputs?|history"
            r"|context tokens)\b"
            r"|[ )]*tokens?\)? (?:estimated|counted)"
        ),
    ),
    (
        "requested",
        re.compile(r"[ )]*(?:tokens? )?(?:in total|requested|of total|total)\b"),
    ),
    (
        "limit",
        re.compile(
            r"[ )]*(?:-?tokens? ?)?-?(?:is (?:the )?)?(?:maximum|max\b|limit\b|allowed|supported|permitted"
            r"|available|context (?:length|window|size)"
            r"|token limit|上限|限制|的(?:上限|限制|最大|上下文|窗口))"
        ),
    ),
    (
        "over",
        re.compile(
            r"[ )]*(?:tokens? )?(?:over\b|too (?:many|long|much)|above the|beyond the"
            r"|more than (?:the |is )?(?:max|limit|allowed))"
        ),
    ),
)
_GIVEN_RIGHT = re.compile(
    r"[ )]*(?:tokens? )?(?:were |was |are )?(?:given|sent|provided|received|supplied|used"
    r"|submitted)\b"
)
_FILL = (
    r"(?:[ :=(\[<]|'|\"|is|are|was|be|to|at|of|for|by|the|this|that|its|our|your|a|an|only|about|approximately"
    r"|around|exactly|just"
    r"|model'?s?|process|handle|accept|take|output|completion|response|token|tokens|length|size|window|context"
    r"|count|number|total|input|prompt|sequence|max|maximum|allowed|supported"
    r"|available|configured|permitted|possible|limit|limited|set|currently|del?|du|des|le|la|el|es|est|ist|von"
    r"|modell?o|modells?|mod[eè]le|модел\w*|which|has|with|n_ctx|least|estimated|为|是|：|:|到|至|约|了|的|个"
    r"|最大|长度|限制|上限|值|数|数量|上下文|窗口|输入|模型|支持|允许|token数|tokens数)*"
)
_OVER_LEFT = re.compile(r"(?:by|by about|by approximately|超出了?|超过了?|多了|over by)[ :]*$")
_REQUESTED_LEFT = re.compile(
    r"(?:requested|you request|requesting|asked for|total of|in total|total|totalling|sum|请求了?|共|总计|合计)"
    r"(?:[ :=(]|about|approximately|a total of|at least|up to|tokens?|token count|of|is|for|was|the|and|了|:)*$"
)
_PROMPT_LEFT = re.compile(
    r"(?:prompts?|inputs?|messages?|history|conversation|request|current|actual|got|received|given|resulted in"
    r"|results in|contains?|containing"
    r"|has|have|had|with|sent|provided|supplied|passed|keep the first|n_keep|length|count|tokens?|too long"
    r"|comes? to|was|used|uses"
    r"|requires?|needs?|n_prompt_tokens|prompt_tokens|input_tokens|sequence|when|实际|当前|输入|提示词?|prompt|消息|对话|收到|您的"
    r"|长度|内容)"
    r"(?:[ :=(\[]|'|\"|tokens?|length|size|count|number|of|is|are|was|were|has|have|contains?|about|approximately"
    r"|estimated|at least|too long"
    r"|total|currently|a|the|to|as|in|为|是|：|长度|数|数量|达到?|了|的|共|约|有)*$"
)
_LIMIT_LEFT = re.compile(
    r"(?:max(?:imum)?\b|limit\w*|allow\w*|cannot exceed|not exceed|exceed(?:s|ed|ing)?(?! ?[:(])|at most|up to"
    r"|less than|fewer than|not more than|no more than"
    r"|below|under|within|contexto?\b|contexte|kontext\w*|контекст\w*|longer than|larger than|greater than"
    r"|bigger than|more than|higher than|beyond|above|over|only|supports?|accepts?"
    r"|(?:model|its|a|the) context (?:length|window|size) (?:is|of)|context (?:length|window|size|limit|budget)"
    r"|window|capacity|<=?|≤|and n_ctx"
    r"|n_ctx\w*|num_ctx|max_\w{0,20}(?:len|length|embeddings|context|input_tokens|size)\w{0,8}|最大|最多|最长|上限|限制|不(?:能"
    r"|得|可)?(?:超过|大于)|超过|超出|大于|支持"
    r"|小于等于|小于|不超过|上下文窗口|上下文长度)"
    rf"{_FILL}$"
)
_OUTPUT_LEFT = re.compile(
    rf"(?:{_CAP}|completion|output|response|new tokens|generate|generating)(?:[ :=(]|'|\"|tokens?|is|of|or|are|was"
    rf"|set to|too large|and|{_CAP})*$"
)
_OUTPUT_FIRST = re.compile(r"(?:max_\w*tokens|output|completion)\W{0,4}(?:\+|and|plus)\W{0,4}\w*(?:input|prompt)")
_MEASURED_LEFT = re.compile(r"(?:longer|larger|greater|bigger|higher|more) than[^:\d]{0,40}:\s*$")
"""After "longer than supported:" stands what was measured, not the limit."""
_IGNORED_LEFT = re.compile(
    r"(?:value|version|id|index|line|column|position|seconds|limit_type|step"
    r"|page)['\" ]?[=:][ '\"]*$"
)
_AT_LEAST = re.compile(r"(?:at least|>=|no fewer than)\s*$")


@dataclass(frozen=True, kw_only=True, slots=True)
class Numbers:
    """What a text's numbers say, in tokens; None where it does not say."""

    limit: int | None = None
    prompt: int | None = None
    requested: int | None = None
    output: int | None = None
    over: int | None = None
    prompt_at_least: bool = False
    prompt_named: bool = False
    """Whether words, or a sum, called the prompt by name; a bare "A > B" does not say what A is."""
    labelled: bool = False
    """Whether words or signs named both the limit and what went beyond it; else one of them may be a guess."""


def numbers_of(text: str) -> Numbers:
    """The labelled numbers of a normalised text of which it is known that it refuses a request for its length."""
    compared = _compared(text)
    if compared is not None:
        return compared
    found = list(_labelled(text))
    by: dict[Label, list[int]] = {}
    for label, value, _ in found:
        by.setdefault(label, []).append(value)
    prompt = _first(by, "prompt")
    parts = by.get("prompt", [])
    tools = sum(by.get("tools", []))
    if prompt is not None and tools and (len(parts) == 1 or prompt < sum(parts[1:]) + tools):
        prompt += tools
    limits = by.get("limit", [])
    numbers = Numbers(
        limit=next((value for value in limits if prompt is not None and value < prompt), limits[0] if limits else None),
        prompt=prompt,
        requested=_first(by, "requested"),
        output=_first(by, "output"),
        over=_first(by, "over"),
        prompt_at_least=any(least for label, _, least in found if label == "prompt"),
        prompt_named=bool(parts),
        labelled=bool(limits) and any(value > min(limits) for value in (*parts, *by.get("requested", []))),
    )
    return _completed(numbers, by.get("unknown", []))


def _compared(text: str) -> Numbers | None:
    """Numbers of a comparison that is written out with signs."""
    if (match := _DIFFERENCE.search(text)) is not None:
        limit, prompt, output = (int(match[name]) for name in ("limit", "prompt", "output"))
        return Numbers(
            limit=limit, prompt=prompt, output=output, requested=prompt + output, prompt_named=True, labelled=True
        )
    if (match := _SUM.search(text)) is not None:
        prompt, output, limit = int(match["a"]), int(match["b"]), int(match["limit"])
        before = text[max(0, match.start() - 40) : match.start()]
        if _OUTPUT_LEFT.search(before) or _OUTPUT_FIRST.search(text):
            prompt, output = output, prompt
        return Numbers(
            limit=limit, prompt=prompt, output=output, requested=prompt + output, prompt_named=True, labelled=True
        )
    if (match := _RANGE.search(text)) is not None:
        return Numbers(limit=int(match["limit"] or match["upto"]))
    for pattern in (_GREATER, _LESS, _OUT_OF):
        match = pattern.search(text)
        if match is not None and _plausible(int(match["limit"])) and int(match["limit"]) <= int(match["prompt"]):
            return Numbers(limit=int(match["limit"]), prompt=int(match["prompt"]), labelled=True)
    return None


def _labelled(text: str) -> Iterator[tuple[Label, int, bool]]:
    """(label, value, whether it is a lower bound) of every plausible number, in order."""
    last = 0
    for match in _NUMBER.finditer(text):
        value = int(match["n"])
        left = text[max(last, match.start() - 90) : match.start("n")]
        right = text[match.end() : match.end() + 48]
        last = match.end()
        label = _label(left, right)
        if label is not None and (_plausible(value) or label in ("output", "over", "tools")):
            yield label, value, _AT_LEAST.search(left) is not None


def _label(left: str, right: str) -> Label | None:
    if _IGNORED_LEFT.search(left):
        return None
    if _OVER_LEFT.search(left) and not re.search(r"(?:max|limit|上限|最大)\w*$", left.rstrip(" :")):
        return "over" if "by" in left or right.lstrip().startswith("token") else "limit"
    if _GIVEN_RIGHT.match(right):
        return "prompt"
    for label, pattern in _RIGHT:
        if pattern.match(right):
            if label == "prompt" and _LIMIT_LEFT.search(left) and "at least" not in left:
                return "limit"  # "a maximum of 8192 input tokens", "at most 8192 tokens in the prompt"
            return label
    if _OUTPUT_LEFT.search(left):
        return "output"
    if _MEASURED_LEFT.search(left):
        return "prompt"
    if _LIMIT_LEFT.search(left):
        return "limit"
    if _REQUESTED_LEFT.search(left):
        return "requested"
    if _PROMPT_LEFT.search(left):
        return "prompt"
    return "unknown" if re.match(r"[ )]*-?(?:tokens?\b|个?\s?token)", right) else None


def _completed(numbers: Numbers, unknown: Sequence[int]) -> Numbers:
    """Fill what follows from the rest, and drop what contradicts a refusal."""
    limit, prompt, requested, output, over = (
        numbers.limit, numbers.prompt, numbers.requested, numbers.output, numbers.over,
    )  # fmt: skip
    spare = sorted({value for value in unknown if value not in (limit, prompt, requested, output)})
    asked = prompt if prompt is not None else requested
    if limit is None and asked is not None:
        limit = next((value for value in spare if value < asked), None)
    elif limit is not None and asked is None:
        prompt = next((value for value in reversed(spare) if value > limit), None)
    elif limit is None and len(spare) >= 2:
        limit, prompt = spare[0], spare[-1]
    if limit is not None and requested is not None and requested <= limit:
        requested = None
    if prompt is None and requested is not None and output is not None and output < requested:
        prompt = requested - output
    if requested is None and prompt is not None and output is not None:
        requested = prompt + output
    if output is None and requested is not None and prompt is not None and requested > prompt:
        output = requested - prompt
    return Numbers(
        limit=limit, prompt=prompt, requested=requested, output=output, over=over,
        prompt_at_least=numbers.prompt_at_least, prompt_named=numbers.prompt_named, labelled=numbers.labelled,
    )  # fmt: skip


def _plausible(value: int) -> bool:
    return SMALLEST <= value <= LARGEST


def _first(by: dict[Label, list[int]], label: Label) -> int | None:
    return by[label][0] if by.get(label) else None
