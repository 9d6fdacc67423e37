"""The vocabulary: what an overflow is made of, and what else speaks of tokens, lengths and limits.

Every pattern works on text as `normalise` leaves it: lower case, one kind of quotes and spaces, plain numbers,
simplified Chinese characters, no URLs. Gaps are bounded, so that the time is linear in the text, which is bounded too.
"""

import re
import unicodedata
from typing import Final

LONGEST: Final = 6_000
"""Characters of a text that are looked at: the first two thirds and the last third. A refusal may quote the prompt."""

_URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,12}://[^\s\"'<>)\]]+")
_UNICODE_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")
_TAG = re.compile(r"</?[a-z!][^<>]{0,200}>")
_SEPARATED = re.compile(
    r"(?<![a-z0-9_.,'-])\d{1,3}(?:([,._' \u00a0\u202f\u2009])\d{3})(?:\1\d{3})*(?![a-z0-9_]"
    r"|[.,]\d)"
)
_SCALED = re.compile(r"(?<![a-z0-9_.-])(\d{1,6}(?:\.\d{1,3})?) ?(k|m|万)(?:ilo|illion)?(?![a-z0-9])")
_SCALE: Final = {"k": 1_000, "m": 1_000_000, "万": 10_000}
_PLAIN_QUOTES = str.maketrans(
    {"‘": "'", "’": "'", "“": '"', "”": '"', "`": "'", "´": "'", "\u00a0": " ", "\u202f": " ", "\u2009": " "}
)
_SIMPLIFIED = str.maketrans(
    "過長輸數請縮對話訊於減內詞視圖檔頻額餘認證時輪",
    "过长输数请缩对话讯于减内词视图档频额余认证时轮",
)
_STATUS_NUMBERS = re.compile(
    r"<[1-5]\d\d>|^\W*[1-5]\d\d\b(?! ?tokens?)|\b[45]\d\d (?:client |server )?error|\berror [45]\d\d\b"
    r"|\(2013\)"  # MiniMax ends its texts with its own code, in brackets like a limit
    r"|\b(?:error|status|http|response|api)?[ _-]*(?:status[ _-]*code|error[ _-]*code|errorcode|code|status"
    r"|http(?:/\d)?)"
    r"['\"]?\s*[:=(]?\s*['\"]?\(?[1-9]\d{2,4}\b(?!\s*tokens?)"
)


