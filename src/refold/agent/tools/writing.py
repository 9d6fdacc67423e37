"""`write_file`, `edit_file` and `delete`.

An edit works on the text as the model saw it, and stores exactly the bytes that it means: a file with CRLF line ends
keeps them though the model writes `\\n` (fault 106), bytes that are no UTF-8 stay as they are, and a file that somebody
else changes at the same time is edited again from what it holds by then, never overwritten.
"""

import re
from typing import Final, Literal

from pydantic import BaseModel, Field

from refold.agent.tools.permissions import Permissions, Permit
from refold.agent.tools.words import model_folder, model_path, times
from refold.core.effects import ReadFile, WriteFile
from refold.core.program import Program
from refold.errors import ConfigurationError, FileConflictError, FileMissingError, PermissionRefusedError
from refold.files import DeleteFile, ListFiles, StatFile, SwapFile

ATTEMPTS: Final = 50
"""How often an edit is made again because somebody else changed the file: each round, one of the writers wins."""

_MOST_LINES_NAMED = 8


class WriteFileArguments(BaseModel):
    """Arguments of `write_file`."""

    path: str = Field(description="Absolute path, e.g. /notes/plan.md")
    content: str = Field(description="The whole text")
    mode: Literal["replace", "create", "append"] = Field(
        default="replace", description="create: refuse if it exists; append: add at the end"
    )


class EditFileArguments(BaseModel):
    """Arguments of `edit_file`."""

    path: str = Field(description="Absolute path")
    old_string: str = Field(description="Exact text to replace, without line numbers; unique unless replace_all")
    new_string: str = Field(description="Text to put in its place")
    replace_all: bool = Field(default=False, description="Replace every occurrence")


class DeleteArguments(BaseModel):
    """Arguments of `delete`."""

    path: str = Field(description="Absolute path")
    recursive: bool = Field(default=False, description="Delete every file in a folder")


def write_file_gen(arguments: WriteFileArguments) -> Program[str]:
    """Store text; one line that says what happened."""
    path = model_path(arguments.path)
    yield from Permit(operations=("write",), paths=(path,))
    data = arguments.content.encode("utf-8", "replace")
    before = yield from StatFile(path=path)
    yield from WriteFile(path=path, data=data, mode=arguments.mode)
    match arguments.mode, before:
        case "append", _:
            return f"Appended {times(len(data), 'byte')} to {path}."
        case _, None:
            return f"Created {path} ({times(len(data), 'byte')})."
        case "create", _:
            return f"{path} holds exactly this already."
        case _, there:
            return f"Replaced {path} ({times(len(data), 'byte')}, before {there.size})."


def edit_file_gen(arguments: EditFileArguments) -> Program[str]:
    """Replace exact text; one line that says where."""
    path = model_path(arguments.path)
    yield from Permit(operations=("read", "write"), paths=(path,))
    if not arguments.old_string:
        raise ConfigurationError("old_string is empty: to make or replace a whole file use write_file")
    if arguments.old_string == arguments.new_string:
        raise ConfigurationError("old_string and new_string are the same: nothing would change")
    for _ in range(ATTEMPTS):
        old = yield from ReadFile(path=path)
        new, lines = _edited(path, old, arguments)
        try:
            yield from SwapFile(path=path, old=old, new=new)
        except FileConflictError:
            continue  # somebody else changed it: the edit is made again on what it holds now
        return f"Edited {path}: {_where(lines)}."
    raise FileConflictError(f"{path} is being changed by others all the time: try again later")


def delete_gen(arguments: DeleteArguments, permissions: Permissions) -> Program[str]:
    """Remove a file, or all files of a folder; everything is permitted before anything is removed.

    What may be neither deleted nor seen is not told of: a path that is closed is refused before it is looked at, and a
    folder is as if nothing closed were in it, but for the refusal of all of it, which names nothing.
    """
    path = model_folder(arguments.path)
    if path != "/" and permissions.decide("delete", path) == "deny":
        yield from Permit(operations=("delete",), paths=(path,))
    listed = yield from ListFiles(folder=path)
    found = [
        info for info in listed if permissions.shows(info.path) or permissions.decide("delete", info.path) != "deny"
    ]
    if not found:
        raise FileMissingError(f"nothing is stored at or below {path}")
    is_file = [info.path for info in found] == [path]
    if not is_file and not arguments.recursive:
        raise FileConflictError(
            f"{path} is a folder with {times(len(found), 'file')}: name one of them, or set recursive to true"
        )
    if len(found) < len(listed):
        raise PermissionRefusedError(f"the rules of this agent do not let you delete all of {path}: name files in it")
    yield from Permit(operations=("delete",), paths=tuple(info.path for info in found))
    for info in found:
        yield from DeleteFile(path=info.path)
    return f"Deleted {path}." if is_file else f"Deleted {times(len(found), 'file')} in {path}."


def _edited(path: str, data: bytes, arguments: EditFileArguments) -> tuple[bytes, list[int]]:
    """The new content, and the lines that the replaced text began at."""
    # surrogateescape: bytes that are no UTF-8 come out as they went in
    text = data.decode("utf-8", "surrogateescape")
    old, new = arguments.old_string, arguments.new_string
    crlf = text.count("\r\n")
    if crlf and (old not in text or crlf == text.count("\n")):  # lines that are added to CRLF end as all others do
        old, new = _crlf(old), _crlf(new)
    starts = [match.start() for match in re.finditer(re.escape(old), text)]
    if not starts:
        raise FileMissingError(_not_found(path, text, arguments.old_string))
    lines = _lines_of(text, starts)
    if len(starts) > 1 and not arguments.replace_all:
        raise FileConflictError(
            f"old_string stands {len(starts)} times in {path} ({_where(lines)}): add text around it until it is "
            "unique, or set replace_all"
        )
    return text.replace(old, new).encode("utf-8", "surrogateescape"), lines


def _crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _not_found(path: str, text: str, old: str) -> str:
    """Why an exact text is not there: most often only its spaces differ."""
    first = next((line.strip() for line in old.splitlines() if line.strip()), "")
    near = [number for number, line in enumerate(text.splitlines(), 1) if first and first in line]
    if near:
        return (
            f"old_string is not in {path} exactly as given; its first line is like {_where(near)}: "
            "read those lines and copy them with their spaces, without line numbers"
        )
    return f"old_string is not in {path}: read the file and copy the text exactly"


def _lines_of(text: str, starts: list[int]) -> list[int]:
    lines, number, at = [], 1, 0
    for start in starts:
        number += text.count("\n", at, start)
        at = start
        lines.append(number)
    return lines


def _where(lines: list[int]) -> str:
    shown = ", ".join(str(line) for line in lines[:_MOST_LINES_NAMED])
    more = f" and {len(lines) - _MOST_LINES_NAMED} more" if len(lines) > _MOST_LINES_NAMED else ""
    return f"{'line' if len(lines) == 1 else 'lines'} {shown}{more}"
