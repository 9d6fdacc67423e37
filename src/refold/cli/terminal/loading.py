"""Models and tools by name, at the edge: environment, optional packages and the user's own modules are read here.

With a base URL a name is the server's own, sent as it is. Otherwise `package.module:attribute` and `file.py:attribute`
are objects of the user's (a chat model, or a function that makes one), and everything else is a name for LangChain's
`init_chat_model`. Only where that knows no such provider is `module:attribute` a module of the working directory.
"""

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from refold.errors import ConfigurationError

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langchain_core.tools import BaseTool

KEY_VARIABLE: Final = "OPENAI_API_KEY"
"""Where the key for a base URL is looked up, as OpenAI's own client does. Never sent to the machine itself."""

_OBJECT: Final = re.compile(r"(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|.+\.py):(?P<attribute>[A-Za-z_][\w.]*)")
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0"})


def load_model(name: str, *, base_url: str | None, key_variable: str | None) -> "BaseChatModel":
    """The chat model of a name.

    `key_variable` is the environment variable with the key for `base_url`; by default `OPENAI_API_KEY`, and none for a
    server on this machine. Raises `ConfigurationError` for a name that nothing answers to, and for a missing package,
    key or variable.
    """
    if base_url is not None:
        return _compatible(name, base_url, key_variable)
    if key_variable is not None:
        raise ConfigurationError("--key-env is for --base-url: other models read the variables of their own packages")
    found = _OBJECT.fullmatch(name)
    if found is not None:
        return _own_model(name, load_object(name))
    from langchain.chat_models import init_chat_model

    try:
        model: BaseChatModel = init_chat_model(name)
    except Exception as error:  # what a partner package raises for a missing key is its own
        said = _first_line(error)
        if "infer model provider" in said:  # its advice is on how to call the function, and no use here
            if _in_working_directory(name):
                return _own_model(name, load_object(name))
            said = "no such provider; write provider:name, module:attribute, or the server's own name with --base-url"
        raise ConfigurationError(f"--model {name}: {said}") from error
    return model


def _in_working_directory(name: str) -> bool:
    module, _, attribute = name.partition(":")
    return all(map(str.isidentifier, (module, *attribute.split(".")))) and (
        Path(f"{module}.py").is_file() or Path(module, "__init__.py").is_file()
    )


def load_tools(names: Sequence[str]) -> "list[BaseTool]":
    """The tools of `module:attribute` names: a tool, a function with a docstring, or a list of them."""
    from langchain_core.tools import BaseTool
    from langchain_core.tools import tool as make_tool

    tools: list[BaseTool] = []
    for name in names:
        found = load_object(name)
        for item in found if isinstance(found, list | tuple) else (found,):
            if isinstance(item, BaseTool):
                tools.append(item)
            elif callable(item):
                try:
                    tools.append(make_tool(item))
                except ValueError as error:
                    raise ConfigurationError(f"--tools {name}: {_first_line(error)}") from error
            else:
                raise ConfigurationError(f"--tools {name}: it holds {item!r:.80}, which is no tool and no function")
    return tools


def load_object(name: str) -> object:
    """What `package.module:attribute` or `file.py:attribute` names; the working directory is searched last."""
    place, _, attribute = name.rpartition(":")
    if not place or not attribute:
        raise ConfigurationError(f"{name!r} names no object: write module:attribute or file.py:attribute")
    found: object = _module(place)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ConfigurationError(f"{place} has no {attribute!r}")
        found = getattr(found, part)
    return found


def _module(place: str) -> ModuleType:
    if place.endswith(".py"):
        path = Path(place)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if not path.is_file() or spec is None or spec.loader is None:
            raise ConfigurationError(f"{place} is no Python file that can be read")
        module = importlib.util.module_from_spec(spec)
        sys.modules.setdefault(path.stem, module)  # so that its classes can be pickled and annotated
        spec.loader.exec_module(module)
        return module
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)  # at the end: a file of the directory never takes the place of a library
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"no module {place}: {_first_line(error)}") from error


def _own_model(name: str, found: object) -> "BaseChatModel":
    from langchain_core.language_models import BaseChatModel

    made: object = found() if callable(found) and not isinstance(found, BaseChatModel) else found
    if not isinstance(made, BaseChatModel):
        raise ConfigurationError(f"--model {name}: {made!r:.80} is no LangChain chat model and makes none")
    return made


def _compatible(name: str, base_url: str, key_variable: str | None) -> "BaseChatModel":
    parts = urlsplit(base_url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(f"--base-url {base_url!r}: write a URL such as http://127.0.0.1:8080/v1")
    if importlib.util.find_spec("langchain_openai") is None:
        raise ConfigurationError("--base-url needs a package that is not installed: pip install langchain-openai")
    from langchain_openai import ChatOpenAI
    from pydantic import SecretStr

    key = _key(local=parts.hostname in _LOCAL, variable=key_variable)
    return ChatOpenAI(model=name.removeprefix("openai:"), base_url=base_url, api_key=SecretStr(key), stream_usage=True)


def _key(*, local: bool, variable: str | None) -> str:
    if variable is None and local:
        return "not-needed"
    key = os.environ.get(variable or KEY_VARIABLE, "")
    if not key:
        raise ConfigurationError(
            f"the environment has no {variable or KEY_VARIABLE}; set it, or name another variable: --key-env NAME"
        )
    return key


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
