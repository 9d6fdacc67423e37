"""From a program to a LangChain tool: permissions, sessions of state files, errors as results, sync and async."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar, cast

from langchain.tools import ToolRuntime
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from refold.agent.tools.permissions import Operation, Permissions, Permit
from refold.agent.tools.reading import Answer
from refold.core.program import Effect, Program, arun, run
from refold.errors import PermissionRefusedError, RefoldError
from refold.files import Files, aanswer, answer, files_session
from refold.files.search import Scan

Arguments = TypeVar("Arguments", bound=BaseModel)
Result: TypeAlias = Answer | Command[object]


@dataclass(frozen=True, kw_only=True)
class ToolSpec(Generic[Arguments]):
    """A tool: what the model is told, and the program that does it."""

    name: str
    description: str
    arguments: type[Arguments]
    program: Callable[[Arguments], Program[Answer]]


def bind(spec: ToolSpec[Arguments], files: Files, permissions: Permissions) -> BaseTool:
    """A tool over some files. What refold's errors say becomes the tool's error result; others are raised."""

    # LangChain injects an argument only where its type is ToolRuntime itself; outside of a graph there is none.
    def call(runtime: ToolRuntime = None, **given: object) -> Result:  # type: ignore[assignment]
        arguments = spec.arguments.model_validate(given)
        gate = _Gate(tool=spec.name, arguments=arguments.model_dump(), permissions=permissions)

        def handle(effect: Effect[object]) -> object:
            match effect:
                case Permit():
                    gate.check(effect)
                    return None
                case Scan(work=work):
                    work()
                    return None
                case _:
                    return answer(files, effect)

        with files_session(files, _state(runtime)) as session:
            try:
                return _result(run(spec.program(arguments), handle), session.update(), spec.name, runtime)
            except RefoldError as error:
                raise ToolException(str(error)) from error

    async def acall(runtime: ToolRuntime = None, **given: object) -> Result:  # type: ignore[assignment]
        arguments = spec.arguments.model_validate(given)
        gate = _Gate(tool=spec.name, arguments=arguments.model_dump(), permissions=permissions)
        awaited = files.asynchronous()

        async def handle(effect: Effect[object]) -> object:
            match effect:
                case Permit():
                    gate.check(effect)
                    return None
                case Scan(work=work):
                    await asyncio.to_thread(work)
                    return None
                case _:
                    return await aanswer(awaited, effect)

        with files_session(files, _state(runtime)) as session:
            try:
                return _result(await arun(spec.program(arguments), handle), session.update(), spec.name, runtime)
            except RefoldError as error:
                raise ToolException(str(error)) from error

    return StructuredTool.from_function(
        call,
        acall,
        name=spec.name,
        description=spec.description,
        args_schema=spec.arguments,
        infer_schema=False,
        handle_tool_error=True,
    )


@dataclass(frozen=True, kw_only=True)
class _Gate:
    """Answers `Permit` for one call."""

    tool: str
    arguments: Mapping[str, object]
    permissions: Permissions

    def check(self, permit: Permit) -> None:
        """Raises `PermissionRefusedError`, or interrupts the run to ask; returns when everything is allowed."""
        asked: list[tuple[Operation, str, str]] = []
        for operation in permit.operations:
            for path in permit.paths:
                rule = self.permissions.rule_for(operation, path)
                effect = self.permissions.otherwise if rule is None else rule.effect
                reason = "" if rule is None else rule.reason
                if effect == "deny":
                    raise PermissionRefusedError(
                        f"the rules of this agent do not let you {operation} {path}{f': {reason}' if reason else ''}"
                    )
                if effect == "ask":
                    asked.append((operation, path, reason))
        if asked:
            self._ask(asked)

    def _ask(self, asked: list[tuple[Operation, str, str]]) -> None:
        """Interrupt in the form of LangChain's human-in-the-loop requests, so that its clients show it."""
        reasons = dict.fromkeys(reason for _, _, reason in asked if reason)
        what = ", ".join(dict.fromkeys(f"{operation} {path}" for operation, path, _ in asked))
        request = {
            "action_requests": [
                {
                    "name": self.tool,
                    "args": dict(self.arguments),
                    "description": f"May the agent {what}?{' ' + '; '.join(reasons) if reasons else ''}",
                }
            ],
            "review_configs": [{"action_name": self.tool, "allowed_decisions": ["approve", "reject"]}],
        }
        approved, message = _decision(interrupt(request))
        if not approved:
            raise PermissionRefusedError(f"the human did not allow to {what}{f': {message}' if message else ''}")


def _decision(reply: object) -> tuple[bool, str]:
    """Read a human's answer: `{"decisions": [{"type": "approve"}]}`, one such decision alone, or true or false.

    Whatever is not clearly an approval is a refusal.
    """
    if isinstance(reply, Mapping) and isinstance(decisions := reply.get("decisions"), list):
        reply = decisions[0] if len(decisions) == 1 else None
    if isinstance(reply, Mapping):
        return reply.get("type") == "approve", str(reply.get("message") or "")
    return reply is True or reply == "approve", ""


def _state(runtime: ToolRuntime | None) -> Mapping[str, object]:
    """The state that the tool was called with; empty for a call outside of a graph."""
    if runtime is None or not isinstance(runtime.state, Mapping):
        return {}
    return cast("Mapping[str, object]", runtime.state)


def _result(found: Answer, update: dict[str, object], name: str, runtime: ToolRuntime | None) -> Result:
    """The answer alone, or with the change of the state that the files live in."""
    if not update or runtime is None:
        return found
    message = ToolMessage(content=found, name=name, tool_call_id=runtime.tool_call_id or "")
    return Command(update={"messages": [message], **update})
