"""Commands of other packages: the entry points of the group ``penstock.commands``.

An entry point names a function that takes the arguments behind the command's name as a list, and returns the exit code. The
first line of its docstring describes the command in ``penstock --help``.
"""

from collections.abc import Callable, Collection
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

from publishers.errors import PenstockError

__all__ = ["CommandBroken", "find_plugins", "help_of", "load_plugin"]

_GROUP: Final = "penstock.commands"


class CommandBroken(PenstockError):
    """A command of another package cannot be loaded.

    Attributes:
        name: The name of the command.
        target: The target of its entry point.
    """

    def __init__(self, entry: EntryPoint, why: str) -> None:
        super().__init__(f"the command {entry.name} ({entry.value}) cannot be loaded: {why}")
        self.name: str = entry.name
        self.target: str = entry.value


def find_plugins(*, without: Collection[str] = ()) -> dict[str, EntryPoint]:
    """Returns the entry points by command name, without the given names; imports nothing."""
    return {entry.name: entry for entry in entry_points(group=_GROUP) if entry.name not in without}


def load_plugin(entry: EntryPoint) -> Callable[[list[str]], Any]:
    """Imports the function that runs the command.

    Raises:
        CommandBroken: If that fails in any way, or if the target is not callable.
    """
    try:
        run: object = entry.load()
    except Exception as error:
        raise CommandBroken(entry, f"{type(error).__name__}: {error}") from error
    if not callable(run):
        raise CommandBroken(entry, f"it is {type(run).__name__}, which cannot be called")
    return run


def help_of(entry: EntryPoint) -> str:
    """Returns the help line of a command; for a broken command, the reason."""
    try:
        lines = (load_plugin(entry).__doc__ or "").strip().splitlines()
    except CommandBroken as error:
        lines = str(error).splitlines()
    line = lines[0].rstrip(".") if lines else f"a command of {entry.module}"
    return line[:1].lower() + line[1:].replace("%", "%%")  # argparse would interpret %
