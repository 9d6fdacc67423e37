"""The file tools, ready to be given to an agent."""

from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

from langchain_core.tools import BaseTool

from refold.agent.tools.binding import ToolSpec, bind
from refold.agent.tools.finding import GlobArguments, GrepArguments, LsArguments, glob_gen, grep_gen, ls_gen
from refold.agent.tools.permissions import PROTECT_ARTIFACTS, Permissions
from refold.agent.tools.reading import ReadFileArguments, read_file_gen
from refold.agent.tools.writing import (
    DeleteArguments,
    EditFileArguments,
    WriteFileArguments,
    delete_gen,
    edit_file_gen,
    write_file_gen,
)
from refold.errors import ConfigurationError
from refold.files import Files

FILE_TOOLS: Final = ("ls", "read_file", "write_file", "edit_file", "glob", "grep", "delete")

PAGE_TOKENS: Final = 6_000
"""Most tokens of one `read_file` answer: a fifth of a 32k window."""


def file_tools(
    files: Files,
    *,
    names: Collection[str] = FILE_TOOLS,
    permissions: Permissions | None = None,
    page_tokens: int = PAGE_TOKENS,
    grep_seconds: float = 10.0,
) -> Sequence[BaseTool]:
    """The tools of those names over some files, each sync and async.

    `permissions` apply to every tool; the default allows everything but changing refold's artifacts
    (`PROTECT_ARTIFACTS`, which your own rules may repeat). `page_tokens` bounds one answer of `read_file`,
    `grep_seconds` one search. With `StateFiles`, the graph's state needs the `FilesState` channel. Raises
    `ConfigurationError` for an unknown name or a bound below 1.
    """
    unknown = sorted(set(names) - set(FILE_TOOLS))
    if unknown:
        raise ConfigurationError(f"no file tool is called {', '.join(unknown)}: choose from {', '.join(FILE_TOOLS)}")
    if page_tokens < 100 or grep_seconds <= 0:
        raise ConfigurationError(
            f"page_tokens={page_tokens} must be 100 or more, and grep_seconds={grep_seconds} above 0"
        )
    rules = Permissions(PROTECT_ARTIFACTS) if permissions is None else permissions
    reading = _reading_tools(files, rules, page_tokens=page_tokens, grep_seconds=grep_seconds)
    every = {tool.name: tool for tool in (*reading, *_writing_tools(files, rules))}
    return tuple(every[name] for name in FILE_TOOLS if name in names)


def _reading_tools(files: Files, rules: Permissions, *, page_tokens: int, grep_seconds: float) -> Sequence[BaseTool]:
    ls = ToolSpec(
        name="ls",
        description="List a folder: its folders (with a / at the end) and its files with their sizes.",
        arguments=LsArguments,
        program=partial(ls_gen, permissions=rules),
    )
    read_file = ToolSpec(
        name="read_file",
        description=(
            "Read a file as numbered lines, a page at a time; the last line says how to go on. "
            "Images, audio, video and PDF are shown to you."
        ),
        arguments=ReadFileArguments,
        program=partial(read_file_gen, permissions=rules, page_tokens=page_tokens),
    )
    glob = ToolSpec(
        name="glob",
        description="Find files by name: * within a name, ** across folders, {a,b} alternatives.",
        arguments=GlobArguments,
        program=partial(glob_gen, permissions=rules),
    )
    grep = ToolSpec(
        name="grep",
        description="Search the text of files, line by line; matches come with path and line number.",
        arguments=GrepArguments,
        program=partial(grep_gen, permissions=rules, seconds=grep_seconds),
    )
    return (bind(ls, files, rules), bind(read_file, files, rules), bind(glob, files, rules), bind(grep, files, rules))


def _writing_tools(files: Files, rules: Permissions) -> Sequence[BaseTool]:
    write_file = ToolSpec(
        name="write_file",
        description="Write a whole text file; folders are made. To change part of a file use edit_file.",
        arguments=WriteFileArguments,
        program=write_file_gen,
    )
    edit_file = ToolSpec(
        name="edit_file",
        description="Replace exact text in a file. Read the file first and copy old_string from it.",
        arguments=EditFileArguments,
        program=edit_file_gen,
    )
    delete = ToolSpec(
        name="delete",
        description="Delete a file, or a folder's files with recursive. This cannot be undone.",
        arguments=DeleteArguments,
        program=partial(delete_gen, permissions=rules),
    )
    return (bind(write_file, files, rules), bind(edit_file, files, rules), bind(delete, files, rules))
