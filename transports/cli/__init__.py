"""The command ``penstock``."""

from collections.abc import Sequence

from transports.cli.interrupts import leave_at_once

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        arguments: What follows the name of the program. From ``sys.argv`` if None; then the process is the command's, and an
            interrupt before it begins, or when it is over, ends it with code 130 and without a word.

    Returns:
        The exit code.
    """
    if arguments is None:
        leave_at_once()
    from transports.cli.program import main as run  # noqa: PLC0415 - it takes long, see above

    return run(arguments)
