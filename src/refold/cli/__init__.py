"""The command line: one module per command, each with a `register(app)` that adds it."""


def main() -> None:
    """Run the `refold` command with the process's arguments and exit with its code.

    Everything is imported here and not at import of the package: `refold --version` needs no agent library.
    """
    from refold.cli.main import run

    raise SystemExit(run())
