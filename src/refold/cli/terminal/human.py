"""A run that waits for a person: what is asked, and the answer in the form that the waiting tool expects.

Three kinds of interrupts are known: LangChain's requests for review (the file tools' permissions have the same form),
its approvals one call at a time, and whatever else a tool of the user's waits with, which gets the line that is typed.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from refold.cli.terminal.screen import Screen

Ask = Callable[[str], str]
"""Shows a prompt and reads a line. Raises `EOFError` where there are no more lines."""

_CHOICES: Final[Mapping[str, str]] = {"approve": "a", "edit": "e", "reject": "r", "respond": "n"}
_WORDS: Final[Mapping[str, str]] = {
    "approve": "[a]pprove",
    "edit": "[e]dit",
    "reject": "[r]eject",
    "respond": "a[n]swer for the tool",
}


@dataclass(frozen=True, kw_only=True)
class Human:
    """Asks the person at the terminal."""

    screen: Screen
    ask: Ask

    def answer(self, waiting: object) -> object:
        """What to resume an interrupt with, whose value is `waiting`."""
        match waiting:
            case {"action_requests": list(requests), "review_configs": list(configs)}:
                allowed = {str(c.get("action_name")): c.get("allowed_decisions") for c in configs}
                return {"decisions": [self._review(r, _known(allowed.get(str(r.get("name"))))) for r in requests]}
            case Mapping() if waiting.get("type") == "tool_approval":
                return self._review(waiting, tuple(_CHOICES))
            case _:
                self.screen.note(f"the agent asks: {_shown(waiting)}")
                return self.ask("answer> ")

    def _review(self, request: Mapping[str, object], allowed: Sequence[str]) -> dict[str, object]:
        name, arguments = str(request.get("name")), request.get("args") or {}
        self.screen.note(described(request))
        prompt = f"{', '.join(_WORDS[choice] for choice in allowed)}? "
        while True:
            typed = self.ask(prompt).strip().lower()
            chosen = next((c for c in allowed if typed and typed in (_CHOICES[c], c)), None)
            match chosen:
                case "approve":
                    return {"type": "approve"}
                case "edit":
                    return {"type": "edit", "edited_action": {"name": name, "args": self._edited(arguments)}}
                case "reject":
                    reason = self.ask("why (for the agent; may be empty)> ").strip()
                    return {"type": "reject", **({"message": reason} if reason else {})}
                case "respond":
                    return {"type": "respond", "message": self.ask("the answer> ")}
                case _:
                    self.screen.note(f"please type one of: {', '.join(_CHOICES[choice] for choice in allowed)}")

    def _edited(self, arguments: object) -> object:
        self.screen.note(f"arguments now: {json.dumps(arguments, ensure_ascii=False, default=str)}")
        while True:
            typed = self.ask("new arguments as JSON (empty: as they are)> ").strip()
            if not typed:
                return arguments
            try:
                value: object = json.loads(typed)
            except json.JSONDecodeError as error:
                self.screen.note(f"no JSON: {error}")
                continue
            if isinstance(value, dict):
                return value
            self.screen.note('arguments are an object, such as {"path": "/work/a.txt"}')


def described(request: Mapping[str, object]) -> str:
    """A waiting call: what it is about, and its arguments where the description has not said them."""
    arguments = json.dumps(request.get("args") or {}, ensure_ascii=False, default=str)
    description = str(request.get("description") or "").strip()
    call = f"{request.get('name')}({arguments})"
    return f"{description}\n  {call}" if description and arguments not in description else description or call


def summary_of(waiting: object) -> str:
    """What an interrupt is about, in one line."""
    match waiting:
        case {"action_requests": list(requests)}:
            return "; ".join(" ".join(described(request).split()) for request in requests)
        case Mapping() if waiting.get("type") == "tool_approval":
            return " ".join(described(waiting).split())
        case _:
            return " ".join(_shown(waiting).split())


def _known(allowed: object) -> tuple[str, ...]:
    """The decisions that are offered, in a fixed order."""
    offered = tuple(choice for choice in _CHOICES if isinstance(allowed, list | tuple) and choice in allowed)
    return offered or ("approve", "reject")


def _shown(waiting: object) -> str:
    return waiting if isinstance(waiting, str) else json.dumps(waiting, ensure_ascii=False, default=str)
