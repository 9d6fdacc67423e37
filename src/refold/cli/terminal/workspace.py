"""Where the agent of `refold run` reads and writes, and what it has to ask for.

Its own files and what left the window are in one place (`--files`, by default `.refold/files`), free to use. The
directory that it works on is mounted at `/work`: it reads there, and asks before it writes or deletes. Two things of
that directory are closed unless they are opened by name: files that usually hold secrets, and `.git`. `.refold` under
it (threads, stored originals) stays closed whatever is said: a thread must not be able to change its own record.

There is no shell: what a shell does is bound by no rule of this list.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from refold.agent.create import HOME
from refold.agent.tools import PROTECT_ARTIFACTS, Permissions, Rule
from refold.agent.tools.permissions import OPERATIONS, Decision, Operation
from refold.errors import ConfigurationError, PathError
from refold.files import Files, LocalFiles, open_files
from refold.files.composite import CompositeFiles

WORK: Final = "/work"
NO_WORK: Final = "none"

OWN: Final = Rule(
    effect="deny", paths=(f"{WORK}/**/{HOME}/**", f"{WORK}/{HOME}/**", f"{WORK}/**/{HOME}", f"{WORK}/{HOME}"),
    reason="refold keeps its threads there",
)  # fmt: skip
SECRETS: Final = Rule(
    effect="deny",
    paths=tuple(
        f"{WORK}/{start}{name}"
        for start in ("", "**/")
        for name in (
            ".env", ".env.*", "*.pem", "*.key", "*.p12", "*.pfx", "id_rsa*", "id_ed25519*", "id_ecdsa*", ".netrc",
            ".pgpass", ".npmrc", ".pypirc", ".ssh/**", ".aws/**", ".gnupg/**", ".kube/**",
            ".config/gcloud/**", ".git/**",
        )
    ),
    reason="it usually holds secrets; the user opens it with --allow",
)  # fmt: skip
ASK_FIRST: Final = Rule(effect="ask", paths=(f"{WORK}/**",), operations=("write", "delete"))


def open_place(place: str | None, work: str) -> Files:
    """The agent's files, with the directory that it works on mounted at `/work`; `none` mounts nothing."""
    own = open_files(place or f"{HOME}/files")
    if work == NO_WORK:
        return own
    directory = Path(work)
    if not directory.is_dir():
        raise ConfigurationError(f"--work {work}: there is no such directory; name one, or none to mount nothing")
    return CompositeFiles(own, {WORK: LocalFiles(directory)})


def rules_of(*, allow: Sequence[str], ask: Sequence[str], deny: Sequence[str]) -> Permissions:
    """The rules of a run; what is given on the command line comes before the defaults, deny before ask before allow.

    Each is a glob, or `OPERATIONS:GLOB` with operations such as `write` or `write,delete`. Raises `ConfigurationError`
    for an operation or a glob that is none.
    """
    given = [
        _rule(effect, text)
        for effect, texts in (("deny", deny), ("ask", ask), ("allow", allow))
        for text in texts
    ]  # fmt: skip
    return Permissions(PROTECT_ARTIFACTS, OWN, *given, SECRETS, ASK_FIRST)


def _rule(effect: str, text: str) -> Rule:
    start, colon, rest = text.partition(":")
    operations: tuple[Operation, ...] = OPERATIONS
    glob = text
    if colon and not start.startswith("/") and "*" not in start:
        named = [part.strip() for part in start.split(",")]
        unknown = [part for part in named if part not in OPERATIONS]
        if unknown:
            raise ConfigurationError(f"--{effect} {text}: {unknown[0]!r} is none of {', '.join(OPERATIONS)}")
        operations, glob = tuple(known for known in OPERATIONS if known in named), rest
    decision: Decision = "deny" if effect == "deny" else "ask" if effect == "ask" else "allow"
    try:
        return Rule(effect=decision, paths=(glob,), operations=operations)
    except PathError as error:
        raise ConfigurationError(f"--{effect} {text}: {error}") from error
