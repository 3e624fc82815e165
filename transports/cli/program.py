"""Parses the arguments, runs the command, and prints an error as one line, never as a traceback.

Exit codes: 0 done; 1 failed (the line on standard error says why); 2 invalid arguments or input; 130 interrupted; 141 the
reader of the output has closed it.
"""

import argparse
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import EntryPoint
from typing import Final

from flow.errors import FlowError
from publishers.errors import (
    InvalidChange,
    InvalidCriteria,
    InvalidName,
    InvalidOption,
    LogBusy,
    PenstockError,
    PositionMalformed,
)
from transports.cli import lines
from transports.cli.arguments import ArgumentParser
from transports.cli.interrupts import INTERRUPTED, interruptible
from transports.cli.plugins import find_plugins, help_of, load_plugin
from transports.errors import InvalidInput
from transports.server.version import version

__all__ = ["main"]

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
BROKEN_PIPE: Final = 141

_USERS_MISTAKES: Final = (
    InvalidChange,
    InvalidCriteria,
    InvalidInput,
    InvalidName,
    InvalidOption,
    PositionMalformed,
)

Command = Callable[[argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        arguments: The arguments behind the name of the program; from ``sys.argv`` if None.

    Returns:
        The exit code.
    """
    _open_streams()
    try:
        code = _guarded(sys.argv[1:] if arguments is None else list(arguments))
    finally:
        lines.end()
    try:
        sys.stdout.flush()
    except OSError:
        # Python flushes standard output once more at exit, and would print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _open_streams() -> None:
    """Opens standard streams that the caller has closed, so that no file of a log gets the descriptor of one.

    The output is UTF-8 in every locale: keys and names may contain any letters, and programs parse the JSON lines.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - for the lifetime of the process
        elif mode == "w" and isinstance(stream, io.TextIOWrapper):
            # Paths may contain bytes that are not UTF-8; they are printed unchanged.
            stream.reconfigure(encoding="utf-8", errors="surrogateescape")


def _guarded(arguments: list[str]) -> int:
    try:
        code = interruptible(lambda: _run(arguments))
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return BROKEN_PIPE
    except _USERS_MISTAKES as error:
        return _say(error, USAGE)
    except (PenstockError, FlowError, OSError) as error:
        return _say(error, FAILED)
    except Exception as error:
        if os.environ.get("PENSTOCK_DEBUG"):
            if not lines.as_json():
                raise
            lines.say(error, FAILED, trace=True)
            return FAILED
        return _say(f"internal error: {type(error).__name__}: {error} (PENSTOCK_DEBUG=1 shows where)", FAILED)


def _say(error: object, code: int) -> int:
    lines.say(error, code)
    return code


def _run(arguments: list[str]) -> int:
    first = arguments[0] if arguments else ""
    # Looking for plug-ins scans the installed packages; built-in commands skip that.
    plugins = {} if first in _COMMANDS and first != "completion" else find_plugins(without=_COMMANDS)
    if first in plugins:
        # The plug-in parses its own arguments; argparse would claim options for itself.
        return int(load_plugin(plugins[first])(arguments[1:]) or DONE)
    lines.begin_early(arguments)
    parser = _parser(plugins)
    try:
        chosen = parser.parse_args(arguments)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else USAGE
    command: Command | None = getattr(chosen, "command", None)
    if command is None:
        parser.print_help(sys.stderr)
        return USAGE
    lines.begin(chosen)
    try:
        return command(chosen)
    except LogBusy as error:  # the error itself recommends what only a program can do
        raise LogBusy(error.path, error.pid, _instead_of_writing(chosen)) from error


def _instead_of_writing(chosen: argparse.Namespace) -> str:
    if getattr(chosen, "own", False):
        return "stop it first, or leave out --own to serve what it writes"
    if getattr(chosen, "takes_url", False):
        return "stop it first, or give the URL of its server in place of the directory"
    return "stop it first"


def _parser(plugins: Mapping[str, EntryPoint]) -> argparse.ArgumentParser:
    parser = ArgumentParser(
        prog="penstock",
        description="Change data capture with backpressure.",
        epilog="Exit codes: 0 done, 1 failed, 2 wrong arguments or input, 130 interrupted, 141 broken pipe.",
    )
    parser.add_argument("--version", action="version", version=f"penstock {version()}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, (what, example) in _COMMANDS.items():
        commands.add_parser(name, help=what, example=example, module=f"transports.cli.{name}")
    for name in sorted(plugins):
        commands.add_parser(name, help=help_of(plugins[name]), add_help=False)
    parser.set_defaults(whole=parser)
    return parser


_COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "serve": ("serve a log, or a store of logs, over WebSockets", "penstock serve var/orders --port 8090"),
    "tail": (
        "print changes as JSON lines, from a server or a directory",
        "penstock tail ws://127.0.0.1:8090/ws --entity-type order --where 'total > 10' --since earliest",
    ),
    "append": (
        "append changes, given as JSON lines, as one transaction",
        """echo '{"entity_type": "order", "key": "42", "body": {"total": 1}}' | penstock append var/orders""",
    ),
    "log": (
        "list, create, drop and rename the logs of a store",
        "penstock log create var/shop orders --label owner=ann",
    ),
    "slot": (
        "list, make, move and drop the places that a log keeps for consumers",
        "penstock slot create var/orders stock --entity-type order --since earliest",
    ),
    "group": (
        "list, create, move and drop consumer groups, and handle their dead letters",
        "penstock group dead inspect var/orders pickers",
    ),
    "sinks": (
        "run the sinks that a file declares, show their figures, and control them",
        "penstock sinks run penstock.toml",
    ),
    "state": (
        "inspect the compacted state beside a log, and rebuild it",
        "penstock state get var/orders order 42",
    ),
    "verify": ("check every byte of a log, and name the damage", "penstock verify var/orders"),
    "dump": ("print the frames of a log as JSON lines", "penstock dump var/orders --from 41 --headers"),
    "repair": ("plan the repair of a damaged log, and carry it out", "penstock repair var/orders --write"),
    "backup": (
        "copy a log or a store, also while it is being written",
        "penstock backup var/orders backups/orders",
    ),
    "restore": (
        "put a log or a store back from its backup",
        "penstock restore backups/orders var/orders --replace",
    ),
    "policy": (
        "check a policy file, and print what it grants",
        "penstock policy check policy.toml --as ann --log orders",
    ),
    "stats": ("print the figures of a log or a server", "penstock stats http://127.0.0.1:8090/"),
    "top": (
        "show rates, lag and health of a log or a server, refreshed continuously",
        "penstock top http://127.0.0.1:8090/",
    ),
    "schema": (
        "print the registered schemas of a log",
        "penstock schema var/orders order --version 3",
    ),
    "version": ("print the version", "penstock version"),
    "completion": (
        "print a script with which a shell completes these commands",
        "source <(penstock completion bash)",
    ),
}
"""The description and an example of each command; its module here has the same name."""
