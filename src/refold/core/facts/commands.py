"""Shell commands: from the arguments of shell-like tools, from fenced blocks, prompts and inline code.

A command is known by one line: white space squeezed, `cd DIR &&` in front taken off (the directory is a path of its
own), bodies of here-documents left out, at most `MAX_COMMAND` characters.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast

from refold.core.facts.prepare import squeeze
from refold.core.facts.words import words

MAX_COMMAND: Final = 300
"""Characters by which a longer command is known."""

_SHELL_WORDS: Final = words("bash shell sh zsh exec terminal command commands cmd powershell console")
_NAME_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_COMMAND_KEYS: Final = ("command", "cmd", "commands", "script", "command_line", "commandLine", "shell_command")
_FENCE: Final = re.compile(r"[ \t]{0,8}(`{3,40}|~{3,40})[ \t]{0,8}([A-Za-z]{0,20})")
_SHELLS: Final = frozenset({"sh", "bash", "shell", "zsh", "console", "fish", "powershell", "cmd", "terminal", "ps"})
_PROMPT: Final = re.compile(
    r"^[ \t]{0,8}(?:\([\w.\-]{1,40}\) ?)?(?:[\w.\-]{1,40}+@[\w.\-]{1,60}+[^\n$#]{0,80}+)?\$ ([^\n]{2,2000})",
    re.MULTILINE,
)
_INLINE: Final = re.compile(r"`([A-Za-z0-9_./\-]{2,40} [^`\n]{1,298})`")
_HEREDOC: Final = re.compile(r"<<-?\s*[\"']?([A-Za-z_][A-Za-z0-9_]*)[\"']?")
_CHANGE_DIRECTORY: Final = re.compile(r"^cd +(?:\"[^\"]*\"|'[^']*'|[^\s;&|]+) *(?:&&|;) *")
_SYNTAX: Final = words("fi done else then do esac { } ( ) ;; EOF PY")
_PROGRAMS: Final = words(
    """
    ansible apt apt-get aws awk az bash brew bun bundle cargo cat cd chmod chown clang cmake code composer conda cp curl
    deno diff docker docker-compose dotnet du echo env export fd find flake8 flask gcc gcloud gem gh git go
    golangci-lint     gradle grep head helm java javac jest jq
    just kill kubectl ln ls make mise mkdir mv mvn mypy mysql node npm npx nvm
    pdm pip pip3 pipx playwright pnpm poetry pre-commit psql pylint pytest python python3 rg rm rsync ruby ruff rustup
    scp sed sh sqlite3 ssh sudo systemctl tail tar terraform touch tox tree tsc uv uvicorn uvx vim vitest wget which
    yarn zsh
    """
)


def commands_in_call(name: str, args: Mapping[str, object] | str) -> Iterator[str]:
    """The commands of one tool call; none when neither the tool nor an argument says that it is a shell's."""
    if isinstance(args, str):
        if is_shell(name):
            yield from command_lines(args)
        return
    shell = is_shell(name)
    for key in _COMMAND_KEYS:
        value = args.get(key)
        if isinstance(value, str) and (shell or key not in {"script", "commands", "command"} or _starts_program(value)):
            yield from command_lines(value)
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes) and shell:
            yield from _from_sequence(cast("Sequence[object]", value))


def commands_in_text(text: str) -> Iterator[str]:
    """The commands that a prepared text shows as commands."""
    if "```" in text or "~~~" in text:
        for body in _shell_blocks(text):
            yield from command_lines(body)
    if "$ " in text:
        for match in _PROMPT.finditer(text):
            yield from command_lines(match[1])
    if "`" in text:
        for match in _INLINE.finditer(text):
            if _starts_program(match[1]):
                yield from command_lines(match[1])


def is_shell(tool: str) -> bool:
    """Whether a tool's name says that it runs shell commands."""
    return any(word.lower() in _SHELL_WORDS for word in _NAME_WORD.findall(tool[:200]))


def command_lines(script: str) -> Iterator[str]:
    """Each command of a script, in the form by which it is known."""
    ends: list[str] = []
    for line in _logical_lines(script):
        if ends:
            if line.strip() == ends[0]:
                ends.pop(0)
            continue
        ends = _HEREDOC.findall(line.split("\n", 1)[0][:2000])
        command = command_key(line)
        if len(command) > 1 and not command.startswith("#") and command not in _SYNTAX and not command.isdigit():
            yield command


def command_key(command: str) -> str:
    """The form by which a command is known."""
    first, _, rest = command.strip().partition("\n")
    line = squeeze(command if rest and len(command) <= MAX_COMMAND else first or command)
    while (match := _CHANGE_DIRECTORY.match(line)) is not None and match.end() < len(line):
        line = line[match.end() :]
    return line[:MAX_COMMAND].rstrip()


def _logical_lines(script: str) -> Iterator[str]:
    """Lines of a script, an open quotation mark or a continuation joining a line to the next."""
    held: list[str] = []
    quote = ""
    for line in script.splitlines():
        held.append(line)
        quote = _open_quote(line, quote)
        if not quote and not line.endswith("\\"):
            yield "\n".join(held)
            held = []
    if held:
        if quote and len(held) > 1:
            yield held[0]  # the quotation mark never closes: it was an apostrophe
            yield from held[1:]
        else:
            yield "\n".join(held)


def _open_quote(line: str, quote: str) -> str:
    escaped = False
    for char in line:
        if escaped:
            escaped = False
        elif char == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
    return quote


def _shell_blocks(text: str) -> Iterator[str]:
    """The bodies of closed fenced blocks in a shell language; one pass over the lines."""
    fence, language = "", ""
    body: list[str] = []
    for line in text.split("\n"):
        match = _FENCE.match(line)
        if not fence:
            if match is not None:
                fence, language, body = match[1], match[2].lower(), []
        elif match is not None and match[1].startswith(fence):
            if language in _SHELLS:
                yield "\n".join(body)
            fence = ""
        elif language in _SHELLS:
            body.append(_unprompt(line))


def _from_sequence(value: Sequence[object]) -> Iterator[str]:
    """A list is one argument vector (`["bash", "-lc", "make"]`), or a list of commands."""
    words = [item for item in value if isinstance(item, str)]
    if len(words) >= 3 and words[1] in {"-c", "-lc", "-ic", "/c", "-Command"}:
        yield from command_lines(words[2])
    elif words and " " not in words[0]:
        yield from command_lines(" ".join(words))
    else:
        for word in words:
            yield from command_lines(word)


def _unprompt(line: str) -> str:
    return re.sub(r"^\s{0,8}(?:\$|PS [^>\n]{0,80}>|>) ", "", line)


def _starts_program(command: str) -> bool:
    words = command.split(None, 1)
    return bool(words) and (words[0].rsplit("/", 1)[-1] in _PROGRAMS or words[0].startswith("./"))
