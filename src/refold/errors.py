"""Every error that refold raises, in one tree.

    RefoldError                      base; `exit_code` is what the command line returns
    ├── ConfigurationError           a policy, limit or option that cannot work (also a ValueError)
    ├── ContextOverflowError         the window cannot fit; subclass of LangChain's own type, carries the numbers
    ├── InvalidWindowError           a window breaks a provider's structural rules
    ├── SummaryError                 the summariser gave nothing usable
    ├── FoldVetoedError              a `before_fold` hook refused a fold that the request cannot do without
    ├── SessionFormatError           a recorded session that no importer recognises
    ├── RunFailedError               a run of the command line's agent that its model or a tool broke off
    ├── ReplayMismatchError          a replay that did not reproduce the recorded log
    ├── FilesError                   storage of artifacts
    │   ├── PathError                a path that is refused (traversal, NUL, reserved, too long; also a ValueError)
    │   ├── FileMissingError         nothing is stored there (also a FileNotFoundError)
    │   ├── FileConflictError        something else is stored there already (also a FileExistsError)
    │   ├── PermissionRefusedError   a rule or a human does not allow this to the agent's tools (also a PermissionError)
    │   ├── IntegrityError           what was read back is not what was written
    │   └── FilesUnavailableError    the storage itself failed
    └── CheckpointError              the savers
        ├── HeadMovedError           another writer extended the thread first
        ├── SchemaVersionError       the database was written by a newer refold
        ├── CorruptionError          a stored value does not match its hash
        ├── DatabaseUnavailableError locked, full, read-only, lost or timed out
        └── MigrationError           what was migrated does not read back as it was

A driver's own error is always the `__cause__`. Messages say what to do next.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from langchain_core.exceptions import ContextOverflowError as LangChainContextOverflowError


class RefoldError(Exception):
    """Base of every error that refold raises itself."""

    exit_code: ClassVar[int] = 1


class ConfigurationError(RefoldError, ValueError):
    """A setting that cannot work. The message names the setting, its value and a value that would do."""

    exit_code = 2


@dataclass(frozen=True, kw_only=True)
class LargestMessage:
    """One of the largest messages of a window that does not fit."""

    message_id: str
    type: str
    tokens: int


class ContextOverflowError(RefoldError, LangChainContextOverflowError):
    """The request cannot be made to fit the model's input limit.

    Attributes (tokens): `limit` of the model's input, `reserved` for output, `system` prompt, `tools` schemas,
    `messages` of the smallest window that could be made, `largest` its largest messages, biggest first.
    """

    exit_code = 3

    def __init__(
        self,
        reason: str,
        *,
        limit: int,
        reserved: int,
        system: int,
        tools: int,
        messages: int,
        largest: Sequence[LargestMessage] = (),
    ) -> None:
        self.limit = limit
        self.reserved = reserved
        self.system = system
        self.tools = tools
        self.messages = messages
        self.largest = tuple(largest)
        biggest = ", ".join(f"{m.type} {m.message_id} {m.tokens}" for m in self.largest)
        super().__init__(
            f"{reason} (tokens: limit {limit}, reserved for output {reserved}, system prompt {system}, "
            f"tool schemas {tools}, messages {messages}{'; largest: ' + biggest if biggest else ''})"
        )


class InvalidWindowError(RefoldError):
    """A window breaks the structural rules of the provider that it is meant for."""

    exit_code = 4


class SummaryError(RefoldError):
    """The summariser returned nothing that can stand for the span, after every retry."""


class FoldVetoedError(RefoldError):
    """A `before_fold` hook refused folds without which the request does not fit."""


class SessionFormatError(RefoldError):
    """A file is no recorded session of a known format."""

    exit_code = 2


class ReplayMismatchError(RefoldError):
    """A replayed agent did something else than the recorded one; the message says where."""

    exit_code = 7


class RunFailedError(RefoldError):
    """A model or a tool failed in a run of `refold run`; the thread is kept, and the message says how to go on."""

    exit_code = 9


class FilesError(RefoldError):
    """Base of the errors of `Files` implementations."""


class PathError(FilesError, ValueError):
    """A path that no `Files` accepts."""


class FileMissingError(FilesError, FileNotFoundError):
    """Nothing is stored under the path."""


class FileConflictError(FilesError, FileExistsError):
    """The path holds something else; a create never overwrites."""


class IntegrityError(FilesError):
    """What was read back is not what was written."""


class PermissionRefusedError(FilesError, PermissionError):
    """A rule, or a human who was asked, does not let the agent's tools do this to a path."""


class FilesUnavailableError(FilesError):
    """The storage refused or failed; nothing was changed in the window because of it."""


class CheckpointError(RefoldError):
    """Base of the errors of the savers."""

    exit_code = 5


class HeadMovedError(CheckpointError):
    """Another writer extended the thread since it was read. Read the head again, then decide.

    `expected` is the checkpoint id that the writer built on, `found` the head that it met.
    """

    def __init__(self, thread_id: str, *, expected: str | None, found: str | None) -> None:
        self.thread_id = thread_id
        self.expected = expected
        self.found = found
        super().__init__(
            f"thread {thread_id!r} moved on: built on checkpoint {expected}, but its head is {found}; "
            "read the thread again and repeat the step, or open the saver with exclusive=False to fork"
        )


class SchemaVersionError(CheckpointError):
    """The database is of a newer format than this refold reads; nothing was touched. Upgrade refold."""


class CorruptionError(CheckpointError):
    """A stored value does not match its hash or cannot be decoded."""


class DatabaseUnavailableError(CheckpointError):
    """The database is locked, full, read-only, lost or timed out; the message says which and what to do."""


class MigrationError(CheckpointError):
    """Checkpoints that a migration copied do not read back as the source has them. The source was not changed."""
