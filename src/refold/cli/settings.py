"""The policy from outside: a file (JSON or TOML), then environment variables `REFOLD_...`, which win.

Here, at the edge, and nowhere else: the library is given a `Policy`.
"""

import json
import os
import tomllib
from dataclasses import MISSING, fields
from difflib import get_close_matches
from pathlib import Path

from pydantic import ValidationError, create_model
from pydantic_settings import BaseSettings, SettingsConfigDict

from refold.core.policy import Policy
from refold.errors import ConfigurationError

PREFIX = "REFOLD_"


class _Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", env_parse_none_str="none")


def load_policy(file: Path | None) -> Policy:
    """The policy of a file and the environment.

    Raises `ConfigurationError` for a file that cannot be read, a name that is no setting, and a value that cannot work.
    """
    given = {} if file is None else _read(file)
    names = [item.name for item in fields(Policy)]
    for name in given:
        if name not in names:
            close = get_close_matches(name, names, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ConfigurationError(f"policy file {file}: no setting is called {name!r}{hint}")
    kinds: dict[str, object] = {
        item.name: (item.type, item.default if item.default is not MISSING else ...) for item in fields(Policy)
    }
    settings_of = create_model("PolicySettings", __base__=_Settings, **kinds)  # type: ignore[call-overload]
    from_environment = {name for name in names if f"{PREFIX}{name}".upper() in {key.upper() for key in os.environ}}
    try:
        settings = settings_of(**{name: value for name, value in given.items() if name not in from_environment})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise ConfigurationError(f"policy {name}={first['input']!r}: {first['msg'].lower()}") from error
    except ValueError as error:  # a list in the environment that is no JSON
        raise ConfigurationError(f"policy from the environment: {error}") from error
    return Policy(**{name: value for name, value in settings.model_dump().items() if name in names})


def parse_tokens(text: str) -> int:
    """A number of tokens as people write it: 16000, 16_000, 32k (thousands), 1m (millions)."""
    plain = text.strip().lower().replace("_", "").replace(",", "")
    factor = {"k": 1_000, "m": 1_000_000}.get(plain[-1:], 1)
    number = plain[:-1] if factor > 1 else plain
    try:
        tokens = round(float(number) * factor)
    except (ValueError, OverflowError) as error:
        raise ConfigurationError(f"--window {text!r}: give a number of tokens, such as 32k or 32000") from error
    if tokens <= 0:
        raise ConfigurationError(f"--window {text!r}: a window has a positive number of tokens, such as 32k")
    return tokens


def _read(file: Path) -> dict[str, object]:
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"policy file {file}: cannot be read ({error})") from error
    try:
        value: object = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except (json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"policy file {file}: neither JSON nor TOML ({error})") from error
    if not isinstance(value, dict):
        raise ConfigurationError(f"policy file {file}: it must hold names and values")
    inner = value.get("policy")
    return dict(inner) if len(value) == 1 and isinstance(inner, dict) else value