def normalise(text: str) -> str:
    """A text in the form that the patterns expect: bounded, lower case, numbers as plain digits.

    `128k` becomes 128000: where a provider means 131072, the smaller reading is the safe one.
    """
    if len(text) > LONGEST:
        text = text[: LONGEST * 2 // 3] + "\n" + text[-LONGEST // 3 :]
    text = _UNICODE_ESCAPE.sub(_unescaped, text.replace('\\"', '"').replace("\\n", "\n").replace("\\'", "'"))
    text = unicodedata.normalize("NFKC", text).lower().translate(_PLAIN_QUOTES).translate(_SIMPLIFIED)
    text = _TAG.sub(" ", _URL.sub(" ", text))
    text = _SEPARATED.sub(lambda match: re.sub(r"\D", "", match[0]), text)
    return _SCALED.sub(_scaled, text)


def without_statuses(text: str) -> str:
    """The text without status and error codes, which are numbers too."""
    return _STATUS_NUMBERS.sub(" ", text)


def _unescaped(match: re.Match[str]) -> str:
    point = int(match[1], 16)
    return " " if 0xD800 <= point <= 0xDFFF else chr(point)


def _scaled(match: re.Match[str]) -> str:
    return str(int(float(match[1]) * _SCALE[match[2]]))


def _any(*parts: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{part})" for part in parts))


# --- what an overflow is made of ------------------------------------------------------------------------------------

_CONTEXT = (
    r"context[ _-]?(?:length|window|size|limit|capacity|budget|len)|(?:n_ctx|max_ctx|num_ctx|ctx[ _-]?(?:size|len))\w*"
    r"|max[ _]?(?:model|seq|sequence|context|prompt|input)[ _]?len(?:gth)?|max[ _]position[ _]embeddings"
    r"|max(?:imum)? (?:allowed |supported )?(?:model |sequence |prompt |input |context |total )(?:length|size"
    r"|context|window)"
    r"|(?:model|slot|endpoint|server)(?:'s)? (?:max(?:imum)? )?(?:input |prompt |token |sequence )?(?:length"
    r"|context|limit|window)"
    r"|(?:model|input|prompt|context) token limit|(?:maximum|max) (?:number of )?(?:input |prompt |context )?tokens"
    r"|上下文(?:窗口|长度|大小|限制)?|コンテキスト(?:長|ウィンドウ|サイズ|ウインドウ)?|컨텍스트\s?(?:길이|창|윈도우|크기)?"
    r"|\d+[ -]tokens? (?:context|window|limit)"
    r"|longueur (?:maximale )?d[ue] contexte|(?:longitud|largo) (?:m[áa]xim[ao] )?del? contexto"
    r"|(?:comprimento|tamanho) (?:m[áa]ximo )?d[eo] contexto"
    r"|fen[êe]tre de contexte|ventana de contexto|janela de contexto|kontext(?:fenster|länge|größe)|контекст\w*"
)
_BEYOND = (
    r"exceed\w*|overflow\w*|longer|larger|greater|bigger|more than|too (?:long|large|big|many|much|small|lengthy)"
    r"|beyond|surpass\w*|outgr\w+|over (?:the|its|our|your) |(?:does|do|did|would|will|can)(?: not|n't|not) fit"
    r"|out of (?:room|space)"
    r"|(?:is|was) full\b|exhaust\w*"
    r"|insufficient|not enough|above (?:the|its|our|your)|shift is disabled"
    r"|超|过长|太长|过大|大于|長すぎ|超え|超過|초과|넘|너무 길"
    r"|d[ée]pass\w*|exced\w*|supera\w*|ultrapass\w*|überschr\w*|zu lang|zu groß|превы\w*|слишком (?:длин|больш)\w*"
)
_SHORTEN = r"(?:reduc\w+|shorten\w*|decreas\w+|trim\w*|truncat\w+|compress\w*|compact\w*|cut(?:ting)?|lower|shrink)"

CODES: Final = _any(
    r"context_(?:length_|window_|size_|limit_|tokens_)?(?:exceeded|overflow|too_(?:long|large))(?:_error)?\b",
    r"context[ -](?:length|window|size|limit)[ _-](?:exceeded|overflow)|\bcontext overflow\b"
    r"|max_prompt_tokens_exceeded",
    r"exceed(?:s|ed)?[ _-]context[ _-](?:size|length|window|limit)(?:_error)?\b",
    r"context(?:length|window|size|limit)?(?:exceeded|overflow)(?:error)?\b",
    r"\b(?:prompt|input)[_-]?too[_-]?long\b",
    r"\binput_length_exceeded\b|\bmax_context_length\b|\btokens_limit_reached\b",
    r"\bcontent_length_exceeds_threshold\b",
)
"""Error codes and class names that mean nothing else."""

CONTEXT: Final = _any(
    rf"(?:{_CONTEXT})[^\n]{{0,100}}?(?:{_BEYOND})",
    rf"(?:{_BEYOND})[^\n]{{0,80}}?(?:{_CONTEXT})",
    r"max(?:imum)? context (?:length|window|size)[^\n\d]{0,24}\d",
    r"(?:supports?|limited to|accepts?|allows?)[^\n\d]{0,12}(?:only|up to"
    r"|at most)[^\n\d]{0,8}\d+ ?(?:tokens? )?(?:of )?context",
)
"""A model's context named, and something that goes beyond it."""

WINDOW: Final = _any(_CONTEXT)
"""A model's context named."""

COUNTED: Final = _any(r"\btokens?\b")

CHARACTERS: Final = _any(r"\bchar(?:acter)?s?\b|maxlength|字符|文字|글자")
"""Counts that are not tokens."""

TOKENS: Final = _any(
    r"too many (?:input |prompt |total |context |request |message )?tokens",
    r"tokens? (?:in (?:the |your )?(?:request|prompt|input|messages?) )?(?:is |are )?more than (?:the )?max",
    r"(?:input|prompt|context|model|total|request|message)[ _]?tokens?(?: count| length| number)?[^\n]{0,60}?"
    r"(?:exceed\w*|over the|larger than|greater than|more than|above the|longer than)",
    r"(?:exceed\w*|over|above|larger than|greater than|more than)[^\n]{0,60}?(?:max\w*|limit|allowed"
    r"|number of)[^\n]{0,24}?"
    r"(?:input |prompt |message |context |total )?tokens?\b",
    r"tokens?(?: count)?(?: \(?\d+\)?)? (?:exceed\w*|is over|surpass\w*) (?:the |its |model|max|limit|context"
    r"|allowed)",
    r"\btoken limit (?:was |has been |is )?(?:exceeded|reached|hit)",
    r"(?:exceed\w*|over|reached|hit) (?:the |this |your )?(?:model(?:'s)? |maximum |max |input |prompt "
    r"|context )*token limit",
    r"total tokens[^\n]{0,40}?exceed",
    r"tokens?(?: count)? (?:is |of )?\(?\d+\)?[^\n]{0,12}? but [^\n\d]{0,24}?"
    r"(?:only )?(?:supports?|accepts?|allows?|takes?)\b",
    r"トークン数?[^\n]{0,20}(?:超|上限)|토큰[^\n]{0,20}(?:초과|넘)|(?:токен\w*)[^\n]{0,30}превы\w*",
)
"""A count of tokens that is over something."""

_FIELD = (
    r"(?!(?:[\w'\"]+ ){0,3}?(?:name|id|ids|key|header|headers|url|uri|description|schema|title|label|image|file"
    r"|audio|video|cookie)\b)"
)
PROMPT: Final = _any(
    rf"\b(?:prompts?|inputs?|conversation|messages|chat history|history|context|request)\b {_FIELD}"
    r"(?:(?:text|length|size|sequence|tokens?) ){0,3}(?:\([^()\n]{1,40}\) )?(?:is|are|was|were|has become|got"
    r"|length is|\()?\s?"
    r"(?:far |much |way )?(?:too (?:long|lengthy)|longer than|over-?long)",
    rf"\b(?:prompts?|inputs?|conversation|messages|history|context)\b {_FIELD}[^\n.]{{0,30}}?too (?:large|big)\b",
    r"\b(?:prompts?|inputs?|messages|conversation)\b(?: token| text)?(?: length| size"
    r"| count)?(?: of)?(?: ?\(?\d+ ?(?:tokens?)?\)?)?"
    r" (?:exceed\w*|is over|surpass\w*|is longer than|is larger than|is greater than)"
    r" (?:the |its |this |our |a |your )?(?:model|max|limit|length|allowed|configured|available|supported|permitted"
    r"|size|token)",
    r"exceed\w*[^\n]{0,40}?max(?:imum)? (?:allowed |supported )?(?:input|prompt) (?:length|size)",
    r"(?:range|value) of input length (?:should|must)|input length (?:should|must) be|inputs?'? (?:must"
    r"|should) have less than \d+ tokens",
    r"(?:inputs?|prompt)'?(?: tokens?)? ?(?:\+|and|plus) ?'?max_(?:new_|output_|completion_)?tokens'? (?:must"
    r"|should|cannot|can not|exceed)",
    r"(?:reached|exceeded|over) (?:its |the )?conversation (?:length )?limit|conversation length exceeded"
    r"|\btext (?:is )?too long for|length of tokens in the request is too long",
    r"tokens? to keep from the initial prompt|expected maxlength: \d+, actual: \d+",
    r"入力[^\n]{0,20}長すぎ|プロンプト[^\n]{0,20}長すぎ|(?:입력|프롬프트)[^\n]{0,20}(?:너무 길|너무 깁|초과)",
    r"(?:prompt|eingabe|entrada|entrée|invite|запрос|промпт)\w*[^\n]{0,30}?(?:zu lang|trop longu?e?|demasiado larg"
    r"|muito long|слишком длин)",
)
"""A prompt, an input, a conversation that is too long."""

ADVICE: Final = _any(
    rf"{_SHORTEN}\b[^\n.]{{0,30}}?(?:length|size|number|amount)[^\n.]{{0,16}}?\b(?:messages?|prompts?|inputs?"
    rf"|conversation|context|history)",
    rf"{_SHORTEN} (?:the |your )?(?:prompt|input|messages|conversation|context|history)\b",
    r"(?:use|using|try|send|provide) (?:a )?(?:shorter|smaller) (?:prompt|input|context|conversation|message)",
    r"start (?:a )?new (?:chat|conversation|session)",
    r"请(?:缩短|减少|精简|压缩|截断|删减)[^\n。]{0,12}(?:输入|提示|消息|上下文|对话|内容|长度|历史)",
)
"""What to do about it, where a server says nothing else."""

CHINESE: Final = _any(
    r"(?:上下文|输入|请求|提示词?|prompt|消息|讯息|对话|会话|tokens?|问题|历史记录|历史)[^\n。;]{0,30}?"
    r"(?:超(?:过|出|长|限)|溢出|过长|太长|过大|太大|过多|太多|大于)",
    r"(?:内容|文本|字数)[^\n。;]{0,10}?(?:过长|太长|超长)",
    r"(?:超(?:过|出)了?|大于)[^\n。;]{0,20}?(?:模型|上下文|输入|tokens?|prompt)[^\n。;]{0,12}?(?:长度|限制|上限|窗口|数|范围|最大)",
    r"(?:长度|token\s?数量?)[^\n。;]{0,10}?超(?:过|出)了?[^\n。;]{0,10}?(?:最大|模型|限制|上限)",
)

# --- a body that is too large -----------------------------------------------------------------------------------------

BODY: Final = _any(
    r"(?:request|payload|content|entity|body|http)[ _-]?(?:body |entity |payload |size |content |length )*(?:is "
    r"|was |size )*"
    r"(?:too[ _-]?large|too big)(?!\w)",
    r"(?:request|payload|body)(?: (?:body|payload|entity|content))? size (?:has )?exceed|(?:payload"
    r"|body) (?:has )?exceed"
    r"|(?:request|payload|body)(?: body| size)? (?:is |was )?(?:larger|bigger|greater) than"
    r"|request (?:has )?exceed\w* (?:the |our )?(?:max(?:imum)? )?(?:allowed )?(?:size|body)|total text bytes",
    r"(?:max(?:imum)?|limit)[^\n]{0,24}?(?:request|payload|body|content)(?: body)? (?:size|length|limit"
    r"|bytes)[^\n]{0,40}?(?:exceed\w*|\d+)",
    r"exceed\w*[^\n]{0,40}?(?:max(?:imum)?|limit)[^\n]{0,24}?(?:bytes to )?(?:request|payload) (?:body|size)",
    r"(?:request_too_large|payload_too_large|content_too_large|request_entity_too_large|entitytoolarge"
    r"|payloadtoolargeerror)",
    r"(?:send|received?|sent) (?:a )?message larger than max \(?\d",
    r"'body' failed to satisfy constraint: member must have length less than",
    r"请求(?:体|正文|内容|大小)[^\n。]{0,12}(?:过大|超(?:过|出|限))",
)
"""The request as bytes, not as tokens."""

PART: Final = _any(
    r"\b(?:image|audio|video|pdf|file|document|attachment|media)(?:_\w+)? (?:payload|body|content|size)",
)
"""The size of one part of a request."""

TOO_LARGE_STATUS: Final = re.compile(
    r"^\W*413\b|\b(?:error|status|http|code)\W{0,4}(?:code\W{0,3})?413\b|\b413 (?:request|payload|content|status)"
)

# --- what else speaks of tokens, lengths and limits -------------------------------------------------------------------

RATE: Final = _any(
    r"rate[ _-]?limit|too many requests|throttl|\b[trio]+p[mdhs]\b|per[ -](?:second|minute|min|hour|day|week|month)\b",
    r"(?:tokens?|requests?)[ _/](?:per[ _])?(?:min(?:ute)?|hour|day|sec(?:ond)?)\b",
    r"\b(?:daily|hourly|weekly|monthly|per-minute)\b|\bquotas?\b|insufficient_quota|\bbilling\b|\bcredits?\b"
    r"|can(?:not| only)? afford",
    r"(?:try|retry) again (?:in|after) \w+|retry[ -]after|\bwait (?:before|for|a )|slow down|usage limit"
    r"|spend(?:ing)? limit"
    r"|\bper-(?:model|user|key|project|organi[sz]ation)\b|\b(?:this|each|every) (?:minute|hour|day|month)\b|\btoday\b"
    r"|budget has been|overloaded|\bcapacity constraints\b",
    r"限流|限速|频率|速率|并发|每(?:分钟|秒|天|日|小时|月)|今[日天]|[当本][日月]|用量|配额|额度|余额|欠费"
    r"|请稍后(?:再试|重试)",
    r"(?:レート|利用)制限|요청 한도",
)
"""How much in how long a time, or for how much money."""

AUTH: Final = _any(
    r"(?:access|bearer|auth\w*|refresh|session|csrf|jwt|oauth|security|identity|api|id|sso|saml|device"
    r"|personal)[ _-]?tokens?\b",
    r"\btokens?\b[^\n.,;:\"{}]{0,24}?\b(?:expired|invalid|revoked|malformed|missing|not valid|unauthori[sz]ed)\b",
    r"\b(?:invalid|expired|missing|revoked) (?:\w+ )?tokens?\b",
    r"api[ _-]?key|authenticat|authori[sz]ation|unauthori[sz]ed|forbidden|permission|\bjwt\b|credential"
    r"|鉴权|认证|令牌|密钥",
)
TIME: Final = _any(
    r"time[ds]?[ -]?out|deadline|etimedout|connection (?:reset|refused|aborted|error|closed)|超时|タイムアウト"
)
POLICY: Final = _any(
    r"content[ _-]?(?:policy|filter|management|moderation)|safety (?:system|filter|setting)|moderation|usage polic"
    r"|flagged|jailbreak"
    r"|responsible ai|敏感|违规|安全审核"
)
FIELD: Final = _any(
    r"(?:string|array|object|property)_(?:above|below|too)_|_above_max_length|string_too_long"
    r"|too_long\b.{0,40}\bcharacters",
    r"\b(?:string|array|list|field|value|name|header|headers|uri|url|filename|file name|argument list|metadata"
    r"|description|title|label|path"
    r"|pattern|key|query string|cookie|stop sequences?|tool_call_id|identifier|password|hostname|line)\b"
    r"[^\n]{0,40}?(?:too (?:long|large)|exceed\w*|longer than|at most \d+ char|max(?:imum)? (?:length|of \d+ char))",
    r"expected (?:a|an) (?:string|array)[^\n]{0,24}?max(?:imum)? length|should have at most \d+ (?:items"
    r"|characters)|errno \d+",
    r"too small[^\n]{0,24}minimum",
    r"request header|header fields|\btoo many (?:tools|functions|images|messages|files|documents|stop)|recursion",
    r"字段|参数名|文件名|标题",
)
MEDIA: Final = _any(
    r"\b(?:images?|pictures?|photos?|screenshots?|audios?|videos?|pdfs?|pages?|files?|attachments?|documents?|media"
    r"|uploads?|data-uri)\b"
    r"[^\n]{0,60}?(?:exceed\w*|too (?:large|big|long|many)|larger than|maximum|limit|dimension)",
    r"(?:exceed\w*|too (?:large|big|long|many)|larger than|maximum|max)[^\n]{0,40}?"
    r"\b(?:images?|pictures?|photos?|screenshots?|audios?|videos?|pdfs?|pages?|files?|attachments?|documents?|media"
    r"|data-uri)\b",
    r"\bpixels?\b|图片|图像|视频|音频|文件(?:大小|过大)|附件",
)
_CAP = r"max_(?:new_|output_|completion_|gen_)?tokens(?:_to_sample)?|maxoutputtokens|max_length|num_predict|maxtokens"
OUTPUT_CAP: Final = _any(
    rf"(?:{_CAP})'?\"?[^;\n]{{0,80}}?(?:must|should|cannot|can not|may not|needs to|at most|less than|<|>|maximum"
    rf"|above|exceed\w*"
    r"|too (?:large|big|high)|out of range|range|invalid|between|\[|不能|超|大于|范围|必须)",
    rf"(?:range|value)s? (?:of|for) '?(?:{_CAP})|(?:invalid|unsupported) (?:value (?:for|of) )?'?(?:{_CAP})",
    r"at most \d+ (?:completion|output|new|generated|generation)",
    r"(?:max(?:imum)?|allowed|requested|desired)[^\n.;]{0,30}?\b(?:output|completion|generated|generation|response"
    r"|new)[ _]?(?:tokens?|length|limit)",
    r"\b(?:output|completion|generation|response)(?: token)?s? (?:limit|cap|length"
    r"|tokens?)[^\n.]{0,40}?(?:exceed\w*|reached|hit|greater|larger|above)",
    r"maximum tokens you requested exceeds|length limit was reached|higher max_tokens|输出(?:长度|token)",
)
"""A cap on the answer. It is overflow only where the text also counts the prompt."""

BOTH: Final = _any(
    rf"(?:inputs?|prompt|messages?)\b[^\n.;]{{0,40}}?(?:\+|and|plus)[^\n.;]{{0,12}}?(?:{_CAP}|output"
    rf"|completion)[^\n]{{0,60}}?"
    r"(?:exceed\w*|must|cannot|>|larger|greater|context)",
    rf"(?:{_CAP}|output|completion)\b[^\n.;]{{0,40}}?(?:\+|and|plus)[^\n.;]{{0,12}}?(?:inputs?|prompt"
    rf"|messages?)\b[^\n]{{0,60}}?"
    r"(?:exceed\w*|must|cannot|>|larger|greater|context)",
    rf"(?:{_CAP})[^\n;.]{{0,60}}?(?:max_model_len|context (?:length|window|size|limit)|上下文)",
    r"(?:including|plus|and) (?:the |its |your )?(?:completion|output|response)",
)
"""Prompt and output counted together."""

NEGATIVE_OUTPUT: Final = re.compile(
    rf"(?:{_CAP})'?\"?[^\n]{{0,40}}?must be (?:at least|greater than"
    rf"|>=?) ?[01][^\n\d-]{{0,16}}(-\d+)"
)
"""vLLM's own arithmetic gone below zero: the prompt alone is that much over."""

POSSIBLE: Final = _any(
    r"no generation chunks were returned",
    r"\b(?:400|413|500) (?:status code )?\(no body\)",
    r"improperly formed request",
)
"""Refusals that say nothing: an overflow only where the caller already believes that the request was too long."""
