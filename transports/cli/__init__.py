"""The command ``penstock``.

Each subcommand is a module of the same name, with `add_arguments` and `run`. `program` parses the command line, runs the
subcommand, and prints an error as one line.
"""

from collections.abc import Sequence

from transports.cli.interrupts import leave_at_once

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        arguments: The arguments behind the name of the program. If None, those of ``sys.argv``; then the process belongs to
            the command, and an interrupt before the command begins or after it ends exits silently with code 130.

    Returns:
        The exit code.
    """
    if arguments is None:
        leave_at_once()
    from transports.cli.program import main as run  # noqa: PLC0415 - it takes long, see above

    return run(arguments)
