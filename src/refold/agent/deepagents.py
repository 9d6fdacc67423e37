"""refold's parts in deepagents' `create_deep_agent`, in place of its own.

deepagents replaces a middleware of its stack by one with the same name, in its general-purpose subagent too; the
originals that leave the window go to the agent's own backend, where its own `read_file` finds them as well.

    backend = FilesystemBackend(root_dir=".", virtual_mode=True)
    agent = create_deep_agent(model, tools, backend=backend, middleware=refold.middleware(backend))

| slot of deepagents | what takes it |
|---|---|
| `SummarizationMiddleware` | the window |
| `PatchToolCallsMiddleware` | offload of large results; calls without results are mended in the window's view |
| `FilesystemMiddleware` | itself, with its evictions of tool results and human messages switched off |
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.language_models import BaseChatModel

from refold.agent.edge import AfterFold, BeforeFold
from refold.agent.offload import OffloadMiddleware, Thresholds
from refold.agent.setup import Binding
from refold.agent.window import RepairMode, WindowMiddleware
from refold.core.meter import Meter
from refold.core.policy import Policy
from refold.errors import ConfigurationError
from refold.files import DeepAgentsFiles

try:
    from deepagents.middleware.filesystem import FilesystemMiddleware
except ImportError as error:
    raise ConfigurationError("refold inside Deep Agents needs deepagents: install refold[deepagents]") from error

if TYPE_CHECKING:
    from deepagents.backends.protocol import BackendProtocol

REPLACED: Final = "SummarizationMiddleware"
"""The name of the middleware that the window replaces."""
_PATCHING: Final = "PatchToolCallsMiddleware"
_READ_FILE: Final = "read_file"


def window_for_deepagents(
    backend: "BackendProtocol",
    *,
    policy: Policy | None = None,
    summary_model: BaseChatModel | None = None,
    fallback_model: BaseChatModel | None = None,
    meter: Meter | None = None,
    before_fold: BeforeFold | None = None,
    after_fold: AfterFold | None = None,
    binding: Binding | None = Binding(file_reader=_READ_FILE, log_reader=None),  # noqa: B008 - a frozen value
    repair: RepairMode = "view",
) -> WindowMiddleware:
    """The window for `create_deep_agent(..., middleware=[...])`, over the agent's backend.

    The arguments are those of `WindowMiddleware`. By default what leaves the window is read back by the agent's own
    `read_file`, and arguments of calls stay whole, since deepagents has no tool that reads messages; with
    `binding=None` the window brings `read_history` and `search_history`.
    """
    return WindowMiddleware(
        files=DeepAgentsFiles(backend),
        policy=policy,
        summary_model=summary_model,
        fallback_model=fallback_model,
        meter=meter,
        before_fold=before_fold,
        after_fold=after_fold,
        binding=binding,
        repair=repair,
        name=REPLACED,
    )


def policy_for_deepagents(policy: Policy | None) -> Policy:
    """A policy under which results of `read_file` are folded and stored like others, since `read_history` reads what
    was stored: deepagents' `read_file` gives a line whole, however long it is."""
    policy = policy or Policy()
    return replace(policy, exclude_tools=policy.exclude_tools - {_READ_FILE})


def parts_for_deepagents(
    backend: "BackendProtocol", window: WindowMiddleware, offload: Thresholds | None
) -> Sequence[AgentMiddleware[Any, Any, Any]]:
    """What goes beside the window into deepagents' slots. Without `offload` its own eviction stays."""
    if offload is None:
        return [_Nothing()]
    filesystem = FilesystemMiddleware(
        backend=backend, tool_token_limit_before_evict=None, human_message_token_limit_before_evict=None
    )
    return [filesystem, OffloadMiddleware(window, thresholds=offload, name=_PATCHING)]


class _Nothing(AgentMiddleware[Any, Any, Any]):
    """Holds the place of the patching of calls, which the window's view does."""

    @property
    def name(self) -> str:
        """The name of what it replaces."""
        return _PATCHING
