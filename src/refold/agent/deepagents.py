"""`WindowMiddleware` in deepagents' `create_deep_agent`, in place of its own summarisation.

deepagents replaces a middleware of its stack by one with the same name; the originals that leave the window go to the
agent's own backend, where its own `read_file` reads them back.

    backend = FilesystemBackend(root_dir=".", virtual_mode=True)
    agent = create_deep_agent(model, tools, backend=backend, middleware=[window_for_deepagents(backend)])
"""

from typing import TYPE_CHECKING, Final

from langchain_core.language_models import BaseChatModel

from refold.agent.edge import AfterFold, BeforeFold
from refold.agent.setup import Binding
from refold.agent.window import WindowMiddleware
from refold.core.meter import Meter
from refold.core.policy import Policy
from refold.files import DeepAgentsFiles

if TYPE_CHECKING:
    from deepagents.backends.protocol import BackendProtocol

REPLACED: Final = "SummarizationMiddleware"
"""The name of the middleware that is replaced."""


def window_for_deepagents(
    backend: "BackendProtocol",
    *,
    policy: Policy | None = None,
    summary_model: BaseChatModel | None = None,
    fallback_model: BaseChatModel | None = None,
    meter: Meter | None = None,
    before_fold: BeforeFold | None = None,
    after_fold: AfterFold | None = None,
) -> WindowMiddleware:
    """The window for `create_deep_agent(..., middleware=[...])`, over the agent's backend.

    The arguments are those of `WindowMiddleware`. What leaves the window is read back by `read_file`; arguments of
    calls stay whole, since deepagents has no tool that reads messages.
    """
    return WindowMiddleware(
        files=DeepAgentsFiles(backend),
        policy=policy,
        summary_model=summary_model,
        fallback_model=fallback_model,
        meter=meter,
        before_fold=before_fold,
        after_fold=after_fold,
        binding=Binding(file_reader="read_file", log_reader=None),
        name=REPLACED,
    )
