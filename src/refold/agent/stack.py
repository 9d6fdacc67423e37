"""`middleware(...)`: refold's parts as one list, for agents that somebody else builds.

    from langchain.agents import create_agent
    agent = create_agent(model, tools, middleware=refold.middleware())

    from deepagents import create_deep_agent
    agent = create_deep_agent(model, tools, backend=backend, middleware=refold.middleware(backend))

In Deep Agents the parts take the places of its summarisation, its eviction of large results and its patching of calls,
by name; everything else of it stays. Its general-purpose subagent takes them over by itself; give a subagent of your
own its list: `{"name": ..., "middleware": refold.middleware(backend)}`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.language_models import BaseChatModel

from refold.agent.control import ControlMiddleware
from refold.agent.edge import AfterFold, BeforeFold
from refold.agent.offload import OffloadMiddleware, Thresholds
from refold.agent.setup import refuse_name
from refold.agent.window import RepairMode, WindowMiddleware
from refold.core.meter import Meter
from refold.core.policy import Policy
from refold.files import Files

if TYPE_CHECKING:
    from deepagents.backends.protocol import BackendProtocol

# LangChain's own signature has these parameters open; an agent of any state and context must be accepted.
Stack: TypeAlias = Sequence[AgentMiddleware[Any, Any, Any]]


def middleware(
    files: "Files | BackendProtocol | None" = None,
    *,
    policy: Policy | None = None,
    summary_model: BaseChatModel | None = None,
    fallback_model: BaseChatModel | None = None,
    meter: Meter | None = None,
    before_fold: BeforeFold | None = None,
    after_fold: AfterFold | None = None,
    repair: RepairMode = "view",
    offload: Thresholds | None = Thresholds(),  # noqa: B008 - a frozen value
    control: bool = True,
) -> Stack:
    """The window, offload of large results, and control tools, for `create_agent` or `create_deep_agent`.

    Args:
        files: Where originals go: a `Files` (default: the directory `.refold`), or a Deep Agents backend, the one that
            the agent itself has, so that its own `read_file` reads what was moved out.
        policy, summary_model, fallback_model, meter, before_fold, after_fold, repair: See `WindowMiddleware`.
        offload: When a result is stored as it comes; None leaves results as they are (in Deep Agents: to its own
            eviction).
        control: Whether the model gets `compact_conversation`, `pin` and `unpin` (`ControlMiddleware`).
    """
    refuse_name("files", files, "refold.open_files(...) makes the storage of a path or URL")
    if files is None or isinstance(files, Files):
        window = WindowMiddleware(
            files=files, policy=policy, summary_model=summary_model, fallback_model=fallback_model, meter=meter,
            before_fold=before_fold, after_fold=after_fold, repair=repair,
        )  # fmt: skip
        return window_with(window, offload=offload, control=control)
    from refold.agent.deepagents import parts_for_deepagents, policy_for_deepagents, window_for_deepagents

    window = window_for_deepagents(
        files, policy=policy_for_deepagents(policy), summary_model=summary_model, fallback_model=fallback_model,
        meter=meter, before_fold=before_fold, after_fold=after_fold, binding=None, repair=repair,
    )  # fmt: skip
    return [window, *parts_for_deepagents(files, window, offload), *([ControlMiddleware(window)] if control else [])]


def window_with(
    window: WindowMiddleware, *, offload: Thresholds | None, control: bool
) -> list[AgentMiddleware[Any, Any, Any]]:
    """A window, and the parts that stand beside it where they are wanted."""
    parts: list[AgentMiddleware[Any, Any, Any]] = [window]
    if offload is not None:
        parts.append(OffloadMiddleware(window, thresholds=offload))
    if control:
        parts.append(ControlMiddleware(window))
    return parts
