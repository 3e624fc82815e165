"""Command lines: what is wrong with one is told in one line."""

import argparse
from typing import Any, NoReturn

__all__ = ["ArgumentParser"]


class ArgumentParser(argparse.ArgumentParser):
    """A parser that says what is wrong, and where to read what would be right, instead of printing its usage.

    Args:
        example: A whole command line, with which the help ends.
    """

    def __init__(self, *given: Any, example: str = "", **named: Any) -> None:
        super().__init__(*given, **named)
        self.example = example

    def format_help(self) -> str:
        """The help, and after it the example."""
        told = super().format_help()
        return f"{told}\nexample:\n  {self.example}\n" if self.example else told

    def error(self, message: str) -> NoReturn:
        """Ends the command with exit code 2 and one line on standard error."""
        self.exit(2, f"{self.prog}: {' '.join(message.split())} ({self.prog} --help tells more)\n")
