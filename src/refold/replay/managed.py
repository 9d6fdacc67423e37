"""The main job: a recording, run through an agent that `WindowMiddleware` manages, and everything measured."""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from refold.agent.reach import recall
from refold.agent.window import WindowMiddleware
from refold.checkpoint.sqlite.connect import connect
from refold.core.canonical import Json, canonical_bytes
from refold.core.policy import Policy
from refold.core.project import project
from refold.core.window import Window
from refold.files import Files, LocalFiles
from refold.replay.bill import bare_requests, bill
from refold.replay.jsonl import message_fields
from refold.replay.ledger import Ledger, LedgerSaver
from refold.replay.measure import Request, Scale, name_of
from refold.replay.result import Call, Replay
from refold.replay.run import Played, check_log, play
from refold.replay.tape import Tape, playable
from refold.replay.transcript import Transcript

UNKNOWN_MODEL = "recorded"


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a replay is: messages played of all, and the newest request."""

    session: str
    done: int
    total: int
    request: Request


def replay(
    transcript: Transcript,
    *,
    policy: Policy,
    limit: int,
    model: str | None = None,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Replay:
    """Replay a transcript and its subagents' within an input limit of so many tokens.

    `model` is whose name, prices and cache rules count, by default the recorded one's. Files and checkpoints live in a
    temporary folder. Raises `ContextOverflowError` where the window cannot be made to fit, `ReplayMismatchError` where
    the run differs from the recording.
    """
    started = time.perf_counter()
    transcript = playable(transcript)
    name = model or transcript.model or UNKNOWN_MODEL
    policy = replace(policy, context_limit=limit)
    scale = Scale.strict()

    def noted(request: Request) -> None:
        on_progress(Progress(session=transcript.name, done=tape.position, total=len(tape), request=request))

    tape = Tape(transcript=transcript, on_request=noted)
    with tempfile.TemporaryDirectory(prefix="refold-replay-") as folder:
        files = LocalFiles(Path(folder) / "files")
        ledger = Ledger()
        middleware = WindowMiddleware(files=files, policy=policy, clock=tape.now)
        database = Path(folder) / "checkpoints.db"
        with closing(connect(str(database), timeout=30.0)) as connection:
            saver = LedgerSaver(connection)
            saver.ledger = ledger
            played = play(tape, [middleware], limit=limit, model_name=name, scale=scale, saver=saver)
        check_log(played.messages, transcript.messages)
        window = project(played.messages, played.folds)
        recalled = recall(window, files, page=policy.read_page)
        result = Replay(
            transcript=transcript,
            limit=limit,
            policy=policy,
            model=name,
            counter=name_of(scale.meter),
            requests=tuple(tape.requests),
            calls=calls_of_run(tape, played, window, scale),
            folds=played.folds,
            void=len(window.void),
            bill=bill(tape.requests, bare_requests(transcript, tape.requests, scale), model=name),
            recalled=recalled,
            raw_bytes=sum(len(canonical_bytes(message_fields(message))) for message in transcript.messages),
            checkpoint_bytes=database.stat().st_size,
            whole_copies_bytes=ledger.whole_copies,
            checkpoints=ledger.checkpoints,
            artifact_bytes=_size(files),
            seconds=time.perf_counter() - started,
        )
    children = tuple(
        replay(child, policy=policy, limit=limit, model=model, on_progress=on_progress)
        for child in transcript.subagents
    )
    return replace(result, subagents=children)


def calls_of_run(tape: Tape, played: Played, window: Window, scale: Scale) -> tuple[Call, ...]:
    """The accepted model calls in order, compared with the requests before them and with what refold spared."""
    accepted = [request for request in tape.requests if request.kind == "model" and not request.refused]
    passes = passes_by_position(played.folds, window)
    calls: list[Call] = []
    before: Request | None = None
    bare = bare_requests(tape.transcript, tape.requests, scale)
    for request, (_, whole) in zip(accepted, bare, strict=True):
        shared = 0 if before is None else _shared(before, request)
        calls.append(
            Call(
                request=request,
                without=sum(tokens for _, tokens in whole),
                kept=sum(tokens for _, tokens in request.parts[:shared]),
                breaks=before is not None and shared < len(before.parts),
                passes=passes.get(request.position, ()),
            )
        )
        before = request
    return tuple(calls)


def passes_by_position(folds: Sequence[Mapping[str, Json]], window: Window) -> Mapping[int, tuple[str, ...]]:
    """The fold passes by the length of the log that they were made for; passes that only failed do not count."""
    found: dict[int, list[str]] = {}
    for fold in window.folds:
        place = window.log.positions.get(fold.at.key)
        if place is None or fold.kind == "strike":
            continue
        mine = found.setdefault(place + 1, [])
        if fold.pass_id not in mine:
            mine.append(fold.pass_id)
    return {position: tuple(ids) for position, ids in found.items()}


def _shared(before: Request, after: Request) -> int:
    """How many leading parts two requests share."""
    same = 0
    for (mine, _), (theirs, _) in zip(before.parts, after.parts, strict=False):
        if mine != theirs:
            break
        same += 1
    return same


def _size(files: Files) -> int:
    return sum(info.size for info in files.glob("/**"))
