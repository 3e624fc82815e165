"""``penstock completion``: prints a shell script that completes the commands, generated from their parsers."""

import argparse
from typing import Final

from transports.cli.arguments import ArgumentParser
from transports.errors import ExtraMissing

__all__ = ["add_arguments", "run"]

_SHELLS: Final = ("bash", "zsh", "fish")
_FILES: Final = {"FILE": "file", "DIR": "directory", "BACKUP": "directory", "TARGET": "directory"}


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the arguments of the command."""
    parser.description = (
        "Prints a script with which a shell completes commands, options, files and directories. It is as new as the penstock "
        "that printed it: let the shell read it at each start, or print it again after an update."
    )
    parser.add_argument("shell", choices=_SHELLS, help="which shell is to read it")


def run(chosen: argparse.Namespace) -> int:
    """Prints the script for all commands, including those of other packages."""
    try:
        import shtab  # noqa: PLC0415 - an optional dependency
    except ImportError:
        raise ExtraMissing("the completion of commands", "shtab", "server") from None
    kinds = {"file": shtab.FILE, "directory": shtab.DIRECTORY}
    for action in [one for parser in chosen.whole.commands() for one in parser.actions]:
        for name in str(action.metavar or "").split("|"):
            if name in _FILES:
                action.complete = kinds[_FILES[name]]
    print(shtab.complete(chosen.whole, chosen.shell))
    return 0
