"""Command lines, whose errors take one line."""

import argparse
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Final, NoReturn

from transports.cli import lines

__all__ = ["PLACES", "ArgumentParser", "number", "readers_of"]

PLACES: Final = (
    "earliest, latest, a version, a time, the id of a transaction, or a cursor such as events carry"
)
"""How the position of a consumer may be told, for help texts."""


class ArgumentParser(argparse.ArgumentParser):
    """A parser whose errors are one line that refers to the help, instead of the usage.

    Args:
        example: A complete command line, which the help prints at its end.
        module: The module with ``add_arguments`` and ``run``. It is imported on demand, so that other commands need neither
            the time nor the extras that it takes.
    """

    def __init__(self, *given: Any, example: str = "", module: str | None = None, **named: Any) -> None:
        super().__init__(*given, **named)
        self.example = example
        self._module = module

    def fill(self) -> None:
        """Adds the arguments of the module, once."""
        name, self._module = self._module, None
        if name is not None:
            module = import_module(name)
            self.set_defaults(command=getattr(module, "run", None))
            module.add_arguments(self)
            for each in self.commands():
                lines.add_arguments(each)

    @property
    def actions(self) -> list[argparse.Action]:
        """The arguments and options."""
        return list(self._actions)

    def commands(self) -> "Iterator[ArgumentParser]":
        """Yields this parser, and the parsers of all commands below it."""
        self.fill()
        yield self
        for action in self._actions:
            if isinstance(action.choices, dict):
                for below in action.choices.values():
                    yield from below.commands()

    def parse_known_args(self, *given: Any, **named: Any) -> Any:
        """Parses the arguments; those that it does not know are an error here, where it is known which there are."""
        self.fill()
        found, unknown = super().parse_known_args(*given, **named)
        if unknown:
            options = [one.partition("=")[0] for one in unknown if one.startswith("-")]
            known = [name for action in self.actions for name in action.option_strings]
            near = [suggested for one in options for suggested in get_close_matches(one, known, 1)]
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            for near in get_close_matches(str(value), map(str, action.choices or ()), 1):
                error.message += f"; did you mean {near}?"
            raise

    # Kinds of arguments.

    def value(self, name: str, metavar: str, what: str, **named: Any) -> None:
        """Adds an argument, or an option with a value; ``takes_url`` is set if it may be the URL of a server."""
        if "URL" in metavar.split("|"):
            self.set_defaults(takes_url=True)
        self.add_argument(name, metavar=metavar, help=what, **named)

    def each(self, name: str, metavar: str, what: str) -> None:
        """Adds a repeatable option."""
        self.add_argument(name, action="append", default=[], metavar=metavar, help=f"{what}; repeatable")

    def flag(self, name: str, what: str) -> None:
        """Adds an option without a value."""
        self.add_argument(name, action="store_true", help=what)

    def directory(self) -> None:
        """Adds the argument ``DIR`` of commands on a log or a store."""
        self.value("directory", "DIR", "directory of a log, or of a store of logs")

    def readers(self, of: str) -> None:
        """Adds the option ``--readers``; see ``readers_of``."""
        self.add_argument(
            "--readers",
            choices=("owner", "group", "all"),
            help=f"which users of this machine may read {of} (default: owner; one that exists keeps its modes)",
        )

    def json(self, what: str = "print one JSON document") -> None:
        """Adds the option ``--json``."""
        self.flag("--json", what)

    def log_name(self, of: str = "server or store") -> None:
        """Adds the option ``--log``."""
        self.value("--log", "NAME", f"which log of a {of} that has several")

    def format_help(self) -> str:
        """Returns the help, with the example at its end."""
        text = super().format_help()
        return f"{text}\nexample:\n  {self.example}\n" if self.example else text

    def error(self, message: str) -> NoReturn:
        """Exits with code 2 and one line on standard error."""
        said = f"{self.prog}: {' '.join(message.split())} ({self.prog} --help tells more)"
        if lines.as_json():
            lines.say(said, 2)
            said = ""
        self.exit(2, said and said + "\n")


def readers_of(chosen: argparse.Namespace) -> dict[str, Any]:
    """Returns the option ``readers`` of a log, if the command was given it."""
    return {} if chosen.readers is None else {"readers": chosen.readers}


def number(low: int, high: int) -> Callable[[str], int]:
    """Returns the type of an option that is a whole number within bounds."""

    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):
            raise argparse.ArgumentTypeError(f"{text!r:.60} is not a whole number from {low} to {high}")
        return int(text)

    return parse
