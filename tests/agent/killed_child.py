"""A thread in a process of its own, which kills itself at a given deed, or is killed once it says that it works.

Started by test_window_savers.py and test_kill_points.py, with LangGraph's saver or with ours.

A deed is an answer of the model, a run of the tool, a summary, or a stored file: every point where the outside world
learns something. Deeds are counted in this process alone.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from agents import QUICK, THOUGHT, is_summary_request
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver

from refold.agent.offload import OffloadMiddleware, Thresholds
from refold.agent.window import WindowMiddleware
from refold.checkpoint import SqliteSaver as OurSqliteSaver
from refold.core.canonical import digest
from refold.files import LocalFiles
from refold.testing import StrictModel

ROUNDS = 16


class Deeds:
    """Counts deeds, and ends the process at one."""

    def __init__(self, last: int) -> None:
        self.last, self.done = last, 0

    def __call__(self) -> None:
        self.done += 1
        if self.done == self.last:
            os.kill(os.getpid(), signal.SIGKILL)


def main(folder: Path, kill_at: int, saver_kind: str) -> None:
    """Run the thread, or go on with it where it was left."""
    deed = Deeds(kill_at)

    class Files(LocalFiles):
        def write(self, path: str, data: bytes, *, mode: Any) -> None:
            deed()
            super().write(path, data, mode=mode)
            if path.startswith("/summaries/"):
                with (folder / "stored.log").open("a") as log:
                    log.write(path + "\n")
            deed()

    def script(messages: Any) -> Any:
        deed()
        if is_summary_request(messages):
            with (folder / "summaries.log").open("a") as log:
                log.write(digest(repr([(m.type, m.content) for m in messages])) + "\n")
            return "The steps so far went well; the work goes on."
        step = int((folder / "steps").read_text() if (folder / "steps").exists() else 0) + 1
        if step > ROUNDS:
            return AIMessage("All is done.", id="ai-end")
        call = {"type": "tool_call", "id": f"c{step}", "name": "work", "args": {"step": step}}
        return AIMessage(f"Step {step}. {THOUGHT}", id=f"ai-{step}", tool_calls=[call])

    @tool
    def work(step: int) -> str:
        """Do a step."""
        deed()
        (folder / "steps").write_text(str(step))
        return "\n".join(
            f"line {n} of step {step}: built /srv/app/module_{step}_{n}.py" for n in range(20 if step % 4 else 100)
        )

    kind: Any = SqliteSaver if saver_kind == "langgraph" else OurSqliteSaver
    with kind.from_conn_string(str(folder / "c.db")) as saver:
        window = WindowMiddleware(files=Files(folder / "files"), policy=QUICK)
        offload = OffloadMiddleware(window, thresholds=Thresholds(share=0.3, room=0.9))
        graph = create_agent(
            StrictModel(script=script, limit=4_000), [work], middleware=[window, offload], checkpointer=saver
        )
        config: Any = {"configurable": {"thread_id": "t"}, "recursion_limit": 200}
        sys.stdout.write("works\n")
        sys.stdout.flush()
        left = graph.get_state(config)
        if left.tasks or not left.values:
            graph.invoke(
                None if left.tasks else {"messages": [HumanMessage("Go.", id="h0")]}, config, durability="sync"
            )
        log = [(m.type, m.content) for m in graph.get_state(config).values["messages"]]
    (folder / "end.json").write_text(json.dumps({"log": log}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
