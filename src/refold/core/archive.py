"""Storing originals, as programs: what leaves the window is stored and read back first.

The archive of a span holds every message of it, whole. A segment that tells older ones anew stands for messages that
were archived with those: its file names their files instead of holding them again, else archives would cost the square
of a thread. That list must not grow with the thread either: over `_MOST` files of a level, the older ones move into a
list of their own, a level up, so that any message is a few files away.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from langchain_core.messages import BaseMessage

from refold.core.artifacts import Artifact, history_path, media_artifact, text_artifact
from refold.core.blocks import blocks_of
from refold.core.canonical import digest_of
from refold.core.effects import ReadFile, WriteFile
from refold.core.history import Earlier, parse_contents, render_history
from refold.core.log import Log
from refold.core.program import Program
from refold.core.window import Segment
from refold.errors import FilesError, IntegrityError

_MOST: Final = 32
_GROUP: Final = 24


@dataclass(frozen=True, kw_only=True, slots=True)
class Archive:
    """What to archive: the log messages `[start, stop)`, and the segments among them that a new one tells anew.

    `beside` are messages that stay in the window, but lose something with the span (reasoning bound to it).
    """

    thread: str
    sequence: int
    digest: str
    log: Log
    start: int
    stop: int
    retold: Sequence[Segment] = ()
    beside: Sequence[BaseMessage] = ()


def archive_gen(job: Archive) -> Program[str]:
    """Store every message of a span, whole, with its inline media. Returns the path where reading begins.

    Raises `FilesError` where something could not be stored, or does not read back as it was written.
    """
    messages: list[BaseMessage] = []
    earlier: list[Earlier] = []
    at = job.start
    for segment in job.retold:
        found = yield from _earlier_gen(segment)
        if found:
            messages += job.log.messages[at : segment.start]
            earlier += found
            at = segment.stop
    messages += [*job.log.messages[at : job.stop], *job.beside]
    lists, earlier = grouped(earlier, thread=job.thread, sequence=job.sequence)
    path = history_path(job.thread, job.sequence, job.digest)
    text = render_history(messages, thread=job.thread, seq=job.sequence, earlier=earlier)
    media = [media_artifact(b.media) for message in messages for b in blocks_of(message) if b.media is not None]
    failed = yield from store_gen(
        (*(medium for medium in media if medium is not None), *lists, text_artifact(path, text))
    )
    if failed is not None:
        raise failed
    return path


def store_gen(artifacts: Sequence[Artifact]) -> Program[FilesError | None]:
    """Store artifacts and read each back. Returns the error of the first that is not stored as it should be."""
    for artifact in artifacts:
        try:
            yield from WriteFile(path=artifact.path, data=artifact.data, mode="create")
            stored = yield from ReadFile(path=artifact.path)
        except FilesError as error:
            return error
        if stored != artifact.data:
            return FilesError(f"{artifact.path} does not read back as it was written")
    return None


def grouped(earlier: Sequence[Earlier], *, thread: str, sequence: int) -> tuple[tuple[Artifact, ...], list[Earlier]]:
    """A list of archives, oldest first, with at most `_MOST` of a level; and the lists that took in the rest."""
    left, lists = list(earlier), list[Artifact]()
    level = 0
    while level <= max((one.level for one in left), default=0):
        same = [one for one in left if one.level == level]
        if len(same) <= _MOST:
            level += 1
            continue
        old = same[:_GROUP]
        path = history_path(thread, sequence, digest_of([one.path for one in old]))
        text = render_history([], thread=thread, seq=sequence, earlier=old)
        lists.append(text_artifact(path, text))
        above = Earlier(
            path=path, first=old[0].first, last=old[-1].last, messages=sum(one.messages for one in old), level=level + 1
        )
        place = left.index(old[0])
        left = [*left[:place], above, *(one for one in left[place:] if one not in old)]
    return tuple(lists), left


def _earlier_gen(segment: Segment) -> Program[list[Earlier]]:
    """The archives that hold a segment's messages; none where it has none, or they cannot be read: then its messages
    are archived again."""
    path = segment.fold.data.get("path")
    if not isinstance(path, str):
        return []
    try:
        contents = parse_contents((yield from ReadFile(path=path)).decode("utf-8", "surrogatepass"))
    except (FilesError, IntegrityError, UnicodeDecodeError):
        return []
    if not contents.messages:
        return list(contents.earlier)
    own = Earlier(path=path, first=contents.first, last=contents.last, messages=contents.messages, level=0)
    return [*contents.earlier, own]
