"""Write the golden database of the current format: `python tests/checkpoint/make_golden.py`. Once per format, ever."""

import json
import sys
from pathlib import Path

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Send

sys.path.insert(0, str(Path(__file__).parent))

from checkpoint_mirror import plain

from refold.checkpoint import SqliteSaver
from refold.checkpoint.meta import FORMAT

PLACE = Path(__file__).parent / "golden" / f"format-{FORMAT}.db"


def main() -> None:
    PLACE.parent.mkdir(exist_ok=True)
    if PLACE.exists():
        raise SystemExit(f"{PLACE} exists: a released format does not change")
    with SqliteSaver.from_conn_string(str(PLACE)) as saver:
        messages: list[object] = []
        at = {"configurable": {"thread_id": "golden", "checkpoint_ns": ""}}
        for n in range(6):
            call = {"name": "read", "args": {"path": f"/file/{n}"}, "id": f"call-{n}", "type": "tool_call"}
            reply = AIMessage(f"step {n} " + "text " * 30, id=f"a{n}", tool_calls=[call])
            messages = [*messages, HumanMessage(f"question {n}", id=f"h{n}"), reply]
            checkpoint = {
                "v": 4, "id": f"1f1ed0fc-a8b7-6635-8{n:03x}-ebe8008ed064", "ts":
                f"2026-01-01T00:00:{n:02}.000001+00:00", "channel_values": {
                    "messages": messages, "files": _DeltaSnapshot({"/a": {"content": ["line " * 120], "n": n}}),
                    "trail": _DeltaSnapshot(messages[:3]), "note": [None, n, 1.5, "x" * 300, b"raw"][n % 5], "items":
                    list("abcdefghijklmnopqrst"),
                },
                "channel_versions": {"messages": n + 1, "files": n + 1, "trail": n + 1, "note": f"{n + 1:032}.5",
                "items": 1}, "versions_seen": {"agent": {"messages": n}}, "updated_channels": ["messages"],
            }  # fmt: skip
            metadata = {"source": "loop", "step": n, "parents": {}, "run_id": f"run-{n // 2}", "score": n / 2}
            at = saver.put(at, checkpoint, metadata, dict(checkpoint["channel_versions"]))  # type: ignore[arg-type]
            answer = ToolMessage("result " * 40, tool_call_id=f"call-{n}", id=f"t{n}")
            saver.put_writes(
                at, [("messages", [answer]), ("__pregel_tasks", Send("tools", [call]))], f"task-{n}", "~a, b"
            )
        saver.compact()
        at["configurable"]["checkpoint_id"] = "not-a-uuid"
        saver.put(at, {**checkpoint, "id": "zz-last"}, {"source": "update", "step": 12}, {})  # type: ignore[arg-type]
        found = [plain(item) for item in saver.list(None)]
    PLACE.with_suffix(".json").write_text(json.dumps(found, indent=None), encoding="utf-8")


if __name__ == "__main__":
    main()
