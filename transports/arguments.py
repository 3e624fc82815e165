"""Command lines: what is wrong with one is told in one line."""

import argparse
from typing import NoReturn

__all__ = ["ArgumentParser"]


class ArgumentParser(argparse.ArgumentParser):
    """A parser that says what is wrong, and where to read what would be right, instead of printing its usage."""

    def error(self, message: str) -> NoReturn:
        """Ends the command with exit code 2 and one line on standard error."""
        self.exit(2, f"{self.prog}: {' '.join(message.split())} ({self.prog} --help tells more)\n")
