"""1,000 random kill points across ingestion, folding and model calls: nothing lost, nothing doubled."""

import json
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from crashing import Fuse, World, lived

from refold.agent.reach import recall
from refold.checkpoint import SqliteSaver
from refold.checkpoint.sqlite.connect import connect
from refold.core.canonical import digest
from refold.core.ingest import INGESTED
from refold.core.messages import REFOLD_KEY, content_hash
from refold.core.project import project
from refold.files import LocalFiles

SEEDS, POINTS = 10, 100
CHILD = Path(__file__).parent / "killed_child.py"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Fuse]:
    """The thread as it ends when nothing kills it, and the effects that it has."""
    fuse = Fuse(None)
    return lived(World(tmp_path_factory.mktemp("whole")), iter([fuse])), fuse


def kept(state: dict[str, Any]) -> list[tuple[Any, ...]]:
    """The log, as it must not differ."""
    return [(message.id, message.type, content_hash(message)) for message in state["messages"]]


def fuses(dice: random.Random, world: World, most: int) -> Iterator[Fuse]:
    """Short and long ones, so that lives end soon after a resume as well as late; a whole one after `most` crashes."""
    while True:
        left = dice.choice((6, 16, 40))
        yield Fuse(dice.randint(1, left) if world.crashes.total() < most else None)


def check_stubs(world: World, state: dict[str, Any]) -> None:
    """Every stub of the log and of the window leads to its original."""
    files = LocalFiles(world.files)
    for message in state["messages"]:
        marked = message.additional_kwargs.get(REFOLD_KEY)
        if marked is not None and marked["kind"] == INGESTED:
            assert marked["digest"] == digest(files.read(marked["path"]))
            assert marked["path"] in message.text
    found = recall(project(state["messages"], state["folds"]), files, page=1_000)
    assert found.unreachable == ()


def memory() -> str | None:
    """A folder in memory where there is one: what is forced to disk a thousand times is not what is tested."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def test_the_thread_has_what_is_to_be_killed(undisturbed: tuple[dict[str, Any], Fuse]) -> None:
    """It stores results as they come, folds, and has a summary; each kind of effect is one that a life can end at."""
    state, fuse = undisturbed
    assert {"clear", "summary"} <= {fold["kind"] for fold in state["folds"]}
    assert any(REFOLD_KEY in message.additional_kwargs for message in state["messages"])
    places = ("put", "put_writes", "results", "history", "summaries", "model", "summary", "tool")
    assert {f"{when} {place}" for when in ("before", "after") for place in places} == set(fuse.seen)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_lost_or_doubled_at_random_kill_points(seed: int, undisturbed: tuple[dict[str, Any], Fuse]) -> None:
    """Killed at random effects again and again, each time resumed by new objects from the same file: the log is that of
    the run that nothing killed, a stored summary is not asked for again, every stub can be read, the database is
    whole."""
    dice = random.Random(seed)
    crashes: Counter[str] = Counter()
    while crashes.total() < POINTS:
        with tempfile.TemporaryDirectory(prefix="refold-kill-", dir=memory()) as folder:
            world = World(Path(folder))
            state = lived(world, fuses(dice, world, POINTS - crashes.total()))
            assert kept(undisturbed[0]) == kept(state)
            assert world.asked == world.stored + world.lost
            check_stubs(world, state)
            with closing(connect(str(world.folder / "c.db"), timeout=5.0)) as connection:
                assert SqliteSaver(connection).verify().problems == ()
        crashes += world.crashes
    assert crashes.total() == POINTS


def child(folder: Path, *, kill_after: float | None) -> bool:
    """Go on with the thread in a process of its own, killed (SIGKILL) so many seconds after it began to work unless it
    has ended by then; whether it has."""
    command = [sys.executable, str(CHILD), str(folder), "0", "ours"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "works\n"
        try:
            _, errors = process.communicate(timeout=60 if kill_after is None else kill_after)
        except subprocess.TimeoutExpired:
            process.kill()
            return False
        assert process.returncode == 0, errors[-800:]
        return True


def test_a_process_killed_at_random_times_goes_on(tmp_path: Path) -> None:
    """True SIGKILLs, wherever they fall: within a write of a file or of the database too."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    assert child(whole, kill_after=None)
    dice = random.Random(7)
    for _ in range(2):
        child(killed, kill_after=dice.uniform(0.02, 0.3))
    assert child(killed, kill_after=None)
    ends = [json.loads((folder / "end.json").read_text()) for folder in (whole, killed)]
    assert ends[0] == ends[1]
    assert any("/results/" in content for kind, content in ends[0]["log"] if kind == "tool")
    with closing(connect(str(killed / "c.db"), timeout=5.0)) as connection:
        assert SqliteSaver(connection).verify().problems == ()
    stored = (killed / "stored.log").read_text().splitlines()
    assert len(set(stored)) == len(stored)
