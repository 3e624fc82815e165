"""Arguments, and what becomes of errors: one line for the user, never a traceback.

Exit codes: 0 done; 1 it failed (the line on standard error says why); 2 the arguments or the input are wrong; 130
interrupted; 141 whoever read the output has left.
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
    PenstockError,
    PositionMalformed,
)
from transports.arguments import ArgumentParser
from transports.cli.asking import add_token
from transports.cli.backup import add_backup, add_restore
from transports.cli.checks import add_verify
from transports.cli.completion import add_completion
from transports.cli.dump import add_dump
from transports.cli.interrupts import INTERRUPTED, interruptible
from transports.cli.log import add_log
from transports.cli.plugins import find_plugins, help_of, load_plugin
from transports.cli.repair import add_repair
from transports.cli.schema import add_schema
from transports.cli.stats import add_stats
from transports.cli.viewing import add_lens, add_view
from transports.cli.wishes import add_criteria
from transports.errors import InvalidInput
from transports.version import version

__all__ = ["main"]

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
BROKEN_PIPE: Final = 141

_DEFAULT_PORT: Final = 8090
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
        arguments: What follows the name of the program; from ``sys.argv`` if None.

    Returns:
        The exit code.
    """
    _open_streams()
    code = _guarded(sys.argv[1:] if arguments is None else list(arguments))
    try:
        sys.stdout.flush()
    except OSError:
        # Python would flush standard output once more at exit, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _open_streams() -> None:
    """Opens the standard streams that the caller has closed, lest a file of a log gets the number of one.

    What is printed is UTF-8 in every locale: keys and names have any letters, and JSON lines are read by programs.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - as long as the process
        elif mode == "w" and isinstance(stream, io.TextIOWrapper):
            # Paths may hold bytes that are no letters; they come out as they are.
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
            raise
        return _say(f"internal error: {type(error).__name__}: {error} (PENSTOCK_DEBUG=1 shows where)", FAILED)


def _say(error: object, code: int) -> int:
    print("penstock: " + " ".join(str(error).split()), file=sys.stderr)
    return code


def _run(arguments: list[str]) -> int:
    first = arguments[0] if arguments else ""
    # Looking for plug-ins reads what is installed, which no command of our own has to wait for.
    plugins = {} if first in _COMMANDS else find_plugins(without={*_COMMANDS, "completion"})
    if first in plugins:
        # Its arguments are its own business: argparse would claim its options for itself.
        return int(load_plugin(plugins[first])(arguments[1:]) or DONE)
    parser = _parser(plugins)
    try:
        chosen = parser.parse_args(arguments)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else USAGE
    command: Command | None = getattr(chosen, "command", None)
    if command is None:
        parser.print_help(sys.stderr)
        return USAGE
    return command(chosen)


def _parser(plugins: Mapping[str, EntryPoint]) -> argparse.ArgumentParser:
    parser = ArgumentParser(
        prog="penstock",
        description="Change data capture with backpressure.",
        epilog="Exit codes: 0 done, 1 failed, 2 wrong arguments or input, 130 interrupted, 141 broken pipe.",
    )
    parser.add_argument("--version", action="version", version=f"penstock {version()}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for name, (add, what, example) in _COMMANDS.items():
        add(commands.add_parser(name, help=what, example=example))
    for name in sorted(plugins):
        commands.add_parser(name, help=help_of(plugins[name]), add_help=False)
    add_completion(
        commands.add_parser(
            "completion",
            help="print a script by which a shell completes these commands",
            example="source <(penstock completion bash)",
        ),
        parser,
    )
    return parser


def _add_serve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="directory of a log, or of a store of logs")
    parser.add_argument(
        "--own", action="store_true", help="open it for writing, instead of following its writer"
    )
    parser.add_argument(
        "--follow-name",
        action="store_true",
        help="when what DIR names is replaced, renamed or removed, serve what comes to that name",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port",
        type=_number(0, 65535),
        default=_DEFAULT_PORT,
        help="port to listen on, 0 for a free one (default: %(default)s)",
    )
    parser.add_argument(
        "--origin",
        action="append",
        default=[],
        metavar="URL",
        help="web page that may connect and read; repeatable",
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="name by which it may be asked, beside those of this machine, * for all; repeatable",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="let in who has one of its tokens, a line name:token each; read again on SIGHUP",
    )
    parser.add_argument(
        "--insecure", action="store_true", help="listen beyond this machine although nobody needs a token"
    )
    add_lens(parser)
    parser.set_defaults(command=_serve)


def _add_tail(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Prints changes as JSON lines. A server that is lost is waited for, while standard error says why and where it will go on; "
        "nothing is left out and nothing comes twice."
    )
    parser.epilog = (
        "Exit codes: 0 the limit, the last version or the end of the log was reached; 1 refused, or the server is lost for good; "
        "2 wrong arguments; 130 interrupted; 141 broken pipe."
    )
    parser.add_argument(
        "source", metavar="URL|DIR", help="ws://host:port/ws, or the directory of a log or store"
    )
    add_criteria(parser)
    parser.add_argument(
        "--since",
        default="latest",
        metavar="WHERE",
        help="latest, earliest, a version, a time such as 2026-03-01T12:00:00Z, the id of a transaction, or the cursor of "
        "an event (default: %(default)s)",
    )
    parser.add_argument(
        "--until", type=_number(1, 2**53 - 1), metavar="VERSION", help="end after this version"
    )
    parser.add_argument("--limit", type=_number(1, 2**53 - 1), metavar="N", help="end after so many changes")
    add_view(parser)
    parser.add_argument("--log", metavar="NAME", help="which log of a server or store that has several")
    parser.add_argument(
        "--retry",
        type=_number(0, 2**31 - 1),
        metavar="N",
        help="attempts in a row to reach a server again that is lost, 0 for none (default: without end)",
    )
    add_token(parser)
    parser.set_defaults(command=_tail)


def _add_append(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "directory", metavar="DIR", help="directory of a log, made if there is none, or of a store"
    )
    parser.add_argument(
        "file", metavar="FILE", nargs="?", default="-", help="JSON lines (default: standard input)"
    )
    parser.add_argument("--log", metavar="NAME", help="which log of a store that has several")
    parser.set_defaults(command=_append)


def _number(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):
            raise argparse.ArgumentTypeError(f"{text!r:.60} is not a whole number from {low} to {high}")
        return int(text)

    return parse


# Each command imports what it needs when it runs, so that the others work without the extras.


def _serve(chosen: argparse.Namespace) -> int:
    from transports.cli.serve import serve  # noqa: PLC0415 - see above

    return serve(chosen)


def _tail(chosen: argparse.Namespace) -> int:
    from transports.cli.tail import tail  # noqa: PLC0415 - see above

    return tail(chosen)


def _append(chosen: argparse.Namespace) -> int:
    from transports.cli.append import append  # noqa: PLC0415 - see above

    return append(chosen)


def _add_version(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=_print_version)


def _print_version(_: argparse.Namespace) -> int:
    print(f"penstock {version()}")
    return DONE


_COMMANDS: Final[dict[str, tuple[Callable[[argparse.ArgumentParser], None], str, str]]] = {
    "serve": (
        _add_serve,
        "serve a log, or a store of logs, over WebSockets",
        "penstock serve var/orders --port 8090",
    ),
    "tail": (
        _add_tail,
        "print changes as JSON lines, from a server or a directory",
        "penstock tail ws://127.0.0.1:8090/ws --entity-type order --where 'total > 10' --since earliest",
    ),
    "append": (
        _add_append,
        "append changes, given as JSON lines, as one transaction",
        """echo '{"entity_type": "order", "key": "42", "body": {"total": 1}}' | penstock append var/orders""",
    ),
    "log": (
        add_log,
        "list, create, drop and rename the logs of a store",
        "penstock log create var/shop orders --label owner=ann",
    ),
    "verify": (
        add_verify,
        "look at every byte of a log, and name what is damaged",
        "penstock verify var/orders",
    ),
    "dump": (
        add_dump,
        "print the frames of a log as JSON lines",
        "penstock dump var/orders --from 41 --headers",
    ),
    "repair": (
        add_repair,
        "plan, and carry out, what a damaged log needs",
        "penstock repair var/orders --write",
    ),
    "backup": (
        add_backup,
        "copy a log or a store, also while it is being written",
        "penstock backup var/orders backups/orders",
    ),
    "restore": (
        add_restore,
        "put a log or a store back from its backup",
        "penstock restore backups/orders var/orders --replace",
    ),
    "stats": (
        add_stats,
        "print what a log, or a server, tells of itself",
        "penstock stats http://127.0.0.1:8090/",
    ),
    "schema": (
        add_schema,
        "print the schemas that a log, or a server's, was told",
        "penstock schema var/orders order --version 3",
    ),
    "version": (_add_version, "print the version", "penstock version"),
}
